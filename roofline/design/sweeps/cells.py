"""What is known of one design at one point of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.analysis import Analysis, fits, groups, minimum_times_of


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
