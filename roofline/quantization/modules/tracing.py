"""Which layers of a model can be quantised, where they stand, and whether they read below zero."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from roofline.quantization.layers import Structure, structure_of
from roofline.quantization.modules.code_records import records_in_code
from roofline.quantization.modules.quantized_layers import is_plain_layer
from roofline.quantization.policy import Place
from roofline.workload.capture.passes import capture
from roofline.workload.dataflow import dataflow
from roofline.workload.inputs import inputs_of
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role

_NEVER_BELOW_ZERO = (
    *("relu", "relu6", "sigmoid", "hardsigmoid", "softmax", "softplus", "abs", "square", "exp"),
)
_KEEP_SIGN = (
    *("maxpool", "avgpool", "adaptivemaxpool", "adaptiveavgpool", "dropout", "upsamplenearest"),
    *("upsamplebilinear", "upsamplelinear", "mean", "sum", "cat", "view", "unsafeview", "reshape"),
    *("flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "contiguous"),
    *(
        "clone",
        "identity",
        "copy",
        "tocopy",
        "getitem",
        "chunk",
        "split",
        "slice",
        "select",
        "stack",
    ),
    *("channelshuffle", "pixelshuffle", "expand", "repeat", "unbind", "narrow", "movedim"),
)
_OF_TWO = ("add", "mul")
"""Of two tensors that are not below zero the result is not, either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedLayer:
    """A layer by the qualified name of its module: its places, one a call, without doubles.

    ``is_signed``: what it reads may be below zero.
    """

    name: str
    places: tuple[Place, ...]
    is_signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """A block whose first argument goes along a shortcut as it is.

    ``readers`` are the layers in it that read the very same.
    """

    block: str
    readers: tuple[str, ...]
    is_signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """The layers of a model by name, and the blocks with identity shortcuts.

    ``unreachable`` are modules with identity shortcuts that carry something else than their one
    argument.
    """

    layers: Mapping[str, TracedLayer]
    entrances: tuple[Entrance, ...] = ()
    unreachable: tuple[str, ...] = ()


def traced(model: nn.Module, inputs: Any = None) -> Traced:
    """The layers of a model.

    Args:
        model: any module; it is left as it was.
        inputs: what it is called with; None: its code is read instead, by torch.fx.

    Raises:
        ModelError: it cannot be run, or its code cannot be read.
        InputError: `inputs` are none.
    """
    records = records_of(model, inputs)
    recurrent = (nn.RNNBase, nn.RNNCellBase)
    apart = {name for name, each in model.named_modules() if isinstance(each, recurrent)}
    structure = structure_of(records, apart)
    flow = Flow(records)
    met: dict[str, _Met] = {}
    for layer in structure.layers:
        path = records[layer.index].module_path
        if _is_layer(model, path):
            each = met.setdefault(path, _Met())
            each.places.append(layer.place)
            each.is_signed |= flow.is_signed(layer.index, layer.activation)
    layers = {
        name: TracedLayer(
            name=name, places=tuple(dict.fromkeys(each.places)), is_signed=each.is_signed
        )
        for name, each in met.items()
    }
    entrances: dict[str, Entrance] = {}
    unreachable: dict[str, None] = {}
    for each in _entrances(model, records, structure, flow, layers):
        if isinstance(each, Entrance):
            entrances.setdefault(each.block, each)
        else:
            unreachable[each] = None
    return Traced(
        layers=layers, entrances=tuple(entrances.values()), unreachable=tuple(unreachable)
    )


def records_of(model: nn.Module, inputs: Any = None) -> Sequence[OperatorRecord]:
    """The operators of a pass in inference; without inputs, those in the code, without sizes.

    Raises:
        ModelError: it cannot be run, or its code cannot be read.
        InputError: `inputs` are none.
    """
    given = inputs_of(inputs)
    if given is None:
        return records_in_code(model)
    return capture(model, given, name=type(model).__name__).records


@dataclass(slots=True)
class _Met:
    places: list[Place] = field(default_factory=list[Place])
    is_signed: bool = False


