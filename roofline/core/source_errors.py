"""Errors at a position in a text of the user, shown with a caret."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

from roofline.core.text import printable
from roofline.errors import ModelError

_INDENT = "  "
_CUT = "..."
_LEAST_COLUMNS = 40


class PlacedError(ModelError):
    """An error at one position of a text.

    Args:
        message: what is wrong and the fix, in one line.
        text: the complete text.
        at: index of the error in `text`; its length if something is missing at the end.
    """

    def __init__(self, message: str, text: str, at: int) -> None:
        # All arguments, for pickling.
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
    """Return the text on one line, cut if too long, and a line with a caret.

    Args:
        text: the text; control characters are escaped.
        at: index of the position.
        columns: maximum width; wide characters take two columns.
        spelled: replacement of characters that the stream cannot encode.
    """
    letters = [spelled(printable(letter)) for letter in text]
    widths = [columns_of(letter) for letter in letters]
    room = max(columns, _LEAST_COLUMNS) - len(_INDENT) - 2 * len(_CUT) - 1
    start = end = min(at, len(letters))
    used = 0
    # Half of the width before the position, the rest after it.
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
    """Return the width of a printable text in terminal columns."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )
