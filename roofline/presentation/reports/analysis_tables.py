"""The tables of an analysis: the operators that take longest, and those of unknown FLOP."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from roofline.analysis import (
    Analysis,
    Group,
    OperatorRow,
    groups,
    known_work,
    sum_bound_s,
    sum_fused_byte,
    working,
)
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.presentation.reports.report import (
    Column,
    Grid,
    View,
    module_of,
    printable,
    shape_of,
    short_op,
    sum_of_flop,
)
from roofline.presentation.reports.times import rounded_share, time_s, total_s
from roofline.workload.operators import State


def operator_grid(analysis: Analysis, view: View) -> Grid:
    """The operators that take longest, then the others as one row, then all."""
    measured = any(row.measured_s is not None for row in analysis.operators)
    predicted = any(row.predicted_s is not None for row in analysis.operators)
    at_work = working(analysis.operators)
    # Without any ceiling there is no time to sort by; bytes are always known.
    ordered = sorted(
        alike(at_work),
        key=lambda rows: (
            -sum(time_s(row) or 0.0 for row in rows),
            -sum(row.traffic_byte for row in rows),
            rows[0].index,
        ),
    )
    whole = total_s(analysis)
    optional = [
        *([Column(heading="predicted", align="right", sacrifice=2)] if predicted else []),
        *([Column(heading="measured", align="right")] if measured else []),
    ]
    columns = (
        Column(heading="operator", least=16),
        Column(heading="module", sacrifice=1, least=18, cut="start"),
        *([Column(heading="phase", sacrifice=2)] if analysis.run.train else []),
        Column(heading="output", sacrifice=4),
        # Beside the bytes of fused kernels there is less room.
        Column(heading="FLOP", align="right", sacrifice=2 if view.fused else 0),
        Column(heading="bytes", align="right"),
        *([Column(heading="fused bytes", align="right")] if view.fused else []),
        Column(heading="slowest level", align="right", sacrifice=6),
        Column(heading="FLOP/byte of it", align="right", sacrifice=3),
        Column(heading="bound by", sacrifice=5),
        Column(heading="bound", align="right"),
        *optional,
        Column(heading="share", align="right"),
    )

    def times(rows: Sequence[OperatorRow]) -> list[str]:
        cells = [format_s(sum_bound_s(rows))]
        if predicted:
            cells.append(format_s(_sum_known([row.predicted_s for row in rows])))
        if measured:
            cells.append(format_s(_sum_known([row.measured_s for row in rows])))
        known = [time for row in rows if (time := time_s(row)) is not None]
        cells.append(
            format_percent(rounded_share(sum(known) / whole)) if whole and known else MISSING
        )
        return cells

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
            *times(rows),
        )

    def summed(name: str, rows: Sequence[OperatorRow]) -> tuple[str, ...]:
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
            *times(rows),
        )

    shown = ordered[: view.rows]
    others = [row for rows in ordered[view.rows :] for row in rows]
    sums = [summed(f"{len(others)} more", others)] if others else []
    sums.append(summed("total", at_work))
    time = "measured time" if measured else "bound"
    return Grid(
        title=f"Operators by {time}" if whole else "Operators by bytes",
        columns=columns,
        rows=tuple(map(cells, shown)),
        sums=tuple(sums),
    )


def alike(rows: Sequence[OperatorRow]) -> list[list[OperatorRow]]:
    """The calls that no table can tell apart, together: the same operator, sizes, work and bound.

    Calls that were measured stay apart, because their times differ.
    """
    found: dict[Hashable, list[OperatorRow]] = {}
    for row in rows:
        found.setdefault(likeness(row), []).append(row)
    return list(found.values())


def likeness(row: OperatorRow) -> Hashable:
    """What calls that no table can tell apart have in common; a measured one is like no other."""
    if row.measured_s is not None or row.predicted_s is not None:
        return row.index
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    work = (row.work, tuple(row.level_byte.items()), row.ceiling, row.bound_s)
    return (row.op, row.type, row.phase, sizes, work)


def _sum_known(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return sum(known) if known and len(known) == len(times) else None


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
