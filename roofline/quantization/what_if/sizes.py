"""Bytes of a model in few bits: those that its layers move, and those that it takes in a file."""

from __future__ import annotations

from collections.abc import Iterator

from roofline.analysis import Analysis
from roofline.foundation.dtypes import DType
from roofline.quantization.layers import Layer
from roofline.quantization.policy import FLOAT_BITS, LayerBits
from roofline.quantization.what_if.grouping import KEPT
from roofline.quantization.what_if.nodes import Node
from roofline.quantization.what_if.planning import Plan
from roofline.quantization.what_if.widths import own_bits
from roofline.workload.tensors import TensorSpec

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
