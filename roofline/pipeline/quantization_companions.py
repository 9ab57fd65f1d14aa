"""A model really run in the types that torch has kernels for, in turn with itself as it is."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis
from roofline.design.advice.times import Time
from roofline.design.model_comparison.measured_rounds import MeasuredRounds, RoundTime
from roofline.errors import ModelError, RooflineError, said_by
from roofline.foundation.progress import Progress, Say, silent
from roofline.latency.allocator import allocator_here
from roofline.latency.measuring.rounds import Effort
from roofline.pipeline.calibrations import computes_in_bfloat16
from roofline.pipeline.fresh_processes import Runs, fresh_processes
from roofline.pipeline.measured_comparisons import Candidate, this_process
from roofline.pipeline.runs import seeded
from roofline.pipeline.timing import Bench, bench, real_model
from roofline.quantization.policy import FLOAT_BITS, LayerBits, Policy
from roofline.quantization.result import NativeVariant, WhatIf

if TYPE_CHECKING:
    from roofline.quantization.companions import CompanionKind


_EFFORT = Effort(warm_ups=1, least=3, most=15, budget_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPair:
    """Rounds of a model as it is and in a lower precision, and how far apart their outputs are."""

    rounds: tuple[tuple[RoundTime, RoundTime], ...]
    error: float | None


def timed_pair(here: Bench, original: Candidate, kind: CompanionKind, count: int) -> TimedPair:
    """Rounds of a model and of its companion, by turns; runs in a process of its own.

    Raises:
        ModelError: the companion cannot be made, or one of both raised.
    """
    from roofline.latency.measuring.gauges import Gauges
    from roofline.latency.measuring.rounds import run_rounds
    from roofline.latency.measuring.team import team
    from roofline.machine.measuring.pace_gauge import pace_gauge
    from roofline.quantization.companions import companion_of, int8_kernels, relative_error
    from roofline.workload.capture.passes import one_at_a_time
    from roofline.workload.capture.reals import Reals
    from roofline.workload.capture.stage import staged

    cores = here.topology.cores
    run, threads = original.run, original.threads
    # The same weights and the same noise in every process.
    with one_at_a_time, seeded():
        asked = original.workload()
        with (
            staged(real_model(asked), asked.given, run, Reals(run)) as stage,
            int8_kernels(),
            team(threads, cores),
            pace_gauge(cores[:threads]) as pace,
        ):
            other, (args, kwargs) = companion_of(kind, stage.model, (stage.args, stage.kwargs))
            subjects: tuple[Callable[[], Any], ...] = (
                lambda: stage.model(*stage.args, **stage.kwargs),
                lambda: other(*args, **kwargs),
            )
            try:
                error = relative_error(*(subject() for subject in subjects))
                gauges = replace(Gauges(), pace=pace)
                found: list[tuple[RoundTime, RoundTime]] = []
                for _ in range(count):
                    times = run_rounds(subjects, gauges, _EFFORT)
                    clock_hz = times.pace.clock_hz
                    first, second = (
                        RoundTime(times_s=times.times_s(each), clock_hz=clock_hz) for each in (0, 1)
                    )
                    found.append((first, second))
            except (KeyboardInterrupt, RooflineError):
                raise
            except Exception as raised:
                said = said_by(raised) or type(raised).__name__
                raise ModelError(f"it cannot be run: {said[:200]}") from raised
    return TimedPair(rounds=tuple(found), error=error)


DEFAULT_ROUNDS = 7

_BFLOAT16 = Policy(weights=16, activations=16, first_last=16, shortcut="low")
_INT8 = Policy(weights=8, activations=8, first_last=8, shortcut="low", per_channel=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to run a model in lower precision.

    ``name`` is how reports call it, ``bits`` are those of the layers that it changes.
    """

    name: str
    kind: CompanionKind
    bits: LayerBits


_HALF, _EIGHT = LayerBits(weights=16, activations=16), LayerBits(weights=8, activations=8)

