"""A cache level as measuring uses it: how large it is taken to be, and on what grounds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from roofline.foundation.units import format_capacity
from roofline.machine.hardware import Duration, Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLevel:
    """One level of cache, as far as it is known.

    ``capacity_bytes`` of one instance enters bounds: of what it may be, the larger, since a cache
    taken too small makes a bound that can be beaten. ``held_bytes`` is what is sure to stay in it,
    the smaller: working sets follow that. ``groups`` are the CPUs that share each instance; empty
    where that is not known: then a private level has one instance per thread, a shared one is one
    for all. ``proportions`` are the sizes of these instances as multiples of the one that the
    capacity is of (empty: all alike). ``latency`` is that of a load from it (None: not
    measured).
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
        """``"L1"``."""
        return f"L{self.level}"

    def sharers(self, cpus: Collection[int]) -> int:
        """How many of `cpus` share the instance that the most of them share; at least one."""
        if self.groups:
            return max(1, *(len(set(group) & set(cpus)) for group in self.groups))
        return 1 if self.scope == "private" else max(1, len(cpus))

    def reached_bytes(self, cpus: Collection[int]) -> int:
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


def with_instances(level: CacheLevel, cpus: Collection[int]) -> CacheLevel:
    """The level with a provenance that says so if `cpus` share several instances of it."""
    sizes = level.instances(cpus)
    if level.scope == "private" or len(sizes) == 1:
        return level
    found = sorted(set(sizes), reverse=True)
    told = f"{len(sizes)} instances of {' or '.join(format_capacity(each) for each in found)}"
    reference = f"{told}; {level.provenance.reference}"
    return replace(level, provenance=replace(level.provenance, reference=reference))
