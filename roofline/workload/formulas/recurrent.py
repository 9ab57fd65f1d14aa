"""Recurrent layers and cells that torch runs as one operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.recurrent_parts import CELLS, GRU, LSTM, RELU, TANH, Cell, Layers
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

LAYER = (
    "input, states, weights and results once, packed weights not beside those they are made of;"
    " gates, states between steps and repeated weights are internal"
)
CELL = "gates, states and results once; what the cell's operations hand to each other is internal"


def of_mkldnn(
    input: TensorSpec,
    first: TensorSpec,
    second: TensorSpec,
    state: TensorSpec,
    mode: int,
    hidden_size: int,
    has_biases: bool,
    batch_first: bool,
) -> Layers:
    """One direction of one layer, with a matrix for the input and one for the state."""
    return Layers(
        cell=CELLS[mode],
        vectors=math.prod(input.shape[:-1]),
        sequences=math.prod(state.shape[:-1]),
        steps=input.shape[1 if batch_first else 0],
        inputs=first.shape[-1],
        hidden=hidden_size,
        output=second.shape[-1],
        has_biases=has_biases,
        dtype=input.dtype,
    )


@formula("aten.mkldnn_rnn_layer", byte=LAYER)
def mkldnn_layer(
    input: TensorSpec,
    weight0: TensorSpec,
    weight1: TensorSpec,
    hx_: TensorSpec,
    mode: int,
    hidden_size: int,
    has_biases: bool,
    batch_first: bool,
    **_: Any,
) -> Flop:
    """One direction of one layer, at every step. What stands for biases it has not is not read."""
    layer = of_mkldnn(input, weight0, weight1, hx_, mode, hidden_size, has_biases, batch_first)
    return replace(layer.forward(), elements={} if has_biases else {"weight2": 0, "weight3": 0})


def of_cudnn(
    input: TensorSpec,
    weight_stride0: int,
    hx: TensorSpec,
    mode: int,
    hidden_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    proj_size: int = 0,
    **_: Any,
) -> Layers:
    """Layers of ``weight_stride0`` tensors each: two matrices, two biases or none, a projection.

    Sequences of different lengths are packed: ``batch_sizes`` has as many as there are steps.
    """
    return Layers(
        cell=CELLS[mode],
        vectors=math.prod(input.shape[:-1]),
        sequences=hx.shape[-2],
        steps=len(batch_sizes) or input.shape[1 if batch_first else 0],
        inputs=input.shape[-1],
        hidden=hidden_size,
        output=proj_size or hidden_size,
        has_biases=weight_stride0 >= 4,
        dtype=input.dtype,
        layers=num_layers,
        directions=1 + bidirectional,
        is_dropping=train and dropout > 0,
    )


@formula("aten._cudnn_rnn", "aten.miopen_rnn", byte=LAYER)
def cudnn_layers(weight: Sequence[TensorSpec], **arguments: Any) -> Flop:
    """All layers and directions. The buffer that weights are packed in is they themselves."""
    has_buffer = bool(weight) and "weight_buf" in arguments
    return replace(
        of_cudnn(**arguments).forward(), elements={"weight_buf": 0} if has_buffer else {}
    )


def of_modules(
    cell: Cell,
    hx: TensorSpec | Sequence[TensorSpec],
    params: Sequence[TensorSpec],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    input: TensorSpec | None = None,
    data: TensorSpec | None = None,
    batch_sizes: TensorSpec | None = None,
    batch_first: bool = False,
    **_: Any,
) -> Layers:
    """Layers of a dense ``input``, or of packed ``data`` with a batch size for each step.

    The first of the parameters is the first layer's matrix for the input.
    """
    given = input if input is not None else data
    state = hx if isinstance(hx, TensorSpec) else hx[0]
    assert given is not None
    steps = given.shape[1 if batch_first else 0]
    return Layers(
        cell=cell,
        vectors=math.prod(given.shape[:-1]),
        sequences=math.prod(state.shape[1:-1]),
        steps=steps if batch_sizes is None else batch_sizes.elements,
        inputs=given.shape[-1],
        hidden=params[0].shape[0] // cell.gates,
        output=state.shape[-1],
        has_biases=has_biases,
        dtype=given.dtype,
        layers=num_layers,
        directions=1 + bidirectional,
        is_dropping=train and dropout > 0,
    )


@formula("aten.lstm", "aten._lstm_mps", byte=LAYER)
def lstm_layers(**arguments: Any) -> Flop:
    """All layers and directions, projections too."""
    return of_modules(LSTM, **arguments).forward()


@formula("aten.gru", byte=LAYER)
def gru_layers(**arguments: Any) -> Flop:
    """All layers and directions."""
    return of_modules(GRU, **arguments).forward()


@formula("aten.rnn_tanh", byte=LAYER)
def tanh_layers(**arguments: Any) -> Flop:
    """All layers and directions."""
    return of_modules(TANH, **arguments).forward()


@formula("aten.rnn_relu", byte=LAYER)
def relu_layers(**arguments: Any) -> Flop:
    """All layers and directions."""
    return of_modules(RELU, **arguments).forward()


def _one_step(
    cell: Cell,
    input: TensorSpec,
    w_ih: TensorSpec,
    w_hh: TensorSpec,
    b_ih: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    sequences = math.prod(input.shape[:-1])
    return Layers(
        cell=cell,
        vectors=sequences,
        sequences=sequences,
        steps=1,
        inputs=input.shape[-1],
        hidden=w_ih.shape[0] // cell.gates,
        output=w_hh.shape[-1],
        has_biases=b_ih is not None,
        dtype=input.dtype,
    ).forward()


@formula("aten.lstm_cell", byte=LAYER)
def lstm_step(**arguments: Any) -> Flop:
    """One step of one layer: two products and a cell."""
    return _one_step(LSTM, **arguments)


@formula("aten.gru_cell", byte=LAYER)
def gru_step(**arguments: Any) -> Flop:
    """One step of one layer: two products and a cell."""
    return _one_step(GRU, **arguments)


@formula("aten.rnn_tanh_cell", byte=LAYER)
def tanh_step(**arguments: Any) -> Flop:
    """One step of one layer: two products and a cell."""
    return _one_step(TANH, **arguments)


@formula("aten.rnn_relu_cell", byte=LAYER)
def relu_step(**arguments: Any) -> Flop:
    """One step of one layer: two products and a cell."""
    return _one_step(RELU, **arguments)


@formula("aten._thnn_fused_lstm_cell", byte=CELL)
def fused_lstm_cell(
    input_gates: TensorSpec, cx: TensorSpec, input_bias: TensorSpec | None = None, **_: Any
) -> Flop:
    """A cell after its two products; it returns its four gates too, which are written anyway."""
    inside = LSTM.flop(cx.elements, input_bias is not None)
    internal = cx.elements * (LSTM.internal - 4)
    return replace(inside, internal_bytes=input_gates.dtype.byte(internal))


@formula("aten._thnn_fused_gru_cell", byte=CELL)
def fused_gru_cell(
    input_gates: TensorSpec, hx: TensorSpec, input_bias: TensorSpec | None = None, **_: Any
) -> Flop:
    """A cell after its two products; it returns its three gates too, which are written anyway."""
    inside = GRU.flop(hx.elements, input_bias is not None)
    internal = hx.elements * (GRU.internal - 3)
    return replace(inside, internal_bytes=input_gates.dtype.byte(internal))
