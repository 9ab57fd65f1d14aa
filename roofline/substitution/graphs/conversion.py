"""Conversion of an exported program into a graph without in-place operators."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

import torch
from torch.export.graph_signature import InputKind, OutputKind

from roofline.errors import ModelError
from roofline.substitution.graphs.graph import (
    INPUT,
    Argument,
    Graph,
    Node,
    TensorType,
    Value,
    Weight,
    reachable,
    type_in,
)
from roofline.substitution.graphs.operators import Operators, end_byte, returns_tensor
from roofline.substitution.graphs.operators import type_of as known_type
from roofline.workload.fusion_kinds import aten

_PREFIX = "model."
"""Prefix of the names of the model's own weights and modules in a program."""


OVERWRITES_INPUTS = "the model overwrites its inputs; the graph does not"


class GraphConversionError(Exception):
    """Operation of a program that a graph cannot express."""


@functools.cache
def _overload_that_gives(func: Any) -> Any:
    """Return the out-of-place overload of `func`, usually of the same name."""

    def takes(func: Any) -> list[tuple[str, str]]:
        # The first argument may have another name in the in-place form.
        first, *others = func._schema.arguments
        return [("", str(first.type)), *((each.name, str(each.type)) for each in others)]

    packet = getattr(getattr(torch.ops, func.namespace), func._opname.removesuffix("_"), None)
    names = packet.overloads() if packet is not None else ()
    found = [getattr(packet, each) for each in names if takes(getattr(packet, each)) == takes(func)]
    if not found:
        raise GraphConversionError(f"{func.namespace}.{func._opname} has no out-of-place form")
    return next((each for each in found if each._overloadname == func._overloadname), found[0])


def _type_of(tensor: torch.Tensor) -> TensorType:
    if not isinstance(tensor, torch.Tensor) or any(
        isinstance(size, torch.SymInt) for size in tensor.shape
    ):
        raise ModelError("a tensor size depends on tensor values")
    return known_type(tensor)


def _place_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the memory location of a tensor; equal for tied ones."""
    if not tensor.numel():
        return (id(tensor),)
    storage = tensor.untyped_storage()
    return (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)


class StorageTracker:
    """Storages of the tensors of a program, and the current versions of overwritten tensors."""

    def __init__(self, type_of: Callable[[Value | Weight], TensorType]) -> None:
        self._type_of = type_of
        self._places: dict[Value | Weight, tuple[int, int]] = {}
        self._now: dict[Value | Weight, Value] = {}
        self._stale: set[Value | Weight] = set()

    def put(
        self, tensor: Value | Weight, base: Value | Weight | None = None, offset_bytes: int = 0
    ) -> None:
        """Place a new tensor at an offset in the storage of `base`, or in its own storage."""
        storage, begin_byte = (len(self._places), 0) if base is None else self._places[base]
        self._places.setdefault(tensor, (storage, begin_byte + offset_bytes))

    def view(self, old: Value | Weight, new: Value) -> None:
        """Replace `old` by `new`, a view of the same elements."""
        self._now[old] = new
        if self._places[new][0] != self._places[old][0]:
            raise GraphConversionError("a tensor gets another storage")

    def write(self, old: Value | Weight, new: Value) -> None:
        """Replace `old` by `new`; other tensors that overlap it become invalid."""
        before, after = self._type_of(old), self._type_of(new)
        self._now[old] = new
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise GraphConversionError("a tensor is overwritten with another type")
        storage, begin_byte = self._places[old]
        end = end_byte(before, begin_byte)
        for other, (its_storage, its_begin) in self._places.items():
            if (
                its_storage == storage
                and other not in (old, new)
                and other not in self._now
                and its_begin < end
                and begin_byte < end_byte(self._type_of(other), its_begin)
            ):
                self._stale.add(other)
        self._places[new] = storage, begin_byte

    def current(self, tensor: Value | Weight) -> Value | Weight:
        while tensor in self._now:
            tensor = self._now[tensor]
        if tensor in self._stale:
            raise GraphConversionError("a tensor is read after a part of it was overwritten")
        return tensor


_NOTHING = aten("lift_fresh lift_fresh_copy lift alias detach_")
"""Operators that return their operand; not called by an eager model."""

_CHECKS = aten(
    "_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range"
    " sym_constrain_range_for_size"
)
"""Operators without results, which only check."""

_WRAPPERS: Mapping[str, int] = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Operators that run a subprogram, and the number of arguments that set its mode."""


