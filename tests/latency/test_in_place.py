"""Operators timed in place: what is left behind, and models that make it hard."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from roofline.errors import MeasurementError, ModelError
from roofline.latency.measuring.in_place import (
    InPlaceMeasurement,
    Stopwatch,
    measure_in_place,
    measure_whole,
    memory_growth_notes,
)
from roofline.latency.measuring.rounds import Effort, Gauges
from roofline.run import Run
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.inputs import Inputs

EFFORT = Effort(warm_ups=1, min_rounds=3, max_rounds=3, budget_s=0.0, extra_share=0.0)


def measured(
    model: nn.Module, inputs: Any, effort: Effort = EFFORT, **options: Any
) -> InPlaceMeasurement:
    options.setdefault("run", Run())
    options.setdefault("gauges", undisturbed())
    return measure_in_place(model, Inputs(inputs), name="x", effort=effort, **options)


def undisturbed() -> Gauges:
    """Clocks by which no pass waits for a core, and that go on by a second at every reading."""
    now = [0.0]

    def wall() -> float:
        now[0] += 1.0
        return now[0]

    return Gauges(
        wall=wall, thread_cpu=lambda: 2 * now[0], page_faults=lambda: 0, run_queue_wait=lambda: 0.0
    )


class Step(nn.Module):
    """A linear layer that does something else in every pass."""

    def __init__(self, act: Callable[[int, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.passes = 0
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.linear.weight.data.add_(1.0)
        self.count += 1
        return self.act(self.passes, self.linear(x))


def state_of_process() -> tuple[Any, ...]:
    return (
        torch.get_num_threads(),
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        len(_get_current_dispatch_mode_stack()),
        len(_get_current_function_mode_stack()),
    )


def state_of(model: nn.Module) -> tuple[Any, ...]:
    return (
        [
            (name, id(each), each.tolist(), each.requires_grad, each.grad)
            for name, each in model.named_parameters()
        ],
        [(name, id(each), each.tolist()) for name, each in model.named_buffers()],
        [each.training for each in model.modules()],
        [
            (len(each._forward_hooks), len(each._forward_pre_hooks), len(each._backward_hooks))
            for each in model.modules()
        ],
        sorted(vars(model)),
    )


def raises_in(number: int, error: BaseException) -> Callable[[int, torch.Tensor], torch.Tensor]:
    def act(passes: int, x: torch.Tensor) -> torch.Tensor:
        if passes == number:
            raise error
        return torch.relu(x)

    return act


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = state_of_process()
    yield
    assert state_of_process() == before


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("train", [False, True])
def test_a_model_that_raises_in_some_pass_leaves_no_trace(number: int, train: bool) -> None:
    model = Step(raises_in(number, ValueError("enough")))
    before = state_of(model)
    with pytest.raises(ModelError, match="enough") as caught:
        measured(model, torch.ones(2, 4), run=Run(train=train))
    assert "\n" not in str(caught.value)
    assert state_of(model) == before


@pytest.mark.parametrize("number", [1, 2, 3, 6])
def test_so_does_one_that_is_interrupted(number: int) -> None:
    model = Step(raises_in(number, KeyboardInterrupt()))
    before = state_of(model)
    with pytest.raises(KeyboardInterrupt):
        measured(model, torch.ones(2, 4))
    assert state_of(model) == before


def test_one_that_ends_the_program_is_an_error_of_the_model() -> None:
    with pytest.raises(ModelError):
        measured(Step(raises_in(3, SystemExit(1))), torch.ones(2, 4))


def test_the_model_is_as_it_was_and_its_inputs_too() -> None:
    model = Step(lambda _passes, x: x.relu_()).train()
    given = torch.ones(2, 4)
    before = state_of(model)
    found = measured(model, given)
    assert state_of(model) == before
    assert torch.equal(given, torch.ones(2, 4))
    assert len(found.operators) == len(found.capture.records) == len(found.operator_faults)
    assert [len(each.times_s) for each in found.operators] == [3] * len(found.operators)
    assert len(found.end_to_end.times_s) == 3


def test_operators_that_change_from_pass_to_pass_cannot_be_timed() -> None:
    model = Step(lambda passes, x: torch.relu(x) if passes % 2 else torch.sigmoid(x))
    before = state_of(model)
    with pytest.raises(MeasurementError) as caught:
        measured(model, torch.ones(2, 4))
    text = str(caught.value)
    assert text.startswith("x: operators differ between passes") and "\n" not in text
    assert "aten.relu" in text and "aten.sigmoid" in text
    assert state_of(model) == before


@pytest.mark.parametrize("is_more", [False, True])
def test_nor_can_those_that_become_more_or_fewer(is_more: bool) -> None:
    def act(passes: int, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) if (passes > 3) is is_more else x

    with pytest.raises(MeasurementError) as caught:
        measured(Step(act), torch.ones(2, 4))
    assert "none" in str(caught.value) and "aten.relu" in str(caught.value)


class Masked(nn.Module):
    """A model that makes a mask in its first pass, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.mask: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.mask is None:
            self.mask = torch.ones(4, 4).tril()
        return self.linear(x) @ self.mask


