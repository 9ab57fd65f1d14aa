"""Measures the link between two processes of this host over gloo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from roofline.errors import MeasurementError
from roofline.foundation.sampling import Sample, quantile
from roofline.machine.hardware import Duration, Link, Provenance
from roofline.machine.links.team import in_ranks
from roofline.machine.measuring.ceilings import provenance

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
        peak_bytes_per_s=max(usual, best),
        sustained_bytes_per_s=usual,
        spread=large.spread,
        latency=latency,
        provenance=provenance,
    )


_RANKS = 2
_SIZES_BYTE = (4, 25 * 2**20)
"""The least that goes, and a bucket of DistributedDataParallel."""

_ROUNDS = 30
_HOW = "two processes on this host, gloo over the loopback device, one thread each"


def measure_links(*, rounds: int = _ROUNDS) -> tuple[Link, ...]:
    """What this host's gloo carries between two processes, in byte/s each way, and its latency.

    Two links: found with all-reduces, which move what a ring moves and add up, and with messages
    there and back.

    Args:
        rounds: how often each exchange is timed.

    Raises:
        MeasurementError: a process died, or it took too long.
    """
    from roofline.machine.links.exchanges import timed_all_reduces, timed_messages

    sums = in_ranks(timed_all_reduces, _SIZES_BYTE, rounds, ranks=_RANKS, threads=1)
    messages = in_ranks(timed_messages, _SIZES_BYTE, rounds, ranks=_RANKS, threads=1)
    return (
        # An exchange is over when it is for the last rank.
        link_of(
            {byte: list(map(max, *(each[byte] for each in sums))) for byte in _SIZES_BYTE},
            kernel="gloo all-reduce",
            messages=2 * (_RANKS - 1),
            share=2 * (_RANKS - 1) / _RANKS,
            provenance=provenance("all-reduces of float32, in turn", _HOW),
        ),
        link_of(
            messages[0],
            kernel="gloo send",
            messages=2,
            share=2.0,
            provenance=provenance("messages there and back", _HOW),
        ),
    )
