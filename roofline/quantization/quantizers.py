"""Quantizers of activations (PACT) and of weights (SAWB, max-abs).

Weights lie on values equally spaced from -α to α. Of L levels, level ``i`` (its *code*, 0 … L - 1)
is the whole number 2·i - (L - 1) times the step α/(L - 1). So 4 levels are -α, -α/3, α/3, α; an odd
number of levels has a zero in the middle.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor

from roofline.errors import InputError
from roofline.quantization.policy import MOST_BITS

_NARROW = (torch.float16, torch.bfloat16)

FLOATS = (*_NARROW, torch.float32, torch.float64)
"""The types that torch computes in, and so those that can be quantized."""


def check_width(bits: object) -> None:
    """Refuses, as an InputError, widths that no code can have: all but 1 to 16."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"{bits!r} bits: must be a whole number from 1 to {MOST_BITS}")


def widened(values: Tensor) -> Tensor:
    """The values in float32 where they have less: codes would not be told apart in it."""
    return values.float() if values.dtype in _NARROW else values


def along(alpha: Tensor, weight: Tensor, axis: int) -> Tensor:
    """Clipping values so shaped that they stand along that axis of the weight."""
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


def check_weight(weight: Tensor) -> None:
    """Refuses, as an InputError, weights that have no place on a grid."""
    _check_kind(weight)
    if can_be_read(weight) and not bool(torch.isfinite(weight).all()):
        count = int((~torch.isfinite(weight)).sum())
        raise InputError(
            f"weights hold NaN or infinite values ({count} of {weight.numel()}); they cannot be"
            " quantized: load a sound checkpoint"
        )


def can_be_read(values: Tensor) -> bool:
    """Whether values can be looked at: not of fakes, of a graph that is recorded, or under vmap."""
    is_real = type(values) in (Tensor, nn.Parameter) and not values.is_meta
    if not is_real or torch.compiler.is_compiling():
        return False
    # vmap may run over it, whatever else of torch.func does, too.
    while is_functorch_wrapped_tensor(values):
        if is_batchedtensor(values):
            return False
        values = get_unwrapped(values)
    return True


def _check_kind(weight: Tensor) -> None:
    if weight.dtype not in FLOATS:
        kind = str(weight.dtype).removeprefix("torch.")
        raise InputError(
            f"weights of {kind} cannot be quantized: must be floating-point numbers of 16 to 64"
            " bits"
        )
    if weight.numel() == 0:
        raise InputError(f"a weight of shape {tuple(weight.shape)} has nothing to quantize")


# -- activations ----------------------------------------------------------------------------------

_FLOOR_PART = 1e-3
# As bfloat16 rounds, and a little more.
_ROUNDED = 2**-8
# In a compiled graph nobody can look at α and set it back: it is only kept off zero.
_COMPILED_FLOOR = 1e-6


@dataclass(slots=True)
class _Past:
    """What training has done to an α. In an object, so that replicas (of DataParallel) share it."""

    largest: float | None = None
    has_warned: bool = False


