"""Peak memory against the capacity of a machine's memory: the one rule, and its words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofline.foundation.units import format_bytes
from roofline.machine.hardware import HardwareProfile

if TYPE_CHECKING:
    from roofline.analysis.result import Analysis


def fits(peak_bytes: int | None, capacity_bytes: int | None) -> bool | None:
    """Return whether a peak of memory fits into a capacity, both in bytes; None: not known."""
    if peak_bytes is None or capacity_bytes is None:
        return None
    return peak_bytes <= capacity_bytes


def fit_words(peak_bytes: int | None, capacity_bytes: int | None) -> str:
    """Return ``"does not fit: 113 GB of 85.9 GB"``, ``"fits into 85.9 GB"`` or ``""`` (unknown)."""
    found = fits(peak_bytes, capacity_bytes)
    if found is None:
        return ""
    capacity = format_bytes(capacity_bytes)
    return f"fits into {capacity}" if found else f"does not fit: {_of(peak_bytes, capacity_bytes)}"


def fit_of(analysis: Analysis) -> str:
    """Return `fit_words` of the peak of a pass and the memory of its machine."""
    return fit_words(analysis.totals.peak_memory_bytes, analysis.hardware.memory_capacity_bytes)


def too_large(names: Iterable[str], analyses: Iterable[Analysis]) -> list[str]:
    """Return the names of passes that do not fit: ``["a100 (113 GB of 85.9 GB)"]``."""
    return [
        f"{name} ({_of(each.totals.peak_memory_bytes, each.hardware.memory_capacity_bytes)})"
        for name, each in zip(names, analyses, strict=True)
        if each.fits is False
    ]


def unknown_capacity(machines: Iterable[HardwareProfile]) -> Iterable[str]:
    """Yield one line that names the machines whose memory capacity is not known; or none."""
    unknown = dict.fromkeys(each.name for each in machines if each.memory_capacity_bytes is None)
    if unknown:
        yield f"memory capacity not known: {', '.join(unknown)}"


def fit_warnings(analysis: Analysis) -> tuple[str, ...]:
    """Return the warning that a pass does not fit into the memory of its machine; or none."""
    if analysis.fits is not False:
        return ()
    peak, capacity = analysis.totals.peak_memory_bytes, analysis.hardware.memory_capacity_bytes
    step = "a training step of " * analysis.run.train
    return (
        f"{step}{analysis.model} does not fit into the memory of {analysis.hardware.name}:"
        f" {_of(peak, capacity)}; its times there assume a memory that is large enough",
    )


def _of(peak_bytes: int | None, capacity_bytes: int | None) -> str:
    return f"{format_bytes(peak_bytes)} of {format_bytes(capacity_bytes)}"
