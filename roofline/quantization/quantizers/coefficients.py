"""SAWB's coefficients by number of levels, and which method a width of weights gets.

``benchmarks/sawb_coefficients.py`` derives them: for each of six distributions (normal, uniform,
Laplace, logistic, triangular, von Mises) it finds the clipping value α with the least mean square
error, then lays a straight line through the six points: α/E|w| over √E[w²]/E|w|. Its slope is c1,
its intercept -c2. ``benchmarks/sawb_coefficients.md`` has them beside the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from roofline.errors import InputError
from roofline.quantization.policy import MOST_BITS

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
        bits: 1 to 4.
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
