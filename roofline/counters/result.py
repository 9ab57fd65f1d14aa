"""What several counters say of one model: the value that a crosscheck gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from roofline.core.blocks import (
    Block,
    Column,
    Grid,
    KeyValueBlock,
    View,
    notes,
    table,
    warning_notes,
)
from roofline.core.rows import fields_of
from roofline.core.units import MISSING, format_shape, format_si
from roofline.result import Result
from roofline.workload.tensors import InputSpec

Measure = Literal["macs", "flop"]
"""Which of our totals a counter's number is held against."""

Source = Literal["rule", "breakdown", "none"]

Outcome = Literal["counted", "not installed", "not run", "failed"]

_COLUMNS = {
    "counter": "string",
    "version": "string",
    "outcome": "string",
    "measure": "string",
    "number_name": "string",
    "per_unit": "Int64",
    "number": "Float64",
    "in_our_unit": "Float64",
    "not_explained": "Float64",
}

_MEASURES: dict[Measure, tuple[str, str, str]] = {
    "macs": (
        "multiply-adds",
        "Multiply-adds of convolutions and matrix products",
        "1 a multiply-add",
    ),
    "flop": (
        "FLOP",
        "All floating-point operations",
        "2 a multiply-add, and all that does arithmetic",
    ),
}
"""By measure: its unit, the heading of its table, and the way we count it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One reason why a counter's number is not ours.

    ``amount`` is what it adds to ours, in multiply-adds or FLOP as ours; ``calls`` how many of our
    operators it is about. ``source`` says what the amount follows from: ``rule``, the counter's
    rule applied to the shapes that we saw; ``breakdown``, the counter's own breakdown; ``none``
    where nothing explains it.
    """

    kind: str
    reason: str
    calls: int
    amount: int | float
    source: Source

    @property
    def is_explained(self) -> bool:
        """Whether the amount follows from a rule of the counter."""
        return self.source != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBy:
    """What one counter says, in its own words and in ours, and the reasons for the difference.

    ``number`` is its number as it gives it, ``meaning`` what it counts in it, and ``per_unit`` how
    many of its units are one of ours (2 where it counts two for a multiply-add). ``in_our_unit``
    is ours plus the amounts of all ``differences``. ``note`` says why there is no number, where
    there is none. ``no_rule_for`` lists operators that the counter itself says it left out.
    """

    counter: str
    version: str = ""
    outcome: Outcome
    note: str = ""
    number_name: str
    meaning: str
    measure: Measure
    per_unit: int
    number: int | float | None = None
    in_our_unit: int | float | None = None
    differences: tuple[Difference, ...] = ()
    no_rule_for: Mapping[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        has_number = self.number is not None and self.in_our_unit is not None
        if has_number != (self.outcome == "counted"):
            raise ValueError(f"{self.counter}: '{self.outcome}' and its number contradict")

    @property
    def not_explained(self) -> int | float:
        """What none of its rules explains, the parts of it added up without their signs."""
        return sum(abs(each.amount) for each in self.differences if not each.is_explained)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Crosscheck(Result):
    """One model through several counters; ``macs`` and ``flop`` are our own totals.

    ``train`` says that they are of a forward and a backward pass; the update of the parameters, in
    which there are no multiply-adds of products, is in none of the numbers.
    ``unknown_operators`` calls are not in them: their FLOP is unknown to us.
    """

    kind: ClassVar = "crosscheck"
    made_by: ClassVar = "roofline crosscheck MODEL -o FILE.json"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = _COLUMNS

    model: str
    inputs: tuple[InputSpec, ...]
    train: bool = False
    macs: int
    flop: int
    unknown_operators: int
    counters: tuple[CountedBy, ...]
    warnings: tuple[str, ...] = ()

    def ours(self, measure: Measure) -> int:
        """Our total of a measure."""
        return self.macs if measure == "macs" else self.flop

    @property
    def summary(self) -> str:
        """Our multiply-adds, and whether the numbers of other counters agree."""
        at_least = "at least " if self.unknown_operators else ""
        in_training = " in a step of training" if self.train else ""
        said = (
            f"{self.model}{in_training} takes {at_least}{self.macs:,} multiply-adds"
            f" ({format_si(self.macs, '', 4)})"
        )
        numbers = [each for each in self.counters if each.outcome == "counted"]
        others = [each for each in numbers if each.in_our_unit != self.ours(each.measure)]
        if not numbers:
            return f"{said}; no other counter has a number for it"
        only = "the number of the only other counter"
        if not others:
            agree = f"{only} agrees"
            if len(numbers) > 1:
                agree = f"all {len(numbers)} numbers of other counters agree"
            return f"{said}; {agree}"
        verdict = "every difference has its reason"
        if open_ones := [each for each in others if each.not_explained]:
            names = dict.fromkeys(f"{each.counter} ({each.number_name})" for each in open_ones)
            verdict = f"not all of the difference of {' and '.join(names)} is explained"
        if len(numbers) == 1:
            return f"{said}; {only} differs, and {verdict}"
        differ = f"{len(others)} differ{'s' * (len(others) == 1)}"
        return f"{said}; of {len(numbers)} numbers of other counters {differ}, and {verdict}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each number of a counter, and for each counter without one."""
        return fields_of(_COLUMNS, self.counters)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the numbers and the reasons of each measure, then what has no number."""
        if self.inputs:
            given = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in self.inputs)
            yield KeyValueBlock(lines=(("input", given),))
        for measure in _MEASURES:
            if counters := [each for each in self.counters if each.measure == measure]:
                yield self._numbers(counters, measure)
                yield from _reasons(counters, measure)
        without = [each for each in self.counters if each.outcome != "counted"]
        yield from notes("Without a number", (f"{each.counter}: {each.note}" for each in without))
        # What a counter says itself that it left out, where something of it is not explained.
        lacking = (
            f"{each.counter} says that it has no rule for: "
            + ", ".join(f"{op} ({calls})" for op, calls in sorted(each.no_rule_for.items()))
            for each in self.counters
            if each.not_explained and each.no_rule_for
        )
        yield from warning_notes((*lacking, *self.warnings), view)

    def _numbers(self, counters: Iterable[CountedBy], measure: Measure) -> Grid:
        ours = self.ours(measure)
        unit, title, our_way = _MEASURES[measure]
        total = f"{'≥ ' if self.unknown_operators else ''}{ours:,}"
        rows: list[tuple[str, ...]] = [("roofline", "", our_way, total, total, "")]
        for each in counters:
            cells = (each.outcome, MISSING, MISSING, MISSING)
            if each.number is not None and each.in_our_unit is not None:
                ratio = f"× {each.in_our_unit / ours:.4f}" if ours else MISSING
                cells = (
                    f"{each.number_name}: {each.meaning}",
                    f"{each.number:,}",
                    f"{each.in_our_unit:,}",
                    "equal" if each.in_our_unit == ours else ratio,
                )
            rows.append((each.counter, each.version, *cells))
        columns = (
            Column(heading="counter"),
            Column(heading="version", sacrifice=2),
            Column(heading="its number is", sacrifice=1),
            Column(heading="its number", align="right"),
            Column(heading=f"in {unit}", align="right"),
            Column(heading="against ours", align="right"),
        )
        return Grid(title=title, columns=columns, rows=tuple(rows))


def _reasons(counters: Iterable[CountedBy], measure: Measure) -> Iterable[Grid]:
    rows: list[tuple[str, str, str]] = []
    for counter in counters:
        reasons = [(f"{each.amount:+,}", each.reason) for each in counter.differences]
        if counter.number and (unit := _unit_reason(counter)):
            reasons.insert(0, ("", unit))
        names = (counter.counter, *[""] * len(reasons))
        rows += [(name, *each) for name, each in zip(names, reasons, strict=False)]
    if rows:
        names, unit = ("counter", "why its number is not ours"), _MEASURES[measure][0]
        yield table(
            "",
            rows,
            {names[0]: lambda row: row[0], unit: lambda row: row[1], names[1]: lambda row: row[2]},
            left=names,
        )


def _unit_reason(counted: CountedBy) -> str:
    """What its unit does to its number, where it is another than ours by its name or its size."""
    if counted.per_unit != 1:
        return f"counts {counted.per_unit} for a multiply-add: divided by {counted.per_unit} here"
    if counted.measure == "macs" and counted.number_name.lower().startswith("flop"):
        return f"its '{counted.number_name}' is one multiply-add, not two operations"
    return ""
