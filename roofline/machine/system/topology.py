"""CPUs available to this process, their cores, shared caches and NUMA nodes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from roofline.machine.system.system_files import (
    control_group,
    cpu_list,
    kilobytes,
    read,
    table,
    whole_number,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A NUMA node: its CPUs, memory and free memory in bytes (None: unknown)."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    free_bytes: int | None


def read_nodes(root: Path) -> tuple[Node, ...]:
    """Return the NUMA nodes whose memory this process may use; empty if unknown."""
    folder = root / "sys/devices/system/node"
    status = table(read(root / "proc/self/status"))
    allowed = cpu_list(status.get("Mems_allowed_list", ""))
    found: list[Node] = []
    for number in cpu_list(read(folder / "has_memory") or read(folder / "online")):
        if allowed and number not in allowed:
            continue
        here = folder / f"node{number}"
        meminfo = table(read(here / "meminfo"))
        found.append(
            Node(
                number=number,
                cpus=cpu_list(read(here / "cpulist")),
                memory_bytes=kilobytes(meminfo.get(f"Node {number} MemTotal", "")),
                free_bytes=kilobytes(meminfo.get(f"Node {number} MemFree", "")),
            )
        )
    return tuple(found)


def pages_migrate(root: Path) -> bool:
    """Return True if the kernel migrates pages to the reading node."""
    return read(root / "proc/sys/kernel/numa_balancing") not in ("", "0")


_ALIKE = 2 / 3
"""Cores with at least this fraction of the fastest core's capacity are of its kind: prime and big
cores are, little ones are not."""

_X86_KINDS = (
    ("performance", "cpu_core"),
    ("efficiency", "cpu_atom"),
    ("low-power efficiency", "cpu_lowpower"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreKind:
    """Cores of similar speed: one available CPU of each (may be empty)."""

    name: str
    cores: tuple[int, ...]


def core_kinds(root: Path, cores: tuple[int, ...]) -> tuple[CoreKind, ...]:
    """Return the kinds of core, fastest first; empty if all are alike or unknown."""
    x86 = [
        (name, cpu_list(read(root / f"sys/devices/{folder}/cpus"))) for name, folder in _X86_KINDS
    ]
    groups = [(name, cpus) for name, cpus in x86 if cpus] or _capacity_groups(root, cores)
    # A core in no group has an unknown speed.
    named = {cpu for _, members in groups for cpu in members}
    if len(groups) < 2 or not named >= set(cores):
        return ()
    return tuple(
        CoreKind(name=name, cores=tuple(cpu for cpu in members if cpu in cores))
        for name, members in groups
    )


def _capacity_groups(root: Path, cores: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Return groups by the scheduler's core capacity, where 1024 is the fastest."""
    folder = root / "sys/devices/system/cpu"
    online = set(cpu_list(read(folder / "online"))) | set(cores)
    reported = {cpu: whole_number(read(folder / f"cpu{cpu}/cpu_capacity")) for cpu in online}
    capacities = {cpu: capacity for cpu, capacity in reported.items() if capacity}
    groups: list[list[int]] = []
    for cpu in sorted(capacities, key=lambda each: (-capacities[each], each)):
        if groups and capacities[cpu] >= _ALIKE * capacities[groups[-1][0]]:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    names = ["performance", *["middle"] * (len(groups) - 2), "efficiency"]
    return [(name, tuple(cpus)) for name, cpus in zip(names, groups, strict=False)]


ROOT = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A data or unified cache, as the operating system reports it, with the CPUs that share it.

    Sizes may be wrong in guests; they are used as hints for working sets.
    """

    level: int
    size_bytes: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The CPUs available to this process.

    ``cores`` has one CPU per physical core of the fastest available kind; ``available_cpus`` is the
    minimum of these, the affinity mask, and the whole CPUs of ``quota_cpus`` (None: no limit).
    ``hidden_siblings`` counts CPUs not used because they share a core. ``kinds`` exist where cores
    differ in speed. ``allowed_cpus`` is the affinity mask; ``online_cpus`` counts the host's CPUs
    (None: unknown).
    """

    available_cpus: int
    cores: tuple[int, ...]
    hidden_siblings: int
    quota_cpus: float | None
    caches: tuple[Cache, ...]
    kinds: tuple[CoreKind, ...] = ()
    allowed_cpus: tuple[int, ...] = ()
    online_cpus: int | None = None

    def cache(self, level: int) -> Cache | None:
        """Return the first core's cache of a level; None if not reported."""
        mine = [cache for cache in self.caches if cache.level == level]
        first = self.cores[0] if self.cores else None
        return next((c for c in mine if not c.cpus or first in c.cpus), None)


