"""The backward pass of recurrent layers and cells in one operator.

Each product of the forward pass has two: the gradient of the gates with the weights, and with the
input or state. The gates were kept, so nothing is taken anew but, in a cell of its own, tanh(c).

Internal traffic of a layer: what a cell's operations hand to each other; the gradients of the
gates, written once and read by four products and the sums for biases; those of the states, written
and read from step to step; and the recurrent weights, which every step but one reads again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.recurrent import of_cudnn, of_mkldnn, of_modules
from roofline.workload.formulas.recurrent_parts import GRU, LSTM, TANH, Cell, Layers
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA

LAYER = (
    "input, states, weights, what the forward pass kept, and gradients once; gradients of gates and"
    " between steps, and repeated weights, are internal"
)
CELL = "gradients, states and kept gates once; what the cell's operations hand over is internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBackward:
    """What the backward pass of a cell does for each number of its state, and hands over inside.

    ``biases`` are those whose gradients differ.
    """

    simple: int
    internal: int
    biases: int


LSTM_BACKWARD = CellBackward(simple=21, internal=2 * 7 + 3, biases=4)
"""do = dh * tanh(c), dh * o, its way through tanh (a square, a difference, a product), added to dc
(counted where there is one); dc * f, dc * c, dc * g, dc * i; three sigmoids and a tanh, 3 each.
Internal: do, dh * o, that through tanh, dc, and three of its products, each written and read, dc
three times more."""

GRU_BACKWARD = CellBackward(simple=15, internal=2 * 5 + 1, biases=4)
"""dz = dh * (h - n), dn = dh * (1 - z), dh * z; through tanh 3; dn * b and dn * r; two sigmoids, 3
each, of which 1 - z is there. Internal: h - n, dz, 1 - z, dn, dr, written and read; dn read once
more."""

TANH_BACKWARD = CellBackward(simple=3, internal=0, biases=1)
"""A square, a difference, a product."""

RELU_BACKWARD = CellBackward(simple=1, internal=0, biases=1)
"""A comparison."""


def _of_cell(cell: Cell) -> CellBackward:
    pairs = ((LSTM, LSTM_BACKWARD), (GRU, GRU_BACKWARD), (TANH, TANH_BACKWARD))
    return next((found for each, found in pairs if each is cell), RELU_BACKWARD)


def _backward(
    layers: Layers,
    *,
    has_last: bool = False,
    has_memory: bool = False,
    for_input: bool = True,
    for_state: bool = True,
    for_weights: bool = True,
) -> Flop:
    """Gradients of input, states, weights and biases.

    The gradient of a state is that of the output and, but for the last step or with ``has_last``,
    what comes from the step behind it, added; likewise of the second state. The gradient of a bias
    is a sum over all steps; both biases of an LSTM have the same. Without ``for_input`` the first
    layer's product for it is left out.

    The least: the sums of states go into the accumulators of products; and the first step's product
    for a state that it was given is left out too, without ``for_state``.
    """
    if not layers.cells:
        return Flop()
    cell, inside = layers.cell, _of_cell(layers.cell)
    inner = (
        layers.input_products * sum(layers.input_lengths[1:]) // max(sum(layers.input_lengths), 1)
    )
    products = layers.state_products + (layers.input_products if for_input else inner)
    if for_weights:
        products += layers.input_products + layers.state_products
    rows = layers.layers * layers.directions
    last = rows * layers.sequences
    states = (layers.carried + has_last * last) * layers.output
    memories = (layers.carried + has_memory * last) * layers.hidden if cell.has_memory else 0
    biases = 0
    if for_weights and layers.has_biases:
        biases = rows * inside.biases * layers.hidden * (layers.vectors - 1)
    dropped = layers.between if layers.is_dropping else 0
    own = layers.cells * inside.simple + memories + biases + dropped
    if cell is GRU:
        # The old state's share of the new one is added to what comes through the gates.
        own += layers.cells
    avoidable = 0 if for_state else last * cell.gates * layers.hidden * layers.output
    return Flop(
        macs=products,
        other=own + states,
        least=FLOP_PER_FMA * (products - avoidable) + own - (layers.cells if cell is GRU else 0),
        min_macs=products - avoidable,
        internal_bytes=layers.dtype.byte(_internal(layers, inside, for_input, for_weights)),
    )


def _internal(layers: Layers, inside: CellBackward, for_input: bool, for_weights: bool) -> int:
    """Numbers that the parts of the backward pass write and read for each other."""
    readers = for_input + 1 + for_weights * (2 + layers.has_biases)
    gates = layers.cells * layers.cell.gates * (1 + readers)
    states = 2 * layers.carried * layers.output
    if layers.cell.has_memory:
        states += 2 * layers.carried * layers.hidden
    if layers.output != layers.hidden:
        states += 2 * layers.cells
    between = 2 * layers.between * (1 + layers.is_dropping)
    return layers.cells * inside.internal + gates + states + between + layers.repeated_weights


@formula("aten.mkldnn_rnn_layer_backward", byte=LAYER)
def mkldnn_layer_backward(
    input: TensorSpec,
    weight1: TensorSpec,
    weight2: TensorSpec,
    hx_: TensorSpec,
    mode: int,
    hidden_size: int,
    has_biases: bool,
    batch_first: bool,
    grad_output: TensorSpec | None = None,
    grad_hy: TensorSpec | None = None,
    grad_cy: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """One direction of one layer: twice the products of the forward pass."""
    count = _backward(
        of_mkldnn(input, weight1, weight2, hx_, mode, hidden_size, has_biases, batch_first),
        has_last=grad_output is not None and grad_hy is not None,
        has_memory=grad_cy is not None,
    )
    return replace(count, elements={} if has_biases else {"weight3": 0, "weight4": 0})


@formula("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward", byte=LAYER)
def cudnn_layers_backward(
    weight: Sequence[TensorSpec],
    output_mask: Sequence[bool],
    grad_output: TensorSpec | None = None,
    grad_hy: TensorSpec | None = None,
    grad_cy: TensorSpec | None = None,
    **arguments: Any,
) -> Flop:
    """All layers and directions; the mask asks for input, both states, and weights."""
    count = _backward(
        of_cudnn(**arguments),
        has_last=grad_output is not None and grad_hy is not None,
        has_memory=grad_cy is not None,
        for_input=output_mask[0],
        for_state=output_mask[1],
        for_weights=output_mask[3],
    )
    return replace(count, elements={"weight_buf": 0} if weight else {})


@formula("aten.lstm_mps_backward", byte=LAYER)
def lstm_layers_backward(
    grad_y: TensorSpec | None = None,
    grad_hy: TensorSpec | None = None,
    grad_cy: TensorSpec | None = None,
    **arguments: Any,
) -> Flop:
    """All layers and directions."""
    return _backward(
        of_modules(LSTM, **arguments),
        has_last=grad_y is not None and grad_hy is not None,
        has_memory=grad_cy is not None,
    )


@formula("aten._thnn_fused_lstm_cell_backward", byte=CELL)
@formula("aten._thnn_fused_lstm_cell_backward_impl", byte=CELL)
def fused_lstm_cell_backward(
    grad_hy: TensorSpec | None,
    grad_cy: TensorSpec | None,
    cx: TensorSpec,
    has_bias: bool,
    **_: Any,
) -> Flop:
    """Gradients of the gates and the old state; of a bias, the sum over the batch.

    tanh(c) is taken anew. Where only one of the two states has a gradient, the other's share falls
    away.
    """
    cells, each, functions = cx.elements, LSTM_BACKWARD.simple, 1
    if grad_hy is None:
        # No output gate, nothing through tanh.
        each, functions = each - 1 - 1 - 3 - 3, 0
    elif grad_cy is not None:
        each += 1
    rows = cx.shape[0]
    biases = LSTM_BACKWARD.biases * cells // rows * (rows - 1) if has_bias and rows else 0
    return Flop(
        other=cells * (each + functions * TRANSCENDENTAL_FLOP) + biases,
        least=cells * (each + functions) + biases,
        internal_bytes=cx.dtype.byte(cells * (LSTM_BACKWARD.internal + 2 * functions)),
    )


@formula("aten._thnn_fused_gru_cell_backward", byte=CELL)
def fused_gru_cell_backward(grad_hy: TensorSpec, has_bias: bool, **_: Any) -> Flop:
    """Gradients of both halves of the gates and of the old state; of biases, sums over the batch.

    The biases of input and state differ in the last gate.
    """
    cells, rows = grad_hy.elements, grad_hy.shape[0]
    biases = GRU_BACKWARD.biases * cells // rows * (rows - 1) if has_bias and rows else 0
    return Flop(
        other=cells * GRU_BACKWARD.simple + biases,
        internal_bytes=grad_hy.dtype.byte(cells * GRU_BACKWARD.internal),
    )


@formula("aten._thnn_differentiable_lstm_cell_backward", byte=CELL)
def lstm_cell_backward(
    grad_hy: TensorSpec | None,
    grad_cy: TensorSpec | None,
    cx: TensorSpec,
    input_bias: TensorSpec | None,
    **_: Any,
) -> Flop:
    """As `fused_lstm_cell_backward`, from the products: gates are taken anew, sums and functions.

    Three sigmoids and a tanh.
    """
    count = fused_lstm_cell_backward(grad_hy, grad_cy, cx, has_bias=input_bias is not None)
    sums = 4 * (1 + 2 * (input_bias is not None))
    return replace(
        count,
        other=count.other + cx.elements * (sums + 3 * 3 + 4 * TRANSCENDENTAL_FLOP),
        least=count.min_flop + cx.elements * (3 * 3 + 4),
        internal_bytes=count.internal_bytes + cx.dtype.byte(cx.elements * 2 * 8),
    )


@formula("aten._thnn_differentiable_gru_cell_backward", byte=CELL)
def gru_cell_backward(
    grad_hy: TensorSpec, hx: TensorSpec, input_bias: TensorSpec | None, **_: Any
) -> Flop:
    """As `fused_gru_cell_backward`, from the products: gates are taken anew, sums and functions.

    Two sigmoids and a tanh, of which the half that comes from the state is multiplied.
    """
    count = fused_gru_cell_backward(grad_hy, has_bias=input_bias is not None)
    sums = 3 * (1 + 2 * (input_bias is not None))
    return replace(
        count,
        other=count.other + hx.elements * (sums + 2 * 3 + 1 + 3 * TRANSCENDENTAL_FLOP),
        least=count.min_flop + hx.elements * (2 * 3 + 1 + 3),
        internal_bytes=count.internal_bytes + hx.dtype.byte(hx.elements * 2 * 7),
    )
