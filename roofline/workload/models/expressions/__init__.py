"""Designs written as text: ``conv2d(64,64,3,groups=64)+conv2d(64,64,1)@56x56``.

What reads and prints them imports no torch; `building` makes modules of them, with `layers`,
`pieces`, `shapes` and `fitting`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from roofline.workload.models.expressions.parsing import MOST_LETTERS, parsed
from roofline.workload.models.expressions.syntax import with_values

_SIGNS = re.compile(r"[()@+*{}]")


def is_expression(text: str) -> bool:
    """Whether a text that names a model is a design, and not a name, a file or a package.

    A text with one of ``( ) @ + * { }`` in it is one, but for ``file.py:Model``, ``file.py`` and
    ``file.json`` of a file that there is.
    """
    if not _SIGNS.search(text):
        return False
    if len(text) > MOST_LETTERS:
        return True
    before, colon, after = text.rpartition(":")
    if colon and before.endswith(".py") and after.isidentifier():
        return not _is_file(before)
    return not (text.endswith((".py", ".json")) and _is_file(text))


def variables_in(text: str) -> tuple[str, ...]:
    """The variables of a design, each once, in the order in which they are written.

    Empty for what is no design.

    Raises:
        InputError: it cannot be read; with a caret under the place.
    """
    if not is_expression(text):
        return ()
    return tuple(dict.fromkeys(each.name for each in parsed(text).variables()))


def bound(text: str, values: Mapping[str, int | float | str]) -> str:
    """A design with values in the place of its variables, written in its shortest form.

    Variables without a value stay; values of names that are not in it have no effect; what is no
    design stays as it is.

    Raises:
        InputError: it cannot be read, or a value does not fit; with a caret under the place.
    """
    return str(with_values(parsed(text), values)) if is_expression(text) else text


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
