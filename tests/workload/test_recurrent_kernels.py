"""Recurrent operators that a CPU has not, or takes apart: the same as what it runs instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from roofline.workload.formulas import Flop
from roofline.workload.operators import State
from tests.workload.passes import passed, total
from tests.workload.schema_calls import counted, spec

STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 8, 6
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
OPTIONS = [
    {},
    {"bias": False},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 3, "bias": False, "batch_first": True},
]


def layer_of(name: str, **options: Any) -> Any:
    if name == "lstm":
        return torch.nn.LSTM(INPUTS, HIDDEN, **options)
    if name == "gru":
        return torch.nn.GRU(INPUTS, HIDDEN, **options)
    kind = name.removeprefix("rnn_")
    return torch.nn.RNN(INPUTS, HIDDEN, nonlinearity=kind, **options)


def as_kernel(name: str, operator: str, layer: Any, **changed: Any) -> Flop:
    """The layer as the arguments of an operator of other devices."""
    ways, output = 1 + layer.bidirectional, getattr(layer, "proj_size", 0) or HIDDEN
    shape = (BATCH, STEPS, INPUTS) if layer.batch_first else (STEPS, BATCH, INPUTS)
    state = spec(layer.num_layers * ways, BATCH, output)
    params = [spec(*each.shape) for each in layer.parameters()]
    given: dict[str, Any] = {"input": spec(*shape), "num_layers": layer.num_layers, "dropout": 0.0}
    given |= {"bidirectional": layer.bidirectional, "batch_first": layer.batch_first}
    given |= {"train": False}
    if operator in ("_cudnn_rnn", "miopen_rnn"):
        given |= {"weight": params, "weight_stride0": len(params) // (layer.num_layers * ways)}
        given |= {"hx": state, "mode": MODES[name], "hidden_size": HIDDEN, "batch_sizes": []}
        if operator == "_cudnn_rnn":
            given |= {"proj_size": getattr(layer, "proj_size", 0), "weight_buf": spec(10_000)}
        return counted(operator, [], **{**given, **changed})
    given |= {"params": params, "has_biases": layer.bias}
    given["hx"] = [state, state] if name == "lstm" else state
    overload = "default" if operator == "_lstm_mps" else "input"
    return counted(operator, [], overload, **{**given, **changed})


def taken_apart(layer: Any) -> Any:
    before = torch.backends.mkldnn.set_flags(_enabled=False)[0]
    try:
        captured = passed(layer, (STEPS, BATCH, INPUTS))
    finally:
        torch.backends.mkldnn.set_flags(before)
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    return total(captured)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("operator", ["_cudnn_rnn", "miopen_rnn", "itself", "_lstm_mps"])
def test_layers_do_what_their_parts_do(name: str, options: dict[str, Any], operator: str) -> None:
    """Those that a CPU runs, one by one."""
    if operator == "_lstm_mps" and name != "lstm":
        return
    layer = layer_of(name, **options)
    found = as_kernel(name, name if operator == "itself" else operator, layer)
    first = {**options, "batch_first": False}
    parts = taken_apart(layer_of(name, **first))
    assert (found.flop, found.macs) == (parts.flop, parts.macs)
    assert found.min_flop <= parts.min_flop


@pytest.mark.parametrize("operator", ["_cudnn_rnn", "itself"])
def test_projections(operator: str) -> None:
    """h is 3 numbers of 6."""
    layer = layer_of("lstm", proj_size=3, num_layers=2, bidirectional=True)
    found = as_kernel("lstm", "lstm" if operator == "itself" else operator, layer)
    each = 2 * 24 * ((8 + 3) + (2 * 3 + 3)) + 2 * 2 * 6 * 3
    assert found.macs == STEPS * BATCH * each


def test_the_buffer_is_not_read_beside_the_weights() -> None:
    """It is they themselves, one behind another; alone it is read."""
    assert as_kernel("lstm", "_cudnn_rnn", layer_of("lstm")).elements == {"weight_buf": 0}
    assert as_kernel("lstm", "_cudnn_rnn", layer_of("lstm"), weight=[]).elements == {}


def test_packed_sequences() -> None:
    """Of 4, 2 and 1 steps: 7 vectors."""
    layer = layer_of("gru")
    packed = as_kernel("gru", "_cudnn_rnn", layer, input=spec(7, 8), batch_sizes=[3, 2, 1, 1])
    assert packed.macs == 7 * 3 * 6 * (8 + 6)
    same = counted(
        "gru",
        [],
        "data",
        data=spec(7, 8),
        batch_sizes=spec(4, kind="int64"),
        hx=spec(1, 3, 6),
        params=[spec(*each.shape) for each in layer.parameters()],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=False,
        bidirectional=False,
    )
    assert same.flop == packed.flop
    # What goes from step to step: all but the last of each of 3 sequences.
    assert same.internal_bytes == 4 * (7 * 6 * (12 + 19 + 1) + 4 * 6 + 3 * 18 * 7)


def test_dropout_between_layers_multiplies() -> None:
    """Two of three layers of 2 directions, in training only."""
    layer = layer_of("lstm", num_layers=3, bidirectional=True)
    plain = as_kernel("lstm", "_cudnn_rnn", layer)
    dropped = as_kernel("lstm", "_cudnn_rnn", layer, dropout=0.5, train=True)
    assert dropped.flop - plain.flop == 2 * 2 * STEPS * BATCH * HIDDEN
    assert as_kernel("lstm", "_cudnn_rnn", layer, dropout=0.5) == plain


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("bias", [True, False])
def test_cells_do_what_their_parts_do(name: str, bias: bool) -> None:
    """One step, and with what is inside it the same bytes."""
    kinds: dict[str, Any] = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}
    options = {} if name in kinds else {"nonlinearity": name.removeprefix("rnn_")}
    cell = kinds.get(name, torch.nn.RNNCell)(INPUTS, HIDDEN, bias=bias, **options)
    captured = passed(cell, (BATCH, INPUTS))
    parts = total(captured)
    state, rows = spec(BATCH, HIDDEN), GATES[name] * HIDDEN
    given: dict[str, Any] = {"input": spec(BATCH, INPUTS), "w_ih": spec(rows, INPUTS)}
    given |= {"w_hh": spec(rows, HIDDEN), "hx": [state, state] if name == "lstm" else state}
    given |= {"b_ih": spec(rows), "b_hh": spec(rows)} if bias else {}
    found = counted(f"{name}_cell", [], **given)
    assert (found.flop, found.macs) == (parts.flop, parts.macs)
    made = sum(each.work.traffic_bytes for each in captured.records if each.op == "aten.zeros")
    states = BATCH * HIDDEN * (4 if name == "lstm" else 2)
    weights = rows * (INPUTS + HIDDEN + 2 * bias)
    operands = 4 * (BATCH * INPUTS + states + weights)
    assert operands + found.internal_bytes == parts.traffic_bytes - made


@pytest.mark.parametrize("bias", [True, False])
def test_fused_cells_after_their_products_by_hand(bias: bool) -> None:
    """12 cells. An LSTM: 4 sums (3 with biases), 3 * 3 + 3 + 1 and 5 functions of 8.

    A GRU: 3 sums, 2 * 3 + 4 and 3 functions.
    """
    state, sums = spec(BATCH, HIDDEN), 3 if bias else 1
    cells = BATCH * HIDDEN
    for name, gates, kept, flop, internal in (
        ("lstm", 4, 4, 4 * sums + 13 + 40, 23 - 4),
        ("gru", 3, 5, 3 * sums + 10 + 24, 19 - 3),
    ):
        rows = gates * HIDDEN
        given: dict[str, Any] = {
            "input_gates": spec(BATCH, rows),
            "hidden_gates": spec(BATCH, rows),
        }
        given |= {"cx" if name == "lstm" else "hx": state}
        given |= {"input_bias": spec(rows), "hidden_bias": spec(rows)} if bias else {}
        found = counted(f"_thnn_fused_{name}_cell", [state, spec(BATCH, kept * HIDDEN)], **given)
        assert found.flop == cells * flop
        assert found.macs == 0
        assert found.internal_bytes == 4 * cells * internal


def test_between_layers_goes_what_they_give() -> None:
    """Three layers of 6 to 6 move more inside than three apart: what two of them give, and take."""
    layer = torch.nn.RNN(HIDDEN, HIDDEN, 3)
    given = {"input": spec(STEPS, BATCH, HIDDEN)}
    whole = as_kernel("rnn_tanh", "_cudnn_rnn", layer, **given)
    one = as_kernel("rnn_tanh", "_cudnn_rnn", torch.nn.RNN(HIDDEN, HIDDEN), **given)
    assert whole.flop == 3 * one.flop
    assert whole.internal_bytes == 3 * one.internal_bytes + 4 * 2 * 2 * STEPS * BATCH * HIDDEN
