"""Read bandwidth between NUMA nodes of this host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from roofline.core.units import format_capacity
from roofline.machine.hardware import Link
from roofline.machine.hierarchy.cache_sizes import Hierarchy
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.measuring.estimation import Burst, MeasuredFigures, estimate, provenance
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
"""Free memory that a node needs, as a multiple of the allocation; else pages go elsewhere."""

_CACHES = 4  # array size as a multiple of the reachable caches

_LEAST_BYTE = 64 << 20

_BURSTS = 8
_ROUNDS = 3


def measure_node_links(
    host_state: HostState,
    read: CompiledKernel | None,
    hierarchy: Hierarchy,
    *,
    in_time: Callable[[], bool],
) -> MeasuredFigures:
    """Measure read bandwidth from each node's cores to each node's memory; nothing on one node.

    Links are interleaved, so that drift affects all of them. The first round measures as many links
    as time allows, local ones first. Arrays exceed the caches.
    """
    if read is None or len(host_state.nodes) < 2:
        return MeasuredFigures()
    cores = host_state.topology.cores
    caches = hierarchy.levels[-1].reachable_bytes(cores) if hierarchy.levels else 0
    byte = max(_LEAST_BYTE, _CACHES * caches)
    nodes, left_out = usable_nodes(
        host_state.nodes,
        cores=cores,
        bytes_per_node=byte,
        available_bytes=host_state.available_bytes,
    )
    conditions = [f"NUMA, not measured: {each}" for each in left_out]
    if not nodes:
        return MeasuredFigures(conditions=tuple(conditions))
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
            f"NUMA: {len(routes) - len(links)} of {len(routes)} links between nodes not measured,"
            " no time left; the effort 'thorough' has more"
        )
    if pages_migrate(ROOT):
        conditions.append(
            "NUMA: bandwidths between nodes may be too high, because the kernel migrates pages"
            " (numa_balancing is on)"
        )
    return MeasuredFigures(links=tuple(links), conditions=tuple(conditions))


def usable_nodes(
    nodes: Sequence[Node], *, cores: tuple[int, ...], bytes_per_node: int, available_bytes: int
) -> tuple[dict[int, tuple[int, ...]], list[str]]:
    """Return the cores of each measurable node (at least two), and reasons for the others.

    At most half of `available_bytes`, which respects the container's limit, is used.
    """
    found: dict[int, tuple[int, ...]] = {}
    left_out: list[str] = []
    for node in nodes:
        mine = tuple(cpu for cpu in cores if cpu in node.cpus)
        if not mine:
            left_out.append(f"memory of node {node.number}: no core in use is on this node")
        elif node.free_bytes is not None and node.free_bytes < _FREE_FACTOR * bytes_per_node:
            left_out.append(
                f"memory of node {node.number}: {format_capacity(node.free_bytes)} free, too little"
                f" to place {format_capacity(bytes_per_node)} on it"
            )
        else:
            found[node.number] = mine
    wanted = bytes_per_node * len(found)
    if len(found) > 1 and wanted > available_bytes / 2:
        left_out.append(
            f"links between nodes: {format_capacity(wanted)} of memory are more than half of the"
            f" {format_capacity(available_bytes)} available"
        )
        found.clear()
    return (found if len(found) > 1 else {}), left_out


def place(workers: PinnedThreads, byte: int) -> Array:
    """Return `byte` bytes of memory on the node that the threads are pinned to.

    Each thread writes its part: pages are placed on first write.
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
    """Return equal parts of whole huge pages, each on one node; the rest is not read."""
    step = memory.size // readers // HUGE_BYTE * HUGE_BYTE
    if not step:
        raise ValueError(f"{memory.size} bytes are too few for {readers} readers")
    return [memory[i * step : (i + 1) * step] for i in range(readers)]
