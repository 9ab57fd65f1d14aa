"""The ways between NUMA nodes on this host, measured with a read kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from roofline.machine.hierarchy.cache_sizes import Hierarchy
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.stream import StreamKernel
from roofline.machine.measuring.buffers import Array, allocate, fill
from roofline.machine.measuring.ceilings import provenance
from roofline.machine.measuring.crew import Crew
from roofline.machine.measuring.estimation import Burst
from roofline.machine.measuring.trials import Trial, part_trial
from roofline.machine.nodes.numa import Instruments, NumaFindings, measure_links, plan
from roofline.machine.system.memory_nodes import pages_migrate
from roofline.machine.system.situation import Situation
from roofline.machine.system.topology import ROOT

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
    caches = hierarchy.levels[-1].reached_byte(cores) if hierarchy.levels else 0
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
        byte_per_node=max(_LEAST_BYTE, _CACHES * caches),
        available_byte=situation.available_byte,
    )
    return measure_links(
        what,
        Instruments(team=lambda cpus: Crew(len(cpus), cpus), place=place, read=time_read),
        provenance=provenance,
        in_time=in_time,
        migrating=pages_migrate(ROOT),
    )
