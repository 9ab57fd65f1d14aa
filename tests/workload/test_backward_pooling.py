"""Gradients of pooling against the same, handed out element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.formulas.registry import find
from roofline.workload.operators import OperatorRecord, State
from tests.workload.passes import only, passed
from tests.workload.scalars import Scalar, Tally, every, numbers, random, same
from tests.workload.schema_calls import spec

aten: Any = torch.ops.aten
Place = tuple[int, ...]


def element(nested: Any, place: Place) -> Scalar:
    for each in place:
        nested = nested[each]
    return nested


class Gradient:
    """What elements received: the first is written, every other one added."""

    def __init__(self) -> None:
        self.received: dict[Place, Scalar] = {}

    def receive(self, place: Place, value: Scalar) -> None:
        old = self.received.get(place)
        self.received[place] = value if old is None else old + value

    def is_that_of(self, expected: torch.Tensor) -> bool:
        zero = Scalar(0.0, Tally())
        found = [self.received.get(place, zero) for place in every(*expected.shape)]
        return same(found, expected)


def reads_no_input(record: OperatorRecord, *, at: int = 1) -> bool:
    """The input is passed for its shape, and the gradient is written whole."""
    image = record.inputs[at]
    return image.byte == image.min_bytes == 0 and record.outputs[0].byte == 4 * prod(image.shape)


WINDOWS = st.fixed_dictionaries(
    {
        "dimensions": st.integers(2, 3),
        "kernel": st.integers(1, 3),
        "stride": st.integers(1, 4),
        "padding": st.integers(0, 1),
        "ceil_mode": st.booleans(),
    }
)


def places(at: Place, kernel: int, stride: int, padding: int, dilation: int) -> Iterator[Place]:
    for tap in every(*[kernel] * len(at)):
        yield tuple(a * stride - padding + t * dilation for a, t in zip(at, tap, strict=True))


@settings(max_examples=30, deadline=None)
@given(pool=WINDOWS, count_padding=st.booleans(), divisor=st.sampled_from([None, 5]))
def test_avg_pool(pool: dict[str, Any], count_padding: bool, divisor: int | None) -> None:
    """A division for each output, additions where windows overlap, none in padding."""
    dimensions, kernel, stride = pool["dimensions"], pool["kernel"], pool["stride"]
    padding = min(pool["padding"], kernel // 2)
    x = random(1, 2, *[4, 5, 6][:dimensions]).requires_grad_()
    function: Any = getattr(F, f"avg_pool{dimensions}d")
    options = (kernel, stride, padding, pool["ceil_mode"], count_padding, divisor)
    y = function(x, *options)
    g = random(*y.shape)
    (expected,) = torch.autograd.grad(y, x, g, retain_graph=True)
    # What torch divides by: of a single output, all its elements receive the same.
    tally, gradient = Tally(), Gradient()
    seeds = numbers(g, tally)
    for at in every(*y.shape):
        inside = [
            (*at[:2], *place)
            for place in places(at[2:], kernel, stride, padding, 1)
            if all(0 <= p < size for p, size in zip(place, x.shape[2:], strict=True))
        ]
        (share,) = torch.autograd.grad(y[at], x, retain_graph=True)
        part = element(seeds, at) / round(1 / float(share[inside[0]]))
        for place in inside:
            gradient.receive(place, part)
    assert gradient.is_that_of(expected)
    backward = getattr(aten, f"avg_pool{dimensions}d_backward")
    all_options = (
        [kernel] * dimensions,
        [stride] * dimensions,
        [padding] * dimensions,
        *options[3:],
    )
    record = only(passed(lambda g, x: backward(g, x, *all_options), g, x.detach()))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.flop)
    assert record.type == "pooling"
    assert reads_no_input(record)


@settings(max_examples=30, deadline=None)
@given(pool=WINDOWS, dilation=st.integers(1, 2))
def test_max_pool(pool: dict[str, Any], dilation: int) -> None:
    """Values decide how many gradients meet: never fewer than the least, nor more than all."""
    dimensions, kernel, stride = pool["dimensions"], pool["kernel"], pool["stride"]
    padding = min(pool["padding"], kernel // 2)
    x = random(1, 2, *[5, 6, 7][:dimensions]).requires_grad_()
    options = [[each] * dimensions for each in (kernel, stride, padding, dilation)]
    forward = getattr(aten, f"max_pool{dimensions}d_with_indices")
    y, indices = forward(x, *options, pool["ceil_mode"])
    g = random(*y.shape)
    (expected,) = torch.autograd.grad(y, x, g)
    tally, gradient = Tally(), Gradient()
    seeds = numbers(g, tally)
    sizes = x.shape[2:]
    for at in every(*y.shape):
        rest, place = int(indices[at]), []
        for size in reversed(sizes):
            place.append(rest % size)
            rest //= size
        gradient.receive((*at[:2], *place[::-1]), element(seeds, at))
    assert gradient.is_that_of(expected)
    backward = getattr(aten, f"max_pool{dimensions}d_with_indices_backward")
    record = only(
        passed(
            lambda g, x, i: backward(g, x, *options, pool["ceil_mode"], i), g, x.detach(), indices
        )
    )
    flop, least = record.work.flop, record.work.min_flop
    assert flop is not None
    assert least is not None
    assert least <= tally.flop <= flop <= y.numel()
    if stride >= dilation * (kernel - 1) + 1:
        assert flop == 0
    assert reads_no_input(record)
    assert record.inputs[2].byte == 8 * y.numel()


@settings(max_examples=30, deadline=None)
@given(dimensions=st.integers(2, 3), size=st.integers(1, 5), windows=st.integers(1, 5))
def test_adaptive_avg_pool(dimensions: int, size: int, windows: int) -> None:
    """torch says which elements an output depends on."""
    x = random(1, 2, *[size] * dimensions).requires_grad_()
    forward = getattr(aten, f"_adaptive_avg_pool{dimensions}d")
    y = forward(x, [windows] * dimensions)
    g = random(*y.shape)
    (expected,) = torch.autograd.grad(y, x, g, retain_graph=True)
    tally, gradient = Tally(), Gradient()
    seeds = numbers(g, tally)
    for at in every(*y.shape):
        (share,) = torch.autograd.grad(y[at], x, retain_graph=True)
        inside = share.nonzero().tolist()
        part = element(seeds, at) / len(inside)
        for place in inside:
            gradient.receive(tuple(place), part)
    assert gradient.is_that_of(expected)
    backward = getattr(aten, f"_adaptive_avg_pool{dimensions}d_backward")
    record = only(passed(backward, g, x.detach()))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.flop)
    assert reads_no_input(record)


@settings(max_examples=20, deadline=None)
@given(dimensions=st.integers(2, 3), size=st.integers(1, 5), windows=st.integers(1, 5))
def test_adaptive_max_pool(dimensions: int, size: int, windows: int) -> None:
    x = random(1, 2, *[size] * dimensions)
    y, indices = getattr(aten, f"adaptive_max_pool{dimensions}d")(x, [windows] * dimensions)
    backward = getattr(aten, f"adaptive_max_pool{dimensions}d_backward")
    record = only(passed(backward, torch.ones_like(y), x, indices))
    meetings = int((backward(torch.ones_like(y), x, indices) - 1).clamp(min=0).sum())
    assert (record.work.min_flop or 0) <= meetings <= (record.work.flop or 0)
    if size % windows == 0:
        assert record.work.flop == 0
    assert reads_no_input(record)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_fractional_max_pool(dimensions: int) -> None:
    x = random(1, 2, *[6] * dimensions)
    kernel, size = [2] * dimensions, [3] * dimensions
    samples = torch.rand(1, 2, dimensions)
    y, indices = getattr(aten, f"fractional_max_pool{dimensions}d")(x, kernel, size, samples)
    backward = getattr(aten, f"fractional_max_pool{dimensions}d_backward")
    record = only(passed(lambda g, x, i: backward(g, x, kernel, size, i), y, x, indices))
    assert (record.work.flop, record.work.min_flop) == (y.numel(), 0)
    assert reads_no_input(record)


def test_resnet_stem_by_hand() -> None:
    """3x3 over 8x8 with stride 2 and padding 1: sixteen gradients for 64 elements: maybe none meet.

    Averaged: 16 divisions; 11 * 11 = 121 pairs lie inside, over 64 elements, 57 more.
    """
    options = [[3, 3], [2, 2], [1, 1]]
    indices = torch.zeros(1, 1, 4, 4, dtype=torch.int64)
    record = only(
        passed(
            lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, *options, [1, 1], False, i),
            *((1, 1, 4, 4), (1, 1, 8, 8), indices),
        )
    )
    assert (record.work.flop, record.work.min_flop) == (16, 0)
    assert record.work.input_bytes == 16 * (4 + 8)
    average = only(
        passed(
            lambda g, x: aten.avg_pool2d_backward(g, x, *options, False, True, None),
            *((1, 1, 4, 4), (1, 1, 8, 8)),
        )
    )
    assert average.work.flop == 16 + 57


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 4, 4), (1, 1, 1, 1)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_legal_calls(shape: Sequence[int], kind: torch.dtype) -> None:
    x = torch.zeros(shape, dtype=kind)

    def pooled(x: torch.Tensor) -> Any:
        g, ones = torch.zeros_like(x), [1, 1]
        return (
            aten.avg_pool2d_backward(g, x, ones, [], [0, 0], False, True, None),
            aten._adaptive_avg_pool2d_backward(g, x),
            aten.adaptive_max_pool2d_backward(g, x, g.long()),
            aten.max_pool2d_with_indices_backward(g, x, ones, [], [0, 0], ones, False, g.long()),
        )

    records = [each for each in passed(pooled, x).records if "backward" in each.op]
    for each in records:
        assert each.state in (State.COUNTED, State.FREE)
    # A window of one element: no additions, and a division where there is an average.
    flop = [each.work.flop or 0 for each in records]
    assert flop in ([x.numel(), x.numel(), 0, 0], [])


def test_without_indices_the_largest_is_looked_for_again() -> None:
    """Apple's kernel: 16 windows of 8 comparisons; of 121 pairs inside, 16 begin a window."""
    formula = find("aten.max_pool2d_backward")
    assert formula is not None
    flop = formula.count(
        {
            "grad_output": spec(1, 1, 4, 4),
            "self": spec(1, 1, 8, 8),
            "kernel_size": [3, 3],
            "stride": [2, 2],
            "padding": [1, 1],
            "dilation": [1, 1],
            "ceil_mode": False,
            "output": spec(1, 1, 8, 8),
        }
    )
    assert (flop.flop, flop.min_flop) == (16 * 8 + 16, 121 - 16)
    assert (dict(flop.elements), flop.min_elements["self"]) == ({}, 64)
