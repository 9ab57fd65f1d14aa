"""Text of reports: escaped control characters, counts with their nouns, minor notes."""

from __future__ import annotations

NOTE = "note: "
"""Prefix of a minor note: a warning that changes no printed figure by more than 2 %."""


def printable(text: str) -> str:
    """`text` on one line; control characters (escape sequences, line ends) as escapes."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def counted(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: ``"1 run"``, ``"3,400 operators"``.

    Args:
        count: the number.
        one: the noun in the singular.
        many: in the plural; ``""``: with an s.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
