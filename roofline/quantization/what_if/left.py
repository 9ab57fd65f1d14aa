"""What a policy cannot reach, and what a reader of a what-if must know beside its figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofline.analysis import Analysis
from roofline.foundation.dtypes import dtype
from roofline.foundation.text import counted
from roofline.foundation.units import format_bytes
from roofline.latency.predicted import Predicts
from roofline.quantization.policy import FLOAT_BITS
from roofline.quantization.result import BANDWIDTH_ONLY, LayerWhatIf
from roofline.quantization.what_if.after import After
from roofline.quantization.what_if.grouping import KEPT
from roofline.quantization.what_if.planning import Plan
from roofline.quantization.what_if.sizes import kept_bytes, weights_of_others
from roofline.quantization.what_if.widths import INT8
from roofline.workload.operators import State
from roofline.workload.tensors import Role, TensorSpec

_SHOWN = 3
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
    shown = ", ".join(named[:_SHOWN])
    rest = len(named) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown or "the model itself"


def notes_of(
    after: After, layers: Sequence[LayerWhatIf], predictor: Predicts | None
) -> tuple[str, ...]:
    """What to know of the figures of a what-if, one line each.

    Args:
        after: the pass in few bits.
        layers: those of the what-if.
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
