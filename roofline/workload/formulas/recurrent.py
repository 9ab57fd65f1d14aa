"""Recurrent layers and cells, for all operators that run them.

At every step a layer multiplies its input and its last state with a matrix each; the results for
the gates go through an elementwise cell. A fused layer's operands move once. Internal traffic, if
each of its operations went through memory:

* results of both products for the gates, written and read;
* traffic between the operations of a cell (`Cell.internal`);
* the states, read back by the next step, and the recurrent weights, read again by every step after
  the first;
* with several layers, the output of each but the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.workload.formulas.costs import Cost, F
from roofline.workload.formulas.registry import (
    Flop,
    Sizes,
    Tensors,
    formula,
    from_macs,
    table,
    untouched,
)
from roofline.workload.tensors import TensorSpec as Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """Backward pass of a cell per number of its state: simple operations, and internal numbers.

    ``biases`` counts biases with different gradients.
    """

    simple: int
    internal: int
    biases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Operations of a cell per number of its state, after the products.

    ``cost`` follows the sum of the gates, which takes an addition per gate, and one for each
    of two biases. Products can accumulate on top of each other and of a bias, except for
    ``separate_gates``, whose two parts a cell treats differently. ``internal`` counts numbers that
    one operation writes or reads for another. ``has_memory``: a second state passes from step to
    step. ``blends_state``: the old state is part of the new one.
    """

    gates: int
    cost: Cost
    internal: int
    backward: Backward
    separate_gates: int = 0
    has_memory: bool = False
    blends_state: bool = False

    def sums(self, has_biases: bool) -> int:
        return self.gates * (1 + 2 * has_biases)

    def flop(self, cells: int, has_biases: bool) -> Flop:
        """Return the FLOP of `cells` numbers of the state, without the products."""
        separate = self.separate_gates * has_biases
        return self.cost.flop(cells).plus(cells * self.sums(has_biases), cells * separate)


RELU = Cell(gates=1, cost=Cost(1), internal=2, backward=Backward(simple=1, internal=0, biases=1))
"""h = relu(a + b). Internal: the sum, written and read. Backward: a comparison."""

TANH = Cell(gates=1, cost=F, internal=2, backward=Backward(simple=3, internal=0, biases=1))
"""h = tanh(a + b). Internal: the sum, written and read. Backward: a square, a difference, a
product."""

LSTM = Cell(
    gates=4,
    cost=3 * 3 + 3 + 1 + 5 * F,
    internal=2 * 11 + 1,
    has_memory=True,
    backward=Backward(simple=21, internal=2 * 7 + 3, biases=4),
)
"""Three sigmoids (sign, exponential, addition, division), a tanh; c = f * c + i * g, and h = o *
tanh(c). Internal: 4 sums, 4 gates, f * c, i * g and tanh(c), written and read; c read.

Backward: do = dh * tanh(c), dh * o, its derivative through tanh (a square, a difference, a
product), added to dc (counted if there is one); dc * f, dc * c, dc * g, dc * i; three sigmoids and
a tanh, 3 each. Internal: do, dh * o, that through tanh, dc, and three of its products, each written
and read, dc three times more."""

GRU = Cell(
    gates=3,
    cost=2 * 3 + 1 + 3 + 3 * F,
    internal=2 * 9 + 1,
    separate_gates=1,
    blends_state=True,
    backward=Backward(simple=15, internal=2 * 5 + 1, biases=4),
)
"""Two sigmoids; n = tanh(a + r * b), with separate halves; h = (h - n) * z + n. Internal: 3 sums, 3
gates, r * b, h - n and its product with z, written and read; n read twice.

Backward: dz = dh * (h - n), dn = dh * (1 - z), dh * z; 3 through tanh; dn * b and dn * r; two
sigmoids, 3 each, with 1 - z already known. Internal: h - n, dz, 1 - z, dn, dr, written and read; dn
read once more."""

