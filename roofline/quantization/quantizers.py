"""Quantizers of activations (PACT) and of weights (SAWB, max-abs).

Weights have equally spaced levels from -α to α. Level ``i`` of L (its *code*, 0 … L - 1) is the
integer 2·i - (L - 1) times the step α/(L - 1). 4 levels are -α, -α/3, α/3, α; an odd number of
levels includes zero.
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
"""Data types that can be quantized: those that torch computes in."""


def check_width(bits: object) -> None:
    """Check a bit width of codes, 1 to 16; raise an InputError otherwise."""
    if not isinstance(bits, int) or isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
        raise InputError(f"{bits!r} bits: must be an integer from 1 to {MOST_BITS}")


def widen(values: Tensor) -> Tensor:
    """Return values of half precision as float32, in which codes are distinct."""
    return values.float() if values.dtype in _NARROW else values


def align_axis(alpha: Tensor, weight: Tensor, axis: int) -> Tensor:
    """Return clipping values reshaped to broadcast along an axis of the weight."""
    if alpha.dim() == 0:
        return alpha
    shape = [1] * weight.dim()
    shape[axis] = -1
    return alpha.reshape(shape)


def integer_weights(codes: Tensor, levels: int) -> Tensor:
    """Return the integers that codes represent, -(L - 1) … L - 1, as int32."""
    return 2 * codes.to(torch.int32) - (levels - 1)


def code_type(bits: int) -> torch.dtype:
    """Return the smallest data type for codes: uint8, int16, or int32 for 16 bits."""
    if bits <= 8:
        return torch.uint8
    return torch.int16 if bits < 16 else torch.int32


def straight_through(values: Tensor, source: Tensor) -> Tensor:
    """Return the values, with the gradient of `source` (straight-through estimator)."""
    if not torch.is_grad_enabled():
        return values
    return (source - source.detach()).add_(values.detach())


def check_weight(weight: Tensor) -> None:
    """Check that weights can be quantized; raise an InputError otherwise."""
    _check_kind(weight)
    if is_readable(weight) and not bool(torch.isfinite(weight).all()):
        count = int((~torch.isfinite(weight)).sum())
        raise InputError(
            f"weights contain NaN or infinity ({count} of {weight.numel()}) and cannot be"
            " quantized; load another checkpoint"
        )


def is_readable(values: Tensor) -> bool:
    """Return whether values can be read: no fakes, no graph recording, no vmap."""
    is_real = type(values) in (Tensor, nn.Parameter) and not values.is_meta
    if not is_real or torch.compiler.is_compiling():
        return False
    # vmap may be nested in other transforms of torch.func.
    while is_functorch_wrapped_tensor(values):
        if is_batchedtensor(values):
            return False
        values = get_unwrapped(values)
    return True


def _check_kind(weight: Tensor) -> None:
    if weight.dtype not in FLOATS:
        kind = str(weight.dtype).removeprefix("torch.")
        raise InputError(
            f"weights of {kind} cannot be quantized; must be floating-point, 16 to 64 bits"
        )
    if weight.numel() == 0:
        raise InputError(f"weight of shape {tuple(weight.shape)} is empty; nothing to quantize")


# -- activations ----------------------------------------------------------------------------------

_FLOOR_PART = 1e-3
# Rounding error of bfloat16, with a margin.
_ROUNDED = 2**-8
# A compiled graph cannot reset α: it is only kept above zero.
_COMPILED_FLOOR = 1e-6


@dataclass(slots=True)
class _AlphaHistory:
    """History of an α in training; an object, so that DataParallel replicas share it."""

    largest: float | None = None
    has_warned: bool = False


class PACT(nn.Module):
    """Activation quantizer: y = clip(x, 0, α), rounded to 2^bits - 1 steps from 0 to α.

    dy/dx is 1 for 0 ≤ x < α, else 0; dy/dα is 1 for x ≥ α, else 0, summed over all elements.

    With ``signed``: y = clip(x, -α, α) on 2^bits - 1 levels including zero (1 bit: the two levels
    -α and α); dy/dx is 1 for -α < x < α, dy/dα 1 for x ≥ α and -1 for x ≤ -α.

    In training, an α at or below a thousandth of its maximum is reset to that, with one warning.
    ``name`` is the layer name in messages.

    Args:
        bits: 1 to 16.
        alpha: initial clipping value, above 0.
        decay: adds decay·α to the gradient of α: the loss term decay/2·α². Loss scaling does not
            apply to it.
        signed: activations may be negative.

    Raises:
        InputError: invalid bits, alpha or decay.
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
        self._history = _AlphaHistory()

    @property
    def steps(self) -> int:
        """Number of steps between 0 and α: the largest code."""
        if self.signed:
            return max(1, 2 ** (self.bits - 1) - 1)
        return 2**self.bits - 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the quantized activations in their data type; NaN stays NaN.

        Raises:
            InputError: activations are not floating-point, or α is invalid.
        """
        wide, alpha = self._operands(x)
        if self.training and self.decay > 0:
            alpha = _Decayed.apply(alpha, self.decay)
        clipped = self._clipped(wide, alpha)
        step = alpha.detach() / self.steps
        values = self._nearest(clipped.detach(), step).mul_(step)
        return straight_through(values, clipped).to(x.dtype)

    def codes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return integer codes (int32) and their step; their product is the result of `forward`.

        Codes are 0 … `steps`, or -`steps` … `steps` if signed.
        """
        with torch.no_grad():
            wide, alpha = self._operands(x)
            if is_readable(wide) and bool(torch.isnan(wide).any()):
                raise InputError(f"{self._subject}: activations contain NaN, which has no code")
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
                f"{self._subject}: activations of {kind}; must be floating-point, 16 to 64 bits"
            )
        self._watch_alpha()
        wide = widen(x)
        alpha = self.alpha.to(wide.dtype)
        if self.training and torch.compiler.is_compiling():
            alpha = straight_through(alpha.clamp(min=_COMPILED_FLOOR), alpha)
        return wide, alpha

    def _clipped(self, x: Tensor, alpha: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return torch.clamp(x, -alpha if self.signed else torch.zeros_like(alpha), alpha)
        # Gradients of `clamp` at its limits depend on torch's version; here x = α has none.
        low = x <= -alpha if self.signed else x < 0
        inside = torch.where(low, -alpha if self.signed else 0.0, x)
        return torch.where(x >= alpha, alpha, inside)

    def _nearest(self, clipped: Tensor, step: Tensor) -> Tensor:
        if self.signed and self.bits == 1:
            # NaN stays.
            return torch.where(clipped < 0, -1.0, torch.where(clipped >= 0, 1.0, clipped))
        return (clipped / step).round_()

    def _watch_alpha(self) -> None:
        """Reset α if training drove it to zero."""
        if not is_readable(self.alpha):
            return
        alpha = self.alpha.item()
        if not math.isfinite(alpha):
            raise InputError(
                f"{self._subject}: clipping value {alpha}, training has diverged; resume from an"
                " earlier checkpoint with a smaller learning rate"
            )
        floor = 0.0 if self._history.largest is None else _FLOOR_PART * self._history.largest
        # A second reset in one pass would break autograd: tolerate the rounding of the first.
        if alpha > (floor * (1 - _ROUNDED) if self.training else 0.0):
            if self.training:
                self._history.largest = max(alpha, self._history.largest or alpha)
            return
        if self._history.largest is None:
            raise InputError(
                f"{self._subject}: clipping value {alpha:g} must be above 0; use calibrate_clipping"
            )
        with torch.no_grad():
            self.alpha.fill_(floor)
        self._warn(alpha, floor)

    def _warn(self, alpha: float, floor: float) -> None:
        if self._history.has_warned:
            return
        self._history.has_warned = True
        warnings.warn(
            f"{self._subject}: training drove the clipping value to {alpha:g}; reset to"
            f" {floor:g}: use a smaller learning rate, less decay, or a better initial value from"
            " calibrate_clipping",
            stacklevel=2,
        )

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        # The history does not apply to a loaded α.
        self._history.largest = None
        super()._load_from_state_dict(*args, **options)


class _Decayed(torch.autograd.Function):
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
# Laplace, logistic, triangular, von Mises), find the clipping value α of minimum squared error,
# then fit a line through α/E|w| over √E[w²]/E|w|, with slope c1 and intercept -c2.
# ``benchmarks/sawb_coefficients.md`` compares them with the published ones.

MOST_SAWB_BITS = 4
"""Maximum bits of SAWB; wider weights use max-abs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Coefficients of α* = c1·√E[w²] - c2·E|w| for a number of levels.

    ``r_squared`` is the quality of the fit to six distributions; None: not fitted.
    """

    levels: int
    c1: float
    c2: float
    r_squared: float | None


COEFFICIENTS: Mapping[int, Coefficients] = MappingProxyType(
    {
        # For two levels, the mean magnitude is optimal.
        2: Coefficients(levels=2, c1=0.0, c2=-1.0, r_squared=None),
        3: Coefficients(levels=3, c1=2.5265, c2=1.6155, r_squared=0.9736),
        4: Coefficients(levels=4, c1=3.1252, c2=2.0683, r_squared=0.9821),
        8: Coefficients(levels=8, c1=7.3753, c2=6.7162, r_squared=0.9806),
        15: Coefficients(levels=15, c1=11.8271, c2=11.7598, r_squared=0.9734),
        16: Coefficients(levels=16, c1=12.1041, c2=12.0597, r_squared=0.9685),
    }
)
"""Coefficients by number of levels."""

R_SQUARED_AT_8_BITS = 0.93
"""R² of the linear fit for 256 levels, too low to be offered: uniform weights would have 64
times the minimum squared error.
"""


def sawb_coefficients(bits: int, levels: int | None = None) -> Coefficients:
    """Return the coefficients of a bit width; levels None: 2^bits.

    3 levels (2 bits) and 15 levels (4 bits) include zero.
    """
    check_width(bits)
    if bits == 8:
        raise InputError(
            f"SAWB at 8 bits: not available, as the linear fit is poor (R² {R_SQUARED_AT_8_BITS:g})"
            " and would clip a tenth of the range of uniform weights; use MaxAbs(8)"
        )
    if bits > MOST_SAWB_BITS:
        raise InputError(
            f"SAWB at {bits} bits: only 1 to {MOST_SAWB_BITS} bits have coefficients;"
            f" use MaxAbs({bits})"
        )
    chosen = 2**bits if levels is None else levels
    offered = [each for each in COEFFICIENTS if 2 ** (bits - 1) < each <= 2**bits]
    if chosen not in offered:
        choices = " or ".join(str(each) for each in offered)
        raise InputError(f"levels={levels!r}: SAWB at {bits} bits has {choices}")
    return COEFFICIENTS[chosen]


def levels_of(bits: int) -> int:
    """Return the default number of levels of a bit width; from 5 bits on, one less, to include
    zero.
    """
    return 2**bits if bits <= MOST_SAWB_BITS else 2**bits - 1


class WeightQuantizer(nn.Module):
    """Parametrization that maps a weight to equally spaced levels.

    ::

        parametrize.register_parametrization(conv, "weight", SAWB(2, per_channel=True))

    The float weight stays the trained parameter, with the gradient of the quantized one
    (straight-through). ``levels`` is the number of values, ``axis`` the channel dimension of the
    weight (1 for transposed convolutions).
    """

    def __init__(self, bits: int, levels: int, *, per_channel: bool, axis: int) -> None:
        super().__init__()
        self.bits = bits
        self.levels = levels
        self.per_channel = per_channel
        self.axis = axis

    def clipping(self, weight: Tensor) -> Tensor:
        """Return α: a scalar, or one per channel; float32 or float64, without gradient.

        Raises:
            InputError: weights that are empty or not floating-point.
        """
        with torch.no_grad():
            rows = self._rows(weight)
            alpha = self._clipping_of_rows(rows)
            return alpha if self.per_channel else alpha.squeeze(0)

    def codes(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes in the shape of the weight, and α as in `clipping`.

        Codes are 0 … levels - 1, as uint8 up to 8 bits, int16 up to 15, int32 for 16.

        Raises:
            InputError: weights that are NaN, infinite, empty or not floating-point.
        """
        check_weight(weight)
        with torch.no_grad():
            alpha = self.clipping(weight)
            return self._nearest(weight, alpha).to(code_type(self.bits)), alpha

    def forward(self, weight: Tensor) -> Tensor:
        """Return the quantized weight in its data type; NaN anywhere makes all of it NaN.

        Raises:
            InputError: weights that are empty or not floating-point.
        """
        alpha = self.clipping(weight)
        with torch.no_grad():
            step = align_axis(alpha, weight, self.axis) / (self.levels - 1)
            values = (2 * self._nearest(weight, alpha) - (self.levels - 1)) * step
        return straight_through(values.to(weight.dtype), weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return an assigned weight unchanged."""
        check_weight(weight)
        return weight

    def extra_repr(self) -> str:
        per = f", per channel (axis {self.axis})" if self.per_channel else ""
        return f"bits={self.bits}, levels={self.levels}{per}"

    def _clipping_of_rows(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def _rows(self, weight: Tensor) -> Tensor:
        _check_kind(weight)
        values = widen(weight.detach())
        if not self.per_channel:
            return values.reshape(1, -1)
        return values.movedim(self.axis, 0).reshape(values.shape[self.axis], -1)

    def _nearest(self, weight: Tensor, alpha: Tensor) -> Tensor:
        """Return the codes as floats; an α of 0 means that all weights are 0."""
        divisor = align_axis(
            torch.where(alpha == 0, torch.ones_like(alpha), alpha), weight, self.axis
        )
        ratio = (widen(weight.detach()) / divisor).clamp(-1, 1)
        return torch.round((ratio + 1) * ((self.levels - 1) / 2))


# Relative rounding error of a mean in float32.
_SAME = 1e-6


class SAWB(WeightQuantizer):
    """Weight quantizer with levels from -α to α, where α = c1·√E[w²] - c2·E|w|.

    The coefficients are for bell- and box-shaped distributions. α is the largest magnitude instead
    if the formula gives less than the mean magnitude, or if all magnitudes are equal.

    Args:
        bits: 1 to 4. 1 bit has two levels at ± the mean magnitude, which is optimal.
        per_channel: one α per output channel.
        levels: None: 2^bits. 3 (2 bits) and 15 (4 bits) include zero.
        axis: output channel dimension of the weight.

    Raises:
        InputError: bits or levels without coefficients.
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
        # Squares of weights above 1e19 overflow float32.
        is_none = (fitted < mean) | is_constant | ~fitted.isfinite()
        return torch.where(is_none, largest, fitted)


class MaxAbs(WeightQuantizer):
    """Weight quantizer with levels from -α to α, where α is the largest magnitude.

    Args:
        bits: 1 to 16.
        per_channel: one α per output channel.
        levels: None: 2^bits up to 4 bits, as in SAWB; from 5 bits on 2^bits - 1, including zero.
        axis: output channel dimension of the weight.

    Raises:
        InputError: invalid bits or levels.
    """

    def __init__(
        self, bits: int, *, per_channel: bool = False, levels: int | None = None, axis: int = 0
    ) -> None:
        check_width(bits)
        if levels is None:
            levels = levels_of(bits)
        elif type(levels) is not int or not 2 <= levels <= 2**bits:
            raise InputError(f"levels={levels!r}: {bits} bits allow 2 to {2**bits}")
        super().__init__(bits, levels, per_channel=per_channel, axis=axis)

    def _clipping_of_rows(self, rows: Tensor) -> Tensor:
        return rows.abs().amax(dim=1)


def weight_quantizer(bits: int, *, per_channel: bool, axis: int = 0) -> SAWB | MaxAbs:
    check_width(bits)
    kind = SAWB if bits <= MOST_SAWB_BITS else MaxAbs
    return kind(bits, per_channel=per_channel, axis=axis)
