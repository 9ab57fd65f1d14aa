"""The tables of an analysis: the operators that take longest, and those of unknown FLOP."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from roofline.analysis import (
    Analysis,
    Group,
    OperatorRow,
    groups,
    known_work,
    sum_fused_byte,
    working,
)
from roofline.analysis.points import likeness
from roofline.analysis.times import sum_s
from roofline.analysis.words import module_of, shape_of, short_op, sum_of_flop
from roofline.foundation.blocks import Column, Grid, View
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_intensity,
    format_s,
)
from roofline.presentation.reports.time_columns import TITLES, TimeColumns
from roofline.workload.operators import State


def operator_grid(analysis: Analysis, view: View) -> Grid:
    """The operators that take longest, then the others as one row, then all."""
    times = TimeColumns(analysis)
    at_work = working(analysis.operators)
    # Without any ceiling there is no time to sort by; bytes are always known.
    ordered = sorted(
        alike(at_work),
        key=lambda rows: (
            -sum_s(rows, times.kind),
            -sum(row.traffic_byte for row in rows),
            rows[0].index,
        ),
    )

    def cells(rows: Sequence[OperatorRow]) -> tuple[str, ...]:
        row, count = rows[0], len(rows)
        crossing = format_byte(count * row.level_byte.get(row.level, 0))
        return (
            short_op(row),
            f"{module_of(row)} ×{count}" if count > 1 else module_of(row),
            *([row.phase] if analysis.run.train else []),
            shape_of(row),
            MISSING if row.flop is None else format_flop(count * row.flop),
            format_byte(count * row.traffic_byte),
            *([format_byte(sum_fused_byte(rows))] if view.fused else []),
            f"{printable(row.level)} {crossing}" if row.level else MISSING,
            format_intensity(row.intensity_flop_per_byte),
            printable(row.ceiling) or MISSING,
            *times.cells(rows),
        )

    def summed(
        name: str,
        rows: Sequence[OperatorRow],
        low_s: float | None = None,
        high_s: float | None = None,
    ) -> tuple[str, ...]:
        work = known_work(rows)
        unknown = sum(row.state is State.UNKNOWN for row in rows)
        flop = sum_of_flop(work.flop or 0, unknown)
        return (
            name,
            *[""] * (2 + analysis.run.train),
            flop,
            format_byte(work.traffic_byte),
            *([format_byte(sum_fused_byte(rows))] if view.fused else []),
            *("", "", ""),
            *times.sums(rows, low_s, high_s),
        )

    shown = ordered[: view.rows()]
    others = [row for rows in ordered[view.rows() :] for row in rows]
    sums = [summed(f"{len(others)} more", others)] if others else []
    totals = analysis.totals
    sums.append(summed("total", at_work, totals.predicted_low_s, totals.predicted_high_s))
    return Grid(
        title=f"Operators by {TITLES[times.kind]}" if times.whole_s else "Operators by bytes",
        columns=_columns(analysis, view, times),
        rows=tuple(map(cells, shown)),
        sums=tuple(sums),
    )


def _columns(analysis: Analysis, view: View, times: TimeColumns) -> tuple[Column, ...]:
    # Beside the bytes of fused kernels there is less room; beside other times than bounds the
    # work gives way, so that 80 characters hold operator, module, the times and their share.
    crowded = times.is_more_than_bounds
    return (
        Column(heading="operator", least=12 if crowded else 16),
        Column(heading="module", sacrifice=1, least=14 if crowded else 18, cut="start"),
        *([Column(heading="phase", sacrifice=3 if crowded else 2)] if analysis.run.train else []),
        Column(heading="output", sacrifice=8 if crowded else 4),
        Column(heading="FLOP", align="right", sacrifice=4 if crowded else 2 * view.fused),
        Column(heading="bytes", align="right", sacrifice=6 * crowded),
        *([Column(heading="fused bytes", align="right")] if view.fused else []),
        Column(heading="slowest level", align="right", sacrifice=13 if crowded else 6),
        Column(heading="FLOP/byte of it", align="right", sacrifice=12 if crowded else 3),
        Column(heading="bound by", sacrifice=10 if crowded else 5),
        *times.of_operators(),
    )


def alike(rows: Sequence[OperatorRow]) -> list[list[OperatorRow]]:
    """The calls that no table can tell apart, together: the same operator, sizes, work and bound.

    Calls that were measured stay apart, because their times differ; the same prediction is alike.
    """
    found: dict[Hashable, list[OperatorRow]] = {}
    for row in rows:
        found.setdefault(likeness(row), []).append(row)
    return list(found.values())


def unknown_grid(found: Sequence[Group], *, bounds: bool = True) -> Grid:
    """The operators whose FLOP is unknown, with the bytes that are not, and their bounds."""
    return Grid(
        title="Operators of unknown FLOP (their bytes are counted)",
        columns=(
            Column(heading="operator"),
            Column(heading="calls", align="right"),
            Column(heading="bytes", align="right"),
            *([Column(heading="bound by bytes", align="right")] * bounds),
        ),
        rows=tuple(
            (
                printable(group.name.removeprefix(f"{State.UNKNOWN}:").removeprefix("aten.")),
                str(group.calls),
                format_byte(group.work.traffic_byte),
                *([format_s(group.bound_s)] * bounds),
            )
            for group in found
        ),
    )


def groups_of_unknown(analysis: Analysis) -> tuple[Group, ...]:
    """The operators whose FLOP is unknown, by name."""
    return tuple(
        group
        for group in groups(analysis, lambda row: f"{row.state}:{row.op}")
        if group.unknown_operators
    )
