"""Axes of a sweep, parsed from ``channels=16:1024:x2,size=7:56:+7,dtype=float32|bfloat16``."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from roofline.core.source_errors import PlacedError
from roofline.core.text import printable
from roofline.errors import InputError, argument

Value = int | float | str
Point = dict[str, Value]

OPTION_AXES = ("batch", "seq", "threads", "dtype", "layout", "hardware")
"""Axes that are run options, not variables of a design."""

LAYOUTS = ("contiguous", "channels-last")
BALANCE = "balance"
"""Axis of hypothetical machines: machine balance in FLOP/B of DRAM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Axis with distinct values: numbers in ascending order, or words."""

    name: str
    values: Sequence[Value]

    def __post_init__(self) -> None:
        if not len(self.values):
            raise ValueError(f"axis '{self.name}' has no values")

    @property
    def is_numeric(self) -> bool:
        """True if all values are numbers."""  # A range may be long, and has only numbers.
        return isinstance(self.values, range) or not any(
            isinstance(each, str) for each in self.values
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """All combinations of axis values; the last axis varies fastest."""

    axes: tuple[Axis, ...]
    text: str = field(default="", compare=False)
    """Text of the user, for error positions; ``""`` without a text."""

    def refusal(self, name: str, why: str) -> InputError:
        """Return an error that points at the axis of that name."""
        found = re.search(rf"(?:^|,)\s*({re.escape(name)})\s*=", self.text)
        return PlacedError(why, self.text, found.start(1)) if found else InputError(why)

    @property
    def count(self) -> int:
        """Number of points."""
        return math.prod(len(each.values) for each in self.axes)

    def point(self, index: int) -> Point:
        """Return the values at a point by axis."""
        pairs = zip(self.axes, self.places(index), strict=True)
        return {axis.name: axis.values[place] for axis, place in pairs}

    def places(self, index: int) -> tuple[int, ...]:
        """Return the axis positions of a point."""
        if not 0 <= index < self.count:
            raise IndexError(f"point {index} of {self.count}")
        places: list[int] = []
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis.values))
            places.append(place)
        return tuple(reversed(places))

    def points(self) -> Iterator[Point]:
        """Return all points in order."""
        return map(self.point, range(self.count))

    def index(self, places: Sequence[int]) -> int:
        """Return the number of the point at these axis positions."""
        found = 0
        for axis, place in zip(self.axes, places, strict=True):
            found = found * len(axis.values) + place
        return found

    def of(self, names: Sequence[str]) -> Grid:
        """Return the grid of some axes, in the order of this one."""
        return Grid(axes=tuple(each for each in self.axes if each.name in names), text=self.text)

    def box(self, points: Collection[int]) -> tuple[int, str]:
        """Return the size and the text of the smallest box around points.

        The text is ``"channels ≤ 32 and size ≤ 14"``, or ``""`` for the whole grid.
        """
        columns = list(zip(*map(self.places, points), strict=True))
        ends = [(min(each), max(each)) for each in columns]
        said = [_range_text(axis, *each) for axis, each in zip(self.axes, ends, strict=True)]
        count = math.prod(last - first + 1 for first, last in ends)
        return count, " and ".join(filter(None, said))


def _range_text(axis: Axis, first: int, last: int) -> str:
    final = len(axis.values) - 1
    if (first, last) == (0, final):
        return ""
    low, high = text_of(axis.values[first]), text_of(axis.values[last])
    if first == last:
        return f"{axis.name} {low}"
    if not axis.is_numeric:
        return (
            f"{axis.name} {join_words([text_of(each) for each in axis.values[first : last + 1]])}"
        )
    if first == 0:
        return f"{axis.name} ≤ {high}"
    return f"{axis.name} ≥ {low}" if last == final else f"{axis.name} {low} to {high}"


def join_words(parts: Sequence[str]) -> str:
    """Return an enumeration: ``"a, b and c"``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def text_of(value: Value) -> str:
    """Return a value as text: ``"64"``, ``"0.5"``, ``"bfloat16"``."""
    return value if isinstance(value, str) else f"{value:.6g}" if value % 1 else str(int(value))


def axis_names(grid: Grid) -> str:
    """Return the axes as text: ``"channels 16 to 1024, size 7 to 112"``."""
    said: list[str] = []
    for each in grid.axes:
        low, high = text_of(each.values[0]), text_of(each.values[-1])
        values = ", ".join(map(text_of, each.values))
        if each.is_numeric:
            values = low if low == high else f"{low} to {high}"
        said.append(f"{each.name} {values}")
    return ", ".join(said)


def point_text(point: Point) -> str:
    """Return a point as text: ``"channels 64, size 7"``."""
    return ", ".join(f"{name} {text_of(value)}" for name, value in point.items())


_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_VALUES = 10_000  # Of one axis, unless it is a range of whole numbers
_LARGEST = 2**40


