"""Operators that stand for several: what they take is what their parts take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.workload.passes import only, passed, total
from tests.workload.schema_calls import count_of, spec

aten: Any = torch.ops.aten


@pytest.mark.parametrize("with_weight", [True, False])
def test_rms_norm(with_weight: bool) -> None:
    """On a CPU torch writes it out: power, mean, sum, root, products."""
    norm = torch.nn.RMSNorm(8, elementwise_affine=with_weight)
    parts = total(passed(norm, (3, 5, 8)))
    # 15 vectors of 8: a square, an addition, a product, and one with the weight; 3 a vector.
    assert parts.flop == 120 * (3 + with_weight) + 15 * 3
    whole = count_of(
        "aten._fused_rms_norm",
        input=spec(3, 5, 8),
        normalized_shape=[8],
        weight=spec(8) if with_weight else None,
        eps=None,
        output=[spec(3, 5, 8), spec(3, 5, 1)],
    )
    assert whole.flop == parts.flop


def test_attention_before_torch_chooses() -> None:
    """As the operator that it chooses on a CPU, which also returns 40 logarithms of 8 + 1."""
    chosen = only(passed(F.scaled_dot_product_attention, *[(2, 4, 5, 8)] * 3)).work
    query = spec(2, 4, 5, 8)
    whole = count_of(
        "aten.scaled_dot_product_attention", query=query, key=query, value=query, output=query
    )
    assert whole.macs == chosen.macs
    assert whole.flop == (chosen.flop or 0) - 40 * 9
    assert whole.min_flop == (chosen.min_flop or 0) - 40


@pytest.mark.parametrize("operator", ["flash_attention", "cudnn_attention", "efficient_attention"])
def test_attention_on_other_devices(operator: str) -> None:
    """The same arithmetic; a kernel that leaves the logarithms out returns none of them."""
    query = spec(2, 4, 5, 8)
    arguments = {"query": query, "key": query, "value": query, "is_causal": True}
    name = f"aten._scaled_dot_product_{operator}"
    with_sums = count_of(name, **arguments, output=[query, spec(2, 4, 32), None, None])
    without = count_of(name, **arguments, output=[query, spec(2, 4, 0), None, None])
    assert with_sums.macs == 2 * 4 * 5 * 5 * 2 * 8
    assert with_sums.flop - without.flop == 40 * 9


@pytest.mark.parametrize("use_gelu", [True, False])
def test_product_with_activation(use_gelu: bool) -> None:
    """addmm, then gelu or relu."""
    shapes = (5,), (3, 4), (4, 5)
    fused = only(
        passed(lambda b, x, w: aten._addmm_activation(b, x, w, use_gelu=use_gelu), *shapes)
    )
    after: Callable[[Any], Any] = F.gelu if use_gelu else F.relu
    parts = total(passed(lambda b, x, w: after(torch.addmm(b, x, w)), *shapes))
    assert (fused.work.flop, fused.work.macs) == (parts.flop, 60)
    assert fused.work.min_flop == parts.min_flop


def test_masked_softmax() -> None:
    """As softmax where nothing is masked; nothing where all is."""
    x, mask = torch.zeros(2, 4, 5, 5), torch.zeros(2, 4, 5, 5, dtype=torch.bool)
    masked = only(passed(lambda x, mask: aten._masked_softmax(x, mask, 3), x, mask))
    plain = only(passed(lambda x: x.softmax(-1), (2, 4, 5, 5)))
    assert masked.work.flop == plain.work.flop
    assert masked.work.min_flop == 0


def test_bias_and_scale_of_heads() -> None:
    """3 samples of 5 vectors of 3 * 16: a bias for all, a scale for the queries."""
    record = only(passed(lambda x, b: aten._transform_bias_rescale_qkv(x, b, 2), (3, 5, 48), (48,)))
    assert record.work.flop == 3 * 5 * 48 + 3 * 5 * 16


def test_convolution_over_time() -> None:
    """As conv1d with its dimensions in another order: 7 steps, 2 samples, 3 to 4 channels."""
    there = only(passed(lambda x, w, b: torch.conv_tbc(x, w, b, 1), (7, 2, 3), (3, 3, 4), (4,)))
    here = only(passed(lambda x, w, b: F.conv1d(x, w, b, padding=1), (2, 3, 7), (4, 3, 3), (4,)))
    for count in ("flop", "macs", "min_flop"):
        assert getattr(there.work, count) == getattr(here.work, count)


@pytest.mark.parametrize(
    ("function", "each"),
    [
        (lambda x: x**2, 1),
        (lambda x: x**3, 2),
        (lambda x: x**0.5, 1),
        (lambda x: x**-0.5, 2),
        (lambda x: x**-1, 1),
        (lambda x: x**1.5, 8),
        (lambda x: torch.hypot(x, x), 4),
        (lambda x: torch.nan_to_num(x), 3),
        (lambda x: torch.xlogy(x, x), 2 + 8),
        (lambda x: torch.logit(x), 2 + 8),
        (lambda x: torch.logit(x, 0.1), 4 + 8),
        (lambda x: torch.sinc(x), 3 + 8),
        (lambda x: torch.logaddexp(x, x), 5 + 2 * 8),
        (lambda x: torch.asinh(x), 8),
        (lambda x: torch.fmax(x, x), 1),
        (lambda x: torch.copysign(x, x), 0),
        (lambda x: torch.linalg.cross(x, x), 3),
        (lambda x: torch.linalg.vector_norm(x, 0, (0, 1, 2)) + 0 * x[0, 0, 0], None),
    ],
)
def test_operations_of_an_element_by_hand(function: Callable[[Any], Any], each: int | None) -> None:
    """30 elements. The norm of order 0: 30 comparisons, 29 additions; one more product and sum."""
    work = total(passed(function, (2, 5, 3)))
    assert work.flop == (30 + 29 + 2 if each is None else 30 * each)
