"""The curves of a machine over its working set, in one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from roofline.foundation.blocks import Column, Grid
from roofline.foundation.text import counted
from roofline.foundation.units import format_byte_per_s, format_capacity, format_s
from roofline.machine.hardware import HardwareProfile
from roofline.presentation.reports.hardware_columns import Form

_SPARKS = "▁▂▃▄▅▆▇█"
_MOST_SPARKS = 24


def working_set_table(profile: HardwareProfile) -> Grid | None:
    """One line a curve: where it starts, its course in a few characters, where it ends."""
    rows = [
        (
            f"{each.kernel}, {counted(each.threads, 'thread')}",
            *_curve(each.size_byte, each.byte_per_s, format_byte_per_s),
        )
        for each in profile.bandwidth_curves
    ]
    latency = profile.latency_curve
    if latency:
        rows.append(("latency, 1 thread", *_curve(latency.size_byte, latency.latency_s, format_s)))
    columns = (
        Column(heading="of"),
        Column(heading="from"),
        Column(heading="curve", sacrifice=1),
        Column(heading="to"),
    )
    title = "Over the working set of a thread (logarithmic; all sizes: -o FILE)"
    return Grid(title=title, columns=columns, rows=tuple(rows)) if rows else None


def _curve(sizes: Sequence[int], values: Sequence[float], form: Form) -> tuple[str, str, str]:
    first, last = (f"{form(values[i])} at {format_capacity(sizes[i])}" for i in (0, -1))
    return first, sparkline(values), last


def sparkline(values: Sequence[float]) -> str:
    """The course of positive `values` in at most 24 characters, on a logarithmic scale."""
    count = min(len(values), _MOST_SPARKS)
    chosen = [values[i * (len(values) - 1) // max(1, count - 1)] for i in range(count)]
    logs = [math.log(each) for each in chosen]
    low, span = min(logs), max(logs) - min(logs)
    # A curve of less than a factor of 1.1 is flat, not all of the scale.
    if span < math.log(1.1):
        return _SPARKS[len(_SPARKS) // 2] * count
    return "".join(_SPARKS[round((each - low) / span * (len(_SPARKS) - 1))] for each in logs)
