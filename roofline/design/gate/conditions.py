"""The totals of a pass, and conditions on them as ``--fail-if`` takes them.

``flop>+1%`` is more than a hundredth above the baseline, ``launches>+3`` more than three above it,
``peak_memory_bytes>512MiB`` more than that, whatever the baseline says. All of it is worked out in
exact fractions: what is allowed to the last FLOP passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NoReturn

from roofline.errors import InputError, nearest
from roofline.foundation.places import PlacedError
from roofline.foundation.reading import cut
from roofline.foundation.text import printable
from roofline.foundation.units import format_bytes, format_flop, format_s, format_si

Kind = Literal["flop", "count", "byte", "s"]
"""What a total is counted in."""

_LEAST_SHARE = 5e-5
"""Changes that are smaller are told in units: rounded, they would look like none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One total: its name, which carries the unit, and its title in tables.

    ``is_time`` tells what depends on a machine from what depends on the model alone.
    """

    name: str
    title: str
    kind: Kind

    @property
    def is_time(self) -> bool:
        """Whether it is one of a machine, too."""
        return self.kind == "s"

    def form(self, value: float | None) -> str:
        """A value in words: ``"4.09 GFLOP"``; a dash where it is not known."""
        match self.kind:
            case "flop":
                return format_flop(value)
            case "byte":
                return format_bytes(value)
            case "s":
                return format_s(value)
            case "count":
                return format_si(value, "")

    def change(self, before: float, now: float) -> str:
        """The change in words: ``"+1.20 %"``, in the unit where that is next to nothing."""
        share = share_of(before, now)
        if share is None or abs(share) < _LEAST_SHARE:
            return f"{'+' if now >= before else '-'}{self.form(abs(now - before))}"
        percent = 100 * share
        decimals = 2 if abs(percent) < 10 else 1 if abs(percent) < 100 else 0
        return f"{percent:+.{decimals}f} %"


def share_of(before: float, now: float) -> float | None:
    """The change as a fraction of what was; None where that was nothing, or as good as nothing."""
    share = now / before - 1 if before else math.inf
    return share if math.isfinite(share) else None


QUANTITIES = (
    Quantity(name="flop", title="FLOP", kind="flop"),
    Quantity(name="macs", title="MACs", kind="count"),
    Quantity(name="traffic_bytes", title="traffic", kind="byte"),
    Quantity(name="parameters", title="parameters", kind="count"),
    Quantity(name="peak_memory_bytes", title="peak memory", kind="byte"),
    Quantity(name="launches", title="launches", kind="count"),
    Quantity(name="unknown_operators", title="calls without a formula", kind="count"),
    Quantity(name="eager_min_time_s", title="minimum, eager", kind="s"),
    Quantity(name="fused_min_time_s", title="minimum, fused", kind="s"),
    Quantity(name="model_min_time_s", title="minimum, model", kind="s"),
    Quantity(name="predicted_s", title="predicted", kind="s"),
)

BY_NAME = {each.name: each for each in QUANTITIES}
"""The quantities by the names that conditions give them."""


Form = Literal["absolute", "difference", "share"]
"""What a limit is: a value, a difference from the baseline, or a share of it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Exponents of more digits would be numbers that fill the memory.
_NUMBER = re.compile(r"(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?")
_SPACE = re.compile(r"\s*")

