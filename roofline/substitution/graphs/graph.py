"""Model as a graph of operators in execution order, without weights.

Graphs are immutable values: an `Editor` returns a new one that shares unchanged nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """Sizes, strides (in elements) and data type (torch's name, ``"float32"``) of a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}/{list(self.stride)}"

    @property
    def is_contiguous(self) -> bool:
        """Return whether the strides are those of a dense row-major tensor."""
        return self.stride == contiguous(self.shape, self.dtype).stride


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weight:
    """Tensor that is known before the model runs: of the model (``name``), or derived by a rule.

    A derived weight has the name of its constructor (``made_by``), its source weights (``of``) and
    ``options``. Equal descriptions are one tensor. ``is_parameter`` distinguishes parameters from
    buffers. ``is_trained`` weights take gradients, which matrix products query even in inference; a
    derived weight takes them if one of its sources does.
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
            raise ValueError("a weight has either a name or a constructor")
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
        """Yield the model's own weights that this one is derived from, each once."""
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
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= max(1, size)
    return TensorType(shape=shape, stride=tuple(stride), dtype=dtype)


INPUT = "input"
"""Operator of nodes that represent model inputs."""


@dataclass(frozen=True, slots=True)
class Value:
    node: int
    output: int = 0


Argument = Value | Weight | tuple["Argument", ...] | object
"""Value, weight, tuple of arguments, or any other operator argument (number, flag, type, None)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Call of one operator.

    Attributes:
        op: name as in torch.export (``"aten.conv2d"``); out-of-place name of in-place operators.
        overload: name of the overload.
        arguments: all arguments by schema name, in schema order; defaults filled in, lists as
            tuples.
        outputs: types of the outputs; None: not a tensor.
        in_place: may overwrite its first argument; checked when a graph is built or counted.
        module_path: module that contains the call.
        rule: rule that added the node; ``""``: part of the model.
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
        # Cached: read far more often than nodes are made.
        found = tuple(value for _, each in self.arguments for value in values_in(each))
        object.__setattr__(self, "_values", found)

    def __getitem__(self, name: str) -> Any:
        for each, argument in self.arguments:
            if each == name:
                return argument
        raise KeyError(f"{self.op} has no argument '{name}'")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the argument of that name; `default` if the operator has none."""
        for each, argument in self.arguments:
            if each == name:
                return argument
        return default

    @property
    def type(self) -> TensorType:
        """Type of the first output.

        Raises:
            ValueError: it is not a tensor.
        """
        first = self.outputs[0] if self.outputs else None
        if first is None:
            raise ValueError(f"the output of {self.op} is not a tensor")
        return first

    def values(self) -> Iterator[Value]:
        """Yield the values among the arguments, with repetitions."""
        return iter(self._values)

    def weights(self) -> Iterator[Weight]:
        for _, argument in self.arguments:
            yield from (each for each in parts_of(argument) if isinstance(each, Weight))

    def taking(self, now: Callable[[Value], Value | Weight]) -> Node:
        """Return the node with values replaced; the node itself if nothing changes."""
        if all(now(value) is value for value in self._values):
            return self

        def changed(part: Argument) -> Argument:
            return now(part) if isinstance(part, Value) else part

        return replace(
            self,
            arguments=tuple((name, map_argument(each, changed)) for name, each in self.arguments),
        )


def parts_of(argument: Argument) -> Iterator[Argument]:
    """Yield the leaves of a nested argument."""
    if isinstance(argument, tuple):
        for each in cast("tuple[Argument, ...]", argument):
            yield from parts_of(each)
    else:
        yield argument


def values_in(argument: Argument) -> Iterator[Value]:
    return (each for each in parts_of(argument) if isinstance(each, Value))


def map_argument(argument: Argument, change: Callable[[Argument], Argument]) -> Argument:
    """Return an argument with `change` applied to its leaves."""
    if isinstance(argument, tuple):
        return tuple(map_argument(each, change) for each in cast("tuple[Argument, ...]", argument))
    return change(argument)


def reachable(nodes: Mapping[int, Node], outputs: Iterable[Value | Weight]) -> set[int]:
    """Return the inputs, and the nodes that outputs depend on."""
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
    """Operators in execution order.

    ``nodes`` are by number, each after the nodes that it reads; they include inputs. ``outputs``
    are the flattened results of the model; a returned weight is an output itself. ``tied`` are
    weights of the model with several names.
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
        return {number: place for place, number in enumerate(self.nodes)}

    def users(self, of: int | Value) -> tuple[int, ...]:
        """Return the nodes that read a value, or any value of a node; in order, each once."""
        if isinstance(of, int):
            return self._users.get(of, ())
        return tuple(
            number
            for number in self._users.get(of.node, ())
            if any(value == of for value in self.nodes[number].values())
        )

    def is_returned(self, of: int | Value) -> bool:
        """Return whether the model returns a value, or any value of a node."""
        if isinstance(of, int):
            return any(value.node == of for value in self._returned)
        return of in self._returned

    def only_user(self, of: int | Value) -> int | None:
        """Return the only reader, if the value is not returned; None: there is none."""
        users = self.users(of)
        return users[0] if len(users) == 1 and not self.is_returned(of) else None

    def type_of(self, value: Value | Weight) -> TensorType:
        """Return the type of a value or weight; raise a RewriteError if it is not a tensor."""
        return type_in(self.nodes, value)

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
        """Return the nodes that read a weight, or weights derived from the same originals; in
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
        """Hash of each node's computation from the model inputs on, equal for equal
        computations.
        """
        found: dict[int, str] = {}
        for number, node in self.nodes.items():
            text = [node.op, node.overload, str(node.in_place)]
            if node.op == INPUT:
                text += [str(node.arguments), *map(str, node.outputs)]
            else:
                text += [f"{name}={_argument_text(each, found)}" for name, each in node.arguments]
            found[number] = hashlib.sha1("\n".join(text).encode()).hexdigest()
        return found

    @cached_property
    def digest(self) -> str:
        """Hash of the graph, independent of its history."""
        digests = self.digests
        if len(set(digests.values())) < len(digests):
            digests = self._digests_with_users()
        outputs = ",".join(_argument_text(each, digests) for each in self.outputs)
        parts = "\n".join((*sorted(digests.values()), outputs))
        return hashlib.sha1(parts.encode()).hexdigest()

    def _digests_with_users(self) -> dict[int, str]:
        """Return hashes that distinguish equal computations by their users."""
        becomes: dict[int, list[str]] = {number: [] for number in self.nodes}
        for place, each in enumerate(self.outputs):
            if isinstance(each, Value):
                becomes[each.node].append(f"returned {place} {each.output}")
        found: dict[int, str] = {}
        for number, node in reversed(tuple(self.nodes.items())):
            text = "\n".join((self.digests[number], *sorted(becomes[number])))
            found[number] = hashlib.sha1(text.encode()).hexdigest()
            for place, value in enumerate(node.values()):
                becomes[value.node].append(f"{found[number]} {place} {value.output}")
        return found


def _argument_text(argument: Argument, digests: Mapping[int, str]) -> str:
    if isinstance(argument, Value):
        return f"{digests[argument.node]}.{argument.output}"
    if isinstance(argument, Weight):
        return argument.key
    if isinstance(argument, tuple):
        inside = cast("tuple[Argument, ...]", argument)
        return f"({','.join(_argument_text(each, digests) for each in inside)})"
    return f"{type(argument).__name__}:{argument}"


# -- editing ---------------------------------------------------------------------------------------

Complete = Callable[[Node, Callable[[Value], TensorType]], Node]
"""Add missing arguments (schema defaults, in schema order) and output types to a node, from the
types of the values among its arguments.

Raises:
    RewriteError: the operator does not accept these arguments.
"""


class RewriteError(Exception):
    """Rewrite that is impossible; preconditions of rules should have excluded it."""


def type_in(nodes: Mapping[int, Node], value: Value | Weight) -> TensorType:
    if isinstance(value, Weight):
        return value.type
    found = nodes[value.node].outputs[value.output]
    if found is None:
        raise RewriteError(f"output {value.output} of {nodes[value.node].op} is not a tensor")
    return found


class Editor:
    """Graph under modification by `rule`; `complete` adds arguments and types to new nodes."""

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
        """Add a node and return its number; omitted arguments get their defaults.

        It runs as late as its first user allows.

        Raises:
            RewriteError: the operator does not accept these arguments.
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
        """Add a copy of a node with some arguments changed, and return its number."""
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
        return type_in(self._nodes, value)

    def node(self, number: int) -> Node:
        return self._nodes[number]

    def replace(self, old: Value, new: Value | Weight) -> None:
        """Replace a value by another one in all its users.

        Raises:
            RewriteError: sizes or data types differ.
        """
        before, after = self.type_of(old), self.type_of(new)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise RewriteError(f"{before} would become {after}")
        self._replaced[old] = new

    def finished(self) -> Graph:
        """Return the modified graph without dead nodes.

        New nodes run just before their first user.

        Raises:
            RewriteError: a value depends on itself, or an operator does not accept its arguments.
        """
        graph = self.graph
        outputs = tuple(map(self._resolved, graph.outputs))
        changed = {
            *range(graph.next_number, self._next),
            *(user for value in self._replaced for user in graph.users(value.node)),
        }
        now = {**self._nodes, **{n: self._nodes[n].taking(self._resolved) for n in changed}}
        kept = reachable(now, outputs)
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
                raise RewriteError("cyclic replacement of values")
        return value

    def _typed(self, number: int, node: Node, done: dict[int, Node], retyped: set[int]) -> Node:
        """Return the node, with new output types if strides of its operands have changed."""
        old = self._nodes[number]
        if node is old and not (retyped and any(each.node in retyped for each in node.values())):
            return node
        typed = self._complete(node, lambda value: type_in(done, value))
        if typed.outputs != old.outputs:
            retyped.add(number)
        return typed
