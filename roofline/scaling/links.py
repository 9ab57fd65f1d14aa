"""The way between two ranks: what it carries each way, and how long the smallest message takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.errors import InputError
from roofline.foundation.units import format_bytes_per_s, format_s
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

    Raises:
        ValueError: a rate that is not positive, a negative latency, or one of them infinite.
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


def wire_of(profile: HardwareProfile, *, at_best: bool) -> Wire:
    """The link between ranks that a profile knows, all-reduces before others.

    Args:
        profile: the machine's.
        at_best: the best of its bursts, for bounds; else the usual ones, for predictions.

    Raises:
        InputError: it knows none; the message says what to do.
    """
    link = _between_ranks(profile.links)
    if link is None:
        raise InputError(
            f"'{profile.name}' has no links between ranks: measure this machine's with `roofline"
            " measure --links`, or give --link-bandwidth 25GB/s --link-latency 5us"
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


def _between_ranks(links: Sequence[Link]) -> Link | None:
    """The link for collectives, one found with all-reduces before others."""
    ranked = [each for each in links if is_between_ranks(each)]
    ranked.sort(key=lambda each: not each.kernel.endswith(ALL_REDUCE))
    return ranked[0] if ranked else None
