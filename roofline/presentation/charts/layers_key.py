"""The words below the two-layer picture: what its lines and shadings are, and the losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from roofline.presentation.charts.labels import Box, Label, text_box, text_width_pt
from roofline.presentation.charts.lettering import SMALL_PT

Kind = Literal["measured", "library", "paper", "loss", "software", "reached"]

_ROW_PT = 14.0
_NOTE_PT = 10.5
_SWATCH_PT = 20.0
_BETWEEN_PT = 14.0
_INDENT_PT = 10.0
_ABOVE_PT = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry:
    """A line or a swatch of shading, 20 points wide, centred at (x, y), and its words."""

    kind: Kind
    x_pt: float
    y_pt: float
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The entries in rows, and below them the notes, line by line."""

    entries: tuple[KeyEntry, ...]
    notes: tuple[Label, ...]


def wrapped(texts: Sequence[str], width_pt: float) -> tuple[tuple[str, ...], ...]:
    """Each text as lines that are no wider than `width_pt`; all but its first are indented."""
    return tuple(_lines(text, width_pt) for text in texts)


def key_height_pt(
    kinds: Sequence[tuple[Kind, str]], notes: Sequence[Sequence[str]], width_pt: float
) -> float:
    """How much room the key takes."""
    rows = {each.y_pt for each in _entries(kinds, Box(0.0, 0.0, width_pt, 0.0))}
    return _ROW_PT * len(rows) + _NOTE_PT * sum(map(len, notes)) + 3 * _ABOVE_PT


def key_of(kinds: Sequence[tuple[Kind, str]], notes: Sequence[Sequence[str]], corner: Box) -> Key:
    """The key, standing on the lower edge of `corner` and as wide."""
    height = key_height_pt(kinds, notes, corner.right - corner.left)
    top = corner.bottom + height - _ABOVE_PT
    entries = _entries(kinds, Box(corner.left, 0.0, corner.right, top))
    lowest = min((each.y_pt - _ROW_PT / 2 for each in entries), default=top)
    labels: list[Label] = []
    middle = lowest - _ABOVE_PT - _NOTE_PT / 2
    for note in notes:
        for number, line in enumerate(note):
            labels.append(_from(corner.left + _INDENT_PT * (number > 0), middle, line))
            middle -= _NOTE_PT
    return Key(entries=entries, notes=tuple(labels))


def _entries(kinds: Sequence[tuple[Kind, str]], area: Box) -> tuple[KeyEntry, ...]:
    """The entries in rows from the top of `area`."""
    found: list[KeyEntry] = []
    left, middle = area.left, area.top - _ROW_PT / 2
    for kind, text in kinds:
        width = _SWATCH_PT + 4 + text_width_pt(text, SMALL_PT)
        if left + width > area.right and left > area.left:
            left, middle = area.left, middle - _ROW_PT
        found.append(
            KeyEntry(
                kind=kind,
                x_pt=left + _SWATCH_PT / 2,
                y_pt=middle,
                label=_from(left + _SWATCH_PT + 4, middle, text),
            )
        )
        left += width + _BETWEEN_PT
    return tuple(found)


def _from(left: float, y: float, text: str) -> Label:
    width = text_width_pt(text, SMALL_PT)
    return Label(text=text, box=text_box(text, left + width / 2, y, SMALL_PT), size_pt=SMALL_PT)


def _lines(text: str, width_pt: float) -> tuple[str, ...]:
    lines: list[str] = []
    for word in text.split(" "):
        room = width_pt - _INDENT_PT * (len(lines) > 1)
        if lines and text_width_pt(f"{lines[-1]} {word}", SMALL_PT) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return tuple(lines)
