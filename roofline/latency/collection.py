"""From a measured pass to what is kept of it to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

from roofline.latency.features import facts_of
from roofline.latency.measured import Timed
from roofline.latency.samples import Facts, OperatorSample, Origin, RunSample
from roofline.placement import Placement
from roofline.run import Run
from roofline.workload.operators import State


def run_sample(
    placements: Sequence[Placement],
    timed: Timed,
    *,
    model: str,
    family: str,
    origin: Origin,
    run: Run,
    dtype: str,
    batch: int | None,
    threads: int,
) -> RunSample:
    """What is kept of a pass; calls with equal facts are kept together.

    Args:
        placements: the operators, placed under the machine's roof.
        timed: how long each took, and the whole.
        model: its name.
        family: its kin.
        origin: the command that measured it.
        run: how it was run.
        dtype: the type that it mostly computed in.
        batch: the first size of its inputs; None: not known.
        threads: how many computed.
    """
    alike: dict[Facts, list[int]] = {}
    free: list[int] = []
    for place, each in enumerate(placements):
        if each.record.state is State.FREE:
            free.append(place)
        else:
            alike.setdefault(facts_of(each, threads), []).append(place)
    samples = timed.operators
    return RunSample(
        model=model,
        family=family,
        origin=origin,
        date=timed.run.date,
        batch=batch,
        dtype=dtype,
        threads=threads,
        channels_last=run.channels_last,
        train=run.train,
        end_to_end_s=timed.run.measured_s,
        end_to_end_iqr_s=timed.run.end_to_end.iqr_s,
        operators_s=sum(each.median_s for each in samples),
        free_s=sum(samples[place].median_s for place in free),
        free_calls=len(free),
        calls=len(samples),
        page_faults=timed.run.page_faults,
        clock_hz=timed.run.clock_hz,
        core_to_core_latency_s=timed.run.core_to_core_latency_s,
        operators=tuple(
            OperatorSample(
                facts=facts,
                calls=len(places),
                time_s=median(samples[place].median_s for place in places),
                iqr_s=median(samples[place].iqr_s for place in places),
                page_faults=mean(timed.page_faults[place] for place in places),
            )
            for facts, places in alike.items()
        ),
    )
