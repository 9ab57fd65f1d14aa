"""Latency and bandwidth over the size of the working set, with the sizes of the caches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_capacity
from roofline.machine.hardware import BandwidthCurve, HardwareProfile, MemoryLevel
from roofline.plots.style import BLUE, VERMILION
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, spread, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT

HEIGHT_PT = 200.0
_MARKS_PT = 14.0
_TICKS_X_PT = 36.0
_TICKS_Y_PT = 52.0
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAxis(LogAxis):
    """A logarithmic axis of capacities: its ticks are powers of two."""

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Sizes with their text, 16 times apart, or 4 times where the range is short."""
        step = 4 if self.high / self.low > 2**10 else 2
        return tuple(
            (2.0**power, format_capacity(2**power)) for power in self._powers if power % step == 0
        )

    @property
    def between(self) -> tuple[float, ...]:
        """The other powers of two."""
        return tuple(2.0**power for power in self._powers)

    @property
    def _powers(self) -> range:
        return range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A line through (size, value); its words stand in the upper right corner, a swatch before.

    The only line of its axes has no words: the axis says what it is.
    """

    points: tuple[tuple[float, float], ...]
    colour: str
    label: Label | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheMark:
    """The size of a cache, a line down the axes, with its name above."""

    size_byte: int
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePanel:
    """Curves over one axis of sizes."""

    x: SizeAxis
    y: LogAxis
    courses: tuple[Course, ...]
    marks: tuple[CacheMark, ...]

    @property
    def frame(self) -> Box:
        """The box of the axes."""
        return Box(self.x.start_pt, self.y.start_pt, self.x.end_pt, self.y.end_pt)


def curve_panels(profile: HardwareProfile, area: Box) -> tuple[CurvePanel, ...]:
    """Latency at the left, bandwidth at the right; one that is not known leaves the other all."""
    latency = profile.latency_curve
    curves = _chosen(profile.bandwidth_curves)
    count = bool(latency) + bool(curves)
    if not count:
        return ()
    gap = 16.0
    width = (area.right - area.left - gap * (count - 1)) / count
    panels: list[CurvePanel] = []
    if latency:
        points = [
            (float(size), _NS * value)
            for size, value in zip(latency.size_byte, latency.latency_s, strict=True)
        ]
        box = Box(area.left, area.bottom, area.left + width, area.top)
        title = "latency of a dependent load (ns)"
        panels.append(_panel(title, {"latency": points}, profile.memory, box))
    if curves:
        named = {
            f"{each.kernel}, {counted(each.threads, 'thread')}": list(
                zip(map(float, each.size_byte), each.byte_per_s, strict=True)
            )
            for each in curves
        }
        box = Box(area.right - width, area.bottom, area.right, area.top)
        panels.append(_panel("bandwidth (byte/s)", named, profile.memory, box))
    return tuple(panels)


def _chosen(curves: Sequence[BandwidthCurve]) -> list[BandwidthCurve]:
    """Those of reading, or of the first kernel there is: fewest and most threads."""
    kernels = [each.kernel for each in curves]
    kernel = "read" if "read" in kernels else next(iter(kernels), None)
    found = sorted(
        (each for each in curves if each.kernel == kernel), key=lambda each: each.threads
    )
    return [found[0], found[-1]] if len(found) > 1 else found


def _panel(
    title: str,
    curves: dict[str, list[tuple[float, float]]],
    levels: Sequence[MemoryLevel],
    area: Box,
) -> CurvePanel:
    sizes = [size for points in curves.values() for size, _ in points]
    values = [value for points in curves.values() for _, value in points]
    x = SizeAxis(
        title="working set of each thread",
        low=min(sizes) / 1.15,
        high=max(max(sizes) * 1.15, 8 * min(sizes)),
        start_pt=area.left + _TICKS_Y_PT,
        end_pt=area.right - 6,
    )
    y = LogAxis(
        title=title,
        low=min(values) / 1.6,
        high=max(1.8 * max(values), 8 * min(values)),
        start_pt=area.bottom + _TICKS_X_PT,
        end_pt=area.top - _MARKS_PT,
    )
    words = _legend(list(curves), x, y) if len(curves) > 1 else [None]
    return CurvePanel(
        x=x,
        y=y,
        courses=tuple(
            Course(points=tuple(points), colour=colour, label=label)
            for points, colour, label in zip(
                curves.values(), (BLUE, VERMILION), words, strict=False
            )
        ),
        marks=_marks(levels, x, y),
    )


def _legend(names: Sequence[str], x: LogAxis, y: LogAxis) -> list[Label]:
    """The names below each other, the last on top as its line is; curves of rates fall."""
    left = x.end_pt - 4 - max(text_width_pt(name, SMALL_PT) for name in names)
    labels: list[Label] = []
    for i, name in enumerate(reversed(names)):
        middle = left + text_width_pt(name, SMALL_PT) / 2
        box = text_box(name, middle, y.end_pt - 8 - 12 * i, SMALL_PT)
        labels.append(Label(text=name, box=box, size_pt=SMALL_PT))
    return labels[::-1]


def _marks(levels: Sequence[MemoryLevel], x: LogAxis, y: LogAxis) -> tuple[CacheMark, ...]:
    known = [
        (level.capacity_byte, f"{printable(level.name)} {format_capacity(level.capacity_byte)}")
        for level in levels
        if level.capacity_byte and x.low < level.capacity_byte < x.high
    ]
    widths = [text_width_pt(text, SMALL_PT) for _, text in known]
    gap = max(widths, default=0.0) + 4
    low, high = x.start_pt + gap / 2, x.end_pt - gap / 2
    centres = spread([x.pt(size) for size, _ in known], gap=gap, low=low, high=high)
    return tuple(
        CacheMark(
            size_byte=size,
            label=Label(
                text=text,
                box=text_box(text, centre, y.end_pt + 7, SMALL_PT),
                size_pt=SMALL_PT,
            ),
        )
        for (size, text), centre in zip(known, centres, strict=True)
    )