WAYS = (
    Way(name="bfloat16", kind="bfloat16", bits=_HALF),
    Way(name="int8 (torch.ao, static)", kind="int8 static", bits=_EIGHT),
    Way(name="int8 (torch.ao, dynamic, linear layers)", kind="int8 dynamic", bits=_EIGHT),
    Way(name="int8 (torchao, dynamic, linear layers)", kind="int8 torchao", bits=_EIGHT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """What was run, in the order of `WAYS`, and what was noticed of the machine meanwhile."""

    found: tuple[NativeVariant, ...]
    conditions: tuple[str, ...] = ()


def companions(
    model: Any,
    inputs: Any = None,
    *,
    analysis: Analysis,
    what_if_of: Callable[[Policy], WhatIf],
    batch: int | None = None,
    seq: int | None = None,
    ways: Sequence[Way] = WAYS,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    processes: Callable[[], AbstractContextManager[Runs]] | None = None,
    on: Callable[..., AbstractContextManager[Bench]] = bench,
) -> Companions:
    """The model in every way that runs here, each timed in turn with it, beside its what-if.

    Every way has a new process, in which the model as it is and the other one are timed by turns;
    a way that fails, or dies, has no times and says why.

    Args:
        rounds: how many rounds; None: 7.
        processes: where models run; None: in new processes, or in this one where the model cannot
            leave it.

    Raises:
        MeasurementError: the machine is busy.
    """
    original = Candidate(
        name=analysis.model,
        model=model,
        inputs=inputs,
        batch=batch,
        seq=seq,
        run=analysis.run,
        threads=analysis.threads,
    )
    stays = processes is None and _stays(original)
    where = processes or (this_process if stays else fresh_processes)
    found: list[NativeVariant] = []
    with on(force=force, say=say or silent, progress=progress) as here, where() as process:
        for place, way in enumerate(ways):
            if progress is not None:
                progress(place / len(ways), way.name)
            policy = policy_of(way, analysis, what_if_of)
            timed: TimedPair | str = _pointless(way, policy, analysis, here)
            if not timed:
                try:
                    count = rounds or DEFAULT_ROUNDS
                    timed = process(timed_pair, here, original, way.kind, count)
                except MemoryError:
                    timed = "it ran out of memory"
                except RooflineError as error:
                    timed = said_by(error) or type(error).__name__
            found.append(_beside(way, timed, lambda policy=policy: what_if_of(policy)))
    notes = (_IN_THIS_PROCESS,) if stays else ()
    return Companions(found=tuple(found), conditions=(*here.conditions, *notes))


_IN_THIS_PROCESS = (
    "measured in this process, not in new ones: the model is defined in __main__ or cannot be"
    " pickled, so that what ran before may matter"
)


def _stays(original: Candidate) -> bool:
    """Whether another process could not load the model."""
    try:
        content = pickle.dumps((original.model, original.inputs))
    # Models may say in any way that they cannot be pickled.
    except Exception:
        return True
    # A new process has a main module of its own.
    return not isinstance(original.model, str) and b"__main__" in content


def _pointless(way: Way, policy: Policy, analysis: Analysis, here: Bench) -> str:
    """Why no process need try a way; ``""``: one is to try."""
    if way.kind == "bfloat16":
        if analysis.run.dtype == "bfloat16":
            return "the model is run in bfloat16 as it is"
        return "" if computes_in_bfloat16(here.profile) else "this CPU does not compute in bfloat16"
    if way.kind != "int8 static" and not policy.layers:
        return "the model has no linear layers"
    if way.kind == "int8 torchao" and not has_torchao():
        return "torchao is not installed: pip install 'roofline[int8]'"
    return ""


def has_torchao() -> bool:
    """Whether torchao could be imported."""
    return importlib.util.find_spec("torchao") is not None


def _beside(way: Way, timed: TimedPair | str, what_if: Callable[[], WhatIf]) -> NativeVariant:
    """What was timed, beside what the what-if says of the same bits."""
    if isinstance(timed, str):
        return NativeVariant(way=way.name, bits=way.bits, why_not=timed)
    predicted = what_if()
    # Of 16 bits the what-if takes the faster type, which need not be the one that ran.
    is_of_way = way.kind != "bfloat16" or all(
        each.executable == "bfloat16" for each in predicted.layers
    )
    measured = MeasuredRounds(rounds=timed.rounds)
    # How many times as long as the companion the original took.
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
        predicted_before_s=_seconds(predicted.before),
        predicted_s=_seconds(predicted.after) if is_of_way else None,
        error=timed.error,
        allocator=allocator_here().name,
    )


def policy_of(way: Way, analysis: Analysis, what_if_of: Callable[[Policy], WhatIf]) -> Policy:
    """The policy whose what-if stands beside a way: all layers, or linear ones alone."""
    if way.kind == "bfloat16":
        return _BFLOAT16
    if way.kind == "int8 static":
        return _INT8
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


def _seconds(time: Time | None) -> float | None:
    return None if time is None else time.s
