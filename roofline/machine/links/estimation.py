"""From the times of exchanges to a link: a latency and a rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofline.errors import MeasurementError
from roofline.foundation.sampling import Sample, quantile
from roofline.machine.hardware import Duration, Link, Provenance

FAST = 0.05
"""The quantile that counts as the best."""


def link_of(
    times_s: Mapping[int, Sequence[float]],
    *,
    kernel: str,
    messages: int,
    share: float,
    provenance: Provenance,
) -> Link:
    """The link that such exchanges went over.

    The smallest tells the latency, the largest the rate once its latency is taken off.

    Args:
        times_s: of every exchange, by bytes of the data of one rank.
        kernel: what was exchanged how.
        messages: how many messages follow one another in an exchange.
        share: how many bytes go one way, for each byte of data.
        provenance: where the figures come from.

    Raises:
        MeasurementError: the largest were as quick as the smallest.
    """
    smallest, largest = min(times_s), max(times_s)
    small, large = Sample(times_s=tuple(times_s[smallest])), Sample(times_s=tuple(times_s[largest]))
    fast_small_s, fast_large_s = (quantile(each.times_s, FAST) for each in (small, large))
    latency = Duration(
        fast_s=fast_small_s / messages,
        median_s=small.median_s / messages,
        spread=small.spread,
        provenance=provenance,
    )
    moved = share * (largest - smallest)
    usual_s, best_s = large.median_s - small.median_s, fast_large_s - fast_small_s
    if min(usual_s, best_s) <= 0:
        raise MeasurementError(
            f"{kernel}: {largest} bytes were as quick as {smallest}; measure on a quieter machine"
        )
    usual, best = moved / usual_s, moved / best_s
    return Link(
        source="process",
        target="process",
        kernel=kernel,
        threads=1,
        peak_byte_per_s=max(usual, best),
        sustained_byte_per_s=usual,
        spread=large.spread,
        latency=latency,
        provenance=provenance,
    )
