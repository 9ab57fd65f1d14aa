"""The layers of a pass that have weights, where each stands, and the shortcuts around them.

Found in the operators alone, so that a saved analysis is enough: who reads what whom wrote tells
which layer is first, which is last, and which lie on a branch that another one goes around.
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
"""Shortcuts in full precision (Choi et al., SysML 2019), or in that of the layers around them."""

Place = Literal["first", "last", "shortcut", "inner"]
"""Where a layer stands: it reads what no other layer wrote, nobody reads what it writes, it is on a
shortcut around other layers, or none of these."""

FLOAT_BITS = 32
"""What is not quantized."""

MOST_BITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBits:
    """Bits of a layer's weights and of the activations that it reads; 32: they stay floats."""

    weights: int
    activations: int

    def __post_init__(self) -> None:
        check_bits("weights", self.weights)
        check_bits("activations", self.activations)

    @property
    def is_float(self) -> bool:
        """Whether nothing of it is quantized."""
        return self.weights == self.activations == FLOAT_BITS

    @property
    def words(self) -> str:
        """``"w2a4"``."""
        return f"w{self.weights}a{self.activations}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which layers are quantized to how many bits.

    ``weights`` and ``activations`` are the bits of all layers but those that the next ones name:
    ``first_last`` those of the first and the last (at least: where all have more, they do, too),
    ``shortcut`` whether layers on shortcuts, and what shortcuts carry, keep their precision.
    ``layers`` are exceptions by the qualified names of modules, which come before everything else.
    ``per_channel``: weights have a scale for each output channel. 32 bits: not quantized.

    Raises:
        InputError: bits other than 1 to 16 and 32, another word for ``shortcut``, no truth for
            ``per_channel``, or ``layers`` that are not names with their bits.
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
            raise InputError(f"shortcut={self.shortcut!r}: choose full or low")
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
        """The bits of a layer by its qualified name and its place."""
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
            f"{width_words(self.weights)} weights",
            f"{width_words(self.activations)} activations",
        ]
        if min(self.weights, self.activations) < self.first_last:
            is_all = max(self.weights, self.activations) < self.first_last
            ends = "first and last" if is_all else "first and last at least"
            parts.append(f"{ends} {width_words(self.first_last)}")
        parts.append("shortcuts in full precision" if self.shortcut == "full" else "shortcuts low")
        if self.layers:
            count = len(self.layers)
            own = "1 layer of its own" if count == 1 else f"{count} layers of their own"
            parts.append(own)
        return ", ".join(parts)


def check_bits(what: str, bits: object) -> None:
    """Refuses, as an InputError, widths that nothing can have: all but 1 to 16, and 32."""
    known = (*range(1, MOST_BITS + 1), FLOAT_BITS)
    if type(bits) is not int or bits not in known:
        raise InputError(
            f"{what}: {bits!r} bits; must be a whole number from 1 to {MOST_BITS}, or {FLOAT_BITS}"
            " for what is not quantized"
        )


def width_words(bits: int) -> str:
    """Return ``"8-bit"``, or ``"float"``."""
    return "float" if bits == FLOAT_BITS else f"{bits}-bit"


_OPERANDS = {
    # Where the activations and the weights stand among the operands.
    "aten.convolution": (0, 1),
    "aten._convolution": (0, 1),
    "aten.addmm": (1, 2),
    "aten.mm": (0, 1),
    "aten.linear": (0, 1),
}
_WEIGHTS = (Role.PARAMETER, Role.BUFFER)
_SUMS = ("aten.add", "aten.add_")

RECURRENT = ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell")
"""Classes of modules that stay in floats: nothing here quantizes their parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One product of activations with weights that the model keeps.

    ``name`` is the qualified name of its module, with ``#2`` behind it for its second product, and
    so on; ``index`` the position of its operator; ``activation`` and ``weight`` are positions among
    the operator's inputs.
    """

    name: str
    index: int
    place: Place
    activation: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutPath:
    """A way around layers: what ``addition`` adds to their result.

    ``operand`` is the position of what comes along the shortcut among the inputs of the addition,
    ``layers`` the positions of the operators of layers on it: none where it is the identity.
    """

    addition: int
    operand: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """Layers in the order in which they run, and shortcuts in that of their additions."""

    layers: tuple[Layer, ...]
    shortcuts: tuple[ShortcutPath, ...]


def structure_of(records: Sequence[OperatorRecord], apart: Container[str] = ()) -> Structure:
    """The layers and shortcuts of a forward pass, whose operators come in the order in which they
    ran.

    ``apart`` are the paths of modules whose products are no layers, and their sums no shortcuts, as
    those of `RECURRENT` ones.
    """
    products = {
        place: operands
        for place, record in enumerate(records)
        if record.module_path not in apart and (operands := _product(record)) is not None
    }
    # For each operator, who wrote each of its operands last (None: nobody in this pass), and all
    # whose results it depends on.
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
    """Where activations and weights stand among the operands of a layer; None: it is none."""
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
        # At most a projection lies on a shortcut, and more on the way around which it goes.
        if len(on[0]) == len(on[1]) or len(on[short]) > 1:
            continue
        # A projection looks at one place at a time: a linear layer, or a convolution of 1 x 1.
        weights = [records[each].inputs[_OPERANDS[records[each].op][1]] for each in on[short]]
        if all(size == 1 for weight in weights for size in weight.shape[2:]):
            yield ShortcutPath(addition=place, operand=short, layers=tuple(on[short]))
