"""Layers and identity shortcuts of a model, from a recorded forward pass or from its code.

Without inputs, torch.fx traces the code; its records have no sizes.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn

from roofline.core.dtypes import dtype
from roofline.errors import ModelError, error_text
from roofline.quantization.policy import LayerBits, Place, Policy, Structure, structure_of
from roofline.quantization.quantized_modules import LAYERS, is_plain_layer
from roofline.quantization.quantizers import PACT
from roofline.workload.capture.passes import capture, capture_lock
from roofline.workload.capture.restoration import restore_process_state, restore_state
from roofline.workload.dataflow import trace_dataflow
from roofline.workload.inputs import to_inputs
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

_FLOAT = dtype("float32")


@dataclass(slots=True, kw_only=True)
class TracedLayer:
    """Layer with the distinct places of its calls.

    ``is_signed``: its input may be negative.
    """

    places: tuple[Place, ...] = ()
    is_signed: bool = False

    def bits(self, name: str, policy: Policy) -> LayerBits:
        """Return the most bits that a policy assigns to one of its places."""
        every = [policy.bits_of(name, place) for place in self.places]
        return LayerBits(
            weights=max(each.weights for each in every),
            activations=max(each.activations for each in every),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortcutEntry:
    """Block whose first argument enters an identity shortcut.

    ``readers`` are the layers in it that read the same value.
    """

    block: str
    readers: tuple[str, ...]
    is_signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTrace:
    """Layers of a model by name, and blocks with identity shortcuts.

    ``unreachable``: modules whose identity shortcuts carry something other than their one argument.
    """

    layers: Mapping[str, TracedLayer]
    entries: tuple[ShortcutEntry, ...] = ()
    unreachable: tuple[str, ...] = ()


def trace_layers(model: nn.Module, inputs: Any = None) -> LayerTrace:
    """Return the layers of a model called with `inputs`; None: traced by torch.fx."""
    records = records_of(model, inputs)
    recurrent = (nn.RNNBase, nn.RNNCellBase)
    apart = {name for name, each in model.named_modules() if isinstance(each, recurrent)}
    structure = structure_of(records, apart)
    flow = SignFlow(records)
    layers: dict[str, TracedLayer] = {}
    for layer in structure.layers:
        path = records[layer.index].module_path
        try:
            is_plain = is_plain_layer(model.get_submodule(path))
        except AttributeError:
            # Modules created during the pass are not part of the model.
            continue
        if is_plain:
            each = layers.setdefault(path, TracedLayer())
            each.places = tuple(dict.fromkeys((*each.places, layer.place)))
            each.is_signed |= flow.is_signed(layer.index, layer.activation)
    entries: dict[str, ShortcutEntry] = {}
    unreachable: dict[str, None] = {}
    for each in _shortcut_entries(model, records, structure, flow, layers):
        if isinstance(each, ShortcutEntry):
            entries.setdefault(each.block, each)
        else:
            unreachable[each] = None
    return LayerTrace(
        layers=layers, entries=tuple(entries.values()), unreachable=tuple(unreachable)
    )


def records_of(model: nn.Module, inputs: Any = None) -> Sequence[OperatorRecord]:
    """Return the operators of a forward pass; without inputs those in the code, without sizes."""
    given = to_inputs(inputs)
    if given is not None:
        return capture(model, given, name=type(model).__name__).records
    if isinstance(model, LAYERS):
        # Wrapped, as torch.fx would trace into it.
        model, prefix = nn.Sequential(model), "0"
    else:
        prefix = ""
    return _records_in_code(model, _graph(model), prefix)


# -- signs of values -------------------------------------------------------------------------------

_NEVER_BELOW_ZERO = (
    *("relu", "relu6", "sigmoid", "hardsigmoid", "softmax", "softplus", "abs", "square", "exp"),
)
_KEEP_SIGN = (
    *("maxpool", "avgpool", "adaptivemaxpool", "adaptiveavgpool", "dropout", "upsamplenearest"),
    *("upsamplebilinear", "upsamplelinear", "mean", "sum", "cat", "view", "unsafeview", "reshape"),
    *("flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "contiguous"),
    *("clone", "identity", "copy", "tocopy", "getitem", "chunk", "split", "slice", "select"),
    *("stack", "channelshuffle", "pixelshuffle", "expand", "repeat", "unbind", "narrow", "movedim"),
)
_OF_TWO = ("add", "mul")
"""Operators whose result is non-negative if both operands are."""


class SignFlow:
    """Writers and readers of operands, and their possible signs."""

    def __init__(self, records: Sequence[OperatorRecord]) -> None:
        flow = trace_dataflow(records)
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
        """Return whether an operand may be negative; inputs and combined values may."""
        value = self._read[place][operand].value if self._read[place] else None
        return value is None or self._is_signed[value.writer]

    def has_single_reader(self, place: int) -> bool:
        """Return whether a result has one reader and is not needed after the pass."""
        return len(self.readers[place]) == 1 and not self._is_kept[place]

    def input_writers(self, block: str) -> set[int | None]:
        """Return the writers of a module's inputs, without weights; None: an input of the pass."""
        found: set[int | None] = set()
        for record, read in zip(self._records, self._read, strict=True):
            for each in read if _is_within(record.module_path, block) else ():
                writer = each.latest_writer
                is_own = writer is not None and _is_within(self._records[writer].module_path, block)
                if not is_own and (writer is not None or each.spec.role is Role.INPUT):
                    found.add(writer)
        return found

    def _may_be_below_zero(self, place: int, record: OperatorRecord) -> bool:
        word = base_name(record.op)
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


