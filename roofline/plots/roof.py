"""What a roofline picture shows, as plain data: ceilings, memory levels, operators."""

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
    """A compute ceiling: level at ``flop_per_s`` from ``start_flop_per_byte`` to the right edge.

    It starts where the fastest memory level reaches it (None: there is none, it starts at the left
    edge). ``main``: its data type is one that the model computes in. ``color`` is as ``#rrggbb``;
    ``""``: that of its kind.
    """

    label: str
    kind: CeilingKind
    flop_per_s: float
    start_flop_per_byte: float | None
    main: bool
    color: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagonal:
    """A memory level: FLOP/s = ``bytes_per_s`` x intensity, from the left or lower edge to its cut.

    ``ridge_flop_per_byte`` is where it meets the highest ceiling of the main data type,
    ``cut_flop_per_byte`` where the highest of all; None: there is no compute ceiling.
    """

    label: str
    level: str
    bytes_per_s: float
    ridge_flop_per_byte: float | None
    cut_flop_per_byte: float | None
    kind: Literal["hardware", "link", "theoretical"] = "hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLines:
    """All lines of a roof; ceilings highest first, diagonals nearest level first."""

    ceilings: tuple[Ceiling, ...]
    diagonals: tuple[Diagonal, ...]
    main_top_flop_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Calls of one operator that stand on the same spot.

    ``flop_per_byte`` and ``flop_per_s`` are those of the calls together, ``share`` their part
    of the time; ``above`` says that one of them beat its bound.
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
        """The diameter of its mark: the area follows the share of time."""
        return diameter_pt(self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripPoint:
    """Calls of one operator that have no place on the axes, and why."""

    op: str
    type: str
    count: int
    share: float | None
    why: Literal["no FLOP", "FLOP unknown"]

    @property
    def diameter_pt(self) -> float:
        """The diameter of its mark; the smallest where its time is unknown."""
        return diameter_pt(self.share or 0.0)


def diameter_pt(share: float) -> float:
    """The diameter in points of the mark of something that takes `share` of the time."""
    return max(_SMALLEST_PT, _WHOLE_PT * math.sqrt(share))
