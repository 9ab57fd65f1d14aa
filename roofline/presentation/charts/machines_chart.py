"""Several roofs in one picture, as data: every line, mark and word with its place.

Places on paper are in points from the lower left corner, as in `chart`. Operators that matter are
numbered: their dots on all roofs hang on one line, filled where the operator is compute-bound and
hollow where it is memory-bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.design.machine_comparison import Across, MachineComparison, MachineSummary
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_percent, format_shape
from roofline.plots.style import roof_styles
from roofline.presentation.charts.axes import LogAxis
from roofline.presentation.charts.labels import Box, Label, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import CEILING_GAP_PT, SMALL_PT, TurnedText
from roofline.presentation.charts.machines_dots import (
    BADGES_PT,
    NumberedOperator,
    chosen_operators,
    numbered_operators,
)
from roofline.presentation.charts.machines_panel import (
    NumberedName,
    Panel,
    names_of,
    panel_height_pt,
    panel_of,
)
from roofline.presentation.charts.machines_roofs import (
    MachineRoof,
    in_turns,
    intensity_axis,
    labelled,
    level_labels_of,
    rate_axis,
    roof_of,
    spot_of,
)
from roofline.presentation.reports.machines_tables import names_across

TITLE_SIZE_PT = 13.0
_EDGE_PT = 12.0
_TITLE_PT = 46.0
_TICKS_X_PT = 38.0
_TICKS_Y_PT = 52.0
_FOOT_PT = 13.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What lies between the lowest and the highest ridge, where operators change sides."""

    box: Box
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinesChart:
    """A picture of ``width_pt`` x ``height_pt`` of one model on several machines.

    ``band`` is None unless every machine is one of a single memory level: only then does an
    operator have the same intensity on all of them.
    """

    width_pt: float
    height_pt: float
    title: str
    verdict: str
    provenance: str
    x: LogAxis
    y: LogAxis
    roofs: tuple[MachineRoof, ...]
    level_labels: tuple[TurnedText, ...]
    operators: tuple[NumberedOperator, ...]
    band: Band | None
    panel: Panel
    names: tuple[NumberedName, ...]
    notes: tuple[str, ...]

    @property
    def frame(self) -> Box:
        """The box of the axes."""
        return Box(self.x.start_pt, self.y.start_pt, self.x.end_pt, self.y.end_pt)


def machines_chart_of(
    comparison: MachineComparison, *, labels: int = 8, width_pt: float = 720.0
) -> MachinesChart:
    """The picture of a model on several machines; as high as the machines need.

    Args:
        comparison: what to draw.
        labels: how many operators to number; those that change sides come first.
        width_pt: the picture's width in points.
    """
    machines = comparison.machines
    styles = roof_styles(len(machines))
    plain = [roof_of(comparison.analyses[i], machines[i], styles[i]) for i in range(len(machines))]
    room = max(
        (text_width_pt(each.ceiling.label, SMALL_PT) for each in plain if each.ceiling), default=0.0
    )
    x = intensity_axis(plain, _EDGE_PT + _TICKS_Y_PT, width_pt - _EDGE_PT - CEILING_GAP_PT - room)
    chosen = chosen_operators(comparison, max(0, labels), x)
    names = names_across(comparison, chosen)
    notes = _notes(comparison)
    # From the bottom up: notes, the numbered names, the panel, the axes, badges, the title.
    bottom = _EDGE_PT + _FOOT_PT * (1 + len(notes))
    numbered = names_of(chosen, names, Box(_EDGE_PT, bottom, width_pt - _EDGE_PT, bottom))
    bottom = max((each.label.box.top for each in numbered), default=bottom) + 8
    area = Box(_EDGE_PT, bottom, width_pt - _EDGE_PT, bottom + panel_height_pt(len(machines)))
    panel = panel_of(machines, styles, chosen, area)
    y = rate_axis(plain, area.top + _TICKS_X_PT)
    roofs = in_turns(labelled(plain, x, y), x, y)
    operators = numbered_operators(chosen, x, y)
    inputs = ", ".join(
        f"{format_shape(each.shape)} {each.dtype}" for each in comparison.analyses[0].inputs
    )
    model = printable(comparison.analyses[0].model)
    title = " · ".join(filter(None, [f"{model} on {len(machines)} machines", inputs]))
    level_labels = level_labels_of(
        roofs, x, y, avoid=[dot.box for each in operators for dot in each.dots]
    )
    has_caches = any(len(each.diagonals) > 1 for each in roofs)
    thin = "Thin lines: caches. " if has_caches and not level_labels else ""
    room = width_pt - 2 * _EDGE_PT
    verdict = printable(comparison.sentences[0])
    return MachinesChart(
        width_pt=width_pt,
        height_pt=y.end_pt + BADGES_PT + _TITLE_PT,
        title=cut_to(title, 0.9 * room, TITLE_SIZE_PT),
        verdict=cut_to(verdict[:1].upper() + verdict[1:], room, 8.5),
        provenance=cut_to(thin + _provenance(comparison), room, SMALL_PT - 0.5),
        x=x,
        y=y,
        roofs=roofs,
        level_labels=level_labels,
        operators=operators,
        band=_band(comparison, machines, x, y),
        panel=panel,
        names=numbered,
        notes=tuple(cut_to(note, room, SMALL_PT - 0.5) for note in notes),
    )


