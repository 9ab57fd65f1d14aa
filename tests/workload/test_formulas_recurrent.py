"""Recurrent layers against the loops they stand for, and fused ones against their parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import Capture
from tests.workload.passes import passed, total
from tests.workload.scalars import Scalar, Tally, dot, numbers, same, sigmoid, sum_of, tanh

sizes = st.integers(1, 3)
FUSED = "aten.mkldnn_rnn_layer"
GATES: dict[Any, int] = {torch.nn.LSTM: 4, torch.nn.GRU: 3, torch.nn.RNN: 1}


def split(gates: Any, count: int) -> list[Any]:
    width = len(gates) // count
    return [gates[n * width : (n + 1) * width] for n in range(count)]


def added(*lists: Any) -> list[Any]:
    return [sum_of(each) for each in zip(*lists, strict=True)]


def lstm_cell(a: Any, b: Any, _h: Any, c: Any) -> tuple[Any, Any]:
    """i, f, g, o, as torch orders them."""
    i, f, g, o = split(added(a, b), 4)
    c = [sigmoid(f[n]) * c[n] + sigmoid(i[n]) * tanh(g[n]) for n in range(len(c))]
    return [sigmoid(o[n]) * tanh(c[n]) for n in range(len(c))], c


def gru_cell(a: Any, b: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """r, z, n: the state's half of the last is multiplied with r before it is added."""
    (a_r, a_z, a_n), (b_r, b_z, b_n) = split(a, 3), split(b, 3)
    r, z = [sigmoid(x) for x in added(a_r, b_r)], [sigmoid(x) for x in added(a_z, b_z)]
    new = [tanh(x + y * z) for x, y, z in zip(a_n, r, b_n, strict=True)]
    return [(h[n] - new[n]) * z[n] + new[n] for n in range(len(h))], c


def tanh_cell(a: Any, b: Any, _h: Any, c: Any) -> tuple[Any, Any]:
    return [tanh(x) for x in added(a, b)], c


def relu_cell(a: Any, b: Any, _h: Any, c: Any) -> tuple[Any, Any]:
    """A comparison each."""
    sums = added(a, b)
    return [x if x > 0 else Scalar(0.0, x.tally) for x in sums], c


CELLS: dict[str, Any] = {
    "lstm": (torch.nn.LSTM, {}, lstm_cell),
    "gru": (torch.nn.GRU, {}, gru_cell),
    "tanh": (torch.nn.RNN, {}, tanh_cell),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu"}, relu_cell),
}


def written_out(layer: Any, cell: Any, x: Any, tally: Tally) -> Any:
    """One sequence through all layers and directions; the weights as the module holds them."""
    for number in range(layer.num_layers):
        both: list[list[Any]] = []
        for suffix in ("", "_reverse")[: 1 + layer.bidirectional]:
            own = {
                name.removesuffix(f"_l{number}{suffix}"): numbers(value.detach(), tally)
                for name, value in layer.named_parameters()
                if name.endswith(f"_l{number}{suffix}")
            }
            both.append(one_direction(own, cell, x[::-1] if suffix else x, layer, tally))
        both = [both[0], *(each[::-1] for each in both[1:])]
        x = [[number for each in steps for number in each] for steps in zip(*both, strict=True)]
    return x


def one_direction(own: Any, cell: Any, x: Any, layer: Any, tally: Tally) -> list[Any]:
    h = [Scalar(0.0, tally) for _ in range(getattr(layer, "proj_size", 0) or layer.hidden_size)]
    c, steps = [Scalar(0.0, tally) for _ in range(layer.hidden_size)], []
    for vector in x:
        a = [dot(vector, row) for row in own["weight_ih"]]
        b = [dot(h, row) for row in own["weight_hh"]]
        if "bias_ih" in own:
            a, b = added(a, own["bias_ih"]), added(b, own["bias_hh"])
        h, c = cell(a, b, h, c)
        if "weight_hr" in own:
            h = [dot(h, row) for row in own["weight_hr"]]
        steps.append(h)
    return steps


OPTIONS = [
    {},
    {"bias": False},
    {"bidirectional": True},
    {"num_layers": 2},
    {"num_layers": 2, "bidirectional": True, "bias": False},
    {"proj_size": 1},
    {"num_layers": 2, "bidirectional": True, "proj_size": 2},
]


@contextlib.contextmanager
def fused_kernels(enabled: bool) -> Iterator[None]:
    """With torch's fused kernels for CPUs, or without; `flags` would warn of other devices."""
    before = torch.backends.mkldnn.set_flags(enabled)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)


@pytest.fixture(params=[True, False], ids=["fused", "taken apart"])
def fused(request: pytest.FixtureRequest) -> Iterator[bool]:
    with fused_kernels(request.param):
        yield request.param


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layers(name: str, options: dict[str, Any], fused: bool) -> None:
    """Every gate of every cell at every step, whichever operators torch runs."""
    kind, own, cell = CELLS[name]
    if "proj_size" in options and kind is not torch.nn.LSTM:
        return
    layer = kind(2, 3, **own, **options)
    x, tally = torch.randn(3, 2, 2, generator=torch.Generator().manual_seed(3)), Tally()
    samples = [written_out(layer, cell, numbers(x[:, n], tally), tally) for n in range(2)]
    assert same([list(step) for step in zip(*samples, strict=True)], layer(x)[0].detach())
    captured = passed(layer, x)
    assert total(captured).flop == tally.flop
    is_fused = fused and name == "lstm" and "proj_size" not in options
    assert any(each.op == FUSED for each in captured.records) == is_fused


