"""Roofline in layers: theoretical peaks, measured peaks, and the rates that software reaches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from roofline.analysis.drawing import draw_on, picture_warnings, subtitle_of, title_of
from roofline.analysis.grouping import working
from roofline.analysis.points import dtypes_in_use, points_of
from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.analysis.words import kind_of_time, provenance_text, sum_s, time_of
from roofline.core.dtypes import DType
from roofline.core.text import printable
from roofline.core.units import format_flop_per_s, format_intensity, format_percent, format_s
from roofline.machine.catalog import load_hardware
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.losses import Layer, format_loss, layers_of, loss_notes
from roofline.machine.report import main_unit
from roofline.machine.roof import (
    ComputeRoof,
    LevelRoof,
    MachineRoof,
    ceiling_of,
    ceiling_text,
    diagonal_of,
)
from roofline.placement import Bound
from roofline.plots.figures import foot_figure, title_figure
from roofline.plots.roof import Ceiling, Diagonal, RoofLines, Spot
from roofline.plots.roofline import draw_roofline, name_points
from roofline.plots.style import BLUE, THEORETICAL

_NAMED = 4  # Number of ceilings that a note names, those of the longest times first
_LEAST_SHARE = 0.02
"""Operators of one ceiling below this share of the time have no area, only a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Operators of one limiter: sums of minimum times and times in seconds."""

    ceiling: str
    eager_min_time_s: float
    time_s: float
    low_flop_per_byte: float | None
    high_flop_per_byte: float | None

    @property
    def efficiency(self) -> float:
        """Efficiency: minimum time over time; 1 is the roofline."""
        return self.eager_min_time_s / self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Efficiency of all operators, weighted by time."""

    kind: Literal["measured", "predicted"]
    whole_s: float
    reached: tuple[Reached, ...]

    @property
    def eager_min_time_s(self) -> float:
        """Sum of the minimum times in seconds."""
        return sum(each.eager_min_time_s for each in self.reached)

    @property
    def time_s(self) -> float:
        """Sum of the times of operators with a minimum time, in seconds."""
        return sum(each.time_s for each in self.reached)

    @property
    def efficiency(self) -> float:
        """Minimum time over time."""
        return self.eager_min_time_s / self.time_s


def software_of(analysis: Analysis) -> Software | None:
    """Return the efficiency of operators; None without times, or without a known bound."""
    kind = kind_of_time(analysis)
    if kind == "bound":
        return None
    rows = working(analysis.operators)
    by_ceiling: dict[str, list[OperatorRow]] = {}
    for row in rows:
        is_bound = row.bound in (Bound.COMPUTE, Bound.MEMORY) and row.eager_min_time_s
        if is_bound and time_of(row, kind):
            by_ceiling.setdefault(row.ceiling, []).append(row)
    found: list[Reached] = []
    for ceiling, of in by_ceiling.items():
        x = [row.intensity_flop_per_byte for row in of if row.flop and row.intensity_flop_per_byte]
        found.append(
            Reached(
                ceiling=ceiling,
                eager_min_time_s=sum_s(of, "bound"),
                time_s=sum_s(of, kind),
                low_flop_per_byte=min(x, default=None),
                high_flop_per_byte=max(x, default=None),
            )
        )
    reached = tuple(sorted(found, key=lambda each: -each.time_s))
    return Software(kind=kind, whole_s=sum_s(rows, kind), reached=reached) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLayers:
    """Layers of a roofline, and the efficiency of software.

    ``compute`` are the layers of GEMM ceilings, most used data type first, ``library`` the highest
    library ceiling by data type, ``roof`` all lines by the limiter names of operators.
    """

    lines: RoofLines
    compute: tuple[Layer, ...]
    memory: tuple[Layer, ...]
    library: Mapping[str, Ceiling]
    roof: Mapping[str, ComputeRoof | LevelRoof]
    software: Software | None = None

    @property
    def all(self) -> tuple[Layer, ...]:
        """All layers."""
        return (*self.compute, *self.memory)

    @property
    def lossy(self) -> tuple[Layer, ...]:
        """Layers whose measured peak is below the theoretical one."""
        return tuple(each for each in self.all if (each.loss or 0.0) > 0)

    @property
    def fastest_bytes_per_s(self) -> float | None:
        """Theoretical bandwidth of the fastest level, else measured; None: unknown."""
        return max((each.theoretical_per_s or each.per_s for each in self.memory), default=None)

    @property
    def top_flop_per_s(self) -> float | None:
        """Highest ceiling; None: unknown."""
        return max((each.per_s for each in self.compute), default=None)

    @property
    def theoretical_ridges(self) -> tuple[Spot, ...]:
        """Ridge points of the first theoretical ceiling with each memory level."""
        if not self.compute or self.compute[0].loss is None:
            return ()
        top = self.compute[0].theoretical_per_s or 0.0
        return tuple(
            (top / each.theoretical_per_s, top)
            for each in self.memory
            if each.theoretical_per_s and each.loss is not None
        )

    @property
    def library_gaps(self) -> tuple[tuple[Layer, Ceiling], ...]:
        """Measured ceilings above the library, each with the library's best."""
        return tuple(
            (each, best)
            for each in self.compute
            if each.measured_per_s is not None
            and (best := self.library.get(each.subject)) is not None
            and best.flop_per_s < each.measured_per_s
        )

    @property
    def shown(self) -> tuple[Reached, ...]:
        """Ceilings whose operators have an area."""
        if self.software is None:
            return ()
        return tuple(
            each
            for each in self.software.reached
            if each.time_s >= _LEAST_SHARE * self.software.whole_s
            and each.low_flop_per_byte is not None
            and each.efficiency < 1
            and each.ceiling in self.roof
        )

    def ends(self, each: Reached) -> tuple[Spot, Spot]:
        """Return the ends of the line that operators reach, which ends at the ridge point."""
        line = self.roof[each.ceiling]
        low, high = each.low_flop_per_byte or 1.0, each.high_flop_per_byte or 1.0
        if isinstance(line, LevelRoof) and self.top_flop_per_s:
            ridge = self.top_flop_per_s / line.bytes_per_s
            high = min(high, ridge) if low < ridge else high
        part = each.efficiency
        return (low, part * line.height(low)), (high, part * line.height(high))


