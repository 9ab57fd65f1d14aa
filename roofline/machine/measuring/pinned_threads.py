"""Pinned threads that measure together, one per core, and the memory that they measure on."""

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
    """`byte` bytes of private anonymous memory at an address that is a multiple of 2 MiB.

    It is not written yet: a page that never was reads from a shared zero page at cache speed, so
    `fill` it, on the thread that will use it, before timing anything. Shared maps, Python's
    default, get no huge pages.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, byte + HUGE_BYTE, flags=flags)
    except (OSError, MemoryError) as error:
        raise MeasurementError(
            f"the system does not give {format_capacity(byte)} of memory ({error}); raise"
            " `ulimit -v` or free some memory"
        ) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without huge pages refuses; the measurement holds with small ones.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return _aligned(np.frombuffer(memory, dtype=np.uint8), byte, HUGE_BYTE)


def aligned(byte: int, boundary: int) -> Array:
    """`byte` bytes of zeros at an address that is a multiple of `boundary`."""
    return _aligned(np.zeros(byte + boundary, dtype=np.uint8), byte, boundary)


def _aligned(whole: Array, byte: int, boundary: int) -> Array:
    skip = -whole.ctypes.data % boundary
    return whole[skip : skip + byte]


def fill(array: Array, stopped: Callable[[], bool]) -> None:
    """Writes normal float32 noise to `array`, piece by piece; ends early once `stopped` says so."""
    noise = np.random.default_rng(0).standard_normal(1 << 18, dtype=np.float32).view(np.uint8)
    for start in range(0, array.size, noise.size):
        if stopped():
            return
        piece = array[start : start + noise.size]
        piece[:] = noise[: piece.size]


def huge_page_bytes(memory: Sequence[Array], root: Path = Path("/")) -> int | None:
    """Bytes of these buffers in huge pages; None where the system does not say.

    Neighbors in one mapping share its count, of which a buffer has at most its own size.
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
    """Where the streams of a kernel lie in a buffer, in bytes from its start."""

    starts: tuple[int, ...]
    length: int


def lay_out(total_bytes: int, streams: int, block_bytes: int) -> Layout:
    """`streams` equally long streams, together as near to `total_bytes` as whole blocks allow.

    Their starts differ modulo 4 KiB: a load from an address that equals that of a store before it
    in the low 12 bits waits for that store.
    """
    length = total_bytes // streams // block_bytes * block_bytes
    skew = _PAGE_BYTE // streams // _CACHE_LINE_BYTE * _CACHE_LINE_BYTE % _PAGE_BYTE
    pitch = -(-length // _PAGE_BYTE) * _PAGE_BYTE + skew
    return Layout(tuple(s * pitch for s in range(streams)), length)


def extent_bytes(total_bytes: int, streams: int) -> int:
    """Bytes of a buffer in which any layout of `total_bytes` in `streams` streams fits."""
    return total_bytes + 2 * streams * _PAGE_BYTE


T = TypeVar("T")


class PinnedThreads:
    """A context manager with `threads` worker threads; worker i is pinned to ``cpus[i]``.

    The caller's thread only waits, so its own affinity never changes. Leaving the context, also by
    an interrupt, raises the stop flag that running kernels look at and joins all threads.
    ``refused`` are the CPUs that the system did not let a worker have.
    """

    def __init__(self, threads: int, cpus: tuple[int, ...] = ()) -> None:
        self.threads = threads
        self.refused: tuple[int, ...] = ()
        self._cpus = cpus
        self._team = aligned(TEAM_BYTE, _CACHE_LINE_BYTE).view(np.int64)
        # Executors take about twice as long to hand a task on, which curves would feel.
        self._inboxes = [SimpleQueue[Callable[[], Any] | None]() for _ in range(threads)]
        self._outboxes = [SimpleQueue[tuple[Any, BaseException | None]]() for _ in range(threads)]
        self._workers = [
            threading.Thread(target=self._work, args=(i,), name=f"roofline-{i}", daemon=True)
            for i in range(threads)
        ]

    @property
    def pinned(self) -> bool:
        """Whether every worker was given a CPU of its own (not possible on macOS)."""
        return self._can_pin and not self.refused

    @property
    def pinning(self) -> str:
        """Why workers are not where they should be, in words; ``""`` if they are."""
        if not self._can_pin:
            return "threads could not be pinned to cores: the system moves them as it likes"
        if self.refused:
            cpus = ", ".join(map(str, self.refused))
            return (
                f"threads could not be pinned to CPU {cpus}: not permitted, or offline by now;"
                " they may have shared a core"
            )
        return ""

    @property
    def _can_pin(self) -> bool:
        return hasattr(os, "sched_setaffinity") and len(self._cpus) >= self.threads

    @property
    def team_address(self) -> int:
        """Address of the barrier and stop flag that the harness of every worker shares."""
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
                        f"the system refused thread {number} of {self.threads}"
                        f" ({error_text(error)}); raise the limit on processes"
                        " (`ulimit -u`, or the container's), or"
                        f" measure with fewer {argument('threads')}"
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
        """Runs ``task(i)`` on the first `workers` workers at once; their results in order.

        If one raises, the others are stopped and waited for, and the first error is raised.
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
                # A worker that fails leaves its team waiting at the barrier: release them.
                self.stop()
                outcome = None, error
            self._outboxes[index].put(outcome)

    def _pin(self, index: int) -> bool:
        """Whether the calling worker now runs on its CPU alone; True where it cannot be asked."""
        if not self._can_pin:
            return True
        wanted = {self._cpus[index]}
        try:
            os.sched_setaffinity(0, wanted)
            # Some sandboxes take the call and do nothing.
            return os.sched_getaffinity(0) == wanted
        except OSError:
            return False
