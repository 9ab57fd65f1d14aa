"""Tables of an analysis: operators, sums by type, phase and module, unknown FLOP."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
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
    known_work,
    minimum_times_of,
    module_tree,
    sum_eager_min_time_s,
    sum_fused_bytes,
    working,
)
from roofline.analysis.grouping import likeness
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
from roofline.foundation.blocks import Column, Grid, View
from roofline.foundation.rows import sum_known
from roofline.foundation.spreads import interval_cell, median_cell
from roofline.foundation.text import printable
from roofline.foundation.units import (
    MISSING,
    format_bytes,
    format_bytes_per_s,
    format_flop,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
    format_si,
)
from roofline.latency.prediction import BOUND_ONLY
from roofline.workload.operators import PHASES, State

Rows = Sequence[OperatorRow]


def _nothing(_: Rows) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class _Part:
    """A column, the cell of calls that are alike, and that of operators taken together."""

    column: Column
    cell: Callable[[Rows], str]
    sum: Callable[[Rows], str] = _nothing


TITLES = {"measured": "measured time", "predicted": "predicted time", "bound": "bound"}
"""What the kinds of time are called in titles."""


class TimeColumns:
    """The columns of times of an analysis, as many as it knows of, and their cells.

    ``kind`` is what rows are sorted by and shares are of, ``whole_s`` the sum of those times.
    """

    def __init__(self, analysis: Analysis) -> None:
        rows = working(analysis.operators)
        self.is_predicted = any(row.predicted_s is not None for row in rows)
        self.is_measured = any(row.measured_s is not None for row in rows)
        self.kind: Kind = kind_of_time(analysis)
        self.whole_s = sum_s(rows, self.kind)
        self._count = len(rows)
        self._interval = (analysis.totals.predicted_low_s, analysis.totals.predicted_high_s)

    @property
    def is_more_than_bounds(self) -> bool:
        """Whether there are predictions or measurements."""
        return self.is_predicted or self.is_measured

    @property
    def of_operators(self) -> list[_Part]:
        """The columns of a table of operators."""

        def bound(rows: Rows) -> str:
            return format_s(sum_eager_min_time_s(rows))

        def sum_predicted(rows: Rows) -> str:
            # Of all operators, the interval is that of the whole.
            low_s, high_s = self._interval if len(rows) == self._count else (None, None)
            return interval_cell(sum_known([row.predicted_s for row in rows]), low_s, high_s)

        parts = [_Part(_right("bound"), bound, bound)]
        if self.is_predicted:
            parts.append(_Part(_right("predicted", 2), _predicted, sum_predicted))
        if self.is_measured:
            parts += [
                _Part(
                    _right("measured"),
                    lambda rows: median_cell(_measured_s(rows), _iqr_s(rows)),
                    lambda rows: format_s(_measured_s(rows)),
                ),
                _Part(_right("IQR", 11), lambda rows: format_s(_iqr_s(rows), 2)),
                _Part(_right("FLOP/s", 5), _flop_rate, _flop_rate),
                _Part(_right("byte/s", 7), _byte_rate, _byte_rate),
                _Part(_right("of the roof", 3), _of_roof, _of_roof),
            ]
        if self.is_predicted:
            prediction = Column(heading="prediction", sacrifice=9)
            parts.append(_Part(prediction, lambda rows: source_word(rows[0])))
        return [*parts, _Part(_right("share"), self._share, self._share)]

    def cells(self, rows: Rows) -> tuple[str, ...]:
        """The cells of calls that are alike."""
        return tuple(each.cell(rows) for each in self.of_operators)

    def of_groups(self) -> tuple[Column, ...]:
        """The columns of a table of sums."""
        known = {"bound": True, "predicted": self.is_predicted, "measured": self.is_measured}
        return tuple(
            map(_right, [*(name for name, is_known in known.items() if is_known), "share"])
        )

    def group_cells(self, group: Group, *, is_all: bool = False) -> tuple[str, ...]:
        """The cells of a group; that of all operators has the interval of the whole."""
        time_s = self.group_s(group)
        low_s, high_s = self._interval if is_all else (None, None)
        share = time_s / self.whole_s if time_s is not None and self.whole_s else None
        return (
            format_s(group.eager_min_time_s),
            *([interval_cell(group.predicted_s, low_s, high_s)] if self.is_predicted else []),
            *([format_s(group.measured_s)] if self.is_measured else []),
            format_percent(None if share is None else rounded_share(share)),
        )

    def group_s(self, group: Group) -> float | None:
        """The time of a group that its share is of."""
        match self.kind:
            case "measured":
                return group.measured_s
            case "predicted":
                return group.predicted_s
            case "bound":
                return group.eager_min_time_s

    def _share(self, rows: Rows) -> str:
        known = [time for row in rows if (time := time_of(row, self.kind)) is not None]
        if not self.whole_s or not known:
            return MISSING
        return format_percent(rounded_share(sum(known) / self.whole_s))


def _right(heading: str, sacrifice: int = 0) -> Column:
    return Column(heading=heading, align="right", sacrifice=sacrifice)


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


def _predicted(rows: Rows) -> str:
    predicted_s = sum_known([row.predicted_s for row in rows])
    if predicted_s is None:
        return BOUND_ONLY
    # The calls are the same: what is wrong for one of them is wrong for all.
    low_s = sum_known([row.predicted_low_s for row in rows])
    high_s = sum_known([row.predicted_high_s for row in rows])
    return interval_cell(predicted_s, low_s, high_s)


def _measured_s(rows: Rows) -> float | None:
    return sum_known([row.measured_s for row in rows])


def _iqr_s(rows: Rows) -> float | None:
    return rows[0].measured_iqr_s if len(rows) == 1 else None


def _flop_rate(rows: Rows) -> str:
    if not (time_s := _measured_s(rows)):
        return MISSING
    unknown = sum(row.state is State.UNKNOWN for row in rows)
    return sum_of_flop(
        known_work(rows).flop or 0, unknown, lambda flop: format_flop_per_s(flop / time_s)
    )


def _byte_rate(rows: Rows) -> str:
    time_s = _measured_s(rows)
    return format_bytes_per_s(known_work(rows).traffic_bytes / time_s) if time_s else MISSING


def _of_roof(rows: Rows) -> str:
    time_s, least_s = _measured_s(rows), sum_eager_min_time_s(rows)
    return format_percent(least_s / time_s if time_s and least_s is not None else None)


def operator_grid(analysis: Analysis, view: View) -> Grid:
    """The operators that take longest, then the others as one row, then all."""
    times = TimeColumns(analysis)
    at_work = working(analysis.operators)
    # Without any ceiling there is no time to sort by; bytes are always known.
    ordered = sorted(
        alike(at_work),
        key=lambda rows: (
            -sum_s(rows, times.kind),
            -sum(row.traffic_bytes for row in rows),
            rows[0].index,
        ),
    )
    # Beside the bytes of fused kernels there is less room; beside other times than bounds the
    # work gives way, so that 80 characters hold operator, module, the times and their share.
    crowded = times.is_more_than_bounds

    def module(rows: Rows) -> str:
        return module_of(rows[0]) + (f" ×{len(rows)}" if len(rows) > 1 else "")

    def flop(rows: Rows) -> str:
        known = rows[0].flop
        return MISSING if known is None else format_flop(len(rows) * known)

    def sum_flop(rows: Rows) -> str:
        unknown = sum(row.state is State.UNKNOWN for row in rows)
        return sum_of_flop(known_work(rows).flop or 0, unknown)

    def traffic(rows: Rows) -> str:
        return format_bytes(sum(row.traffic_bytes for row in rows))

    def fused(rows: Rows) -> str:
        return format_bytes(sum_fused_bytes(rows))

    def slowest(rows: Rows) -> str:
        row = rows[0]
        crossing = format_bytes(len(rows) * row.level_bytes.get(row.level, 0))
        return f"{printable(row.level)} {crossing}" if row.level else MISSING

    least = 14 if crowded else 18
    parts = [_Part(Column(heading="module", sacrifice=1, least=least, cut="start"), module)]
    if analysis.run.train:
        phase = Column(heading="phase", sacrifice=3 if crowded else 2)
        parts.append(_Part(phase, lambda rows: rows[0].phase))
    output = Column(heading="output", sacrifice=8 if crowded else 4)
    bound_by = Column(heading="bound by", sacrifice=10 if crowded else 5)
    parts += [
        _Part(output, lambda rows: shape_of(rows[0])),
        _Part(_right("FLOP", 4 if crowded else 2 * view.fused), flop, sum_flop),
        _Part(_right("bytes", 6 * crowded), traffic, traffic),
        *([_Part(_right("fused bytes"), fused, fused)] if view.fused else []),
        _Part(_right("slowest level", 13 if crowded else 6), slowest),
        _Part(
            _right("FLOP/byte of it", 12 if crowded else 3),
            lambda rows: format_intensity(rows[0].intensity_flop_per_byte),
        ),
        _Part(bound_by, lambda rows: printable(rows[0].ceiling) or MISSING),
        *times.of_operators,
    ]

    def summed(name: str, rows: Rows) -> tuple[str, ...]:
        return (name, *(each.sum(rows) for each in parts))

    others = [row for rows in ordered[view.rows() :] for row in rows]
    return Grid(
        title=f"Operators by {TITLES[times.kind]}" if times.whole_s else "Operators by bytes",
        columns=(
            Column(heading="operator", least=12 if crowded else 16),
            *(each.column for each in parts),
        ),
        rows=tuple(
            (short_op(rows[0]), *(each.cell(rows) for each in parts))
            for rows in ordered[: view.rows()]
        ),
        sums=(
            *([summed(f"{len(others)} more", others)] if others else []),
            summed("total", at_work),
        ),
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
            *map(_right, ("calls", "bytes", *["bound by bytes"] * bounds)),
        ),
        rows=tuple(
            (
                printable(group.name.removeprefix(f"{State.UNKNOWN}:").removeprefix("aten.")),
                str(group.calls),
                format_bytes(group.work.traffic_bytes),
                *([format_s(group.eager_min_time_s)] * bounds),
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


def _group_sums(view: View, times: TimeColumns) -> tuple[Column, ...]:
    return (
        # Beside other times than bounds, the work gives way.
        _right("FLOP", 1 * times.is_more_than_bounds),
        _right("bytes", 2 * times.is_more_than_bounds),
        *([_right("fused bytes")] if view.fused else []),
        _right("FLOP/byte", 4),
        *times.of_groups(),
    )


def type_grid(analysis: Analysis, view: View) -> Grid:
    """The types that take longest, then the others as one row, all, and what is free."""
    times = TimeColumns(analysis)
    found = groups(analysis, lambda row: printable(row.type), time_s=times.group_s)
    shown, others = found[: view.rows()], found[view.rows() :]
    names = {each.name for each in others}
    rows = working(analysis.operators)
    whole = Whole.of(analysis)
    sums: list[tuple[str, ...]] = []
    if others:
        rest = [row for row in rows if printable(row.type) in names]
        sums.append(_group_cells(group_of(f"{len(others)} more", rest, whole), view, times))
    sums.append(_group_cells(group_of("total", rows, whole), view, times, is_all=True))
    if free := len(analysis.operators) - len(rows):
        sums.append(("free, beside these", str(free), *[""] * len(_group_sums(view, times))))
    return Grid(
        title="Types of operators",
        columns=(Column(heading="type"), _right("calls", 3), *_group_sums(view, times)),
        rows=tuple(_group_cells(each, view, times) for each in shown),
        sums=tuple(sums),
    )


def phase_grid(analysis: Analysis, view: View) -> Grid:
    """The phases of the run, in their order; all together where they are what was asked for."""
    times = TimeColumns(analysis)
    by_phase = {each.name: each for each in groups(analysis, lambda row: row.phase)}
    sums: tuple[tuple[str, ...], ...] = ()
    if view.by == "phase":
        total = group_of("total", working(analysis.operators), Whole.of(analysis))
        sums = (_group_cells(total, view, times, is_all=True),)
    return Grid(
        title="Phases",
        columns=(Column(heading="phase"), _right("calls", 3), *_group_sums(view, times)),
        rows=tuple(
            _group_cells(by_phase[each], view, times) for each in PHASES if each in by_phase
        ),
        sums=sums,
    )


def module_grid(analysis: Analysis, view: View) -> Grid:
    """The tree of modules, each with all that is in it; the model itself is the total."""
    times = TimeColumns(analysis)
    branches = module_tree(analysis, depth=view.levels, top=view.top, time_s=times.group_s)
    knows_modules = bool(analysis.modules)

    def of_module(branch: Branch) -> Iterable[str]:
        if knows_modules:
            calls = f"{branch.calls:,}" if branch.calls else MISSING
            yield printable(branch.kind)
            yield calls if branch.part == "whole" else ""
            yield MISSING if branch.parameters is None else format_si(branch.parameters, "")

    known = [Column(heading="class", sacrifice=5), _right("calls", 3), _right("parameters", 2)]
    return Grid(
        title="Modules, each with all that is in it",
        columns=(
            Column(heading="module", least=16),
            *(known if knows_modules else []),
            _right("operators", 4),
            *_group_sums(view, times),
        ),
        rows=tuple(
            (
                branch_name(each),
                *of_module(each),
                *_group_cells(each.group, view, times, is_all=not each.depth)[1:],
            )
            for each in branches
        ),
    )


def branch_name(branch: Branch) -> str:
    """The last name of a module's path, as deep as it stands in the tree."""
    name = printable(branch.path.rpartition(".")[2]) or MODEL_ITSELF
    if branch.part == "own":
        name = "(own)"
    elif branch.part == "rest":
        name = f"({branch.group.name})"
    return "  " * branch.depth + name


