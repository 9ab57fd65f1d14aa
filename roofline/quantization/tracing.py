"""Batch norms folded into the layers before them, for inference; codes stay what they are.

A batch norm multiplies each channel by a factor and adds a number. Of a quantised layer, the factor
is kept beside the codes (`ChannelScale`, behind the quantiser in the weight's parametrisation), so
that neither clipping nor codes are found anew from weights that are spread otherwise. Layers with
float weights are multiplied themselves. What is added goes into the bias.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from roofline.errors import ModelError, said_by
from roofline.foundation.dtypes import dtype
from roofline.quantization.policy import Place, Structure, structure_of
from roofline.quantization.quantized_modules import (
    LAYERS,
    ChannelScale,
    is_plain_layer,
    weight_quantizer_of,
)
from roofline.quantization.quantizers import PACT
from roofline.workload.capture.passes import capture, one_at_a_time
from roofline.workload.capture.restoration import left_as_it_was, process_left_as_it_was
from roofline.workload.dataflow import dataflow
from roofline.workload.inputs import inputs_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

_FLOAT = dtype("float32")


def records_in_code(model: nn.Module) -> Sequence[OperatorRecord]:
    """The calls that a model's code makes in inference, as records whose tensors have no sizes.

    Layers are ``aten.convolution`` and ``aten.linear``; other modules of torch and functions have
    the name of their class or their own. What runs in a layer's place but computes otherwise has
    the name of its class.

    Raises:
        ModelError: the code depends on values or sizes, so that it must be run to be known.
    """
    if isinstance(model, LAYERS):
        around: nn.Module = nn.Sequential(model)
        return _Records(around, _graph(around), prefix="0").records
    return _Records(model, _graph(model)).records


class _Tracer(fx.Tracer):
    """Layers and quantisers are single steps, torch's own modules are, too."""

    # What code does with buffers would be done at once, else.
    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (*LAYERS, PACT)) or super().is_leaf_module(m, module_qualified_name)


def _graph(model: nn.Module) -> fx.Graph:
    with one_at_a_time, left_as_it_was(model), process_left_as_it_was(), torch.no_grad():
        model.eval()
        try:
            return _Tracer().trace(model, _defaults(model))
        except KeyboardInterrupt:
            raise
        # Code that is run on what has no values may raise anything.
        except BaseException as error:
            said = f": {said_by(error)}" if said_by(error) else ""
            raise ModelError(
                f"the layers of {type(model).__name__} cannot be read from its code"
                f" ({type(error).__name__}{said}); give inputs=… and they are taken from a run"
            ) from error


def _defaults(model: nn.Module) -> dict[str, Any]:
    """What its arguments are where nothing is given, so that questions about them are answered."""
    return {
        each.name: each.default
        for each in inspect.signature(model.forward).parameters.values()
        if each.default is not each.empty
    }


