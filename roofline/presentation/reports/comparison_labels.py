"""Long names of what is compared as letters, so that tables and sentences stay readable."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase

from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.result import Comparison
from roofline.foundation.text import printable

_LONG = 28
"""How many characters a name may have before all names become letters."""

_LONG_TOGETHER = 64
"""The same of all of them, each of which is the heading of a column."""

Legend = tuple[tuple[str, str], ...]
"""Each letter and the name that it stands for; empty where names stand for themselves."""


def with_letters(comparison: Comparison) -> tuple[Comparison, Legend]:
    """The comparison with letters for names, if those are long; and what they stand for."""
    letters = _letters(comparison.names)
    if not letters:
        return comparison, ()
    legend = tuple(zip(letters, map(printable, comparison.names), strict=True))
    return replace(comparison, names=letters), legend


def grid_with_letters(grid: ComparisonGrid) -> tuple[ComparisonGrid, Legend]:
    """The same for models on several machines."""
    found = [with_letters(each) for each in grid.comparisons]
    return replace(grid, comparisons=tuple(each for each, _ in found)), found[0][1]


def _letters(names: tuple[str, ...]) -> tuple[str, ...]:
    lengths = [len(printable(name)) for name in names]
    if max(lengths) <= _LONG and sum(lengths) <= _LONG_TOGETHER:
        return ()
    count = len(ascii_uppercase)
    return tuple(
        ascii_uppercase[place % count] + (str(place // count + 1) if place >= count else "")
        for place in range(len(names))
    )
