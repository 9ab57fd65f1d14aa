"""Words of reports: what others wrote made safe to show, and numbers with their nouns."""

from __future__ import annotations


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
