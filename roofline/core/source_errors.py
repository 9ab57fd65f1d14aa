"""Errors at a place in a text that the user wrote: the text is shown, with a caret under it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from roofline.core.text import printable
from roofline.errors import ModelError

_INDENT = "  "
_CUT = "..."
_LEAST_COLUMNS = 40


class PlacedError(ModelError):
    """What the user wrote is wrong at one place of it.

    Args:
        message: what is wrong and the fix, in one line.
        text: all of what was written.
        at: the index in `text` of what is wrong; its length where something is missing at the end.
    """

    def __init__(self, message: str, text: str, at: int) -> None:
        # All of it in args, so that it can be pickled.
        super().__init__(message, text, at)
        self.message = message
        self.text = text
        self.at = at

    def __str__(self) -> str:
        return "\n".join((self.message, *caret_lines(self.text, self.at)))


def caret_lines(
    text: str,
    at: int,
    *,
    columns: int = 100,
    spelled: Callable[[str], str] = str,
) -> tuple[str, str]:
    """The text on one line, cut where it is too long, and a line with a caret under a place.

    Args:
        text: what was written; control characters are shown as escapes.
        at: the index of the place.
        columns: how wide a line may be; wide characters take two columns.
        spelled: how the stream that it goes to will spell a character that its encoding lacks.
    """
    letters = [spelled(printable(letter)) for letter in text]
    widths = [columns_of(letter) for letter in letters]
    room = max(columns, _LEAST_COLUMNS) - len(_INDENT) - 2 * len(_CUT) - 1
    start = end = min(at, len(letters))
    used = 0
    # Half of the room before the place; what is left of it, after.
    while start > 0 and used + widths[start - 1] <= room // 2:
        start -= 1
        used += widths[start]
    while end < len(letters) and used + widths[end] <= room:
        used += widths[end]
        end += 1
    while start > 0 and used + widths[start - 1] <= room:
        start -= 1
        used += widths[start]
    before = _INDENT + (_CUT if start else "")
    after = _CUT if end < len(letters) else ""
    offset = len(before) + sum(widths[start : min(at, len(letters))])
    return f"{before}{''.join(letters[start:end])}{after}", f"{' ' * offset}^"


def columns_of(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )
