"""The model of glibc's malloc against glibc itself: addresses, page faults and the heap's size."""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from roofline.workload.glibc_heap import (
    HUGE_PAGE_BYTE,
    PAGE_BYTE,
    Heap,
    MallocSettings,
    malloc_settings,
)

Line = tuple[str, int, int]
KIB, MIB = 2**10, 2**20

_PER_THREAD_BYTE = 640
"""What the first malloc of a thread takes for its cache."""


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None or platform.libc_ver()[0] != "glibc" or platform.machine() != "x86_64":
        pytest.skip("needs gcc and glibc on x86-64")
    if not (2, 26) <= tuple(map(int, platform.libc_ver()[1].split(".")[:2])) <= (2, 37):
        pytest.skip("posix_memalign of this glibc works otherwise")
    path = tmp_path_factory.mktemp("probe") / "probe"
    source = Path(__file__).with_name("allocator_probe.c")
    subprocess.run([compiler, "-O1", "-o", path, source], check=True)
    return path


def real(
    probe: Path, lines: Sequence[Line], environment: dict[str, str]
) -> list[tuple[int, int, int]]:
    text = "".join(f"{what} {number} {byte}\n" for what, number, byte in lines)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(
        [probe], input=text.encode(), env={**kept, **environment}, capture_output=True, check=True
    )
    return [tuple(map(int, line.split())) for line in found.stdout.decode().splitlines()]  # type: ignore[misc]


def simulated(lines: Sequence[Line], settings: MallocSettings) -> list[tuple[int, int, int]]:
    heap, blocks = Heap(settings), dict[int, int]()
    heap.malloc(_PER_THREAD_BYTE)
    found: list[tuple[int, int, int]] = []
    for what, number, byte in lines:
        before, offset = heap.page_faults, 0
        if what == "f":
            heap.free(blocks.pop(number))
        else:
            take = heap.memalign if what == "a" else heap.malloc
            blocks[number] = take(byte)
            offset = blocks[number] + 16 if blocks[number] >= 0 else -1
        found.append((offset, heap.page_faults - before, heap.size_bytes))
    return found


def random_lines(seed: int) -> list[Line]:
    """Blocks of ten sizes and some others, taken and given back in any order."""
    numbers = random.Random(seed)
    largest = numbers.choice([100, 3000, 40000])
    sizes = [numbers.randint(1, largest) * numbers.choice([1, 64, 1024]) for _ in range(8)]
    sizes += [numbers.randint(20, 5000) for _ in range(2)]
    lines: list[Line] = [("m", 0, 16)]
    alive: list[int] = []
    for number in range(1, 500):
        if alive and (numbers.random() < 0.5 or len(alive) > 12):
            lines.append(("f", alive.pop(numbers.randrange(len(alive))), 0))
        else:
            is_usual = numbers.random() < 0.8
            byte = numbers.choice(sizes) if is_usual else numbers.randint(16, largest * 64)
            lines.append((numbers.choice("aaam"), number, byte))
            alive.append(number)
    return lines


