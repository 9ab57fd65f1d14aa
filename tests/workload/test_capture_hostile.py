"""Models that do what models should not: nothing is lost, nothing zero that is unknown."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import roofline
from roofline.errors import InputError, ModelError

PAPER = "10980xe"


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (torch.nn.Conv2d(3, 4, 3), "1x3x8x8:float64"),
        (torch.nn.ConvTranspose2d(3, 4, 3), "1x3x8x8:float64"),
        (torch.nn.Linear(4, 4), "1x4:float64"),
        (torch.nn.Linear(4, 4), "1x4:bfloat16"),
        (torch.nn.LayerNorm(4), "1x4:float64"),
        (torch.nn.BatchNorm2d(3), "1x3x8x8:float64"),
    ],
    ids=lambda each: str(each),
)
def test_what_torch_refuses_is_refused(module: torch.nn.Module, inputs: str) -> None:
    """Fake operators do not check data types; a real run of the same raises."""
    shape, kind = inputs.split(":")
    real = torch.zeros([int(size) for size in shape.split("x")], dtype=getattr(torch, kind))
    with pytest.raises(RuntimeError):
        module.eval()(real)
    with pytest.raises(ModelError, match=r"expects operands of one dtype|should be the same"):
        roofline.analyze(module, inputs, hardware=PAPER)


def test_half_an_input_goes_with_single_normalization_parameters() -> None:
    norm = torch.nn.LayerNorm(4)
    norm(torch.zeros(1, 4, dtype=torch.bfloat16))
    assert roofline.analyze(norm, "1x4:bfloat16", hardware=PAPER).coverage.calls == 1.0


def test_an_operator_that_returns_no_tensor_is_unknown_and_not_free() -> None:
    with torch.library._scoped_library("roofline_test", "FRAGMENT") as library:
        library.define("sink(Tensor x) -> ()")
        for device in ("Meta", "CPU"):
            library.impl("sink", lambda x: None, device)
        analysis = roofline.analyze(
            lambda x: (torch.ops.roofline_test.sink(x), x)[1], (4, 8), hardware=PAPER
        )
    (row,) = analysis.operators
    assert row.state == "unknown"
    assert row.flop is None
    assert row.input_bytes == 4 * 32
    assert analysis.coverage.calls == 0.0


def test_complex_arithmetic_is_that_of_real_numbers() -> None:
    """(a + bi)(c + di) takes four products and two sums; of rounding no formula says what it is."""
    (row,) = roofline.analyze(lambda x: x * x, "10:complex64", hardware=PAPER).operators
    assert row.flop == 10 * 6
    (row,) = roofline.analyze(lambda x: x.floor(), "10:complex64", hardware=PAPER).operators
    assert row.flop is None


def test_storage_that_parameters_and_buffers_share_counts_once() -> None:
    class Shared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(64))
            self.register_buffer("whole", self.weight.detach())
            self.register_buffer("first", self.weight.detach()[:32])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.weight

    analysis = roofline.analyze(Shared(), (64,), hardware=PAPER)
    assert analysis.totals.parameters == 64
    assert (analysis.totals.parameter_size_bytes, analysis.totals.buffer_size_bytes) == (256, 0)
    # The weight, the input and the sum.
    assert analysis.totals.peak_memory_bytes == 3 * 256


def test_analyses_side_by_side_do_not_disturb_each_other() -> None:
    """Every other one is a step of training, without the gradient of the input."""
    widths = [3, 5, 7, 9, 11, 13]
    models = [
        torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(6))) for width in widths
    ]

    def analyzed(number: int) -> roofline.Analysis:
        given, train = (2, widths[number]), bool(number % 2)
        return roofline.analyze(models[number], given, hardware=PAPER, train=train)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(analyzed, range(6)))
    for number, (width, analysis) in enumerate(zip(widths, found, strict=True)):
        products = 6 + 11 * (number % 2)
        assert analysis.totals.macs == products * 2 * width * width
        rows = [row for row in analysis.operators if row.state != "free"]
        paths = [row.module_path for row in rows if row.phase == "forward"]
        assert paths[:6] == ["0", "1", "2", "3", "4", "5"]
        assert all(each == "<loss>" for each in paths[6:])


def test_another_threads_modules_leave_no_trace() -> None:
    stop = threading.Event()
    other = torch.nn.Sequential(torch.nn.Linear(4, 4))

    def busy() -> None:
        while not stop.is_set():
            other(torch.zeros(1, 4))

    worker = threading.Thread(target=busy)
    worker.start()
    try:
        for _ in range(5):
            analysis = roofline.analyze(
                torch.nn.Sequential(torch.nn.Linear(4, 4)), (1, 4), hardware=PAPER
            )
            assert {row.module_path for row in analysis.operators} == {"0"}
    finally:
        stop.set()
        worker.join()


def test_data_types_of_torch_itself() -> None:
    analysis = roofline.analyze(torch.nn.Linear(4, 4), (1, 4), dtype=torch.bfloat16, hardware=PAPER)
    assert analysis.inputs[0].dtype.name == "bfloat16"


@pytest.mark.parametrize("batch", [0, -1, 1.5, "3"])
def test_a_batch_is_a_whole_number(batch: object) -> None:
    with pytest.raises(InputError, match=r"batch=.*: must be a whole number from 1"):
        roofline.analyze(torch.nn.Linear(4, 4), (1, 4), batch=batch, hardware=PAPER)  # pyright: ignore


def test_a_formula_cannot_return_nonsense() -> None:
    for bad in ({"other": -1}, {"macs": 2.5}, {"least": -3}):
        with pytest.raises(ValueError, match="must be a whole number from 0"):
            roofline.Flop(**bad)  # pyright: ignore
