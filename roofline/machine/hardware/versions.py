"""The version of hardware profiles, and the steps to it from older ones (docs/file-formats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline.foundation import schema

SCHEMA_VERSION = 4
"""Of hardware profiles: older ones are migrated, newer ones refused (docs/file-formats.md)."""


def _overheads_with_provenance(profile: dict[str, Any]) -> dict[str, Any]:
    """Version 2 kept overheads as seconds by name, without saying where they come from."""
    old = profile.get("overheads")
    if not isinstance(old, dict):
        # A list is what version 3 has; its reader says what is wrong with anything else.
        return profile
    new: list[dict[str, Any]] = [
        {
            "name": name,
            "threads": 1,
            "time": {
                "fast_s": seconds,
                "median_s": seconds,
                "provenance": {
                    "source": "measured",
                    "reference": "median of calls, kept by version 2 without spread and date",
                    "date": "",
                },
            },
        }
        for name, seconds in old.items()  # pyright: ignore
    ]
    return {**profile, "overheads": new}


STEPS: Mapping[int, schema.Step] = {
    # Version 2 knows more devices; what version 1 says means the same in it.
    1: lambda profile: profile,
    2: _overheads_with_provenance,
    # Version 4 has more keys, all of which may be left out.
    3: lambda profile: profile,
}
