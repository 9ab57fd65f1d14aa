"""Ranks, the links between them, and the time of collectives under the α–β model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from roofline.core.text import counted
from roofline.core.units import (
    format_bytes_per_s,
    format_s,
    parse_bytes_per_s,
    parse_duration,
)
from roofline.errors import InputError, argument
from roofline.machine.hardware import HardwareProfile, Link

ALL_REDUCE = "all-reduce"
"""Kernel name of links that were measured with all-reduces."""

BETWEEN_PROCESSES = "process"
"""Name of a link's ends if both ranks are processes of one host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLink:
    """Link between ranks in the α–β model.

    A message of m bytes takes ``latency_s`` + m / ``bytes_per_s``. A rank sends and receives
    concurrently, each at the full rate; messages share no path. ``is_in_host``: the ranks are
    processes of one host, whose cores move the bytes. ``reduces``: switches of the link can
    reduce data (in-network reduction). ``note`` is the source of the numbers.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    is_in_host: bool = False
    is_latency_known: bool = True
    reduces: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.bytes_per_s < math.inf or not 0 <= self.latency_s < math.inf:
            raise ValueError(
                "link bandwidth must be above 0 and latency at least 0, both finite, got"
                f" {self.bytes_per_s} and {self.latency_s}"
            )

    @property
    def words(self) -> str:
        """Bandwidth and latency: ``"25.0 GB/s per direction, 5.00 µs latency"``."""
        latency = f"{format_s(self.latency_s)} latency" if self.latency_s else "no latency"
        if not self.is_latency_known:
            latency = "unknown latency (taken as 0)"
        return f"{format_bytes_per_s(self.bytes_per_s)} per direction, {latency}"

    @property
    def description(self) -> str:
        """Name, bandwidth, latency, in-network reduction and source."""
        sharp = "in-network reduction" if self.reduces else ""
        return " · ".join(filter(None, (self.name, self.words, sharp, self.note)))


LINKS: Mapping[str, tuple[float, str]] = {
    "nvlink1": (80e9, "P100, 4 links"),
    "nvlink2": (150e9, "V100, 6 links"),
    "nvlink3": (300e9, "A100, 12 links"),
    "nvlink3-bridge": (56.25e9, "pairs of RTX 3090, A40, A6000"),
    "nvlink4": (450e9, "H100, H200, 18 links"),
    "nvlink4-bridge": (300e9, "pairs of H100 PCIe and NVL"),
    "nvlink5": (900e9, "B200, 18 links"),
    "infinity-fabric": (448e9, "MI300X, 7 links"),
    "pcie3": (15.76e9, "16 lanes"),
    "pcie4": (31.52e9, "16 lanes"),
    "pcie5": (63.04e9, "16 lanes"),
    "infiniband-edr": (12.5e9, "4 lanes"),
    "infiniband-hdr": (25e9, "4 lanes"),
    "infiniband-ndr": (50e9, "4 lanes"),
    "infiniband-xdr": (100e9, "4 lanes"),
}
"""Theoretical bandwidth of links in byte/s per direction (docs/how-to/scaling.md)."""

_REDUCING = ("nvlink4", "nvlink5", "infiniband-")
"""Links with in-network reduction (NVLink SHARP, InfiniBand SHARP): 8 H100 reduce 273 GB/s, where
the ranks alone reach at most 257 (https://github.com/NVIDIA/nccl/issues/1455)."""


def named_link(name: str) -> RankLink | None:
    """Return a link of `LINKS`; None for other names."""
    if (found := LINKS.get(name.strip().lower())) is None:
        return None
    bytes_per_s, note = found
    word = name.strip().lower()
    return RankLink(
        name=word,
        bytes_per_s=bytes_per_s,
        latency_s=0.0,
        is_latency_known=False,
        reduces=word.startswith(_REDUCING) and not word.endswith("bridge"),
        note=f"theoretical, {note}",
    )


def example_link() -> str:
    """Return an example of the options or arguments that describe a link."""
    return f"{argument('link_bandwidth', '25GB/s')} and {argument('link_latency', '5us')}"


_NO_TIME = re.compile(r"0+(\.0+)?\s*(s|ms|us|µs|μs|ns)?")
"""Latency of 0, which is no valid duration."""


def link_from_options(
    bandwidth: float | str | None, latency: float | str | None
) -> RankLink | None:
    """Return the link given as arguments, a rate or a name of `LINKS`; None without one."""
    if bandwidth is None:
        if latency is not None:
            raise InputError(
                f"{argument('link_latency', latency)} has no effect without"
                f" {argument('link_bandwidth')}"
            )
        return None
    wait: Any = 0.0 if latency is None else latency
    if isinstance(latency, str):
        is_zero = _NO_TIME.fullmatch(latency.strip())
        wait = 0.0 if is_zero else parse_duration(latency, "link_latency")
    named = named_link(bandwidth) if isinstance(bandwidth, str) else None
    if named is not None:
        return named if latency is None else replace(named, latency_s=wait, is_latency_known=True)
    rate: Any = (
        parse_bytes_per_s(bandwidth, "link_bandwidth") if isinstance(bandwidth, str) else bandwidth
    )
    try:
        if isinstance(rate, bool) or isinstance(wait, bool):
            raise TypeError
        return RankLink(name="given", bytes_per_s=float(rate), latency_s=float(wait))
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "link bandwidth must be above 0 and latency at least 0, both finite, got"
            f" {bandwidth!r} and {latency!r}; write {example_link()}"
        ) from None


