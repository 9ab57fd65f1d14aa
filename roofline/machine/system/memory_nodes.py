"""Memory nodes (NUMA) as the system shows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roofline.machine.system.system_files import cpu_list, kilobytes, read, table


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
