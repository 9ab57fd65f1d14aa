"""Operators by name, called on fake tensors: outputs, records and storages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

from roofline.errors import error_text
from roofline.latency.measuring.calls import Call, describe_call
from roofline.run import Run
from roofline.substitution.graphs.graph import (
    INPUT,
    Argument,
    Node,
    RewriteError,
    TensorType,
    Value,
    Weight,
    map_argument,
)
from roofline.workload.capture.fake_tensors import FakeTensors, silence_fake_tensor_log
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import Operands, tensors_in
from roofline.workload.capture.recorder import Recorder
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.torch_dtypes import torch_dtype

# -- outcomes of calls -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Operand of a call: type and position in memory.

    ``storage`` numbers the storages of the call by first appearance; ``role`` is that of the
    storage. ``is_trained``: a parameter takes gradients.
    """

    type: TensorType
    storage: int
    offset_bytes: int
    role: Role
    is_trained: bool = True


@dataclass(frozen=True, slots=True)
class TensorNumber:
    """Placeholder for the tensor of that number among arguments."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output tensor: type and storage number.

    Storages of operands come first, followed by new ones.
    """

    type: TensorType
    storage: int
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outputs of a call, and its records in a capture.

    Records number storages as in `Place`, followed by internal ones. ``calls`` has one entry per
    record.
    """

    outputs: tuple[Output | None, ...]
    records: tuple[OperatorRecord, ...]
    calls: tuple[Call, ...]


def outcome_of(call: Callable[[Sequence[Any]], Any], places: tuple[Place, ...]) -> Outcome:
    """Return outputs and records of `call` for tensors in these places."""
    fakes = FakeTensors(Run())
    calls: list[Call] = []

    def note(
        func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], roles: Mapping[int, Role]
    ) -> None:
        calls.append(describe_call(func, args, kwargs, roles))

    with torch.no_grad(), silence_fake_tensor_log():
        tensors = _tensors(fakes, places)
        operands = Operands(fakes.roles)
        # Numbers the storages in the order of the places.
        operands.storages(tensors)
        recorder = Recorder(fakes, ModuleStack({}), operands, note)
        with fakes.mode, recorder:
            result = call(tensors)
            recorder.note_dropped()
        given: Sequence[Any] = result if isinstance(result, (list, tuple)) else (result,)
        outputs = tuple(_output(each, operands) for each in given)
    return Outcome(outputs=outputs, records=tuple(recorder.records), calls=tuple(calls))


def with_tensors(argument: Argument, tensors: Sequence[Any]) -> Any:
    """Return an argument for torch, with tensors in place of `TensorNumber`."""
    if isinstance(argument, TensorNumber):
        return tensors[argument.number]
    if isinstance(argument, tuple):
        return [with_tensors(each, tensors) for each in cast("tuple[Argument, ...]", argument)]
    return argument


def end_byte(type: TensorType, offset_bytes: int = 0) -> int:
    """Return the offset of the end of a tensor in its storage, in bytes."""
    if 0 in type.shape:
        return offset_bytes
    reach = sum((size - 1) * step for size, step in zip(type.shape, type.stride, strict=True))
    return offset_bytes + (1 + reach) * torch_dtype(type.dtype).itemsize


def _tensors(fakes: FakeTensors, places: tuple[Place, ...]) -> list[torch.Tensor]:
    ends: dict[int, int] = {}
    for each in places:
        ends[each.storage] = max(ends.get(each.storage, 0), end_byte(each.type, each.offset_bytes))
    bases = {
        number: torch.empty(byte, dtype=torch.uint8, device="meta") for number, byte in ends.items()
    }
    tensors: list[torch.Tensor] = []
    for each in places:
        dtype = torch_dtype(each.type.dtype)
        plain = torch.empty(0, dtype=dtype, device="meta")
        plain.set_(
            bases[each.storage].untyped_storage(),
            each.offset_bytes // dtype.itemsize,
            each.type.shape,
            each.type.stride,
        )
        mode = cast("FakeTensorMode", fakes.mode)
        fake: Any = FakeTensor(mode, plain, torch.device("cpu"))
        if each.role is Role.PARAMETER:
            fake._is_param = True
            fake.requires_grad = each.is_trained and dtype.is_floating_point
        if each.role is not Role.ACTIVATION:
            fakes.roles[fake.untyped_storage()._cdata] = each.role
        tensors.append(fake)
    return tensors


def _output(value: Any, operands: Operands) -> Output | None:
    if not isinstance(value, torch.Tensor):
        return None
    (number,) = operands.storages(tensors_in(value))
    return Output(
        type=type_of(value),
        storage=number,
        offset_bytes=int(value.storage_offset()) * value.element_size(),
    )


def type_of(tensor: torch.Tensor) -> TensorType:
    return TensorType(
        shape=tuple(map(int, tensor.shape)),
        stride=tuple(map(int, tensor.stride())),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )


# -- operators -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Plan:
    """Node with the properties of its operator call.

    Attributes:
        operands: values and weights, each once; ``types`` are theirs.
        arguments: with `TensorNumber` in place of operands.
        bases: number of the operand that shares its storage with the output; None: own storage.
        offsets_bytes: offset of the output from the start of that operand.
        outcomes: results for operands that share storages or have other roles.
    """

    node: Node
    operands: tuple[Value | Weight, ...]
    types: tuple[TensorType, ...]
    arguments: tuple[Argument, ...]
    bases: tuple[int | None, ...]
    offsets_bytes: tuple[int, ...]
    outcomes: dict[tuple[Any, ...], Outcome]

    def is_for(self, type_of: Callable[[Value], TensorType]) -> bool:
        """Return whether the operands have these types in a graph."""
        for operand, expected in zip(self.operands, self.types, strict=True):
            if isinstance(operand, Value):
                found = type_of(operand)
                if found is not expected and found != expected:
                    return False
        return True


@functools.cache
def function_of(op: str, overload: str, *, in_place: bool = False) -> Any:
    space, _, name = op.partition(".")
    name += "_" * in_place
    found = getattr(getattr(getattr(torch.ops, space), name, None), overload, None)
    if found is None:
        raise RewriteError(
            f"torch has no operator {space}.{name}.{overload}; if it is your own, import its file"
        )
    return found


@functools.cache
def _schema(overload: Any) -> tuple[Any, ...]:
    return tuple(overload._schema.arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Function, or method name, and its arguments as schema positions: positional and by name."""

    target: Callable[..., Any] | str
    positional: tuple[int, ...]
    named: tuple[tuple[str, int], ...]

    @classmethod
    def of(
        cls, target: Callable[..., Any] | str, overload: Any, given: Mapping[str, Argument]
    ) -> Binding:
        """Return the target bound like the overload, without trailing and keyword defaults in
        `given`.
        """
        arguments = _schema(overload)
        positional = [number for number, each in enumerate(arguments) if not each.kwarg_only]
        while positional and _is_default(arguments[positional[-1]], given):
            positional.pop()
        named = tuple(
            (each.name, number)
            for number, each in enumerate(arguments)
            if each.kwarg_only and not _is_default(each, given)
        )
        return cls(target=target, positional=tuple(positional), named=named)

    def taken(self, arguments: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments, from all arguments of the schema."""
        args = tuple(arguments[each] for each in self.positional)
        return args, {name: arguments[each] for name, each in self.named}

    def outcome(self, arguments: Sequence[Argument], places: tuple[Place, ...]) -> Outcome:
        def call(tensors: Sequence[Any]) -> Any:
            args, kwargs = self.taken([with_tensors(each, tensors) for each in arguments])
            if isinstance(self.target, str):
                return getattr(args[0], self.target)(*args[1:], **kwargs)
            return self.target(*args, **kwargs)

        return outcome_of(call, places)


def _is_default(each: Any, given: Mapping[str, Argument]) -> bool:
    if each.name not in given or not each.has_default_value():
        return False
    default, value = _plain(each.default_value), given[each.name]
    return type(default) is type(value) and default == value


@functools.cache
def returns_tensor(op: str, overload: str) -> bool:
    """Return whether an operator returns a single tensor, not a list or tuple."""
    returns = function_of(op, overload)._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "Tensor"


class Operators:
    """Cached calls of operators on fake tensors."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Outcome | str] = {}
        self._plans: dict[int, Plan] = {}
        self._specs: dict[tuple[int, int, int], tuple[TensorSpec, TensorSpec]] = {}

    def complete(self, node: Node, type_of: Callable[[Value], TensorType]) -> Node:
        """Return the node with all arguments and output types."""
        return node if node.op == INPUT else self.plan(node, type_of).node

    def plan(self, node: Node, type_of: Callable[[Value], TensorType]) -> Plan:
        """Return the completed node with storages of its outputs."""
        known = self._plans.get(id(node))
        if known is not None and known.node is node and known.is_for(type_of):
            return known
        numbers: dict[Value | Weight, int] = {}

        def numbered(part: Argument) -> Argument:
            if isinstance(part, (Value, Weight)):
                return TensorNumber(numbers.setdefault(part, len(numbers)))
            return part

        arguments = _all_arguments(node)
        given = tuple(map_argument(each, numbered) for _, each in arguments)
        operands = tuple(numbers)
        types = tuple(each.type if isinstance(each, Weight) else type_of(each) for each in operands)
        outcome = self.outcome(node.op, node.overload, given, places_of(operands, types))
        outputs = tuple(each and each.type for each in outcome.outputs)
        if (arguments, outputs) != (node.arguments, node.outputs):
            node = replace(node, arguments=arguments, outputs=outputs)
        plan = Plan(
            node=node,
            operands=operands,
            types=types,
            arguments=given,
            bases=tuple(
                each.storage if each and each.storage < len(operands) else None
                for each in outcome.outputs
            ),
            offsets_bytes=tuple(each.offset_bytes if each else 0 for each in outcome.outputs),
            outcomes={},
        )
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        # The plan keeps the node, so that its id is not reused.
        self._plans[id(node)] = plan
        return plan

    def outcome(
        self,
        op: str,
        overload: str,
        arguments: tuple[Argument, ...],
        places: tuple[Place, ...],
        *,
        in_place: bool = False,
    ) -> Outcome:
        """Return the outcome of a call, which may overwrite its first tensor.

        `arguments` are all of them in schema order, with `TensorNumber` for tensors.
        """
        # 1, 1.0 and True are equal, but result in different types.
        typed = map_argument(
            arguments, lambda x: (type(x), x) if isinstance(x, (bool, float)) else x
        )
        key = (op, overload, in_place, typed, places)
        known = self._known.get(key)
        if known is None:
            try:
                known = _call(function_of(op, overload, in_place=in_place), arguments, places)
            except RewriteError as refused:
                known = str(refused)
            self._known[key] = known
        if isinstance(known, str):
            raise RewriteError(known)
        return known

    def moved(self, spec: TensorSpec, storage: int, shift_bytes: int) -> TensorSpec:
        """Return a spec with another storage, at a byte offset."""
        key = (id(spec), storage, shift_bytes)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) >= _MOST_PLANS:
                self._specs.clear()
            offset_bytes = spec.offset_bytes + shift_bytes
            made = replace(spec, storage=storage, offset_bytes=offset_bytes)
            # Keep the spec, so that its id is not reused.
            found = self._specs[key] = spec, made
        return found[1]


