"""Which CPUs this process may use, how they form cores, and the caches they share."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from roofline.machine.cgroups import control_group, read

ROOT = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One data or unified cache, as the operating system reports it.

    ``cpus`` are those that share it; empty where that is not known. Sizes reported inside guests
    can be wrong, so they are hints for working sets and not results.
    """

    level: int
    size_byte: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The CPUs that this process may use.

    ``cores`` has one CPU per physical core, to pin to (empty where threads cannot be pinned);
    ``available_cpus`` is the smallest of these, of the affinity mask and of the whole CPUs in the
    container's quota; ``quota_cpus`` is that quota (None: no limit). ``hidden_siblings`` counts the
    CPUs left out because another one shares their core.
    """

    available_cpus: int
    cores: tuple[int, ...]
    hidden_siblings: int
    quota_cpus: float | None
    caches: tuple[Cache, ...]

    def cache(self, level: int) -> Cache | None:
        """The cache of that level which the first core uses; None if none is reported."""
        mine = [cache for cache in self.caches if cache.level == level]
        first = self.cores[0] if self.cores else None
        return next((c for c in mine if not c.cpus or first in c.cpus), None)

    def last_cache_byte(self, cpus: tuple[int, ...]) -> int:
        """Bytes of the last-level caches that these CPUs reach, all instances together."""
        last = max((cache.level for cache in self.caches), default=0)
        return sum(
            cache.size_byte
            for cache in self.caches
            if cache.level == last and (not cache.cpus or not cpus or set(cache.cpus) & set(cpus))
        )


def describe_topology(root: Path = ROOT) -> Topology:
    """The CPUs, cores and caches of this host; `root` stands for ``/`` (a fake one in tests)."""
    if sys.platform == "darwin" and root == ROOT:
        return macos_topology(sysctl)
    affinity = _affinity(root)
    cores = _one_per_core(root, affinity)
    quota = control_group(root).cpu_quota()
    available = len(cores) if quota is None else min(len(cores), max(1, math.floor(quota)))
    return Topology(
        available_cpus=available,
        cores=cores,
        hidden_siblings=len(affinity) - len(cores),
        quota_cpus=quota,
        caches=_caches(root, affinity),
    )


def _affinity(root: Path) -> tuple[int, ...]:
    if root == ROOT and hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    for line in read(root / "proc/self/status").splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            return cpu_list(value)
    return tuple(range(os.cpu_count() or 1))


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs in the kernel's notation: ``"0-2,5"`` is (0, 1, 2, 5)."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.strip().partition("-")
        if first:
            cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def _cpu_folder(root: Path, cpu: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{cpu}"


def _one_per_core(root: Path, cpus: tuple[int, ...]) -> tuple[int, ...]:
    taken: set[int] = set()
    cores: list[int] = []
    for cpu in cpus:
        if cpu in taken:
            continue
        cores.append(cpu)
        taken.update(
            cpu_list(read(_cpu_folder(root, cpu) / "topology/thread_siblings_list")) or (cpu,)
        )
    return tuple(cores)


_SIZE_FACTOR = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _caches(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    found: dict[tuple[int, tuple[int, ...]], Cache] = {}
    for cpu in cpus:
        for folder in sorted((_cpu_folder(root, cpu) / "cache").glob("index*")):
            level, size = read(folder / "level"), read(folder / "size")
            if read(folder / "type") not in ("Data", "Unified") or not level or not size:
                continue
            shared = cpu_list(read(folder / "shared_cpu_list")) or (cpu,)
            factor = _SIZE_FACTOR.get(size[-1], 1)
            byte = int(size.rstrip("KMG")) * factor
            if byte:
                found[int(level), shared] = Cache(level=int(level), size_byte=byte, cpus=shared)
    return tuple(found[key] for key in sorted(found))


def sysctl(name: str) -> str:
    """A value that macOS reports under `name`; ``""`` if there is none."""
    command = ["/usr/sbin/sysctl", "-n", name]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def macos_topology(ask: Callable[[str], str]) -> Topology:
    """The performance cores of a Mac and their caches; `ask` answers like ``sysctl -n``.

    Threads cannot be pinned there. Efficiency cores are left out: bursts start and end together, so
    one slow core would set the pace of all.
    """

    def number(name: str) -> int:
        answer = ask(name)
        return int(answer) if answer.isdigit() else 0

    cores = number("hw.perflevel0.physicalcpu") or number("hw.physicalcpu") or 1
    sizes = {
        1: number("hw.perflevel0.l1dcachesize") or number("hw.l1dcachesize"),
        2: number("hw.perflevel0.l2cachesize") or number("hw.l2cachesize"),
        3: number("hw.l3cachesize"),
    }
    sharing = {1: 1, 2: number("hw.perflevel0.cpusperl2") or 1, 3: cores}
    caches = [
        Cache(
            level=level,
            size_byte=size,
            cpus=tuple(range(first, min(first + sharing[level], cores))),
        )
        for level, size in sizes.items()
        if size
        for first in range(0, cores, sharing[level])
    ]
    return Topology(
        available_cpus=cores,
        cores=tuple(range(cores)),
        hidden_siblings=0,
        quota_cpus=None,
        caches=tuple(caches),
    )
