"""Sums whose terms are linear in one value: convolutions, batch norms behind them, the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.rules.activations_behind import is_activation
from roofline.substitution.rules.batch_norm import NORM
from roofline.substitution.rules.convolutions import CONVOLUTIONS, TRANSPOSED

ADD = "aten.add"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What is added: a convolution, a batch norm, one behind the other, or the value itself.

    ``activation`` stands behind them: such a term is not linear.
    """

    convolution: int | None = None
    norm: int | None = None
    activation: int | None = None

    @property
    def is_identity(self) -> bool:
        """Whether it is the value itself."""
        return self.convolution is None and self.norm is None

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its nodes."""
        found = (self.convolution, self.norm, self.activation)
        return tuple(number for number in found if number is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """Additions of whole tensors, the last one first, and what they add.

    Attributes:
        adds: the additions; all but the first have no other user than the next.
        source: the value of which the terms are convolutions, norms, or which they are.
        terms: those.
        rest: what else is added.
    """

    adds: tuple[int, ...]
    source: Value
    terms: tuple[Term, ...]
    rest: tuple[Value, ...]

    @property
    def convolutions(self) -> tuple[int, ...]:
        """The terms' convolutions, one that is added twice twice."""
        return tuple(each.convolution for each in self.terms if each.convolution is not None)

    @property
    def branches(self) -> int:
        """Terms that compute something."""
        return sum(not each.is_identity for each in self.terms)


def whole_addition(graph: Graph, node: Node) -> str:
    """Why it is not ``a + b`` of two tensors of one size and data type; ``""``: it is."""
    if node["alpha"] != 1:
        return f"an addition multiplies by alpha={node['alpha']}"
    types = [node.type, *map(graph.type_of, node.values())]
    if len({each.dtype for each in types}) > 1:
        return "an addition adds different data types"
    if len({each.shape for each in types}) > 1:
        return "an addition repeats a smaller tensor"
    return ""


def sums(graph: Graph, of: int | None = None) -> Iterator[Sum]:
    """All sums with a convolution of a value and another term of the same, as they run.

    Args:
        graph: where.
        of: only those with this as their last addition.
    """
    for number in graph.nodes if of is None else (of,):
        if not _adds_values(graph.nodes[number]) or _is_added_on(graph, number):
            continue
        adds, added = _flattened(graph, number)
        yield from _by_source(graph, adds, added)


def _adds_values(node: Node) -> bool:
    return node.op == ADD and node.overload == "Tensor" and len(tuple(node.values())) == 2


def _is_added_on(graph: Graph, number: int) -> bool:
    """Whether it is only an addend of a whole addition, and a whole addition itself."""
    user = graph.only_user(number)
    if user is None or not _adds_values(graph.nodes[user]):
        return False
    if len({value.node for value in graph.nodes[user].values()}) == 1:
        # Each of such additions would double what is added.
        return False
    return not whole_addition(graph, graph.nodes[user]) and not whole_addition(
        graph, graph.nodes[number]
    )


def _flattened(graph: Graph, root: int) -> tuple[tuple[int, ...], tuple[Value, ...]]:
    adds: list[int] = []
    added: list[Value] = []
    waiting = [Value(root)]
    while waiting:
        value = waiting.pop()
        node = graph.nodes[value.node]
        if value.node == root or (_adds_values(node) and _is_added_on(graph, value.node)):
            adds.append(value.node)
            waiting += reversed(tuple(node.values()))
        else:
            added.append(value)
    return tuple(adds), tuple(added)


def _by_source(graph: Graph, adds: tuple[int, ...], added: tuple[Value, ...]) -> Iterator[Sum]:
    sources: dict[Value, dict[int, Term]] = {}
    for place, value in enumerate(added):
        for source, term in _terms(graph, value):
            # A convolution with a norm behind it is more than that norm of what it gives.
            sources.setdefault(source, {}).setdefault(place, term)
    for source, found in sources.items():
        linear = {place: term for place, term in found.items() if term.activation is None}
        for terms in (linear, found):
            given = Sum(
                adds=adds,
                source=source,
                terms=tuple(terms.values()),
                rest=tuple(value for place, value in enumerate(added) if place not in terms),
            )
            if given.convolutions and len(given.terms) > 1:
                yield given
                break


def _terms(graph: Graph, value: Value) -> Iterator[tuple[Value, Term]]:
    """All ways to see an addend as a term of some value; first those with the most nodes."""
    node, activation, norm, inner = graph.nodes[value.node], None, None, value
    if is_activation(node):
        activation, inner = inner.node, next(node.values())
        node = graph.nodes[inner.node]
    if node.op == NORM and isinstance(node["input"], Value):
        norm, inner = inner.node, node["input"]
        node = graph.nodes[inner.node]
    if node.op in CONVOLUTIONS | TRANSPOSED and isinstance(node["input"], Value):
        yield node["input"], Term(convolution=inner.node, norm=norm, activation=activation)
    if norm is not None:
        yield inner, Term(norm=norm, activation=activation)
    yield value, Term()
