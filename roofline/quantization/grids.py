"""Values equally spaced from -α to α, the codes that name them, and what maps weights onto them.

Of L levels, level ``i`` (its *code*, 0 … L - 1) is the whole number 2·i - (L - 1) times the step
α/(L - 1). So 4 levels are -α, -α/3, α/3, α; an odd number of levels has a zero in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor

from roofline.errors import InputError
from roofline.quantization.policy import MOST_BITS

# ``benchmarks/sawb_coefficients.py`` derives them: for each of six distributions (normal, uniform,
# Laplace, logistic, triangular, von Mises) it finds the clipping value α with the least mean square
# error, then lays a straight line through the six points: α/E|w| over √E[w²]/E|w|. Its slope is c1,
# its intercept -c2. ``benchmarks/sawb_coefficients.md`` has them beside the published ones.

Method = Literal["SAWB", "max-abs"]

MOST_SAWB_BITS = 4
"""Beyond that, weights are quantised by max-abs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """α* = c1·√E[w²] - c2·E|w| for weights on so many levels.

    ``r_squared`` says how well the line fits the six distributions; None where nothing was fitted.
    """

    levels: int
    c1: float
    c2: float
    r_squared: float | None


COEFFICIENTS: Mapping[int, Coefficients] = MappingProxyType(
    {
        # Of two levels, the mean magnitude is exactly the best.
        2: Coefficients(levels=2, c1=0.0, c2=-1.0, r_squared=None),
        3: Coefficients(levels=3, c1=2.5265, c2=1.6155, r_squared=0.9736),
        4: Coefficients(levels=4, c1=3.1252, c2=2.0683, r_squared=0.9821),
        8: Coefficients(levels=8, c1=7.3753, c2=6.7162, r_squared=0.9806),
        15: Coefficients(levels=15, c1=11.8271, c2=11.7598, r_squared=0.9734),
        16: Coefficients(levels=16, c1=12.1041, c2=12.0597, r_squared=0.9685),
    }
)
"""By number of levels."""

R_SQUARED_AT_8_BITS = 0.93
"""How well a straight line fits the best clipping values of 256 levels: too badly to be offered,
for uniform weights would have 64 times the least square error."""


def sawb_coefficients(bits: int, levels: int | None = None) -> Coefficients:
    """The coefficients of so many bits.

    Args:
        levels: None: all that the bits can name, 2^bits. 3 (of 2 bits) and 15 (of 4) have a zero.

    Raises:
        InputError: a width or a number of levels that SAWB is not offered for.
    """
    check_width(bits)
    if bits == 8:
        raise InputError(
            "SAWB at 8 bits: not offered, for no straight line fits its best clipping values"
            f" (R² {R_SQUARED_AT_8_BITS:g}) and uniform weights would lose the outer tenth of their"
            " range; use MaxAbs(8)"
        )
    if bits > MOST_SAWB_BITS:
        raise InputError(
            f"SAWB at {bits} bits: it has coefficients for 1 to {MOST_SAWB_BITS};"
            f" use MaxAbs({bits})"
        )
    chosen = 2**bits if levels is None else levels
    offered = [each for each in COEFFICIENTS if 2 ** (bits - 1) < each <= 2**bits]
    if chosen not in offered:
        choices = " or ".join(str(each) for each in offered)
        raise InputError(f"levels={levels!r}: SAWB at {bits} bits has {choices}")
    return COEFFICIENTS[chosen]


def method_of(bits: int) -> Method:
    """How weights of so many bits are quantised."""
    return "SAWB" if bits <= MOST_SAWB_BITS else "max-abs"


def levels_of(bits: int) -> int:
    """How many values weights of so many bits take where nothing else is asked for.

    From 5 bits on one of the codes is given up, so that zero is among the values.
    """
    return 2**bits if bits <= MOST_SAWB_BITS else 2**bits - 1


def method_words(bits: int) -> str:
    """How weights of so many bits are quantised, and why, in a clause."""
    levels = levels_of(bits)
    if bits == 1:
        return f"{levels} levels at ± the mean magnitude, which is exactly the best"
    if method_of(bits) == "SAWB":
        return f"SAWB, {levels} levels"
    if bits == 8:
        return (
            f"max-abs, {levels} levels (SAWB is not offered at 8 bits: its fit is poor,"
            f" R² {R_SQUARED_AT_8_BITS:g})"
        )
    return f"max-abs, {levels} levels (SAWB is offered for 1 to {MOST_SAWB_BITS} bits)"


def check_width(bits: object) -> None:
    """Refuses widths that no code can have.

    Raises:
        InputError: another value than a whole number from 1 to 16.
    """
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"{bits!r} bits: must be a whole number from 1 to {MOST_BITS}")


_NARROW = (torch.float16, torch.bfloat16)

FLOATS = (*_NARROW, torch.float32, torch.float64)
"""The types that torch computes in, and so those that can be quantised."""


def widened(values: Tensor) -> Tensor:
    """The values in float32 where they have less: codes would not be told apart in it."""
    return values.float() if values.dtype in _NARROW else values


def along(alpha: Tensor, weight: Tensor, axis: int) -> Tensor:
    """Clipping values so shaped that they stand along that axis of the weight.

    Args:
        weight: whose shape it is to meet.
    """
    if alpha.dim() == 0:
        return alpha
    shape = [1] * weight.dim()
    shape[axis] = -1
    return alpha.reshape(shape)


def integers(codes: Tensor, levels: int) -> Tensor:
    """The whole numbers that codes stand for in arithmetic, -(L - 1) … L - 1, in int32."""
    return 2 * codes.to(torch.int32) - (levels - 1)


