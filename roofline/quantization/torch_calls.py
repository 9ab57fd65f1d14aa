"""Operators that torch runs at lower precision: int8 kernels, and 16-bit floats.

int8 follows torch.ao's static quantization: convolutions and linear layers fused with ReLU,
channels-last images from the first convolution on, and `aten.dequantize` before float operators.
Operators without int8 kernels, such as most activations, run in floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.core.dtypes import DType, dtype
from roofline.errors import RooflineError
from roofline.quantization.policy import Layer
from roofline.quantization.quantized_pass import (
    KEPT,
    Kernel,
    QuantizedPass,
    Step,
    is_norm,
    retype,
)
from roofline.quantization.widths import INT8, is_code_type
from roofline.workload import formulas
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Layout, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

Specs = tuple[TensorSpec, ...]

_CODES = dtype("quint8")
_WEIGHTS = dtype("qint8")
_FLOATS = dtype("float32")
_RENAMED = {
    "aten.hardswish": "quantized.hardswish",
    "aten.elu": "quantized.elu",
    "aten.leaky_relu": "quantized.leaky_relu",
}
_ON_CODES = {
    *("aten.relu", "aten.hardtanh", "aten.clamp", "aten.sigmoid", "aten.tanh", *_RENAMED),
}
"""Elementwise operators that torch supports on codes, some under another name."""

_CARRYING = {
    "aten.max_pool2d_with_indices": "aten.quantized_max_pool2d",
    "aten.max_pool2d": "aten.quantized_max_pool2d",
    "aten.max_pool3d_with_indices": "aten.quantized_max_pool3d",
}


def torch_calls(changed: QuantizedPass) -> list[tuple[OperatorRecord, ...]]:
    """Return torch's calls for each step of a quantized pass; empty: no kernel."""
    calls = _CallBuilder(changed)
    return [calls.of(step) for step in changed.steps]


