"""Cache levels, and the kernel working sets that one level serves."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.text import counted
from roofline.core.units import format_capacity
from roofline.machine.hardware import Duration, Provenance
from roofline.machine.system.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """One level of cache.

    ``capacity_bytes`` of one instance is used for minimum times: the larger candidate, because a
    cache taken too small gives times that can be beaten. ``held_bytes``, the smaller candidate, is
    used for working sets. ``groups`` are the CPUs of each instance (empty: one per thread, or one
    for all if shared); ``proportions`` their sizes relative to ``capacity_bytes`` (empty: equal).
    """

    level: int
    capacity_bytes: int
    held_bytes: int
    scope: Literal["private", "shared"]
    groups: tuple[tuple[int, ...], ...] = ()
    proportions: tuple[float, ...] = ()
    latency: Duration | None = None
    provenance: Provenance

    @property
    def name(self) -> str:
        return f"L{self.level}"

    def sharers(self, cpus: Collection[int]) -> int:
        """Return the largest number of `cpus` on one instance, at least one."""
        if self.groups:
            return max(1, *(len(set(group) & set(cpus)) for group in self.groups))
        return 1 if self.scope == "private" else max(1, len(cpus))

    def reachable_bytes(self, cpus: Collection[int]) -> int:
        """Return the bytes of all instances of `cpus`."""
        return sum(self.instances(cpus))

    def instances(self, cpus: Collection[int]) -> tuple[int, ...]:
        """Return the bytes of each instance of `cpus`; at least one."""
        if self.groups:
            proportions = self.proportions or (1.0,) * len(self.groups)
            sizes = tuple(
                round(self.capacity_bytes * proportion)
                for group, proportion in zip(self.groups, proportions, strict=True)
                if set(group) & set(cpus)
            )
        else:
            sizes = (self.capacity_bytes,) * (len(cpus) if self.scope == "private" else 1)
        return sizes or (self.capacity_bytes,)


def note_instances(level: CacheLevel, cpus: Collection[int]) -> CacheLevel:
    """Return the level with a note in its provenance if `cpus` use several instances."""
    sizes = level.instances(cpus)
    if level.scope == "private" or len(sizes) == 1:
        return level
    found = sorted(set(sizes), reverse=True)
    instances = f"{len(sizes)} instances of {' or '.join(format_capacity(each) for each in found)}"
    reference = f"{instances}; {level.provenance.reference}"
    return replace(level, provenance=replace(level.provenance, reference=reference))


DRAM = "DRAM"

_LEAST_DRAM_BYTE = 64 << 20
_DRAM_FACTOR = 4  # arrays of twice the last-level cache still read 25 % faster than memory
_SCARCE_DRAM_FACTOR = 2  # smaller arrays are cached

_WANTED_FACTOR = 8
_WANTED_BYTE = 1 << 30
"""Last-level caches evict out of order: larger arrays leave fewer hits."""

_CURVE_FACTOR = 4
_UNKNOWN_CACHE_BYTE = 64 << 20  # assumed last-level cache if none is reported

_FRACTION = 8
_SCARCE_FRACTION = 4
"""Largest working set as a fraction of available memory: 1/8, or 1/4 if that is too little.