class Conversion:
    def __init__(
        self,
        program: Any,
        model: torch.nn.Module,
        inputs: Sequence[str],
        operators: Operators,
    ) -> None:
        self._program = program
        self._inputs = iter(inputs)
        self._operators = operators
        self._names: dict[tuple[Any, ...], tuple[str, ...]] = {}
        """Names of the model's tensors by memory location, in order."""
        for name, tensor in chain(
            model.named_parameters(remove_duplicate=False),
            model.named_buffers(remove_duplicate=False),
        ):
            place = _place_of(tensor)
            self._names[place] = (*self._names.get(place, ()), name)
        self._found: dict[Any, Any] = {}
        self._nodes: dict[int, Node] = {}
        self._memory = StorageTracker(self._type)
        self._tied: set[str] = set()
        self._lifted: set[Weight] = set()
        self.weights: dict[str, torch.Tensor] = {}
        self.notes: list[str] = []
        for each in program.graph_signature.output_specs:
            if each.kind is OutputKind.BUFFER_MUTATION:
                self._refuse_changed(each.target.removeprefix(_PREFIX))
            if each.kind is OutputKind.USER_INPUT_MUTATION:
                self._note_input()
        specs = iter(program.graph_signature.input_specs)
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self._found[node] = self._given(node, next(specs))
        outputs = self._run(program.graph_module)
        kinds = [each.kind for each in program.graph_signature.output_specs]
        self.graph = self._without_dead(
            tuple(
                cast("Value | Weight", each)
                for each, kind in zip(outputs, kinds, strict=True)
                if kind is OutputKind.USER_OUTPUT
            )
        )

    def _refuse_changed(self, name: str) -> None:
        raise ModelError(
            f"it modifies its own '{name}' while running, which a graph cannot express"
        )

    def _note_input(self) -> None:
        if OVERWRITES_INPUTS not in self.notes:
            self.notes.append(OVERWRITES_INPUTS)

    def _given(self, node: Any, spec: Any) -> Value | Weight:
        if spec.kind is InputKind.USER_INPUT:
            arguments = (("name", next(self._inputs)), ("role", "input"))
            return self._put(
                Node(op=INPUT, arguments=arguments, outputs=(_type_of(node.meta["val"]),))
            )
        program = self._program
        known = program.state_dict if spec.target in program.state_dict else program.constants
        tensor = known[spec.target]
        if not isinstance(tensor, torch.Tensor):
            raise ModelError(f"it holds a {type(tensor).__name__} that is not a tensor")
        return self._weight(tensor, spec.target, is_parameter=spec.kind is InputKind.PARAMETER)

    def _weight(self, tensor: torch.Tensor, target: str, *, is_parameter: bool) -> Weight:
        names = self._names.get(_place_of(tensor), (target.removeprefix(_PREFIX),))
        first, *others = names
        if others:
            self._tied.update(names)
        weight = Weight(
            type=_type_of(tensor),
            is_parameter=is_parameter,
            is_trained=tensor.requires_grad,
            name=first,
        )
        self.weights[weight.name] = tensor
        self._memory.put(weight)
        if not target.startswith(_PREFIX):
            self._lifted.add(weight)
        return weight

    def _put(self, node: Node) -> Value:
        value = Value(len(self._nodes))
        self._nodes[value.node] = node
        if node.op == INPUT:
            self._memory.put(value)
        return value

    def _run(self, part: Any) -> tuple[Argument, ...]:
        """Convert a program, or a subprogram with known placeholders, and return its outputs."""
        for node in part.graph.nodes:
            if node.op == "get_attr":
                found = getattr(part, node.target)
                self._found[node] = (
                    self._weight(found, node.target, is_parameter=False)
                    if isinstance(found, torch.Tensor)
                    else found
                )
            elif node.op == "call_function":
                self._found[node] = self._called(node)
            elif node.op == "output":
                given: Any = node.args[0]
                return tuple(map(self._argument, given))
        raise GraphConversionError("it has no outputs")

    def _called(self, node: Any) -> Any:
        func = node.target
        if func is operator.getitem:
            return self._argument(node.args[0])[node.args[1]]
        name = getattr(func, "_name", None) or getattr(func, "__name__", str(func))
        if name in _WRAPPERS:
            return self._part(name, node.args)
        if func is torch._C._set_grad_enabled:
            return None
        if not isinstance(func, torch._ops.OpOverload):
            raise ModelError(f"it calls '{name}', which is not supported in a graph")
        op = f"{func.namespace}.{func._opname}"
        if op in _CHECKS:
            return None
        if op in _NOTHING:
            return self._argument(node.args[0])
        if op == "aten._native_batch_norm_legit_no_training":
            # As the model calls it, before functionalization.
            *args, momentum, eps = map(self._argument, node.args)
            arguments = (*args, False, momentum, eps, False)
            return (self._operator(node, torch.ops.aten.batch_norm.default, arguments, {}),)
        args = tuple(map(self._argument, node.args))
        kwargs = {name: self._argument(each) for name, each in node.kwargs.items()}
        return self._operator(node, func, args, kwargs)

    def _part(self, name: str, given: Sequence[Any]) -> Any:
        modes = _WRAPPERS[name]
        if name == "wrap_with_autocast" and given[2]:
            raise ModelError("a part of it runs under torch.autocast, which a graph cannot express")
        part, *values = given[modes:]
        module = self._argument(part)
        placeholders = (each for each in module.graph.nodes if each.op == "placeholder")
        for placeholder, value in zip(placeholders, values, strict=True):
            self._found[placeholder] = self._argument(value)
        return self._run(module)

    def _operator(
        self, node: Any, func: Any, args: Sequence[Argument], kwargs: Mapping[str, Argument]
    ) -> Any:
        schema = func._schema.arguments
        written = [each.name for each in schema if each.alias_info and each.alias_info.is_write]
        op = f"{func.namespace}.{func._opname}"
        if written and (written != [schema[0].name] or not op.endswith("_")):
            raise GraphConversionError(f"{op} writes several tensors at once")
        moves_view = torch.Tag.inplace_view in func.tags
        giving = _overload_that_gives(func) if written else func
        names = [each.name for each in giving._schema.arguments]
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = f"{stack[-1][0]}.".removeprefix(_PREFIX).rstrip(".") if stack else ""
        made = Node(
            op=op.removesuffix("_") if written else op,
            overload=giving._overloadname,
            arguments=(*zip(names, args, strict=False), *kwargs.items()),
            module_path=path,
            in_place=bool(written) and not moves_view,
        )
        plan = self._operators.plan(made, self._type)
        number = self._put(plan.node).node
        values = tuple(Value(number, output) for output in range(len(plan.node.outputs)))
        for value, base, offset_bytes in zip(values, plan.bases, plan.offsets_bytes, strict=True):
            self._memory.put(value, None if base is None else plan.operands[base], offset_bytes)
        if written:
            # Operators that return their operand (dropout in eval mode) write nothing.
            is_view = moves_view or plan.bases[0] is not None
            old = cast("Value | Weight", args[0])
            if isinstance(old, Weight) and old not in self._lifted:
                self._refuse_changed(old.name)
            (self._memory.view if is_view else self._memory.write)(old, values[0])
            if not is_view and isinstance(old, Value) and self._nodes[old.node].op == INPUT:
                self._note_input()
        return values[0] if returns_tensor(plan.node.op, plan.node.overload) else values

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self._current(self._found[argument])
        if isinstance(argument, (list, tuple)):
            return tuple(map(self._argument, cast("Sequence[Any]", argument)))
        if isinstance(argument, torch.SymInt):
            raise ModelError("a tensor size depends on tensor values")
        return argument

    def _current(self, found: Any) -> Any:
        if isinstance(found, tuple):
            return tuple(map(self._current, cast("tuple[Any, ...]", found)))
        return self._memory.current(found) if isinstance(found, (Value, Weight)) else found

    def _type(self, value: Value | Weight) -> TensorType:
        return type_in(self._nodes, value)

    def _without_dead(self, outputs: tuple[Value | Weight, ...]) -> Graph:
        kept = reachable(self._nodes, outputs)
        dead = sorted({node.op for each, node in self._nodes.items() if each not in kept})
        if dead:
            more = f" and {len(dead) - 5} more" if len(dead) > 5 else ""
            self.notes.append(
                f"operators with unused results are omitted: {', '.join(dead[:5])}{more}"
            )
        nodes = {number: node for number, node in self._nodes.items() if number in kept}
        returned = [each for each in outputs if isinstance(each, Weight)]
        weights = (*chain.from_iterable(node.weights() for node in nodes.values()), *returned)
        taken = {original.name for each in weights for original in each.originals()}
        self.weights = {name: each for name, each in self.weights.items() if name in taken}
        return Graph(
            nodes=nodes,
            outputs=outputs,
            tied=frozenset(self._tied),
            next_number=len(self._nodes),
        )