ENVIRONMENTS = [
    {},
    {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=268435456"},
    {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576:glibc.malloc.trim_threshold=4194304"},
    {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=0x1000000"},
    {"MALLOC_MMAP_THRESHOLD_": "65536"},
    {"MALLOC_TRIM_THRESHOLD_": "1000000"},
    {"MALLOC_TOP_PAD_": "4194304"},
    {"MALLOC_MMAP_MAX_": "0"},
]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_every_block_lies_where_glibc_puts_it(
    probe: Path, seed: int, environment: dict[str, str]
) -> None:
    lines = random_lines(seed)
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if huge.exists() and "[always]" in huge.read_text():
        pytest.skip("huge pages have no page faults of one size")
    there = real(probe, lines, environment)
    here = simulated(lines, malloc_settings(environment))
    assert [(each[0], each[2]) for each in here] == [(each[0], each[2]) for each in there]
    # The kernel maps a page of a table or of the library once or twice in between.
    assert sum(each[1] for each in here) == pytest.approx(sum(each[1] for each in there), abs=3)


def test_a_large_block_is_mapped_once_and_then_kept_in_the_heap() -> None:
    heap = Heap(MallocSettings())
    first = heap.memalign(10 * MIB)
    assert heap.size_bytes == 0
    assert heap.page_faults == 10 * MIB // PAGE_BYTE + 1
    heap.free(first)
    assert heap.mmap_threshold_bytes > 10 * MIB
    assert heap.trim_threshold_bytes == 2 * heap.mmap_threshold_bytes
    # Seven times the end that is cut off stays in the thread's cache, behind the freed block.
    for _ in range(10):
        heap.free(heap.memalign(10 * MIB))
    before = heap.page_faults
    for _ in range(3):
        heap.free(heap.memalign(10 * MIB))
    assert heap.page_faults == before


def test_blocks_beyond_the_largest_threshold_are_faulted_in_every_time() -> None:
    heap = Heap(MallocSettings())
    for _ in range(3):
        heap.free(heap.memalign(33 * MIB))
    assert heap.page_faults == 3 * (33 * MIB // PAGE_BYTE + 1)
    assert heap.mmap_threshold_bytes == 128 * KIB


def test_the_top_is_given_back_from_the_trim_threshold_on() -> None:
    heap = Heap(MallocSettings(mmap_threshold_bytes=MIB, trim_threshold_bytes=2 * MIB))
    three = [heap.malloc(900 * KIB) for _ in range(3)]
    heap.free(three[2])
    before, size = heap.page_faults, heap.size_bytes
    three[2] = heap.malloc(900 * KIB)
    assert (heap.page_faults, heap.size_bytes) == (before, size)
    for each in reversed(three):
        heap.free(each)
    assert heap.size_bytes < size - 2 * MIB + 256 * KIB


def test_a_small_block_behind_it_keeps_a_large_one() -> None:
    heap = Heap(MallocSettings(mmap_threshold_bytes=32 * MIB, trim_threshold_bytes=MIB))
    large = heap.memalign(8 * MIB)
    behind = heap.malloc(5000)
    heap.free(large)
    before = heap.page_faults
    heap.free(heap.memalign(8 * MIB - 200))
    assert heap.page_faults == before
    heap.free(behind)
    heap.memalign(8 * MIB - 200)
    assert heap.page_faults > before + 8 * MIB // PAGE_BYTE - 100


def test_neighbors_coalesce() -> None:
    heap = Heap(MallocSettings(mmap_threshold_bytes=32 * MIB))
    blocks = [heap.malloc(100_000) for _ in range(4)]
    heap.free(blocks[0])
    heap.free(blocks[2])
    heap.free(blocks[1])
    assert heap.malloc(300_000) == blocks[0]


def test_the_smallest_free_chunk_that_fits_is_taken() -> None:
    heap = Heap(MallocSettings(mmap_threshold_bytes=32 * MIB, trim_threshold_bytes=32 * MIB))
    sizes = (300_000, 100_000, 200_000)
    blocks: list[int] = []
    for size in sizes:
        blocks.append(heap.malloc(size))
        heap.malloc(2000)
    for block in blocks:
        heap.free(block)
    assert heap.malloc(150_000) == blocks[2]


def test_huge_pages_are_counted_as_such() -> None:
    settings = MallocSettings(has_huge_pages=True, mmap_threshold_bytes=32 * MIB)
    heap = Heap(settings)
    heap.memalign(16 * MIB)
    assert heap.page_faults in (8, 9)
    assert settings.page_bytes == HUGE_PAGE_BYTE


def test_settings_are_read_as_glibc_reads_them() -> None:
    assert malloc_settings({}) == MallocSettings()
    found = malloc_settings(
        {
            "MALLOC_TOP_PAD_": "0",
            "MALLOC_ARENA_MAX": "1",
            "GLIBC_TUNABLES": "glibc.malloc.mmap_max=7:glibc.malloc.trim_threshold=0x100:x=2",
        },
        "always [madvise] never",
    )
    assert (found.top_pad_bytes, found.mmap_max, found.trim_threshold_bytes) == (0, 7, 256)
    assert not found.is_dynamic
    assert not found.has_huge_pages
    assert malloc_settings({"MALLOC_TOP_PAD_": "many"}).is_dynamic
    assert malloc_settings({}, "[always] madvise never").has_huge_pages
    asked = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    assert malloc_settings(asked, "always [madvise] never").has_huge_pages
    assert malloc_settings(asked, "always [madvise] never").is_dynamic
    assert not malloc_settings(asked, "always madvise [never]").has_huge_pages
