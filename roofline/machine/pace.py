"""How fast the cores of a machine run at a moment, which shared hosts change from minute to minute.

On the machine that this was developed on the clock of a core changes by a quarter, and the way from
core to core eightfold. Times of one moment say nothing of another one unless both are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The clock of a busy core in Hz, and the seconds that a cache line takes from core to core.

    None: not known; ``core_to_core_latency_s`` is not asked for where a single core computes.
    """

    clock_hz: float | None = None
    core_to_core_latency_s: float | None = None

    def __post_init__(self) -> None:
        known = [each for each in (self.clock_hz, self.core_to_core_latency_s) if each is not None]
        if not all(0 < each < math.inf for each in known):
            raise ValueError(f"a pace takes positive numbers, got {self}")

    def slowdown(self, other: Pace) -> float:
        """How many times as long the same cycles take as at the clock of `other`; 1 if one of both
        is not known."""
        if self.clock_hz is None or other.clock_hz is None:
            return 1.0
        return other.clock_hz / self.clock_hz


UNKNOWN = Pace()


def usual_pace(paces: Iterable[Pace]) -> Pace:
    """The median of each number, where it is known."""
    paces = tuple(paces)
    clocks = [each.clock_hz for each in paces if each.clock_hz is not None]
    hops = [
        each.core_to_core_latency_s for each in paces if each.core_to_core_latency_s is not None
    ]
    return Pace(
        clock_hz=median(clocks) if clocks else None,
        core_to_core_latency_s=median(hops) if hops else None,
    )
