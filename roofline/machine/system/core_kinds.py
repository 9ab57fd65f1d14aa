"""Cores of different speed in one CPU: which are the fast ones, as far as the system tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roofline.machine.system.system_files import cpu_list, read, whole_number

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
    """Cores of about the same speed: one CPU of each that this process may use, fastest first.

    ``cores`` is empty where the host has such cores but this process may not use them.
    """

    name: str
    cores: tuple[int, ...]


def core_kinds(root: Path, cores: tuple[int, ...]) -> tuple[CoreKind, ...]:
    """The kinds of core of this host, the fastest first; empty where all are alike or not told."""
    groups = _x86_groups(root) or _capacity_groups(root, cores)
    # A core that no group names could be of any speed, so nothing is known.
    named = {cpu for _, members in groups for cpu in members}
    if len(groups) < 2 or not named >= set(cores):
        return ()
    usable = set(cores)
    return tuple(
        CoreKind(name=name, cores=tuple(cpu for cpu in members if cpu in usable))
        for name, members in groups
    )


Groups = list[tuple[str, tuple[int, ...]]]


def _x86_groups(root: Path) -> Groups:
    found = [
        (name, cpu_list(read(root / "sys/devices" / folder / "cpus")))
        for name, folder in _X86_KINDS
    ]
    return [(name, cpus) for name, cpus in found if cpus]


def _capacity_groups(root: Path, cores: tuple[int, ...]) -> Groups:
    """Groups by the capacity that the kernel's scheduler reckons with: 1024 is the fastest core."""
    folder = root / "sys/devices/system/cpu"
    online = set(cpu_list(read(folder / "online"))) | set(cores)
    told = {cpu: whole_number(read(folder / f"cpu{cpu}/cpu_capacity")) for cpu in online}
    capacities = {cpu: capacity for cpu, capacity in told.items() if capacity}
    members = _grouped(capacities)
    return [(_name(i, len(members)), cpus) for i, cpus in enumerate(members)]


def _grouped(capacities: Mapping[int, int]) -> list[tuple[int, ...]]:
    groups: list[list[int]] = []
    for cpu in sorted(capacities, key=lambda each: (-capacities[each], each)):
        if groups and capacities[cpu] >= _ALIKE * capacities[groups[-1][0]]:
            groups[-1].append(cpu)
        else:
            groups.append([cpu])
    return [tuple(group) for group in groups]


def _name(place: int, count: int) -> str:
    if place == 0:
        return "performance"
    return "efficiency" if place == count - 1 else "middle"
