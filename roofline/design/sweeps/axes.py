"""What is varied in a sweep, and over which values; points are counted without making them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from roofline.errors import InputError
from roofline.foundation.places import PlacedError

Value = int | float | str
Point = dict[str, Value]

OPTION_AXES = ("batch", "seq", "threads", "dtype", "layout", "hardware")
"""Axes that are no variables of a design: how it is run, and where."""

LAYOUTS = ("contiguous", "channels-last")
BALANCE = "balance"
"""The axis of hypothetical machines: FLOP that the units do for each byte that DRAM gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A name, and its values in order, all different: numbers ascending, or words.

    Raises:
        ValueError: no value.
    """

    name: str
    values: Sequence[Value]

    def __post_init__(self) -> None:
        if not len(self.values):
            raise ValueError(f"axis '{self.name}' has no values")

    @property
    def is_numeric(self) -> bool:
        """Whether all of its values are numbers."""
        # A range, which may be long, holds nothing else.
        return isinstance(self.values, range) or not any(
            isinstance(each, str) for each in self.values
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All combinations of the values of some axes; the last axis runs fastest."""

    axes: tuple[Axis, ...]
    text: str = field(default="", compare=False)
    """What the user wrote, so that errors can point at it; ``""``: it was no text."""

    def refusal(self, name: str, why: str) -> InputError:
        """An error about the axis of that name, which points at it."""
        found = re.search(rf"(?:^|,)\s*({re.escape(name)})\s*=", self.text)
        return PlacedError(why, self.text, found.start(1)) if found else InputError(why)

    @property
    def count(self) -> int:
        """How many points there are."""
        return math.prod(len(each.values) for each in self.axes)

    def point(self, index: int) -> Point:
        """The values at one point, by the names of the axes.

        Raises:
            IndexError: there is no such point.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"point {index} of {self.count}")
        values: list[Value] = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis.values))
            values.append(axis.values[place])
        return dict(zip((each.name for each in self.axes), reversed(values), strict=True))

    def points(self) -> Iterator[Point]:
        """Every point, one after the other."""
        return map(self.point, range(self.count))

    def index(self, places: Sequence[int]) -> int:
        """The number of the point at these places of the axes."""
        found = 0
        for axis, place in zip(self.axes, places, strict=True):
            found = found * len(axis.values) + place
        return found

    def of(self, names: Sequence[str]) -> Grid:
        """The grid of some of the axes, in its own order."""
        return Grid(axes=tuple(each for each in self.axes if each.name in names), text=self.text)


def text_of(value: Value) -> str:
    """A value as people write it: ``"64"``, ``"0.5"``, ``"bfloat16"``."""
    return value if isinstance(value, str) else f"{value:.6g}" if value % 1 else str(int(value))


def point_text(point: Point) -> str:
    """A point in words: ``"channels 64, size 7"``."""
    return ", ".join(f"{name} {text_of(value)}" for name, value in point.items())
