"""The user's own files go with the work: another machine need not have them."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_FILE = re.compile(r"(?:^|(?<=\+))\s*([^+:]*?\.py)(?=:)")
"""The file in each part of a design that is ``file.py:Block(…)``."""

_MOST_BYTE = 2**20
"""More than modules beside a model's own file have; folders of larger ones hold something else."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A Python file as designs name it, with the other ones of its folder: content by name."""

    path: str
    name: str
    contents: tuple[tuple[str, bytes], ...]


def shipped_for(designs: Iterable[object]) -> tuple[Shipped, ...]:
    """The files that designs name and that are there; what is missing, its loader says."""
    texts = (each for each in designs if isinstance(each, str))
    paths = dict.fromkeys(path for text in texts for path in _FILE.findall(text))
    return tuple(_shipped(each) for each in paths if Path(each).is_file())


def _shipped(path: str) -> Shipped:
    file = Path(path)
    contents = {file.name: file.read_bytes()}
    beside = {
        each.name: each.read_bytes()
        for each in sorted(file.parent.glob("*.py"))
        if each != file and each.is_file() and each.stat().st_size < _MOST_BYTE
    }
    if sum(map(len, beside.values())) < _MOST_BYTE:
        contents.update(beside)
    return Shipped(path, file.name, tuple(contents.items()))


def in_reach(text: str, shipped: Sequence[Shipped]) -> str:
    """A design's text with files that are on this machine: its own if it is the same, else ours."""
    for each in shipped:
        if f"{each.path}:" in text and not _is_here(each):
            text = text.replace(f"{each.path}:", f"{_unpacked(each)}:")
    return text


@functools.cache
def _is_here(shipped: Shipped) -> bool:
    try:
        return Path(shipped.path).read_bytes() == dict(shipped.contents)[shipped.name]
    except OSError:
        return False


@functools.cache
def _unpacked(shipped: Shipped) -> str:
    folder = _folder(shipped)
    for name, content in shipped.contents:
        (folder / name).write_bytes(content)
    return str(folder / shipped.name)


@functools.cache
def _folder(shipped: Shipped) -> Path:
    """A folder that goes when this process ends."""
    import atexit
    import shutil

    folder = tempfile.mkdtemp(prefix="roofline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
