"""A measured pass of a model: the whole beside its operators, and how it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.sampling import Sample
from roofline.machine.pace import Pace


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

    Raises:
        ValueError: a negative time or number.
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
    def pace(self) -> Pace:
        """How fast the cores ran."""
        return Pace(clock_hz=self.clock_hz, core_to_core_latency_s=self.core_to_core_latency_s)

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
