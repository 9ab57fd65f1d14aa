"""The pass in few bits, operator by operator: what each reads and writes, and what converts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.foundation.dtypes import DType, dtype
from roofline.quantization.nodes import KEPT, Node, Operand, Widths, is_norm
from roofline.quantization.planning import Plan
from roofline.quantization.policy import FLOAT_BITS
from roofline.workload.dataflow import Value
from roofline.workload.formulas.quantized import DEQUANTIZE_FLOP, QUANTIZE_FLOP
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

_SCALE = dtype("float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Values that are kept in other bits than an operator reads.

    ``operator`` is the position of the first operator that reads them so.
    """

    kind: Literal["quantize", "dequantize"]
    operator: int
    from_bits: int
    to_bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel of the pass in few bits: that of a node, or a conversion.

    ``compute_as`` is the type that a layer computes in; None: that of its operands.
    """

    record: OperatorRecord
    node: Node | None = None
    conversion: Conversion | None = None
    compute_as: DType | None = None


class _Storages:
    """Numbers for storages that the model does not have: of codes, and of scales."""

    def __init__(self, records: Sequence[OperatorRecord], widths: Widths) -> None:
        used = (spec.storage for each in records for spec in (*each.inputs, *each.outputs))
        self._next = 1 + max(used, default=0)
        self._of_codes: dict[tuple[int, int], int] = {}
        self._widths = widths

    def new(self) -> int:
        """A storage of its own."""
        self._next += 1
        return self._next - 1

    def kept(self, elements: int, of: DType) -> TensorSpec:
        """What the model keeps beside codes: scales, and biases out of batch norms."""
        return TensorSpec(
            shape=(elements,),
            dtype=of,
            distinct_elements=elements,
            storage=self.new(),
            role=Role.PARAMETER,
        )

    def at(self, spec: TensorSpec, bits: int, *, is_weight: bool = False) -> TensorSpec:
        """The operand in so many bits; 32: as it is."""
        if bits == FLOAT_BITS:
            return spec
        key = (spec.storage, bits)
        if key not in self._of_codes:
            self._of_codes[key] = self.new()
        return replace(
            spec,
            dtype=self._widths.kept_in(bits, is_weight=is_weight),
            storage=self._of_codes[key],
            offset_bytes=spec.offset_bytes * bits // spec.dtype.bits,
        )


def steps_of(plan: Plan) -> tuple[Step, ...]:
    """What runs once layers have the bits of a plan, in its order, free operators among it."""
    storages = _Storages(plan.records, plan.widths)
    specs = _specs_of(plan)
    given = _given(plan)
    converted: set[tuple[Value | tuple[int, int, int], int]] = set()
    steps: list[Step] = []
    for node in plan.nodes:
        for operand in node.reads:
            kept, read = plan.kept(operand), plan.read(node, operand)
            value, spec = operand.reading.value, operand.reading.spec
            key = value or (spec.storage, spec.offset_bytes, spec.byte)
            if kept != read and (key, read) not in converted:
                converted.add((key, read))
                whole = given.get((spec.storage, spec.offset_bytes, spec.byte), spec)
                if value is not None:
                    whole = specs.get(value, spec)
                steps.append(_conversion(whole, kept, read, node, plan, storages))
        steps.append(_step(node, plan, storages))
    return tuple(steps)


def _specs_of(plan: Plan) -> dict[Value, TensorSpec]:
    """How every value of floats was written."""
    found: dict[Value, TensorSpec] = {}
    for node in plan.nodes:
        if not node.writes:
            continue
        outputs = plan.records[node.operators[-1]].outputs
        floats = [each for each in outputs if each.dtype.kind == "float"]
        found.update(zip(node.writes, floats, strict=True))
    return found


def _given(plan: Plan) -> dict[tuple[int, int, int], TensorSpec]:
    """What the pass was given, in the shape in which it was: operators may read a view of it."""
    found: dict[tuple[int, int, int], TensorSpec] = {}
    for record in plan.records:
        for spec in record.inputs:
            found.setdefault((spec.storage, spec.offset_bytes, spec.byte), spec)
    return found


def _conversion(
    spec: TensorSpec, kept: int, read: int, node: Node, plan: Plan, storages: _Storages
) -> Step:
    before, after = storages.at(spec, kept), storages.at(spec, read)
    reader = plan.records[node.operators[0]]
    is_down = read < kept
    if "float" == before.dtype.kind == after.dtype.kind:
        op, kind, flop = "aten._to_copy", "data movement", 0
    elif is_down:
        op, kind, flop = "aten.quantize_per_tensor", "quantization", QUANTIZE_FLOP
    else:
        op, kind, flop = "aten.dequantize", "quantization", DEQUANTIZE_FLOP
    before = replace(before, min_elements=None)
    after = replace(after, min_elements=None, role=Role.ACTIVATION)
    return Step(
        record=replace(
            reader,
            op=op,
            type=kind,
            inputs=(before,),
            outputs=(after,),
            attributes={},
            state=State.COUNTED,
            formula=op,
            work=Work(flop=flop * spec.elements, min_flop=0, **traffic_of((before,), (after,))),
        ),
        conversion=Conversion(
            kind="quantize" if is_down else "dequantize",
            operator=reader.index,
            from_bits=kept,
            to_bits=read,
        ),
    )


def _step(node: Node, plan: Plan, storages: _Storages) -> Step:
    if node.handling == "layer":
        assert node.layer is not None
        assert node.bits is not None
        executable = plan.widths.executable(plan.bits[node.layer.index], plan.base(node.layer))
        record = _layer_record(node, plan, storages)
        return Step(record=record, node=node, compute_as=executable.dtype)
    if node.handling == "free":
        return Step(record=plan.records[node.operators[0]], node=node)
    return Step(record=_other_record(node, plan, storages), node=node)


def _layer_record(node: Node, plan: Plan, storages: _Storages) -> OperatorRecord:
    """The kernel of a layer, with what is folded into it."""
    layer, bits = node.layer, node.bits
    assert layer is not None
    assert bits is not None
    first, *folded = (plan.records[each] for each in node.operators)
    reads = {each.place: each for each in node.reads}
    inputs = [
        _read(spec, reads.get(place), node, plan, storages)
        if place != layer.weight
        else storages.at(spec, bits.weights, is_weight=True)
        for place, spec in enumerate(first.inputs)
    ]
    output = (folded or [first])[-1].outputs[0]
    channels = output.shape[1] if first.op.endswith("convolution") else output.shape[-1]
    has_norm = any(map(is_norm, folded))
    if bits.weights < FLOAT_BITS and inputs[layer.weight].dtype.kind != "float":
        # A batch norm leaves a factor for each channel, which codes of one scale do not have.
        is_each = plan.policy.per_channel or has_norm
        inputs.append(storages.kept(channels if is_each else 1, _SCALE))
    work = first.work
    has_bias = any(
        spec.role in KEPT for place, spec in enumerate(first.inputs) if place != layer.weight
    )
    if has_norm and not has_bias:
        inputs.append(storages.kept(channels, output.dtype))
        work += Work(flop=output.elements)
    for each in folded:
        if not is_norm(each):
            work += each.work
            inputs += [
                _read(spec, None, node, plan, storages) for spec in each.inputs if spec.role in KEPT
            ]
    written = storages.at(output, plan.written(node))
    return replace(
        first,
        inputs=tuple(inputs),
        outputs=(written,),
        work=Work(
            **{name: getattr(work, name) for name in COUNTS},
            **traffic_of(inputs, (written,)),
        ),
    )


def _other_record(node: Node, plan: Plan, storages: _Storages) -> OperatorRecord:
    """Any other operator on operands of other bits, an addition of codes with what follows it."""
    first, *folded = (plan.records[each] for each in node.operators)
    reads = {each.place: each for each in node.reads}
    inputs = tuple(
        _read(spec, reads.get(place), node, plan, storages)
        for place, spec in enumerate(first.inputs)
    )
    kept = iter(node.writes)
    outputs = tuple(
        storages.at(spec, plan.values.get(next(kept), FLOAT_BITS))
        if spec.dtype.kind == "float"
        else spec
        for spec in (folded or [first])[-1].outputs
    )
    work = sum((each.work for each in folded), start=first.work)
    counts = {name: getattr(work, name) for name in COUNTS}
    return replace(
        first,
        inputs=inputs,
        outputs=outputs,
        work=Work(**counts, internal_bytes=work.internal_bytes, **traffic_of(inputs, outputs)),
    )


def _read(
    spec: TensorSpec, operand: Operand | None, node: Node, plan: Plan, storages: _Storages
) -> TensorSpec:
    if operand is None:
        return storages.at(spec, plan.parameter_bits(node, spec))
    read = storages.at(spec, plan.read(node, operand))
    # What was given was converted once, and that lives as long as other activations.
    return read if read is spec else replace(read, role=Role.ACTIVATION)


def with_ends(records: Sequence[OperatorRecord]) -> tuple[OperatorRecord, ...]:
    """The records, each with the storages that nobody touches after it.

    What is written and never read is the result, which stays.
    """
    last: dict[int, int] = {}
    for place, record in enumerate(records):
        if record.state is not State.FREE:
            for spec in (*record.inputs, *record.outputs):
                if not spec.role.persists:
                    last[spec.storage] = place
    ends: dict[int, list[int]] = {}
    for storage, place in last.items():
        if any(spec.storage == storage for spec in records[place].inputs):
            ends.setdefault(place, []).append(storage)
    return tuple(
        replace(record, freed=tuple(ends.get(place, ()))) for place, record in enumerate(records)
    )
