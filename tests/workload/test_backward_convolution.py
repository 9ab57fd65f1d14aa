"""Gradients of convolutions against loops over every multiply-add, and against the forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roofline.workload.formulas.convolution import needed
from roofline.workload.formulas.registry import Flop, find
from roofline.workload.operators import OperatorRecord, State
from tests.workload.passes import only, passed
from tests.workload.schema_calls import spec
from tests.workload.test_formulas_convolution import Case, cases, every

backward: Any = torch.ops.aten.convolution_backward
Mask = tuple[bool, bool, bool]
ALL: Mask = (True, True, True)
MASKS = [each for each in product((False, True), repeat=3) if any(each)]


def gradients(
    case: Case, mask: Sequence[bool], *, transposed: bool, seed: torch.Tensor | None = None
) -> tuple[OperatorRecord, Any]:
    """The record of the gradients of a case that are asked for, and the module."""
    module: Any = case.module(transposed=transposed)
    x = case.input()
    weight = module.weight.detach()
    g = torch.randn(module(x).shape) if seed is None else seed

    def run(g: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return backward(
            g,
            x,
            weight,
            [case.filters * case.groups],
            case.stride,
            case.padding,
            case.dilation,
            transposed,
            module.output_padding,
            case.groups,
            list(mask),
        )

    return only(passed(run, g, x, weight)), module


def work_of(case: Case, mask: Sequence[bool], *, transposed: bool) -> Any:
    return gradients(case, mask, transposed=transposed)[0].work


class Walk:
    """All three gradients, a multiply-add at a time; those that meet padding are not inner."""

    def __init__(self, case: Case, module: Any, *, transposed: bool) -> None:
        x = case.input().requires_grad_()
        y = module(x)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
        self.seed = g
        of_x, of_weight = torch.zeros_like(x), torch.zeros_like(module.weight)
        self.fma = self.inner_fma = 0
        # What each gradient needs of the other tensors.
        self.used: dict[str, set[tuple[int, ...]]] = {
            "input": set(),
            "weight": set(),
            "grad": set(),
        }
        inside = y.shape[2:] if transposed else x.shape[2:]
        windows = x.shape[2:] if transposed else y.shape[2:]
        for n, group, i, o in every(case.batch, case.groups, case.channels, case.filters):
            channel, filter_ = group * case.channels + i, group * case.filters + o
            for window, tap in product(every(*windows), every(*case.kernel)):
                place = tuple(
                    w * s - p + t * d
                    for w, s, p, t, d in zip(
                        window, case.stride, case.padding, tap, case.dilation, strict=True
                    )
                )
                self.fma += 1
                if not all(0 <= at < size for at, size in zip(place, inside, strict=True)):
                    continue
                self.inner_fma += 1
                of, to = (window, place) if transposed else (place, window)
                at_x, at_y = (n, channel, *of), (n, filter_, *to)
                at_weight = (channel, o, *tap) if transposed else (filter_, i, *tap)
                of_x[at_x] += g[at_y] * module.weight.detach()[at_weight]
                of_weight[at_weight] += g[at_y] * x.detach()[at_x]
                self.used["input"].add(at_x)
                self.used["weight"].add(at_weight)
                self.used["grad"].add(at_y)
        self.additions = g.numel() - g.shape[1]
        expected = torch.autograd.grad(y, [x, module.weight], g)
        for found, right in zip((of_x, of_weight), expected, strict=True):
            assert torch.allclose(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=40, deadline=None)
@given(case=cases(), mask=st.sampled_from(MASKS))
def test_walked_through(transposed: bool, case: Case, mask: Mask) -> None:
    """Grouped, dilated, strided, padded, in one to three dimensions, whatever is asked for.

    torch's autograd confirms the loops, which give the counts, and which elements are needed.
    """
    module: Any = replace(case, bias=False).module(transposed=transposed)
    walked = Walk(case, module, transposed=transposed)
    record, _ = gradients(case, mask, transposed=transposed, seed=walked.seed)
    asked = mask[0] + mask[1]
    bias = walked.additions * mask[2]
    assert record.work.macs == asked * walked.fma
    assert record.work.flop == 2 * asked * walked.fma + bias
    assert record.work.min_flop == 2 * asked * walked.inner_fma + bias
    grad, image, weight = record.inputs
    assert image.min_bytes == 4 * len(walked.used["input"]) * mask[1]
    assert weight.min_bytes == 4 * len(walked.used["weight"]) * mask[0]
    assert grad.min_bytes == 4 * (walked.seed.numel() if mask[2] else len(walked.used["grad"]))
    assert image.byte == 4 * prod(image.shape) * mask[1]
    assert weight.byte == 4 * prod(weight.shape) * mask[0]
    assert grad.byte == 4 * walked.seed.numel()
    # What is asked for is written whole.
    shapes = [image.shape, weight.shape, (grad.shape[1],)]
    assert record.work.output_bytes == 4 * sum(
        prod(shape) for shape, is_asked in zip(shapes, mask, strict=True) if is_asked
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
    assert needed(size, kernel, stride, padding, dilation, windows) == (len(taps), len(reaching))


@settings(max_examples=25, deadline=None)
@given(case=cases(), transposed=st.booleans())
def test_each_gradient_takes_as_many_as_the_forward(case: Case, transposed: bool) -> None:
    """One for a first layer, two where input and weight need gradients."""
    module = replace(case, bias=False).module(transposed=transposed)
    forward = only(passed(module, case.input())).work
    for mask, times in (((0, 1, 0), 1), ((1, 0, 0), 1), ((1, 1, 0), 2)):
        found = work_of(case, [bool(each) for each in mask], transposed=transposed)
        assert found.macs == times * (forward.macs or 0)
        assert found.flop == times * (forward.flop or 0)
        assert found.min_flop == times * (forward.min_flop or 0)


def test_a_depthwise_training_step_is_three_forwards() -> None:
    """torch's own counter makes it 66: its gradient of the weight knows no groups."""
    x, weight = torch.empty(1, 64, 56, 56), torch.empty(64, 1, 3, 3)
    forward = only(passed(lambda x, w: F.conv2d(x, w, padding=1, groups=64), x, weight))

    def run(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        return backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 64, [1, 1, 0])

    record = only(passed(run, x, x.clone(), weight))
    assert forward.work.macs == 56 * 56 * 64 * 9
    assert record.work.macs == 2 * 56 * 56 * 64 * 9
    assert record.type == forward.type == "depthwise convolution"
    assert (record.state, record.op) == (State.COUNTED, "aten.convolution_backward")


