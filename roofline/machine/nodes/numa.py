"""The ways between NUMA nodes on this host, measured with a read kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from roofline.foundation.units import format_capacity
from roofline.machine.hardware import Duration, Link, Provenance
from roofline.machine.hierarchy.cache_sizes import Hierarchy
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring.crew import Array, Crew, allocate, fill
from roofline.machine.measuring.estimation import Burst, estimate, provenance
from roofline.machine.measuring.trials import Trial, part_trial
from roofline.machine.system.situation import Situation
from roofline.machine.system.topology import ROOT, Node, pages_migrate

# Nothing here computes: workers, memory and timings come through `Instruments`, so that a machine
# of any number of nodes can be played in tests. A host of one node is left alone.

Team = TypeVar("Team")
Memory = TypeVar("Memory")

_FREE_FACTOR = 2
"""Memory that a node must have free, over what is allocated there; else pages go elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node that can be measured: the cores to compute on, and to write its memory first."""

    node: int
    cores: tuple[int, ...]

    @property
    def source(self) -> str:
        """Its name as where a way begins."""
        return f"node {self.node}"

    @property
    def target(self) -> str:
        """Its name as where a way leads."""
        return f"memory of node {self.node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The nodes to measure between; none where there are not two. ``left_out`` says which not."""

    places: tuple[Place, ...]
    bytes_per_node: int
    left_out: tuple[str, ...] = ()

    @property
    def routes(self) -> tuple[tuple[Place, Place], ...]:
        """Every way, those within a node first."""
        local = tuple((place, place) for place in self.places)
        remote = tuple((a, b) for a in self.places for b in self.places if a is not b)
        return local + remote


