"""Recurrent layers against the loops they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import State
from tests.workload.passes import passed, total
from tests.workload.scalars import Scalar, Tally, numbers, same, sigmoid, sum_of, tanh

sizes = st.integers(1, 3)


def dot(a: list[Scalar], b: list[Scalar]) -> Scalar:
    return sum_of([Scalar(0.0, a[0].tally), *(x * y for x, y in zip(a, b, strict=True))])


@settings(max_examples=25)
@given(steps=sizes, batch=sizes, inputs=sizes, hidden=sizes, bias=st.booleans())
def test_lstm(steps: int, batch: int, inputs: int, hidden: int, bias: bool) -> None:
    """Four gates of every cell at every step: i, f, g, o, as torch orders them."""
    layer: Any = torch.nn.LSTM(inputs, hidden, bias=bias)
    x = torch.randn(steps, batch, inputs, generator=torch.Generator().manual_seed(steps))
    tally = Tally()
    w, u = (numbers(each.detach(), tally) for each in (layer.weight_ih_l0, layer.weight_hh_l0))
    biases: list[Any] = [layer.bias_ih_l0.tolist(), layer.bias_hh_l0.tolist()] if bias else []
    result: list[Any] = [[] for _ in range(steps)]
    for sample in range(batch):
        h = [Scalar(0.0, tally) for _ in range(hidden)]
        c = list(h)
        for step in range(steps):
            values = numbers(x[step, sample], tally)
            gates = []
            for row in range(4 * hidden):
                gate = dot(values, w[row]) + dot(h, u[row])
                for each in biases:
                    gate = gate + each[row]
                gates.append(gate)
            i, f, g, o = (gates[n * hidden : (n + 1) * hidden] for n in range(4))
            c = [sigmoid(f[n]) * c[n] + sigmoid(i[n]) * tanh(g[n]) for n in range(hidden)]
            h = [sigmoid(o[n]) * tanh(c[n]) for n in range(hidden)]
            result[step].append(h)
    assert same(result, layer(x)[0].detach())
    work = total(passed(layer, x))
    assert work.flop == tally.flop
    assert work.multiply_add == steps * batch * 4 * hidden * (inputs + hidden)


def test_two_lstms_by_hand() -> None:
    """Two layers of 512 cells, 14 steps of 512 numbers: 14 * 2 * 4 * 512 * 1024 = 58,720,256."""
    work = total(passed(torch.nn.LSTM(512, 512, 2), (14, 1, 512)))
    assert work.multiply_add == 58_720_256


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_both_directions_and_all_kinds_are_known(kind: Any, bidirectional: bool) -> None:
    """3, 4 or 1 gates; the second layer reads both directions of the first."""
    gates = {torch.nn.LSTM: 4, torch.nn.GRU: 3, torch.nn.RNN: 1}[kind]
    captured = passed(kind(8, 6, 2, bidirectional=bidirectional), (5, 2, 8))
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    ways = 1 + bidirectional
    each = (8 + 6) + (ways * 6 + 6)
    assert total(captured).multiply_add == 5 * 2 * ways * gates * 6 * each
