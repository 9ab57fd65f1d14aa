"""What an operation on one number takes, real or complex.

Of complex numbers it is operations on real and imaginary parts. Products and quotients are the
textbook's: (a + bi)(c + di) takes four multiplications and two additions. Where one side is real,
its imaginary part takes part in nothing, as in 2 * (a + bi).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from roofline.workload.formulas.registry import Flop
from roofline.workload.tensors import TensorSpec as Tensor

TRANSCENDENTAL_FLOP = 8
"""Of exp, log, sin, tanh, erf …: the weight of F. H. McMahon, "The Livermore Fortran Kernels: A
Computer Test of the Numerical Performance Range", UCRL-53745, 1986."""

REAL_FMA = 4
"""Real multiply-adds of a complex one. Three products would do, with five additions (Gauss)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Simple operations, transcendental functions; a sum of costs is one after the other.

    ``least`` is what the shortest known way takes, 1 per function; None: all, in the textbook's.
    """

    simple: int
    functions: int = 0
    least: int | None = None

    @property
    def operations(self) -> int:
        """All of it as operations."""
        return self.simple + self.functions * TRANSCENDENTAL_FLOP

    @property
    def least_operations(self) -> int:
        """Operations that cannot be avoided, 1 per function."""
        return self.simple + self.functions if self.least is None else self.least

    def __add__(self, other: Cost | int) -> Cost:
        other = cost(other)
        return Cost(
            self.simple + other.simple,
            self.functions + other.functions,
            self.least_operations + other.least_operations,
        )

    __radd__ = __add__

    def __rmul__(self, times: int) -> Cost:
        return Cost(self.simple * times, self.functions * times, self.least_operations * times)

    def flop(self, times: int = 1) -> Flop:
        """The FLOP of so many of it."""
        return Flop(other=times * self.operations, least=times * self.least_operations)


def cost(of: Cost | int) -> Cost:
    """A number as so many simple operations."""
    return of if isinstance(of, Cost) else Cost(of)


F = Cost(0, 1)
"""A transcendental function."""

SCALED = Cost(2)
"""A complex number times, or divided by, a real one."""
PRODUCT = Cost(6)
SQUARE = Cost(6, least=5)
"""(a + bi)(a + bi); a * b is needed once only."""
MAGNITUDE = Cost(4)
"""sqrt(a * a + b * b)."""
QUOTIENT = Cost(11, least=9)
"""(a + bi)(c - di) / (c * c + d * d): the product, 3 and two divisions.

Source of the least: R. L. Smith, "Algorithm 116: Complex division", CACM 5 (8), 1962.
"""
RECIPROCAL = Cost(6)
"""(c - di) / (c * c + d * d): a sign change, 3 and two divisions."""
REAL_QUOTIENT = Cost(8, least=6)
"""r / (c + di): the reciprocal times r, or Smith's way."""
ROOT = Cost(9)
"""t = sqrt((|z| + |a|) / 2) and b / (2 * t): |z|, an addition, two scalings, a root, a division."""
EXPONENTIAL = 2 + 3 * F
"""exp(a) * (cos(b) + i sin(b))."""
LOGARITHM = 4 + 2 * F
"""log(|z|) + i atan2(b, a)."""
SINE = 2 + 4 * F
"""sin(a) * cosh(b) + i cos(a) * sinh(b), and its like."""
TANGENT = 5 + 4 * F
"""(sinh(2a) + i sin(2b)) / (cosh(2a) + cos(2b)): two doublings, a sum, two divisions."""
INVERSE_SINE = replace(SQUARE + 1 + ROOT + 2 + LOGARITHM, least=2)
"""asinh(z) = log(z + sqrt(z * z + 1)), and its like; no way does without two functions."""
INVERSE_TANGENT = replace(1 + 2 + QUOTIENT + LOGARITHM + SCALED, least=2)
"""atanh(z) = log((1 + z) / (1 - z)) / 2, and its like; no way does without two functions."""
POWER = replace(LOGARITHM + PRODUCT + EXPONENTIAL, least=10)
"""exp(y * log(z)); for a real y also (|z|^2)^(y/2), and cosine and sine of y times the angle."""
SIGMOID = 2 + EXPONENTIAL + 1 + RECIPROCAL
"""1 / (1 + exp(-z)): a sign change of both parts, an exponential, 1 added to the real part."""


def floats(*operands: Any) -> bool:
    """Whether one of the operands is a tensor of floating-point numbers."""
    return any(
        isinstance(each, Tensor) and each.dtype.kind in ("float", "complex") for each in operands
    )


def is_complex(operand: Any) -> bool:
    """Whether the operand, a tensor or a number, is complex."""
    return isinstance(operand, complex) or (
        isinstance(operand, Tensor) and operand.dtype.kind == "complex"
    )


def parts(operand: Any) -> int:
    """Real numbers in one of the operand: 2 if it is complex."""
    return 2 if is_complex(operand) else 1


def times(self: Any, other: Any) -> Cost:
    """A product of two numbers, at least one of them complex."""
    return PRODUCT if is_complex(self) and is_complex(other) else SCALED


def divided(self: Any, other: Any) -> Cost:
    """A quotient of two numbers, at least one of them complex."""
    if not is_complex(other):
        return SCALED
    return QUOTIENT if is_complex(self) else REAL_QUOTIENT


def plus(self: Any, other: Any, alpha: Any) -> Cost:
    """self + alpha * other, at least one of them complex; a real one changes the real part only."""
    addition = 2 if is_complex(self) and (is_complex(other) or is_complex(alpha)) else 1
    return addition + scaled(other, alpha)


def minus(other: Any, alpha: Any) -> Cost:
    """self - alpha * other, at least one of them complex; a real self leaves a sign change."""
    return (2 if is_complex(other) or is_complex(alpha) else 1) + scaled(other, alpha)


def scaled(other: Any, alpha: Any) -> Cost:
    """alpha * other, where a factor of 1 takes nothing."""
    if is_complex(other) or is_complex(alpha):
        return Cost(0) if alpha == 1 else times(other, alpha)
    return Cost(int(alpha != 1))
