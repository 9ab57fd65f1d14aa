"""The walks over tensors that only quantisation asks for, each on its own."""

from __future__ import annotations

import math
from dataclasses import replace

from roofline.foundation.dtypes import dtype
from roofline.quantization.policy import FLOAT_BITS
from roofline.quantization.result import QuantizationPass
from roofline.quantization.what_if.after import After
from roofline.quantization.what_if.steps import Conversion, Step
from roofline.workload.formulas.quantized import QUANTIZE_FLOP
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import Reuse
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_ACCUMULATOR = dtype("int32")


def passes_of(after: After) -> tuple[QuantizationPass, ...]:
    """All of them, in the order in which they are made."""
    found: list[QuantizationPass] = []
    for place, step in enumerate(after.steps):
        if step.conversion is not None:
            found.append(_conversion(step, step.conversion, place, after))
        elif step.node is not None and step.node.handling == "layer" and _rounds(step):
            found.append(_requantization(step, after))
    return tuple(found)


def _rounds(step: Step) -> bool:
    """Whether a layer's kernel makes codes of its sums."""
    return step.record.outputs[0].dtype.kind != "float"


def _conversion(step: Step, conversion: Conversion, place: int, after: After) -> QuantizationPass:
    record = step.record
    assert record.work.flop is not None
    return QuantizationPass(
        kind=conversion.kind,
        where=_name(after, conversion.operator),
        operator=conversion.operator,
        elements=record.inputs[0].elements,
        from_bits=_width(conversion.from_bits, record.inputs[0]),
        to_bits=_width(conversion.to_bits, record.outputs[0]),
        read_byte=record.inputs[0].byte,
        written_byte=record.outputs[0].byte,
        flop=record.work.flop,
        is_separate=True,
        bound_s=after.rows[place].bound_s,
        time=after.times.steps[place],
    )


def _width(bits: int, spec: TensorSpec) -> int:
    """The bits of a value; what is left as it is has those of its type."""
    return spec.dtype.bits if bits == FLOAT_BITS else bits


def _requantization(step: Step, after: After) -> QuantizationPass:
    assert step.node is not None
    layer = step.node.layer
    assert layer is not None
    codes = step.record.outputs[0]
    record = _walk(step.record, codes)
    assert record.work.flop is not None
    (sums,) = record.inputs
    # The sums were just written: they are as near as so many bytes can be.
    near = (Reuse(sums.byte, sums.byte), Reuse(codes.byte, sums.byte + codes.byte))
    return QuantizationPass(
        kind="requantize",
        where=layer.name,
        operator=layer.index,
        elements=codes.elements,
        from_bits=_ACCUMULATOR.bits,
        to_bits=codes.dtype.bits,
        read_byte=sums.byte,
        written_byte=codes.byte,
        flop=record.work.flop,
        is_separate=False,
        bound_s=after.roof.place(record, near).bound_s,
        time=None,
    )


def _walk(layer: OperatorRecord, codes: TensorSpec) -> OperatorRecord:
    """Sums are read, scaled, shifted, clipped, rounded and written as codes."""
    elements = math.prod(codes.shape)
    sums = replace(
        codes,
        dtype=_ACCUMULATOR,
        storage=codes.storage + 1,
        offset_byte=0,
        distinct_elements=elements,
        role=Role.ACTIVATION,
    )
    return replace(
        layer,
        op="quantized.requantize",
        type="quantization",
        inputs=(sums,),
        outputs=(codes,),
        work=Work(flop=QUANTIZE_FLOP * elements, least_flop=0, **traffic_of((sums,), (codes,))),
    )


def _name(after: After, operator: int) -> str:
    """The layer at a position, or the operator there and its module."""
    for each in after.plan.structure.layers:
        if each.index == operator:
            return each.name
    record = after.plan.records[operator]
    op = record.op.removeprefix("aten.")
    return f"{record.module_path} ({op})" if record.module_path else op
