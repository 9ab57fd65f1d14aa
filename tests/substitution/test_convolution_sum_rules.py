"""Convolutions, norms and the value itself that are added become one, or it is said why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.substitution.rewriting import (
    applied_everywhere,
    assert_rewrites,
    counts,
    graph_of,
    ops,
    places,
    random,
    refusal,
    with_random_norms,
)

CONVOLUTIONS: tuple[tuple[Any, Any], ...] = (
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
)


def sum_of(values: list[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


class Parallel(nn.Module):
    """Modules that are given the same, and what becomes of what they give."""

    def __init__(self, *branches: nn.Module, meet: Callable[[list[Tensor]], Any] = sum_of) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.meet = meet

    def forward(self, x: Tensor) -> Any:
        return self.meet([branch(x) for branch in self.branches])


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
    halves=st.lists(st.integers(0, 2), min_size=2, max_size=3),
    extra=st.integers(0, 1),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    groups=st.integers(1, 2),
    widths=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    norms=st.lists(st.booleans(), min_size=3, max_size=3),
    biases=st.lists(st.booleans(), min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
def test_convolutions_of_one_value_that_are_added_become_one(
    *,
    dims: int,
    halves: list[int],
    extra: int,
    stride: int,
    dilation: int,
    groups: int,
    widths: tuple[int, int],
    norms: list[bool],
    biases: list[bool],
    seed: int,
) -> None:
    convolution, norm = CONVOLUTIONS[dims - 1]
    channels, out = (groups * width for width in widths)
    branches = [
        nn.Sequential(
            convolution(
                channels,
                out,
                2 * half + 1,
                stride,
                half * dilation + extra,
                dilation=dilation,
                groups=groups,
                bias=bias,
            ),
            norm(out) if has_norm else nn.Sequential(),
        )
        for half, has_norm, bias in zip(halves, norms, biases, strict=False)
    ]
    inputs = (random(2, channels, *[9] * dims, seed=seed),)
    model = with_random_norms(Parallel(*branches), seed)
    found = assert_rewrites(model, inputs, "sum-convolutions")
    assert ops(found.graph) == {f"conv{dims}d": 1}


@settings(max_examples=15)
@given(
    dims=st.integers(1, 3),
    half=st.integers(0, 2),
    dilation=st.integers(1, 2),
    groups=st.integers(1, 3),
    width=st.integers(1, 2),
    bias=st.booleans(),
    norm=st.booleans(),
    first=st.booleans(),
    batched=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_value_is_added_to_its_own_convolution_by_the_kernel(
    *,
    dims: int,
    half: int,
    dilation: int,
    groups: int,
    width: int,
    bias: bool,
    norm: bool,
    first: bool,
    batched: bool,
    seed: int,
) -> None:
    convolution, batch_norm = CONVOLUTIONS[dims - 1]
    channels = groups * width
    branch: nn.Module = convolution(
        channels,
        channels,
        2 * half + 1,
        padding=half * dilation,
        dilation=dilation,
        groups=groups,
        bias=bias,
    )
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
    wide, narrow = nn.Conv1d(1, 1, 3, padding=1), nn.Conv1d(1, 1, 1)
    norm = nn.BatchNorm1d(1, eps=0.0)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    with torch.no_grad():
        wide.weight.copy_(torch.tensor([[[1.0, 2.0, 3.0]]]))
        narrow.weight.fill_(10.0)
        norm.weight.fill_(6.0)
        norm.running_mean.fill_(5.0)
        norm.running_var.fill_(9.0)
        norm.bias.fill_(1.0)
        for each, bias in ((wide, 0.5), (narrow, 0.25)):
            assert each.bias is not None
            each.bias.fill_(bias)
    model = Parallel(wide, nn.Identity(), narrow, norm)
    found = assert_rewrites(model, (random(1, 1, 6),), "sum-convolutions")
    made = {each.dim(): each for each in found.after.parameters()}
    # [1 2 3] + 1 + 10 + 6 / 3 in the centre; 0.5 + 0.25 + 1 - 5 * 6 / 3
    assert made[3].tolist() == [[[1.0, 15.0, 3.0]]]
    assert made[1].tolist() == [-8.25]


def test_what_else_is_added_is_added_still() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1)

        def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
            return (y + self.first(x)) + (z + self.second(x))

    inputs = tuple(random(1, 2, 4, 4, seed=seed) for seed in range(3))
    found = assert_rewrites(Model(), inputs, "sum-convolutions")
    assert ops(found.graph) == {"conv2d": 1, "add": 2}


def _twice(values: list[Tensor]) -> Tensor:
    return values[0] + values[1] + values[0] + values[1] + values[1]


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


@pytest.mark.parametrize(
    ("model", "times", "left"),
    [
        (Parallel(_three(), nn.Identity(), meet=_twice), 1, {"conv2d": 1}),
        (Parallel(_one(), _three(), meet=_doubled_over_and_over), 41, {"conv2d": 1}),
        (Parallel(_one(), _three(), meet=_in_place), 1, {"conv2d": 1, "relu": 1}),
        (
            Parallel(_one(), nn.Sequential(_one(), nn.ReLU()), _one()),
            1,
            {"conv2d": 2, "relu": 1, "add": 1},
        ),
        (
            Parallel(nn.Conv2d(2, 3, 1, dilation=3), nn.Conv2d(2, 3, 3, padding=2, dilation=2)),
            1,
            {"conv2d": 1},
        ),
        (
            Parallel(
                nn.Conv2d(2, 3, (1, 3), padding=(0, 1)),
                nn.Conv2d(2, 3, (3, 1), padding=(1, 0)),
                nn.Conv2d(2, 3, 3, padding=1),
            ),
            1,
            {"conv2d": 1},
        ),
    ],
    ids=["added twice", "doubled", "in place", "activation", "dilation of one", "flat kernels"],
)
def test_what_is_added_becomes_one(model: nn.Module, times: int, left: dict[str, int]) -> None:
    found = assert_rewrites(model, (random(1, 2, 7, 7),), "sum-convolutions", times=times)
    assert ops(found.graph) == left


def test_a_convolution_and_its_norm_may_both_be_added() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.convolution(x)
            return y + self.norm(y)

    model = with_random_norms(Model(), 4)
    found = assert_rewrites(model, (random(1, 3, 5, 5),), "sum-convolutions")
    assert ops(found.graph) == {"conv2d": 1}


def test_two_sums_of_two_values_are_two() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolutions = nn.ModuleList(nn.Conv2d(2, 2, 1) for _ in range(4))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            a, b, c, d = self.convolutions
            return a(x) + b(y) + c(x) + d(y)

    inputs = (random(1, 2, 4, 4), random(1, 2, 4, 4, seed=1))
    found = assert_rewrites(Model(), inputs, "sum-convolutions", times=2)
    assert ops(found.graph) == {"conv2d": 2, "add": 1}


def test_a_convolution_that_is_added_twice_is_work_once() -> None:
    def meet(values: list[Tensor]) -> Tensor:
        return values[0] + values[1] + values[0] + values[0]

    flat, high = nn.Conv2d(2, 2, (1, 3), padding=(0, 1)), nn.Conv2d(2, 2, (3, 1), padding=(1, 0))
    reason = refusal(
        Parallel(flat, high, meet=meet).eval(), (random(1, 2, 6, 6),), "sum-convolutions"
    )
    assert reason == "one kernel of 3x3 has more work than 1x3, 3x1"


def test_a_residual_block_is_left_alone() -> None:
    branch = nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)
    )
    graph = graph_of(Parallel(branch, nn.Identity()).eval(), random(1, 2, 4, 4))
    assert places(graph, "absorb-residual") == []
    assert places(graph, "sum-convolutions") == []


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


def _also(values: list[Tensor]) -> Tensor:
    return torch.cat([values[0] + values[1], values[0]], 1)


def _returned(values: list[Tensor]) -> Any:
    return values[0] + values[1], values[0]


def _tied() -> nn.Module:
    model = Parallel(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1))
    first, second = model.branches
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Conv2d)
    second.weight = first.weight
    return model


class _Again(nn.Module):
    """The convolution is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x) + x
        return self.convolution(y.relu())


