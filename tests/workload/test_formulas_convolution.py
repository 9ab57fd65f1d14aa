"""Convolutions against loops over every output and tap, and against what else is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from roofline.workload.formulas.convolution import inner_taps
from roofline.workload.work import Work
from tests.workload.passes import only, passed, total
from tests.workload.scalars import every


@dataclass(frozen=True)
class Case:
    """A convolution small enough to walk through."""

    batch: int
    size: tuple[int, ...]
    channels: int
    filters: int
    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    bias: bool

    def module(self, *, transposed: bool) -> torch.nn.Module:
        kinds = {
            (1, False): torch.nn.Conv1d,
            (2, False): torch.nn.Conv2d,
            (3, False): torch.nn.Conv3d,
            (1, True): torch.nn.ConvTranspose1d,
            (2, True): torch.nn.ConvTranspose2d,
            (3, True): torch.nn.ConvTranspose3d,
        }
        kind: Any = kinds[len(self.size), transposed]
        torch.manual_seed(0)
        return kind(
            self.channels * self.groups,
            self.filters * self.groups,
            self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            bias=self.bias,
        )

    def input(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.randn(self.batch, self.channels * self.groups, *self.size, generator=generator)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dimensions = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dimensions))

    kernel, dilation, padding = each(1, 3), each(1, 2), each(0, 2)
    # At least one window fits, also into the output of the transposed one.
    size = tuple(
        draw(st.integers(max(1, d * (k - 1) + 1), d * (k - 1) + 3))
        for k, d in zip(kernel, dilation, strict=True)
    )
    padding = tuple(
        min(p, (n - 1 + d * (k - 1)) // 2)
        for p, n, k, d in zip(padding, size, kernel, dilation, strict=True)
    )
    return Case(
        batch=draw(st.integers(1, 2)),
        size=size,
        channels=draw(st.integers(1, 2)),
        filters=draw(st.integers(1, 2)),
        groups=draw(st.integers(1, 2)),
        kernel=kernel,
        stride=each(1, 2),
        padding=padding,
        dilation=dilation,
        bias=draw(st.booleans()),
    )


@dataclass
class Walk:
    """What walking through a convolution counted, and what it computed."""

    result: torch.Tensor
    fma: int = 0
    inner_fma: int = 0
    additions: int = 0


def walk(case: Case, module: Any, x: torch.Tensor, *, transposed: bool) -> Walk:
    """The convolution, a multiply-add at a time.

    One that reads padding (or, transposed, would write beyond the edge) counts as done but not as
    inner.
    """
    walked = Walk(torch.zeros_like(module(x)))
    inside = walked.result.shape[2:] if transposed else x.shape[2:]
    windows = x.shape[2:] if transposed else walked.result.shape[2:]
    for n, g, i, o in every(case.batch, case.groups, case.channels, case.filters):
        channel, filter_ = g * case.channels + i, g * case.filters + o
        for window in every(*windows):
            for tap in every(*case.kernel):
                place = tuple(
                    w * s - p + t * d
                    for w, s, p, t, d in zip(
                        window, case.stride, case.padding, tap, case.dilation, strict=True
                    )
                )
                walked.fma += 1
                if not all(0 <= at < size for at, size in zip(place, inside, strict=True)):
                    continue
                walked.inner_fma += 1
                if transposed:
                    weight = module.weight[(channel, o, *tap)]
                    walked.result[(n, filter_, *place)] += weight * x[(n, channel, *window)]
                else:
                    weight = module.weight[(filter_, i, *tap)]
                    walked.result[(n, filter_, *window)] += weight * x[(n, channel, *place)]
    if case.bias:
        for at in every(*walked.result.shape):
            walked.result[at] += module.bias[at[1]]
            walked.additions += 1
    return walked


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=40)
@given(case=cases())
def test_walked_through(transposed: bool, case: Case) -> None:
    """Grouped, dilated, strided, padded, with and without bias, in one to three dimensions."""
    module, x = case.module(transposed=transposed), case.input()
    with torch.no_grad():
        walked = walk(case, module, x, transposed=transposed)
        assert torch.allclose(walked.result, module(x), rtol=1e-4, atol=1e-4)
    work = only(passed(module, x)).work
    assert work.macs == walked.fma
    assert work.flop == 2 * walked.fma + walked.additions
    assert work.min_flop == 2 * walked.inner_fma


@settings(max_examples=60)
@given(
    *(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4), st.integers(0, 6)),
    *(st.integers(1, 4), st.integers(1, 12)),
)
def test_inner_taps(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> None:
    """As many as a convolution of ones sums up, on ones with zeros around."""
    needed = (windows - 1) * stride + dilation * (kernel - 1) + 1
    line = torch.zeros(max(needed, padding + size))
    line[padding : padding + size] = 1
    sums = F.conv1d(
        line[None, None, :needed], torch.ones(1, 1, kernel), stride=stride, dilation=dilation
    )
    assert inner_taps(size, kernel, stride, padding, dilation, windows) == int(sums.sum())


def conv(channels: int, filters: int, kernel: int, **options: Any) -> torch.nn.Conv2d:
    return torch.nn.Conv2d(channels, filters, kernel, bias=False, **options)


def test_by_hand() -> None:
    """A 3x3 with padding 1 on 2 x 5x5, to 4 filters: 25 outputs of 9 taps, 2 channels, 4 filters.

    25 * 9 = 225 taps a plane, of which the middle rows and columns see 3, the outer 2: 13 * 13 =
    169 lie inside. Bytes: 50 in, 72 weights, 100 out.
    """
    work = only(passed(conv(2, 4, 3, padding=1), (1, 2, 5, 5))).work
    assert work == Work(
        macs=225 * 8,
        flop=225 * 8 * 2,
        min_flop=169 * 8 * 2,
        input_bytes=50 * 4,
        parameter_bytes=72 * 4,
        output_bytes=100 * 4,
    )


@pytest.mark.parametrize(
    ("channels", "filters", "groups", "kind"),
    [
        (8, 8, 1, "convolution"),
        (8, 8, 2, "convolution"),
        (8, 8, 8, "depthwise convolution"),
        (8, 16, 8, "depthwise convolution"),
        (1, 8, 1, "convolution"),
    ],
)
def test_kinds(channels: int, filters: int, groups: int, kind: str) -> None:
    """Depthwise is one group a channel, and more than one channel."""
    record = only(passed(conv(channels, filters, 3, groups=groups), (1, channels, 8, 8)))
    assert (record.op, record.type) == ("aten.convolution", kind)


@settings(max_examples=25)
@given(case=cases(), groups=st.integers(1, 4))
def test_a_grouped_one_is_the_sum_of_its_groups(case: Case, groups: int) -> None:
    """g groups take what g convolutions of a g-th of the channels take."""

    def of(count: int) -> Work:
        each = Case(**{**case.__dict__, "groups": count})
        return only(passed(each.module(transposed=False), each.input())).work

    assert of(groups) == sum(groups * [of(1)])


@settings(max_examples=25)
@given(case=cases(), batch=st.integers(1, 4))
def test_the_batch_multiplies_all_but_the_weights(case: Case, batch: int) -> None:
    """n samples take n times the FLOP and activations of one, and the same parameters."""

    def of(count: int) -> Work:
        each = Case(**{**case.__dict__, "batch": count})
        return only(passed(each.module(transposed=False), each.input())).work

    one, many = of(1), of(batch)
    assert (many.flop, many.min_flop) == (batch * (one.flop or 0), batch * (one.min_flop or 0))
    assert many.input_bytes == batch * one.input_bytes
    assert many.output_bytes == batch * one.output_bytes
    assert many.parameter_bytes == one.parameter_bytes


@given(dilation=st.integers(1, 4))
def test_dilation_changes_no_count(dilation: int) -> None:
    """With padding that keeps the output size, a dilated kernel has as many taps."""
    plain = only(passed(conv(3, 5, 3, padding=1), (1, 3, 12, 12))).work
    dilated = only(passed(conv(3, 5, 3, padding=dilation, dilation=dilation), (1, 3, 12, 12))).work
    assert dilated.flop == plain.flop
    assert dilated.traffic_bytes == plain.traffic_bytes
    assert (dilated.min_flop or 0) <= (plain.min_flop or 0)


@settings(max_examples=40)
@given(case=cases())
def test_transposed_is_the_input_gradient_of_the_plain_one(case: Case) -> None:
    """The gradient does each of the forward FMAs once, so both count the same.

    The transposed module's weight is the plain one's; torch's own backward confirms the result.
    """
    plain: Any = Case(**{**case.__dict__, "bias": False}).module(transposed=False)
    x = case.input().requires_grad_()
    y = plain(x)
    seed = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(y, x, seed)
    spread: Any = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][len(case.size) - 1]
    # What the strides did not reach is made up by torch's output_padding, as far as it goes.
    steps = zip(case.stride, case.padding, case.dilation, case.kernel, strict=True)
    short = [
        have - ((out - 1) * s - 2 * p + d * (k - 1) + 1)
        for have, out, (s, p, d, k) in zip(case.size, y.shape[2:], steps, strict=True)
    ]
    assume(
        all(gap < max(s, d) for gap, s, d in zip(short, case.stride, case.dilation, strict=True))
    )

    def transposed(weight: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return spread(
            seed, weight, None, case.stride, case.padding, short, case.groups, case.dilation
        )

    weight = plain.weight.detach()
    assert torch.allclose(transposed(weight, seed), gradient, rtol=1e-4, atol=1e-4)
    forward = only(passed(plain, case.input())).work
    backward = only(passed(transposed, weight, seed)).work
    assert backward.macs == forward.macs
    assert backward.min_flop == forward.min_flop


@settings(max_examples=25)
@given(case=cases(), transposed=st.booleans())
def test_torch_counts_the_same_multiply_adds(case: Case, transposed: bool) -> None:
    """torch's FlopCounterMode is right for forward convolutions."""
    module, x = case.module(transposed=transposed), case.input()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(x)
    assert 2 * (only(passed(module, x)).work.macs or 0) == counter.get_total_flops()


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_padding_modes(mode: str, dimensions: int) -> None:
    """Padding copies; the convolution that follows has no padding of its own to leave out."""
    kind: Any = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][dimensions - 1]
    module = kind(2, 3, 3, padding=1, padding_mode=mode, bias=False)
    captured = passed(module, (1, 2, *[4] * dimensions))
    work = total(captured)
    assert work.macs == 2 * 3 * 12**dimensions
    inner = 10 if mode == "zeros" else 12
    assert work.min_flop == 2 * 2 * 3 * inner**dimensions


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_padding_same_of_an_even_kernel() -> None:
    """torch pads one side more, by a copy; outputs keep the size."""
    work = total(passed(conv(1, 1, 4, padding="same"), (1, 1, 6, 6)))
    assert work.macs == 36 * 16


def test_depthwise_separable_costs_what_the_paper_says() -> None:
    """Howard et al., MobileNets (2017), section 3.1: 1/N + 1/D² of a standard convolution."""
    n, d = 32, 3
    standard = only(passed(conv(16, n, d, padding=1), (1, 16, 14, 14))).work
    separable = torch.nn.Sequential(conv(16, 16, d, padding=1, groups=16), conv(16, n, 1))
    ratio = (total(passed(separable, (1, 16, 14, 14))).macs or 0) / (standard.macs or 1)
    assert ratio == pytest.approx(1 / n + 1 / d**2)


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 3, 8, 8)])
def test_without_a_batch_dimension(shape: Sequence[int]) -> None:
    """An unbatched image is a batch of one."""
    work = total(passed(conv(3, 4, 3), tuple(shape)))
    assert work.macs == prod((3, 4, 9, 36))
