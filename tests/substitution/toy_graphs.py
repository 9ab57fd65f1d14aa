"""Graphs of toy operators, rules for them, and what they cost: nothing of torch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from roofline.substitution.costs import Cost, CostBasis
from roofline.substitution.graphs.graph import (
    INPUT,
    Argument,
    Editor,
    Graph,
    Node,
    TensorType,
    Value,
    contiguous,
)
from roofline.substitution.rules.rule import Chain, Match, Rule, Step

TYPE = contiguous((4,), "float32")


def complete(node: Node, type_of: Callable[[Value], TensorType]) -> Node:
    """Every toy gives one tensor, "split" one for each of its sizes."""
    for value in node.values():
        type_of(value)
    sizes = node.get("sizes")
    return replace(node, outputs=(TYPE,) * (1 if sizes is None else len(sizes)))


class Builder:
    """Makes a graph, one node after the other."""

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}

    def input(self, name: str = "x") -> Value:
        return self._put(INPUT, name=name, role="input")

    def op(self, op: str, *values: Value, path: str = "", **arguments: Argument) -> Value:
        given = {f"a{place}": value for place, value in enumerate(values)}
        return self._put(op, path, **given, **arguments)

    def _put(self, op: str, path: str = "", **arguments: Argument) -> Value:
        number = len(self.nodes)
        node = Node(op=op, arguments=tuple(arguments.items()), module_path=path)
        self.nodes[number] = complete(node, lambda _: TYPE)
        return Value(number)

    def graph(self, *outputs: Value) -> Graph:
        return Graph(nodes=self.nodes, outputs=outputs, next_number=len(self.nodes))


def chain(*ops: str) -> Graph:
    """Operators, each of what the one before it gives."""
    builder = Builder()
    value = builder.input()
    for op in ops:
        value = builder.op(op, value)
    return builder.graph(value)


@dataclass
class ToyCosts:
    """So many seconds an operator; ``calls`` are the graphs whose cost was asked for."""

    seconds: Mapping[str, float]
    unknown: frozenset[str] = frozenset()
    calls: list[tuple[Graph, int]] = field(default_factory=list)
    after: Callable[[], None] = lambda: None

    @property
    def basis(self) -> CostBasis:
        return "bound"

    def cost(self, graph: Graph, /, *, rest_bytes: int = 0) -> Cost:
        self.calls.append((graph, rest_bytes))
        self.after()
        ops = [node.op for node in graph.nodes.values() if node.op != INPUT]
        return Cost(
            total_s=sum(self.seconds.get(op, 1.0) for op in ops if op not in self.unknown),
            launches=len(ops),
            traffic_bytes=16 * len(ops),
            flop=4 * len(ops),
            unknown=tuple(sorted(op for op in ops if op in self.unknown)),
        )


def accept(_graph: Graph, _match: Match) -> str:
    return ""


def renamed(name: str, before: str, after: str) -> Rule:
    """A rule that makes one operator another."""

    def rewrite(editor: Editor, match: Match) -> None:
        node = editor.node(match["node"])
        new = editor.add(after, module_path=node.module_path, **dict[str, Any](node.arguments))
        editor.replace(Value(match["node"]), Value(new))

    pattern = Chain(steps=(Step(role="node", ops=frozenset({before})),))
    return Rule(name=name, summary="", pattern=pattern, refuses=accept, rewrite=rewrite)


def dropped(name: str, op: str) -> Rule:
    """A rule that drops an operator, and gives what it takes in its place."""

    def rewrite(editor: Editor, match: Match) -> None:
        editor.replace(Value(match["node"]), editor.node(match["node"])["a0"])

    pattern = Chain(steps=(Step(role="node", ops=frozenset({op})),))
    return Rule(name=name, summary="", pattern=pattern, refuses=accept, rewrite=rewrite)


def fused(name: str, first: str, second: str, after: str) -> Rule:
    """A rule that makes one operator of two, where nobody else takes what is between."""

    def refuses(graph: Graph, match: Match) -> str:
        alone = graph.only_user(match["first"]) == match["second"]
        return "" if alone else "something else uses the value between"

    def rewrite(editor: Editor, match: Match) -> None:
        node = editor.node(match["first"])
        new = editor.add(after, module_path=node.module_path, **dict[str, Any](node.arguments))
        editor.replace(Value(match["second"]), Value(new))

    steps = (
        Step(role="first", ops=frozenset({first})),
        Step(role="second", ops=frozenset({second}), after="first", at="a0"),
    )
    return Rule(name=name, summary="", pattern=Chain(steps=steps), refuses=refuses, rewrite=rewrite)


@dataclass(frozen=True)
class Siblings:
    """Pairs of one operator that take the same one value."""

    op: str

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for number in graph.nodes:
            users = [each for each in graph.users(number) if self._fits(graph.nodes[each])]
            for pair in combinations(users, 2):
                yield Match(nodes=(("siblings", pair),))

    def _fits(self, node: Node) -> bool:
        return node.op == self.op and len(list(node.values())) == 1


def merged(name: str, op: str, after: str) -> Rule:
    """A rule that makes one operator and a split of two siblings."""

    def rewrite(editor: Editor, match: Match) -> None:
        first, second = match.all("siblings")
        new = editor.add(after, a0=editor.node(first)["a0"])
        split = editor.add("split", a0=Value(new), sizes=(1, 1))
        editor.replace(Value(first), Value(split, 0))
        editor.replace(Value(second), Value(split, 1))

    return Rule(name=name, summary="", pattern=Siblings(op), refuses=accept, rewrite=rewrite)


def joined(name: str, op: str) -> Rule:
    """A rule that keeps one of two siblings: they compute the same."""

    def rewrite(editor: Editor, match: Match) -> None:
        first, second = match.all("siblings")
        editor.replace(Value(second), Value(first))

    return Rule(name=name, summary="", pattern=Siblings(op), refuses=accept, rewrite=rewrite)


def random_graph(seed: int, size: int, ops: tuple[str, ...]) -> Graph:
    """A graph of that many operators, each of one or two values; all ends are returned."""
    draw = random.Random(seed)
    builder = Builder()
    values = [builder.input()]
    for place in range(size):
        taken = [draw.choice(values) for _ in range(draw.choice((1, 1, 2)))]
        values.append(builder.op(draw.choice(ops), *taken, path=f"layer{place}"))
    used = {value.node for node in builder.nodes.values() for value in node.values()}
    ends = [value for value in values[1:] if value.node not in used]
    return builder.graph(*ends)
