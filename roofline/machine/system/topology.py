"""CPUs that this process may use, their cores, shared caches and memory nodes."""

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
    """A memory node: its CPUs, its memory in bytes and what is free of it (None: not told)."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    free_bytes: int | None


def read_nodes(root: Path) -> tuple[Node, ...]:
    """The host's nodes that have memory which this process may use; empty where not told."""
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
    """Whether the kernel moves pages to the node that reads them, which makes remote ones local."""
    return read(root / "proc/sys/kernel/numa_balancing") not in ("", "0")


_ALIKE = 2 / 3
"""A core of at least this fraction of the fastest one's capacity is of its kind: a prime and a big
core do, a big and a little one do not."""

_X86_KINDS = (
    ("performance", "cpu_core"),
    ("efficiency", "cpu_atom"),
    ("low-power efficiency", "cpu_lowpower"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreKind:
    """Cores of about the same speed: one CPU of each that this process may use (perhaps none)."""

    name: str
    cores: tuple[int, ...]


def core_kinds(root: Path, cores: tuple[int, ...]) -> tuple[CoreKind, ...]:
    """The kinds of core of this host, the fastest first; empty where all are alike or not told."""
    x86 = [
        (name, cpu_list(read(root / f"sys/devices/{folder}/cpus"))) for name, folder in _X86_KINDS
    ]
    groups = [(name, cpus) for name, cpus in x86 if cpus] or _capacity_groups(root, cores)
    # A core that no group names could be of any speed, so nothing is known.
    named = {cpu for _, members in groups for cpu in members}
    if len(groups) < 2 or not named >= set(cores):
        return ()
    return tuple(
        CoreKind(name=name, cores=tuple(cpu for cpu in members if cpu in cores))
        for name, members in groups
    )


def _capacity_groups(root: Path, cores: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Groups by the capacity that the kernel's scheduler reckons with: 1024 is the fastest core."""
    folder = root / "sys/devices/system/cpu"
    online = set(cpu_list(read(folder / "online"))) | set(cores)
    told = {cpu: whole_number(read(folder / f"cpu{cpu}/cpu_capacity")) for cpu in online}
    capacities = {cpu: capacity for cpu, capacity in told.items() if capacity}
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
    """One data or unified cache, as the operating system reports it; its CPUs share it.

    Sizes reported inside guests can be wrong, so they are hints for working sets and not results.
    """

    level: int
    size_bytes: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The CPUs that this process may use.

    ``cores`` has one CPU per physical core, to pin to, of the fastest kind that may be used;
    ``available_cpus`` is the smallest of these, of the affinity mask and of the whole CPUs in the
    container's quota, ``quota_cpus`` (None: no limit). ``hidden_siblings`` counts the CPUs left out
    because another one shares their core. ``kinds`` are there where cores differ in speed.
    ``allowed_cpus`` are all of the affinity mask; ``online_cpus`` counts the host's (None: not
    told).
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
        """The cache of that level which the first core uses; None if none is reported."""
        mine = [cache for cache in self.caches if cache.level == level]
        first = self.cores[0] if self.cores else None
        return next((c for c in mine if not c.cpus or first in c.cpus), None)


def describe_topology(root: Path = ROOT) -> Topology:
    """The CPUs, cores and caches of this host; `root` stands for ``/`` (a fake one in tests)."""
    if sys.platform == "darwin" and root == ROOT:
        return macos_topology(sysctl)
    if root == ROOT and hasattr(os, "sched_getaffinity"):
        affinity = tuple(sorted(os.sched_getaffinity(0)))
    else:
        told = table(read(root / "proc/self/status")).get("Cpus_allowed_list", "")
        # Never empty, since something runs this.
        affinity = cpu_list(told) or tuple(range(os.cpu_count() or 1))
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
        # A list without the CPU itself, or longer than any core's, is damaged.
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
"""What claims to be larger is a damaged number, and arrays of four times that must not be tried."""


def _size_bytes(text: str) -> int | None:
    """The bytes of ``"48K"``; None for what is no size of a cache."""
    number = whole_number(text.rstrip("KMG"))
    byte = None if number is None else number * _SIZE_FACTOR.get(text[-1:], 1)
    return byte if byte and byte <= _LARGEST_CACHE_BYTE else None


def sysctl(name: str) -> str:
    """A value that macOS reports under `name`; ``""`` if there is none."""
    command = ["/usr/sbin/sysctl", "-n", name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip()


def macos_topology(ask: Callable[[str], str]) -> Topology:
    """The performance cores of a Mac and their caches; `ask` answers like ``sysctl -n``.

    Efficiency cores are left out: bursts start and end together, so one slow core would set the
    pace of all.
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
