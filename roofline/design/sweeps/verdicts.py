"""Which design wins at a point of a sweep, by how much, and whether that can be told."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Literal

from roofline.analysis import Analysis, fits, groups, minimum_times_of
from roofline.design.model_comparison.ratios import ratio_of_predictions
from roofline.design.pass_times import DIGITS
from roofline.design.sweeps.axes import Axis, Grid, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The smallest box of a grid that holds some points: first and last place on each axis."""

    grid: Grid
    ends: tuple[tuple[int, int], ...]

    @staticmethod
    def around(grid: Grid, points: Collection[int]) -> Region:
        """The box around the points of these numbers, at least one."""
        places = [places_of(grid, each) for each in points]
        columns = zip(*places, strict=True)
        return Region(grid=grid, ends=tuple((min(each), max(each)) for each in columns))

    @property
    def count(self) -> int:
        """How many points it holds."""
        return math.prod(last - first + 1 for first, last in self.ends)

    @property
    def text(self) -> str:
        """In words: ``"channels ≤ 32 and size ≤ 14"``; ``""`` where it is all of the grid."""
        said = (
            _range_text(axis, *ends) for axis, ends in zip(self.grid.axes, self.ends, strict=True)
        )
        return " and ".join(each for each in said if each)


def places_of(grid: Grid, index: int) -> tuple[int, ...]:
    """The places on the axes of the point of that number."""
    places: list[int] = []
    for axis in reversed(grid.axes):
        index, place = divmod(index, len(axis.values))
        places.append(place)
    return tuple(reversed(places))


def _range_text(axis: Axis, first: int, last: int) -> str:
    final = len(axis.values) - 1
    if (first, last) == (0, final):
        return ""
    low, high = text_of(axis.values[first]), text_of(axis.values[last])
    if first == last:
        return f"{axis.name} {low}"
    if not axis.is_numeric:
        return f"{axis.name} {words([text_of(axis.values[i]) for i in range(first, last + 1)])}"
    if first == 0:
        return f"{axis.name} ≤ {high}"
    if last == final:
        return f"{axis.name} ≥ {low}"
    return f"{axis.name} {low} to {high}"


def words(parts: Sequence[str]) -> str:
    """Words as an enumeration: ``"a, b and c"``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One design at one point: work, bound and prediction of a pass, or why there is none.

    ``flop`` and ``macs`` are None where an operator has no formula, ``eager_min_time_s`` and the
    minimum times where the machine has no ceilings, ``predicted_s`` and the ends of its 10-90 %
    interval where nothing was learned. ``ceiling`` binds ``ceiling_share`` of the bound, more than
    any other. ``peak_memory_bytes`` is the most that a pass keeps alive at once,
    ``memory_capacity_bytes`` what the memory of that machine holds (None: not known). ``problem``
    says why the design cannot be built there; all else is None then.
    """

    flop: int | None = None
    macs: int | None = None
    parameters: int | None = None
    traffic_bytes: int | None = None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    ceiling: str = ""
    ceiling_share: float | None = None
    peak_memory_bytes: int | None = None
    memory_capacity_bytes: int | None = None
    problem: str = ""

    @property
    def is_built(self) -> bool:
        """Whether the design can be built at that point."""
        return not self.problem

    @property
    def fits(self) -> bool | None:
        """Whether the peak of memory fits into the machine's; None: capacity not known."""
        return fits(self.peak_memory_bytes, self.memory_capacity_bytes)

    @property
    def can_run(self) -> bool:
        """Whether the design can be built at that point, and does not exceed the memory there."""
        return self.is_built and self.fits is not False

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """The 10-90 % interval of the prediction in seconds; None where there is none."""
        if self.predicted_low_s is None or self.predicted_high_s is None:
            return None
        return self.predicted_low_s, self.predicted_high_s


