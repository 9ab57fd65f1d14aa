"""Proofs hold for what is equal, fail for what is not, and leave the model as it was."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.graphs.graph import Editor, Graph, Value
from roofline.substitution.proof import (
    KINDS,
    LIMITS,
    Prover,
    cast_graph,
    index_limits,
    largest_error,
    random_weights,
    same_argmax,
)
from roofline.workload.inputs import Inputs
from tests.substitution.rewriting import (
    OPERATORS,
    Model,
    applied_everywhere,
    capture_of,
    graph_of,
)

NAN, INF = math.nan, math.inf


def model_and_capture() -> tuple[nn.Module, CapturedModel]:
    """Convolution, batch norm, ReLU, and scores."""
    torch.manual_seed(0)
    model = Model(
        lambda m, x: m.head(m.bn(m.conv(x)).relu().mean((2, 3))),
        conv=nn.Conv2d(3, 8, 3),
        bn=nn.BatchNorm2d(8),
        head=nn.Linear(8, 5),
    )
    return model, capture_of(model, torch.randn(2, 3, 8, 8))


def folded(graph: Graph) -> Graph:
    return applied_everywhere(graph, "fold-batch-norm")[0]


def without(graph: Graph, op: str) -> Graph:
    """A graph that leaves an operator out, and so computes something else."""
    (number,) = (number for number, node in graph.nodes.items() if node.op == op)
    editor = Editor(graph, OPERATORS.complete, "wrong")
    editor.replace(Value(number), next(graph.nodes[number].values()))
    return editor.finished()


def test_a_right_rewrite_holds_in_both_types_on_all_inputs() -> None:
    model, capture = model_and_capture()
    proofs = Prover(model, capture, Inputs("2x3x8x8")).prove(folded(capture.graph))
    assert all(each.holds for each in proofs)
    assert {(each.dtype, each.inputs) for each in proofs if each.weights == "own"} == {
        (dtype, kind) for dtype in LIMITS for kind in KINDS
    }
    assert {each.dtype for each in proofs if each.weights == "random"} == set(LIMITS)
    assert all(each.same_argmax == 1.0 for each in proofs)
    # Weights are made in float64 for float64: not by way of float32.
    assert max(each.largest_error for each in proofs if each.dtype == "float64") < 1e-13
    # Given tensors are tried, too.
    proofs = Prover(model, capture, Inputs(torch.randn(2, 3, 8, 8))).prove(capture.graph)
    assert {each.inputs for each in proofs} == {*KINDS, "given"}


def test_a_wrong_rewrite_fails_and_so_does_any_graph_that_has_it() -> None:
    model, capture = model_and_capture()
    prover = Prover(model, capture, Inputs("2x3x8x8"))
    wrong = without(capture.graph, "aten.relu")
    failed = [each for each in prover.prove(wrong) if not each.holds]
    assert failed
    assert prover.fails(folded(wrong), failed[0])
    assert not prover.fails(folded(capture.graph), failed[0])


def test_only_random_weights_show_a_norm_that_fresh_models_do_nothing_with() -> None:
    """A new norm divides by 1 + epsilon at most: leaving it out is all but right."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, eps=0.0))
    capture = capture_of(model, torch.randn(1, 3, 4, 4))
    proofs = Prover(model, capture, Inputs("1x3x4x4")).prove(
        without(capture.graph, "aten.batch_norm")
    )
    assert {each.weights for each in proofs if not each.holds} == {"random"}


def test_a_model_is_left_as_it_was() -> None:
    model, capture = model_and_capture()
    model.train()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    tensors = [*model.parameters(), *model.buffers()]
    Prover(model, capture, Inputs("2x3x8x8")).prove(folded(capture.graph))
    assert model.training
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    now = [*model.parameters(), *model.buffers()]
    assert all(one is other for one, other in zip(tensors, now, strict=True))


