"""Operators that are not there, held against those that are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from roofline.analysis import Analysis, OperatorRow, working
from roofline.design.advice.rules import findings_of, proposals_of
from roofline.design.advice.subject import (
    NOTHING,
    Saving,
    Subject,
    Time,
    convolution_like,
    product_like,
    reuses_for,
    saving_of,
)
from roofline.placement import Roof
from tests.analysis.examples import (
    analysis_of,
    dram_profile,
    examples,
    full_profile,
    resnet,
    resnet_like,
)
from tests.design.advice_models import Clock, analysed, by_flop


def only(model: nn.Module, *shape: int, op: str = "aten.convolution", **run: Any) -> OperatorRow:
    """The one operator of that name in a model."""
    (row,) = [row for row in analysed(model, *shape, **run).operators if row.op == op]
    return row


def conv(into: int, out: int, kernel: int, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(into, out, kernel, padding=kernel // 2, **options)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    ("other", "shape", "changes"),
    [
        (conv(32, 64, 3), (2, 32, 12, 12), {"in_channels": 32, "out_channels": 64}),
        (conv(24, 40, 5), (2, 24, 12, 12), {"kernel": (5, 5)}),
        (conv(24, 40, 1), (2, 24, 12, 12), {"kernel": (1, 1)}),
        (conv(24, 40, 3, groups=8), (2, 24, 12, 12), {"groups": 8}),
        (
            conv(24, 24, 3, groups=24),
            (2, 24, 12, 12),
            {"in_channels": 24, "out_channels": 24, "groups": 24},
        ),
    ],
)
def test_a_changed_convolution_is_counted_as_a_real_one(
    other: nn.Conv2d, shape: tuple[int, ...], changes: Any, bias: bool, channels_last: bool
) -> None:
    other.bias = nn.Parameter(torch.zeros(other.out_channels)) if bias else None
    row = only(conv(24, 40, 3, bias=bias), 2, 24, 12, 12, channels_last=channels_last)
    real = only(other, *shape, channels_last=channels_last).record
    found = convolution_like([row], **changes).record
    assert found.work == real.work
    assert found.type == real.type
    assert [replace(each, storage=0) for each in found.inputs] == [
        replace(each, storage=0) for each in real.inputs
    ]
    assert found.outputs[0].shape == real.outputs[0].shape
    assert found.attributes == real.attributes


@pytest.mark.parametrize("bias", [True, False])
def test_a_changed_product_is_counted_as_a_real_one(bias: bool) -> None:
    op = "aten.addmm" if bias else "aten.mm"
    row = only(nn.Linear(24, 40, bias=bias), 5, 24, op=op)
    real = only(nn.Linear(32, 64, bias=bias), 5, 32, op=op).record
    found = product_like([row], in_features=32, out_features=64).record
    assert found.work == real.work
    assert [each.shape for each in found.inputs] == [each.shape for each in real.inputs]
    assert [each.layout for each in found.inputs] == [each.layout for each in real.inputs]


def test_twice_the_channels_take_twice_of_each_level() -> None:
    row = only(conv(32, 32, 1, bias=False), 1, 32, 56, 56)
    once = convolution_like([row], in_channels=32).level_bytes
    twice = convolution_like([row], in_channels=64, out_channels=64).level_bytes
    assert once == dict(row.level_bytes)
    kept = 4 * 32 * 32
    for name, byte in once.items():
        # Weights grow with the square; they are what comes from farthest.
        of_kept = min(byte, kept)
        assert twice[name] == pytest.approx(4 * of_kept + 2 * (byte - of_kept), abs=1)


def images() -> Analysis:
    conv_net = nn.Sequential(
        conv(3, 64, 7, stride=2), nn.BatchNorm2d(64), nn.ReLU(), conv(64, 256, 3)
    )
    return analysed(conv_net, 4, 3, 96, 96)


MODELS = {
    "large": resnet,
    "classic": lambda: analysis_of(resnet_like((1,)), dram_profile()),
    "images": images,
    "weights": lambda: analysed(nn.Linear(4096, 4096), 1, 4096),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_operator_as_it_is_has_its_own_bound(name: str) -> None:
    analysis = MODELS[name]()
    rows = working(analysis.operators)
    bounds = Subject(analysis)
    assert bounds.basis == "bound"
    found = bounds.times(rows)
    assert [each.s if each else None for each in found] == pytest.approx(
        [row.eager_min_time_s for row in rows], rel=1e-9
    )


@pytest.mark.parametrize(
    "byte",
    [
        {"L1": 100, "L2": 100, "L3": 100, "DRAM": 100},
        {"L1": 10**9, "L2": 10**8, "L3": 10**7, "DRAM": 10**6},
        {"L1": 5, "L2": 0, "L3": 0, "DRAM": 0},
        {"L1": 10**8, "L2": 10**8, "L3": 10**8 - 7, "DRAM": 3},
        {"L1": 0, "L2": 0, "L3": 0, "DRAM": 0},
    ],
)
def test_reuses_give_the_bytes_of_every_level(byte: dict[str, int]) -> None:
    roof = Roof(full_profile(), 2)
    assert roof.level_bytes(reuses_for(byte, roof)) == byte


# How sure a saving is


def test_equal_operators_are_wrong_in_the_same_way() -> None:
    before = Time(s=10.0, low_s=9.0, high_s=11.0)
    after = Time(s=6.0, low_s=6.0, high_s=6.0)
    saving = saving_of([(before, after)] * 4, "prediction")
    assert (saving.before_s, saving.after_s, saving.s) == (40, 24, 16)
    assert (saving.low_s, saving.high_s) == (12, 20)
    assert saving_of([(before, after)] * 4, "bound").low_s is None


def test_different_operators_are_not() -> None:
    parts = [
        (Time(s=10.0, low_s=7.0, high_s=13.0), NOTHING),
        (Time(s=20.0, low_s=16.0, high_s=24.0), NOTHING),
    ]
    saving = saving_of(parts, "prediction")
    # 3 and 4 make 5.
    assert (saving.low_s, saving.high_s) == (25, 35)


def test_what_is_left_out_saves_time_however_long_it_takes() -> None:
    skewed = Time(s=1.0, low_s=0.2, high_s=5.0)
    saving = saving_of([(skewed, NOTHING)], "prediction")
    assert (saving.low_s, saving.high_s) == (pytest.approx(0.2), 5)
    # What takes its place may take longer than was thought.
    assert saving_of([(Time(s=2.0), skewed)], "prediction").low_s == pytest.approx(-3)


@pytest.mark.parametrize(
    ("saving", "is_worthwhile"),
    [
        (Saving(before_s=2.0, after_s=0.9), True),
        (Saving(before_s=2.0, after_s=1.1), False),
        (Saving(before_s=9.0, after_s=2.0, low_s=0.1, high_s=9.0), True),
        (Saving(before_s=9.0, after_s=2.0, low_s=-0.1, high_s=9.0), False),
    ],
)
def test_worth_is_a_hundredth_and_more_than_the_interval(
    saving: Saving, is_worthwhile: bool
) -> None:
    assert saving.is_worthwhile(100.0) is is_worthwhile


def test_findings_are_ranked_by_what_they_save() -> None:
    clock = Clock(by_flop)
    model = nn.Sequential(conv(3, 24, 3), nn.BatchNorm2d(24), conv(24, 40, 3), nn.BatchNorm2d(40))
    analysis = analysed(model, 1, 3, 96, 96, clock=clock)
    findings = findings_of(analysis, clock)
    savings = [each.saving_s or 0.0 for each in findings]
    assert len(savings) >= 2 and savings == sorted(savings, reverse=True)
    assert tuple(each.finding for each in proposals_of(analysis, clock)) == findings


def test_without_predictions_findings_are_of_bounds() -> None:
    model = nn.Sequential(conv(3, 24, 3), nn.BatchNorm2d(24))
    findings = findings_of(analysed(model, 1, 3, 96, 96))
    assert {each.basis for each in findings} == {"bound"}
    assert {each.rule for each in findings} == {"foldable batch norm"}


@pytest.mark.parametrize("name", examples())
def test_made_up_models_of_every_kind_are_looked_at(name: str) -> None:
    analysis = examples()[name]
    for finding in findings_of(analysis):
        assert finding.saving_s and finding.evidence and finding.change
