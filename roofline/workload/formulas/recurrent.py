"""What recurrent layers and cells do, whichever operator runs them.

At every step a layer multiplies its input and its last state with a matrix each; what that gives
for the gates goes through a cell, number by number. A fused layer's operands move once. Internal
traffic is what it takes besides if each operation of it went through memory:

* what both products give for the gates, written and read;
* what the operations of a cell hand to each other (`Cell.internal`);
* the states, read back by the next step, and the recurrent weights, which every step after the
  first reads again;
* of several layers, the output of each but the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.foundation.dtypes import DType
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a cell does for each number of its state, after the products.

    ``simple`` operations and transcendental ``functions`` come after the gates are summed up, which
    takes an addition a gate, and one for each of two biases. Products can be accumulated on top of
    each other and of a bias, but for ``apart`` gates whose parts a cell treats differently.
    ``internal`` counts numbers that one operation writes or reads for another.
    ``has_memory`` says that a second state goes from step to step.
    """

    gates: int
    simple: int
    functions: int
    internal: int
    apart: int = 0
    has_memory: bool = False

    def flop(self, cells: int, has_biases: bool) -> Flop:
        """Of so many numbers of the state; the products not included."""
        sums = self.gates * (1 + 2 * has_biases)
        return Flop(
            other=cells * (sums + self.simple + self.functions * TRANSCENDENTAL_FLOP),
            least=cells * (self.simple + self.functions + self.apart * has_biases),
        )


RELU = Cell(gates=1, simple=1, functions=0, internal=2)
"""h = relu(a + b). Internal: the sum, written and read."""

TANH = Cell(gates=1, simple=0, functions=1, internal=2)
"""h = tanh(a + b). Internal: the sum, written and read."""

LSTM = Cell(gates=4, simple=3 * 3 + 3 + 1, functions=5, internal=2 * 11 + 1, has_memory=True)
"""Three sigmoids (sign, exponential, addition, division), a tanh; c = f * c + i * g, and
h = o * tanh(c). Internal: 4 sums, 4 gates, f * c, i * g and tanh(c), written and read; c read."""

GRU = Cell(gates=3, simple=2 * 3 + 1 + 3, functions=3, internal=2 * 9 + 1, apart=1)
"""Two sigmoids; n = tanh(a + r * b), whose halves are thus apart; h = (h - n) * z + n. Internal:
3 sums, 3 gates, r * b, h - n and its product with z, written and read; n read twice."""

CELLS = (RELU, TANH, LSTM, GRU)
"""By the number that operators have in ``mode``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Recurrent layers on top of each other, each in one direction or both.

    ``vectors`` are the inputs of all steps of all ``sequences``, and ``steps`` those of the longest
    of these. ``output`` is the length of what a layer gives to the next step, which is ``hidden``
    unless it is projected.
    """

    cell: Cell
    vectors: int
    sequences: int
    steps: int
    inputs: int
    hidden: int
    output: int
    has_biases: bool
    dtype: DType
    layers: int = 1
    directions: int = 1
    is_dropping: bool = False

    @property
    def input_lengths(self) -> list[int]:
        """Of the input of each layer: the model's, then what all directions give together."""
        return [self.inputs, *(self.layers - 1) * [self.directions * self.output]]

    @property
    def cells(self) -> int:
        """Numbers of the state, in all steps of all sequences, layers and directions."""
        return self.layers * self.directions * self.vectors * self.hidden

    @property
    def input_products(self) -> int:
        """Multiply-adds of the inputs with their weights."""
        lengths = self.directions * sum(self.input_lengths)
        return self.vectors * self.cell.gates * self.hidden * lengths

    @property
    def state_products(self) -> int:
        """Multiply-adds of the states with their weights, projections included."""
        projected = self.output if self.output != self.hidden else 0
        return self.cells * (self.cell.gates * self.output + projected)

    @property
    def between(self) -> int:
        """Numbers that layers give to the next one."""
        return (self.layers - 1) * self.directions * self.vectors * self.output

    @property
    def repeated_weights(self) -> int:
        """Recurrent weights, and their biases, that steps after the first read again."""
        projected = self.output * self.hidden if self.output != self.hidden else 0
        weights = self.cell.gates * self.hidden * (self.output + self.has_biases) + projected
        return self.layers * self.directions * max(self.steps - 1, 0) * weights

    @property
    def carried(self) -> int:
        """Vectors that one step leaves to another: all but the last of a sequence."""
        return self.layers * self.directions * max(self.vectors - self.sequences, 0)

    def forward(self) -> Flop:
        """Products, and cells; dropout between layers is a multiplication a number."""
        inside = self.cell.flop(self.cells, self.has_biases)
        products = self.input_products + self.state_products
        dropped = self.between if self.is_dropping else 0
        return Flop(
            macs=products,
            other=inside.other + dropped,
            least=FLOP_PER_FMA * products + inside.min_flop + dropped,
            min_macs=products,
            internal_bytes=self.dtype.byte(self._internal()),
        )

    def _internal(self) -> int:
        of_gates = self.cells * 2 * 2 * self.cell.gates
        states = self.carried * self.output
        if self.cell.has_memory:
            states += 2 * self.carried * self.hidden
        elif self.cell is GRU:
            # The mean of the old state and the new one reads the old one once more.
            states += self.cells
        # What is projected; and what layers give to the next, dropped out or not.
        projected = 2 * self.cells if self.output != self.hidden else 0
        between = 2 * self.between * (1 + self.is_dropping)
        inside = self.cells * self.cell.internal
        return of_gates + inside + states + projected + between + self.repeated_weights


