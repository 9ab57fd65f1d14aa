"""Where in a grid something holds: the smallest range of each axis around it, in words."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from roofline.design.sweeps.axes import Axis, Grid, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The smallest box of a grid that holds some points: first and last place on each axis."""

    grid: Grid
    ends: tuple[tuple[int, int], ...]

    @staticmethod
    def around(grid: Grid, points: Collection[int]) -> Region:
        """The box around the points of these numbers, at least one."""
        places = [places_of(grid, each) for each in points]
        columns = zip(*places, strict=True)
        return Region(grid=grid, ends=tuple((min(each), max(each)) for each in columns))

    @property
    def count(self) -> int:
        """How many points it holds."""
        return math.prod(last - first + 1 for first, last in self.ends)

    @property
    def text(self) -> str:
        """In words: ``"channels ≤ 32 and size ≤ 14"``; ``""`` where it is all of the grid."""
        said = (
            _range_text(axis, *ends) for axis, ends in zip(self.grid.axes, self.ends, strict=True)
        )
        return " and ".join(each for each in said if each)


def places_of(grid: Grid, index: int) -> tuple[int, ...]:
    """The places on the axes of the point of that number."""
    places: list[int] = []
    for axis in reversed(grid.axes):
        index, place = divmod(index, len(axis.values))
        places.append(place)
    return tuple(reversed(places))


def _range_text(axis: Axis, first: int, last: int) -> str:
    final = len(axis.values) - 1
    if (first, last) == (0, final):
        return ""
    low, high = text_of(axis.values[first]), text_of(axis.values[last])
    if first == last:
        return f"{axis.name} {low}"
    if not axis.is_numeric:
        return f"{axis.name} {words([text_of(axis.values[i]) for i in range(first, last + 1)])}"
    if first == 0:
        return f"{axis.name} ≤ {high}"
    if last == final:
        return f"{axis.name} ≥ {low}"
    return f"{axis.name} {low} to {high}"


def words(parts: Sequence[str]) -> str:
    """Words as an enumeration: ``"a, b and c"``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
