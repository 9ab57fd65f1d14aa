"""Pinned threads that measure together, one per core, and their memory."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from roofline.core.units import format_capacity
from roofline.errors import MeasurementError, argument, error_text
from roofline.machine.kernels.compiler import STOP_BYTE, TEAM_BYTE
from roofline.machine.system.system_files import kilobytes, read, table

Array = npt.NDArray[Any]

HUGE_BYTE = 2 << 20
_PAGE_BYTE = 4096
_CACHE_LINE_BYTE = 64
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ", re.MULTILINE)


def allocate(byte: int) -> Array:
    """Return `byte` bytes of private anonymous memory, aligned to 2 MiB and not yet written.

    Unwritten pages read from a shared zero page at cache speed, so `fill` them on the thread that
    uses them before timing. Shared maps, Python's default, get no huge pages.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, byte + HUGE_BYTE, flags=flags)
    except (OSError, MemoryError) as error:
        raise MeasurementError(
            f"cannot allocate {format_capacity(byte)} of memory ({error}); raise `ulimit -v` or"
            " free memory"
        ) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Without huge pages, measure with small ones.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return _aligned(np.frombuffer(memory, dtype=np.uint8), byte, HUGE_BYTE)


def aligned(byte: int, boundary: int) -> Array:
    """Return `byte` zero bytes, aligned to `boundary`."""
    return _aligned(np.zeros(byte + boundary, dtype=np.uint8), byte, boundary)


def _aligned(whole: Array, byte: int, boundary: int) -> Array:
    skip = -whole.ctypes.data % boundary
    return whole[skip : skip + byte]


def fill(array: Array, stopped: Callable[[], bool]) -> None:
    """Write normal float32 noise to `array`, in pieces, until `stopped`."""
    noise = np.random.default_rng(0).standard_normal(1 << 18, dtype=np.float32).view(np.uint8)
    for start in range(0, array.size, noise.size):
        if stopped():
            return
        piece = array[start : start + noise.size]
        piece[:] = noise[: piece.size]


def huge_page_bytes(memory: Sequence[Array], root: Path = Path("/")) -> int | None:
    """Return the bytes of these buffers in huge pages; None: unknown.

    Buffers in one mapping share its count, each limited by its size.
    """
    buffers = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in memory]
    total = None
    text = read(root / "proc/self/smaps")
    for place, following in itertools.pairwise((*_MAPPING.finditer(text), None)):
        assert place is not None
        first, end = (int(each, 16) for each in place.groups())
        within = sum(max(0, min(end, last) - max(first, begin)) for begin, last in buffers)
        if within:
            lines = text[place.end() : following.start() if following else None]
            huge = kilobytes(table(lines).get("AnonHugePages", ""))
            if huge is not None:
                total = (total or 0) + min(huge, within)
    return total


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets of the streams of a kernel in a buffer, in bytes."""

    starts: tuple[int, ...]
    length: int


def lay_out(total_bytes: int, streams: int, block_bytes: int) -> Layout:
    """Return the layout of `streams` equal streams of about `total_bytes`, in whole blocks.

    Starts differ modulo 4 KiB: a load waits for an earlier store with the same low 12 address bits.
    """
    length = total_bytes // streams // block_bytes * block_bytes
    skew = _PAGE_BYTE // streams // _CACHE_LINE_BYTE * _CACHE_LINE_BYTE % _PAGE_BYTE
    pitch = -(-length // _PAGE_BYTE) * _PAGE_BYTE + skew
    return Layout(tuple(s * pitch for s in range(streams)), length)


def extent_bytes(total_bytes: int, streams: int) -> int:
    """Return the buffer size for any layout of `total_bytes` in `streams` streams."""
    return total_bytes + 2 * streams * _PAGE_BYTE


T = TypeVar("T")


class PinnedThreads:
    """Context manager with `threads` worker threads; worker i is pinned to ``cpus[i]``.

    The calling thread only waits and keeps its affinity. Leaving the context, also by an interrupt,
    stops running kernels and joins all threads. ``refused`` are CPUs that could not be used.
    """

    def __init__(self, threads: int, cpus: tuple[int, ...] = ()) -> None:
        self.threads = threads
        self.refused: tuple[int, ...] = ()
        self._cpus = cpus
        self._team = aligned(TEAM_BYTE, _CACHE_LINE_BYTE).view(np.int64)
        # Executors take twice as long to start a task, which affects curves.
        self._inboxes = [SimpleQueue[Callable[[], Any] | None]() for _ in range(threads)]
        self._outboxes = [SimpleQueue[tuple[Any, BaseException | None]]() for _ in range(threads)]
        self._workers = [
            threading.Thread(target=self._work, args=(i,), name=f"roofline-{i}", daemon=True)
            for i in range(threads)
        ]

    @property
    def pinned(self) -> bool:
        """True if every worker is pinned (impossible on macOS)."""
        return self._can_pin and not self.refused

    @property
    def pinning(self) -> str:
        """Reason why workers are not pinned, or ``""``."""
        if not self._can_pin:
            return "threads not pinned to cores: not supported by the system"
        if self.refused:
            cpus = ", ".join(map(str, self.refused))
            return (
                f"threads not pinned to CPU {cpus}: not permitted, or offline; they may have shared"
                " a core"
            )
        return ""

    @property
    def _can_pin(self) -> bool:
        return hasattr(os, "sched_setaffinity") and len(self._cpus) >= self.threads

    @property
    def team_address(self) -> int:
        """Address of the shared barrier and stop flag."""
        return self._team.ctypes.data

    @property
    def stopped(self) -> bool:
        return bool(self._team[STOP_BYTE // 8])

    def stop(self) -> None:
        self._team[STOP_BYTE // 8] = 1

    def __enter__(self) -> PinnedThreads:
        try:
            for number, worker in enumerate(self._workers, start=1):
                try:
                    worker.start()
                except (RuntimeError, MemoryError) as error:
                    raise MeasurementError(
                        f"cannot start thread {number} of {self.threads} ({error_text(error)});"
                        " raise the limit on processes (`ulimit -u`, or the container's), or use"
                        f" fewer {argument('threads')}"
                    ) from error
            pinned = self.each(self._pin)
            self.refused = tuple(self._cpus[i] for i, done in enumerate(pinned) if not done)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for inbox in self._inboxes:
            inbox.put(None)
        for worker in self._workers:
            if worker.ident is not None:  # it was started
                worker.join()

    def each(self, task: Callable[[int], T], workers: int | None = None) -> list[T]:
        """Run ``task(i)`` on the first `workers` workers in parallel; return the results in order.

        If one raises, the others are stopped, and the first error is raised.
        """
        count = workers or self.threads
        self._team[:] = 0
        for i in range(count):
            self._inboxes[i].put(lambda i=i: task(i))
        outcomes = [self._outboxes[i].get() for i in range(count)]
        for _, error in outcomes:
            if error is not None:
                raise error
        return [value for value, _ in outcomes]

    def _work(self, index: int) -> None:
        while (task := self._inboxes[index].get()) is not None:
            try:
                outcome = task(), None
            except BaseException as error:
                # Release the team waiting at the barrier.
                self.stop()
                outcome = None, error
            self._outboxes[index].put(outcome)

    def _pin(self, index: int) -> bool:
        """Pin the calling worker; return True if it succeeded or cannot be verified."""
        if not self._can_pin:
            return True
        wanted = {self._cpus[index]}
        try:
            os.sched_setaffinity(0, wanted)
            # Some sandboxes ignore the call.
            return os.sched_getaffinity(0) == wanted
        except OSError:
            return False