def code_type(bits: int) -> torch.dtype:
    """The smallest type that holds codes of so many bits: uint8, int16, or int32 for 16."""
    if bits <= 8:
        return torch.uint8
    return torch.int16 if bits < 16 else torch.int32


def straight_through(values: Tensor, source: Tensor) -> Tensor:
    """Exactly the values, with the gradient of the source: that of rounding is taken to be 1."""
    if not torch.is_grad_enabled():
        return values
    return (source - source.detach()).add_(values.detach())


class WeightQuantizer(nn.Module):
    """Maps a weight onto equally spaced levels: a parametrisation of it.

    ::

        parametrize.register_parametrization(conv, "weight", SAWB(2, per_channel=True))

    The float weight stays the parameter that is trained, and its gradient is that of the quantised
    one (straight-through). ``levels`` is how many values there are, ``axis`` the dimension of the
    weight that has the channels (1 for transposed convolutions).
    """

    def __init__(self, bits: int, levels: int, *, per_channel: bool, axis: int) -> None:
        super().__init__()
        self.bits = bits
        self.levels = levels
        self.per_channel = per_channel
        self.axis = axis

    def clipping(self, weight: Tensor) -> Tensor:
        """α: without a dimension, or one for each channel. float32 or float64, without gradient.

        Raises:
            InputError: weights that are not floating-point numbers, or none at all.
        """
        with torch.no_grad():
            rows = self._rows(weight)
            alpha = self._clipping_of_rows(rows)
            return alpha if self.per_channel else alpha.squeeze(0)

    def codes(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The code of each weight, in its shape, and α as `clipping` gives it.

        Returns:
            Codes 0 … levels - 1, as uint8 up to 8 bits, int16 up to 15, int32 for 16; and α.

        Raises:
            InputError: weights that are NaN or infinite, or no floating-point numbers.
        """
        check_weight(weight)
        with torch.no_grad():
            alpha = self.clipping(weight)
            return self._nearest(weight, alpha).to(code_type(self.bits)), alpha

    def forward(self, weight: Tensor) -> Tensor:
        """The quantised weight, in the type of the weight. NaN makes all of it NaN, as torch does.

        Raises:
            InputError: weights that are not floating-point numbers, or none at all.
        """
        alpha = self.clipping(weight)
        with torch.no_grad():
            step = along(alpha, weight, self.axis) / (self.levels - 1)
            values = (2 * self._nearest(weight, alpha) - (self.levels - 1)) * step
        return straight_through(values.to(weight.dtype), weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What is kept where a weight is assigned: the weight itself.

        Raises:
            InputError: weights that are NaN or infinite, or no floating-point numbers.
        """
        check_weight(weight)
        return weight

    def extra_repr(self) -> str:
        per = f", per channel (axis {self.axis})" if self.per_channel else ""
        return f"bits={self.bits}, levels={self.levels}{per}"

    def _clipping_of_rows(self, rows: Tensor) -> Tensor:
        """α of each row."""
        raise NotImplementedError

    def _rows(self, weight: Tensor) -> Tensor:
        _check_kind(weight)
        values = widened(weight.detach())
        if not self.per_channel:
            return values.reshape(1, -1)
        return values.movedim(self.axis, 0).reshape(values.shape[self.axis], -1)

    def _nearest(self, weight: Tensor, alpha: Tensor) -> Tensor:
        """The codes, as floats. Where α is 0 all weights are, and so is every level."""
        divisor = along(torch.where(alpha == 0, torch.ones_like(alpha), alpha), weight, self.axis)
        ratio = (widened(weight.detach()) / divisor).clamp(-1, 1)
        return torch.round((ratio + 1) * ((self.levels - 1) / 2))


def check_weight(weight: Tensor) -> None:
    """Refuses weights that have no place on a grid.

    Raises:
        InputError: weights that are NaN or infinite, no floating-point numbers, or none at all.
    """
    _check_kind(weight)
    if can_be_read(weight) and not bool(torch.isfinite(weight).all()):
        count = int((~torch.isfinite(weight)).sum())
        raise InputError(
            f"weights hold NaN or infinite values ({count} of {weight.numel()}); they cannot be"
            " quantised: load a sound checkpoint"
        )


def can_be_read(values: Tensor) -> bool:
    """Whether values can be looked at: not of fakes, of a graph that is recorded, or under vmap."""
    return (
        type(values) in (Tensor, nn.Parameter)
        and not values.is_meta
        and not torch.compiler.is_compiling()
        and not _is_batched(values)
    )


def _is_batched(values: Tensor) -> bool:
    """Whether vmap runs over values, whatever else of torch.func does, too."""
    while is_functorch_wrapped_tensor(values):
        if is_batchedtensor(values):
            return True
        values = get_unwrapped(values)
    return False


def levels_asked(bits: int, levels: int | None, default: int) -> int:
    """The number of levels, where a user may ask for another than the default.

    Raises:
        InputError: bits other than 1 to 16, or levels that so many bits cannot name.
    """
    check_width(bits)
    if levels is None:
        return default
    is_whole = isinstance(levels, int) and not isinstance(levels, bool)
    if not is_whole or not 2 <= levels <= 2**bits:
        raise InputError(f"levels={levels!r}: {bits} bits name 2 to {2**bits}")
    return levels


def _check_kind(weight: Tensor) -> None:
    if weight.dtype not in FLOATS:
        kind = str(weight.dtype).removeprefix("torch.")
        raise InputError(
            f"weights of {kind} cannot be quantised: must be floating-point numbers of 16 to 64"
            " bits"
        )
    if weight.numel() == 0:
        raise InputError(f"a weight of shape {tuple(weight.shape)} has nothing to quantise")
