"""The shaded areas of the two-layer picture as polygons, in points, cut to the axes' frame."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.plots.roof import Spot
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box

Corner = tuple[float, float]
"""A place on paper, in points."""

Ends = tuple[Spot, Spot]
"""Where a line begins and ends: FLOP/byte, FLOP/s."""

_LEAST_WIDTH_PT = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A shaded polygon: ``corners`` in points, in turn; ``label`` names the line it hangs on.

    ``loss`` is what lies between paper and measurement, ``software`` what lies between the roof and
    what software reaches.
    """

    kind: Literal["loss", "software"]
    label: str
    corners: tuple[Corner, ...]

    @property
    def area_pt2(self) -> float:
        """How large it is, in square points (the formula of Gauss)."""
        return abs(_doubled(self.corners)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The axes of a picture, and what lies within them."""

    x: LogAxis
    y: LogAxis

    @property
    def box(self) -> Box:
        """Their box."""
        return Box(self.x.start_pt, self.y.start_pt, self.x.end_pt, self.y.end_pt)

    def corner(self, spot: Spot) -> Corner:
        """Where a spot stands on paper."""
        return self.x.pt(spot[0]), self.y.pt(spot[1])

    @property
    def far_left(self) -> float:
        """An intensity so small that every diagonal is below the frame there, and left of it."""
        return self.x.low * 1e-30


def under_ceiling(
    frame: Frame, low_flop_per_s: float, high_flop_per_s: float, byte_per_s: float | None
) -> tuple[Corner, ...]:
    """What lies between two compute ceilings right of the diagonal of `byte_per_s`; else all.

    Empty where the higher one is not higher.
    """
    if high_flop_per_s <= low_flop_per_s:
        return ()

    def start(rate: float) -> float:
        return rate / byte_per_s if byte_per_s else frame.far_left

    right = frame.x.high * 10
    spots = [
        (start(low_flop_per_s), low_flop_per_s),
        (start(high_flop_per_s), high_flop_per_s),
        (max(right, start(high_flop_per_s)), high_flop_per_s),
        (max(right, start(low_flop_per_s)), low_flop_per_s),
    ]
    return cut_to_box([frame.corner(each) for each in spots], frame.box)


def beside_diagonal(
    frame: Frame, low_byte_per_s: float, high_byte_per_s: float, top_flop_per_s: float | None
) -> tuple[Corner, ...]:
    """What lies between two diagonals below a compute ceiling; without one, within the frame."""
    if high_byte_per_s <= low_byte_per_s:
        return ()
    top = top_flop_per_s or frame.y.high * 10
    left = frame.far_left
    spots = [
        (left, left * low_byte_per_s),
        (top / low_byte_per_s, top),
        (top / high_byte_per_s, top),
        (left, left * high_byte_per_s),
    ]
    return cut_to_box([frame.corner(each) for each in spots], frame.box)


def widened(frame: Frame, ends: tuple[float, float]) -> tuple[float, float]:
    """A range of intensities, made wide enough to be seen around its middle."""
    low, high = ends
    short = _LEAST_WIDTH_PT - (frame.x.pt(high) - frame.x.pt(low))
    by = 10 ** (max(0.0, short) / 2 / frame.x.pt_per_decade)
    return low / by, high * by


def between_intensities(
    frame: Frame,
    lower: Callable[[float], float],
    upper: Callable[[float], float],
    ends: tuple[float, float],
) -> tuple[Corner, ...]:
    """What lies between two straight lines (FLOP/s of an intensity) from one intensity to another.

    Empty where the upper one is not above the lower.
    """
    low, high = ends
    if not upper(low) > lower(low):
        return ()
    spots = [(low, lower(low)), (low, upper(low)), (high, upper(high)), (high, lower(high))]
    return cut_to_box([frame.corner(each) for each in spots], frame.box)


def cut_to_box(corners: Sequence[Corner], box: Box) -> tuple[Corner, ...]:
    """The part of a polygon within `box` (I. Sutherland, G. Hodgman, 1974); empty if none is."""
    found = list(corners)
    for axis, limit, sign in (
        (0, box.left, 1.0),
        (0, box.right, -1.0),
        (1, box.bottom, 1.0),
        (1, box.top, -1.0),
    ):
        found = _cut(found, axis, limit, sign)
    kept = [each for i, each in enumerate(found) if math.dist(each, found[i - 1]) > 1e-9]
    return tuple(kept) if len(kept) > 2 else ()


def _cut(corners: Sequence[Corner], axis: int, limit: float, sign: float) -> list[Corner]:
    """The part of a polygon where ``sign * (value - limit) >= 0`` on one axis."""
    found: list[Corner] = []
    for i, here in enumerate(corners):
        before = corners[i - 1]
        inside, was_inside = (sign * (each[axis] - limit) >= 0 for each in (here, before))
        if inside != was_inside:
            part = (limit - before[axis]) / (here[axis] - before[axis])
            other = 1 - axis
            across = before[other] + part * (here[other] - before[other])
            found.append((limit, across) if axis == 0 else (across, limit))
        if inside:
            found.append(here)
    return found


def _doubled(corners: Sequence[Corner]) -> float:
    return sum(
        x0 * y1 - x1 * y0
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], *corners[:1]], strict=True)
    )
