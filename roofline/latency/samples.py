"""Samples that predictions are learned from: measured passes, and the time of each operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.core.sampling import Sample
from roofline.machine.core_state import UNKNOWN, CoreState

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
    ranges, ``page_faults`` the minor page faults of one, on the average.
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
    ``page_faults`` are minor page faults of a pass; ``date`` is ISO 8601. ``clock_hz`` and
    ``core_to_core_latency_s`` are the core state meanwhile (`roofline.machine.core_state`); None:
    not known.
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
    def core_state(self) -> CoreState:
        """How fast the cores ran."""
        return CoreState(clock_hz=self.clock_hz, core_to_core_latency_s=self.core_to_core_latency_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedSample:
    """The times of an operator that was timed on its own, and the core state meanwhile."""

    sample: Sample
    core_state: CoreState = UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """What a pass of the same operators took when it was last measured on the same machine.

    ``measured_s`` is the median of whole passes in seconds, ``iqr_s`` their interquartile range (0
    where there was one); ``date`` is ISO 8601, ``origin`` the command that measured it, ``model``
    what it was called.
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
        if not is_alike:
            continue
        left = dict(asked)
        for each in run.operators:
            what = _computed(each.facts)
            # Of thousands of runs nearly all differ in the first call already.
            if left.get(what, 0) < each.calls:
                break
            left[what] -= each.calls
        else:
            if not any(left.values()):
                return EarlierRun(
                    measured_s=run.end_to_end_s,
                    iqr_s=run.end_to_end_iqr_s,
                    date=run.date,
                    origin=run.origin,
                    model=run.model,
                )
    return None


def _computed(facts: Facts) -> Hashable:
    """What a call computes, without what the profile of the machine says of it."""
    numbers = facts.numbers
    sizes = (*numbers[: _OF_LEVELS.start], *numbers[_OF_LEVELS.stop :])
    return facts.group, facts.variant, facts.dtype, facts.layout, facts.threads, sizes


_OF_LEVELS = slice(-3, -1)
"""Of the numbers of facts (`roofline.latency.features`), the bytes from memory and from a cache:
they depend on how large a profile says that the caches are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurement:
    """What a pass took, in seconds, and the conditions under which that was measured.

    ``end_to_end`` are the passes that were timed as a whole, ``operators_s`` the sum of the medians
    of all operators, timed one by one in passes in between; ``compiled`` are passes under
    `torch.compile`. ``page_faults`` are the minor ones of a pass, ``page_fault_s`` the seconds
    that each adds on this machine (null: not known), ``allocator`` the settings of the process's
    malloc (``"default"``; ``""``: not known, or not on a CPU); ``rounds`` are those that count,
    ``discarded`` those that were thrown away because they did not get the cores; ``are_disturbed``
    if there were no others. ``clock_hz`` is the median clock of the core that ran them,
    ``core_to_core_latency_s`` how long a cache line took from core to core; null where that is not
    known, and the latter where a single core computed. ``conditions`` are what was noticed
    meanwhile.
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
            raise ValueError(f"a measurement takes numbers from 0, got {self}")

    @property
    def core_state(self) -> CoreState:
        """How fast the cores ran."""
        return CoreState(clock_hz=self.clock_hz, core_to_core_latency_s=self.core_to_core_latency_s)

    @property
    def measured_s(self) -> float:
        """The median of the whole passes, in seconds."""
        return self.end_to_end.median_s

    @property
    def settled_s(self) -> float | None:
        """Seconds of a pass less those of its page faults: what it takes where the allocator keeps
        its memory. Derived, not measured; null where that is not known."""
        if self.page_fault_s is None:
            return None
        settled_s = self.measured_s - self.page_faults * self.page_fault_s
        return settled_s if settled_s > 0 else None

    @property
    def overhead_s(self) -> float:
        """What the whole takes beyond its operators: Python, dispatch, giving memory back.

        Below 0 where timing each operator cost more than that.
        """
        return self.measured_s - self.operators_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A measured pass: the whole, and of each operator a sample and its page faults."""

    run: RunMeasurement
    operators: tuple[Sample, ...]
    page_faults: tuple[int, ...]
