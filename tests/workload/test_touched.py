"""What operators touch of larger tensors, against windows and indices walked one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import roofline
from roofline.foundation.dtypes import dtype
from roofline.workload.capture.recorder import _as_touched
from roofline.workload.formulas.convolution import inner_taps, touched
from roofline.workload.formulas.registry import Flop
from roofline.workload.tensors import Role, TensorSpec

SIZES = st.integers(1, 12)


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.integers(0, 4), st.integers(1, 4), SIZES)
def test_taps_and_touched_elements_by_walking(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> None:
    under = [
        window * stride - padding + tap * dilation
        for window, tap in itertools.product(range(windows), range(kernel))
    ]
    inside = [each for each in under if 0 <= each < size]
    assert inner_taps(size, kernel, stride, padding, dilation, windows) == len(inside)
    assert touched(size, kernel, stride, padding, dilation, windows) == len(set(inside))


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)  # pyright: ignore[reportCallIssue]


def row_of(module: torch.nn.Module, *inputs: object) -> roofline.OperatorRow:
    """The one operator that is not free."""
    analysis = roofline.analyze(module, list(inputs), hardware="10980xe")
    (row,) = [each for each in analysis.operators if each.state != "free"]
    return row


def touched_by_gradient(module: torch.nn.Module, shape: tuple[int, ...]) -> int:
    """Elements of the input that the output depends on: those with a gradient."""
    x = torch.rand(shape, requires_grad=True)
    result = module(x)
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    assert x.grad is not None
    return int((x.grad != 0).sum())


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Conv2d(3, 4, 1, stride=2, bias=False),
        torch.nn.Conv2d(3, 4, 3, stride=5, padding=1, bias=False),
        torch.nn.Conv2d(3, 3, 2, stride=3, dilation=2, groups=3, bias=False),
        torch.nn.Conv2d(3, 4, 3, padding=1, bias=False),
        torch.nn.AvgPool2d(1, 4),
        torch.nn.AvgPool2d(2, 3),
    ],
    ids=str,
)
def test_a_stride_that_passes_over_elements_need_not_read_them(module: torch.nn.Module) -> None:
    """The bound counts what the result depends on; traffic counts the tensor."""
    shape = (2, 3, 17, 13)
    row = row_of(module, shape)
    image = row.inputs[0]
    assert image.byte == 4 * 2 * 3 * 17 * 13
    assert image.least_byte == 4 * touched_by_gradient(module, shape)


def test_sampling_down_reads_at_most_what_it_returns() -> None:
    down = Call(lambda x: F.interpolate(x, size=(5, 5), mode="nearest"))
    assert row_of(down, (1, 3, 20, 20)).inputs[0].least_byte == 4 * 3 * 25
    up = Call(lambda x: F.interpolate(x, size=(40, 40), mode="nearest"))
    assert row_of(up, (1, 3, 20, 20)).inputs[0].least_byte == 4 * 3 * 400


INDEX = "4:int64"
TABLE = (1000, 8)


@pytest.mark.parametrize(
    ("function", "inputs", "elements"),
    [
        (lambda x, i, v: x.index_copy_(0, i, v), (TABLE, INDEX, (4, 8)), 32),
        (lambda x, i, v: x.index_add_(0, i, v), (TABLE, INDEX, (4, 8)), 32),
        (lambda x, i: x.index_fill_(0, i, 1.0), (TABLE, INDEX), 32),
        (lambda x, i, v: x.index_put_((i,), v), (TABLE, INDEX, (4, 8)), 32),
        (lambda x, i, v: x.index_put_((i, i), v), (TABLE, INDEX, (4,)), 4),
        (lambda x, i, v: x.scatter_(0, i, v), (TABLE, "2x8:int64", (2, 8)), 16),
        (lambda x, i, v: x.scatter_add_(0, i, v), (TABLE, "2x8:int64", (2, 8)), 16),
    ],
)
def test_an_update_in_place_touches_what_is_selected(
    function: object, inputs: tuple[object, ...], elements: int
) -> None:
    row = row_of(Call(function), *inputs)
    assert row.inputs[0].byte == 4 * elements
    assert row.outputs[0].byte == 4 * elements


def test_out_of_place_the_whole_tensor_is_copied() -> None:
    row = row_of(Call(lambda x, i, v: x.scatter(0, i, v)), TABLE, "2x8:int64", (2, 8))
    assert row.inputs[0].byte == row.outputs[0].byte == 4 * 8000


def test_a_mask_may_select_nothing() -> None:
    row = row_of(Call(lambda x, m, v: x.index_put_((m,), v)), TABLE, "1000:bool", "1x8")
    assert row.inputs[0].least_byte == 0
    assert row.inputs[1].byte == 1000


def test_bags_of_rows() -> None:
    """4 rows of 8 in 2 bags: 32 looked up, 16 additions, 16 divisions of the mean."""
    bag = torch.nn.EmbeddingBag(1000, 8, mode="mean")
    analysis = roofline.analyze(bag, "2x2:int64", hardware="10980xe")
    (row,) = [each for each in analysis.operators if each.type == "embedding"]
    assert row.flop == 16 + 16
    assert row.parameter_byte == 4 * 32


def test_a_classic_profile_charges_operands_whole() -> None:
    row = row_of(torch.nn.Conv2d(3, 4, 1, stride=2), (1, 3, 8, 8))
    assert row.level_byte == {"DRAM": row.traffic_byte}


def test_a_part_that_begins_where_the_whole_does_is_not_the_whole() -> None:
    """What a formula says of one operand holds for no other at the same byte."""
    key = TensorSpec(
        shape=(1000, 8), dtype=dtype("float32"), distinct_elements=8000, storage=0, role=Role.INPUT
    )
    value = replace(key, shape=(1000, 4), distinct_elements=4000)
    count = Flop(least_elements={"key": 8, "value": 4})
    arguments = {"key": key, "value": value}
    assert _as_touched(key, count, arguments).least_elements == 8
    assert _as_touched(value, count, arguments).least_elements == 4
