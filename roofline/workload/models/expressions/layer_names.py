"""What layers are called in designs, read from torch's source file: torch is not imported for it.

Importing torch takes a second, too long for completing a word.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

TAKE_MODULES = frozenset(["Sequential", "TransformerEncoder", "TransformerDecoder"])
"""Layers that are made of other layers, which a design writes one by one."""

_NO_LAYERS = re.compile(
    r"Lazy.*|.*Loss|.*Loss2d|.*Base|.*Options|Container|Module|.*(List|Dict)|DataParallel"
)
_LISTED = re.compile(r'^\s+"(\w+)",$', re.MULTILINE)


def plain_name(name: str) -> str:
    """A name as the table of layers has it: ``conv_transpose2d`` is ``convtranspose2d``."""
    return name.replace("_", "").lower()


def written_names(names: Iterable[str]) -> Iterator[str]:
    """Those of torch's names that can be layers: no losses, nothing lazy, no containers."""
    return (each for each in names if each[0].isupper() and not _NO_LAYERS.fullmatch(each))


@functools.cache
def listed_layers() -> tuple[str, ...]:
    """The names of layers as they are completed; none where torch lists them in another way."""
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        return ()
    for place in (spec and spec.submodule_search_locations) or ():
        try:
            text = (Path(place) / "nn" / "modules" / "__init__.py").read_text(encoding="utf-8")
        except OSError:
            continue
        names = set(written_names(_LISTED.findall(text))) - TAKE_MODULES
        return tuple(sorted([*map(plain_name, names), "attention", "residual"]))
    return ()
