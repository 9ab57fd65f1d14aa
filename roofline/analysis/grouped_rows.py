"""Results as rows of numbers for spreadsheets; their JSON is `to_json`."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from roofline.analysis import (
    FRAME_COLUMNS,
    MINIMUM_TIMES,
    Analysis,
    Group,
    groups,
    minimum_times_of,
    module_tree,
)
from roofline.analysis.time_columns import TimeColumns
from roofline.foundation.blocks import View

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
