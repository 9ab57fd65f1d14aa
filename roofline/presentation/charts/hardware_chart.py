"""The picture of a machine as data: its roof, paper against measurement, its curves over size."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.text import printable
from roofline.foundation.units import format_si
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.machine.origin import origin
from roofline.presentation.charts.hardware_curves import HEIGHT_PT, CurvePanel, curve_panels
from roofline.presentation.charts.hardware_losses import (
    LossPanel,
    loss_height_pt,
    loss_lines,
    loss_panel,
)
from roofline.presentation.charts.hardware_roof import RoofPanel, roof_panel
from roofline.presentation.charts.labels import Box, Label, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT

TITLE_SIZE_PT = 13.0
HEADING_SIZE_PT = 9.5
_EDGE_PT = 12.0
_TITLE_PT = 46.0
_FOOT_PT = 16.0
_HEADING_PT = 20.0
_GAP_PT = 12.0
_LEAST_ROOF_PT, _MOST_ROOF_PT = 270.0, 390.0
_ROOF_LINE_PT = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareChart:
    """A picture of ``width_pt`` x ``height_pt``, ready to be drawn; panels stand below each other.

    What is not known has no panel; ``headings`` stand above those that there are.
    """

    width_pt: float
    height_pt: float
    title: str
    machine: str
    provenance: str
    threads: str
    headings: tuple[Label, ...]
    roof: RoofPanel | None
    losses: LossPanel | None
    curves: tuple[CurvePanel, ...]


def hardware_chart_of(profile: HardwareProfile, *, width_pt: float = 720.0) -> HardwareChart:
    """The picture of a machine, as high as what is known of it."""
    lines = loss_lines(profile)
    heights = {
        "curves": HEIGHT_PT if profile.latency_curve or profile.bandwidth_curves else 0.0,
        "losses": loss_height_pt(lines) if lines else 0.0,
        "roof": _roof_height_pt(profile),
    }
    titles = {
        "curves": "Over the working set: the steps are the caches",
        "losses": "On paper, at the peak and in the median",
        "roof": "The roof",
    }
    areas: dict[str, Box] = {}
    headings: list[Label] = []
    bottom = _EDGE_PT + _FOOT_PT
    for name, height in heights.items():
        if height:
            areas[name] = Box(_EDGE_PT, bottom, width_pt - _EDGE_PT, bottom + height)
            headings.append(_heading(titles[name], bottom + height + _HEADING_PT / 2))
            bottom += height + _HEADING_PT + _GAP_PT
    room = width_pt - 2 * _EDGE_PT
    return HardwareChart(
        width_pt=width_pt,
        height_pt=bottom + _TITLE_PT - _GAP_PT,
        title=cut_to(_title(profile), 0.9 * room, TITLE_SIZE_PT),
        machine=cut_to(_machine(profile), room, 8.5),
        provenance=cut_to(f"Ceilings: {origin(profile, None)}", room, SMALL_PT - 0.5),
        threads=describe_threads(profile, profile.threads),
        headings=tuple(headings),
        roof=roof_panel(profile, areas["roof"]) if "roof" in areas else None,
        losses=loss_panel(profile, lines, areas["losses"]) if "losses" in areas else None,
        curves=curve_panels(profile, areas["curves"]) if "curves" in areas else (),
    )


def _roof_height_pt(profile: HardwareProfile) -> float:
    """Higher where many ceilings have their words beside it."""
    if not profile.compute and not profile.memory:
        return 0.0
    wanted = _LEAST_ROOF_PT + _ROOF_LINE_PT * (len(profile.compute) // 4)
    return min(wanted, _MOST_ROOF_PT)


def _heading(text: str, y: float) -> Label:
    width = text_width_pt(text, HEADING_SIZE_PT)
    box = text_box(text, _EDGE_PT + width / 2, y, HEADING_SIZE_PT)
    return Label(text=text, box=box, size_pt=HEADING_SIZE_PT)


def _title(profile: HardwareProfile) -> str:
    return f"What {printable(profile.name)} can do"


def _machine(profile: HardwareProfile) -> str:
    host = profile.host
    parts = [
        printable(host.cpu_model if host else profile.description),
        describe_threads(profile, profile.threads),
        f"{format_si(profile.clock.peak_hz, 'Hz')}" if profile.clock else "",
        f"effort {profile.effort}" if profile.effort != "unspecified" else "",
    ]
    return " · ".join(filter(None, parts))
