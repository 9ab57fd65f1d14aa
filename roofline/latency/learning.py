"""Gaussian process regression of operator times, one model for each group of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofline.core.rows import grouped
from roofline.latency.prediction import Prediction
from roofline.latency.samples import OperatorFeatures

# Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): chapter 2 for
# prediction, 5.4.2 for leave-one-out.

Array = NDArray[np.float64]

_JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariance:
    """Parameters of the covariance of two samples.

    ``scales`` are the length scales of the numbers; ``label_distances`` are added to the squared
    distance where labels differ. ``amplitude`` is the standard deviation of the smooth part,
    ``slope`` of a linear trend in each number over its scale, ``offset`` of the mean, ``noise`` of
    a sample. All are of log(time / minimum time); benchmarks/predictors.md has alternatives.
    """

    scales: tuple[float, ...]
    label_distances: tuple[float, ...]
    amplitude: float = 0.5
    slope: float = 0.2
    offset: float = 1.0
    noise: float = 0.15


class GaussianProcess:
    """Gaussian process over numbers and labels; labels are equal or not."""

    def __init__(
        self,
        kernel: Covariance,
        numbers: Array,
        labels: NDArray[np.int64],
        values: Array,
        mean: float | None = None,
    ) -> None:
        self.kernel = kernel
        self._scaled = numbers / np.asarray(kernel.scales)
        self._middle = self._scaled.mean(axis=0)
        self._labels = labels
        self._values = values
        self._mean = float(np.median(values)) if mean is None else mean

    @cached_property
    def _inverse(self) -> Array:
        covariance = self._covariance(self._scaled, self._labels)[0]
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise**2 + _JITTER
        factor = np.linalg.inv(np.linalg.cholesky(covariance))
        return factor.T @ factor

    @cached_property
    def _weights(self) -> Array:
        return self._inverse @ (self._values - self._mean)

    def predict(
        self, numbers: Array, labels: NDArray[np.int64]
    ) -> tuple[Array, Array, NDArray[np.int64]]:
        """Return means, their standard deviations, and the index of the nearest sample to each."""
        scaled = numbers / np.asarray(self.kernel.scales)
        cross, squared = self._covariance(scaled, labels)
        mean = self._mean + cross @ self._weights
        kernel = self.kernel
        prior = kernel.amplitude**2 + kernel.offset**2
        prior = prior + kernel.slope**2 * ((scaled - self._middle) ** 2).sum(axis=1)
        explained = np.einsum("ij,ij->i", cross @ self._inverse, cross)
        deviation = np.sqrt(np.maximum(prior - explained, 0.0) + kernel.noise**2)
        return mean, deviation, squared.argmin(axis=1)

    def leave_one_out(self, groups: Sequence[object]) -> tuple[Array, Array]:
        """Return mean and deviation of each sample without its group (block leave-one-out)."""
        mean, deviation = np.empty(len(self._values)), np.empty(len(self._values))
        for positions in grouped(range(len(groups)), lambda place: groups[place]).values():
            chosen = np.asarray(positions)
            block = np.linalg.inv(self._inverse[np.ix_(chosen, chosen)])
            mean[chosen] = self._values[chosen] - block @ self._weights[chosen]
            deviation[chosen] = np.sqrt(np.maximum(np.diag(block), 0.0))
        return mean, deviation

    def _covariance(self, scaled: Array, labels: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return covariance and squared distance between new and known samples."""
        kernel = self.kernel
        left, right = scaled - self._middle, self._scaled - self._middle
        linear = left @ right.T
        squared = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2 * linear
        squared = np.maximum(squared, 0.0)
        for column, distance in enumerate(kernel.label_distances):
            differ = labels[:, column][:, None] != self._labels[:, column][None, :]
            squared = squared + distance * differ
        distance = np.sqrt(3.0 * squared)
        # Matérn 3/2: continuous, with kinks where libraries change their kernels.
        smooth = kernel.amplitude**2 * (1.0 + distance) * np.exp(-distance)
        return smooth + kernel.slope**2 * linear + kernel.offset**2, squared


_SCALE = 8.0
"""Length scale of efficiency over sizes, in octaves."""

_CORE_TO_CORE_SCALE = 8.0
"""The same over the core-to-core latency."""

_LABEL_DISTANCE = 4.0
"""Squared distance, in scales, between different variants; a fourth of it between layouts."""

_CALL_S = 1e-6
"""Shortest time of a call, added to minimum times, which may be 0."""

_MAX_SAMPLES = 3000
"""Samples of one group; the cost of fitting grows with their third power."""

_PRIOR_DEVIATION = 0.4
"""Deviation of the logarithm of an operator's time from its prior: of all sizes, and of each."""

_FAR_OCTAVES = 4.0
"""Distance from the nearest sample beyond which a prediction is an extrapolation."""

