"""What was learned on a machine: the times of operators, and of what runs between them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from roofline.core.rows import grouped
from roofline.core.text import counted
from roofline.core.units import format_si
from roofline.latency.answers import Answers, remembered
from roofline.latency.calibration_set import DESIGN
from roofline.latency.learning import Z_80, Example, Kind
from roofline.latency.prediction import Prediction, RunPrediction
from roofline.latency.samples import (
    INT8,
    EarlierRun,
    Facts,
    OperatorSample,
    RunSample,
    earlier_run,
)
from roofline.machine.core_state import CoreState, median_core_state

_TOGETHER = 0.5
"""The correlation of the errors of operators in one model: the same libraries ran them."""

_LEAST_RUNS = 4
"""Held-out runs from which an error is estimated."""

_NEARLY_ALL = 0.95
"""Of a run's time, what must be predicted for the run to count as held out."""

_LEAST_SPREAD = 0.1
"""An interval is never taken to be narrower than this share of what operators say."""

_LEAST_SHARE = 0.3
"""Of a time, what is left of it at least when its page faults are taken out: they were counted in
another pass."""

_LEAST_POOLED = 20
"""Examples of other kinds from which a kind that was never measured is extrapolated."""

_LEAST_KNOWN = 20
"""Examples in one type on one number of threads up to which only these very calls are predicted: a
layer that was profiled once says nothing of other sizes."""

_POOLED = "every group"

_Key = tuple[str, str, int]
"""The group, type and threads of calls that are learned from together."""


