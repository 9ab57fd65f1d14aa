"""Timings of a model in the lower precisions of torch's kernels, interleaved with the original."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis
from roofline.core.progress import Progress, Say, silent
from roofline.design.comparison.ratios import MeasuredRounds, RoundTime
from roofline.errors import ModelError, RooflineError, error_text
from roofline.latency.allocator import allocator_here
from roofline.latency.measuring.rounds import Effort
from roofline.pipeline.calibrations import computes_in_bfloat16
from roofline.pipeline.fresh_processes import RunFunction, fresh_processes
from roofline.pipeline.measured_comparisons import (
    IN_THIS_PROCESS,
    Candidate,
    rounds_of,
    this_process,
    unpicklable_candidate,
)
from roofline.pipeline.runs import fixed_seed
from roofline.pipeline.timing import Bench, bench, gauged, materialize_model
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import NativeVariant
from roofline.quantization.sensitivity import EvaluatePolicy
from roofline.run import RunOptions

if TYPE_CHECKING:
    from roofline.quantization.native_variants import VariantKind


_EFFORT = Effort(warm_ups=1, min_rounds=3, max_rounds=15, budget_s=0.5)
DEFAULT_ROUNDS = 7

_BFLOAT16 = Policy(weights=16, activations=16, first_last=16, shortcut="low")
_INT8 = Policy(weights=8, activations=8, first_last=8, shortcut="low", per_channel=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPair:
    """Rounds of a model and its variant, and the relative error of their outputs."""

    rounds: tuple[tuple[RoundTime, ...], ...]
    error: float | None


def time_pair(here: Bench, original: Candidate, kind: VariantKind, count: int) -> TimedPair:
    """Time a model and a variant of it in interleaved rounds; runs in a separate process."""
    from roofline.quantization.native_variants import int8_kernels, make_variant, relative_error
    from roofline.workload.capture.passes import capture_lock
    from roofline.workload.capture.prepared_model import prepare_model
    from roofline.workload.capture.real_tensors import RealTensors

    run = original.run
    # The same weights and the same noise in every process.
    with capture_lock, fixed_seed():
        asked = original.workload()
        with (
            prepare_model(materialize_model(asked), asked.given, run, RealTensors(run)) as stage,
            int8_kernels(),
            gauged(here, original.threads) as gauges,
        ):
            other, (args, kwargs) = make_variant(kind, stage.model, (stage.args, stage.kwargs))
            subjects: tuple[Callable[[], Any], ...] = (
                lambda: stage.model(*stage.args, **stage.kwargs),
                lambda: other(*args, **kwargs),
            )
            try:
                error = relative_error(*(subject() for subject in subjects))
                found = rounds_of(subjects, gauges, _EFFORT, count)
            except (KeyboardInterrupt, RooflineError):
                raise
            except Exception as raised:
                text = error_text(raised) or type(raised).__name__
                raise ModelError(f"the run failed: {text[:200]}") from raised
    return TimedPair(rounds=found, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Way to run a model in lower precision, by its name in reports; ``bits`` of the changed
    layers.
    """

    name: str
    kind: VariantKind
    bits: LayerBits


_HALF, _EIGHT = LayerBits(weights=16, activations=16), LayerBits(weights=8, activations=8)

VARIANTS = (
    Variant(name="bfloat16", kind="bfloat16", bits=_HALF),
    Variant(name="int8 (torch.ao, static)", kind="int8 static", bits=_EIGHT),
    Variant(name="int8 (torch.ao, dynamic, linear layers)", kind="int8 dynamic", bits=_EIGHT),
    Variant(name="int8 (torchao, dynamic, linear layers)", kind="int8 torchao", bits=_EIGHT),
)


