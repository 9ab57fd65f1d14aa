"""Learns from samples of one kind of operators how long another call of that kind takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofline.core.rows import grouped
from roofline.latency.prediction import Prediction
from roofline.latency.samples import Facts

# Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): chapter 2 for
# prediction, 5.4.2 for what is left out.

Array = NDArray[np.float64]

_JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How alike two samples are taken to be.

    ``scales`` are the lengths of numbers over which values go on being alike; ``apart`` is what two
    labels that differ add to the squared distance, one for each kind of label. ``amplitude`` is the
    standard deviation of what is smooth in that sense, ``slope`` that of a linear trend in each
    number over its scale, ``offset`` that of the mean, ``noise`` that of a sample. They are of the
    logarithm of time over bound: see benchmarks/predictors.md for others that were tried.
    """

    scales: tuple[float, ...]
    apart: tuple[float, ...]
    amplitude: float = 0.5
    slope: float = 0.2
    offset: float = 1.0
    noise: float = 0.15


class GaussianProcess:
    """What is known of values after some samples of them, each with numbers and labels.

    Of labels, only whether they are equal counts.
    """

    def __init__(
        self, kernel: Kernel, numbers: Array, labels: NDArray[np.int64], values: Array
    ) -> None:
        self.kernel = kernel
        self._scaled = numbers / np.asarray(kernel.scales)
        self._middle = self._scaled.mean(axis=0)
        self._labels = labels
        self._values = values
        self._mean = float(np.median(values))

    @cached_property
    def _inverse(self) -> Array:
        covariance = self._covariance(self._scaled, self._labels)[0]
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise**2 + _JITTER
        factor = np.linalg.inv(np.linalg.cholesky(covariance))
        return factor.T @ factor

    @cached_property
    def _answers(self) -> Array:
        return self._inverse @ (self._values - self._mean)

    def predict(
        self, numbers: Array, labels: NDArray[np.int64]
    ) -> tuple[Array, Array, NDArray[np.int64]]:
        """Means, their standard deviations, and which sample is the nearest to each."""
        scaled = numbers / np.asarray(self.kernel.scales)
        cross, squared = self._covariance(scaled, labels)
        mean = self._mean + cross @ self._answers
        kernel = self.kernel
        prior = kernel.amplitude**2 + kernel.offset**2
        prior = prior + kernel.slope**2 * ((scaled - self._middle) ** 2).sum(axis=1)
        explained = np.einsum("ij,ij->i", cross @ self._inverse, cross)
        deviation = np.sqrt(np.maximum(prior - explained, 0.0) + kernel.noise**2)
        return mean, deviation, squared.argmin(axis=1)

    def left_out(self, groups: Sequence[object]) -> tuple[Array, Array]:
        """What it says of each sample without its group, by the block form of leave-one-out."""
        mean, deviation = np.empty(len(self._values)), np.empty(len(self._values))
        for positions in grouped(range(len(groups)), lambda place: groups[place]).values():
            chosen = np.asarray(positions)
            block = np.linalg.inv(self._inverse[np.ix_(chosen, chosen)])
            mean[chosen] = self._values[chosen] - block @ self._answers[chosen]
            deviation[chosen] = np.sqrt(np.maximum(np.diag(block), 0.0))
        return mean, deviation

    def _covariance(self, scaled: Array, labels: NDArray[np.int64]) -> tuple[Array, Array]:
        """Of new samples with the known ones: the covariance, and the squared distance."""
        kernel = self.kernel
        left, right = scaled - self._middle, self._scaled - self._middle
        linear = left @ right.T
        squared = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2 * linear
        squared = np.maximum(squared, 0.0)
        for column, apart in enumerate(kernel.apart):
            differ = labels[:, column][:, None] != self._labels[:, column][None, :]
            squared = squared + apart * differ
        distance = np.sqrt(3.0 * squared)
        # Matérn 3/2: continuous, with kinks where libraries change their kernels.
        smooth = kernel.amplitude**2 * (1.0 + distance) * np.exp(-distance)
        return smooth + kernel.slope**2 * linear + kernel.offset**2, squared


_SCALE = 8.0
"""Octaves of a size over which efficiency goes on being alike."""

