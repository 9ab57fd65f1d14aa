"""Which operators go together: layers and additions at shortcuts, with what is folded into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.quantization.layers import Layer, Structure
from roofline.workload.dataflow import Dataflow, Value
from roofline.workload.fusion_kinds import Kind, kind_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role

KEPT = (Role.PARAMETER, Role.BUFFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A layer, or an addition at a shortcut (``layer`` is None), and what follows it alone.

    ``operators`` are positions of records: its own first, then those that are folded into it.
    """

    operators: tuple[int, ...]
    layer: Layer | None


def groups_of(
    records: Sequence[OperatorRecord], structure: Structure, flow: Dataflow
) -> tuple[Group, ...]:
    """The layers and the additions at shortcuts, in the order in which they run."""
    own = {each.index for each in structure.layers} | {
        each.addition for each in structure.shortcuts
    }
    found = [
        Group(
            operators=_chain(each.index, records, flow, own, with_norms=True),
            layer=each,
        )
        for each in structure.layers
    ]
    # A sum of three branches is two additions, of which both may end shortcuts.
    for addition in dict.fromkeys(each.addition for each in structure.shortcuts):
        chain = _chain(addition, records, flow, own, with_norms=False)
        found.append(Group(operators=chain, layer=None))
    return tuple(sorted(found, key=lambda each: each.operators[0]))


def is_norm(record: OperatorRecord) -> bool:
    """Whether it is a batch norm in inference: a scale and a shift for each channel."""
    return kind_of(record) is Kind.AFFINE


def _chain(
    start: int,
    records: Sequence[OperatorRecord],
    flow: Dataflow,
    own: set[int],
    *,
    with_norms: bool,
) -> tuple[int, ...]:
    """An operator and those behind it that read nothing but its result, which nobody else reads."""
    chain = [start]
    while len(flow.written[chain[-1]]) == 1:
        _, value = flow.written[chain[-1]][0]
        reader = value.readers[0] if len(value.readers) == 1 else None
        if reader is None or reader in own or not _is_foldable(reader, value, records, flow):
            break
        if is_norm(records[reader]) and not with_norms:
            break
        chain.append(reader)
    return tuple(chain)


def _is_foldable(
    reader: int, value: Value, records: Sequence[OperatorRecord], flow: Dataflow
) -> bool:
    """Whether it is a batch norm or elementwise, on the whole of a value and what is kept."""
    record = records[reader]
    if record.state is not State.COUNTED or len(record.outputs) != 1:
        return False
    if not (is_norm(record) or record.type == "pointwise"):
        return False
    moving = [each for each in flow.read[reader] if each.spec.role not in KEPT]
    return (
        len(moving) == 1
        and moving[0].value is value
        and moving[0].spec.distinct_elements == value.elements == record.outputs[0].elements
        and record.outputs[0].dtype == moving[0].spec.dtype
    )
