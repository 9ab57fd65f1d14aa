"""Result of `crosscheck`: MACs and FLOP of one model by several counters."""

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
"""Total that a counter's number is compared with."""

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
        "MACs",
        "MACs of convolutions and matrix products by counter",
        "1 per MAC",
    ),
    "flop": (
        "FLOP",
        "FLOP by counter",
        "2 per MAC, with all other arithmetic",
    ),
}
"""Unit, table title and our convention by measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One reason for a difference between a counter's number and ours.

    ``amount`` in MACs or FLOP is added to ours; ``calls`` is the number of our operators.
    ``source`` is ``rule`` (the counter's rule applied to our shapes), ``breakdown`` (the counter's
    own breakdown) or ``none`` (not explained).
    """

    kind: str
    reason: str
    calls: int
    amount: int | float
    source: Source

    @property
    def is_explained(self) -> bool:
        """True if a rule or the breakdown gives the amount."""
        return self.source != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBy:
    """Number of one counter, and the reasons for its difference from ours.

    ``number`` is in the counter's unit, ``meaning`` its content, ``per_unit`` its units per unit of
    ours (2 if it counts 2 per MAC). ``in_our_unit`` is our total plus all ``differences``. ``note``
    is the reason for a missing number. ``no_rule_for`` are operators that the counter reports as
    left out.
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
        """Sum of the absolute amounts that are not explained."""
        return sum(abs(each.amount) for each in self.differences if not each.is_explained)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Crosscheck(Result):
    """One model by several counters; ``macs`` and ``flop`` are our totals.

    ``train``: of forward and backward pass, without the optimizer step. ``unknown_operators`` calls
    have unknown FLOP, in no total.
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
        """Return our total of a measure."""
        return self.macs if measure == "macs" else self.flop

    @property
    def summary(self) -> str:
        """Verdict: our MACs, and the agreement of other counters."""
        subject = f"Training step of {self.model}" if self.train else self.model
        at_least = "≥ " if self.unknown_operators else ""
        said = f"{subject}: {at_least}{self.macs:,} MACs ({format_si(self.macs, '', 4)})"
        numbers = [each for each in self.counters if each.outcome == "counted"]
        others = [each for each in numbers if each.in_our_unit != self.ours(each.measure)]
        if not numbers:
            return f"{said}; no number of other counters"
        if not others:
            agree = "the only other number agrees"
            if len(numbers) > 1:
                agree = f"all {len(numbers)} numbers of other counters agree"
            return f"{said}; {agree}"
        verdict = "all differences explained"
        if open_ones := [each for each in others if each.not_explained]:
            names = dict.fromkeys(f"{each.counter} ({each.number_name})" for each in open_ones)
            verdict = f"that of {' and '.join(names)} not fully explained"
        if len(numbers) == 1:
            return f"{said}; the only other number differs, {verdict}"
        differ = f"{len(others)} of {len(numbers)} numbers of other counters"
        return f"{said}; {differ} differ{'s' * (len(others) == 1)}, {verdict}"

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row per number of a counter, and per counter without one."""
        return fields_of(_COLUMNS, self.counters)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return numbers and reasons by measure, then counters without a number."""
        if self.inputs:
            given = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in self.inputs)
            yield KeyValueBlock(lines=(("Model", self.model), ("Input", given)))
        for measure in _MEASURES:
            if counters := [each for each in self.counters if each.measure == measure]:
                yield self._numbers(counters, measure)
                yield from _reasons(counters, measure)
        without = [each for each in self.counters if each.outcome != "counted"]
        yield from notes("Without a number", (f"{each.counter}: {each.note}" for each in without))
        # Operators that a counter reports as left out, if a difference is not explained.
        lacking = (
            f"{each.counter} reports operators without a rule: "
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
                ratio = f"{each.in_our_unit / ours:.4f}" if ours else MISSING
                cells = (
                    f"{each.number_name}: {each.meaning}",
                    f"{each.number:,}",
                    f"{each.in_our_unit:,}",
                    "equal" if each.in_our_unit == ours else ratio,
                )
            rows.append((each.counter, each.version, *cells))
        columns = (
            Column(heading="counter"),
            Column(heading="version", drop_priority=2),
            Column(heading="convention", drop_priority=1),
            Column(heading="number", align="right"),
            Column(heading=f"in {unit}", align="right"),
            Column(heading="ratio to ours", align="right"),
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
        names, unit = ("counter", "reason"), _MEASURES[measure][0]
        yield table(
            f"Differences in {unit}, largest first",
            rows,
            {names[0]: lambda row: row[0], unit: lambda row: row[1], names[1]: lambda row: row[2]},
            left=names,
        )


def _unit_reason(counted: CountedBy) -> str:
    """Return the effect of the counter's unit if it differs from ours."""
    if counted.per_unit != 1:
        return f"counts {counted.per_unit} per MAC: divided by {counted.per_unit} here"
    if counted.measure == "macs" and counted.number_name.lower().startswith("flop"):
        return f"its '{counted.number_name}' is one MAC, not two operations"
    return ""
