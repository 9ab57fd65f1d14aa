"""What a what-if says that torch calls in eight bits, held against what it really calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import nn

import roofline
from roofline.latency.features import features_of
from roofline.latency.samples import OperatorFeatures
from roofline.placement import Roof, place
from roofline.quantization.native_variants import int8_kernels, int8_problem, quantize_int8
from roofline.quantization.policy import Policy
from roofline.quantization.what_ifs import records_of_torch
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.models.designs import Branches, Residual, linear, separable, standard
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import trace_residency
from tests import builders
from tests.quantization.small_networks import Of

pytestmark = pytest.mark.skipif(bool(int8_problem()), reason=int8_problem() or "it is there")

EIGHT = Policy(weights=8, activations=8, first_last=8, shortcut="low", per_channel=True)
MACHINE = builders.profile(
    [builders.ceiling(1e11), builders.ceiling(4e11, of="int8")],
    [
        builders.level("L1", 32768, {"read": {1: 1e11}}),
        builders.level("DRAM", None, {"read": {1: 1e10}}),
    ],
)
IMAGE = (2, 8, 12, 12)


CLASSIFIER = Of(
    lambda m, x: m.head(m.dropout(torch.flatten(m.body(x), 1))),
    body=nn.Sequential(standard(8, 6), nn.AdaptiveAvgPool2d(1)),
    dropout=nn.Dropout(),
    head=nn.Linear(6, 5),
)
"""Ends as classifiers do; torch keeps codes through its function, not through nn.Flatten."""


MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "a convolution": (nn.Sequential(nn.Conv2d(8, 4, 3)), IMAGE),
    "with batch norm and ReLU": (standard(8, 12, 3, 2), IMAGE),
    "grouped": (standard(8, 12, 3, 1, 4), IMAGE),
    "separable": (separable(8, 12), IMAGE),
    "a shortcut": (Residual(8), IMAGE),
    "a shortcut behind a layer": (nn.Sequential(standard(8, 6, 1), Residual(6)), IMAGE),
    "branches": (nn.Sequential(Branches(8, 6), nn.Conv2d(12, 4, 1)), IMAGE),
    "linear layers": (linear(8, 6), (5, 8)),
    "linear layers of tokens": (linear(8, 6), (2, 5, 8)),
    "pooling": (nn.Sequential(standard(8, 6), nn.MaxPool2d(3, 2, 1), standard(6, 4)), IMAGE),
    "averages": (nn.Sequential(standard(8, 6), nn.AvgPool2d(2), standard(6, 4, 1)), IMAGE),
    "limited": (nn.Sequential(nn.Conv2d(8, 6, 1), nn.ReLU6(), nn.Conv2d(6, 4, 1)), IMAGE),
    "a classifier": (CLASSIFIER, IMAGE),
}


def real(model: nn.Module, shape: tuple[int, ...]) -> Sequence[OperatorRecord]:
    """The operators of the model as torch.ao quantizes it."""
    inputs = Inputs(shape)
    with int8_kernels():
        return capture(quantize_int8(model, inputs), inputs, name="x").records


def told(model: nn.Module, shape: tuple[int, ...]) -> Sequence[OperatorRecord]:
    """Those that the what-if is predicted from."""
    analysis = roofline.analyze(model, torch.zeros(shape), hardware=MACHINE, threads=1)
    return records_of_torch(analysis, EIGHT)


def calls(records: Sequence[OperatorRecord]) -> Counter[object]:
    """What each operator reads and writes; scales, single numbers, are left aside."""
    return Counter(
        (
            each.op.removesuffix("_"),
            tuple((one.shape, one.dtype.name, one.layout) for one in each.inputs if one.shape),
            tuple((one.shape, one.dtype.name, one.layout) for one in each.outputs),
            each.work.flop,
        )
        for each in records
        if each.state is not State.FREE
    )


@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_torch_calls_and_what_was_learned_is_found_again(name: str) -> None:
    """Times are looked up by these: kinds and sizes are equal, and bytes but for those of scales
    and of what is beside them in a cache."""
    model, shape = MODELS[name]
    said, called = told(model.eval(), shape), real(model, shape)
    assert calls(said) == calls(called)
    for one, other in zip(learned_as(said), learned_as(called), strict=True):
        assert (one.group, one.variant.removesuffix("_"), one.dtype, one.layout) == (
            other.group,
            other.variant.removesuffix("_"),
            "int8",
            other.layout,
        )
        assert one.numbers[:-7] == other.numbers[:-7]
        for number in (-7, -5, -4):
            # FLOP, and bytes read and written.
            assert one.numbers[number] == other.numbers[number]


def learned_as(records: Sequence[OperatorRecord]) -> list[OperatorFeatures]:
    placements = place(records, trace_residency(records), Roof(MACHINE, 1), cache="steady")
    found = [features_of(each, 1) for each in placements if each.record.state is not State.FREE]
    return sorted(found, key=lambda each: (each.group, each.variant, each.numbers))
