"""Cells of a comparison: work and times of a design at one point, and the fastest design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from string import ascii_uppercase
from typing import Literal

from roofline.analysis import Analysis, fits, groups, minimum_times_of
from roofline.design.comparison.ratios import ratio_of_predictions

DIGITS = 2  # Significant digits of predicted and measured times and their ratios, in sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Work, memory and times of one design at one point.

    ``flop`` and ``macs`` are None with unknown operators, minimum times without ceilings,
    ``predicted_s`` and its 80 % interval without calibration, ``measured_s`` (with the 10 % and 90
    % quantiles of rounds) without a measurement. ``ceiling`` limits ``ceiling_share`` of the eager
    minimum time, more than any other. ``peak_memory_bytes`` is the peak of a pass,
    ``memory_capacity_bytes`` that of the machine. ``problem`` is the reason if the design cannot be
    built; all else is None then.
    """

    flop: int | float | None = None
    macs: int | float | None = None
    parameters: int | None = None
    parameter_size_bytes: int | None = None
    traffic_bytes: int | float | None = None
    intensity_flop_per_byte: float | None = None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    measured_s: float | None = None
    measured_low_s: float | None = None
    measured_high_s: float | None = None
    ceiling: str = ""
    ceiling_share: float | None = None
    peak_memory_bytes: int | None = None
    memory_capacity_bytes: int | None = None
    problem: str = ""

    @property
    def is_built(self) -> bool:
        """True if the design can be built there."""
        return not self.problem

    @property
    def fits(self) -> bool | None:
        """True if peak memory fits into the machine's memory; None if the capacity is unknown."""
        return fits(self.peak_memory_bytes, self.memory_capacity_bytes)

    @property
    def can_run(self) -> bool:
        """True if the design can be built there, and does not exceed the memory."""
        return self.is_built and self.fits is not False

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """80 % prediction interval in seconds; None without one."""
        low, high = self.predicted_low_s, self.predicted_high_s
        return None if low is None or high is None else (low, high)

    @property
    def measured_interval_s(self) -> tuple[float, float] | None:
        """10 % and 90 % quantiles of measured rounds in seconds; None below two rounds."""
        low, high = self.measured_low_s, self.measured_high_s
        return None if low is None or high is None else (low, high)

    def of_one(self, samples: int) -> Cell:
        """Return the cell with work and times per sample."""
        values = {name: getattr(self, name) for name in GROWING}
        return replace(self, **{n: each and each / samples for n, each in values.items()})


CELL_FIELDS = tuple(each.name for each in fields(Cell))
GROWING = (
    *("flop", "macs", "traffic_bytes"),
    *(name for name in CELL_FIELDS if name.endswith("_s")),
)
"""Fields proportional to the batch."""


def cell_of(analysis: Analysis) -> Cell:
    """Return the cell of an analysis."""
    totals, run = analysis.totals, analysis.prediction
    known = analysis.measurement or analysis.earlier
    first = next(iter(groups(analysis, lambda row: row.ceiling or row.bound)), None)
    return Cell(
        flop=None if totals.unknown_operators else totals.flop,
        macs=None if totals.unknown_operators else totals.macs,
        parameters=totals.parameters,
        parameter_size_bytes=totals.parameter_size_bytes,
        traffic_bytes=totals.traffic_bytes,
        intensity_flop_per_byte=totals.intensity_flop_per_byte,
        **minimum_times_of(totals),
        predicted_s=run.predicted_s if run else None,
        predicted_low_s=run.low_s if run else None,
        predicted_high_s=run.high_s if run else None,
        measured_s=known.measured_s if known else None,
        ceiling=first.name if first else "",
        ceiling_share=first.share if first else None,
        peak_memory_bytes=totals.peak_memory_bytes,
        memory_capacity_bytes=analysis.hardware.memory_capacity_bytes,
    )


def letter(number: int) -> str:
    """Return a letter for a long name: A to Z, AA, AB …"""
    more, last = divmod(number, len(ascii_uppercase))
    return (letter(more - 1) if more else "") + ascii_uppercase[last]


Basis = Literal["measured", "predicted", "bound", ""]
TIMES: dict[Basis, str] = {
    "measured": "measured_s",
    "predicted": "predicted_s",
    "bound": "eager_min_time_s",
}

SAME_BOUND = 1.05  # Minimum times within this factor are not distinguished


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Fastest design at one point.

    ``winner`` is the index of the design with the lowest time of ``basis``; None with fewer than
    two times. ``ratio`` is the reference's time over the best other: above 1 another design is
    faster. ``rivals`` are not significantly slower than the winner.
    """

    winner: int | None = None
    ratio: float | None = None
    rivals: tuple[int, ...] = ()
    basis: Basis = ""

    @property
    def is_close(self) -> bool:
        """True if the difference is not significant."""
        return bool(self.rivals)

    @property
    def factor(self) -> float | None:
        """Speedup of the winner over the reference, or of the reference over the next design."""
        return max(self.ratio, 1 / self.ratio) if self.ratio else None


def verdict_of(cells: Sequence[Cell], reference: int, *, measured: bool = False) -> Verdict:
    """Return the fastest design, by the best kind of time that all runnable designs have."""
    able = [index for index, each in enumerate(cells) if each.can_run]
    for basis, name in TIMES.items():
        times = {i: getattr(cells[i], name) for i in able}
        if (basis == "measured" and not measured) or len(able) < 2 or not all(times.values()):
            continue
        winner = min(able, key=lambda i: (times[i], i))
        others = [times[i] for i in able if i != reference]
        rivals = (i for i in able if i != winner and _is_close(cells[winner], cells[i], basis))
        ratio = times[reference] / min(others) if reference in times else None
        return Verdict(winner=winner, ratio=ratio, rivals=tuple(rivals), basis=basis)
    # A single design is not compared.
    return Verdict()


def _is_close(best: Cell, other: Cell, basis: Basis) -> bool:
    if basis == "bound":
        return (other.eager_min_time_s or 0.0) < SAME_BOUND * (best.eager_min_time_s or 0.0)
    if basis == "measured" or not best.predicted_s or not other.predicted_s:
        return False
    ratio = ratio_of_predictions(
        other.predicted_s, other.interval_s, best.predicted_s, best.interval_s
    )
    # Equal times are as undecided as an interval around 1.
    return ratio.may_be_either or ratio.value == 1


def factor_text(factor: float) -> str:
    """Return a factor of at least 1 in two digits."""
    number = float(f"{factor:.{DIGITS - 1}e}")
    return f"{number:.1f}" if number < 10 else f"{number:.0f}"
