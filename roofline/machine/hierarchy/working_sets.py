"""Cache levels, and the working sets of kernels that one level serves."""

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

    ``capacity_bytes`` of one instance enters bounds: of what it may be, the larger, since a cache
    taken too small makes a bound that can be beaten. ``held_bytes`` is what is sure to stay in it,
    the smaller: working sets follow that. ``groups`` are the CPUs that share each instance (empty:
    one instance per thread, or one for all if shared), ``proportions`` the sizes of these instances
    as multiples of the one that the capacity is of (empty: all alike).
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
        """How many of `cpus` share the instance that the most of them share; at least one."""
        if self.groups:
            return max(1, *(len(set(group) & set(cpus)) for group in self.groups))
        return 1 if self.scope == "private" else max(1, len(cpus))

    def reachable_bytes(self, cpus: Collection[int]) -> int:
        """Bytes of all instances together that `cpus` reach."""
        return sum(self.instances(cpus))

    def instances(self, cpus: Collection[int]) -> tuple[int, ...]:
        """Bytes of each instance that `cpus` reach; at least one."""
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
    """The level with a provenance that says so if `cpus` share several instances of it."""
    sizes = level.instances(cpus)
    if level.scope == "private" or len(sizes) == 1:
        return level
    found = sorted(set(sizes), reverse=True)
    told = f"{len(sizes)} instances of {' or '.join(format_capacity(each) for each in found)}"
    reference = f"{told}; {level.provenance.reference}"
    return replace(level, provenance=replace(level.provenance, reference=reference))


DRAM = "DRAM"

_LEAST_DRAM_BYTE = 64 << 20
_DRAM_FACTOR = 4  # arrays of twice the last cache still read a quarter faster than memory
_SCARCE_DRAM_FACTOR = 2  # arrays of less than that are not in memory any more

_WANTED_FACTOR = 8
_WANTED_BYTE = 1 << 30
"""Last caches do not forget in order: the longer the way round, the less is still there."""

_CURVE_FACTOR = 4
_UNKNOWN_CACHE_BYTE = 64 << 20  # what the curve must reach beyond where no cache is reported

_FRACTION = 8
_SCARCE_FRACTION = 4
"""Of the available memory, the largest working set: an eighth, a quarter where that is too little.

One thread's buffer and those of all threads together take twice that. The curve's buffers are given
back before those of the working sets are allocated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Bytes of all streams together that each of `threads` threads goes over at one level.

    ``capacity_bytes`` is that of the level: of one core if it is private, of all instances in the
    reach of the largest team if it is shared (None: no limit known). ``source`` says in words what
    it rests on.
    """

    level: str
    threads: int
    bytes_per_thread: int
    capacity_bytes: int | None
    scope: Literal["private", "shared"]
    source: str = ""

    @property
    def note(self) -> str:
        """What the working set rests on, for the provenance of its bandwidths."""
        size = f"{format_capacity(self.bytes_per_thread)} per thread"
        if self.capacity_bytes is None:
            return size
        source = f" ({self.source})" if self.source else ""
        return f"{size} in {self.level} of {format_capacity(self.capacity_bytes)}{source}"


def first_curve_bytes(topology: Topology, available_bytes: int) -> int:
    """The working set at which curves end at first: 4 times the last cache, as memory allows.

    The last cache is the largest that is reported; 256 MiB where none is. At most 1 GiB and an
    eighth of the available memory, or a quarter where an eighth is less than twice the cache.
    """
    caches = [topology.cache(cache.level) for cache in topology.caches]
    last = max((cache.size_bytes for cache in caches if cache), default=_UNKNOWN_CACHE_BYTE)
    most = _allowance(available_bytes, _SCARCE_DRAM_FACTOR * last)
    return min(_CURVE_FACTOR * last, _WANTED_BYTE, most)


def max_curve_bytes(available_bytes: int) -> int:
    """The working set up to which a curve that ends in a cache is extended."""
    return min(_WANTED_BYTE, available_bytes // _SCARCE_FRACTION)


def plan_working_sets(
    levels: Sequence[CacheLevel],
    topology: Topology,
    teams: Sequence[int],
    available_bytes: int,
) -> tuple[list[WorkingSet], list[str]]:
    """The working sets of every team at every level it can be measured at, nearest level first.

    Besides, what had to be left out or made smaller, in words. `available_bytes` may be allocated
    in all, before the curve's.
    """
    sets: list[WorkingSet] = []
    conditions: list[str] = []
    largest = topology.cores[: max(teams)] or tuple(range(max(teams)))
    # What each level holds at most: per core if it is private, else on all CPUs together. No level
    # holds less than the one before it: all instances of that may well hold more.
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
    """A level is left out where a thread's share of it is too small beside the level before it."""
    below = 0
    for each, capacity in zip(levels, capacities, strict=True):
        share = each.held_bytes // each.sharers(cpus)
        match each.level:
            case 1:
                least, wanted, most = 0, share // 2, share // 2
            case 2:
                least, wanted, most = 4 * below, share // 2, share * 3 // 4
            case _:
                # A last level is shared with the host's other tenants: the smaller, the surer.
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
    """The working set in main memory alone, and what is wrong with it, in words.

    8 times the caches in reach; at least 4 times, and where memory is scarce 2 times.
    """
    wanted = max(_LEAST_DRAM_BYTE, _DRAM_FACTOR * caches_bytes)
    least = max(_LEAST_DRAM_BYTE, _SCARCE_DRAM_FACTOR * caches_bytes)
    most = _allowance(available_bytes, wanted)
    team = counted(threads, "thread")
    free = f"{format_capacity(available_bytes)} of memory are available"
    if most < least:
        return None, (
            f"{DRAM} on {team} is left out: only {free}, and a quarter of that is less"
            f" than the {format_capacity(least)} that no cache holds"
        )
    total = min(max(wanted, min(_WANTED_FACTOR * caches_bytes, _WANTED_BYTE)), most)
    condition = ""
    if total < wanted:
        condition = (
            f"{DRAM} on {team} has working sets of {format_capacity(total)} instead of"
            f" {format_capacity(wanted)}, because only {free}: the last cache still serves a part"
        )
    return WorkingSet(
        level=DRAM,
        threads=threads,
        bytes_per_thread=total // threads,
        capacity_bytes=None,
        scope="shared",
    ), condition


def _allowance(available_bytes: int, wanted_bytes: int) -> int:
    """Bytes that may be allocated for one purpose where `wanted_bytes` are needed for it."""
    usual = available_bytes // _FRACTION
    return (
        usual if usual >= wanted_bytes else min(wanted_bytes, available_bytes // _SCARCE_FRACTION)
    )
