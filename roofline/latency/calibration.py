"""Calibration of a machine: times of operators and dispatch overhead, learned from its runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.core.rows import grouped
from roofline.core.text import counted
from roofline.core.units import format_si
from roofline.latency.calibration_set import DESIGN
from roofline.latency.learning import Z_80, Example, GroupModel
from roofline.latency.prediction import Prediction, RunPrediction
from roofline.latency.prediction_cache import PredictionCache, cached
from roofline.latency.samples import (
    INT8,
    EarlierRun,
    OperatorFeatures,
    OperatorSample,
    RunSample,
    earlier_run,
)
from roofline.machine.core_state import CoreState, median_core_state

if TYPE_CHECKING:
    from roofline.latency.generic import GenericCpu

_ERROR_CORRELATION = 0.5
"""Correlation of the errors of operators in one model, which the same libraries ran."""

_MIN_RUNS = 4
"""Held-out runs from which an error is estimated."""

_MIN_COVERAGE = 0.95
"""Share of a run's time that must be predicted for the run to count as held out."""

_MIN_INTERVAL_FACTOR = 0.1
"""Smallest factor on the intervals that operators' deviations give."""

_MIN_SHARE = 0.3
"""Smallest share of a time that is left without its page faults, counted in another pass."""

_MIN_POOLED = 20
"""Examples of other groups from which a group without samples is extrapolated."""

_MIN_CALLS = 20
"""Calls in one type on one number of threads below which only these calls are predicted: a layer
that was profiled once predicts no other size."""

_FEW_FAMILIES = 12
"""Families of models from which a machine needs no prior; `calibrate --quick` measures nine."""

_POOLED = "every group"

_Key = tuple[str, str, int]
"""Group, type and threads of calls that one model is fitted to."""


def _key(features: OperatorFeatures) -> _Key:
    return features.group, features.dtype, features.threads


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRun:
    """A run and its prediction from other families; both times exclude page faults."""

    run: RunSample
    measured_s: float
    predicted_s: float
    deviation: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1