def _group_cells(
    group: Group, view: View, times: TimeColumns, *, is_all: bool = False
) -> tuple[str, ...]:
    flop, byte = group.work.flop or 0, group.work.traffic_bytes
    return (
        group.name,
        str(group.calls),
        sum_of_flop(flop, group.unknown_operators),
        format_bytes(byte),
        *([format_bytes(group.fused_bytes)] if view.fused else []),
        sum_of_intensity(flop, byte, group.unknown_operators),
        *times.group_cells(group, is_all=is_all),
    )


def group_grid(analysis: Analysis, by: Literal["module", "type", "phase"], view: View) -> Grid:
    """The table of sums that was asked for."""
    make = {"module": module_grid, "type": type_grid, "phase": phase_grid}[by]
    return make(analysis, view)


_WORK = ("flop", "macs", "parameter_bytes", "input_bytes", "output_bytes", "traffic_bytes")
_MORE_BYTES = ("gradient_bytes", "optimizer_bytes", "internal_bytes")
_TREE = ("module", "depth", "part", "class", "module_calls", "parameters")


def analysis_table(analysis: Analysis, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
    """Return columns and rows of CSV files: an operator a line; unknown is empty, never 0.

    By type or phase: a line each, with calls, work and times, as in `Group`. By module: the tree of
    modules down to a depth, where ``part`` says what a line sums: a module with all in it
    (``whole``), what it does itself where others in it have lines (``own``), or the modules left
    out (``rest``). Lines of operators, types and phases add up to the total; those of modules do
    without the ``whole`` ones that others in it follow, which ``is_open`` marks.
    """
    times = ("fused_bytes", "predicted_s", "measured_s", *MINIMUM_TIMES)
    sums = ("calls", *_WORK, *_MORE_BYTES, *times)
    time_s = TimeColumns(analysis).group_s
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
