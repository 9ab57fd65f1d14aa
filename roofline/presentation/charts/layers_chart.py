"""The two-layer picture as data: paper over measurement over what software reaches, shaded between.

The hardware's loss is what lies between the roof on paper and the measured one; the software's is
what lies between the roof and the roof times the efficiency of the operators under each of its
lines, from the least to the greatest intensity among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from roofline.analysis import Analysis
from roofline.analysis.words import provenance_words
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.plots.roof import Ceiling
from roofline.presentation.charts.chart import Chart, Extras, composed, foot_pt
from roofline.presentation.charts.labels import Box, Label, Segment
from roofline.presentation.charts.layers_areas import (
    Area,
    Corner,
    Ends,
    Frame,
)
from roofline.presentation.charts.layers_key import Key, key_height_pt, key_of, wrapped
from roofline.presentation.charts.layers_lines import (
    LayerLines,
    lines_of_analysis,
    lines_of_machine,
)
from roofline.presentation.charts.layers_losses import layer_notes
from roofline.presentation.charts.layers_shades import losses, reached_line, shown_of, unreached
from roofline.presentation.charts.layers_software import (
    software_note,
    software_of,
)
from roofline.presentation.charts.layers_words import (
    kinds_of,
    library_note,
    words_of_losses,
    words_of_software,
)
from roofline.presentation.charts.lettering import TurnedText, ceiling_labels
from roofline.presentation.charts.subjects import Subject, subject_of

_EDGE_PT = 12.0
_TOUCHING = 0.25
"""The part of a text along a line that may touch another before it is left out."""

_USUAL_PT, _LEAST_PT = 468.0, 260.0
"""Heights without the key and the words below the axes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersChart:
    """A roofline picture with its layers; all that is added to ``base`` is in points.

    ``paper`` are the lines of the roof on paper, ``paper_labels`` the words of its ceilings,
    ``paper_ridges`` where both meet; ``reached`` are the lines that operators reach.
    """

    base: Chart
    areas: tuple[Area, ...]
    paper: tuple[Segment, ...]
    paper_labels: tuple[Label, ...]
    paper_ridges: tuple[Corner, ...]
    reached: tuple[Segment, ...]
    key: Key


