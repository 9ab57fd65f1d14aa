"""Candidates to figures: rounds over all trials, then, if there is time, a stretch of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from roofline.foundation.progress import Progress
from roofline.foundation.units import format_percent
from roofline.machine.hardware import Overhead
from roofline.machine.measuring.ceilings import Reached, faster
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.estimation import (
    CALL_LIMIT_S,
    Burst,
    Estimate,
    Finding,
    Series,
    bursts_per_call,
    estimate,
    interleave,
)
from roofline.machine.measuring.proximity import (
    HopTimer,
    Proximity,
    drift,
    hop_overhead,
    proximity,
    proximity_condition,
)
from roofline.machine.measuring.selection import Candidate
from roofline.machine.measuring.trials import Trial

Clock = Callable[[], float]

Found = Callable[[Finding], None]

_HEAT = 0.03
"""Fraction by which a kernel on end may be slower than in rounds before it is worth a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """What the rounds found: a figure a candidate, the bursts, and what was noticed, in words.

    What never finished a burst has no series; where that leaves a candidate without a figure, the
    conditions say so.
    """

    reached: tuple[Reached, ...]
    series: tuple[Series, ...]
    overheads: tuple[Overhead, ...] = ()
    conditions: tuple[str, ...]


def run_rounds(
    candidates: Sequence[Candidate],
    crew: Crew,
    hop: HopTimer | None,
    *,
    deadline: float,
    clock: Clock,
    report: Progress,
    found: Found,
) -> Rounds:
    """Runs all trials of all candidates in turn until `deadline` by `clock`.

    `hop` is timed before whatever moves data on several threads, to tell where their CPUs are;
    None: there is only one thread.
    """
    trials = [trial for candidate in candidates for trial in candidate.trials]
    budget_s = deadline - clock()

    def run(trial: Trial) -> list[_Call]:
        moves = trial.threads > 1 and trial.working_set is not None
        core_to_core_latency_s = hop(crew) or math.nan if hop is not None and moves else None
        bursts = bursts_per_call(budget_s, len(trials), trial.burst_s)
        done = trial.run(crew, min(bursts, trial.most_bursts or bursts))
        _tell(trial, done, found)
        return [_Call(bursts=done, core_to_core_latency_s=core_to_core_latency_s)]

    calls = interleave(
        trials,
        run,
        deadline=deadline,
        clock=clock,
        progress=lambda done, trial: report(done, trial.label),
    )
    hops_s = [
        call.core_to_core_latency_s
        for each in calls
        for call in each
        if call.core_to_core_latency_s is not None
    ]
    where = proximity(hops_s)
    by_trial = list(zip(trials, calls, strict=True))
    forms = iter(by_trial)
    reached: list[Reached] = []
    missing: list[str] = []
    for candidate in candidates:
        timed = [
            (trial, rate)
            for trial, each in [next(forms) for _ in candidate.trials]
            if (rate := _rate(trial, each, where))
        ]
        if timed:
            several = timed[0][0].threads > 1
            moved = where.moved and several
            reached.append(faster(timed, candidate.reservation, moved=moved))
        else:
            missing.append(candidate.trials[0].label)
    return Rounds(
        reached=tuple(reached),
        series=tuple(_with_hops(trial, each, where) for trial, each in by_trial if _bursts(each)),
        overheads=tuple(filter(None, [hop_overhead(where)])),
        conditions=(
            *([f"left out: no burst was finished of {', '.join(missing)}"] if missing else []),
            *([proximity_condition(where)] if where.moved else []),
            *_drifts((trial, _settled(each, where)) for trial, each in by_trial),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The bursts of one stay in a kernel, and how long a hop took just before; None: no matter."""

    bursts: list[Burst]
    core_to_core_latency_s: float | None


def _bursts(calls: Sequence[_Call]) -> list[Burst]:
    return [burst for call in calls for burst in call.bursts]


def _settled(calls: Sequence[_Call], where: Proximity) -> list[Burst]:
    """The bursts while the CPUs were where they mostly were."""
    return _bursts(
        [
            each
            for each in calls
            if each.core_to_core_latency_s is None or where.prevails(each.core_to_core_latency_s)
        ]
    )


def _rate(trial: Trial, calls: Sequence[_Call], where: Proximity) -> Estimate | None:
    """Sustained where the CPUs mostly were, and the peak wherever they were; None: no burst."""
    every, settled = _bursts(calls), _settled(calls, where)
    if not every:
        return None
    rate = estimate(trial.work_per_burst, every)
    if not settled or len(settled) == len(every):
        return rate
    mostly = estimate(trial.work_per_burst, settled)
    return dataclasses.replace(
        rate,
        peak=max(rate.peak, mostly.peak),
        sustained=mostly.sustained,
        spread=mostly.spread,
        only_disturbed=mostly.only_disturbed,
    )


def _series(trial: Trial, bursts: Sequence[Burst], how: str = "") -> Series:
    return Series(
        label=f"{trial.label}{how}",
        quantity=trial.quantity,
        work=trial.work_per_burst,
        bursts=tuple(bursts),
    )


def _with_hops(trial: Trial, calls: Sequence[_Call], where: Proximity) -> Series:
    series = _series(trial, _bursts(calls))
    hops_s = [
        each.core_to_core_latency_s
        for each in calls
        for _ in each.bursts
        if each.core_to_core_latency_s is not None
    ]
    bounds_s = (where.low_s, where.high_s)
    return dataclasses.replace(series, hops_s=tuple(hops_s), mostly_s=bounds_s)


def run_stretches(
    reached: Sequence[Reached],
    crew: Crew,
    *,
    stretch_s: float,
    clock: Clock,
    report: Progress,
    found: Found,
) -> Rounds:
    """Runs each kernel on end for `stretch_s`: what it sustains once the machine is warm.

    The peak is the higher of both ways to run it, the sustained rate that of the stretch.
    """
    warm: list[Reached] = []
    series: list[Series] = []
    slower: list[str] = []
    for number, each in enumerate(reached):
        trial = each.trial
        report(number / len(reached), f"{trial.label}, on end")
        bursts = _stretch(trial, crew, stretch_s, clock)
        if not bursts:
            warm.append(each)
            continue
        rate = estimate(trial.work_per_burst, bursts)
        _tell(trial, bursts, found)
        series.append(_series(trial, bursts, ", on end"))
        if rate.sustained < (1 - _HEAT) * each.rate.sustained:
            share = 1 - rate.sustained / each.rate.sustained
            slower.append(f"{trial.label} by {format_percent(share)}")
        warm.append(dataclasses.replace(each, rate=_together(each.rate, rate)))
    conditions = (
        (f"heat: slower on end for {stretch_s:g} s than in rounds: {'; '.join(slower)}",)
        if slower
        else ()
    )
    return Rounds(reached=tuple(warm), series=tuple(series), conditions=conditions)


def _stretch(trial: Trial, crew: Crew, stretch_s: float, clock: Clock) -> list[Burst]:
    bursts: list[Burst] = []
    begin = clock()
    wanted = max(1, round(CALL_LIMIT_S / trial.burst_s))
    while clock() - begin < stretch_s:
        bursts += trial.run(crew, min(wanted, trial.most_bursts or wanted))
    return bursts


def _together(rounds: Estimate, stretch: Estimate) -> Estimate:
    return dataclasses.replace(
        stretch,
        peak=max(rounds.peak, stretch.peak),
        bursts=rounds.bursts + stretch.bursts,
        disturbed=rounds.disturbed + stretch.disturbed,
    )


def _tell(trial: Trial, bursts: Sequence[Burst], found: Found) -> None:
    if not bursts or trial.quantity == "cycle":
        return
    rate = estimate(trial.work_per_burst, bursts)
    found(
        Finding(
            what=trial.name,
            threads=trial.threads,
            quantity=trial.quantity,
            per_s=rate.sustained,
        )
    )


def _drifts(by_trial: Iterable[tuple[Trial, Sequence[Burst]]]) -> list[str]:
    """What changed while it was measured: each sentence once, with where it is true."""
    about: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for trial, bursts in by_trial:
        totals[trial.place] = totals.get(trial.place, 0) + 1
        work = trial.work_per_burst
        said = drift([work / burst.wall_s for burst in bursts if burst.is_clean])
        if said:
            places = about.setdefault(_KINDS[said.partition(":")[0]], {})
            places[trial.place] = places.get(trial.place, 0) + 1
    return [
        f"{what}: {', '.join(f'{n} of {totals[place]} in {place}' for place, n in places.items())}"
        for what, places in about.items()
    ]


_KINDS = {
    "two phases": "kernels that ran faster and slower for a while each",
    "slowed down": "kernels that ran slower towards the end (heat, a falling clock, neighbours)",
    "sped up": "kernels that ran faster towards the end (a rising clock, neighbours that left)",
}
