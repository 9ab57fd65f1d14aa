"""Clock and core-to-core latency of the cores, which change within minutes on shared hosts.

On the development machine the clock varies by a quarter, and the core-to-core latency eightfold.
Times measured at different core states are not comparable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreState:
    """Clock of a busy core in Hz, and core-to-core latency in seconds; None: unknown.

    ``core_to_core_latency_s`` is not measured for a single core.
    """

    clock_hz: float | None = None
    core_to_core_latency_s: float | None = None

    def __post_init__(self) -> None:
        known = [each for each in (self.clock_hz, self.core_to_core_latency_s) if each is not None]
        if not all(0 < each < math.inf for each in known):
            raise ValueError(f"core state must be positive, got {self}")

    def slowdown(self, other: CoreState) -> float:
        """Return the time of cycles relative to the clock of `other`; 1 if a clock is unknown."""
        if self.clock_hz is None or other.clock_hz is None:
            return 1.0
        return other.clock_hz / self.clock_hz


UNKNOWN = CoreState()


def median_core_state(core_states: Iterable[CoreState]) -> CoreState:
    """Return the median of each number, where known."""
    core_states = tuple(core_states)
    clocks = [each.clock_hz for each in core_states if each.clock_hz is not None]
    latencies_s = [
        each.core_to_core_latency_s
        for each in core_states
        if each.core_to_core_latency_s is not None
    ]
    return CoreState(
        clock_hz=median(clocks) if clocks else None,
        core_to_core_latency_s=median(latencies_s) if latencies_s else None,
    )
