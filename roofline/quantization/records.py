"""The operators that torch runs where it has kernels: those of int8, and floats of 16 bits.

int8 as a model quantised statically by torch.ao calls them: a convolution or linear layer with its
ReLU in one, images channels-last from the first convolution on, and `aten.dequantize` where floats
are read. What its kernels do not do, activations but a few, is done on floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline.errors import RooflineError
from roofline.foundation.dtypes import DType, dtype
from roofline.quantization.nodes import INT8, KEPT, Node, is_codes, is_norm
from roofline.quantization.planning import Plan
from roofline.quantization.steps import Step
from roofline.workload import formulas
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Layout, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

Specs = tuple[TensorSpec, ...]


def plain(record: OperatorRecord) -> str:
    """The operator's name, that of its like that does not work in place."""
    return record.op.removesuffix("_")


def images_layout(spec: TensorSpec) -> Layout:
    """How images lie that an int8 convolution writes; contiguous, where both ways are one."""
    sizes = spec.shape
    is_either = len(sizes) < 4 or sizes[1] == 1 or all(size == 1 for size in sizes[2:])
    return "contiguous" if is_either else "channels-last"


def narrowed(spec: TensorSpec, to: DType, renamed: Mapping[int, int]) -> TensorSpec:
    """The operand in other floats, in a storage of another number where `renamed` has one."""
    if spec.dtype.kind != "float":
        return spec
    return replace(spec, dtype=to, storage=renamed.get(spec.storage, spec.storage))


def retyped(record: OperatorRecord, inputs: Specs, outputs: Specs) -> OperatorRecord:
    """The operator on other operands of the same sizes."""
    counts: dict[str, Any] = {
        name: getattr(record.work, name) for name in (*COUNTS, "internal_bytes")
    }
    work = Work(**counts, **traffic_of(inputs, outputs))
    return replace(record, inputs=inputs, outputs=outputs, work=work, freed=())


def recounted(record: OperatorRecord, op: str, inputs: Specs, outputs: Specs) -> OperatorRecord:
    """The operator under another name on other types: what is done with codes is no FLOP."""
    formula = formulas.find(op)
    other = replace(retyped(record, inputs, outputs), op=op)
    if formula is None or len(inputs) != 1:
        return other
    try:
        count = formula.count({**record.attributes, "self": inputs[0], "output": outputs[0]})
    except RooflineError:
        return other
    work = replace(other.work, **{name: getattr(count, name) for name in COUNTS})
    return replace(other, type=count.type or formula.type, formula=formula.key, work=work)


def call(op: str, like: OperatorRecord, inputs: Specs, output: TensorSpec) -> OperatorRecord:
    """A call of an operator of torch's quantisation."""
    formula = formulas.find(op)
    if formula is None:
        raise ValueError(f"{op} has no formula, so it cannot be counted")
    count = formula.count({**_arguments(op, inputs), "output": output})
    return replace(
        like,
        op=op,
        type=count.type or formula.type,
        inputs=inputs,
        outputs=(output,),
        attributes={},
        state=State.COUNTED,
        formula=formula.key,
        freed=(),
        work=Work(
            **{name: getattr(count, name) for name in COUNTS},
            **traffic_of(inputs, (output,)),
        ),
    )


def _arguments(op: str, inputs: Specs) -> dict[str, Any]:
    """Operands by the names that torch gives them."""
    if op.startswith("quantized.linear"):
        return {"X": inputs[0], "W_prepack": list(inputs[1:])}
    if op.startswith("quantized.conv"):
        return {"qx": inputs[0], "packed_weight": list(inputs[1:])}
    if op.startswith("quantized.add"):
        return {"qa": inputs[0], "qb": inputs[1]}
    return {"self": inputs[0]}


_CODES = dtype("quint8")
_WEIGHTS = dtype("qint8")
_FLOATS = dtype("float32")
_RELU = "aten.relu"
_ON_CODES = {
    "aten.relu": "",
    "aten.hardtanh": "",
    "aten.clamp": "",
    "aten.sigmoid": "",
    "aten.tanh": "",
    "aten.hardswish": "quantized.hardswish",
    "aten.elu": "quantized.elu",
    "aten.leaky_relu": "quantized.leaky_relu",
}
"""Elementwise operators that torch has for codes, and their names there (``""``: the same)."""

_CARRYING = {
    "aten.max_pool2d_with_indices": "aten.quantized_max_pool2d",
    "aten.max_pool2d": "aten.quantized_max_pool2d",
    "aten.max_pool3d_with_indices": "aten.quantized_max_pool3d",
}


def executed_records(steps: Sequence[Step], plan: Plan) -> list[tuple[OperatorRecord, ...]]:
    """What torch calls for each step of a pass in few bits; nothing where it has no kernel."""
    calls = _Calls(plan, 1 + max(_storages(steps), default=0))
    return [calls.of(step) for step in steps]


