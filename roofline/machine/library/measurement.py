"""Measures what torch reaches here: sizes are chosen, then all jobs run in rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from roofline.foundation.progress import Progress
from roofline.machine.hardware import Bandwidth, ComputeCeiling, MemoryKernel, Overhead
from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.library.arithmetic import arithmetic_subjects
from roofline.machine.library.cpu_time import running_clock
from roofline.machine.library.default_settings import default_settings
from roofline.machine.library.dispatch import dispatch_subjects, region
from roofline.machine.library.jobs import Clock, Job, Timer, batch_seconds
from roofline.machine.library.planning import Planner
from roofline.machine.library.results import (
    bandwidths,
    compute_ceilings,
    outcomes,
    overheads,
    sample_series,
)
from roofline.machine.library.streams import Arena, smallest, stream_subjects
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.samples import Series
from roofline.machine.measuring.schedule import interleave

_PATIENCE = 2.0
"""In times of the budget: after so long, no job gets a second turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFindings:
    """What torch reaches here.

    ``bandwidth`` is by memory level, only of levels that torch can be measured at. ``conditions``
    say in words what is missing and why. ``series`` are the bursts behind it all.
    """

    compute: tuple[ComputeCeiling, ...]
    bandwidth: dict[str, tuple[Bandwidth, ...]]
    overheads: tuple[Overhead, ...]
    conditions: tuple[str, ...]
    series: tuple[Series, ...]


def measure_library(
    *,
    threads: int,
    budget_s: float,
    clock: Clock,
    progress: Progress,
    working_sets: Sequence[WorkingSet] = (),
    thread_clock: Clock = time.thread_time,
    cpu_clock: Clock | None = None,
) -> LibraryFindings:
    """What torch reaches in about `budget_s` seconds, on one thread and on `threads`.

    Args:
        threads: what "all threads" means.
        budget_s: seconds for all timing together.
        clock: wall seconds.
        progress: called with the fraction done, 0 to 1, and what is measured next.
        working_sets: what copy and add go over; memory for the largest is allocated.
        thread_clock: CPU seconds of the calling thread.
        cpu_clock: CPU seconds of this process, all threads together; by default exact ones.

    torch's settings are the defaults meanwhile; they and its number of threads are restored.
    """
    before = torch.get_num_threads()
    try:
        with torch.inference_mode(), default_settings():
            return _measured(
                teams=(1, threads) if threads > 1 else (1,),
                budget_s=budget_s,
                timer=Timer(
                    wall=clock,
                    thread_cpu=thread_clock,
                    team_cpu=lambda: cpu_clock or running_clock(),
                ),
                progress=progress,
                working_sets=working_sets,
            )
    finally:
        torch.set_num_threads(before)


def _measured(
    *,
    teams: tuple[int, ...],
    budget_s: float,
    timer: Timer,
    progress: Progress,
    working_sets: Sequence[WorkingSet],
) -> LibraryFindings:
    begin = timer.wall()
    sets = [each for each in working_sets if each.threads in teams]
    version = torch.__version__

    def report(what: str) -> None:
        progress(min(1.0, (timer.wall() - begin) / budget_s), what)

    report("torch: choosing sizes")
    arithmetic = list(arithmetic_subjects())
    dispatches = list(dispatch_subjects())
    expected = len(arithmetic) * len(teams) + 2 * len(sets) + len(dispatches)
    arena = Arena(sets)
    planner = Planner(timer, budget_s / expected)
    # Switching torch's thread count costs, so all of one count come together, in every round too.
    for team in teams:
        torch.set_num_threads(team)
        overhead_s = _call_overhead(timer, team)
        own = [each for each in sets if each.threads == team]
        streams = stream_subjects(own, arena, overhead_s)
        for subject in (
            *(dispatches if team == 1 else [region(team)]),
            *streams,
            *arithmetic,
        ):
            report(f"torch: choosing the size of {subject.label}")
            planner.add(subject, team)
    deadline = begin + budget_s
    share_s = max(0.0, deadline - timer.wall()) / max(1, len(planner.jobs))

    started: set[str] = set()
    patience = begin + _PATIENCE * budget_s

    def run(job: Job) -> list[Burst]:
        # Where others hold up every call, one burst must do.
        if job.label in started and timer.wall() > patience:
            return []
        started.add(job.label)
        if torch.get_num_threads() != job.threads:
            torch.set_num_threads(job.threads)
        return job.bursts(timer, share_s)

    bursts = interleave(
        planner.jobs,
        run,
        deadline=deadline,
        clock=timer.wall,
        progress=lambda _, job: report(job.label),
    )
    found = outcomes(planner.jobs, bursts)
    return LibraryFindings(
        compute=compute_ceilings(found, version),
        bandwidth=bandwidths(found, version),
        overheads=overheads(found, version),
        conditions=planner.conditions(),
        series=tuple(sample_series(each) for each in found),
    )


def _call_overhead(timer: Timer, threads: int) -> Callable[[MemoryKernel], float]:
    """Seconds that calls of a kernel cost without memory, on torch's present number of threads."""
    if threads == 1:
        return lambda kernel: batch_seconds(smallest(kernel), timer, threads=1)
    (only,) = region(threads).candidates
    seconds = batch_seconds(only.make(), timer, threads=threads)
    return lambda kernel: seconds
