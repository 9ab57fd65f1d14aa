"""What designs are called in tables and sentences: their texts are long."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

LONGEST = 24
"""Characters of a name that still reads well in a sentence."""


def letters(count: int) -> tuple[str, ...]:
    """A, B, C …; numbers where letters do not do."""
    return tuple(ascii_uppercase[i] if count <= 26 else f"#{i + 1}" for i in range(count))


def short_names(designs: Sequence[str]) -> tuple[str, ...]:
    """The names themselves if all are short, else letters."""
    if all(len(each) <= LONGEST for each in designs):
        return tuple(designs)
    return letters(len(designs))
