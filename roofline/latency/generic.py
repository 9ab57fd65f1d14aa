"""Predictions for CPUs without calibration data, from constants learned on other CPUs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from roofline.core.schema import from_data
from roofline.latency.learning import Z_80
from roofline.latency.prediction import Prediction
from roofline.latency.samples import OperatorFeatures

FILE = "generic.json"

NAME = "generic CPU model"
"""Source of its predictions."""

OTHER = "other"
"""Name of the constants of all kinds that too few measurements have."""

_LAST = "channels-last"

_FLOP = -7
"""Place of the FLOP among the numbers of features, a binary logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericHost:
    """Host that constants were learned from: its CPU family, threads, numbers of measurements."""

    name: str
    family: str
    threads: tuple[int, ...]
    models: int
    passes: int
    operators: int
    date: str
    source: str


Work = tuple[float, float, float]
"""Calls, seconds of minimum time and FLOP per thread of operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericCpu:
    """Times of operators on any CPU, relative to their minimum times.

    ``kinds`` has by kind the seconds of a call, the factor on the minimum time and the seconds of a
    FLOP on one thread; ``overhead_s`` is the dispatch overhead of a call. ``types`` are the data
    types that were measured. ``deviation`` is that of the logarithm of an operator's time on a host
    that was left out, ``pass_deviation`` that of a pass.
    """

    kinds: Mapping[str, Work]
    overhead_s: float
    types: tuple[str, ...]
    deviation: float
    pass_deviation: float
    hosts: tuple[GenericHost, ...]
    script: str = ""
    digest: str = ""

    @property
    def description(self) -> str:
        """Description of the measurements behind predictions."""
        families = " and ".join(dict.fromkeys(each.family for each in self.hosts))
        passes = sum(each.passes for each in self.hosts)
        return f"{NAME}, learned on {families} ({passes} passes)"

    @property
    def threads(self) -> int:
        """Largest number of threads that was measured."""
        return max(each for host in self.hosts for each in host.threads)

    def covers(self, features: OperatorFeatures) -> bool:
        """Return True if operators of a type were measured, and images in their layout.

        Layouts of images select other kernels.
        """
        kind = kind_of(features)[0]
        return features.dtype in self.types and (_LAST not in kind or kind in self.kinds)

    def seconds(self, features: OperatorFeatures) -> float:
        """Return the time of an operator in seconds; at least its minimum time."""
        kind, group = kind_of(features)
        known = self.kinds.get(kind) or self.kinds.get(group) or self.kinds[OTHER]
        return sum(each * by for each, by in zip(known, work_of(features), strict=True))

    def prediction(self, features: OperatorFeatures) -> Prediction:
        """Return the prediction of an operator on a host that was not measured."""
        time_s, factor = self.seconds(features), math.exp(Z_80 * self.deviation)
        is_known = bool({*kind_of(features)} & {*self.kinds}) and features.threads <= self.threads
        return Prediction(
            predicted_s=time_s,
            low_s=max(features.eager_min_time_s, time_s / factor),
            high_s=time_s * factor,
            samples=sum(each.passes for each in self.hosts),
            distance=0.0,
            is_extrapolated=not is_known,
            deviation=self.deviation,
            learned_from=NAME,
        )


def kind_of(features: OperatorFeatures) -> tuple[str, str]:
    """Return the kind of an operator, and its group for kinds that were not measured."""
    variant = features.variant.removesuffix("_")
    if features.group == "matrix product":
        # Layouts of matrices, which products convert at little cost.
        variant = variant.split(" ")[0]
    if features.group in ("convolution", "pooling") and features.layout == _LAST:
        variant += f" {_LAST}"
    return f"{features.group}: {variant}", features.group


def work_of(features: OperatorFeatures) -> Work:
    """Return the work of one call."""
    flop = 2.0 ** features.numbers[_FLOP] - 1
    return 1.0, features.eager_min_time_s, flop / features.threads


@functools.cache
def shipped() -> GenericCpu:
    """Return the model that ships with the package."""
    text = files("roofline.latency").joinpath(FILE).read_text(encoding="utf-8")
    return from_data(GenericCpu, json.loads(text), file=FILE)
