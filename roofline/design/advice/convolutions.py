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
"""The float32 numbers of a vector, and so the channels of a block, by instruction set. oneDNN's
convolutions have blocks of 16 with AVX-512 (nChw16c), also in bfloat16, and of 8 with AVX2."""

_TENSOR_CORE_CHANNELS = 8  # Of 16-bit numbers: tensor cores take matrices in such parts


def block_channels(profile: HardwareProfile, dtype: str) -> int | None:
    """How many channels the machine takes at once in a type; None: it is not known."""
    if profile.device == "cuda":
        return _TENSOR_CORE_CHANNELS if dtype in ("float16", "bfloat16") else None
    known = profile.host.instruction_sets if profile.host else ()
    if dtype not in ("float32", "bfloat16"):
        return None
    return next((block for name, block in _VECTORS.items() if name in known), None)


def channel_padding(subject: Subject) -> list[Proposal]:
    """Channels that are no multiples of a block: the share of the last block that is padding."""
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
        evidence=f"{_operators(concerned)} with {listed} channels, which are no multiples of"
        f" {block}, the numbers in a vector here: {format_percent(waste)} of what their last"
        f" blocks compute is padding, and they take {subject.share(concerned)}",
        change=f"take multiples of {block} channels: up costs no more blocks, down takes fewer",
        swaps=swaps,
    )


def _channels(row: OperatorRow, threads: int, *, is_cuda: bool) -> tuple[int, ...]:
    """Return the channels that blocks are made of, () where no one could change them.

    Linear layers count on CUDA alone: MKL's products of odd sizes take what they take in even ones.
    """
    if is_plain_convolution(row):
        image, output = row.inputs[0], row.outputs[0]
        if not is_cuda and not convolution_path(row.record, threads).startswith("onednn"):
            # Those become matrix products, which have no blocks.
            return ()
        if groups_of(row) == image.shape[1] == output.shape[1]:
            return (output.shape[1],)
        if groups_of(row) > 1:
            return ()
        # How many channels an image comes with is no decision of the model's.
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
    """Kernels that take longer than 3x3 ones would with as many FLOP, and of the same reach."""
    asked = [row for row in subject.working if _is_unusual(row)]
    pairs = subject.compared(asked, [convolution_like([row], kernel=(3, 3)) for row in asked])
    by_kernel: dict[tuple[int, ...], list[tuple[OperatorRow, tuple[Time, Time]]]] = {}
    for row, pair in zip(asked, pairs, strict=True):
        if pair is not None:
            kernel, before = row.inputs[1].shape[2:], pair[0]
            if (time_s := row.measured_s) is not None:
                # Few kernels of its size were learned from.
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
            instead = f"take {format_s(saving.before_s)} ({rate}), where {many} of at least the"
            instead += f" same reach would take {format_s(saving.after_s)} with more FLOP"
        else:
            instead = f"reach {rate}, where as many FLOP in 3x3 kernels would reach"
            instead += f" {format_flop_per_s(flop / saving.after_s)}"
        found += subject.finding(
            "unusual kernel",
            rows,
            saving,
            evidence=f"{_operators(rows)} of {'x'.join(map(str, kernel))} {instead}",
            change="put 3x3 convolutions in its place: as many as have the same reach",
            swaps=[
                Swap(before=(row,), after=(convolution_like([row], kernel=(3, 3)),), factor=factor)
                for row in rows
            ],
        )
    return found


_USUAL = 9  # Taps of a 3x3 kernel


def _times_usual(kernel: Sequence[int]) -> float:
    """Return how many 3x3 kernels have as many taps and at least the reach of a kernel.

    To count taps alone would call every kernel slow that was made narrow to save work.
    """
    return max(math.prod(kernel) / _USUAL, math.ceil((max(kernel) - 1) / 2))


