"""Regions compute with channels last, and nothing outside of them notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import fx, nn
from torch.nn import functional

from roofline.substitution.graphs.graph import Graph
from tests.substitution.rewriting import (
    Rewritten,
    assert_rewrites,
    graph_of,
    ops,
    places,
    random,
    refusal,
    with_random_norms,
)

RULE = "channels-last"
PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


class Noting(fx.Interpreter):
    """Runs a built module and notes what its operators really give."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: list[tuple[str, torch.Tensor]] = []

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        name = n.target if isinstance(n.target, str) else n.target.__name__
        is_operator = n.op in ("call_function", "call_method") and name != "getitem"
        if is_operator and isinstance(result, torch.Tensor):
            self.found.append((name, result))
        return result


def results_of(found: Rewritten, x: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    assert isinstance(found.after, fx.GraphModule)
    interpreter = Noting(found.after)
    with torch.no_grad():
        interpreter.run(x)
    return interpreter.found


def is_last(x: torch.Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last)


def check(module: nn.Module, x: torch.Tensor, *, conversions: int) -> Rewritten:
    """One region, so many conversions, equal outputs with equal strides; never again."""
    found = assert_rewrites(module, (x,), RULE)
    count = ops(found.graph)
    assert count["contiguous"] + count["clone"] == conversions
    assert places(found.graph, RULE) == []
    for each in (found.before, found.after):
        each.float()
    with torch.no_grad():
        expected, got = found.before(x), found.after(x)
    assert got.stride() == expected.stride()
    results = results_of(found, x)
    convolutions = [result for name, result in results if name == "conv2d"]
    assert convolutions
    assert all(is_last(each) for each in convolutions)
    assert_types_are_true(found.graph, results)
    return found


def said(shape: Sequence[int], stride: Sequence[int]) -> list[tuple[int, int]]:
    """Strides that matter: of a size of one, any is right."""
    return [(size, step if size > 1 else 0) for size, step in zip(shape, stride, strict=True)]


def assert_types_are_true(graph: Graph, results: list[tuple[str, torch.Tensor]]) -> None:
    """Strides in the graph are those that torch really gives."""
    expected = [
        said(node.type.shape, node.type.stride)
        for node in graph.nodes.values()
        if node.op.startswith("aten.") and len(node.outputs) == 1
    ]
    assert [said(result.shape, result.stride()) for _, result in results] == expected


class Block(nn.Module):
    """A residual block with everything that a region may have in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(2 * width)
        self.depthwise = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.squeeze = nn.Conv2d(2 * width, 2 * width, 1)
        self.second = nn.Conv2d(2 * width, width, 1)
        self.pool = nn.MaxPool2d(3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm(self.first(x)), inplace=True)
        y = functional.hardswish(self.depthwise(y))
        y = y * torch.sigmoid(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))
        return torch.cat([x + self.second(y), self.pool(x)], 1)


@settings(max_examples=3, deadline=None, phases=PHASES)
@given(
    batch=st.integers(1, 2),
    width=st.integers(2, 5),
    height=st.integers(2, 6),
    columns=st.integers(2, 6),
)
def test_a_region_is_entered_and_left_once(
    batch: int, width: int, height: int, columns: int
) -> None:
    module = with_random_norms(Block(width), 1)
    found = check(module, random(batch, width, height, columns), conversions=2)
    count = ops(found.graph)
    assert (count["conv2d"], count["max_pool2d"]) == (4, 1)


@settings(max_examples=8, deadline=None, phases=PHASES)
@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    inputs=st.integers(1, 3),
    outputs=st.integers(2, 3),
    kernel=st.tuples(st.integers(1, 3), st.integers(2, 3)),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
    bias=st.booleans(),
)
def test_any_convolution(
    batch: int,
    groups: int,
    inputs: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: int,
    padding: int,
    dilation: int,
    bias: bool,
) -> None:
    convolution = nn.Conv2d(
        inputs * groups,
        outputs * groups,
        kernel,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=bias,
    )
    x = random(batch, inputs * groups, 9, 8)
    found = check(nn.Sequential(convolution, nn.ReLU()), x, conversions=1 + (x.shape[1] > 1))
    weights = [weight for node in found.graph.nodes.values() for weight in node.weights()]
    assert any(weight.made_by == "channels_last" for weight in weights)


def test_pooling_to_one_pixel_needs_no_conversion_back() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    check(module, random(2, 3, 6, 5), conversions=1)


def test_means_over_pixels_need_no_conversion_back() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.convolution(x)
            return y.mean((2, 3)) + y.amax((-1, -2))

    check(Mean(), random(2, 3, 6, 5), conversions=1)


def test_what_is_flattened_is_converted_back() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2))
    check(module, random(2, 3, 6, 6), conversions=2)


def test_a_view_of_what_leaves_still_works() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.convolution(x).view(x.shape[0], -1).softmax(1)

    check(Views(), random(2, 3, 6, 6), conversions=2)


def test_channels_moved_last_by_the_model_need_no_conversion() -> None:
    """ConvNeXt: what the model permutes for a layer norm is there already."""

    class Permutes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(4, 4, 3, padding=1, groups=4)
            self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.convolution(x).permute(0, 2, 3, 1)
            return x + self.linear(self.norm(y)).permute(0, 3, 1, 2)

    found = check(Permutes(), random(2, 4, 5, 6), conversions=1)
    assert ops(found.graph)["permute"] == 2


def test_a_path_outside_is_left_and_entered_again() -> None:
    class Shuffles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            z = y.view(2, 2, 2, 6, 5).transpose(1, 2).flatten(1, 2)
            return self.second(z) + y[:, :, 2:, 2:].clone()

    found = assert_rewrites(Shuffles(), (random(2, 4, 8, 7),), RULE, times=2)
    assert places(found.graph, RULE) == []


def test_a_model_that_has_channels_last_already_is_left_alone() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.convolution(x.contiguous(memory_format=torch.channels_last))

    module = Last()
    weight = module.convolution.weight
    weight.data = weight.data.contiguous(memory_format=torch.channels_last)
    assert places(graph_of(module, random(2, 3, 6, 6)), RULE) == []


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (2, 3, 5, 4)),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()), (2, 3, 8)),
        (nn.Sequential(nn.Conv3d(3, 4, 3), nn.ReLU()), (2, 3, 4, 4, 4)),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3)), (2, 3, 4, 4)),
    ],
)
def test_without_images_there_is_no_region(module: nn.Module, shape: tuple[int, ...]) -> None:
    assert places(graph_of(module.eval(), random(*shape)), RULE) == []


def test_a_kernel_that_is_used_outside_is_refused() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [self.convolution(x), self.convolution.weight.sum(0)]

    why = refusal(Shared(), (random(2, 3, 6, 6),), RULE)
    assert why == "weight convolution.weight is shared with sum"


def test_an_output_with_strides_of_its_own_is_refused() -> None:
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.ReLU())

    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)[:, 1:]

    why = refusal(Sliced(), (random(2, 3, 6, 6),), RULE)
    assert "strides of its own" in why


def test_what_had_channels_last_where_it_leaves_still_has() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
            return last.relu() + self.convolution(x)

    found = check(Half(), random(2, 3, 5, 6), conversions=2)
    (number,) = [each for each, node in found.capture.graph.nodes.items() if node.op == "aten.add"]
    assert found.capture.graph.nodes[number].type.stride == (90, 1, 18, 3)


def test_one_channel_has_no_layout_to_tell() -> None:
    """Attention over pixels: what is concatenated has one channel each."""

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(2, 1, 3, padding=1)
            self.third = nn.Conv2d(1, 4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x)
            both = torch.cat([y.mean(1, keepdim=True), y.amax(1, keepdim=True)], 1)
            return y * torch.sigmoid(self.third(torch.relu(self.second(both))))

    found = assert_rewrites(Attends(), (random(2, 3, 5, 6),), RULE)
    assert places(found.graph, RULE) == []


def test_two_regions_are_two_matches() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(1, 2, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.first(x).flatten(1)
            return self.second(y.view(2, 1, 8, 8))

    found = assert_rewrites(Two(), (random(2, 3, 6, 6),), RULE, times=2)
    assert ops(found.graph)["contiguous"] + ops(found.graph)["clone"] == 3


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_decoders_with_transposed_convolutions_and_interpolation(mode: str) -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 4, 3, stride=2, padding=1)
            self.up = nn.ConvTranspose2d(4, 3, 2, stride=2)
            self.out = nn.Conv2d(6, 2, 3, padding="same", padding_mode="zeros")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = functional.gelu(self.up(self.down(x)))
            z = functional.interpolate(y[:, :, ::2, ::2], scale_factor=2, mode=mode)
            return self.out(torch.cat([x, functional.pad(z, (0, 0, 0, 0))], 1))

    found = assert_rewrites(Decoder(), (random(2, 3, 8, 6),), RULE, times=1)
    assert places(found.graph, RULE) == []
