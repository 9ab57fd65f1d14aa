"""Pictures of sweeps: heat maps of who wins, lines over one axis, and the balance of machines."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter

from roofline.design.sweeps.axes import Axis, Grid, point_text, text_of
from roofline.design.sweeps.result import SweepResult, map_axes
from roofline.design.sweeps.ridge import RidgeSweep
from roofline.design.sweeps.verdicts import Cell, factor_text, places_of
from roofline.foundation.text import counted
from roofline.foundation.units import format_intensity, format_s
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roofline import log_axes, name_ends, spread
from roofline.plots.style import INK, SMALL_PT, roof_styles

MOST_FACETS = 12
MOST_CELLS = 100
"""On one side of a map; more would be thinner than their lines."""

_UNKNOWN = "#e4e4e4"
_WEAKEST = 0.10
"""How much of its color a winner by nothing has."""

_WIDEST_WITH_WORDS = 24
"""Cells side by side in all maps of a row that have room for their factors."""

_LEAD = "#c8c8c8"


def draw_sweep(figure: Figure, result: SweepResult) -> None:
    """Draw a heat map of who wins over two axes; the times as lines over one axis of numbers."""
    if can_be_lines(result):
        _draw_lines(figure, result)
    else:
        _draw_maps(figure, result)


def can_be_lines(result: SweepResult) -> bool:
    """Return whether a sweep is over one axis of numbers above 0, with times to draw."""
    axis, *others = result.varied
    return (
        not others
        and axis.is_numeric
        and len(axis.values) > 1
        and all(isinstance(each, (int, float)) and each > 0 for each in axis.values)
        and any(_time(cell) for cells in result.cells for cell in cells)
    )


def _draw_maps(figure: Figure, result: SweepResult) -> None:
    across, up, others = map_axes(result)
    facets = Grid(axes=others)
    shown = min(facets.count, MOST_FACETS)
    nx = min(len(across.values), MOST_CELLS)
    columns = max(1, min(shown, 4, 28 // max(nx, 7)))
    rows = -(-shown // columns)
    ny = min(len(up.values), MOST_CELLS) if up else 1
    figure.set_figheight(min(14.0, 2.2 + rows * (0.9 + min(4.2, max(0.7, 0.42 * ny)))))
    grid = figure.subplots(rows, columns, squeeze=False)
    for number, axes in enumerate(grid.flat):
        if number < shown:
            _draw_map(
                axes,
                result,
                (across, up),
                facets,
                number,
                has_words=nx * columns <= _WIDEST_WITH_WORDS,
            )
        else:
            axes.set_axis_off()
    # Maps of several values have titles of their own.
    title_figure(figure, _title(result), "" if others else _subtitle(result))
    notes = [
        *([_subtitle(result)] if others else []),
        *_map_notes(result, facets.count, across, up),
    ]
    foot_figure(figure, _key(result), notes, columns=3)


def map_colors(
    result: SweepResult, places: Sequence[Sequence[int]]
) -> tuple[list[list[str]], list[list[str]]]:
    """Return colors and words of the cells of a map, by the numbers of their points."""
    scale = max([2.0, *(each.factor for each in result.verdicts if each.factor)])
    styles = roof_styles(len(result.designs))
    colors: list[list[str]] = []
    texts: list[list[str]] = []
    for row in places:
        colors.append([])
        texts.append([])
        for index in row:
            verdict, cells = result.verdicts[index], result.cells[index]
            able = [name for name, each in zip(result.names, cells, strict=True) if each.can_run]
            if verdict.winner is None or verdict.factor is None:
                colors[-1].append(_UNKNOWN)
                texts[-1].append(f"only {able[0]}" if len(able) == 1 else "")
            else:
                color = styles[verdict.winner].colour
                colors[-1].append(shade(color, verdict.factor, scale))
                texts[-1].append(factor_text(verdict.factor))
    return colors, texts


def _draw_map(
    axes: Axes,
    result: SweepResult,
    of: tuple[Axis, Axis | None],
    facets: Grid,
    number: int,
    *,
    has_words: bool,
) -> None:
    across, up = of
    nx, ny = (min(len(axis.values) if axis else 1, MOST_CELLS) for axis in of)
    fixed = dict(zip((each.name for each in facets.axes), places_of(facets, number), strict=True))

    def point(i: int, j: int) -> int:
        chosen = {**fixed, across.name: i, **({up.name: j} if up else {})}
        return result.grid.index([chosen.get(axis.name, 0) for axis in result.grid.axes])

    places = [[point(i, j) for i in range(nx)] for j in range(ny)]
    colors, texts = map_colors(result, places)
    image = np.array([[to_rgb(color) for color in row] for row in colors])
    axes.imshow(image, origin="lower", aspect="auto", interpolation="nearest")
    for j, row in enumerate(places):
        for i, index in enumerate(row):
            _mark_cell(axes, result, index, (i, j), colors[j][i], texts[j][i] if has_words else "")
    prepare_axes(axes, x=across.name, y=up.name if up else "", grid=False)
    axes.set_xticks(*_ticks(across, nx))
    axes.set_yticks(*(_ticks(up, ny) if up else ([], [])))
    axes.set_xticks(np.arange(nx + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(ny + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="both", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if facets.axes:
        title = point_text(facets.point(number))
        axes.set_title(
            title if len(title) < 40 else f"{title[:39]}…", fontsize=9, color=INK, **words()
        )


def _mark_cell(
    axes: Axes, result: SweepResult, index: int, place: tuple[int, int], color: str, text: str
) -> None:
    i, j = place
    is_close = result.verdicts[index].is_close
    has_no_room = any(each.fits is False for each in result.cells[index])
    if is_close or has_no_room:
        axes.add_patch(
            Rectangle(
                (i - 0.5, j - 0.5), 1, 1,
                hatch=("///" if is_close else "") + ("xx" if has_no_room else ""),
                facecolor="none", edgecolor="#6e6e6e", linewidth=0, alpha=0.7,
            )
        )  # fmt: skip
    if text:
        red, green, blue = to_rgb(color)
        is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
        axes.text(
            i, j, text,
            ha="center", va="center", fontsize=7.6, color=INK if is_light else "white",
            clip_on=True,
            bbox={"facecolor": color, "edgecolor": "none", "pad": 0.8},
            **words(),
        )  # fmt: skip


def _ticks(axis: Axis, count: int) -> tuple[list[int], list[str]]:
    """Places and texts of values, as many as have room."""
    apart = -(-count // 16)
    places = list(range(0, count, apart))
    texts = [text_of(axis.values[place]) for place in places]
    return places, [each if len(each) < 14 else f"{each[:13]}…" for each in texts]


def shade(color: str, factor: float, scale: float) -> str:
    """Return a winner's color, mixed with white by how little it wins by; ``"#rrggbb"``."""
    part = _WEAKEST + (1 - _WEAKEST) * min(1.0, math.log(factor) / math.log(scale))
    channels = (round(255 * each) for each in to_rgb(color))
    return "#" + "".join(f"{round(255 + part * (each - 255)):02x}" for each in channels)


