"""What lower precision would be worth for a model that was analysed: no torch, and no run."""

from __future__ import annotations

from roofline.analysis import Analysis, MinTimes, minimum_times_of
from roofline.design.advice.times import Time
from roofline.errors import InputError, nearest
from roofline.foundation.rows import sum_known
from roofline.foundation.text import printable
from roofline.latency.predicted import Predicts
from roofline.quantization.layers import RECURRENT
from roofline.quantization.policy import Policy
from roofline.quantization.result import WhatIf
from roofline.quantization.what_if.after import after_of, layers_of
from roofline.quantization.what_if.left import left_of, notes_of
from roofline.quantization.what_if.parts import bound_of, parts_of
from roofline.quantization.what_if.passes import passes_of
from roofline.quantization.what_if.planning import Plan, plan_of
from roofline.quantization.what_if.records import executed_records
from roofline.quantization.what_if.sizes import layer_byte, model_byte
from roofline.quantization.what_if.steps import steps_of
from roofline.quantization.what_if.widths import Widths
from roofline.workload.operators import OperatorRecord

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
    bound_after_s = sum_known(each.after_bound_s for each in parts if each.name != "requantization")
    layer_before, layer_after = layer_byte(plan)
    model_before, model_after = model_byte(analysis, plan)
    has_kernels = all(each.has_kernel for each in layers)
    return WhatIf(
        policy=policy,
        layers=layers,
        passes=passes,
        parts=parts,
        layer_byte_before=layer_before,
        layer_byte_after=layer_after,
        model_byte_before=model_before,
        model_byte_after=model_after,
        bound_before_s=analysis.totals.bound_s,
        bound_after_s=bound_after_s,
        separate_bound_s=sum_known(
            (bound_after_s, bound_of([each for each in passes if not each.is_separate]))
        ),
        minimum_before=MinTimes(**minimum_times_of(analysis.totals)),
        before=_before(analysis),
        after=after.times.whole if has_kernels else None,
        left=left_of(analysis, plan),
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