_CORE_TO_CORE_SCALE = 8.0
"""The same of the latency from core to core."""

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

    ``core_to_core`` is the binary logarithm of the core-to-core latency in nanoseconds; 0 where one
    core computed, or where it is not known.
    """

    facts: Facts
    family: str
    time_s: float
    core_to_core: float = 0.0


class Kind:
    """All examples of one group of operators in one data type on one number of threads.

    Of several groups (``is_pooled``), only what all of them have in common counts.
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
        numbers = self._numbers(facts, [each.core_to_core for each in self.examples])
        scales = (*(_SCALE,) * (numbers.shape[1] - 1), _CORE_TO_CORE_SCALE)
        kernel = Kernel(scales=scales, apart=(_APART, _APART / 4))
        return GaussianProcess(kernel, numbers, self._codes(facts), values)

    @cached_property
    def spread(self) -> float:
        """How much wider than it says its interval must be to hold 80 % of what was left out."""
        scores = [
            abs(np.log(example.time_s / predicted_s)) / deviation
            for example, predicted_s, deviation in self.left_out
        ]
        # Of a single family nothing can be left out; then it is taken at its word.
        return max(0.5, float(np.quantile(scores, 0.8)) / Z_80) if scores else 1.0

    @cached_property
    def left_out(self) -> tuple[tuple[Example, float, float], ...]:
        """Every example with the seconds predicted without its family, and their relative standard
        deviation; empty where there is only one family."""
        families = [each.family for each in self.examples]
        if len(set(families)) < 2:
            return ()
        mean, deviation = self._process.left_out(families)
        predicted_s = np.exp(mean) * _floor_s([each.facts for each in self.examples])
        return tuple(
            zip(self.examples, map(float, predicted_s), map(float, deviation), strict=True)
        )

    def predict(self, facts: Sequence[Facts], core_to_core: float = 0.0) -> list[Prediction]:
        """Predictions for calls with these `facts`, at a core-to-core latency as in examples."""
        numbers = self._numbers(facts, [core_to_core] * len(facts))
        mean, deviation, nearest = self._process.predict(numbers, self._codes(facts))
        times_s = np.exp(mean) * _floor_s(facts)
        wide = np.exp(Z_80 * deviation * self.spread)
        known = self._numbers([each.facts for each in self.examples], [0.0] * len(self.examples))
        # Its distance is that of sizes; where the cores are is no property of a call.
        octaves = np.sqrt(((numbers - known[nearest])[:, :-1] ** 2).sum(axis=1))
        found: list[Prediction] = []
        for each, *figures in zip(facts, times_s, wide, octaves, deviation, strict=True):
            time_s, factor, distance, deviates = map(float, figures)
            samples = self.variants[f"{each.group} {each.variant}"]
            found.append(
                Prediction(
                    predicted_s=time_s,
                    low_s=time_s / factor,
                    high_s=time_s * factor,
                    samples=samples or len(self.examples),
                    distance=distance,
                    is_extrapolated=not samples or self._is_pooled or distance > _FAR_OCTAVES,
                    deviation=deviates * self.spread,
                )
            )
        return found

    def _numbers(self, facts: Sequence[Facts], core_to_core: Sequence[float]) -> Array:
        """A row for each call; of pooled groups, with what all groups have in common."""
        return np.asarray(
            [
                (
                    *(() if self._is_pooled else each.numbers[:-SHARED]),
                    *each.numbers[-SHARED:],
                    float(np.log2(each.eager_min_time_s + _CALL_S)),
                    latency,
                )
                for each, latency in zip(facts, core_to_core, strict=True)
            ]
        )

    def _codes(self, facts: Sequence[Facts]) -> NDArray[np.int64]:
        def code(column: int, label: str) -> int:
            return self._labels.setdefault((column, label), len(self._labels))

        return np.asarray(
            [(code(0, f"{each.group} {each.variant}"), code(1, each.layout)) for each in facts]
        )


SHARED = 7
"""How many of the numbers of facts, the last ones, mean the same in every group."""


def _floor_s(facts: Sequence[Facts]) -> Array:
    return np.asarray([each.eager_min_time_s + _CALL_S for each in facts])
