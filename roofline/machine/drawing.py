"""Plot of a machine: roofline, measured against theoretical peaks, curves over the working set."""

# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from roofline.core.rows import grouped
from roofline.core.text import counted, printable
from roofline.core.units import format_capacity, format_si
from roofline.machine.hardware import BandwidthCurve, HardwareProfile, describe_threads
from roofline.machine.quantities import (
    Line,
    Quantity,
    doubts_text,
    first_of,
    group_by_threads,
    origin,
    quantities_of,
)
from roofline.machine.report import by_type, main_unit, signed_percent
from roofline.machine.roof import ComputeRoof, MachineRoof, ceiling_of, diagonal_of, line_name
from roofline.plots.figures import foot_figure, prepare_axes, title_figure, words
from roofline.plots.roof import Ceiling, CeilingKind, RoofLines
from roofline.plots.roofline import draw_roofline, log_axes, spread
from roofline.plots.style import (
    BLACK,
    BLUE,
    DARK_RED,
    GREEN,
    GREY,
    GREY_TEXT,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    SMALL_PT,
    SOFT,
    VERMILION,
)

_COLORS = {
    "float64": BLUE,
    "float32": VERMILION,
    "float16": ORANGE,
    "bfloat16": GREEN,
    "int8": PURPLE,
    "int32": SKY,
}
"""Data types with a fixed color in every plot."""

_SPARE = (DARK_RED, GREY, BLACK)
_MOST_UNITS = 2
_MOST_ROWS = 48
_ROW_INCH = 0.18


def height_of(profile: HardwareProfile) -> float:
    """Return the figure height for a profile, in inches."""
    heights = _heights(profile)
    return sum(heights.values()) + 1.0


def _heights(profile: HardwareProfile) -> dict[str, float]:
    """Return the height of each panel that has data."""
    losses, heights = loss_lines(profile), dict[str, float]()
    if profile.compute or profile.memory:
        heights["roof"] = 4.0 + 0.1 * min(len(roof_of(profile).ceilings), 20)
    if losses:
        heights["losses"] = 0.9 + _ROW_INCH * len(losses)
    if profile.latency_curve or profile.bandwidth_curves:
        heights["curves"] = 2.9
    return heights


def draw_profile(figure: Figure, profile: HardwareProfile) -> None:
    """Draw the roofline, peaks against theoretical peaks, and curves over the working set."""
    heights = _heights(profile) or {"": 1.0}
    made = figure.subfigures(len(heights), 1, height_ratios=list(heights.values()), squeeze=False)
    panels = dict(zip(heights, made[:, 0], strict=True))
    notes = [f"Source: {origin(profile, None)}{doubts_text(profile)}"]
    if "roof" in panels:
        _draw_roof(panels["roof"], profile)
    if "losses" in panels:
        lines = loss_lines(profile)
        _draw_losses(panels["losses"], profile, lines)
        more = len(_with_theory(profile)) - len(lines)
        left = f"; {more} lower ceilings are in the report" if more else ""
        notes.insert(0, f"Bar: measured peak; dot: median; in parentheses: loss of the peak{left}")
    if "curves" in panels:
        _draw_curves(panels["curves"], profile)
    if "" in panels:
        panels[""].subplots().set_axis_off()
    host = profile.host
    parts = [
        printable(host.cpu_model if host else profile.description),
        describe_threads(profile, profile.threads),
        format_si(profile.clock.peak_hz, "Hz") if profile.clock else "",
        f"effort {profile.effort}" if profile.effort != "unspecified" else "",
    ]
    title_figure(figure, f"Roofline of {profile.name}", " · ".join(filter(None, parts)))
    foot_figure(figure, [], notes)


def _colors(profile: HardwareProfile) -> dict[str, str]:
    """Return a color for each data type of a machine, by name."""
    spare = cycle(_SPARE)
    names = dict.fromkeys(each.dtype.name for each in profile.compute)
    return {name: _COLORS.get(name) or next(spare) for name in names}


def _one_thread(profile: HardwareProfile) -> MachineRoof | None:
    """Return the roof of one thread, if measured in addition to all threads."""
    known = any(each.threads == 1 for each in profile.compute) and all(
        any(each.threads == 1 for each in level.bandwidth) for level in profile.memory
    )
    return MachineRoof(profile, 1) if profile.threads > 1 and known else None


