"""The events of an analysis: graph, times of its nodes, scalars, and the report as text.

The messages are those of TensorFlow's `event.proto` and `summary.proto`, which SummaryWriter
writes. Scalars have 64 bits, as its `double_precision` has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields

from roofline.analysis import Analysis, Coverage, OperatorRow, Totals, groups, working
from roofline.design.machine_comparison import MachineComparison
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.presentation.markdown import report_markdown
from roofline.presentation.reports.analysis_report import report_of
from roofline.presentation.tensorboard.graph import graph_def, run_metadata, shape
from roofline.presentation.tensorboard.messages import double, joined, message, text, whole
from roofline.presentation.tensorboard.records import framed

ONE_MACHINE = "an event file shows one pass on one machine, and this has several; name one"

_DOUBLE, _STRING = 2, 7
"""Data types of TensorFlow."""

_OF_OPERATORS = (
    *("flop", "multiply_add", "traffic_byte", "intensity_flop_per_byte", "attainable_flop_per_s"),
    *("bound_s", "predicted_s", "measured_s"),
)
"""Columns of operators that are drawn over the pass."""

_TIMES: dict[str, Callable[[OperatorRow], float | None]] = {
    "measured": lambda row: row.measured_s,
    "predicted": lambda row: row.predicted_s,
    "bound": lambda row: row.bound_s,
}


def event_file(result: Analysis | MachineComparison, *, wall_time_s: float | None = None) -> bytes:
    """The content of an event file; what is not known is left out, never 0.

    Args:
        result: an analysis on one machine.
        wall_time_s: when it was written, in seconds since 1970; None: now.

    Raises:
        InputError: there are several machines.
    """
    if not isinstance(result, Analysis):
        raise InputError(ONE_MACHINE)
    now_s = time.time() if wall_time_s is None else wall_time_s
    begin = joined([double(1, now_s), text(3, "brain.Event:2")])
    return joined(
        framed(each) for each in (begin, *(double(1, now_s) + of for of in _events(result)))
    )


def _events(analysis: Analysis) -> Iterator[bytes]:
    yield message(4, graph_def(analysis))
    for name, time_s in _TIMES.items():
        stats = run_metadata(analysis, time_s)
        if stats is not None:
            yield message(8, joined([text(1, name), message(2, stats)]))
    yield _text("report", report_markdown(report_of(analysis)))
    for tag, step, value in scalars(analysis):
        yield joined([whole(2, step), message(5, _scalar(tag, value))])


def scalars(analysis: Analysis) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of every scalar: totals, sums by type, and operators over the pass.

    The step of an operator is its index.
    """
    for name, of in (("totals", analysis.totals), ("coverage", analysis.coverage)):
        yield from _numbers(name, of)
    for group in groups(analysis, lambda row: printable(row.type)):
        yield f"types/{group.name}/calls", 0, group.calls
        yield f"types/{group.name}/traffic_byte", 0, group.work.traffic_byte
        if group.bound_s is not None:
            yield f"types/{group.name}/bound_s", 0, group.bound_s
    for column in _OF_OPERATORS:
        for row in working(analysis.operators):
            value = getattr(row, column)
            if value is not None:
                yield f"operators/{column}", row.index, value


def _numbers(name: str, of: Totals | Coverage) -> Iterator[tuple[str, int, float]]:
    for each in fields(of):
        value = getattr(of, each.name)
        if value is not None:
            yield f"{name}/{each.name}", 0, value


def _scalar(tag: str, value: float) -> bytes:
    tensor = joined([whole(1, _DOUBLE), double(6, value)])
    return _summary(tag, tensor, "scalars")


def _text(tag: str, said: str) -> bytes:
    tensor = joined([whole(1, _STRING), message(2, shape((1,))), text(8, said)])
    return message(5, _summary(f"{tag}/text_summary", tensor, "text"))


def _summary(tag: str, tensor: bytes, plugin: str) -> bytes:
    metadata = message(1, text(1, plugin))
    return message(1, joined([text(1, tag), message(8, tensor), message(9, metadata)]))
