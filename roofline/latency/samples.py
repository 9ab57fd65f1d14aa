"""Samples of calibration data: measured passes, with the time of each operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.core.sampling import Sample
from roofline.machine.core_state import UNKNOWN, CoreState

FEATURES_VERSION = 3
"""Version of the numbers of `OperatorFeatures`; samples of other versions are not used.

Version 2: bytes that are only read take the fastest read or copy kernel of their level. Version 3:
capacities of caches are those of all cores.
"""

Origin = Literal["calibrate", "profile", "validate"]
"""Command that measured a run."""

INT8 = "int8"
"""Data type of quantized operators, whose scales and biases are floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFeatures:
    """Features of an operator call that its time depends on, known before it runs.

    ``group`` is the kind of operators that one model is fitted to, ``variant`` the operator or the
    kernel within it (library and kind). ``numbers`` are binary logarithms of sizes; their meaning
    depends on the group (`roofline.latency.features`). Calls with equal features are the same call.
    """

    group: str
    variant: str
    dtype: str
    layout: str
    threads: int
    numbers: tuple[float, ...]
    eager_min_time_s: float

    def __post_init__(self) -> None:
        if not self.group or not all(map(math.isfinite, (*self.numbers, self.eager_min_time_s))):
            raise ValueError(f"features: need a group and finite numbers, got {self}")
        if self.eager_min_time_s < 0 or self.threads < 1:
            raise ValueError(f"features: need a minimum time and threads, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSample:
    """Equal calls in a run: ``calls`` of them had the features ``facts``.

    ``time_s`` is the median of their medians over the passes, ``iqr_s`` that of their interquartile
    ranges, ``page_faults`` the mean of minor page faults of a call.
    """

    facts: OperatorFeatures
    calls: int
    time_s: float
    iqr_s: float
    page_faults: float

    def __post_init__(self) -> None:
        if self.calls < 1 or not 0 < self.time_s < math.inf or not 0 <= self.iqr_s < math.inf:
            raise ValueError(f"sample: needs calls and a time, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """A model in one setting: times of its pass and of its operators.

    ``family`` is the architecture (``"resnet"``) that leave-one-family-out validation excludes.
    ``end_to_end_s`` is the median of passes timed as a whole, ``operators_s`` the sum of the
    medians of all operators; ``free_s`` is the part of the ``free_calls`` free ones (views,
    allocations) of all ``calls``. ``page_faults`` are minor page faults of a pass; ``date`` is ISO
    8601. ``clock_hz`` and ``core_to_core_latency_s`` are the core clock state (None: unknown).
    """

    model: str
    family: str
    origin: Origin
    date: str
    batch: int | None
    dtype: str
    threads: int
    channels_last: bool
    train: bool
    end_to_end_s: float
    end_to_end_iqr_s: float
    operators_s: float
    free_s: float
    free_calls: int
    calls: int
    page_faults: float
    operators: tuple[OperatorSample, ...]
    clock_hz: float | None = None
    core_to_core_latency_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.end_to_end_s < math.inf or not 0 <= self.operators_s < math.inf:
            raise ValueError(f"run: needs a time above 0, got {self.end_to_end_s}")
        # NaN is refused by the store.
        if self.end_to_end_iqr_s < 0:
            raise ValueError(f"run: needs an IQR from 0, got {self.end_to_end_iqr_s}")

    @property
    def core_state(self) -> CoreState:
        """Core clock state."""
        return CoreState(clock_hz=self.clock_hz, core_to_core_latency_s=self.core_to_core_latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedSample:
    """Times of an operator that was timed alone, and the core clock state."""

    sample: Sample
    # Name of the key in stores.
    pace: CoreState = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """Last measurement of a pass of the same operators on the same machine.

    ``measured_s`` is the median of whole passes in seconds, ``iqr_s`` their interquartile range (0
    for one pass); ``date`` is ISO 8601, ``origin`` the command, ``model`` its name there.
    ``page_faults`` are those of a pass: none in a calibration.
    """

    measured_s: float
    iqr_s: float
    date: str
    origin: Origin
    model: str
    page_faults: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.measured_s < math.inf:
            raise ValueError(f"measured_s must be a finite number above 0, got {self.measured_s}")
        if not 0 <= self.iqr_s < math.inf:
            raise ValueError(f"iqr_s must be a finite number from 0, got {self.iqr_s}")
        if self.page_faults is not None and not 0 <= self.page_faults < math.inf:
            raise ValueError(f"page_faults must be a finite number from 0, got {self.page_faults}")


def earlier_run(
    runs: Sequence[RunSample],
    features: Sequence[OperatorFeatures],
    *,
    channels_last: bool,
    train: bool,
) -> EarlierRun | None:
    """Return the last of `runs` that made the same calls in the same setting; None without one.

    Names of models do not count, nor what depends on the machine's profile (minimum times, bytes by
    level), which may have been measured again.
    """
    calls = Counter(map(_computation, features))
    if not calls:
        return None
    for run in reversed(runs):
        is_alike = (
            run.calls - run.free_calls == len(features)
            and run.threads == features[0].threads
            and run.channels_last == channels_last
            and run.train == train
        )
        if not is_alike:
            continue
        left = dict(calls)
        for each in run.operators:
            call = _computation(each.facts)
            # Of thousands of runs nearly all differ in the first call.
            if left.get(call, 0) < each.calls:
                break
            left[call] -= each.calls
        else:
            if not any(left.values()):
                return EarlierRun(
                    measured_s=run.end_to_end_s,
                    iqr_s=run.end_to_end_iqr_s,
                    date=run.date,
                    origin=run.origin,
                    model=run.model,
                    page_faults=run.page_faults,
                )
    return None


def _computation(features: OperatorFeatures) -> Hashable:
    """Return the features that do not depend on the machine's profile."""
    numbers = features.numbers
    sizes = (*numbers[: _OF_LEVELS.start], *numbers[_OF_LEVELS.stop :])
    return (
        features.group,
        features.variant,
        features.dtype,
        features.layout,
        features.threads,
        sizes,
    )


_OF_LEVELS = slice(-3, -1)
"""Bytes from memory and from a cache among the numbers (`roofline.latency.features`), which depend
on the cache sizes in the profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurement:
    """Measured times of a pass in seconds, with the conditions of the measurement.

    ``end_to_end`` are passes timed as a whole, ``operators_s`` the sum of the medians of all
    operators, timed in passes in between; ``compiled`` are passes under `torch.compile`.
    ``page_faults`` are the minor ones of a pass, ``page_fault_s`` the seconds of each (null:
    unknown), ``allocator`` the settings of malloc (``"default"``; ``""``: unknown, or not on a
    CPU). ``rounds`` are kept, ``discarded`` waited for cores; ``are_disturbed``: some kept rounds
    did too. ``clock_hz`` is the median clock of the core, ``core_to_core_latency_s`` the time of a
    cache line from core to core (null: unknown, or one thread). ``conditions`` are observations.
    """

    end_to_end: Sample
    operators_s: float
    page_faults: int
    rounds: int
    discarded: int
    are_disturbed: bool = False
    compiled: Sample | None = None
    date: str = ""
    clock_hz: float | None = None
    core_to_core_latency_s: float | None = None
    page_fault_s: float | None = None
    allocator: str = ""
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if min(self.operators_s, self.page_faults, self.rounds, self.discarded) < 0:
            raise ValueError(f"measurement: numbers must be at least 0, got {self}")

    @property
    def core_state(self) -> CoreState:
        """Core clock state."""
        return CoreState(clock_hz=self.clock_hz, core_to_core_latency_s=self.core_to_core_latency_s)

    @property
    def measured_s(self) -> float:
        """Median of the whole passes, in seconds."""
        return self.end_to_end.median_s

    @property
    def settled_s(self) -> float | None:
        """Time of a pass without its page faults, in seconds: derived, not measured; null if
        unknown."""
        if self.page_fault_s is None:
            return None
        settled_s = self.measured_s - self.page_faults * self.page_fault_s
        return settled_s if settled_s > 0 else None

    @property
    def overhead_s(self) -> float:
        """Time of a pass beyond its operators (Python, dispatch, freeing memory), in seconds.

        Below 0 if timing each operator took longer.
        """
        return self.measured_s - self.operators_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Measured times of a pass, and of each operator with its page faults."""

    run: RunMeasurement
    operators: tuple[Sample, ...]
    page_faults: tuple[int, ...]
