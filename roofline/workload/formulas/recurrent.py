"""Recurrent layers that torch runs as one operator."""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


@formula("aten.mkldnn_rnn_layer")
def lstm_layer(
    input: TensorSpec,
    weight0: TensorSpec,
    weight1: TensorSpec,
    hidden_size: int,
    has_biases: bool,
    **_: Any,
) -> Flop:
    """One direction of one LSTM layer: four gates from input and hidden state, at every step.

    A gate takes a product with the input, one with the state, the sum of both, and two biases.
    Three sigmoids (sign, exponential, addition, division), a tanh; c = f * c + i * g, and
    h = o * tanh(c). The products can be accumulated on top of each other and of the biases.
    """
    steps = math.prod(input.shape[:-1])
    cells = steps * hidden_size
    multiply_add = steps * (weight0.elements + weight1.elements)
    simple, functions = 3 * 3 + 3 + 1, 3 + 1 + 1
    sums = 4 * (1 + 2 * has_biases)
    return Flop(
        multiply_add=multiply_add,
        other=cells * (sums + simple + functions * TRANSCENDENTAL_FLOP),
        least=FLOP_PER_FMA * multiply_add + cells * (simple + functions),
    )