def _storages(steps: Iterable[Step]) -> Iterable[int]:
    for step in steps:
        for spec in (*step.record.inputs, *step.record.outputs):
            yield spec.storage


class _Calls:
    """Makes torch's calls of steps, in their order: how images lie follows from those before."""

    def __init__(self, plan: Plan, next_storage: int) -> None:
        self._plan = plan
        self._next = next_storage
        self._layouts: dict[int, Layout] = {}
        self._shapes: dict[int, tuple[int, ...]] = {}

    def of(self, step: Step) -> tuple[OperatorRecord, ...]:
        """The calls of one step; none: there is no kernel."""
        calls = self._of(step)
        for spec in (one for each in calls for one in each.outputs):
            self._shapes[spec.storage] = spec.shape
        return calls

    def _of(self, step: Step) -> tuple[OperatorRecord, ...]:
        node, record = step.node, step.record
        if record.state is State.FREE:
            return (record,)
        if node is not None and node.handling == "layer":
            return self._layer(step, node)
        if any(is_codes(each.dtype) for each in (*record.inputs, *record.outputs)):
            return ()
        if node is not None and node.handling == "sum":
            return self._sum(step, node)
        return (self._laid_out(record),)

    # -- layers ------------------------------------------------------------------------------------

    def _layer(self, step: Step, node: Node) -> tuple[OperatorRecord, ...]:
        assert node.layer is not None
        executable = self._plan.widths.executable(
            self._plan.bits[node.layer.index], self._plan.base(node.layer)
        )
        if not executable.has_kernel:
            return ()
        if executable.dtype.name != INT8:
            return self._in_floats(step, node, executable.dtype)
        first, *folded = (self._plan.records[each] for each in node.operators)
        ends = [each for each in folded if not is_norm(each)]
        is_transposed = first.attributes.get("transposed") is True
        has_relu = bool(ends) and plain(ends[0]) == _RELU and not is_transposed
        source = self._as_it_lies(step.record.inputs[node.layer.activation])
        given = replace(source, min_elements=None)
        output = self._new((folded or [first])[-1].outputs[0], _CODES)
        if first.op.endswith("convolution"):
            output = replace(output, layout=images_layout(output))
        else:
            given = self._unflattened(given)
            output = replace(output, shape=(*given.shape[:-1], output.shape[-1]))
        name = _layer_name(first, len(given.shape), has_relu=has_relu)
        operands = (given, *_packed(first, folded, step, node))
        made = call(name, first, operands, output)
        return self._ended(made, ends[has_relu:], step)

    def _unflattened(self, rows: TensorSpec) -> TensorSpec:
        """What a linear layer reads as it was written: the one on codes takes it as it is."""
        written = self._shapes.get(rows.storage, rows.shape)
        is_same = written[-1:] == rows.shape[-1:] and math.prod(written) == rows.elements
        return replace(rows, shape=written) if is_same else rows

    def _in_floats(self, step: Step, node: Node, half: DType) -> tuple[OperatorRecord, ...]:
        """The layer's operators as they are, in narrower floats."""
        written = step.record.outputs[0]
        renamed = {self._plan.records[node.operators[-1]].outputs[0].storage: written.storage}
        calls: list[OperatorRecord] = []
        for position in node.operators:
            record = self._plan.records[position]
            # The first reads what was converted for it, those behind it what it wrote.
            inputs = record.inputs if calls else step.record.inputs[: len(record.inputs)]
            calls.append(
                retyped(
                    record,
                    tuple(narrowed(each, half, renamed) for each in inputs),
                    tuple(narrowed(each, half, renamed) for each in record.outputs),
                )
            )
        if written.dtype != half:
            made = self._new(calls[-1].outputs[0], half)
            calls[-1] = replace(calls[-1], outputs=(made,))
            calls.append(call("aten._to_copy", step.record, (made,), written))
        return tuple(calls)

    # -- all others --------------------------------------------------------------------------------

    def _sum(self, step: Step, node: Node) -> tuple[OperatorRecord, ...]:
        """An addition at a shortcut, and what follows it."""
        first, *ends = (self._plan.records[each] for each in node.operators)
        inputs = tuple(map(self._as_it_lies, step.record.inputs))
        (written,) = step.record.outputs
        if all(each.dtype.kind == "float" for each in inputs):
            calls = [retyped(first, inputs, (written,))]
            return (*calls, *(retyped(each, (written,), (written,)) for each in ends))
        has_relu = bool(ends) and plain(ends[0]) == _RELU
        made = replace(self._new(written, _CODES), layout=inputs[0].layout)
        name = "quantized.add_relu" if has_relu else "quantized.add"
        return self._ended(call(name, first, inputs, made), ends[has_relu:], step)

    def _laid_out(self, record: OperatorRecord) -> OperatorRecord:
        """An operator whose types torch takes, on images as they lie."""
        inputs = tuple(map(self._as_it_lies, record.inputs))
        if not any(each.storage in self._layouts for each in inputs):
            if record.op == "aten.quantize_per_tensor":
                self._layouts[record.outputs[0].storage] = inputs[0].layout
            return record
        lying = next(each for each in inputs if each.storage in self._layouts)
        outputs = tuple(self._follows(each, lying) for each in record.outputs)
        if all(each.dtype not in (_CODES, _WEIGHTS) for each in (*inputs, *outputs)):
            return replace(record, inputs=inputs, outputs=outputs)
        op = _CARRYING.get(plain(record), record.op)
        if op == "aten.mean" and _is_average_of_images(record):
            op = "aten._adaptive_avg_pool2d"
        # Pooling of codes gives no indices.
        codes = outputs if record.op == "aten.dequantize" else outputs[:1]
        return replace(recounted(record, op, inputs, codes), freed=record.freed)

    def _follows(self, spec: TensorSpec, lying: TensorSpec) -> TensorSpec:
        """What is written of images lies as they do, as long as they are images."""
        if len(spec.shape) != len(lying.shape):
            return spec
        layout = images_layout(spec) if lying.layout == "channels-last" else lying.layout
        self._layouts[spec.storage] = layout
        return replace(spec, layout=layout)

    # -- what both have ----------------------------------------------------------------------------

    def _as_it_lies(self, spec: TensorSpec) -> TensorSpec:
        layout = self._layouts.get(spec.storage, spec.layout)
        if layout == "channels-last" and len(spec.shape) < 4:
            # A view of images, as a linear layer reads them.
            return spec
        return spec if layout == spec.layout else replace(spec, layout=layout)

    def _new(self, spec: TensorSpec, of: DType) -> TensorSpec:
        """A tensor of the same sizes in another type, in a storage of its own."""
        self._next += 1
        return replace(spec, dtype=of, storage=self._next - 1, offset_bytes=0, min_elements=None)

    def _ended(
        self, product: OperatorRecord, ends: Sequence[OperatorRecord], step: Step
    ) -> tuple[OperatorRecord, ...]:
        """A call that writes codes, with what follows it, and floats where these are read."""
        calls = [product]
        for each in ends:
            (made,) = calls[-1].outputs
            name = _ON_CODES.get(plain(each))
            if made.dtype == _CODES and name is None:
                calls.append(call("aten.dequantize", each, (made,), self._new(made, _FLOATS)))
                (made,) = calls[-1].outputs
            op = name if name and made.dtype == _CODES else each.op
            calls.append(recounted(each, op, (made,), (self._new(made, made.dtype),)))
        (written,), (made,) = step.record.outputs, calls[-1].outputs
        if written.dtype.kind == "float" and made.dtype == _CODES:
            made = self._new(made, written.dtype)
            calls.append(call("aten.dequantize", step.record, calls[-1].outputs, made))
        elif written.dtype.kind != "float" and made.dtype != _CODES:
            made = self._new(made, _CODES)
            calls.append(call("aten.quantize_per_tensor", step.record, calls[-1].outputs, made))
        # The last of them writes what others read.
        last = replace(made, storage=written.storage, offset_bytes=written.offset_bytes)
        calls[-1] = replace(calls[-1], outputs=(last,))
        self._layouts[last.storage] = last.layout
        return tuple(calls)


