"""Depthwise convolutions: bound by memory, and sometimes slower than what they stand for."""

from __future__ import annotations

from roofline.analysis import OperatorRow
from roofline.design.advice.alternatives import (
    Alternative,
    as_it_is,
    convolution_like,
    groups_of,
    is_plain_convolution,
)
from roofline.design.advice.proposals import Proposal, Swap
from roofline.design.advice.savings import NOTHING, Saving, saving_of
from roofline.design.advice.subject import Subject
from roofline.foundation.text import counted
from roofline.foundation.units import format_flop_per_s, format_intensity, format_percent
from roofline.placement import Roof, ridge_flop_per_byte

_BETWEEN = ("normalization", "pointwise", "activation", "transcendental")
_FAR_APART = 2.0
"""A share of time this many times the share of FLOP is out of proportion."""


def depthwise_below_ridge(subject: Subject) -> list[Proposal]:
    """Depthwise convolutions below memory's ridge, which take far more time than their FLOP."""
    # What could be saved at most is known of bounds alone.
    rows = [
        row for row in subject.working if is_depthwise(row) and row.eager_min_time_s is not None
    ]
    ridge, all_flop = _ridge(subject, rows), subject.analysis.totals.flop
    rows = [row for row in rows if ridge and (row.flop or 0) < ridge * row.traffic_bytes]
    times = [each.s for row in rows if (each := subject.time(row))]
    taken_s, flop = sum(times), sum(row.flop or 0 for row in rows)
    if subject.basis == "bound" or not (taken_s and flop and subject.pass_s):
        return []
    others_s = subject.pass_s - taken_s
    if taken_s / subject.pass_s < _FAR_APART * flop / all_flop or others_s <= 0:
        return []
    eager_min_time_s = sum(row.eager_min_time_s or 0.0 for row in rows)
    intensity = flop / sum(row.traffic_bytes for row in rows)
    return subject.finding(
        "depthwise below the ridge",
        rows,
        Saving(before_s=taken_s, after_s=min(taken_s, eager_min_time_s)),
        basis="at most",
        evidence=f"{_count(rows)} with {format_percent(flop / all_flop)} of the FLOP and"
        f" {subject.share(rows)}: {format_flop_per_s(flop / taken_s)}, and the rest of the model"
        f" {format_flop_per_s((all_flop - flop) / others_s)}; they do"
        f" {format_intensity(intensity)} FLOP a byte, and memory limits below"
        f" {format_intensity(ridge)}",
        change="have fewer channels between expansion and projection, or keep chains in cache"
        " (torch.compile, channels-last)",
    )


def _ridge(subject: Subject, rows: list[OperatorRow]) -> float | None:
    """FLOP per byte from which on the farthest memory limits nothing; None: it is not known."""
    roof = Roof(subject.analysis.hardware, subject.analysis.threads)
    unit = roof.compute(rows[0].outputs[0].dtype) if rows else None
    return ridge_flop_per_byte(unit, roof.levels[-1]) if unit and roof.levels else None


def standard_instead(subject: Subject) -> list[Proposal]:
    """Depthwise and pointwise layers that one standard convolution is predicted to outrun."""
    if subject.basis == "bound":
        # Which is faster is a matter of what kernels reach.
        return []
    candidates: list[tuple[list[OperatorRow], Alternative]] = []
    for row in subject.working:
        if is_depthwise(row):
            candidates += _alternatives(subject, row)
    asked = [as_it_is(row) for rows, _ in candidates for row in rows]
    times = subject.what_if.times([*asked, *(other for _, other in candidates)])
    known, others = times[: len(asked)], times[len(asked) :]
    best: list[tuple[list[OperatorRow], Saving, Swap]] = []
    taken: set[int] = set()
    place = 0
    found: list[tuple[list[OperatorRow], Saving, Swap]] = []
    for (rows, standard), after in zip(candidates, others, strict=True):
        before = [each for each in known[place : place + len(rows)] if each]
        place += len(rows)
        if after is None or len(before) < len(rows):
            continue
        parts = [*((each, NOTHING) for each in before), (NOTHING, after)]
        swap = Swap(before=tuple(map(as_it_is, rows)), after=(standard,))
        found.append((rows, saving_of(parts, subject.basis), swap))
    # A layer is replaced once: by what saves most.
    for rows, saving, swap in sorted(found, key=lambda each: -each[1].s):
        indexes = {row.index for row in rows}
        if saving.s > 0 and not indexes & taken:
            taken |= indexes
            best.append((rows, saving, swap))
    rows = [row for chosen, _, _ in best for row in chosen]
    together = _sum([saving for _, saving, _ in best])
    depthwise = [row for row in rows if is_depthwise(row)]
    return subject.finding(
        "standard convolution instead of depthwise",
        rows,
        together,
        evidence=f"{_count(depthwise)} and the pointwise ones beside them take"
        f" {subject.share(rows)}; standard ones from the same channels to the same channels do more"
        " FLOP in less time",
        change="put one standard convolution in the place of each pair",
        swaps=[swap for _, _, swap in best],
    )


