"""What is learned from: operators that were timed while their models ran, and those runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from roofline.foundation.sampling import Sample
from roofline.machine.pace import UNKNOWN, Pace

FACTS_VERSION = 3
"""Meaning of the numbers of `Facts`; samples of another version are not used.

Version 2: bytes that are only read take the fastest read or copy kernel of their level. Version 3:
caches hold what all of them hold together.
"""

Origin = Literal["calibrate", "profile", "validate"]
"""Which command measured a run."""

INT8 = "int8"
"""The type of what was quantised to eight bits, though scales and biases are floats: like floating
types, it is computed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a call of an operator before it runs, as far as its time depends on it.

    ``group`` is the kind of operators that are learned from together, ``variant`` what tells them
    apart within it: the operator's name, or the path that torch takes to a kernel (which library,
    which kind of kernel). ``numbers`` are sizes as binary logarithms; what they mean depends on the
    group (`roofline.latency.features`). ``eager_min_time_s`` is the operator's bound; calls with
    equal facts are taken to be the same call.

    Raises:
        ValueError: no group, or a number that is none.
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
            raise ValueError(f"facts take a group and finite numbers, got {self}")
        if self.eager_min_time_s < 0 or self.threads < 1:
            raise ValueError(f"facts take a bound and threads, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSample:
    """One kind of call in a run: ``calls`` of them had these ``facts``.

    ``time_s`` is the median of their medians over the passes, ``iqr_s`` that of their interquartile
    ranges, ``faults`` the minor page faults of one, on the average.

    Raises:
        ValueError: no call, or no time.
    """

    facts: Facts
    calls: int
    time_s: float
    iqr_s: float
    page_faults: float

    def __post_init__(self) -> None:
        if self.calls < 1 or not 0 < self.time_s < math.inf or not 0 <= self.iqr_s < math.inf:
            raise ValueError(f"a sample takes calls and a time, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """One model, run one way: its operators, and the whole.

    ``family`` is the kin of the model (``"resnet"``): nothing is predicted from its own family when
    predictions are judged. ``end_to_end_s`` is the median of passes that were timed as a whole,
    ``operators_s`` the sum of the medians of all operators, free ones too; ``free_s`` is the part
    of the free ones (views, allocations), of which there are ``free_calls``; ``calls`` are all.
    ``faults`` are minor page faults of a pass; ``date`` is ISO 8601. ``clock_hz`` and
    ``core_to_core_latency_s`` are the pace of the cores meanwhile (`roofline.machine.pace`); None:
    not known.

    Raises:
        ValueError: no time.
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
            raise ValueError(f"a run takes a time, got {self.end_to_end_s}")
        # One that is none is refused where samples are kept.
        if self.end_to_end_iqr_s < 0:
            raise ValueError(f"a run takes a spread, got {self.end_to_end_iqr_s}")

    @property
    def pace(self) -> Pace:
        """How fast the cores ran.

        Raises:
            ValueError: a number that is none.
        """
        return Pace(clock_hz=self.clock_hz, core_to_core_latency_s=self.core_to_core_latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedSample:
    """The times of an operator that was timed on its own, and the pace of the cores meanwhile."""

    sample: Sample
    pace: Pace = UNKNOWN