CELLS = (RELU, TANH, LSTM, GRU)
"""Cells by an operator's ``mode``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Stacked recurrent layers, each in one direction or both.

    ``input`` has a vector per step of all ``sequences``; ``steps`` is the length of the longest.
    ``output`` is the length of the vector passed to the next step, ``hidden`` unless projected.
    """

    cell: Cell
    input: Tensor
    sequences: int
    steps: int
    hidden: int
    output: int
    has_biases: bool
    layers: int = 1
    directions: int = 1
    is_dropping: bool = False

    @property
    def vectors(self) -> int:
        """Inputs of all steps of all sequences."""
        return math.prod(self.input.shape[:-1])

    @property
    def rows(self) -> int:
        """Layers in all directions."""
        return self.layers * self.directions

    @property
    def input_lengths(self) -> list[int]:
        """Input length of each layer: the model's, then the output of all directions."""
        return [self.input.shape[-1], *(self.layers - 1) * [self.directions * self.output]]

    @property
    def cells(self) -> int:
        """Numbers of the state, in all steps of all sequences, layers and directions."""
        return self.rows * self.vectors * self.hidden

    @property
    def projection(self) -> int:
        """Length of a projected state; 0 if not projected."""
        return self.output if self.output != self.hidden else 0

    def input_macs(self, lengths: Sizes) -> int:
        return self.vectors * self.cell.gates * self.hidden * self.directions * sum(lengths)

    @property
    def state_macs(self) -> int:
        return self.cells * (self.cell.gates * self.output + self.projection)

    @property
    def between(self) -> int:
        """Numbers passed from layer to layer."""
        return (self.layers - 1) * self.directions * self.vectors * self.output

    @property
    def dropped(self) -> int:
        return self.between if self.is_dropping else 0

    @property
    def repeated_weights(self) -> int:
        """Recurrent weights and biases that steps after the first read again."""
        weights = self.cell.gates * (self.output + self.has_biases) + self.projection
        return self.rows * max(self.steps - 1, 0) * self.hidden * weights

    @property
    def carried(self) -> int:
        """Vectors passed from step to step: all but the last of a sequence."""
        return self.rows * max(self.vectors - self.sequences, 0)

    def forward(self) -> Flop:
        """Return products and cells; dropout between layers is 1 multiplication per number."""
        inside = self.cell.flop(self.cells, self.has_biases).plus(self.dropped)
        macs = self.input_macs(self.input_lengths) + self.state_macs
        count = from_macs(macs).plus(inside.other, inside.min_flop)
        return replace(count, internal_bytes=self.input.dtype.byte(self._internal()))

    def _internal(self) -> int:
        inside = self.cells * (2 * 2 * self.cell.gates + self.cell.internal)
        states = self.carried * self.output
        if self.cell.has_memory:
            states += 2 * self.carried * self.hidden
        if self.cell.blends_state:
            # The mean of old and new state reads the old one once more.
            states += self.cells
        return inside + states + self._shared_internal

    @property
    def _shared_internal(self) -> int:
        """Internal numbers of both passes: projections, layer outputs, repeated weights."""
        projected = 2 * self.cells if self.output != self.hidden else 0
        return projected + 2 * (self.between + self.dropped) + self.repeated_weights

    def backward(
        self,
        *,
        has_last: bool = False,
        has_memory: bool = False,
        for_input: bool = True,
        for_state: bool = True,
        for_weights: bool = True,
    ) -> Flop:
        """Return the gradients of input, states, weights and biases.

        The gradient of a state adds that of the output and (except for the last step, unless
        ``has_last``) that of the following step; likewise for the second state. The gradient of a
        bias is a sum over all steps; both biases of an LSTM share it. Without ``for_input``, the
        first layer's product for it is omitted.

        The minimum: sums of states go into the accumulators of products; without ``for_state``, the
        first step's product for its initial state is also omitted.
        """
        if not self.cells:
            return Flop()
        cell, of_cell, lengths = self.cell, self.cell.backward, self.input_lengths
        macs = self.state_macs + self.input_macs(lengths if for_input else lengths[1:])
        if for_weights:
            macs += self.input_macs(lengths) + self.state_macs
        last = self.rows * self.sequences
        states = (self.carried + has_last * last) * self.output
        other = self.cells * of_cell.simple + self.dropped
        if cell.has_memory:
            other += (self.carried + has_memory * last) * self.hidden
        if for_weights and self.has_biases:
            other += self.rows * of_cell.biases * self.hidden * (self.vectors - 1)
        if cell.blends_state:
            # The old state's share of the new one is added to the gradient through the gates.
            states += self.cells
        avoidable = 0 if for_state else last * cell.gates * self.hidden * self.output
        # Each product for gates reads their gradients, and the sums for biases.
        readers = for_input + 1 + for_weights * (2 + self.has_biases)
        internal = self.cells * (of_cell.internal + cell.gates * (1 + readers))
        internal += 2 * self.carried * (self.output + self.hidden * cell.has_memory)
        return replace(
            from_macs(macs, states, macs - avoidable).plus(other),
            internal_bytes=self.input.dtype.byte(internal + self._shared_internal),
        )