class _CallBuilder:
    """Builder of torch's calls for steps in order; layouts depend on earlier steps."""

    def __init__(self, changed: QuantizedPass) -> None:
        self._changed = changed
        records = [each.record for each in changed.steps]
        used = (spec.storage for each in records for spec in (*each.inputs, *each.outputs))
        self._next = 1 + max(used, default=0)
        self._layouts: dict[int, Layout] = {}
        self._shapes: dict[int, tuple[int, ...]] = {}

    def of(self, step: Step) -> tuple[OperatorRecord, ...]:
        """Return the calls of a step; empty: no kernel."""
        calls = self._of(step)
        for spec in (one for each in calls for one in each.outputs):
            self._shapes[spec.storage] = spec.shape
        return calls

    def _of(self, step: Step) -> tuple[OperatorRecord, ...]:
        kernel, record = step.kernel, step.record
        if record.state is State.FREE:
            return (record,)
        if kernel is not None and kernel.handling == "layer" and kernel.layer is not None:
            return self._layer(step, kernel, kernel.layer)
        if any(is_code_type(each.dtype) for each in (*record.inputs, *record.outputs)):
            return ()
        if kernel is not None and kernel.handling == "sum":
            return self._sum(step, kernel)
        return (self._apply_layout(record),)

    def _layer(self, step: Step, kernel: Kernel, layer: Layer) -> tuple[OperatorRecord, ...]:
        executable = self._changed.executable(layer)
        if not executable.has_kernel:
            return ()
        if executable.dtype.name != INT8:
            return self._in_floats(step, kernel, executable.dtype)
        first, *folded = (self._changed.records[each] for each in kernel.operators)
        ends = [each for each in folded if not is_norm(each)]
        is_transposed = first.attributes.get("transposed") is True
        has_relu = _begins_with_relu(ends) and not is_transposed
        given = replace(self._with_layout(step.record.inputs[layer.activation]), min_elements=None)
        output = self._new((folded or [first])[-1].outputs[0], _CODES)
        if first.op.endswith("convolution"):
            kind = f"conv{'_transpose' * is_transposed}{len(given.shape) - 2}d"
            output = replace(output, layout=_images_layout(output))
        else:
            kind = "linear"
            # The linear kernel on codes uses the original shape.
            written = self._shapes.get(given.storage, given.shape)
            if written[-1:] == given.shape[-1:] and math.prod(written) == given.elements:
                given = replace(given, shape=written)
            output = replace(output, shape=(*given.shape[:-1], output.shape[-1]))
        operands = (given, *_packed_operands(first, folded, step, layer))
        made = _call(f"quantized.{kind}{'_relu' * has_relu}", first, operands, output)
        return self._finish(made, ends[has_relu:], step)

    def _in_floats(self, step: Step, kernel: Kernel, half: DType) -> tuple[OperatorRecord, ...]:
        written = step.record.outputs[0]
        last = self._changed.records[kernel.operators[-1]].outputs[0].storage

        def narrowed(specs: Specs) -> Specs:
            return tuple(
                replace(
                    spec,
                    dtype=half,
                    storage=written.storage if spec.storage == last else spec.storage,
                )
                if spec.dtype.kind == "float"
                else spec
                for spec in specs
            )

        calls: list[OperatorRecord] = []
        for position in kernel.operators:
            record = self._changed.records[position]
            # The first operator reads converted inputs, later ones its results.
            inputs = record.inputs if calls else step.record.inputs[: len(record.inputs)]
            calls.append(retype(record, narrowed(inputs), narrowed(record.outputs)))
        if written.dtype != half:
            made = self._new(calls[-1].outputs[0], half)
            calls[-1] = replace(calls[-1], outputs=(made,))
            calls.append(_call("aten._to_copy", step.record, (made,), written))
        return tuple(calls)

    def _sum(self, step: Step, kernel: Kernel) -> tuple[OperatorRecord, ...]:
        """Return the calls of an addition at a shortcut, and of the operators fused into it."""
        first, *ends = (self._changed.records[each] for each in kernel.operators)
        inputs = tuple(map(self._with_layout, step.record.inputs))
        (written,) = step.record.outputs
        if all(each.dtype.kind == "float" for each in inputs):
            calls = [retype(first, inputs, (written,))]
            return (*calls, *(retype(each, (written,), (written,)) for each in ends))
        has_relu = _begins_with_relu(ends)
        made = replace(self._new(written, _CODES), layout=inputs[0].layout)
        name = f"quantized.add{'_relu' * has_relu}"
        return self._finish(_call(name, first, inputs, made), ends[has_relu:], step)

    def _apply_layout(self, record: OperatorRecord) -> OperatorRecord:
        """Return an operator on supported types, with the layout of its images."""
        inputs = tuple(map(self._with_layout, record.inputs))
        lying = next((each for each in inputs if each.storage in self._layouts), None)
        if lying is None:
            if record.op == "aten.quantize_per_tensor":
                self._layouts[record.outputs[0].storage] = inputs[0].layout
            return record
        outputs = tuple(self._output_layout(each, lying) for each in record.outputs)
        if all(each.dtype not in (_CODES, _WEIGHTS) for each in (*inputs, *outputs)):
            return replace(record, inputs=inputs, outputs=outputs)
        op = _CARRYING.get(record.op.removesuffix("_"), record.op)
        before, after = record.inputs[0].shape, record.outputs[0].shape
        if op == "aten.mean" and len(before) == 4 and after == (*before[:2], 1, 1):
            # Global pooling, as torch's float operator.
            op = "aten._adaptive_avg_pool2d"
        # Pooling of codes returns no indices.
        codes = outputs if record.op == "aten.dequantize" else outputs[:1]
        return _recount(record, op, inputs, codes)

    def _output_layout(self, spec: TensorSpec, lying: TensorSpec) -> TensorSpec:
        """Return an output with the layout of its input, if both are images."""
        if len(spec.shape) != len(lying.shape):
            return spec
        layout = _images_layout(spec) if lying.layout == "channels-last" else lying.layout
        self._layouts[spec.storage] = layout
        return replace(spec, layout=layout)

    def _with_layout(self, spec: TensorSpec) -> TensorSpec:
        layout = self._layouts.get(spec.storage, spec.layout)
        # A flattened view of images has no image layout.
        is_view = layout == "channels-last" and len(spec.shape) < 4
        return spec if is_view or layout == spec.layout else replace(spec, layout=layout)

    def _new(self, spec: TensorSpec, of: DType) -> TensorSpec:
        self._next += 1
        return replace(spec, dtype=of, storage=self._next - 1, offset_bytes=0, min_elements=None)

    def _finish(
        self, product: OperatorRecord, ends: Sequence[OperatorRecord], step: Step
    ) -> tuple[OperatorRecord, ...]:
        """Return a call that writes codes, with following operators and conversions."""
        calls = [product]
        (made,) = product.outputs
        for each in ends:
            plain = each.op.removesuffix("_")
            if made.dtype == _CODES and plain not in _ON_CODES:
                made = self._new(made, _FLOATS)
                calls.append(_call("aten.dequantize", each, calls[-1].outputs, made))
            op = _RENAMED.get(plain, each.op) if made.dtype == _CODES else each.op
            made = self._new(made, made.dtype)
            calls.append(_recount(each, op, calls[-1].outputs, (made,)))
        (written,) = step.record.outputs
        if written.dtype.kind == "float" and made.dtype == _CODES:
            made = self._new(made, written.dtype)
            calls.append(_call("aten.dequantize", step.record, calls[-1].outputs, made))
        elif written.dtype.kind != "float" and made.dtype != _CODES:
            made = self._new(made, _CODES)
            calls.append(_call("aten.quantize_per_tensor", step.record, calls[-1].outputs, made))
        # The last call writes the result of the step.
        last = replace(made, storage=written.storage, offset_bytes=written.offset_bytes)
        calls[-1] = replace(calls[-1], outputs=(last,))
        self._layouts[last.storage] = last.layout
        return tuple(calls)