def base_name(op: str) -> str:
    """Return the common name of an operator's variants: ``"add"`` for ``"aten.add_"``."""
    return op.rpartition(".")[2].removeprefix("mkldnn").replace("_", "").lower()


def _shortcut_entries(
    model: nn.Module,
    records: Sequence[OperatorRecord],
    structure: Structure,
    flow: SignFlow,
    layers: Mapping[str, TracedLayer],
) -> Iterator[ShortcutEntry | str]:
    """Yield blocks with identity shortcuts that can be quantized, and names of those that
    cannot.
    """
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
        is_inside = writer is None or not block or _is_within(records[writer].module_path, block)
        # With several inputs, the first argument is ambiguous.
        if (
            is_inside
            or not _has_one_argument(model.get_submodule(block))
            or flow.input_writers(block) != {writer}
        ):
            yield block
            continue
        # In a repeated run, the input is the previous output, with another sign.
        runs_again = any(count > 1 and _is_within(name, block) for name, count in calls.items())
        yield ShortcutEntry(
            block=block,
            readers=tuple(
                records[layer.index].module_path
                for layer in structure.layers
                if records[layer.index].module_path in layers
                and _is_within(records[layer.index].module_path, block)
                and flow.writers[layer.index][layer.activation] == writer
            ),
            is_signed=flow.is_signed(path.addition, path.operand)
            or (runs_again and block in signed),
        )


def _is_within(path: str, block: str) -> bool:
    return path == block or path.startswith(f"{block}.")


def _has_one_argument(block: nn.Module) -> bool:
    """Return whether a module has exactly one required argument, which a hook can quantize."""
    needed = [
        each
        for each in inspect.signature(block.forward).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    return len(needed) == 1


# -- code ------------------------------------------------------------------------------------------


class _Tracer(fx.Tracer):
    # Trace operations on buffers, instead of running them.
    proxy_buffer_attributes = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (*LAYERS, PACT)) or super().is_leaf_module(m, module_qualified_name)


def _graph(model: nn.Module) -> fx.Graph:
    # Bind defaults, so that conditions on them can be evaluated.
    defaults = {
        each.name: each.default
        for each in inspect.signature(model.forward).parameters.values()
        if each.default is not each.empty
    }
    with capture_lock, restore_state(model), restore_process_state(), torch.no_grad():
        model.eval()
        try:
            return _Tracer().trace(model, defaults)
        except KeyboardInterrupt:
            raise
        # Code may raise anything for proxies.
        except BaseException as error:
            text = f": {error_text(error)}" if error_text(error) else ""
            raise ModelError(
                f"the layers of {type(model).__name__} cannot be traced by torch.fx"
                f" ({type(error).__name__}{text}); give inputs=… to record a forward pass"
            ) from error


def _records_in_code(model: nn.Module, graph: fx.Graph, prefix: str) -> list[OperatorRecord]:
    """Return a record per call in a graph, without sizes.

    Layers are ``aten.convolution`` and ``aten.linear``; other modules and functions have their own
    name. Subclasses of layers that compute differently have the name of their class. ``prefix`` is
    the name of the traced module in `model`.
    """
    records: list[OperatorRecord] = []
    specs: dict[fx.Node, TensorSpec] = {}
    given: set[int] = set()
    storages = 0

    def made(role: Role, shape: tuple[int, ...] = ()) -> TensorSpec:
        nonlocal storages
        storages += 1
        return TensorSpec(
            shape=shape, dtype=_FLOAT, distinct_elements=1, storage=storages, role=role
        )

    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            specs[node] = made(Role.INPUT if node.op == "placeholder" else Role.PARAMETER)
            continue
        if node.op == "output":
            given |= {specs[each].storage for each in node.all_input_nodes}
            continue
        inputs = [specs[each] for each in node.all_input_nodes]
        module: Any = None
        if node.op == "call_module":
            path = str(node.target)
            module = model.get_submodule(path)
        else:
            stack: Any = node.meta.get("nn_module_stack")
            path = next(reversed(stack.values()))[0] if stack else ""
        op, attributes, is_in_place = _call(node, module)
        if isinstance(module, LAYERS) and is_plain_layer(module):
            op = "aten.linear" if isinstance(module, nn.Linear) else "aten.convolution"
            inputs = [*inputs[:1], made(Role.PARAMETER, tuple(module.weight.shape))]
        specs[node] = inputs[0] if is_in_place and inputs else made(Role.ACTIVATION)
        records.append(
            OperatorRecord(
                index=len(records),
                op=op,
                type="",
                module_path=path.removeprefix(prefix).removeprefix(".") if prefix else path,
                phase="forward",
                inputs=tuple(inputs),
                outputs=(specs[node],),
                attributes=attributes,
                state=State.COUNTED,
                work=Work(),
            )
        )
    # Free each storage after its last use, except results of the model.
    last = {
        spec.storage: place
        for place, record in enumerate(records)
        for spec in (*record.inputs, *record.outputs)
    }
    for storage, place in last.items():
        if storage not in given:
            records[place] = replace(records[place], freed=(*records[place].freed, storage))
    return records


def _call(node: fx.Node, module: Any) -> tuple[str, dict[str, Any], bool]:
    """Return operator name and attributes of a call, and whether it works in place."""
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
