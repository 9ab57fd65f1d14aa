"""Which quantiser a layer's weights get."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from roofline.errors import InputError
from roofline.quantization.grids import (
    FLOATS,
    WeightQuantizer,
    can_be_read,
    check_width,
    levels_asked,
    levels_of,
    method_of,
    sawb_coefficients,
    straight_through,
    widened,
)

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
        """The whole numbers of the activations, in int32, and the step that they count.

        Codes are 0 … `steps`, or -`steps` … `steps` where signed. Codes times the step is what
        `forward` gives.

        Raises:
            InputError: as of `forward`, and for activations that are NaN.
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
