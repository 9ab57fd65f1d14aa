"""Operators by name: their arguments, what they give, and what they do to storages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from roofline.errors import said_by
from roofline.substitution.graphs.editing import RewriteError
from roofline.substitution.graphs.graph import INPUT, Argument, Node, Value
from roofline.substitution.graphs.outcomes import Nth, Outcome, Place, outcome_of, with_tensors
from roofline.substitution.graphs.weights import TensorType, Weight
from roofline.workload.tensors import Role, TensorSpec


@dataclass(slots=True, kw_only=True)
class Plan:
    """A node with all that is known of it once its operator was called.

    ``operands`` are the values and weights that it takes, each once, ``types`` theirs;
    ``arguments`` have `Nth` in their place. ``bases`` say for each output in the storage of which
    operand it lies, None: in one of its own; ``offsets_bytes`` where in it, from where the operand
    begins on. ``outcomes`` are those of calls whose operands share storages or have other roles.
    """

    node: Node
    operands: tuple[Value | Weight, ...]
    types: tuple[TensorType, ...]
    arguments: tuple[Argument, ...]
    bases: tuple[int | None, ...]
    offsets_bytes: tuple[int, ...]
    outcomes: dict[tuple[Any, ...], Outcome]

    def is_for(self, type_of: Callable[[Value], TensorType]) -> bool:
        """Whether the operands have these types; in another graph the node may take others."""
        for operand, expected in zip(self.operands, self.types, strict=True):
            if isinstance(operand, Value):
                found = type_of(operand)
                if found is not expected and found != expected:
                    return False
        return True


@functools.cache
def function_of(op: str, overload: str, *, in_place: bool = False) -> Any:
    """The overload that a node calls.

    Raises:
        RewriteError: torch has no such operator.
    """
    space, _, name = op.partition(".")
    name += "_" * in_place
    found = getattr(getattr(getattr(torch.ops, space), name, None), overload, None)
    if found is None:
        raise RewriteError(f"torch has no operator {space}.{name}.{overload}")
    return found


@functools.cache
def gives_one(op: str, overload: str) -> bool:
    """Whether an operator gives a tensor, and no list or tuple of them."""
    returns = function_of(op, overload)._schema.returns
    return len(returns) == 1 and str(returns[0].type) == "Tensor"


class Operators:
    """Calls operators on fake tensors, the same call once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Outcome | str] = {}
        self._plans: dict[int, Plan] = {}
        self._specs: dict[tuple[int, int, int], tuple[TensorSpec, TensorSpec]] = {}

    def complete(self, node: Node, type_of: Callable[[Value], TensorType]) -> Node:
        """The node with all arguments of its operator, and the types of what it gives.

        Raises:
            RewriteError: the operator does not take these.
        """
        return node if node.op == INPUT else self.plan(node, type_of).node

    def plan(self, node: Node, type_of: Callable[[Value], TensorType]) -> Plan:
        """The same, with what the operator does to storages.

        Raises:
            RewriteError: the operator does not take these.
        """
        known = self._plans.get(id(node))
        if known is not None and known.node is node and known.is_for(type_of):
            return known
        arguments = _all_arguments(node)
        numbers: dict[Value | Weight, int] = {}
        given = tuple(_numbered(each, numbers) for _, each in arguments)
        operands = tuple(numbers)
        types = tuple(each.type if isinstance(each, Weight) else type_of(each) for each in operands)
        places = places_of(operands, types)
        outcome = self.outcome(node.op, node.overload, given, places)
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
        # The plan keeps the node, so that no other gets its identity.
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
        """What a call gives.

        Args:
            op: the operator, as nodes name it.
            overload: which of its forms.
            arguments: all of them, in the order of the schema, with `Nth` for tensors.
            places: the tensors.
            in_place: it overwrites the first of them.

        Raises:
            RewriteError: the operator does not take these.
        """
        key = (op, overload, in_place, _keyed(arguments), places)
        known = self._known.get(key)
        if known is None:
            try:
                known = _called(function_of(op, overload, in_place=in_place), arguments, places)
            except RewriteError as refused:
                known = str(refused)
            self._known[key] = known
        if isinstance(known, str):
            raise RewriteError(known)
        return known

    def moved(self, spec: TensorSpec, storage: int, shift_bytes: int) -> TensorSpec:
        """The spec of an outcome, as it is in another storage and further on in it."""
        key = (id(spec), storage, shift_bytes)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) >= _MOST_PLANS:
                self._specs.clear()
            offset_bytes = spec.offset_bytes + shift_bytes
            made = replace(spec, storage=storage, offset_bytes=offset_bytes)
            # The spec is kept, so that no other gets its identity.
            found = self._specs[key] = spec, made
        return found[1]