def test_what_is_kept_from_the_first_pass_is_not_recorded_again() -> None:
    model = Masked()
    found = measured(model, torch.ones(2, 4))
    names = [each.op for each in found.capture.records]
    assert "aten.tril" not in names
    assert names[-1] == "aten.mm"
    assert len(found.operators) == len(names)
    # It was made on other tensors than the model's own.
    assert model.mask is None


def test_each_operator_has_its_own_times_in_seconds() -> None:
    """By a stopwatch that goes on by 1, 2, 3 … seconds within a pass."""

    watch = Stopwatch(
        mark=lambda: 0, seconds=lambda marks: [float(place + 1) for place in range(len(marks))]
    )
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sigmoid())
    found = measured(model, torch.ones(2, 4), stopwatch=watch)
    expected = [float(place + 1) for place in range(len(found.capture.records))]
    assert [each.median_s for each in found.operators] == expected
    # The whole is read from the gauges, which go on by one at each reading.
    assert found.end_to_end.median_s == 1.0
    assert (found.page_faults, found.discarded, found.are_disturbed) == (0, 0, False)


def test_times_belong_to_the_rounds_that_count() -> None:
    """The times of a pass that did not get a core are not taken for those of one that did."""
    passes = [0]

    def seconds(marks: list[tuple[Any, Any]]) -> list[float]:
        passes[0] += 1
        return [float(passes[0])] * len(marks)

    readings = [0]

    def cpu() -> float:
        readings[0] += 1
        # Of each round four readings; in the second round nothing was computed.
        number, place = divmod(readings[0] - 1, 4)
        return 0.0 if number == 1 else float(1000 * (place % 2))

    now = [0.0]

    def wall() -> float:
        now[0] += 1.0
        return now[0]

    found = measured(
        nn.Linear(4, 4),
        torch.ones(2, 4),
        Effort(warm_ups=2, min_rounds=2, max_rounds=2, budget_s=0.0),
        stopwatch=Stopwatch(mark=lambda: 0, seconds=seconds),
        gauges=Gauges(wall=wall, thread_cpu=cpu, page_faults=lambda: 0, run_queue_wait=lambda: 0.0),
    )
    # Two passes warm up; the rounds that count are the first and the third.
    assert found.discarded == 1
    assert found.operators[0].times_s == (3.0, 5.0)


