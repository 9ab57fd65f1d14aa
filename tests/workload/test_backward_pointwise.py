"""Backward of pointwise operators against their derivatives written out, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from roofline.workload.operators import State
from tests.workload.passes import only, passed
from tests.workload.scalars import (
    Scalar,
    Tally,
    exp,
    flat,
    log,
    numbers,
    same,
    select,
    sigmoid,
    tanh,
)

ATEN = torch.ops.aten
ROOT_HALF = 1 / math.sqrt(2)
DENSITY = 1 / math.sqrt(2 * math.pi)
A_GELU, B_GELU = math.sqrt(2 / math.pi), 0.044715


def inside(x: Scalar, low: float, high: float) -> bool:
    """Two comparisons, whatever x is."""
    above, below = x > high, x < low
    return not above and not below


def silu(g: Scalar, x: Scalar) -> Scalar:
    s = sigmoid(x)
    return g * s * (1 + x * (1 - s))


def mish(g: Scalar, x: Scalar) -> Scalar:
    e = exp(x)
    d = e + 1
    t, s = tanh(log(d)), e / d
    return g * (t + x * s * (1 - t * t))


def gelu(g: Scalar, x: Scalar) -> Scalar:
    distribution = ((x * ROOT_HALF).apply(math.erf) + 1) * 0.5
    density = exp(x * x * -0.5) * DENSITY
    return g * (distribution + x * density)


def gelu_tanh(g: Scalar, x: Scalar) -> Scalar:
    square = x * x
    t = tanh((x + square * x * B_GELU) * A_GELU)
    right = t + 1
    inner = (square * (3 * B_GELU) + 1) * A_GELU
    return g * (right * 0.5 + x * 0.5 * (1 - t * t) * inner)


def elu(g: Scalar, x: Scalar, alpha: float, scale: float, input_scale: float) -> Any:
    """Products with a factor of 1 are none."""
    y = x if input_scale == 1 else x * input_scale
    below = g * exp(y)
    below = below if alpha * scale * input_scale == 1 else below * (alpha * scale * input_scale)
    return select(x > 0, g if scale == 1 else g * scale, below)


def elu_from_result(g: Scalar, y: Scalar, alpha: float, scale: float, input_scale: float) -> Any:
    below = g * (y + alpha * scale)
    below = below if input_scale == 1 else below * input_scale
    return select(y > 0, g if scale == 1 else g * scale, below)


def softplus(g: Scalar, x: Scalar, beta: float) -> Any:
    y = x if beta == 1 else x * beta
    e = exp(y)
    return select(y > 20, g, g * e / (e + 1))


def log_sigmoid(g: Scalar, x: Scalar) -> Scalar:
    """With exp(-|x|) from the forward pass, which takes nothing here."""
    is_negative = x < 0
    e = Scalar(math.exp(-abs(x.value)), x.tally)
    sign = Scalar(1 if is_negative else -1, x.tally)
    return g * ((1 if is_negative else 0) - sign * (e / (e + 1)))


Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CASES: list[tuple[str, Gradient, Callable[[Scalar, Scalar], Any]]] = [
    (
        "threshold",
        lambda g, x: ATEN.threshold_backward(g, x, 0.1),
        lambda g, x: select(x > 0.1, g, 0),
    ),
    (
        "hardtanh",
        lambda g, x: ATEN.hardtanh_backward(g, x, -0.5, 0.5),
        lambda g, x: select(inside(x, -0.5, 0.5), g, 0),
    ),
    (
        "hardshrink",
        lambda g, x: ATEN.hardshrink_backward(g, x, 0.5),
        lambda g, x: select(inside(x, -0.5, 0.5), 0, g),
    ),
    (
        "softshrink",
        lambda g, x: ATEN.softshrink_backward(g, x, 0.5),
        lambda g, x: select(inside(x, -0.5, 0.5), 0, g),
    ),
    (
        "leaky relu",
        lambda g, x: ATEN.leaky_relu_backward(g, x, 0.2, False),
        lambda g, x: select(x > 0, g, g * 0.2),
    ),
    (
        "random leaky relu, drawn",
        lambda g, x: ATEN.rrelu_with_noise_backward(g, x, x, 0.1, 0.3, True, False),
        lambda g, x: g * x,
    ),
    (
        "random leaky relu, not drawn",
        lambda g, x: ATEN.rrelu_with_noise_backward(g, x, x, 0.1, 0.3, False, False),
        lambda g, x: select(x > 0, g, g * 0.2),
    ),
    (
        "dropout",
        lambda g, x: ATEN.native_dropout_backward(g, x > 0, 2.0),
        lambda g, x: g * float(x.value > 0) * 2.0,
    ),
    ("sigmoid", ATEN.sigmoid_backward, lambda g, y: g * (1 - y) * y),
    ("tanh", ATEN.tanh_backward, lambda g, y: g * (1 - y * y)),
    ("silu", ATEN.silu_backward, silu),
    ("mish", ATEN.mish_backward, mish),
    ("gelu", ATEN.gelu_backward, gelu),
    ("gelu, approximate", lambda g, x: ATEN.gelu_backward(g, x, approximate="tanh"), gelu_tanh),
    (
        "elu",
        lambda g, x: ATEN.elu_backward(g, 1.0, 1, 1, False, x),
        lambda g, x: elu(g, x, 1.0, 1, 1),
    ),
    (
        "celu",
        lambda g, x: ATEN.elu_backward(g, 0.7, 1, 1 / 0.7, False, x),
        lambda g, x: elu(g, x, 0.7, 1, 1 / 0.7),
    ),
    (
        "selu",
        lambda g, x: ATEN.elu_backward(g, 1.67, 1.05, 1, False, x),
        lambda g, x: elu(g, x, 1.67, 1.05, 1),
    ),
    (
        "elu, in place",
        lambda g, y: ATEN.elu_backward(g, 3.0, 1, 1, True, y),
        lambda g, y: elu_from_result(g, y, 3.0, 1, 1),
    ),
    (
        "all factors, in place",
        lambda g, y: ATEN.elu_backward(g, 3.0, 1.2, 0.7, True, y),
        lambda g, y: elu_from_result(g, y, 3.0, 1.2, 0.7),
    ),
    ("hardsigmoid", ATEN.hardsigmoid_backward, lambda g, x: select(inside(x, -3, 3), g / 6, 0)),
    (
        "hardswish",
        ATEN.hardswish_backward,
        lambda g, x: select(x > 3, g, select(x < -3, 0, g * (x / 3 + 0.5))),
    ),
    ("softplus", lambda g, x: ATEN.softplus_backward(g, x, 1, 20), lambda g, x: softplus(g, x, 1)),
    (
        "steep softplus",
        lambda g, x: ATEN.softplus_backward(g, x, 3, 20),
        lambda g, x: softplus(g, x, 3),
    ),
    ("log sigmoid", lambda g, x: ATEN.log_sigmoid_backward(g, x, (-x.abs()).exp()), log_sigmoid),
    (
        "logit",
        lambda g, x: ATEN.logit_backward(g, x, 0.3),
        lambda g, x: select(inside(x, 0.3, 0.7), g / (x * (1 - x)), 0),
    ),
]


@pytest.mark.parametrize(
    ("function", "written_out"),
    [pytest.param(function, loop, id=name) for name, function, loop in CASES],
)
def test_written_out(function: Gradient, written_out: Callable[[Scalar, Scalar], Any]) -> None:
    """The operator gives what the written-out derivative gives, and counts what that takes."""
    g, x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(3))
    tally = Tally()
    pairs = zip(flat(numbers(g, tally)), flat(numbers(x, tally)), strict=True)
    assert same([written_out(a, b) for a, b in pairs], function(g, x))
    records = passed(function, g, x).records
    record = next(each for each in records if each.op.endswith("_backward"))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)
    assert (record.type, record.work.macs) == ("pointwise", 0)


def test_the_cases_are_derivatives() -> None:
    """What the loops were compared with is what torch differentiates the functions to."""
    x = torch.randn(7, dtype=torch.float64, requires_grad=True)
    for function, backward in (
        (torch.nn.functional.mish, lambda g: ATEN.mish_backward(g, x)),
        (torch.nn.functional.gelu, lambda g: ATEN.gelu_backward(g, x)),
        (torch.nn.functional.logsigmoid, lambda g: g * torch.sigmoid(-x)),
    ):
        (gradient,) = torch.autograd.grad(function(x).sum(), x)
        assert torch.allclose(gradient, backward(torch.ones_like(x)))


def test_prelu_has_two_gradients() -> None:
    """A comparison and two products an element; the slopes are repeated, and so is their sum."""
    x, g = torch.randn(2, 2, 3, 4)
    slope = torch.rand(1, 3, 1)
    gradients = ATEN._prelu_kernel_backward(g, x, slope.expand(2, 3, 4))
    tally = Tally()
    pairs = zip(flat(numbers(g, tally)), flat(numbers(x, tally)), strict=True)
    for_input, for_slope = [], []
    slopes = [float(each) for each in slope.expand(2, 3, 4).flatten()]
    for (a, b), s in zip(pairs, slopes, strict=True):
        is_positive = b > 0
        for_input.append(select(is_positive, a, a * s))
        for_slope.append(select(is_positive, 0, a * b))
    assert same(for_input, gradients[0])
    assert same(for_slope, gradients[1])
    record = only(
        passed(lambda g, x, w: ATEN._prelu_kernel_backward(g, x, w.expand(2, 3, 4)), g, x, slope)
    )
    assert record.work.flop == tally.flop == 3 * 24


def test_glu() -> None:
    """h = g * s for one half, h * (1 - s) * x for the other."""
    g, x, y = torch.randn(3, 2, 5)
    tally = Tally()
    first, second = [], []
    for a, b, c in zip(*(flat(numbers(each, tally)) for each in (g, x, y)), strict=True):
        s = sigmoid(c)
        h = a * s
        first.append(h)
        second.append(h * (1 - s) * b)
    both = torch.cat([x, y], -1)
    gradient = ATEN.glu_backward(g, both, -1)
    assert same(first, gradient[:, :5])
    assert same(second, gradient[:, 5:])
    record = only(passed(lambda g, x: ATEN.glu_backward(g, x, -1), g, both))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


def test_glu_along_a_direction() -> None:
    """dx * s + x * s * (dy - s * dy), where x * s is given."""
    x, y, dx, dy = torch.randn(4, 2, 5)
    both, along = torch.cat([x, y], -1), torch.cat([dx, dy], -1)
    result = torch.nn.functional.glu(both)
    tally = Tally()
    found = []
    for r, b, db, da in zip(
        *(flat(numbers(each, tally)) for each in (result, y, dy, dx)), strict=True
    ):
        s = sigmoid(b)
        found.append(da * s + r * (db - s * db))
    assert same(found, ATEN.glu_jvp(result, both, along, -1))
    record = only(passed(lambda r, x, d: ATEN.glu_jvp(r, x, d, -1), result, both, along))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


def test_glu_backward_along_a_direction() -> None:
    """u = 1 - s, d = s * u * dy: h' = dg * s + g * d, and h' * u * x + h * (u * dx - d * x)."""
    g, x, y, dg, dx, dy = torch.randn(6, 2, 5)
    both, along = torch.cat([x, y], -1), torch.cat([dx, dy], -1)
    gradient = ATEN.glu_backward(g, both, -1)
    tally = Tally()
    first, second = [], []
    lists = (flat(numbers(each, tally)) for each in (g, x, y, dg, dx, dy, gradient[:, :5]))
    for g_, x_, y_, dg_, dx_, dy_, h in zip(*lists, strict=True):
        s = sigmoid(y_)
        u = 1 - s
        d = s * u * dy_
        changed = dg_ * s + g_ * d
        first.append(changed)
        second.append(changed * u * x_ + h * (u * dx_ - d * x_))
    operands = (gradient, g, both, dg, along)
    result = ATEN.glu_backward_jvp(*operands, -1)
    assert same(first, result[:, :5])
    assert same(second, result[:, 5:])
    record = only(passed(lambda *each: ATEN.glu_backward_jvp(*each, -1), *operands))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, tally.min_flop)


def test_log_sigmoid_without_a_buffer() -> None:
    """CUDA keeps none: a magnitude, a sign change and an exponential more."""
    nothing = torch.empty(0)
    record = only(passed(ATEN.log_sigmoid_backward, torch.ones(4), torch.ones(4), nothing))
    assert record.work.flop == 4 * (6 + 2 + 8)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (2, 0), (2, 3, 1)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_shapes_and_types(shape: tuple[int, ...], kind: torch.dtype) -> None:
    """Every operator counts whatever torch takes; twice the elements are twice the work."""
    for name, function, _ in CASES:
        g, x = torch.ones(2, *shape, dtype=kind), torch.ones(2, *shape, dtype=kind)
        works = []
        for operands in ((g, x), (torch.cat([g, g]), torch.cat([x, x]))):
            records = passed(function, *operands).records
            assert all(each.state is not State.UNKNOWN for each in records), name
            works.append(sum(each.work.flop or 0 for each in records))
        assert works[1] == 2 * works[0], name


def test_bytes_are_each_operand_once() -> None:
    record = only(passed(lambda g, x: ATEN.gelu_backward(g, x), (3, 4), (3, 4)))
    assert record.work.traffic_bytes == 3 * 12 * 4


def test_integers_take_no_flop() -> None:
    g = torch.ones(3, dtype=torch.int64)
    record = only(passed(lambda g: ATEN.threshold_backward(g, g, 0), g))
    assert record.work.flop == 0
