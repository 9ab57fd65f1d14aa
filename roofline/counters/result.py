"""What several counters say of one model: the value that a crosscheck gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from roofline.foundation import schema
from roofline.foundation.rows import json_text
from roofline.workload.tensors import InputSpec

SCHEMA_VERSION = 1

Measure = Literal["macs", "flop"]
"""Which of our totals a counter's number is held against."""

Outcome = Literal["counted", "not installed", "not run", "failed"]


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
    source: Literal["rule", "breakdown", "none"]

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

    Raises:
        ValueError: a number without its conversion, or the conversion without the number.
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
class Crosscheck:
    """One model through several counters; ``macs`` and ``flop`` are our own totals.

    ``train`` says that they are of a forward and a backward pass; the update of the parameters, in
    which there are no multiply-adds of products, is in none of the numbers.
    ``unknown_operators`` calls are not in them: their FLOP is unknown to us.
    """

    schema_version: int = SCHEMA_VERSION
    model: str
    inputs: tuple[InputSpec, ...]
    train: bool = False
    macs: int
    flop: int
    unknown_operators: int
    counters: tuple[CountedBy, ...]
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        others = ", ".join(
            f"{each.counter} {each.number:,}" for each in self.counters if each.number is not None
        )
        return f"<Crosscheck of {self.model}: {self.macs:,} multiply-adds; {others}>"

    def ours(self, measure: Measure) -> int:
        """Our total of a measure."""
        return self.macs if measure == "macs" else self.flop

    def to_json(self) -> str:
        """The crosscheck as JSON text."""
        return json_text(schema.to_data(self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the crosscheck to a file whose suffix says how: .json .md.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.foundation.files import write_atomically
        from roofline.presentation.reports.crosscheck_report import check_suffix, render_crosscheck

        check_suffix(Path(path))
        write_atomically(
            Path(path), render_crosscheck(self, Path(path).suffix), overwrite=overwrite
        )

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.crosscheck_report import crosscheck_html

        return crosscheck_html(self)
