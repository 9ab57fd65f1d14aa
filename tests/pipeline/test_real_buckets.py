"""Predicted buckets against those that DistributedDataParallel really sends, byte by byte."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import RooflineError
from roofline.pipeline.distributed_capture import (
    TrainingTask,
    real_buckets,
    real_steps,
    slowdown_beside,
)
from roofline.pipeline.scaling import scale
from roofline.scaling.result import Scaling

LIMIT_S = 120.0

BRANCHES = '''
import torch
from torch import nn


class Branches(nn.Module):
    """Parameters that are used in another order than they are made, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(300, 10)
        self.shared = nn.Linear(300, 300)
        self.first = nn.Linear(64, 300)
        self.norm = nn.BatchNorm1d(300)
        self.frozen = nn.Linear(300, 300)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        x = self.norm(self.first(x))
        return self.last(self.shared(self.frozen(self.shared(x).relu())))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.layer(self.words(x)))
'''


def predicted(model: Any, inputs: Any, **options: Any) -> Scaling:
    return scale(
        model,
        inputs,
        data_parallel=2,
        link_bandwidth="1GB/s",
        link_latency="20us",
        hardware="10980xe",
        optimizer="sgd",
        **options,
    )


@pytest.fixture
def branches(tmp_path: Path) -> str:
    file = tmp_path / "branches.py"
    file.write_text(BRANCHES)
    return f"{file}:Branches"


def check(told: Scaling, task: TrainingTask, *, ranks: int = 2) -> None:
    """The same buckets: bytes, types, parameters, in the order in which they are sent."""
    real = real_buckets(task, ranks=ranks, limit_s=LIMIT_S)
    assert [each.byte for each in told.buckets] == [each.byte for each in real]
    assert [str(each.dtype) for each in told.buckets] == [each.dtype for each in real]
    assert [each.parameters for each in told.buckets] == [each.parameters for each in real]


def test_a_residual_network(tmp_path: Path) -> None:
    shape = "2x3x64x64"
    told = predicted("resnet18", shape)
    assert len(told.buckets) == 3
    check(told, TrainingTask(model="resnet18", inputs=shape))


def test_an_embedding_that_is_tied_to_the_head(branches: str) -> None:
    tied = branches.replace("Branches", "Tied")
    told = predicted(tied, "2x7:int64", bucket="8kB")
    assert told.gradient_byte == told.analysis.totals.parameter_bytes
    check(told, TrainingTask(model=tied, inputs="2x7:int64", bucket_byte=8000))


def test_branches_with_small_buckets(branches: str) -> None:
    told = predicted(branches, "4x64", bucket="10kB")
    assert len(told.buckets) > 2
    task = TrainingTask(model=branches, inputs="4x64", bucket_byte=10_000)
    check(told, task)


def test_mixed_precision_sends_what_full_precision_sends(branches: str) -> None:
    told = predicted(branches, "4x64", autocast="bfloat16")
    assert {str(each.dtype) for each in told.buckets} == {"float32"}
    check(told, TrainingTask(model=branches, inputs="4x64", autocast="bfloat16"))


def test_passes_that_are_added_up_send_once(branches: str) -> None:
    told = predicted(branches, "4x64", accumulate=3)
    check(told, TrainingTask(model=branches, inputs="4x64", accumulate=3))


def test_three_ranks_send_the_same_buckets(branches: str) -> None:
    check(predicted(branches, "4x64"), TrainingTask(model=branches, inputs="4x64"), ranks=3)


def test_steps_are_timed_on_every_rank(branches: str) -> None:
    task = TrainingTask(model=branches, inputs="4x64")
    found = real_steps(task, ranks=2, steps=2, limit_s=LIMIT_S)
    assert len(found) == 2
    for each in found:
        assert len(each.together_s) == len(each.alone_s) == 2
        assert min(*each.together_s, *each.alone_s) > 0


def test_what_ranks_cost_one_another_is_timed(branches: str) -> None:
    task = TrainingTask(model=branches, inputs="4x64")
    assert 1 <= slowdown_beside(task, ranks=2, steps=3, limit_s=LIMIT_S) < math.inf


def test_a_model_that_is_not_found_is_said_in_one_line() -> None:
    with pytest.raises(RooflineError, match="resnet_none"):
        real_buckets(TrainingTask(model="resnet_none"), limit_s=LIMIT_S)
