"""Operations on complex numbers, in operations on their real and imaginary parts.

Products and quotients are the textbook's: (a + bi)(c + di) takes four multiplications and two
additions. Where one side is real, its imaginary part takes part in nothing, as in 2 * (a + bi).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from roofline.workload.tensors import TensorSpec

REAL_FMA = 4
"""Real multiply-adds of a complex one. Three products would do, with five additions (Gauss)."""


class Cost(NamedTuple):
    """Of one complex number: simple operations, transcendental functions, and all at the least.

    ``least`` is what the shortest known way takes, 1 per function, where the textbook's is longer.
    """

    simple: int
    functions: int = 0
    least: int | None = None

    @property
    def least_operations(self) -> int:
        """Operations that cannot be avoided, 1 per function."""
        return self.simple + self.functions if self.least is None else self.least


def series(*costs: Cost) -> Cost:
    """One after the other."""
    return Cost(
        simple=sum(each.simple for each in costs),
        functions=sum(each.functions for each in costs),
        least=sum(each.least_operations for each in costs),
    )


SUM = Cost(2)
SCALED = Cost(2)
"""Times, or divided by, a real number."""
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
EXPONENTIAL = Cost(2, 3)
"""exp(a) * (cos(b) + i sin(b))."""
LOGARITHM = Cost(4, 2)
"""log(|z|) + i atan2(b, a)."""
SINE = Cost(2, 4)
"""sin(a) * cosh(b) + i cos(a) * sinh(b), and its like."""
TANGENT = Cost(5, 4)
"""(sinh(2a) + i sin(2b)) / (cosh(2a) + cos(2b)): two doublings, a sum, two divisions."""
INVERSE_SINE = series(SQUARE, Cost(1), ROOT, SUM, LOGARITHM)._replace(least=2)
"""asinh(z) = log(z + sqrt(z * z + 1)), and its like; no way does without two functions."""
INVERSE_TANGENT = series(Cost(1), Cost(2), QUOTIENT, LOGARITHM, SCALED)._replace(least=2)
"""atanh(z) = log((1 + z) / (1 - z)) / 2, and its like; no way does without two functions."""
POWER = series(LOGARITHM, PRODUCT, EXPONENTIAL)._replace(least=10)
"""exp(y * log(z)); for a real y also (|z|^2)^(y/2), and cosine and sine of y times the angle."""
SIGMOID = series(Cost(2), EXPONENTIAL, Cost(1), RECIPROCAL)
"""1 / (1 + exp(-z)): a sign change of both parts, an exponential, 1 added to the real part."""


def is_complex(operand: Any) -> bool:
    """Whether the operand, a tensor or a number, is complex."""
    return isinstance(operand, complex) or (
        isinstance(operand, TensorSpec) and operand.dtype.kind == "complex"
    )


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
    addition = Cost(2 if is_complex(self) and (is_complex(other) or is_complex(alpha)) else 1)
    return addition if alpha == 1 else series(addition, _scaled(other, alpha))


def minus(self: Any, other: Any, alpha: Any) -> Cost:
    """self - alpha * other, at least one of them complex; a real self leaves a sign change."""
    difference = Cost(2 if is_complex(other) or is_complex(alpha) else 1)
    return difference if alpha == 1 else series(difference, _scaled(other, alpha))


def _scaled(other: Any, alpha: Any) -> Cost:
    if is_complex(other) or is_complex(alpha):
        return times(other, alpha)
    return Cost(1)