class PACT(nn.Module):
    """y = clip(x, 0, α), rounded to 2^bits - 1 steps from 0 to α.

    dy/dx is 1 where 0 ≤ x < α, else 0; dy/dα is 1 where x ≥ α, else 0, summed over all elements.

    With ``signed``, for what no ReLU made: y = clip(x, -α, α) on 2^bits - 1 levels, zero among
    them (1 bit: the two levels -α and α); dy/dx is 1 where -α < x < α, dy/dα 1 where x ≥ α and -1
    where x ≤ -α.

    In training, α that falls to a thousandth of the largest it has had, or below, is set back to
    that, with one warning. ``name`` is what messages call the layer; whoever puts it there sets it.

    Args:
        bits: 1 to 16.
        alpha: the clipping value to begin with, above 0.
        decay: adds decay·α to the gradient of α, each time it is computed: the term decay/2·α² of
            the loss. It knows nothing of factors of the loss (as of gradient scaling): with one,
            decay must have it, too.
        signed: whether activations may be negative.

    Raises:
        InputError: bits other than 1 to 16, α that is not above 0, decay below 0.
    """

    def __init__(
        self, bits: int, *, alpha: float = 8.0, decay: float = 0.0, signed: bool = False
    ) -> None:
        super().__init__()
        check_width(bits)
        if not (math.isfinite(alpha) and alpha > 0):
            raise InputError(f"alpha={alpha!r}: a clipping value must be above 0")
        if not (math.isfinite(decay) and decay >= 0):
            raise InputError(f"decay={decay!r}: must be 0 or above")
        self.bits = bits
        self.signed = signed
        self.decay = decay
        self.name = ""
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self._past = _Past()

    @property
    def steps(self) -> int:
        """How many steps lie between 0 and α; codes reach to it."""
        if self.signed:
            return max(1, 2 ** (self.bits - 1) - 1)
        return 2**self.bits - 1

    def forward(self, x: Tensor) -> Tensor:
        """The activations on the grid, in their type; what is NaN stays NaN.

        Raises:
            InputError: activations that are no floating-point numbers, or α that is NaN, infinite,
                or not above 0 without ever having been.
        """
        wide, alpha = self._operands(x)
        if self.training and self.decay > 0:
            alpha = _Decayed.apply(alpha, self.decay)
        clipped = self._clipped(wide, alpha)
        step = alpha.detach() / self.steps
        values = self._nearest(clipped.detach(), step).mul_(step)
        return straight_through(values, clipped).to(x.dtype)

    def codes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The whole numbers of the activations, in int32, and the step that they count: 0 …
        `steps`, or -`steps` … `steps` where signed. Codes times the step is what `forward` gives.
        """
        with torch.no_grad():
            wide, alpha = self._operands(x)
            if can_be_read(wide) and bool(torch.isnan(wide).any()):
                raise InputError(f"{self._subject}: activations hold NaN, which has no code")
            step = alpha / self.steps
            return self._nearest(self._clipped(wide, alpha), step).to(torch.int32), step

    def extra_repr(self) -> str:
        signed = ", signed" if self.signed else ""
        decay = f", decay={self.decay:g}" if self.decay else ""
        return f"bits={self.bits}{signed}{decay}"

    @property
    def _subject(self) -> str:
        return f"PACT of '{self.name}'" if self.name else "PACT"

    def _operands(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.dtype not in FLOATS:
            kind = str(x.dtype).removeprefix("torch.")
            raise InputError(
                f"{self._subject}: activations of {kind}; must be floating-point, of 16 to 64 bits"
            )
        self._watch_alpha()
        wide = widened(x)
        alpha = self.alpha.to(wide.dtype)
        if self.training and torch.compiler.is_compiling():
            alpha = straight_through(alpha.clamp(min=_COMPILED_FLOOR), alpha)
        return wide, alpha

    def _clipped(self, x: Tensor, alpha: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return torch.clamp(x, -alpha if self.signed else torch.zeros_like(alpha), alpha)
        # `clamp` would hand a gradient to x where it is exactly α.
        inside = torch.where(x <= -alpha, -alpha, x) if self.signed else x.clamp(min=0)
        return torch.where(x >= alpha, alpha, inside)

    def _nearest(self, clipped: Tensor, step: Tensor) -> Tensor:
        if self.signed and self.bits == 1:
            # What is NaN is on neither side, and stays.
            return torch.where(clipped < 0, -1.0, torch.where(clipped >= 0, 1.0, clipped))
        return (clipped / step).round_()

    def _watch_alpha(self) -> None:
        """Sets α back where training drove it to nothing."""
        if not can_be_read(self.alpha):
            return
        alpha = self.alpha.item()
        if not math.isfinite(alpha):
            raise InputError(
                f"{self._subject}: its clipping value is {alpha}; training has diverged: go back to"
                " an earlier checkpoint, with a smaller learning rate"
            )
        floor = 0.0 if self._past.largest is None else _FLOOR_PART * self._past.largest
        # Set back twice in one pass, it could not be differentiated: what it was rounded to counts.
        if alpha > (floor * (1 - _ROUNDED) if self.training else 0.0):
            if self.training:
                self._past.largest = max(alpha, self._past.largest or alpha)
            return
        if self._past.largest is None:
            raise InputError(
                f"{self._subject}: its clipping value is {alpha:g}; must be above 0: find one with"
                " calibrate_clipping"
            )
        with torch.no_grad():
            self.alpha.fill_(floor)
        self._warn(alpha, floor)

    def _warn(self, alpha: float, floor: float) -> None:
        if self._past.has_warned:
            return
        self._past.has_warned = True
        warnings.warn(
            f"{self._subject}: training drove its clipping value to {alpha:g}; it is set back to"
            f" {floor:g}: use a smaller learning rate or less decay, or begin at a better value"
            " with calibrate_clipping",
            stacklevel=2,
        )

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        # What α was before says nothing of the one that is loaded.
        self._past.largest = None
        super()._load_from_state_dict(*args, **options)


class _Decayed(torch.autograd.Function):
    """α itself, whose gradient gets decay·α more."""

    generate_vmap_rule = True

    @staticmethod
    def forward(alpha: Tensor, decay: float) -> Tensor:
        del decay
        return alpha.view_as(alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        del output
        alpha, ctx.decay = inputs
        ctx.save_for_backward(alpha)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (alpha,) = ctx.saved_tensors
        return grad_outputs[0] + ctx.decay * alpha, None


# -- weights --------------------------------------------------------------------------------------

# ``benchmarks/sawb_coefficients.py`` derives them: for each of six distributions (normal, uniform,
# Laplace, logistic, triangular, von Mises) it finds the clipping value α with the least mean square
# error, then lays a straight line through the six points: α/E|w| over √E[w²]/E|w|. Its slope is c1,
# its intercept -c2. ``benchmarks/sawb_coefficients.md`` has them beside the published ones.

MOST_SAWB_BITS = 4
"""Beyond that, weights are quantized by max-abs."""


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
    """The coefficients of so many bits; None of levels: all that they can name, 2^bits. 3 (of 2
    bits) and 15 (of 4) have a zero.
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


