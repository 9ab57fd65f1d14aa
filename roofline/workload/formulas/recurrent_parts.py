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

from dataclasses import dataclass

from roofline.foundation.dtypes import DType
from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP
from roofline.workload.formulas.registry import Flop
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
