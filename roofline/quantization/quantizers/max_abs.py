"""Weights on levels up to their largest magnitude: nothing is clipped."""

from __future__ import annotations

from torch import Tensor

from roofline.quantization.quantizers.coefficients import check_width, levels_of
from roofline.quantization.quantizers.grids import WeightQuantizer, levels_asked


class MaxAbs(WeightQuantizer):
    """Weights on levels from -α to α, where α is the largest magnitude among them.

    Args:
        bits: 1 to 16.
        per_channel: one α for each output channel instead of one for the tensor.
        levels: None: 2^bits up to 4 bits, as SAWB has; from 5 on 2^bits - 1, with a zero.
        axis: the dimension of the weight that has the output channels.

    Raises:
        InputError: bits other than 1 to 16, or levels that so many bits cannot name.
    """

    def __init__(
        self, bits: int, *, per_channel: bool = False, levels: int | None = None, axis: int = 0
    ) -> None:
        check_width(bits)
        chosen = levels_asked(bits, levels, levels_of(bits))
        super().__init__(bits, chosen, per_channel=per_channel, axis=axis)

    def _clipping_of_rows(self, rows: Tensor) -> Tensor:
        return rows.abs().amax(dim=1)
