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
    Model,
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
    inputs=st.integers(1, 3),
    outputs=st.integers(2, 3),
    options=st.fixed_dictionaries(
        {
            "kernel_size": st.tuples(st.integers(1, 3), st.integers(2, 3)),
            "groups": st.integers(1, 3),
            "stride": st.integers(1, 2),
            "padding": st.integers(0, 2),
            "dilation": st.integers(1, 2),
            "bias": st.booleans(),
        }
    ),
)
def test_any_convolution(batch: int, inputs: int, outputs: int, options: dict[str, Any]) -> None:
    groups = options["groups"]
    convolution = nn.Conv2d(inputs * groups, outputs * groups, **options)
    x = random(batch, inputs * groups, 9, 8)
    found = check(nn.Sequential(convolution, nn.ReLU()), x, conversions=1 + (x.shape[1] > 1))
    weights = [weight for node in found.graph.nodes.values() for weight in node.weights()]
    assert any(weight.made_by == "channels_last" for weight in weights)


def _permutes(m: Any, x: torch.Tensor) -> torch.Tensor:
    """ConvNeXt: what the model permutes for a layer norm is there already."""
    y = m.convolution(x).permute(0, 2, 3, 1)
    return x + m.linear(m.norm(y)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("module", "shape", "conversions"),
    [
        (
            nn.Sequential(
                *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                nn.Linear(4, 2),
            ),
            *((2, 3, 6, 5), 1),
        ),
        (
            Model(
                lambda m, x: (y := m.convolution(x)).mean((2, 3)) + y.amax((-1, -2)),
                convolution=nn.Conv2d(3, 4, 3),
            ),
            *((2, 3, 6, 5), 1),
        ),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)),
            *((2, 3, 6, 6), 2),
        ),
        (
            Model(
                lambda m, x: m.convolution(x).view(x.shape[0], -1).softmax(1),
                convolution=nn.Conv2d(3, 4, 3),
            ),
            *((2, 3, 6, 6), 2),
        ),
        (
            Model(
                _permutes,
                convolution=nn.Conv2d(4, 4, 3, padding=1, groups=4),
                norm=nn.LayerNorm(4),
                linear=nn.Linear(4, 4),
            ),
            *((2, 4, 5, 6), 1),
        ),
        (
            Model(
                lambda m, x: (
                    x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2).relu() + m.convolution(x)
                ),
                convolution=nn.Conv2d(3, 3, 3, padding=1),
            ),
            *((2, 3, 5, 6), 2),
        ),
    ],
    ids=[
        *("pooled to one pixel", "means over pixels", "flattened", "view of what leaves"),
        *("channels moved last", "channels last where it leaves"),
    ],
)
def test_what_leaves_is_converted_back_where_it_must_be(
    module: nn.Module, shape: tuple[int, ...], conversions: int
) -> None:
    found = check(module, random(*shape), conversions=conversions)
    assert ops(found.graph)["permute"] == ops(found.capture.graph)["permute"]


def test_a_path_outside_is_left_and_entered_again() -> None:
    def shuffles(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.first(x)
        z = y.view(2, 2, 2, 6, 5).transpose(1, 2).flatten(1, 2)
        return m.second(z) + y[:, :, 2:, 2:].clone()

    module = Model(shuffles, first=nn.Conv2d(4, 4, 3), second=nn.Conv2d(4, 4, 3))
    found = assert_rewrites(module, (random(2, 4, 8, 7),), RULE, times=2)
    assert places(found.graph, RULE) == []


def test_a_model_that_has_channels_last_already_is_left_alone() -> None:
    module: Any = Model(
        lambda m, x: m.convolution(x.contiguous(memory_format=torch.channels_last)),
        convolution=nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
    )
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


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (
            Model(
                lambda m, x: [m.convolution(x), m.convolution.weight.sum(0)],
                convolution=nn.Conv2d(3, 4, 3),
            ),
            "weight convolution.weight is shared with sum",
        ),
        (
            Model(lambda m, x: m.pool(x.relu()).relu()[:, 1:], pool=nn.MaxPool2d(2)),
            "the output of slice is neither contiguous nor channels-last",
        ),
    ],
    ids=["kernel used outside", "unusual strides"],
)
def test_it_is_refused(module: nn.Module, why: str) -> None:
    assert why in refusal(module, (random(2, 3, 6, 6),), RULE)


def test_one_channel_has_no_layout_to_tell() -> None:
    """Attention over pixels: what is concatenated has one channel each."""

    def attends(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.first(x)
        both = torch.cat([y.mean(1, keepdim=True), y.amax(1, keepdim=True)], 1)
        return y * torch.sigmoid(m.third(torch.relu(m.second(both))))

    module = Model(
        attends,
        first=nn.Conv2d(3, 4, 3, padding=1),
        second=nn.Conv2d(2, 1, 3, padding=1),
        third=nn.Conv2d(1, 4, 1),
    )
    found = assert_rewrites(module, (random(2, 3, 5, 6),), RULE)
    assert places(found.graph, RULE) == []


def test_two_regions_are_two_matches() -> None:
    module = Model(
        lambda m, x: m.second(m.first(x).flatten(1).view(2, 1, 8, 8)),
        first=nn.Conv2d(3, 4, 3),
        second=nn.Conv2d(1, 2, 3),
    )
    found = assert_rewrites(module, (random(2, 3, 6, 6),), RULE, times=2)
    assert ops(found.graph)["contiguous"] + ops(found.graph)["clone"] == 3


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_decoders_with_transposed_convolutions_and_interpolation(mode: str) -> None:
    def decodes(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = functional.gelu(m.up(m.down(x)))
        z = functional.interpolate(y[:, :, ::2, ::2], scale_factor=2, mode=mode)
        return m.out(torch.cat([x, functional.pad(z, (0, 0, 0, 0))], 1))

    module = Model(
        decodes,
        down=nn.Conv2d(3, 4, 3, stride=2, padding=1),
        up=nn.ConvTranspose2d(4, 3, 2, stride=2),
        out=nn.Conv2d(6, 2, 3, padding="same", padding_mode="zeros"),
    )
    found = assert_rewrites(module, (random(2, 3, 8, 6),), RULE, times=1)
    assert places(found.graph, RULE) == []
