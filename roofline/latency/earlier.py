"""An earlier measurement of the same pass, found among the runs that were kept of a machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from roofline.latency.samples import Facts, Origin, RunSample


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """What a pass of the same operators took when it was last measured on the same machine.

    ``measured_s`` is the median of whole passes in seconds, ``iqr_s`` their interquartile range (0
    where there was one); ``date`` is ISO 8601, ``origin`` the command that measured it, ``model``
    what it was called.

    Raises:
        ValueError: no time, or no spread.
    """

    measured_s: float
    iqr_s: float
    date: str
    origin: Origin
    model: str

    def __post_init__(self) -> None:
        if not 0 < self.measured_s < math.inf:
            raise ValueError(f"measured_s must be a finite number above 0, got {self.measured_s}")
        if not 0 <= self.iqr_s < math.inf:
            raise ValueError(f"iqr_s must be a finite number from 0, got {self.iqr_s}")


def earlier_run(
    runs: Sequence[RunSample], facts: Sequence[Facts], *, channels_last: bool, train: bool
) -> EarlierRun | None:
    """The last of `runs` that made the same calls in the same way; None: there is none.

    What a model is called does not count, and neither do bounds and the levels that bytes come
    from: a machine whose profile was measured anew is the same machine.

    Args:
        runs: those of one machine and one environment, the last one last.
        facts: of each call that does something, on so many threads as they say.
        channels_last: how the model was run.
        train: whether that was a step of training.
    """
    asked = Counter(map(_computed, facts))
    if not asked:
        return None
    for run in reversed(runs):
        is_alike = (
            run.calls - run.free_calls == len(facts)
            and run.threads == facts[0].threads
            and run.channels_last == channels_last
            and run.train == train
        )
        if is_alike and _makes(run, asked):
            return EarlierRun(
                measured_s=run.end_to_end_s,
                iqr_s=run.end_to_end_iqr_s,
                date=run.date,
                origin=run.origin,
                model=run.model,
            )
    return None


def _makes(run: RunSample, asked: Counter[Hashable]) -> bool:
    """Whether the calls of a run are those that are asked for, as many times each."""
    left = dict(asked)
    for each in run.operators:
        what = _computed(each.facts)
        # Of thousands of runs nearly all differ in the first call already.
        if left.get(what, 0) < each.calls:
            return False
        left[what] -= each.calls
    return not any(left.values())


def _computed(facts: Facts) -> Hashable:
    """What a call computes, without what the profile of the machine says of it."""
    numbers = facts.numbers
    sizes = (*numbers[: _OF_LEVELS.start], *numbers[_OF_LEVELS.stop :])
    return facts.group, facts.variant, facts.dtype, facts.layout, facts.threads, sizes


_OF_LEVELS = slice(-3, -1)
"""Of the numbers of facts (`roofline.latency.features`), the bytes from memory and from a cache:
they depend on how large a profile says that the caches are."""
