"""What is known of a call before it runs: of real models, and worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from roofline.latency.calibration import Calibration
from roofline.latency.features import FRESH_BYTE, features_of, fresh_bytes, log2
from roofline.latency.learning import SHARED_FEATURES, Example, GroupModel
from roofline.latency.samples import OperatorFeatures
from roofline.placement import Placement, Roof, place
from roofline.quantization.native_variants import int8_kernels, int8_problem, quantize_int8
from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig
from roofline.workload.inputs import Inputs
from roofline.workload.operators import State
from roofline.workload.residency import trace_residency
from roofline.workload.tensors import Role
from tests.builders import ceiling, level, profile, record, tensor

MACHINE = profile(
    [ceiling(1e11)],
    [
        level("L1", 32768, {"read": {1: 1e11}}),
        level("L2", 2**20, {"read": {1: 5e10}}),
        level("DRAM", None, {"read": {1: 1e10}}),
    ],
)


def placements(model: nn.Module, *inputs: Any, train: bool = False) -> tuple[Placement, ...]:
    training = TrainingConfig(loss=lambda output: output.sum()) if train else TrainingConfig()
    found = capture(model, Inputs(*inputs), name="x", run=Run(train=train), training=training)
    return tuple(place(found.records, trace_residency(found.records), Roof(MACHINE, 1)))


def facts(model: nn.Module, *inputs: Any, train: bool = False) -> list[OperatorFeatures]:
    return [
        features_of(each, 1)
        for each in placements(model, *inputs, train=train)
        if each.record.state is not State.FREE
    ]


class Calls(nn.Module):
    """A model that calls one function of its inputs."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


