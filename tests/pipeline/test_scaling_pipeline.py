"""From a model to what its training comes to on several ranks.

Each test captures one or more steps of training on fake tensors, a third of a second each.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import roofline
from roofline.pipeline import scaling
from roofline.pipeline.distributed_capture import TrainingTask
from roofline.scaling.settings import RankLink
from tests.pipeline.towers import Normed, Tower, scaled


def test_gradients_are_the_parameters_and_buckets_hold_all_of_them() -> None:
    model = Tower()
    told = scaled(model, "8x64")
    parameters = {name: each.numel() for name, each in model.named_parameters()}
    assert {each.parameter: each.elements for each in told.gradients} == parameters
    assert told.gradient_bytes == 4 * sum(parameters.values())
    assert told.gradients[0].parameter.startswith("head")
    assert [each.after for each in told.gradients] == sorted(each.after for each in told.gradients)


def test_each_gradient_is_done_after_an_operator_that_wrote_it() -> None:
    told = scaled(Tower(), "8x64")
    for each in told.gradients:
        before = told.analysis.operators[: each.after]
        writers = [row for row in before if each.storage in {one.storage for one in row.outputs}]
        assert writers and {row.phase for row in writers} == {"backward"}


def test_a_step_is_between_sending_aside_and_computing_nothing_meanwhile() -> None:
    told = scaled(Tower(), "8x64")
    assert told.time_kind == "bound"
    for each in told.points:
        assert each.step_s and each.step_low_s and each.step_high_s and told.alone_s
        assert each.step_low_s <= each.step_s <= each.step_high_s
        assert each.step_low_s >= max(told.alone_s, each.min_transfer_s) * (1 - 1e-9)
        assert each.efficiency is not None and 0 < each.efficiency <= 1
        assert each.max_efficiency is not None and each.efficiency <= each.max_efficiency + 1e-9


def test_ranks_of_one_host_that_slow_each_other_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are measured side by side, only computing takes longer, and only beside others."""
    asked: list[tuple[object, int]] = []

    def twice(task: object, *, ranks: int, threads: int) -> float:
        asked.append((task, ranks * threads))
        return 2.0

    monkeypatch.setattr(scaling, "shared_compute_slowdown", twice)
    analysis = roofline.analyze(Tower(), "8x64", train=True, hardware="10980xe", threads=1)
    beside = RankLink(name="gloo", bytes_per_s=1e9, latency_s=1e-5, is_in_host=True)
    task = TrainingTask(model="tower.py:Tower")
    assert scaling._slowdown(task, analysis, beside, 2) == 2.0
    assert asked == [(task, 2 * analysis.threads)]
    assert scaling._slowdown(task, analysis, beside, 1) is None
    assert scaling._slowdown(task, analysis, beside, 10_000) is None
    apart = replace(beside, is_in_host=False)
    assert scaling._slowdown(task, analysis, apart, 2) is None


def test_one_rank_is_the_analysis_itself() -> None:
    told = scaled(Tower(), "8x64", ranks=1)
    analysis = roofline.analyze(Tower(), "8x64", train=True, hardware="10980xe")
    assert told.alone_s == pytest.approx(analysis.totals.eager_min_time_s)
    assert told.point.step_s == pytest.approx(analysis.totals.eager_min_time_s)
    assert told.point.efficiency == pytest.approx(1)
    assert told.point.memory.total_bytes == analysis.totals.peak_memory_bytes
    assert told.point.link_bytes == 0


def test_a_ring_sends_its_part_of_every_gradient() -> None:
    told = scaled(Tower(), "8x64")
    for each in told.points:
        share = 2 * (each.ranks - 1) / each.ranks
        assert each.link_bytes == pytest.approx(share * told.gradient_bytes)
        wire_s = each.link_bytes / 1e9
        waits_s = 2 * (each.ranks - 1) * len(told.buckets) * 20e-6
        assert each.transfer_s == pytest.approx(wire_s + waits_s)


def test_more_passes_hide_more_and_keep_gradients() -> None:
    once, often = scaled(Tower(), "8x64"), scaled(Tower(), "8x64", accumulate=8)
    assert once.point.efficiency and often.point.efficiency
    assert often.point.efficiency > once.point.efficiency
    assert often.point.link_bytes == once.point.link_bytes
    assert often.point.memory.gradient_bytes >= once.gradient_bytes


def test_buffers_go_to_all_before_the_forward_pass() -> None:
    told = scaled(Normed(), "2x3x8x8", ranks=2)
    assert told.broadcast_bytes == 8 * 4 * 2 + 8
    assert told.point.timeline is not None
    assert told.point.timeline.before_s == pytest.approx(20e-6 + told.broadcast_bytes / 1e9)


def test_parameters_without_a_gradient_are_named() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    told = scaled(Half(), "2x4")
    assert any("unused.weight, unused.bias" in each for each in told.notes)
    assert len(told.gradients) == 2


def test_a_batch_is_that_of_a_rank() -> None:
    told = scaled(Tower(), "8x64", accumulate=2)
    assert told.batch == 8
    rate = told.point.samples_per_s
    assert rate is not None and told.point.step_s
    assert math.isclose(rate, 8 * 2 * 4 / told.point.step_s)
