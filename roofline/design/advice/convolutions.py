"""Rules on convolutions: channels, kernels, depthwise ones, branches, pooling and batch norms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from roofline.analysis import OperatorRow
from roofline.core.text import counted
from roofline.core.units import (
    format_bytes_per_s,
    format_flop_per_s,
    format_intensity,
    format_percent,
    format_s,
)
from roofline.design.advice.subject import (
    Alternative,
    Parts,
    Proposal,
    Saving,
    Subject,
    Swap,
    Time,
    convolution_like,
    groups_of,
    is_linear,
    is_plain_convolution,
    minimum_s,
    product_like,
    saving_of,
)
from roofline.latency.features import convolution_path
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Roof, ridge_flop_per_byte
from roofline.workload.tensors import Role

_VECTORS = {"avx512f": 16, "avx2": 8}
"""Channels per block by instruction set: oneDNN's convolutions have blocks of 16 with AVX-512
(nChw16c), also in bfloat16, and of 8 with AVX2."""

_TENSOR_CORE_CHANNELS = 8  # Granularity of tensor cores with 16-bit types


def block_channels(profile: HardwareProfile, dtype: str) -> int | None:
    """Return the channels per block for a data type; None if unknown."""
    if profile.device == "cuda":
        return _TENSOR_CORE_CHANNELS if dtype in ("float16", "bfloat16") else None
    known = profile.host.instruction_sets if profile.host else ()
    if dtype not in ("float32", "bfloat16"):
        return None
    return next((block for name, block in _VECTORS.items() if name in known), None)


def channel_padding(subject: Subject) -> list[Proposal]:
    """Find channels that are no multiples of a block, with the share of padding."""
    profile = subject.analysis.hardware
    concerned: list[OperatorRow] = []
    swaps: list[Swap] = []
    before_s = after_s = 0.0
    sizes: Counter[str] = Counter()
    block = None
    for row in subject.working:
        channels = _channels(row, subject.analysis.threads, is_cuda=profile.device == "cuda")
        of = block_channels(profile, row.outputs[0].dtype.name) if channels else None
        time = subject.time(row) if of else None
        if of is None or time is None or not any(each % of for each in channels):
            continue
        useful = math.prod(each / (math.ceil(each / of) * of) for each in channels)
        concerned.append(row)
        swaps.append(Swap(before=(row,), after=(_rounded_up(row, of),)))
        sizes.update(f"{each}" for each in set(channels) if each % of)
        before_s += time.s
        after_s += time.s * useful
        block = of
    if block is None:
        return []
    listed = ", ".join(size for size, _ in sizes.most_common(4))
    waste = 1 - after_s / before_s if before_s else 0.0
    return subject.finding(
        "channel padding",
        concerned,
        Saving(before_s=before_s, after_s=after_s),
        basis="estimate",
        evidence=f"{_operators(concerned)} with {listed} channels, not multiples of the vector"
        f" length {block}: {format_percent(waste)} of their work is padding;"
        f" {subject.share(concerned)}",
        change=f"use multiples of {block} channels: rounding up costs nothing, rounding down saves"
        " blocks",
        swaps=swaps,
    )


def _channels(row: OperatorRow, threads: int, *, is_cuda: bool) -> tuple[int, ...]:
    """Return the blocked channels; () if they cannot change.

    Linear layers count on CUDA only: MKL is as fast with odd sizes.
    """
    if is_plain_convolution(row):
        image, output = row.inputs[0], row.outputs[0]
        if not is_cuda and not convolution_path(row.record, threads).startswith("onednn"):
            # Matrix products have no channel blocks.
            return ()
        if groups_of(row) == image.shape[1] == output.shape[1]:
            return (output.shape[1],)
        if groups_of(row) > 1:
            return ()
        # The model does not choose the channels of its input.
        into = () if image.role is Role.INPUT else (image.shape[1],)
        return (*into, output.shape[1])
    if not (is_cuda and is_linear(row)):
        return ()
    into, out = row.inputs[-1].shape
    return (out,) if row.inputs[-2].role is Role.INPUT else (into, out)


def _rounded_up(row: OperatorRow, block: int) -> Alternative:
    def up(channels: int) -> int:
        return math.ceil(channels / block) * block

    if is_linear(row):
        into, out = row.inputs[-1].shape
        kept = into if row.inputs[-2].role is Role.INPUT else up(into)
        return product_like([row], in_features=kept, out_features=up(out))
    image, out = row.inputs[0], up(row.outputs[0].shape[1])
    if groups_of(row) > 1:
        return convolution_like([row], in_channels=out, out_channels=out, groups=out)
    into = image.shape[1] if image.role is Role.INPUT else up(image.shape[1])
    return convolution_like([row], in_channels=into, out_channels=out)


def unusual_kernels(subject: Subject) -> list[Proposal]:
    """Find kernels slower than 3x3 kernels with equal FLOP and receptive field."""
    asked = [row for row in subject.working if _is_unusual(row)]
    pairs = subject.compared(asked, [convolution_like([row], kernel=(3, 3)) for row in asked])
    by_kernel: dict[tuple[int, ...], list[tuple[OperatorRow, tuple[Time, Time]]]] = {}
    for row, pair in zip(asked, pairs, strict=True):
        if pair is not None:
            kernel, before = row.inputs[1].shape[2:], pair[0]
            if (time_s := row.measured_s) is not None:
                # Few such kernels are in the calibration set.
                spread_s = min(time_s, row.measured_iqr_s or 0.0)
                before = Time(s=time_s, low_s=time_s - spread_s, high_s=time_s + spread_s)
            instead = pair[1].times(_times_usual(kernel))
            by_kernel.setdefault(kernel, []).append((row, (before, instead)))
    found: list[Proposal] = []
    for kernel, of_kernel in by_kernel.items():
        rows = [row for row, _ in of_kernel]
        saving = saving_of([pair for _, pair in of_kernel], subject.basis)
        if not (saving.before_s and saving.after_s):
            continue
        flop, factor = sum(row.flop or 0 for row in rows), _times_usual(kernel)
        rate = format_flop_per_s(flop / saving.before_s)
        if factor > math.prod(kernel) / _USUAL:
            many = "one 3x3 kernel" if factor == 1 else f"{factor:.0f} 3x3 kernels"
            instead = f"take {format_s(saving.before_s)} ({rate}), {many} of at least the same"
            instead += f" receptive field {format_s(saving.after_s)} with more FLOP"
        else:
            instead = f"reach {rate}, equal FLOP in 3x3 kernels"
            instead += f" {format_flop_per_s(flop / saving.after_s)}"
        found += subject.finding(
            "unusual kernel",
            rows,
            saving,
            evidence=f"{_operators(rows)} of {'x'.join(map(str, kernel))} {instead}",
            change="replace it by 3x3 convolutions of the same receptive field",
            swaps=[
                Swap(before=(row,), after=(convolution_like([row], kernel=(3, 3)),), factor=factor)
                for row in rows
            ],
        )
    return found


_USUAL = 9  # Taps of a 3x3 kernel


def _times_usual(kernel: Sequence[int]) -> float:
    """Return the number of 3x3 kernels with as many taps and at least the receptive field."""
    return max(math.prod(kernel) / _USUAL, math.ceil((max(kernel) - 1) / 2))


def _is_unusual(row: OperatorRow) -> bool:
    if not is_plain_convolution(row) or groups_of(row) > 1:
        return False
    kernel = row.inputs[1].shape[2:]
    if set(row.attributes.get("dilation") or (1,)) != {1}:
        # Dilated kernels are not comparable.
        return False
    # Without overlap, it is a matrix product of patches.
    return kernel not in ((1, 1), (3, 3)) and list(kernel) != row.attributes.get("stride")


def _operators(rows: list[OperatorRow]) -> str:
    return counted(len(rows), "linear layer" if all(map(is_linear, rows)) else "convolution")


# -- depthwise convolutions ------------------------------------------------------------------------

_BETWEEN = ("normalization", "pointwise", "activation", "transcendental")
_FAR_APART = 2.0  # Minimum ratio of time share to FLOP share


def depthwise_below_ridge(subject: Subject) -> list[Proposal]:
    """Find memory-bound depthwise convolutions with a time share far above their FLOP share."""
    rows = [
        row for row in subject.working if is_depthwise(row) and row.eager_min_time_s is not None
    ]
    roof = Roof(subject.analysis.hardware, subject.analysis.threads)
    unit = roof.compute(rows[0].outputs[0].dtype) if rows else None
    ridge = ridge_flop_per_byte(unit, roof.levels[-1]) if unit and roof.levels else None
    all_flop = subject.analysis.totals.flop
    rows = [row for row in rows if ridge and (row.flop or 0) < ridge * row.traffic_bytes]
    taken_s, flop = subject.taken_s(rows), sum(row.flop or 0 for row in rows)
    if not (taken_s and flop and subject.pass_s):
        return []
    others_s = subject.pass_s - taken_s
    if taken_s / subject.pass_s < _FAR_APART * flop / all_flop or others_s <= 0:
        return []
    intensity = flop / sum(row.traffic_bytes for row in rows)
    return subject.finding(
        "depthwise below the ridge",
        rows,
        subject.saving_limit(rows),
        basis="at most",
        evidence=f"{counted(len(rows), 'depthwise convolution')} with"
        f" {format_percent(flop / all_flop)} of the FLOP and {subject.share(rows)}:"
        f" {format_flop_per_s(flop / taken_s)}, the rest of the model"
        f" {format_flop_per_s((all_flop - flop) / others_s)}; AI {format_intensity(intensity)}"
        f" FLOP/B, ridge point {format_intensity(ridge)} FLOP/B",
        change="reduce the channels between expansion and projection, or fuse operators"
        " (torch.compile, channels-last)",
    )


def standard_instead_of_depthwise(subject: Subject) -> list[Proposal]:
    """Find pairs of depthwise and pointwise layers slower than one standard convolution."""
    depthwise = [row for row in subject.working if is_depthwise(row)]
    candidates = [each for row in depthwise for each in _alternatives(subject, row)]
    found = [
        (rows, saving_of(parts, subject.basis), swap)
        for rows, parts, swap in subject.replaced(candidates)
    ]
    best: list[tuple[list[OperatorRow], Saving, Swap]] = []
    taken: set[int] = set()
    # Each layer is replaced once, with the largest saving.
    for rows, saving, swap in sorted(found, key=lambda each: -each[1].s):
        indexes = {row.index for row in rows}
        if not indexes & taken:
            taken |= indexes
            best.append((rows, saving, swap))
    rows = [row for chosen, _, _ in best for row in chosen]
    savings = [saving for _, saving, _ in best]
    is_sure = all(each.low_s is not None and each.high_s is not None for each in savings)
    together = Saving(
        before_s=sum(each.before_s for each in savings),
        after_s=sum(each.after_s for each in savings),
        # Errors of similar operators correlate.
        low_s=sum(each.low_s or 0.0 for each in savings) if is_sure else None,
        high_s=sum(each.high_s or 0.0 for each in savings) if is_sure else None,
    )
    return subject.finding(
        "standard convolution instead of depthwise",
        rows,
        together if savings else None,
        evidence=f"{counted(sum(map(is_depthwise, rows)), 'depthwise convolution')} and the"
        f" adjacent pointwise ones: {subject.share(rows)}; standard convolutions with the same"
        " channels are faster with more FLOP",
        change="replace each pair by one standard convolution",
        swaps=[swap for _, _, swap in best],
    )


def _alternatives(
    subject: Subject, depthwise: OperatorRow
) -> list[tuple[list[OperatorRow], Alternative]]:
    def behind(here: OperatorRow) -> OperatorRow | None:
        readers = [row for row in subject.readers(here) if row.index > here.index]
        is_shared = len(readers) != 1
        if not readers or (_is_pointwise_convolution(readers[0]) and is_shared):
            return None
        return readers[0]

    found: list[tuple[list[OperatorRow], Alternative]] = []
    if chain := _chain(depthwise, behind):
        out = chain[-1].outputs[0].shape[1]
        standard = convolution_like([depthwise, chain[-1]], out_channels=out, groups=1)
        found.append(([depthwise, *chain], standard))
    if chain := _chain(depthwise, subject.sole_source):
        into = chain[-1].inputs[0].shape[1]
        standard = convolution_like([depthwise, chain[-1]], in_channels=into, groups=1)
        found.append(([*reversed(chain), depthwise], standard))
    # Batch norms can be folded anyway.
    return [([row for row in rows if row.type != "normalization"], to) for rows, to in found]


def _chain(
    depthwise: OperatorRow, following: Callable[[OperatorRow], OperatorRow | None]
) -> list[OperatorRow]:
    chain: list[OperatorRow] = []
    here = following(depthwise)
    while here is not None and len(chain) < _LONGEST:
        chain.append(here)
        if _is_pointwise_convolution(here):
            return chain
        here = following(here) if here.type in _BETWEEN else None
    return []


_LONGEST = 4


def is_depthwise(row: OperatorRow) -> bool:
    """Return True for a depthwise convolution."""
    return is_plain_convolution(row) and row.type == "depthwise convolution"


def _is_pointwise_convolution(row: OperatorRow) -> bool:
    if not is_plain_convolution(row) or groups_of(row) > 1:
        return False
    return row.inputs[1].shape[2:] == (1, 1) and set(row.attributes.get("stride") or (1,)) == {1}


# -- branches --------------------------------------------------------------------------------------


def fragmented_branches(subject: Subject) -> list[Proposal]:
    """Find convolutions or linear layers with equal input and kernel size, to be merged."""
    groups = [group for group in _groups(subject) if len(group) > 1]

    def merged(group: Sequence[OperatorRow]) -> Alternative:
        out = sum(row.outputs[0].shape[1] for row in group)
        if is_plain_convolution(group[0]):
            return convolution_like(group, out_channels=out)
        return product_like(group, out_features=out)

    found = subject.replaced([(group, merged(group)) for group in groups])
    rows = [row for group, _, _ in found for row in group]
    parts: Parts = [part for _, of_group, _ in found for part in of_group]
    if not rows:
        return []
    what = "convolutions" if is_plain_convolution(rows[0]) else "linear layers"
    return subject.finding(
        "fragmented branches",
        rows,
        saving_of(parts, subject.basis),
        evidence=f"{len(rows)} {what} in {counted(len(found), 'group')} with the same input and"
        f" kernel size: {subject.share(rows)}; one layer per group is predicted to be faster",
        change="concatenate their weights in one layer, and split its output",
        swaps=[swap for _, _, swap in found],
    )


def _groups(subject: Subject) -> list[list[OperatorRow]]:
    """Return groups of operators with equal input and shape, and different weights."""
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
    distinct: list[list[OperatorRow]] = []
    for group in found.values():
        # Equal weights are one layer, called twice.
        weights: dict[tuple[int, int], OperatorRow] = {}
        for row in group:
            weight = row.inputs[1] if is_plain_convolution(row) else row.inputs[-1]
            weights.setdefault((weight.storage, weight.offset_bytes), row)
        distinct.append(list(weights.values()))
    return distinct


# -- pooling ---------------------------------------------------------------------------------------

_FAR = 10.0  # Multiples of the minimum time above which pooling is not vectorized


def pooling_in_contiguous_layout(subject: Subject) -> list[Proposal]:
    """Find pooling far above its minimum time, or predicted faster in channels-last layout."""
    if subject.analysis.hardware.device != "cpu":
        return []
    rows = [row for row in subject.working if _is_slow(subject, row)]
    others = [_channels_last(row) for row in rows]
    pairs = [pair for pair in subject.compared(rows, others) if pair]
    taken_s, least_s = subject.taken_s(rows), minimum_s(rows)
    if not taken_s:
        return []
    saving, basis = saving_of(pairs, subject.basis), None
    if subject.is_measured or not saving.is_worthwhile(subject.pass_s):
        # The other layout is rare in the calibration set.
        saving, basis = subject.saving_limit(rows), "at most"
    byte = sum(row.traffic_bytes for row in rows)
    many = len(rows) != 1
    return subject.finding(
        "pooling in contiguous layout",
        rows,
        saving,
        basis=basis,
        evidence=f"{len(rows)} pooling{'s' * many} in contiguous layout:"
        f" {subject.share(rows)}, {format_bytes_per_s(byte / taken_s)} of traffic,"
        f" {format_bytes_per_s(byte / least_s)} at the ceiling",
        change="use channels-last layout (model and input.to(memory_format="
        "torch.channels_last)), or strided convolutions",
        swaps=[
            Swap(before=(row,), after=(other,)) for row, other in zip(rows, others, strict=True)
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
        # With one channel or one pixel, both layouts are equal.
        and min(row.inputs[0].shape[1:]) > 1
        and time is not None
        and bool(row.eager_min_time_s)
        and time.s > _FAR * (row.eager_min_time_s or 0.0)
    )


def _channels_last(row: OperatorRow) -> Alternative:
    inputs, outputs = (
        tuple(replace(each, layout="channels-last") for each in specs)
        for specs in (row.inputs, row.outputs)
    )
    record = replace(row.record, inputs=inputs, outputs=outputs)
    return Alternative(record=record, level_bytes=row.level_bytes)


# -- batch norms -----------------------------------------------------------------------------------

_BATCH_NORMS = ("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training")


FOLDABLE = "foldable batch norm"
"""Rule whose findings are tried in the whole model."""


def foldable_norms(subject: Subject) -> list[Proposal]:
    """Find Conv→BN: in inference the norm can be folded into the weights."""
    rows = [row for row in _norms(subject) if _is_after_convolution(subject, row)]
    return subject.without(
        FOLDABLE,
        rows,
        evidence=f"{counted(len(rows), 'batch norm')} directly after a convolution, in inference:"
        f" {subject.share(rows)}",
        change="fold them: torch.nn.utils.fusion.fuse_conv_bn_eval, or the whole model with"
        " torch.fx.experimental.optimization.fuse",
    )


def norms_after_activations(subject: Subject) -> list[Proposal]:
    """Find Conv→ReLU→BN: the activation prevents folding."""
    rows: list[OperatorRow] = []
    for norm in _norms(subject):
        between = subject.sole_source(norm)
        # A sum of branches is no activation; PReLU reads slopes too.
        if between is not None and between.type == "pointwise":
            before = subject.sole_source(between)
            slopes = all(each.role is Role.PARAMETER for each in between.inputs[1:])
            if before is not None and slopes and is_plain_convolution(before):
                rows.append(norm)
    evidence = (
        f"{counted(len(rows), 'batch norm')} after Conv→activation, not foldable:"
        f" {subject.share(rows)}"
    )
    change = "train Conv→BN→activation, whose norms can be folded"
    forwards = 0
    for norm in rows:
        readers = subject.readers(norm)
        if len(readers) == 1 and is_plain_convolution(readers[0]):
            forwards += not any(readers[0].attributes.get("padding") or ())
    if forwards:
        evidence += f"; {forwards} before a convolution without padding"
        change += "; norms before a convolution without padding can be folded into it"
    return subject.without("batch norm after an activation", rows, evidence=evidence, change=change)


def _norms(subject: Subject) -> list[OperatorRow]:
    if subject.analysis.run.train:
        return []
    return [
        row
        for row in subject.working
        if row.op in _BATCH_NORMS and not row.attributes.get("training", False)
    ]


def fold_pairs(subject: Subject) -> list[tuple[str, str]]:
    """Return the modules of foldable pairs of convolution and batch norm."""
    pairs: list[tuple[str, str]] = []
    for norm in _norms(subject):
        before = subject.writer(norm)
        if before is not None and _is_after_convolution(subject, norm):
            pairs.append((before.module_path, norm.module_path))
    return pairs


def _is_after_convolution(subject: Subject, norm: OperatorRow) -> bool:
    before = subject.sole_source(norm)
    return (
        before is not None
        and is_plain_convolution(before)
        # A module called twice may have different norms after it.
        and subject.weight_readers[before.inputs[1].storage] == 1
    )