def layers_of_analysis(analysis: Analysis, paper: HardwareProfile | None) -> RoofLayers:
    """Return the roof of an analysis in layers: of the data types in use."""
    roof = MachineRoof(analysis.hardware, analysis.threads)
    found = (roof.compute(each) for each in dtypes_in_use(analysis, roof))
    units = list(dict.fromkeys(each for each in found if each is not None))
    # Operators without GEMMs can have the higher FMA + ADD ceiling.
    others = [
        each
        for unit in units
        if (each := roof.compute_any(unit.dtype)) is not None
        and each != unit
        and any(row.ceiling == each.label for row in analysis.operators)
    ]
    return replace(_layers(roof, units, others, paper), software=software_of(analysis))


def layers_of_machine(profile: HardwareProfile, paper: HardwareProfile | None) -> RoofLayers:
    """Return the roof of a machine on all its threads in layers: of every data type."""
    roof = MachineRoof(profile, profile.threads)
    main, units = main_unit(roof), roof.mac_ceilings.values()
    ordered = sorted(units, key=lambda each: (each != main, -each.flop_per_s))
    return _layers(roof, ordered, [], paper)


def _layers(
    roof: MachineRoof,
    units: Sequence[ComputeRoof],
    others: Sequence[ComputeRoof],
    paper: HardwareProfile | None,
) -> RoofLayers:
    layers = layers_of(roof, units, paper)
    compute, memory = layers[: len(units)], layers[len(units) :]
    main, measured_fastest = units[0] if units else None, roof.fastest_bytes_per_s

    def kind(layer: Layer) -> Literal["hardware", "theoretical"]:
        return "hardware" if layer.measured_per_s else "theoretical"

    highest = max(units, key=lambda each: each.flop_per_s, default=None)
    ceilings = [
        *(
            ceiling_of(unit, kind(each), measured_fastest)
            for unit, each in zip(units, compute, strict=True)
        ),
        *(ceiling_of(each, "hardware", measured_fastest, main=False) for each in others),
    ]
    # Highest library ceiling per kind of GEMM.
    kept: dict[tuple[DType, str], ComputeRoof] = {}
    for unit in roof.library.units:
        if unit.dtype in {each.dtype for each in units}:
            kept.setdefault((unit.dtype, unit.kernel.partition("-")[0]), unit)
    library: dict[str, Ceiling] = {}
    for each in kept.values():
        line = ceiling_of(each, "library", measured_fastest)
        if len(units) == 1:
            line = replace(line, label=line.label.removeprefix(f"{units[0].dtype} "))
        ceilings.append(line)
        library.setdefault(str(each.dtype), line)
    diagonals = [
        replace(diagonal_of(level, main, highest), kind=kind(each))
        for level, each in zip(roof.levels, memory, strict=True)
    ]
    # Theoretical lines; those of memory have no label.
    fastest = max((each.theoretical_per_s or each.per_s for each in memory), default=None)
    top = max((each.theoretical_per_s or each.per_s for each in compute), default=None)
    for each in layers:
        rate = each.theoretical_per_s
        if each.loss is None or not rate:
            continue
        if each.what == "compute":
            ceilings.append(
                Ceiling(
                    label=f"{each.subject} theoretical {format_flop_per_s(rate)}",
                    kind="theoretical",
                    flop_per_s=rate,
                    start_flop_per_byte=rate / fastest if fastest else None,
                    main=True,
                )
            )
        else:
            diagonals.append(
                Diagonal(
                    label="",
                    level=each.subject,
                    bytes_per_s=rate,
                    ridge_flop_per_byte=None,
                    cut_flop_per_byte=top / rate if top else None,
                    kind="theoretical",
                )
            )
    return RoofLayers(
        lines=RoofLines(
            ceilings=tuple(sorted(ceilings, key=lambda each: -each.flop_per_s)),
            diagonals=tuple(diagonals),
            main_top_flop_per_s=main and main.flop_per_s,
        ),
        compute=compute,
        memory=memory,
        library=library,
        roof={each.label: each for each in (*roof.units, *roof.levels)},
    )


