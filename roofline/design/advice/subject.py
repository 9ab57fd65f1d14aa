"""What rules look at, operators, who reads what whom wrote, what-ifs, and what they propose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from roofline.analysis import Analysis, Basis, Finding, OperatorRow
from roofline.design.advice.alternatives import Alternative, OnMachine, as_it_is
from roofline.design.advice.times import NOTHING, Saving, Time, saving_of
from roofline.foundation.units import format_percent
from roofline.workload.dataflow import Dataflow, dataflow
from roofline.workload.operators import State
from roofline.workload.tensors import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Operators, and those that would take their place; the latter's time counts `factor` times."""

    before: tuple[Alternative, ...]
    after: tuple[Alternative, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A finding, and what to time for it; ``swaps`` is empty where single operators cannot tell."""

    finding: Finding
    swaps: tuple[Swap, ...] = ()


def left_out(rows: Iterable[OperatorRow]) -> tuple[Swap, ...]:
    """Each operator, with nothing in its place."""
    return tuple(Swap(before=(as_it_is(row),)) for row in rows)


Parts = list[tuple[Time, Time]]
"""Times before and after."""


@dataclass(frozen=True)
class Subject:
    """A model's pass, as rules ask about it.

    Args:
        analysis: of the model.
        what_if: times of operators that are not there.
    """

    analysis: Analysis
    what_if: OnMachine

    @property
    def rows(self) -> tuple[OperatorRow, ...]:
        """The operators in the order in which they ran."""
        return self.analysis.operators

    @cached_property
    def working(self) -> list[OperatorRow]:
        """Those that do something."""
        return [row for row in self.rows if row.state is not State.FREE]

    @cached_property
    def flow(self) -> Dataflow:
        """Who reads what whom wrote."""
        return dataflow([as_it_is(row).record for row in self.rows])

    @cached_property
    def last_write(self) -> dict[int, int]:
        """By storage, the index of the last operator that writes to it."""
        return {spec.storage: row.index for row in self.working for spec in row.outputs}

    @cached_property
    def weight_readers(self) -> Counter[int]:
        """By storage, how many operators read a parameter that lies there."""
        return Counter(
            storage
            for row in self.working
            for storage in {each.storage for each in row.inputs if each.role is Role.PARAMETER}
        )

    @property
    def basis(self) -> Basis:
        """What times are."""
        return self.what_if.basis

    @cached_property
    def pass_s(self) -> float:
        """The seconds of a pass that savings are held against; 0: nobody can say."""
        if self.basis == "bound":
            return self.analysis.totals.eager_min_time_s or 0.0
        prediction = self.analysis.prediction
        return prediction.predicted_s if prediction else 0.0

    def time(self, row: OperatorRow) -> Time | None:
        """The time of an operator as it is; None: nobody can say."""
        if self.basis == "bound":
            return Time(s=row.eager_min_time_s) if row.eager_min_time_s is not None else None
        if row.predicted_s is None:
            return None
        return Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)

    def taken_s(self, rows: Iterable[OperatorRow]) -> float:
        """The seconds that operators take, as far as they are known."""
        return sum(each.s for row in rows if (each := self.time(row)))

    def share(self, rows: Sequence[OperatorRow]) -> str:
        """Which part of the pass operators take, in words."""
        taken_s = self.taken_s(rows)
        what = "of the predicted time" if self.basis == "prediction" else "of the bound"
        return f"{format_percent(taken_s / self.pass_s)} {what}" if self.pass_s else "of no time"

    def writer(self, row: OperatorRow, operand: int = 0) -> OperatorRow | None:
        """Who wrote an operand, where a single operator wrote all of it."""
        read = self.flow.read[row.index]
        if operand >= len(read) or read[operand].value is None:
            return None
        latest = read[operand].latest_writer
        return None if latest is None else self.rows[latest]

    def readers(self, row: OperatorRow) -> list[OperatorRow]:
        """Who reads anything that an operator wrote."""
        found = {reader for _, value in self.flow.written[row.index] for reader in value.readers}
        return [self.rows[index] for index in sorted(found)]

    def saving_without(self, rows: Sequence[OperatorRow]) -> Saving | None:
        """What is saved where operators are left out; None: nobody can say."""
        times = [self.time(row) for row in rows]
        known = [(each, NOTHING) for each in times if each is not None]
        return saving_of(known, self.basis) if known and len(known) == len(times) else None

    def compared(
        self, before: Sequence[OperatorRow], after: Sequence[Alternative]
    ) -> list[tuple[Time, Time] | None]:
        """Operators and what would take the place of each, on one footing; None: nobody can say."""
        times = self.what_if.times([*map(as_it_is, before), *after])
        pairs = zip(times[: len(before)], times[len(before) :], strict=True)
        return [(one, other) if one and other else None for one, other in pairs]

    def replaced(
        self, candidates: Sequence[tuple[list[OperatorRow], Alternative]]
    ) -> list[tuple[list[OperatorRow], Parts, Swap]]:
        """Operators that one other could replace, where it takes less time: what is known of it."""
        asked = [as_it_is(row) for rows, _ in candidates for row in rows]
        times = self.what_if.times([*asked, *(other for _, other in candidates)])
        known = iter(times[: len(asked)])
        found: list[tuple[list[OperatorRow], Parts, Swap]] = []
        for (rows, other), after in zip(candidates, times[len(asked) :], strict=True):
            before = [each for each in islice(known, len(rows)) if each]
            if after is None or len(before) < len(rows) or sum(e.s for e in before) <= after.s:
                continue
            parts = [*((each, NOTHING) for each in before), (NOTHING, after)]
            found.append((rows, parts, Swap(before=tuple(map(as_it_is, rows)), after=(other,))))
        return found

    def finding(
        self,
        rule: str,
        rows: Sequence[OperatorRow],
        saving: Saving | None,
        *,
        evidence: str,
        change: str,
        basis: Basis | None = None,
        swaps: Sequence[Swap] = (),
    ) -> list[Proposal]:
        """The finding, if it is worth a word; else nothing.

        Args:
            rule: its name.
            rows: the operators concerned.
            saving: what it saves.
            evidence: what says so.
            change: what to do.
            basis: what the times of `saving` are; None: as of all.
            swaps: what to time where the change is tried.
        """
        if saving is None or not self.pass_s or not saving.is_worth(self.pass_s):
            return []
        # Of bounds there is nothing more certain, nor less.
        of = (basis or self.basis) if self.basis == "prediction" else self.basis
        is_certain = of == "prediction"
        finding = Finding(
            rule=rule,
            operators=tuple(sorted({row.index for row in rows})),
            evidence=evidence,
            change=change,
            basis=of,
            predicted_before_s=saving.before_s,
            predicted_after_s=saving.after_s,
            saving_low_s=saving.low_s if is_certain else None,
            saving_high_s=saving.high_s if is_certain else None,
        )
        return [Proposal(finding=finding, swaps=tuple(swaps))]


def minimum_s(rows: Iterable[OperatorRow]) -> float:
    """The sum of eager minimum times in seconds, as far as they are known."""
    return sum(row.eager_min_time_s or 0.0 for row in rows)
