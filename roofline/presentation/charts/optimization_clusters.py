"""Rewrites as clusters of operators: what stood there before, and what stands there after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.analysis import Analysis, OperatorRow, working
from roofline.foundation.text import printable
from roofline.placement import Roof
from roofline.substitution.costs.bounds import kernel_bound_s
from roofline.substitution.costs.launches import Launches, launches_on
from roofline.substitution.result import Optimization, Substitution

TimeKind = Literal["measured", "predicted", "bound"]
"""What the times of clusters are; ``bound``: bounds and launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Operators that rewrites replaced together: those before, and those after.

    ``flop`` is None where one of them has no formula, ``time_s`` where one has no time.
    """

    rules: tuple[str, ...]
    where: str
    before: Sums
    after: Sums

    @property
    def has_place(self) -> bool:
        """Whether both have a place under the roof."""
        return self.before.has_place and self.after.has_place


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """The operators of one side of a cluster together."""

    flop: int | None
    byte: int
    time_s: float | None

    @property
    def has_place(self) -> bool:
        """Whether it has FLOP, bytes and a time."""
        return bool(self.flop and self.byte and self.time_s)

    @property
    def spot(self) -> tuple[float, float]:
        """FLOP/byte and FLOP/s of what has a place."""
        flop, time_s = self.flop or 0, self.time_s or 1.0
        return flop / (self.byte or 1), flop / time_s


def clusters_of(optimization: Optimization) -> tuple[tuple[Cluster, ...], TimeKind]:
    """The clusters, in the order of their first rewrites, and what their times are.

    Rewrites that share operators, as those that follow one another do, make one cluster.
    """
    parts = [
        (members, _rows(optimization.before, befores), _rows(optimization.after, afters))
        for members, befores, afters in _joined(optimization.substitutions)
    ]
    every = [row for _, *sides in parts for side in sides for row in side]
    kind = _time_kind(optimization, every)
    times = [_Times(each, kind, optimization.is_fused) for each in _both(optimization)]
    return (
        tuple(
            Cluster(
                rules=tuple(dict.fromkeys(each.rule for each in members)),
                where=_where(members, rows),
                before=times[0].sums(rows),
                after=times[1].sums(new),
            )
            for members, rows, new in parts
        ),
        kind,
    )


def _both(optimization: Optimization) -> tuple[Analysis, Analysis]:
    return optimization.before, optimization.after


def _joined(
    substitutions: Sequence[Substitution],
) -> list[tuple[list[Substitution], set[int], set[int]]]:
    """Rewrites that share rows on either side, taken together with all of their rows."""
    found: list[tuple[list[Substitution], set[int], set[int]]] = []
    for each in substitutions:
        before, after = set(each.before_operators), set(each.after_operators)
        shared = [other for other in found if before & other[1] or after & other[2]]
        joined = (
            [*(one for members, _, _ in shared for one in members), each],
            before.union(*(other[1] for other in shared)),
            after.union(*(other[2] for other in shared)),
        )
        # It stands where the first of those that it joins did.
        place = found.index(shared[0]) if shared else len(found)
        rest = [other for other in found[place:] if other not in shared]
        found = [*found[:place], joined, *rest]
    return found


def _rows(analysis: Analysis, numbers: Iterable[int]) -> list[OperatorRow]:
    return working(analysis.operators[i] for i in sorted(numbers) if i < len(analysis.operators))


def _time_kind(optimization: Optimization, rows: Sequence[OperatorRow]) -> TimeKind:
    """Measured times where all have one, else what the search went by."""
    if rows and all(row.measured_s is not None for row in rows):
        return "measured"
    if optimization.cost != "bound" and all(row.predicted_s is not None for row in rows):
        return "predicted"
    return "bound"


def _where(members: Sequence[Substitution], rows: Sequence[OperatorRow]) -> str:
    """The module that all of its operators are in, else the first place that a rewrite names."""
    paths = [row.module_path.split(".") for row in rows if row.module_path]
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return printable(".".join(common)) or printable(members[0].where) or "(model)"


class _Times:
    """Sums of one analysis' operators, by one kind of time."""

    def __init__(self, analysis: Analysis, kind: TimeKind, is_fused: bool) -> None:
        self._kind = kind
        self._is_fused = is_fused
        self._roof = Roof(analysis.hardware, analysis.threads)
        self._launches: Launches = launches_on(analysis.hardware)

    def sums(self, rows: Sequence[OperatorRow]) -> Sums:
        """The sums of some operators that are not free."""
        flop = [row.flop for row in rows]
        known = [each for each in flop if each is not None]
        return Sums(
            flop=sum(known) if len(known) == len(flop) else None,
            byte=sum(_byte(row, self._is_fused) for row in rows),
            time_s=self._time_s(rows),
        )

    def _time_s(self, rows: Sequence[OperatorRow]) -> float | None:
        if self._kind == "bound" and self._is_fused:
            return self._fused_s(rows)
        total = 0.0
        for row in rows:
            time_s = {
                "measured": row.measured_s,
                "predicted": row.predicted_s,
                "bound": row.bound_s,
            }[self._kind]
            if time_s is None:
                return None
            total += time_s
            if self._kind == "bound":
                total += self._launches.of(row.record)
        return total

    def _fused_s(self, rows: Sequence[OperatorRow]) -> float | None:
        """As the cost of fused kernels has it: arithmetic or traffic, and one launch."""
        kernels: dict[int, list[OperatorRow]] = {}
        for row in rows:
            kernels.setdefault(row.index if row.chain is None else row.chain, []).append(row)
        total = 0.0
        for members in kernels.values():
            records = [row.record for row in members]
            bound_s = kernel_bound_s(records, sum(_byte(row, True) for row in members), self._roof)
            if bound_s is None:
                return None
            total += bound_s + max(map(self._launches.of, records))
        return total


def _byte(row: OperatorRow, is_fused: bool) -> int:
    fused = row.fused_byte if is_fused else None
    return row.traffic_byte if fused is None else fused
