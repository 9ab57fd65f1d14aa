"""Predicted buckets against those that DistributedDataParallel really sends, byte by byte.

All that two processes train they train one after the other: most of the time of a team goes into
starting it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from roofline.errors import RooflineError
from roofline.machine.links import run_in_ranks
from roofline.pipeline import distributed_capture
from roofline.pipeline.distributed_capture import (
    SentBucket,
    StepTimes,
    TrainingTask,
    capture_buckets,
    shared_compute_slowdown,
    time_computing,
    time_steps,
)
from roofline.pipeline.scaling import scale
from roofline.scaling.result import Scaling

LIMIT_S = 240.0

MODELS = '''
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


class Mixed(nn.Module):
    """Parameters of two types, which share no bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 48)
        self.narrow = nn.Linear(48, 40).to(torch.bfloat16)
        self.again = nn.Linear(40, 48).to(torch.bfloat16)
        self.last = nn.Linear(48, 10)

    def forward(self, x):
        x = self.again(self.narrow(self.first(x).bfloat16())).float()
        return self.last(x)


class Half(nn.Module):
    """Parameters in the middle, and at both ends, that nothing is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(64, 30)
        self.first = nn.Linear(64, 50)
        self.between = nn.Linear(50, 70)
        self.last = nn.Linear(50, 10)
        self.after = nn.Linear(10, 20).to(torch.bfloat16)

    def forward(self, x):
        return self.last(self.first(x))
'''


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained, and the options of its prediction."""

    task: TrainingTask
    options: dict[str, Any] = field(default_factory=dict[str, Any])


CASES = {
    "a residual network": Case(task=TrainingTask(model="resnet18", inputs="2x3x64x64")),
    "an embedding that is tied to the head": Case(
        task=TrainingTask(model="Tied", inputs="2x7:int64", bucket_bytes=8000)
    ),
    "branches in small buckets": Case(
        task=TrainingTask(model="Branches", inputs="4x64", bucket_bytes=10_000)
    ),
    "each parameter larger than a bucket": Case(
        task=TrainingTask(model="Branches", inputs="4x64", bucket_bytes=1)
    ),
    "mixed precision": Case(
        task=TrainingTask(model="Branches", inputs="4x64", autocast="bfloat16"),
        options={"autocast": "bfloat16"},
    ),
    "passes that are added up": Case(
        task=TrainingTask(model="Branches", inputs="4x64", accumulate=3),
        options={"accumulate": 3},
    ),
    "gradients that lie in the buckets": Case(
        task=TrainingTask(model="Branches", inputs="4x64", bucket_bytes=10_000, are_views=True)
    ),
    "two types": Case(task=TrainingTask(model="Mixed", inputs="4x64")),
    "two types in small buckets": Case(
        task=TrainingTask(model="Mixed", inputs="4x64", bucket_bytes=5000)
    ),
    "unused parameters": Case(task=TrainingTask(model="Half", inputs="4x64", finds_unused=True)),
    "unused parameters in small buckets": Case(
        task=TrainingTask(model="Half", inputs="4x64", bucket_bytes=9000, finds_unused=True)
    ),
}

COMPUTED = "mixed precision"
"""The case that is also computed without sending anything."""

Found = tuple[dict[str, tuple[SentBucket, ...]], StepTimes, StepTimes]


def trained_by_rank(rank: int, ranks: int, tasks: Sequence[tuple[str, TrainingTask]]) -> Found:
    """The buckets of every task, the steps of the last one, and how long one computes."""
    buckets = {name: capture_buckets(rank, ranks, task) for name, task in tasks}
    steps = time_steps(rank, ranks, tasks[-1][1], 2)
    return buckets, steps, time_computing(rank, ranks, dict(tasks)[COMPUTED], 3)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "models.py"
    file.write_text(MODELS)
    return file


def found_in(task: TrainingTask, models: Path) -> TrainingTask:
    return task if task.model == "resnet18" else replace(task, model=f"{models}:{task.model}")


@pytest.fixture(scope="module")
def real(models: Path) -> list[Found]:
    """What two processes sent."""
    tasks = [(name, found_in(each.task, models)) for name, each in CASES.items()]
    return run_in_ranks(trained_by_rank, tasks, ranks=2, threads=1, limit_s=LIMIT_S)


