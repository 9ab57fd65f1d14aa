"""Parallel convolutions that meet in additions, batch norms and the value itself become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.activations_behind import is_activation
from roofline.substitution.rules.batch_norm import NORM, has_other_channels, not_in_evaluation
from roofline.substitution.rules.convolutions import (
    CONVOLUTIONS,
    TRANSPOSED,
    kernel_size,
    not_plain,
    sizes_said,
)
from roofline.substitution.rules.kernels import (
    CONSTRUCTORS,
    enlarged,
    identity_kernel,
    normed,
    summed,
)
from roofline.substitution.rules.refusals import called, tied, used_elsewhere
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule

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


@dataclass(frozen=True, slots=True)
class _Sums:
    """Finds sums; a match has the nodes that go, by their kinds."""

    wanted: Callable[[Sum], bool]

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for each in sums(graph):
            if self.wanted(each):
                yield _matched(each)

    def found(self, graph: Graph, match: Match) -> Sum:
        """The sum that a match is of."""
        return next(each for each in sums(graph, match["adds"]) if _matched(each) == match)


def _matched(found: Sum) -> Match:
    terms = found.terms
    roles = (
        ("adds", found.adds),
        ("convolutions", found.convolutions),
        ("norms", tuple(term.norm for term in terms if term.norm is not None)),
        ("activations", tuple(term.activation for term in terms if term.activation is not None)),
    )
    return Match(nodes=tuple((role, numbers) for role, numbers in roles if numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spatial:
    """How the terms of a sum lie in one dimension.

    ``offsets`` are twice the places of the kernels' centres at the first output, from the first
    input on; the value itself has 0.
    """

    size: int
    dilations: frozenset[int]
    offsets: frozenset[int]

    @property
    def dilation(self) -> int:
        return min(self.dilations, default=1)

    @property
    def padding(self) -> int:
        return (self.dilation * (self.size - 1) - min(self.offsets)) // 2


def _spatial(graph: Graph, nodes: list[Node], dim: int) -> _Spatial:
    """That of convolutions; dilation is nothing where a kernel has one element."""
    found = [
        (kernel_size(graph, node)[dim], node["padding"][dim], node["dilation"][dim])
        for node in nodes
    ]
    return _Spatial(
        size=max(size for size, _, _ in found),
        dilations=frozenset(dilation for size, _, dilation in found if size > 1),
        offsets=frozenset(dilation * (size - 1) - 2 * padding for size, padding, dilation in found),
    )


def _spatials(graph: Graph, found: Sum) -> list[_Spatial]:
    nodes = [graph.nodes[number] for number in found.convolutions]
    return [_spatial(graph, nodes, dim) for dim in range(len(kernel_size(graph, nodes[0])))]


def _cannot_add(graph: Graph, found: Sum) -> str:
    """Why the kernels cannot be added up; ``""``: they can."""
    nodes = [graph.nodes[number] for number in found.convolutions]
    for name in ("stride", "groups"):
        settings = dict.fromkeys(str(node[name]) for node in nodes)
        if len(settings) > 1:
            return f"the convolutions differ in {name}: {', '.join(settings)}"
    if len({graph.type_of(node["weight"]).dtype for node in nodes}) > 1:
        return "the convolutions' weights have different data types"
    spatials = _spatials(graph, found)
    if any(len(each.dilations) > 1 for each in spatials):
        return "the convolutions differ in dilation"
    kernels = [kernel_size(graph, node) for node in nodes]
    size = tuple(each.size for each in spatials)
    if any((new - old) % 2 for kernel in kernels for new, old in zip(size, kernel, strict=True)):
        return f"kernels of {sizes_said(kernels)} have no common centre"
    if any(len(each.offsets) > 1 for each in spatials):
        return f"kernels of {sizes_said(kernels)} lie at different places of what they take"
    called_once = [graph.nodes[number] for number in dict.fromkeys(found.convolutions)]
    if prod(size) > sum(prod(kernel_size(graph, node)) for node in called_once):
        return f"one kernel of {sizes_said([size])} has more work than {sizes_said(kernels)}"
    if all(term.convolution is not None for term in found.terms):
        return ""
    return _moves(nodes[0], size)


def _moves(node: Node, size: tuple[int, ...]) -> str:
    """Why the sum's convolution cannot give the value itself; ``""``: it can.

    That channels and sizes stay is known: what it gives is added to the value.
    """
    if any(each != 1 for each in node["stride"]):
        return f"a stride of {sizes_said([node['stride']])} leaves elements out"
    if any(each % 2 == 0 for each in size):
        return f"a kernel of {sizes_said([size])} moves what it takes"
    return ""


def _term_refuses(graph: Graph, term: Term, spatial: int) -> str:
    if term.activation is not None:
        return f"{called(graph, term.activation)} stands before the addition"
    found = "" if term.convolution is None else not_plain(graph, term.convolution)
    if found or term.norm is None:
        return found
    if has_other_channels(graph, graph.nodes[term.norm], spatial):
        return f"{called(graph, term.norm)} takes other channels than the convolutions give"
    return not_in_evaluation(graph, term.norm)


def _refuses(graph: Graph, match: Match, pattern: _Sums) -> str:
    found = pattern.found(graph, match)
    spatial = len(kernel_size(graph, graph.nodes[found.convolutions[0]]))
    reasons = [whole_addition(graph, graph.nodes[found.adds[0]])]
    reasons += [_term_refuses(graph, term, spatial) for term in found.terms]
    reasons += [
        used_elsewhere(graph, number, match.numbers)
        for term in found.terms
        for number in term.numbers
    ]
    return (
        next(filter(None, reasons), "") or _cannot_add(graph, found) or tied(graph, match.numbers)
    )


def _rewrite(editor: Editor, match: Match, pattern: _Sums) -> None:
    graph = editor.graph
    found = pattern.found(graph, match)
    spatials = _spatials(graph, found)
    size = tuple(each.size for each in spatials)
    made = [_made(graph, found, term, size) for term in found.terms]
    biases = [bias for _, bias in made if bias is not None]
    new = editor.add_like(
        graph.nodes[found.convolutions[0]],
        weight=summed([kernel for kernel, _ in made]),
        bias=summed(biases) if biases else None,
        padding=tuple(each.padding for each in spatials),
        dilation=tuple(each.dilation for each in spatials),
    )
    for value in found.rest:
        new = editor.add_like(graph.nodes[found.adds[0]], self=Value(new), other=value)
    editor.replace(Value(found.adds[0]), Value(new))


def _made(
    graph: Graph, found: Sum, term: Term, size: tuple[int, ...]
) -> tuple[Weight, Weight | None]:
    """The kernel and bias of a term, in the sum's size."""
    if term.convolution is None:
        first = graph.nodes[found.convolutions[0]]
        channels = first["weight"].type
        kernel = identity_kernel(channels.shape[0], first["groups"], size, channels.dtype)
        bias = None
    else:
        kernel, bias = (graph.nodes[term.convolution][name] for name in ("weight", "bias"))
    if term.norm is not None:
        kernel, bias = normed(kernel, bias, graph.nodes[term.norm])
    return enlarged(kernel, size), bias


def _rule(name: str, summary: str, wanted: Callable[[Sum], bool]) -> Rule:
    pattern = _Sums(wanted)
    return Rule(
        name=name,
        summary=summary,
        pattern=pattern,
        refuses=lambda graph, match: _refuses(graph, match, pattern),
        rewrite=lambda editor, match: _rewrite(editor, match, pattern),
        constructors=CONSTRUCTORS,
    )


register_rule(
    _rule(
        "sum-convolutions",
        "convolutions, batch norms and identity of one value that are added become one convolution",
        lambda found: found.branches > 1,
    )
)
register_rule(
    _rule(
        "absorb-residual",
        "a value that is added to its own convolution becomes part of the kernel",
        lambda found: found.branches == 1,
    )
)
