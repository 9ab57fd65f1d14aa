"""How much memory a stream kernel goes over so that one level of the hierarchy serves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.errors import MeasurementError
from roofline.foundation.units import format_capacity
from roofline.machine.topology import Topology

DRAM = "DRAM"

_LEAST_DRAM_BYTE = 64 << 20
_DRAM_FACTOR = 4
"""Arrays of twice the last cache still read a quarter faster than memory."""

_WANTED_FACTOR = 8
_WANTED_BYTE = 1 << 30
"""Last caches do not forget in order: the longer the way round, the less is still there."""

_MEMORY_FRACTION = 4
"""At most a quarter of the available memory is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """Bytes of all streams together that each of `threads` threads goes over at one level."""

    level: str
    threads: int
    byte_per_thread: int
    capacity_byte: int | None
    scope: Literal["private", "shared"]

    @property
    def note(self) -> str:
        """What the working set rests on, for the provenance of its bandwidths."""
        size = f"{format_capacity(self.byte_per_thread)} per thread"
        if self.capacity_byte is None:
            return size
        capacity = format_capacity(self.capacity_byte)
        return f"{size} in {self.level} of {capacity} (reported by the operating system)"


def cache_working_sets(topology: Topology, threads: int) -> list[WorkingSet]:
    """The working sets of every cache level that `threads` threads can be measured at.

    A level is left out where a thread's share of it is too small beside the level before it.
    """
    used = topology.cores[:threads]
    found: list[WorkingSet] = []
    below = 0
    for level in sorted({cache.level for cache in topology.caches}):
        cache = topology.cache(level)
        if cache is None:
            continue
        users = max(1, len(set(cache.cpus) & set(used))) if cache.cpus else threads
        share = cache.size_byte // users
        size = _cache_byte(level, share, below)
        private = len(set(cache.cpus) & set(topology.cores)) <= 1 and bool(cache.cpus)
        if size is not None:
            found.append(
                WorkingSet(
                    level=f"L{level}",
                    threads=threads,
                    byte_per_thread=size,
                    capacity_byte=cache.size_byte,
                    scope="private" if private else "shared",
                )
            )
        below = share
    return found


def _cache_byte(level: int, share: int, below: int) -> int | None:
    """Bytes for a thread whose share of a level is `share`, and of the level before it `below`."""
    match level:
        case 1:
            least, wanted, most = 0, share // 2, share // 2
        case 2:
            least, wanted, most = 4 * below, share // 2, share * 3 // 4
        case _:
            # A last level is shared with the host's other tenants: the smaller, the surer.
            least, wanted, most = 2 * below, max(4 * below, share // 8), share // 2
    size = min(max(wanted, least), most)
    return size if size >= least else None


def memory_working_set(topology: Topology, threads: int, available_byte: int) -> WorkingSet:
    """The working set that only main memory can hold: 4 to 8 times the caches in reach.

    Args:
        topology: caches and cores of the host.
        threads: threads that share the work.
        available_byte: memory that may be allocated in all.

    Raises:
        MeasurementError: a quarter of the available memory is less than that.
    """
    caches = topology.last_cache_byte(topology.cores[:threads])
    most = available_byte // _MEMORY_FRACTION
    least = max(_LEAST_DRAM_BYTE, _DRAM_FACTOR * caches)
    total = max(least, min(_WANTED_FACTOR * caches, _WANTED_BYTE, most))
    if total > most:
        raise MeasurementError(
            f"measuring memory takes {format_capacity(least)} (4 x the last-level cache), more than"
            f" a quarter of the {format_capacity(available_byte)} available; free some memory"
        )
    return WorkingSet(
        level=DRAM,
        threads=threads,
        byte_per_thread=total // threads,
        capacity_byte=None,
        scope="shared",
    )
