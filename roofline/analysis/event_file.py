"""TensorBoard event file of an analysis: graph, node times, scalars, and the report as text.

TensorBoard's own messages are imported on use; neither TensorFlow nor torch is needed. A node is
an operator that is not free, inside its modules; views are skipped.
"""

from __future__ import annotations

import importlib
import io
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from roofline.analysis.chrome_trace import operator_args
from roofline.analysis.grouping import groups, working
from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow, minimum_times_of
from roofline.analysis.words import Kind, short_op, time_of
from roofline.core.text import printable
from roofline.errors import InputError, error_text
from roofline.workload.dataflow import trace_dataflow
from roofline.workload.operators import State
from roofline.workload.tensors import Role, TensorSpec

_NO_NAME = re.compile(r"[^A-Za-z0-9_.\-]")

_FORMAT_VERSION = 22  # Of graphs, as SummaryWriter says it


_OF_OPERATORS = (
    *("flop", "macs", "traffic_bytes", "intensity_flop_per_byte", "attainable_flop_per_s"),
    *("eager_min_time_s", "fused_min_time_s", "predicted_s", "measured_s"),
)
"""Columns of operators written as scalars over the pass."""

_KINDS: tuple[Kind, ...] = ("measured", "predicted", "bound")
_DEVICES = ("/device:CPU:0", "/device:GPU:0")


def check_event_file(path: Path) -> None:
    """Refuse, before any work is done, an event file that could not be made or found."""
    if "tfevents" not in path.name:
        raise InputError(f"{path}: TensorBoard needs the suffix .tfevents in lower case")
    tensorboard()


def event_file(analysis: Analysis, *, wall_time_s: float | None = None) -> bytes:
    """Return the content of an event file; what is not known is left out, never 0."""
    known = tensorboard()
    now_s = time.time() if wall_time_s is None else wall_time_s
    content = io.BytesIO()
    records = known.record_writer(content)
    for event in _events(known, analysis):
        event.wall_time = now_s
        records.write(event.SerializeToString(deterministic=True))
    return content.getvalue()


def _events(known: SimpleNamespace, analysis: Analysis) -> Iterator[Any]:
    yield known.event(file_version="brain.Event:2")
    graph = _graph_def(known, analysis)
    yield known.event(graph_def=graph.SerializeToString(deterministic=True))
    for kind in _KINDS:
        stats = _run_metadata(known, analysis, kind)
        if stats is not None:
            tagged = {"tag": kind, "run_metadata": stats.SerializeToString(deterministic=True)}
            yield known.event(tagged_run_metadata=tagged)
    said = str(analysis.render("md")).encode("utf-8", "backslashreplace")
    yield known.event(summary=known.text_summary("report/text_summary", said))
    for tag, step, value in scalars(analysis):
        # 32 bits: TensorBoard's loader skips scalars of 64.
        yield known.event(step=step, summary=known.scalar_summary(tag, float(value)))


def scalars(analysis: Analysis) -> Iterator[tuple[str, int, float]]:
    """Yield tag, step and value: totals, sums by type, and operators by their index."""
    for name, of in (("totals", analysis.totals), ("coverage", analysis.coverage)):
        for each in fields(of):
            value = getattr(of, each.name)
            if value is not None and not isinstance(value, str):
                yield f"{name}/{each.name}", 0, value
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


def _graph_def(known: SimpleNamespace, analysis: Analysis) -> Any:
    flow = trace_dataflow([row.record for row in analysis.operators])
    names, device = node_names(analysis.operators), _DEVICES[analysis.run.device == "cuda"]
    graph = known.graph_def()
    graph.versions.producer = _FORMAT_VERSION
    given: dict[int, str] = {}
    before: list[list[int]] = [[] for _ in flow.after]
    for earlier, laters in enumerate(flow.after):
        for later in laters:
            before[later].append(earlier)
    for place, row in enumerate(analysis.operators):
        if row.state is State.FREE:
            continue
        inputs: list[str] = []
        for spec, value, writer in flow.read[place]:
            source = value.writer if value is not None else writer
            if source is not None:
                inputs.append(names[source])
            elif spec.role is Role.INPUT:
                if spec.storage not in given:
                    given[spec.storage] = f"inputs/input_{len(given)}"
                    _add_node(graph, given[spec.storage], "Placeholder", (), device, (spec,))
                inputs.append(given[spec.storage])
        # A predecessor without data is a control input.
        only_before = [names[each] for each in before[place] if names[each] not in inputs]
        inputs += [f"^{each}" for each in only_before]
        node = _add_node(graph, names[place], short_op(row), inputs, device, row.outputs)
        for key, value in operator_args(row).items():
            _put(node.attr[key], value)
    return graph


