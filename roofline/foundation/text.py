"""Text that was written by others, made safe to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` on one line; control characters (escape sequences, line ends) as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
