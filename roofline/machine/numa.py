"""The ways between NUMA nodes on this host, measured with a read kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from roofline.core.units import format_capacity
from roofline.machine.hardware import Link
from roofline.machine.hierarchy.cache_sizes import Hierarchy
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.measuring.estimation import Burst, Findings, estimate, provenance
from roofline.machine.measuring.pinned_threads import (
    HUGE_BYTE,
    Array,
    PinnedThreads,
    allocate,
    fill,
)
from roofline.machine.measuring.trials import memory_trial
from roofline.machine.system.host_state import HostState
from roofline.machine.system.topology import ROOT, Node, pages_migrate

_FREE_FACTOR = 2
"""Memory that a node must have free, over what is allocated there; else pages go elsewhere."""

_CACHES = 4  # what is read of a node's memory, over the caches that its cores reach

_LEAST_BYTE = 64 << 20

_BURSTS = 8
_ROUNDS = 3


def measure_node_links(
    host_state: HostState,
    read: CompiledKernel | None,
    hierarchy: Hierarchy,
    *,
    in_time: Callable[[], bool],
) -> Findings:
    """Read bandwidth from the cores of each node to the memory of each; nothing on a single node.

    Ways are measured in turns, so that drift hits them alike; the first round goes over as many
    ways as there is time for, those within a node first. The caches must not hold what is read.
    """
    if read is None or len(host_state.nodes) < 2:
        return Findings()
    cores = host_state.topology.cores
    caches = hierarchy.levels[-1].reachable_bytes(cores) if hierarchy.levels else 0
    byte = max(_LEAST_BYTE, _CACHES * caches)
    nodes, left_out = usable_nodes(
        host_state.nodes,
        cores=cores,
        bytes_per_node=byte,
        available_bytes=host_state.available_bytes,
    )
    conditions = [f"NUMA: not measured: {each}" for each in left_out]
    if not nodes:
        return Findings(conditions=tuple(conditions))
    routes = [(node, node) for node in nodes] + [(a, b) for a in nodes for b in nodes if a != b]
    readings: dict[tuple[int, int], tuple[float, list[Burst]]] = {}
    with ExitStack() as stack:
        workers_by_node = {
            node: stack.enter_context(PinnedThreads(len(cpus), cpus))
            for node, cpus in nodes.items()
        }
        memory = {node: place(workers, byte) for node, workers in workers_by_node.items()}
        shares = {(a, b): parts(memory[b], len(nodes[a])) for a, b in routes}
        trials = {
            route: memory_trial(read, share[0].size, share, again=False)
            for route, share in shares.items()
        }
        for route in routes * _ROUNDS:
            if not in_time():
                break
            trial, workers = trials[route], workers_by_node[route[0]]
            if route not in readings:
                trial.calibrate(workers)
                readings[route] = trial.work_per_burst, []
            readings[route][1].extend(
                trial.run(workers, min(_BURSTS, trial.most_bursts or _BURSTS))
            )
    links: list[Link] = []
    for (source, target), (read_bytes, bursts) in readings.items():
        rate = estimate(read_bytes, bursts)
        links.append(
            Link(
                source=f"node {source}",
                target=f"memory of node {target}",
                kernel="read",
                threads=len(nodes[source]),
                peak_bytes_per_s=rate.peak,
                sustained_bytes_per_s=rate.sustained,
                spread=rate.spread,
                provenance=provenance(
                    f"{rate.bursts} bursts on all cores of node {source}, of memory that a core of"
                    f" node {target} wrote first"
                ),
            )
        )
    if len(links) < len(routes):
        conditions.append(
            f"NUMA: {len(routes) - len(links)} of {len(routes)} ways between nodes were not"
            " measured: no time was left; measure with --thorough"
        )
    if pages_migrate(ROOT):
        conditions.append(
            "NUMA: the kernel moves pages to the node that reads them (numa_balancing is on), so"
            " figures between nodes may be too high"
        )
    return Findings(links=tuple(links), conditions=tuple(conditions))


def usable_nodes(
    nodes: Sequence[Node], *, cores: tuple[int, ...], bytes_per_node: int, available_bytes: int
) -> tuple[dict[int, tuple[int, ...]], list[str]]:
    """The cores of each node that can be measured, of two at least; and which not, and why.

    Of `available_bytes`, within the container's limit, half is used.
    """
    found: dict[int, tuple[int, ...]] = {}
    left_out: list[str] = []
    for node in nodes:
        mine = tuple(cpu for cpu in cores if cpu in node.cpus)
        if not mine:
            left_out.append(f"memory of node {node.number}: none of the cores in use is on it")
        elif node.free_bytes is not None and node.free_bytes < _FREE_FACTOR * bytes_per_node:
            left_out.append(
                f"memory of node {node.number}: {format_capacity(node.free_bytes)} free, too little"
                f" to be sure of {format_capacity(bytes_per_node)} there"
            )
        else:
            found[node.number] = mine
    wanted = bytes_per_node * len(found)
    if len(found) > 1 and wanted > available_bytes / 2:
        left_out.append(
            f"what leads from node to node: {format_capacity(wanted)} of memory are more than half"
            f" of the {format_capacity(available_bytes)} available"
        )
        found.clear()
    return (found if len(found) > 1 else {}), left_out


def place(workers: PinnedThreads, byte: int) -> Array:
    """`byte` bytes of memory on the node that the threads are pinned to.

    Each worker writes a part, all of them together every byte: what nobody wrote is nowhere yet.
    """
    whole = allocate(byte)
    step = byte // workers.threads // HUGE_BYTE * HUGE_BYTE

    def write(i: int) -> None:
        last = i == workers.threads - 1
        fill(
            whole[i * step :] if last else whole[i * step : (i + 1) * step], lambda: workers.stopped
        )

    workers.each(write)
    return whole


def parts(memory: Array, readers: int) -> list[Array]:
    """Equal parts of whole huge pages, each of which is on one node; what is left is not read."""
    step = memory.size // readers // HUGE_BYTE * HUGE_BYTE
    if not step:
        raise ValueError(f"{memory.size} bytes are too few for {readers} readers")
    return [memory[i * step : (i + 1) * step] for i in range(readers)]