@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_of_the_input_is_the_transposed_convolution(case: Case) -> None:
    """What the gradient of the input counts is what that convolution counts forward."""
    case = replace(case, bias=False)
    module: Any = case.module(transposed=False)
    seed = torch.randn(module(case.input()).shape)
    spread: Any = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][len(case.size) - 1]
    steps = zip(case.stride, case.padding, case.dilation, case.kernel, strict=True)
    short = [
        have - ((out - 1) * s - 2 * p + d * (k - 1) + 1)
        for have, out, (s, p, d, k) in zip(case.size, seed.shape[2:], steps, strict=True)
    ]
    assume(
        all(gap < max(s, d) for gap, s, d in zip(short, case.stride, case.dilation, strict=True))
    )
    forward = only(
        passed(
            lambda g, w: spread(
                g, w, None, case.stride, case.padding, short, case.groups, case.dilation
            ),
            seed,
            module.weight.detach(),
        )
    )
    found = work_of(case, (True, False, False), transposed=False)
    assert found.macs == forward.work.macs
    assert found.min_flop == forward.work.min_flop
    assert found.output_bytes == forward.work.output_bytes


@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_of_the_weight_is_a_convolution_over_the_batch(case: Case) -> None:
    """Batch and channels change places, and so do stride and dilation, of one group.

    The kernel is the gradient of the result; what the strides did not reach is cut off.
    """
    case = replace(case, groups=1, bias=False)
    module: Any = case.module(transposed=False)
    x, seed = case.input().requires_grad_(), torch.randn(module(case.input()).shape)
    (expected,) = torch.autograd.grad(module(x), module.weight, seed)
    convolve: Any = [F.conv1d, F.conv2d, F.conv3d][len(case.size) - 1]

    def over_the_batch(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        swapped = x.transpose(0, 1), g.transpose(0, 1)
        found = convolve(*swapped, None, case.dilation, case.padding, case.stride)
        for dimension, size in enumerate(case.kernel):
            found = found.narrow(dimension + 2, 0, size)
        return found.transpose(0, 1)

    found = over_the_batch(x.detach(), seed)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    (forward,) = [
        each
        for each in passed(over_the_batch, x.detach(), seed).records
        if each.op == "aten.convolution"
    ]
    # Each element takes as many, also those that are cut off.
    counted = work_of(case, (False, True, False), transposed=False).macs
    each = forward.work.macs or 0
    assert each * found.numel() == counted * prod(forward.outputs[0].shape)


@settings(max_examples=25, deadline=None)
@given(case=cases(), groups=st.integers(1, 4), batch=st.integers(1, 4), transposed=st.booleans())
def test_groups_and_batch_multiply(case: Case, groups: int, batch: int, transposed: bool) -> None:
    """g groups take g times what one takes, n samples n times."""
    one = replace(case, groups=1, batch=1)
    many = replace(case, groups=groups, batch=batch)
    mask = (True, True, False)
    of_one, of_many = (work_of(each, mask, transposed=transposed) for each in (one, many))
    assert of_many.macs == groups * batch * of_one.macs
    assert of_many.min_flop == groups * batch * of_one.min_flop


def test_by_hand() -> None:
    """The 3x3 with padding 1 on 2 x 5x5 to 4 filters: 225 taps a plane, of which 169 are inside.

    Gradients of 100 elements: 50 of the input, 72 of the weight, 4 of the bias, which takes 96
    additions.
    """
    case = Case(1, (5, 5), 2, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1), bias=True)
    work = work_of(case, ALL, transposed=False)
    assert work.macs == 2 * 225 * 8
    assert work.flop == 2 * 2 * 225 * 8 + 96
    assert work.min_flop == 2 * 2 * 169 * 8 + 96
    assert (work.input_bytes, work.output_bytes) == (4 * (100 + 50 + 72), 4 * (50 + 72 + 4))


