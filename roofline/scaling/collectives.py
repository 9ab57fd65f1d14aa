"""How long ranks take to add up what each of them has: all-reduces under the α–β model.

Costs: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
MPICH", International Journal of High Performance Computing Applications 19(1), 2005. That no
all-reduce sends less than 2 (N - 1) / N of the data: P. Patarasuk, X. Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", Journal of Parallel and Distributed Computing
69(2), 2009. Adding up is not counted: it is a few operations a byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roofline.scaling.links import Wire

Algorithm = Literal["ring", "tree", "halving"]

ALGORITHMS: Mapping[Algorithm, str] = {
    "ring": "ring: 2 (N - 1) messages of 1/N of the data one after the other",
    "tree": "binomial tree, up and down: 2 log2 N messages of all of the data",
    "halving": "recursive halving and doubling: 2 log2 N messages, halves of halves of the data",
}
"""What each does; gloo and NCCL take a ring for large data, trees where latency counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One exchange between all ranks: its messages one after the other, and what they carry.

    ``messages`` and ``way_bytes`` are those on the longest way through it, ``sent_bytes`` what the
    busiest rank sends.
    """

    messages: int
    way_bytes: float
    sent_bytes: float

    def time_s(self, wire: Wire) -> float:
        """The seconds that it takes over such links."""
        return self.messages * wire.latency_s + self.way_bytes / wire.bytes_per_s


NOTHING = Collective(messages=0, way_bytes=0.0, sent_bytes=0.0)


def rounds_of(ranks: int) -> int:
    """log2 of the ranks, rounded up: in so many rounds all can have heard of one."""
    return (ranks - 1).bit_length()


def all_reduce(byte: int, ranks: int, algorithm: Algorithm = "ring") -> Collective:
    """Every rank has `byte` bytes, and all get the sum of them.

    Raises:
        ValueError: fewer than one rank, or an algorithm that there is not.
    """
    if ranks < 1:
        raise ValueError(f"there is at least one rank, got {ranks}")
    if algorithm not in ALGORITHMS:
        raise ValueError(f"there are {', '.join(ALGORITHMS)}, got '{algorithm}'")
    if ranks == 1:
        return NOTHING
    share = (ranks - 1) / ranks
    match algorithm:
        case "ring":
            sent = 2 * share * byte
            return Collective(messages=2 * (ranks - 1), way_bytes=sent, sent_bytes=sent)
        case "tree":
            rounds = rounds_of(ranks)
            way = 2 * rounds * byte
            return Collective(messages=2 * rounds, way_bytes=way, sent_bytes=rounds * byte)
        case "halving":
            return _halving(byte, ranks)


def _halving(byte: int, ranks: int) -> Collective:
    """Of ranks beyond a power of two each hands its data to another, and gets the sum from it."""
    rounds = ranks.bit_length() - 1
    core = 2**rounds
    sent = 2 * (core - 1) / core * byte
    messages = 2 * rounds
    if core == ranks:
        return Collective(messages=messages, way_bytes=sent, sent_bytes=sent)
    return Collective(messages=messages + 2, way_bytes=sent + 2 * byte, sent_bytes=sent + byte)


def broadcast(byte: int, ranks: int) -> Collective:
    """One rank has `byte` bytes, and all get them: a binomial tree."""
    rounds = rounds_of(ranks)
    return Collective(messages=rounds, way_bytes=rounds * byte, sent_bytes=rounds * byte)


def least_all_reduce_s(byte: int, ranks: int, wire: Wire) -> float:
    """The seconds that no all-reduce can beat, whatever its algorithm.

    Each rank must hear of all others, and send and receive 2 (N - 1) / N of the data.
    """
    if ranks == 1:
        return 0.0
    return max(rounds_of(ranks) * wire.latency_s, 2 * (ranks - 1) / ranks * byte / wire.bytes_per_s)