def measure_variants(
    model: Any,
    inputs: Any = None,
    *,
    options: RunOptions,
    analysis: Analysis,
    what_if_of: EvaluatePolicy,
    ways: Sequence[Variant] = VARIANTS,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[RunFunction]] | None = None,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> tuple[tuple[NativeVariant, ...], tuple[str, ...]]:
    """Time the model and all available variants, interleaved, next to their what-ifs.

    Each variant runs in a fresh process; failures become reasons in place of times. The second
    result are conditions of the machine.
    """
    original = Candidate(
        name=analysis.model,
        model=model,
        inputs=inputs,
        options=replace(options, threads=analysis.threads),
    )
    stays = "" if processes is not None else unpicklable_candidate([original])
    where = processes or (this_process if stays else fresh_processes)
    found: list[NativeVariant] = []
    with on(force=force, say=say or silent, progress=progress) as here, where() as process:
        for place, way in enumerate(ways):
            if progress is not None:
                progress(place / len(ways), way.name)
            policy = variant_policy(way, analysis, what_if_of)
            timed: TimedPair | str = _skip_reason(way, policy, analysis, here)
            if not timed:
                try:
                    count = rounds or DEFAULT_ROUNDS
                    timed = process(time_pair, here, original, way.kind, count)
                except MemoryError:
                    timed = "out of memory"
                except RooflineError as error:
                    timed = error_text(error) or type(error).__name__
            if isinstance(timed, str):
                found.append(NativeVariant(way=way.name, bits=way.bits, why_not=timed))
            else:
                found.append(_variant_result(way, timed, policy, what_if_of))
    return tuple(found), (*here.conditions, *((IN_THIS_PROCESS.format(stays),) if stays else ()))


def _skip_reason(way: Variant, policy: Policy, analysis: Analysis, here: Bench) -> str:
    """Return the reason to skip a variant; ``""``: measure it."""
    if way.kind == "bfloat16":
        if analysis.run.dtype == "bfloat16":
            return "the original already runs in bfloat16"
        return "" if computes_in_bfloat16(here.profile) else "no bfloat16 arithmetic on this CPU"
    if way.kind != "int8 static" and not policy.layers:
        return "the model has no linear layers"
    if way.kind == "int8 torchao" and not has_torchao():
        return "torchao is not installed: pip install 'roofline[int8]'"
    return ""


def has_torchao() -> bool:
    return importlib.util.find_spec("torchao") is not None


def _variant_result(
    way: Variant, timed: TimedPair, policy: Policy, what_if_of: EvaluatePolicy
) -> NativeVariant:
    what_if = what_if_of(policy)
    # The what-if uses the faster 16-bit type, which may not be the measured one.
    is_of_way = way.kind != "bfloat16" or all(
        each.executable == "bfloat16" for each in what_if.layers
    )
    measured = MeasuredRounds(rounds=timed.rounds)
    # Original time over variant time.
    ratio = measured.ratio(0, 1)
    low, high = ratio.interval or (None, None)
    return NativeVariant(
        way=way.name,
        bits=way.bits,
        before_s=measured.sample(0).median_s,
        after_s=measured.sample(1).median_s,
        speedup=ratio.value,
        speedup_low=low,
        speedup_high=high,
        rounds=len(timed.rounds),
        predicted_before_s=what_if.before.s if what_if.before else None,
        predicted_s=what_if.after.s if what_if.after and is_of_way else None,
        error=timed.error,
        allocator=allocator_here().name,
    )


def variant_policy(way: Variant, analysis: Analysis, what_if_of: EvaluatePolicy) -> Policy:
    """Return the policy of a variant's what-if: all layers, or linear layers only."""
    if way.kind in ("bfloat16", "int8 static"):
        return _BFLOAT16 if way.kind == "bfloat16" else _INT8
    layers = [each.layer for each in what_if_of(_INT8).layers]
    return Policy(
        weights=FLOAT_BITS,
        activations=FLOAT_BITS,
        first_last=FLOAT_BITS,
        layers={
            each.name: way.bits
            for each in layers
            if analysis.operators[each.index].type == "matrix product"
        },
    )
