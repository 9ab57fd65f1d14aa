"""Roofline plot: ceilings, memory levels, ridge points and operators on log axes."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import contextlib
import functools
import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import textalloc
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import IdentityTransform

from roofline.core.units import format_bytes_per_s, format_intensity, format_percent
from roofline.plots.figures import any_script, prepare_axes, words, write
from roofline.plots.roof import Ceiling, Diagonal, Point, RoofLines, Spot, StripPoint, diameter_pt
from roofline.plots.style import (
    ALARM,
    GREY_TEXT,
    INK,
    LIBRARY,
    SMALL_PT,
    THEORETICAL,
    VERMILION,
    Style,
)

_LINES: dict[str, dict[str, Any]] = {
    "main": {"color": INK, "linewidth": 1.1},
    "other": {"color": "#a8a8a8", "linewidth": 0.7},
    "library": {"color": LIBRARY, "linewidth": 1.0, "linestyle": (0, (5, 2.5))},
    "other library": {"color": "#c9b8dd", "linewidth": 0.7, "linestyle": (0, (5, 2.5))},
    "theoretical": {"color": THEORETICAL, "linewidth": 1.4, "linestyle": (0, (3, 1.6))},
    "link": {"color": VERMILION, "linewidth": 2.0},
}
_LEGEND = {
    "main": "hardware ceiling",
    "other": "ceiling of a data type not in use",
    "library": "library ceiling",
    "theoretical": "theoretical peak",
}
_AREA = {"D": 0.55, "d": 0.8, "*": 1.5, "P": 0.95, "X": 0.95, "^": 1.1, "v": 1.1, "s": 0.8}
"""Area factors that make markers of equal size look equal."""

_GAP = 0.036  # Between labels of ceilings, as a part of the height of the axes
_STRIP = 0.038
"""Row height of the strip of operators without FLOP, as a fraction of the axes."""

_STRIP_ROWS = 11


def draw_roofline(
    axes: Axes,
    lines: RoofLines,
    points: Sequence[Point] = (),
    *,
    aside: Sequence[StripPoint] = (),
    look: Mapping[str, Style] | None = None,
    labels: int = 12,
    rate: str = "FLOP/s",
    spots: Iterable[Spot] = (),
    sizes: Collection[float] = (0.01, 0.05, 0.2),
) -> list[Artist]:
    """Draw a roofline into empty axes; return handles for a legend.

    `points` come longest time first, `aside` are operators without FLOP, `spots` other places that
    the axes must show, `sizes` the shares of time whose marks the legend shows.
    """
    style = look or {}
    _set_limits(axes, lines, points, tuple(spots))
    prepare_axes(axes, x="arithmetic intensity (FLOP/B)", y=rate)
    strip = _strip_rows(aside)
    _draw_ceilings(axes, lines.ceilings, low=_STRIP * (len(strip) + 1.5) if strip else 0.0)
    _draw_diagonals(axes, lines)
    scatter(
        axes,
        [(each.flop_per_byte, each.flop_per_s) for each in points],
        [style[each.type] for each in points],
        [each.diameter_pt for each in points],
        phases=[each.phase for each in points],
        alarms=[each.above for each in points],
    )
    if strip:
        _draw_strip(axes, strip, style)
    _label_diagonals(axes, lines.diagonals, points)
    name_points(axes, points, labels, lines)
    return legend_handles(lines, points, aside, style, sizes=sizes)


def _set_limits(
    axes: Axes, lines: RoofLines, points: Sequence[Point], spots: Sequence[Spot]
) -> None:
    """Return limits that include every point, ceiling, spot and ridge point."""
    cuts = [each.cut_flop_per_byte for each in lines.diagonals if each.cut_flop_per_byte]
    ridges = [each.ridge_flop_per_byte for each in lines.diagonals if each.ridge_flop_per_byte]
    intensities = [point.flop_per_byte for point in points]
    low = min([*intensities, *(ridge / 8 for ridge in ridges)], default=0.01) / 1.6
    wanted = (*(2 * x for x in intensities), *(3 * x for x in cuts), *(3 * x for x, _ in spots))
    high = max(wanted, default=1000.0)
    rates = [*(point.flop_per_s for point in points), *(rate for _, rate in spots)]
    heights = [each.flop_per_s for each in lines.ceilings]
    # Points say how far down to go; without them, the start of the slowest memory's roof does.
    slowest = [] if points else [low * each.bytes_per_s for each in lines.diagonals[-1:]]
    bottom = min([*rates, *heights, *slowest], default=1e9) / 1.8
    top = 2.0 * max([*rates, *heights], default=0.0)
    if not top:
        top = 2.0 * max((high * each.bytes_per_s for each in lines.diagonals), default=1e12)
    log_axes(axes, (low, max(high, 10 * low)), (bottom, max(top, 10 * bottom)))


def log_axes(axes: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Make both axes logarithmic, from the first to the second value of `x` and `y`."""
    axes.set(xscale="log", yscale="log", xlim=x, ylim=y, autoscale_on=False)
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    for axis, (low, high), form in ((axes.xaxis, x, plain), (axes.yaxis, y, EngFormatter(sep=" "))):
        subs = (1.0, 2.0, 5.0) if math.log10(high / low) < 2.5 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axis.set_major_formatter(form)
        axis.set_minor_locator(LogLocator(subs="auto", numticks=40))
        axis.set_minor_formatter(NullFormatter())