def describe_topology(root: Path = ROOT) -> Topology:
    """Return the CPUs, cores and caches of this host; `root` stands for ``/``."""
    if sys.platform == "darwin" and root == ROOT:
        return macos_topology(sysctl)
    if root == ROOT and hasattr(os, "sched_getaffinity"):
        affinity = tuple(sorted(os.sched_getaffinity(0)))
    else:
        allowed = table(read(root / "proc/self/status")).get("Cpus_allowed_list", "")
        affinity = cpu_list(allowed) or tuple(range(os.cpu_count() or 1))
    physical = _one_per_core(root, affinity)
    kinds = core_kinds(root, physical)
    cores = next((kind.cores for kind in kinds if kind.cores), physical)
    quota = control_group(root).cpu_quota()
    available = len(cores) if quota is None else min(len(cores), max(1, math.floor(quota)))
    return Topology(
        available_cpus=available,
        cores=cores,
        hidden_siblings=len(affinity) - len(physical),
        quota_cpus=quota,
        caches=_caches(root, affinity),
        kinds=kinds,
        allowed_cpus=affinity,
        online_cpus=len(cpu_list(read(root / "sys/devices/system/cpu/online"))) or None,
    )


def _cpu_folder(root: Path, cpu: int) -> Path:
    return root / f"sys/devices/system/cpu/cpu{cpu}"


def _one_per_core(root: Path, cpus: tuple[int, ...]) -> tuple[int, ...]:
    taken: set[int] = set()
    cores: list[int] = []
    for cpu in cpus:
        if cpu in taken:
            continue
        cores.append(cpu)
        siblings = cpu_list(read(_cpu_folder(root, cpu) / "topology/thread_siblings_list"))
        # A list without the CPU itself, or too long, is damaged.
        if cpu in siblings and len(siblings) <= _MOST_SIBLINGS:
            taken.update(siblings)
    return tuple(cores)


_MOST_SIBLINGS = 8
_MOST_CPUS = 1 << 16


def _caches(root: Path, cpus: tuple[int, ...]) -> tuple[Cache, ...]:
    found: dict[tuple[int, tuple[int, ...]], Cache] = {}
    for cpu in cpus:
        for folder in sorted((_cpu_folder(root, cpu) / "cache").glob("index*")):
            level, byte = whole_number(read(folder / "level")), _size_bytes(read(folder / "size"))
            if read(folder / "type") not in ("Data", "Unified") or not level or not byte:
                continue
            shared = cpu_list(read(folder / "shared_cpu_list")) or (cpu,)
            found[level, shared] = Cache(level=level, size_bytes=byte, cpus=shared)
    return tuple(found[key] for key in sorted(found))


_SIZE_FACTOR = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_LARGEST_CACHE_BYTE = 1 << 40
"""Larger sizes are damaged; arrays are a multiple of the cache size."""


def _size_bytes(text: str) -> int | None:
    """Return the bytes of ``"48K"``; None if it is not a cache size."""
    number = whole_number(text.rstrip("KMG"))
    byte = None if number is None else number * _SIZE_FACTOR.get(text[-1:], 1)
    return byte if byte and byte <= _LARGEST_CACHE_BYTE else None


def sysctl(name: str) -> str:
    """Return a macOS system value; ``""`` if missing."""
    command = ["/usr/sbin/sysctl", "-n", name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def macos_topology(ask: Callable[[str], str]) -> Topology:
    """Return the performance cores of a Mac and their caches; `ask` answers like ``sysctl -n``.

    Efficiency cores are excluded: bursts end with their slowest core.
    """

    def number(name: str) -> int:
        answer = whole_number(ask(name)) or 0
        return answer if answer <= _LARGEST_CACHE_BYTE else 0

    def count(name: str) -> int:
        answer = number(name)
        return answer if answer <= _MOST_CPUS else 0

    cores = count("hw.perflevel0.physicalcpu") or count("hw.physicalcpu") or 1
    slower = count("hw.perflevel1.physicalcpu")
    logical = number("hw.perflevel0.logicalcpu") or number("hw.logicalcpu")
    sizes = {
        1: number("hw.perflevel0.l1dcachesize") or number("hw.l1dcachesize"),
        2: number("hw.perflevel0.l2cachesize") or number("hw.l2cachesize"),
        3: number("hw.l3cachesize"),
    }
    sharing = {1: 1, 2: number("hw.perflevel0.cpusperl2") or 1, 3: cores}
    caches = [
        Cache(
            level=level,
            size_bytes=size,
            cpus=tuple(range(first, min(first + sharing[level], cores))),
        )
        for level, size in sizes.items()
        if size
        for first in range(0, cores, sharing[level])
    ]
    return Topology(
        available_cpus=cores,
        cores=tuple(range(cores)),
        hidden_siblings=max(0, logical - cores),
        quota_cpus=None,
        caches=tuple(caches),
        kinds=(
            CoreKind(name="performance", cores=tuple(range(cores))),
            CoreKind(name="efficiency", cores=tuple(range(cores, cores + slower))),
        )
        if slower
        else (),
        online_cpus=number("hw.logicalcpu") or None,
    )
