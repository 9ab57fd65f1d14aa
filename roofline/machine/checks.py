"""What no field of a hardware profile can hold; each check raises ValueError with the field's name.

A profile's fields are written by people, too: what cannot be true is refused where it is said.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable


def check_positive(name: str, value: float | None) -> None:
    """Refuses what is not a finite number greater than 0; None is unknown, and no error."""
    if value is not None and not 0 < value < math.inf:
        raise ValueError(f"{name} must be greater than 0, got {value}")


def check_from_zero(name: str, value: float | None) -> None:
    """Refuses what is not a finite number from 0; None is unknown, and no error."""
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number from 0, got {value}")


def check_rates(unit: str, peak: float, sustained: float, spread: float | None) -> None:
    """Refuses rates that are not positive, a sustained one above the peak, and a negative spread.

    `unit` is that of the fields: ``peak_flop_per_s`` ends in ``flop_per_s``.
    """
    check_positive(f"peak_{unit}", peak)
    check_positive(f"sustained_{unit}", sustained)
    check_from_zero("spread", spread)
    if sustained > peak:
        raise ValueError(f"sustained_{unit} ({sustained:g}) must not exceed peak_{unit} ({peak:g})")


def check_name(what: str, name: str) -> None:
    """Refuses an empty name, and one that no table or command line can hold."""
    if not name.strip() or not name.isprintable():
        raise ValueError(f"{what} must be a name on one line, got {name!r}")


def check_differ(what: str, labels: Iterable[str]) -> None:
    """Refuses a label that stands twice: which of the two is meant, nobody could say."""
    seen: set[str] = set()
    for label in labels:
        if label in seen:
            raise ValueError(f"{what} must differ, but '{label}' is there twice")
        seen.add(label)


_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")


def check_date(name: str, text: str) -> None:
    """Refuses what is no date by ISO 8601; a day or month may be missing, ``""`` is unknown."""
    if not text:
        return
    try:
        if not _DATE.fullmatch(text):
            raise ValueError
        datetime.date.fromisoformat(text + "-01" * (2 - text.count("-")))
    except ValueError:
        raise ValueError(
            f"{name} must be as in 2026-01-31, 2026-01 or 2026, got {text!r}"
        ) from None
