"""What lower precision would be worth for a model that was analysed: no torch, and no run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from roofline.analysis import (
    Analysis,
    MinTimes,
    OperatorRow,
    minimum_times_of,
    sum_eager_min_time_s,
    working,
)
from roofline.design.advice.times import Time
from roofline.errors import InputError, nearest
from roofline.foundation.dtypes import dtype
from roofline.foundation.rows import sum_known
from roofline.foundation.text import printable
from roofline.latency.predicted import Predicts
from roofline.quantization.layers import RECURRENT
from roofline.quantization.policy import FLOAT_BITS, Policy
from roofline.quantization.result import Part, PartName, QuantizationPass, WhatIf
from roofline.quantization.what_if.after import After, after_of, layers_of
from roofline.quantization.what_if.left import left_of, notes_of
from roofline.quantization.what_if.planning import Plan, plan_of
from roofline.quantization.what_if.records import executed_records
from roofline.quantization.what_if.sizes import layer_bytes, model_bytes
from roofline.quantization.what_if.steps import Conversion, Step, steps_of
from roofline.quantization.what_if.times import NO_TIME, time_of_rows, total
from roofline.quantization.what_if.widths import Widths
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
        read_bytes=record.inputs[0].byte,
        written_bytes=record.outputs[0].byte,
        flop=record.work.flop,
        is_separate=True,
        eager_min_time_s=after.rows[place].eager_min_time_s,
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
        read_bytes=sums.byte,
        written_bytes=codes.byte,
        flop=record.work.flop,
        is_separate=False,
        eager_min_time_s=after.roof.place(record, near).eager_min_time_s,
        time=None,
    )


def _walk(layer: OperatorRecord, codes: TensorSpec) -> OperatorRecord:
    """Sums are read, scaled, shifted, clipped, rounded and written as codes."""
    elements = math.prod(codes.shape)
    sums = replace(
        codes,
        dtype=_ACCUMULATOR,
        storage=codes.storage + 1,
        offset_bytes=0,
        distinct_elements=elements,
        role=Role.ACTIVATION,
    )
    return replace(
        layer,
        op="quantized.requantize",
        type="quantization",
        inputs=(sums,),
        outputs=(codes,),
        work=Work(flop=QUANTIZE_FLOP * elements, min_flop=0, **traffic_of((sums,), (codes,))),
    )


def _name(after: After, operator: int) -> str:
    """The layer at a position, or the operator there and its module."""
    for each in after.plan.structure.layers:
        if each.index == operator:
            return each.name
    record = after.plan.records[operator]
    op = record.op.removeprefix("aten.")
    return f"{record.module_path} ({op})" if record.module_path else op


def parts_of(after: After, passes: Sequence[QuantizationPass]) -> tuple[Part, ...]:
    """Layers, requantisation, conversions, shortcuts, and all others.

    The bytes, bounds and times before are those of the whole pass, and so are those after without
    requantisation, which kernels do before they write.
    """
    part_of = _parts_of_operators(after)
    rows = after.analysis.operators
    found: list[Part] = []
    for name in ("layers", "shortcuts", "others"):
        before = [row for place, row in enumerate(rows) if part_of.get(place, "others") == name]
        places = [
            place
            for place, step in enumerate(after.steps)
            if step.node is not None and part_of.get(step.node.operators[0], "others") == name
        ]
        found.append(_part(name, before, places, after))
    conversions = [each for each in passes if each.is_separate]
    requantized = [each for each in passes if not each.is_separate]
    return (
        found[0],
        _added("requantization", requantized, after),
        _added("conversions", conversions, after),
        found[1],
        found[2],
    )


def _parts_of_operators(after: After) -> dict[int, PartName]:
    return {
        operator: "layers" if group.layer is not None else "shortcuts"
        for group in after.plan.groups
        for operator in group.operators
    }


def _part(
    name: PartName, before: Sequence[OperatorRow], places: Sequence[int], after: After
) -> Part:
    now = [after.rows[each] for each in places]
    layers = {each.index for each in after.plan.structure.layers}
    additions = {each.addition for each in after.plan.structure.shortcuts}
    counts = {"layers": len(layers), "shortcuts": len(additions)}
    timed_before = after.analysis.prediction is not None
    return Part(
        name=name,
        count=counts.get(name, len(working(before))),
        before_bytes=sum(row.traffic_bytes for row in before),
        after_bytes=sum(row.traffic_bytes for row in now),
        before_eager_min_time_s=sum_eager_min_time_s(before),
        after_eager_min_time_s=sum_eager_min_time_s(now),
        before_time=time_of_rows(before) if timed_before else None,
        after_time=after.time(places) if after.times.are_known else None,
    )


def _added(name: PartName, passes: Sequence[QuantizationPass], after: After) -> Part:
    """A part that there was none of before."""
    return Part(
        name=name,
        count=len(passes),
        before_bytes=0,
        after_bytes=sum(each.traffic_bytes for each in passes),
        before_eager_min_time_s=0.0,
        after_eager_min_time_s=bound_of(passes),
        before_time=NO_TIME if after.analysis.prediction is not None else None,
        after_time=total(each.time for each in passes) if after.times.are_known else None,
    )


def bound_of(passes: Sequence[QuantizationPass]) -> float | None:
    """The seconds that passes take at least; None if one of them is unknown."""
    bounds_s = [each.eager_min_time_s for each in passes if each.eager_min_time_s is not None]
    return sum(bounds_s) if len(bounds_s) == len(passes) else None


_QUANTISED = ("quantized.", "aten.quantize_", "onednn.q")
"""What operators are called of models whose weights are codes."""

_SHOWN = 5
"""How many layers are named to one who named none of them."""


def what_if(analysis: Analysis, policy: Policy, predictor: Predicts | None = None) -> WhatIf:
    """A model in the bits of a policy, on the machine and threads of its analysis.

    Args:
        analysis: of a forward pass of the model as it is.
        policy: the bits that are asked for.
        predictor: what was learned on that machine; None: nothing, so that there are only bounds.

    Raises:
        InputError: an analysis of a step of training, of a model that has no layers or that is
            quantised already, or a policy with names that no layers have.
    """
    plan = _plan(analysis, policy)
    after = after_of(analysis, plan, predictor)
    layers, passes = layers_of(after), passes_of(after)
    parts = parts_of(after, passes)
    eager_min_time_after_s = sum_known(
        each.after_eager_min_time_s for each in parts if each.name != "requantization"
    )
    layer_before, layer_after = layer_bytes(plan)
    model_before, model_after = model_bytes(analysis, plan)
    has_kernels = all(each.has_kernel for each in layers)
    return WhatIf(
        policy=policy,
        layers=layers,
        passes=passes,
        parts=parts,
        layer_bytes_before=layer_before,
        layer_bytes_after=layer_after,
        model_bytes_before=model_before,
        model_bytes_after=model_after,
        eager_min_time_before_s=analysis.totals.eager_min_time_s,
        eager_min_time_after_s=eager_min_time_after_s,
        separate_eager_min_time_s=sum_known(
            (eager_min_time_after_s, bound_of([each for each in passes if not each.is_separate]))
        ),
        minimum_before=MinTimes(**minimum_times_of(analysis.totals)),
        before=_before(analysis),
        after=after.times.whole if has_kernels else None,
        unquantized=left_of(analysis, plan),
        notes=notes_of(after, layers, predictor),
    )


def records_of_torch(analysis: Analysis, policy: Policy) -> tuple[OperatorRecord, ...]:
    """The operators that torch would run for a policy that it has kernels for, free ones too.

    Args:
        analysis: of a forward pass of the model as it is.
        policy: the bits that are asked for.

    Raises:
        InputError: as `what_if`, or bits that the machine has no kernels for.
    """
    plan = _plan(analysis, policy)
    calls = executed_records(steps_of(plan), plan)
    if not all(calls):
        raise InputError(f"{analysis.hardware.name} has no kernels for {policy.words}")
    return tuple(record for each in calls for record in each)


def _plan(analysis: Analysis, policy: Policy) -> Plan:
    records = [row.record for row in analysis.operators]
    if any(each.phase != "forward" for each in records):
        raise InputError(
            f"{analysis.model} was analysed in training; quantisation is asked of inference:"
            " analyse it without train"
        )
    if any(each.op.startswith(_QUANTISED) for each in records):
        raise InputError(f"{analysis.model} is quantised already; give the model in floats")
    apart = {each.path for each in analysis.modules if each.kind in RECURRENT}
    plan = plan_of(records, policy, Widths(analysis.hardware, analysis.threads), apart)
    if not plan.structure.layers:
        if any(0 in each.shape for each in analysis.inputs):
            raise InputError(f"{analysis.model} was given no elements: a size is 0")
        raise InputError(
            f"{analysis.model} has no layer that could be quantised: no convolution and no linear"
            " layer with weights of floats"
        )
    known = dict.fromkeys(
        name
        for each in plan.structure.layers
        for name in (records[each.index].module_path, each.name)
    )
    for name in policy.layers:
        if name not in known:
            names = ", ".join(list(known)[:_SHOWN])
            hint = nearest(name, known) or f"; its layers are {names}{' …' * (len(known) > _SHOWN)}"
            raise InputError(f"'{printable(name)}' is no layer of {analysis.model}{hint}")
    return plan


def _before(analysis: Analysis) -> Time | None:
    run = analysis.prediction
    return Time(s=run.predicted_s, low_s=run.low_s, high_s=run.high_s) if run else None
