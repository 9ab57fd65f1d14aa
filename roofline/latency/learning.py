"""Learns from samples of one kind of operators how long another call of that kind takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np
from numpy.typing import NDArray

from roofline.latency.prediction import Prediction
from roofline.latency.regression import Array, GaussianProcess, Kernel
from roofline.latency.samples import Facts

_SCALE = 8.0
"""Octaves of a size over which efficiency goes on being alike."""

_HOP_SCALE = 8.0
"""The same of the way from core to core."""

_AMPLITUDE, _SLOPE, _OFFSET, _NOISE = 0.5, 0.2, 1.0, 0.15
"""Of the logarithm of time over bound: see benchmarks/predictors.md for others that were tried."""

_APART = 4.0
"""What another variant or layout adds to the squared distance, in scales."""

_CALL_S = 1e-6
"""What any call takes: times of small operators are held against this rather than a bound of 0."""

_MOST = 3000
"""Samples of one kind; the cost of learning grows with their third power."""

_FAR_OCTAVES = 4.0
"""Farther from every sample, a prediction is an extrapolation."""

Z_80 = 1.2815515655446004
"""Standard deviations around the mean of a normal distribution that hold 80 % of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Calls with the same facts, in the models of one family: their median time in seconds.

    ``hop`` is the binary logarithm of the nanoseconds from core to core; 0 where one core computed,
    or where it is not known.
    """

    facts: Facts
    family: str
    time_s: float
    calls: int
    hop: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What would be said of an example without all examples of its family."""

    example: Example
    predicted_s: float
    deviation: float


class Kind:
    """All examples of one group of operators in one data type on one number of threads.

    Args:
        examples: at least one.
        is_pooled: they are of several groups, so that only what all groups have in common counts.
    """

    def __init__(self, examples: Sequence[Example], *, is_pooled: bool = False) -> None:
        step = -(-len(examples) // _MOST)
        self.examples = tuple(examples[::step])
        self._is_pooled = is_pooled
        self._labels: dict[tuple[int, str], int] = {}
        self.variants = Counter(
            f"{each.facts.group} {each.facts.variant}" for each in self.examples
        )

    @cached_property
    def _process(self) -> GaussianProcess:
        facts = [each.facts for each in self.examples]
        values = np.log([each.time_s for each in self.examples]) - np.log(_floor_s(facts))
        numbers = self._numbers(facts, [each.hop for each in self.examples])
        kernel = Kernel(
            scales=(*(_SCALE,) * (numbers.shape[1] - 1), _HOP_SCALE),
            apart=(_APART, _APART / 4),
            amplitude=_AMPLITUDE,
            slope=_SLOPE,
            offset=_OFFSET,
            noise=_NOISE,
        )
        return GaussianProcess(kernel, numbers, self._codes(facts), values)

    @cached_property
    def spread(self) -> float:
        """How much wider than it says its interval must be to hold 80 % of what was left out."""
        scores = [
            abs(np.log(each.example.time_s / each.predicted_s)) / each.deviation
            for each in self.left_out
        ]
        # Of a single family nothing can be left out; then it is taken at its word.
        return max(0.5, float(np.quantile(scores, 0.8)) / Z_80) if scores else 1.0

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Every example, predicted without its family; empty where there is only one."""
        families = [each.family for each in self.examples]
        if len(set(families)) < 2:
            return ()
        mean, deviation = self._process.left_out(families)
        predicted_s = np.exp(mean) * _floor_s([each.facts for each in self.examples])
        return tuple(
            LeftOut(example=example, predicted_s=float(time_s), deviation=float(deviates))
            for example, time_s, deviates in zip(self.examples, predicted_s, deviation, strict=True)
        )

    def predict(
        self, facts: Sequence[Facts], hops: Sequence[float] | None = None
    ) -> list[tuple[Prediction, float]]:
        """Predictions for `facts`, with the relative standard deviation that each is given.

        Args:
            facts: of calls.
            hops: as in examples, one for each; None: 0.
        """
        hops = [0.0] * len(facts) if hops is None else hops
        numbers = self._numbers(facts, hops)
        mean, deviation, nearest = self._process.predict(numbers, self._codes(facts))
        times_s = np.exp(mean) * _floor_s(facts)
        wide = np.exp(Z_80 * deviation * self.spread)
        known = self._numbers([each.facts for each in self.examples], [0.0] * len(self.examples))
        # Its distance is that of sizes; where the cores are is no property of a call.
        octaves = np.sqrt(((numbers - known[nearest])[:, :-1] ** 2).sum(axis=1))
        found: list[tuple[Prediction, float]] = []
        for position, each in enumerate(facts):
            samples = self.variants[f"{each.group} {each.variant}"]
            time_s, factor = float(times_s[position]), float(wide[position])
            found.append(
                (
                    Prediction(
                        predicted_s=time_s,
                        low_s=time_s / factor,
                        high_s=time_s * factor,
                        samples=samples or len(self.examples),
                        distance=float(octaves[position]),
                        is_extrapolated=not samples
                        or self._is_pooled
                        or float(octaves[position]) > _FAR_OCTAVES,
                    ),
                    float(deviation[position]) * self.spread,
                )
            )
        return found

    def _numbers(self, facts: Sequence[Facts], hops: Sequence[float]) -> Array:
        shared = [
            (*each.numbers[-SHARED:], float(np.log2(each.bound_s + _CALL_S)), hop)
            for each, hop in zip(facts, hops, strict=True)
        ]
        if self._is_pooled:
            return np.asarray(shared)
        rows = [(*each.numbers[:-SHARED], *more) for each, more in zip(facts, shared, strict=True)]
        return np.asarray(rows)

    def _codes(self, facts: Sequence[Facts]) -> NDArray[np.int64]:
        def code(column: int, label: str) -> int:
            return self._labels.setdefault((column, label), len(self._labels))

        return np.asarray(
            [(code(0, f"{each.group} {each.variant}"), code(1, each.layout)) for each in facts]
        )


SHARED = 7
"""How many of the numbers of facts, the last ones, mean the same in every group."""


def _floor_s(facts: Sequence[Facts]) -> Array:
    return np.asarray([each.bound_s + _CALL_S for each in facts])


def together(times_s: Sequence[float]) -> float:
    """One time for calls that are alike."""
    return median(times_s)