@settings(max_examples=25)
@given(steps=sizes, batch=sizes, inputs=sizes, hidden=sizes, bias=st.booleans())
def test_lstm(steps: int, batch: int, inputs: int, hidden: int, bias: bool) -> None:
    """Of any size."""
    layer: Any = torch.nn.LSTM(inputs, hidden, bias=bias)
    x = torch.randn(steps, batch, inputs, generator=torch.Generator().manual_seed(steps))
    tally = Tally()
    for sample in range(batch):
        written_out(layer, lstm_cell, numbers(x[:, sample], tally), tally)
    work = total(passed(layer, x))
    assert work.flop == tally.flop
    assert work.macs == steps * batch * 4 * hidden * (inputs + hidden)


def test_two_lstms_by_hand() -> None:
    """Two layers of 512 cells, 14 steps of 512 numbers: 14 * 2 * 4 * 512 * 1024 = 58,720,256."""
    work = total(passed(torch.nn.LSTM(512, 512, 2), (14, 1, 512)))
    assert work.macs == 58_720_256


def on_meta(kind: Any, **options: Any) -> Any:
    with torch.device("meta"):
        return kind(8, 6, **options)


@pytest.mark.parametrize("kind", GATES)
def test_a_layer_on_meta_takes_the_same(kind: Any) -> None:
    assert total(passed(on_meta(kind), (5, 2, 8))) == total(passed(kind(8, 6), (5, 2, 8)))


def test_half_the_width_is_half_the_bytes() -> None:
    """FLOP are the same."""
    layer = torch.nn.LSTM(8, 6)
    plain, half = (total(passed(layer, (5, 2, 8), change=each)) for each in ("", "bfloat16"))
    assert half.flop == plain.flop
    assert half.traffic_bytes == plain.traffic_bytes / 2
    assert half.internal_bytes == (plain.internal_bytes or 0) / 2


class Packed(torch.nn.Module):
    """A layer on sequences of 4, 2 and 1 steps."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 2, 1])
        return self.layer(packed)[0].data


@pytest.mark.parametrize("kind", GATES)
def test_packed_sequences_take_the_steps_they_have(kind: Any) -> None:
    """7 steps, not 12."""
    assert total(passed(Packed(kind(8, 6)), (4, 3, 8))).macs == 7 * GATES[kind] * 6 * (8 + 6)


@pytest.mark.parametrize("shape", [(5, 0, 8), (1, 1, 8), (5, 8)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    """No samples, one step of one, or no dimension for them."""
    work = total(passed(torch.nn.LSTM(8, 6), torch.zeros(shape)))
    assert work.macs == shape[0] * (shape[1] if len(shape) == 3 else 1) * 24 * 14


def test_what_stands_for_missing_biases_is_not_read() -> None:
    """Torch hands over zeros in the shape of the weights: 24 * 14 of these, none of those."""
    records = passed(torch.nn.LSTM(8, 6, bias=False), (5, 2, 8)).records
    (record,) = (each for each in records if each.op == FUSED)
    assert record.work.traffic_bytes == 4 * (24 * 14 + 5 * 2 * (8 + 6) + 4 * 2 * 6)


# -- bytes -----------------------------------------------------------------------------------------


def test_bytes_of_a_layer_by_hand() -> None:
    """4 steps of 3 sequences of 8 numbers, 5 cells. Operands once; inside, by step and cell:

    gates of input and of state, 20 each, written and read; 4 sums, 4 gates, f * c, i * g, tanh(c),
    written and read; c read once more. Between steps: h read, c written and read; and the weights
    of the state, 100 and a bias of 20, again.
    """
    record = next(
        each for each in passed(torch.nn.LSTM(8, 5), (4, 3, 8)).records if each.op == FUSED
    )
    weights, states = 20 * (8 + 5) + 2 * 20, 2 * 15
    assert record.work.traffic_bytes == 4 * (weights + 4 * 3 * 8 + states + 4 * 15 + states)
    cells = 4 * 15
    inside = cells * (2 * 2 * 4 + 2 * 11 + 1)
    between = 3 * (15 + 2 * 15) + 3 * (100 + 20)
    assert record.work.internal_bytes == 4 * (inside + between)


def moved(captured: Capture) -> int:
    """All bytes but those that lists of steps are made of when they are stacked to one tensor."""
    left_out = ("aten.stack", "aten.zeros", "aten.cat")
    return sum(
        each.work.traffic_bytes + (each.work.internal_bytes or 0)
        for each in captured.records
        if each.op not in left_out
    )


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"num_layers": 2, "bidirectional": True}], ids=str
)
def test_with_all_that_is_inside_it_moves_what_its_parts_move(options: dict[str, Any]) -> None:
    """Exactly, but for the last h of each direction, which the operator also returns apart."""
    layer = torch.nn.LSTM(8, 5, **options)
    whole = passed(layer, (4, 3, 8))
    with fused_kernels(False):
        parts = passed(layer, (4, 3, 8))
    fused = sum(each.op == FUSED for each in whole.records)
    assert moved(whole) - fused * 4 * 3 * 5 == moved(parts)
    assert all(each.work.traffic_bytes < moved(parts) for each in whole.records)
    assert total(parts).internal_bytes == 0
