"""torch's element-wise copy and add over working sets in a cache or in main memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from roofline.machine.hardware import MemoryKernel
from roofline.machine.hierarchy.working_sets import DRAM, WorkingSet
from roofline.machine.library.subjects import Candidate, Run, Stream

_ELEMENT_BYTE = 4
_LINE = 16
"""Elements of a cache line: threads share none."""

_PIECE_BYTE = 16 << 20
"""Of memory per thread and call: long against a call's cost, short enough to go undisturbed."""

_STREAMS: dict[MemoryKernel, int] = {"copy": 2, "add": 3}


class Arena:
    """The memory that all streams share, written before it is read.

    A call in a cache goes over the same bytes every time. A call in main memory goes over the next
    piece, whoever made the call before: when a piece comes again, all others were touched between.
    """

    def __init__(self, sets: Sequence[WorkingSet]) -> None:
        byte = max((each.bytes_per_thread * each.threads for each in sets), default=0)
        self._memory = torch.empty(byte // _ELEMENT_BYTE, dtype=torch.float32, device="cpu")
        self._memory.fill_(1.0)
        self._place = 0

    @property
    def byte(self) -> int:
        """Bytes of all of it."""
        return self._memory.numel() * _ELEMENT_BYTE

    def in_place(self, kernel: MemoryKernel, byte: int, threads: int) -> Run:
        """A call over the first `byte` bytes, all streams together."""
        return _call(kernel, self._memory[: byte // _ELEMENT_BYTE], threads)

    def in_turn(self, kernel: MemoryKernel, byte: int, threads: int) -> Run:
        """A call over the next `byte` bytes."""
        size = byte // _ELEMENT_BYTE
        calls = [
            (start, _call(kernel, self._memory[start : start + size], threads))
            for start in range(0, self._memory.numel() - size + 1, size)
        ]

        def run() -> object:
            index = -(-self._place // size) % len(calls)
            start, call = calls[index]
            self._place = start + size
            return call()

        return run


def _call(kernel: MemoryKernel, memory: torch.Tensor, threads: int) -> Run:
    size = _stream_size(kernel, memory.numel(), threads)
    parts = [memory[i * size : (i + 1) * size] for i in range(_STREAMS[kernel])]
    if kernel == "copy":
        return partial(parts[1].copy_, parts[0])
    return partial(torch.add, parts[0], parts[1], out=parts[2])


def _stream_size(kernel: MemoryKernel, elements: int, threads: int) -> int:
    size = elements // _STREAMS[kernel]
    return size // (_LINE * threads) * _LINE * threads or size


def stream_subjects(
    sets: Sequence[WorkingSet], arena: Arena, overhead_s: Callable[[MemoryKernel], float]
) -> Iterator[Stream]:
    """Copy and add over each working set.

    Args:
        sets: working sets, all of the number of threads that torch now has.
        arena: memory that holds the largest of them.
        overhead_s: seconds that a call of a kernel takes without any memory.
    """
    for each in sets:
        for kernel in _STREAMS:
            yield Stream(
                kernel=kernel,
                working_set=each,
                candidates=(_candidate(kernel, each, arena),),
                overhead_s=overhead_s(kernel),
            )


def _candidate(kernel: MemoryKernel, each: WorkingSet, arena: Arena) -> Candidate:
    total = each.bytes_per_thread * each.threads
    byte = total
    make = arena.in_place
    if each.level == DRAM:
        byte, make = min(_PIECE_BYTE * each.threads, total), arena.in_turn
    size = _stream_size(kernel, byte // _ELEMENT_BYTE, each.threads)
    return Candidate(
        size=f"{_STREAMS[kernel]} x {size} float32",
        work=_STREAMS[kernel] * size * _ELEMENT_BYTE,
        make=lambda: make(kernel, byte, each.threads),
    )


def smallest(kernel: MemoryKernel) -> Run:
    """A call of a kernel on one element: what remains is its dispatch."""
    return _call(kernel, torch.ones(_STREAMS[kernel], dtype=torch.float32, device="cpu"), 1)