class Zoo(nn.Module):
    """Calls that are kin to products, convolutions and attention, in every odd form."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.transposed = nn.ConvTranspose2d(8, 8, 3, groups=8)
        self.linear = nn.Linear(8, 8)
        self.vector = nn.Parameter(torch.ones(8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.transposed(self.convolution(x)).flatten(2).transpose(1, 2))
        square = y[0].T @ y[0]
        return (
            (y @ self.vector).sum()
            + (square @ square).sum()
            + torch.mv(y[0], self.vector).sum()
            + torch.dot(self.vector, self.vector)
            + torch.outer(self.vector, self.vector).sum()
            + torch.einsum("bij,bkj->bik", y, y).sum()
            + nn.functional.scaled_dot_product_attention(y, y, y).sum()
            + nn.functional.scaled_dot_product_attention(*[y[:, None]] * 3).sum()
            + self.encoder(y).sum()
            + self.attention(y, y, y)[0].sum()
            + self.recurrent(y)[0].sum()
            + torch.baddbmm(square[None], square[None], square[None]).sum()
        )


@pytest.mark.parametrize("train", [False, True])
def test_within_a_group_all_have_as_many_numbers(train: bool) -> None:
    found = facts(Zoo(), torch.zeros(2, 3, 12, 12), train=train)
    lengths: dict[str, set[int]] = {}
    for each in found:
        lengths.setdefault(each.group, set()).add(len(each.numbers))
    assert {group: each for group, each in lengths.items() if len(each) > 1} == {}
    assert {"convolution", "matrix product", "other matrix product"} <= set(lengths)
    # So that all of them can be learned from together.
    for group in lengths:
        examples = [
            Example(facts=each, family="x", time_s=1e-5)
            for each in found
            if each.group == group and each.dtype == "float32"
        ]
        if examples:
            GroupModel(examples).predict([each.facts for each in examples])
    pooled = [Example(facts=each, family="x", time_s=1e-5) for each in found]
    assert len(GroupModel(pooled, is_pooled=True).predict(found)) == len(found)
    assert Calibration(()).predict(found) == [None] * len(found)


def own(each: OperatorFeatures) -> tuple[float, ...]:
    return tuple(round(2**number) for number in each.numbers[:-SHARED_FEATURES])


def test_a_convolution_by_hand() -> None:
    (each,) = facts(
        nn.Conv2d(16, 32, (3, 5), stride=(1, 2), padding=(1, 2), groups=4, bias=False),
        torch.zeros(2, 16, 8, 12),
    )
    assert (each.group, each.variant, each.dtype) == ("convolution", "onednn grouped", "float32")
    # In and out a group, groups, kernel, stride, pixels (8 x 6), batch, the last row.
    assert own(each) == (4, 8, 4, 15, 2, 48, 2, 6)
    flop, kept, read, written = (2**number for number in each.numbers[-SHARED_FEATURES:][:4])
    assert flop == pytest.approx(2 * 2 * 48 * 32 * 4 * 15, rel=0.3)
    assert (round(kept), round(read)) == (4 * 32 * 4 * 15, 4 * 2 * 16 * 8 * 12)
    assert round(written) == 4 * 2 * 32 * 48


@pytest.mark.parametrize(
    ("function", "shapes", "variant", "expected"),
    [
        (lambda a, b: a @ b, ((3, 5), (5, 7)), "mm nn", (3, 7, 5, 1)),
        (lambda a, b: a @ b.T, ((3, 5), (7, 5)), "mm nt", (3, 7, 5, 1)),
        (lambda a, b: a.T @ b, ((5, 3), (5, 7)), "mm tn", (3, 7, 5, 1)),
        (lambda a, b: a @ b, ((2, 3, 5), (2, 5, 7)), "bmm nn", (3, 7, 5, 2)),
        (torch.addmm, ((3, 7), (3, 5), (5, 7)), "addmm nn", (3, 7, 5, 1)),
        (torch.addmm, ((7,), (3, 5), (5, 7)), "addmm nn", (3, 7, 5, 1)),
        (torch.baddbmm, ((2, 3, 7), (2, 3, 5), (2, 5, 7)), "baddbmm nn", (3, 7, 5, 2)),
    ],
)
def test_products_by_hand(
    function: Callable[..., torch.Tensor],
    shapes: tuple[tuple[int, ...], ...],
    variant: str,
    expected: tuple[int, ...],
) -> None:
    found = facts(Calls(function), *map(torch.zeros, shapes))
    (each,) = [one for one in found if one.group == "matrix product"]
    assert (each.variant, own(each)) == (variant, expected)


def test_a_linear_layer_and_attention_by_hand() -> None:
    (each,) = facts(nn.Linear(5, 7), torch.zeros(2, 3, 5))
    assert (each.group, own(each)) == ("matrix product", (6, 7, 5, 1))
    query, key = torch.zeros(2, 4, 10, 8), torch.zeros(2, 4, 6, 8)
    found = facts(Calls(nn.functional.scaled_dot_product_attention), query, key, key + 1)
    (each,) = [one for one in found if one.group == "attention"]
    assert own(each) == (2, 4, 8, 10, 6)


def test_the_type_is_that_of_the_largest_floating_tensor() -> None:
    (each,) = facts(nn.Embedding(10, 4, dtype=torch.bfloat16), torch.zeros(500, dtype=torch.int64))
    assert each.dtype == "bfloat16"
    (each,) = facts(Calls(lambda x: x + 1), torch.zeros(5, dtype=torch.int64))
    assert each.dtype == "int64"


def test_calls_of_other_sizes_or_layouts_are_other_facts() -> None:
    relu = Calls(torch.relu)
    image = torch.zeros(1, 4, 6, 6)
    (plain,) = facts(relu, image)
    assert facts(relu, torch.zeros(1, 4, 6, 6)) == [plain]
    (last,) = facts(relu, image.to(memory_format=torch.channels_last))
    (larger,) = facts(relu, torch.zeros(1, 4, 6, 7))
    assert (plain.layout, last.layout) == ("contiguous", "channels-last")
    assert len({plain, last, larger}) == 3


def test_memory_is_fresh_from_32_mib_and_where_nothing_is_overwritten() -> None:
    assert FRESH_BYTE == 33_554_432
    large, small = tensor(0, FRESH_BYTE // 4), tensor(1, FRESH_BYTE // 4 - 1)
    assert fresh_bytes(record([], [large])) == FRESH_BYTE
    assert fresh_bytes(record([], [small])) == 0
    assert fresh_bytes(record([large], [large])) == 0
    assert fresh_bytes(record([small], [large, tensor(2, FRESH_BYTE)])) == 5 * FRESH_BYTE


def test_parameters_are_told_from_what_was_just_written() -> None:
    each = Placement(
        record=record(
            [tensor(0, 64, role=Role.PARAMETER), tensor(1, 32)], [tensor(2, 16)], flop=1024
        ),
        level_bytes={"L1": 1, "L2": 512, "L3": 256, "DRAM": 128},
        level="L2",
        ceiling="",
        intensity_flop_per_byte=None,
        attainable_flop_per_s=None,
        bound=None,  # pyright: ignore[reportArgumentType]
        eager_min_time_s=None,
    )
    found = features_of(each, 3)
    assert found.numbers[-SHARED_FEATURES:] == (10, 8, 7, 6, 7, 8, 0)
    assert (found.eager_min_time_s, found.threads) == (0.0, 3)


def test_a_logarithm_of_nothing_is_none() -> None:
    assert log2(0) == log2(1) == 0.0
    assert math.isclose(log2(8), 3.0)


def test_an_operator_without_tensors_has_facts() -> None:
    found = features_of(
        Placement(
            record=record([], []),
            level_bytes={},
            level="",
            ceiling="",
            intensity_flop_per_byte=None,
            attainable_flop_per_s=None,
            bound=None,  # pyright: ignore[reportArgumentType]
            eager_min_time_s=None,
        ),
        1,
    )
    assert (found.dtype, found.layout, len(found.numbers)) == (
        "",
        "contiguous",
        6 + SHARED_FEATURES,
    )


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_kernel_of_no_size_has_facts_all_the_same() -> None:
    """torch makes such a layer, fake tensors run it, and no real ones do."""
    (found,) = facts(nn.Conv2d(4, 4, 0), torch.zeros(1, 4, 6, 6, device="meta"))
    # Its numbers are finite, or there would be no facts.
    assert found.group != "convolution"


# -- in eight bits ---------------------------------------------------------------------------------


def int8_facts(model: nn.Module, *shape: int) -> list[OperatorFeatures]:
    """Of what torch's own kernels are called with once a model is quantised."""
    if int8_problem():
        pytest.skip(int8_problem())
    with int8_kernels():
        return facts(quantize_int8(model, Inputs(shape)), torch.zeros(shape))


