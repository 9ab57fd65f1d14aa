"""A model as a graph of operators in the order in which they run; it has no weights in it.

Graphs are values: a rewrite gives a new one (see `editing`), and shares the nodes that stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from roofline.substitution.graphs.weights import TensorType, Weight

INPUT = "input"
"""The operator of nodes that stand for what the model is given."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a node gives: the number of the node, and which of its outputs."""

    node: int
    output: int = 0


Argument = Value | Weight | tuple["Argument", ...] | object
"""A value, a weight, several arguments, or a number, a flag, a type or None as torch takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One call of an operator.

    ``op`` is the name as torch.export has it (``"aten.conv2d"``), in-place operators by the name of
    those that are not (``aten.relu``); ``overload`` which of its forms; ``arguments`` all arguments
    by their names in the schema, in its order, those left out with their defaults, lists as tuples.
    ``outputs`` are the types of what it gives, None for what is no tensor. ``in_place`` says that
    it may overwrite its first argument: that nothing else uses it is checked where a graph is built
    or counted. ``module_path`` is the module that it came from, ``rule`` the rule that made it,
    ``""`` for the model's own.
    """

    op: str
    overload: str = "default"
    arguments: tuple[tuple[str, Argument], ...] = ()
    outputs: tuple[TensorType | None, ...] = ()
    module_path: str = ""
    in_place: bool = False
    rule: str = ""
    _values: tuple[Value, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Asked for far more often than nodes are made.
        found = tuple(value for _, each in self.arguments for value in values_in(each))
        object.__setattr__(self, "_values", found)

    def __getitem__(self, name: str) -> Any:
        for each, argument in self.arguments:
            if each == name:
                return argument
        raise KeyError(f"{self.op} has no argument '{name}'")

    def get(self, name: str, default: Any = None) -> Any:
        """The argument of that name; `default` where the operator has none."""
        for each, argument in self.arguments:
            if each == name:
                return argument
        return default

    @property
    def type(self) -> TensorType:
        """The type of its only, or first, output.

        Raises:
            ValueError: it gives no tensor there.
        """
        first = self.outputs[0] if self.outputs else None
        if first is None:
            raise ValueError(f"{self.op} gives no tensor")
        return first

    def values(self) -> Iterator[Value]:
        """The values among its arguments, one that is there twice twice."""
        return iter(self._values)

    def weights(self) -> Iterator[Weight]:
        """The weights among its arguments."""
        for _, argument in self.arguments:
            yield from weights_in(argument)


def values_in(argument: Argument) -> Iterator[Value]:
    """The values in an argument, however nested."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, tuple):
        for each in cast("tuple[Argument, ...]", argument):
            yield from values_in(each)


def weights_in(argument: Argument) -> Iterator[Weight]:
    """The weights in an argument, however nested."""
    if isinstance(argument, Weight):
        yield argument
    elif isinstance(argument, tuple):
        for each in cast("tuple[Argument, ...]", argument):
            yield from weights_in(each)


@dataclass(frozen=True, eq=False, kw_only=True)
class Graph:
    """Operators in the order in which they run.

    ``nodes`` are by number, each after those whose values it takes; inputs are nodes, too.
    ``outputs`` are what the model returns, flat; a weight that is returned as it is stands there
    itself. ``tied`` are names of the model's weights that it has under several names.
    """

    nodes: Mapping[int, Node]
    outputs: tuple[Value | Weight, ...]
    tied: frozenset[str] = frozenset()
    next_number: int = field(default=0)

    @cached_property
    def _users(self) -> dict[int, tuple[int, ...]]:
        users: dict[int, list[int]] = {}
        for number, node in self.nodes.items():
            for value in node.values():
                known = users.get(value.node)
                if known is None:
                    users[value.node] = [number]
                elif known[-1] != number:
                    known.append(number)
        return {node: tuple(each) for node, each in users.items()}

    @cached_property
    def _returned(self) -> frozenset[Value]:
        return frozenset(each for each in self.outputs if isinstance(each, Value))

    @cached_property
    def position(self) -> Mapping[int, int]:
        """When each node runs."""
        return {number: place for place, number in enumerate(self.nodes)}

    def users(self, of: int | Value) -> tuple[int, ...]:
        """The nodes that take a value, or any value of a node; in order, each once."""
        if isinstance(of, int):
            return self._users.get(of, ())
        return tuple(
            number
            for number in self._users.get(of.node, ())
            if any(value == of for value in self.nodes[number].values())
        )

    def is_returned(self, of: int | Value) -> bool:
        """Whether the model returns a value, or any value of a node."""
        if isinstance(of, int):
            return any(value.node == of for value in self._returned)
        return of in self._returned

    def only_user(self, of: int | Value) -> int | None:
        """The one node that takes it and that alone needs it; None: there is no such node."""
        users = self.users(of)
        return users[0] if len(users) == 1 and not self.is_returned(of) else None

    def type_of(self, value: Value | Weight) -> TensorType:
        """The type of a value or weight.

        Raises:
            ValueError: it is no tensor.
        """
        if isinstance(value, Weight):
            return value.type
        found = self.nodes[value.node].outputs[value.output]
        if found is None:
            raise ValueError(f"{self.nodes[value.node].op} gives no tensor there")
        return found

    @cached_property
    def _weight_users(self) -> dict[str, tuple[int, ...]]:
        users: dict[str, list[int]] = {}
        for number, node in self.nodes.items():
            for weight in node.weights():
                for original in weight.originals():
                    known = users.setdefault(original.key, [])
                    if not known or known[-1] != number:
                        known.append(number)
        return {key: tuple(each) for key, each in users.items()}

    def weight_users(self, weight: Weight) -> tuple[int, ...]:
        """The nodes that take a weight of the model, or one that is made of it; in order.

        For one that is made: those that take any of the weights that it is made of.
        """
        found = {
            number
            for original in weight.originals()
            for number in self._weight_users.get(original.key, ())
        }
        return tuple(sorted(found, key=self.position.__getitem__))

    @cached_property
    def digests(self) -> Mapping[int, str]:
        """What each node computes, from the model's inputs on: equal computations are equal."""
        found: dict[int, str] = {}
        for number, node in self.nodes.items():
            said = [node.op, node.overload, str(node.in_place)]
            if node.op == INPUT:
                said += [str(node.arguments), *map(str, node.outputs)]
            else:
                said += [f"{name}={_said(each, found)}" for name, each in node.arguments]
            found[number] = hashlib.sha1("\n".join(said).encode()).hexdigest()
        return found

    @cached_property
    def digest(self) -> str:
        """The same for graphs of the same operators, however they came about."""
        digests = self.digests
        if len(set(digests.values())) < len(digests):
            digests = self._digests_with_users()
        outputs = ",".join(_said(each, digests) for each in self.outputs)
        parts = "\n".join((*sorted(digests.values()), outputs))
        return hashlib.sha1(parts.encode()).hexdigest()

    def _digests_with_users(self) -> dict[int, str]:
        """Tells nodes that compute the same by what becomes of it."""
        becomes: dict[int, list[str]] = {number: [] for number in self.nodes}
        for place, each in enumerate(self.outputs):
            if isinstance(each, Value):
                becomes[each.node].append(f"returned {place} {each.output}")
        found: dict[int, str] = {}
        for number, node in reversed(tuple(self.nodes.items())):
            said = "\n".join((self.digests[number], *sorted(becomes[number])))
            found[number] = hashlib.sha1(said.encode()).hexdigest()
            for place, value in enumerate(node.values()):
                becomes[value.node].append(f"{found[number]} {place} {value.output}")
        return found


def _said(argument: Argument, digests: Mapping[int, str]) -> str:
    if isinstance(argument, Value):
        return f"{digests[argument.node]}.{argument.output}"
    if isinstance(argument, Weight):
        return argument.key
    if isinstance(argument, tuple):
        inside = cast("tuple[Argument, ...]", argument)
        return f"({','.join(_said(each, digests) for each in inside)})"
    return f"{type(argument).__name__}:{argument}"
