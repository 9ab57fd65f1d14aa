"""How long each kernel runs, and when: bursts of equal length, rounds over all kernels.

Rounds let drift (clock, neighbours on the host) hit all kernels alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Trial = TypeVar("Trial")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rate as far as it is known while the measurement goes on: ``per_s`` flop or byte."""

    what: str
    threads: int
    quantity: Literal["flop", "byte"]
    per_s: float


BURST_S = 0.25e-3
"""Short enough that a burst with a disturbance can be left out, long against the clock's cost."""

CALL_LIMIT_S = 0.05
"""The longest stay in compiled code, which an interrupt has to wait for."""

_ROUNDS = 8
_LEAST_ROUNDS = 3
_LEAST_BURSTS = 4


def repeats_for(run: Callable[[int], float], target_s: float, *, most: int) -> int:
    """How many repeats make a burst of `target_s`: doubled until they take a quarter, then scaled.

    Args:
        run: does that many repeats and returns the seconds they took.
        target_s: wanted seconds per burst.
        most: the largest answer.
    """
    repeats = 1
    while repeats < most:
        took_s = run(repeats)
        if took_s >= target_s / 4:
            return max(1, min(most, math.floor(repeats * target_s / took_s)))
        # Far from the target the last timing is mostly overhead, so the step is bounded.
        step = target_s / 2 / took_s if took_s > 0 else 16.0
        repeats = math.ceil(repeats * max(2.0, min(16.0, step)))
    return most


def bursts_per_call(budget_s: float, trials: int, burst_s: float) -> int:
    """Bursts that each of `trials` trials may take per round to fit all rounds into `budget_s`."""
    call_s = min(budget_s / max(1, trials) / _ROUNDS, CALL_LIMIT_S)
    return max(_LEAST_BURSTS, math.floor(call_s / burst_s))


def interleave(
    trials: Sequence[Trial],
    run: Callable[[Trial], Sequence[Result]],
    *,
    deadline: float,
    clock: Callable[[], float],
    progress: Callable[[float, Trial], None],
) -> list[list[Result]]:
    """Runs all trials once a round, round after round until `deadline`; the results per trial.

    At least three rounds are made, even past the deadline; a round that would end after it is not
    begun.
    """
    results: list[list[Result]] = [[] for _ in trials]
    if not trials:
        return results
    begin = clock()
    rounds = 0
    while True:
        now = clock()
        longest = (now - begin) / rounds if rounds else 0.0
        if rounds >= _LEAST_ROUNDS and now + longest > deadline:
            return results
        span = max(deadline - begin, longest * _LEAST_ROUNDS)
        for index, trial in enumerate(trials):
            done = (clock() - begin) / span if span > 0 else 1.0
            progress(min(1.0, done), trial)
            results[index].extend(run(trial))
        rounds += 1
