"""What times operators: with stopwatches that are made up, beside what a capture records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from roofline.latency.measuring.in_place import OperatorTimer, Stopwatch, event_stopwatch
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs


class Ticks:
    """A clock that goes on by one more at every reading: 0, 1, 3, 6, 10 …"""

    def __init__(self) -> None:
        self.readings = 0
        self.now = 0

    def __call__(self) -> int:
        self.now += self.readings
        self.readings += 1
        return self.now


class Block(nn.Module):
    """As residual networks have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)) + x)
        return self.head(self.pool(x).mean((2, 3)))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Block, (2, 4, 8, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
    "lstm": (lambda: nn.LSTM(8, 6, num_layers=2, bidirectional=True), (3, 2, 8)),
    "gru": (lambda: nn.GRU(8, 6, batch_first=True), (3, 2, 8)),
    "attention": (lambda: nn.Transformer(16, 2, 1, 1, 32, batch_first=True).encoder, (2, 5, 16)),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_sees_the_operators_that_a_capture_has(name: str) -> None:
    make, shape = MODELS[name]
    model = make().eval()
    found = capture(model, Inputs(torch.zeros(shape)), name=name)
    clock, given = OperatorTimer(Stopwatch()), torch.zeros(shape)
    for _ in range(2):
        clock.begin()
        with torch.no_grad(), clock:
            model(given)
        assert clock.names == [each.op for each in found.records]
        seconds = clock.seconds()
        assert len(seconds) == len(clock.names)
        assert all(each >= 0 for each in seconds)


def test_times_are_between_the_marks_around_each_call() -> None:
    clock = OperatorTimer(Stopwatch(mark=Ticks()))
    clock.begin()
    with torch.no_grad(), clock:
        torch.relu(torch.relu(torch.zeros(3)))
    assert clock.names == ["aten.zeros", "aten.relu", "aten.relu"]
    # Readings are 0, 1 | 3, 6 | 10, 15.
    assert clock.seconds() == [1, 3, 5]
    clock.begin()
    assert (clock.names, clock.seconds()) == ([], [])


def test_results_are_those_of_the_model() -> None:
    torch.manual_seed(0)
    model = Block().eval()
    x = torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        expected = model(x)
        with OperatorTimer(Stopwatch()):
            assert torch.equal(model(x), expected)
    with torch.inference_mode(), OperatorTimer(Stopwatch()):
        assert torch.equal(model(x), expected)


def test_what_is_paused_is_not_timed_even_if_it_raises() -> None:
    clock = OperatorTimer(Stopwatch())
    clock.begin()
    x = torch.zeros(3)
    with clock:
        with clock.paused():
            torch.relu(x)
        with pytest.raises(RuntimeError, match="stop"), clock.paused():
            raise RuntimeError("stop")
        torch.sigmoid(x)
    assert clock.names == ["aten.sigmoid"]


def test_an_operator_that_raises_leaves_no_half_of_a_pair() -> None:
    clock = OperatorTimer(Stopwatch(mark=Ticks()))
    clock.begin()
    with clock:
        with pytest.raises(RuntimeError):
            torch.mm(torch.zeros(2, 3), torch.zeros(2, 3))
        torch.relu(torch.zeros(2))
    assert len(clock.names) == len(clock.seconds())
    assert clock.names[-1] == "aten.relu"


class Event:
    """An event of a device whose clock goes on by 2.5 ms between marks."""

    log: list[str]
    made: list[Event]

    def __init__(self, log: list[str], made: list[Event]) -> None:
        self.log, self.made = log, made
        self.place = len(made)
        made.append(self)

    def record(self) -> None:
        self.log.append(f"record {self.place}")

    def elapsed_time(self, end: Event) -> float:
        self.log.append("elapsed")
        return 2.5 * (end.place - self.place)


def test_events_are_read_once_the_queue_is_empty_and_in_milliseconds() -> None:
    log: list[str] = []
    made: list[Event] = []
    watch = event_stopwatch(
        make=lambda: Event(log, made), synchronize=lambda: log.append("synchronize")
    )
    clock = OperatorTimer(watch)
    clock.begin()
    x = torch.zeros(3)
    with clock:
        torch.relu(torch.sigmoid(x))
    assert log == [f"record {place}" for place in range(4)]
    assert clock.seconds() == [0.0025, 0.0025]
    assert log[4:] == ["synchronize", "elapsed", "elapsed"]


def test_training_is_timed_backwards_too() -> None:
    model = nn.Linear(3, 2)
    clock = OperatorTimer(Stopwatch())
    clock.begin()
    given: Any = torch.zeros(4, 3)
    with clock:
        model(given).sum().backward()
    assert clock.names.count("aten.mm") == 1
    assert "aten.addmm" in clock.names
    assert len(clock.seconds()) == len(clock.names)
