"""The raw samples behind a profile: every burst, in a file beside it.

A profile keeps two quantiles and a spread; who doubts them, or wants another estimator, finds here
what they were made of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from roofline.machine.measuring.estimation import Burst

SCHEMA_VERSION = 1

_WHOLE_NS = 1e6

Quantity = Literal["flop", "byte", "load", "cycle", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The bursts of one trial in the order they were timed.

    Each did ``work`` of ``quantity``, all threads together, so that rate = work / wall time. A
    burst's ``cpu_s`` and ``busy`` are NaN where only its rate was kept.
    ``hops_s`` says of each how long a cache line took from core to core just before (NaN: not
    known); empty where that does not matter. What is sustained is that of the bursts whose hop is
    above the first and up to the second of ``mostly_s`` (None: no bound).
    """

    label: str
    quantity: Quantity
    work: float
    bursts: tuple[Burst, ...]
    hops_s: tuple[float, ...] = ()
    mostly_s: tuple[float | None, float | None] = (None, None)


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
                "wall_ns": [_ns(burst.wall_s) for burst in each.bursts],
                "cpu_ns": [_known_ns(burst.cpu_s) for burst in each.bursts],
                "busy": [_share(burst.busy) for burst in each.bursts],
                **_hops(each),
            }
            for each in series
        ],
    }


def _hops(series: Series) -> dict[str, Any]:
    if not series.hops_s:
        return {}
    return {
        "core_to_core_latency_ns": [_known_ns(each) for each in series.hops_s],
        "mostly_ns": [None if each is None else _ns(each) for each in series.mostly_s],
    }


def _share(busy: float) -> float | None:
    """To three digits, down, so that what is below a limit stays below it; NaN: not known."""
    return None if math.isnan(busy) else math.floor(busy * 1e3) / 1e3


def _known_ns(seconds: float) -> float | None:
    return None if math.isnan(seconds) else _ns(seconds)


def _ns(seconds: float) -> float:
    """Nanoseconds to six digits, and whole ones beyond: clocks tell no more."""
    ns = seconds * 1e9
    digits = float(f"{ns:.6g}") if ns < _WHOLE_NS else round(ns)
    return int(digits) if digits == int(digits) else digits
