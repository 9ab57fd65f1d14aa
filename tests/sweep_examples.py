"""Sweeps of given times, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.design.comparison.axes import grid_of
from roofline.design.comparison.balance import Balance, Crossing, KnownMachine
from roofline.design.comparison.cells import Cell
from roofline.design.comparison.result import Comparison
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
) -> Comparison:
    """A sweep with these cells, by point, then by design."""
    return Comparison(
        axes={each.name: each.values for each in grid_of(axes).axes},
        designs=tuple(names),
        reference=reference,
        cells=tuple(map(tuple, rows)),
        hardware=(machine(),),
        threads=1,
        calibration="12 operators of 3 models of 2 families, measured 2026-01-01",
    )


def times(axes: str, *by_point: Sequence[float | None], wide: float = 0.1) -> Comparison:
    """A sweep whose designs take these seconds at each point."""
    return swept(axes, [[cell(each, wide=wide) for each in point] for point in by_point])


Known = tuple[KnownMachine, tuple[Cell, ...]]


def known(
    name: str,
    balance: float,
    times_s: Sequence[float],
    *,
    has_caches: bool = False,
    capacity_bytes: int | None = None,
) -> Known:
    """A known machine, and designs that take 1000 and 2000 bytes there."""
    machine = KnownMachine(name=name, balance=balance, has_caches=has_caches)
    return machine, bounds(times_s, capacity_bytes)


def bounds(times_s: Sequence[float], capacity_bytes: int | None = None) -> tuple[Cell, ...]:
    """Cells of a sweep over balances."""
    return tuple(
        Cell(
            eager_min_time_s=time_s,
            peak_memory_bytes=byte,
            memory_capacity_bytes=capacity_bytes,
        )
        for time_s, byte in zip(times_s, (1000, 2000), strict=True)
    )


NEAR, FAR = known("near", 3.0, (8.0, 6.0)), known("far", 40.0, (1.0, 0.5), has_caches=True)


def ridge(
    *machines: Known,
    by_balance: Sequence[tuple[float, float]] = ((8.0, 2.0), (8.0, 4.0), (8.0, 8.0), (8.0, 16.0)),
    crossings: tuple[Crossing, ...] = (Crossing(balance=4.0, before=1, after=0),),
    left_out: tuple[str, ...] = (),
    run: str = "",
    reference: int = 0,
) -> Comparison:
    """a takes 8 s everywhere; b 2 s per FLOP/byte, so that they cross at 4."""
    return Comparison(
        designs=("a", "b"),
        reference=reference,
        axes={"balance": (1.0, 2.0, 4.0, 8.0)},
        cells=(*map(bounds, by_balance), *(cells for _, cells in machines)),
        hardware=(machine(),),
        threads=1,
        run=run,
        balance=Balance(
            dtype="float32",
            crossings=crossings,
            machines=tuple(each for each, _ in machines),
            left_out=left_out,
        ),
    )
