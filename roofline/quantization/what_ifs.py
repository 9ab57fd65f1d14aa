"""One what-if after the other: the policy that was asked for, then one for each width."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_bytes
from roofline.latency.predicted import Predicts
from roofline.quantization.after import NO_TIME, After, after_of, layers_of, time_of_rows, total
from roofline.quantization.nodes import INT8, KEPT, Widths
from roofline.quantization.planning import (
    Plan,
    kept_bytes,
    layer_bytes,
    model_bytes,
    plan_of,
    weights_of_others,
)
from roofline.quantization.policy import FLOAT_BITS, RECURRENT, Policy, check_bits
from roofline.quantization.records import executed_records
from roofline.quantization.result import (
    BANDWIDTH_ONLY,
    LayerWhatIf,
    Part,
    PartName,
    QuantizationPass,
    WhatIf,
)
from roofline.quantization.steps import Conversion, Step, steps_of
from roofline.workload.formulas.quantized import QUANTIZE_FLOP
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Reuse
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_SHOWN_of_left = 3
"""How many modules are named."""


def left_of(analysis: Analysis, plan: Plan) -> tuple[str, ...]:
    """What stays in floats although it has weights, or multiplies activations, by its kind."""
    return (*_operators(plan), *_without_calls(analysis, plan))


def _without_calls(analysis: Analysis, plan: Plan) -> Iterable[str]:
    """Modules that the pass did not call: what layers they have is not known."""
    idle = [each for each in analysis.modules if not each.calls and each.parameters]
    for path, count in _borrowed(analysis, plan).items():
        inside = [each for each in idle if each.path.startswith(f"{path}." if path else "")]
        if sum(each.parameters for each in inside) <= count:
            idle = [each for each in idle if each not in inside]
    if idle:
        count = sum(each.parameters for each in idle)
        names = _names([each.path for each in idle])
        yield f"modules that did not run ({names}): {count:,} parameters"


def _borrowed(analysis: Analysis, plan: Plan) -> dict[str, int]:
    """The parameters that modules read beside their own, as fused layers read their parts'."""
    read: dict[str, dict[tuple[int, int], int]] = {}
    for record in plan.records:
        for spec in record.inputs if record.state is not State.FREE else ():
            if spec.role is Role.PARAMETER:
                found = read.setdefault(record.module_path, {})
                found[spec.storage, spec.offset_bytes] = spec.elements
    own = {each.path: each.parameters for each in analysis.modules}
    return {path: sum(found.values()) - own.get(path, 0) for path, found in read.items()}


def _operators(plan: Plan) -> Iterable[str]:
    layers = {
        place for group in plan.groups if group.layer is not None for place in group.operators
    }
    nodes = {place: node for node in plan.nodes for place in node.operators}
    kept: dict[str, dict[tuple[int, int], TensorSpec]] = {}
    modules: dict[str, list[str]] = {}
    products = 0
    for place, record in enumerate(plan.records):
        if place in layers or record.state is State.FREE:
            continue
        own = [
            each
            for each in record.inputs
            if each.role in KEPT
            and each.dtype.kind == "float"
            and plan.parameter_bits(nodes[place], each) == FLOAT_BITS
        ]
        for spec in own:
            kept.setdefault(record.type, {})[spec.storage, spec.offset_bytes] = spec
        if own:
            modules.setdefault(record.type, []).append(record.module_path)
        elif record.work.macs and plan.floats == FLOAT_BITS:
            products += 1
    found = [
        f"{kind} ({_names(modules[kind])}): {format_bytes(_bytes(weights.values()))} of weights"
        for kind, weights in kept.items()
    ]
    if products:
        found.append(f"{counted(products, 'product')} of two activations")
    return found


def _bytes(weights: Iterable[TensorSpec]) -> int:
    return sum(kept_bytes(each, each.dtype.bits) for each in weights)


