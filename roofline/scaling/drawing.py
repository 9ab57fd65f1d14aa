"""Plot of data-parallel training: roofline with the link, and efficiency over ranks."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from dataclasses import replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from roofline.analysis.points import roof_lines
from roofline.analysis.words import machine_text, provenance_text
from roofline.core.text import counted
from roofline.core.units import format_bytes_per_s, format_percent
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roof import Diagonal, Point, RoofLines
from roofline.plots.roofline import draw_roofline
from roofline.plots.style import BLUE, GREY, INK, SMALL_PT, VERMILION, Style
from roofline.scaling.result import Scaling

LINK = "link"
_STEP, _ASKED = "step on 2, 4, 8 … ranks", "as set"


def draw_scaling(figure: Figure, scaling: Scaling) -> None:
    """Draw the roofline with the link as a bandwidth ceiling, and efficiency over ranks below."""
    roof, efficiency = figure.subplots(2, 1, height_ratios=(2, 1))
    handles = draw_roofline(
        roof,
        lines_of(scaling),
        points_of(scaling),
        look={_STEP: Style(BLUE, "o"), _ASKED: Style(VERMILION, "o")},
        labels=4,
        rate="FLOP/s per rank (FLOP / step time)",
        sizes=(),
    )
    roof.set_xlabel("AI (FLOP/B of memory or link)")
    _draw_efficiency(efficiency, scaling)
    is_bound = scaling.time_kind == "bound"
    title_figure(
        figure,
        f"Training step of {scaling.model}: data-parallel scaling",
        machine_text(
            scaling.analysis,
            f"link {scaling.link.words}" if scaling.link else "no link",
            "minimum times" if is_bound else "measured operators, link model",
        ),
    )
    link = scaling.link
    source = f"Link: {' '.join(filter(None, (link.name, link.note)))}" if link else ""
    lines = filter(None, (source, provenance_text(scaling.analysis.hardware)))
    foot_figure(figure, handles, lines)


def lines_of(scaling: Scaling) -> RoofLines:
    """Return the machine's roofline, with the link as an additional memory level."""
    lines = roof_lines(scaling.analysis, "in use")
    if scaling.link is None:
        return lines
    rate, top = scaling.link.bytes_per_s, lines.main_top_flop_per_s
    highest = max((each.flop_per_s for each in lines.ceilings), default=None)
    link = Diagonal(
        label=f"{LINK} {format_bytes_per_s(rate)}",
        level=LINK,
        bytes_per_s=rate,
        ridge_flop_per_byte=top / rate if top else None,
        cut_flop_per_byte=highest / rate if highest else None,
        kind="link",
    )
    return replace(lines, diagonals=(*lines.diagonals, link))


def points_of(scaling: Scaling) -> list[Point]:
    """Return steps by number of ranks; that of the settings comes first, so that it is labeled."""
    asked = scaling.settings.ranks
    return [
        Point(
            name=f"{each.ranks} ranks",
            op="step",
            type=_ASKED if each.ranks == asked else _STEP,
            phase="forward",
            count=1,
            flop_per_byte=each.flop / each.link_bytes,
            flop_per_s=each.flop / each.step_s,
            share=0.07 if each.ranks == asked else 0.03,
            above=False,
        )
        for each in sorted(scaling.points, key=lambda each: each.ranks != asked)
        if each.flop and each.step_s and each.link_bytes
    ]


def _draw_efficiency(axes: Axes, scaling: Scaling) -> None:
    points, alone_s = scaling.points, scaling.alone_s
    ranks = [each.ranks for each in points]
    axes.set(xscale="log", xlim=(max(1, min(ranks)) / 1.1, max(ranks) * 1.1))
    best: dict[str, Any] = {"color": GREY, "linestyle": (0, (5, 2))}
    worst: dict[str, Any] = {"color": BLUE, "linestyle": (0, (1.2, 1.6))}
    these: dict[str, Any] = {"color": VERMILION}
    slow = [alone_s / each.step_high_s if alone_s and each.step_high_s else None for each in points]
    for label, efficiency, style in (
        ("best buckets and algorithm", [each.max_efficiency for each in points], best),
        (
            f"{scaling.settings.algorithm}, these buckets",
            [each.efficiency for each in points],
            these,
        ),
        ("no overlap", slow, worst),
    ):
        known = [(x, y) for x, y in zip(ranks, efficiency, strict=True) if y is not None]
        if known:
            x, y = zip(*known, strict=True)
            axes.plot(x, y, label=label, linewidth=1.6, zorder=3, **style)
    point, title = scaling.point, "scaling efficiency"
    if point.efficiency is None:
        title += ": unknown, no ceilings for this machine"
    else:
        computing = "minimum times" if scaling.time_kind == "bound" else "measured times"
        title += (
            f": {format_percent(point.efficiency)} on {counted(point.ranks, 'rank')}"
            f" ({computing} of operators)"
        )
        axes.plot(point.ranks, point.efficiency, "o", markersize=7, color=VERMILION, zorder=5)
        axes.legend(fontsize=SMALL_PT, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    # Room for a line at 100 %.
    axes.set_ylim(0, 1.05 * max(1.0, axes.dataLim.ymax if axes.lines else 1.0))
    apart = -(-len(ranks) // 11)
    shown = {each for place, each in enumerate(ranks) if not place % apart}
    axes.xaxis.set_major_locator(FixedLocator(ranks))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:.0f}" if round(value) in shown else "")
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axes.set_title(title, loc="left", fontsize=SMALL_PT + 1, weight="bold", color=INK, **words())
    prepare_axes(axes, x="ranks")
