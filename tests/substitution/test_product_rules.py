"""Linears and matrix products with one left operand become one; activations fuse with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.substitution.rewriting import (
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
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (
                each(x).view(2, 5, 2, 4).transpose(1, 2) for each in (self.q, self.k, self.v)
            )
            return functional.scaled_dot_product_attention(q, k, v)

    found = assert_rewrites(Attention(), (random(2, 5, 8),), "merge-linears")
    assert ops(found.graph)["linear"] == 1


def test_all_pairs_of_up_to_four_are_offered_and_of_more_all_of_them() -> None:
    for count, expected in ((2, 1), (3, 4), (4, 11), (5, 1)):
        module = Heads(3, [2] * count, [True] * count, [None] * count)
        found = places(graph_of(module, random(1, 3)), "merge-linears")
        assert [reason for _, reason in found] == [""] * expected


def test_different_activations_are_refused() -> None:
    module = Heads(3, [2, 2], [True, True], [torch.relu, torch.tanh])
    why = refusal(module, (random(1, 3),), "merge-linears")
    assert why == "their activations are different: relu, tanh"


def test_an_activation_behind_one_of_them_stays_there() -> None:
    module = Heads(3, [2, 2], [True, True], [functional.silu, None])
    found = assert_rewrites(module, (random(1, 3),), "merge-linears")
    assert ops(found.graph) == {"linear": 1, "split_with_sizes": 1, "silu": 1, "add": 2}


def test_a_weight_that_is_used_elsewhere_is_not_doubled() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 4)
            self.first, self.second = nn.Linear(4, 5, bias=False), nn.Linear(4, 5, bias=False)

        def forward(self, ids: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
            first = functional.linear(x, self.embedding.weight)
            return [self.embedding(ids), first, self.second(x)]

    why = refusal(Tied(), (torch.tensor([1]), random(2, 4)), "merge-linears")
    assert "embedding.weight is shared with" in why


def test_one_weight_twice_is_not_doubled() -> None:
    module = Heads(3, [2, 2], [True, True], [None, None])
    module.heads[1] = module.heads[0]
    assert refusal(module, (random(1, 3),), "merge-linears")


def test_weights_and_biases_that_are_computed_are_refused() -> None:
    class Computed(nn.Module):
        def __init__(self, of: str) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)
            self.of = of

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = {"weight": self.first.weight, "bias": self.first.bias}
            given[self.of] = given[self.of] * 2
            return functional.linear(x, **given) + self.second(x)

    assert places(graph_of(Computed("weight"), random(1, 4)), "merge-linears") == []
    why = refusal(Computed("bias"), (random(1, 4),), "merge-linears")
    assert why.startswith("the bias of")


# -- matrix products


class Products(nn.Module):
    """Products of one value with several matrices, as a model may write them."""

    def __init__(self, form: str, width: int, widths: Sequence[int], batch: int = 2) -> None:
        super().__init__()
        self.form = form
        generator = torch.Generator().manual_seed(1)

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator))

        if form in ("t", "addmm of t"):
            self.weights = nn.ParameterList(weight(each, width) for each in widths)
        elif form == "bmm":
            self.weights = nn.ParameterList(weight(batch, width, each) for each in widths)
        else:
            self.weights = nn.ParameterList(weight(width, each) for each in widths)
        self.biases = nn.ParameterList(weight(each) for each in widths)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if self.form == "matmul":
                found.append(x @ weight)
            elif self.form == "mm":
                found.append(torch.mm(x, weight))
            elif self.form == "t":
                found.append(x @ weight.t())
            elif self.form == "addmm":
                found.append(torch.addmm(bias, x, weight))
            elif self.form == "addmm of t":
                found.append(torch.addmm(bias, x, weight.transpose(0, 1)))
            elif self.form == "bmm":
                found.append(torch.bmm(x, weight))
            else:
                found.append(x @ (weight * 2))
        return [torch.sigmoid(each) for each in found]


@settings(max_examples=25, deadline=None)
@given(
    form=st.sampled_from(["matmul", "mm", "t", "addmm", "addmm of t", "bmm", "computed"]),
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
    class Chained(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            first = x @ y
            return x @ (first * 2)

    why = refusal(Chained(), (random(3, 3), random(3, 3, seed=1)), "merge-matmuls")
    assert why == "what matmul gives is a factor of another one"


def test_products_that_add_with_factors_are_no_siblings() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(random(3, 2))
            self.bias = nn.Parameter(random(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = torch.addmm(self.bias, x, self.weight, beta=0.5)
            return first + torch.addmm(self.bias, x, self.weight, alpha=2)

    assert places(graph_of(Scaled(), random(4, 3)), "merge-matmuls") == []


def test_different_activations_behind_products_are_refused() -> None:
    class Different(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(random(3, 2)), nn.Parameter(random(3, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ self.first) + torch.tanh(x @ self.second)

    why = refusal(Different(), (random(4, 3),), "merge-matmuls")
    assert "different" in why


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
    class Added(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(random(3, 2)), nn.Parameter(random(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.addmm(self.bias, x, self.weight))

    found = assert_rewrites(Added(), (random(4, 3),), "fuse-activation")
    assert ops(found.graph) == {"_addmm_activation": 1}


class Used(nn.Module):
    """A linear whose result is used with and without its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.relu(y) + y


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x.transpose(0, 1)))


@pytest.mark.parametrize(
    ("module", "shape", "why"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.GELU("tanh")), (4, 3), "approximated by tanh"),
        (nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU()), (4, 3), "has no bias"),
        (Used(), (4, 3), "takes what linear gives, too"),
        (Turned(), (4, 5, 3), "is not contiguous"),
    ],
)
def test_an_activation_is_not_fused(module: nn.Module, shape: tuple[int, ...], why: str) -> None:
    assert why in refusal(module, (random(*shape),), "fuse-activation")
