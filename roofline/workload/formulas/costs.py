"""Cost of an operation on one number, real or complex.

Complex operations are counted as operations on real and imaginary parts. Products and quotients are
the textbook's: (a + bi)(c + di) takes four multiplications and two additions. A real operand has no
imaginary part to compute with, as in 2 * (a + bi).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from roofline.workload.formulas.registry import Flop
from roofline.workload.tensors import TensorSpec as Tensor

TRANSCENDENTAL_FLOP = 8
"""FLOP of exp, log, sin, tanh, erf …: the weight of F. H. McMahon, "The Livermore Fortran Kernels:
A Computer Test of the Numerical Performance Range", UCRL-53745, 1986."""

REAL_MACS = 4
"""Real MACs per complex MAC. Three products would do, with five additions (Gauss)."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Simple operations and transcendental functions; a sum of costs is their sequence.

    ``least`` is the cost of the shortest known method, 1 per function; None: all operations.
    """

    simple: int
    functions: int = 0
    least: int | None = None

    @property
    def operations(self) -> int:
        """All operations, functions weighted."""
        return self.simple + self.functions * TRANSCENDENTAL_FLOP

    @property
    def min_operations(self) -> int:
        """Operations that cannot be avoided, 1 per function."""
        return self.simple + self.functions if self.least is None else self.least

    def __add__(self, other: Cost | int) -> Cost:
        other = cost(other)
        return Cost(
            self.simple + other.simple,
            self.functions + other.functions,
            self.min_operations + other.min_operations,
        )

    __radd__ = __add__

    def __rmul__(self, times: int) -> Cost:
        return Cost(self.simple * times, self.functions * times, self.min_operations * times)

    def flop(self, times: int = 1) -> Flop:
        return Flop(other=times * self.operations, least=times * self.min_operations)


def cost(of: Cost | int) -> Cost:
    return of if isinstance(of, Cost) else Cost(of)


F = Cost(0, 1)
"""A transcendental function."""

SCALED = Cost(2)
"""Product or quotient of a complex number and a real one."""
PRODUCT = Cost(6)
SQUARE = Cost(6, least=5)
"""(a + bi)(a + bi); a * b is needed only once."""
MAGNITUDE = Cost(4)
"""sqrt(a * a + b * b)."""
QUOTIENT = Cost(11, least=9)
"""(a + bi)(c - di) / (c * c + d * d): the product, 3 operations and two divisions.

Source of the minimum: R. L. Smith, "Algorithm 116: Complex division", CACM 5 (8), 1962."""
RECIPROCAL = Cost(6)
"""(c - di) / (c * c + d * d): a sign change, 3 operations and two divisions."""
REAL_QUOTIENT = Cost(8, least=6)
"""r / (c + di): the reciprocal times r, or Smith's method."""
ROOT = Cost(9)
"""t = sqrt((|z| + |a|) / 2) and b / (2 * t): |z|, an addition, two scalings, a root, a division."""
EXPONENTIAL = 2 + 3 * F
"""exp(a) * (cos(b) + i sin(b))."""
LOGARITHM = 4 + 2 * F
"""log(|z|) + i atan2(b, a)."""
SINE = 2 + 4 * F
"""sin(a) * cosh(b) + i cos(a) * sinh(b); cos, sinh and cosh alike."""
TANGENT = 5 + 4 * F
"""(sinh(2a) + i sin(2b)) / (cosh(2a) + cos(2b)): two doublings, a sum, two divisions."""
INVERSE_SINE = replace(SQUARE + 1 + ROOT + 2 + LOGARITHM, least=2)
"""asinh(z) = log(z + sqrt(z * z + 1)), and related; every method needs two functions."""
INVERSE_TANGENT = replace(1 + 2 + QUOTIENT + LOGARITHM + SCALED, least=2)
"""atanh(z) = log((1 + z) / (1 - z)) / 2, and related; every method needs two functions."""
POWER = replace(LOGARITHM + PRODUCT + EXPONENTIAL, least=10)
"""exp(y * log(z)); for a real y also (|z|^2)^(y/2), and cosine and sine of y times the angle."""
SIGMOID = 2 + EXPONENTIAL + 1 + RECIPROCAL
"""1 / (1 + exp(-z)): a sign change of both parts, an exponential, 1 added to the real part."""


def has_floats(*operands: Any) -> bool:
    """True if one of the operands is a tensor of floating-point numbers."""
    return any(
        isinstance(each, Tensor) and each.dtype.kind in ("float", "complex") for each in operands
    )


def is_complex(operand: Any) -> bool:
    return isinstance(operand, complex) or (
        isinstance(operand, Tensor) and operand.dtype.kind == "complex"
    )


def components(operand: Any) -> int:
    """Real numbers per element of the operand: 2 if it is complex."""
    return 2 if is_complex(operand) else 1


def product_cost(self: Any, other: Any) -> Cost:
    """Cost of a product of two numbers, at least one of them complex."""
    return PRODUCT if is_complex(self) and is_complex(other) else SCALED


def quotient_cost(self: Any, other: Any) -> Cost:
    """Cost of a quotient of two numbers, at least one of them complex."""
    if not is_complex(other):
        return SCALED
    return QUOTIENT if is_complex(self) else REAL_QUOTIENT


def sum_cost(self: Any, other: Any, alpha: Any) -> Cost:
    """Cost of self + alpha * other, at least one complex; a real one changes the real part only."""
    addition = 2 if is_complex(self) and (is_complex(other) or is_complex(alpha)) else 1
    return addition + scale_cost(other, alpha)


def difference_cost(other: Any, alpha: Any) -> Cost:
    """Cost of self - alpha * other, at least one complex; a real self leaves a sign change."""
    return (2 if is_complex(other) or is_complex(alpha) else 1) + scale_cost(other, alpha)


def scale_cost(other: Any, alpha: Any) -> Cost:
    """Cost of alpha * other; a factor of 1 costs nothing."""
    if is_complex(other) or is_complex(alpha):
        return Cost(0) if alpha == 1 else product_cost(other, alpha)
    return Cost(int(alpha != 1))
