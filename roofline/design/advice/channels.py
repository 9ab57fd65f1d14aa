"""Convolutions whose channels or kernels do not suit the machine's vectors."""

from __future__ import annotations

import math
from collections import Counter
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
from roofline.design.advice.savings import Saving, saving_of
from roofline.design.advice.subject import Subject
from roofline.design.advice.times import Time
from roofline.foundation.text import counted
from roofline.foundation.units import format_flop_per_s, format_percent, format_s
from roofline.latency.paths import convolution_path
from roofline.machine.hardware import HardwareProfile
from roofline.workload.tensors import Role

_VECTORS = {"avx512f": 16, "avx2": 8}
"""The float32 numbers of a vector, and so the channels of a block, by instruction set. oneDNN's
convolutions have blocks of 16 with AVX-512 (nChw16c), also in bfloat16, and of 8 with AVX2."""

_TENSOR_CORE_CHANNELS = 8
"""Of 16-bit numbers: tensor cores take matrices in such parts."""


def block_channels(profile: HardwareProfile, dtype: str) -> int | None:
    """How many channels the machine takes at once in a type; None: it is not known."""
    if profile.device == "cuda":
        return _TENSOR_CORE_CHANNELS if dtype in ("float16", "bfloat16") else None
    known = profile.host.instruction_sets if profile.host else ()
    if dtype not in ("float32", "bfloat16"):
        return None
    return next((block for name, block in _VECTORS.items() if name in known), None)


def channel_padding(subject: Subject) -> list[Proposal]:
    """Channels that are no multiples of a block: the last block is computed, and mostly padding.

    What was learned knows sizes and no blocks, so this is an estimate: the share of the padded work
    that is padding, of the time that is predicted.
    """
    if subject.basis == "bound":
        # Bounds are of the work that is asked for, without any padding.
        return []
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
        swaps.append(Swap(before=(as_it_is(row),), after=(_rounded_up(row, of),)))
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
    """The channels of an operator that blocks are made of, () where nobody could change them.

    Linear layers count on CUDA alone: MKL's products of odd sizes take what they take in even ones.
    """
    if is_plain_convolution(row):
        image, output = row.inputs[0], row.outputs[0]
        if not is_cuda and not convolution_path(as_it_is(row).record, threads).startswith("onednn"):
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
    """The operator with as many channels as its blocks have."""

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
    if subject.basis == "bound":
        # As many FLOP take the same time under a ceiling.
        return []
    asked = [row for row in subject.working if _is_unusual(row)]
    pairs = subject.compared(asked, [convolution_like([row], kernel=(3, 3)) for row in asked])
    by_kernel: dict[tuple[int, ...], list[tuple[OperatorRow, tuple[Time, Time]]]] = {}
    for row, pair in zip(asked, pairs, strict=True):
        if pair is not None:
            kernel = row.inputs[1].shape[2:]
            instead = pair[1].times(_times_usual(kernel))
            before = _measured(row) or pair[0]
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
                Swap(
                    before=(as_it_is(row),),
                    after=(convolution_like([row], kernel=(3, 3)),),
                    factor=factor,
                )
                for row in rows
            ],
        )
    return found


def _measured(row: OperatorRow) -> Time | None:
    """What it took, where it was timed in place: few kernels of its size were learned from."""
    if row.measured_s is None:
        return None
    spread_s = min(row.measured_s, row.measured_iqr_s or 0.0)
    return Time(s=row.measured_s, low_s=row.measured_s - spread_s, high_s=row.measured_s + spread_s)


_USUAL = 9
"""Taps of a 3x3 kernel."""


def _times_usual(kernel: Sequence[int]) -> float:
    """How many 3x3 kernels stand for one: as many as have its taps, and no fewer than its reach.

    A 1x7 has fewer taps than the three 3x3 that reach as far; to count taps alone would call every
    kernel slow that was made narrow to save work.
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
    what = "linear layer" if all(map(is_linear, rows)) else "convolution"
    return counted(len(rows), what)