def levels_of(bits: int) -> int:
    """How many values weights of so many bits take where nothing else is asked for.

    From 5 bits on one of the codes is given up, so that zero is among the values.
    """
    return 2**bits if bits <= MOST_SAWB_BITS else 2**bits - 1


class WeightQuantizer(nn.Module):
    """Maps a weight onto equally spaced levels: a parametrization of it.

    ::

        parametrize.register_parametrization(conv, "weight", SAWB(2, per_channel=True))

    The float weight stays the parameter that is trained, and its gradient is that of the quantized
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
        """The quantized weight, in the type of the weight. NaN makes all of it NaN, as torch does.

        Raises:
            InputError: weights that are not floating-point numbers, or none at all.
        """
        alpha = self.clipping(weight)
        with torch.no_grad():
            step = along(alpha, weight, self.axis) / (self.levels - 1)
            values = (2 * self._nearest(weight, alpha) - (self.levels - 1)) * step
        return straight_through(values.to(weight.dtype), weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What is kept where a weight is assigned: the weight itself."""
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
        if levels is None:
            levels = levels_of(bits)
        elif type(levels) is not int or not 2 <= levels <= 2**bits:
            raise InputError(f"levels={levels!r}: {bits} bits name 2 to {2**bits}")
        super().__init__(bits, levels, per_channel=per_channel, axis=axis)

    def _clipping_of_rows(self, rows: Tensor) -> Tensor:
        return rows.abs().amax(dim=1)


def weight_quantizer(bits: int, *, per_channel: bool, axis: int = 0) -> SAWB | MaxAbs:
    """SAWB up to 4 bits, max-abs beyond."""
    check_width(bits)
    kind = SAWB if bits <= MOST_SAWB_BITS else MaxAbs
    return kind(bits, per_channel=per_channel, axis=axis)
