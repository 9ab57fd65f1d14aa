"""Pooling of images that lie row by row: torch's kernels for that go number by number."""

from __future__ import annotations

from dataclasses import replace

from roofline.analysis import OperatorRow
from roofline.design.advice.alternatives import Alternative, as_it_is
from roofline.design.advice.proposals import Proposal, Swap
from roofline.design.advice.savings import Saving, saving_of
from roofline.design.advice.subject import Subject
from roofline.foundation.units import format_bytes_per_s

_FAR = 10.0
"""So many times its bound: what takes longer does not use the machine's vectors."""


def pooling_of_contiguous_images(subject: Subject) -> list[Proposal]:
    """Pooling that is far above its bound, or faster with channels last as far as is learned."""
    if subject.basis == "bound" or subject.analysis.hardware.device != "cpu":
        return []
    rows = [row for row in subject.working if _is_slow(subject, row)]
    others = [_channels_last(row) for row in rows]
    pairs = [pair for pair in subject.compared(rows, others) if pair]
    taken_s = sum(each.s for row in rows if (each := subject.time(row)))
    if not taken_s:
        return []
    saving, basis = saving_of(pairs, subject.basis), subject.basis
    if not saving.is_worth(subject.pass_s):
        # Of the other layout little was learned.
        eager_min_time_s = sum(row.eager_min_time_s or 0.0 for row in rows)
        saving, basis = Saving(before_s=taken_s, after_s=min(taken_s, eager_min_time_s)), "at most"
    byte = sum(row.traffic_bytes for row in rows)
    many = len(rows) != 1
    return subject.finding(
        "pooling of contiguous images",
        rows,
        saving,
        basis=basis,
        evidence=f"{len(rows)} pooling{'s' * many} of images that lie row by row:"
        f" {subject.share(rows)}, {format_bytes_per_s(byte / taken_s)} of traffic, where"
        f" {format_bytes_per_s(byte / sum(row.eager_min_time_s or 0.0 for row in rows))} are"
        " possible",
        change="have images with channels last (model and input.to(memory_format="
        "torch.channels_last)), or strides in the convolutions instead",
        swaps=[
            Swap(before=(as_it_is(row),), after=(other,))
            for row, other in zip(rows, others, strict=True)
        ],
    )


def _is_slow(subject: Subject, row: OperatorRow) -> bool:
    time = subject.time(row)
    return (
        row.type == "pooling"
        and row.phase == "forward"
        and len(row.inputs) == 1
        and len(row.inputs[0].shape) == 4
        and row.inputs[0].layout == "contiguous"
        # Of a single channel, or a single pixel, both layouts are the same.
        and min(row.inputs[0].shape[1:]) > 1
        and time is not None
        and bool(row.eager_min_time_s)
        and time.s > _FAR * (row.eager_min_time_s or 0.0)
    )


def _channels_last(row: OperatorRow) -> Alternative:
    """The pooling of an image that lies with its channels last."""
    alternative = as_it_is(row)
    record = replace(
        alternative.record,
        inputs=tuple(replace(each, layout="channels-last") for each in row.inputs),
        outputs=tuple(replace(each, layout="channels-last") for each in row.outputs),
    )
    return replace(alternative, record=record)