def _key(result: SweepResult) -> list[Patch]:
    """For each design: its colors for some factors, the last of them with its name."""
    scale = max([2.0, *(each.factor for each in result.verdicts if each.factor)])
    found: list[Patch] = []
    for design, style in enumerate(roof_styles(len(result.designs))):
        name = f"{result.names[design]} is faster{_than(result, design)}, by"
        for factor in (1.0, scale**0.5, scale):
            label = f"{name if factor == 1.0 else ''} {factor_text(factor)}".strip()
            found.append(Patch(facecolor=shade(style.colour, factor, scale), label=label))
    order = [design * 3 + place for place in range(3) for design in range(len(result.designs))]
    return [found[each] for each in order]


def _than(result: SweepResult, design: int) -> str:
    if len(result.designs) == 2:
        return ""
    if design == result.reference:
        return " than the next"
    return f" than {result.names[result.reference]}"


def _map_notes(result: SweepResult, facets: int, across: Axis, up: Axis | None) -> list[str]:
    verdicts = result.verdicts
    found = _texts_of(result.designs, result.names)
    if any(each.is_close for each in verdicts):
        found.append("hatched: too close to call, because the interval of the ratio holds 1")
    if any(each.winner is None for each in verdicts):
        found.append("gray: no two designs can be compared there")
    if any(each.fits is False for cells in result.cells for each in cells):
        found.append("crossed: a design does not fit into memory there, and is left out")
    if facets > MOST_FACETS:
        found.append(f"{facets - MOST_FACETS} of {facets} maps are not drawn: see the tables")
    found += [
        f"{axis.name}: the first {MOST_CELLS} of {len(axis.values)} values"
        for axis in (across, up)
        if axis and len(axis.values) > MOST_CELLS
    ]
    return found