def library_note(layers: RoofLayers) -> str:
    """Return the shares of measured ceilings that the library reaches; ``""``: nothing is known."""
    parts = [
        f"{format_percent(best.flop_per_s / each.per_s)} of {each.label} ({best.label})"
        for each, best in layers.library_gaps
    ]
    return f"Software: the library reaches {', '.join(parts)}" if parts else ""


def software_note(layers: RoofLayers) -> str:
    """Return the efficiency of operators in words, with the sums that it follows from."""
    software = layers.software
    if software is None:
        return "Software: efficiency of operators unknown; measure: `roofline profile MODEL`"
    is_measured = any(each.measured_per_s is not None for each in layers.all)
    roof = "measured roofline" if is_measured else "theoretical roofline"
    part = software.time_s / software.whole_s
    of_all = "" if part >= 1 - 1e-9 else f", over {format_percent(part)} of the time"
    named = [
        f"{ceiling_text(each.ceiling)} {format_percent(each.efficiency)}"
        for each in software.reached[:_NAMED]
    ]
    more = len(software.reached) - len(named)
    tail = f", {more} more" if more else ""
    verb = "reach" if software.kind == "measured" else "are predicted to reach"
    return (
        f"Software: the operators {verb} {format_percent(software.efficiency)} of the {roof},"
        f" weighted by time (minimum {format_s(software.eager_min_time_s)} ÷ {software.kind}"
        f" {format_s(software.time_s)}{of_all}); {', '.join(named)}{tail}"
    )


# matplotlib's stubs leave the types of **kwargs open, which strict checking takes for unknown.
# pyright: basic


HEIGHT_INCH = 8.0

_LOSS: dict[str, Any] = {
    # Hatching distinguishes them in black-and-white print.
    "facecolor": "#fbe3d2",
    "edgecolor": "#eeb28b",
    "hatch": "////",
    "linewidth": 0.0,
    "zorder": 0.6,
}
_SOFTWARE: dict[str, Any] = {"facecolor": BLUE, "alpha": 0.13, "linewidth": 0.0, "zorder": 0.7}
_REACHED: dict[str, Any] = {"color": BLUE, "linewidth": 1.3}
_MOST_WORDS = 4

_THIN = 0.025  # Part of the height of the axes: areas less high than this have no words
_NARROW = 0.02  # Part of the width of the axes: areas of operators are no narrower than this


def draw_layers(
    figure: Figure,
    subject: Analysis | HardwareProfile,
    *,
    paper: HardwareProfile | str | Path | None = None,
    labels: int = 12,
) -> None:
    """Draw the theoretical roof, the measured one and what software reaches, shaded between."""
    theory = load_hardware(paper) if isinstance(paper, str | Path) else paper
    axes = figure.subplots()
    if isinstance(subject, HardwareProfile):
        layers, points = layers_of_machine(subject, theory), ()
        handles = draw_roofline(axes, layers.lines)
        who = printable(subject.host.cpu_model if subject.host else subject.description)
        kinds = {
            "theoretical": any(each.theoretical_per_s for each in layers.all),
            "measured": any(each.measured_per_s for each in layers.all),
        }
        known = " and ".join(kind for kind, is_known in kinds.items() if is_known)
        title = f"Roofline of {subject.name}" + f": {known} peaks" * bool(known)
        below = " · ".join(filter(None, (who, describe_threads(subject, subject.threads))))
        notes, warnings = [library_note(layers)], []
    else:
        layers, points = layers_of_analysis(subject, theory), points_of(subject)
        spots = [end for each in layers.shown for end in layers.ends(each)]
        handles = draw_on(axes, subject, layers.lines, labels=0, spots=spots)
        title, below = title_of(subject), subtitle_of(subject)
        notes, warnings = [software_note(layers)], picture_warnings(subject)
    profile = subject if isinstance(subject, HardwareProfile) else subject.hardware
    texts = [*_draw_losses(axes, layers), *_draw_software(axes, layers)]
    name_points(axes, points, labels, layers.lines, texts=texts)
    title_figure(figure, title, below)
    foot_figure(
        figure,
        [*handles, *_handles(layers)],
        [*loss_notes(layers.all), *filter(None, notes), provenance_text(profile)],
        warnings,
        columns=4,
    )


