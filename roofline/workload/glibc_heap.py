"""Model of glibc's malloc for large blocks: addresses, and page faults.

Follows ``malloc.c`` of glibc 2.36 (ptmalloc) on 64-bit Linux. The main arena grows and shrinks by
``brk``. Blocks from the mmap threshold on that fit nowhere get their own mapping. Freeing a mapping
raises the threshold to its size (up to 32 MiB), and the trim threshold to twice that. Free chunks
coalesce with their neighbors, wait in the unsorted list and then in bins; the smallest that fits is
used. ``posix_memalign`` allocates more than needed and frees both ends. These often stay in caches
of small chunks (tcache, fast bins), where they prevent coalescing.
"""

from __future__ import annotations

import bisect
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PAGE_BYTE = 4096
HUGE_PAGE_BYTE = 2**21

_HEADER_BYTE = 8
_GRAIN_BYTE = 16
_LEAST_BYTE = 32
_SMALL_BYTE = 1024
"""Smaller chunks have one bin per size, first in first out."""

_CACHED_BYTE = 1040
"""Maximum chunk of the thread cache, which keeps `_CACHED` of each size."""

_CACHED = 7

_FAST_BYTE = 128
"""Maximum chunk that does not coalesce before the next large request or release."""

_CONSOLIDATION_BYTE = 2**16
"""Free chunks from this size on make glibc check the size of the top."""

_DEFAULT_THRESHOLD_BYTE = 2**17
_DYNAMIC_THRESHOLD_MAX_BYTE = 2**25


@dataclass(frozen=True, slots=True, kw_only=True)
class MallocSettings:
    """Settings of glibc's malloc, in bytes.

    ``is_dynamic``: thresholds follow freed sizes; any explicit setting disables that.
    ``has_huge_pages``: the kernel maps 2 MiB at a time in aligned regions (transparent huge pages
    set to "always", or requested by ``glibc.malloc.hugetlb=1``).
    """

    mmap_threshold_bytes: int = _DEFAULT_THRESHOLD_BYTE
    trim_threshold_bytes: int = _DEFAULT_THRESHOLD_BYTE
    top_pad_bytes: int = 2**17
    mmap_max: int = 65536
    is_dynamic: bool = True
    has_huge_pages: bool = False

    @property
    def page_bytes(self) -> int:
        return HUGE_PAGE_BYTE if self.has_huge_pages else PAGE_BYTE


def malloc_settings(environment: Mapping[str, str], huge_pages: str = "") -> MallocSettings:
    """Return the settings of a process with these environment variables.

    ``GLIBC_TUNABLES`` and the ``MALLOC_…_`` variables are read as in glibc: non-numbers are
    ignored, and any setting disables the dynamic thresholds. `huge_pages` is the content of
    ``/sys/kernel/mm/transparent_hugepage/enabled``.
    """
    found: dict[str, int] = {}
    huge = "[always]" in huge_pages
    given = [
        (name.removeprefix("MALLOC_").removesuffix("_").lower(), value)
        for name, value in environment.items()
        if name.startswith("MALLOC_")
    ]
    for each in environment.get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = each.partition("=")
        given.append((name.removeprefix("glibc.malloc."), value))
    for name, value in given:
        with contextlib.suppress(ValueError):
            if name in ("mmap_threshold", "trim_threshold", "top_pad"):
                found[f"{name}_bytes"] = int(value, 0)
            elif name == "mmap_max":
                found[name] = int(value, 0)
            # 1: malloc requests transparent huge pages, which "madvise" grants on request.
            huge |= name == "hugetlb" and int(value, 0) == 1 and "[madvise]" in huge_pages
    return replace(MallocSettings(is_dynamic=not found, has_huge_pages=huge), **found)


