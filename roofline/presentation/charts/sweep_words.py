"""The titles of pictures of sweeps: what is compared where, and where the times come from."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.design.sweeps.axes import point_text
from roofline.design.sweeps.result import SweepResult
from roofline.foundation.text import counted, printable
from roofline.presentation.charts.labels import cut_to, text_width_pt

TITLE_PT = 12.0


def title_of(result: SweepResult) -> str:
    """What the picture shows, and where: the title of a sweep's pictures."""
    machines = ", ".join(printable(each.name) for each in result.hardware)
    names = " or ".join(map(printable, result.names))
    threads = (
        f" with {counted(result.threads, 'thread')}" if result.threads and _cpu(result) else ""
    )
    return f"Which is faster on {machines}{threads}: {names}"


def _cpu(result: SweepResult) -> bool:
    return result.threads is not None and all(each.has_threads for each in result.hardware)


def subtitle_of(result: SweepResult) -> str:
    """Where the times come from, and what does not vary."""
    bases = {each.basis for each in result.verdicts}
    parts: list[str] = []
    if "predicted" in bases:
        parts.append(f"predicted from {result.calibration}" if result.calibration else "predicted")
    if "bound" in bases:
        parts.append("bounds, not predictions" + " at some points" * ("predicted" in bases))
    if result.run:
        parts.append(result.run)
    single = {each.name: each.values[0] for each in result.grid.axes if len(each.values) == 1}
    if single:
        parts.append(point_text(single))
    return printable(" · ".join(parts))


def texts_of(designs: Sequence[str], names: Sequence[str]) -> list[str]:
    """What the letters stand for, where designs are called by letters: a line for each."""
    return [
        printable(f"{name}: {text}")
        for name, text in zip(names, designs, strict=True)
        if name != text
    ]


def wrapped(text: str, width_pt: float, size_pt: float) -> tuple[str, ...]:
    """The text in at most three lines, broken between words; the last is cut where it must be."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < 2 and text_width_pt(rest, size_pt) > width_pt:
        fitting = [
            i
            for i, each in enumerate(rest)
            if each == " " and text_width_pt(rest[:i], size_pt) <= width_pt
        ]
        if not fitting:
            break
        lines.append(rest[: fitting[-1]])
        rest = rest[fitting[-1] + 1 :]
    return (*lines, cut_to(rest, width_pt, size_pt))
