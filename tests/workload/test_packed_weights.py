"""Dynamically quantised layers: their weights are packed in objects, and counted all the same."""

from __future__ import annotations

import warnings

import pytest
import torch

from roofline.workload.operators import Capture, State
from tests.workload.passes import passed, working


def quantized(model: torch.nn.Module, kind: type, dtype: torch.dtype) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: torch.nn.Module = torch.ao.quantization.quantize_dynamic(  # pyright: ignore[reportUnknownMemberType]
            torch.nn.Sequential(model), {kind}, dtype=dtype
        )
    return result


def counted(model: torch.nn.Module, *inputs: tuple[int, ...]) -> Capture:
    captured = passed(model, *inputs)
    assert not any(each.state is State.UNKNOWN for each in captured.records)
    return captured


@pytest.mark.parametrize(("dtype", "width"), [(torch.qint8, 1), (torch.float16, 2)])
def test_a_linear_layer(dtype: torch.dtype, width: int) -> None:
    """256 x 10 weights of one or two bytes, a bias of four; 3 rows of 256 floats in, 10 out."""
    model = quantized(torch.nn.Linear(256, 10), torch.nn.Linear, dtype)
    captured = counted(model, (3, 256))
    (record,) = working(captured)
    assert record.work.macs == 3 * 256 * 10
    assert record.work.parameter_bytes == 256 * 10 * width + 4 * 10
    assert record.work.input_bytes == 4 * 3 * 256
    assert record.work.output_bytes == 4 * 3 * 10
    assert captured.parameters == 256 * 10 + 10
    assert captured.parameter_size_bytes == 256 * 10 * width + 4 * 10
    assert not captured.notes


def test_a_linear_layer_needs_no_real_run() -> None:
    """Its result has a shape that follows from its weights: no gigabytes are computed."""
    model = quantized(torch.nn.Linear(8, 4, bias=False), torch.nn.Linear, torch.qint8)
    assert not passed(model, (2**20, 2**8, 8)).notes


def test_it_gives_what_a_real_run_gives() -> None:
    """The shape and type that fakes go on with are those of the kernel."""
    model = quantized(torch.nn.Linear(6, 5), torch.nn.Linear, torch.qint8)
    for shape in ((1, 6), (2, 6), (2, 3, 6)):
        real: torch.Tensor = model(torch.zeros(shape))
        (spec,) = working(passed(model, shape))[0].outputs
        assert (spec.shape, spec.dtype.name) == (tuple(real.shape), "float32")


@pytest.mark.parametrize(("kind", "gates"), [(torch.nn.LSTM, 4), (torch.nn.GRU, 3)])
def test_a_recurrent_layer(kind: type, gates: int) -> None:
    """5 steps of 2 sequences; per gate 32 cells see 16 inputs and 32 states."""
    captured = counted(quantized(kind(16, 32), kind, torch.qint8), (5, 2, 16))
    (record,) = [each for each in captured.records if "quantized" in each.op]
    assert record.work.macs == 10 * gates * 32 * (16 + 32)
    assert record.work.parameter_bytes == gates * 32 * (16 + 32) + 2 * 4 * gates * 32
