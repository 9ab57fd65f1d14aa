"""Plot of one model on several machines: rooflines, minimum times and limiters."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from roofline.analysis import OperatorRow
from roofline.core.units import (
    MISSING,
    format_bytes_per_s,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
    format_shape,
)
from roofline.design.comparison.machine_blocks import (
    groups_of_identical_calls,
    intensity_of,
    names_across,
)
from roofline.design.comparison.machines import GroupAcross, MachineSummary, combine_operators
from roofline.placement import Bound, Roof
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words, write
from roofline.plots.roof import Spot
from roofline.plots.roofline import log_axes, name_ends, scatter, spread
from roofline.plots.style import GREY_TEXT, SMALL_PT, RoofStyle, Style, roof_styles

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

_APART = 0.03
"""Minimum distance of numbered operators, as a fraction of the axes width."""

_GREY = "#4d4d4d"
_BADGE: dict[str, Any] = {
    "ha": "center",
    "va": "center",
    "fontsize": SMALL_PT - 0.5,
    "color": "white",
    "bbox": {"boxstyle": "circle,pad=0.25", "facecolor": _GREY, "edgecolor": "none"},
    **words(),
}
"""Style of operator numbers."""


def draw_machines(figure: Figure, comparison: Comparison, *, labels: int) -> None:
    """Draw the rooflines, and below them a row per machine."""
    machines = comparison.machines
    looks = roof_styles(len(machines))
    chosen = _chosen(comparison, max(0, labels))
    grid = figure.add_gridspec(2, 3, height_ratios=(15, 1.2 * len(machines) + 1.5))
    grid.set_width_ratios((5, 2, 0.35 * len(chosen) + 0.2))
    roofs = figure.add_subplot(grid[0, :])
    _draw_roofs(roofs, comparison, machines, looks)
    _number(roofs, chosen, looks)
    times = figure.add_subplot(grid[1, 0])
    _draw_times(times, machines, looks)
    shares = figure.add_subplot(grid[1, 1], sharey=times)
    _draw_shares(shares, machines, looks)
    if chosen:
        _draw_sides(figure.add_subplot(grid[1, 2], sharey=times), chosen, looks)
    first = comparison.analyses[0]
    inputs = ", ".join(f"{format_shape(each.shape)} {each.dtype}" for each in first.inputs)
    title = " · ".join(filter(None, (f"{first.model} on {len(machines)} machines", inputs)))
    title_figure(figure, title)
    names = zip(names_across(comparison, chosen), chosen, strict=True)
    numbered = [
        f"{number}: {name} ({format_intensity(intensity_of(each))} FLOP/B)"
        for number, (name, each) in enumerate(names, start=1)
    ]
    verdict = comparison.sentences[0]
    has_caches = any(len(each.hardware.memory) > 1 for each in comparison.analyses)
    notes = [
        f"{verdict[:1].upper()}{verdict[1:]}.",
        *([" · ".join(numbered)] if numbered else []),
        *_aside(comparison),
        f"{'Thin lines: caches. ' * has_caches}{_provenance(comparison)}",
    ]
    kinds = {row.bound for across in comparison.operators for row in across}
    marks = [
        ("compute-bound", "o", _GREY),
        ("memory-bound", "o", "white"),
        *([("limiter unknown (gray in bars)", "x", _GREY)] if Bound.UNKNOWN in kinds else []),
    ]
    handles = [
        Line2D((), (), ls="", marker=marker, mfc=face, mec=_GREY, label=label)
        for label, marker, face in marks
    ]
    foot_figure(figure, handles, notes)


def spot_of(row: OperatorRow) -> Spot | None:
    intensity, rate = row.intensity_flop_per_byte, row.attainable_flop_per_s
    return (intensity, rate) if row.flop and intensity and rate else None


def _chosen(comparison: Comparison, count: int) -> tuple[GroupAcross, ...]:
    """Return the operators to number, by AI: those with the largest shares and enough distance."""
    groups = [
        (group, _place(group))
        for group in groups_of_identical_calls(comparison)
        if any(map(spot_of, group.operators[0]))
    ]
    places = [place for _, place in groups]
    apart = _APART * (max(places) - min(places)) if places else 0.0
    same = sum(not group.changes_sides for group, _ in groups)
    most = {True: count - min(same, count // 4), False: count}
    chosen: list[tuple[GroupAcross, float]] = []
    for changing in (True, False):
        for group, place in groups:
            if len(chosen) >= most[changing]:
                break
            is_apart = all(abs(place - other) > apart for _, other in chosen)
            if is_apart and group.changes_sides is changing:
                chosen.append((group, place))
    return tuple(group for group, _ in sorted(chosen, key=lambda each: each[1]))


def _spots(group: GroupAcross) -> list[Spot]:
    return [spot for spot in map(spot_of, group.operators[0]) if spot]


def _place(group: GroupAcross) -> float:
    return math.log10(max(_spots(group), key=lambda spot: spot[1])[0])


def _draw_roofs(
    axes: Axes,
    comparison: Comparison,
    machines: Sequence[MachineSummary],
    looks: Sequence[RoofStyle],
) -> None:
    roofs = [Roof(each.hardware, each.threads) for each in comparison.analyses]
    spots = [
        [spot for spot in map(spot_of, each.operators) if spot] for each in comparison.analyses
    ]
    peaks = [each.compute.flop_per_s if each.compute else None for each in machines]
    ridges = [
        peak / level.bytes_per_s
        for roof, peak in zip(roofs, peaks, strict=True)
        for level in roof.levels
        if peak
    ]
    known = [peak for peak in peaks if peak]
    places = [x for each in spots for x, _ in each]
    rates = [y for each in spots for _, y in each]
    low = min([*places, *(ridge / 8 for ridge in ridges)], default=0.01) / 1.6
    high = max([*(2 * x for x in places), *(3 * x for x in ridges)], default=1000.0)
    bottom = min([*rates, *(peak / 10 for peak in known)], default=1e9) / 1.8
    top = 1.6 * max([*known, *rates], default=1e12)
    log_axes(axes, (low, max(high, 10 * low)), (bottom, max(top, 10 * bottom)))
    high = axes.get_xlim()[1]
    far = [each.ridge_flop_per_byte for each in machines if each.ridge_flop_per_byte]
    if (
        far
        and min(far) < max(far)
        and all(e.hardware.has_single_memory_level for e in comparison.analyses)
    ):
        # With one memory level per machine, an operator has one AI on all machines.
        axes.axvspan(min(far), max(far), color="#f4f1e6", zorder=0)
        spot, across = (math.sqrt(min(far) * max(far)), 0.015), axes.get_xaxis_transform()
        look = {"xycoords": across, "ha": "center", "color": GREY_TEXT}
        write(axes, "between the ridge points", spot, (0, 0), **look)
    for roof, peak, look, place in zip(roofs, peaks, looks, spots, strict=True):
        line: dict[str, Any] = {"color": look.colour}
        line["linestyle"] = (0, look.strokes) if look.strokes else "-"
        for level in roof.levels:
            end = min(peak / level.bytes_per_s, high) if peak else high
            width = 1.6 if level is roof.levels[-1] else 0.7
            rate = level.bytes_per_s
            axes.plot((low, end), (low * rate, end * rate), linewidth=width, zorder=2, **line)
        if peak:
            start = peak / max((each.bytes_per_s for each in roof.levels), default=math.inf)
            axes.plot((max(start, low), high), (peak, peak), linewidth=1.6, zorder=2, **line)
        if place:
            axes.scatter(*zip(*place, strict=True), s=9, lw=0, alpha=0.45, color=look.colour)
    name_ends(
        axes,
        [
            (peak, f"{machine.name} {format_flop_per_s(peak)}", look.colour)
            for machine, peak, look in zip(machines, peaks, looks, strict=True)
            if peak
        ],
    )
    prepare_axes(
        axes,
        x="arithmetic intensity (FLOP/B across the operator's memory level)",
        y="FLOP/s (FLOP / minimum time)",
    )


def _number(axes: Axes, chosen: Sequence[GroupAcross], looks: Sequence[RoofStyle]) -> None:
    low, high = map(math.log10, axes.get_xlim())
    wanted = [(_place(group) - low) / (high - low) for group in chosen]
    badges = spread(wanted, gap=0.028)
    marks: list[tuple[Spot, Bound, str]] = []
    for number, (group, place) in enumerate(zip(chosen, badges, strict=True), start=1):
        spots = sorted(_spots(group), key=lambda spot: -spot[1])
        axes.plot(*zip(*spots, strict=True), color="#b0b0b0", linewidth=0.7, zorder=3)
        axes.annotate(
            str(number),
            spots[0],
            (place, 1.035),
            textcoords=axes.transAxes,
            arrowprops={"arrowstyle": "-", "color": "#b0b0b0", "linewidth": 0.7, "shrinkB": 0},
            **_BADGE,
        )
        for row, look in zip(group.operators[0], looks, strict=True):
            if spot := spot_of(row):
                marks.append((spot, row.bound, look.colour))
    _draw_marks(axes, marks)


def _draw_marks(axes: Axes, marks: Sequence[tuple[Spot, Bound, str]]) -> None:
    """Draw compute-bound operators as discs, memory-bound ones as rings, others as crosses."""
    drawn = scatter(
        axes,
        [spot for spot, _, _ in marks],
        [Style(color, "x" if bound is Bound.UNKNOWN else "o") for _, bound, color in marks],
        [6.5 if bound is Bound.COMPUTE else 5.5 for _, bound, _ in marks],
        phases=["backward" if bound is Bound.MEMORY else "forward" for _, bound, _ in marks],
    )
    if drawn:
        drawn.set(zorder=7, alpha=1.0, in_layout=False)


def _draw_times(axes: Axes, machines: Sequence[MachineSummary], looks: Sequence[RoofStyle]) -> None:
    names = [
        f"{each.name} · {format_bytes_per_s(each.memory.bytes_per_s if each.memory else None)}"
        f" · ridge {format_intensity(each.ridge_flop_per_byte)}"
        for each in machines
    ]
    axes.set_yticks(range(len(machines)), names)
    for label, look in zip(axes.get_yticklabels(), looks, strict=True):
        label.set(parse_math=False)
        label.set_color(look.colour)
    axes.set_ylim(len(machines) - 0.5, -0.5)
    known = [each.eager_min_time_s for each in machines if each.eager_min_time_s]
    for y, (each, look) in enumerate(zip(machines, looks, strict=True)):
        time_s = each.eager_min_time_s
        if time_s:
            axes.plot(time_s, y, "D", color=look.colour, markersize=6)
        text = format_s(time_s) if time_s else MISSING
        text += ", does not fit" * (each.fits is False)
        spot = (time_s or min(known, default=1.0), y)
        write(axes, text, spot, (7, 0), va="center_baseline")
    prepare_axes(axes, x="minimum time (eager)")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    if known:
        axes.set_xscale("log")
        # Room for labels.
        wide = max(known) / min(known)
        axes.set_xlim(min(known) / 1.3, max(known) * 1.5 * wide**0.35)
        subs = (1.0, 2.0, 5.0) if wide < 100 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_s(value, 1)))
        axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_shares(
    axes: Axes, machines: Sequence[MachineSummary], looks: Sequence[RoofStyle]
) -> None:
    for y, (each, look) in enumerate(zip(machines, looks, strict=True)):
        compute, memory = each.compute_share, each.memory_share
        if compute is None or memory is None or not each.eager_min_time_s:
            continue
        left = 0.0
        rest = max(0.0, round(1 - compute - memory, 9))
        for share, fill in ((compute, look.colour), (memory, "white"), (rest, "#d9d9d9")):
            if share:
                axes.barh(y, share, left=left, height=0.55, color=fill, ec=look.colour, lw=0.9)
                left += share
        write(axes, format_percent(compute), (1.0, y), (4, 0), va="center_baseline")
    axes.set_xlim(0, 1.35)
    _bare_axes(axes, "compute-bound share")


def _draw_sides(axes: Axes, chosen: Sequence[GroupAcross], looks: Sequence[RoofStyle]) -> None:
    marks: list[tuple[Spot, Bound, str]] = []
    for x, group in enumerate(chosen):
        for y, (side, look) in enumerate(zip(group.sides, looks, strict=True)):
            marks.append(((x, y), side.bound, look.colour))
        axes.annotate(
            str(x + 1),
            (x, 1.0),
            (0, 7),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            **_BADGE,
        )
    _draw_marks(axes, marks)
    axes.set_xlim(-0.6, len(chosen) - 0.4)
    _bare_axes(axes, "")


def _bare_axes(axes: Axes, label: str) -> None:
    axes.set_xticks(())
    prepare_axes(axes, x=label, grid=False)
    axes.tick_params(axis="y", left=False, labelleft=False)
    axes.spines[["left", "bottom"]].set_visible(False)


def _aside(comparison: Comparison) -> Iterator[str]:
    aside = [across for across in comparison.operators if not any(map(spot_of, across))]
    if not aside:
        return
    unknown = sum(across[0].flop is None for across in aside)
    without = sum(across[0].flop == 0 for across in aside)
    counts = {
        "without FLOP": without,
        "with unknown FLOP": unknown,
        "without a ceiling": len(aside) - unknown - without,
    }
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    share = combine_operators(comparison, aside).largest_share
    rest = f": at most {format_percent(min(1.0, share))} of a minimum time" if share else ""
    yield f"Not plotted, of {len(comparison.operators)} operators: {', '.join(parts)}{rest}"


def _provenance(comparison: Comparison) -> str:
    by_source: dict[str, list[str]] = {}
    for name, each in zip(comparison.machine_names, comparison.analyses, strict=True):
        sources = {provenance.source for provenance in each.hardware.provenances()}
        if not sources:
            words = "unknown"
        elif "measured" not in sources:
            words = "from data sheets, not measured"
        elif sources == {"measured"}:
            words = "measured"
        else:
            words = "partly measured, partly from data sheets"
        by_source.setdefault(words, []).append(name)
    parts = [f"{', '.join(names)} {words}" for words, names in by_source.items()]
    if len(parts) == 1:
        parts = [next(iter(by_source))]
    return f"Ceilings: {'; '.join(parts)}"
