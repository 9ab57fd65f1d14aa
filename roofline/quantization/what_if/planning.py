"""In how many bits every value of a pass is kept, and read.

Bits are found against the order of the pass (a value is kept in the most that a reader asks for),
then along it: what leaves an operator that computes in floats is floats, whoever reads it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.quantization.layers import Layer, Structure, structure_of
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.what_if.grouping import KEPT, Group, groups_of
from roofline.quantization.what_if.nodes import Node, Operand, nodes_of
from roofline.quantization.what_if.widths import Widths, own_bits
from roofline.workload.dataflow import Value, dataflow
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A pass in the bits of a policy.

    ``groups`` are the layers and the additions at shortcuts, ``bits`` those of layers by the
    position of their operator, as the policy has them. ``floats`` are the bits of what is computed
    in floats: 16 where all of the model is asked to have 16, which torch has types for; its other
    parameters have them, too.
    ``values`` are the bits in which values are kept; 32: those of their type.
    """

    records: tuple[OperatorRecord, ...]
    policy: Policy
    widths: Widths
    structure: Structure
    groups: tuple[Group, ...]
    bits: Mapping[int, LayerBits]
    nodes: tuple[Node, ...]
    floats: int
    values: Mapping[Value, int]

    def base(self, layer: Layer) -> DType:
        """The type of a layer's activations as they are."""
        return self.records[layer.index].inputs[layer.activation].dtype

    def kept(self, operand: Operand) -> int:
        """The bits in which an operand is kept; 32: those of its type."""
        return _kept(operand, self.values)

    def written(self, node: Node) -> int:
        """The bits of what a node writes; 32: those of its type, or nothing of floats."""
        return max((self.values.get(each, FLOAT_BITS) for each in node.writes), default=FLOAT_BITS)

    def parameter_bits(self, node: Node, spec: TensorSpec) -> int:
        """The bits of what the model keeps and a node reads, a layer's weight aside."""
        is_float = spec.role in KEPT and spec.dtype.kind == "float"
        is_changed = node.handling not in ("full", "free") and spec.dtype.bits > self.floats
        return self.floats if is_float and is_changed else FLOAT_BITS

    def read(self, node: Node, operand: Operand) -> int:
        """The bits in which a node reads an operand: what is kept in others is converted."""
        kept = self.kept(operand)
        if not operand.is_one:
            return kept
        match node.handling:
            case "layer":
                takes = node.takes(operand, self.policy)
                return kept if kept < takes < FLOAT_BITS else takes
            case "sum":
                # An addition of codes rescales them: each may have bits of its own.
                return kept if kept < FLOAT_BITS else node.takes(operand, self.policy)
            case "carrying":
                written = self.written(node)
                is_other = (kept == FLOAT_BITS) != (written == FLOAT_BITS)
                return written if is_other and len(node.reads) > 1 else kept
            case "floats":
                return kept if kept == self.floats else FLOAT_BITS
            case "full" | "free":
                return FLOAT_BITS


def plan_of(
    records: Sequence[OperatorRecord], policy: Policy, widths: Widths, apart: Container[str] = ()
) -> Plan:
    """How each operator takes and gives values once layers have the bits of a policy.

    Args:
        records: a forward pass.
        policy: the bits that are asked for.
        widths: the types that the machine has.
        apart: as in `structure_of`.
    """
    structure, flow = structure_of(records, apart), dataflow(records)
    groups = groups_of(records, structure, flow)
    asked = _asked(structure, records, policy)
    own = {
        each.index: _own(asked[each.index], records[each.index].inputs[each.activation].dtype)
        for each in structure.layers
    }
    nodes = nodes_of(records, groups, own, policy, flow)
    floats = _floats(records, structure, policy, widths)
    return Plan(
        records=tuple(records),
        policy=policy,
        widths=widths,
        structure=structure,
        groups=groups,
        bits=asked,
        nodes=nodes,
        floats=floats,
        values=_values(nodes, policy, floats),
    )