def test_a_small_image_needs_few_taps() -> None:
    """A 3x3 with padding 1 on a single pixel: only the middle of the kernel meets it."""
    case = Case(1, (1, 1), 2, 4, 1, (3, 3), (1, 1), (1, 1), (1, 1), bias=False)
    record, _ = gradients(case, (True, True, False), transposed=False)
    weight = record.inputs[2]
    assert (weight.distinct_elements, weight.min_elements) == (72, 8)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (1, 2, 4, 4), (2, 2, 5, 7)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_legal_calls(transposed: bool, shape: Sequence[int], kind: torch.dtype) -> None:
    """No batch, a single pixel over, odd sizes; numbers of other widths."""
    x, weight = torch.zeros(shape, dtype=kind), torch.zeros(2, 2, 3, 3, dtype=kind)
    bias = torch.zeros(2, dtype=kind)
    pad = [1, 1], [1, 1], [1, 1]
    y = torch.convolution(x, weight, bias, *pad, transposed, [0, 0], 1)

    def run(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        return backward(g, x, w, [2], *pad, transposed, [0, 0], 1, [True, True, True])

    record = only(passed(run, y, x, weight))
    assert record.state is State.COUNTED
    assert record.work.macs == 2 * y.numel() // 2 * 2 * 2 * 9


# -- kernels with names of their own, from their schemas -------------------------------------------


GEOMETRY: dict[str, Any] = {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2], "groups": 2}


def counted(name: str, **arguments: Any) -> Flop:
    found = find(name)
    assert found is not None
    assert found.type == "convolution"
    return found.count(arguments)


def schema_names(name: str) -> set[str]:
    operator = getattr(torch.ops.aten, name.removeprefix("aten."))
    overload = operator.overloads()[-1 if name == "aten._slow_conv2d_backward" else 0]
    return {each.name for each in getattr(operator, overload)._schema.arguments}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    ("name", "transposed"),
    [
        ("aten.convolution_backward_overrideable", False),
        ("aten.mps_convolution_backward", False),
        ("aten.mps_convolution_transpose_backward", True),
    ],
)
def test_backward_kernels_count_the_same(name: str, transposed: bool, mask: Mask) -> None:
    """Whatever the input is called, and however many gradients there are to ask for."""
    if transposed:
        mask = (mask[0], mask[1], False)
    x, y, weight = spec(2, 4, 7, 6), spec(2, 6, 4, 6), spec(6, 2, 3, 3)
    if transposed:
        x, y = y, x
    common = {"grad_output": y, "weight": weight, "output": [None] * 3, **GEOMETRY}
    expected = counted(
        "aten.convolution_backward",
        **{**common, "input": x, "transposed": transposed, "output_mask": mask},
    )
    input_name = "self" if "self" in schema_names(name) else "input"
    asked = mask[:2] if "transpose" in name else mask
    extra = {"transposed": transposed} if "transposed" in schema_names(name) else {}
    found = counted(name, **{**common, **extra, input_name: x, "output_mask": asked})
    assert (found.flop, found.min_flop) == (expected.flop, expected.min_flop)
    assert (found.macs, found.type) == (expected.macs, expected.type)
    for of_found, of_expected in (
        (found.elements, expected.elements),
        (found.min_elements, expected.min_elements),
    ):
        assert {n.replace("self", "input"): v for n, v in of_found.items()} == dict(of_expected)


@pytest.mark.parametrize("mask", MASKS)
def test_the_unfolding_kernel(mask: Mask) -> None:
    """Dispatched: one group, not dilated."""
    case = Case(2, (6, 5), 2, 3, 1, (3, 2), (2, 1), (1, 0), (1, 1), bias=True)
    x, module = case.input(), case.module(transposed=False)
    weight: Any = module.weight
    shape = module(x).shape

    def run(g: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.ops.aten._slow_conv2d_backward.output_mask(
            g, x, w, list(case.kernel), list(case.stride), list(case.padding), list(mask)
        )

    record = only(passed(run, torch.randn(shape), x, weight.detach()))
    assert record.op == "aten._slow_conv2d_backward"
    assert record.work == work_of(case, mask, transposed=False)
