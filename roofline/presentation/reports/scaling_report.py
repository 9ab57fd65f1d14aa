"""What the report on training on several ranks says: verdict, buckets, efficiency, memory."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from roofline.analysis import fit_words, unknown_capacity
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_capacity,
    format_percent,
    format_s,
    format_si,
)
from roofline.presentation.page import report_html
from roofline.presentation.reports.report import (
    Block,
    Column,
    Facts,
    Grid,
    Notes,
    Report,
    fit_cell,
    hardware_fact,
    printable,
)
from roofline.presentation.reports.work_facts import model_fact, run_fact
from roofline.scaling.buckets import Bucket
from roofline.scaling.memory import RankMemory
from roofline.scaling.result import ScalePoint, Scaling
from roofline.scaling.verdict import computing, multiple, stops_at

_BUCKETS = 12
"""How many buckets are listed; of more, the first and the last ones."""


def scaling_report(scaling: Scaling, *, today: date | None = None) -> Report:
    """The report on training on several ranks.

    Args:
        scaling: what it comes to.
        today: for the hardware's age; None gives dates alone.
    """
    blocks: list[Block] = [Facts(lines=tuple(_facts(scaling, today)))]
    blocks += [_points(scaling), _buckets(scaling), _memory(scaling)]
    for title, said, urgent in (
        ("Notes", scaling.notes, False),
        ("Warnings", scaling.warnings, True),
    ):
        if said:
            blocks.append(Notes(title=title, lines=tuple(map(printable, said)), urgent=urgent))
    return Report(headline=scaling.summary, blocks=tuple(blocks))


def _facts(scaling: Scaling, today: date | None) -> Iterable[tuple[str, str]]:
    analysis, point = scaling.analysis, scaling.point
    yield model_fact(analysis)
    yield from run_fact(analysis)
    yield hardware_fact(analysis, today)
    yield "Ranks", scaling.settings.words
    yield "Link", printable(scaling.link_words) or "none: one rank sends nothing"
    yield "Times", _times(scaling)
    yield "Sent", _sent(scaling)
    if point.step_s is not None:
        yield "Step", _step(scaling, point)
    yield "Efficiency", _efficiency(scaling)
    held = f"{format_byte(point.memory.byte)} on each rank when it is fullest"
    yield "Memory", f"{held} · {_fit(scaling, point.memory)}"


def _fit(scaling: Scaling, memory: RankMemory) -> str:
    """Whether a rank fits into its memory, or that its capacity is not known."""
    words = fit_words(memory.byte, scaling.memory_capacity_byte)
    return words or printable("".join(unknown_capacity([scaling.analysis.hardware])))


def _times(scaling: Scaling) -> str:
    return {
        "bound": "bounds, ranks computing as fast as this machine can: no such step is shorter,"
        " nor can more samples a second be had; slower ranks hide more, and keep more efficiency",
        "measured": "of operators measured here in one process alone, and of the link",
    }[scaling.time_kind]


def _sent(scaling: Scaling) -> str:
    point = scaling.point
    gradients = f"{format_byte(scaling.gradient_byte)} of gradients a step"
    if point.ranks == 1:
        return f"nothing: the {gradients} stay where they are"
    parts = [
        f"{gradients}; {format_byte(point.link_byte)} leave the busiest of {point.ranks} ranks"
    ]
    if scaling.broadcast_byte:
        buffers = format_byte(scaling.broadcast_byte)
        parts.append(f"{buffers} of buffers go to all before the forward pass")
    if scaling.settings.sharded:
        parts.append("parameters go to all after the update")
    return ", ".join(parts)


def _step(scaling: Scaling, point: ScalePoint) -> str:
    is_bound = scaling.time_kind == "bound"
    alone = f"{'at least ' if is_bound else ''}{format_s(scaling.alone_s)} alone"
    if scaling.slowdown is not None:
        alone += f", {scaling.slowdown:.2f} × that beside the others"
    together = f"{format_s(point.step_s)} on {point.ranks} ranks"
    between = f"from {format_s(point.step_low_s)} (sending costs no computing)"
    samples = scaling.samples_per_s(point)
    most = "at most " if is_bound else ""
    rate = f" · {most}{format_si(samples, 'samples/s')}" if samples is not None else ""
    return (
        f"{alone} → {together}, {between} to {format_s(point.step_high_s)} (nothing is computed"
        f" meanwhile){rate}"
    )


def _efficiency(scaling: Scaling) -> str:
    point = scaling.point
    if point.efficiency is None:
        return "not known: operators have no times on this hardware"
    how = computing(scaling.time_kind)
    parts = [f"{format_percent(point.efficiency)} of {point.ranks} ranks, computing {how}"]
    most = format_percent(point.efficiency_most)
    parts.append(f"{most} with the best buckets and algorithm on these links")
    if (ranks := stops_at(scaling)) is not None:
        parts.append(f"below half from {ranks} ranks on")
    return " · ".join(parts)


def _right(*headings: str) -> tuple[Column, ...]:
    return tuple(Column(heading=each, align="right") for each in headings)


def _points(scaling: Scaling) -> Grid:
    least, most = (" ≥", " ≤") if scaling.time_kind == "bound" else ("", "")
    return Grid(
        title=f"Efficiency over ranks, computing {computing(scaling.time_kind)}",
        columns=_right(
            *("ranks", "all-reduce", "least", "after backward", f"step{least}", "efficiency"),
            *("best case", f"× the data{most}", f"samples/s{most}", "memory a rank"),
        ),
        rows=tuple(_point(scaling, each) for each in scaling.points),
    )


def _point(scaling: Scaling, point: ScalePoint) -> tuple[str, ...]:
    line = point.timeline
    samples = scaling.samples_per_s(point)
    speedup = point.speedup
    mark = "→ " if point.ranks == scaling.settings.ranks else ""
    return (
        f"{mark}{point.ranks}",
        format_s(point.sending_s),
        format_s(point.least_sending_s),
        format_s(line.exposed_s) if line else MISSING,
        format_s(point.step_s),
        format_percent(point.efficiency),
        format_percent(point.efficiency_most),
        MISSING if speedup is None else multiple(speedup),
        format_si(samples, "") if samples is not None else MISSING,
        format_byte(point.memory.byte) + ", does not fit" * (scaling.fits(point.memory) is False),
    )


def _buckets(scaling: Scaling) -> Grid:
    shown, left = scaling.buckets, 0
    if len(shown) > _BUCKETS:
        left = len(shown) - _BUCKETS
        shown = (*shown[: _BUCKETS - 1], shown[-1])
    rows = [_bucket(scaling, each) for each in shown]
    sums: list[tuple[str, ...]] = [
        (
            "all",
            str(sum(len(each.parameters) for each in scaling.buckets)),
            format_byte(scaling.gradient_byte),
            *("", "", "", "", ""),
        )
    ]
    if left:
        sums.insert(0, (f"{left} more", *("",) * 7))
    return Grid(
        title=f"Buckets, as they are sent on {scaling.settings.ranks} ranks, computing"
        f" {computing(scaling.time_kind)}",
        columns=(
            Column(heading="bucket", align="right"),
            *_right("gradients", "size"),
            Column(heading="type"),
            *_right("ready", "sent from", "to"),
            Column(heading="last gradient", sacrifice=1, least=16, cut="start"),
        ),
        rows=tuple(rows),
        sums=tuple(sums),
    )


def _bucket(scaling: Scaling, bucket: Bucket) -> tuple[str, ...]:
    line = scaling.point.timeline
    sent = line.sent[bucket.index] if line else None
    times = (sent.ready_s, sent.start_s, sent.end_s) if sent else (None, None, None)
    return (
        str(bucket.index),
        str(len(bucket.parameters)),
        f"{format_byte(bucket.byte)} ({format_capacity(bucket.byte)})",
        str(bucket.dtype),
        *map(format_s, times),
        printable(bucket.parameters[-1]),
    )


_PARTS = {
    "parameters": "parameter_byte",
    "buffers": "buffer_byte",
    "inputs": "input_byte",
    "optimizer": "optimizer_byte",
    "activations": "activation_byte",
    "gradients": "gradient_byte",
    "buckets": "bucket_byte",
}


def _memory(scaling: Scaling) -> Grid:
    known = scaling.memory_capacity_byte is not None
    return Grid(
        title="Memory of a rank when it is fullest",
        columns=(
            Column(heading=""),
            *_right(*_PARTS, "all"),
            *([Column(heading="fits in memory")] if known else []),
        ),
        rows=tuple(
            (
                *_memory_row(each.what, each.memory),
                *([fit_cell(scaling.fits(each.memory))] if known else []),
            )
            for each in scaling.memory_choices
        ),
    )


def _memory_row(what: str, memory: RankMemory) -> tuple[str, ...]:
    parts = (format_byte(getattr(memory, name)) for name in _PARTS.values())
    return (what, *parts, format_byte(memory.byte))


def scaling_html(scaling: Scaling) -> str:
    """The report as one HTML element for notebooks; everything is escaped."""
    return report_html(scaling_report(scaling))