class Calibration:
    """Predicts operators and runs from runs measured on the same machine.

    The family ``without`` is left out, for validation. Page faults of a run depend on the state of
    the allocator, so times are learned without them. ``runs`` may be a function that reads them; it
    is called for values that `cache` lacks. Runs of few families correct `prior`, if any.
    """

    def __init__(
        self,
        runs: Iterable[RunSample] | Callable[[], Iterable[RunSample]],
        *,
        without: str | None = None,
        page_fault_s: Mapping[int, float] | None = None,
        cache: PredictionCache | None = None,
        prior: GenericCpu | None = None,
    ) -> None:
        self._given = runs
        self.prior = prior
        self._without = without
        self.page_fault_s = dict(page_fault_s or {})
        self.cache = cache or PredictionCache()
        self._models: dict[_Key, GroupModel | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        # The other process may be on a machine without the file.
        runs = self.runs
        return {**vars(self), "_given": runs}

    @cached_property
    def runs(self) -> tuple[RunSample, ...]:
        """Runs of inference outside the family that is left out."""
        given = self._given() if callable(self._given) else self._given
        # Training calls operators of the same names on tensors that are kept.
        return tuple(each for each in given if each.family != self._without and not each.train)

    @property
    @cached
    def has_runs(self) -> bool:
        """True if there are runs to learn from."""
        return bool(self.runs)

    @cached_property
    def _examples(self) -> dict[_Key, list[Example]]:
        """Examples by group, type and threads; calls with equal features in a family are merged."""
        times: dict[tuple[str, OperatorFeatures, float], list[float]] = {}
        for run in self.runs:
            core_to_core = self._core_to_core(run.core_state, run.threads)
            slowdown = run.core_state.slowdown(self.core_state)
            for each in run.operators:
                time_s = self._settled_s(each, run.threads) / slowdown
                times.setdefault((run.family, each.facts, core_to_core), []).append(time_s)
        examples = (
            Example(
                facts=features, family=family, time_s=median(seconds), core_to_core=core_to_core
            )
            for (family, features, core_to_core), seconds in times.items()
        )
        return grouped(examples, lambda each: _key(each.facts))

    @cached_property
    @cached
    def core_state(self) -> CoreState:
        """Median core clock state of the runs, for which predictions are made by default."""
        clock_hz = median_core_state(each.core_state for each in self.runs).clock_hz
        several = median_core_state(each.core_state for each in self.runs if each.threads > 1)
        return CoreState(clock_hz=clock_hz, core_to_core_latency_s=several.core_to_core_latency_s)

    def _core_to_core(self, core_state: CoreState, threads: int) -> float:
        """Return the core-to-core latency as in `Example`, rounded to half an octave."""
        usual_s = self.core_state.core_to_core_latency_s
        if threads == 1 or usual_s is None:
            return 0.0
        return round(2 * math.log2((core_state.core_to_core_latency_s or usual_s) / 1e-9)) / 2

    def examples(self, group: str, dtype: str, threads: int) -> Sequence[Example]:
        """Return the examples of a group of operators in one type on one number of threads."""
        return self._examples.get((group, dtype, threads), [])

    def group_model(self, group: str, dtype: str, threads: int) -> GroupModel | None:
        """Return the model fitted to a group of operators; None without samples."""
        key = (group, dtype, threads)
        if key not in self._models:
            is_pooled = group == _POOLED
            examples = self.examples(*key)
            if is_pooled:
                examples = [
                    example
                    for (_, of, on), each in self._examples.items()
                    if on == threads and (of == dtype or not dtype)
                    for example in each
                ]
            # A few calls of one group predict no other group.
            if len(examples) < (_MIN_POOLED if is_pooled else 1):
                self._models[key] = None
            else:
                has_prior = self.prior and self.uses_prior and dtype in self.prior.types
                prior_s = self.prior.seconds if self.prior and has_prior else None
                self._models[key] = GroupModel(examples, is_pooled=is_pooled, prior_s=prior_s)
        return self._models[key]

    @property
    @cached
    def uses_prior(self) -> bool:
        """True if the runs are of too few families to learn from them alone."""
        families = {each.family for each in self.runs if each.family != DESIGN}
        return self.prior is not None and len(families) < _FEW_FAMILIES

    def _is_known(self, features: OperatorFeatures) -> bool:
        """Return True if this call was measured, or enough others of its type and threads.

        Any number of others corrects a prior.
        """
        # Operators on indices take the same time whatever the floating type of the model.
        dtype = features.dtype if _is_computed_in(features.dtype) else ""
        known = self._measured_calls.get((dtype, features.threads), set[OperatorFeatures]())
        if self.prior and self.uses_prior and features.dtype in self.prior.types:
            return features in known or self.prior.covers(features)
        return len(known) >= _MIN_CALLS or features in known

    @cached_property
    def _measured_calls(self) -> dict[tuple[str, int], set[OperatorFeatures]]:
        """Measured calls by type and threads; under ``""`` those of all types."""
        found: dict[tuple[str, int], set[OperatorFeatures]] = {}
        for (_, dtype, threads), examples in self._examples.items():
            for of in (dtype, ""):
                found.setdefault((of, threads), set()).update(each.facts for each in examples)
        return found

    def predict(
        self, features: Sequence[OperatorFeatures], core_state: CoreState | None = None
    ) -> list[Prediction | None]:
        """Return predictions of operators; None where only the minimum time is known.

        A group without samples is predicted from all groups. A type or a number of threads with
        few measured calls is not predicted, except for these calls.
        """
        at = core_state or self.core_state
        slowdown = at.slowdown(self.core_state)
        unique = tuple(dict.fromkeys(features))
        predictions = self._at_usual_clock(unique, self._core_to_core(at, 2))
        found = {
            each: replace(
                known,
                predicted_s=known.predicted_s * slowdown,
                low_s=known.low_s * slowdown,
                high_s=known.high_s * slowdown,
            )
            for each, known in zip(unique, predictions, strict=True)
            if known is not None
        }
        return [found.get(each) for each in features]

    @cached
    def _at_usual_clock(
        self, features: tuple[OperatorFeatures, ...], core_to_core: float
    ) -> tuple[Prediction | None, ...]:
        """Return predictions of unique operators at a core-to-core latency as in `Example`."""
        found: dict[OperatorFeatures, Prediction] = {}
        groups = grouped(filter(self._is_known, features), _key)
        for (group, dtype, threads), chosen in groups.items():
            model = self.group_model(group, dtype, threads)
            if model is None and (dtype, threads) in self._measured_calls:
                model = self.group_model(_POOLED, dtype, threads)
            if model is None and not _is_computed_in(dtype):
                model = self.group_model(_POOLED, "", threads)
            if model is None:
                continue
            predicted = model.predict(chosen, core_to_core if threads > 1 else 0.0)
            found.update(zip(chosen, predicted, strict=True))
        if self.prior and self.uses_prior:
            unmeasured = (each for each in features if each not in found)
            found |= {e: self.prior.prediction(e) for e in unmeasured if self.prior.covers(e)}
        return tuple(map(found.get, features))

    def time_ratios(
        self,
        features: Sequence[OperatorFeatures],
        since: Sequence[CoreState],
        core_state: CoreState | None = None,
    ) -> list[float]:
        """Return time at `core_state` / time at the clock state in `since`, for each operator."""
        at = core_state or self.core_state
        found = [at.slowdown(each) for each in since]
        by_latency: dict[float, list[int]] = {}
        for place, (each, then) in enumerate(zip(features, since, strict=True)):
            latency_s = then.core_to_core_latency_s
            is_same = self._core_to_core(then, each.threads) == self._core_to_core(at, each.threads)
            if latency_s is not None and not is_same:
                by_latency.setdefault(latency_s, []).append(place)
        for latency_s, places in by_latency.items():
            chosen = [features[place] for place in places]
            before = self.predict(chosen, replace(at, core_to_core_latency_s=latency_s))
            now = self.predict(chosen, at)
            for place, one, other in zip(places, before, now, strict=True):
                if one is not None and other is not None:
                    found[place] *= other.predicted_s / one.predicted_s
        return found

    def predict_run(
        self,
        features: Sequence[OperatorFeatures],
        predictions: Sequence[Prediction],
        *,
        calls: int,
        core_state: CoreState | None = None,
    ) -> RunPrediction:
        """Return the prediction of a pass without page faults, from those of its operators.

        ``calls`` includes free operators. Without a clock in `core_state`, the interval covers the
        clock states of all runs.
        """
        is_clock_known = core_state is not None and core_state.clock_hz is not None
        threads = features[0].threads
        overhead_s = self.overhead_s(threads, calls=calls, core_state=core_state)
        operators_s = sum(each.predicted_s for each in predictions)
        predicted_s = operators_s + overhead_s
        deviation_s = _deviation([(each.predicted_s, each.deviation) for each in predictions])
        deviation_s *= self.interval_factor if is_clock_known else self.usual_interval_factor
        if self.prior and self.uses_prior:
            # Few families remove the host's part of the error, about half the variance.
            most_s = self.prior.pass_deviation * predicted_s
            deviation_s = max(deviation_s, most_s / math.sqrt(2))
            if len(self._held_out_models) < _MIN_RUNS:
                deviation_s = min(deviation_s, most_s)
        factor = math.exp(Z_80 * deviation_s / predicted_s)
        return RunPrediction(
            predicted_s=predicted_s,
            low_s=predicted_s / factor,
            high_s=predicted_s * factor,
            operators_s=operators_s,
            overhead_s=overhead_s,
            calibration=self.description,
            held_out_error=self._error_of(features),
        )

    @cached
    def earlier_run(
        self, features: tuple[OperatorFeatures, ...], *, channels_last: bool, train: bool
    ) -> EarlierRun | None:
        """Return the last run of the same calls with the same settings, if any."""
        return earlier_run(self.runs, features, channels_last=channels_last, train=train)

    @cached_property
    @cached
    def description(self) -> str:
        """Calibration data in words: operators, models, families, dates, clock; and the prior."""
        if not self.runs and self.prior:
            return self.prior.description
        models = {each.model: each.family for each in self.runs if each.family != DESIGN}
        families = len(set(models.values()))
        calls = sum(len(each.operators) for each in self.runs)
        days = sorted({each.date[:10] for each in self.runs})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        count = len(models)
        designs = len({each.model for each in self.runs if each.family == DESIGN})
        and_designs = f" and {designs} designs" if designs else ""
        at = f" at {format_si(self.core_state.clock_hz, 'Hz')}" if self.core_state.clock_hz else ""
        prior = f", with the {self.prior.description}" if self.prior and self.uses_prior else ""
        return (
            f"{calls} operators of {counted(count, 'model')} of"
            f" {counted(families, 'family', 'families')}{and_designs}, measured {when}{at}{prior}"
        )

    @property
    def _held_out_models(self) -> list[HeldOutRun]:
        return [each for each in self.held_out if each.run.family != DESIGN]

    @property
    def held_out_error(self) -> float | None:
        """Leave-one-family-out MAPE of whole models, a fraction; None: too few runs."""
        judged = self._held_out_models
        return _mean_error(judged) if len(judged) >= _MIN_RUNS else None

    def _error_of(self, features: Sequence[OperatorFeatures]) -> float | None:
        """Return `held_out_error` of models of the same type and threads."""
        types = Counter(each.dtype for each in features if _is_computed_in(each.dtype))
        return self._error_like(features[0].threads, types.most_common(1)[0][0] if types else "")

    @cached
    def _error_like(self, *like: object) -> float | None:
        """Return `held_out_error` of models of that number of threads and type."""
        models = self._held_out_models
        judged = [each for each in models if (each.run.threads, each.run.dtype) == like]
        return _mean_error(judged) if len(judged) >= _MIN_RUNS else self.held_out_error

    @cached_property
    @cached
    def interval_factor(self) -> float:
        """Factor on intervals with which they contain 80 % of held-out models."""
        return self._interval_factor(lambda each: each.predicted_s)

    @cached_property
    @cached
    def usual_interval_factor(self) -> float:
        """The same for an unknown core clock state."""
        return self._interval_factor(
            lambda each: each.predicted_s / each.run.core_state.slowdown(self.core_state)
        )

    def _interval_factor(self, predicted_s: Callable[[HeldOutRun], float]) -> float:
        judged = self._held_out_models
        scores = [
            abs(math.log(each.measured_s / predicted_s(each))) / each.deviation
            for each in (judged if len(judged) >= _MIN_RUNS else self.held_out)
        ]
        if len(scores) < _MIN_RUNS:
            return 1.0
        return max(_MIN_INTERVAL_FACTOR, float(np.quantile(scores, 0.8)) / Z_80)

    @cached_property
    def held_out(self) -> tuple[HeldOutRun, ...]:
        """Runs of which nearly all can be predicted without their family, at their clock state."""
        left_out: dict[tuple[str, OperatorFeatures, float], tuple[float, float]] = {}
        for group, dtype, threads in self._examples:
            model = self.group_model(group, dtype, threads)
            for example, predicted_s, deviation in model.leave_one_out if model is not None else ():
                call = example.family, example.facts, example.core_to_core
                left_out[call] = (
                    predicted_s,
                    deviation * (model.interval_factor if model is not None else 1.0),
                )
        found: list[HeldOutRun] = []
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
            if not known or known_s < _MIN_COVERAGE * working_s:
                continue
            overhead_s = self.overhead_s(run.threads, calls=run.calls, core_state=run.core_state)
            # The small rest, of families without others, counts as measured.
            predicted_s = sum(time_s for time_s, _ in known) + (working_s - known_s) + overhead_s
            found.append(
                HeldOutRun(
                    run=run,
                    measured_s=self._end_to_end_s(run),
                    predicted_s=predicted_s,
                    deviation=_deviation(known) / predicted_s,
                )
            )
        return tuple(found)

    def _settled_s(self, sample: OperatorSample, threads: int) -> float:
        """Return the time of an operator without its page faults, in seconds."""
        faults_s = sample.page_faults * self.page_fault_s.get(threads, 0.0)
        return max(sample.time_s - faults_s, _MIN_SHARE * sample.time_s)

    def _end_to_end_s(self, run: RunSample) -> float:
        """Return the time of a run without its page faults, in seconds."""
        faults_s = run.page_faults * self.page_fault_s.get(run.threads, 0.0)
        return max(run.end_to_end_s - faults_s, _MIN_SHARE * run.end_to_end_s)

    def _working_s(self, run: RunSample) -> float:
        """Return the time of a run's operators without their page faults, in seconds."""
        return sum(each.calls * self._settled_s(each, run.threads) for each in run.operators)

    def overhead_s(self, threads: int, *, calls: int, core_state: CoreState | None = None) -> float:
        """Return the dispatch overhead in seconds: of a pass, and of each call."""
        if self.prior and not self.runs:
            return calls * self.prior.overhead_s
        per_call_s, per_pass_s = self._overhead_on(threads)
        slowdown = (core_state or self.core_state).slowdown(self.core_state)
        return slowdown * (per_pass_s + per_call_s * calls)

    @cached
    def _overhead_on(self, threads: int) -> tuple[float, float]:
        runs = [each for each in self.runs if each.threads == threads]
        return _overhead(
            [each.calls for each in runs],
            [self._end_to_end_s(each) for each in runs],
            [self._working_s(each) for each in runs],
            [each.core_state.slowdown(self.core_state) for each in runs],
        )


def _mean_error(judged: Sequence[HeldOutRun]) -> float:
    return sum(abs(each.error) for each in judged) / len(judged)


def _overhead(
    calls: Sequence[int],
    passes_s: Sequence[float],
    operators_s: Sequence[float],
    slowdowns: Sequence[float],
) -> tuple[float, float]:
    """Return seconds per call and per pass, at least 0, fitted to the time between operators."""
    if not calls:
        return 0.0, 0.0
    rows = np.asarray([(each, 1.0) for each in calls])
    gaps = (np.asarray(passes_s) - np.asarray(operators_s)) / np.asarray(slowdowns)
    # Relative errors: in seconds, long runs would outweigh all others.
    weights = np.asarray(slowdowns) / np.asarray(passes_s)
    best, least = (0.0, 0.0), math.inf
    # As few terms as possible; if all runs have as many calls, calls rather than passes.
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
    """Return the deviation in seconds of a sum of times, each with a relative deviation."""
    correlated = sum(time_s * by for time_s, by in parts) ** 2
    independent = sum((time_s * by) ** 2 for time_s, by in parts)
    return math.sqrt(_ERROR_CORRELATION * correlated + (1 - _ERROR_CORRELATION) * independent)


def _is_computed_in(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype or dtype == INT8
