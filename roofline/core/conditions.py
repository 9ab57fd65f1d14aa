"""Conditions on totals, as in ``--fail-if``.

``flop>+1%`` and ``launches>+3`` are relative to a baseline, ``peak_memory_bytes>512MiB`` and
``mape>15%`` absolute. Limits are exact fractions: a value equal to its limit passes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from roofline.core.files import cut
from roofline.core.source_errors import PlacedError
from roofline.core.text import printable
from roofline.core.units import (
    format_bytes,
    format_flop,
    format_percent,
    format_s,
    format_si,
)
from roofline.errors import InputError, argument, did_you_mean

Kind = Literal["flop", "count", "byte", "s", "share"]
"""Unit of a total; a share is a fraction, written in percent."""

_LEAST_SHARE = 5e-5
"""Smaller changes are shown in units: in percent they would round to 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A total: name with unit, title in tables, and unit."""

    name: str
    title: str
    kind: Kind

    @property
    def is_time(self) -> bool:
        """True for times, which depend on a machine."""
        return self.kind == "s"

    def form(self, value: float | None) -> str:
        """Return a value in words: ``"4.09 GFLOP"``; a dash where it is not known."""
        match self.kind:
            case "flop":
                return format_flop(value)
            case "byte":
                return format_bytes(value)
            case "s":
                return format_s(value)
            case "count":
                return format_si(value, "")
            case "share":
                return format_percent(value)

    def change(self, before: float, now: float) -> str:
        """Return the change: ``"+1.20 %"``, in the unit where that is next to nothing."""
        share = share_of(before, now)
        if share is None or abs(share) < _LEAST_SHARE:
            return f"{'+' if now >= before else '-'}{self.form(abs(now - before))}"
        percent = 100 * share
        decimals = 2 if abs(percent) < 10 else 1 if abs(percent) < 100 else 0
        return f"{percent:+.{decimals}f} %"


def share_of(before: float, now: float) -> float | None:
    """Return the change as a fraction of `before`; None where that was (as good as) nothing."""
    share = now / before - 1 if before else math.inf
    return share if math.isfinite(share) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A limit of a total: fails above (``>``) or below (``<``) it.

    ``form`` is the kind of limit: a value, a difference from the baseline, or a share of it.
    ``limit`` is in the unit of the quantity, for ``share`` a fraction; ``text`` is the condition as
    written.
    """

    text: str
    quantity: Quantity
    sign: Literal["<", ">"]
    form: Literal["absolute", "difference", "share"]
    limit: Fraction

    @property
    def is_relative(self) -> bool:
        """True if a baseline is needed."""
        return self.form != "absolute"

    def limit_at(self, baseline: float | None) -> Fraction:
        """Return the value that must not be passed, in the unit of the quantity.

        Args:
            baseline: what the total was; None only where the condition is not relative.
        """
        if self.form == "absolute" or baseline is None:
            return self.limit
        before = Fraction(baseline)
        return before * (1 + self.limit) if self.form == "share" else before + self.limit

    def fails(self, now: float, baseline: float | None = None) -> bool:
        """Return whether the total is beyond its limit."""
        limit = self.limit_at(baseline)
        return Fraction(now) > limit if self.sign == ">" else Fraction(now) < limit


def parse_conditions(
    texts: Iterable[str] | str, quantities: Mapping[str, Quantity]
) -> tuple[Condition, ...]:
    """Return the conditions, each written as ``flop>+1%``; what is given twice counts once.

    Args:
        texts: several of them, or one.
        quantities: what they may be on, by name.
    """
    found: dict[str, Condition] = {}
    several = (texts,) if isinstance(texts, str) or not isinstance(texts, Iterable) else texts  # pyright: ignore[reportUnnecessaryIsInstance]
    for text in several:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"fail_if: expected texts such as 'flop>+1%', got {text!r:.60}")
        condition = _parsed(text, quantities)
        found.setdefault(condition.text, condition)
    return tuple(found.values())