@pytest.mark.parametrize(
    ("rule", "model", "words"),
    [
        ("sum-convolutions", Parallel(_one(), _one(), meet=_scaled), "multiplies by alpha=2"),
        ("absorb-residual", Parallel(_one(), nn.Identity(), meet=_scaled), "by alpha=2"),
        ("sum-convolutions", Parallel(_one(), _one(), meet=_also), "cat takes what branches.0"),
        ("sum-convolutions", Parallel(_one(), _one(), meet=_returned), "the model returns what"),
        ("sum-convolutions", Parallel(_one(), nn.Conv2d(2, 1, 1)), "repeats a smaller tensor"),
        ("absorb-residual", Parallel(nn.Identity(), nn.Conv2d(2, 1, 1)), "repeats a smaller"),
        ("sum-convolutions", _tied(), "weight branches.0.weight is tied"),
        ("absorb-residual", _Again(), "weight convolution.weight is shared with convolution"),
        (
            "sum-convolutions",
            Parallel(nn.Sequential(_one(), nn.ReLU()), nn.Sequential(_one(), nn.ReLU())),
            "branches.0.1 stands before the addition",
        ),
        (
            "absorb-residual",
            Parallel(nn.Sequential(_one(), nn.ReLU()), nn.Identity()),
            "branches.0.1 stands before the addition",
        ),
        (
            "sum-convolutions",
            Parallel(_one(), nn.Conv2d(2, 2, 1, groups=2)),
            "the convolutions differ in groups: 1, 2",
        ),
        (
            "sum-convolutions",
            Parallel(nn.Conv2d(2, 2, 3, 2), nn.Conv2d(2, 2, 3, 3, padding=1)),
            "the convolutions differ in stride: (2, 2), (3, 3)",
        ),
        (
            "sum-convolutions",
            Parallel(nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=2, dilation=2)),
            "the convolutions differ in dilation",
        ),
        (
            "sum-convolutions",
            Parallel(nn.Conv2d(2, 2, 1, 2), nn.Conv2d(2, 2, 2, 2)),
            "kernels of 1x1, 2x2 have no common centre",
        ),
        (
            "sum-convolutions",
            Parallel(nn.Conv2d(2, 2, 1, 3), nn.Conv2d(2, 2, 3, 3)),
            "kernels of 1x1, 3x3 lie at different places of what they take",
        ),
        (
            "sum-convolutions",
            Parallel(
                nn.Conv2d(2, 2, (1, 3), padding=(0, 1)), nn.Conv2d(2, 2, (3, 1), padding=(1, 0))
            ),
            "one kernel of 3x3 has more work than 1x3, 3x1",
        ),
        (
            "absorb-residual",
            Parallel(nn.Conv2d(2, 2, 2, padding=1, dilation=2), nn.Identity()),
            "a kernel of 2x2 moves what it takes",
        ),
        (
            "absorb-residual",
            Parallel(nn.Conv2d(2, 2, 1, padding="same"), nn.Identity()),
            "the padding of branches.0 is 'same', not numbers",
        ),
        (
            "absorb-residual",
            Parallel(nn.ConvTranspose2d(2, 2, 1), nn.Identity()),
            "branches.0 is a transposed convolution",
        ),
        (
            "sum-convolutions",
            Parallel(_one(), nn.BatchNorm2d(2, track_running_stats=False)),
            "branches.1 takes its statistics from what it is given",
        ),
        (
            "absorb-residual",
            Parallel(
                nn.Sequential(_one(), nn.BatchNorm2d(2, track_running_stats=False)), nn.Identity()
            ),
            "branches.0.1 takes its statistics from what it is given",
        ),
    ],
)
def test_it_is_said_why_terms_are_not_added_up(rule: str, model: nn.Module, words: str) -> None:
    reason = refusal(model.eval(), (random(1, 2, 6, 6),), rule)
    assert words in reason


