"""Plots of sweeps: heat maps of the fastest design, lines over one axis, machine balance."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from roofline.core.text import counted
from roofline.core.units import format_intensity, format_s
from roofline.design.comparison.axes import Axis, point_text, text_of
from roofline.design.comparison.balance import BalancePoint, balance_points
from roofline.design.comparison.cells import Cell, factor_text
from roofline.design.comparison.sweeps import map_axes, places_of_map
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roofline import log_axes, name_ends, spread
from roofline.plots.style import INK, SMALL_PT, RoofStyle, roof_styles

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

MOST_FACETS = 12
MOST_CELLS = 100  # Per side of a map
_UNKNOWN = "#e4e4e4"
_WEAKEST = 0.10  # Color strength at a speedup of 1
_WIDEST_WITH_WORDS = 24  # Maximum cells per row of maps with factors as text
_LEAD = "#c8c8c8"


def draw_sweep(figure: Figure, result: Comparison) -> None:
    """Draw heat maps of the fastest design over two axes, or times as lines over one."""
    if can_be_lines(result):
        _draw_lines(figure, result)
    else:
        _draw_maps(figure, result)


def can_be_lines(result: Comparison) -> bool:
    """Return True for a sweep over one axis of numbers above 0 with known times."""
    axis, *others = result.varied
    return (
        not others
        and axis.is_numeric
        and len(axis.values) > 1
        and all(isinstance(each, (int, float)) and each > 0 for each in axis.values)
        and any(_time(cell) for cells in result.cells for cell in cells)
    )


def _draw_maps(figure: Figure, result: Comparison) -> None:
    across, up, facets = map_axes(result)
    shown = min(facets.count, MOST_FACETS)
    nx, ny = (min(len(each.values) if each else 1, MOST_CELLS) for each in (across, up))
    columns = max(1, min(shown, 4, 28 // max(nx, 7)))
    rows = -(-shown // columns)
    figure.set_figheight(min(14.0, 2.2 + rows * (0.9 + min(4.2, max(0.7, 0.42 * ny)))))
    for number, axes in enumerate(figure.subplots(rows, columns, squeeze=False).flat):
        if number >= shown:
            axes.set_axis_off()
            continue
        indexes = places_of_map(result, number, range(nx), range(ny))
        _draw_map(axes, result, indexes, has_words=nx * columns <= _WIDEST_WITH_WORDS)
        prepare_axes(axes, x=across.name, y=up.name if up else "", grid=False)
        axes.set_xticks(*_ticks(across, nx))
        axes.set_yticks(*(_ticks(up, ny) if up else ([], [])))
        axes.set_xticks(np.arange(nx + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(ny + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        if facets.axes:
            title = point_text(facets.point(number))
            title = title if len(title) < 40 else f"{title[:39]}…"
            axes.set_title(title, fontsize=9, color=INK, **words())
    # Several maps have their own titles.
    title_figure(figure, _title(result), "" if facets.axes else _subtitle(result))
    notes = [*([_subtitle(result)] if facets.axes else []), *_map_notes(result)]
    foot_figure(figure, _key(result), notes, columns=3)


def _draw_map(
    axes: Axes, result: Comparison, indexes: Sequence[Sequence[int]], *, has_words: bool
) -> None:
    """Draw each point in the color of the fastest design, hatched if not significant."""
    scale, styles = _scale(result), roof_styles(len(result.designs))
    image = np.empty((len(indexes), len(indexes[0]), 3))
    for j, row in enumerate(indexes):
        for i, index in enumerate(row):
            verdict, cells = result.verdicts[index], result.cells[index]
            able = [name for name, each in zip(result.names, cells, strict=True) if each.can_run]
            if verdict.winner is None or verdict.factor is None:
                color, text = _UNKNOWN, f"only {able[0]}" if len(able) == 1 else ""
            else:
                color = shade(styles[verdict.winner].colour, verdict.factor, scale)
                text = factor_text(verdict.factor)
            image[j, i] = to_rgb(color)
            has_no_room = any(each.fits is False for each in cells)
            if verdict.is_close or has_no_room:
                hatch = "///" * verdict.is_close + "xx" * has_no_room
                axes.add_patch(
                    Rectangle(
                        (i - 0.5, j - 0.5), 1, 1, hatch=hatch,
                        facecolor="none", edgecolor="#6e6e6e", linewidth=0, alpha=0.7,
                    )
                )  # fmt: skip
            if text and has_words:
                is_light = image[j, i] @ (0.299, 0.587, 0.114) > 0.5
                axes.text(
                    i, j, text,
                    ha="center", va="center", fontsize=7.6, color=INK if is_light else "white",
                    clip_on=True,
                    bbox={"facecolor": color, "edgecolor": "none", "pad": 0.8},
                    **words(),
                )  # fmt: skip
    axes.imshow(image, origin="lower", aspect="auto", interpolation="nearest")


def _ticks(axis: Axis, count: int) -> tuple[list[int], list[str]]:
    apart = -(-count // 16)
    balance_points = list(range(0, count, apart))
    texts = [text_of(axis.values[place]) for place in balance_points]
    return balance_points, [each if len(each) < 14 else f"{each[:13]}…" for each in texts]


def shade(color: str, factor: float, scale: float) -> str:
    """Return a color mixed with white by the speedup: ``"#rrggbb"``."""
    part = _WEAKEST + (1 - _WEAKEST) * min(1.0, math.log(factor) / math.log(scale))
    channels = (round(255 * each) for each in to_rgb(color))
    return "#" + "".join(f"{round(255 + part * (each - 255)):02x}" for each in channels)


def _scale(result: Comparison) -> float:
    return max([2.0, *(each.factor for each in result.verdicts if each.factor)])


def _key(result: Comparison) -> list[Patch]:
    scale = _scale(result)
    found: list[Patch] = []
    for design, style in enumerate(roof_styles(len(result.designs))):
        than = f" than {result.names[result.reference]}"
        if len(result.designs) == 2 or design == result.reference:
            than = "" if len(result.designs) == 2 else " than the next"
        name = f"{result.names[design]} is faster{than}, by"
        for factor in (1.0, scale**0.5, scale):
            label = f"{name if factor == 1.0 else ''} {factor_text(factor)}".strip()
            found.append(Patch(facecolor=shade(style.colour, factor, scale), label=label))
    order = [design * 3 + place for place in range(3) for design in range(len(result.designs))]
    return [found[each] for each in order]


def _map_notes(result: Comparison) -> list[str]:
    verdicts = result.verdicts
    across, up, facets = map_axes(result)
    found = _texts_of(result)
    if any(each.is_close for each in verdicts):
        found.append("hatched: not significant (the interval of the ratio includes 1)")
    if any(each.winner is None for each in verdicts):
        found.append("gray: no comparison")
    if any(each.fits is False for cells in result.cells for each in cells):
        found.append("crossed: a design does not fit into memory, and is excluded")
    if (count := facets.count) > MOST_FACETS:
        found.append(f"{count - MOST_FACETS} of {count} maps not drawn: see the tables")
    found += [
        f"{axis.name}: the first {MOST_CELLS} of {len(axis.values)} values"
        for axis in (across, up)
        if axis and len(axis.values) > MOST_CELLS
    ]
    return found


def _draw_lines(figure: Figure, result: Comparison) -> None:
    axis = result.varied[0]
    values = [float(each) for each in axis.values if not isinstance(each, str)]
    axes = figure.subplots()
    cells = [cell for each in result.cells for cell in each]
    seconds = [
        time
        for each in cells
        for time in (_time(each), each.eager_min_time_s, *(each.interval_s or ()))
        if time
    ]
    _value_axes(axes, values, (min(seconds) / 1.25, max(seconds) * 1.25))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_s(value, 1)))
    is_predicted = any(each.predicted_s for each in cells)
    prepare_axes(axes, x=axis.name, y="predicted time" if is_predicted else "minimum time")
    ends: list[tuple[float, str, str]] = []
    columns = zip(*result.cells, strict=True)
    styles = roof_styles(len(result.designs))
    for name, style, of in zip(result.names, styles, columns, strict=True):
        named = list(zip(values, of, strict=True))
        spans = [(x, *each.interval_s) for x, each in named if each.interval_s]
        x, low, high = _columns(spans, 3)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.16, linewidth=0, zorder=1)
        bounds = [
            (x, each.eager_min_time_s)
            for x, each in named
            if each.eager_min_time_s and each.predicted_s
        ]
        look: dict[str, Any] = {"color": style.colour, "zorder": 3}
        axes.plot(*_columns(bounds), linewidth=1.0, linestyle=(0, (1, 2)), **look)
        points = [(x, time) for x, each in named if (time := _time(each))]
        _draw_line(axes, points, style)
        unfit = [(x, time) for x, each in named if each.fits is False and (time := _time(each))]
        axes.plot(*_columns(unfit), linestyle="none", marker="x", markersize=9, mew=1.6, **look)
        if points:
            ends.append((points[-1][1], name, style.colour))
    name_ends(axes, ends)
    title_figure(figure, _title(result), _subtitle(result))
    notes = _texts_of(result)
    if is_predicted:
        notes.append("bands: 80 % prediction intervals; dotted: minimum times")
    if any(each.fits is False for each in cells):
        notes.append("crosses: does not fit into memory")
    if any(each.problem for each in cells):
        notes.append("gaps: the design cannot be built, see the tables")
    foot_figure(figure, [], notes)


def _columns(points: Sequence[tuple[float, ...]], count: int = 2) -> list[list[float]]:
    return [[each[i] for each in points] for i in range(count)]


def _draw_line(axes: Axes, points: Sequence[tuple[float, float]], style: RoofStyle) -> None:
    strokes = (0, style.strokes) if style.strokes else "solid"
    axes.plot(
        *_columns(points),
        color=style.colour, lw=1.6, ls=strokes, marker="o", markersize=3.5, zorder=3,
    )  # fmt: skip


def _value_axes(axes: Axes, values: Sequence[float], y: tuple[float, float]) -> None:
    """Set logarithmic axes with ticks at the swept values."""
    margin = (max(values) / min(values)) ** 0.03
    log_axes(axes, (min(values) / margin, max(values) * margin), y)
    shown = values[:: -(-len(values) // 16)]
    axes.set_xticks(shown, [text_of(each) for each in shown])
    axes.set_xticks([], minor=True)


def _time(cell: Cell) -> float | None:
    return cell.predicted_s or cell.eager_min_time_s


def _title(result: Comparison) -> str:
    machines = ", ".join(each.name for each in result.hardware)
    has_threads = result.threads is not None and all(each.has_threads for each in result.hardware)
    threads = f" with {counted(result.threads or 1, 'thread')}" if has_threads else ""
    return f"{' vs '.join(result.names)} on {machines}{threads}: fastest design"


def _subtitle(result: Comparison) -> str:
    """Return the source of times and the fixed settings."""
    bases = {each.basis for each in result.verdicts}
    parts: list[str] = []
    if "predicted" in bases:
        parts.append(f"predicted from {result.calibration}" if result.calibration else "predicted")
    if "bound" in bases:
        parts.append("minimum times" + " at some points" * ("predicted" in bases))
    if result.run:
        parts.append(result.run)
    single = {each.name: each.values[0] for each in result.grid.axes if len(each.values) == 1}
    if single:
        parts.append(point_text(single))
    return " · ".join(parts)


def _texts_of(result: Comparison) -> list[str]:
    pairs = zip(result.names, result.designs, strict=True)
    return [f"{name}: {text}" for name, text in pairs if name != text]


def draw_balance(figure: Figure, result: Comparison) -> None:
    """Draw minimum times over that of the reference by machine balance."""
    assert result.balance is not None
    axes, every = figure.subplots(), balance_points(result)
    lines = [each for each in every if not each.machine]
    balances = [each.balance for each in lines]
    known = [each for each in every if each.machine]
    inside = [each for each in known if min(balances) <= each.balance <= max(balances)]
    ratios = [ratio for each in (*lines, *inside) for ratio in each.over(result.reference)]
    _value_axes(axes, balances, (min(ratios) / 1.3, max(ratios) * 1.3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    prepare_axes(
        axes,
        x="machine balance (peak FLOP/s over bandwidth, FLOP/B)",
        y="minimum time over the reference's",
    )
    ends: list[tuple[float, str, str]] = []
    for index, style in enumerate(roof_styles(len(result.designs))):
        points = [(each.balance, each.over(result.reference)[index]) for each in lines]
        _draw_line(axes, points, style)
        name = result.names[index] + " (reference)" * (index == result.reference)
        ends.append((points[-1][1], name, style.colour))
    _draw_machines(axes, result, inside)
    for each in result.balance.crossings:
        axes.axvline(each.balance, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
        axes.annotate(
            f"{format_intensity(each.balance)} FLOP/B", (each.balance, 0.02), (4, 0),
            xycoords=axes.get_xaxis_transform(), textcoords="offset points", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}, **words(),
        )  # fmt: skip
    name_ends(axes, ends)
    names = " vs ".join(result.names)
    title_figure(figure, f"{names}: minimum time by machine balance")
    of = f"balance for {result.balance.dtype}"
    parts = (result.run, of, "minimum times")
    notes = [
        " · ".join(filter(None, parts)),
        *_texts_of(result),
        f"lines: hypothetical machines with the compute ceilings of {result.hardware[0].name} and"
        " one memory level (classic roofline model)",
    ]
    if known:
        notes.append("dots: known machines with their own ceilings; filled: caches known")
    if any(cell.fits is False for each in known for cell in each.cells):
        notes.append("crosses: the design or the reference does not fit into memory")
    outside = [each.machine.name for each in known if each.machine and each not in inside]
    if outside:
        notes.append(f"beyond the axis: {', '.join(outside)}")
    foot_figure(figure, [], notes)


def _draw_machines(axes: Axes, result: Comparison, inside: Sequence[BalancePoint]) -> None:
    """Draw known machines as vertical labels, with a dot per design."""
    left, right = map(math.log, axes.get_xlim())
    wide = [(math.log(each.balance) - left) / (right - left) for each in inside]
    styles = roof_styles(len(result.designs))
    for place, x in zip(inside, spread(wide, gap=0.021, high=1.06), strict=True):
        assert place.machine is not None
        axes.axvline(place.balance, color=_LEAD, linewidth=0.6, zorder=0.7)
        name = place.machine.name if len(place.machine.name) < 20 else f"{place.machine.name[:19]}…"
        axes.annotate(
            name, (place.balance, 1.0), (x, 1.05),
            xycoords=axes.get_xaxis_transform(), textcoords=axes.transAxes,
            rotation=90, ha="center", va="bottom", fontsize=SMALL_PT, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": _LEAD, "linewidth": 0.6, "shrinkA": 0,
                        "shrinkB": 0}, **words(),
        )  # fmt: skip
        fits = [each.fits for each in place.cells]
        for index, ratio in enumerate(place.over(result.reference)):
            if index == result.reference:
                continue
            color = styles[index].colour
            face = color if place.machine.has_caches else "white"
            axes.scatter(place.balance, ratio, s=34, fc=face, ec=color, lw=1.2, zorder=4)
            if False in (fits[index], fits[result.reference]):
                axes.scatter(place.balance, ratio, s=80, marker="x", color=INK, lw=1, zorder=5)
