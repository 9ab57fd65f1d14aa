"""Weights that are codes already: what stands in a layer in the place of a quantiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from roofline.quantization.codes.packing import unpack, unpacked
from roofline.quantization.quantizers.grids import WeightQuantizer, along, integers, widened


class StoredCodes(WeightQuantizer):
    """The parametrisation of a weight that is kept as packed codes, for inference.

    What it is a parametrisation of are the bytes that `packing.pack` gave, and what it gives is the
    weight, the same for good: there is nothing to train.

    Args:
        bits: of each code.
        levels: how many values codes stand for.
        shape: of the weight.
        alpha: the clipping value, or one for each channel.
        axis: the dimension of the weight that has the channels.
        dtype: of the weight.
    """

    alpha: Tensor
    like: Tensor

    def __init__(
        self,
        bits: int,
        levels: int,
        *,
        shape: Sequence[int],
        alpha: Tensor,
        axis: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__(bits, levels, per_channel=alpha.dim() > 0, axis=axis)
        self.shape = tuple(shape)
        self.register_buffer("alpha", alpha)
        # Follows the model into another type, as a weight would.
        self.register_buffer("like", torch.empty(0, dtype=dtype), persistent=False)

    def clipping(self, weight: Tensor) -> Tensor:
        """α: without a dimension, or one for each channel.

        Args:
            weight: the packed codes.
        """
        del weight
        return self.alpha

    def codes(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The codes in the shape of the weight, as uint8 or int32, and α.

        Args:
            weight: the packed codes.
        """
        return unpack(weight, self.bits, self.shape), self.alpha

    def forward(self, weight: Tensor) -> Tensor:
        """The weight, in the type that the model has.

        Args:
            weight: the packed codes.
        """
        codes = unpacked(weight, self.bits, self.shape)
        step = widened(self.alpha) / (self.levels - 1)
        return (integers(codes, self.levels) * along(step, codes, self.axis)).to(self.like.dtype)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Nothing is kept where a weight is assigned.

        Raises:
            NotImplementedError: always, as torch asks of what has no inverse.
        """
        raise NotImplementedError(
            f"a weight of shape {tuple(weight.shape)} cannot be assigned: the layer's own is kept"
            " as codes; assign it before packed_state, in the model that was trained"
        )
