"""The raw samples behind a profile: every burst, in a file beside it.

A profile keeps two quantiles and a spread; who doubts them, or wants another estimator, finds here
what they were made of.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roofline.machine.measuring.estimation import Burst

SCHEMA_VERSION = 1

Quantity = Literal["flop", "byte", "load", "cycle", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The bursts of one trial in the order they were timed.

    Each did ``work`` of ``quantity``, all threads together, so that rate = work / wall time.
    """

    label: str
    quantity: Quantity
    work: float
    bursts: tuple[Burst, ...]


def samples_file(profile: Path) -> Path:
    """Where the samples of the profile in that file are: ``host.samples.json`` of ``host.toml``."""
    return profile.with_suffix(".samples.json")


def samples_text(series: Sequence[Series], *, name: str) -> str:
    """The samples of the profile called `name`, as JSON."""
    return json.dumps(_data(series, name), separators=(",", ":"))


def _data(series: Sequence[Series], name: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "samples of a hardware profile",
        "profile": name,
        "series": [
            {
                "label": each.label,
                "quantity": each.quantity,
                "work": each.work,
                # Clocks have no more than nanoseconds, and of the busy fraction three digits tell.
                "wall_ns": [round(burst.wall_s * 1e9) for burst in each.bursts],
                "cpu_ns": [round(burst.cpu_s * 1e9) for burst in each.bursts],
                "busy": [round(burst.busy, 3) for burst in each.bursts],
            }
            for each in series
        ],
    }
