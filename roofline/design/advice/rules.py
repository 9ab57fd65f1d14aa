"""Rules for single operators: one function each (docs/how-to/advice.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from roofline.analysis import Analysis, Finding, OperatorRow, rank
from roofline.analysis.words import kind_of_time, sum_s, time_of, whole_s
from roofline.core.text import counted
from roofline.core.units import format_bytes, format_percent, format_s
from roofline.design.advice.convolutions import (
    channel_padding,
    depthwise_below_ridge,
    foldable_norms,
    fragmented_branches,
    norms_after_activations,
    pooling_in_contiguous_layout,
    standard_instead_of_depthwise,
    unusual_kernels,
)
from roofline.design.advice.subject import (
    Proposal,
    Saving,
    Subject,
    is_plain_convolution,
    minimum_s,
)
from roofline.design.advice.transformers import (
    attention_written_out,
    checkpointing,
    expanded_heads,
    float32_products,
    repeated_computation,
    rewritten_rows,
    weight_casts,
    written_out,
)
from roofline.latency.prediction import OperatorPredictor
from roofline.machine.roof import ceiling_text

_OVERHEADS = {
    "convolution": "dispatch of convolution",
    "matrix product": "dispatch of linear",
    "": "dispatch of add",
}
"""Dispatch overheads of a profile by kind of operator."""

_FLOORS = 8.0
"""Factor over an empty operator, which needs no wrapping and no type promotion."""

_FEW = 5  # Minimum number of calls


def dispatch_bound(subject: Subject) -> list[Proposal]:
    """Find operators near the dispatch overhead whose work takes less than half of it.

    On a GPU, find passes that the host dispatches more slowly than kernels run.
    """
    if launch_bound := _launch_bound(subject):
        return launch_bound
    floors = _floors(subject)
    rows = [
        row
        for row in subject.working
        if (time := subject.time(row)) is not None and _is_dispatch(row, time.s, floors)
    ]
    if len(rows) < _FEW:
        return []
    taken_s, least_s = subject.taken_s(rows), minimum_s(rows)
    kinds = dict.fromkeys(kind if (kind := _kind(row)) in floors else "" for row in rows)
    calls = ", ".join(
        f"{format_s(floors[kind], 2)} ({_OVERHEADS[kind].removeprefix('dispatch of ')})"
        for kind in sorted(kinds, key=lambda kind: floors[kind])
    )
    return subject.finding(
        "dispatch overhead",
        rows,
        subject.saving_limit(rows),
        basis="at most",
        evidence=f"{len(rows)} of {len(subject.working)} operators take"
        f" {format_s(taken_s / len(rows))} each, {subject.share(rows)}; minimum time"
        f" {format_s(least_s / len(rows))} each, dispatch overhead {calls}",
        change="use fewer, larger operators: a larger batch, fused layers, torch.compile",
    )


def _launch_bound(subject: Subject) -> list[Proposal]:
    prediction = subject.analysis.prediction
    if subject.kind != "predicted" or subject.analysis.run.device == "cpu":
        return []
    if prediction is None or not prediction.overhead_s:
        return []
    whole_s, kernels_s = prediction.predicted_s, prediction.operators_s
    return subject.finding(
        "dispatch overhead",
        (),
        Saving(before_s=whole_s, after_s=kernels_s),
        basis="at most",
        evidence=f"the host dispatches {counted(len(subject.rows), 'operator')} in"
        f" {format_s(whole_s)}, kernels take {format_s(kernels_s)} (predicted)",
        change='use CUDA graphs (torch.compile with mode="reduce-overhead"), a larger batch,'
        " or fewer and larger operators",
    )


def _floors(subject: Subject) -> dict[str, float]:
    """Return the seconds of an empty call by kind of operator, `""` for others; {}: unknown."""
    overheads = subject.analysis.hardware.overheads
    known = {each.name: each.time.median_s for each in overheads if each.threads == 1}
    floors = {kind: known[name] for kind, name in _OVERHEADS.items() if name in known}
    return floors if "" in floors else {}


def _is_dispatch(row: OperatorRow, time_s: float, floors: Mapping[str, float]) -> bool:
    """Return True for an operator whose time is that of its call, not of its work."""
    if not floors or row.eager_min_time_s is None:
        return False
    floor_s = floors.get(_kind(row)) or floors[""]
    return time_s <= _FLOORS * floor_s and row.eager_min_time_s <= floor_s / 2


def _kind(row: OperatorRow) -> str:
    return "convolution" if is_plain_convolution(row) else row.type


# -- copies ----------------------------------------------------------------------------------------

_COPIES = ("aten.clone", "aten._to_copy", "aten.contiguous")
_CASTS = ("aten._to_copy",)
_INTO_INTEGERS = ("aten.quantize_per_tensor", "aten.quantize_per_channel")
_OUT_OF_INTEGERS = ("aten.dequantize",)
_FEW_STEPS = 3
"""Maximum number of operators between a cast and the cast back."""


def redundant_copies(subject: Subject) -> list[Proposal]:
    """Find copies in the same type and layout whose original and copy stay unchanged."""
    rows = [
        row
        for row in subject.working
        if _is_copy(row)
        and row.inputs[0].layout == row.outputs[0].layout != "strided"
        and row.inputs[0].elements == row.inputs[0].distinct_elements
        and not any(
            subject.last_write.get(each.storage, -1) > row.index
            for each in (row.inputs[0], row.outputs[0])
        )
    ]
    return subject.without(
        "redundant copy",
        rows,
        evidence=f"{_copies(rows)} in the type and layout of the original, neither changed later:"
        f" {subject.share(rows)}",
        change="use the original",
    )


def layout_copies(subject: Subject) -> list[Proposal]:
    """Find copies of permuted or sliced tensors into another layout."""
    rewritten = rewritten_rows(subject)
    rows = [
        row
        for row in subject.working
        if _is_copy(row)
        and row.inputs[0].layout != row.outputs[0].layout
        and row.inputs[0].elements == row.inputs[0].distinct_elements
        and row.index not in rewritten
    ]
    times = [subject.time(row) for row in rows]
    if not rows or not all(times):
        return []
    return subject.finding(
        "layout copy",
        rows,
        Saving(before_s=sum(each.s for each in times if each), after_s=0.0),
        basis="at most",
        evidence=f"{_copies(rows)} of permuted or sliced tensors: {subject.share(rows)}",
        change="leave out .contiguous() after transpose and permute, or change the layout once",
    )


def round_trip_casts(subject: Subject) -> list[Proposal]:
    """Find casts or quantizations that the next operators undo."""
    pairs = [
        (row, back) for row in subject.working if _types(row) for back in _way_back(subject, row)
    ]
    rewritten = rewritten_rows(subject) if pairs else frozenset[int]()
    pairs = [pair for pair in pairs if not {pair[0].index, pair[1].index} <= rewritten]
    rows = list({row.index: row for pair in pairs for row in pair}.values())
    ways = {" → ".join((*_types(first), _types(second)[1])) for first, second in pairs}
    return subject.without(
        "round-trip cast",
        rows,
        evidence=f"{counted(len(pairs), 'time')} {', '.join(sorted(ways))} with at most"
        f" {_FEW_STEPS} operators in between: {subject.share(rows)}",
        change="cast once at the boundaries of the part that gains",
    )


def _is_copy(row: OperatorRow) -> bool:
    return (
        row.op in _COPIES
        and len(row.inputs) == 1
        and len(row.outputs) == 1
        and row.inputs[0].dtype == row.outputs[0].dtype
        and not row.inputs[0].role.persists
    )


def _types(row: OperatorRow) -> tuple[str, ...]:
    if not (row.inputs and row.outputs):
        return ()
    types = row.inputs[0].dtype.name, row.outputs[0].dtype.name
    if row.op in _INTO_INTEGERS or row.op in _OUT_OF_INTEGERS:
        return types
    is_floating = row.inputs[0].dtype.kind == row.outputs[0].dtype.kind == "float"
    return types if row.op in _CASTS and is_floating and types[0] != types[1] else ()


def _way_back(subject: Subject, cast: OperatorRow) -> list[OperatorRow]:
    """Return the casts back to the previous type, within a few dependent operators."""
    before, after = _types(cast)
    front, found = [cast], dict[int, OperatorRow]()
    for _ in range(_FEW_STEPS + 1):
        behind: dict[int, OperatorRow] = {}
        for row in front:
            behind |= {each.index: each for each in subject.readers(row)}
        found |= {index: row for index, row in behind.items() if _types(row) == (after, before)}
        # Products may gain enough by a smaller type.
        front = [row for index, row in behind.items() if index not in found and not row.macs]
    return list(found.values())


def _copies(rows: list[OperatorRow]) -> str:
    byte = format_bytes(sum(row.traffic_bytes for row in rows))
    return f"{len(rows)} cop{'ies' if len(rows) != 1 else 'y'} ({byte} of traffic)"


# -- low efficiency --------------------------------------------------------------------------------

_LOW = 0.1
"""Share of the ceiling below which an operator is far from it."""

_FUSED = "fuse them with adjacent operators: torch.compile"
_CHANGES = {
    "depthwise convolution": "reduce the channels between expansion and projection, or fuse"
    " operators (torch.compile, channels-last)",
    **dict.fromkeys(("convolution", "matrix product"), "use other kernels: torch.compile"),
    "attention": "try the other backends: with torch.nn.attention.sdpa_kernel(backend)",
}


def low_efficiency(subject: Subject, explained: Collection[int]) -> list[Proposal]:
    """Find operators far above their minimum time, by type, except those already `explained`.

    Far is below a tenth of the ceiling, or below half of the share that the pass reaches.
    """
    analysis, kind = subject.analysis, kind_of_time(subject.analysis)
    if kind == "bound":
        return []
    operators_s = sum_s(subject.working, kind)
    pass_s = whole_s(analysis, kind) or operators_s
    least = max(_LOW, minimum_s(subject.working) / operators_s / 2) if operators_s else _LOW
    floors, by_type = _floors(subject), dict[str, list[OperatorRow]]()
    for row in subject.working:
        time_s, min_s = time_of(row, kind), row.eager_min_time_s
        if row.index in explained or not time_s or not min_s or min_s >= least * time_s:
            continue
        if not _is_dispatch(row, time_s, floors):
            by_type.setdefault(row.type, []).append(row)
    found: list[Proposal] = []
    for name, rows in by_type.items():
        saving = Saving(before_s=sum_s(rows, kind), after_s=minimum_s(rows))
        if not saving.is_worthwhile(pass_s):
            continue
        limiter = max(rows, key=lambda row: row.eager_min_time_s or 0.0).ceiling
        finding = Finding(
            rule="low efficiency",
            operators=tuple(row.index for row in rows),
            evidence=f"{counted(len(rows), f'{name} operator')}:"
            f" {kind} {format_percent(saving.before_s / pass_s)} of the time at"
            f" {format_percent(saving.after_s / saving.before_s)} of the ceiling"
            f" ({ceiling_text(limiter)})",
            change=_CHANGES.get(name, _FUSED),
            basis="measured at most" if kind == "measured" else "at most",
            predicted_before_s=saving.before_s,
            predicted_after_s=saving.after_s,
        )
        found.append(Proposal(finding=finding))
    return found


Rule = Callable[[Subject], list[Proposal]]

RULES: Mapping[Rule, str] = {
    attention_written_out: "",
    expanded_heads: "",
    written_out: "",
    repeated_computation: "",
    float32_products: "",
    weight_casts: "",
    checkpointing: "",
    channel_padding: "kernel",
    unusual_kernels: "alternative",
    foldable_norms: "",
    norms_after_activations: "",
    depthwise_below_ridge: "kernel",
    standard_instead_of_depthwise: "alternative",
    pooling_in_contiguous_layout: "kernel",
    dispatch_bound: "kernel",
    redundant_copies: "",
    layout_copies: "",
    round_trip_casts: "",
    fragmented_branches: "",
}
"""Rules, with the times they need. ``kernel``: predicted or measured, ``alternative``: predicted,
because minimum times do not depend on kernel efficiency."""


def proposals_of(
    analysis: Analysis,
    predictor: OperatorPredictor | None = None,
    *,
    explained: Collection[int] = (),
) -> tuple[Proposal, ...]:
    """Return the proposals of all rules, in the order of `rank`.

    ``explained`` are operators of other findings, which are not reported as inefficient.
    """
    subject = Subject(analysis, predictor)
    found = [
        each
        for rule, needs in RULES.items()
        if needs in _known_times(subject)
        for each in rule(subject)
    ]
    explained = {*explained} | {
        index
        for finding in (each.finding for each in found)
        # Half of their time: nothing is left that low efficiency would add.
        if (finding.saving_s or 0.0) >= (finding.predicted_before_s or 0.0) / 2
        for index in finding.operators
    }
    found += low_efficiency(subject, explained)
    return tuple(sorted(found, key=lambda each: rank(each.finding)))


def _known_times(subject: Subject) -> tuple[str, ...]:
    if subject.basis == "prediction":
        return "", "kernel", "alternative"
    return ("", "kernel") if subject.is_measured else ("",)


def judged_rules(
    analysis: Analysis, predictor: OperatorPredictor | None = None
) -> tuple[int, tuple[str, ...]]:
    """Return the number of rules that `proposals_of` judges, and the names of the others."""
    known = _known_times(Subject(analysis, predictor))
    open_rules = [
        rule.__name__.replace("_", " ") for rule, needs in RULES.items() if needs not in known
    ]
    if kind_of_time(analysis) == "bound":
        open_rules.append("low efficiency")
    return len(RULES) + 1 - len(open_rules), tuple(open_rules)


def findings_of(
    analysis: Analysis, predictor: OperatorPredictor | None = None
) -> tuple[Finding, ...]:
    """Return the findings of `proposals_of`."""
    return tuple(each.finding for each in proposals_of(analysis, predictor))