def predicted(task: TrainingTask, *, ranks: int = 2, **options: Any) -> Scaling:
    bucket = None if task.bucket_bytes is None else f"{task.bucket_bytes}B"
    return scale(
        task.model,
        task.inputs,
        data_parallel=ranks,
        bucket=bucket,
        link_bandwidth="1GB/s",
        link_latency="20us",
        hardware="10980xe",
        optimizer="sgd",
        **options,
    )


def check(told: Scaling, real: Sequence[SentBucket]) -> None:
    """The same buckets: bytes, types, parameters, in the order in which they are sent."""
    assert [each.parameters for each in told.buckets] == [each.parameters for each in real]
    assert [each.size_bytes for each in told.buckets] == [each.byte for each in real]
    assert [str(each.dtype) for each in told.buckets] == [each.dtype for each in real]


@pytest.mark.parametrize("name", CASES)
def test_buckets_are_those_that_are_sent(name: str, real: list[Found], models: Path) -> None:
    case = CASES[name]
    told = predicted(found_in(case.task, models), **case.options)
    (buckets, *_), (others, *_) = real
    check(told, buckets[name])
    assert others[name] == buckets[name]


def test_what_is_small_is_several_buckets(real: list[Found]) -> None:
    """The cases above are worth something: they are not all one bucket."""
    (buckets, *_), _ = real
    counts = {name: len(each) for name, each in buckets.items()}
    assert counts["a residual network"] == 3
    assert counts["two types"] == 2
    # Two of the last layer, two of the shared one, two of the norm, two of the first one.
    assert counts["each parameter larger than a bucket"] == 8
    assert min(each for name, each in counts.items() if "small" in name) > 1


def test_tied_weights_are_sent_once(models: Path) -> None:
    told = predicted(found_in(CASES["an embedding that is tied to the head"].task, models))
    assert told.gradient_bytes == told.analysis.totals.parameter_size_bytes


def test_unused_parameters_are_named_and_sent(models: Path) -> None:
    told = predicted(found_in(CASES["unused parameters"].task, models))
    assert any("before.weight, before.bias, between.weight and 3 more" in x for x in told.notes)
    sent = [name for each in told.buckets for name in each.parameters]
    assert len(sent) == 10 and len(told.gradients) == 4
    assert told.gradient_bytes == told.analysis.totals.parameter_size_bytes


def test_three_ranks_send_the_same_buckets(models: Path) -> None:
    task = found_in(CASES["branches in small buckets"].task, models)
    sent, *_ = run_in_ranks(capture_buckets, task, ranks=3, threads=1, limit_s=LIMIT_S)
    check(predicted(task, ranks=3), sent)


def test_steps_are_timed_on_every_rank(real: list[Found]) -> None:
    assert len(real) == 2
    for _, each, _ in real:
        assert len(each.together_s) == len(each.alone_s) == 2
        assert min(*each.together_s, *each.alone_s) > 0


def test_what_ranks_cost_one_another_is_timed(
    real: list[Found], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the two processes computed while they were there."""
    computed = [each for *_, each in real]
    assert [len(each.alone_s) for each in computed] == [3, 0]
    assert [len(each.together_s) for each in computed] == [3, 3]
    task = found_in(CASES[COMPUTED].task, models)
    asked: list[Any] = []

    def already(*what: Any, **how: Any) -> list[StepTimes]:
        asked.append((what, how))
        return computed

    monkeypatch.setattr(distributed_capture, "run_in_ranks", already)
    assert 1 <= shared_compute_slowdown(task, ranks=2, steps=3, limit_s=LIMIT_S) < math.inf
    how = {"ranks": 2, "threads": 1, "limit_s": LIMIT_S}
    assert asked == [((time_computing, task, 3), how)]


def test_a_model_that_is_not_found_is_said_in_one_line() -> None:
    with pytest.raises(RooflineError, match="resnet_none"):
        task = TrainingTask(model="resnet_none")
        run_in_ranks(capture_buckets, task, ranks=1, threads=1, limit_s=LIMIT_S)
