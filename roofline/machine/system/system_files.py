"""Text under ``/proc`` and ``/sys``: read where it can be, unknown where it is not what it should.

Sandboxes show such files empty, cut short or filled with other things; nothing here raises.
"""

from __future__ import annotations

from pathlib import Path

_MOST_DIGITS = 20
"""The kernel counts in 64 bits; longer digits are no number of its own."""

_MOST_CPUS = 1 << 16
"""Far more than any kernel is built for; a list that names later ones is damaged."""


def read(path: Path) -> str:
    """The stripped text of a file; ``""`` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError):  # a path made of damaged text may hold a zero byte
        return ""


def is_folder(path: Path) -> bool:
    """Whether a folder can be seen there."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def whole_number(text: str) -> int | None:
    """The number from 0 on that `text` is; None if it is anything else."""
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits)


def table(text: str, separator: str = ":") -> dict[str, str]:
    """Lines of key, `separator` and value; of a key that comes again the first value."""
    rows: dict[str, str] = {}
    for line in text.splitlines():
        key, found, value = line.partition(separator)
        if found:
            rows.setdefault(key.strip(), value.strip())
    return rows


def kilobytes(text: str) -> int | None:
    """The bytes of ``"1024 kB"``; None if `text` is something else."""
    words = text.split()
    number = whole_number(words[0]) if len(words) == 2 and words[1] == "kB" else None
    return None if number is None else number * 1024


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs in the kernel's notation: ``"0-2,5"`` is (0, 1, 2, 5); without damaged parts."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, is_range, last = part.partition("-")
        low = whole_number(first)
        high = whole_number(last) if is_range else low
        if low is not None and high is not None and low <= high < _MOST_CPUS:
            cpus.update(range(low, high + 1))
    return tuple(sorted(cpus))