def _asked(
    structure: Structure, records: Sequence[OperatorRecord], policy: Policy
) -> dict[int, LayerBits]:
    """The bits of each layer.

    A module that runs several times has the most bits of its places, as `quantize_model` gives them
    to it, and a weight that several modules share has the most that they give it.
    """
    sharing: dict[tuple[int, int], list[Layer]] = {}
    runs: dict[tuple[str, tuple[int, int]], list[Layer]] = {}
    for each in structure.layers:
        record = records[each.index]
        weight = record.inputs[each.weight]
        key = (weight.storage, weight.offset_bytes)
        sharing.setdefault(key, []).append(each)
        runs.setdefault((record.module_path, key), []).append(each)
    weights = {
        key: max(bits.weights for bits in _given_to(layers, records, policy))
        for key, layers in sharing.items()
    }
    found: dict[int, LayerBits] = {}
    for (_, key), layers in runs.items():
        activations = max(bits.activations for bits in _given_to(layers, records, policy))
        bits = LayerBits(weights=weights[key], activations=activations)
        found.update((each.index, bits) for each in layers)
    return found


def _given_to(
    layers: Sequence[Layer], records: Sequence[OperatorRecord], policy: Policy
) -> list[LayerBits]:
    """What a policy gives to layers; where it names some of them, what it gives to these."""
    named: list[LayerBits] = []
    others: list[LayerBits] = []
    for each in layers:
        name = each.name if each.name in policy.layers else records[each.index].module_path
        found = named if name in policy.layers else others
        found.append(policy.bits_of(name, each.place))
    return named or others


def _own(asked: LayerBits, base: DType) -> LayerBits:
    """A layer's bits; 32 where its tensors have no more than are asked for."""
    weights, activations = (
        FLOAT_BITS if own_bits(each, base) == base.bits else each
        for each in (asked.weights, asked.activations)
    )
    return LayerBits(weights=weights, activations=activations)


def _floats(
    records: Sequence[OperatorRecord], structure: Structure, policy: Policy, widths: Widths
) -> int:
    """The bits of floats where the whole model has so many that they are floats, too."""
    half = widths.half
    if half is None or not widths.has_kernel(half.name):
        return FLOAT_BITS
    is_all = policy.weights == policy.activations == half.bits
    widest = max(
        (records[each.index].inputs[each.activation].dtype.bits for each in structure.layers),
        default=0,
    )
    return half.bits if is_all and widest > half.bits else FLOAT_BITS


def _kept(operand: Operand, values: Mapping[Value, int]) -> int:
    return max((values.get(each, FLOAT_BITS) for each in operand.values), default=FLOAT_BITS)


def _values(nodes: Sequence[Node], policy: Policy, floats: int) -> dict[Value, int]:
    """The bits in which every value is kept."""
    demands: dict[Value, int] = {}
    for node in reversed(nodes):
        for operand in node.reads:
            asked = _asks(node, operand, demands, policy, floats)
            for value in operand.values:
                demands[value] = max(demands.get(value, 0), asked)
    kept: dict[Value, int] = {}
    for node in nodes:
        read = [_kept(operand, kept) for operand in node.reads]
        for value in node.writes:
            kept[value] = _given(node, read, demands.get(value, floats), floats)
    return kept


def _asks(
    node: Node, operand: Operand, demands: Mapping[Value, int], policy: Policy, floats: int
) -> int:
    """The bits in which a node would have an operand kept."""
    match node.handling:
        case "layer" | "sum" if operand.is_one:
            return node.takes(operand, policy)
        case "carrying" if operand.is_one:
            return max((demands.get(each, floats) for each in node.writes), default=floats)
        case "full":
            return FLOAT_BITS
        case _:
            return floats


def _given(node: Node, read: Sequence[int], demanded: int, floats: int) -> int:
    """The bits in which a node leaves a value that is asked for in `demanded`.

    Args:
        node: what writes it.
        read: the bits in which its operands are kept.
        demanded: the most that a reader asks for.
        floats: the bits of what is computed in floats.
    """
    match node.handling:
        case "layer" | "sum":
            return demanded
        case "carrying" if len(read) == 1:
            return read[0]
        case "carrying" if read and min(read) < floats:
            return demanded
        case "carrying" | "floats":
            # An embedding reads nothing but its table.
            is_known = bool(read) or node.has_parameters
            return floats if is_known and set(read) <= {floats} else FLOAT_BITS
        case "full" | "free":
            return FLOAT_BITS