def grid_of(axes: str | Mapping[str, object]) -> Grid:
    """Return the grid of axes given as text or as a mapping of names to values.

    Text: ``name=low:high:xF`` (times F), ``name=low:high:+S`` or ``low:high:S`` (plus S), with
    inclusive ends, or ``name=a|b|c``; separated by commas.

    Raises:
        InputError: points at the error in the text.
    """
    if not isinstance(axes, str):
        if not isinstance(axes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"axes={axes!r:.60}: must be a text, or a mapping such as {{'channels': [16, 32]}}"
            )
        found = tuple(_given(str(name), values) for name, values in axes.items())
        if not found:
            raise InputError("axes: empty; write {'channels': [16, 32, 64]}")
        return Grid(axes=found)
    parsed: dict[str, Axis] = {}
    at = 0
    for part in axes.split(","):
        name, equals, values = part.partition("=")
        start = at + len(part) - len(part.lstrip())
        name = name.strip()
        if not part.strip():
            raise _wrong(axes, at, "missing axis; write channels=16:1024:x2")
        if not equals:
            why = f"axis '{printable(name)}' has no values; write {name}=16:1024:x2"
            raise _wrong(axes, start, why)
        if not _NAME.fullmatch(name):
            raise _wrong(axes, start, f"invalid axis name '{printable(name)}'")
        if name in parsed:
            raise _wrong(axes, start, f"duplicate axis '{name}'; give it once")
        parsed[name] = _axis(name, values, axes, at + len(part) - len(values))
        at += len(part) + 1
    return Grid(axes=tuple(parsed.values()), text=axes)


def _wrong(text: str, at: int, why: str) -> PlacedError:
    return PlacedError(f"{argument('axes')}: {why}", text, at)


def _given(name: str, values: object) -> Axis:
    if isinstance(values, str):
        return _axis(name, values, values, 0)
    if isinstance(values, (int, float)):
        values = [values]
    if not isinstance(values, Sequence):
        raise InputError(f"axes: '{name}' expects a list of values, got {type(values).__name__}")
    if not values:
        raise InputError(f"axes: '{name}' has no values; give at least one")
    if isinstance(values, range):
        return Axis(name=name, values=values)
    chosen: list[Value] = []
    for each in cast("Sequence[object]", values):
        # torch.float32 becomes float32.
        value = each if isinstance(each, (int, float, str)) else str(each).removeprefix("torch.")
        if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(f"axes: '{name}' expects numbers or words, got {value!r}")
        chosen.append(value)
    return Axis(name=name, values=_different(chosen))


def _axis(name: str, values: str, text: str, at: int) -> Axis:
    def number(part: str, place: int) -> int | float:
        word = part.strip()
        if not _NUMBER.fullmatch(word):
            raise _wrong(text, place, f"expected a number, got '{printable(word)}'")
        if float(word) > _LARGEST:
            raise _wrong(text, place, f"'{word[:20]}' is too large; the maximum is 2^40")
        return int(word) if word.isdigit() else float(word)

    if not values.strip():
        raise _wrong(text, at, f"axis '{name}' has no values; write {name}=16:1024:x2")
    parts = values.split(":" if ":" in values else "|")
    places = [at + sum(len(each) + 1 for each in parts[:i]) for i in range(len(parts))]
    if ":" not in values:
        listed: list[Value] = []
        for part, place in zip(parts, places, strict=True):
            word = part.strip()
            if not word:
                raise _wrong(text, place, "missing value; write 1|4|32")
            listed.append(number(word, place) if _NUMBER.fullmatch(word) else word)
        return Axis(name=name, values=_different(listed))
    if len(parts) != 3:
        raise _wrong(text, places[-1], "write low:high:x2 (times 2) or low:high:+8 (plus 8)")
    low, high = number(parts[0], places[0]), number(parts[1], places[1])
    step = parts[2].strip()
    is_factor = step.startswith("x")
    by = number(step[1:] if step.startswith(("x", "+")) else step, places[2])
    if low > high:
        raise _wrong(text, places[0], f"axis '{name}': low exceeds high; swap them")
    if by <= is_factor:
        why = "a factor must be above 1" if is_factor else "a step must be above 0"
        raise _wrong(text, places[2], why)
    if is_factor and low <= 0:
        raise _wrong(text, places[0], "low must be above 0 with a factor")
    if not is_factor and isinstance(low, int) and isinstance(by, int):
        return Axis(name=name, values=range(low, math.floor(high) + 1, by))
    steps = math.log(high / low) / math.log(by) if is_factor else (high - low) / by
    count = math.floor(steps + 1e-9) + 1
    if count > _MOST_VALUES:
        why = f"{count} values on one axis; the maximum is {_MOST_VALUES}"
        raise _wrong(text, places[2], why)
    found: list[Value] = [low * by**i if is_factor else low + i * by for i in range(count)]
    # Whole numbers remain whole.
    is_whole = is_factor and isinstance(low, int) and isinstance(high, int)
    return Axis(name=name, values=_different(map(round, found)) if is_whole else tuple(found))  # pyright: ignore[reportArgumentType]  they are all numbers


def _different(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return the distinct values, numbers in ascending order."""
    found = list(dict.fromkeys(values))
    if all(not isinstance(each, str) for each in found):
        found.sort()  # pyright: ignore[reportCallIssue]  they are all numbers
    return tuple(found)
