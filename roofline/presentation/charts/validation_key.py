"""What the marks and lines in the picture of a validation mean, in rows below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.plots.style import Style
from roofline.presentation.charts.labels import Box, Label, cut_to, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT
from roofline.presentation.charts.validation_points import JudgedPoints

KEY_LINE_PT = 15.0

KeyLine = Literal["exact", "within 10", "within 20", "interval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """A mark or a line centred at (x, y), and its words."""

    x_pt: float
    y_pt: float
    label: Label
    style: Style | None = None
    line: KeyLine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    text: str
    style: Style | None = None
    line: KeyLine | None = None


def key_of(found: JudgedPoints, area: Box, *, near: bool) -> tuple[KeyEntry, ...]:
    """What marks and lines mean, in rows from the top of `area`."""
    lines = [_Wanted(text="predicted = measured" if near else "bound", line="exact")]
    if near:
        lines.append(_Wanted(text="within ±10 %", line="within 10"))
        lines.append(_Wanted(text="within ±20 %", line="within 20"))
    if any(each.low is not None for each in found.points):
        lines.append(_Wanted(text="interval, 10–90 %", line="interval"))
    marks = [_Wanted(text=text, style=style) for text, style in found.key]
    entries: list[KeyEntry] = []
    top = area.top
    for group in (marks, lines):
        left = area.left
        for each in group:
            swatch = 10.0 if each.style else 20.0
            text = cut_to(each.text, area.right - area.left - swatch - 4, SMALL_PT)
            width = text_width_pt(text, SMALL_PT)
            if left > area.left and left + swatch + 4 + width > area.right:
                left, top = area.left, top - KEY_LINE_PT
            middle = top - KEY_LINE_PT / 2
            box = text_box(text, left + swatch + 4 + width / 2, middle, SMALL_PT)
            entries.append(
                KeyEntry(
                    x_pt=left + swatch / 2,
                    y_pt=middle,
                    label=Label(text=text, box=box, size_pt=SMALL_PT),
                    style=each.style,
                    line=each.line,
                )
            )
            left = box.right + 14
        top -= KEY_LINE_PT * bool(group)
    return tuple(entries)
