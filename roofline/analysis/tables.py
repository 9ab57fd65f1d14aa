"""Tables of an analysis: operators, sums by type, phase and module, unknown FLOP."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from roofline.analysis import (
    FRAME_COLUMNS,
    MINIMUM_TIMES,
    Analysis,
    Branch,
    Group,
    OperatorRow,
    Whole,
    group_of,
    groups,
    minimum_times_of,
    module_tree,
    working,
)
from roofline.analysis.grouping import grouping_key
from roofline.analysis.words import (
    MODEL_ITSELF,
    Kind,
    kind_of_time,
    modules_of,
    rounded_share,
    shape_of,
    short_op,
    sum_of_flop,
    sum_of_intensity,
    sum_s,
    time_of,
)
from roofline.core.blocks import Column, Grid, View, number_column, table
from roofline.core.rows import grouped
from roofline.core.sampling import interval_cell, median_cell
from roofline.core.text import counted, printable
from roofline.core.units import (
    MISSING,
    format_bytes,
    format_bytes_per_s,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
    format_si,
    sum_known,
)
from roofline.latency.prediction import BOUND_ONLY
from roofline.machine.roof import ceiling_text
from roofline.workload.operators import PHASES

TITLES = {"measured": "measured time", "predicted": "predicted time", "bound": "minimum time"}
"""Kinds of time in titles."""

_Cell = Callable[[Group], str]


@dataclass(frozen=True, slots=True)
class _Part:
    """A column, the cell of equal calls, and the cell of a sum."""

    column: Column
    cell: _Cell
    sum: _Cell = lambda _: ""


class _Times:
    """Columns of times; rows are sorted by the time of that ``kind``, ``whole_s`` in total."""

    def __init__(self, analysis: Analysis) -> None:
        rows = working(analysis.operators)
        self.whole = Whole.of(analysis)
        self.total = group_of("total", rows, self.whole)
        self.is_predicted = any(row.predicted_s is not None for row in rows)
        self.is_measured = any(row.measured_s is not None for row in rows)
        self.kind: Kind = kind_of_time(analysis)
        self.whole_s = sum_s(rows, self.kind)
        self._interval = (analysis.totals.predicted_low_s, analysis.totals.predicted_high_s)

    @property
    def is_more_than_bounds(self) -> bool:
        """True with predictions or measurements."""
        return self.is_predicted or self.is_measured

    def time_s(self, group: Group) -> float | None:
        """Return the time of a group from which its share follows, in seconds."""
        return time_of(group, self.kind)

    def parts(self, *, of_groups: bool) -> list[_Part]:
        """Return the columns of a table of sums, or of operators."""

        def sum_predicted(group: Group) -> str:
            # The sum of all operators has the interval of the pass.
            low_s, high_s = self._interval if group is self.total else (None, None)
            return interval_cell(group.predicted_s, low_s, high_s)

        def measured(group: Group) -> str:
            return format_s(group.measured_s)

        def share(group: Group) -> str:
            time_s = self.time_s(group)
            if time_s is None or not self.whole_s:
                return MISSING
            return format_percent(rounded_share(time_s / self.whole_s))

        parts = [_part("Min time", lambda group: format_s(group.eager_min_time_s))]
        if self.is_predicted:
            column = number_column("Predicted", 0 if of_groups else 1)
            parts.append(_Part(column, _predicted, sum_predicted))
        if self.is_measured and of_groups:
            parts.append(_part("Measured", measured))
        elif self.is_measured:
            parts += [
                _Part(
                    number_column("Measured"),
                    lambda group: median_cell(group.measured_s, _iqr_s(group)),
                    measured,
                ),
                _Part(number_column("IQR", 11), lambda group: format_s(_iqr_s(group), 2)),
                _part("FLOP/s", _flop_rate, 5),
                _part("B/s", _byte_rate, 7),
                _part("Efficiency", _efficiency, 3),
            ]
        if self.is_predicted and not of_groups:
            prediction = Column(heading="Source", drop_priority=9)
            parts.append(_Part(prediction, lambda group: source_word(group.rows[0])))
        return [*parts, _part("Share", share)]


def _part(heading: str, cell: _Cell, drop_priority: int = 0) -> _Part:
    """Return a column of numbers that add up."""
    return _Part(number_column(heading, drop_priority), cell, cell)


def _work_parts(flop: int, byte: int, view: View) -> list[_Part]:
    """Return columns of work; `flop` and `byte` are their ranks of removal."""
    parts = [
        _part("FLOP", lambda each: sum_of_flop(each.work.flop or 0, each.unknown_operators), flop),
        _part("Bytes", lambda each: format_bytes(each.work.traffic_bytes), byte),
    ]
    fused = _part("Fused bytes", lambda each: format_bytes(each.fused_bytes))
    return [*parts, fused] if view.fused else parts


def source_word(row: OperatorRow) -> str:
    """Return the source of a prediction: ``"calibrated"``, ``"bound only"``."""
    return (row.prediction_source or BOUND_ONLY).partition(":")[0]


def prediction_cell(
    predicted_s: float | None,
    interval_s: tuple[float, float] | None,
    eager_min_time_s: float | None,
) -> str:
    """Return a prediction with its interval, else ``"bound only"``, else missing."""
    if predicted_s is None:
        return MISSING if eager_min_time_s is None else BOUND_ONLY
    return interval_cell(predicted_s, *(interval_s or (None, None)))


def _predicted(group: Group) -> str:
    if group.predicted_s is None:
        return BOUND_ONLY
    # Errors of equal calls are correlated: their intervals add up.
    low_s = sum_known([row.predicted_low_s for row in group.rows])
    high_s = sum_known([row.predicted_high_s for row in group.rows])
    return interval_cell(group.predicted_s, low_s, high_s)


def _iqr_s(group: Group) -> float | None:
    return group.rows[0].measured_iqr_s if group.calls == 1 else None


def _flop_rate(group: Group) -> str:
    if not (time_s := group.measured_s):
        return MISSING
    flop, unknown = group.work.flop or 0, group.unknown_operators
    return sum_of_flop(flop, unknown, lambda flop: format_flop_per_s(flop / time_s))


def _byte_rate(group: Group) -> str:
    time_s = group.measured_s
    return format_bytes_per_s(group.work.traffic_bytes / time_s) if time_s else MISSING


def _efficiency(group: Group) -> str:
    time_s, least_s = group.measured_s, group.eager_min_time_s
    return format_percent(least_s / time_s if time_s and least_s is not None else None)


def group_identical_calls(analysis: Analysis, kind: Kind) -> list[list[OperatorRow]]:
    """Return the calls that are not free, equal ones together, longest total time first."""
    found = grouped(working(analysis.operators), grouping_key).values()
    # Without ceilings there is no time to sort by; bytes are always known.
    return sorted(
        found,
        key=lambda rows: (
            -sum_s(rows, kind),
            -sum(row.traffic_bytes for row in rows),
            rows[0].index,
        ),
    )


def operator_grid(analysis: Analysis, view: View) -> Grid:
    """Return the table of the longest operators, with rows for all others and the total."""
    times = _Times(analysis)
    ordered = group_identical_calls(analysis, times.kind)
    # With predictions or measurements, columns of work are the first that a narrow terminal drops.
    crowded = times.is_more_than_bounds

    def limiting(group: Group) -> str:
        level = group.rows[0].level
        crossing = sum(row.level_bytes.get(level, 0) for row in group.rows if level)
        return f"{printable(level)} {format_bytes(crossing)}" if level else MISSING

    module = Column(heading="Module", least=14, cut="start")
    op = Column(heading="Op", least=11)
    parts = [
        _Part(module, lambda group: modules_of(group.rows), lambda group: group.name),
        _Part(op, lambda group: short_op(group.rows[0])),
    ]
    if analysis.run.train:
        parts.append(
            _Part(Column(heading="Phase", drop_priority=3), lambda each: each.rows[0].phase)
        )
    output = Column(heading="Output", drop_priority=8)
    limiter = Column(heading="Limiter", drop_priority=10 * crowded, least=12)
    parts += [
        _part("Calls", lambda group: str(group.calls), 2 * crowded),
        _Part(output, lambda group: shape_of(group.rows[0])),
        *_work_parts(4 + 3 * (not view.fused), 9, view),
        _Part(number_column("Limiting traffic", 13), limiting),
        _Part(
            number_column("Limiting AI", 12 if crowded else 6),
            lambda group: format_intensity(group.rows[0].intensity_flop_per_byte),
        ),
        _Part(limiter, lambda group: ceiling_text(group.rows[0].ceiling) or MISSING),
        *times.parts(of_groups=False),
    ]
    count = view.rows(10 if view.verbose else 5)
    shown = [group_of("", rows, times.whole) for rows in ordered[:count]]
    others = [row for rows in ordered[count:] for row in rows]
    rest = [group_of("other", others, times.whole)] if others else []
    sums = [tuple(each.sum(group) for each in parts) for group in (*rest, times.total)]
    outside_s = _outside_s(analysis)
    if outside_s is not None and times.kind == "predicted":
        has_faults = analysis.prediction is not None and bool(analysis.prediction.page_faults)
        outside = "overhead" + " and page faults" * has_faults
        texts = {"Module": outside, "Predicted": format_s(outside_s)}
        sums.append(tuple(texts.get(each.column.heading, "") for each in parts))
    order = TITLES[times.kind] if times.whole_s else "bytes"
    free = len(analysis.operators) - times.total.calls
    left_out = f"; {counted(free, 'free call')} left out" if free else ""
    return Grid(
        title=f"Top operators by {order} (totals over equal calls{left_out})",
        columns=tuple(each.column for each in parts),
        rows=tuple(tuple(each.cell(group) for each in parts) for group in shown),
        sums=tuple(sums),
    )


_NOTABLE = 0.02


def _outside_s(analysis: Analysis) -> float | None:
    """Return the predicted time outside operators, in seconds; None: unknown or small."""
    prediction, operators_s = analysis.prediction, analysis.totals.predicted_s
    if prediction is None or operators_s is None:
        return None
    outside_s = prediction.predicted_s - operators_s
    return outside_s if outside_s > _NOTABLE * prediction.predicted_s else None


def unknown_grid(found: Sequence[Group], *, bounds: bool = True) -> Grid:
    """Return the table of operators without a formula, with bytes and minimum times."""
    columns: dict[str, _Cell] = {
        "Op": lambda each: printable(each.name.partition(":")[2].removeprefix("aten.")),
        "Calls": lambda each: str(each.calls),
        "Bytes": lambda each: format_bytes(each.work.traffic_bytes),
    }
    if bounds:
        columns["Min time"] = lambda each: format_s(each.eager_min_time_s)
    title = "Operators without a formula (FLOP unknown, bytes counted)"
    return table(title, found, columns, left=("Op",))


def groups_of_unknown(analysis: Analysis) -> tuple[Group, ...]:
    """Return the operators without a formula, by name."""
    return tuple(
        group
        for group in groups(analysis, lambda row: f"{row.state}:{row.op}")
        if group.unknown_operators
    )


def _sum_parts(view: View, times: _Times) -> list[_Part]:
    """Return the columns of a table of sums."""

    def intensity(group: Group) -> str:
        flop, byte = group.work.flop or 0, group.work.traffic_bytes
        return sum_of_intensity(flop, byte, group.unknown_operators)

    return [
        *_work_parts(1 * times.is_more_than_bounds, 2 * times.is_more_than_bounds, view),
        _part("Operand AI", intensity, 4),
        *times.parts(of_groups=True),
    ]


def group_grid(analysis: Analysis, by: Literal["module", "type", "phase"], view: View) -> Grid:
    """Return the table of types (longest first), phases in order, or the tree of modules."""
    times = _Times(analysis)
    if by == "module":
        return _module_grid(analysis, view, times)
    parts = [_part("Calls", lambda group: str(group.calls), 3), *_sum_parts(view, times)]

    def line(group: Group) -> tuple[str, ...]:
        return (group.name, *(each.sum(group) for each in parts))

    sums: list[tuple[str, ...]] = []
    if by == "phase":
        found = groups(analysis, lambda row: row.phase)
        shown = sorted(found, key=lambda each: PHASES.index(each.rows[0].phase))
        if view.by == "phase":
            sums.append(line(times.total))
    else:
        found = groups(analysis, lambda row: printable(row.type), time_s=times.time_s)
        shown, others = found[: view.rows()], found[view.rows() :]
        if others:
            names = {each.name for each in others}
            rest = [row for row in times.total.rows if printable(row.type) in names]
            sums.append(line(group_of(f"{len(others)} more", rest, times.whole)))
        sums.append(line(times.total))
        if free := len(analysis.operators) - times.total.calls:
            sums.append(("free (views, allocations)", str(free), *[""] * (len(parts) - 1)))
    return Grid(
        title="Phases" if by == "phase" else f"Operator types by {TITLES[times.kind]}",
        columns=(Column(heading=by.capitalize()), *(each.column for each in parts)),
        rows=tuple(map(line, shown)),
        sums=tuple(sums),
    )


def _module_grid(analysis: Analysis, view: View, times: _Times) -> Grid:
    branches = module_tree(
        analysis,
        depth=view.levels,
        top=view.top,
        time_s=times.time_s,
        collapse=not view.verbose,
    )
    parts = [_part("Operators", lambda group: str(group.calls), 4), *_sum_parts(view, times)]

    def cells(branch: Branch) -> Iterator[str]:
        name = printable(branch.path.rpartition(".")[2]) or MODEL_ITSELF
        if branch.part == "own":
            name = "(own)"
        elif branch.part == "rest":
            name = f"({branch.group.name})"
        yield "  " * branch.depth + name
        if analysis.modules:
            calls = f"{branch.calls:,}" if branch.calls else MISSING
            yield printable(branch.kind)
            yield calls if branch.part == "whole" else ""
            yield MISSING if branch.parameters is None else format_si(branch.parameters, "")
        group = branch.group if branch.depth else times.total
        yield from (each.sum(group) for each in parts)

    known = [
        Column(heading="Class", drop_priority=5),
        number_column("Calls", 3),
        number_column("Parameters", 2),
    ]
    return Grid(
        title="Modules (including their submodules)",
        columns=(
            Column(heading="Module", least=16),
            *(known if analysis.modules else []),
            *(each.column for each in parts),
        ),
        rows=tuple(tuple(cells(each)) for each in branches),
    )


_WORK = ("flop", "macs", "parameter_bytes", "input_bytes", "output_bytes", "traffic_bytes")
_MORE_BYTES = ("gradient_bytes", "optimizer_bytes", "internal_bytes")
_TREE = ("module", "depth", "part", "class", "module_calls", "parameters")


def analysis_table(analysis: Analysis, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
    """Return columns and rows of CSV files: one line per operator; unknown is empty, never 0.

    By type or phase: the fields of `Group`. By module: the tree; lines without ``is_open`` add up
    to the total.
    """
    times = ("fused_bytes", "predicted_s", "measured_s", *MINIMUM_TIMES)
    sums = ("calls", *_WORK, *_MORE_BYTES, *times)
    time_s = _Times(analysis).time_s
    if view.by == "module":
        tree = module_tree(analysis, depth=view.levels, top=view.top, time_s=time_s)
        of_tree = operator.attrgetter("path", "depth", "part", "kind", "calls", "parameters")
        rows = ([*of_tree(each), each.is_open, *_sums(each.group)] for each in tree)
        return [*_TREE, "is_open", *sums], rows
    if view.by != "operator":
        found = groups(analysis, operator.attrgetter(view.by), time_s=time_s)
        return [view.by, *sums], ([each.name, *_sums(each)] for each in found)
    return FRAME_COLUMNS, analysis.rows()


def _sums(group: Group) -> list[object]:
    work = [
        None if group.unknown_operators and name in _WORK[:2] else getattr(group.work, name)
        for name in _WORK
    ]
    more = [getattr(group.work, name) for name in _MORE_BYTES]
    times = (group.fused_bytes, group.predicted_s, group.measured_s)
    return [group.calls, *work, *more, *times, *minimum_times_of(group).values()]
