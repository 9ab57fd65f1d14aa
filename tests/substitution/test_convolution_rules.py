"""Convolutions of one value are merged, with or without larger kernels, or it is said why not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.substitution.rewriting import (
    CONVOLUTIONS,
    Branches,
    Model,
    applied,
    applied_everywhere,
    assert_rewrites,
    assert_same_outputs,
    counts,
    graph_of,
    ops,
    places,
    random,
    refusal,
    rewritten,
    tied_branches,
    with_random_norms,
)


def fire(channels: int, out: int, *, bias: bool = True) -> nn.Module:
    """What SqueezeNet's fire module does behind its squeeze."""
    return Branches(
        nn.Sequential(nn.Conv2d(channels, out, 1, bias=bias), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Conv2d(channels, out, 3, padding=1, bias=bias), nn.ReLU(inplace=True)),
        meet=lambda values: torch.cat(values, 1),
    )


@settings(max_examples=15)
@given(
    dims=st.integers(1, 3),
    options=st.fixed_dictionaries(
        {
            "kernel_size": st.integers(1, 3),
            "stride": st.integers(1, 2),
            "padding": st.integers(0, 2),
            "dilation": st.integers(1, 2),
        }
    ),
    channels=st.integers(1, 3),
    outs=st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=2, max_size=5),
    batched=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equal_convolutions_of_one_value_become_one(
    dims: int,
    options: dict[str, int],
    channels: int,
    outs: list[tuple[int, bool]],
    batched: bool,
    seed: int,
) -> None:
    convolution, _ = CONVOLUTIONS[dims - 1]
    model = Branches(*(convolution(channels, out, bias=bias, **options) for out, bias in outs))
    inputs = (random(*[2] * batched, channels, *[6] * dims, seed=seed),)
    found = assert_rewrites(with_random_norms(model, seed), inputs, "merge-convolutions")
    assert ops(found.graph) == {f"conv{dims}d": 1, "split_with_sizes": 1}


ACTIVATIONS = [
    *(nn.ReLU(), nn.ReLU(inplace=True), nn.ReLU6(), nn.SiLU(), nn.GELU("tanh"), nn.Sigmoid()),
    *(nn.Hardswish(inplace=True), nn.LeakyReLU(0.3), nn.ELU(0.5), nn.Softplus(2.0)),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_an_activation_that_all_have_is_done_once(activation: nn.Module) -> None:
    """Siblings come in the order in which they are concatenated."""
    branches = [nn.Sequential(nn.Conv2d(2, out, 3), activation) for out in (1, 2, 3)]
    model = Branches(*branches, meet=lambda y: torch.cat([y[2], y[0], y[1]], 1))
    found = assert_rewrites(
        model, (random(2, 2, 5, 5),), "merge-convolutions", "eliminate-split-concat", times=2
    )
    assert sum(ops(found.graph).values()) == 2


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (
            Branches(
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(inplace=True)),
            ),
            {"relu": 1},
        ),
        (
            Branches(nn.Conv2d(2, 2, 1), nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReLU(inplace=True))),
            {"relu": 1},
        ),
        (
            Branches(
                nn.Conv2d(2, 2, 1),
                nn.Conv2d(2, 3, 1),
                meet=lambda y: torch.cat([y[0].relu(), y[1].relu(), y[1]], 1),
            ),
            {"relu": 2, "cat": 1},
        ),
    ],
    ids=["one in place", "behind one alone", "used twice"],
)
def test_activations_are_done_once_or_behind_the_split(
    model: nn.Module, left: dict[str, int]
) -> None:
    found = assert_rewrites(model, (random(1, 2, 3, 3),), "merge-convolutions")
    assert ops(found.graph) == {"conv2d": 1, "split_with_sizes": 1, **left}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_all_sets_of_up_to_four_siblings_are_tried_and_only_all_of_more(count: int) -> None:
    model = Branches(*(nn.Conv2d(2, out + 1, 1) for out in range(count))).eval()
    graph = graph_of(model, random(1, 2, 3, 3))
    sizes: list[int] = []
    for match, reason in places(graph, "merge-convolutions"):
        assert reason == ""
        after = applied(graph, "merge-convolutions", match)
        sizes.append(len(match.all("siblings")))
        assert ops(after)["conv2d"] == count + 1 - sizes[-1]
        if count == 3 and sizes[-1] == 2:
            # What was merged merges again.
            ((again, reason),) = places(after, "merge-convolutions")
            assert reason == ""
            assert ops(applied(after, "merge-convolutions", again))["conv2d"] == 1
    least = 2 if count <= 4 else count
    every = [size for size in range(count, least - 1, -1) for _ in combinations(range(count), size)]
    assert sizes == every


