"""Corrections of predicted times by measurements of the same GPU.

A kernel takes its start, which predictions know, and the rest. Measured ÷ predicted rests of the
shapes of a kind have a common factor, that of the GPU, and each shape one of its own. Both are
taken to be log-normal, and to share the error of predictions on GPUs left out equally.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from roofline.core.rows import grouped
from roofline.latency.gpu.chips import Chip
from roofline.latency.gpu.kernels import Kernel
from roofline.latency.gpu.learned import Learned
from roofline.latency.gpu.times import group_of, prior_deviation, product_type, seconds, start_s

SHORTEST_S = 2e-5
"""Times below are refused: much of them is the start, of which profilers leave out a part."""

ABSURD = 100.0
"""Measured ÷ predicted time from which a row is refused: a wrong unit gives 1000."""

MOST_SHAPES = 500
"""Shapes of a kind and type that are kept: more hardly change the factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """A kernel and the median of ``times`` measurements, in seconds."""

    kernel: Kernel
    time_s: float
    times: int

    def __post_init__(self) -> None:
        if not _has_sizes(self.kernel) or self.time_s <= 0 or self.times < 1:
            raise ValueError(f"no kernel with sizes and a time: {self}")


def _has_sizes(kernel: Kernel) -> bool:
    """Return True if a kernel has the sizes that its time follows from."""
    if kernel.is_product:
        return min(kernel.batch, kernel.m, kernel.n, kernel.k, kernel.taps) >= 1
    return min(kernel.elements, kernel.k if kernel.kind in ("softmax", "layer norm") else 1) >= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTimes:
    """Measured kernels of one machine, each shape once, and the files that they are from."""

    machine: str
    sources: tuple[str, ...] = ()
    kernels: tuple[MeasuredKernel, ...] = ()

    def merged(self, source: str, kernels: Iterable[MeasuredKernel]) -> MachineTimes:
        """Return these kernels and those of a source, which replace times of the same shapes.

        Of a kind and type with more than `MOST_SHAPES`, these are spread evenly over the times.
        """
        known = {each.kernel: each for each in (*self.kernels, *kernels)}
        kinds = grouped(
            sorted(known.values(), key=lambda each: each.time_s),
            lambda each: (each.kernel.kind, each.kernel.dtype),
        )
        kept = (each[:: -(-len(each) // MOST_SHAPES)] for each in kinds.values())
        return MachineTimes(
            machine=self.machine,
            sources=tuple(dict.fromkeys((*self.sources, source))),
            kernels=tuple(chain.from_iterable(kept)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Factor of one kind of kernel on one GPU, as logarithms with their standard deviations.

    ``mean`` is that of the factor, ``deviation`` its own, ``scatter`` that of shapes, ``prior``
    that of predictions without measurements. Rests of predicted times were ``low_s`` to ``high_s``.
    """

    mean: float
    deviation: float
    scatter: float
    prior: float
    low_s: float
    high_s: float
    shapes: int
    times: int

    def apply(self, time_s: float, start: float) -> tuple[float, float, bool]:
        """Return the corrected time of a kernel, its deviation, and if it is far from the shapes.

        The factor becomes as uncertain as without measurements where the rest is a decade or more
        outside of theirs. The start has the deviation that it had.
        """
        rest = max(time_s - start, 1e-12)
        outside = max(0.0, math.log(rest / self.high_s), math.log(self.low_s / rest))
        near = math.exp(-outside / math.log(10))
        variance = self.scatter**2 + self.deviation**2 + (1 - near**2) * self.prior**2
        corrected = rest * math.exp(self.mean)
        share = corrected / (start + corrected)
        deviation = math.sqrt(share**2 * variance + ((1 - share) * self.prior) ** 2)
        return start + corrected, deviation, share > 0.5 and outside > math.log(10)


def correction_of(logs: Sequence[float], prior: float) -> tuple[float, float, float]:
    """Return mean and deviation of the common factor of shapes, and the deviation of a shape.

    The variance of predictions without measurements, `prior` squared, counts as two observations,
    the square of the mean as a third. Half of it is that of the factor, half that of shapes: in
    public measurements a tenth (products) to nine tenths (elementwise operators) belong to the GPU.
    The scatter of `logs` updates that of shapes, which counts as two.
    """
    count, mean = len(logs), sum(logs) / len(logs)
    expected = (2 * prior**2 + mean**2) / 3
    shapes = (expected + sum((each - mean) ** 2 for each in logs)) / (count + 1)
    posterior = 1 / (2 / expected + count / shapes)
    return mean * posterior * count / shapes, math.sqrt(posterior), math.sqrt(shapes)


def cell_of(kernel: Kernel, chip: Chip) -> tuple[str, str]:
    """Return the kind and, of products, the type whose kernels have a common factor."""
    if not kernel.is_product:
        return kernel.kind, ""
    of_type = product_type(kernel.kind, kernel.dtype, chip)
    return kernel.kind, "16 bits" if of_type in ("float16", "bfloat16") else of_type


def measured_kernels(
    rows: Iterable[tuple[Kernel, float]], chip: Chip, learned: Learned
) -> tuple[tuple[MeasuredKernel, ...], Counter[str]]:
    """Return the kernels to learn from, each shape once, and the number of rows refused by reason.

    Repetitions of a shape are one measurement: their median.
    """
    rows = list(rows)
    shapes = [each for each in dict(rows) if group_of(each, chip, learned) and _has_sizes(each)]
    predicted = dict(zip(shapes, seconds(shapes, chip, learned), strict=True))
    refused: Counter[str] = Counter()
    times: dict[Kernel, list[float]] = {}
    for kernel, time_s in rows:
        if group_of(kernel, chip, learned) is None:
            refused[f"{kernel.kind} in {kernel.dtype} is not predicted on this GPU"] += 1
        elif kernel not in predicted:
            refused[f"sizes of {kernel.kind} are missing"] += 1
        elif not 0 < time_s < math.inf:
            refused["no positive time"] += 1
        elif time_s < SHORTEST_S:
            refused[f"shorter than {SHORTEST_S * 1e6:.0f} µs"] += 1
        elif not 1 / ABSURD < time_s / predicted[kernel] < ABSURD:
            refused[f"more than {ABSURD:.0f} times off the prediction: wrong unit?"] += 1
        else:
            times.setdefault(kernel, []).append(time_s)
    kept = (
        MeasuredKernel(kernel=kernel, time_s=median(each), times=len(each))
        for kernel, each in times.items()
    )
    return tuple(kept), refused


def corrections_of(
    kernels: Sequence[MeasuredKernel], chip: Chip, learned: Learned
) -> Mapping[tuple[str, str], Correction]:
    """Return the corrections that follow from measured kernels, by cell."""
    kernels = [each for each in kernels if group_of(each.kernel, chip, learned)]
    cells: dict[tuple[str, str], list[tuple[MeasuredKernel, float, float]]] = {}
    predicted_s = seconds([each.kernel for each in kernels], chip, learned)
    for each, time_s in zip(kernels, predicted_s, strict=True):
        start = start_s(each.kernel, chip, learned)
        rest = max(float(time_s) - start, 1e-12)
        log = math.log(max(each.time_s - start, 1e-12) / rest)
        cells.setdefault(cell_of(each.kernel, chip), []).append((each, rest, log))
    found: dict[tuple[str, str], Correction] = {}
    for cell, shapes in cells.items():
        prior = max(prior_deviation(each.kernel, chip, learned)[0] for each, _, _ in shapes)
        measured, rests, logs = zip(*shapes, strict=True)
        mean, deviation, scatter = correction_of(logs, prior)
        found[cell] = Correction(
            mean=mean,
            deviation=deviation,
            scatter=scatter,
            prior=prior,
            low_s=min(rests),
            high_s=max(rests),
            shapes=len(shapes),
            times=sum(each.times for each in measured),
        )
    return found
