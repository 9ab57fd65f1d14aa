"""Tables of an analysis: operators, sums by type, phase and module, unknown FLOP."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Sequence
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
from roofline.analysis import working as working_of
from roofline.analysis.points import likeness
from roofline.analysis.times import Kind, kind_of_time, rounded_share, sum_s, time_of
from roofline.analysis.words import (
    MODEL_ITSELF,
    module_of,
    shape_of,
    short_op,
    sum_of_flop,
    sum_of_intensity,
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

TITLES = {"measured": "measured time", "predicted": "predicted time", "bound": "bound"}
"""What the kinds of time are called in titles."""


class TimeColumns:
    """The columns of times of an analysis, as many as it knows of, and their cells.

    ``kind`` is what rows are sorted by and shares are of, ``whole_s`` the sum of those times.
    """

    def __init__(self, analysis: Analysis) -> None:
        rows = working_of(analysis.operators)
        self.is_predicted = any(row.predicted_s is not None for row in rows)
        self.is_measured = any(row.measured_s is not None for row in rows)
        self.kind: Kind = kind_of_time(analysis)
        self.whole_s = sum_s(rows, self.kind)
        self._interval = (analysis.totals.predicted_low_s, analysis.totals.predicted_high_s)

    @property
    def is_more_than_bounds(self) -> bool:
        """Whether there are predictions or measurements."""
        return self.is_predicted or self.is_measured

    def of_operators(self) -> tuple[Column, ...]:
        """The columns of a table of operators."""
        return (
            Column(heading="bound", align="right"),
            *(
                [Column(heading="predicted", align="right", sacrifice=2)]
                if self.is_predicted
                else []
            ),
            *(
                (
                    Column(heading="measured", align="right"),
                    Column(heading="IQR", align="right", sacrifice=11),
                    Column(heading="FLOP/s", align="right", sacrifice=5),
                    Column(heading="byte/s", align="right", sacrifice=7),
                    Column(heading="of the roof", align="right", sacrifice=3),
                )
                if self.is_measured
                else ()
            ),
            *([Column(heading="prediction", sacrifice=9)] if self.is_predicted else []),
            Column(heading="share", align="right"),
        )

    def cells(self, rows: Sequence[OperatorRow]) -> tuple[str, ...]:
        """The cells of calls that are alike."""
        return (
            format_s(sum_eager_min_time_s(rows)),
            *([_predicted(rows)] if self.is_predicted else []),
            *(
                (
                    median_cell(_measured_s(rows), _iqr_s(rows)),
                    format_s(_iqr_s(rows), 2),
                    *_achieved(rows),
                )
                if self.is_measured
                else ()
            ),
            *([source_word(rows[0])] if self.is_predicted else []),
            self._share(rows),
        )

    def sums(
        self, rows: Sequence[OperatorRow], low_s: float | None = None, high_s: float | None = None
    ) -> tuple[str, ...]:
        """The cells of operators taken together; their interval, where it is known."""
        predicted_s = sum_known([row.predicted_s for row in rows])
        return (
            format_s(sum_eager_min_time_s(rows)),
            *([interval_cell(predicted_s, low_s, high_s)] if self.is_predicted else []),
            *((format_s(_measured_s(rows)), "", *_achieved(rows)) if self.is_measured else ()),
            *([""] if self.is_predicted else []),
            self._share(rows),
        )

    def of_groups(self) -> tuple[Column, ...]:
        """The columns of a table of sums."""
        return (
            Column(heading="bound", align="right"),
            *([Column(heading="predicted", align="right")] if self.is_predicted else []),
            *([Column(heading="measured", align="right")] if self.is_measured else []),
            Column(heading="share", align="right"),
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
        times = {
            "measured": group.measured_s,
            "predicted": group.predicted_s,
            "bound": group.eager_min_time_s,
        }
        return times[self.kind]

    def _share(self, rows: Sequence[OperatorRow]) -> str:
        known = [time for row in rows if (time := time_of(row, self.kind)) is not None]
        if not self.whole_s or not known:
            return MISSING
        return format_percent(rounded_share(sum(known) / self.whole_s))


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


def _predicted(rows: Sequence[OperatorRow]) -> str:
    predicted_s = sum_known([row.predicted_s for row in rows])
    if predicted_s is None:
        return BOUND_ONLY
    # The calls are the same: what is wrong for one of them is wrong for all.
    low_s = sum_known([row.predicted_low_s for row in rows])
    high_s = sum_known([row.predicted_high_s for row in rows])
    return interval_cell(predicted_s, low_s, high_s)


def _measured_s(rows: Sequence[OperatorRow]) -> float | None:
    return sum_known([row.measured_s for row in rows])


def _iqr_s(rows: Sequence[OperatorRow]) -> float | None:
    return rows[0].measured_iqr_s if len(rows) == 1 else None


def _achieved(rows: Sequence[OperatorRow]) -> tuple[str, str, str]:
    """FLOP/s, byte/s, and how much of the roof that is."""
    time_s, eager_min_time_s, work = _measured_s(rows), sum_eager_min_time_s(rows), known_work(rows)
    if not time_s:
        return MISSING, MISSING, MISSING
    unknown = sum(row.state is State.UNKNOWN for row in rows)
    rate = sum_of_flop(work.flop or 0, unknown, lambda flop: format_flop_per_s(flop / time_s))
    share = eager_min_time_s / time_s if eager_min_time_s is not None else None
    return rate, format_bytes_per_s(work.traffic_bytes / time_s), format_percent(share)


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

    def cells(rows: Sequence[OperatorRow]) -> tuple[str, ...]:
        row, count = rows[0], len(rows)
        crossing = format_bytes(count * row.level_bytes.get(row.level, 0))
        return (
            short_op(row),
            f"{module_of(row)} ×{count}" if count > 1 else module_of(row),
            *([row.phase] if analysis.run.train else []),
            shape_of(row),
            MISSING if row.flop is None else format_flop(count * row.flop),
            format_bytes(count * row.traffic_bytes),
            *([format_bytes(sum_fused_bytes(rows))] if view.fused else []),
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
            format_bytes(work.traffic_bytes),
            *([format_bytes(sum_fused_bytes(rows))] if view.fused else []),
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


_INDENT = "  "


def _group_columns(view: View, times: TimeColumns) -> tuple[Column, ...]:
    """The columns of sums, after that of their names."""
    return (
        Column(heading="calls", align="right", sacrifice=3),
        *_group_sums(view, times),
    )


def _group_sums(view: View, times: TimeColumns) -> tuple[Column, ...]:
    return (
        # Beside other times than bounds, the work gives way.
        Column(heading="FLOP", align="right", sacrifice=1 * times.is_more_than_bounds),
        Column(heading="bytes", align="right", sacrifice=2 * times.is_more_than_bounds),
        *([Column(heading="fused bytes", align="right")] if view.fused else []),
        Column(heading="FLOP/byte", align="right", sacrifice=4),
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
        columns=(Column(heading="type"), *_group_columns(view, times)),
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
        columns=(Column(heading="phase"), *_group_columns(view, times)),
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
    known = [
        Column(heading="class", sacrifice=5),
        Column(heading="calls", align="right", sacrifice=3),
        Column(heading="parameters", align="right", sacrifice=2),
    ]
    return Grid(
        title="Modules, each with all that is in it",
        columns=(
            Column(heading="module", least=16),
            *(known if knows_modules else []),
            Column(heading="operators", align="right", sacrifice=4),
            *_group_sums(view, times),
        ),
        rows=tuple(
            (
                branch_name(each),
                *(_of_module(each) if knows_modules else ()),
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
    return _INDENT * branch.depth + name


def _of_module(branch: Branch) -> tuple[str, ...]:
    calls = f"{branch.calls:,}" if branch.calls else MISSING
    return (
        printable(branch.kind),
        calls if branch.part == "whole" else "",
        MISSING if branch.parameters is None else format_si(branch.parameters, ""),
    )


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
    sums = (
        *(
            "calls",
            *_WORK,
            *_MORE_BYTES,
            "fused_bytes",
            "predicted_s",
            "measured_s",
        ),
        *MINIMUM_TIMES,
    )
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
    times = (group.predicted_s, group.measured_s)
    minimum = minimum_times_of(group).values()
    return [group.calls, *work, *more, group.fused_bytes, *times, *minimum]
