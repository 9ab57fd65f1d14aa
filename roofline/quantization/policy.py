"""Quantization policies, and the layers and shortcuts of a forward pass that they apply to.

Derived from operator records alone, so that a saved analysis is sufficient: data flow determines
the first and the last layer, and layers on shortcut branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from roofline.errors import InputError
from roofline.workload.dataflow import trace_dataflow
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role

Shortcut = Literal["full", "low"]
"""Precision of shortcuts: full (Choi et al., SysML 2019), or low, like the surrounding layers.
"""

Place = Literal["first", "last", "shortcut", "inner"]
"""Place of a layer: no layer before it, no layer after it, on a shortcut around other layers, or
none of these.
"""

FLOAT_BITS = 32
"""Bit width that stands for unquantized floats."""

MOST_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBits:
    """Bits of a layer's weights and input activations, 1 to 16; 32: float."""

    weights: int
    activations: int

    def __post_init__(self) -> None:
        check_bits("weights", self.weights)
        check_bits("activations", self.activations)

    @property
    def is_float(self) -> bool:
        """Return whether nothing is quantized."""
        return self.weights == self.activations == FLOAT_BITS

    @property
    def words(self) -> str:
        """``"w2a4"``."""
        return f"w{self.weights}a{self.activations}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Bit widths of the layers of a model.

    Args:
        weights: bits of weights, 1 to 16; 32: not quantized.
        activations: bits of input activations of layers.
        first_last: minimum bits of the first and the last layer.
        shortcut: ``"full"``: layers on shortcuts, and values carried by shortcuts, stay in floats;
            ``"low"``: they are quantized.
        layers: exceptions by qualified module name; they take precedence.
        per_channel: one scale per output channel of weights.

    Raises:
        InputError: invalid bits, ``shortcut``, ``per_channel`` or ``layers``.
    """

    weights: int = 2
    activations: int = 2
    first_last: int = 8
    shortcut: Shortcut = "full"
    layers: Mapping[str, LayerBits] = field(default_factory=dict[str, LayerBits])
    per_channel: bool = False

    def __post_init__(self) -> None:
        for name in ("weights", "activations", "first_last"):
            check_bits(name, getattr(self, name))
        if self.shortcut not in ("full", "low"):
            raise InputError(f"shortcut={self.shortcut!r}: must be full or low")
        if not isinstance(self.per_channel, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"per_channel={self.per_channel!r}: must be True or False")
        layers: object = self.layers
        fix = "give {'name': LayerBits(weights=4, activations=4)}"
        if not isinstance(layers, Mapping):
            raise InputError(f"layers of a policy: expected a mapping, got {layers!r}; {fix}")
        for name, bits in cast("Mapping[object, object]", layers).items():
            if not isinstance(name, str) or not isinstance(bits, LayerBits):
                raise InputError(f"layers of a policy: {name!r} has {bits!r}; {fix}")

    def bits_of(self, name: str, place: Place) -> LayerBits:
        """Return the bits of a layer by its qualified name and place."""
        if name in self.layers:
            return self.layers[name]
        if place == "shortcut" and self.shortcut == "full":
            return LayerBits(weights=FLOAT_BITS, activations=FLOAT_BITS)
        if place in ("first", "last"):
            return LayerBits(
                weights=max(self.weights, self.first_last),
                activations=max(self.activations, self.first_last),
            )
        return LayerBits(weights=self.weights, activations=self.activations)

    @property
    def words(self) -> str:
        """``"2-bit weights, 2-bit activations, first and last 8, shortcuts full"``."""
        parts = [
            f"{width_text(self.weights)} weights",
            f"{width_text(self.activations)} activations",
        ]
        if min(self.weights, self.activations) < self.first_last:
            is_all = max(self.weights, self.activations) < self.first_last
            ends = "first and last" if is_all else "first and last at least"
            parts.append(f"{ends} {width_text(self.first_last)}")
        parts.append("shortcuts in full precision" if self.shortcut == "full" else "shortcuts low")
        if self.layers:
            count = len(self.layers)
            own = "1 exception" if count == 1 else f"{count} exceptions"
            parts.append(own)
        return ", ".join(parts)


def check_bits(what: str, bits: object) -> None:
    """Check a bit width: 1 to 16, or 32; raise an InputError otherwise."""
    known = (*range(1, MOST_BITS + 1), FLOAT_BITS)
    if type(bits) is not int or bits not in known:
        raise InputError(
            f"{what}: {bits!r} bits; must be an integer from 1 to {MOST_BITS}, or {FLOAT_BITS} for"
            " floats"
        )


def width_text(bits: int) -> str:
    return "float" if bits == FLOAT_BITS else f"{bits}-bit"


_OPERANDS = {
    # Positions of activations and weights among the operands.
    "aten.convolution": (0, 1),
    "aten._convolution": (0, 1),
    "aten.addmm": (1, 2),
    "aten.mm": (0, 1),
    "aten.linear": (0, 1),
}
_WEIGHTS = (Role.PARAMETER, Role.BUFFER)
_SUMS = ("aten.add", "aten.add_")

RECURRENT = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")
"""Module classes that stay in floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Product of activations and stored weights.

    Attributes:
        name: qualified module name, with ``#2`` for its second product and so on.
        index: position of its operator.
        activation: position among the operator's inputs, like ``weight``.
    """

    name: str
    index: int
    place: Place
    activation: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutPath:
    """Branch around layers, added to their result by ``addition``.

    ``operand`` is its position among the inputs of the addition, ``layers`` the operators of layers
    on it; none: identity.
    """

    addition: int
    operand: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Layers in execution order, and shortcuts in order of their additions."""

    layers: tuple[Layer, ...]
    shortcuts: tuple[ShortcutPath, ...]


