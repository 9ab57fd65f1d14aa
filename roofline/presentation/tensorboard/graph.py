"""The operators of a pass as TensorBoard's graph: modules in each other, and what flows where.

A node is an operator that works; views are seen through, as they are in traffic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from roofline.analysis import Analysis, OperatorRow
from roofline.analysis.words import short_op
from roofline.foundation.text import printable
from roofline.presentation.tensorboard.library import TensorBoard
from roofline.presentation.trace_words import operator_args
from roofline.workload.dataflow import Dataflow, dataflow
from roofline.workload.operators import State
from roofline.workload.tensors import Role, TensorSpec

_NO_NAME = re.compile(r"[^A-Za-z0-9_.\-]")

_FORMAT_VERSION = 22
"""Of graphs, as SummaryWriter says it."""


def graph_def(known: TensorBoard, analysis: Analysis) -> Any:
    """The graph as a GraphDef."""
    flow = dataflow([row.record for row in analysis.operators])
    names = node_names(analysis.operators)
    device = _device(analysis)
    graph = known.graph_def()
    graph.versions.producer = _FORMAT_VERSION
    given: dict[int, str] = {}
    before = _before(flow)
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
        # Who must come first without giving anything is a control input.
        only_before = [names[each] for each in before[place] if names[each] not in inputs]
        inputs += [f"^{each}" for each in only_before]
        node = _add_node(graph, names[place], short_op(row), inputs, device, row.outputs)
        for key, value in operator_args(row).items():
            _put(node.attr[key], value)
    return graph


def _device(analysis: Analysis) -> str:
    return f"/device:{'GPU' if analysis.run.device == 'cuda' else 'CPU'}:0"


def _before(flow: Dataflow) -> list[list[int]]:
    """By operator, those that must run before it."""
    before: list[list[int]] = [[] for _ in flow.after]
    for earlier, later in enumerate(flow.after):
        for each in later:
            before[each].append(earlier)
    return before


def node_names(rows: Sequence[OperatorRow]) -> list[str]:
    """A name for each operator: its phase in training, its modules, itself with its index."""
    has_phases = len({row.phase for row in rows}) > 1
    names: list[str] = []
    for row in rows:
        parts = [row.phase] if has_phases else []
        parts += [each for each in row.module_path.split(".") if each]
        parts.append(f"{short_op(row)}_{row.index}")
        names.append("/".join(_as_name(each) for each in parts))
    return names


def _as_name(part: str) -> str:
    """A part of a name with the characters that names of nodes may have."""
    name = _NO_NAME.sub("_", part)
    return name if name[:1].isalnum() or name[:1] == "." else f".{name}"


def _add_node(
    graph: Any,
    name: str,
    op: str,
    inputs: Iterable[str],
    device: str,
    outputs: Iterable[TensorSpec],
) -> Any:
    """A node of its own, without what is known of it."""
    sources = list(dict.fromkeys(inputs))
    node = graph.node.add(name=name, op=printable(op), input=sources, device=device)
    shapes = node.attr["_output_shapes"].list
    shapes.SetInParent()
    for spec in outputs:
        # A size that has no 64 bits is one that TensorBoard does not know: -1.
        shapes.shape.add(dim=[{"size": each if each < 2**63 else -1} for each in spec.shape])
    return node


def _put(attribute: Any, value: object) -> None:
    """Sets an AttrValue."""
    match value:
        case bool():
            attribute.b = value
        # Of a sign and 63 bits; no count of ours is longer, and a text says any.
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


def run_metadata(
    known: TensorBoard, analysis: Analysis, time_s: Callable[[OperatorRow], float | None]
) -> Any:
    """How long each node takes, as a RunMetadata, in whole microseconds, end to end.

    Args:
        known: TensorBoard.
        analysis: whose operators they are.
        time_s: of an operator.

    Returns:
        None where the time of an operator that works is not known, or all of them take longer than
        whole microseconds of 64 bits can say.
    """
    metadata = known.run_metadata()
    device = metadata.step_stats.dev_stats.add(device=_device(analysis))
    now_s = 0.0
    for name, row in zip(node_names(analysis.operators), analysis.operators, strict=True):
        if row.state is State.FREE:
            continue
        row_s = time_s(row)
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
