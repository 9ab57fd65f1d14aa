"""This host as it is now, before anything is measured: all that the system tells, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from roofline.machine.hardware import Host
from roofline.machine.system.cgroups import control_group
from roofline.machine.system.frequency import Frequency, read_frequency
from roofline.machine.system.host import (
    CompilerFeatures,
    available_memory_bytes,
    describe_host,
    total_memory_bytes,
)
from roofline.machine.system.memory_nodes import Node, read_nodes
from roofline.machine.system.system_files import read
from roofline.machine.system.topology import ROOT, Topology, describe_topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the system tells about this host.

    ``memory_bytes`` is all that the operating system has (None: not told); ``memory_limit_bytes``
    is the container's (None: there is none); ``huge_pages`` is whether memory gets them:
    ``always``, ``madvise`` (who asks for them), ``never``, or ``""`` where not told.
    """

    host: Host
    topology: Topology
    frequency: Frequency
    nodes: tuple[Node, ...]
    available_bytes: int
    memory_bytes: int | None
    memory_limit_bytes: int | None
    huge_pages: str


def read_situation(
    root: Path = ROOT, compiler_features: CompilerFeatures | None = None
) -> Situation:
    """This host now; `root` stands for ``/`` (a fake one in tests). Takes a few milliseconds."""
    topology = describe_topology(root)
    return Situation(
        host=describe_host(root, compiler_features),
        topology=topology,
        frequency=read_frequency(root, topology.cores),
        nodes=read_nodes(root),
        available_bytes=available_memory_bytes(root),
        memory_bytes=total_memory_bytes(root),
        memory_limit_bytes=control_group(root).memory_limit_bytes(),
        huge_pages=_huge_pages(read(root / "sys/kernel/mm/transparent_hugepage/enabled")),
    )


def _huge_pages(text: str) -> str:
    """The word in brackets of ``"always [madvise] never"``."""
    chosen = text.partition("[")[2].partition("]")[0]
    return chosen if chosen in ("always", "madvise", "never") else ""
