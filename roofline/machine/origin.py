"""Where a machine's figures are from, and how old they are."""

from __future__ import annotations

import re
from datetime import date

from roofline.foundation.text import printable
from roofline.machine.hardware import HardwareProfile

_ADDRESS = re.compile(r",? *https?://[^\s,;]+")


def age(day: str, today: date | None) -> str:
    """The date, and where `today` is given how long ago that was: ``"3 days ago (2026-03-04)"``."""
    try:
        then = date.fromisoformat(day[:10])
    except ValueError:
        return printable(day)
    days = (today - then).days if today else -1
    if days < 0:
        return f"on {then.isoformat()}"
    if days >= 60:
        return f"{days // 30} months ago ({then.isoformat()})"
    words = "today" if days == 0 else "1 day ago" if days == 1 else f"{days} days ago"
    return f"{words} ({then.isoformat()})"


def origin(profile: HardwareProfile, today: date | None) -> str:
    """Where a profile's numbers come from: ``"measured 3 days ago (2026-03-04)"``."""
    sources = {each.source for each in profile.provenances()}
    when = f" {age(profile.date, today)}" if profile.date else ""
    if not sources:
        return "no ceilings"
    if "measured" not in sources:
        return f"data sheet, not measured: {_references(profile)}"
    if sources != {"measured"}:
        return f"partly measured, partly from data sheets{when}"
    if profile.host is not None:
        return f"measured{when}"
    return f"measured elsewhere{when}: {_references(profile)}"


def _references(profile: HardwareProfile) -> str:
    """What the numbers are taken from; the addresses stand with `roofline hardware show`."""
    names = (_ADDRESS.sub("", each.reference) for each in profile.provenances())
    return "; ".join(dict.fromkeys(map(printable, names)))