def _key(facts: Facts) -> _Key:
    return facts.group, facts.dtype, facts.threads


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A run that was predicted without its family; both times are without page faults."""

    run: RunSample
    measured_s: float
    predicted_s: float
    deviation: float

    @property
    def error(self) -> float:
        """Predicted over measured time, less one."""
        return self.predicted_s / self.measured_s - 1


class Calibration:
    """Predicts operators and runs from runs that were measured on the same machine.

    The family ``without`` is left out, because it is to be judged on. Which runs have page faults
    depends on the state of the allocator in their process, so times are learned without them.
    A function that reads ``runs`` is called when they are needed for more than `answers` has.
    """

    def __init__(
        self,
        runs: Iterable[RunSample] | Callable[[], Iterable[RunSample]],
        *,
        without: str | None = None,
        page_fault_s: Mapping[int, float] | None = None,
        answers: Answers | None = None,
    ) -> None:
        self._given = runs
        self._without = without
        self.page_fault_s = dict(page_fault_s or {})
        self.answers = answers or Answers()
        self._kinds: dict[_Key, Kind | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Another process may be on a machine that has no such file.
        runs = self.runs
        return {**vars(self), "_given": runs}

    @cached_property
    def runs(self) -> tuple[RunSample, ...]:
        """The runs that it learns from."""
        given = self._given() if callable(self._given) else self._given
        # A step of training calls operators of the same names on tensors that are kept.
        return tuple(each for each in given if each.family != self._without and not each.train)

    @property
    @remembered
    def has_runs(self) -> bool:
        """Return whether it learns from any."""
        return bool(self.runs)

    @cached_property
    def _examples(self) -> dict[_Key, list[Example]]:
        """Examples by group, type and threads: calls with equal facts in a family are one."""
        times: dict[tuple[str, Facts, float], list[float]] = {}
        for run in self.runs:
            core_to_core = self._core_to_core(run.core_state, run.threads)
            slowdown = run.core_state.slowdown(self.core_state)
            for each in run.operators:
                time_s = self._settled_s(each, run.threads) / slowdown
                times.setdefault((run.family, each.facts, core_to_core), []).append(time_s)
        examples = (
            Example(facts=facts, family=family, time_s=median(seconds), core_to_core=core_to_core)
            for (family, facts, core_to_core), seconds in times.items()
        )
        return grouped(examples, lambda each: _key(each.facts))

    @cached_property
    @remembered
    def core_state(self) -> CoreState:
        """The usual core state: predictions are for it where no other is asked for."""
        every = median_core_state(each.core_state for each in self.runs)
        teams = median_core_state(each.core_state for each in self.runs if each.threads > 1)
        latency_s = teams.core_to_core_latency_s
        return CoreState(clock_hz=every.clock_hz, core_to_core_latency_s=latency_s)

    def _core_to_core(self, core_state: CoreState, threads: int) -> float:
        """Return the core-to-core latency as in `Example`, in half octaves; unknown: the median."""
        usual_s = self.core_state.core_to_core_latency_s
        if threads == 1 or usual_s is None:
            return 0.0
        return round(2 * math.log2((core_state.core_to_core_latency_s or usual_s) / 1e-9)) / 2

    def examples(self, group: str, dtype: str, threads: int) -> Sequence[Example]:
        """The examples of a group of operators, in one type on so many threads."""
        return self._examples.get((group, dtype, threads), [])

    def kind(self, group: str, dtype: str, threads: int) -> Kind | None:
        """What was learned of a group of operators; None where there is no sample of it."""
        key = (group, dtype, threads)
        if key not in self._kinds:
            is_pooled = group == _POOLED
            examples = self.examples(*key)
            if is_pooled:
                examples = [
                    example
                    for (_, of, on), each in self._examples.items()
                    if on == threads and (of == dtype or not dtype)
                    for example in each
                ]
            # A few calls of one kind say nothing of all others.
            is_enough = len(examples) >= (_LEAST_POOLED if is_pooled else 1)
            self._kinds[key] = Kind(examples, is_pooled=is_pooled) if is_enough else None
        return self._kinds[key]

    def _is_known(self, facts: Facts) -> bool:
        """Whether enough was measured to say something of this call, or it was measured itself."""
        # Indices are moved alike whatever numbers they belong to.
        dtype = facts.dtype if _is_computed_in(facts.dtype) else ""
        known = self._known.get((dtype, facts.threads), set[Facts]())
        return len(known) >= _LEAST_KNOWN or facts in known

    @cached_property
    def _known(self) -> dict[tuple[str, int], set[Facts]]:
        """The calls that were measured, by type and threads; of all types together under ``""``."""
        found: dict[tuple[str, int], set[Facts]] = {}
        for (_, dtype, threads), examples in self._examples.items():
            for of in (dtype, ""):
                found.setdefault((of, threads), set()).update(each.facts for each in examples)
        return found

    def predict(
        self, facts: Sequence[Facts], core_state: CoreState | None = None
    ) -> list[Prediction | None]:
        """Predictions of operators; None where only a bound is known.

        A group that was never measured is predicted from all groups together; a type or a number
        of threads of which less than a few calls were measured is not, but for these calls.
        """
        at = core_state or self.core_state
        slowdown = at.slowdown(self.core_state)
        asked = tuple(dict.fromkeys(facts))
        answers = self._at_usual_clock(asked, self._core_to_core(at, 2))
        found = {
            each: replace(
                known,
                predicted_s=known.predicted_s * slowdown,
                low_s=known.low_s * slowdown,
                high_s=known.high_s * slowdown,
            )
            for each, known in zip(asked, answers, strict=True)
            if known is not None
        }
        return [found.get(each) for each in facts]

    @remembered
    def _at_usual_clock(
        self, facts: tuple[Facts, ...], core_to_core: float
    ) -> tuple[Prediction | None, ...]:
        """Predictions of different operators at a core-to-core latency as in examples."""
        found: dict[Facts, Prediction] = {}
        kinds = grouped(filter(self._is_known, facts), _key)
        for (group, dtype, threads), chosen in kinds.items():
            kind = self.kind(group, dtype, threads)
            is_known = (dtype, threads) in self._known
            if kind is None and (is_known or not _is_computed_in(dtype)):
                kind = self.kind(_POOLED, dtype if is_known else "", threads)
            if kind is None:
                continue
            answers = kind.predict(chosen, core_to_core if threads > 1 else 0.0)
            found.update(zip(chosen, answers, strict=True))
        return tuple(map(found.get, facts))

    def changes(
        self,
        facts: Sequence[Facts],
        since: Sequence[CoreState],
        core_state: CoreState | None = None,
    ) -> list[float]:
        """How many times as long calls take as they took at the core state ``since``."""
        at = core_state or self.core_state
        found = [at.slowdown(each) for each in since]
        apart: dict[float, list[int]] = {}
        for place, (each, then) in enumerate(zip(facts, since, strict=True)):
            latency_s = then.core_to_core_latency_s
            is_same = self._core_to_core(then, each.threads) == self._core_to_core(at, each.threads)
            if latency_s is not None and not is_same:
                apart.setdefault(latency_s, []).append(place)
        for latency_s, places in apart.items():
            chosen = [facts[place] for place in places]
            before = self.predict(chosen, replace(at, core_to_core_latency_s=latency_s))
            now = self.predict(chosen, at)
            for place, one, other in zip(places, before, now, strict=True):
                if one is not None and other is not None:
                    found[place] *= other.predicted_s / one.predicted_s
        return found

    def predict_run(
        self,
        facts: Sequence[Facts],
        predictions: Sequence[Prediction],
        *,
        calls: int,
        core_state: CoreState | None = None,
    ) -> RunPrediction:
        """A whole pass without page faults, from the predictions of its operators that work.

        ``calls`` counts free ones too. Without a core state, the interval allows for any that the
        machine had when it was measured.
        """
        # A clock that could not be read is as good as none.
        is_told = core_state is not None and core_state.clock_hz is not None
        threads = facts[0].threads
        overhead_s = self.overhead_s(threads, calls=calls, core_state=core_state)
        operators_s = sum(each.predicted_s for each in predictions)
        predicted_s = operators_s + overhead_s
        deviation_s = _deviation([(each.predicted_s, each.deviation) for each in predictions])
        deviation_s *= self.spread if is_told else self.usual_spread
        factor = math.exp(Z_80 * deviation_s / predicted_s)
        return RunPrediction(
            predicted_s=predicted_s,
            low_s=predicted_s / factor,
            high_s=predicted_s * factor,
            operators_s=operators_s,
            overhead_s=overhead_s,
            calibration=self.said,
            held_out_error=self._error_of(facts),
        )

    @remembered
    def earlier_run(
        self, facts: tuple[Facts, ...], *, channels_last: bool, train: bool
    ) -> EarlierRun | None:
        """Return the last run that made the same calls in the same way; None: there is none."""
        return earlier_run(self.runs, facts, channels_last=channels_last, train=train)

    @cached_property
    @remembered
    def said(self) -> str:
        """What it was learned from, in words."""
        models = {each.model: each.family for each in self.runs if each.family != DESIGN}
        families = len(set(models.values()))
        calls = sum(len(each.operators) for each in self.runs)
        days = sorted({each.date[:10] for each in self.runs})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        count = len(models)
        designs = len({each.model for each in self.runs if each.family == DESIGN})
        beside = f" and {designs} designs" if designs else ""
        at = f" at {format_si(self.core_state.clock_hz, 'Hz')}" if self.core_state.clock_hz else ""
        return (
            f"{calls} operators of {counted(count, 'model')} of {families}"
            f" famil{'y' if families == 1 else 'ies'}{beside},"
            f" measured {when}{at}"
        )

    @property
    def _held_out_models(self) -> list[HeldOut]:
        return [each for each in self.held_out if each.run.family != DESIGN]

    @property
    def held_out_error(self) -> float | None:
        """The mean error of models predicted without their family, a fraction; None: too few."""
        judged = self._held_out_models
        return _mean_error(judged) if len(judged) >= _LEAST_RUNS else None

    def _error_of(self, facts: Sequence[Facts]) -> float | None:
        """As `held_out_error`, of models like the one with these facts: of its type and threads."""
        types = Counter(each.dtype for each in facts if _is_computed_in(each.dtype))
        return self._error_like(facts[0].threads, types.most_common(1)[0][0] if types else "")

    @remembered
    def _error_like(self, *like: object) -> float | None:
        """The same, of models of that number of threads and type."""
        models = self._held_out_models
        judged = [each for each in models if (each.run.threads, each.run.dtype) == like]
        return _mean_error(judged) if len(judged) >= _LEAST_RUNS else self.held_out_error

    @cached_property
    @remembered
    def spread(self) -> float:
        """How much wider than operators say an interval must be to hold 80 % of held-out models."""
        return self._spread(lambda each: each.predicted_s)

    @cached_property
    @remembered
    def usual_spread(self) -> float:
        """The same where nobody knows how fast the cores will run."""
        now = self.core_state
        return self._spread(lambda each: each.predicted_s / each.run.core_state.slowdown(now))

    def _spread(self, predicted_s: Callable[[HeldOut], float]) -> float:
        judged = self._held_out_models
        scores = [
            abs(math.log(each.measured_s / predicted_s(each))) / each.deviation
            for each in (judged if len(judged) >= _LEAST_RUNS else self.held_out)
        ]
        if len(scores) < _LEAST_RUNS:
            return 1.0
        return max(_LEAST_SPREAD, float(np.quantile(scores, 0.8)) / Z_80)

    @cached_property
    def held_out(self) -> tuple[HeldOut, ...]:
        """Every run predictable, at its own core state, without its family."""
        left_out: dict[tuple[str, Facts, float], tuple[float, float]] = {}
        for group, dtype, threads in self._examples:
            kind = self.kind(group, dtype, threads)
            for example, predicted_s, deviation in kind.left_out if kind is not None else ():
                call = example.family, example.facts, example.core_to_core
                left_out[call] = predicted_s, deviation * (kind.spread if kind is not None else 1.0)
        found: list[HeldOut] = []
        for run in self.runs:
            known: list[tuple[float, float]] = []
            known_s = 0.0
            core_to_core = self._core_to_core(run.core_state, run.threads)
            slowdown = run.core_state.slowdown(self.core_state)
            for each in run.operators:
                predicted = left_out.get((run.family, each.facts, core_to_core))
                if predicted is not None:
                    known_s += each.calls * self._settled_s(each, run.threads)
                    known += [(predicted[0] * slowdown, predicted[1])] * each.calls
            working_s = self._working_s(run)
            if not known or known_s < _NEARLY_ALL * working_s:
                continue
            overhead_s = self.overhead_s(run.threads, calls=run.calls, core_state=run.core_state)
            # What cannot be left out counts as measured: it is a small part.
            predicted_s = sum(time_s for time_s, _ in known) + (working_s - known_s) + overhead_s
            found.append(
                HeldOut(
                    run=run,
                    measured_s=self._end_to_end_s(run),
                    predicted_s=predicted_s,
                    deviation=_deviation(known) / predicted_s,
                )
            )
        return tuple(found)

    def _settled_s(self, sample: OperatorSample, threads: int) -> float:
        """The time of an operator without its page faults."""
        faults_s = sample.page_faults * self.page_fault_s.get(threads, 0.0)
        return max(sample.time_s - faults_s, _LEAST_SHARE * sample.time_s)

    def _end_to_end_s(self, run: RunSample) -> float:
        """The time of a run without its page faults."""
        faults_s = run.page_faults * self.page_fault_s.get(run.threads, 0.0)
        return max(run.end_to_end_s - faults_s, _LEAST_SHARE * run.end_to_end_s)

    def _working_s(self, run: RunSample) -> float:
        """The sum of the operators of a run that do something, without their page faults."""
        return sum(each.calls * self._settled_s(each, run.threads) for each in run.operators)

    def overhead_s(self, threads: int, *, calls: int, core_state: CoreState | None = None) -> float:
        """What runs between operators, in seconds: the pass itself, and calls."""
        per_call_s, per_pass_s = self._overhead_on(threads)
        slowdown = (core_state or self.core_state).slowdown(self.core_state)
        return slowdown * (per_pass_s + per_call_s * calls)

    @remembered
    def _overhead_on(self, threads: int) -> tuple[float, float]:
        runs = [each for each in self.runs if each.threads == threads]
        return _overhead(
            [each.calls for each in runs],
            [self._end_to_end_s(each) for each in runs],
            [self._working_s(each) for each in runs],
            [each.core_state.slowdown(self.core_state) for each in runs],
        )


def _mean_error(judged: Sequence[HeldOut]) -> float:
    return sum(abs(each.error) for each in judged) / len(judged)


def _overhead(
    calls: Sequence[int],
    passes_s: Sequence[float],
    operators_s: Sequence[float],
    slowdowns: Sequence[float],
) -> tuple[float, float]:
    """Seconds per call and per pass, none below 0, that explain what operators do not, at the
    median core state."""
    if not calls:
        return 0.0, 0.0
    rows = np.asarray([(each, 1.0) for each in calls])
    gaps = (np.asarray(passes_s) - np.asarray(operators_s)) / np.asarray(slowdowns)
    # A share of the run counts, not seconds: long runs would outweigh all others.
    weights = np.asarray(slowdowns) / np.asarray(passes_s)
    best, least = (0.0, 0.0), math.inf
    # As few of them as do; where all runs have as many calls, those rather than passes.
    negligible = 1e-18 * float(((gaps * weights) ** 2).sum())
    for columns in ((0,), (1,), (0, 1)):
        chosen = rows[:, list(columns)] * weights[:, None]
        if not chosen.any(axis=0).all():
            continue
        solution = np.linalg.lstsq(chosen, gaps * weights, rcond=None)[0]
        error = float(((chosen @ solution - gaps * weights) ** 2).sum())
        if (solution >= 0).all() and error < least - negligible:
            found = dict(zip(columns, map(float, solution), strict=True))
            best, least = (found.get(0, 0.0), found.get(1, 0.0)), error
    return best


def _deviation(parts: Sequence[tuple[float, float]]) -> float:
    """The deviation of a sum of times in seconds, each with its own relative one."""
    together = sum(time_s * by for time_s, by in parts) ** 2
    apart = sum((time_s * by) ** 2 for time_s, by in parts)
    return math.sqrt(_TOGETHER * together + (1 - _TOGETHER) * apart)


def _is_computed_in(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype or dtype == INT8
