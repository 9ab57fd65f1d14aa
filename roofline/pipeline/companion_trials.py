"""A model and the same in lower precision, timed by turns in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofline.design.model_comparison.measured_rounds import RoundTime
from roofline.errors import ModelError, RooflineError, said_by
from roofline.latency.measuring.rounds import Effort
from roofline.pipeline.timing import Bench, real_model
from roofline.pipeline.workloads import workload_of
from roofline.workload.runs import Run

if TYPE_CHECKING:
    from roofline.quantization.modules.companions import CompanionKind

_EFFORT = Effort(warm_ups=1, least=3, most=15, budget_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """The model that all are held against: what `analyze` took, and how it is run."""

    model: Any
    inputs: Any
    batch: int | None
    seq: int | None
    run: Run
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPair:
    """Rounds of a model as it is and in a lower precision, and how far apart their outputs are."""

    rounds: tuple[tuple[RoundTime, RoundTime], ...]
    error: float | None


def timed_pair(here: Bench, original: Original, kind: CompanionKind, count: int) -> TimedPair:
    """Rounds of a model and of its companion, by turns; runs in a process of its own.

    Raises:
        ModelError: the companion cannot be made, or one of both raised.
    """
    import torch

    from roofline.latency.measuring.gauges import Gauges
    from roofline.latency.measuring.rounds import run_rounds
    from roofline.latency.measuring.team import team
    from roofline.machine.measuring.pace_gauge import pace_gauge
    from roofline.quantization.modules.companions import (
        companion_of,
        int8_kernels,
        relative_error,
    )
    from roofline.workload.capture.passes import one_at_a_time
    from roofline.workload.capture.reals import Reals
    from roofline.workload.capture.stage import staged

    cores = here.topology.cores
    run, threads = original.run, original.threads
    with one_at_a_time, torch.random.fork_rng(devices=[]):
        # The same weights and the same noise in every process.
        torch.manual_seed(0)
        asked = workload_of(
            original.model, original.inputs, run=run, batch=original.batch, seq=original.seq
        )
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