def _draw_lines(figure: Figure, result: SweepResult) -> None:
    axis = result.varied[0]
    values = [float(each) for each in axis.values if not isinstance(each, str)]
    axes = figure.subplots()
    cells = [[cells[design] for cells in result.cells] for design in range(len(result.designs))]
    seconds = [
        time
        for each in (cell for of in cells for cell in of)
        for time in (
            _time(each),
            each.eager_min_time_s,
            each.predicted_low_s,
            each.predicted_high_s,
        )
        if time
    ]
    _value_axes(axes, values, (min(seconds) / 1.25, max(seconds) * 1.25))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_s(value, 1)))
    is_predicted = any(each.predicted_s for of in cells for each in of)
    prepare_axes(axes, x=axis.name, y="predicted time" if is_predicted else "minimum time")
    ends: list[tuple[float, str, str]] = []
    for name, style, of in zip(result.names, roof_styles(len(cells)), cells, strict=True):
        look: dict[str, Any] = {"color": style.colour, "zorder": 3}
        named = list(zip(values, of, strict=True))
        points = [(x, time) for x, each in named if (time := _time(each))]
        spans = [(x, each.interval_s) for x, each in named if each.interval_s]
        axes.fill_between(
            [x for x, _ in spans], [low for _, (low, _) in spans], [high for _, (_, high) in spans],
            color=style.colour, alpha=0.16, linewidth=0, zorder=1,
        )  # fmt: skip
        bounds = [
            (x, each.eager_min_time_s)
            for x, each in named
            if each.eager_min_time_s and each.predicted_s
        ]
        axes.plot(*_columns(bounds), linewidth=1.0, linestyle=(0, (1, 2)), **look)
        strokes = (0, style.strokes) if style.strokes else "solid"
        axes.plot(
            *_columns(points), linewidth=1.6, linestyle=strokes, marker="o", markersize=3.5, **look
        )
        unfit = [(x, time) for x, each in named if each.fits is False and (time := _time(each))]
        axes.plot(*_columns(unfit), linestyle="none", marker="x", markersize=9, mew=1.6, **look)
        if points:
            ends.append((points[-1][1], name, style.colour))
    name_ends(axes, ends)
    title_figure(figure, _title(result), _subtitle(result))
    foot_figure(figure, [], _line_notes(result))


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _value_axes(axes: Axes, values: Sequence[float], y: tuple[float, float]) -> None:
    """Logarithmic axes, with ticks at the values that were asked for."""
    margin = (max(values) / min(values)) ** 0.03
    log_axes(axes, (min(values) / margin, max(values) * margin), y)
    apart = -(-len(values) // 16)
    shown = values[::apart]
    axes.set_xticks(shown, [text_of(each) for each in shown])
    axes.set_xticks([], minor=True)


def _time(cell: Cell) -> float | None:
    return cell.predicted_s or cell.eager_min_time_s


def _line_notes(result: SweepResult) -> list[str]:
    cells = [cell for each in result.cells for cell in each]
    found = _texts_of(result.designs, result.names)
    if any(each.predicted_s for each in cells):
        found.append("bands: 80 % prediction intervals; dotted: minimum times")
    if any(each.fits is False for each in cells):
        found.append("crosses: does not fit into memory there")
    if any(each.problem for each in cells):
        found.append("where a line has a gap, the design cannot be built: see the tables")
    return found


def _title(result: SweepResult) -> str:
    machines = ", ".join(each.name for each in result.hardware)
    has_threads = result.threads is not None and all(each.has_threads for each in result.hardware)
    threads = f" with {counted(result.threads or 1, 'thread')}" if has_threads else ""
    return f"Which is faster on {machines}{threads}: {' or '.join(result.names)}"


def _subtitle(result: SweepResult) -> str:
    """Where the times come from, and what does not vary."""
    bases = {each.basis for each in result.verdicts}
    parts: list[str] = []
    if "predicted" in bases:
        parts.append(f"predicted from {result.calibration}" if result.calibration else "predicted")
    if "bound" in bases:
        parts.append("minimum times, not predictions" + " at some points" * ("predicted" in bases))
    if result.run:
        parts.append(result.run)
    single = {each.name: each.values[0] for each in result.grid.axes if len(each.values) == 1}
    if single:
        parts.append(point_text(single))
    return " · ".join(parts)


def _texts_of(designs: Sequence[str], names: Sequence[str]) -> list[str]:
    """What the letters stand for, where designs are called by letters: a line for each."""
    pairs = zip(names, designs, strict=True)
    return [f"{name}: {text}" for name, text in pairs if name != text]


def draw_ridge(figure: Figure, ridge: RidgeSweep) -> None:
    """Draw the minimum time of each design over the reference's, by the balance of machines."""
    axes = figure.subplots()
    low, high = min(ridge.balances), max(ridge.balances)
    inside = [each for each in ridge.machines if low <= each.balance <= high]
    ratios = [
        *(ratio for each in ridge.ratios for ratio in each),
        *(ratio for each in inside for ratio in ridge.over_reference(each.eager_min_time_s)),
    ]
    _value_axes(axes, ridge.balances, (min(ratios) / 1.3, max(ratios) * 1.3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    prepare_axes(
        axes,
        x="machine balance (peak FLOP/s over bandwidth, FLOP/B)",
        y="minimum time over the reference's",
    )
    styles = roof_styles(len(ridge.designs))
    ends: list[tuple[float, str, str]] = []
    for index, style in enumerate(styles):
        heights = [each[index] for each in ridge.ratios]
        strokes = (0, style.strokes) if style.strokes else "solid"
        axes.plot(
            ridge.balances, heights,
            color=style.colour, lw=1.6, ls=strokes, marker="o", markersize=3.5, zorder=3,
        )  # fmt: skip
        name = ridge.names[index] + " (reference)" * (index == ridge.reference)
        ends.append((heights[-1], name, style.colour))
    _draw_machines(axes, ridge, [each for each in ridge.machines if each in inside])
    for each in ridge.crossings:
        axes.axvline(each.balance, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=2)
        axes.annotate(
            f"{format_intensity(each.balance)} FLOP/B", (each.balance, 0.02), (4, 0),
            xycoords=axes.get_xaxis_transform(), textcoords="offset points", fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.4}, **words(),
        )  # fmt: skip
    name_ends(axes, ends)
    names = " or ".join(ridge.names)
    parts = (ridge.run, f"balance for {ridge.dtype}", "minimum times: there are no predictions")
    title_figure(figure, f"Which has the lower minimum time on which machine: {names}")
    subtitle = " · ".join(filter(None, parts))
    foot_figure(figure, [], [subtitle, *_ridge_notes(ridge)])


def _draw_machines(axes: Axes, ridge: RidgeSweep, inside: Sequence[Any]) -> None:
    """Write known machines upright above the axes, with a dot for each design there."""
    left, right = map(math.log, axes.get_xlim())
    wide = [(math.log(each.balance) - left) / (right - left) for each in inside]
    styles = roof_styles(len(ridge.designs))
    for machine, place in zip(inside, spread(wide, gap=0.021, high=1.06), strict=True):
        axes.axvline(machine.balance, color=_LEAD, linewidth=0.6, zorder=0.7)
        name = machine.name if len(machine.name) < 20 else f"{machine.name[:19]}…"
        axes.annotate(
            name, (machine.balance, 1.0), (place, 1.05),
            xycoords=axes.get_xaxis_transform(), textcoords=axes.transAxes,
            rotation=90, ha="center", va="bottom", fontsize=SMALL_PT, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": _LEAD, "linewidth": 0.6, "shrinkA": 0,
                        "shrinkB": 0}, **words(),
        )  # fmt: skip
        fits = ridge.fits_on(machine)
        for index, ratio in enumerate(ridge.over_reference(machine.eager_min_time_s)):
            if index == ridge.reference:
                continue
            color = styles[index].colour
            face = color if machine.has_caches else "white"
            axes.scatter(machine.balance, ratio, s=34, fc=face, ec=color, lw=1.2, zorder=4)
            if False in (fits[index], fits[ridge.reference]):
                axes.scatter(machine.balance, ratio, s=80, marker="x", color=INK, lw=1, zorder=5)


def _ridge_notes(ridge: RidgeSweep) -> list[str]:
    found = [
        *_texts_of(ridge.designs, ridge.names),
        f"lines: hypothetical machines, the units of {ridge.base.name} and one memory to which"
        " every operand is charged (the classic roofline model)",
    ]
    if ridge.machines:
        found.append("dots: known machines, by their own ceilings; filled: with their caches")
    if any(False in ridge.fits_on(each) for each in ridge.machines):
        found.append("crosses: that design, or the reference, does not fit into memory there")
    low, high = min(ridge.balances), max(ridge.balances)
    outside = [each.name for each in ridge.machines if not low <= each.balance <= high]
    if outside:
        found.append(f"beyond the axis: {', '.join(outside)}")
    return found
