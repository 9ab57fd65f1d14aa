"""Linears and matrix products with one left operand become one; activations fuse with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.substitution.rewriting import (
    Model,
    assert_rewrites,
    graph_of,
    ops,
    places,
    random,
    refusal,
)

Activation = Callable[[torch.Tensor], torch.Tensor]


class Heads(nn.Module):
    """Linears of one value, each with an activation or none behind it."""

    def __init__(
        self,
        width: int,
        widths: Sequence[int],
        biases: Sequence[bool],
        activations: Sequence[Activation | None],
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleList(
            nn.Linear(width, each, bias=bias) for each, bias in zip(widths, biases, strict=True)
        )
        self.activations = activations

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for head, activation in zip(self.heads, self.activations, strict=True):
            y = head(x)
            found.append(y if activation is None else activation(y))
        return [each + 1 for each in found]


@settings(max_examples=20, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=3),
    width=st.integers(1, 8),
    heads=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=2, max_size=5),
    activation=st.sampled_from([None, torch.relu, functional.gelu, torch.sigmoid]),
)
def test_linears_of_one_value_become_one(
    shape: list[int], width: int, heads: list[tuple[int, bool]], activation: Activation | None
) -> None:
    widths, biases = zip(*heads, strict=True)
    module = Heads(width, widths, biases, [activation] * len(heads))
    found = assert_rewrites(module, (random(*shape, width),), "merge-linears")
    count = ops(found.graph)
    assert count["linear"] == 1
    assert count["split_with_sizes"] == 1
    assert count["add"] == len(heads)
    # Taken in: once for all.
    assert count.total() == 2 + len(heads) + (activation is not None)


def test_queries_keys_and_values_become_one() -> None:
    def attention(m: Any, x: torch.Tensor) -> torch.Tensor:
        heads = (each(x).view(2, 5, 2, 4).transpose(1, 2) for each in (m.q, m.k, m.v))
        return functional.scaled_dot_product_attention(*heads)

    model = Model(attention, **{name: nn.Linear(8, 8) for name in "qkv"})
    found = assert_rewrites(model, (random(2, 5, 8),), "merge-linears")
    assert ops(found.graph)["linear"] == 1


def test_all_pairs_of_up_to_four_are_offered_and_of_more_all_of_them() -> None:
    for count, expected in ((2, 1), (3, 4), (4, 11), (5, 1)):
        module = Heads(3, [2] * count, [True] * count, [None] * count)
        found = places(graph_of(module, random(1, 3)), "merge-linears")
        assert [reason for _, reason in found] == [""] * expected


def test_an_activation_behind_one_of_them_stays_there() -> None:
    module = Heads(3, [2, 2], [True, True], [functional.silu, None])
    found = assert_rewrites(module, (random(1, 3),), "merge-linears")
    assert ops(found.graph) == {"linear": 1, "split_with_sizes": 1, "silu": 1, "add": 2}


def _twice() -> nn.Module:
    module = Heads(3, [2, 2], [True, True], [None, None])
    module.heads[1] = module.heads[0]
    return module


def _computed(of: str) -> nn.Module:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        given = {"weight": m.first.weight, "bias": m.first.bias}
        given[of] = given[of] * 2
        return functional.linear(x, **given) + m.second(x)

    return Model(function, first=nn.Linear(3, 3), second=nn.Linear(3, 3))


@pytest.mark.parametrize(
    ("module", "ids", "why"),
    [
        (
            Heads(3, [2, 2], [True, True], [torch.relu, torch.tanh]),
            *((), "activations differ: relu, tanh"),
        ),
        (
            Model(
                lambda m, x, ids: [
                    m.embedding(ids),
                    functional.linear(x, m.embedding.weight),
                    m.second(x),
                ],
                embedding=nn.Embedding(5, 3),
                second=nn.Linear(3, 5, bias=False),
            ),
            *((torch.tensor([1]),), "embedding.weight is shared with"),
        ),
        (_twice(), (), "is used twice: it would be duplicated"),
        (_computed("bias"), (), "the bias of"),
    ],
    ids=["activations", "used elsewhere", "twice", "computed"],
)
def test_linears_are_not_merged(module: nn.Module, ids: tuple[Any, ...], why: str) -> None:
    assert why in refusal(module, (random(1, 3), *ids), "merge-linears")


def test_weights_that_are_computed_are_no_siblings() -> None:
    assert places(graph_of(_computed("weight"), random(1, 3)), "merge-linears") == []


# -- matrix products


class Products(nn.Module):
    """Products of one value with several matrices, as a model may write them."""

    def __init__(self, form: str, width: int, widths: Sequence[int], batch: int = 2) -> None:
        super().__init__()
        self.multiply = FORMS[form]
        generator = torch.Generator().manual_seed(1)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator))

        def shape(to: int) -> tuple[int, ...]:
            if form in ("t", "addmm of t"):
                return to, width
            return (batch, width, to) if form == "bmm" else (width, to)

        self.weights = nn.ParameterList(weight(*shape(each)) for each in widths)
        self.biases = nn.ParameterList(weight(each) for each in widths)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(self.weights, self.biases, strict=True)
        return [torch.sigmoid(self.multiply(x, weight, bias)) for weight, bias in pairs]


FORMS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "matmul": lambda x, w, b: x @ w,
    "mm": lambda x, w, b: torch.mm(x, w),
    "t": lambda x, w, b: x @ w.t(),
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "addmm of t": lambda x, w, b: torch.addmm(b, x, w.transpose(0, 1)),
    "bmm": lambda x, w, b: torch.bmm(x, w),
    "computed": lambda x, w, b: x @ (w * 2),
}


@settings(max_examples=25, deadline=None)
@given(
    form=st.sampled_from([*FORMS]),
    rows=st.integers(1, 5),
    width=st.integers(1, 6),
    widths=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    is_batched=st.booleans(),
)
def test_products_with_one_left_operand_become_one(
    form: str, rows: int, width: int, widths: list[int], is_batched: bool
) -> None:
    with_batch = form == "bmm" or (is_batched and form in ("matmul", "t", "computed"))
    shape = (2, rows, width) if with_batch else (rows, width)
    found = assert_rewrites(Products(form, width, widths), (random(*shape),), "merge-matmuls")
    count = ops(found.graph)
    assert sum(count[each] for each in ("matmul", "mm", "addmm", "bmm", "linear")) == 1
    assert count["sigmoid"] == 1
    assert count["cat"] == (form == "computed")


def test_a_factor_that_needs_another_product_is_refused() -> None:
    chained = Model(lambda m, x, y: x @ ((x @ y) * 2))
    why = refusal(chained, (random(3, 3), random(3, 3, seed=1)), "merge-matmuls")
    assert why == "the output of matmul is an operand of another one"


def test_products_that_add_with_factors_are_no_siblings() -> None:
    scaled = Model(
        lambda m, x: torch.addmm(m.b, x, m.w, beta=0.5) + torch.addmm(m.b, x, m.w, alpha=2),
        w=nn.Parameter(random(3, 2)),
        b=nn.Parameter(random(2)),
    )
    assert places(graph_of(scaled, random(4, 3)), "merge-matmuls") == []


def test_different_activations_behind_products_are_refused() -> None:
    different = Model(
        lambda m, x: torch.relu(x @ m.first) + torch.tanh(x @ m.second),
        first=nn.Parameter(random(3, 2)),
        second=nn.Parameter(random(3, 2)),
    )
    assert "activations differ" in refusal(different, (random(4, 3),), "merge-matmuls")


# -- activations


@settings(max_examples=12, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=0, max_size=3),
    width=st.integers(1, 6),
    to=st.integers(1, 6),
    activation=st.sampled_from([nn.ReLU(), nn.ReLU(inplace=True), nn.GELU()]),
)
def test_an_activation_behind_a_linear_is_done_with_it(
    shape: list[int], width: int, to: int, activation: nn.Module
) -> None:
    module = nn.Sequential(nn.Linear(width, to), activation, nn.Linear(to, 2))
    found = assert_rewrites(module, (random(*shape, width),), "fuse-activation")
    count = ops(found.graph)
    assert (count["_addmm_activation"], count["linear"]) == (1, 1)
    assert count["relu"] == count["gelu"] == 0


def test_an_activation_behind_an_addmm_is_done_with_it() -> None:
    added = Model(
        lambda m, x: torch.relu(torch.addmm(m.bias, x, m.weight)),
        weight=nn.Parameter(random(3, 2)),
        bias=nn.Parameter(random(2)),
    )
    found = assert_rewrites(added, (random(4, 3),), "fuse-activation")
    assert ops(found.graph) == {"_addmm_activation": 1}


@pytest.mark.parametrize(
    ("module", "shape", "why"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.GELU("tanh")), (4, 3), "approximate='tanh'"),
        (nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU()), (4, 3), "has no bias"),
        (
            Model(lambda m, x: torch.relu(y := m.linear(x)) + y, linear=nn.Linear(3, 2)),
            *((4, 3), "also reads the output of linear"),
        ),
        (
            Model(lambda m, x: torch.relu(m.linear(x.transpose(0, 1))), linear=nn.Linear(3, 2)),
            *((4, 5, 3), "is not contiguous"),
        ),
    ],
)
def test_an_activation_is_not_fused(module: nn.Module, shape: tuple[int, ...], why: str) -> None:
    assert why in refusal(module, (random(*shape),), "fuse-activation")