@pytest.mark.parametrize(
    ("branches", "rules"),
    [
        (
            [
                *(nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3)),
                nn.Conv2d(2, 2, 3, padding=1, stride=2),
                nn.Conv2d(2, 2, 3, padding=1, dilation=2),
                nn.Conv2d(2, 2, 3, padding=1, groups=2),
                nn.Conv2d(2, 2, (1, 3), padding=1),
            ],
            ["merge-convolutions"],
        ),
        (
            # Other paddings than zeros are operators of their own.
            [
                nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
                nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"),
                nn.Conv2d(2, 2, 1),
            ],
            ["merge-convolutions", "enlarge-kernel", "enlarge-and-merge"],
        ),
    ],
    ids=["settings", "paddings"],
)
def test_other_settings_are_no_siblings(branches: list[nn.Module], rules: list[str]) -> None:
    graph = graph_of(Branches(*branches).eval(), random(1, 2, 6, 6))
    assert not any(places(graph, rule) for rule in rules)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            Branches(nn.Conv2d(2, 2, 1, padding="same"), nn.Conv2d(2, 2, 1, padding="same")),
            "branches.0 has padding 'same' instead of numbers",
        ),
        (
            Branches(nn.ConvTranspose2d(2, 2, 1), nn.ConvTranspose2d(2, 2, 1)),
            "branches.0 is a transposed convolution",
        ),
        (
            Branches(nn.Conv2d(2, 2, 1, groups=2), nn.Conv2d(2, 2, 1, groups=2)),
            "branches.0 has groups",
        ),
        (
            Branches(
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.Sigmoid()),
            ),
            "activations differ: relu, sigmoid",
        ),
        (
            Branches(
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.GELU()),
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.GELU("tanh")),
            ),
            "activations differ: gelu(approximate=none), gelu(approximate=tanh)",
        ),
        (
            tied_branches(nn.Conv2d(2, 2, 3)),
            "weight branches.0.weight is tied",
        ),
        (
            # One of the siblings is called again, on something else.
            Model(
                lambda m, x: (m.first(m.second(x)), m.first(x)),
                first=nn.Conv2d(2, 2, 1),
                second=nn.Conv2d(2, 2, 1),
            ),
            "weight first.weight is shared with first",
        ),
        (
            Branches(*(nn.Conv2d(2, 2, 1, dtype=torch.complex64) for _ in range(2))),
            "weight branches.0.weight has data type complex64",
        ),
    ],
    ids=["padding", "transposed", "groups", "activations", "settings", "tied", "shared", "complex"],
)
def test_it_is_said_why_convolutions_are_not_merged(model: nn.Module, words: str) -> None:
    dtype = next(model.parameters()).dtype
    assert refusal(model.eval(), (random(1, 2, 4, 4).to(dtype),), "merge-convolutions") == words


def test_kernels_that_are_computed_are_not_merged() -> None:
    model = Model(lambda m, x, y, kernel: [functional.conv2d(z, kernel) for z in (x, x, y)])
    graph = graph_of(model, random(1, 2, 3, 3), random(1, 2, 3, 3), random(2, 2, 1, 1))
    ((match, reason),) = places(graph, "merge-convolutions")
    assert len(match.all("siblings")) == 2
    assert "is computed at run time" in reason