# Longer exponents would make numbers that fill the memory.
_FORM = re.compile(
    r"\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*|)\s*(?P<sign>[<>]|)\s*(?P<direction>[+-]|)\s*"
    r"(?P<number>(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][+-]?[0-9]{1,2})?|)\s*"
    r"(?P<unit>.*)",
    re.DOTALL,
)
_EXAMPLES: dict[Kind, str] = {
    "flop": "4GFLOP",
    "count": "25M",
    "byte": "512MiB",
    "s": "5ms",
    "share": "15%",
}


def _parsed(text: str, quantities: Mapping[str, Quantity]) -> Condition:
    found = _FORM.match(text.rstrip())
    assert found is not None, "all parts may be missing"
    name, sign, direction, number, unit = found.groups()

    def refused(part: str, what: str) -> PlacedError:
        return PlacedError(f"{argument('fail_if')}: {what}", text, found.start(part))

    first = next(iter(quantities.values()))
    example = f"{first.name}>{'15%' if first.kind == 'share' else '+1%'}"
    known = ", ".join(quantities)
    if not name:
        raise refused("name", f"the name of a total is expected, as in {example}: {known}")
    quantity = quantities.get(name.lower())
    if quantity is None:
        hint = did_you_mean(name.lower(), quantities)
        raise refused("name", f"no total '{cut(name)}'{hint} (there are {known})")
    if not sign:
        shell = "(in quotes, or the shell takes > for its own)"
        raise refused("sign", f"> or < is expected, as in '{example}' {shell}")
    if not number and unit.startswith("="):
        raise refused("unit", "write > or < alone: a total fails where it is beyond its limit")
    fix = _EXAMPLES[quantity.kind]
    if quantity.kind != "share":
        fix += ", or +1%"
    if not number:
        raise refused("number", f"a number is expected, such as {fix}")
    limit = Fraction(number) * (-1 if direction == "-" else 1)
    form: Literal["absolute", "difference", "share"] = "absolute"
    if quantity.kind == "share":
        if not unit and abs(limit) > 1:
            # Whoever writes 15 means percent, and a limit of 1500 % would never fail.
            what = f"{number} is neither a fraction nor a percentage; add %"
            raise refused("number", what)
    elif direction:
        form = "share" if unit == "%" else "difference"
    elif unit == "%":
        what = f"{unit} of what? Write +{number}% for more than the baseline has"
        raise refused("number", what)
    factor = Fraction(1, 100) if form == "share" else _factor(unit, quantity.kind)
    if factor is None:
        what = f"'{cut(printable(unit))}' is no unit of {quantity.name}; write {fix}"
        raise refused("unit", what)
    return Condition(
        # Spaces may be line ends, and messages are one line.
        text=" ".join(text.split()),
        quantity=quantity,
        sign="<" if sign == "<" else ">",
        form=form,
        limit=limit * factor,
    )


_PREFIXES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIMES = {"": 0, "s": 0, "ms": 1, "us": 2, "µs": 2, "μs": 2, "ns": 3}


def _factor(unit: str, kind: Kind) -> Fraction | None:
    """Return how many base units one is; None: no unit of the kind."""
    if kind == "share":
        return {"": Fraction(1), "%": Fraction(1, 100)}.get(unit)
    if kind == "s":
        return Fraction(1, 1000 ** _TIMES[unit]) if unit in _TIMES else None
    base, prefix = 1000, unit
    if kind == "flop":
        prefix = unit.removesuffix("FLOP")
    elif kind == "byte" and unit:
        prefix = unit.removesuffix("B")
        if prefix in (unit, "i"):
            return None
        if prefix.endswith("i"):
            base, prefix = 1024, prefix.removesuffix("i")
    return Fraction(base ** _PREFIXES[prefix]) if prefix in _PREFIXES else None
