"""Machines that exist on paper: caches with a size, a latency and a replacement policy."""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass, field
from typing import Literal

from roofline.machine.hierarchy.curves import Timing
from roofline.machine.measuring.estimation import Burst
from roofline.machine.system.topology import Cache, Topology

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

Policy = Literal["lru", "random", "partial"]
POLICIES: tuple[Policy, ...] = ("lru", "random", "partial")


@functools.cache
def served(policy: Policy, size: float, capacity: float) -> float:
    """The fraction of loads that a cache serves of a random cycle through `size`, again and again.

    ``partial`` is what a cache still has of a working set that was read through once.
    """
    if size <= capacity:
        return 1.0
    match policy:
        case "lru":
            # Every line is forgotten before the cycle comes back to it.
            return 0.0
        case "partial":
            return capacity / size
        case "random":
            # A line survives size x (1 - h) evictions, each of which hits it with 1 / capacity.
            h = 0.0
            while (better := math.exp(-(1 - h) * size / capacity)) > h + 1e-6:
                h = better
            return h


@dataclass(slots=True)
class Simulated:
    """A machine with `caches` (bytes, seconds) before memory of `memory_s`, and noise.

    ``noise`` is the most that one size is off, as a fraction; of all bursts, ``outliers`` take
    between 1.5 and 4 times as long, half of them because their thread had lost its CPU.
    """

    caches: tuple[tuple[int, float], ...]
    memory_s: float
    policy: Policy = "lru"
    noise: float = 0.0
    outliers: float = 0.0
    seed: int = 0
    now_s: float = 0.0
    asked: list[int] = field(default_factory=list[int])

    def latency_s(self, size: int) -> float:
        """The mean time of a load."""
        total = self.memory_s
        for (capacity, near_s), far_s in zip(
            self.caches, [s for _, s in self.caches[1:]] + [self.memory_s], strict=True
        ):
            total -= (far_s - near_s) * served(self.policy, size, capacity)
        return total * (1 + random.Random(f"{self.seed} {size}").uniform(-self.noise, self.noise))

    def time_chase(self, size: int) -> Timing:
        """What a timer of the pointer chase would find."""
        dice = random.Random(f"{self.seed} {size} {len(self.asked)}")
        self.asked.append(size)
        bursts: list[Burst] = []
        for _ in range(3):
            wall_s = 1000 * self.latency_s(size)
            busy = 1.0
            if dice.random() < self.outliers:
                wall_s *= dice.uniform(1.5, 4)
                busy = dice.choice((0.5, 1.0))
            bursts.append(Burst(wall_s=wall_s, cpu_s=wall_s * busy, busy=busy))
            self.now_s += wall_s
        return Timing(work=1000, bursts=tuple(bursts))

    def clock(self) -> float:
        """Seconds of its own."""
        return self.now_s


def simulated_machine(
    name: str, policy: Policy = "lru", noise: float = 0.0, outliers: float = 0.0, seed: int = 0
) -> Simulated:
    """One of ``HIERARCHIES`` in action."""
    caches, memory_ns = HIERARCHIES[name]
    return Simulated(
        caches=tuple((round(kib * KIB), ns * 1e-9) for kib, ns in caches),
        memory_s=memory_ns * 1e-9,
        policy=policy,
        noise=noise,
        outliers=outliers,
        seed=seed,
    )


# Sizes in KiB as their makers publish them, and what a load takes in ns, rounded, as public
# measurements have it: cycles at each level over the clock of a busy core; the last is memory.
HIERARCHIES: dict[str, tuple[tuple[tuple[float, float], ...], float]] = {
    "Zen 2": (((32, 1.2), (512, 3.5), (16 * KIB, 11.5)), 105),
    "Zen 3": (((32, 1.1), (512, 3.3), (32 * KIB, 13)), 95),
    "Zen 3 V-Cache": (((32, 1.1), (512, 3.3), (96 * KIB, 15)), 95),
    "Zen 4": (((32, 0.9), (1 * KIB, 3.1), (32 * KIB, 12)), 90),
    "Zen 4c": (((32, 1.3), (1 * KIB, 4.5), (16 * KIB, 16)), 110),
    "Zen 5": (((48, 1.0), (1 * KIB, 3.5), (32 * KIB, 14)), 120),
    "Skylake": (((32, 1.0), (256, 3.0), (8 * KIB, 10.5)), 65),
    "Skylake-SP": (((32, 1.3), (1 * KIB, 4.4), (38.5 * KIB, 21)), 90),
    "Ice Lake": (((48, 1.3), (512, 3.4), (8 * KIB, 12)), 80),
    "Ice Lake-SP": (((48, 1.5), (1.25 * KIB, 4.4), (54 * KIB, 23)), 95),
    "Golden Cove": (((48, 1.0), (1.25 * KIB, 3.0), (30 * KIB, 14)), 90),
    "Sapphire Rapids": (((48, 1.4), (2 * KIB, 4.4), (105 * KIB, 45)), 120),
    "Neoverse N1": (((64, 1.6), (1 * KIB, 4.4), (32 * KIB, 30)), 110),
    "Neoverse V1": (((64, 1.5), (1 * KIB, 5.0), (32 * KIB, 29)), 118),
    "Neoverse V2": (((64, 1.2), (2 * KIB, 4.0), (114 * KIB, 38)), 140),
    "Cortex-A72": (((32, 1.7), (2 * KIB, 9.0)), 110),
    "Apple M1": (((128, 1.0), (12 * KIB, 5.6)), 97),
    "Apple M1 Max": (((128, 0.9), (12 * KIB, 5.6), (48 * KIB, 35)), 110),
}


def reported_topology(caches: tuple[tuple[int, int, int], ...], cores: int = 8) -> Topology:
    """`cores` cores; each cache as (level, bytes, cores that share an instance)."""
    return Topology(
        available_cpus=cores,
        cores=tuple(range(cores)),
        hidden_siblings=0,
        quota_cpus=None,
        caches=tuple(
            Cache(level=level, size_bytes=byte, cpus=tuple(range(first, first + sharing)))
            for level, byte, sharing in caches
            for first in range(0, cores, sharing)
        ),
    )