def test_faults_are_counted_in_place_of_time_and_never_below_0() -> None:
    readings = iter([10, 14, 20, 19])
    gauges = replace(undisturbed(), page_faults=lambda: next(readings, 0))
    found = measured(nn.Sequential(nn.Sigmoid(), nn.ReLU()), torch.zeros(3), gauges=gauges)
    assert found.operator_faults == (4, 0)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_steps_of_training(optimizer: str) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    )
    before = state_of(model)
    found = measured(
        model,
        torch.ones(2, 3, 4, 4),
        run=Run(train=True, optimizer=optimizer),
        training=TrainingConfig(optimizer=optimizer_factory(optimizer)),
    )
    assert state_of(model) == before
    phases = {each.phase for each in found.capture.records}
    assert phases == {"forward", "backward", "optimizer"}
    assert len(found.operators) == len(found.capture.records)
    assert [len(each.times_s) for each in found.operators] == [3] * len(found.operators)


class Nested(nn.Module):
    def forward(self, each: dict[str, Any], *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": each["images"][0] + each["images"][1] * scale}


def test_nested_inputs() -> None:
    inputs = Inputs({"images": [torch.ones(3), torch.ones(3)]}, scale=torch.ones(()))
    found = measure_in_place(
        Nested(), inputs, name="x", run=Run(), effort=EFFORT, gauges=undisturbed()
    )
    assert [each.op for each in found.capture.records] == ["aten.mul", "aten.add"]


class Growing(nn.Module):
    """Keeps its results."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(x + 1)
        return self.kept[-1]


def test_a_model_that_keeps_memory_from_pass_to_pass_is_named() -> None:
    effort = Effort(warm_ups=1, min_rounds=5, max_rounds=5, budget_s=0.0)
    # Above 32 MiB glibc maps every block, with a page besides: the heap that other tests left does
    # not hide it.
    x = torch.rand(9 * 2**20)
    (note,) = measured(Growing(), x, effort).notes
    assert note.startswith("memory of the process grows by 37.8 MB per pass")
    assert not measured(nn.ReLU(), x, effort).notes


def test_growth_is_that_of_every_round() -> None:
    steady = [2**30 + (place % 2) * 2**25 for place in range(10)]
    assert memory_growth_notes(steady, 2) == ()
    assert memory_growth_notes([2**30 + place * 2**22 for place in range(4)], 2) == ()
    (note,) = memory_growth_notes([2**30 + place * 2**22 for place in range(5)], 2)
    assert "grows by 2.10 MB per pass" in note


def test_a_model_that_calls_nothing() -> None:
    found = measured(nn.Identity(), torch.ones(3))
    assert found.operators == ()
    assert len(found.end_to_end.times_s) == 3


def test_a_model_without_weights_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(3, 3)
    with pytest.raises(ModelError, match="no weights"):
        measured(model, torch.ones(2, 3))


def test_it_computes_with_the_weights_that_it_was_given() -> None:
    """Copies, not noise: a model may do other things with other values."""

    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 7.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if float(self.weight[0]) != 7.0:
                raise ValueError("other weights")
            return x * self.weight

    assert measured(Asks(), torch.ones(3)).operators


def test_another_type() -> None:
    found = measured(nn.Linear(4, 4), torch.ones(2, 4), run=Run(dtype="bfloat16"))
    (record,) = [each for each in found.capture.records if each.op == "aten.addmm"]
    assert {each.dtype.name for each in record.inputs} == {"bfloat16"}


def test_whole_passes_alone_leave_no_trace_either() -> None:
    model = Step(raises_in(4, ValueError("enough")))
    before = state_of(model)
    with pytest.raises(ModelError, match="enough"):
        measure_whole(
            model,
            Inputs(torch.ones(2, 4)),
            name="x",
            run=Run(),
            effort=EFFORT,
            gauges=undisturbed(),
        )
    assert state_of(model) == before
    found = measure_whole(
        nn.Linear(4, 4),
        Inputs(torch.ones(2, 4)),
        name="x",
        run=Run(),
        effort=EFFORT,
        gauges=undisturbed(),
    )
    assert found.times_s(0) == (1.0, 1.0, 1.0)


def test_the_noise_that_others_draw_does_not_change() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    before = torch.get_rng_state()
    measured(model, torch.ones(2, 4), run=Run(train=True))
    assert torch.equal(torch.get_rng_state(), before)
