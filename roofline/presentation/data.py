"""Results as rows of numbers for spreadsheets; their JSON is `to_json`."""

from __future__ import annotations

import csv
import io
import operator
from typing import Unpack

from roofline.analysis import FRAME_COLUMNS, Analysis, Group, OperatorRow, groups, module_tree
from roofline.design.hardware_quantities import Quantity, quantities_of
from roofline.design.machine_comparison import MachineComparison
from roofline.machine.hardware import HardwareProfile
from roofline.presentation.reports.report import View, ViewOptions
from roofline.presentation.reports.time_columns import TimeColumns

_WORK = ("flop", "multiply_add", "parameter_byte", "input_byte", "output_byte", "traffic_byte")
_MORE_BYTES = ("gradient_byte", "optimizer_byte", "internal_byte")
_TREE = ("module", "depth", "part", "class", "module_calls", "parameters")


def to_csv(analysis: Analysis, **options: Unpack[ViewOptions]) -> str:
    """One line an operator, the columns of `Analysis.to_frame`; unknown is empty, never 0.

    By type or phase: one line each, with its calls, its work, its bound, and what its operators are
    predicted to take and took where that is known of all of them. By module: the tree of
    modules down to a depth, where ``part`` says what a line sums: a module with all in it
    (``whole``), what it does itself where others in it have lines (``own``), or the modules left
    out (``rest``). Lines of operators, types and phases add up to the total; those of modules do
    without the ``whole`` ones that others in it follow, which ``is_open`` marks.

    Raises:
        InputError: as `View`.
    """
    view = View(**options)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    sums = ("calls", *_WORK, "bound_s", *_MORE_BYTES, "fused_byte", "predicted_s", "measured_s")
    time_s = TimeColumns(analysis).group_s
    if view.by == "module":
        writer.writerow([*_TREE, "is_open", *sums])
        for each in module_tree(analysis, depth=view.levels, top=view.top, time_s=time_s):
            place = (each.path, each.depth, each.part, each.kind, each.calls, each.parameters)
            writer.writerow([*place, str(each.is_open).lower(), *_sums(each.group)])
        return text.getvalue()
    if view.by != "operator":
        writer.writerow([view.by, *sums])
        for group in groups(analysis, operator.attrgetter(view.by), time_s=time_s):
            writer.writerow([group.name, *_sums(group)])
        return text.getvalue()
    writer.writerow(FRAME_COLUMNS)
    for row in analysis.operators:
        writer.writerow(_cells(row))
    return text.getvalue()


def _sums(group: Group) -> list[object]:
    work = [
        "" if group.unknown_operators and name in _WORK[:2] else getattr(group.work, name)
        for name in _WORK
    ]
    more = [getattr(group.work, name) for name in _MORE_BYTES]
    times = (group.predicted_s, group.measured_s)
    return [group.calls, *work, group.bound_s, *more, group.fused_byte, *times]


def machines_csv(comparison: MachineComparison) -> str:
    """One line an operator and machine, the columns of `MachineComparison.to_frame`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["machine", *FRAME_COLUMNS, "changes_sides"])
    changing = comparison.changing_rows
    for name, analysis in zip(comparison.names, comparison.analyses, strict=True):
        for row, changes in zip(analysis.operators, changing, strict=True):
            writer.writerow([name, *_cells(row), str(changes).lower()])
    return text.getvalue()


HARDWARE_COLUMNS = {
    **dict.fromkeys(("what", "kind", "subject", "unit", "kernel"), "string"),
    "threads": "Int64",
    "measure": "string",
    **dict.fromkeys(("peak", "sustained", "spread", "theoretical", "loss"), "Float64"),
    **dict.fromkeys(("write_allocate", "doubt", "source", "reference", "date"), "string"),
}
"""The columns of `HardwareProfile.to_frame` and of CSV files, with pandas' nullable types."""


def hardware_csv(profile: HardwareProfile) -> str:
    """One line a figure of a machine, in SI units (``measure``); unknown is empty, never 0.

    The columns are those of `HardwareProfile.to_frame`.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HARDWARE_COLUMNS)
    for each in hardware_rows(profile):
        writer.writerow("" if value is None else value for value in each)
    return text.getvalue()


def hardware_rows(profile: HardwareProfile) -> list[tuple[object, ...]]:
    """The figures of a machine, each with the cells of `HARDWARE_COLUMNS`; None: not known."""
    return [_hardware_cells(each) for each in quantities_of(profile)]


def _hardware_cells(each: Quantity) -> tuple[object, ...]:
    source = each.provenance
    return (
        *(each.what, each.kind, each.subject, each.unit, each.kernel, each.threads, each.measure),
        *(each.peak, each.typical, each.spread),
        *(each.theoretical.per_s if each.theoretical else None, each.loss),
        *(each.write_allocate, each.doubt),
        *((source.source, source.reference, source.date) if source else (None, None, None)),
    )


def _cells(row: OperatorRow) -> list[object]:
    return ["" if (value := getattr(row, name)) is None else value for name in FRAME_COLUMNS]