def _sum(savings: list[Saving]) -> Saving | None:
    if not savings:
        return None
    is_sure = all(each.low_s is not None and each.high_s is not None for each in savings)
    return Saving(
        before_s=sum(each.before_s for each in savings),
        after_s=sum(each.after_s for each in savings),
        # Of one kind, they are wrong in the same way.
        low_s=sum(each.low_s or 0.0 for each in savings) if is_sure else None,
        high_s=sum(each.high_s or 0.0 for each in savings) if is_sure else None,
    )


def _alternatives(
    subject: Subject, depthwise: OperatorRow
) -> list[tuple[list[OperatorRow], Alternative]]:
    """Chains with a depthwise convolution, and the standard one from their ends to their ends."""
    found: list[tuple[list[OperatorRow], Alternative]] = []
    behind = _behind(subject, depthwise)
    if behind:
        replaced = _without_norms([depthwise, *behind])
        standard = convolution_like(
            [depthwise, behind[-1]], out_channels=behind[-1].outputs[0].shape[1], groups=1
        )
        found.append((replaced, standard))
    before = _before(subject, depthwise)
    if before:
        into = before[0].inputs[0].shape[1]
        standard = convolution_like([depthwise, before[0]], in_channels=into, groups=1)
        found.append((_without_norms([*before, depthwise]), standard))
    return found


def _without_norms(rows: list[OperatorRow]) -> list[OperatorRow]:
    """Those that are not batch norms, which could be folded anyway."""
    return [row for row in rows if row.type != "normalization"]


def _behind(subject: Subject, depthwise: OperatorRow) -> list[OperatorRow]:
    """What comes between it and the pointwise convolution that alone reads it, and that one."""
    chain: list[OperatorRow] = []
    here = depthwise
    while len(chain) < _LONGEST:
        readers = [row for row in subject.readers(here) if row.index > here.index]
        if not readers:
            return []
        here = readers[0]
        chain.append(here)
        if _is_pointwise_convolution(here):
            return chain if len(readers) == 1 else []
        if here.type not in _BETWEEN:
            return []
    return []


def _before(subject: Subject, depthwise: OperatorRow) -> list[OperatorRow]:
    """The pointwise convolution whose result it alone reads, and what comes between."""
    chain: list[OperatorRow] = []
    here = depthwise
    while len(chain) < _LONGEST:
        before = subject.writer(here)
        if before is None or len(subject.readers(before)) != 1:
            return []
        here = before
        chain.insert(0, here)
        if _is_pointwise_convolution(here):
            return chain
        if here.type not in _BETWEEN:
            return []
    return []


_LONGEST = 4


def is_depthwise(row: OperatorRow) -> bool:
    """Whether it is a convolution of each channel with itself."""
    return is_plain_convolution(row) and row.type == "depthwise convolution"


def _is_pointwise_convolution(row: OperatorRow) -> bool:
    if not is_plain_convolution(row) or groups_of(row) > 1:
        return False
    return row.inputs[1].shape[2:] == (1, 1) and set(row.attributes.get("stride") or (1,)) == {1}


def _count(rows: list[OperatorRow]) -> str:
    return f"{counted(len(rows), 'depthwise convolution')}"