class _Records:
    """Makes a record of each call in a graph.

    Args:
        model: whose graph it is.
        graph: its calls.
        prefix: the name under which what was asked for stands in `model`.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph, *, prefix: str = "") -> None:
        self._model = model
        self._prefix = prefix
        self._specs: dict[fx.Node, TensorSpec] = {}
        self._storages = 0
        self.records: list[OperatorRecord] = []
        given: set[int] = set()
        for node in graph.nodes:
            if node.op == "placeholder":
                self._specs[node] = self._made(Role.INPUT)
            elif node.op == "get_attr":
                self._specs[node] = self._made(Role.PARAMETER)
            elif node.op == "output":
                given |= {self._specs[each].storage for each in node.all_input_nodes}
            else:
                self._add(node)
        self._drop(given)

    def _drop(self, given: set[int]) -> None:
        """Notes where each storage is used last; what the model gives outlives the pass."""
        last: dict[int, int] = {}
        for place, record in enumerate(self.records):
            last.update(dict.fromkeys((each.storage for each in record.inputs), place))
            last.update(dict.fromkeys((each.storage for each in record.outputs), place))
        for storage, place in last.items():
            if storage not in given:
                record = self.records[place]
                self.records[place] = replace(record, freed=(*record.freed, storage))

    def _made(self, role: Role, shape: tuple[int, ...] = ()) -> TensorSpec:
        self._storages += 1
        return TensorSpec(
            shape=shape, dtype=_FLOAT, distinct_elements=1, storage=self._storages, role=role
        )

    def _add(self, node: fx.Node) -> None:
        inputs = [self._specs[each] for each in node.all_input_nodes]
        module = self._module(node)
        op, attributes, is_in_place = _call(node, module)
        if module is not None and isinstance(module, LAYERS) and is_plain_layer(module):
            op = "aten.linear" if isinstance(module, nn.Linear) else "aten.convolution"
            weight: Any = module.weight
            inputs = [*inputs[:1], self._made(Role.PARAMETER, tuple(weight.shape))]
        written = inputs[0] if is_in_place and inputs else self._made(Role.ACTIVATION)
        self._specs[node] = written
        self.records.append(
            OperatorRecord(
                index=len(self.records),
                op=op,
                type="",
                module_path=self._path(node),
                phase="forward",
                inputs=tuple(inputs),
                outputs=(written,),
                attributes=attributes,
                state=State.COUNTED,
                work=Work(),
            )
        )

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self._model.get_submodule(str(node.target)) if node.op == "call_module" else None

    def _path(self, node: fx.Node) -> str:
        """The innermost module that runs, by its name in what was asked for."""
        if node.op == "call_module":
            path = str(node.target)
        else:
            stack: Any = node.meta.get("nn_module_stack")
            path = next(reversed(stack.values()))[0] if stack else ""
        return path if not self._prefix else path.removeprefix(self._prefix).removeprefix(".")


def _call(node: fx.Node, module: nn.Module | None) -> tuple[str, dict[str, Any], bool]:
    """The name of what is called, what is known of it, and whether it changes what it reads."""
    if module is not None:
        least = getattr(module, "min_val", None)
        attributes = {} if least is None else {"min_val": least}
        is_in_place = getattr(module, "inplace", False) is True
        return f"aten.{type(module).__name__.lower()}", attributes, is_in_place
    target: Any = node.target
    name = target if isinstance(target, str) else str(getattr(target, "__name__", target))
    if name == "iadd":
        return "aten.add_", {}, True
    is_in_place = node.kwargs.get("inplace") is True or (
        name.endswith("_") and not name.endswith("__")
    )
    return f"aten.{name}", {}, is_in_place


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


_PRODUCTS = ("convolution", "linear", "addmm", "mm")
_FORWARDS = (_BatchNorm.forward, nn.SyncBatchNorm.forward)


def fold_batch_norms(model: nn.Module, inputs: Any = None) -> nn.Module:
    """A copy for inference, in which layers do what the batch norms behind them did.

    Folded are batch norms with kept statistics that alone read what a layer writes, where both run
    once; behind linear layers only where `inputs` tell that these write matrices, for of more
    dimensions a batch norm takes another as its channels. Left are those that do more than torch's
    own (some activate, too, or have hooks), and layers whose float weights are computed, or another
    module's as well. A warning names what is left.

    Args:
        model: what `quantize_model` gave, trained; it stays as it was.
        inputs: as for `quantize_model`.

    Raises:
        ModelError: what follows what cannot be found.
        InputError: `inputs` are none.
    """
    records = records_of(model, inputs)
    folded = copy.deepcopy(model)
    for layer, norm in list(_pairs(model, records, has_shapes=inputs is not None)):
        _fold(folded.get_submodule(layer), folded.get_submodule(norm))
        parent, _, name = norm.rpartition(".")
        setattr(folded.get_submodule(parent), name, nn.Identity())
    folded.eval()
    left = [name for name, module in folded.named_modules() if isinstance(module, _BatchNorm)]
    if left:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        fix = "" if inputs is not None else "; give inputs=… if it follows a linear layer"
        warnings.warn(f"not folded: {', '.join(left[:5])}{more}{fix}", UserWarning, stacklevel=2)
    return folded


def _pairs(
    model: nn.Module, records: Sequence[OperatorRecord], *, has_shapes: bool
) -> Iterator[tuple[str, str]]:
    """Layers, each with the batch norm that can be folded into it, by name."""
    flow = Flow(records)
    modules = dict(model.named_modules(remove_duplicate=False))
    names = Counter(map(id, modules.values()))
    owners = Counter(
        id(each) for module in model.modules() for each in module.parameters(recurse=False)
    )
    products = Counter(each.module_path for each in records if word_of(each.op) in _PRODUCTS)
    norms = Counter(each.module_path for each in records if "batchnorm" in word_of(each.op))
    for place, record in enumerate(records):
        if "batchnorm" not in word_of(record.op) or not flow.writers[place]:
            continue
        writer = flow.writers[place][0]
        if writer is None or word_of(records[writer].op) not in _PRODUCTS:
            continue
        path = records[writer].module_path
        layer, norm = modules.get(path), modules.get(record.module_path)
        if layer is None or not is_plain_layer(layer) or layer._forward_hooks:
            continue
        if not isinstance(norm, _BatchNorm) or not _is_plain(norm):
            continue
        is_alone = products[path] == 1 and norms[record.module_path] == 1
        is_matrix = has_shapes and len(records[writer].outputs[0].shape) == 2
        if (
            is_alone
            and norm.running_mean is not None
            and names[id(layer)] == names[id(norm)] == 1
            and (weight_quantizer_of(layer) is not None or owners[id(layer.weight)] == 1)
            and flow.is_read_by_one(writer)
            and _channels(layer) == norm.num_features
            and (is_matrix or not isinstance(layer, nn.Linear))
            and record.inputs[0].shape == records[writer].outputs[0].shape
        ):
            yield path, record.module_path


def _is_plain(norm: nn.Module) -> bool:
    """Whether it does what torch's own class does, and nothing besides: some activate, too."""
    is_own = type(norm).forward in _FORWARDS and "forward" not in vars(norm)
    return is_own and not norm._forward_hooks and not norm._forward_pre_hooks


def _channels(layer: Any) -> int:
    return int(layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels)


def _fold(layer: Any, norm: Any) -> None:
    kind = layer.weight.dtype
    with torch.no_grad():
        mean, variance = norm.running_mean.double(), norm.running_var.double()
        scale = (variance + norm.eps).rsqrt()
        shift = torch.zeros_like(mean) if layer.bias is None else layer.bias.double()
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        shift = (shift - mean) * scale
        if norm.bias is not None:
            shift = shift + norm.bias.double()
        by_channel = ChannelScale(scale.to(kind), layer)
        if weight_quantizer_of(layer) is not None:
            parametrize.register_parametrization(layer, "weight", by_channel)
        else:
            layer.weight.copy_(by_channel(layer.weight))
        layer.bias = nn.Parameter(shift.to(kind))
