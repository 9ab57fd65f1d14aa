"""Measures the link between two processes of this host over gloo."""

from __future__ import annotations

from roofline.machine.hardware import Link
from roofline.machine.links.estimation import link_of
from roofline.machine.links.team import in_ranks
from roofline.machine.measuring.ceilings import provenance

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