def _is_unusual(row: OperatorRow) -> bool:
    if not is_plain_convolution(row) or groups_of(row) > 1:
        return False
    kernel = row.inputs[1].shape[2:]
    if set(row.attributes.get("dilation") or (1,)) != {1}:
        # Its taps lie apart: 3x3 ones that reach as far would be another layer altogether.
        return False
    # Where windows do not overlap, it is a product of patches.
    return kernel not in ((1, 1), (3, 3)) and list(kernel) != row.attributes.get("stride")


def _operators(rows: list[OperatorRow]) -> str:
    return counted(len(rows), "linear layer" if all(map(is_linear, rows)) else "convolution")


# -- depthwise convolutions ------------------------------------------------------------------------

_BETWEEN = ("normalization", "pointwise", "activation", "transcendental")
_FAR_APART = 2.0  # A share of time this many times the share of FLOP is out of proportion


def depthwise_below_ridge(subject: Subject) -> list[Proposal]:
    """Depthwise convolutions below memory's ridge, which take far more time than their FLOP."""
    # What could be saved at most is known of bounds alone.
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
        f" {format_flop_per_s(flop / taken_s)}, and the rest of the model"
        f" {format_flop_per_s((all_flop - flop) / others_s)}; they do"
        f" {format_intensity(intensity)} FLOP a byte, and memory limits below"
        f" {format_intensity(ridge)}",
        change="have fewer channels between expansion and projection, or keep chains in cache"
        " (torch.compile, channels-last)",
    )


