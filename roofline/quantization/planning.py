"""Bytes of a model in few bits: those that its layers move, and those that it takes in a file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roofline.analysis import Analysis
from roofline.foundation.dtypes import DType
from roofline.quantization.nodes import (
    KEPT,
    Group,
    Node,
    Operand,
    Widths,
    groups_of,
    nodes_of,
    own_bits,
)
from roofline.quantization.policy import (
    FLOAT_BITS,
    Layer,
    LayerBits,
    Policy,
    Structure,
    structure_of,
)
from roofline.workload.dataflow import Value, dataflow
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec

# Bits are found against the order of the pass (a value is kept in the most that a reader asks for),
# then along it: what leaves an operator that computes in floats is floats, whoever reads it.


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
    """How each operator takes and gives values once layers have the bits of a policy."""
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
    """The bits in which a node leaves a value that is asked for in `demanded`."""
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


SCALE_BYTE = 4
"""A scale is a float32."""

_Weight = tuple[int, int]


def layer_bytes(plan: Plan) -> tuple[int, int]:
    """What layers move, in bytes, before and after: weights once, their own results twice.

    All at the bits of the layer itself; scales and biases are left out.
    """
    before = after = 0
    seen: set[_Weight] = set()
    for layer in plan.structure.layers:
        weight, result, bits = _tensors(plan, layer)
        if _key(weight) not in seen:
            seen.add(_key(weight))
            before += _bytes(weight, weight.dtype.bits)
            after += _bytes(weight, own_bits(bits.weights, weight.dtype))
        before += 2 * _bytes(result, result.dtype.bits)
        after += 2 * _bytes(result, own_bits(bits.activations, result.dtype))
    return before, after


def model_bytes(analysis: Analysis, plan: Plan) -> tuple[int, int]:
    """All parameters and buffers in bytes, before and after, as they would lie in a file.

    Codes are packed; beside them lie a scale for the weights, or one for each channel, and the
    clipping of the activations. What another operator reads, too, stays as it is beside its codes.
    Functions keep weights of which no module knows: at least those of the layers are counted.
    """
    known = {
        _key(weight): _bytes(weight, weight.dtype.bits)
        for weight in (_tensors(plan, each)[0] for each in plan.structure.layers)
    }
    kept = analysis.totals.parameter_size_bytes + analysis.totals.buffer_size_bytes
    before = after = max(kept, sum(known.values()))
    shared = weights_of_others(plan)
    seen: set[_Weight] = set()
    readers: set[tuple[str, _Weight]] = set()
    for layer in plan.structure.layers:
        weight, result, bits = _tensors(plan, layer)
        # Modules that share a weight clip what they read each on its own.
        reader = (plan.records[layer.index].module_path, _key(weight))
        if reader not in readers:
            readers.add(reader)
            after += SCALE_BYTE * _is_coded(plan, bits.activations, result.dtype)
        if _key(weight) in seen:
            continue
        seen.add(_key(weight))
        if own_bits(bits.weights, weight.dtype) == weight.dtype.bits:
            continue
        after += _bytes(weight, bits.weights)
        if _is_coded(plan, bits.weights, weight.dtype):
            after += SCALE_BYTE * (_channels(plan, layer) if plan.policy.per_channel else 1)
        if _key(weight) not in shared:
            after -= _bytes(weight, weight.dtype.bits)
    return before, after - _narrowed_bytes(plan)


def _narrowed_bytes(plan: Plan) -> int:
    """What all parameters but layers' weights lose where the whole model has fewer bits."""
    weights = {_key(_tensors(plan, each)[0]) for each in plan.structure.layers}
    lost: dict[_Weight, int] = {}
    stays: set[_Weight] = set()
    for node, spec in _reads(plan):
        bits = plan.parameter_bits(node, spec)
        if spec.role not in KEPT or _key(spec) in weights:
            continue
        if bits == FLOAT_BITS:
            stays.add(_key(spec))
        else:
            lost[_key(spec)] = kept_bytes(spec, spec.dtype.bits) - kept_bytes(spec, bits)
    return sum(byte for key, byte in lost.items() if key not in stays)


def _reads(plan: Plan) -> Iterator[tuple[Node, TensorSpec]]:
    """All operands, with the nodes that read them."""
    for node in plan.nodes:
        for place in node.operators:
            for spec in plan.records[place].inputs if node.handling != "free" else ():
                yield node, spec


def weights_of_others(plan: Plan) -> set[_Weight]:
    """The weights of layers that an operator left in floats reads, too, by where they lie."""
    weights = {_key(_tensors(plan, each)[0]) for each in plan.structure.layers}
    return {
        _key(spec)
        for node, spec in _reads(plan)
        if node.layer is None and plan.parameter_bits(node, spec) == FLOAT_BITS
    } & weights


def _tensors(plan: Plan, layer: Layer) -> tuple[TensorSpec, TensorSpec, LayerBits]:
    """A layer's weight, its own result, and its bits."""
    record = plan.records[layer.index]
    return record.inputs[layer.weight], record.outputs[0], plan.bits[layer.index]


def _is_coded(plan: Plan, bits: int, of: DType) -> bool:
    """Whether values have so few bits that a scale belongs to them."""
    own = own_bits(bits, of)
    return own < of.bits and plan.widths.kept_in(own).kind != "float"


def _channels(plan: Plan, layer: Layer) -> int:
    record = plan.records[layer.index]
    shape = record.outputs[0].shape
    return shape[1] if record.op.endswith("convolution") else shape[-1]


def _key(weight: TensorSpec) -> _Weight:
    return weight.storage, weight.offset_bytes


def kept_bytes(spec: TensorSpec, bits: int) -> int:
    """Bytes of what the model keeps: a table whole, however few of its rows are read, and what is
    spread over a batch once."""
    elements = spec.distinct_elements if spec.layout == "strided" else spec.elements
    return (elements * bits + 7) // 8


def _bytes(spec: TensorSpec, bits: int) -> int:
    """Bytes of all elements in so many bits, packed."""
    return (spec.elements * bits + 7) // 8