# Recurrent layers and cells that torch runs as one operator.

LAYER = (
    "input, states, weights and results once, packed weights instead of their originals;"
    " gates, states between steps and repeated weights are internal"
)
CELL = "gates, states and results once; intermediates of the cell are internal"


def describe_mkldnn(
    input: Tensor,
    second: Tensor,
    hx_: Tensor,
    mode: int,
    hidden_size: int,
    has_biases: bool,
    batch_first: bool,
    **_: Any,
) -> Layers:
    """One direction of one layer; the second matrix multiplies the state."""
    return Layers(
        cell=CELLS[mode],
        input=input,
        sequences=math.prod(hx_.shape[:-1]),
        steps=input.shape[1 if batch_first else 0],
        hidden=hidden_size,
        output=second.shape[-1],
        has_biases=has_biases,
    )


@formula("aten.mkldnn_rnn_layer", byte=LAYER)
def mkldnn_layer(weight1: Tensor, has_biases: bool, **given: Any) -> Flop:
    """One direction of one layer, all steps. Placeholders of missing biases are not read."""
    layer = describe_mkldnn(second=weight1, has_biases=has_biases, **given)
    unread = {} if has_biases else untouched("weight2", "weight3")
    return replace(layer.forward(), elements=unread)


def describe_cudnn(
    input: Tensor,
    weight_stride0: int,
    hx: Tensor,
    mode: int,
    hidden_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sizes,
    proj_size: int = 0,
    **_: Any,
) -> Layers:
    """Layers of ``weight_stride0`` tensors each: two matrices, two biases or none, a projection.

    Sequences of different lengths are packed: ``batch_sizes`` has an entry per step.
    """
    return Layers(
        cell=CELLS[mode],
        input=input,
        sequences=hx.shape[-2],
        steps=len(batch_sizes) or input.shape[1 if batch_first else 0],
        hidden=hidden_size,
        output=proj_size or hidden_size,
        has_biases=weight_stride0 >= 4,
        layers=num_layers,
        directions=1 + bidirectional,
        is_dropping=train and dropout > 0,
    )


@formula("aten._cudnn_rnn", "aten.miopen_rnn", byte=LAYER)
def cudnn_layers(weight: Tensors, **arguments: Any) -> Flop:
    """All layers and directions. The buffer of packed weights is the weights themselves."""
    unread = untouched("weight_buf") if weight and "weight_buf" in arguments else {}
    return replace(describe_cudnn(**arguments).forward(), elements=unread)


def describe_layers(
    cell: Cell,
    hx: Tensor | Tensors,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    params: Tensors = (),
    dropout: float = 0,
    train: bool = False,
    input: Tensor | None = None,
    data: Tensor | None = None,
    batch_sizes: Tensor | None = None,
    batch_first: bool = False,
    **_: Any,
) -> Layers:
    """Layers of a dense ``input`` or of packed ``data``; projections need ``params``."""
    given = input if input is not None else data
    state = hx if isinstance(hx, Tensor) else hx[0]
    assert given is not None
    steps = given.shape[1 if batch_first else 0]
    return Layers(
        cell=cell,
        input=given,
        sequences=math.prod(state.shape[1:-1]),
        steps=steps if batch_sizes is None else batch_sizes.elements,
        hidden=params[0].shape[0] // cell.gates if params else state.shape[-1],
        output=state.shape[-1],
        has_biases=has_biases,
        layers=num_layers,
        directions=1 + bidirectional,
        is_dropping=train and dropout > 0,
    )