def cell_of(analysis: Analysis) -> Cell:
    """What a sweep keeps of an analysis."""
    totals, run = analysis.totals, analysis.prediction
    is_known = not totals.unknown_operators
    first = next(iter(groups(analysis, lambda row: row.ceiling or row.bound)), None)
    return Cell(
        flop=totals.flop if is_known else None,
        macs=totals.macs if is_known else None,
        parameters=totals.parameters,
        traffic_bytes=totals.traffic_bytes,
        **minimum_times_of(totals),
        predicted_s=run.predicted_s if run else None,
        predicted_low_s=run.low_s if run else None,
        predicted_high_s=run.high_s if run else None,
        ceiling=first.name if first else "",
        ceiling_share=first.share if first else None,
        peak_memory_bytes=totals.peak_memory_bytes,
        memory_capacity_bytes=analysis.hardware.memory_capacity_bytes,
    )


LONGEST = 24
"""Characters of a name that still reads well in a sentence."""


def letters(count: int) -> tuple[str, ...]:
    """A, B, C …; numbers where letters do not do."""
    return tuple(ascii_uppercase[i] if count <= 26 else f"#{i + 1}" for i in range(count))


def short_names(designs: Sequence[str]) -> tuple[str, ...]:
    """The names themselves if all are short, else letters."""
    if all(len(each) <= LONGEST for each in designs):
        return tuple(designs)
    return letters(len(designs))


Basis = Literal["predicted", "bound", ""]

SAME_BOUND = 1.05
"""Bounds that differ by less than this factor are too close to call."""

RULE = (
    "a design wins where its predicted time is the lowest; it is too close to call (~) where the"
    " 10-90 % interval of the ratio to another design's holds 1"
)

RULE_OF_MEMORY = "a design whose peak memory exceeds the memory there is marked !, and wins nothing"

RULE_OF_BOUNDS = (
    "where a design has no prediction all are compared by their bounds, which are too close to"
    f" call (~) within {100 * (SAME_BOUND - 1):.0f} %"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who wins at one point.

    ``winner`` is the index of the design with the lowest time of ``basis``, None where no two
    times are known. ``ratio`` is the reference's time over the best of the others: above 1 another
    design is faster, below 1 the reference is. ``is_close`` where the winner cannot be told.
    """

    winner: int | None
    ratio: float | None
    rivals: tuple[int, ...]
    basis: Basis

    @property
    def is_close(self) -> bool:
        """Whether the winner cannot be told."""
        return bool(self.rivals)

    @property
    def factor(self) -> float | None:
        """How many times faster the winner is than the reference, or, being it, than the next."""
        return max(self.ratio, 1 / self.ratio) if self.ratio else None


_NOTHING = Verdict(winner=None, ratio=None, rivals=(), basis="")


def verdict_of(cells: Sequence[Cell], reference: int) -> Verdict:
    """The verdict on designs at one point; those that cannot run there take no part.

    A design that cannot be built there cannot run, nor can one that does not fit into memory.
    """
    able = [index for index, each in enumerate(cells) if each.can_run]
    if len(able) < 2:
        # One that stands alone has nobody to beat.
        return _NOTHING
    basis: Basis = "predicted"
    times = {i: cells[i].predicted_s for i in able}
    if any(not time for time in times.values()):
        basis, times = "bound", {i: cells[i].eager_min_time_s for i in able}
    known = {i: time for i, time in times.items() if time}
    if len(known) < len(able):
        return _NOTHING
    winner = min(known, key=lambda i: (known[i], i))
    others = [known[i] for i in able if i != reference]
    ratio = known[reference] / min(others) if reference in known and others else None
    return Verdict(
        winner=winner,
        ratio=ratio,
        rivals=tuple(i for i in able if i != winner and _is_close(cells[winner], cells[i], basis)),
        basis=basis,
    )


def factor_text(factor: float) -> str:
    """A factor from 1 on, in as many digits as ratios of predictions are worth: ``"3.4"``."""
    number = float(f"{factor:.{DIGITS - 1}e}")
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"


def _is_close(best: Cell, other: Cell, basis: Basis) -> bool:
    if basis == "bound":
        return (other.eager_min_time_s or 0.0) < SAME_BOUND * (best.eager_min_time_s or 0.0)
    if not best.predicted_s or not other.predicted_s:
        return False
    ratio = ratio_of_predictions(
        other.predicted_s, other.interval_s, best.predicted_s, best.interval_s
    )
    # Equal times leave no more to choose than an interval around 1 does.
    return ratio.may_be_either or ratio.value == 1
