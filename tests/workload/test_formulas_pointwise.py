"""Pointwise formulas against the same functions written out, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from roofline.workload.operators import State
from tests.workload.passes import only, passed, total
from tests.workload.scalars import (
    Scalar,
    Tally,
    exp,
    flat,
    largest_of,
    log,
    numbers,
    same,
    select,
    sigmoid,
    sum_of,
    tanh,
)

ROOT_HALF = 1 / math.sqrt(2)
A_GELU = math.sqrt(2 / math.pi)


def clip(x: Scalar, low: float, high: float) -> Scalar:
    """Two comparisons, whatever x is."""
    above, below = x > high, x < low
    return Scalar(high if above else low if below else x.value, x.tally)


def erf(x: Scalar) -> Scalar:
    return x.apply(math.erf)


ONE_ARGUMENT: list[tuple[str, Callable[[Any], Any], Callable[[Scalar], Any]]] = [
    ("neg", torch.neg, lambda x: -x),
    ("abs", torch.abs, abs),
    ("double", lambda x: 2 * x, lambda x: x * 2),
    ("halve", lambda x: x / 2, lambda x: x / 2),
    ("from one", lambda x: 1 - x, lambda x: 1 - x),
    ("reciprocal", torch.reciprocal, lambda x: 1 / x),
    ("root", lambda x: (x * x + 1).sqrt(), lambda x: (x * x + 1).root()),
    ("reciprocal root", lambda x: (x * x + 1).rsqrt(), lambda x: 1 / (x * x + 1).root()),
    ("square", lambda x: x**2, lambda x: x * x),
    ("cube", lambda x: x**3, lambda x: x * x * x),
    ("power", lambda x: abs(x) ** 1.7, lambda x: abs(x).apply(lambda v: v**1.7)),
    ("exp", torch.exp, exp),
    ("sin", torch.sin, lambda x: x.apply(math.sin)),
    ("tanh", torch.tanh, tanh),
    ("relu", F.relu, lambda x: select(x > 0, x, 0)),
    ("relu6", F.relu6, lambda x: clip(x, 0, 6)),
    ("hardtanh", F.hardtanh, lambda x: clip(x, -1, 1)),
    ("clamp", lambda x: x.clamp(-0.5, 0.5), lambda x: clip(x, -0.5, 0.5)),
    ("clamp low", lambda x: x.clamp(min=0.2), lambda x: select(x < 0.2, 0.2, x)),
    ("leaky relu", lambda x: F.leaky_relu(x, 0.2), lambda x: select(x > 0, x, x * 0.2)),
    ("sigmoid", torch.sigmoid, sigmoid),
    ("silu", F.silu, lambda x: x / (exp(-x) + 1)),
    ("mish", F.mish, lambda x: x * tanh(log(exp(x) + 1))),
    ("softplus", F.softplus, lambda x: select(x > 20, x, log(exp(x) + 1))),
    (
        "steep softplus",
        lambda x: F.softplus(x, beta=3),
        lambda x: select((y := x * 3) > 20, x, log(exp(y) + 1) / 3),
    ),
    ("softsign", F.softsign, lambda x: x / (abs(x) + 1)),
    ("log sigmoid", F.logsigmoid, lambda x: -log(exp(-x) + 1)),
    ("hardsigmoid", F.hardsigmoid, lambda x: clip(x + 3, 0, 6) / 6),
    ("hardswish", F.hardswish, lambda x: x * clip(x + 3, 0, 6) / 6),
    ("gelu", F.gelu, lambda x: x * 0.5 * (erf(x * ROOT_HALF) + 1)),
    (
        "gelu, approximate",
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: x * 0.5 * (tanh((x + x * x * x * 0.044715) * A_GELU) + 1),
    ),
    ("elu", lambda x: F.elu(x, 0.7), lambda x: select(x > 0, x, (exp(x) - 1) * 0.7)),
    ("celu", lambda x: F.celu(x, 1.0), lambda x: select(x > 0, x, (exp(x) - 1) * 1.0)),
    ("tanhshrink", F.tanhshrink, lambda x: x - tanh(x)),
    ("hardshrink", F.hardshrink, lambda x: 0 if clip(x, -0.5, 0.5).value == x.value else x),
    ("softshrink", F.softshrink, lambda x: x - clip(x, -0.5, 0.5)),
    ("threshold", lambda x: F.threshold(x, 0.1, 2.0), lambda x: select(x > 0.1, x, 2.0)),
]


@pytest.mark.parametrize(
    ("function", "written_out"),
    [pytest.param(function, loop, id=name) for name, function, loop in ONE_ARGUMENT],
)
def test_written_out(function: Callable[[Any], Any], written_out: Callable[[Scalar], Any]) -> None:
    """The operator gives what the written-out function gives, and counts what that takes."""
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    tally = Tally()
    assert same([written_out(each) for each in flat(numbers(x, tally))], function(x))
    work = total(passed(function, x))
    assert (work.flop, work.min_flop) == (tally.flop, tally.min_flop)
    assert work.macs == 0


TWO_ARGUMENTS: list[tuple[str, Callable[..., Any], Callable[[Scalar, Scalar], Any]]] = [
    ("add", torch.add, lambda x, y: x + y),
    ("scaled add", lambda x, y: torch.add(x, y, alpha=2), lambda x, y: x + y * 2),
    ("subtract", torch.sub, lambda x, y: x - y),
    ("multiply", torch.mul, lambda x, y: x * y),
    ("divide", torch.div, lambda x, y: x / y),
    ("maximum", torch.maximum, lambda x, y: x if x > y else y),
    ("max of two", torch.max, lambda x, y: x if x > y else y),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: x + (y - x) * 0.3),
    ("addcmul", lambda x, y: torch.addcmul(x, x, y), lambda x, y: x + x * y),
    ("scaled", lambda x, y: torch.addcmul(x, x, y, value=2), lambda x, y: x + x * y * 2),
    ("compare", lambda x, y: x > y, lambda x, y: float(x > y)),
    ("glu", lambda x, y: F.glu(torch.cat([x, y]), 0), lambda x, y: x / (exp(-y) + 1)),
]


@pytest.mark.parametrize(
    ("function", "written_out"),
    [pytest.param(function, loop, id=name) for name, function, loop in TWO_ARGUMENTS],
)
def test_two_arguments_written_out(
    function: Callable[..., Any], written_out: Callable[[Scalar, Scalar], Any]
) -> None:
    """As above, for functions of two tensors."""
    x, y = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(2))
    tally = Tally()
    pairs = zip(flat(numbers(x, tally)), flat(numbers(y, tally)), strict=True)
    assert same([written_out(a, b) for a, b in pairs], function(x, y).float())
    work = total(passed(function, x, y))
    assert (work.flop, work.min_flop) == (tally.flop, tally.min_flop)


def test_prelu_has_one_slope_a_channel() -> None:
    """A comparison and a multiplication an element, however many slopes there are."""
    record = only(passed(torch.nn.PReLU(3), (2, 3, 4)))
    assert record.work.flop == 2 * 24
    assert record.work.parameter_bytes == 3 * 4


def test_rounded_division_is_two_operations() -> None:
    """A division and a rounding, on 15 elements."""
    work = total(passed(lambda x: torch.div(x, 3, rounding_mode="floor"), (3, 5)))
    assert work.flop == 30


def test_broadcasting_counts_outputs() -> None:
    """3 x 1 plus 1 x 5 makes 15 sums, from 3 + 5 numbers read."""
    work = only(passed(torch.add, (3, 1), (1, 5))).work
    assert work.flop == 15
    assert work.input_bytes == 4 * (3 + 5)
    assert work.output_bytes == 4 * 15


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.int() + 1,
        lambda x: (x > 0) & (x < 1),
        lambda x: (x > 0).logical_not(),
        lambda x: x.long() * x.long() - 3,
        lambda x: x.int().clamp(0, 3),
    ],
)
def test_integers_and_logic_are_no_floating_point(function: Callable[[Any], Any]) -> None:
    """Only the comparisons of floats, 15 each, are FLOP; the rest is counted as none."""
    captured = passed(function, (3, 5))
    comparisons = sum(record.op in ("aten.gt", "aten.lt") for record in captured.records)
    assert total(captured).flop == 15 * comparisons


@given(
    rows=st.integers(1, 4), size=st.integers(1, 5), dim=st.integers(-2, 1), logarithm=st.booleans()
)
def test_softmax(rows: int, size: int, dim: int, logarithm: bool) -> None:
    """exp(x - max) / sum, or x - max - log(sum), along either dimension."""
    x = torch.randn(rows, size, generator=torch.Generator().manual_seed(3))
    function = F.log_softmax if logarithm else F.softmax
    tally = Tally()
    result: list[Any] = []
    for row in numbers(x if dim % 2 else x.T, tally):
        most = largest_of(row)
        shifted = [each - most for each in row]
        powers = [exp(each) for each in shifted]
        whole = sum_of(powers)
        if logarithm:
            whole = log(whole)
            result.append([each - whole for each in shifted])
        else:
            result.append([each / whole for each in powers])
    expected = function(x, dim=dim)
    assert same(result, expected if dim % 2 else expected.T.contiguous())
    record = only(passed(lambda x: function(x, dim=dim), x))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)
    assert record.type == "softmax"


@pytest.mark.parametrize("name", ["relu", "hardswish", "sigmoid", "gelu", "silu"])
@given(batch=st.integers(1, 5))
def test_work_is_proportional_to_the_batch(name: str, batch: int) -> None:
    """n images take n times the FLOP and bytes of one."""
    function = getattr(F, name)
    one = only(passed(function, (1, 3, 4))).work
    many = only(passed(function, (batch, 3, 4))).work
    assert many == sum(batch * [one])


@pytest.mark.parametrize(("kind", "part"), [("float64", 2), ("float16", 0.5), ("bfloat16", 0.5)])
def test_bytes_follow_the_data_type(kind: str, part: float) -> None:
    """Half the width halves the bytes; FLOP do not change."""
    plain = only(passed(F.silu, (4, 6))).work
    other = only(passed(F.silu, (4, 6), change=kind)).work
    assert other.traffic_bytes == part * plain.traffic_bytes
    assert other.flop == plain.flop


@pytest.mark.parametrize(
    "block",
    [
        *(torch.nn.ReLU6(), torch.nn.SELU(), torch.nn.Hardswish(), torch.nn.Softmax2d()),
        *(torch.nn.RReLU(), torch.nn.GLU(1), torch.nn.Softmin(1), torch.nn.Softshrink()),
        *(torch.nn.Dropout(), torch.nn.AlphaDropout(), torch.nn.Dropout2d(), torch.nn.Identity()),
        torch.nn.LPPool2d(2, 3, 2),
    ],
    ids=lambda block: type(block).__name__,
)
def test_blocks_are_known(block: torch.nn.Module) -> None:
    """Every activation a designer would put in a convolutional network has a formula."""
    captured = passed(block, (2, 4, 6, 6))
    assert all(record.state is not State.UNKNOWN for record in captured.records)


def test_dropout_does_nothing_in_inference() -> None:
    """No operator is left of it."""
    assert not passed(torch.nn.Dropout(0.5), (4, 4)).records
