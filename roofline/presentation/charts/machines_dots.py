"""The operators that a picture of several machines numbers: which, and where their dots stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from roofline.design.machine_comparison import GroupAcross, MachineComparison
from roofline.placement import Bound
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, spread
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.machines_roofs import spot_of
from roofline.presentation.reports.machines_tables import groups_by_likeness

BADGE_PT = 11.0
DOT_PT = 6.5
BADGES_PT = 24.0
_SEEN = 0.65
"""How much of each dot should show, as a part of its diameter."""
_FARTHEST = 2.0
"""How far apart dots in one place are moved at most, in diameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A numbered operator on the roof of a machine (its index), where that gives it a place.

    Dots that would hide each other stand a little apart.
    """

    machine: int
    bound: Bound
    x_pt: float
    y_pt: float

    @property
    def box(self) -> Box:
        """What it covers."""
        return Box.around(self.x_pt, self.y_pt, DOT_PT, DOT_PT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedOperator:
    """An operator that is numbered: its badge over the axes, and its dots, highest first.

    ``line`` runs from the badge through the places of the dots.
    """

    number: int
    badge: Label
    dots: tuple[Dot, ...]
    line: tuple[tuple[float, float], ...]


def chosen_operators(
    comparison: MachineComparison, count: int, x: LogAxis
) -> tuple[GroupAcross, ...]:
    """The operators to number, in the order of intensity: most change sides, the others do not.

    Those with the largest shares are taken, as long as their dots do not hide each other.
    """
    groups = [
        (group, _places_pt(group, x))
        for group in groups_by_likeness(comparison)
        if any(map(spot_of, group.operators[0]))
    ]
    same = sum(not group.changes_sides for group, _ in groups)
    most = {True: count - min(same, count // 4), False: count}
    chosen: list[tuple[GroupAcross, _Places]] = []
    for changing in (True, False):
        for group, places in groups:
            if len(chosen) >= most[changing]:
                break
            apart = all(_are_apart(places, others) for _, others in chosen)
            if apart and group.changes_sides is changing:
                chosen.append((group, places))
    in_order = sorted(chosen, key=lambda each: max(x for x in each[1] if x is not None))
    return tuple(group for group, _ in in_order)


_Places = list[float | None]


def _places_pt(group: GroupAcross, x: LogAxis) -> _Places:
    """Where on the axis of intensity an operator stands on each machine; None: it has no place."""
    spots = map(spot_of, group.operators[0])
    return [x.pt(spot[0]) if spot else None for spot in spots]


def _are_apart(these: _Places, others: _Places) -> bool:
    return all(
        one is None or other is None or abs(one - other) > DOT_PT + 1
        for one, other in zip(these, others, strict=True)
    )


def numbered_operators(
    chosen: Sequence[GroupAcross], x: LogAxis, y: LogAxis
) -> tuple[NumberedOperator, ...]:
    """The chosen operators with their badges over the axes, and their dots on the roofs."""
    places = [_dots(group, x, y) for group in chosen]
    wanted = [dots[0].x_pt for dots in places]
    badges = spread(wanted, gap=BADGE_PT + 3, low=x.start_pt, high=x.end_pt)
    height = y.end_pt + BADGES_PT - BADGE_PT / 2 - 2
    found: list[NumberedOperator] = []
    for number, (dots, badge) in enumerate(zip(places, badges, strict=True), start=1):
        text = str(number)
        box = Box.around(badge, height, BADGE_PT, BADGE_PT)
        line = (
            (badge, height - BADGE_PT / 2),
            (dots[0].x_pt, y.end_pt),
            *((dot.x_pt, dot.y_pt) for dot in dots),
        )
        found.append(
            NumberedOperator(
                number=number,
                badge=Label(text=text, box=box, size_pt=SMALL_PT),
                dots=_apart(dots, low_pt=y.start_pt + 1, high_pt=y.end_pt - 1),
                line=line,
            )
        )
    return tuple(found)


def _dots(group: GroupAcross, x: LogAxis, y: LogAxis) -> list[Dot]:
    dots: list[Dot] = []
    for machine, row in enumerate(group.operators[0]):
        spot = spot_of(row)
        if spot:
            at = (x.pt(spot[0]), y.pt(spot[1]))
            dots.append(Dot(machine=machine, bound=row.bound, x_pt=at[0], y_pt=at[1]))
    return sorted(dots, key=lambda dot: -dot.y_pt)


def _apart(dots: Sequence[Dot], *, low_pt: float, high_pt: float) -> tuple[Dot, ...]:
    """The dots; those that would hide each other moved up and down until both can be seen."""
    columns: list[list[Dot]] = []
    for dot in sorted(dots, key=lambda each: each.x_pt):
        if not columns or dot.x_pt - columns[-1][-1].x_pt >= DOT_PT:
            columns.append([])
        columns[-1].append(dot)
    moved: list[Dot] = []
    for column in columns:
        wanted = [dot.y_pt for dot in column]
        # Many dots in one place would be moved too far from it: they hide each other in part.
        pile = max(sum(abs(a - b) < 1 for b in wanted) for a in wanted)
        gap = min(_SEEN, _FARTHEST / pile) * DOT_PT
        places = spread(wanted, gap=gap, low=low_pt, high=high_pt)
        moved += [replace(dot, y_pt=y) for dot, y in zip(column, places, strict=True)]
    return tuple(sorted(moved, key=lambda dot: -dot.y_pt))