def _kind(line: Ceiling | Diagonal) -> str:
    if line.kind == "hardware":
        return "main" if isinstance(line, Diagonal) or line.main else "other"
    if isinstance(line, Ceiling) and line.kind == "library" and not line.main:
        return "other library"
    return line.kind


def _draw_ceilings(axes: Axes, ceilings: Sequence[Ceiling], *, low: float) -> None:
    """Draw ceilings, and their labels right of the axes, moved apart where they would meet."""
    left, right = axes.get_xlim()
    highest = max((each.flop_per_s for each in ceilings if _kind(each) == "main"), default=0)
    names: list[tuple[float, str, str]] = []
    for ceiling in ceilings:
        kind = _kind(ceiling)
        style = {**_LINES[kind], **({"color": ceiling.color} if ceiling.color else {})}
        if kind == "main" and ceiling.flop_per_s == highest:
            style["linewidth"] = 1.9
        start = ceiling.start_flop_per_byte or left
        height = ceiling.flop_per_s
        axes.plot((start, right), (height, height), zorder=2 - 0.2 * (kind == "other"), **style)
        muted = kind.startswith("other")
        names.append((height, ceiling.label, GREY_TEXT if muted else style["color"]))
    name_ends(axes, names, low=low)


def name_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], *, low: float = 0.0) -> None:
    """Write names of lines right of the axes, apart, from height `low` on, each with a leader."""
    places = spread([_height(axes, height) for height, _, _ in ends], gap=_GAP, low=low)
    for (height, name, color), place in zip(ends, places, strict=True):
        axes.annotate(
            name,
            (1.0, height),
            (1.025, place),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.transAxes,
            fontsize=SMALL_PT,
            color=color,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0.0, 0.5),
            },
            **words(),
        )


def _height(axes: Axes, value: float) -> float:
    """Return the height of a value, as a fraction of the axes."""
    low, high = axes.get_ylim()
    return math.log(value / low) / math.log(high / low)


