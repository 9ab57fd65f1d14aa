"""Data of roofline plots: ceilings, memory levels, operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Spot = tuple[float, float]  # A place on the axes: FLOP/byte, FLOP/s
CeilingKind = Literal["hardware", "library", "theoretical"]

_SMALLEST_PT = 4.5
_WHOLE_PT = 38.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A compute ceiling: ``flop_per_s`` from ``start_flop_per_byte`` to the right edge.

    It starts at the roof of the fastest memory level (None: at the left edge). ``main``: the model
    computes in its data type. ``color`` is ``#rrggbb``; ``""``: that of its kind.
    """

    label: str
    kind: CeilingKind
    flop_per_s: float
    start_flop_per_byte: float | None
    main: bool
    color: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagonal:
    """A memory level: FLOP/s = ``bytes_per_s`` × AI, from the edge to its cut.

    ``ridge_flop_per_byte`` is its ridge point with the highest ceiling of the main data type,
    ``cut_flop_per_byte`` with the highest of all; None: no compute ceiling.
    """

    label: str
    level: str
    bytes_per_s: float
    ridge_flop_per_byte: float | None
    cut_flop_per_byte: float | None
    kind: Literal["hardware", "link", "theoretical"] = "hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLines:
    """All lines of a roofline: ceilings highest first, memory levels nearest first."""

    ceilings: tuple[Ceiling, ...]
    diagonals: tuple[Diagonal, ...]
    main_top_flop_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Calls of one operator at the same spot.

    ``flop_per_byte`` and ``flop_per_s`` are of all calls, ``share`` is their part of the time;
    ``above``: one was measured below its minimum time.
    """

    name: str
    op: str
    type: str
    phase: Literal["forward", "backward", "optimizer"]
    count: int
    flop_per_byte: float
    flop_per_s: float
    share: float
    above: bool

    @property
    def diameter_pt(self) -> float:
        """Diameter of the marker; its area is proportional to the share of time."""
        return diameter_pt(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripPoint:
    """Calls of one operator without a place on the axes, and the reason."""

    op: str
    type: str
    count: int
    share: float | None
    why: Literal["no FLOP", "FLOP unknown"]

    @property
    def diameter_pt(self) -> float:
        """Diameter of the marker; the smallest if its time is unknown."""
        return diameter_pt(self.share or 0.0)


def diameter_pt(share: float) -> float:
    """Return the diameter of a marker with that `share` of the time, in points."""
    return max(_SMALLEST_PT, _WHOLE_PT * math.sqrt(share))
