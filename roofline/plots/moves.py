"""Points that move in a roofline plot: arrows from before to after."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from roofline.plots.roof import Point, RoofLines, Spot, diameter_pt
from roofline.plots.roofline import draw_roofline, name_points
from roofline.plots.style import GREY, INK, Style

BEFORE = "before"  # The type of all points that arrows start from
_SAME_SPOT = 0.05  # Decades within which spots are drawn as one
_FAR = 4.0
"""Factor below the lowest point under which ceilings are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A point that moves between two spots; both are equal if it stays.

    ``look`` is the style of its end, shares are of the time before and after.
    """

    name: str
    look: str
    before: Spot
    after: Spot
    share_before: float
    share_after: float


def spot_key(*spots: Spot) -> tuple[int, ...]:
    """Return a key that is equal for spots drawn as one."""
    return tuple(round(math.log10(value) / _SAME_SPOT) for spot in spots for value in spot)


def draw_moves(
    axes: Axes,
    lines: RoofLines,
    moves: Sequence[Move],
    look: Mapping[str, Style],
    *,
    labels: int = 16,
    rate: str = "FLOP/s",
    bend: float = 0.16,
) -> tuple[list[Artist], int]:
    """Draw a roofline, and under it an arrow for each move; arrows bend by a part of their length.

    Returns handles for a legend, and the number of moves that are not named.
    """
    lowest = min((rate for each in moves for _, rate in (each.before, each.after)), default=0.0)
    near = [each for each in lines.ceilings if each.flop_per_s >= lowest / _FAR]
    moving = [each for each in moves if each.before != each.after]
    lines = replace(lines, ceilings=tuple(near or lines.ceilings[:1]))
    ends = [
        *((each.name, each.look, each.after, each.share_after) for each in moves),
        *((each.name, BEFORE, each.before, each.share_before) for each in moving),
    ]
    points = [
        Point(
            name=name,
            op="",
            type=kind,
            phase="forward",
            count=1,
            flop_per_byte=spot[0],
            flop_per_s=spot[1],
            share=share,
            above=False,
        )
        for name, kind, spot, share in ends
    ]
    look = {BEFORE: Style(GREY, "o"), **look}
    handles = draw_roofline(axes, lines, points, look=look, labels=0, rate=rate)
    paths = [(each.before, each.after) for each in moving]
    named = name_points(axes, points, min(labels, len(moves)), lines, paths=paths)
    for each in moving:
        to_the_right = each.after[0] >= each.before[0]
        axes.add_patch(
            FancyArrowPatch(
                each.before,
                each.after,
                arrowstyle="-|>",
                connectionstyle=f"arc3,rad={bend if to_the_right else -bend}",
                mutation_scale=8,
                shrinkA=diameter_pt(each.share_before) / 2,
                shrinkB=diameter_pt(each.share_after) / 2,
                linewidth=0.9,
                edgecolor=INK,
                facecolor="white" if look[each.look].hollow else INK,
                # Drawn below the markers.
                zorder=3.5,
            )
        )
    return handles, len(moves) - named
