"""The operators of a pass as TensorBoard's graph: modules in each other, and what flows where.

The messages are TensorFlow's `graph.proto`, `attr_value.proto` and `step_stats.proto`. A node is an
operator that works; views are seen through, as they are in traffic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from roofline.analysis import Analysis, OperatorRow
from roofline.presentation.reports.report import short_op
from roofline.presentation.tensorboard.messages import joined, message, single, text, whole
from roofline.presentation.trace_words import operator_args
from roofline.workload.dataflow import Dataflow, dataflow
from roofline.workload.operators import State
from roofline.workload.tensors import Role, TensorSpec

_NO_NAME = re.compile(r"[^A-Za-z0-9_.\-]")


def graph_def(analysis: Analysis) -> bytes:
    """The graph as a serialised GraphDef."""
    flow = dataflow([row.record for row in analysis.operators])
    names = node_names(analysis.operators)
    device = f"/device:{'CPU' if analysis.run.device != 'cuda' else 'GPU'}:0"
    nodes: list[bytes] = []
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
                    nodes.append(_given(given[spec.storage], spec, device))
                inputs.append(given[spec.storage])
        # Who must come first without giving anything is a control input.
        only_before = [names[each] for each in before[place] if names[each] not in inputs]
        inputs += [f"^{each}" for each in dict.fromkeys(only_before)]
        nodes.append(_node(names[place], row, list(dict.fromkeys(inputs)), device))
    versions = message(4, whole(1, 22))
    return joined([*(message(1, each) for each in nodes), versions])


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


def _given(name: str, spec: TensorSpec, device: str) -> bytes:
    shapes = _attribute("_output_shapes", message(1, _shape_item(spec)))
    return joined([text(1, name), text(2, "Placeholder"), text(4, device), shapes])


def _node(name: str, row: OperatorRow, inputs: Sequence[str], device: str) -> bytes:
    attributes = [_attribute(key, _value(each)) for key, each in operator_args(row).items()]
    shapes = message(1, joined(_shape_item(each) for each in row.outputs))
    return joined(
        [
            text(1, name),
            text(2, short_op(row)),
            *(text(3, each) for each in inputs),
            text(4, device),
            *attributes,
            _attribute("_output_shapes", shapes),
        ]
    )


def _attribute(key: str, value: bytes) -> bytes:
    return message(5, joined([text(1, key), message(2, value)]))


def _value(value: object) -> bytes:
    """An AttrValue."""
    if isinstance(value, bool):
        return whole(5, value)
    if isinstance(value, int):
        # Of a sign and 63 bits; no count of ours is longer, and a text says any.
        return whole(3, value) if value < 2**63 else text(2, str(value))
    if isinstance(value, float):
        return single(4, value)
    if isinstance(value, list):
        return message(1, joined(text(2, str(each)) for each in value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  of words
    return text(2, str(value))


def _shape_item(spec: TensorSpec) -> bytes:
    return message(7, shape(spec.shape))


def shape(sizes: Sequence[int]) -> bytes:
    """A TensorShapeProto."""
    return joined(message(2, whole(1, each)) for each in sizes)


def run_metadata(analysis: Analysis, time_s: Callable[[OperatorRow], float | None]) -> bytes | None:
    """How long each node takes, as a serialised RunMetadata, in whole microseconds, end to end.

    Args:
        analysis: whose operators they are.
        time_s: of an operator.

    Returns:
        None where the time of an operator that works is not known.
    """
    stats = list(_stats(analysis.operators, time_s))
    if not stats or any(each is None for each in stats):
        return None
    nodes = joined(message(2, each) for each in stats if each is not None)
    device = joined([text(1, "/device:CPU:0"), nodes])
    return message(1, message(1, device))


def _stats(
    rows: Sequence[OperatorRow], time_s: Callable[[OperatorRow], float | None]
) -> Iterator[bytes | None]:
    now_s = 0.0
    for name, row in zip(node_names(rows), rows, strict=True):
        if row.state is State.FREE:
            continue
        known = time_s(row)
        if known is None:
            yield None
            continue
        long = round(known * 1e6)
        yield joined(
            [
                text(1, name),
                whole(2, round(now_s * 1e6)),
                whole(3, 0),
                whole(4, long),
                whole(5, long),
            ]
        )
        now_s += known
