"""Sweeps of given times, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.design.sweeps.axes import grid_of
from roofline.design.sweeps.result import SweepResult
from roofline.design.sweeps.verdicts import Cell
from roofline.machine.hardware import HardwareProfile
from tests.builders import ceiling, level, profile


def machine() -> HardwareProfile:
    """1 TFLOP/s and 10 GB/s, both on one thread: 100 FLOP/byte."""
    return profile([ceiling(1e12)], [level("DRAM", None, {"read": {1: 1e10}})])


def cell(time_s: float | None, *, wide: float = 0.1, eager_min_time_s: float | None = None) -> Cell:
    """A design that is predicted to take so long, -+ `wide`; None: it cannot be built."""
    if time_s is None:
        return Cell(problem="groups must divide channels")
    return Cell(
        flop=1000,
        macs=500,
        parameters=10,
        traffic_bytes=400,
        eager_min_time_s=time_s / 2 if eager_min_time_s is None else eager_min_time_s,
        predicted_s=time_s,
        predicted_low_s=time_s * (1 - wide),
        predicted_high_s=time_s * (1 + wide),
        ceiling="DRAM read",
        ceiling_share=0.75,
    )


def swept(
    axes: str,
    rows: Sequence[Sequence[Cell]],
    names: Sequence[str] = ("standard", "separable"),
    *,
    reference: int = 0,
) -> SweepResult:
    """A sweep with these cells, by point, then by design."""
    return SweepResult(
        grid=grid_of(axes),
        designs=tuple(names),
        reference=reference,
        cells=tuple(map(tuple, rows)),
        hardware=(machine(),),
        threads=1,
        calibration="12 operators of 3 models of 2 families, measured 2026-01-01",
    )


def times(axes: str, *by_point: Sequence[float | None], wide: float = 0.1) -> SweepResult:
    """A sweep whose designs take these seconds at each point."""
    return swept(axes, [[cell(each, wide=wide) for each in point] for point in by_point])