_PREFIXES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIMES = {
    "": Fraction(1),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "μs": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
_EXAMPLES: dict[Kind, str] = {
    "flop": "4GFLOP",
    "count": "25M",
    "byte": "512MiB",
    "s": "5ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """When a check fails: where a total is above (``>``) or below (``<``) a limit.

    ``limit`` is in the unit of the quantity, or a fraction where the form is ``share``; ``text`` is
    how it was written.
    """

    text: str
    quantity: Quantity
    sign: Literal["<", ">"]
    form: Form
    limit: Fraction

    @property
    def is_relative(self) -> bool:
        """Whether a baseline is needed."""
        return self.form != "absolute"

    def limit_at(self, baseline: float | None) -> Fraction:
        """The value that must not be passed, in the unit of the quantity.

        Args:
            baseline: what the total was; None only where the condition is not relative.
        """
        if self.form == "absolute" or baseline is None:
            return self.limit
        before = Fraction(baseline)
        return before * (1 + self.limit) if self.form == "share" else before + self.limit

    def fails(self, now: float, baseline: float | None) -> bool:
        """Whether the total is beyond its limit."""
        limit = self.limit_at(baseline)
        return Fraction(now) > limit if self.sign == ">" else Fraction(now) < limit


def parse_conditions(texts: Iterable[str] | str) -> tuple[Condition, ...]:
    """The conditions, each written as ``flop>+1%``; what is given twice counts once.

    Args:
        texts: several of them, or one.

    Raises:
        PlacedError: points at what is wrong in one of them.
        InputError: something that is no text.
    """
    found: dict[str, Condition] = {}
    for text in (texts,) if isinstance(texts, str) else texts:
        # From Python, anything may come.
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"fail_if: expected texts such as 'flop>+1%', got {text!r:.60}")
        condition = parse_condition(text)
        found.setdefault(condition.text, condition)
    return tuple(found.values())


def parse_condition(text: str) -> Condition:
    """The condition written as ``flop>+1%``, ``launches>+3`` or ``predicted_s>5ms``.

    Raises:
        PlacedError: points at what is wrong.
    """
    at = _after_space(text, 0)
    quantity, at = _quantity(text, at)
    sign, at = _sign(text, _after_space(text, at))
    at = _after_space(text, at)
    direction = text[at : at + 1] if text[at : at + 1] in ("+", "-") else ""
    at = _after_space(text, at + len(direction))
    found = _NUMBER.match(text, at)
    if found is None:
        _refuse(
            text,
            at,
            f"a number is expected, such as +1% (more than the baseline) or"
            f" {_EXAMPLES[quantity.kind]}",
        )
    number = Fraction(found[0]) * (-1 if direction == "-" else 1)
    unit_at = _after_space(text, found.end())
    unit = text[unit_at:].rstrip()
    # Spaces may be line ends, and messages are one line.
    said = " ".join(text.split())
    if unit == "%":
        if not direction:
            _refuse(text, at, f"{unit} of what? Write +{found[0]}% for more than the baseline has")
        return Condition(text=said, quantity=quantity, sign=sign, form="share", limit=number / 100)
    return Condition(
        text=said,
        quantity=quantity,
        sign=sign,
        form="difference" if direction else "absolute",
        limit=number * _factor(text, unit_at, unit, quantity),
    )


def _quantity(text: str, at: int) -> tuple[Quantity, int]:
    known = ", ".join(each.name for each in QUANTITIES)
    found = _NAME.match(text, at)
    if found is None:
        _refuse(text, at, f"the name of a total is expected, as in flop>+1%: {known}")
    name = found[0].lower()
    if name not in BY_NAME:
        suggestion = nearest(name, BY_NAME)
        _refuse(text, at, f"no total '{cut(found[0])}'{suggestion} (there are {known})")
    return BY_NAME[name], found.end()


def _sign(text: str, at: int) -> tuple[Literal["<", ">"], int]:
    if text[at : at + 1] not in ("<", ">"):
        _refuse(
            text,
            at,
            "> or < is expected, as in 'flop>+1%' (in quotes, or the shell takes > for its own)",
        )
    if text[at + 1 : at + 2] == "=":
        _refuse(text, at + 1, "write > or < alone: a total fails where it is beyond its limit")
    return ("<" if text[at] == "<" else ">"), at + 1


def _factor(text: str, at: int, unit: str, quantity: Quantity) -> Fraction:
    """How many of a quantity's base unit one is."""
    factor: Fraction | None = None
    match quantity.kind:
        case "s":
            factor = _TIMES.get(unit)
        case "byte":
            stem = unit.removesuffix("B")
            if unit in ("", "B"):
                factor = Fraction(1)
            elif stem not in (unit, "i"):
                factor = _power(stem.removesuffix("i"), 1024 if stem.endswith("i") else 1000)
        case "flop":
            factor = _power(unit.removesuffix("FLOP"), 1000)
        case "count":
            factor = _power(unit, 1000)
    if factor is None:
        what = f"'{cut(printable(unit))}' is no unit of {quantity.name}; write"
        _refuse(text, at, f"{what} {_EXAMPLES[quantity.kind]}, or +1%")
    return factor


def _power(prefix: str, base: int) -> Fraction | None:
    return Fraction(base ** _PREFIXES[prefix]) if prefix in _PREFIXES else None


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _refuse(text: str, at: int, what: str) -> NoReturn:
    raise PlacedError(f"--fail-if: {what}", text, at)
