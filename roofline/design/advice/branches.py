"""Branches that do the same kind of work on the same input, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.analysis import OperatorRow
from roofline.design.advice.alternatives import (
    Alternative,
    as_it_is,
    convolution_like,
    groups_of,
    is_linear,
    is_plain_convolution,
    product_like,
)
from roofline.design.advice.proposals import Proposal, Swap
from roofline.design.advice.savings import NOTHING, saving_of
from roofline.design.advice.subject import Subject
from roofline.design.advice.times import Time
from roofline.foundation.text import counted


def fragmented_branches(subject: Subject) -> list[Proposal]:
    """Convolutions, or linear layers, of the same input and kernel that could be a single one."""
    groups = [group for group in _groups(subject) if len(group) > 1]
    merged = [_merged(group) for group in groups]
    asked = [as_it_is(row) for group in groups for row in group]
    times = subject.what_if.times([*asked, *merged])
    known, after = times[: len(asked)], times[len(asked) :]
    parts: list[tuple[Time, Time]] = []
    rows: list[OperatorRow] = []
    swaps: list[Swap] = []
    place = 0
    for group, together, one in zip(groups, merged, after, strict=True):
        before = [each for each in known[place : place + len(group)] if each]
        place += len(group)
        if one is None or len(before) < len(group) or sum(each.s for each in before) <= one.s:
            continue
        parts += [*((each, NOTHING) for each in before), (NOTHING, one)]
        rows += group
        swaps.append(Swap(before=tuple(map(as_it_is, group)), after=(together,)))
    if not rows:
        return []
    what = "convolutions" if is_plain_convolution(rows[0]) else "linear layers"
    return subject.finding(
        "fragmented branches",
        rows,
        saving_of(parts, subject.basis),
        evidence=f"{len(rows)} {what} in {counted(len(swaps), 'group')} that"
        f" read the same input with kernels of the same size: {subject.share(rows)};"
        " one for each group, with all their outputs, is predicted to take less",
        change="put their weights together in one layer, and split what it gives",
        swaps=swaps,
    )


def _groups(subject: Subject) -> list[list[OperatorRow]]:
    """Operators that read the very same input in the same way, each with weights of its own."""
    found: dict[object, list[OperatorRow]] = {}
    for row in subject.working:
        if is_plain_convolution(row) and groups_of(row) == 1:
            image, weight = row.inputs[:2]
            rest = {name: value for name, value in row.attributes.items() if name != "groups"}
            how = ("convolution", weight.shape[1:], len(row.inputs), repr(sorted(rest.items())))
        elif is_linear(row):
            image = row.inputs[-2]
            how = (row.op, row.inputs[-1].shape[0], len(row.inputs))
        else:
            continue
        reading = next((each for each in subject.flow.read[row.index] if each.spec == image), None)
        value = id(reading.value) if reading and reading.value else None
        found.setdefault((image, value, row.phase, how), []).append(row)
    # The same weights again are the same layer, called twice.
    return [_distinct(group) for group in found.values()]


def _distinct(group: Sequence[OperatorRow]) -> list[OperatorRow]:
    weights: dict[tuple[int, int], OperatorRow] = {}
    for row in group:
        weight = row.inputs[1] if is_plain_convolution(row) else row.inputs[-1]
        weights.setdefault((weight.storage, weight.offset_bytes), row)
    return list(weights.values())


def _merged(group: Sequence[OperatorRow]) -> Alternative:
    out = sum(row.outputs[0].shape[1] for row in group)
    if is_plain_convolution(group[0]):
        return convolution_like(group, out_channels=out)
    return product_like(group, out_features=out)