# Recurrent layers and cells that torch runs as one operator.

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


def _all_layers(cell: Cell, **given: Any) -> Flop:
    return of_modules(cell, **given).forward()


_CELLS = {"LSTM": LSTM, "GRU": GRU, "TANH": TANH, "RELU": RELU}

table(
    """
aten.lstm aten._lstm_mps = LSTM
    All layers and directions, projections too.
aten.gru = GRU
    All layers and directions.
aten.rnn_tanh = TANH
    All layers and directions.
aten.rnn_relu = RELU
    All layers and directions.
""",
    _all_layers,
    _CELLS.__getitem__,
    byte=LAYER,
)


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


table(
    """
aten.lstm_cell = LSTM
    One step of one layer: two products and a cell.
aten.gru_cell = GRU
    One step of one layer: two products and a cell.
aten.rnn_tanh_cell = TANH
    One step of one layer: two products and a cell.
aten.rnn_relu_cell = RELU
    One step of one layer: two products and a cell.
""",
    _one_step,
    _CELLS.__getitem__,
    byte=LAYER,
)


def _fused_cell(
    cell: Cell, input_gates: TensorSpec, input_bias: TensorSpec | None = None, **given: Any
) -> Flop:
    state = given["cx" if cell.has_memory else "hx"]
    inside = cell.flop(state.elements, input_bias is not None)
    internal = state.elements * (cell.internal - cell.gates)
    return replace(inside, internal_bytes=input_gates.dtype.byte(internal))


table(
    """
aten._thnn_fused_lstm_cell = LSTM
    A cell after its two products; it returns its four gates too, which are written anyway.
aten._thnn_fused_gru_cell = GRU
    A cell after its two products; it returns its three gates too, which are written anyway.
""",
    _fused_cell,
    _CELLS.__getitem__,
    byte=CELL,
)


# The backward pass of recurrent layers and cells in one operator.
#
# Each product of the forward pass has two: the gradient of the gates with the weights, and with the
# input or state. The gates were kept, so nothing is taken anew but, in a cell of its own, tanh(c).
#
# Internal traffic of a layer: what a cell's operations hand to each other; the gradients of the
# gates, written once and read by four products and the sums for biases; those of the states,
# written and read from step to step; and the recurrent weights, which every step but one reads
# again.

LAYER_BACKWARD = (
    "input, states, weights, what the forward pass kept, and gradients once; gradients of gates and"
    " between steps, and repeated weights, are internal"
)
CELL_BACKWARD = (
    "gradients, states and kept gates once; what the cell's operations hand over is internal"
)


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


@formula("aten.mkldnn_rnn_layer_backward", byte=LAYER_BACKWARD)
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


@formula("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward", byte=LAYER_BACKWARD)
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


@formula("aten.lstm_mps_backward", byte=LAYER_BACKWARD)
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


@formula("aten._thnn_fused_lstm_cell_backward", byte=CELL_BACKWARD)
@formula("aten._thnn_fused_lstm_cell_backward_impl", byte=CELL_BACKWARD)
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


@formula("aten._thnn_fused_gru_cell_backward", byte=CELL_BACKWARD)
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


def _anew(cell: Cell, count: Flop, spec: TensorSpec, input_bias: TensorSpec | None) -> Flop:
    """`count`, and the gates taken anew from the products: sums, simple operations, functions."""
    sums = cell.gates * (1 + 2 * (input_bias is not None))
    simple, functions, internal = (9, 4, 8) if cell is LSTM else (7, 3, 7)
    return replace(
        count,
        other=count.other + spec.elements * (sums + simple + functions * TRANSCENDENTAL_FLOP),
        least=count.min_flop + spec.elements * (simple + functions),
        internal_bytes=count.internal_bytes + spec.dtype.byte(spec.elements * 2 * internal),
    )


@formula("aten._thnn_differentiable_lstm_cell_backward", byte=CELL_BACKWARD)
def lstm_cell_backward(cx: TensorSpec, input_bias: TensorSpec | None, **given: Any) -> Flop:
    """As `fused_lstm_cell_backward`, from the products: gates are taken anew, sums and functions.

    Three sigmoids and a tanh.
    """
    count = fused_lstm_cell_backward(cx=cx, has_bias=input_bias is not None, **given)
    return _anew(LSTM, count, cx, input_bias)


@formula("aten._thnn_differentiable_gru_cell_backward", byte=CELL_BACKWARD)
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