def rank_link(profile: HardwareProfile, *, at_best: bool) -> RankLink:
    """Return the link between ranks of a hardware profile, preferably measured with all-reduces.

    `at_best`: peak numbers, for minimum times; else sustained ones, for predictions.
    """
    links = [each for each in profile.links if is_between_ranks(each)]
    link = min(links, key=lambda each: not each.kernel.endswith(ALL_REDUCE), default=None)
    if link is None:
        raise InputError(
            f"hardware '{profile.name}' has no links between ranks; measure them with `roofline"
            f" measure --links`, or add {example_link()}, or {argument('link_bandwidth', 'pcie4')}"
        )
    latency = link.latency
    latency_s = 0.0 if latency is None else latency.fast_s if at_best else latency.median_s
    where = link.provenance
    return RankLink(
        name=f"{link.kernel}, {link.source} to {link.target}",
        bytes_per_s=link.peak_bytes_per_s if at_best else link.sustained_bytes_per_s,
        latency_s=latency_s,
        is_latency_known=latency is not None,
        is_in_host=link.source == link.target == BETWEEN_PROCESSES,
        reduces=link.kernel == "nvlink" and link.peak_bytes_per_s >= LINKS["nvlink4"][0],
        note=f"{where.source} {where.date}".rstrip() + (", peak" if at_best else ", sustained"),
    )


def is_between_ranks(link: Link) -> bool:
    """Return True if collectives use the link; links between NUMA nodes do not count."""
    return link.kernel.endswith((ALL_REDUCE, "send", "nvlink", "infinity fabric", "pcie"))


# Costs: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations
# in MPICH", International Journal of High Performance Computing Applications 19(1), 2005. Minimum
# of 2 (N - 1) / N of the data per all-reduce: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce
# algorithms for clusters of workstations", Journal of Parallel and Distributed Computing 69(2),
# 2009. The additions themselves are not counted: they are a few operations per byte.

Algorithm = Literal["ring", "tree", "halving"]

ALGORITHMS: Mapping[Algorithm, str] = {
    "ring": "ring: 2 (N - 1) messages of 1/N of the data one after the other",
    "tree": "binomial tree, up and down: 2 log2 N messages of all of the data",
    "halving": "recursive halving and doubling: 2 log2 N messages, halves of halves of the data",
}
"""Descriptions; gloo and NCCL use a ring for large data, trees if latency dominates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Collective operation of all ranks.

    ``messages`` and ``way_bytes`` are those on the critical path, ``sent_bytes`` those of the
    busiest rank.
    """

    messages: int
    way_bytes: float
    sent_bytes: float

    def time_s(self, link: RankLink) -> float:
        """Return the time over this link in seconds."""
        return self.messages * link.latency_s + self.way_bytes / link.bytes_per_s


NOTHING = Collective(messages=0, way_bytes=0.0, sent_bytes=0.0)


def rounds_of(ranks: int) -> int:
    """Return log2 of the number of ranks, rounded up: rounds until all have data of one."""
    return (ranks - 1).bit_length()


def all_reduce(byte: int, ranks: int, algorithm: Algorithm = "ring") -> Collective:
    """Return the all-reduce of `byte` bytes per rank."""
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
    """Return the all-reduce; ranks beyond a power of two send to a partner, and get the sum."""
    rounds = ranks.bit_length() - 1
    core = 2**rounds
    sent = 2 * (core - 1) / core * byte
    messages = 2 * rounds
    if core == ranks:
        return Collective(messages=messages, way_bytes=sent, sent_bytes=sent)
    return Collective(messages=messages + 2, way_bytes=sent + 2 * byte, sent_bytes=sent + byte)


def broadcast(byte: int, ranks: int) -> Collective:
    """Return the broadcast of `byte` bytes from one rank: a binomial tree."""
    rounds = rounds_of(ranks)
    return Collective(messages=rounds, way_bytes=rounds * byte, sent_bytes=rounds * byte)


def min_all_reduce_s(byte: int, ranks: int, link: RankLink) -> float:
    """Return the minimum time of an all-reduce with any algorithm, in seconds.

    Each rank depends on all others, and sends and receives 2 (N - 1) / N of the data; with
    in-network reduction all of it once.
    """
    if ranks == 1:
        return 0.0
    if link.reduces:
        return max(link.latency_s, byte / link.bytes_per_s)
    return max(rounds_of(ranks) * link.latency_s, 2 * (ranks - 1) / ranks * byte / link.bytes_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of data-parallel training.

    ``algorithm`` is that of all-reduce; ``accumulate`` the passes per all-reduce; ``bucket_bytes``
    the bucket size (None: torch's defaults); ``sharded``: each rank keeps a part of the optimizer
    states; ``checkpointed`` are the modules with activation checkpointing.
    """

    ranks: int
    algorithm: Algorithm = "ring"
    accumulate: int = 1
    bucket_bytes: int | None = None
    sharded: bool = False
    checkpointed: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Ranks, algorithm and changed defaults: ``"8 ranks · ring all-reduce · …"``."""
        parts = [
            f"{counted(self.ranks, 'rank')}",
            f"{self.algorithm} all-reduce",
            f"gradient accumulation over {self.accumulate} passes" if self.accumulate > 1 else "",
            "sharded optimizer" if self.sharded else "",
            f"activation checkpointing of {len(self.checkpointed)} modules"
            if self.checkpointed
            else "",
        ]
        return " · ".join(filter(None, parts))
