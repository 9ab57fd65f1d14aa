"""A model as a graph of operators in the order in which they run; it has no weights in it.

Graphs are values: a rewrite gives a new one (see `Editor`), and shares the nodes that stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """What is known of a tensor before it is there: sizes, strides in elements, and data type.

    ``dtype`` is torch's name (``"float32"``).
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}/{list(self.stride)}"

    @property
    def is_contiguous(self) -> bool:
        """Whether the last dimension varies fastest, with nothing in between."""
        return self.stride == contiguous(self.shape, self.dtype).stride


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weight:
    """A tensor that is known before the model runs.

    One of the model's own has its qualified ``name``; one that a rule makes has the name of the
    constructor that makes it (``made_by``), of which weights (``of``) and with which ``options``.
    Equal descriptions are one tensor. ``is_parameter`` tells parameters from buffers, and
    ``is_trained`` those that take gradients: products ask for it, also where none are computed.
    What is made of weights none of which does, does not.
    """

    type: TensorType
    is_parameter: bool = True
    is_trained: bool = True
    name: str = ""
    made_by: str = ""
    of: tuple[Weight, ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    key: str = field(init=False)

    def __post_init__(self) -> None:
        if bool(self.name) == bool(self.made_by):
            raise ValueError("a weight is either the model's own, or made by a constructor")
        parts = (self.name, self.made_by, str(self.type), *(each.key for each in self.of))
        text = "\n".join((*parts, repr(self.options)))
        if self.of:
            object.__setattr__(self, "is_trained", any(each.is_trained for each in self.of))
        object.__setattr__(self, "key", hashlib.sha1(text.encode()).hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Weight) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        return self.name or f"{self.made_by}({', '.join(map(str, self.of))})"

    def originals(self) -> Iterator[Weight]:
        """The model's own weights that it is made of, each once."""
        seen: set[str] = set()
        waiting: list[Weight] = [self]
        while waiting:
            weight = waiting.pop()
            if weight.key in seen:
                continue
            seen.add(weight.key)
            if weight.name:
                yield weight
            waiting.extend(reversed(weight.of))


def contiguous(shape: tuple[int, ...], dtype: str) -> TensorType:
    """The type of a contiguous tensor."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= max(1, size)
    return TensorType(shape=shape, stride=tuple(stride), dtype=dtype)


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
        """The type of its only, or first, output; a ValueError where that is no tensor."""
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
            yield from (each for each in parts_of(argument) if isinstance(each, Weight))

    def taking(self, now: Callable[[Value], Value | Weight]) -> Node:
        """The node with other values; itself where they are the same."""
        if all(now(value) is value for value in self._values):
            return self

        def changed(part: Argument) -> Argument:
            return now(part) if isinstance(part, Value) else part

        return replace(
            self, arguments=tuple((name, mapped(each, changed)) for name, each in self.arguments)
        )


def parts_of(argument: Argument) -> Iterator[Argument]:
    """What is in an argument, however nested."""
    if isinstance(argument, tuple):
        for each in cast("tuple[Argument, ...]", argument):
            yield from parts_of(each)
    else:
        yield argument


def values_in(argument: Argument) -> Iterator[Value]:
    """The values in an argument, however nested."""
    return (each for each in parts_of(argument) if isinstance(each, Value))


def mapped(argument: Argument, change: Callable[[Argument], Argument]) -> Argument:
    """An argument with all that is in it changed."""
    if isinstance(argument, tuple):
        return tuple(mapped(each, change) for each in cast("tuple[Argument, ...]", argument))
    return change(argument)


def needed(nodes: Mapping[int, Node], outputs: Iterable[Value | Weight]) -> set[int]:
    """The inputs, and the nodes that outputs come of."""
    found = {number for number, node in nodes.items() if node.op == INPUT}
    waiting = [each.node for each in outputs if isinstance(each, Value)]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += [each.node for each in nodes[number].values()]
    return found


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
        """The type of a value or weight; a RewriteError where it is no tensor."""
        return type_among(self.nodes, value)

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
        """The nodes that take a weight of the model, or any of those that one is made of; in their
        order.
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


# -- editing ---------------------------------------------------------------------------------------

Complete = Callable[[Node, Callable[[Value], TensorType]], Node]
"""Gives a node its missing arguments (the defaults of its schema, in its order) and the types of
its outputs; takes the types of the values among its arguments.

Raises:
    RewriteError: the operator does not take these.
"""


class RewriteError(Exception):
    """A rewrite that cannot be made: rules' preconditions should have refused it."""


def type_among(nodes: Mapping[int, Node], value: Value | Weight) -> TensorType:
    """The type of a weight, or of a value of one of these nodes."""
    if isinstance(value, Weight):
        return value.type
    found = nodes[value.node].outputs[value.output]
    if found is None:
        raise RewriteError(f"{nodes[value.node].op} gives no tensor there")
    return found


class Editor:
    """A graph that is being rewritten by `rule`; `complete` gives new nodes their arguments and
    types.
    """

    def __init__(self, graph: Graph, complete: Complete, rule: str = "") -> None:
        self.graph = graph
        self._complete = complete
        self._rule = rule
        self._nodes = dict(graph.nodes)
        self._replaced: dict[Value, Value | Weight] = {}
        self._next = graph.next_number

    def add(
        self,
        op: str,
        /,
        *,
        overload: str = "default",
        module_path: str = "",
        in_place: bool = False,
        **arguments: Argument,
    ) -> int:
        """A new node, by number; arguments that are left out have their defaults.

        It runs as late as its first user lets it.

        Raises:
            RewriteError: the operator does not take these.
        """
        node = Node(
            op=op,
            overload=overload,
            arguments=tuple(arguments.items()),
            module_path=module_path,
            in_place=in_place,
            rule=self._rule,
        )
        return self._put(node)

    def add_like(self, node: Node, /, **arguments: Argument) -> int:
        """A new node like another one, with some arguments changed."""
        unknown = set(arguments) - {name for name, _ in node.arguments}
        if unknown:
            raise KeyError(f"{node.op} has no argument {', '.join(sorted(unknown))}")
        changed = tuple((name, arguments.get(name, old)) for name, old in node.arguments)
        return self._put(replace(node, arguments=changed, rule=self._rule, outputs=()))

    def _put(self, node: Node) -> int:
        number = self._next
        self._nodes[number] = self._complete(node, self.type_of)
        self._next += 1
        return number

    def type_of(self, value: Value | Weight) -> TensorType:
        """The type of a value of the graph or of a new node, or of a weight."""
        return type_among(self._nodes, value)

    def node(self, number: int) -> Node:
        """A node of the graph, or a new one."""
        return self._nodes[number]

    def replace(self, old: Value, new: Value | Weight) -> None:
        """From now on, whoever takes `old` takes `new`.

        Raises:
            RewriteError: they have other sizes or data types.
        """
        before, after = self.type_of(old), self.type_of(new)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise RewriteError(f"{before} would become {after}")
        self._replaced[old] = new

    def finished(self) -> Graph:
        """The graph with all of that done, and without what is not needed any more.

        New nodes run just before the first that takes what they give. A RewriteError: a value would
        depend on itself, or an operator not take what is given.
        """
        graph = self.graph
        outputs = tuple(map(self._resolved, graph.outputs))
        changed = {
            *range(graph.next_number, self._next),
            *(user for value in self._replaced for user in graph.users(value.node)),
        }
        now = {**self._nodes, **{n: self._nodes[n].taking(self._resolved) for n in changed}}
        kept = needed(now, outputs)
        nodes: dict[int, Node] = {}
        retyped: set[int] = set()
        for root in (*graph.nodes, *(each.node for each in outputs if isinstance(each, Value))):
            # Iterative: deep graphs have more nodes than Python has stack.
            waiting, running = [root] if root in kept else [], set[int]()
            while waiting:
                number = waiting[-1]
                node = now[number]
                missing = [each.node for each in node.values() if each.node not in nodes]
                if number in nodes or not missing:
                    waiting.pop()
                    if number not in nodes:
                        nodes[number] = self._typed(number, node, nodes, retyped)
                elif number in running:
                    raise RewriteError(f"{node.op} would depend on itself")
                else:
                    running.add(number)
                    waiting += reversed(missing)
        return Graph(nodes=nodes, outputs=outputs, tied=graph.tied, next_number=self._next)

    def _resolved(self, value: Value | Weight) -> Value | Weight:
        steps = 0
        while isinstance(value, Value) and value in self._replaced:
            value = self._replaced[value]
            steps += 1
            if steps > len(self._replaced):
                raise RewriteError("values replace each other in a circle")
        return value

    def _typed(self, number: int, node: Node, done: dict[int, Node], retyped: set[int]) -> Node:
        """The node, with other types where strides of what it takes are others than before."""
        old = self._nodes[number]
        if node is old and not (retyped and any(each.node in retyped for each in node.values())):
            return node
        typed = self._complete(node, lambda value: type_among(done, value))
        if typed.outputs != old.outputs:
            retyped.add(number)
        return typed
