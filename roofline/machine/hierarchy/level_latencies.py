"""What a load takes at each level: from the working sets of a curve that the level serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from roofline.foundation.sampling import Sample, quantile
from roofline.foundation.units import format_capacity
from roofline.machine.hardware import Duration
from roofline.machine.hierarchy.cache_levels import CacheLevel
from roofline.machine.hierarchy.curves import Samples
from roofline.machine.measuring.ceilings import provenance
from roofline.machine.measuring.estimation import PEAK_QUANTILE

FARTHER = 2.0
"""Working sets of so many times the last cache are, for the greater part, in memory."""

_WELL_INSIDE = 0.6
"""Of what a level holds: so much of it collides hardly."""


def with_latency(level: CacheLevel, below: CacheLevel | None, samples: Samples) -> CacheLevel:
    """The level with the latency of working sets that it holds and the one below does not."""
    least = 0 if below is None else 2 * below.capacity_byte
    inside = [size for size in samples if least <= size <= _WELL_INSIDE * level.held_byte]
    # The larger ones: the smaller a working set, the more of it the level below still serves.
    middle = math.sqrt(max(least, level.held_byte // 16) * level.held_byte)
    sizes = [size for size in inside if size >= middle] or inside
    return replace(level, latency=_duration(samples, sizes)) if sizes else level


def memory_latency(samples: Samples, last_byte: int) -> Duration | None:
    """Of the largest octave of working sets, if that is well beyond the last cache."""
    least = max(max(samples) / 2, FARTHER * last_byte)
    sizes = [size for size in samples if size > least]
    cached = f", of which {format_capacity(last_byte)} may be in the last cache"
    return _duration(samples, sizes, cached) if sizes else None


def _duration(samples: Samples, sizes: Sequence[int], remark: str = "") -> Duration | None:
    times_s = tuple(value for size in sizes for value in samples[size])
    if not times_s:
        return None
    sample = Sample(times_s=times_s)
    span = format_capacity(min(sizes))
    if len(sizes) > 1:
        span += f" to {format_capacity(max(sizes))}"
    low = 1 - PEAK_QUANTILE
    return Duration(
        fast_s=min(sample.median_s, quantile(times_s, low)),
        median_s=sample.median_s,
        spread=sample.spread,
        provenance=provenance(
            f"{low * 100:.0f}th percentile and median of bursts of dependent loads at random"
            f" places; in working sets of {span}{remark}",
            f"{len(times_s)} bursts",
        ),
    )
