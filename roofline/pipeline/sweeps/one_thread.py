"""Linear algebra on one thread: sums then have one order, and results the same digits everywhere.

numpy's wheels bring OpenBLAS, which divides a product among threads, and what is added in another
order differs in its last digit. Where numpy has another library, nothing is done here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_FOLDERS = ("numpy.libs", "numpy/.dylibs")
_AFFIXES = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", ""))


def use_one_thread() -> None:
    """From now on this process computes products of matrices on one thread."""
    for library, prefix, suffix in _libraries():
        _call(library, prefix, "set", suffix)(ctypes.c_int(1))


@contextmanager
def one_thread() -> Generator[None]:
    """Within the context this process computes products of matrices on one thread."""
    before = [int(_call(*each[:2], "get", each[2])()) for each in _libraries()]
    use_one_thread()
    try:
        yield
    finally:
        for (library, prefix, suffix), count in zip(_libraries(), before, strict=True):
            _call(library, prefix, "set", suffix)(ctypes.c_int(count))


@functools.cache
def _libraries() -> tuple[tuple[ctypes.CDLL, str, str], ...]:
    """numpy's OpenBLAS, which numpy has loaded, with what its names begin and end with."""
    import numpy

    packages = Path(numpy.__file__).parent.parent
    found: list[tuple[ctypes.CDLL, str, str]] = []
    for path in (path for each in _FOLDERS for path in (packages / each).glob("*openblas*")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for prefix, suffix in _AFFIXES:
            if hasattr(library, f"{prefix}openblas_set_num_threads{suffix}"):
                found.append((library, prefix, suffix))
                break
    return tuple(found)


def _call(library: ctypes.CDLL, prefix: str, verb: str, suffix: str) -> ctypes._NamedFuncPointer:  # pyright: ignore[reportPrivateUsage]  its only name
    return getattr(library, f"{prefix}openblas_{verb}_num_threads{suffix}")
