"""Recurrent layers and cells with quantised weights, counted as `quantized` says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.quantized import LIMITS_FLOP, QUANTIZE_FLOP
from roofline.workload.formulas.recurrent_parts import GRU, LSTM, RELU, TANH, Cell, Layers
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

Operands = TensorSpec | Sequence[TensorSpec]


def _layers(
    cell: Cell,
    given: TensorSpec,
    state: TensorSpec,
    is_half: bool = False,
    **layers: Any,
) -> Flop:
    """As the same layers of floats; what each product takes is quantised first, unless halves are.

    Weights that every step reads again are narrow.
    """
    whole = Layers(
        cell=cell,
        vectors=math.prod(given.shape[:-1]),
        inputs=given.shape[-1],
        hidden=state.shape[-1],
        output=state.shape[-1],
        dtype=given.dtype,
        **layers,
    )
    count = whole.forward()
    multiplied = whole.vectors * whole.directions * sum(whole.input_lengths) + whole.cells
    before = 0 if is_half else (LIMITS_FLOP + QUANTIZE_FLOP) * multiplied
    narrow = whole.repeated_weights * (2 if is_half else 1)
    return replace(
        count,
        other=count.other + before,
        internal_bytes=count.internal_bytes - whole.dtype.byte(whole.repeated_weights) + narrow,
    )


_LAYER = "input, states, weights and results once; gates and repeated weights are internal"


@formula("aten.quantized_lstm", "aten.quantized_gru", type="recurrent", byte=_LAYER)
def layers(
    hx: Operands,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    input: TensorSpec | None = None,
    data: TensorSpec | None = None,
    batch_sizes: TensorSpec | None = None,
    batch_first: bool = False,
    dtype: object = None,
    **_: Any,
) -> Flop:
    """As `aten.lstm` and `aten.gru`, with inputs and states that are quantised for each product."""
    given = input if input is not None else data
    state = hx if isinstance(hx, TensorSpec) else hx[0]
    assert given is not None
    return _layers(
        GRU if isinstance(hx, TensorSpec) else LSTM,
        given,
        state,
        "float16" in str(dtype),
        sequences=math.prod(state.shape[1:-1]),
        steps=given.shape[1 if batch_first else 0] if batch_sizes is None else batch_sizes.elements,
        has_biases=has_biases,
        layers=num_layers,
        directions=1 + bidirectional,
    )


def _step(cell: Cell, input: TensorSpec, hx: Operands) -> Flop:
    state = hx if isinstance(hx, TensorSpec) else hx[0]
    sequences = math.prod(input.shape[:-1])
    return _layers(cell, input, state, sequences=sequences, steps=1, has_biases=True)


@formula(
    *("quantized.quantized_lstm_cell_dynamic", "aten.quantized_lstm_cell"),
    type="recurrent",
    byte=_LAYER,
)
def lstm_step(input: TensorSpec, hx: Operands, **_: Any) -> Flop:
    """As `aten.lstm_cell`, with an input and a state that are quantised for each product."""
    return _step(LSTM, input, hx)


@formula(
    *("quantized.quantized_gru_cell_dynamic", "aten.quantized_gru_cell"),
    type="recurrent",
    byte=_LAYER,
)
def gru_step(input: TensorSpec, hx: TensorSpec, **_: Any) -> Flop:
    """As `aten.gru_cell`, with an input and a state that are quantised for each product."""
    return _step(GRU, input, hx)


@formula(
    *("quantized.quantized_rnn_tanh_cell_dynamic", "aten.quantized_rnn_tanh_cell"),
    type="recurrent",
    byte=_LAYER,
)
def tanh_step(input: TensorSpec, hx: TensorSpec, **_: Any) -> Flop:
    """As `aten.rnn_tanh_cell`, with an input and a state that are quantised for each product."""
    return _step(TANH, input, hx)


@formula(
    *("quantized.quantized_rnn_relu_cell_dynamic", "aten.quantized_rnn_relu_cell"),
    type="recurrent",
    byte=_LAYER,
)
def relu_step(input: TensorSpec, hx: TensorSpec, **_: Any) -> Flop:
    """As `aten.rnn_relu_cell`, with an input and a state that are quantised for each product."""
    return _step(RELU, input, hx)