_MOST_PLANS = 200_000
"""Maximum number of cached nodes; the thousands of graphs of a search share most of theirs."""


def places_of(
    operands: tuple[Value | Weight, ...], types: tuple[TensorType, ...]
) -> tuple[Place, ...]:
    """Return operands in storages of their own; values are activations."""
    return tuple(
        Place(type, number, 0, role_of(each), is_trained(each))
        for number, (each, type) in enumerate(zip(operands, types, strict=True))
    )


def is_trained(operand: Value | Weight) -> bool:
    """Return whether an operand takes gradients, if it is a parameter."""
    return not isinstance(operand, Weight) or operand.is_trained


def role_of(operand: Value | Weight) -> Role:
    if not isinstance(operand, Weight):
        return Role.ACTIVATION
    return Role.PARAMETER if operand.is_parameter else Role.BUFFER


def _all_arguments(node: Node) -> tuple[tuple[str, Argument], ...]:
    given = dict(node.arguments)
    arguments: list[tuple[str, Argument]] = []
    for each, is_float in _typed_schema(node.op, node.overload):
        name, length = each.name, each.N
        if name not in given:
            if not each.has_default_value():
                raise RewriteError(f"{node.op}: missing argument '{name}'")
            arguments.append((name, _plain(each.default_value)))
            continue
        value: Any = _plain(given.pop(name))
        if length and length > 1:
            if isinstance(value, int):
                value = (value,) * length
            elif isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == 1:
                value = cast("tuple[Any, ...]", value) * length
        if is_float and type(value) is int:
            value = float(value)
        arguments.append((name, value))
    if given:
        raise RewriteError(f"{node.op} has no argument '{next(iter(given))}'")
    return tuple(arguments)


@functools.cache
def _typed_schema(op: str, overload: str) -> tuple[tuple[Any, bool], ...]:
    return tuple((each, str(each.type) == "float") for each in _schema(function_of(op, overload)))


def _plain(argument: Any) -> Argument:
    if isinstance(argument, (list, tuple)):
        return tuple(map(_plain, cast("Sequence[Any]", argument)))
    return argument


def _call(func: Any, arguments: tuple[Argument, ...], places: tuple[Place, ...]) -> Outcome:
    try:
        return Binding.of(func, func, {}).outcome(arguments, places)
    # Operators raise various exceptions for rejected arguments.
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise RewriteError(
            f"the output of {getattr(error.func, '_name', error.func)} depends on tensor values"
        ) from None
    except Exception as error:
        raise RewriteError(f"{func.namespace}.{func._opname}: {error_text(error)}") from None