KERNELS = st.tuples(st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=15)
@given(
    halves=st.lists(st.tuples(KERNELS, st.booleans()), min_size=2, max_size=4),
    extra=st.integers(0, 1),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    channels=st.integers(1, 3),
    composite=st.booleans(),
    seed=st.integers(0, 99),
)
def test_kernels_around_one_centre_grow_until_they_are_equal(
    halves: list[tuple[tuple[int, int], bool]],
    extra: int,
    stride: tuple[int, int],
    channels: int,
    composite: bool,
    seed: int,
) -> None:
    branches = [
        nn.Conv2d(
            *(channels, 1 + place, (2 * high + 1, 2 * wide + 1), stride),
            padding=(high + extra, wide + extra),
            bias=bias,
        )
        for place, ((high, wide), bias) in enumerate(halves)
    ]
    inputs = (random(2, channels, 6, 7, seed=seed),)
    rules = ("enlarge-and-merge",) if composite else ("enlarge-kernel",)
    model = with_random_norms(Branches(*branches), seed)
    found = rewritten(model, inputs, *rules, "merge-convolutions")
    # Enough for all to have the largest height and width among them.
    sizes = zip(*(half for half, _ in halves), strict=True)
    largest = tuple(2 * max(each) + 1 for each in sizes)
    assert ops(found.graph) == {"conv2d": 1, "split_with_sizes": 1}
    (node,) = [node for node in found.graph.nodes.values() if node.op == "aten.conv2d"]
    assert node["weight"].type.shape[2:] == largest
    assert node["padding"] == tuple(size // 2 + extra for size in largest)
    assert ops(found.capture.graph)["conv2d"] == len(halves)
    assert_same_outputs(found, inputs)


@pytest.mark.parametrize(
    ("one", "other", "shape"),
    [
        (nn.Conv1d(2, 3, 1, 2, 1), nn.Conv1d(2, 1, 5, 2, 3, bias=False), (2, 2, 6)),
        (nn.Conv3d(2, 3, 1, 2, 1), nn.Conv3d(2, 1, 5, 2, 3, bias=False), (2, 2, 6, 6, 6)),
        (nn.Conv2d(2, 3, 2, padding=1), nn.Conv2d(2, 3, 4, padding=2), (1, 2, 6, 6)),
    ],
    ids=["1d", "3d", "even"],
)
def test_kernels_of_other_dimensions_and_even_ones_grow_too(
    one: nn.Module, other: nn.Module, shape: tuple[int, ...]
) -> None:
    found = assert_rewrites(Branches(one, other), (random(*shape),), "enlarge-and-merge")
    assert ops(found.graph) == {f"conv{len(shape) - 2}d": 1, "split_with_sizes": 1}


def test_enlarging_is_one_convolution_at_a_time_and_only_where_a_sibling_asks_for_it() -> None:
    kernels = [(1, 1), (3, 3), (1, 3), (5, 5)]
    model = Branches(*(nn.Conv2d(2, 2, (h, w), padding=(h // 2, w // 2)) for h, w in kernels))
    graph = graph_of(model.eval(), random(1, 2, 6, 6))
    sizes: list[tuple[int, ...]] = []
    for match, reason in places(graph, "enlarge-kernel"):
        assert reason == ""
        after = applied(graph, "enlarge-kernel", match)
        (node,) = [node for node in after.nodes.values() if node.rule == "enlarge-kernel"]
        sizes.append((match["convolution"], *node["weight"].type.shape[2:]))
    numbers = [number for number, node in graph.nodes.items() if node.op == "aten.conv2d"]
    grown = {0: [(1, 3), (3, 3), (5, 5)], 1: [(5, 5)], 2: [(3, 3), (5, 5)]}
    assert sorted(sizes) == [(numbers[place], *size) for place in grown for size in grown[place]]


@pytest.mark.parametrize("rule", ["enlarge-kernel", "enlarge-and-merge"])
@pytest.mark.parametrize(
    "other",
    [
        nn.Conv2d(2, 2, 3),
        nn.Conv2d(2, 2, 3, padding=1, stride=2),
        nn.Conv2d(2, 2, 3, padding=2, dilation=2),
        nn.Conv2d(2, 2, 2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, groups=2),
        nn.Conv2d(2, 2, 1),
        nn.ConvTranspose2d(2, 2, 3, padding=1),
    ],
    ids=["center", "stride", "dilation", "even", "same", "groups", "equal", "transposed"],
)
def test_kernels_that_could_not_merge_do_not_grow(rule: str, other: nn.Module) -> None:
    graph = graph_of(Branches(nn.Conv2d(2, 2, 1), other).eval(), random(1, 2, 6, 6))
    assert places(graph, rule) == []


@pytest.mark.parametrize("rule", ["enlarge-kernel", "enlarge-and-merge"])
@pytest.mark.parametrize(
    ("branches", "words"),
    [
        (
            (
                nn.Conv2d(2, 2, 1, groups=2),
                nn.Conv2d(2, 2, 3, padding=1, groups=2),
            ),
            "has groups",
        ),
        (
            (
                nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh()),
            ),
            "activations differ",
        ),
    ],
    ids=["groups", "activations"],
)
def test_it_is_said_why_kernels_do_not_grow(
    rule: str, branches: Sequence[nn.Module], words: str
) -> None:
    assert words in refusal(Branches(*branches).eval(), (random(1, 2, 6, 6),), rule)


def test_a_fire_module_becomes_one_convolution_and_its_activation() -> None:
    for rules in (("enlarge-and-merge",), ("enlarge-kernel", "merge-convolutions")):
        found = assert_rewrites(
            fire(3, 4),
            (random(1, 3, 6, 6),),
            *rules,
            "eliminate-split-concat",
            times=len(rules) + 1,
        )
        assert ops(found.graph) == {"conv2d": 1, "relu": 1}


def test_channels_last_kernels_stay_so() -> None:
    model: nn.Module = fire(4, 4).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = random(1, 4, 6, 6).to(memory_format=torch.channels_last)
    found = assert_rewrites(model, (inputs,), "enlarge-and-merge")
    (node,) = [node for node in found.graph.nodes.values() if node.op == "aten.conv2d"]
    assert node["weight"].type.shape == (8, 4, 3, 3)
    assert node["weight"].type.stride == (36, 1, 12, 4)
    assert node.type.stride[1] == 1


def test_the_counts_of_a_fire_module_are_those_worked_by_hand() -> None:
    graph = graph_of(fire(3, 4, bias=False).eval(), random(1, 3, 6, 6))
    # 4-byte elements: x has 432 byte, what an expansion gives 576, their kernels 48 and 432.
    # Two convolutions, two activations over what they gave, one concatenation.
    before = (432 + 48 + 576) + (432 + 432 + 576) + 2 * (576 + 576) + (1152 + 1152)
    assert counts(graph) == (5, before, 2 * 36 * 4 * 3 * (1 + 9))
    for rule in ("enlarge-and-merge", "eliminate-split-concat"):
        graph, _ = applied_everywhere(graph, rule)
    # One convolution with eight kernels of 3x3, one activation.
    after = (432 + 8 * 3 * 9 * 4 + 1152) + (1152 + 1152)
    assert counts(graph) == (2, after, 2 * 36 * 8 * 3 * 9)