def _all_layers(cell: Cell, **given: Any) -> Flop:
    return describe_layers(cell, **given).forward()


table(
    """
aten.lstm aten._lstm_mps = LSTM
    All layers and directions, with projections.
aten.gru = GRU
    All layers and directions.
aten.rnn_tanh = TANH
    All layers and directions.
aten.rnn_relu = RELU
    All layers and directions.
""",
    _all_layers,
    byte=LAYER,
)


def describe_step(cell: Cell, input: Tensor, hidden: int, output: int, has_biases: bool) -> Layers:
    return Layers(
        cell=cell,
        input=input,
        sequences=math.prod(input.shape[:-1]),
        steps=1,
        hidden=hidden,
        output=output,
        has_biases=has_biases,
    )


def _one_step(
    cell: Cell, input: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, **_: Any
) -> Flop:
    hidden, output = w_ih.shape[0] // cell.gates, w_hh.shape[-1]
    return describe_step(cell, input, hidden, output, b_ih is not None).forward()


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
    byte=LAYER,
)


def _fused_cell(
    cell: Cell, input_gates: Tensor, input_bias: Tensor | None = None, **given: Any
) -> Flop:
    state = given["cx" if cell.has_memory else "hx"]
    inside = cell.flop(state.elements, input_bias is not None)
    internal = state.elements * (cell.internal - cell.gates)
    return replace(inside, internal_bytes=input_gates.dtype.byte(internal))


table(
    """
aten._thnn_fused_lstm_cell = LSTM
    A cell after its two products; it also returns its four gates.
aten._thnn_fused_gru_cell = GRU
    A cell after its two products; it also returns its three gates.
""",
    _fused_cell,
    byte=CELL,
)


# The backward pass of recurrent layers and cells in one operator.
#
# Each product of the forward pass has two: the gradient of the gates with the weights, and with the
# input or state. The gates were kept; only single cells recompute tanh(c).
#
# Internal traffic of a layer: intermediates of the cell; the gradients of the gates, written once
# and read by four products and the sums for biases; those of the states, written and read from step
# to step; and the recurrent weights, which every step but one reads again.

LAYER_BACKWARD = (
    "input, states, weights, saved tensors and gradients once; gradients of gates and between"
    " steps, and repeated weights, are internal"
)
CELL_BACKWARD = "gradients, states and kept gates once; intermediates of the cell are internal"


@formula("aten.mkldnn_rnn_layer_backward", byte=LAYER_BACKWARD)
def mkldnn_layer_backward(
    weight2: Tensor,
    has_biases: bool,
    grad_output: Tensor | None = None,
    grad_hy: Tensor | None = None,
    grad_cy: Tensor | None = None,
    **given: Any,
) -> Flop:
    """One direction of one layer: twice the MACs of the forward pass."""
    count = describe_mkldnn(second=weight2, has_biases=has_biases, **given).backward(
        has_last=grad_output is not None and grad_hy is not None, has_memory=grad_cy is not None
    )
    return replace(count, elements={} if has_biases else untouched("weight3", "weight4"))


@formula("aten._cudnn_rnn_backward", "aten.miopen_rnn_backward", byte=LAYER_BACKWARD)
def cudnn_layers_backward(
    weight: Tensors,
    output_mask: Sequence[bool],
    grad_output: Tensor | None = None,
    grad_hy: Tensor | None = None,
    grad_cy: Tensor | None = None,
    **arguments: Any,
) -> Flop:
    """All layers and directions; the mask selects input, both states, and weights."""
    count = describe_cudnn(**arguments).backward(
        has_last=grad_output is not None and grad_hy is not None,
        has_memory=grad_cy is not None,
        for_input=output_mask[0],
        for_state=output_mask[1],
        for_weights=output_mask[3],
    )
    return replace(count, elements=untouched("weight_buf") if weight else {})