def _begins_with_relu(ends: Sequence[OperatorRecord]) -> bool:
    return bool(ends) and ends[0].op.removesuffix("_") == "aten.relu"


def _images_layout(spec: TensorSpec) -> Layout:
    """Return the layout of an int8 convolution's output; contiguous if both layouts are equal."""
    sizes = spec.shape
    is_either = len(sizes) < 4 or sizes[1] == 1 or all(size == 1 for size in sizes[2:])
    return "contiguous" if is_either else "channels-last"


def _packed_operands(
    first: OperatorRecord, folded: Sequence[OperatorRecord], step: Step, layer: Layer
) -> Specs:
    """Return a layer's packed weight and its bias, including that of a batch norm."""
    weight = replace(step.record.inputs[layer.weight], dtype=_WEIGHTS, min_elements=None)
    bias = [
        spec
        for place, spec in enumerate(first.inputs)
        if place != layer.weight and spec.role in KEPT
    ]
    if not bias and any(map(is_norm, folded)):
        # Inputs of the layer, scales, then the bias of the batch norm.
        bias = [step.record.inputs[len(first.inputs) + 1]]
    if first.op in ("aten.addmm", "aten.mm"):
        weight = replace(weight, shape=weight.shape[::-1], layout="contiguous")
    elif len(weight.shape) == 3:
        weight = replace(weight, shape=(*weight.shape[:2], 1, weight.shape[2]))
    return (weight, *(replace(each, dtype=_FLOATS) for each in bias))


def _recount(record: OperatorRecord, op: str, inputs: Specs, outputs: Specs) -> OperatorRecord:
    """Return the operator with another name and types; arithmetic on codes is no FLOP."""
    formula = formulas.find(op)
    other = replace(retype(record, inputs, outputs), op=op)
    if formula is None or len(inputs) != 1:
        return other
    try:
        count = formula.count({**record.attributes, "self": inputs[0], "output": outputs[0]})
    except RooflineError:
        return other
    work = replace(other.work, **{name: getattr(count, name) for name in COUNTS})
    return replace(other, type=count.type or formula.type, formula=formula.key, work=work)


def _call(op: str, like: OperatorRecord, inputs: Specs, output: TensorSpec) -> OperatorRecord:
    formula = formulas.find(op)
    assert formula is not None, op
    # torch's operand names.
    named: dict[str, Any] = {"self": inputs[0]}
    if op.startswith("quantized.linear"):
        named = {"X": inputs[0], "W_prepack": list(inputs[1:])}
    elif op.startswith("quantized.conv"):
        named = {"qx": inputs[0], "packed_weight": list(inputs[1:])}
    elif op.startswith("quantized.add"):
        named = {"qa": inputs[0], "qb": inputs[1]}
    count = formula.count({**named, "output": output})
    return replace(
        like,
        op=op,
        type=count.type or formula.type,
        inputs=inputs,
        outputs=(output,),
        attributes={},
        state=State.COUNTED,
        formula=formula.key,
        work=Work(
            **{name: getattr(count, name) for name in COUNTS}, **traffic_of(inputs, (output,))
        ),
    )