def roof_of(profile: HardwareProfile) -> RoofLines:
    """Return the plotted ceilings, highest first, and the memory levels.

    Per data type: the two highest hardware ceilings, the highest of each library kernel on all
    threads, and the highest GEMM ceiling on one thread.
    """
    roof, single = MachineRoof(profile, profile.threads), _one_thread(profile)
    colors = _colors(profile)

    def line(unit: ComputeRoof, of: MachineRoof, kind: CeilingKind = "hardware") -> Ceiling:
        note = ", 1 thread" if of is single else ""
        found = ceiling_of(unit, kind, of.fastest_bytes_per_s, main=not note, note=note)
        return replace(found, color=colors[unit.dtype.name])

    units = grouped(roof.units, lambda unit: unit.dtype.name)
    kernels: dict[tuple[str, str], ComputeRoof] = {}
    for unit in roof.library.units:
        # Kernels that differ only in operand layout count as one.
        kernels.setdefault((unit.dtype.name, unit.kernel.partition("-")[0]), unit)
    ceilings = [
        *(line(unit, roof) for each in units.values() for unit in each[:_MOST_UNITS]),
        *(line(unit, roof, "library") for unit in kernels.values()),
    ]
    if single:
        ceilings += [line(unit, single) for unit in single.mac_ceilings.values()]
    unit, top = main_unit(roof), roof.units[0] if roof.units else None
    return RoofLines(
        ceilings=tuple(sorted(ceilings, key=lambda each: -each.flop_per_s)),
        diagonals=tuple(diagonal_of(level, unit, top) for level in roof.levels),
        main_top_flop_per_s=unit.flop_per_s if unit else None,
    )


def _draw_roof(panel: SubFigure, profile: HardwareProfile) -> None:
    """Draw the roofline, with thin lines for one thread."""
    axes = panel.subplots()
    lines = roof_of(profile)
    draw_roofline(axes, lines)
    looks: dict[str, dict[str, Any]] = {"hardware": {"color": INK}} if lines.diagonals else {}
    for each in lines.ceilings:
        looks[each.kind] = {"color": INK, "linestyle": "-" if each.kind == "hardware" else "--"}
    handles = []
    threads = describe_threads(profile, profile.threads)
    for kind, look in looks.items():
        name = {"hardware": "hardware", "library": "library (torch)"}[kind]
        handles.append(Line2D([], [], label=f"{name}, {threads}", **look))
    if single := _one_thread(profile):
        thin: dict[str, Any] = {"color": SOFT, "linewidth": 0.6}
        left, right = axes.get_xlim()
        for level in single.levels:
            cut = single.units[0].flop_per_s / level.bytes_per_s if single.units else right
            ends = (left, min(cut, right))
            axes.plot(ends, [x * level.bytes_per_s for x in ends], zorder=1.5, **thin)
        handles.append(Line2D([], [], label="hardware, 1 thread", **thin))
    # The corner above the nearest level is empty in every roofline.
    axes.legend(handles=handles, loc="upper left", frameon=False, fontsize=SMALL_PT)


def _with_theory(profile: HardwareProfile) -> list[Line]:
    return group_by_threads(each for each in quantities_of(profile) if each.theoretical)


def loss_lines(profile: HardwareProfile) -> list[Line]:
    """Return the ceilings with a known theoretical peak, in table order.

    If they are too many for a plot, the lowest of each data type are omitted.
    """
    known = _with_theory(profile)
    compute = sorted((each for each in known if first_of(each).what == "compute"), key=by_type)
    rest = [each for each in known if first_of(each).what != "compute"]
    groups = grouped(compute, lambda line: (first_of(line).kind, first_of(line).subject))
    most = max(map(len, groups.values()), default=0)
    while most > 1 and sum(min(most, len(e)) for e in groups.values()) + len(rest) > _MOST_ROWS:
        most -= 1
    return [*(line for found in groups.values() for line in found[:most]), *rest]