def test_a_type_that_the_model_does_not_take_is_left_out() -> None:
    def function(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise TypeError("give float32")
        return x + 1

    model = Model(function)
    capture = capture_of(model, torch.randn(2, 3))
    proofs = Prover(model, capture, Inputs("2x3")).prove(capture.graph)
    assert {each.dtype for each in proofs if each.weights == "own"} == {"float32"}


# -- inputs and weights ----------------------------------------------------------------------------


def tokens() -> nn.Module:
    """Two tables; of one of them positions are looked up, and flags are added."""
    return Model(
        lambda m, words, places, weights: m.words(words.view(-1)) + m.places(places) * weights,
        words=nn.Embedding(7, 4),
        places=nn.Embedding(3, 4),
    )


def test_indices_stay_within_their_tables() -> None:
    given = torch.zeros(6, dtype=torch.int64), torch.zeros(6, dtype=torch.int64), torch.ones(6, 1)
    capture = capture_of(tokens(), *given)
    assert index_limits(capture.graph) == {0: 7, 1: 3}
    proofs = Prover(tokens(), capture, Inputs("6:int64", "6:int64", "6x1")).prove(capture.graph)
    # Another model of random weights is another model, and it is only a matter of weights.
    assert {each.weights for each in proofs if not each.holds} == {"own"}
    assert all(math.isfinite(each.largest_error) for each in proofs)


def test_random_weights_are_such_as_a_model_may_have() -> None:
    _, capture = model_and_capture()
    found = random_weights(capture)
    assert set(found) == set(capture.weights)
    assert float(found["bn.running_var"].min()) > 0.4
    assert all(found[name].shape == each.shape for name, each in capture.weights.items())
    assert not torch.equal(found["bn.running_mean"], capture.weights["bn.running_mean"])
    assert all(torch.equal(one, random_weights(capture)[name]) for name, one in found.items())
    # Tied ones stay tied.
    tied: Any = Model(lambda m, x: m.b(m.a(x)), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    tied.b.weight = tied.a.weight
    found = random_weights(capture_of(tied, torch.randn(1, 4)))
    weights = [each for name, each in found.items() if name.endswith("weight")]
    assert all(each is weights[0] for each in weights)


def test_a_graph_in_another_type_has_that_type_in_all_places() -> None:
    mixed = Model(lambda m, x: x.to(torch.float32) + torch.zeros(3, dtype=torch.float32))
    nodes = cast_graph(graph_of(mixed, torch.randn(2, 3).half()), "float64").nodes.values()
    assert {each.dtype for node in nodes for each in node.outputs if each} == {"float64"}
    named = {each for node in nodes for _, each in node.arguments if isinstance(each, torch.dtype)}
    assert named <= {torch.float64}


# -- comparing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "got", "error"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        # 0.1 of the largest, 4.
        ([1.0, -4.0], [1.4, -4.0], 0.1),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        # Of nothing but zeros any difference is all.
        ([0.0, 0.0], [0.0, 1e-30], INF),
        ([NAN, 2.0], [NAN, 2.0], 0.0),
        ([1.0, 2.0], [NAN, 2.0], INF),
        ([NAN, 2.0], [1.0, 2.0], INF),
        ([INF, 2.0], [INF, 2.0], 0.0),
        ([INF, 2.0], [-INF, 2.0], INF),
        ([INF, 2.0], [NAN, 2.0], INF),
    ],
)
def test_errors_are_fractions_of_the_largest_value(
    expected: list[float], got: list[float], error: float
) -> None:
    found = largest_error(torch.tensor(expected), torch.tensor(got))
    assert found == pytest.approx(error, abs=1e-7)


def test_results_that_are_built_otherwise_are_not_equal() -> None:
    one = torch.ones(2, 2)
    assert largest_error({"a": one, "b": (one,)}, {"a": one, "b": (one,)}) == 0
    for other in ({"a": one, "b": [one]}, {"a": one}, one, None, {"a": one, "b": (one[:1],)}):
        assert largest_error({"a": one, "b": (one,)}, other) == INF
    assert largest_error(torch.tensor([1, 2]), torch.tensor([1, 2])) == 0
    assert largest_error(torch.tensor([1, 2]), torch.tensor([1, 3])) == INF
    assert largest_error(torch.tensor([1, 2]), torch.tensor([1.0, 2.0])) == INF
    assert largest_error((one, 3), (one, 4)) == INF


def test_the_largest_scores() -> None:
    scores = torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 3.0]])
    other = torch.tensor([[2.0, 1.0, 0.0], [1.0, 1.0, 9.0]])
    # The second row has two largest, and the last one of them is right.
    assert same_argmax(scores, other) == 0.5
    assert same_argmax(scores, scores) == 1.0
    assert same_argmax(torch.ones(1, 3, 8, 8), torch.ones(1, 3, 8, 8)) is None
    assert same_argmax(torch.ones(4), torch.ones(4)) is None