def layers_chart_of(
    subject: Analysis | HardwareProfile,
    *,
    paper: HardwareProfile | None = None,
    labels: int = 12,
    width_pt: float = 720.0,
    height_pt: float | None = None,
) -> LayersChart:
    """The two-layer picture of an analysis, or of a machine by itself.

    Args:
        subject: an analysis, whose operators are drawn under the roof; or a machine's profile.
        paper: a profile of the same machine whose figures are those on paper; None: those that the
            machine's own profile knows.
        labels: how many of the longest operators to name, where there is room.
        width_pt: the picture's width in points.
        height_pt: its height in points; None: 468, and what the words below the axes take.

    Raises:
        InputError: `paper` is of another sort of machine, or has no figures on paper for this one;
            or `height_pt` leaves no room for the axes.
    """
    if isinstance(subject, HardwareProfile):
        lines, software = lines_of_machine(subject, paper), None
        drawn, said = _machine_alone(subject, lines), library_note(lines)
    else:
        lines, software = lines_of_analysis(subject, paper), software_of(subject)
        drawn = subject_of(subject, lines.lines)
        roof = "measured roof" if lines.is_measured else "roof on paper"
        said = software_note(software, roof=roof)
    room = width_pt - 2 * _EDGE_PT
    notes = wrapped([*layer_notes(lines.all), *([said] if said else [])], room)
    kinds = kinds_of(lines, software)
    ceilings = lines.paper_ceilings
    bare = Extras(
        below_pt=key_height_pt(kinds, notes, room),
        beside=tuple(each.label for each in ceilings),
        spots=tuple((each.start_flop_per_byte or 1.0, each.flop_per_s) for each in ceilings),
        names_lines=False,
    )
    tall_pt = _USUAL_PT + bare.below_pt if height_pt is None else height_pt
    least_pt = _LEAST_PT + bare.below_pt
    if tall_pt < least_pt:
        raise InputError(
            f"height_inch {tall_pt / 72:.3g} is too low for the words below the axes: give at least"
            f" {math.ceil(least_pt / 7.2) / 10:.3g}, or leave it out"
        )
    size = {"width_pt": width_pt, "height_pt": tall_pt}
    axes = composed(drawn, bare, labels=0, **size)
    frame = Frame(x=axes.x, y=axes.y)
    shown = shown_of(software, lines)
    paper_lines = tuple(_on_paper(frame, lines, ceilings))
    reached = tuple(reached_line(frame, lines, each) for each in shown)
    words = (*words_of_losses(frame, lines), *words_of_software(software, shown, lines))
    extras = replace(bare, anchors=words, lines=(*paper_lines, *reached))
    base = composed(drawn, extras, labels=labels, **size)
    low_pt = base.strip.top + 4 if base.strip else base.frame.bottom
    beside = ceiling_labels([*base.ceilings, *ceilings], base.x, base.y, low_pt=low_pt)
    return LayersChart(
        base=replace(
            base,
            ceiling_labels=beside[: len(base.ceilings)],
            diagonal_labels=_legible(base.diagonal_labels),
            on_paper=lines.only_on_paper,
        ),
        areas=(*losses(frame, lines), *unreached(frame, lines, software)),
        paper=tuple(_segment(frame, each) for each in paper_lines),
        paper_labels=beside[len(base.ceilings) :],
        paper_ridges=tuple(map(frame.corner, lines.paper_ridges)),
        reached=tuple(_segment(frame, each) for each in reached),
        key=key_of(kinds, notes, Box(_EDGE_PT, foot_pt(drawn), width_pt - _EDGE_PT, 0.0)),
    )


def _machine_alone(profile: HardwareProfile, lines: LayerLines) -> Subject:
    who = printable(profile.host.cpu_model if profile.host else profile.description)
    threads = describe_threads(profile, profile.threads)
    known = any(each.paper_per_s is not None for each in lines.all)
    tail = ", on paper and measured" if known and lines.is_measured else " on paper" * known
    return Subject(
        names=f"What {printable(profile.name)} can do{tail}",
        machine=" · ".join(filter(None, (who, threads))),
        provenance=provenance_words(profile),
        lines=lines.lines,
    )


def _on_paper(frame: Frame, lines: LayerLines, ceilings: tuple[Ceiling, ...]) -> Iterator[Ends]:
    """The lines of the roof on paper."""
    for ceiling in ceilings:
        yield ceiling.ends(frame.x)
    top = max((each.paper_per_s or each.per_s for each in lines.compute), default=frame.y.high)
    for each in lines.memory:
        if each.paper_per_s is not None and each.measured_per_s is not None:
            rate = each.paper_per_s
            start = max(frame.x.low, frame.y.low / rate)
            end = min(top / rate, frame.x.high, frame.y.high / rate)
            yield (start, start * rate), (end, end * rate)


def _segment(frame: Frame, ends: Ends) -> Segment:
    return Segment(*frame.corner(ends[0]), *frame.corner(ends[1]))


def _legible(texts: Sequence[TurnedText]) -> tuple[TurnedText, ...]:
    """The words along lines that do not lie on each other; the others stay empty."""
    kept: list[TurnedText] = []
    for text in texts:
        boxes = [box for other in kept for box in other.boxes]
        # The squares that cover turned words are larger than the words: a few may touch.
        hidden = sum(any(mine.overlaps(other) for other in boxes) for mine in text.boxes)
        most = _TOUCHING * len(text.boxes)
        kept.append(replace(text, text="", boxes=()) if hidden > most else text)
    return tuple(kept)