def _draw_losses(panel: SubFigure, profile: HardwareProfile, lines: Sequence[Line]) -> None:
    """Draw each peak as a bar on its theoretical peak, one panel for each number of threads."""
    known = sorted({threads for line in lines for threads in line})
    counts = list(dict.fromkeys((known[0], known[-1])))
    colors = _colors(profile)
    found = panel.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    for axes, threads in zip(found, counts, strict=True):
        bars = [(y, line[threads]) for y, line in enumerate(lines) if threads in line]
        rows = [y for y, _ in bars]
        peaks = [1 - (each.loss or 0.0) for _, each in bars]
        axes.barh(rows, 1.0, height=0.62, color="#ececec")
        bar_colors = [colors.get(each.subject, GREY) for _, each in bars]
        axes.barh(rows, peaks, height=0.62, color=bar_colors, alpha=0.6)
        medians = [each.sustained / (each.theoretical_per_s or 1.0) for _, each in bars]
        axes.plot(medians, rows, "o", markersize=3.2, color=INK, zorder=3)
        for y, each in bars:
            axes.annotate(
                f"{'? ' if each.doubt else ''}{_of_theory(each)} ({signed_percent(each.loss)})",
                (1.0, y),
                (4, 0),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                fontsize=SMALL_PT - 0.5,
                color=INK,
                annotation_clip=False,
                **words(),
            )
        heading = counted(threads, "thread") if profile.has_threads else profile.device
        axes.set_title(heading, loc="left", fontsize=SMALL_PT, color=INK, weight="bold", **words())
        prepare_axes(axes)
        axes.grid(visible=False, axis="y")
        axes.set(xlim=(0, max(1.0, *peaks)), ylim=(len(lines) - 0.4, -0.6))
        axes.set_yticks(
            range(len(lines)), [line_name(first_of(line).label) for line in lines], **words()
        )
        axes.tick_params(axis="y", length=0, labelsize=SMALL_PT - 0.5)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    _head(panel, "Measured peak as a share of the theoretical peak")


def _of_theory(each: Quantity) -> str:
    """Return ``"252 of 256 GFLOP/s"``, with the unit once if it is the same."""
    peak, theoretical = each.text(each.peak), each.text(each.theoretical_per_s)
    number, _, unit = peak.partition(" ")
    return f"{number if theoretical.endswith(f' {unit}') else peak} of {theoretical}"


def _head(panel: SubFigure, text: str) -> None:
    style = {"fontsize": SMALL_PT + 2, "weight": "bold", "color": INK}
    panel.suptitle(text, x=0.01, ha="left", **style, **words())


def _draw_curves(panel: SubFigure, profile: HardwareProfile) -> None:
    """Draw latency (left) and bandwidth (right) with the cache sizes."""
    latency, curves = profile.latency_curve, _chosen(profile.bandwidth_curves)
    found: dict[str, list[_Curve]] = {}
    if latency:
        found["load latency (s)"] = [("", latency.size_bytes, latency.latency_s)]
    if curves:
        found["bandwidth (B/s)"] = [
            (f"{each.kernel}, {counted(each.threads, 'thread')}", each.size_bytes, each.bytes_per_s)
            for each in curves
        ]
    made = panel.subplots(1, len(found), squeeze=False)[0]
    for axes, (title, of) in zip(made, found.items(), strict=True):
        _draw_over_size(axes, profile, title, of)
    _head(panel, "Latency and bandwidth over the working set")


_Curve = tuple[str, Sequence[int], Sequence[float]]
"""Name, sizes and values."""


def _chosen(curves: Iterable[BandwidthCurve]) -> list[BandwidthCurve]:
    """Return the read curves, or those of the first kernel, for fewest and most threads."""
    by_kernel = grouped(curves, lambda each: each.kernel)
    found = by_kernel.get("read") or next(iter(by_kernel.values()), [])
    found = sorted(found, key=lambda each: each.threads)
    return [found[0], found[-1]] if len(found) > 1 else found


def _draw_over_size(
    axes: Axes, profile: HardwareProfile, title: str, curves: Sequence[_Curve]
) -> None:
    sizes = [size for _, each, _ in curves for size in each]
    values = [value for *_, each in curves for value in each]
    low, high = min(sizes) / 1.15, max(max(sizes) * 1.15, 8 * min(sizes))
    log_axes(axes, (low, high), (min(values) / 1.6, max(1.8 * max(values), 8 * min(values))))
    prepare_axes(axes, x="working set per thread", y=title)
    axes.xaxis.set_major_locator(LogLocator(base=16 if high / low > 2**10 else 4))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_capacity(round(size))))
    for (name, x, y), color in zip(curves, (BLUE, VERMILION), strict=False):
        axes.plot(x, y, "o-", markersize=2.6, linewidth=1.3, color=color, label=name)
    if len(curves) > 1:
        axes.legend(fontsize=SMALL_PT, frameon=False, loc="upper right", reverse=True)
    marks = [
        (level.capacity_bytes, f"{level.name} {format_capacity(level.capacity_bytes)}")
        for level in profile.memory
        if level.capacity_bytes and low < level.capacity_bytes < high
    ]
    places = [
        axes.transLimits.transform(axes.transScale.transform((size, 1)))[0] for size, _ in marks
    ]
    for (size, text), place in zip(marks, spread(places, gap=0.2), strict=True):
        axes.axvline(size, color=SOFT, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
        axes.text(
            place,
            1.02,
            text,
            transform=axes.transAxes,
            ha="center",
            fontsize=SMALL_PT,
            color=GREY_TEXT,
            **words(),
        )
