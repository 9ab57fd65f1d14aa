"""The layers of a pass that have weights, where each stands, and the shortcuts around them.

Found in the operators alone, so that a saved analysis is enough: who reads what whom wrote tells
which layer is first, which is last, and which lie on a branch that another one goes around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from roofline.quantization.policy import Place
from roofline.workload.dataflow import dataflow
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec

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
"""Classes of modules that stay in floats: nothing here quantises their parts."""


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
    """The layers and shortcuts of a forward pass.

    Args:
        records: all operators of it, in the order in which they ran.
        apart: the paths of modules whose products are no layers, and their sums no shortcuts, as
            those of `RECURRENT` ones.
    """
    products = {
        place: operands
        for place, record in enumerate(records)
        if record.module_path not in apart and (operands := _product(record)) is not None
    }
    sources = _sources(records)
    before = _ancestors(sources)
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


def _sources(records: Sequence[OperatorRecord]) -> list[list[int | None]]:
    """For each operator, who wrote each of its operands last; None: nobody in this pass."""
    return [[each.latest_writer for each in read] for read in dataflow(records).read]


def _ancestors(sources: Sequence[Sequence[int | None]]) -> list[frozenset[int]]:
    """For each operator, all whose results it depends on."""
    found: list[frozenset[int]] = []
    for read in sources:
        direct = {place for place in read if place is not None and place < len(found)}
        found.append(frozenset(direct).union(*(found[place] for place in direct)))
    return found


def _shortcuts(
    records: Sequence[OperatorRecord],
    sources: Sequence[Sequence[int | None]],
    before: Sequence[frozenset[int]],
    products: Iterable[int],
) -> Iterable[ShortcutPath]:
    layers = frozenset(products)
    for place, record in enumerate(records):
        if record.op not in _SUMS or len(sources[place]) != 2 or not _are_alike(record.inputs):
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
        if all(_is_projection(records[layer]) for layer in on[short]):
            yield ShortcutPath(addition=place, operand=short, layers=tuple(on[short]))


def _are_alike(operands: Sequence[TensorSpec]) -> bool:
    kept = any(each.role in _WEIGHTS for each in operands)
    return not kept and operands[0].shape == operands[1].shape


def _is_projection(record: OperatorRecord) -> bool:
    """Whether a layer looks at one place at a time: a linear layer, or a convolution of 1 x 1."""
    weight = record.inputs[_OPERANDS[record.op][1]]
    return all(size == 1 for size in weight.shape[2:])