Buffers of one thread and of all threads take twice that; curve buffers are freed before.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Bytes of all streams that each of `threads` threads accesses at one level.

    ``capacity_bytes`` of the level: of one core if private, of all reachable instances if shared
    (None: unlimited). ``source`` is the provenance of that size.
    """

    level: str
    threads: int
    bytes_per_thread: int
    capacity_bytes: int | None
    scope: Literal["private", "shared"]
    source: str = ""

    @property
    def note(self) -> str:
        """Working set and cache size, for the provenance of bandwidths."""
        size = f"{format_capacity(self.bytes_per_thread)} per thread"
        if self.capacity_bytes is None:
            return size
        source = f" ({self.source})" if self.source else ""
        return f"{size} in {self.level} of {format_capacity(self.capacity_bytes)}{source}"


def first_curve_bytes(topology: Topology, available_bytes: int) -> int:
    """Return the largest working set of the first curve: 4 times the last-level cache.

    256 MiB if no cache is reported. At most 1 GiB and 1/8 of available memory, or 1/4 if 1/8 is
    less than twice the cache.
    """
    caches = [topology.cache(cache.level) for cache in topology.caches]
    last = max((cache.size_bytes for cache in caches if cache), default=_UNKNOWN_CACHE_BYTE)
    most = _allowance(available_bytes, _SCARCE_DRAM_FACTOR * last)
    return min(_CURVE_FACTOR * last, _WANTED_BYTE, most)


def max_curve_bytes(available_bytes: int) -> int:
    return min(_WANTED_BYTE, available_bytes // _SCARCE_FRACTION)


def plan_working_sets(
    levels: Sequence[CacheLevel],
    topology: Topology,
    teams: Sequence[int],
    available_bytes: int,
) -> tuple[list[WorkingSet], list[str]]:
    """Return the working sets of each team at each measurable level, nearest first.

    Also returns notes on omitted or reduced sets. `available_bytes` includes the curve's memory.
    """
    sets: list[WorkingSet] = []
    conditions: list[str] = []
    largest = topology.cores[: max(teams)] or tuple(range(max(teams)))
    # Capacities, per core if private, else of all instances; made monotonic, because all instances
    # of a nearer level may hold more.
    held = (
        each.capacity_bytes if each.scope == "private" else each.reachable_bytes(largest)
        for each in levels
    )
    capacities = list(itertools.accumulate(held, max))
    for threads in teams:
        used = topology.cores[:threads] or tuple(range(threads))
        sets += _cache_sets(levels, capacities, used)
        reached = levels[-1].reachable_bytes(used) if levels else 0
        memory, condition = _memory_set(reached, threads, available_bytes)
        sets += [memory] if memory else []
        conditions += [condition] if condition else []
    return sets, conditions


def _cache_sets(
    levels: Sequence[CacheLevel], capacities: Sequence[int], cpus: Sequence[int]
) -> Iterator[WorkingSet]:
    """Yield working sets; a level is omitted if a thread's share is too close to the level
    before."""
    below = 0
    for each, capacity in zip(levels, capacities, strict=True):
        share = each.held_bytes // each.sharers(cpus)
        match each.level:
            case 1:
                least, wanted, most = 0, share // 2, share // 2
            case 2:
                least, wanted, most = 4 * below, share // 2, share * 3 // 4
            case _:
                # Other guests share the last level: small sets are safer.
                least, wanted, most = 2 * below, max(4 * below, share // 8), share // 2
        size = min(max(wanted, least), most)
        if size >= least:
            yield WorkingSet(
                level=each.name,
                threads=len(cpus),
                bytes_per_thread=size,
                capacity_bytes=capacity,
                scope=each.scope,
                source=each.provenance.reference,
            )
        below = each.capacity_bytes // each.sharers(cpus)


def _memory_set(
    caches_bytes: int, threads: int, available_bytes: int
) -> tuple[WorkingSet | None, str]:
    """Return the working set in main memory, and a note on it.

    8 times the reachable caches; at least 4 times, or 2 times if memory is scarce.
    """
    wanted = max(_LEAST_DRAM_BYTE, _DRAM_FACTOR * caches_bytes)
    least = max(_LEAST_DRAM_BYTE, _SCARCE_DRAM_FACTOR * caches_bytes)
    most = _allowance(available_bytes, wanted)
    team = counted(threads, "thread")
    free = f"{format_capacity(available_bytes)} of memory available"
    if most < least:
        return None, (
            f"{DRAM} on {team} not measured: only {free}; a quarter of it is less than the"
            f" {format_capacity(least)} that exceed the caches"
        )
    total = min(max(wanted, min(_WANTED_FACTOR * caches_bytes, _WANTED_BYTE)), most)
    condition = ""
    if total < wanted:
        condition = (
            f"{DRAM} on {team}: working sets of {format_capacity(total)} instead of"
            f" {format_capacity(wanted)}, only {free}; partly served by the last-level cache"
        )
    return WorkingSet(
        level=DRAM,
        threads=threads,
        bytes_per_thread=total // threads,
        capacity_bytes=None,
        scope="shared",
    ), condition


def _allowance(available_bytes: int, wanted_bytes: int) -> int:
    """Return the bytes that may be allocated for one purpose that needs `wanted_bytes`."""
    usual = available_bytes // _FRACTION
    return (
        usual if usual >= wanted_bytes else min(wanted_bytes, available_bytes // _SCARCE_FRACTION)
    )