class _Moving(nn.Module):
    """Same sizes of everything, but the kernel reads other places than the value's."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 2, 3, stride=stride, padding=(stride - 1) * 3 + 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.convolution(x)


def test_a_stride_leaves_elements_out() -> None:
    # (6 + 2 * 4 - 3) // 2 + 1 = 6 elements, of every second place
    reason = refusal(_Moving(2).eval(), (random(1, 2, 6),), "absorb-residual")
    assert reason == "a stride of 2 leaves elements out"


def test_channels_that_are_repeated_by_groups_are_not_the_value() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv1d(1, 3, 1), nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.convolution(x) + x

    reason = refusal(Model().eval(), (random(1, 1, 4),), "absorb-residual")
    assert reason == "an addition repeats a smaller tensor"


def test_a_norm_of_a_value_without_a_batch_takes_other_channels() -> None:
    model = Parallel(nn.Conv1d(3, 3, 1), nn.BatchNorm1d(4)).eval()
    reason = refusal(model, (random(3, 4),), "sum-convolutions")
    assert reason == "branches.1 takes other channels than the convolutions give"


def test_numbers_and_other_additions_are_no_sums() -> None:
    def meet(values: list[Tensor]) -> Tensor:
        return (values[0] + 1.0) * 2 - values[0]

    graph = graph_of(Parallel(_one(), meet=meet).eval(), random(1, 2, 4, 4))
    assert places(graph, "sum-convolutions") == []
    assert places(graph, "absorb-residual") == []
