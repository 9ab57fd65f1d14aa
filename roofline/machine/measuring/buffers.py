"""Memory to measure with: private, written before it is read, and laid out against aliasing."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roofline.errors import MeasurementError
from roofline.foundation.units import format_capacity
from roofline.machine.system.system_files import kilobytes, read, table

Array = npt.NDArray[Any]

_HUGE_BYTE = 2 << 20
_PAGE_BYTE = 4096
_LINE_BYTE = 64
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) ", re.MULTILINE)


def allocate(byte: int) -> Array:
    """`byte` bytes of private anonymous memory at an address that is a multiple of 2 MiB.

    It is not written yet: a page that never was reads from a shared zero page at cache speed, so
    `fill` it, on the thread that will use it, before timing anything. Shared maps, Python's
    default, get no huge pages.

    Raises:
        MeasurementError: the system does not give so much memory.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        memory = mmap.mmap(-1, byte + _HUGE_BYTE, flags=flags)
    except (OSError, MemoryError) as error:
        raise MeasurementError(
            f"the system does not give {format_capacity(byte)} of memory ({error}); raise"
            " `ulimit -v` or free some memory"
        ) from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # A kernel without huge pages refuses; the measurement holds with small ones.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, dtype=np.uint8)
    skip = -whole.ctypes.data % _HUGE_BYTE
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

    Neighbours in one mapping share its count, of which a buffer has at most its own size.
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

    @property
    def extent(self) -> int:
        """Bytes from the start of the buffer to the end of the last stream."""
        return self.starts[-1] + self.length


def lay_out(total_bytes: int, streams: int, block_bytes: int) -> Layout:
    """`streams` equally long streams, together as near to `total_bytes` as whole blocks allow.

    Their starts differ modulo 4 KiB: a load from an address that equals that of a store before it
    in the low 12 bits waits for that store.

    Raises:
        ValueError: not even one block each fits.
    """
    length = total_bytes // streams // block_bytes * block_bytes
    if not length:
        raise ValueError(f"{total_bytes} bytes are too few for {streams} streams of {block_bytes}")
    skew = _PAGE_BYTE // streams // _LINE_BYTE * _LINE_BYTE % _PAGE_BYTE
    pitch = -(-length // _PAGE_BYTE) * _PAGE_BYTE + skew
    return Layout(tuple(s * pitch for s in range(streams)), length)


def extent_bytes(total_bytes: int, streams: int) -> int:
    """Bytes of a buffer in which any layout of `total_bytes` in `streams` streams fits."""
    return total_bytes + 2 * streams * _PAGE_BYTE