@pytest.mark.parametrize(
    ("layer", "shape", "variant"),
    [
        (nn.Conv2d(16, 32, 3, padding=1), (2, 16, 8, 12), "int8 kxk"),
        (nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), (1, 16, 9, 12), "int8 kxk"),
        (nn.Conv2d(16, 8, 1), (1, 16, 7, 7), "int8 1x1"),
        (nn.Conv2d(16, 32, 5, padding=2, groups=4), (1, 16, 10, 10), "int8 grouped"),
        (nn.Conv2d(16, 16, 3, padding=1, groups=16), (1, 16, 10, 10), "int8 depthwise"),
        (nn.Conv2d(3, 8, 7, stride=4, padding=3), (1, 3, 40, 40), "int8 kxk"),
    ],
)
@pytest.mark.parametrize("has_relu", [False, True])
def test_an_int8_convolution_has_the_sizes_of_that_of_floats(
    layer: nn.Module, shape: tuple[int, ...], variant: str, has_relu: bool
) -> None:
    """Stride and groups are packed with its weight, and are told from sizes all the same."""
    model = nn.Sequential(layer, *([nn.ReLU()] if has_relu else []))
    (plain,) = [each for each in facts(model, torch.zeros(shape)) if each.group == "convolution"]
    quantised = int8_facts(model, *shape)
    assert {each.dtype for each in quantised} == {"int8"}
    (each,) = [one for one in quantised if one.group == "convolution"]
    assert each.variant == variant
    assert own(each) == own(plain)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5)])
def test_an_int8_linear_layer_has_the_sizes_of_that_of_floats(shape: tuple[int, ...]) -> None:
    (plain,) = facts(nn.Linear(5, 7), torch.zeros(shape))
    quantised = int8_facts(nn.Sequential(nn.Linear(5, 7)), *shape)
    (each,) = [one for one in quantised if one.group == "matrix product"]
    assert (each.variant, each.dtype) == ("int8 linear", "int8")
    assert own(each) == own(plain)


def test_what_goes_into_codes_and_out_of_them_is_int8_too() -> None:
    found = int8_facts(nn.Sequential(nn.Conv2d(4, 4, 1), nn.MaxPool2d(2)), 1, 4, 8, 8)
    variants = [(each.group, each.variant) for each in found]
    assert ("quantization", "quantize_per_tensor") in variants
    assert ("quantization", "dequantize") in variants
    assert {each.dtype for each in found} == {"int8"}
    # Where they were not told what is packed, kernels are kin by name alone.
    unknown = replace(record([tensor(0, 8, of="quint8")], [tensor(1, 8, of="quint8")]))
    (placed,) = place(
        [replace(unknown, op="quantized.conv2d")], trace_residency([unknown]), Roof(MACHINE, 1)
    )
    assert features_of(placed, 1).dtype == "int8"
