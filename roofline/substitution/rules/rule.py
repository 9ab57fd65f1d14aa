"""What a rule is: a pattern, a precondition, a rewrite, and the weights that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Where a pattern was found: the nodes by their roles in it.

    ``nodes`` are pairs of a role and the numbers of its nodes, in the order of the pattern: one
    number for most roles, several where a pattern takes any number (siblings).
    """

    nodes: tuple[tuple[str, tuple[int, ...]], ...]

    def __getitem__(self, role: str) -> int:
        """The first node of a role."""
        return self.all(role)[0]

    def all(self, role: str) -> tuple[int, ...]:
        """All nodes of a role; none where the match has no such role."""
        for name, numbers in self.nodes:
            if name == role:
                return numbers
        return ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """All nodes, each once, in the order of the pattern."""
        return tuple(dict.fromkeys(number for _, each in self.nodes for number in each))


class Pattern(Protocol):
    """Finds places in a graph that look right; whether they are is the precondition's to say."""

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """The places, in the order in which they run; the same graph gives the same ones."""
        ...


Safety = Literal["safe", "adds work", "changes layout"]
"""``safe`` rules take operators away or join them, and never add FLOP; those that add work (padding
kernels with zeros) or change layouts pay on some machines only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rewrite that keeps what a model computes.

    Attributes:
        name: in lower case with hyphens, as ``--rules`` takes it: ``"fold-batch-norm"``.
        summary: what it does, in a line.
        safety: what it may cost.
        pattern: finds places.
        refuses: says why a place must not be rewritten; ``""``: it may be.
        rewrite: makes the change in an editor.
        constructors: makes of weights those that the rewrite asks for, by name; each takes the
            tensors of ``Weight.of`` as float64 (integers as they are) and the options as keywords.
    """

    name: str
    summary: str
    safety: Safety = "safe"
    pattern: Pattern
    refuses: Callable[[Graph, Match], str]
    rewrite: Callable[[Editor, Match], None]
    constructors: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of a chain.

    ``ops`` are the names that it may have. It takes, as the argument called ``at`` (None: as any
    argument), what the step with the role ``after`` gives; the first step has neither.
    """

    role: str
    ops: frozenset[str]
    after: str = ""
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Operators that take what others before them give, each role by one node."""

    steps: tuple[Step, ...]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """All of them, in the order of their first steps."""
        first, *rest = self.steps
        for number, node in graph.nodes.items():
            if node.op in first.ops:
                yield from self._completed(graph, {first.role: number}, rest)

    def _completed(self, graph: Graph, found: dict[str, int], rest: list[Step]) -> Iterator[Match]:
        if not rest:
            yield Match(nodes=tuple((role, (number,)) for role, number in found.items()))
            return
        step, *others = rest
        producer = found[step.after]
        for number in graph.users(producer):
            node = graph.nodes[number]
            if (
                node.op in step.ops
                and _takes(node, producer, step.at)
                and (number not in found.values())
            ):
                yield from self._completed(graph, {**found, step.role: number}, others)


def _takes(node: Node, producer: int, at: str | None) -> bool:
    from roofline.substitution.graphs.graph import values_in

    taken = node.values() if at is None else values_in(node.get(at))
    return any(value.node == producer for value in taken)