_MOST_PLANS = 200_000
"""Nodes that are remembered; a search makes thousands of graphs that share most of theirs."""


def _numbered(argument: Argument, numbers: dict[Value | Weight, int]) -> Argument:
    if isinstance(argument, (Value, Weight)):
        return Nth(numbers.setdefault(argument, len(numbers)))
    if isinstance(argument, tuple):
        inside = cast("tuple[Argument, ...]", argument)
        return tuple(_numbered(each, numbers) for each in inside)
    return argument


def places_of(
    operands: tuple[Value | Weight, ...], types: tuple[TensorType, ...]
) -> tuple[Place, ...]:
    """Tensors that lie in storages of their own, those that are no weights activations."""
    return tuple(
        Place(type, number, 0, role_of(each), is_trained(each))
        for number, (each, type) in enumerate(zip(operands, types, strict=True))
    )


def is_trained(operand: Value | Weight) -> bool:
    """Whether an operand takes gradients, if it is a parameter."""
    return not isinstance(operand, Weight) or operand.is_trained


def role_of(operand: Value | Weight) -> Role:
    """What an operand is to the model, if its place says nothing else."""
    if not isinstance(operand, Weight):
        return Role.ACTIVATION
    return Role.PARAMETER if operand.is_parameter else Role.BUFFER


@functools.cache
def _schema(op: str, overload: str) -> tuple[tuple[str, bool, Any, int | None, bool], ...]:
    """Of every argument: its name, whether it has a default, which, its length, if it is a float"""
    return tuple(
        (
            each.name,
            each.has_default_value(),
            _plain(each.default_value) if each.has_default_value() else None,
            each.N,
            str(each.type) == "float",
        )
        for each in function_of(op, overload)._schema.arguments
    )


def _all_arguments(node: Node) -> tuple[tuple[str, Argument], ...]:
    given = dict(node.arguments)
    arguments: list[tuple[str, Argument]] = []
    for name, has_default, default, length, is_float in _schema(node.op, node.overload):
        if name not in given:
            if not has_default:
                raise RewriteError(f"{node.op} lacks its argument '{name}'")
            arguments.append((name, default))
            continue
        value = _plain(given.pop(name))
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


def _plain(argument: Any) -> Argument:
    if isinstance(argument, (list, tuple)):
        return tuple(map(_plain, cast("Sequence[Any]", argument)))
    return argument


def _keyed(argument: Argument) -> Argument:
    """What tells arguments apart: 1, 1.0 and True are equal, and give other types."""
    if isinstance(argument, tuple):
        return tuple(map(_keyed, cast("tuple[Argument, ...]", argument)))
    return (type(argument), argument) if isinstance(argument, (bool, float)) else argument


def _called(func: Any, arguments: tuple[Argument, ...], places: tuple[Place, ...]) -> Outcome:
    """What an overload gives.

    Raises:
        RewriteError: it does not take these.
    """

    def call(tensors: Sequence[Any]) -> Any:
        args, kwargs = _as_called(func, arguments, tensors)
        return func(*args, **kwargs)

    try:
        return outcome_of(call, places)
    # Operators refuse in many ways, and all of them are told in words.
    except _OF_VALUES as error:
        raise RewriteError(
            f"what {getattr(error.func, '_name', error.func)} gives depends on the values in a"
            " tensor"
        ) from None
    except Exception as error:
        raise RewriteError(f"{func.namespace}.{func._opname}: {said_by(error)}") from None


_OF_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def _as_called(
    func: Any, arguments: tuple[Argument, ...], tensors: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for each, argument in zip(func._schema.arguments, arguments, strict=True):
        value = with_tensors(argument, tensors)
        if each.kwarg_only:
            kwargs[each.name] = value
        else:
            args.append(value)
    return args, kwargs
