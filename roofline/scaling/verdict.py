"""The sentence that says what training on several ranks comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofline.analysis import fit_words
from roofline.foundation.text import counted, printable
from roofline.foundation.units import format_byte, format_percent, format_s, format_si

if TYPE_CHECKING:
    from roofline.scaling.result import ScalePoint, Scaling, TimeKind


def verdict(scaling: Scaling) -> str:
    """How much of each rank's time is left for computing, and what the rest goes to.

    Where times are bounds it says so: what is bounded is data a second, not efficiency. What does
    not fit into the memory of a rank is said at the end.
    """
    memory = scaling.point.memory
    large = ""
    if scaling.fits(memory) is False:
        words = fit_words(memory.byte, scaling.memory_capacity_byte)
        large = f"; but a rank {words}"
    return _verdict(scaling) + large


def _verdict(scaling: Scaling) -> str:
    point, model = scaling.point, printable(scaling.model)
    count = f"{counted(point.ranks, 'rank')}"
    sent = f"{format_byte(scaling.gradient_byte)} of gradients in {_buckets(scaling)}"
    if point.ranks == 1:
        return f"A training step of {model} on 1 rank sends nothing"
    if point.efficiency is None or point.speedup is None:
        return f"A training step of {model} on {count} sends {sent}; its time is not known"
    best = f"{format_percent(point.efficiency)} efficiency"
    data = f"about {multiple(point.speedup)}× the data a second"
    if scaling.time_kind == "bound":
        data = (
            f"at most {multiple(point.speedup)}× the data a second that one rank could do at best"
        )
    return (
        f"A training step of {model} on {count} keeps {best} where computing is"
        f" {computing(scaling.time_kind)}: {data}; {sent}, {_hidden(point)}"
    )


def computing(kind: TimeKind) -> str:
    """What the times of computing are, in words."""
    return {"measured": "as measured here", "bound": "at its bound"}[kind]


def multiple(value: float) -> str:
    """How many times as much: ``"7.8"``, ``"90.7 k"``."""
    return f"{value:.3g}" if value < 1000 else format_si(value, "")


def _buckets(scaling: Scaling) -> str:
    count = len(scaling.buckets)
    return f"{counted(count, 'bucket')}"


def _hidden(point: ScalePoint) -> str:
    """How much of sending hides behind the backward pass."""
    if point.timeline is None or not point.sending_s:
        return "which takes no time"
    exposed_s = point.timeline.exposed_s
    sending = f"{format_s(point.sending_s)} on their way"
    if exposed_s < 0.005 * point.sending_s:
        return f"{sending}, all behind the backward pass"
    return f"{sending}, {format_s(exposed_s)} of it after the backward pass"


def stops_at(scaling: Scaling, least: float = 0.5) -> int | None:
    """The fewest ranks whose efficiency is below `least`; None: none of those that are told."""
    for each in scaling.points:
        if each.efficiency is not None and each.efficiency < least:
            return each.ranks
    return None