def _draw_losses(axes: Axes, layers: RoofLayers) -> Iterator[tuple[float, float, str]]:
    """Shade from theoretical to measured; yield losses and theoretical ridges in words."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    least_x, least_y = _THIN * math.log(right / left), _THIN * math.log(top / bottom)
    for each in layers.lossy:
        low, high = each.per_s, each.theoretical_per_s or 0.0
        middle = math.sqrt(low * high)
        if each.what == "compute":
            _between(axes, low, high, layers.fastest_bytes_per_s, _LOSS)
            x, y = right**0.95 * left**0.05, middle
        else:
            # Beyond the axes; lines stay straight on logarithmic axes.
            start, end = left / 10, layers.top_flop_per_s or top * 10
            corners = (start, end / low, end / high, start)
            axes.fill(corners, (start * low, end, end, start * high), **_LOSS)
            start = max(left, bottom / middle)
            x = math.sqrt(start * min((layers.top_flop_per_s or top) / middle, right))
            y = x * middle
        if math.log(high / low) >= least_y:
            yield x, y, format_loss(each.loss or 0.0)
    if layers.software is None:
        for each, best in layers.library_gaps:
            fastest = max((level.per_s for level in layers.memory), default=None)
            _between(axes, best.flop_per_s, each.per_s, fastest, _SOFTWARE)
    main = layers.lines.main_top_flop_per_s or 1.0
    measured = [each.ridge_flop_per_byte for each in layers.lines.diagonals]
    for x, y in layers.theoretical_ridges:
        axes.plot(x, y, "D", markersize=5, zorder=4, mfc="white", mec=THEORETICAL)
        is_apart = abs(math.log(y / main)) > least_y
        if any(is_apart or abs(math.log(x / each)) > least_x for each in measured if each):
            yield x, y, f"{format_intensity(x)} theoretical"


def _between(
    axes: Axes, low: float, high: float, bytes_per_s: float | None, look: dict[str, Any]
) -> None:
    """Shade between two ceilings, right of a memory level if any is known."""
    left, right = axes.get_xlim()[0] / 10, axes.get_xlim()[1] * 10
    starts = (low / bytes_per_s, high / bytes_per_s) if bytes_per_s else (left, left)
    axes.fill((*starts, right, right), (low, high, high, low), **look)


def _draw_software(axes: Axes, layers: RoofLayers) -> Iterator[tuple[float, float, str]]:
    """Shade under each line what its operators do not reach; yield efficiencies in words."""
    what = "reached" if layers.software and layers.software.kind == "measured" else "predicted"
    left, right = axes.get_xlim()
    narrow = (right / left) ** _NARROW
    for number, each in enumerate(layers.shown):
        line, ends = layers.roof[each.ceiling], layers.ends(each)
        (low, _), (high, _) = ends
        by = math.sqrt(max(1.0, narrow * low / high))
        x = (low / by, high * by)
        roof = [line.height(place) for place in x]
        reached = [each.efficiency * rate for rate in roof]
        axes.fill_between(x, reached, roof, **_SOFTWARE)
        axes.plot(x, reached, zorder=2.2, **_REACHED)
        if number < _MOST_WORDS:
            words = f"{format_percent(each.efficiency)} of {printable(line.subject)} {what}"
            yield *ends[0 if isinstance(line, LevelRoof) else 1], words


def _handles(layers: RoofLayers) -> Iterator[Artist]:
    """Return legend handles of shaded areas."""
    if layers.lossy:
        yield Patch(label="hardware loss: below the theoretical peak", **_LOSS)
    if layers.shown and layers.software:
        kind = "reached by" if layers.software.kind == "measured" else "predicted for"
        yield Patch(label="software loss: between roofline and operators", **_SOFTWARE)
        yield Line2D([], [], label=f"{kind} operators, mean", **_REACHED)
    elif layers.software is None and layers.library_gaps:
        yield Patch(label="software loss: not reached by the library", **_SOFTWARE)