def _draw_diagonals(axes: Axes, lines: RoofLines) -> None:
    """Draw memory levels, and mark where they meet the highest ceiling of the main data type."""
    (left, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    for each in lines.diagonals:
        cut = min(each.cut_flop_per_byte or right, right)
        ridge = min(each.ridge_flop_per_byte or cut, cut)
        rate, look = each.bytes_per_s, _LINES[_kind(each)]
        style = {**look, "linewidth": max(1.3, look["linewidth"])}
        axes.plot((left, ridge), (left * rate, ridge * rate), zorder=2, **style)
        axes.plot((ridge, cut), (ridge * rate, cut * rate), zorder=2, **_LINES["other"])
    top = lines.main_top_flop_per_s
    # Levels of one bandwidth have one ridge point.
    ridges = {each.ridge_flop_per_byte for each in lines.diagonals if each.ridge_flop_per_byte}
    if top is None or not ridges:
        return
    wide = [math.log(each / left) / math.log(right / left) for each in sorted(ridges)]
    for ridge, place in zip(sorted(ridges), spread(wide, gap=0.055), strict=True):
        axes.plot((ridge, ridge), (bottom, top), color="#b5b5b5", linewidth=0.7, ls=(0, (1, 2.5)))
        axes.plot(ridge, top, marker="D", markersize=5, zorder=4, mfc="white", mec=INK)
        spot = (place, _height(axes, top))
        write(axes, format_intensity(ridge), spot, (-8, 6), xycoords=axes.transAxes, zorder=6)


_ALONG = 0.2
"""Estimated length of a memory label, as a fraction of the axes."""


def _label_diagonals(axes: Axes, diagonals: Sequence[Diagonal], points: Sequence[Point]) -> None:
    """Write along each memory level, near its lower left end, where it hides the fewest points."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    # In decades a memory level is a line of 45 degrees, whatever its bandwidth.
    decades = axes.transLimits + axes.transAxes
    width = math.log10(right / left)
    spots = [(math.log10(each.flop_per_byte), math.log10(each.flop_per_s)) for each in points]
    diagonals = _one_per_line(diagonals)
    for number, each in enumerate(diagonals):
        start = max(left, bottom / each.bytes_per_s)
        end = min(each.cut_flop_per_byte or right, top / each.bytes_per_s)
        if end <= start:
            continue
        rate = math.log10(each.bytes_per_s)
        on_it = [x for x, y in spots if abs(y - x - rate) < 0.25]
        # Neighbors are staggered, for parallel lines may be close.
        first = math.log10(start) + (0.03 + 0.1 * (number % 2)) * width
        above = (math.log10(other.bytes_per_s) - rate for other in diagonals[:number])
        is_close = any(abs(apart) < 0.12 for apart in above)
        last = max(first, math.log10(end) - _ALONG * width)
        places = [first + (last - first) * step / 8 for step in range(9)]
        x = min(
            places, key=lambda place: sum(place - 0.1 < p < place + _ALONG * width for p in on_it)
        )
        axes.text(
            x,
            x + rate,
            each.label,
            transform=decades,
            rotation=45,
            transform_rotates_text=True,
            rotation_mode="anchor",
            va="top" if is_close else "bottom",
            fontsize=SMALL_PT,
            color=_LINES[_kind(each)]["color"],
            zorder=6,
            clip_on=True,
            in_layout=False,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.2},
            **words(),
        )


def _one_per_line(diagonals: Sequence[Diagonal]) -> list[Diagonal]:
    """Return a level for each line; its label names all levels with this bandwidth."""
    lines: dict[tuple[str, float], list[Diagonal]] = {}
    for each in diagonals:
        lines.setdefault((each.kind, each.bytes_per_s), []).append(each)
    result: list[Diagonal] = []
    for first, *others in lines.values():
        rate = f" {format_bytes_per_s(first.bytes_per_s)}"
        names = (each.label.removesuffix(rate) for each in (first, *others))
        result.append(replace(first, label=", ".join(names) + rate) if others else first)
    return result


def scatter(
    axes: Axes,
    spots: Sequence[Spot],
    styles: Sequence[Style],
    diameters_pt: Sequence[float],
    *,
    phases: Sequence[str] = (),
    alarms: Sequence[bool] = (),
    hollow: Sequence[bool] = (),
) -> PathCollection | None:
    """Draw marks of any looks as one collection, the first at the bottom.

    Marks of the backward pass are rings, those of the optimizer have a dark rim, alarms a red one;
    those that are `hollow` are outlines only.
    """
    if not spots:
        return None
    count = len(spots)
    looks = [
        _look(*each)
        for each in zip(
            styles,
            phases or ("forward",) * count,
            alarms or (False,) * count,
            hollow or (False,) * count,
            strict=True,
        )
    ]
    faces, edges, widths = zip(*looks, strict=True)
    collection = PathCollection(
        [_outline(style.marker) for style in styles],
        sizes=[
            diameter**2 * _AREA.get(style.marker, 1.0)
            for diameter, style in zip(diameters_pt, styles, strict=True)
        ],
        # As lists: two words in a tuple would be one color and its opacity.
        facecolors=list(faces),
        edgecolors=list(edges),
        linewidths=list(widths),
        offsets=list(spots),
        offset_transform=axes.transData,
        alpha=0.85,
        zorder=4,
    )
    # Sizes are in points whatever the axes' values.
    collection.set_transform(IdentityTransform())
    axes.add_collection(collection, autolim=False)
    return collection


def _look(style: Style, phase: str, alarm: bool, hollow: bool) -> tuple[str, str, float]:
    """Return the colors of face and edge, and the width of the edge."""
    color = style.colour
    if style.marker == "x" or style.hollow or hollow:
        return "none", color, 1.6
    face = "white" if phase == "backward" else color
    if alarm:
        return face, ALARM, 1.6
    edges = {"forward": ("white", 0.6), "backward": (color, 1.5), "optimizer": (INK, 1.0)}
    return face, *edges[phase]


@functools.cache
def _outline(marker: str) -> Path:
    style = MarkerStyle(marker)
    return style.get_path().transformed(style.get_transform())


def _strip_rows(points: Sequence[StripPoint]) -> list[StripPoint | str]:
    """Return operators without FLOP below their headings; the last row counts what is left out."""
    rows: list[StripPoint | str] = []
    for number, point in enumerate(points):
        if not number or point.why != points[number - 1].why:
            rows.append("no FLOP (bytes only)" if point.why == "no FLOP" else "FLOP unknown")
        rows.append(point)
    if len(rows) > _STRIP_ROWS:
        left = sum(not isinstance(each, str) for each in rows[_STRIP_ROWS - 1 :])
        rows = [*rows[: _STRIP_ROWS - 1], f"and {left} more"]
    return rows


def _draw_strip(axes: Axes, rows: Sequence[StripPoint | str], look: Mapping[str, Style]) -> None:
    """List operators without FLOP next to the axes, below the labels of ceilings."""
    strip = axes.inset_axes((1.025, 0.0, 0.27, _STRIP * (len(rows) + 0.5)), facecolor="#f6f6f6")
    strip.set(xticks=(), yticks=(), xlim=(0, 1), ylim=(0.25 - len(rows), 0.75))
    for spine in strip.spines.values():
        spine.set(color="#dcdcdc", linewidth=0.6)
    marks = [(number, row) for number, row in enumerate(rows) if not isinstance(row, str)]
    for number, row in enumerate(rows):
        if isinstance(row, str):
            text, x = row, 0.03
        else:
            share = f" · {format_percent(row.share)}" if row.share is not None else ""
            text, x = f"{row.op}{f' ×{row.count}' if row.count > 1 else ''}{share}", 0.13
        strip.text(
            x,
            -number,
            text,
            fontsize=SMALL_PT - 0.5,
            color=GREY_TEXT if isinstance(row, str) else INK,
            va="center_baseline",
            **words(),
        )
    scatter(
        strip,
        [(0.07, -number) for number, _ in marks],
        [look[row.type] for _, row in marks],
        [min(row.diameter_pt, 12.0) for _, row in marks],
        hollow=[row.why == "FLOP unknown" for _, row in marks],
    )


def name_points(
    axes: Axes,
    points: Sequence[Point],
    labels: int,
    lines: RoofLines,
    *,
    paths: Iterable[tuple[Spot, Spot]] = (),
    texts: Sequence[tuple[float, float, str]] = (),
) -> int:
    """Label the first points that have room; return their number.

    `paths` are ends of other lines that labels avoid, `texts` are placed before points.
    """
    named = points[: max(0, labels)]
    if not named and not texts:
        return 0
    left, right = axes.get_xlim()
    ends = [((x0, x1), (y0, y1)) for (x0, y0), (x1, y1) in paths]
    for ceiling in lines.ceilings:
        start = ceiling.start_flop_per_byte or left
        ends += [((start, right), (ceiling.flop_per_s, ceiling.flop_per_s))]
    for each in lines.diagonals:
        end = min(each.cut_flop_per_byte or right, right)
        ends += [((left, end), (left * each.bytes_per_s, end * each.bytes_per_s))]
    # The labels of ridge points stand above them.
    top = (lines.main_top_flop_per_s or 0.0) * 1.1
    ridges = [each.ridge_flop_per_byte for each in lines.diagonals if each.ridge_flop_per_byte]
    return place_texts(
        axes,
        [*texts, *((each.flop_per_byte, each.flop_per_s, each.name) for each in named)],
        avoid=[
            *((x, y) for x, y, _ in texts),
            *((each.flop_per_byte, each.flop_per_s) for each in points),
            *((each, top) for each in ridges if top),
        ],
        diameters_pt=[
            *(2.0 for _ in texts),
            *(each.diameter_pt for each in points),
            *(26.0 for _ in ridges if top),
        ],
        lines=ends,
    )


def place_texts(
    axes: Axes,
    texts: Sequence[tuple[float, float, str]],
    *,
    avoid: Sequence[Spot] = (),
    diameters_pt: Sequence[float] = (),
    lines: Sequence[tuple[tuple[float, float], tuple[float, float]]] = (),
) -> int:
    """Write texts near their places, clear of marks, lines and each other; return their number."""
    figure = axes.get_figure(root=True)
    pixels = figure.dpi / 72 if figure else 1.0
    radii = [each / 2 * pixels for each in diameters_pt]
    obstacles: dict[str, Any] = {
        "x_scatter": [x for x, _ in avoid],
        "y_scatter": [y for _, y in avoid],
        "scatter_sizes": radii,
        "text_scatter_sizes": radii[: len(texts)],
        "x_lines": [x for x, _ in lines],
        "y_lines": [y for _, y in lines],
    }
    # It prints where there is no room.
    with contextlib.redirect_stdout(io.StringIO()), any_script():
        _, _, placed, leaders = textalloc.allocate(
            axes,
            [x for x, _, _ in texts],
            [y for _, y, _ in texts],
            [text for _, _, text in texts],
            **{name: each for name, each in obstacles.items() if each},
            textsize=SMALL_PT,
            margin=0.009,
            min_distance=0.012,
            max_distance=0.16,
            draw_all=False,
            linecolor=INK,
            linewidth=0.5,
            textcolor=INK,
            avoid_label_lines_overlap=True,
            avoid_crossing_label_lines=True,
            zorder=6,
            **words(),
        )
    for each in (*placed, *leaders):
        if isinstance(each, Artist):
            each.set_in_layout(False)
    return sum(each is not None for each in placed)


def spread(
    wanted: Sequence[float], *, gap: float, low: float = 0.0, high: float = 1.0
) -> tuple[float, ...]:
    """Return positions near `wanted`, in its order, at least `gap` apart where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    if len(order) > 1:
        gap = min(gap, (high - low) / (len(order) - 1))

    def start(block: tuple[int, float]) -> float:
        count, total = block
        return max(low, min(total / count, high - (count - 1) * gap))

    # Blocks of neighbors that touch: their number, and the sum of where their first would begin.
    blocks: list[tuple[int, float]] = []
    for i in order:
        blocks.append((1, wanted[i]))
        while len(blocks) > 1 and start(blocks[-2]) + blocks[-2][0] * gap > start(blocks[-1]):
            count, total = blocks.pop()
            before, sum_before = blocks.pop()
            blocks.append((before + count, sum_before + total - count * before * gap))
    positions = [start(block) + k * gap for block in blocks for k in range(block[0])]
    result = dict(zip(order, positions, strict=True))
    return tuple(result[i] for i in range(len(wanted)))


def legend_handles(
    lines: RoofLines,
    points: Sequence[Point],
    aside: Sequence[StripPoint],
    look: Mapping[str, Style],
    *,
    sizes: Collection[float],
) -> list[Artist]:
    """Return handles of a legend: types of operators, phases, kinds of lines, sizes of marks."""
    shown = {each.type for each in (*points, *aside)}
    handles: list[Artist] = [
        _mark(kind, style.colour, style.marker, hollow=style.hollow)
        for kind, style in look.items()
        if kind in shown
    ]
    phases = {each.phase for each in points}
    if len(phases) > 1:
        faces = {"forward": "#b0b0b0", "backward": "white", "optimizer": "#b0b0b0"}
        edges = {"forward": "white", "backward": "#b0b0b0", "optimizer": INK}
        handles += [
            _mark(each, faces[each], "o", edge=edges[each]) for each in faces if each in phases
        ]
    kinds = {_kind(each) for each in lines.ceilings}
    handles += [
        Line2D([], [], label=text, **_LINES[kind])
        for kind, text in _LEGEND.items()
        if kind in kinds
    ]
    if points:
        handles += [
            _mark(f"{100 * each:.0f} % of the time", "#b0b0b0", "o", diameter_pt(each))
            for each in sizes
        ]
    return handles


def _mark(
    text: str,
    color: str,
    marker: str,
    size: float = 7.0,
    *,
    edge: str = "white",
    hollow: bool = False,
) -> Line2D:
    return Line2D(
        [],
        [],
        label=text,
        color=color,
        marker=marker,
        linestyle="none",
        markersize=size,
        markerfacecolor="none" if hollow else color,
        markeredgecolor=color if marker == "x" or hollow else edge,
    )
