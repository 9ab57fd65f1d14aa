"""Allocator of a process: library of malloc, and settings that determine page faults."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roofline.workload.glibc_heap import MallocSettings, malloc_settings

_MAPS = Path("/proc/self/maps")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """Library of a process's malloc (``"glibc"``) with its settings.

    ``settings`` is None for other libraries, whose page faults are not simulated. ``changed`` are
    non-default tunables and variables: ``"glibc.malloc.top_pad=65536"``.
    """

    library: str = "glibc"
    settings: MallocSettings | None
    changed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name in reports: ``"default"``, or changes of glibc's defaults."""
        if self.settings is None:
            return self.library
        huge = ("transparent huge pages",) if self.has_huge_pages else ()
        return ", ".join((*self.changed, *huge)) or "default"

    @property
    def has_huge_pages(self) -> bool:
        """True if a page fault maps 2 MiB where possible."""
        return self.settings is not None and self.settings.has_huge_pages


DEFAULT = Allocator(settings=MallocSettings())
"""Allocator of ``python script.py`` on Linux."""


def allocator_here() -> Allocator:
    """Return the allocator of this process."""
    maps = huge_pages = ""
    malloc = 0
    with suppress(OSError):
        maps = _MAPS.read_text(encoding="utf-8", errors="replace")
    with suppress(OSError):
        huge_pages = _HUGE_PAGES.read_text(encoding="utf-8")
    with suppress(OSError, AttributeError, TypeError):
        malloc = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0
    return allocator_of(os.environ, maps=maps, malloc=malloc, huge_pages=huge_pages)


def allocator_of(
    environment: Mapping[str, str], *, maps: str, malloc: int, huge_pages: str
) -> Allocator:
    """Return the allocator of a process, from its environment, memory map and huge pages."""
    library = _library_at(malloc, maps)
    if library != "glibc":
        return Allocator(library=library, settings=None)
    changed = (
        each for each in environment.get("GLIBC_TUNABLES", "").split(":") if "malloc." in each
    )
    variables = (f"{k}={v}" for k, v in environment.items() if k.startswith("MALLOC_"))
    return Allocator(
        settings=malloc_settings(environment, huge_pages), changed=(*changed, *variables)
    )


def _library_at(address: int, maps: str) -> str:
    """Return the library at an address: ``"glibc"``, or the name of its file."""
    for line in maps.splitlines():
        words = line.split(maxsplit=5)
        first, _, last = words[0].partition("-")
        if len(words) > 5 and int(first, 16) <= address < int(last, 16):
            name = words[5].rpartition("/")[2]
            return "glibc" if name.startswith(("libc.so.6", "libc-2.")) else name
    return "unknown"