def standard_instead(subject: Subject) -> list[Proposal]:
    """Depthwise and pointwise layers that one standard convolution is predicted to outrun."""
    depthwise = [row for row in subject.working if is_depthwise(row)]
    candidates = [each for row in depthwise for each in _alternatives(subject, row)]
    found = [
        (rows, saving_of(parts, subject.basis), swap)
        for rows, parts, swap in subject.replaced(candidates)
    ]
    best: list[tuple[list[OperatorRow], Saving, Swap]] = []
    taken: set[int] = set()
    # A layer is replaced once: by what saves most.
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
        # Of one kind, they are wrong in the same way.
        low_s=sum(each.low_s or 0.0 for each in savings) if is_sure else None,
        high_s=sum(each.high_s or 0.0 for each in savings) if is_sure else None,
    )
    return subject.finding(
        "standard convolution instead of depthwise",
        rows,
        together if savings else None,
        evidence=f"{counted(sum(map(is_depthwise, rows)), 'depthwise convolution')} and the"
        f" pointwise ones beside them take {subject.share(rows)}; standard ones from the same"
        " channels to the same channels do more FLOP in less time",
        change="put one standard convolution in the place of each pair",
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
    # Batch norms could be folded anyway.
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
    """Whether it is a convolution of each channel with itself."""
    return is_plain_convolution(row) and row.type == "depthwise convolution"


def _is_pointwise_convolution(row: OperatorRow) -> bool:
    if not is_plain_convolution(row) or groups_of(row) > 1:
        return False
    return row.inputs[1].shape[2:] == (1, 1) and set(row.attributes.get("stride") or (1,)) == {1}


# -- branches --------------------------------------------------------------------------------------


def fragmented_branches(subject: Subject) -> list[Proposal]:
    """Convolutions, or linear layers, of the same input and kernel that could be a single one."""
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
        evidence=f"{len(rows)} {what} in {counted(len(found), 'group')} that"
        f" read the same input with kernels of the same size: {subject.share(rows)};"
        " one for each group, with all their outputs, is predicted to take less",
        change="put their weights together in one layer, and split what it gives",
        swaps=[swap for _, _, swap in found],
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
    distinct: list[list[OperatorRow]] = []
    for group in found.values():
        # The same weights again are the same layer, called twice.
        weights: dict[tuple[int, int], OperatorRow] = {}
        for row in group:
            weight = row.inputs[1] if is_plain_convolution(row) else row.inputs[-1]
            weights.setdefault((weight.storage, weight.offset_bytes), row)
        distinct.append(list(weights.values()))
    return distinct


# -- pooling ---------------------------------------------------------------------------------------

_FAR = 10.0  # So many times its bound: what takes longer does not use the machine's vectors


def pooling_in_contiguous_layout(subject: Subject) -> list[Proposal]:
    """Pooling that is far above its bound, or faster with channels last as far as is learned."""
    if subject.analysis.hardware.device != "cpu":
        return []
    rows = [row for row in subject.working if _is_slow(subject, row)]
    others = [_channels_last(row) for row in rows]
    pairs = [pair for pair in subject.compared(rows, others) if pair]
    taken_s, least_s = subject.taken_s(rows), minimum_s(rows)
    if not taken_s:
        return []
    saving, basis = saving_of(pairs, subject.basis), subject.basis
    if not saving.is_worthwhile(subject.pass_s):
        # Of the other layout little was learned.
        saving, basis = subject.saving_limit(rows), "at most"
    byte = sum(row.traffic_bytes for row in rows)
    many = len(rows) != 1
    return subject.finding(
        "pooling of contiguous images",
        rows,
        saving,
        basis=basis,
        evidence=f"{len(rows)} pooling{'s' * many} of images that lie row by row:"
        f" {subject.share(rows)}, {format_bytes_per_s(byte / taken_s)} of traffic, where"
        f" {format_bytes_per_s(byte / least_s)} are possible",
        change="have images with channels last (model and input.to(memory_format="
        "torch.channels_last)), or strides in the convolutions instead",
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
        # Of a single channel, or a single pixel, both layouts are the same.
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
"""The name of the rule whose findings are tried by folding, in the whole model."""


def foldable_norms(subject: Subject) -> list[Proposal]:
    """Conv→BN: in inference the norm is a scale and a shift, which the weights can take in."""
    rows = [row for row in _norms(subject) if _is_after_convolution(subject, row)]
    return subject.without(
        FOLDABLE,
        rows,
        evidence=f"{counted(len(rows), 'batch norm')} directly behind a convolution that nothing"
        f" else reads, in inference: {subject.share(rows)}",
        change="fold them: torch.nn.utils.fusion.fuse_conv_bn_eval, or all of a model by"
        " torch.fx.experimental.optimization.fuse",
    )


def norms_after_activations(subject: Subject) -> list[Proposal]:
    """Conv→ReLU→BN: the activation between them keeps the norm from being folded."""
    rows: list[OperatorRow] = []
    for norm in _norms(subject):
        between = subject.sole_source(norm)
        # A sum of branches is no activation; what PReLU reads beside its image are its slopes.
        if between is not None and between.type == "pointwise":
            before = subject.sole_source(between)
            slopes = all(each.role is Role.PARAMETER for each in between.inputs[1:])
            if before is not None and slopes and is_plain_convolution(before):
                rows.append(norm)
    evidence = (
        f"{counted(len(rows), 'batch norm')} behind Conv→activation, where the convolution cannot"
        f" take them in: {subject.share(rows)}"
    )
    change = "train it as Conv→BN→activation: the norm can then be folded and costs nothing"
    forwards = 0
    for norm in rows:
        readers = subject.readers(norm)
        if len(readers) == 1 and is_plain_convolution(readers[0]):
            forwards += not any(readers[0].attributes.get("padding") or ())
    if forwards:
        evidence += f"; {forwards} in front of a convolution without padding"
        change += "; those in front of a convolution without padding can be folded into that one"
    return subject.without(
        "batch norm behind an activation", rows, evidence=evidence, change=change
    )


def _norms(subject: Subject) -> list[OperatorRow]:
    if subject.analysis.run.train:
        return []
    return [
        row
        for row in subject.working
        if row.op in _BATCH_NORMS and not row.attributes.get("training", False)
    ]


def fold_pairs(subject: Subject) -> list[tuple[str, str]]:
    """The modules of each convolution, and of the batch norm that it could take in."""
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
        # What is called twice may have another norm behind it each time, or none.
        and subject.weight_readers[before.inputs[1].storage] == 1
    )
