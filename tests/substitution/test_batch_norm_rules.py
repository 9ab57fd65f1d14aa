"""Batch norms in evaluation are folded into what is before them, or it is said why not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from roofline.substitution.graphs.building import build_module
from roofline.substitution.graphs.capturing import capture_graph
from tests.substitution.rewriting import (
    CONVOLUTIONS,
    OPERATORS,
    Model,
    applied_everywhere,
    assert_rewrites,
    graph_of,
    in_float64,
    ops,
    places,
    random,
    with_random_norms,
)


@settings(max_examples=20)
@given(
    dims=st.integers(1, 3),
    groups=st.integers(1, 3),
    width=st.integers(1, 2),
    out=st.integers(1, 2),
    options=st.fixed_dictionaries(
        {
            "kernel_size": st.integers(1, 3),
            "stride": st.integers(1, 2),
            "padding": st.one_of(st.integers(0, 2), st.just("valid")),
            "dilation": st.integers(1, 2),
            "bias": st.booleans(),
        }
    ),
    of_norm=st.fixed_dictionaries(
        {"affine": st.booleans(), "eps": st.sampled_from([1e-5, 1e-3, 0.5])}
    ),
    seed=st.integers(0, 99),
)
def test_any_convolution_takes_its_norm_in(
    dims: int,
    groups: int,
    width: int,
    out: int,
    options: dict[str, Any],
    of_norm: dict[str, Any],
    seed: int,
) -> None:
    convolution, norm = CONVOLUTIONS[dims - 1]
    model = nn.Sequential(
        convolution(groups * width, groups * out, groups=groups, **options),
        norm(groups * out, **of_norm),
    )
    inputs = (random(2, groups * width, *[6] * dims, seed=seed),)
    found = assert_rewrites(with_random_norms(model, seed), inputs, "fold-batch-norm")
    assert ops(found.graph) == {f"conv{dims}d": 1}


@settings(max_examples=10)
@given(bias=st.booleans(), affine=st.booleans(), seed=st.integers(0, 99))
def test_a_linear_takes_its_norm_in(*, bias: bool, affine: bool, seed: int) -> None:
    model = nn.Sequential(nn.Linear(5, 7, bias=bias), nn.BatchNorm1d(7, affine=affine))
    inputs = (random(3, 5, seed=seed),)
    found = assert_rewrites(with_random_norms(model, seed), inputs, "fold-linear-batch-norm")
    assert ops(found.graph) == {"linear": 1}


def test_a_norm_gives_the_numbers_of_its_formula() -> None:
    model: Any = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1, eps=0.0)).eval()
    convolution, norm = model
    with torch.no_grad():
        convolution.weight.fill_(3.0)
        convolution.bias.fill_(5.0)
        norm.running_mean.fill_(1.0)
        norm.running_var.fill_(4.0)
        norm.weight.fill_(10.0)
        norm.bias.fill_(7.0)
    found = assert_rewrites(model, (random(1, 1, 2, 2),), "fold-batch-norm")
    # (3 x + 5 - 1) / 2 * 10 + 7 = 15 x + 27
    made = {tuple(each.shape): each for each in found.after.parameters()}
    assert made[1, 1, 1, 1].item() == 15.0
    assert made[1,].item() == 27.0


@pytest.mark.parametrize("norm_too", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_folded_before_it_is_rounded(dtype: torch.dtype, norm_too: bool) -> None:
    exact = with_random_norms(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), 3)
    model = copy.deepcopy(exact)
    (model if norm_too else next(model.children())).to(dtype)
    inputs = random(2, 3, 6, 6).to(dtype)
    capture = capture_graph(model, (inputs,), operators=OPERATORS)
    graph, times = applied_everywhere(capture.graph, "fold-batch-norm")
    assert times == 1
    assert ops(graph) == {"conv2d": 1}
    with torch.no_grad():
        reference = exact(inputs.float())
        before, after = model(inputs), build_module(capture, graph)(inputs)
        assert after.dtype == before.dtype == dtype

        def error(result: Tensor) -> float:
            return (result.float() - reference).abs().max().item()

        # What eager computes is rounded between convolution and norm, too.
        assert error(after) <= 2 * error(before)


def test_a_chain_of_convolutions_and_norms_is_folded_one_by_one() -> None:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)]
    model = nn.Sequential(*layers, nn.BatchNorm2d(2))
    found = assert_rewrites(
        with_random_norms(model, 1), (random(1, 3, 5, 5),), "fold-batch-norm", times=2
    )
    assert ops(found.graph) == {"conv2d": 2, "relu": 1}


def _also(then: Callable[[Tensor, Tensor], Any]) -> nn.Module:
    """The convolution's output is used once more."""
    return Model(
        lambda m, x: then(y := m.convolution(x), m.norm(y)),
        convolution=nn.Conv2d(2, 2, 1),
        norm=nn.BatchNorm2d(2),
    )


