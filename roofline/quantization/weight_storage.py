"""Model size and layer traffic before and after quantization, and unquantized operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from roofline.analysis import Analysis
from roofline.core.dtypes import DType
from roofline.core.text import counted
from roofline.core.units import format_bytes
from roofline.quantization.policy import FLOAT_BITS
from roofline.quantization.quantized_pass import (
    KEPT,
    Kernel,
    QuantizedPass,
    storage_key,
)
from roofline.quantization.widths import effective_bits
from roofline.workload.operators import State
from roofline.workload.tensors import Role, TensorSpec

_SCALE_BYTES = 4
_NAMED_MOST = 3

_Weight = tuple[int, int]
"""Memory location of a weight."""


def layer_bytes(changed: QuantizedPass) -> tuple[int, int]:
    """Return the traffic of layers in bytes, before and after: weights once, results twice.

    At the bits of the layer itself, without scales and biases.
    """
    before = after = 0
    seen: set[_Weight] = set()
    for layer in changed.structure.layers:
        weight, bits = changed.weight(layer), changed.bits[layer.index]
        result = changed.records[layer.index].outputs[0]
        if storage_key(weight) not in seen:
            seen.add(storage_key(weight))
            before += _bytes(weight, weight.dtype.bits)
            after += _bytes(weight, effective_bits(bits.weights, weight.dtype))
        before += 2 * _bytes(result, result.dtype.bits)
        after += 2 * _bytes(result, effective_bits(bits.activations, result.dtype))
    return before, after


def model_bytes(analysis: Analysis, changed: QuantizedPass) -> tuple[int, int]:
    """Return the size of parameters and buffers in bytes, before and after, as in a file.

    Codes are packed, with one scale per layer or channel, and clipping values of activations.
    Weights with other readers are also kept in floats. Weights outside of modules count at least
    with those of layers.
    """

    def is_coded(bits: int, of: DType) -> bool:
        own = effective_bits(bits, of)
        return own < of.bits and changed.widths.storage_type(own).kind != "float"

    weights = {storage_key(each): each for each in map(changed.weight, changed.structure.layers)}
    known = sum(_bytes(each, each.dtype.bits) for each in weights.values())
    kept = analysis.totals.parameter_size_bytes + analysis.totals.buffer_size_bytes
    before = after = max(kept, known)
    shared = shared_weights(changed)
    seen: set[_Weight] = set()
    readers: set[tuple[str, _Weight]] = set()
    for layer in changed.structure.layers:
        record, bits = changed.records[layer.index], changed.bits[layer.index]
        weight = changed.weight(layer)
        key = storage_key(weight)
        # Modules that share a weight have separate clipping values.
        if (record.module_path, key) not in readers:
            readers.add((record.module_path, key))
            after += _SCALE_BYTES * is_coded(bits.activations, record.outputs[0].dtype)
        if key in seen:
            continue
        seen.add(key)
        if effective_bits(bits.weights, weight.dtype) == weight.dtype.bits:
            continue
        after += _bytes(weight, bits.weights)
        if is_coded(bits.weights, weight.dtype):
            after += _SCALE_BYTES * (changed.channels(layer) if changed.policy.per_channel else 1)
        if key not in shared:
            after -= _bytes(weight, weight.dtype.bits)
    # Other parameters, if the whole model has a lower width.
    lost: dict[_Weight, int] = {}
    stays: set[_Weight] = set()
    for kernel, spec in _reads(changed):
        bits_of_others = changed.parameter_bits(kernel, spec)
        if spec.role not in KEPT or storage_key(spec) in weights:
            continue
        if bits_of_others == FLOAT_BITS:
            stays.add(storage_key(spec))
        else:
            now = _kept_bytes(spec, bits_of_others)
            lost[storage_key(spec)] = _kept_bytes(spec, spec.dtype.bits) - now
    return before, after - sum(byte for key, byte in lost.items() if key not in stays)


def shared_weights(changed: QuantizedPass) -> set[_Weight]:
    """Return the weights of layers that an unquantized operator also reads."""
    weights = {storage_key(changed.weight(each)) for each in changed.structure.layers}
    return weights & {
        storage_key(spec)
        for kernel, spec in _reads(changed)
        if kernel.layer is None and changed.parameter_bits(kernel, spec) == FLOAT_BITS
    }


def _reads(changed: QuantizedPass) -> Iterator[tuple[Kernel, TensorSpec]]:
    for kernel in changed.kernels:
        for place in kernel.operators:
            for spec in changed.records[place].inputs if kernel.handling != "free" else ():
                yield kernel, spec


def _kept_bytes(spec: TensorSpec, bits: int) -> int:
    """Return the stored size in bytes: whole tables, and expanded tensors once."""
    elements = spec.distinct_elements if spec.layout == "strided" else spec.elements
    return (elements * bits + 7) // 8


def _bytes(spec: TensorSpec, bits: int) -> int:
    return (spec.elements * bits + 7) // 8


def unquantized(analysis: Analysis, changed: QuantizedPass) -> tuple[str, ...]:
    """Return descriptions of float operators with weights, or with products of activations."""
    return (*_operators(changed), *_without_calls(analysis, changed))


def _operators(changed: QuantizedPass) -> Iterable[str]:
    layers = {place for each in changed.structure.layers for place in changed.groups[each.index]}
    kept: dict[str, dict[_Weight, TensorSpec]] = {}
    modules: dict[str, list[str]] = {}
    products = 0
    for kernel in changed.kernels:
        for place in kernel.operators:
            record = changed.records[place]
            if place in layers or record.state is State.FREE:
                continue
            own = [
                each
                for each in record.inputs
                if each.role in KEPT
                and each.dtype.kind == "float"
                and changed.parameter_bits(kernel, each) == FLOAT_BITS
            ]
            for spec in own:
                kept.setdefault(record.type, {})[storage_key(spec)] = spec
            if own:
                modules.setdefault(record.type, []).append(record.module_path)
            elif record.work.macs and changed.floats == FLOAT_BITS:
                products += 1
    for kind, weights in kept.items():
        byte = sum(_kept_bytes(each, each.dtype.bits) for each in weights.values())
        yield f"{kind} ({_names(modules[kind])}): {format_bytes(byte)} of weights"
    if products:
        yield f"{counted(products, 'matrix product')} of two activations"


def _without_calls(analysis: Analysis, changed: QuantizedPass) -> Iterable[str]:
    """Yield modules that did not run: their layers are unknown."""
    # Fused layers read parameters of their submodules.
    read: dict[str, dict[_Weight, int]] = {}
    for record in changed.records:
        for spec in record.inputs if record.state is not State.FREE else ():
            if spec.role is Role.PARAMETER:
                read.setdefault(record.module_path, {})[storage_key(spec)] = spec.elements
    own = {each.path: each.parameters for each in analysis.modules}
    idle = [each for each in analysis.modules if not each.calls and each.parameters]
    for path, found in read.items():
        inside = [each for each in idle if each.path.startswith(f"{path}." if path else "")]
        borrowed = sum(found.values()) - own.get(path, 0)
        if sum(each.parameters for each in inside) <= borrowed:
            idle = [each for each in idle if each not in inside]
    if idle:
        count = sum(each.parameters for each in idle)
        names = _names([each.path for each in idle])
        yield f"modules that did not run ({names}): {count:,} parameters"


def _names(paths: Sequence[str]) -> str:
    named = list(dict.fromkeys(each for each in paths if each))
    shown = ", ".join(named[:_NAMED_MOST])
    rest = len(named) - _NAMED_MOST
    return f"{shown} and {rest} more" if rest > 0 else shown or "the model itself"
