"""How a graph becomes another one: nodes are added, values replaced, and what nobody needs goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from roofline.substitution.graphs.graph import INPUT, Argument, Graph, Node, Value
from roofline.substitution.graphs.weights import TensorType, Weight

Complete = Callable[[Node, Callable[[Value], TensorType]], Node]
"""Gives a node its missing arguments (the defaults of its schema, in its order) and the types of
its outputs; takes the types of the values among its arguments.

Raises:
    RewriteError: the operator does not take these.
"""


class RewriteError(Exception):
    """A rewrite that cannot be made: rules' preconditions should have refused it."""


class Editor:
    """A graph that is being rewritten.

    Args:
        graph: what it is now.
        complete: gives new nodes their arguments and types.
        rule: who rewrites.
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
        """A new node like another one, with some arguments changed.

        Raises:
            KeyError: the operator has no such argument.
            RewriteError: it does not take these.
        """
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
        if isinstance(value, Weight):
            return value.type
        found = self._nodes[value.node].outputs[value.output]
        if found is None:
            raise RewriteError(f"{self._nodes[value.node].op} gives no tensor there")
        return found

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

        New nodes run just before the first that takes what they give.

        Raises:
            RewriteError: a value would depend on itself, or an operator not take what is given.
        """
        outputs = tuple(map(self._resolved, self.graph.outputs))
        changed = self._changed_nodes()
        kept = self._needed(outputs, changed)
        last = [each.node for each in outputs if isinstance(each, Value)]
        nodes: dict[int, Node] = {}
        retyped: set[int] = set()
        for root in (*self.graph.nodes, *last):
            if root not in kept or root in nodes:
                continue
            if root in changed:
                self._put_with_missing(root, changed, nodes, retyped)
            else:
                nodes[root] = self._typed(root, self._nodes[root], nodes, retyped)
        return Graph(nodes=nodes, outputs=outputs, tied=self.graph.tied, next_number=self._next)

    def _changed_nodes(self) -> dict[int, Node]:
        """The nodes that are new, or take other values than before."""
        numbers = {
            *range(self.graph.next_number, self._next),
            *(user for value in self._replaced for user in self.graph.users(value.node)),
        }
        return {number: self._now(number) for number in numbers}

    def _put_with_missing(
        self, root: int, changed: dict[int, Node], nodes: dict[int, Node], retyped: set[int]
    ) -> None:
        """Puts a node there, and before it what it takes and is not there yet."""
        # Iterative: deep graphs have more nodes than Python has stack.
        waiting, running = [root], set[int]()
        while waiting:
            number = waiting[-1]
            if number in nodes:
                waiting.pop()
                continue
            node = changed.get(number) or self._nodes[number]
            missing = [each.node for each in node.values() if each.node not in nodes]
            if not missing:
                nodes[number] = self._typed(number, node, nodes, retyped)
                waiting.pop()
                continue
            if number in running:
                raise RewriteError(f"{node.op} would depend on itself")
            running.add(number)
            waiting += reversed(missing)

    def _needed(self, outputs: tuple[Value | Weight, ...], changed: dict[int, Node]) -> set[int]:
        kept = {number for number, node in self.graph.nodes.items() if node.op == INPUT}
        waiting = [each.node for each in outputs if isinstance(each, Value)]
        while waiting:
            number = waiting.pop()
            if number not in kept:
                kept.add(number)
                node = changed.get(number) or self._nodes[number]
                waiting += [each.node for each in node.values()]
        return kept

    def _resolved(self, value: Value | Weight) -> Value | Weight:
        steps = 0
        while isinstance(value, Value) and value in self._replaced:
            value = self._replaced[value]
            steps += 1
            if steps > len(self._replaced):
                raise RewriteError("values replace each other in a circle")
        return value

    def _now(self, number: int) -> Node:
        """A node with the values that it takes now."""
        node = self._nodes[number]
        if not any(value in self._replaced for value in node.values()):
            return node
        arguments = tuple((name, self._changed(each)) for name, each in node.arguments)
        return replace(node, arguments=arguments)

    def _changed(self, argument: Argument) -> Argument:
        if isinstance(argument, Value):
            return self._resolved(argument)
        if isinstance(argument, tuple):
            inside = cast("tuple[Argument, ...]", argument)
            return tuple(map(self._changed, inside))
        return argument

    def _typed(self, number: int, node: Node, done: dict[int, Node], retyped: set[int]) -> Node:
        """The node, with other types where strides of what it takes are others than before."""
        old = self._nodes[number]
        if node is old and not (retyped and any(each.node in retyped for each in node.values())):
            return node

        def type_of(value: Value) -> TensorType:
            found = done[value.node].outputs[value.output]
            if found is None:
                raise RewriteError(f"{done[value.node].op} gives no tensor there")
            return found

        typed = self._complete(node, type_of)
        if typed.outputs != old.outputs:
            retyped.add(number)
        return typed
