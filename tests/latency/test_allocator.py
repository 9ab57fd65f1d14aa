"""Whose malloc a process has, and what of its settings decides on page faults."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from roofline.latency.allocator import DEFAULT, allocator_here, allocator_of
from roofline.workload.glibc_heap import MallocSettings

MAPS = """\
5555-6666 r-xp 00000000 08:01 11 /usr/bin/python3.11
7f00-8000 r-xp 00000000 08:01 12 /usr/lib/x86_64-linux-gnu/libc.so.6
8000-9000 r-xp 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libjemalloc.so.2
9000-a000 rw-p 00000000 00:00 0
a000-b000 r-xp 00000000 08:01 14 /lib/ld-musl-x86_64.so.1
"""
IN_GLIBC, IN_JEMALLOC, IN_NOTHING, IN_MUSL = 0x7F10, 0x8000, 0x9000, 0xA001
MADVISE = "always [madvise] never"


def found(malloc: int = IN_GLIBC, huge_pages: str = MADVISE, **environment: str) -> object:
    return allocator_of(environment, maps=MAPS, malloc=malloc, huge_pages=huge_pages)


def test_defaults() -> None:
    assert found() == DEFAULT
    assert DEFAULT.name == "default"
    assert DEFAULT.settings == MallocSettings()


@pytest.mark.parametrize(
    ("malloc", "library"),
    [
        (IN_JEMALLOC, "libjemalloc.so.2"),
        (IN_MUSL, "ld-musl-x86_64.so.1"),
        (IN_NOTHING, "unknown"),
        (0, "unknown"),
    ],
)
def test_other_libraries_have_no_settings(malloc: int, library: str) -> None:
    allocator = allocator_of(
        {"MALLOC_TOP_PAD_": "4096"}, maps=MAPS, malloc=malloc, huge_pages=MADVISE
    )
    assert (allocator.name, allocator.settings) == (library, None)


def test_what_is_changed_is_named() -> None:
    allocator = allocator_of(
        {
            "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=0x1000000:glibc.cpu.x=1",
            "MALLOC_TRIM_THRESHOLD_": "65536",
        },
        maps=MAPS,
        malloc=IN_GLIBC,
        huge_pages="[always] madvise never",
    )
    assert allocator.settings is not None
    assert allocator.settings.mmap_threshold_bytes == 2**24
    assert allocator.settings.trim_threshold_bytes == 65536
    assert not allocator.settings.is_dynamic
    assert allocator.name == (
        "glibc.malloc.mmap_threshold=0x1000000, MALLOC_TRIM_THRESHOLD_=65536,"
        " transparent huge pages"
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_that_of_a_process_with_tunables() -> None:
    """The real one: another library would be named."""
    name = subprocess.run(
        [
            *(sys.executable, "-c"),
            "from roofline.latency.allocator import allocator_here; print(allocator_here().name)",
        ],
        env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.top_pad=65536"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if allocator_here().library == "glibc":
        assert "glibc.malloc.top_pad=65536" in name
    else:
        assert name.strip() == allocator_here().name
