"""The picture of an optimization as data: under the machine's roof an arrow for each rewrite.

Each goes from where the operators that were replaced stand, taken together, to where those stand
that replaced them. Nothing is drawn here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from roofline.analysis.roof import roof_lines
from roofline.analysis.words import machine_words, provenance_words
from roofline.foundation.text import printable
from roofline.foundation.units import format_ratio, format_shape
from roofline.plots.style import GREEN, GREY, Style
from roofline.presentation.charts.before_after import (
    AFTER,
    BEFORE,
    NOTE_PT,
    Move,
    cells_of,
    nameless_words,
    near_lines,
    note_over_foot,
    placeless_words,
    share_of,
    titled,
)
from roofline.presentation.charts.chart import Chart, Extras, composed, foot_pt
from roofline.presentation.charts.labels import Label, Segment, cut_to
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.optimization_clusters import Cluster, TimeKind, clusters_of
from roofline.presentation.charts.subjects import Subject
from roofline.substitution.result import Optimization
from roofline.substitution.verdict import (
    bounds_words,
    decisive,
    predicted_speedup,
    speedup_words,
)

LOOK = {BEFORE: Style(GREY, "o"), AFTER: Style(GREEN, "o")}
LABELS = 12

_SHORTEST_PT = 3.0

_HEIGHT: dict[TimeKind, str] = {
    "measured": "FLOP/s (FLOP / measured time)",
    "predicted": "FLOP/s (FLOP / predicted time)",
    "bound": "FLOP/s (FLOP / time by {bounds})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From before to after, in points, from rim to rim; ``count`` clusters stand there."""

    segment: Segment
    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizationChart:
    """The roofline picture with a point before and one after for each cluster.

    ``arrows`` join them; clusters that hardly move have none. ``note`` says what has no name or no
    place in the picture; None: nothing.
    """

    base: Chart
    arrows: tuple[Arrow, ...]
    note: Label | None


def optimization_chart_of(
    optimization: Optimization,
    *,
    labels: int = LABELS,
    width_pt: float = 720.0,
    height_pt: float = 468.0,
) -> OptimizationChart:
    """The picture of an optimization.

    Args:
        optimization: what to draw.
        labels: how many clusters to name, those that save most first, where there is room.
        width_pt: the picture's width in points.
        height_pt: its height in points.
    """
    clusters, kind = clusters_of(optimization)
    moves = _moves([each for each in clusters if each.has_place], optimization)
    subject = Subject(
        names=_names(optimization),
        tail=_tail(optimization),
        machine=machine_words(optimization.before, _points_words(optimization, kind) * bool(moves)),
        provenance=provenance_words(optimization.before.hardware),
        height=_HEIGHT[kind].format(bounds=bounds_words(optimization)),
        lines=near_lines(roof_lines(optimization.before, "in use"), moves),
        points=(*(each.end for each in moves), *(each.start for each in moves)),
        look=LOOK,
    )
    extras = Extras(
        below_pt=NOTE_PT,
        spots=tuple(spot for each in moves for spot in (each.before, each.after)),
        lines=tuple((each.before, each.after) for each in moves),
    )
    base = composed(
        subject,
        extras,
        labels=min(labels, len(moves)),
        width_pt=width_pt,
        height_pt=height_pt,
    )
    base = titled(
        base,
        "arithmetic intensity (FLOP per byte of traffic, of all operators of a rewrite)",
        short="FLOP per byte of traffic",
    )
    arrows = [arrow for each in moves if (arrow := _arrow(each, base))]
    return OptimizationChart(
        base=base,
        arrows=tuple(arrows),
        note=_note(optimization, clusters, moves, base, foot_pt(subject)),
    )


def _moves(clusters: list[Cluster], optimization: Optimization) -> list[Move]:
    """Those that save most first; of those alike on one spot the first stands for all."""
    before_s, after_s = _whole_s(optimization)
    by_spot: dict[tuple[object, ...], list[Cluster]] = {}
    for each in clusters:
        key = (each.rules, *cells_of(each.before.spot, each.after.spot))
        by_spot.setdefault(key, []).append(each)
    moves = [
        Move(
            name=_name(alike),
            before=alike[0].before.spot,
            after=alike[0].after.spot,
            share_before=share_of(alike[0].before.time_s, before_s),
            share_after=share_of(alike[0].after.time_s, after_s),
            count=len(alike),
            saved_s=sum((each.before.time_s or 0) - (each.after.time_s or 0) for each in alike),
        )
        for alike in by_spot.values()
    ]
    return sorted(moves, key=lambda each: -each.saved_s)


def _whole_s(optimization: Optimization) -> tuple[float, float]:
    """What the sizes of points are shares of."""
    return optimization.figures_before.cost_s, optimization.figures_after.cost_s


def _name(alike: list[Cluster]) -> str:
    words = cut_to(alike[0].where, 150.0, SMALL_PT)
    return f"{words} +{len(alike) - 1}" if len(alike) > 1 else words


def _names(optimization: Optimization) -> str:
    inputs = [f"{format_shape(each.shape)} {each.dtype}" for each in optimization.before.inputs]
    return f"Rewrites of {' · '.join([printable(optimization.model), ', '.join(inputs)])}"


def _tail(optimization: Optimization) -> str:
    """How much faster; a prediction is called one."""
    rounds, ratio = decisive(optimization), predicted_speedup(optimization)
    if optimization.is_kept:
        return " · the original is kept"
    if optimization.decision == "measured faster" and rounds is not None:
        return f" · {speedup_words(rounds)[0]} × faster, measured"
    return f" · {format_ratio(ratio)} × faster, predicted" if ratio else ""


def _points_words(optimization: Optimization, kind: TimeKind) -> str:
    of = {
        "measured": "measured times of operators",
        "predicted": "predicted times",
        "bound": bounds_words(optimization),
    }[kind]
    fused = ", in fused kernels" * optimization.is_fused
    return f"points: operators of a rewrite taken together, by {of}{fused}"


def _arrow(move: Move, base: Chart) -> Arrow | None:
    """From the rim of the point before to that of the point after."""
    start = (base.x.pt(move.before[0]), base.y.pt(move.before[1]))
    end = (base.x.pt(move.after[0]), base.y.pt(move.after[1]))
    length = math.hypot(end[0] - start[0], end[1] - start[1])
    rims = (move.start.diameter_pt / 2, move.end.diameter_pt / 2)
    if length - sum(rims) < _SHORTEST_PT:
        return None
    right, up = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    return Arrow(
        segment=Segment(
            start[0] + rims[0] * right,
            start[1] + rims[0] * up,
            end[0] - rims[1] * right,
            end[1] - rims[1] * up,
        ),
        name=move.name,
        count=move.count,
    )


def _note(
    optimization: Optimization,
    clusters: tuple[Cluster, ...],
    moves: list[Move],
    base: Chart,
    foot: float,
) -> Label | None:
    """What the picture leaves out, in a line over the foot."""
    placeless = sum(not each.has_place for each in clusters)
    parts: list[str] = []
    if optimization.is_kept and moves:
        parts.append("after: the candidate that was given up")
    if not optimization.substitutions:
        parts.append("no rewrite was made: there is nothing to draw but the roof")
    parts += nameless_words(base, len(moves))
    parts += placeless_words(placeless, "no FLOP, or no time, on one side")
    if not parts:
        return None
    return note_over_foot("Rewrites: " + "; ".join(parts), base, foot)