def _layer_name(record: OperatorRecord, dimensions: int, *, has_relu: bool) -> str:
    """torch's name of a layer on codes: ``"quantized.conv2d_relu"``."""
    end = "_relu" if has_relu else ""
    if not record.op.endswith("convolution"):
        return f"quantized.linear{end}"
    kind = "conv_transpose" if record.attributes.get("transposed") is True else "conv"
    return f"quantized.{kind}{dimensions - 2}d{end}"


def _packed(
    first: OperatorRecord, folded: Sequence[OperatorRecord], step: Step, node: Node
) -> Specs:
    """A layer's weight as torch packs it, and its bias, which takes a batch norm's."""
    assert node.layer is not None
    own = len(first.inputs)
    kept = step.record.inputs[node.layer.weight]
    weight = replace(kept, dtype=_WEIGHTS, min_elements=None)
    bias = [
        spec
        for place, spec in enumerate(first.inputs)
        if place != node.layer.weight and spec.role in KEPT
    ]
    if not bias and any(map(is_norm, folded)):
        # After those of the layer come its scales, then the bias that the batch norm leaves.
        bias = [step.record.inputs[own + 1]]
    if first.op in ("aten.addmm", "aten.mm"):
        weight = replace(weight, shape=weight.shape[::-1], layout="contiguous")
    elif len(weight.shape) == 3:
        weight = replace(weight, shape=(*weight.shape[:2], 1, weight.shape[2]))
    return (weight, *(replace(each, dtype=_FLOATS) for each in bias))


def _is_average_of_images(record: OperatorRecord) -> bool:
    """Whether images become one element each, as torch's pooling writes it for floats."""
    before, after = record.inputs[0].shape, record.outputs[0].shape
    return len(before) == 4 and after == (*before[:2], 1, 1)
