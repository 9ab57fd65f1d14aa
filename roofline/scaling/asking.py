"""From the analysis of one training step to what it comes to on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roofline.analysis import Analysis, working
from roofline.errors import InputError
from roofline.placement import Roof
from roofline.scaling.buckets import Bucket
from roofline.scaling.links import Wire
from roofline.scaling.overlap import work_of
from roofline.scaling.ranks import OF_SCALING, Ranks, Step, batch_of
from roofline.scaling.result import Scaling, TimeKind
from roofline.scaling.settings import Settings

MOST_RANKS = 1024
"""Up to where efficiency is told, unless more are asked for."""


def scaling_of(
    step: Step, settings: Settings, wire: Wire | None, *, notes: Sequence[str] = ()
) -> Scaling:
    """What a training step comes to on several ranks.

    Args:
        step: on one rank.
        settings: how many ranks there are, and how they train.
        wire: the link between any two of them; None: there is one rank alone, and no other number
            is told.
        notes: what to know beside what follows from the rest.

    Raises:
        InputError: nothing is trained in it.
        ValueError: several ranks without a link.
    """
    if not step.gradients:
        raise InputError("--data-parallel: no parameter gets a gradient, and nothing is sent")
    if wire is None and settings.ranks > 1:
        raise ValueError(f"{settings.ranks} ranks have a link between them")
    kind, times_s = times_of(step.analysis)
    ranks = _ranks_of(step, settings, wire, kind, times_s)
    numbers = _numbers(settings.ranks) if wire is not None else [1]
    return Scaling(
        model=step.analysis.model,
        analysis=step.analysis,
        settings=settings,
        link=wire,
        time_kind=kind,
        alone_s=ranks.alone_s,
        slowdown=step.slowdown,
        gradients=step.gradients,
        buckets=ranks.buckets,
        broadcast_bytes=step.analysis.totals.buffer_size_bytes,
        points=tuple(map(ranks.point, numbers)),
        memory_choices=tuple(ranks.memory_choices()),
        batch=batch_of(step.analysis),
        notes=tuple(notes),
        warnings=step.analysis.warnings,
    )


def times_of(analysis: Analysis) -> tuple[TimeKind, tuple[float, ...] | None]:
    """The seconds of every operator, measured if each of them is, else bounds; None: of none.

    What is measured of whole passes is more than its operators: that is shared out among them.
    """
    at_work = working(analysis.operators)
    kinds: tuple[tuple[TimeKind, str], ...] = (
        ("measured", "measured_s"),
        ("bound", "eager_min_time_s"),
    )
    for kind, name in kinds:
        if all(getattr(row, name) is not None for row in at_work):
            times_s = tuple(getattr(row, name) or 0.0 for row in analysis.operators)
            if kind == "measured" and analysis.measurement is not None and sum(times_s):
                scale = analysis.measurement.measured_s / sum(times_s)
                times_s = tuple(each * scale for each in times_s)
            return kind, times_s
    return "bound", None


def _numbers(asked: int) -> list[int]:
    """Powers of two, and the number asked for among them."""
    most = max(MOST_RANKS, asked)
    return sorted({asked, *(2**power for power in range(most.bit_length()) if 2**power <= most)})


def _ranks_of(
    step: Step,
    settings: Settings,
    wire: Wire | None,
    kind: TimeKind,
    times_s: Sequence[float] | None,
) -> Ranks:
    """The step, with the work of one rank: seconds of every operator, of that kind."""
    buckets = step.buckets(settings.bucket_bytes)
    alone, whole_s = None, 0.0
    if times_s is not None:
        rows = step.analysis.operators
        passes = sum(row.phase != "optimizer" for row in rows)
        alone = work_of(times_s, passes=passes, after=[each.after for each in _in_order(buckets)])
        whole_s = sum(
            time_s
            for row, time_s in zip(rows, times_s, strict=True)
            if row.op.startswith(OF_SCALING)
        )
    return Ranks(
        step=step,
        settings=settings,
        wire=wire,
        kind=kind,
        buckets=buckets,
        alone=alone,
        whole_s=whole_s,
        byte_s=_byte_s(step.analysis, kind, sum(each.byte for each in buckets)),
    )


def _in_order(buckets: Sequence[Bucket]) -> list[Bucket]:
    """Buckets that are done no earlier than those that are sent before them."""
    found: list[Bucket] = []
    for each in buckets:
        after = max(each.after, found[-1].after if found else 0)
        found.append(replace(each, after=after))
    return found


def _byte_s(analysis: Analysis, kind: TimeKind, whole_bytes: int) -> float:
    """The seconds of going through a byte of gradients: a bound leaves out what caches may hold."""
    roof = Roof(analysis.hardware, analysis.threads)
    if not roof.levels or not whole_bytes:
        return 0.0
    *_, held = (0, *roof.held_bytes[:-1])
    *_, farthest = roof.levels
    share = max(0, whole_bytes - (held or 0)) / whole_bytes if kind == "bound" else 1.0
    return share / farthest.bytes_per_s
