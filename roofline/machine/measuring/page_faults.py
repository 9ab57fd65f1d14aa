"""Costs of page faults: memory that the system hands out fresh is mapped and cleared page by page.

A region is mapped, written by all threads and unmapped, then written again where it is mapped
already; the difference, by page, is what one page fault adds to a pass that gets its memory fresh.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from roofline.foundation.sampling import Sample, quantile
from roofline.foundation.units import format_bytes
from roofline.machine.hardware import HUGE_PAGE_FAULT, PAGE_FAULT, Duration, Overhead
from roofline.machine.measuring.ceilings import provenance
from roofline.machine.measuring.crew import Crew
from roofline.machine.system.activity import minor_faults

_HUGE_BYTE = 2 * 2**20
_ROUNDS = 15
_FAST = 0.05
_MOST_WRONG = 0.1
"""Share by which faults may differ from the pages of a region; else pages are of another size."""


@dataclass(frozen=True, slots=True)
class _Pages:
    name: str
    page_bytes: int
    advice: str
    """The constant of `mmap` that asks the system for them."""
    region_bytes: int


# A region of small pages is as large as a tensor of a model: threads that write a part each share
# the tables of its pages, and two of them are hardly faster than one. In 16 MiB they are.
_KINDS = (
    _Pages(PAGE_FAULT, mmap.PAGESIZE, "MADV_NOHUGEPAGE", 2 * 2**20),
    _Pages(HUGE_PAGE_FAULT, _HUGE_BYTE, "MADV_HUGEPAGE", 8 * _HUGE_BYTE),
)


def page_fault_overheads(
    crew: Crew, teams: Sequence[int], clock: Callable[[], float]
) -> tuple[Overhead, ...]:
    """Seconds that a page fault adds, for each kind of page that the system has.

    Args:
        crew: threads that write.
        teams: numbers of them.
        clock: seconds.
    """
    found: list[Overhead] = []
    for kind in _KINDS:
        for threads in teams:
            rounds = [_fault_s(crew, threads, kind, clock) for _ in range(_ROUNDS)]
            # Writing what is mapped already takes longer where another process gets the core.
            times_s = tuple(each for each in rounds if each is not None and each > 0)
            if len(times_s) > _ROUNDS // 2:
                found.append(_overhead(kind, threads, times_s))
    return tuple(found)


def _overhead(kind: _Pages, threads: int, times_s: tuple[float, ...]) -> Overhead:
    sample = Sample(times_s=times_s)
    return Overhead(
        name=kind.name,
        threads=threads,
        time=Duration(
            fast_s=quantile(times_s, _FAST),
            median_s=sample.median_s,
            spread=sample.spread,
            provenance=provenance(
                f"5th percentile (fast) and median of mapping, writing and unmapping"
                f" {format_bytes(kind.region_bytes)}, less writing what is mapped already",
                f"pages of {format_bytes(kind.page_bytes)}, cleared by the system;"
                f" {len(times_s)} rounds",
            ),
        ),
    )


def _fault_s(crew: Crew, threads: int, kind: _Pages, clock: Callable[[], float]) -> float | None:
    """Seconds by page; None: the system has no such pages, or does not count faults."""
    advice = getattr(mmap, kind.advice, None)
    if advice is None:
        return None
    begin_s = clock()
    try:
        # Room to begin at a huge page.
        region = mmap.mmap(
            -1, kind.region_bytes + _HUGE_BYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        region.madvise(advice)
    except (OSError, ValueError):
        return None
    address = ctypes.addressof(ctypes.c_char.from_buffer(region))
    address += -address % _HUGE_BYTE
    part_bytes = kind.region_bytes // threads

    def write(worker: int) -> int:
        before = minor_faults()
        ctypes.memset(address + worker * part_bytes, 1, part_bytes)
        return minor_faults() - before

    page_faults = sum(crew.each(write, threads))
    written_s = clock()
    crew.each(write, threads)
    again_s = clock()
    region.close()
    end_s = clock()
    pages = threads * part_bytes // kind.page_bytes
    if not abs(page_faults - pages) <= _MOST_WRONG * pages + 1:
        return None
    fresh_s = written_s - begin_s + end_s - again_s
    return (fresh_s - (again_s - written_s)) / pages