def structure_of(records: Sequence[OperatorRecord], apart: Container[str] = ()) -> Structure:
    """Return layers and shortcuts of a forward pass, from its operators in execution order.

    Products of modules in ``apart`` are no layers, and their sums no shortcuts (`RECURRENT`).
    """
    products = {
        place: operands
        for place, record in enumerate(records)
        if record.module_path not in apart and (operands := _product(record)) is not None
    }
    # For each operator, the latest writers of its operands (None: outside this pass), and all
    # operators that it depends on.
    sources = [[each.latest_writer for each in read] for read in trace_dataflow(records).read]
    before: list[frozenset[int]] = []
    for read in sources:
        direct = {place for place in read if place is not None and place < len(before)}
        before.append(frozenset(direct).union(*(before[place] for place in direct)))
    shortcuts = tuple(
        each
        for each in _shortcuts(records, sources, before, products)
        if records[each.addition].module_path not in apart
    )
    passed_by = {layer for each in shortcuts for layer in each.layers}
    read = {layer for place in products for layer in before[place] if layer in products}
    met: Counter[str] = Counter()
    layers: list[Layer] = []
    for place, (activation, weight) in products.items():
        path = records[place].module_path
        met[path] += 1
        where: Place = "inner"
        if not any(layer in products for layer in before[place]):
            where = "first"
        elif place not in read:
            where = "last"
        elif place in passed_by:
            where = "shortcut"
        layers.append(
            Layer(
                name=path if met[path] == 1 else f"{path}#{met[path]}",
                index=place,
                place=where,
                activation=activation,
                weight=weight,
            )
        )
    return Structure(layers=tuple(layers), shortcuts=shortcuts)


def _product(record: OperatorRecord) -> tuple[int, int] | None:
    """Return the positions of activation and weight among the operands of a layer; None: no
    layer.
    """
    if record.phase != "forward" or record.state is not State.COUNTED:
        return None
    operands = _OPERANDS.get(record.op)
    if operands is None or max(operands) >= len(record.inputs):
        return None
    activation, weight = operands
    is_kept = record.inputs[weight].role in _WEIGHTS and record.inputs[weight].dtype.kind == "float"
    return operands if is_kept and record.inputs[activation].role not in _WEIGHTS else None


def _shortcuts(
    records: Sequence[OperatorRecord],
    sources: Sequence[Sequence[int | None]],
    before: Sequence[frozenset[int]],
    products: Iterable[int],
) -> Iterable[ShortcutPath]:
    layers = frozenset(products)
    for place, record in enumerate(records):
        operands = record.inputs
        if record.op not in _SUMS or len(sources[place]) != 2:
            continue
        is_kept = any(each.role in _WEIGHTS for each in operands)
        if is_kept or operands[0].shape != operands[1].shape:
            continue
        ways = [
            before[writer] | {writer} if writer is not None else frozenset[int]()
            for writer in sources[place]
        ]
        alone = [ways[0] - ways[1], ways[1] - ways[0]]
        on = [sorted(each & layers) for each in alone]
        short = 0 if len(on[0]) < len(on[1]) else 1
        # A shortcut contains at most a projection, and the main branch more layers.
        if len(on[0]) == len(on[1]) or len(on[short]) > 1:
            continue
        # A projection is a linear layer, or a 1x1 convolution.
        weights = [records[each].inputs[_OPERANDS[records[each].op][1]] for each in on[short]]
        if all(size == 1 for weight in weights for size in weight.shape[2:]):
            yield ShortcutPath(addition=place, operand=short, layers=tuple(on[short]))
