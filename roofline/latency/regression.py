"""Gaussian process regression on a few thousand samples: a mean, and how sure it is of it.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): chapter 2 for prediction,
5.4.2 for what is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_JITTER = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How alike two samples are taken to be.

    ``scales`` are the lengths of numbers over which values go on being alike; ``apart`` is what two
    labels that differ add to the squared distance, one for each kind of label. ``amplitude`` is the
    standard deviation of what is smooth in that sense, ``slope`` that of a linear trend in each
    number over its scale, ``offset`` that of the mean, ``noise`` that of a sample.
    """

    scales: tuple[float, ...]
    apart: tuple[float, ...]
    amplitude: float
    slope: float
    offset: float
    noise: float


class GaussianProcess:
    """What is known of values after some samples of them.

    Args:
        kernel: how alike samples are taken to be.
        numbers: one row a sample.
        labels: whole numbers, one row a sample; only whether they are equal counts.
        values: one a sample.
        weights: how many measurements stand behind a sample: its noise is as much smaller.
    """

    def __init__(
        self,
        kernel: Kernel,
        numbers: Array,
        labels: NDArray[np.int64],
        values: Array,
        weights: Array | None = None,
    ) -> None:
        self.kernel = kernel
        self._scaled = numbers / np.asarray(kernel.scales)
        self._middle = self._scaled.mean(axis=0)
        self._labels = labels
        self._values = values
        self._mean = float(np.median(values))
        self._noise = kernel.noise**2 / (np.ones(len(values)) if weights is None else weights)

    @property
    def count(self) -> int:
        """How many samples it knows."""
        return len(self._values)

    @cached_property
    def _inverse(self) -> Array:
        covariance = self._covariance(self._scaled, self._labels)[0]
        covariance[np.diag_indices_from(covariance)] += self._noise + _JITTER
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
        """What it would say of each sample without those of the same group: means and deviations.

        One factorisation serves all groups (the block form of leave-one-out).
        """
        mean, deviation = np.empty(self.count), np.empty(self.count)
        members: dict[object, list[int]] = {}
        for position, group in enumerate(groups):
            members.setdefault(group, []).append(position)
        for positions in members.values():
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