def plan(
    nodes: Sequence[Node], *, cores: tuple[int, ...], bytes_per_node: int, available_bytes: int
) -> Plan:
    """What to measure on a host with these nodes, on these cores.

    Args:
        nodes: those with memory.
        cores: one CPU per physical core that may be used.
        bytes_per_node: what is read there; more than the caches of any one node hold.
        available_bytes: what may be allocated in all, within the container's limit; half is used.
    """
    places: list[Place] = []
    left_out: list[str] = []
    for node in nodes if len(nodes) > 1 else ():
        mine = tuple(cpu for cpu in cores if cpu in node.cpus)
        if not mine:
            left_out.append(f"memory of node {node.number}: none of the cores in use is on it")
        elif node.free_bytes is not None and node.free_bytes < _FREE_FACTOR * bytes_per_node:
            left_out.append(
                f"memory of node {node.number}: {format_capacity(node.free_bytes)} free, too little"
                f" to be sure of {format_capacity(bytes_per_node)} there"
            )
        else:
            places.append(Place(node=node.number, cores=mine))
    wanted = bytes_per_node * len(places)
    if len(places) > 1 and wanted > available_bytes / 2:
        left_out.append(
            f"what leads from node to node: {format_capacity(wanted)} of memory are more than half"
            f" of the {format_capacity(available_bytes)} available"
        )
        places.clear()
    return Plan(
        places=tuple(places) if len(places) > 1 else (),
        bytes_per_node=bytes_per_node,
        left_out=tuple(left_out),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments(Generic[Team, Memory]):
    """What measures.

    ``team`` opens workers, one pinned to each of the CPUs; ``place`` has a team's own workers write
    that many bytes of new memory first, which puts it on their node; ``read`` times bursts in which
    all workers of a team together read each its equal part of a memory, ``read_bytes`` bytes a
    burst in all; ``latency`` times dependent loads of one worker (None: not available).
    """

    team: Callable[[tuple[int, ...]], AbstractContextManager[Team]]
    place: Callable[[Team, int], Memory]
    read: Callable[[Team, Memory], tuple[float, Sequence[Burst]]]
    latency: Callable[[Team, Memory], Duration] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaFindings:
    """The ways between nodes that were measured, and what must be said of them."""

    links: tuple[Link, ...] = ()
    conditions: tuple[str, ...] = ()


def measure_links(
    what: Plan,
    instruments: Instruments[Team, Memory],
    *,
    provenance: Callable[[str], Provenance],
    in_time: Callable[[], bool],
    rounds: int = 3,
    migrating: bool = False,
) -> NumaFindings:
    """The read bandwidth, and the latency, from the cores of each node to the memory of each.

    Ways are measured in turns, so that drift hits them alike; the first round goes over as many
    ways as there is time for, those within a node first.

    Args:
        what: the nodes; without any, nothing is allocated and nothing measured.
        instruments: what measures.
        provenance: from a method in words to where a number comes from.
        in_time: whether there is time for one more reading.
        rounds: readings of each way.
        migrating: whether the kernel moves pages while they are read (`pages_migrate`).

    Raises:
        MeasurementError: a way whose bursts cannot be used.
    """
    left_out = tuple(f"NUMA: not measured: {each}" for each in what.left_out)
    if not what.places:
        return NumaFindings(conditions=left_out)
    with ExitStack() as stack:
        teams = {p.node: stack.enter_context(instruments.team(p.cores)) for p in what.places}
        memory = {
            p.node: instruments.place(teams[p.node], what.bytes_per_node) for p in what.places
        }
        readings: dict[tuple[int, int], _Reading] = {}
        for source, target in _turns(what, rounds, in_time):
            read_bytes, bursts = instruments.read(teams[source.node], memory[target.node])
            reading = readings.setdefault((source.node, target.node), _Reading(read_bytes, []))
            reading.bursts.extend(bursts)
        links = tuple(
            _link(
                source,
                target,
                readings[source.node, target.node],
                instruments.latency(teams[source.node], memory[target.node])
                if instruments.latency is not None and in_time()
                else None,
                provenance,
            )
            for source, target in what.routes
            if (source.node, target.node) in readings
        )
    return NumaFindings(links=links, conditions=(*left_out, *_conditions(what, links, migrating)))


@dataclass(slots=True)
class _Reading:
    """The bursts of one way, each of `byte` bytes."""

    byte: float
    bursts: list[Burst]


def _turns(what: Plan, rounds: int, in_time: Callable[[], bool]) -> Iterator[tuple[Place, Place]]:
    for _ in range(rounds):
        for route in what.routes:
            if not in_time():
                return
            yield route


def _link(
    source: Place,
    target: Place,
    reading: _Reading,
    latency: Duration | None,
    provenance: Callable[[str], Provenance],
) -> Link:
    rate = estimate(reading.byte, reading.bursts)
    return Link(
        source=source.source,
        target=target.target,
        kernel="read",
        threads=len(source.cores),
        peak_bytes_per_s=rate.peak,
        sustained_bytes_per_s=rate.sustained,
        spread=rate.spread,
        latency=latency,
        provenance=provenance(
            f"{rate.bursts} bursts on all cores of {source.source}, of memory that a core of node"
            f" {target.node} wrote first"
        ),
    )


def _conditions(what: Plan, links: Sequence[Link], migrating: bool) -> list[str]:
    found: list[str] = []
    missing = len(what.routes) - len(links)
    if missing:
        found.append(
            f"NUMA: {missing} of {len(what.routes)} ways between nodes were not measured: no time"
            " was left; measure with --thorough"
        )
    if migrating:
        found.append(
            "NUMA: the kernel moves pages to the node that reads them (numa_balancing is on), so"
            " figures between nodes may be too high"
        )
    return found


_HUGE_BYTE = 2 << 20
"""Parts begin and end at huge pages, of which each is on one node."""


def place(crew: Crew, byte: int) -> Array:
    """`byte` bytes of memory on the node that a crew's workers are pinned to.

    Each worker writes a part, all of them together every byte: what nobody wrote is nowhere yet.
    """
    whole = allocate(byte)
    step = _step(byte, crew.threads)

    def write(i: int) -> None:
        last = i == crew.threads - 1
        fill(whole[i * step :] if last else whole[i * step : (i + 1) * step], lambda: crew.stopped)

    crew.each(write)
    return whole


def parts(memory: Array, readers: int) -> list[Array]:
    """Equal parts of a memory, one for each reader; what is left of the last page is not read.

    Raises:
        ValueError: fewer huge pages than readers.
    """
    step = _step(memory.size, readers)
    if not step:
        raise ValueError(f"{memory.size} bytes are too few for {readers} readers")
    return [memory[i * step : (i + 1) * step] for i in range(readers)]


def _step(byte: int, parts: int) -> int:
    return byte // parts // _HUGE_BYTE * _HUGE_BYTE


_CACHES = 4
"""What is read of a node's memory, over the caches that its cores reach."""

_LEAST_BYTE = 64 << 20

_BURSTS = 8


def measure_node_links(
    situation: Situation,
    read: CompiledKernel | None,
    hierarchy: Hierarchy,
    *,
    in_time: Callable[[], bool],
) -> NumaFindings:
    """Read bandwidth from the cores of each node to the memory of each; nothing on a single node.

    Args:
        situation: this host.
        read: the kernel that loads; None: there is none, and nothing is measured.
        hierarchy: the caches, which must not hold what is read.
        in_time: whether there is time for one more reading.
    """
    kernel = read.kernel if read else None
    if read is None or not isinstance(kernel, StreamKernel) or len(situation.nodes) < 2:
        return NumaFindings()
    cores = situation.topology.cores
    caches = hierarchy.levels[-1].reached_bytes(cores) if hierarchy.levels else 0
    trials: dict[tuple[int, int], Trial] = {}

    def time_read(crew: Crew, memory: Array) -> tuple[float, Sequence[Burst]]:
        key = id(crew), id(memory)
        if key not in trials:
            trials[key] = part_trial(read, kernel, parts(memory, crew.threads))
            trials[key].calibrate(crew)
        trial = trials[key]
        return trial.work_per_burst, trial.run(crew, min(_BURSTS, trial.most_bursts or _BURSTS))

    what = plan(
        situation.nodes,
        cores=cores,
        bytes_per_node=max(_LEAST_BYTE, _CACHES * caches),
        available_bytes=situation.available_bytes,
    )
    return measure_links(
        what,
        Instruments(team=lambda cpus: Crew(len(cpus), cpus), place=place, read=time_read),
        provenance=provenance,
        in_time=in_time,
        migrating=pages_migrate(ROOT),
    )