def _names(paths: Sequence[str]) -> str:
    named = list(dict.fromkeys(each for each in paths if each))
    shown = ", ".join(named[:_SHOWN_of_left])
    rest = len(named) - _SHOWN_of_left
    return f"{shown} and {rest} more" if rest > 0 else shown or "the model itself"


def notes_of(
    after: After, layers: Sequence[LayerWhatIf], predictor: Predicts | None
) -> tuple[str, ...]:
    """What to know of the figures of a what-if, one line each.

    Args:
        predictor: what was learned on the machine; None: nothing.
    """
    notes = [*_without_kernels(after, layers), *_without_times(after, layers, predictor)]
    is_new = not after.analysis.run.channels_last and _has_images(after, layers)
    if after.times.are_known and is_new:
        notes.append(
            "torch's int8 convolutions write images channels-last: what reads them is predicted so"
        )
    shared = weights_of_others(after.plan)
    if shared:
        notes.append(
            f"{counted(len(shared), 'layer')} share{'s' * (len(shared) == 1)} weights with"
            " operators that stay in floats: the size counts them twice, as codes and as floats"
        )
    return tuple(notes)


def _has_images(after: After, layers: Sequence[LayerWhatIf]) -> bool:
    """Whether an int8 convolution runs, so that images lie otherwise behind it than before.

    Its own time need not be known for that: what reads it is predicted by the layout.
    """
    return any(
        each.has_kernel
        and each.executable == INT8
        and after.analysis.operators[each.operators[0]].op.endswith("convolution")
        for each in layers
    )


def _without_kernels(after: After, layers: Sequence[LayerWhatIf]) -> Iterable[str]:
    """Widths that the machine cannot compute with."""
    missing: dict[tuple[str, str], int] = {}
    for each in layers:
        if not each.has_kernel:
            key = (each.bits.words, each.executable)
            missing[key] = missing.get(key, 0) + 1
    for (words, executable), count in missing.items():
        ceiling = after.roof.compute(dtype(executable))
        under = f" under {ceiling.label}" if ceiling is not None else ""
        yield (
            f"{after.analysis.hardware.name} has no kernel for {words}: {counted(count, 'layer')}"
            f" {'is' if count == 1 else 'are'} a {BANDWIDTH_ONLY}, computed as {executable}{under}"
        )


def _without_times(
    after: After, layers: Sequence[LayerWhatIf], predictor: Predicts | None
) -> Iterable[str]:
    """Widths that the machine computes with, and of which nothing was learned."""
    untimed = [each for each in layers if each.has_kernel and each.after.time is None]
    changed = [each for each in untimed if not each.bits.is_float]
    if not changed or after.analysis.hardware.host is None:
        return
    threads = after.analysis.threads
    types = ", ".join(dict.fromkeys(each.executable for each in changed))
    learned = "nothing" if predictor is None else "too little"
    yield (
        f"{counted(len(changed), 'layer')} in {types} {'has' if len(changed) == 1 else 'have'} no"
        f" predicted time: {learned} of {types} on {counted(threads, 'thread')} was measured"
        " (`roofline calibrate` measures it)"
    )


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
    """The operators that torch would run for a policy that it has kernels for, free ones too."""
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


def policies_of(policy: Policy, widths: Sequence[int]) -> tuple[Policy, ...]:
    """The policy, then for each width one with weights and activations of so many bits.

    Everything else stays as it is asked; a width that is named twice is taken once.

    Args:
        widths: bits from 1 to 16, or 32.

    Raises:
        InputError: other widths.
    """
    for width in widths:
        check_bits("sweep", width)
    others = (replace(policy, weights=width, activations=width) for width in dict.fromkeys(widths))
    return (policy, *others)


def what_ifs(
    analysis: Analysis,
    policy: Policy,
    widths: Sequence[int] = (),
    predictor: Predicts | None = None,
) -> tuple[WhatIf, ...]:
    """The what-if of a policy, then those of a sweep over widths.

    Args:
        predictor: what was learned on that machine; None: nothing.
    """
    return tuple(what_if(analysis, each, predictor) for each in policies_of(policy, widths))
