"""Convolutions, norms and the value itself that are added become one, or it is said why not."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.substitution.rewriting import (
    CONVOLUTIONS,
    Branches,
    Model,
    applied_everywhere,
    assert_rewrites,
    counts,
    graph_of,
    ops,
    places,
    random,
    refusal,
    sum_of,
    tied_branches,
    with_random_norms,
)

Parallel = functools.partial(Branches, meet=sum_of)
"""Modules that are given the same, and what they give added up."""


def repvgg(channels: int, out: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """A block of RepVGG as it is trained; the identity where it can be."""
    branches: list[nn.Module] = [
        nn.Sequential(
            nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out),
        )
        for size in (3, 1)
    ]
    if stride == 1 and channels == out:
        branches.append(nn.BatchNorm2d(channels))
    return nn.Sequential(Parallel(*branches), nn.ReLU())


@settings(max_examples=15)
@given(
    dims=st.integers(1, 2),
    branches=st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=2, max_size=3
    ),
    extra=st.integers(0, 1),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    groups=st.integers(1, 2),
    widths=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    seed=st.integers(0, 99),
)
def test_convolutions_of_one_value_that_are_added_become_one(
    dims: int,
    branches: list[tuple[int, bool, bool]],
    extra: int,
    stride: int,
    dilation: int,
    groups: int,
    widths: tuple[int, int],
    seed: int,
) -> None:
    convolution, norm = CONVOLUTIONS[dims - 1]
    channels, out = (groups * width for width in widths)
    settings_of_all = {"dilation": dilation, "groups": groups}
    made = [
        nn.Sequential(
            convolution(
                *(channels, out, 2 * half + 1, stride, half * dilation + extra),
                bias=bias,
                **settings_of_all,
            ),
            norm(out) if has_norm else nn.Sequential(),
        )
        for half, has_norm, bias in branches
    ]
    inputs = (random(2, channels, *[9] * dims, seed=seed),)
    model = with_random_norms(Parallel(*made), seed)
    found = assert_rewrites(model, inputs, "sum-convolutions")
    assert ops(found.graph) == {f"conv{dims}d": 1}


@settings(max_examples=15)
@given(
    dims=st.integers(1, 3),
    half=st.integers(0, 2),
    width=st.integers(1, 2),
    options=st.fixed_dictionaries(
        {"dilation": st.integers(1, 2), "groups": st.integers(1, 3), "bias": st.booleans()}
    ),
    norm=st.booleans(),
    first=st.booleans(),
    batched=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_value_is_added_to_its_own_convolution_by_the_kernel(
    dims: int,
    half: int,
    width: int,
    options: dict[str, Any],
    norm: bool,
    first: bool,
    batched: bool,
    seed: int,
) -> None:
    convolution, batch_norm = CONVOLUTIONS[dims - 1]
    channels, padding = options["groups"] * width, half * options["dilation"]
    branch = convolution(channels, channels, 2 * half + 1, padding=padding, **options)
    if norm and batched:
        branch = nn.Sequential(branch, batch_norm(channels))
    model = Parallel(*([nn.Identity(), branch] if first else [branch, nn.Identity()]))
    inputs = (random(*[2] * batched, channels, *[6] * dims, seed=seed),)
    module = with_random_norms(model, seed)
    found = assert_rewrites(module, inputs, "absorb-residual", adds_inputs=True)
    assert ops(found.graph) == {f"conv{dims}d": 1}
    assert places(found.capture.graph, "sum-convolutions") == []


@pytest.mark.parametrize(
    ("channels", "out", "stride", "groups"),
    [(4, 4, 1, 1), (4, 4, 1, 2), (4, 4, 1, 4), (3, 4, 1, 1), (4, 4, 2, 1), (4, 8, 2, 2)],
)
def test_a_block_of_repvgg_becomes_one_convolution(
    channels: int, out: int, stride: int, groups: int
) -> None:
    model = with_random_norms(repvgg(channels, out, stride, groups), 5)
    inputs = (random(2, channels, 7, 6),)
    found = assert_rewrites(model, inputs, "sum-convolutions")
    assert ops(found.graph) == {"conv2d": 1, "relu": 1}
    folded = assert_rewrites(model, inputs, "fold-batch-norm", "sum-convolutions", times=3)
    assert ops(folded.graph) == {"conv2d": 1, "relu": 1}


def test_the_counts_of_a_block_of_repvgg_are_those_worked_by_hand() -> None:
    graph = graph_of(repvgg(4, 4).eval(), random(2, 4, 7, 6))
    # Two convolutions, three norms, two additions, one activation; 84 places of 4 channels.
    launches, _, flop = counts(graph)
    assert (launches, flop) == (8, 2 * 84 * 4 * 4 * (9 + 1))
    after, times = applied_everywhere(graph, "sum-convolutions")
    assert times == 1
    # One kernel of 3x3 and its bias.
    launches, _, flop = counts(after)
    assert (launches, flop) == (2, 84 * 4 * (2 * 4 * 9 + 1))


def test_the_sum_has_the_numbers_of_its_terms() -> None:
    wide: Any = nn.Conv1d(1, 1, 3, padding=1)
    narrow: Any = nn.Conv1d(1, 1, 1)
    norm: Any = nn.BatchNorm1d(1, eps=0.0)
    with torch.no_grad():
        wide.weight.copy_(torch.tensor([[[1.0, 2.0, 3.0]]]))
        narrow.weight.fill_(10.0)
        norm.weight.fill_(6.0)
        norm.running_mean.fill_(5.0)
        norm.running_var.fill_(9.0)
        for each, bias in ((wide, 0.5), (narrow, 0.25), (norm, 1.0)):
            each.bias.fill_(bias)
    model = Parallel(wide, nn.Identity(), narrow, norm)
    found = assert_rewrites(model, (random(1, 1, 6),), "sum-convolutions")
    made = {each.dim(): each for each in found.after.parameters()}
    # [1 2 3] + 1 + 10 + 6 / 3 in the center; 0.5 + 0.25 + 1 - 5 * 6 / 3
    assert made[3].tolist() == [[[1.0, 15.0, 3.0]]]
    assert made[1].tolist() == [-8.25]


def _doubled_over_and_over(values: list[Tensor]) -> Tensor:
    total = values[0] + values[1]
    for _ in range(40):
        total = total + total
    return total


def _in_place(values: list[Tensor]) -> Tensor:
    total = values[0]
    total += values[1]
    return total.relu_()


def _one() -> nn.Module:
    return nn.Conv2d(2, 2, 1)


def _three() -> nn.Module:
    return nn.Conv2d(2, 2, 3, padding=1)


def _flat() -> list[nn.Module]:
    return [nn.Conv2d(2, 2, (1, 3), padding=(0, 1)), nn.Conv2d(2, 2, (3, 1), padding=(1, 0))]


@pytest.mark.parametrize(
    ("model", "inputs", "times", "left"),
    [
        (
            Parallel(_three(), nn.Identity(), meet=lambda y: sum_of([*y, *y, y[1]])),
            *(1, 1, {"conv2d": 1}),
        ),
        (Parallel(_one(), _three(), meet=_doubled_over_and_over), 1, 41, {"conv2d": 1}),
        (Parallel(_one(), _three(), meet=_in_place), 1, 1, {"conv2d": 1, "relu": 1}),
        (
            Parallel(_one(), nn.Sequential(_one(), nn.ReLU()), _one()),
            *(1, 1, {"conv2d": 2, "relu": 1, "add": 1}),
        ),
        (
            Parallel(nn.Conv2d(2, 3, 1, dilation=3), nn.Conv2d(2, 3, 3, padding=2, dilation=2)),
            *(1, 1, {"conv2d": 1}),
        ),
        (Parallel(*_flat(), _three()), 1, 1, {"conv2d": 1}),
        (
            Model(
                lambda m, x, y, z: (y + m.first(x)) + (z + m.second(x)),
                first=_three(),
                second=_one(),
            ),
            *(3, 1, {"conv2d": 1, "add": 2}),
        ),
        (
            with_random_norms(
                Model(
                    lambda m, x: (y := m.convolution(x)) + m.norm(y),
                    convolution=nn.Conv2d(2, 2, 3),
                    norm=nn.BatchNorm2d(2),
                ),
                seed=4,
            ),
            *(1, 1, {"conv2d": 1}),
        ),
        (
            Model(
                lambda m, x, y: sum_of([m.a(x), m.b(y), m.c(x), m.d(y)]),
                **{name: _one() for name in "abcd"},
            ),
            *(2, 2, {"conv2d": 2, "add": 1}),
        ),
    ],
    ids=[
        *("added twice", "doubled", "in place", "activation", "dilation of one", "flat kernels"),
        *("what else is added is added still", "a convolution and its norm", "two sums"),
    ],
)
def test_what_is_added_becomes_one(
    model: nn.Module, inputs: int, times: int, left: dict[str, int]
) -> None:
    given = tuple(random(1, 2, 7, 7, seed=seed) for seed in range(inputs))
    found = assert_rewrites(model, given, "sum-convolutions", times=times)
    assert ops(found.graph) == left


@pytest.mark.parametrize(
    "model",
    [
        Parallel(nn.Sequential(_three(), nn.ReLU(), _three(), nn.BatchNorm2d(2)), nn.Identity()),
        Parallel(_one(), meet=lambda values: (values[0] + 1.0) * 2 - values[0]),
    ],
    ids=["residual block", "numbers and other additions"],
)
def test_what_is_no_sum_is_left_alone(model: nn.Module) -> None:
    graph = graph_of(model.eval(), random(1, 2, 4, 4))
    assert places(graph, "absorb-residual") == places(graph, "sum-convolutions") == []


def test_a_value_that_is_padded_otherwise_than_by_zeros_is_another_value() -> None:
    model = Parallel(
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.Conv2d(2, 2, 1), nn.Identity()
    )
    found = assert_rewrites(
        model, (random(1, 2, 4, 4),), "sum-convolutions", "absorb-residual", times=1
    )
    assert ops(found.graph) == {"pad": 1, "conv2d": 2, "add": 1}


def _scaled(values: list[Tensor]) -> Tensor:
    return torch.add(values[0], values[1], alpha=2)


_NO_STATISTICS = nn.BatchNorm2d(2, track_running_stats=False)


def _activated() -> nn.Module:
    return nn.Sequential(_one(), nn.ReLU())


@pytest.mark.parametrize(
    ("rule", "model", "words"),
    [
        *(
            ("sum-convolutions", model, words)
            for model, words in (
                (Parallel(_one(), _one(), meet=_scaled), "has alpha=2"),
                (
                    Parallel(_one(), _one(), meet=lambda y: torch.cat([y[0] + y[1], y[0]], 1)),
                    "cat also reads the output of branches.0",
                ),
                (
                    Parallel(_one(), _one(), meet=lambda y: (y[0] + y[1], y[0])),
                    "the model returns the output",
                ),
                (Parallel(_one(), nn.Conv2d(2, 1, 1)), "broadcasts a smaller tensor"),
                (tied_branches(meet=sum_of), "weight branches.0.weight is tied"),
                (Parallel(_activated(), _activated()), "branches.0.1 precedes the addition"),
                (
                    Parallel(_one(), nn.Conv2d(2, 2, 1, groups=2)),
                    "the convolutions differ in groups: 1, 2",
                ),
                (
                    Parallel(nn.Conv2d(2, 2, 3, 2), nn.Conv2d(2, 2, 3, 3, padding=1)),
                    "the convolutions differ in stride: (2, 2), (3, 3)",
                ),
                (
                    Parallel(_three(), nn.Conv2d(2, 2, 3, padding=2, dilation=2)),
                    "the convolutions differ in dilation",
                ),
                (
                    Parallel(nn.Conv2d(2, 2, 1, 2), nn.Conv2d(2, 2, 2, 2)),
                    "kernels of 1x1, 2x2 have no common center",
                ),
                (
                    Parallel(nn.Conv2d(2, 2, 1, 3), nn.Conv2d(2, 2, 3, 3)),
                    "kernels of 1x1, 3x3 are not aligned",
                ),
                (Parallel(*_flat()), "one kernel of 3x3 has more FLOP than 1x3, 3x1"),
                (
                    # Added twice, and work once.
                    Parallel(*_flat(), meet=lambda y: sum_of([y[0], y[1], y[0], y[0]])),
                    "one kernel of 3x3 has more FLOP than 1x3, 3x1",
                ),
                (
                    Parallel(_one(), _NO_STATISTICS),
                    "branches.1 computes statistics from its input",
                ),
            )
        ),
        *(
            ("absorb-residual", model, words)
            for model, words in (
                (Parallel(_one(), nn.Identity(), meet=_scaled), "has alpha=2"),
                (Parallel(nn.Identity(), nn.Conv2d(2, 1, 1)), "broadcasts a smaller"),
                (
                    # The convolution is called twice.
                    Model(lambda m, x: m.one((m.one(x) + x).relu()), one=_one()),
                    "weight one.weight is shared with one",
                ),
                (Parallel(_activated(), nn.Identity()), "branches.0.1 precedes the addition"),
                (
                    Parallel(nn.Conv2d(2, 2, 2, padding=1, dilation=2), nn.Identity()),
                    "an even kernel size 2x2 shifts its input",
                ),
                (
                    Parallel(nn.Conv2d(2, 2, 1, padding="same"), nn.Identity()),
                    "branches.0 has padding 'same' instead of numbers",
                ),
                (
                    Parallel(nn.ConvTranspose2d(2, 2, 1), nn.Identity()),
                    "branches.0 is a transposed convolution",
                ),
                (
                    Parallel(nn.Sequential(_one(), _NO_STATISTICS), nn.Identity()),
                    "branches.0.1 computes statistics from its input",
                ),
            )
        ),
    ],
)
def test_it_is_said_why_terms_are_not_added_up(rule: str, model: nn.Module, words: str) -> None:
    assert words in refusal(model.eval(), (random(1, 2, 6, 6),), rule)


@pytest.mark.parametrize(
    ("rule", "model", "shape", "words"),
    [
        (
            # (6 + 2 * 4 - 3) // 2 + 1 = 6 elements, of every second place
            "absorb-residual",
            Parallel(nn.Identity(), nn.Conv1d(2, 2, 3, stride=2, padding=4)),
            (1, 2, 6),
            "a stride of 2 skips elements",
        ),
        (
            "absorb-residual",
            Parallel(nn.Conv1d(1, 3, 1), nn.Identity()),
            (1, 1, 4),
            "an addition broadcasts a smaller tensor",
        ),
        (
            # Without a batch.
            "sum-convolutions",
            Parallel(nn.Conv1d(3, 3, 1), nn.BatchNorm1d(4)),
            (3, 4),
            "branches.1 and the convolutions have different channels",
        ),
    ],
    ids=["stride", "repeated channels", "channels of a norm"],
)
def test_of_one_dimension_it_is_said_too(
    rule: str, model: nn.Module, shape: tuple[int, ...], words: str
) -> None:
    assert refusal(model.eval(), (random(*shape),), rule) == words
