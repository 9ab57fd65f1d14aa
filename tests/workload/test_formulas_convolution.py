"""Convolutions and their gradients against loops over every multiply-add, and against torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from roofline.workload.formulas.convolution import needed_taps
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.work import Work
from tests.workload.passes import only, passed, total
from tests.workload.scalars import every

backward: Any = torch.ops.aten.convolution_backward
Mask = tuple[bool, bool, bool]
MASKS = [each for each in product((False, True), repeat=3) if any(each)]


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

    def module(self, *, transposed: bool) -> Any:
        name = f"Conv{'Transpose' if transposed else ''}{len(self.size)}d"
        torch.manual_seed(0)
        return getattr(torch.nn, name)(
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


def gradients(case: Case, mask: Sequence[bool], *, transposed: bool) -> OperatorRecord:
    """The operator for those gradients of a case that are asked for."""
    module, x = case.module(transposed=transposed), case.input()

    def run(g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return backward(
            *(g, x, weight, [case.filters * case.groups], case.stride, case.padding),
            *(case.dilation, transposed, module.output_padding, case.groups, list(mask)),
        )

    return only(passed(run, torch.zeros(module(x).shape), x, module.weight.detach()))


class Walk:
    """A convolution without its bias and both gradients, a multiply-add at a time.

    One that reads padding (or, transposed, would write beyond the edge) counts as done but not as
    inner. torch confirms what the loops compute.
    """

    def __init__(self, case: Case, *, transposed: bool) -> None:
        module = replace(case, bias=False).module(transposed=transposed)
        x, weight = case.input().requires_grad_(), module.weight.detach()
        self.y = y = module(x)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
        result, of_x, of_weight = (torch.zeros(each.shape) for each in (y, x, weight))
        self.fma = self.inner_fma = 0
        # What each gradient needs of the other tensors.
        self.used: dict[str, set[tuple[int, ...]]] = {"input": set(), "weight": set(), "g": set()}
        windows, inside = (each.shape[2:] for each in ((x, y) if transposed else (y, x)))
        steps = case.stride, case.padding, case.dilation
        for n, group, i, o in every(case.batch, case.groups, case.channels, case.filters):
            channel, filter_ = group * case.channels + i, group * case.filters + o
            for window, tap in product(every(*windows), every(*case.kernel)):
                along = zip(window, tap, *steps, strict=True)
                place = tuple(w * s - p + t * d for w, t, s, p, d in along)
                self.fma += 1
                if not all(0 <= at < size for at, size in zip(place, inside, strict=True)):
                    continue
                self.inner_fma += 1
                of, to = (window, place) if transposed else (place, window)
                at_x, at_y = (n, channel, *of), (n, filter_, *to)
                at_weight = (channel, o, *tap) if transposed else (filter_, i, *tap)
                result[at_y] += x.detach()[at_x] * weight[at_weight]
                of_x[at_x] += g[at_y] * weight[at_weight]
                of_weight[at_weight] += g[at_y] * x.detach()[at_x]
                for name, at in (("input", at_x), ("weight", at_weight), ("g", at_y)):
                    self.used[name].add(at)
        expected = (y, *torch.autograd.grad(y, [x, module.weight], g))
        for found, right in zip((result, of_x, of_weight), expected, strict=True):
            assert torch.allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=40, deadline=None)
@given(case=cases(), mask=st.sampled_from(MASKS))
def test_walked_through(transposed: bool, case: Case, mask: Mask) -> None:
    """Grouped, dilated, strided, padded, with and without bias, in one to three dimensions.

    Forward, and backward whatever is asked for.
    """
    walked = Walk(case, transposed=transposed)
    work = only(passed(case.module(transposed=transposed), case.input())).work
    assert work.macs == walked.fma
    assert work.flop == 2 * walked.fma + walked.y.numel() * case.bias
    assert work.min_flop == 2 * walked.inner_fma
    record = gradients(case, mask, transposed=transposed)
    asked = mask[0] + mask[1]
    bias = (walked.y.numel() - walked.y.shape[1]) * mask[2]
    assert record.work.macs == asked * walked.fma
    assert record.work.flop == 2 * asked * walked.fma + bias
    assert record.work.min_flop == 2 * asked * walked.inner_fma + bias
    g, image, weight = record.inputs
    assert image.min_bytes == 4 * len(walked.used["input"]) * mask[1]
    assert weight.min_bytes == 4 * len(walked.used["weight"]) * mask[0]
    assert g.min_bytes == 4 * (walked.y.numel() if mask[2] else len(walked.used["g"]))
    assert image.byte == 4 * prod(image.shape) * mask[1]
    assert weight.byte == 4 * prod(weight.shape) * mask[0]
    assert g.byte == 4 * walked.y.numel()
    # What is asked for is written whole.
    written = zip((image.shape, weight.shape, (g.shape[1],)), mask, strict=True)
    assert record.work.output_bytes == 4 * sum(
        prod(shape) * is_asked for shape, is_asked in written
    )


SIZES = st.integers(1, 9)


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.integers(0, 6), st.integers(1, 4), SIZES)
def test_needed_by_walking(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> None:
    inside = [
        (window, tap)
        for window, tap in every(windows, kernel)
        if 0 <= window * stride - padding + tap * dilation < size
    ]
    taps, reaching = {tap for _, tap in inside}, {window for window, _ in inside}
    assert needed_taps(size, kernel, stride, padding, dilation, windows) == (
        len(taps),
        len(reaching),
    )


def conv(channels: int, filters: int, kernel: int, **options: Any) -> torch.nn.Conv2d:
    return torch.nn.Conv2d(channels, filters, kernel, bias=False, **options)


def test_by_hand() -> None:
    """A 3x3 with padding 1 on 2 x 5x5, to 4 filters: 25 outputs of 9 taps, 2 channels, 4 filters.

    25 * 9 = 225 taps a plane, of which the middle rows and columns see 3, the outer 2: 13 * 13 =
    169 lie inside. Bytes: 50 in, 72 weights, 100 out. Gradients of 100 elements: 50 of the input,
    72 of the weight, 4 of the bias, which takes 96 additions.
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
    case = Case(1, (5, 5), 2, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1), bias=True)
    work = gradients(case, (True, True, True), transposed=False).work
    assert work.macs == 2 * 225 * 8
    assert work.flop == 2 * 2 * 225 * 8 + 96
    assert work.min_flop == 2 * 2 * 169 * 8 + 96
    assert (work.input_bytes, work.output_bytes) == (4 * (100 + 50 + 72), 4 * (50 + 72 + 4))


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
    """Depthwise is one group a channel, and more than one channel; also going back."""
    record = only(passed(conv(channels, filters, 3, groups=groups), (1, channels, 8, 8)))
    assert (record.op, record.type) == ("aten.convolution", kind)
    one = (1, 1)
    case = Case(
        1, (8, 8), channels // groups, filters // groups, groups, (3, 3), one, one, one, False
    )
    record = gradients(case, (True, True, False), transposed=False)
    assert (record.op, record.type) == ("aten.convolution_backward", kind)


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
    work = total(passed(module, (1, 2, *[4] * dimensions)))
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
def test_without_a_batch_dimension(shape: tuple[int, ...]) -> None:
    """An unbatched image is a batch of one."""
    assert total(passed(conv(3, 4, 3), shape)).macs == 3 * 4 * 9 * 36


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (1, 2, 4, 4), (2, 2, 5, 7)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_legal_calls_backward(transposed: bool, shape: Sequence[int], kind: torch.dtype) -> None:
    """No batch, a single pixel over, odd sizes; numbers of other widths."""
    x, weight = torch.zeros(shape, dtype=kind), torch.zeros(2, 2, 3, 3, dtype=kind)
    rest: Any = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
    y = torch.convolution(x, weight, torch.zeros(2, dtype=kind), *rest)
    record = only(passed(lambda *each: backward(*each, [2], *rest, [True] * 3), y, x, weight))
    assert record.state is State.COUNTED
    assert record.work.macs == 2 * y.numel() // 2 * 2 * 2 * 9


@pytest.mark.parametrize("mask", MASKS)
def test_the_unfolding_kernel(mask: Mask) -> None:
    """Dispatched: one group, not dilated."""
    case = Case(2, (6, 5), 2, 3, 1, (3, 2), (2, 1), (1, 0), (1, 1), bias=True)
    x, module = case.input(), case.module(transposed=False)

    def run(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        options = (list(case.kernel), list(case.stride), list(case.padding), list(mask))
        return torch.ops.aten._slow_conv2d_backward.output_mask(g, x, w, *options)

    record = only(passed(run, torch.randn(module(x).shape), x, module.weight.detach()))
    assert record.op == "aten._slow_conv2d_backward"
    assert record.work == gradients(case, mask, transposed=False).work
