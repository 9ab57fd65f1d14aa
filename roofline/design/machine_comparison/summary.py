"""What a machine offers a model, and what the model's bound is there."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.analysis import Analysis, minimum_times_of
from roofline.design.pass_times import interval_s, measured_s, predicted_s
from roofline.foundation.dtypes import DType
from roofline.placement import (
    Bound,
    ComputeRoof,
    LevelRoof,
    Roof,
    arithmetic_dtype,
    ridge_flop_per_byte,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSummary:
    """A machine as the model meets it.

    ``compute`` is the highest ceiling of the data type that most of its FLOP are in, ``memory`` the
    farthest level, ``ridge_flop_per_byte`` the intensity at which they meet; None where unknown.
    The shares are fractions of ``eager_min_time_s``, in seconds, by what binds; None without a
    bound. ``eager_min_time_s``, ``fused_min_time_s`` and ``model_min_time_s`` are those of
    `Totals`. ``predicted_s``, within ``interval_s``, and ``measured_s`` are of the whole pass, end
    to end; None where there is none. ``fits`` says whether the peak of memory fits into that of the
    machine (``memory_capacity_bytes``); both None where the capacity is not known.
    """

    name: str
    description: str
    threads: int
    compute: ComputeRoof | None
    memory: LevelRoof | None
    ridge_flop_per_byte: float | None
    eager_min_time_s: float | None
    fused_min_time_s: float | None
    model_min_time_s: float | None
    compute_share: float | None
    memory_share: float | None
    predicted_s: float | None = None
    interval_s: tuple[float, float] | None = None
    measured_s: float | None = None
    memory_capacity_bytes: int | None = None
    fits: bool | None = None


def summary_of(name: str, analysis: Analysis) -> MachineSummary:
    """The machine of `analysis`, under the name that the comparison gives it."""
    roof = Roof(analysis.hardware, analysis.threads)
    compute = _main_ceiling(analysis, roof)
    memory = roof.levels[-1] if roof.levels else None
    whole = analysis.totals.eager_min_time_s

    def share(bound: Bound) -> float | None:
        if whole is None:
            return None
        part = sum(row.eager_min_time_s or 0.0 for row in analysis.operators if row.bound is bound)
        # Rounding in a sum must not show as "> 99.9 %".
        return min(1.0, round(part / whole, 12)) if whole else 0.0

    return MachineSummary(
        name=name,
        description=analysis.hardware.description,
        threads=analysis.threads,
        compute=compute,
        memory=memory,
        ridge_flop_per_byte=ridge_flop_per_byte(compute, memory) if compute and memory else None,
        **minimum_times_of(analysis.totals),
        compute_share=share(Bound.COMPUTE),
        memory_share=share(Bound.MEMORY),
        predicted_s=predicted_s(analysis),
        interval_s=interval_s(analysis),
        measured_s=measured_s(analysis),
        memory_capacity_bytes=analysis.hardware.memory_capacity_bytes,
        fits=analysis.fits,
    )


def _main_ceiling(analysis: Analysis, roof: Roof) -> ComputeRoof | None:
    """The ceiling of the data type that most FLOP are in; of a model without FLOP, the highest."""
    flop: dict[DType, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        if of is not None and row.flop:
            flop[of] = flop.get(of, 0) + row.flop
    if not flop:
        return next(iter(roof.units), None)
    return roof.compute(max(flop, key=lambda of: flop[of]))