@dataclass(slots=True)
class _Pages:
    """Present pages of a growing and shrinking region."""

    page_bytes: int
    present: bytearray = field(default_factory=bytearray)
    page_faults: int = 0

    def touch(self, first_byte: int, end_byte: int) -> None:
        first, end = first_byte // self.page_bytes, -(-end_byte // self.page_bytes)
        if end > len(self.present):
            self.present.extend(bytes(end - len(self.present)))
        missing = self.present.count(0, first, end)
        if missing:
            self.page_faults += missing
            self.present[first:end] = b"\1" * (end - first)

    def cut(self, end_byte: int) -> None:
        del self.present[-(-end_byte // self.page_bytes) :]


class Heap:
    """Main arena and mappings of one process; addresses count from the start of the heap."""

    def __init__(self, settings: MallocSettings) -> None:
        self._settings = settings
        self.mmap_threshold_bytes = settings.mmap_threshold_bytes
        self.trim_threshold_bytes = settings.trim_threshold_bytes
        # The largest size compared with the trim threshold.
        self.largest_top_bytes = 0
        self._pages = _Pages(settings.page_bytes)
        self._mapped_faults = 0
        self._top = 0
        self._end = 0
        self._sizes: dict[int, int] = {}
        self._mapped: dict[int, int] = {}
        self._next_mapping = -1
        self._free: dict[int, int] = {}
        self._free_ends: dict[int, int] = {}
        self._unsorted: deque[int] = deque()
        self._bins: dict[int, list[int]] = {}
        self._bin_sizes: list[int] = []
        self._last_remainder = -1
        self._cached: dict[int, list[int]] = {}
        self._fast: dict[int, list[int]] = {}

    @property
    def page_faults(self) -> int:
        return self._pages.page_faults + self._mapped_faults

    @property
    def size_bytes(self) -> int:
        """Bytes of the heap, without mappings."""
        return self._end

    def state(self) -> object:
        """State of the heap: from equal states, equal calls have equal effects."""
        return (
            self._top,
            self._end,
            self.mmap_threshold_bytes,
            self.trim_threshold_bytes,
            tuple(self._unsorted),
            tuple(sorted(self._free.items())),
            tuple(sorted(self._sizes.items())),
            bytes(self._pages.present),
        )

    def malloc(self, byte: int) -> int:
        """Allocate and touch `byte` bytes; return the chunk's address (negative: a mapping)."""
        size = _chunk_size(byte)
        cached = self._cached.get(size)
        return cached.pop() if cached else self._touch(self._take(size), byte, 0)

    def memalign(self, byte: int, alignment_bytes: int = 64) -> int:
        """Allocate like `malloc`, aligned like `posix_memalign`."""
        needed = _chunk_size(byte)
        chunk = self._take(_chunk_size(needed + alignment_bytes + _LEAST_BYTE))
        lead = -(chunk + _GRAIN_BYTE) % alignment_bytes if chunk >= 0 else alignment_bytes - 16
        if 0 < lead < _LEAST_BYTE:
            lead += alignment_bytes
        if chunk < 0:
            self._mapped[chunk] -= lead
            return self._touch(chunk, byte, lead)
        size = self._sizes.pop(chunk)
        aligned = chunk + lead
        self._sizes[aligned] = size - lead
        if lead:
            self._sizes[chunk] = lead
            self.free(chunk)
        if size - lead > needed + _LEAST_BYTE:
            self._sizes[aligned] = needed
            self._sizes[aligned + needed] = size - lead - needed
            self.free(aligned + needed)
        return self._touch(aligned, byte, 0)

    def free(self, chunk: int) -> None:
        if chunk < 0:
            size = self._mapped.pop(chunk)
            is_more = self.mmap_threshold_bytes < size <= _DYNAMIC_THRESHOLD_MAX_BYTE
            if self._settings.is_dynamic and is_more:
                self.mmap_threshold_bytes, self.trim_threshold_bytes = size, 2 * size
            return
        size = self._sizes[chunk]
        if self._cache_chunk(chunk, size):
            return
        if size <= _FAST_BYTE:
            self._fast.setdefault(size, []).append(chunk)
        elif self._release(chunk) >= _CONSOLIDATION_BYTE:
            self._consolidate()
            top_bytes = self._end - self._top
            self.largest_top_bytes = max(self.largest_top_bytes, top_bytes)
            if top_bytes >= self.trim_threshold_bytes:
                self._trim()

    def _cache_chunk(self, chunk: int, size: int) -> bool:
        """Put a chunk into the thread cache; False if it does not fit."""
        if has_room := self._has_room(size):
            self._cached.setdefault(size, []).append(chunk)
        return has_room

    def _consolidate(self) -> None:
        """Empty the fast bins."""
        for size in sorted(self._fast):
            for chunk in reversed(self._fast[size]):
                self._release(chunk)
        self._fast.clear()

    def _touch(self, chunk: int, byte: int, lead: int) -> int:
        if chunk < 0:
            # Mappings lie anywhere: only the huge pages that fit at any address count.
            self._mapped_faults += -(-(byte + lead + _GRAIN_BYTE) // self._settings.page_bytes)
        else:
            self._pages.touch(chunk, chunk + self._sizes[chunk] + _GRAIN_BYTE)
        return chunk

    def _trim(self) -> None:
        """Return the end of the heap to the kernel, except for the pad."""
        area = self._end - self._top - _LEAST_BYTE - 1
        extra = (area - self._settings.top_pad_bytes) // PAGE_BYTE * PAGE_BYTE
        if extra > 0:
            self._end -= extra
            self._pages.cut(self._end)

    def _take(self, size: int) -> int:
        """Return a chunk of at least `size` bytes, from bins, top, or the kernel."""
        if size in self._fast:
            return self._from_fast(size)
        if size < _SMALL_BYTE and size in self._bins:
            chunk = self._pop_bin(size, -1)
            while size in self._bins and self._has_room(size):
                self._cache_chunk(self._take_whole(self._pop_bin(size, -1)), size)
            return self._take_whole(chunk)
        if size >= _SMALL_BYTE:
            self._consolidate()
        while True:
            chunk = self._from_unsorted(size)
            if chunk is None:
                chunk = self._from_bins(size)
            if chunk is not None:
                return chunk
            if self._end - self._top >= size + _LEAST_BYTE:
                break
            if not self._fast:
                has_mappings = len(self._mapped) < self._settings.mmap_max
                if size >= self.mmap_threshold_bytes and has_mappings:
                    chunk = self._next_mapping
                    self._next_mapping -= 1
                    self._mapped[chunk] = -(-(size + _HEADER_BYTE) // PAGE_BYTE) * PAGE_BYTE
                    return chunk
                more = size + self._settings.top_pad_bytes + _LEAST_BYTE - (self._end - self._top)
                self._end += -(-more // PAGE_BYTE) * PAGE_BYTE
                break
            self._consolidate()
        chunk = self._top
        self._sizes[chunk] = size
        self._top += size
        return chunk

    def _has_room(self, size: int) -> bool:
        return size <= _CACHED_BYTE and len(self._cached.get(size, ())) < _CACHED

    def _from_fast(self, size: int) -> int:
        waiting = self._fast[size]
        chunk = waiting.pop()
        while waiting and self._has_room(size):
            self._cache_chunk(waiting.pop(), size)
        if not waiting:
            del self._fast[size]
        return chunk

    def _from_unsorted(self, size: int) -> int | None:
        """Sort waiting chunks into bins, up to one of exactly `size`."""
        has_cached = False
        while self._unsorted:
            chunk = self._unsorted[0]
            free = self._free[chunk]
            if (
                size < _SMALL_BYTE
                and len(self._unsorted) == 1
                and chunk == self._last_remainder
                and free > size + _LEAST_BYTE
            ):
                self._unsorted.popleft()
                return self._split(chunk, size)
            self._unsorted.popleft()
            if free != size:
                if free not in self._bins:
                    bisect.insort(self._bin_sizes, free)
                same = self._bins.setdefault(free, [])
                same.insert(0 if free < _SMALL_BYTE else 1, chunk)
            elif self._has_room(size):
                self._cache_chunk(self._take_whole(chunk), size)
                has_cached = True
            else:
                return self._take_whole(chunk)
        return self._cached[size].pop() if has_cached else None

    def _from_bins(self, size: int) -> int | None:
        """Return the smallest binned chunk that is large enough."""
        position = bisect.bisect_left(self._bin_sizes, size)
        if position == len(self._bin_sizes):
            return None
        found = self._bin_sizes[position]
        # In the bin of its own size, glibc skips the first of equals, the head of a list.
        is_own = size >= _SMALL_BYTE and _bin_number(found) == _bin_number(size)
        which = min(1, len(self._bins[found]) - 1) if is_own else -1
        return self._split(self._pop_bin(found, which), size)

    def _take_whole(self, chunk: int) -> int:
        """Allocate a whole free chunk."""
        size = self._free.pop(chunk)
        del self._free_ends[chunk + size]
        self._sizes[chunk] = size
        return chunk

    def _split(self, chunk: int, size: int) -> int:
        """Allocate the front of a free chunk; the rest becomes one."""
        rest = self._sizes[self._take_whole(chunk)] - size
        if rest >= _LEAST_BYTE:
            self._sizes[chunk] = size
            self._add_free(chunk + size, rest)
            self._unsorted.append(chunk + size)
            if size < _SMALL_BYTE:
                self._last_remainder = chunk + size
        return chunk

    def _release(self, chunk: int) -> int:
        """Free a chunk, coalesced with free neighbors; return its size."""
        size = self._sizes.pop(chunk)
        before = self._free_ends.get(chunk)
        if before is not None:
            size += self._unlink(before)
            chunk = before
        if chunk + size == self._top:
            self._top = chunk
            return self._end - chunk
        if chunk + size in self._free:
            size += self._unlink(chunk + size)
        self._add_free(chunk, size)
        self._unsorted.append(chunk)
        return size

    def _add_free(self, chunk: int, size: int) -> None:
        self._free[chunk] = size
        self._free_ends[chunk + size] = chunk

    def _unlink(self, chunk: int) -> int:
        """Remove a free chunk from its list; return its size."""
        size = self._free.pop(chunk)
        del self._free_ends[chunk + size]
        if chunk in self._bins.get(size, ()):
            self._pop_bin(size, self._bins[size].index(chunk))
        else:
            self._unsorted.remove(chunk)
        return size

    def _pop_bin(self, size: int, which: int) -> int:
        same = self._bins[size]
        chunk = same.pop(which)
        if not same:
            del self._bins[size]
            del self._bin_sizes[bisect.bisect_left(self._bin_sizes, size)]
        return chunk


def _chunk_size(byte: int) -> int:
    return max(_LEAST_BYTE, -(-(byte + _HEADER_BYTE) // _GRAIN_BYTE) * _GRAIN_BYTE)


def _bin_number(size: int) -> int:
    """Bin of chunks of 1 KiB and more."""
    for shift, most, base in ((6, 48, 48), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)):
        if size >> shift <= most:
            return base + (size >> shift)
    return 126
