"""How long a pass in few bits is predicted to take, as far as torch has kernels for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.analysis import OperatorRow
from roofline.design.advice.times import Time
from roofline.latency.predicted import Predicts
from roofline.latency.prediction import Prediction
from roofline.placement import Pass, Roof
from roofline.quantization.what_if.placing import Farther, placed
from roofline.quantization.what_if.planning import Plan
from roofline.quantization.what_if.records import executed_records
from roofline.quantization.what_if.steps import Step
from roofline.workload.operators import OperatorRecord, State

NO_TIME = Time(s=0.0, low_s=0.0, high_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Predictions of a pass in few bits.

    ``steps`` are those of each step, None where torch has no kernel or nothing was learned of it;
    ``whole`` that of the pass, None where a step has none.
    """

    steps: tuple[Time | None, ...]
    whole: Time | None = None

    @property
    def are_known(self) -> bool:
        """Whether something was predicted."""
        return any(each is not None for each in self.steps)


def times_of(
    steps: Sequence[Step],
    plan: Plan,
    roof: Roof,
    cache: Pass,
    farther: Sequence[Farther],
    predictor: Predicts | None,
) -> Times:
    """Predictions of what torch would run.

    Args:
        steps: the pass in few bits.
        plan: what it was made by.
        roof: the machine's ceilings.
        cache: whether caches hold what the pass before left.
        farther: what each step fetches from farther away than it seems.
        predictor: what was learned on that machine; None: nothing.
    """
    if predictor is None:
        return Times(steps=(None,) * len(steps))
    calls = executed_records(steps, plan)
    # What has no kernel stands for itself: others find the caches as it leaves them.
    run = [each or (step.record,) for each, step in zip(calls, steps, strict=True)]
    all_records = [record for each in run for record in each]
    all_farther = [one for each, one in zip(run, farther, strict=True) for _ in each]
    placements = iter(placed(all_records, roof, cache, all_farther))
    by_step = [[next(placements) for _ in each] for each in run]
    asked = [each for each, known in zip(by_step, calls, strict=True) if known]
    predicted = predictor.predict([one for each in asked for one in each], roof.threads)
    found = iter(predicted.operators or (None,) * sum(map(len, asked)))
    times = tuple(_time(each, [next(found) for _ in each]) if each else None for each in calls)
    whole = predicted.run if all(calls) and None not in times else None
    return Times(
        steps=times,
        whole=Time(s=whole.predicted_s, low_s=whole.low_s, high_s=whole.high_s)
        if whole is not None
        else None,
    )


def total(times: Iterable[Time | None]) -> Time | None:
    """One after the other; None if one of them is unknown. The ends of intervals add up, too."""
    found = tuple(times)
    known = [each for each in found if each is not None]
    if len(known) != len(found):
        return None
    lows = [each.low_s for each in known if each.low_s is not None]
    highs = [each.high_s for each in known if each.high_s is not None]
    return Time(
        s=sum(each.s for each in known),
        low_s=sum(lows) if len(lows) == len(known) else None,
        high_s=sum(highs) if len(highs) == len(known) else None,
    )


def time_of_rows(rows: Iterable[OperatorRow]) -> Time | None:
    """The predictions of operators as they are, added up; None if one of them has none."""
    return total(
        None
        if row.predicted_s is None
        else Time(s=row.predicted_s, low_s=row.predicted_low_s, high_s=row.predicted_high_s)
        for row in rows
        if row.state is not State.FREE
    )


def _time(records: Sequence[OperatorRecord], found: Sequence[Prediction | None]) -> Time | None:
    """The time of the calls of one step; what is free takes none."""
    return total(
        Time(s=each.predicted_s, low_s=each.low_s, high_s=each.high_s) if each else None
        for record, each in zip(records, found, strict=True)
        if record.state is not State.FREE
    )