def _shared(what: str) -> nn.Module:
    """The convolution is called twice, or its weight is another's, or a norm's is."""
    is_again = what == "module"
    model: Any = Model(
        lambda m, x: m.other((m.first if is_again else m.second)(m.norm(m.first(x)).relu())),
        first=nn.Conv2d(2, 2, 1),
        second=nn.Conv2d(2, 2, 1),
        norm=nn.BatchNorm2d(2),
        other=nn.BatchNorm2d(2),
    )
    if what == "kernel":
        model.second.weight = model.first.weight
    else:
        model.other.weight = model.norm.weight
    return model


IMAGE, FOLD = (1, 2, 3, 3), "fold-batch-norm"


@pytest.mark.parametrize(
    ("model", "shape", "rule", "words"),
    [
        (_also(lambda y, z: y + z), IMAGE, FOLD, "also reads the output of convolution"),
        (_also(lambda y, z: (y, z)), IMAGE, FOLD, "the model returns the output of convolution"),
        (_shared("module"), IMAGE, FOLD, "is shared with"),
        (_shared("kernel"), IMAGE, FOLD, "is tied"),
        (_shared("norm"), IMAGE, FOLD, "is tied"),
        (
            Model(
                lambda m, x: m.norm(nn.functional.conv2d(x, m.kernel.tanh())),
                kernel=nn.Parameter(random(2, 2, 1, 1)),
                norm=nn.BatchNorm2d(2),
            ),
            *(IMAGE, FOLD, "is computed at run time"),
        ),
        (
            # A norm that is in training even in evaluation.
            Model(
                lambda m, x: nn.functional.batch_norm(m.convolution(x), None, None, training=True),
                convolution=nn.Conv2d(2, 2, 1),
            ),
            *(IMAGE, FOLD, "computes statistics from its input"),
        ),
        (
            nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, track_running_stats=False)),
            *(IMAGE, FOLD, "1 computes statistics from its input"),
        ),
        (
            nn.Sequential(nn.ConvTranspose2d(2, 2, 1), nn.BatchNorm2d(2)),
            *(IMAGE, FOLD, "0 is a transposed convolution"),
        ),
        (
            # Of a sequence.
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)),
            *((2, 3, 4), "fold-linear-batch-norm", "1 and 0 have different channels"),
        ),
        (
            # Without a batch.
            nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm1d(5)),
            *((2, 5, 4), FOLD, "1 and 0 have different channels"),
        ),
    ],
)
def test_it_is_said_why_a_norm_is_not_folded(
    model: nn.Module, shape: tuple[int, ...], rule: str, words: str
) -> None:
    reasons = [reason for _, reason in places(graph_of(model.eval(), random(*shape)), rule)]
    assert reasons
    assert all(words in reason for reason in reasons), reasons


def test_what_is_between_keeps_a_norm_where_it_is() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.BatchNorm2d(2)).eval()
    assert places(graph_of(model, random(1, 2, 3, 3)), "fold-batch-norm") == []


def test_the_model_is_left_as_it_was() -> None:
    model = with_random_norms(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)), 0).double()
    before = in_float64(model).state_dict()
    inputs = (random(1, 2, 3, 3),)
    assert_rewrites(model, inputs, "fold-batch-norm")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
