"""Ranks, the links between them, and the time of collectives under the α–β model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roofline.core.text import counted
from roofline.core.units import format_bytes_per_s, format_s
from roofline.errors import InputError, argument
from roofline.machine.hardware import HardwareProfile, Link

ALL_REDUCE = "all-reduce"
"""In the kernel of a link whose rate was found with all-reduces, as training calls them."""

BETWEEN_PROCESSES = "process"
"""What a link's ends are called where both ranks are processes of one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A link as collectives see it: the α–β model.

    A message of m bytes takes ``latency_s`` + m / ``bytes_per_s``; a rank sends and receives at
    once, each at the full rate, and no two messages share a way. ``is_in_host``: the ranks are
    processes of one host, whose cores move the bytes themselves. ``note`` says where the figures
    are from.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    is_in_host: bool = False
    is_latency_known: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.bytes_per_s < math.inf or not 0 <= self.latency_s < math.inf:
            raise ValueError(
                "a link has a rate above 0 and a latency from 0, both finite, got"
                f" {self.bytes_per_s} and {self.latency_s}"
            )

    @property
    def words(self) -> str:
        """Both figures: ``"25.0 GB/s each way, 5.00 µs a message"``."""
        latency = f"{format_s(self.latency_s)} a message" if self.latency_s else "no latency"
        if not self.is_latency_known:
            latency = "latency not known, and taken for none"
        return f"{format_bytes_per_s(self.bytes_per_s)} each way, {latency}"

    @property
    def told(self) -> str:
        """Its name, both figures, and where they are from."""
        return " · ".join(filter(None, (self.name, self.words, self.note)))


def example_link() -> str:
    """Return how a caller gives a link: options of the command line, or arguments."""
    return f"{argument('link_bandwidth', '25GB/s')} and {argument('link_latency', '5us')}"


def wire_of(profile: HardwareProfile, *, at_best: bool) -> Wire:
    """The link between ranks that a profile knows, all-reduces before others.

    `at_best`: the best of its bursts, for bounds; else the usual ones, for predictions.
    """
    # All-reduces come before others.
    links = [each for each in profile.links if is_between_ranks(each)]
    link = min(links, key=lambda each: not each.kernel.endswith(ALL_REDUCE), default=None)
    if link is None:
        raise InputError(
            f"'{profile.name}' has no links between ranks: measure this machine's with `roofline"
            f" measure --links`, or give {example_link()}"
        )
    latency = link.latency
    latency_s = 0.0 if latency is None else latency.fast_s if at_best else latency.median_s
    where = link.provenance
    return Wire(
        name=f"{link.kernel}, {link.source} to {link.target}",
        bytes_per_s=link.peak_bytes_per_s if at_best else link.sustained_bytes_per_s,
        latency_s=latency_s,
        is_latency_known=latency is not None,
        is_in_host=link.source == link.target == BETWEEN_PROCESSES,
        note=f"{where.source} {where.date}".rstrip()
        + (", at its best" if at_best else ", as usual"),
    )


def is_between_ranks(link: Link) -> bool:
    """Whether collectives go over it; ways to the memory of other nodes are none."""
    return link.kernel.endswith((ALL_REDUCE, "send", "nvlink"))


# Costs: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
# in MPICH", International Journal of High Performance Computing Applications 19(1), 2005. That no
# all-reduce sends less than 2 (N - 1) / N of the data: P. Patarasuk, X. Yuan, "Bandwidth optimal
# all-reduce algorithms for clusters of workstations", Journal of Parallel and Distributed Computing
# 69(2), 2009. Adding up is not counted: it is a few operations a byte.

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
    """Every rank has `byte` bytes, and all get the sum of them."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a model is trained on several ranks.

    ``ranks`` is how many there are, each with a copy of the model; ``algorithm`` how they add up;
    ``accumulate`` how many passes each makes before gradients are sent; ``bucket_bytes`` from how
    many bytes on a bucket is full (None: torch's limits); ``sharded``: each rank keeps a part of
    the optimizer's states; ``checkpointed`` are the modules that run again in the backward pass.
    """

    ranks: int
    algorithm: Algorithm = "ring"
    accumulate: int = 1
    bucket_bytes: int | None = None
    sharded: bool = False
    checkpointed: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What is not as by default: ``"8 ranks · ring all-reduce · …"``."""
        parts = [
            f"{counted(self.ranks, 'rank')}",
            f"{self.algorithm} all-reduce",
            f"gradients of {self.accumulate} passes added up" if self.accumulate > 1 else "",
            "optimizer states shared out" if self.sharded else "",
            f"{len(self.checkpointed)} modules run again for the backward pass"
            if self.checkpointed
            else "",
        ]
        return " · ".join(filter(None, parts))