@formula("aten.lstm_mps_backward", byte=LAYER_BACKWARD)
def lstm_layers_backward(
    grad_y: Tensor | None = None,
    grad_hy: Tensor | None = None,
    grad_cy: Tensor | None = None,
    **arguments: Any,
) -> Flop:
    """All layers and directions."""
    return describe_layers(LSTM, **arguments).backward(
        has_last=grad_y is not None and grad_hy is not None, has_memory=grad_cy is not None
    )


def _cell_backward(cell: Cell, state: Tensor, of: Cost, more_internal: int, has_bias: bool) -> Flop:
    """Count `of` per number of the state, and the sums of biases over the batch."""
    cells, rows = state.elements, state.shape[0]
    biases = cell.backward.biases * cells // rows * (rows - 1) if has_bias and rows else 0
    internal = cells * (cell.backward.internal + more_internal)
    return replace(of.flop(cells).plus(biases), internal_bytes=state.dtype.byte(internal))


@formula(
    *("aten._thnn_fused_lstm_cell_backward", "aten._thnn_fused_lstm_cell_backward_impl"),
    byte=CELL_BACKWARD,
)
def fused_lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, has_bias: bool, **_: Any
) -> Flop:
    """Gradients of the gates and the old state; for a bias, the sum over the batch.

    tanh(c) is recomputed. With a gradient of one state only, operations of the other are omitted.
    """
    each = LSTM.backward.simple
    if grad_hy is None:
        # No gradient through the output gate and tanh.
        return _cell_backward(LSTM, cx, Cost(each - 1 - 1 - 3 - 3), 0, has_bias)
    return _cell_backward(LSTM, cx, each + (grad_cy is not None) + F, 2, has_bias)


@formula("aten._thnn_fused_gru_cell_backward", byte=CELL_BACKWARD)
def fused_gru_cell_backward(grad_hy: Tensor, has_bias: bool, **_: Any) -> Flop:
    """Gradients of both halves of the gates and of the old state; for biases, sums over the batch.

    The biases of input and state differ in the last gate.
    """
    return _cell_backward(GRU, grad_hy, Cost(GRU.backward.simple), 0, has_bias)


def _add_recomputed_gates(
    count: Flop, cell: Cell, state: Tensor, has_bias: bool, of: Cost, internal: int
) -> Flop:
    """Add the gates, recomputed from the products: sums, and `of` per number."""
    gates = of.flop(state.elements).plus(state.elements * cell.sums(has_bias), 0)
    byte = count.internal_bytes + state.dtype.byte(state.elements * 2 * internal)
    return replace(count.plus(gates.other, gates.min_flop), internal_bytes=byte)


@formula("aten._thnn_differentiable_lstm_cell_backward", byte=CELL_BACKWARD)
def lstm_cell_backward(cx: Tensor, input_bias: Tensor | None, **given: Any) -> Flop:
    """As aten._thnn_fused_lstm_cell_backward, with gates recomputed from the products.

    These are sums, three sigmoids and a tanh.
    """
    has_bias = input_bias is not None
    count = fused_lstm_cell_backward(cx=cx, has_bias=has_bias, **given)
    return _add_recomputed_gates(count, LSTM, cx, has_bias, 3 * 3 + 4 * F, 8)


@formula("aten._thnn_differentiable_gru_cell_backward", byte=CELL_BACKWARD)
def gru_cell_backward(grad_hy: Tensor, hx: Tensor, input_bias: Tensor | None, **_: Any) -> Flop:
    """As aten._thnn_fused_gru_cell_backward, with gates recomputed from the products.

    These are sums, two sigmoids, and a tanh with a multiplied half from the state.
    """
    has_bias = input_bias is not None
    count = fused_gru_cell_backward(grad_hy, has_bias)
    return _add_recomputed_gates(count, GRU, hx, has_bias, 2 * 3 + 1 + 3 * F, 7)
