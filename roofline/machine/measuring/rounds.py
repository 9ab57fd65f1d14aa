"""Interleaved rounds over all trials, then optional continuous runs; the same for CPU and GPU."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from roofline.core.progress import Progress
from roofline.core.units import format_percent
from roofline.machine.hardware import Overhead
from roofline.machine.measuring.core_placement import (
    CorePlacement,
    core_to_core_overhead,
    drift,
    find_core_placement,
    placement_condition,
)
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

_HEAT = 0.03
"""Slowdown of continuous runs above which it is reported."""


class RoundsTrial(Protocol):
    """A trial for rounds, with calibrated bursts.

    ``label`` is used in progress, conditions and samples, ``name`` (without threads) in findings.
    ``work_per_burst`` is of all threads; ``most_bursts`` limits the bursts of a call (None: no
    limit).
    """

    @property
    def label(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def quantity(self) -> Literal["flop", "byte", "cycle"]: ...
    @property
    def work_per_burst(self) -> float: ...
    @property
    def burst_s(self) -> float: ...
    @property
    def most_bursts(self) -> int | None: ...


T = TypeVar("T", bound=RoundsTrial)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Generic[T]):
    """A figure to be measured, with one trial for each kernel variant; the fastest counts.

    ``kind`` is equal for candidates that differ only in threads, so that they share a calibration.
    ``initial_doubt`` is an initial doubt.
    """

    trials: tuple[T, ...]
    kind: str
    initial_doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRate(Generic[T]):
    """The faster variant of a kernel and its rate, with the peak of all variants.

    ``other`` is the rate of the other variant (None: none); ``moved``: the host moved its CPUs.
    """

    trial: T
    rate: Estimate
    other: Estimate | None = None
    initial_doubt: str = ""
    moved: bool = False


def fastest_variant(
    forms: Sequence[tuple[T, Estimate]], initial_doubt: str = "", *, moved: bool = False
) -> KernelRate[T]:
    """Return the variant with the highest sustained rate, with the peak of all variants."""
    (trial, rate), *others = sorted(forms, key=lambda form: -form[1].sustained)
    rate = dataclasses.replace(rate, peak=max(each.peak for _, each in forms))
    other = others[0][1] if others else None
    return KernelRate(trial=trial, rate=rate, other=other, initial_doubt=initial_doubt, moved=moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Generic[T]):
    """Result of the rounds: a figure per candidate, the bursts, and conditions.

    Trials without a finished burst have no series. ``usual_bursts`` are those of each trial in the
    more frequent CPU placement.
    """

    rates: tuple[KernelRate[T], ...]
    series: tuple[Series, ...] = ()
    usual_bursts: tuple[tuple[T, Sequence[Burst]], ...] = ()
    overheads: tuple[Overhead, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Call:
    """Bursts of one call, and the core-to-core latency just before; None: not needed."""

    bursts: Sequence[Burst]
    core_to_core_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner(Generic[T]):
    """Execution of trials: ``run`` makes a number of bursts.

    ``core_to_core`` measures the core-to-core latency (None: one thread, or a GPU). The time is
    divided into ``rounds``, each with at least ``least_bursts`` of a trial.
    """

    run: Callable[[T, int], Sequence[Burst]]
    clock: Callable[[], float]
    report: Progress
    found: Callable[[Finding], None]
    core_to_core: Callable[[], float | None] | None = None
    rounds: int = 8
    least_bursts: int = 4

    def bursts(self, trial: T, wanted: int) -> Sequence[Burst]:
        return self.run(trial, min(wanted, trial.most_bursts or wanted))

    def report_rate(self, trial: T, bursts: Sequence[Burst]) -> None:
        """Report the rate of bursts, except that of the clock."""
        if bursts and trial.quantity != "cycle":
            rate = estimate(trial.work_per_burst, bursts)
            self.found(
                Finding(
                    what=trial.name,
                    threads=trial.threads,
                    quantity=trial.quantity,
                    per_s=rate.sustained,
                )
            )


def run_rounds(
    candidates: Sequence[Candidate[T]], runner: Runner[T], *, deadline: float
) -> Rounds[T]:
    """Run all trials of all candidates, interleaved, until `deadline` by the runner's clock.

    The core-to-core latency is measured before each multi-threaded memory trial.
    """
    trials = [trial for candidate in candidates for trial in candidate.trials]
    budget_s = deadline - runner.clock()

    def call(trial: T) -> list[_Call]:
        moves_data = trial.threads > 1 and trial.quantity == "byte"
        core_to_core_s = (
            runner.core_to_core() or math.nan if runner.core_to_core and moves_data else None
        )
        wanted = bursts_per_call(
            budget_s, len(trials), trial.burst_s, rounds=runner.rounds, least=runner.least_bursts
        )
        bursts = runner.bursts(trial, wanted)
        runner.report_rate(trial, bursts)
        return [_Call(bursts, core_to_core_s)]

    calls = interleave(
        trials,
        call,
        deadline=deadline,
        clock=runner.clock,
        progress=lambda done, trial: runner.report(done, trial.label),
    )
    where = find_core_placement(
        [each.core_to_core_s for of in calls for each in of if each.core_to_core_s is not None]
    )
    by_trial = list(zip(trials, calls, strict=True))
    forms = iter(by_trial)
    rates: list[KernelRate[T]] = []
    missing: list[str] = []
    for candidate in candidates:
        timed = [
            (trial, _rate(trial, of, where))
            for trial, of in [next(forms) for _ in candidate.trials]
            if _bursts(of)
        ]
        if timed:
            moved = where.moved and timed[0][0].threads > 1
            rates.append(fastest_variant(timed, candidate.initial_doubt, moved=moved))
        else:
            missing.append(candidate.trials[0].label)
    overhead = core_to_core_overhead(where)
    return Rounds(
        rates=tuple(rates),
        series=tuple(
            Series(
                label=trial.label,
                quantity=trial.quantity,
                work=trial.work_per_burst,
                bursts=tuple(_bursts(of)),
                core_to_core_s=tuple(
                    each.core_to_core_s
                    for each in of
                    for _ in each.bursts
                    if each.core_to_core_s is not None
                ),
                usual_range_s=(where.low_s, where.high_s),
            )
            for trial, of in by_trial
            if _bursts(of)
        ),
        usual_bursts=tuple((trial, _settled(of, where)) for trial, of in by_trial),
        overheads=(overhead,) if overhead else (),
        conditions=(
            *([f"not measured, no finished burst: {', '.join(missing)}"] if missing else []),
            *([placement_condition(where)] if where.moved else []),
        ),
    )


def _bursts(calls: Iterable[_Call]) -> list[Burst]:
    return [burst for call in calls for burst in call.bursts]


def _settled(calls: Sequence[_Call], where: CorePlacement) -> list[Burst]:
    return _bursts(
        each for each in calls if each.core_to_core_s is None or where.is_usual(each.core_to_core_s)
    )


def _rate(trial: RoundsTrial, calls: Sequence[_Call], where: CorePlacement) -> Estimate:
    """Return the sustained rate of the usual placement, and the peak of all placements."""
    every, usual_bursts = _bursts(calls), _settled(calls, where)
    rate = estimate(trial.work_per_burst, every)
    if not usual_bursts or len(usual_bursts) == len(every):
        return rate
    mostly = estimate(trial.work_per_burst, usual_bursts)
    return dataclasses.replace(
        mostly, peak=max(rate.peak, mostly.peak), bursts=rate.bursts, disturbed=rate.disturbed
    )


def run_continuously(
    rates: Sequence[KernelRate[T]], runner: Runner[T], *, continuous_s: float
) -> Rounds[T]:
    """Run each kernel continuously for `continuous_s`, for its sustained rate on a warm machine.

    The peak is that of rounds and continuous run.
    """
    warm: list[KernelRate[T]] = []
    series: list[Series] = []
    slower: list[str] = []
    for number, each in enumerate(rates):
        trial, cold = each.trial, each.rate
        label = f"{trial.label}, continuous"
        runner.report(number / len(rates), label)
        bursts: list[Burst] = []
        begin = runner.clock()
        while runner.clock() - begin < continuous_s:
            bursts += runner.bursts(trial, max(1, round(CALL_LIMIT_S / trial.burst_s)))
        if not bursts:
            warm.append(each)
            continue
        runner.report_rate(trial, bursts)
        work = trial.work_per_burst
        rate = estimate(work, bursts)
        series.append(Series(label=label, quantity=trial.quantity, work=work, bursts=tuple(bursts)))
        if rate.sustained < (1 - _HEAT) * cold.sustained:
            share = 1 - rate.sustained / cold.sustained
            slower.append(f"{trial.label} by {format_percent(share)}")
        together = dataclasses.replace(
            rate,
            peak=max(cold.peak, rate.peak),
            bursts=cold.bursts + rate.bursts,
            disturbed=cold.disturbed + rate.disturbed,
        )
        warm.append(dataclasses.replace(each, rate=together))
    heat = f"heat: slower in continuous runs of {continuous_s:g} s: {'; '.join(slower)}"
    return Rounds(rates=tuple(warm), series=tuple(series), conditions=(heat,) if slower else ())


_DRIFTS = {
    "two phases": "kernels with two phases of different speed",
    "slowed down": "kernels that slowed down (heat, lower clock, other guests)",
    "sped up": "kernels that sped up (higher clock, fewer other guests)",
}


def drift_conditions(usual_bursts: Iterable[tuple[str, float, Sequence[Burst]]]) -> list[str]:
    """Return notes on drift; input: place, work per burst, and bursts of each trial."""
    about: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    for place, work, bursts in usual_bursts:
        totals[place] = totals.get(place, 0) + 1
        found = drift([work / burst.wall_s for burst in bursts if burst.is_clean])
        if found:
            places = about.setdefault(_DRIFTS[found], {})
            places[place] = places.get(place, 0) + 1
    return [
        f"{what}: {', '.join(f'{n} of {totals[place]} in {place}' for place, n in places.items())}"
        for what, places in about.items()
    ]
