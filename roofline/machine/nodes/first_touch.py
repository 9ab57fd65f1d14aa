"""Memory that is put on one node (NUMA): a page belongs to the node of who writes it first."""

from __future__ import annotations

from roofline.machine.measuring.buffers import Array, allocate, fill
from roofline.machine.measuring.crew import Crew

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
