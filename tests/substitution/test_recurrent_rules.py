"""Recurrent cells written out step by step: gates merged at every step, products hoisted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import capture_graph
from roofline.substitution.graphs.graph import Graph
from tests.substitution.rewriting import (
    OPERATORS,
    Model,
    Rewritten,
    applied,
    assert_rewrites,
    assert_same_outputs,
    graph_of,
    in_float64,
    ops,
    places,
    random,
    refusal,
)

Take = Literal["select", "index", "unbind", "slice"]


def steps_of(x: torch.Tensor, take: Take) -> list[torch.Tensor]:
    """The time steps of [batch, time, width], as a model may take them."""
    count = x.shape[1]
    if take == "select":
        return [x.select(1, step) for step in range(count)]
    if take == "index":
        return [x[:, step] for step in range(count)]
    if take == "unbind":
        return list(x.unbind(1))
    return [x[:, step : step + 1].squeeze(1) for step in range(count)]


class Lstm(nn.Module):
    """An LSTM with one linear for each gate and operand."""

    def __init__(self, width: int, hidden: int, *, bias: bool = True, take: Take = "index") -> None:
        super().__init__()
        self.of_x = nn.ModuleList(nn.Linear(width, hidden, bias=bias) for _ in range(4))
        self.of_h = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.take: Take = take

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found: list[torch.Tensor] = []
        for x_t in steps_of(x, self.take):
            i, f, g, o = (u(h) + w(x_t) for w, u in zip(self.of_x, self.of_h, strict=True))
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            found.append(h)
        return torch.stack(found, 1), c


class Gru(nn.Module):
    """A GRU as torch has it: the candidate multiplies after the reset."""

    def __init__(self, width: int, hidden: int, *, after: bool = True) -> None:
        super().__init__()
        self.of_x = nn.ModuleList(nn.Linear(width, hidden) for _ in range(3))
        self.of_h = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(3))
        self.after = after

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        for x_t in x.unbind(1):
            r = torch.sigmoid(self.of_x[0](x_t) + self.of_h[0](h))
            z = torch.sigmoid(self.of_x[1](x_t) + self.of_h[1](h))
            if self.after:
                n = torch.tanh(self.of_x[2](x_t) + r * self.of_h[2](h))
            else:
                n = torch.tanh(self.of_x[2](x_t) + self.of_h[2](r * h))
            h = (1 - z) * n + z * h
        return h


class Sru(nn.Module):
    """A simple recurrent unit with matrices as parameters, and biases of its gates."""

    def __init__(self, width: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weights = nn.ParameterList(
            torch.randn(width, width, generator=generator) for _ in range(3)
        )
        self.biases = nn.ParameterList(torch.randn(width, generator=generator) for _ in range(2))

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for x_t in x.unbind(1):
            f = torch.sigmoid(x_t @ self.weights[0] + self.biases[0])
            r = torch.sigmoid(x_t @ self.weights[1] + self.biases[1])
            c = f * c + (1 - f) * (x_t @ self.weights[2])
            found.append(r * torch.tanh(c) + (1 - r) * x_t)
        return torch.stack(found, 1)


def by(graph: Graph, role: str) -> Graph:
    """The graph after gates were merged so."""
    (match,) = [match for match, why in places(graph, "merge-gates") if not why and match.all(role)]
    return applied(graph, "merge-gates", match)


def merged(module: nn.Module, inputs: tuple[torch.Tensor, ...], *roles: str) -> tuple[Graph, ...]:
    """The graph as it is, and with gates merged so and so, of which it checks what comes out."""
    before = in_float64(module)
    capture = capture_graph(before, tuple(each.double() for each in inputs), operators=OPERATORS)
    graphs = tuple(by(capture.graph, role) for role in roles)
    for graph in graphs:
        found = Rewritten(
            before=in_float64(module),
            capture=capture,
            graph=graph,
            times=1,
            after=build_module(capture, graph),
        )
        assert_same_outputs(found, inputs)
    return capture.graph, *graphs


def lstm_inputs(batch: int, steps: int, width: int, hidden: int) -> tuple[torch.Tensor, ...]:
    return (
        random(batch, steps, width),
        random(batch, hidden, seed=1),
        random(batch, hidden, seed=2),
    )


@settings(max_examples=5, deadline=None)
@given(
    batch=st.integers(1, 3),
    steps=st.integers(1, 4),
    width=st.integers(1, 5),
    hidden=st.integers(1, 5),
    bias=st.booleans(),
    take=st.sampled_from(["select", "index", "unbind", "slice"]),
)
def test_gates_of_an_lstm(
    batch: int, steps: int, width: int, hidden: int, bias: bool, take: Take
) -> None:
    module = Lstm(width, hidden, bias=bias, take=take)
    inputs = lstm_inputs(batch, steps, width, hidden)
    before, by_input, by_gate = map(ops, merged(module, inputs, "by input", "by gate"))
    assert (before["linear"], before["add"]) == (8 * steps, 5 * steps)
    assert (before["sigmoid"], before["tanh"]) == (3 * steps, 2 * steps)
    assert (by_input["linear"], by_input["add"]) == (2 * steps, 2 * steps)
    assert (by_input["sigmoid"], by_input["tanh"]) == (steps, 2 * steps)
    assert (by_gate["linear"], by_gate["add"], by_gate["cat"]) == (steps, steps, steps)
    assert (by_gate["sigmoid"], by_gate["tanh"]) == (steps, 2 * steps)


@pytest.mark.parametrize("after", [True, False])
def test_gates_of_a_gru(after: bool) -> None:
    module, inputs = Gru(4, 3, after=after), (random(2, 3, 4), random(2, 3, seed=1))
    _, by_input, by_gate = map(ops, merged(module, inputs, "by input", "by gate"))
    # Three gates of x are one; of h two are one, and the third, or all three.
    assert by_input["linear"] == 3 * (2 if after else 3)
    assert by_input["sigmoid"] == 3
    assert by_gate["linear"] == 3 * (3 if after else 2)


def test_gates_of_an_sru() -> None:
    module, inputs = Sru(4), (random(2, 3, 4), random(2, 4, seed=1))
    _, count = map(ops, merged(module, inputs, "by input"))
    assert (count["linear"], count["matmul"], count["sigmoid"]) == (3, 0, 3)


def test_weights_are_merged_once_for_all_steps() -> None:
    module = Lstm(4, 3)
    before = graph_of(module, *lstm_inputs(1, 5, 4, 3))
    graph = by(before, "by gate")
    weights = {weight for node in graph.nodes.values() for weight in node.weights()}
    # The matrix [4 * 3, 4 + 3] and the bias.
    assert sorted(weight.type.shape for weight in weights) == [(12,), (12, 7)]
    # And not again.
    again = by(by(before, "by input"), "by gate")
    assert ops(again)["linear"] == 5
    assert places(graph, "merge-gates") == places(again, "merge-gates") == []


def test_a_plain_cell_multiplies_both_at_once() -> None:
    def function(m: Any, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        for x_t in x.unbind(1):
            h = torch.tanh(m.w(x_t) + m.u(h))
        return h

    plain = Model(function, w=nn.Linear(4, 3), u=nn.Linear(3, 3))
    found = assert_rewrites(plain, (random(2, 3, 4), random(2, 3)), "merge-gates")
    count = ops(found.graph)
    assert (count["linear"], count["cat"], count["add"]) == (3, 3, 0)


def test_a_weight_that_is_used_outside_is_refused() -> None:
    def function(m: Any, *given: torch.Tensor) -> Any:
        out, c = m.cell(*given)
        return out, nn.functional.linear(c, m.cell.of_h[0].weight.t())

    tied = Model(function, cell=Lstm(4, 3))
    why = refusal(tied, lstm_inputs(1, 2, 4, 3), "merge-gates")
    assert why.startswith("weight cell.of_h.0.weight is shared with")


def test_gates_that_share_a_weight_are_refused() -> None:
    module = Lstm(4, 3)
    module.of_h[1] = module.of_h[0]
    found = places(graph_of(module, *lstm_inputs(1, 2, 4, 3)), "merge-gates")
    assert found
    assert all("shared" in why for _, why in found)


@pytest.mark.parametrize(
    ("module", "shape", "rules"),
    [
        (nn.LSTM(4, 3, batch_first=True), (2, 3, 4), ("merge-gates", "hoist-product")),
        (nn.GRU(4, 3), (2, 3, 4), ("merge-gates", "hoist-product")),
        (nn.LSTMCell(4, 3), (2, 4), ("merge-gates",)),
        (
            # Siblings of one value are for other rules.
            Model(lambda m, x: m.a(x) * m.b(x), a=nn.Linear(4, 3), b=nn.Linear(4, 3)),
            *((2, 4), ("merge-gates",)),
        ),
        (
            # Pieces of features are no steps.
            Model(lambda m, x: m.linear(x[:, :2]) + m.linear(x[:, 2:]), linear=nn.Linear(2, 3)),
            *((2, 4), ("hoist-product",)),
        ),
    ],
    ids=["LSTM", "GRU", "LSTM cell", "siblings", "features"],
)
def test_where_there_is_nothing_to_merge(
    module: nn.Module, shape: tuple[int, ...], rules: tuple[str, ...]
) -> None:
    graph = graph_of(module, random(*shape))
    assert not any(places(graph, rule) for rule in rules)


# -- products of a whole sequence


def stepwise(does: Callable[[torch.Tensor], torch.Tensor], take: Take) -> nn.Module:
    """A model of products of every step of a sequence."""
    return Model(
        lambda m, x: sum((torch.tanh(m.does(each)) for each in steps_of(x, take)), start=0.0),
        does=does,
    )


FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "linear": lambda m, x: nn.functional.linear(x, m.weight.t().contiguous(), m.bias),
    "mm": lambda m, x: torch.mm(x, m.weight),
    "addmm": lambda m, x: torch.addmm(m.bias, x, m.weight),
    "matmul": lambda m, x: x @ m.weight,
}


def multiplies(form: str, width: int, to: int) -> nn.Module:
    """A product as a model may write it."""
    if form == "module":
        return nn.Linear(width, to)
    weight, bias = nn.Parameter(random(width, to, seed=5)), nn.Parameter(random(to, seed=6))
    return Model(FORMS[form], weight=weight, bias=bias)


@settings(max_examples=15, deadline=None)
@given(
    form=st.sampled_from(["module", "matmul", "mm", "addmm"]),
    take=st.sampled_from(["select", "index", "unbind"]),
    batch=st.integers(1, 3),
    steps=st.integers(2, 5),
    width=st.integers(1, 4),
    to=st.integers(1, 4),
)
def test_a_product_of_every_step_is_one_of_the_sequence(
    form: str, take: Take, batch: int, steps: int, width: int, to: int
) -> None:
    module = stepwise(multiplies(form, width, to), take)
    found = assert_rewrites(module, (random(batch, steps, width),), "hoist-product")
    count = ops(found.graph)
    assert sum(count[each] for each in ("linear", "matmul", "mm", "addmm")) == 1
    assert count["tanh"] == steps


def test_steps_that_keep_their_dimension() -> None:
    slices = Model(lambda m, x: m.f(x[2:]).sum(0) + m.f(x[:2]).prod(0), f=nn.Linear(4, 3))
    found = assert_rewrites(slices, (random(5, 2, 4),), "hoist-product")
    assert ops(found.graph)["linear"] == 1


def test_an_lstm_hoists_what_does_not_wait() -> None:
    """All gates of all steps in one product, then one product of the state at each step."""
    inputs = lstm_inputs(2, 3, 4, 3)
    found = assert_rewrites(Lstm(4, 3), inputs, "hoist-product", "merge-linears", times=2)
    assert ops(found.graph)["linear"] == 13
    graph = by(found.capture.graph, "by input")
    (match,) = [match for match, why in places(graph, "hoist-product") if not why]
    graph = applied(graph, "hoist-product", match)
    assert ops(graph)["linear"] == 4
    assert places(graph, "hoist-product") == []


@pytest.mark.parametrize(
    ("takes", "why"),
    [
        (lambda x: [x[:, 0], x[:, 1]], "2 of 3 time steps are used: merging would add FLOP"),
        (lambda x: [x[:, 0], x[:, 0] * 1, x[:, 2]], "twice or not at all"),
        (lambda x: [x[:, 0], x[:, 1], x[:, 1], x[:, 2]], "twice or not at all"),
    ],
)
def test_hoisting_refuses(takes: Callable[[torch.Tensor], list[torch.Tensor]], why: str) -> None:
    some = Model(lambda m, x: torch.stack([m.f(each) for each in takes(x)]), f=nn.Linear(4, 3))
    assert why in refusal(some, (random(2, 3, 4),), "hoist-product")
