"""Multiply-adds that no kernel avoids, by hand and by brute force over real modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from roofline.core.dtypes import dtype
from roofline.placement import Roof
from roofline.workload.formulas.registry import Flop
from roofline.workload.work import Work
from tests.builders import ceiling, level, profile
from tests.workload.passes import only, passed, trained, working


def products(model: Any, *inputs: Any) -> tuple[int, int]:
    """Multiply-adds by the convention, and those that must be done."""
    work = [each.work for each in working(passed(model, *inputs))]
    return sum(each.macs or 0 for each in work), sum(each.min_macs or 0 for each in work)


def nonzero(model: nn.Module, *shape: int) -> int:
    """Pairs of an input and an output that depends on it, as torch's derivatives show."""
    torch.manual_seed(0)
    found = torch.autograd.functional.jacobian(model.double(), torch.rand(shape).double())
    model.float()
    return int((found != 0).sum())


@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_takes_nothing_off_a_linear_layer(bias: bool):
    assert products(nn.Linear(7, 5, bias=bias), (3, 7)) == (105, 105)
    assert products(lambda x: F.linear(x, torch.ones(5, 7)).relu(), (3, 7)) == (105, 105)


@pytest.mark.parametrize(
    ("beta", "alpha", "least"), [(1, 1, 105), (2, 3, 105), (0, 1, 105), (1, 0, 0)]
)
def test_terms_and_scales_take_nothing_off_a_product(beta: float, alpha: float, least: int):
    def added(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.addmm(x, a, b, beta=beta, alpha=alpha)

    assert products(added, (3, 5), (3, 7), (7, 5)) == (105, least)


CONVOLUTIONS = {
    "bias": nn.Conv2d(2, 3, 3),
    "padding": nn.Conv2d(2, 3, 3, padding=2, bias=False),
    "bias and padding": nn.Conv2d(2, 3, 3, padding=1),
    "stride and dilation": nn.Conv2d(2, 3, 2, stride=2, padding=1, dilation=2),
    "groups": nn.Conv2d(4, 4, 3, padding=1, groups=2),
    "depthwise": nn.Conv2d(4, 4, 3, padding=1, groups=4),
    "transposed": nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1),
    "transposed in groups": nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_derivatives(name: str):
    """One for each pair of an input and an output that depends on it; taps on padding are none."""
    model = CONVOLUTIONS[name]
    shape = (2, model.in_channels, 5, 6)
    assert products(model, shape)[1] == nonzero(model, *shape)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_takes_the_pairs_that_are_seen(causal: bool):
    """Five queries and keys in two heads: 25 pairs or 15, of 8 and of 8 features."""
    given = [(1, 2, 5, 8)] * 3
    all_pairs, seen = products(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), *given
    )
    assert (all_pairs, seen) == (2 * 25 * 16, 2 * (15 if causal else 25) * 16)


def test_a_layer_of_attention_is_the_sum_of_its_products():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    given = [torch.randn(3, 5, 8)] * 3
    expected = 3 * (4 * 5 * 8 * 8 + 2 * 5 * 5 * 8)
    assert products(layer, *given) == (expected, expected)


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_take_both_products_at_every_step(kind: Any, gates: int):
    expected = 7 * 2 * gates * 6 * (5 + 6)
    assert products(kind(5, 6), (7, 2, 5)) == (expected, expected)


def test_gradients_take_as_many_as_the_layer():
    """Of the weight, and of what is not the first layer's input."""
    model = nn.Sequential(nn.Linear(7, 5), nn.Conv1d(4, 2, 3, padding=1))
    records = trained(model, (3, 4, 7), loss=torch.sum).records
    inner = 3 * 4 * 2 * 13
    least = sum(each.work.min_macs or 0 for each in records)
    assert least == 3 * (inner) + 2 * (3 * 4 * 7 * 5)


def test_an_activation_in_the_kernel_takes_nothing_off():
    x, w, b = torch.randn(3, 7), torch.randn(7, 5), torch.randn(5)
    record = only(passed(lambda x: torch.ops.aten._addmm_activation(b, x, w, use_gelu=True), x))
    assert record.work.min_macs == 105


def test_what_is_not_stated_is_what_is_left_if_all_else_must_be_done():
    assert Flop(macs=10, other=4).min_macs == 10
    assert Flop(macs=10, other=4, least=20).min_macs == 8
    assert Flop(macs=10, other=4, least=3).min_macs == 0
    assert Flop(other=4, least=4).min_macs == 0
    assert Work(flop=24, macs=10, min_flop=20).min_macs == 8
    unknown = Work(flop=None, macs=None, min_flop=None)
    assert unknown.min_macs is (unknown + Work()).min_macs is None
    with pytest.raises(ValueError, match="min_macs must not exceed"):
        Flop(macs=10, least=10, min_macs=6)


def test_a_bound_takes_all_products_of_a_layer_with_a_bias():
    """105 multiply-adds at 1 GFLOP/s."""
    machine = profile([ceiling(1e9)], [level("DRAM", None, {"read": {1: 1e12}})])
    record = only(passed(nn.Linear(7, 5), (3, 7)))
    assert record.inputs[0].dtype == dtype("float32")
    assert Roof(machine, 1).compute_s(record) == pytest.approx(210e-9)