def _band(
    comparison: MachineComparison, machines: Sequence[MachineSummary], x: LogAxis, y: LogAxis
) -> Band | None:
    ridges = [each.ridge_flop_per_byte for each in machines if each.ridge_flop_per_byte]
    classic = all(each.hardware.knows_only_dram for each in comparison.analyses)
    if not classic or len(ridges) < 2 or min(ridges) == max(ridges):
        return None
    box = Box(x.pt(min(ridges)), y.start_pt, x.pt(max(ridges)), y.end_pt)
    text = "between the ridges"
    half = text_width_pt(text, SMALL_PT) / 2 + 2
    middle = min(max((box.left + box.right) / 2, x.start_pt + half), x.end_pt - half)
    at = text_box(text, middle, y.start_pt + 8, SMALL_PT)
    return Band(box=box, label=Label(text=text, box=at, size_pt=SMALL_PT))


def _notes(comparison: MachineComparison) -> tuple[str, ...]:
    """What has no place on the axes, and who changes sides outside the ridges."""
    aside = [across for across in comparison.operators if not any(map(spot_of, across))]
    return (*_beyond_ridges(comparison), *_aside(comparison, aside))


def _beyond_ridges(comparison: MachineComparison) -> tuple[str, ...]:
    """Who changes sides outside the ridges: bounds leave out FLOP that the convention counts."""
    ridges = [
        machine.ridge_flop_per_byte
        for machine in comparison.machines
        if machine.ridge_flop_per_byte
    ]
    if not ridges or not all(each.hardware.knows_only_dram for each in comparison.analyses):
        return ()
    beyond = sum(
        not min(ridges) <= (each.operators[0][0].intensity_flop_per_byte or 0.0) <= max(ridges)
        for each in comparison.groups(lambda across: across[0].index)
        if each.changes_sides
    )
    if not beyond:
        return ()
    stand = f"{counted(beyond, 'operator')} that change{'s' * (beyond == 1)} sides"
    return (
        f"{stand} stand{'s' * (beyond == 1)} outside the ridges: the convention counts FLOP that a"
        " kernel need not do (padding), and bounds leave them out",
    )


def _aside(comparison: MachineComparison, aside: Sequence[Across]) -> tuple[str, ...]:
    if not aside:
        return ()
    unknown = sum(across[0].flop is None for across in aside)
    without = sum(across[0].flop == 0 for across in aside)
    counts = {
        "without FLOP": without,
        "of unknown FLOP": unknown,
        "that no ceiling gives a time": len(aside) - unknown - without,
    }
    parts = [f"{count} {words}" for words, count in counts.items() if count]
    share = comparison.group(aside).largest_share
    rest = f": at most {format_percent(min(1.0, share))} of a machine's bound" if share else ""
    return (
        f"Of {len(comparison.operators)} operators, {' and '.join(parts)}"
        f" {'has' if len(aside) == 1 else 'have'} no place on the axes{rest}",
    )


def _provenance(comparison: MachineComparison) -> str:
    by_source: dict[str, list[str]] = {}
    for name, each in zip(comparison.names, comparison.analyses, strict=True):
        sources = {provenance.source for provenance in each.hardware.provenances()}
        if not sources:
            words = "unknown"
        elif "measured" not in sources:
            words = "from data sheets, not measured"
        elif sources == {"measured"}:
            words = "measured"
        else:
            words = "partly measured, partly from data sheets"
        by_source.setdefault(words, []).append(printable(name))
    parts = [f"{', '.join(names)} {words}" for words, names in by_source.items()]
    if len(parts) == 1:
        parts = [next(iter(by_source))]
    return f"Ceilings: {'; '.join(parts)}"
