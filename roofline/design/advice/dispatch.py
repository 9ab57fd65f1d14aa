"""Operators so small that calling them takes longer than what they do."""

from __future__ import annotations

from roofline.analysis import OperatorRow
from roofline.design.advice.alternatives import is_plain_convolution
from roofline.design.advice.proposals import Proposal
from roofline.design.advice.savings import Saving
from roofline.design.advice.subject import Subject
from roofline.foundation.units import format_s
from roofline.machine.hardware import HardwareProfile

_OVERHEADS = {
    "convolution": "dispatch of convolution",
    "matrix product": "dispatch of linear",
    "": "dispatch of add",
}
"""What a profile calls the time of a call that computes next to nothing."""

_FLOORS = 8.0
"""So many times the time of an empty call, which has no numbers to wrap and no types to promote."""

_FEW = 5
"""Fewer calls than these are no habit of the model's."""


def ruled_by_dispatch(subject: Subject) -> list[Proposal]:
    """Operators that take little more than a call, and whose work would take less than half of it.

    The calls are what can be saved: work that is done in one call takes at least its bound.
    """
    if subject.basis == "bound":
        return []
    floors = _floors(subject.analysis.hardware)
    rows: list[OperatorRow] = []
    for row in subject.working:
        time, floor_s = subject.time(row), floors.get(_kind(row)) or floors.get("")
        if time is None or floor_s is None or row.eager_min_time_s is None:
            continue
        if time.s <= _FLOORS * floor_s and row.eager_min_time_s <= floor_s / 2:
            rows.append(row)
    if len(rows) < _FEW:
        return []
    taken_s = sum(each.s for row in rows if (each := subject.time(row)))
    eager_min_time_s = sum(row.eager_min_time_s or 0.0 for row in rows)
    return subject.finding(
        "ruled by dispatch",
        rows,
        Saving(before_s=taken_s, after_s=min(taken_s, eager_min_time_s)),
        basis="at most",
        evidence=f"{len(rows)} of {len(subject.working)} operators take"
        f" {format_s(taken_s / len(rows))} each, and {subject.share(rows)}; their work takes at"
        f" least {format_s(eager_min_time_s / len(rows))} each, and a call that does next to"
        f" nothing {_calls(rows, floors)}",
        change="make them fewer and larger: a larger batch, fused layers, torch.compile",
    )


def _floors(profile: HardwareProfile) -> dict[str, float]:
    """Seconds of an empty call by kind of operator; nothing where the general one is not known."""
    known = {each.name: each.time.median_s for each in profile.overheads if each.threads == 1}
    found = {kind: known[name] for kind, name in _OVERHEADS.items() if name in known}
    return found if "" in found else {}


def _calls(rows: list[OperatorRow], floors: dict[str, float]) -> str:
    """How long an empty call takes of each kind that there is, in words."""
    kinds = dict.fromkeys(kind if (kind := _kind(row)) in floors else "" for row in rows)
    return ", ".join(
        f"{format_s(floors[kind], 2)} ({_OVERHEADS[kind].removeprefix('dispatch of ')})"
        for kind in sorted(kinds, key=lambda kind: floors[kind])
    )


def _kind(row: OperatorRow) -> str:
    return "convolution" if is_plain_convolution(row) else row.type