def node_names(rows: Sequence[OperatorRow]) -> list[str]:
    """Return node names: phase in training, modules, operator with index."""
    has_phases = len({row.phase for row in rows}) > 1
    names: list[str] = []
    for row in rows:
        parts = [row.phase] if has_phases else []
        parts += [each for each in row.module_path.split(".") if each]
        parts.append(f"{short_op(row)}_{row.index}")
        # Valid characters of node names.
        fit = (_NO_NAME.sub("_", each) for each in parts)
        names.append("/".join(e if e[:1].isalnum() or e[:1] == "." else f".{e}" for e in fit))
    return names


def _add_node(
    graph: Any,
    name: str,
    op: str,
    inputs: Iterable[str],
    device: str,
    outputs: Iterable[TensorSpec],
) -> Any:
    sources = list(dict.fromkeys(inputs))
    node = graph.node.add(name=name, op=printable(op), input=sources, device=device)
    shapes = node.attr["_output_shapes"].list
    shapes.SetInParent()
    for spec in outputs:
        # TensorBoard writes unknown sizes as -1; larger ones do not fit 63 bits.
        shapes.shape.add(dim=[{"size": each if each < 2**63 else -1} for each in spec.shape])
    return node


def _put(attribute: Any, value: object) -> None:
    match value:
        case bool():
            attribute.b = value
        # Larger numbers are written as text.
        case int() if value < 2**63:
            attribute.i = value
        case float():
            attribute.f = value
        case list():
            attribute.list.SetInParent()
            attribute.list.s.extend(map(_encoded, value))  # pyright: ignore[reportUnknownArgumentType]  of words
        case _:
            attribute.s = _encoded(value)


def _encoded(value: object) -> bytes:
    return str(value).encode("utf-8", "backslashreplace")


_LONGEST_S = 2**63 / 1e6


def _run_metadata(known: SimpleNamespace, analysis: Analysis, kind: Kind) -> Any:
    """Return how long each node takes, in whole microseconds; None where that cannot be said."""
    metadata = known.run_metadata()
    name = _DEVICES[analysis.run.device == "cuda"]
    device = metadata.step_stats.dev_stats.add(device=name)
    now_s = 0.0
    for name, row in zip(node_names(analysis.operators), analysis.operators, strict=True):
        if row.state is State.FREE:
            continue
        row_s = time_of(row, kind)
        if row_s is None or now_s + row_s >= _LONGEST_S:
            return None
        long = round(row_s * 1e6)
        device.node_stats.add(
            node_name=name,
            all_start_micros=round(now_s * 1e6),
            op_start_rel_micros=0,
            op_end_rel_micros=long,
            all_end_rel_micros=long,
        )
        now_s += row_s
    return metadata if device.node_stats else None


def tensorboard() -> SimpleNamespace:
    """Return TensorBoard's classes of messages and its writer of records, imported."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SimpleNamespace(
                event=_module("compat.proto.event_pb2").Event,
                graph_def=_module("compat.proto.graph_pb2").GraphDef,
                run_metadata=_module("compat.proto.config_pb2").RunMetadata,
                scalar_summary=_module("plugins.scalar.summary_v2").scalar_pb,
                text_summary=_module("plugins.text.summary_v2").text_pb,
                record_writer=_module("summary.writer.record_writer").RecordWriter,
            )
    # Version conflicts of protobuf and numpy raise many kinds of errors.
    except Exception as error:
        raise InputError(
            "event files (.tfevents) need the package tensorboard: python -m pip install"
            f" 'roofline[tensorboard]' ({error_text(error)})"
        ) from None


def _module(name: str) -> Any:
    return importlib.import_module(f"tensorboard.{name}")
