"""Which quantiser a layer's weights get."""

from __future__ import annotations

import torch
from torch import Tensor

from roofline.quantization.grids import (
    WeightQuantizer,
    check_width,
    levels_asked,
    levels_of,
    method_of,
    sawb_coefficients,
)

# Within the rounding of a mean in float32.
_SAME = 1e-6


class SAWB(WeightQuantizer):
    """Weights on levels from -α to α, α = c1·√E[w²] - c2·E|w|, found anew from each weight.

    The coefficients are for weights spread as bell or box shapes are. Where the line gives less
    than the mean magnitude, which no best clipping value can be (so where α* ≤ 0, too), or where
    all weights have the same magnitude, α is the largest magnitude instead.

    Args:
        bits: 1 to 4. 1 bit has two levels at ± the mean magnitude, which is exactly the best.
        per_channel: one α for each output channel instead of one for the tensor.
        levels: None: 2^bits. 3 of 2 bits and 15 of 4 have a level at zero.
        axis: the dimension of the weight that has the output channels.

    Raises:
        InputError: bits or levels without coefficients; 8 bits, where the fit is poor.
    """

    def __init__(
        self, bits: int, *, per_channel: bool = False, levels: int | None = None, axis: int = 0
    ) -> None:
        found = sawb_coefficients(bits, levels)
        super().__init__(bits, found.levels, per_channel=per_channel, axis=axis)
        self.c1 = found.c1
        self.c2 = found.c2

    def _clipping_of_rows(self, rows: Tensor) -> Tensor:
        magnitude = rows.abs()
        mean = magnitude.mean(dim=1)
        largest = magnitude.amax(dim=1)
        fitted = self.c1 * rows.square().mean(dim=1).sqrt() - self.c2 * mean
        is_constant = largest - mean <= _SAME * largest
        # The squares of weights beyond 1e19 are more than float32 holds.
        is_none = (fitted < mean) | is_constant | ~fitted.isfinite()
        return torch.where(is_none, largest, fitted)


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


def weight_quantizer(bits: int, *, per_channel: bool, axis: int = 0) -> SAWB | MaxAbs:
    """SAWB up to 4 bits, max-abs beyond; `coefficients.method_words` says which, and why.

    Raises:
        InputError: bits other than 1 to 16.
    """
    check_width(bits)
    kind = SAWB if method_of(bits) == "SAWB" else MaxAbs
    return kind(bits, per_channel=per_channel, axis=axis)
