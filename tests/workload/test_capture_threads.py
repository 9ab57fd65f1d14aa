"""Other threads that run the model which is captured get what it gives, and disturb nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import ModelError
from roofline.workload.capture import module_stack
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs

X = torch.linspace(-1.0, 1.0, 8).reshape(2, 4)


class Paused(nn.Module):
    """Lets the test act in the middle of the pass that is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.between: Callable[[], None] | None = None
        self.main = threading.get_ident()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if self.between is not None and threading.get_ident() == self.main:
            between, self.between = self.between, None
            between()
        return self.second(y)


def captured(model: nn.Module) -> list[str]:
    found = capture(model, Inputs(X), name="m")
    return [each.op for each in found.records]


CALLS: dict[str, Callable[[Paused], torch.Tensor]] = {
    "model": lambda model: model(X),
    "part": lambda model: model.second(X),
    "forward": lambda model: model.forward(X),
}


@pytest.mark.parametrize("call", CALLS)
def test_another_thread_gets_what_the_model_gives(call: str) -> None:
    model = Paused().eval()
    expected = CALLS[call](model).detach()
    alone = captured(model)
    with ThreadPoolExecutor(1) as others:
        begun = threading.Event()
        answers: list[Any] = []

        def run() -> torch.Tensor:
            begun.set()
            return CALLS[call](model)

        def between() -> None:
            answers.append(others.submit(run))
            begun.wait()

        model.between = between
        assert captured(model) == alone
        found = answers[0].result()
    assert type(found) is torch.Tensor
    torch.testing.assert_close(found.detach(), expected)
    assert found.requires_grad


def test_another_thread_that_uses_its_weights_gets_real_results() -> None:
    """Without calling a module it cannot be made to wait; what is captured then is not known."""
    model = Paused().eval()
    expected = model.second(X).detach()
    answers: list[torch.Tensor] = []

    def between() -> None:
        with ThreadPoolExecutor(1) as others, torch.no_grad():
            task = others.submit(nn.functional.linear, X, model.second.weight, model.second.bias)
            answers.append(task.result())

    model.between = between
    with pytest.raises(ModelError, match="a part of it ran in another thread"):
        captured(model)
    assert type(answers[0]) is torch.Tensor
    torch.testing.assert_close(answers[0].detach(), expected)
    model.between = None
    assert captured(model)


def test_threads_that_call_it_all_the_time() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    expected = model(X).detach()
    alone, stop = captured(model), threading.Event()

    def serve() -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        while not stop.is_set():
            found.append(model(X))
        return found

    with ThreadPoolExecutor(2) as others:
        served = [others.submit(serve) for _ in range(2)]
        try:
            for _ in range(20):
                assert captured(model) == alone
        finally:
            stop.set()
        found = [each for answers in served for each in answers.result()]
    assert found
    for each in found:
        assert type(each) is torch.Tensor
        torch.testing.assert_close(each.detach(), expected)


def test_a_pass_that_does_not_end_is_said_before_anything_is_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module_stack, "PATIENCE_S", 0.2)
    begun, go_on = threading.Event(), threading.Event()

    class Blocked(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            begun.set()
            go_on.wait()
            return super().forward(input)

    model = Blocked(4, 4)
    own = model.weight
    with ThreadPoolExecutor(1) as others:
        answer = others.submit(model, X)
        begun.wait()
        try:
            with pytest.raises(ModelError, match="is running in another thread"):
                captured(model)
            assert model.weight is own
        finally:
            go_on.set()
        assert type(answer.result()) is torch.Tensor
    assert captured(model)


def test_functions_that_a_model_runs_in_a_thread_are_refused() -> None:
    class Threaded(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            with ThreadPoolExecutor(1) as workers:
                task = workers.submit(nn.functional.linear, input, self.weight, self.bias)
                return task.result()

    with pytest.raises(ModelError, match="a part of it ran in another thread"):
        captured(Threaded(4, 4))


@pytest.mark.parametrize("is_given", [True, False])
def test_a_model_with_threads_of_its_own_is_refused_and_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, is_given: bool
) -> None:
    monkeypatch.setattr(module_stack, "_STUCK_S", 0.2)

    class Threaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with ThreadPoolExecutor(1) as workers:
                return workers.submit(self.part, x if is_given else X).result()

    with pytest.raises(ModelError, match="'part' ran in another thread"):
        captured(Threaded())