class Flow:
    """Who wrote what operators read, and what of it may be below zero.

    Args:
        records: all operators of a pass, in their order.
    """

    def __init__(self, records: Sequence[OperatorRecord]) -> None:
        flow = dataflow(records)
        self._records = records
        self._read = flow.read
        self.writers: list[list[int | None]] = [
            [each.latest_writer for each in read] for read in flow.read
        ]
        self.readers: list[list[int]] = [[] for _ in records]
        for place, writers in enumerate(self.writers):
            for writer in {each for each in writers if each is not None}:
                self.readers[writer].append(place)
        self._is_kept = [any(value.must_be_stored for _, value in each) for each in flow.written]
        self._is_signed: list[bool] = []
        for place, record in enumerate(records):
            self._is_signed.append(self._may_be_below_zero(place, record))

    def is_signed(self, place: int, operand: int) -> bool:
        """Whether an operand may be below zero; what comes from outside, or from several, may."""
        value = self._read[place][operand].value if self._read[place] else None
        return value is None or self._is_signed[value.writer]

    def is_read_by_one(self, place: int) -> bool:
        """Whether one operator reads what another one writes, and nobody after the pass does."""
        return len(self.readers[place]) == 1 and not self._is_kept[place]

    def entering(self, block: str) -> set[int | None]:
        """Who wrote what a module is given, but for weights; None: it is an input of the pass."""
        found: set[int | None] = set()
        for record, read in zip(self._records, self._read, strict=True):
            for each in read if _is_in(record.module_path, block) else ():
                writer = each.latest_writer
                is_own = writer is not None and _is_in(self._records[writer].module_path, block)
                if not is_own and (writer is not None or each.spec.role is Role.INPUT):
                    found.add(writer)
        return found

    def _may_be_below_zero(self, place: int, record: OperatorRecord) -> bool:
        word = word_of(record.op)
        if word in _NEVER_BELOW_ZERO:
            return False
        if word == "hardtanh":
            return not float(record.attributes.get("min_val", -1.0)) >= 0
        operands = range(len(self.writers[place]))
        if word in _OF_TWO:
            is_plus = float(record.attributes.get("alpha", 1)) > 0
            return not is_plus or len(operands) < 2 or self._any_signed(place, operands)
        if word.startswith(_KEEP_SIGN):
            return not operands or self._any_signed(place, operands)
        return True

    def _any_signed(self, place: int, operands: range) -> bool:
        return any(self.is_signed(place, operand) for operand in operands)


def word_of(op: str) -> str:
    """The name of an operator as all of its kinds have it: ``"aten.add_"`` is ``"add"``."""
    return op.rpartition(".")[2].removeprefix("mkldnn").replace("_", "").lower()


def _entrances(
    model: nn.Module,
    records: Sequence[OperatorRecord],
    structure: Structure,
    flow: Flow,
    layers: Mapping[str, TracedLayer],
) -> Iterator[Entrance | str]:
    """Blocks whose identity shortcuts can be quantised, and the names of those where not."""
    ways = [each for each in structure.shortcuts if not each.layers]
    signed = {
        records[each.addition].module_path
        for each in ways
        if flow.is_signed(each.addition, each.operand)
    }
    calls = Counter(records[each.index].module_path for each in structure.layers)
    for path in ways:
        block = records[path.addition].module_path
        writer = flow.writers[path.addition][path.operand]
        is_inside = writer is None or not block or _is_in(records[writer].module_path, block)
        # Of several values that it is given, any could be its first argument.
        if (
            is_inside
            or not _takes_one(model.get_submodule(block))
            or flow.entering(block) != {writer}
        ):
            yield block
            continue
        # What comes the next time it runs is what it gave: of that, the sign is another.
        runs_again = any(count > 1 and _is_in(name, block) for name, count in calls.items())
        yield Entrance(
            block=block,
            readers=tuple(
                records[layer.index].module_path
                for layer in structure.layers
                if records[layer.index].module_path in layers
                and _is_in(records[layer.index].module_path, block)
                and flow.writers[layer.index][layer.activation] == writer
            ),
            is_signed=flow.is_signed(path.addition, path.operand)
            or (runs_again and block in signed),
        )


def _is_in(path: str, block: str) -> bool:
    return path == block or path.startswith(f"{block}.")


def _takes_one(block: nn.Module) -> bool:
    """Whether a module must be given one argument, which is what a hook quantises, then."""
    needed = [
        each
        for each in inspect.signature(block.forward).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    return len(needed) == 1


def _is_layer(model: nn.Module, path: str) -> bool:
    """Whether a path that a pass met is that of a layer; what is made while it runs has none."""
    try:
        return is_plain_layer(model.get_submodule(path))
    except AttributeError:
        return False
