"""Tables of an analysis: operators, sums by type, phase and module, unknown FLOP."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
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
    module_of,
    rounded_share,
    shape_of,
    short_op,
    sum_of_flop,
    sum_of_intensity,
    sum_s,
    time_of,
)
from roofline.core.blocks import Column, Grid, View, right, table
from roofline.core.sampling import interval_cell, median_cell
from roofline.core.text import printable
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
from roofline.workload.operators import PHASES

TITLES = {"measured": "measured time", "predicted": "predicted time", "bound": "bound"}
"""What the kinds of time are called in titles."""

_Cell = Callable[[Group], str]


@dataclass(frozen=True, slots=True)
class _Part:
    """A column, the cell of calls that are alike, and that of operators taken together."""

    column: Column
    cell: _Cell
    sum: _Cell = lambda _: ""


class _Times:
    """The columns of times; ``kind`` is what rows are sorted by, ``whole_s`` the sum of those."""

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
        """Whether there are predictions or measurements."""
        return self.is_predicted or self.is_measured

    def time_s(self, group: Group) -> float | None:
        """The time of a group that its share is of."""
        return time_of(group, self.kind)

    def parts(self, *, of_groups: bool) -> list[_Part]:
        """The columns of a table of sums, or of one of operators."""

        def sum_predicted(group: Group) -> str:
            # Of all operators, the interval is that of the whole.
            low_s, high_s = self._interval if group is self.total else (None, None)
            return interval_cell(group.predicted_s, low_s, high_s)

        def measured(group: Group) -> str:
            return format_s(group.measured_s)

        def share(group: Group) -> str:
            time_s = self.time_s(group)
            if time_s is None or not self.whole_s:
                return MISSING
            return format_percent(rounded_share(time_s / self.whole_s))

        parts = [_part("bound", lambda group: format_s(group.eager_min_time_s))]
        if self.is_predicted:
            column = right("predicted", 0 if of_groups else 2)
            parts.append(_Part(column, _predicted, sum_predicted))
        if self.is_measured and of_groups:
            parts.append(_part("measured", measured))
        elif self.is_measured:
            parts += [
                _Part(
                    right("measured"),
                    lambda group: median_cell(group.measured_s, _iqr_s(group)),
                    measured,
                ),
                _Part(right("IQR", 11), lambda group: format_s(_iqr_s(group), 2)),
                _part("FLOP/s", _flop_rate, 5),
                _part("byte/s", _byte_rate, 7),
                _part("of the roof", _of_roof, 3),
            ]
        if self.is_predicted and not of_groups:
            prediction = Column(heading="prediction", sacrifice=9)
            parts.append(_Part(prediction, lambda group: source_word(group.rows[0])))
        return [*parts, _part("share", share)]


def _part(heading: str, cell: _Cell, sacrifice: int = 0) -> _Part:
    """A column of numbers that add up."""
    return _Part(right(heading, sacrifice), cell, cell)


def _work_parts(flop: int, byte: int, view: View) -> list[_Part]:
    """Return columns of work, with the ranks at which FLOP and bytes give way."""
    parts = [
        _part("FLOP", lambda each: sum_of_flop(each.work.flop or 0, each.unknown_operators), flop),
        _part("bytes", lambda each: format_bytes(each.work.traffic_bytes), byte),
    ]
    fused = _part("fused bytes", lambda each: format_bytes(each.fused_bytes))
    return [*parts, fused] if view.fused else parts


def source_word(row: OperatorRow) -> str:
    """Where a prediction comes from, as short as can be: ``"calibrated"``, ``"bound only"``."""
    return (row.prediction_source or BOUND_ONLY).partition(":")[0]


def prediction_cell(
    predicted_s: float | None,
    interval_s: tuple[float, float] | None,
    eager_min_time_s: float | None,
) -> str:
    """A prediction with its interval in seconds, as far as there is one; else what there is."""
    if predicted_s is None:
        return MISSING if eager_min_time_s is None else BOUND_ONLY
    return interval_cell(predicted_s, *(interval_s or (None, None)))


def _predicted(group: Group) -> str:
    if group.predicted_s is None:
        return BOUND_ONLY
    # The calls are the same: what is wrong for one of them is wrong for all.
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


def _of_roof(group: Group) -> str:
    time_s, least_s = group.measured_s, group.eager_min_time_s
    return format_percent(least_s / time_s if time_s and least_s is not None else None)


def operator_grid(analysis: Analysis, view: View) -> Grid:
    """The operators that take longest, then the others as one row, then all."""
    times = _Times(analysis)
    # The calls that no table can tell apart, together: those that were measured stay apart.
    alike: dict[Hashable, list[OperatorRow]] = {}
    for row in times.total.rows:
        alike.setdefault(grouping_key(row), []).append(row)
    # Without any ceiling there is no time to sort by; bytes are always known.
    ordered = sorted(
        alike.values(),
        key=lambda rows: (
            -sum_s(rows, times.kind),
            -sum(row.traffic_bytes for row in rows),
            rows[0].index,
        ),
    )
    # Beside the bytes of fused kernels there is less room; beside other times than bounds the
    # work gives way, so that 80 characters hold operator, module, the times and their share.
    crowded = times.is_more_than_bounds

    def module(group: Group) -> str:
        return module_of(group.rows[0]) + (f" ×{group.calls}" if group.calls > 1 else "")

    def slowest(group: Group) -> str:
        row = group.rows[0]
        crossing = format_bytes(group.calls * row.level_bytes.get(row.level, 0))
        return f"{printable(row.level)} {crossing}" if row.level else MISSING

    least = 14 if crowded else 18
    parts = [_Part(Column(heading="module", sacrifice=1, least=least, cut="start"), module)]
    if analysis.run.train:
        phase = Column(heading="phase", sacrifice=3 if crowded else 2)
        parts.append(_Part(phase, lambda group: group.rows[0].phase))
    output = Column(heading="output", sacrifice=8 if crowded else 4)
    bound_by = Column(heading="bound by", sacrifice=10 if crowded else 5)
    parts += [
        _Part(output, lambda group: shape_of(group.rows[0])),
        *_work_parts(4 if crowded else 2 * view.fused, 6 * crowded, view),
        _Part(right("slowest level", 13 if crowded else 6), slowest),
        _Part(
            right("FLOP/byte of it", 12 if crowded else 3),
            lambda group: format_intensity(group.rows[0].intensity_flop_per_byte),
        ),
        _Part(bound_by, lambda group: printable(group.rows[0].ceiling) or MISSING),
        *times.parts(of_groups=False),
    ]
    shown = [group_of(short_op(rows[0]), rows, times.whole) for rows in ordered[: view.rows()]]
    others = [row for rows in ordered[view.rows() :] for row in rows]
    rest = [group_of(f"{len(others)} more", others, times.whole)] if others else []
    return Grid(
        title=f"Operators by {TITLES[times.kind]}" if times.whole_s else "Operators by bytes",
        columns=(
            Column(heading="operator", least=12 if crowded else 16),
            *(each.column for each in parts),
        ),
        rows=tuple((group.name, *(each.cell(group) for each in parts)) for group in shown),
        sums=tuple(
            (group.name, *(each.sum(group) for each in parts)) for group in (*rest, times.total)
        ),
    )


def unknown_grid(found: Sequence[Group], *, bounds: bool = True) -> Grid:
    """The operators whose FLOP is unknown, with the bytes that are not, and their bounds."""
    columns: dict[str, _Cell] = {
        "operator": lambda each: printable(each.name.partition(":")[2].removeprefix("aten.")),
        "calls": lambda each: str(each.calls),
        "bytes": lambda each: format_bytes(each.work.traffic_bytes),
    }
    if bounds:
        columns["bound by bytes"] = lambda each: format_s(each.eager_min_time_s)
    title = "Operators of unknown FLOP (their bytes are counted)"
    return table(title, found, columns, left=("operator",))


def groups_of_unknown(analysis: Analysis) -> tuple[Group, ...]:
    """The operators whose FLOP is unknown, by name."""
    return tuple(
        group
        for group in groups(analysis, lambda row: f"{row.state}:{row.op}")
        if group.unknown_operators
    )


def _sum_parts(view: View, times: _Times) -> list[_Part]:
    """The columns of a table of sums; beside other times than bounds, the work gives way."""

    def intensity(group: Group) -> str:
        flop, byte = group.work.flop or 0, group.work.traffic_bytes
        return sum_of_intensity(flop, byte, group.unknown_operators)

    return [
        *_work_parts(1 * times.is_more_than_bounds, 2 * times.is_more_than_bounds, view),
        _part("FLOP/byte", intensity, 4),
        *times.parts(of_groups=True),
    ]


def group_grid(analysis: Analysis, by: Literal["module", "type", "phase"], view: View) -> Grid:
    """The table of sums: types (the longest), phases in their order, or the tree of modules."""
    times = _Times(analysis)
    if by == "module":
        return _module_grid(analysis, view, times)
    parts = [_part("calls", lambda group: str(group.calls), 3), *_sum_parts(view, times)]

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
            sums.append(("free, beside these", str(free), *[""] * (len(parts) - 1)))
    return Grid(
        title="Phases" if by == "phase" else "Types of operators",
        columns=(Column(heading=by), *(each.column for each in parts)),
        rows=tuple(map(line, shown)),
        sums=tuple(sums),
    )


def _module_grid(analysis: Analysis, view: View, times: _Times) -> Grid:
    branches = module_tree(analysis, depth=view.levels, top=view.top, time_s=times.time_s)
    parts = [_part("operators", lambda group: str(group.calls), 4), *_sum_parts(view, times)]

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

    known = [Column(heading="class", sacrifice=5), right("calls", 3), right("parameters", 2)]
    return Grid(
        title="Modules, each with all that is in it",
        columns=(
            Column(heading="module", least=16),
            *(known if analysis.modules else []),
            *(each.column for each in parts),
        ),
        rows=tuple(tuple(cells(each)) for each in branches),
    )


_WORK = ("flop", "macs", "parameter_bytes", "input_bytes", "output_bytes", "traffic_bytes")
_MORE_BYTES = ("gradient_bytes", "optimizer_bytes", "internal_bytes")
_TREE = ("module", "depth", "part", "class", "module_calls", "parameters")


def analysis_table(analysis: Analysis, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
    """Return columns and rows of CSV files: an operator a line; unknown is empty, never 0.

    By type or phase: a line each, as in `Group`. By module: the tree, where ``part`` says what a
    line sums; all but those that ``is_open`` marks add up to the total.
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
