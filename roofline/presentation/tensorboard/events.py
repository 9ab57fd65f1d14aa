"""The events of an analysis: graph, times of its nodes, scalars, and the report as text."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from roofline.analysis import (
    Analysis,
    Coverage,
    OperatorRow,
    Totals,
    groups,
    minimum_times_of,
    working,
)
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.presentation.tensorboard.graph import graph_def, run_metadata
from roofline.presentation.tensorboard.library import TensorBoard, tensorboard
from roofline.render.markdown import report_markdown

_OF_OPERATORS = (
    *("flop", "macs", "traffic_bytes", "intensity_flop_per_byte", "attainable_flop_per_s"),
    *("eager_min_time_s", "fused_min_time_s", "predicted_s", "measured_s"),
)
"""Columns of operators that are drawn over the pass."""

_TIMES: dict[str, Callable[[OperatorRow], float | None]] = {
    "measured": lambda row: row.measured_s,
    "predicted": lambda row: row.predicted_s,
    "bound": lambda row: row.eager_min_time_s,
}


def check_event_file(path: Path) -> None:
    """Refuses, before any work is done, an event file that could not be made or found.

    Args:
        path: of the file.

    Raises:
        InputError: TensorBoard would not find a file of this name, or is not there.
    """
    if "tfevents" not in path.name:
        raise InputError(f"{path}: TensorBoard finds the suffix .tfevents in small letters only")
    tensorboard()


def event_file(analysis: Analysis, *, wall_time_s: float | None = None) -> bytes:
    """The content of an event file; what is not known is left out, never 0.

    Args:
        analysis: what is shown.
        wall_time_s: when it was written, in seconds since 1970; None: now.

    Raises:
        InputError: TensorBoard is not installed.
    """
    known = tensorboard()
    now_s = time.time() if wall_time_s is None else wall_time_s
    content = io.BytesIO()
    records = known.record_writer(content)
    for event in _events(known, analysis):
        event.wall_time = now_s
        records.write(event.SerializeToString(deterministic=True))
    return content.getvalue()


def _events(known: TensorBoard, analysis: Analysis) -> Iterator[Any]:
    yield known.event(file_version="brain.Event:2")
    graph = graph_def(known, analysis)
    yield known.event(graph_def=graph.SerializeToString(deterministic=True))
    for name, time_s in _TIMES.items():
        stats = run_metadata(known, analysis, time_s)
        if stats is not None:
            tagged = {"tag": name, "run_metadata": stats.SerializeToString(deterministic=True)}
            yield known.event(tagged_run_metadata=tagged)
    said = report_markdown(analysis.report()).encode("utf-8", "backslashreplace")
    yield known.event(summary=known.text_summary("report/text_summary", said))
    for tag, step, value in scalars(analysis):
        # Of 32 bits: TensorBoard's own loader passes over scalars of 64.
        yield known.event(step=step, summary=known.scalar_summary(tag, float(value)))


def scalars(analysis: Analysis) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of every scalar: totals, sums by type, and operators over the pass.

    The step of an operator is its index.
    """
    for name, of in (("totals", analysis.totals), ("coverage", analysis.coverage)):
        yield from _numbers(name, of)
    for group in groups(analysis, lambda row: printable(row.type)):
        yield f"types/{group.name}/calls", 0, group.calls
        yield f"types/{group.name}/traffic_bytes", 0, group.work.traffic_bytes
        for name, time_s in minimum_times_of(group).items():
            if time_s is not None:
                yield f"types/{group.name}/{name}", 0, time_s
    for column in _OF_OPERATORS:
        for row in working(analysis.operators):
            value = getattr(row, column)
            if value is not None:
                yield f"operators/{column}", row.index, value


def _numbers(name: str, of: Totals | Coverage) -> Iterator[tuple[str, int, float]]:
    for each in fields(of):
        value = getattr(of, each.name)
        if value is not None and not isinstance(value, str):
            yield f"{name}/{each.name}", 0, value
