"""What runs once layers have few bits: kernels of layers, and all other operators one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.quantization.layers import Layer
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.what_if.grouping import KEPT, Group
from roofline.quantization.what_if.widths import is_kept
from roofline.workload.dataflow import Dataflow, Reading, Value
from roofline.workload.operators import OperatorRecord, State

Handling = Literal["free", "layer", "sum", "carrying", "floats", "full"]
"""``layer``: computes with codes; ``sum``: adds them; ``carrying``: moves or chooses them; and what
computes in floats: ``floats`` in those that the pass has, ``full`` in those that the model had."""

_CARRYING = frozenset(
    f"aten.{name}"
    for name in (
        *("relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "threshold"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices"),
        *("max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"),
        *("avg_pool1d", "avg_pool2d", "avg_pool3d", "mean", "adaptive_avg_pool2d"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool3d"),
        *("cat", "stack", "clone", "contiguous", "copy", "repeat", "flip", "roll", "amax"),
        *("index", "index_select", "gather", "select_copy", "slice_copy", "narrow_copy"),
        *("expand_copy", "view_copy", "as_strided_copy", "im2col", "pixel_shuffle"),
        *("pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "constant_pad_nd"),
        *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d"),
        *("replication_pad2d", "replication_pad3d", "upsample_nearest1d"),
        *("upsample_nearest2d", "upsample_nearest3d", "_unsafe_index"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """A floating operand that the model does not keep.

    ``place`` is its position among the inputs, ``values`` what it lies in: none if no operator of
    the pass made it, several where it is read together with what others wrote.
    """

    place: int
    reading: Reading
    values: tuple[Value, ...]

    @property
    def is_one(self) -> bool:
        """Whether it is one value, or what the model was given."""
        return self.reading.value is not None or not self.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """Operators that run as one kernel in few bits; one alone, where they stay as they are.

    ``reads`` are the operands of the first of them, ``writes`` the floating results of the last.
    ``bits`` are those of a layer, 32 where they are those that its tensors have.
    ``has_parameters``: the first reads floats that the model keeps.
    """

    operators: tuple[int, ...]
    handling: Handling
    reads: tuple[Operand, ...]
    writes: tuple[Value, ...]
    layer: Layer | None = None
    bits: LayerBits | None = None
    has_parameters: bool = False

    def takes(self, operand: Operand, policy: Policy) -> int:
        """The most bits in which a layer or an addition of codes reads an operand."""
        if self.handling == "sum":
            return policy.activations
        is_activation = self.layer is not None and operand.place == self.layer.activation
        return self.bits.activations if self.bits is not None and is_activation else FLOAT_BITS


def nodes_of(
    records: Sequence[OperatorRecord],
    groups: Sequence[Group],
    bits: Mapping[int, LayerBits],
    policy: Policy,
    flow: Dataflow,
) -> tuple[Node, ...]:
    """What runs, in its order.

    Args:
        records: a forward pass.
        groups: its layers and additions at shortcuts.
        bits: those of layers by the position of their operators, 32 where they stay as they are.
        policy: what is asked for.
        flow: who reads what whom wrote.
    """
    group_at = {each.operators[0]: each for each in groups}
    by_storage: dict[int, list[Value]] = {}
    for row in flow.written:
        for spec, value in row:
            by_storage.setdefault(spec.storage, []).append(value)
    nodes: list[Node] = []
    done: set[int] = set()
    stays: set[int] = set()
    for place, record in enumerate(records):
        if place in done:
            continue
        group = group_at.get(place)
        layer = group.layer if group is not None else None
        handling = "full" if place in stays else _handling(record, group, bits, policy)
        operators = (place,)
        if group is not None and handling in ("layer", "sum"):
            operators = group.operators
        elif layer is not None and group is not None:
            # What is not quantised runs as it does now, its batch norm too.
            stays.update(group.operators)
        done.update(operators)
        written = flow.written[operators[-1]]
        nodes.append(
            Node(
                operators=operators,
                handling=handling,
                reads=_operands(place, flow, by_storage),
                writes=tuple(value for spec, value in written if spec.dtype.kind == "float"),
                layer=layer,
                bits=bits.get(place),
                has_parameters=any(
                    spec.role in KEPT and spec.dtype.kind == "float" for spec in record.inputs
                ),
            )
        )
    return tuple(nodes)


def _handling(
    record: OperatorRecord, group: Group | None, bits: Mapping[int, LayerBits], policy: Policy
) -> Handling:
    if record.state is State.FREE:
        return "free"
    if group is not None and group.layer is not None:
        return "full" if bits[group.layer.index].is_float else "layer"
    if group is not None:
        if policy.shortcut == "full":
            return "full"
        asked = LayerBits(weights=FLOAT_BITS, activations=policy.activations)
        return "floats" if is_kept(asked, record.outputs[0].dtype) else "sum"
    is_carrying = record.op.removesuffix("_") in _CARRYING and record.state is State.COUNTED
    return "carrying" if is_carrying else "floats"


def _operands(
    place: int, flow: Dataflow, by_storage: Mapping[int, Sequence[Value]]
) -> tuple[Operand, ...]:
    """The floating operands of an operator that the model does not keep."""
    found: list[Operand] = []
    for position, reading in enumerate(flow.read[place]):
        spec, value, writer = reading
        if spec.role in KEPT or spec.dtype.kind != "float":
            continue
        values = (value,) if value is not None else ()
        if value is None and writer is not None:
            values = tuple(
                each for each in by_storage.get(spec.storage, ()) if place in each.readers
            )
        found.append(Operand(place=position, reading=reading, values=values))
    return tuple(found)