Z_80 = 1.2815515655446004
"""Standard deviations around the mean of a normal distribution that contain 80 % of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Calls with the same features in the models of one family: their median time in seconds.

    ``core_to_core`` is the binary logarithm of the core-to-core latency in nanoseconds; 0 for one
    thread, or if unknown.
    """

    facts: OperatorFeatures
    family: str
    time_s: float
    core_to_core: float = 0.0


class GroupModel:
    """Model of one group of operators in one data type on one number of threads.

    If several groups are pooled, it uses only the numbers that all groups share. It learns the
    deviation from ``prior_s``, times that are already known to be near, if there are any.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        *,
        is_pooled: bool = False,
        prior_s: Callable[[OperatorFeatures], float] | None = None,
    ) -> None:
        step = -(-len(examples) // _MAX_SAMPLES)
        self.examples = tuple(examples[::step])
        self._is_pooled = is_pooled
        self._prior_s = prior_s
        self._labels: dict[tuple[int, str], int] = {}
        self.variants = Counter(
            f"{each.facts.group} {each.facts.variant}" for each in self.examples
        )

    @cached_property
    def _process(self) -> GaussianProcess:
        features = [each.facts for each in self.examples]
        values = np.log([each.time_s for each in self.examples]) - np.log(self._floor_s(features))
        numbers = self._numbers(features, [each.core_to_core for each in self.examples])
        scales = (*(_SCALE,) * (numbers.shape[1] - 1), _CORE_TO_CORE_SCALE)
        distances = (_LABEL_DISTANCE, _LABEL_DISTANCE / 4)
        kernel = Covariance(scales=scales, label_distances=distances)
        labels = self._label_codes(features)
        if self._prior_s is None:
            return GaussianProcess(kernel, numbers, labels, values)
        near = replace(kernel, amplitude=_PRIOR_DEVIATION, slope=0.0, offset=_PRIOR_DEVIATION)
        return GaussianProcess(near, numbers, labels, values, mean=0.0)

    @cached_property
    def interval_factor(self) -> float:
        """Factor on its intervals with which they contain 80 % of the examples left out."""
        scores = [
            abs(np.log(example.time_s / predicted_s)) / deviation
            for example, predicted_s, deviation in self.leave_one_out
        ]
        # Of a single family nothing can be left out.
        return max(0.5, float(np.quantile(scores, 0.8)) / Z_80) if scores else 1.0

    @cached_property
    def leave_one_out(self) -> tuple[tuple[Example, float, float], ...]:
        """Examples, each with its time predicted from other families and the relative deviation;
        empty for a single family."""
        families = [each.family for each in self.examples]
        if len(set(families)) < 2:
            return ()
        mean, deviation = self._process.leave_one_out(families)
        predicted_s = np.exp(mean) * self._floor_s([each.facts for each in self.examples])
        return tuple(
            zip(self.examples, map(float, predicted_s), map(float, deviation), strict=True)
        )

    def predict(
        self, features: Sequence[OperatorFeatures], core_to_core: float = 0.0
    ) -> list[Prediction]:
        """Return predictions for calls, at a core-to-core latency as in `Example`."""
        numbers = self._numbers(features, [core_to_core] * len(features))
        mean, deviation, nearest = self._process.predict(numbers, self._label_codes(features))
        times_s = np.exp(mean) * self._floor_s(features)
        wide = np.exp(Z_80 * deviation * self.interval_factor)
        known = self._numbers([each.facts for each in self.examples], [0.0] * len(self.examples))
        # The distance is that of sizes, without the core-to-core latency.
        octaves = np.sqrt(((numbers - known[nearest])[:, :-1] ** 2).sum(axis=1))
        found: list[Prediction] = []
        for each, *figures in zip(features, times_s, wide, octaves, deviation, strict=True):
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
                    deviation=deviates * self.interval_factor,
                )
            )
        return found

    def _numbers(
        self, features: Sequence[OperatorFeatures], core_to_core: Sequence[float]
    ) -> Array:
        """Return a row of numbers for each call; of pooled groups, the shared ones."""
        return np.asarray(
            [
                (
                    *(() if self._is_pooled else each.numbers[:-SHARED_FEATURES]),
                    *each.numbers[-SHARED_FEATURES:],
                    float(np.log2(each.eager_min_time_s + _CALL_S)),
                    latency,
                )
                for each, latency in zip(features, core_to_core, strict=True)
            ]
        )

    def _floor_s(self, features: Sequence[OperatorFeatures]) -> Array:
        """Return the times that learned ones are relative to: minimum times, or the prior."""
        if self._prior_s is not None:
            return np.asarray([self._prior_s(each) for each in features])
        return np.asarray([each.eager_min_time_s + _CALL_S for each in features])

    def _label_codes(self, features: Sequence[OperatorFeatures]) -> NDArray[np.int64]:
        def code(column: int, label: str) -> int:
            return self._labels.setdefault((column, label), len(self._labels))

        return np.asarray(
            [(code(0, f"{each.group} {each.variant}"), code(1, each.layout)) for each in features]
        )


SHARED_FEATURES = 7
"""Number of features, the last ones, that mean the same in every group."""
