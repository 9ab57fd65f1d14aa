"""Parallel convolutions that meet in additions, batch norms and the value itself become one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from roofline.substitution.graphs.graph import Editor, Graph, Node, Value, Weight
from roofline.substitution.rules.convolutions import (
    CONVOLUTIONS,
    NORM,
    TRANSPOSED,
    has_other_channels,
    kernel_size,
    not_in_evaluation,
    not_plain,
    sizes_said,
)
from roofline.substitution.rules.matching import (
    called,
    first_reason,
    is_activation,
    own_rule,
    tied,
    used_elsewhere,
)
from roofline.substitution.rules.rule import Finds, Match
from roofline.substitution.rules.weights import enlarged, identity_kernel, normed, summed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """What is added: a convolution, a batch norm, one behind the other, or the value itself.

    ``activation`` stands behind them: such a term is not linear.
    """

    convolution: int | None = None
    norm: int | None = None
    activation: int | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        found = (self.convolution, self.norm, self.activation)
        return tuple(number for number in found if number is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """Additions of whole tensors, the last one first, and what they add: ``terms`` are convolutions
    or norms of one value, or that itself, ``rest`` all else.

    All additions but the first have no other user than the next.
    """

    adds: tuple[int, ...]
    terms: tuple[_Term, ...]
    rest: tuple[Value, ...]

    @property
    def convolutions(self) -> tuple[int, ...]:
        return tuple(each.convolution for each in self.terms if each.convolution is not None)

    @property
    def branches(self) -> int:
        return sum(each.convolution is not None or each.norm is not None for each in self.terms)

    @property
    def match(self) -> Match:
        roles = (
            ("adds", self.adds),
            ("convolutions", self.convolutions),
            ("norms", tuple(each.norm for each in self.terms if each.norm is not None)),
            ("activations", tuple(t.activation for t in self.terms if t.activation is not None)),
        )
        return Match(nodes=tuple((role, numbers) for role, numbers in roles if numbers))


def _not_whole(graph: Graph, node: Node) -> str:
    """Why it is not ``a + b`` of two tensors of one size and data type; ``""``: it is."""
    if node["alpha"] != 1:
        return f"an addition multiplies by alpha={node['alpha']}"
    types = [node.type, *map(graph.type_of, node.values())]
    if len({each.dtype for each in types}) > 1:
        return "an addition adds different data types"
    if len({each.shape for each in types}) > 1:
        return "an addition repeats a smaller tensor"
    return ""


def _sums(graph: Graph, of: int | None = None) -> Iterator[_Sum]:
    """All sums with a convolution of a value and another term of it, or those that end in `of`."""
    for number in graph.nodes if of is None else (of,):
        if _adds_values(graph.nodes[number]) and not _is_added_on(graph, number):
            yield from _by_source(graph, *_flattened(graph, number))


def _adds_values(node: Node) -> bool:
    return node.op == "aten.add" and node.overload == "Tensor" and len(tuple(node.values())) == 2


def _is_added_on(graph: Graph, number: int) -> bool:
    """Whether it is only an addend of a whole addition, and a whole addition itself."""
    user = graph.only_user(number)
    if user is None or not _adds_values(graph.nodes[user]):
        return False
    if len({value.node for value in graph.nodes[user].values()}) == 1:
        # Each of such additions would double what is added.
        return False
    return not any(_not_whole(graph, graph.nodes[each]) for each in (user, number))


def _flattened(graph: Graph, root: int) -> tuple[tuple[int, ...], tuple[Value, ...]]:
    """The additions, and what they add."""
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


def _by_source(graph: Graph, adds: tuple[int, ...], added: tuple[Value, ...]) -> Iterator[_Sum]:
    sources: dict[Value, dict[int, _Term]] = {}
    for place, value in enumerate(added):
        for source, term in _terms(graph, value):
            # A convolution with a norm behind it is more than that norm of what it gives.
            sources.setdefault(source, {}).setdefault(place, term)
    for found in sources.values():
        linear = {place: term for place, term in found.items() if term.activation is None}
        for terms in (linear, found):
            rest = tuple(value for place, value in enumerate(added) if place not in terms)
            given = _Sum(adds=adds, terms=tuple(terms.values()), rest=rest)
            if given.convolutions and len(given.terms) > 1:
                yield given
                break


def _terms(graph: Graph, value: Value) -> Iterator[tuple[Value, _Term]]:
    """All ways to see an addend as a term of some value; first those with the most nodes."""
    node, activation, norm, inner = graph.nodes[value.node], None, None, value
    if is_activation(node):
        activation, inner = inner.node, next(node.values())
        node = graph.nodes[inner.node]
    if node.op == NORM and isinstance(node["input"], Value):
        norm, inner = inner.node, node["input"]
        node = graph.nodes[inner.node]
    if node.op in CONVOLUTIONS | TRANSPOSED and isinstance(node["input"], Value):
        yield node["input"], _Term(convolution=inner.node, norm=norm, activation=activation)
    if norm is not None:
        yield inner, _Term(norm=norm, activation=activation)
    yield value, _Term()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spatial:
    """How the terms of a sum lie in one dimension.

    ``offsets`` are twice the places of the kernels' centers at the first output, from the first
    input on; the value itself has 0. ``dilations`` are of kernels of more than one element.
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


def _spatials(graph: Graph, added: _Sum) -> list[_Spatial]:
    nodes = [graph.nodes[number] for number in added.convolutions]
    settings = (
        zip(kernel_size(graph, node), node["padding"], node["dilation"], strict=True)
        for node in nodes
    )
    return [
        _Spatial(
            size=max(size for size, _, _ in found),
            dilations=frozenset(dilation for size, _, dilation in found if size > 1),
            offsets=frozenset(
                dilation * (size - 1) - 2 * padding for size, padding, dilation in found
            ),
        )
        for found in zip(*settings, strict=True)
    ]


def _cannot_add(graph: Graph, found: _Sum) -> str:
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
        return f"kernels of {sizes_said(kernels)} have no common center"
    if any(len(each.offsets) > 1 for each in spatials):
        return f"kernels of {sizes_said(kernels)} lie at different places of what they take"
    called_once = [graph.nodes[number] for number in dict.fromkeys(found.convolutions)]
    if prod(size) > sum(prod(kernel_size(graph, node)) for node in called_once):
        return f"one kernel of {sizes_said([size])} has more work than {sizes_said(kernels)}"
    if all(term.convolution is not None for term in found.terms):
        return ""
    # It must give the value itself. That channels and sizes stay is known: it is added to that.
    stride = nodes[0]["stride"]
    if any(each != 1 for each in stride):
        return f"a stride of {sizes_said([stride])} leaves elements out"
    if any(each % 2 == 0 for each in size):
        return f"a kernel of {sizes_said([size])} moves what it takes"
    return ""


def _found(graph: Graph, match: Match) -> _Sum:
    return next(each for each in _sums(graph, match["adds"]) if each.match == match)


def _refuses(graph: Graph, match: Match) -> str:
    found = _found(graph, match)
    spatial = len(kernel_size(graph, graph.nodes[found.convolutions[0]]))

    def reason(term: _Term) -> str:
        if term.activation is not None:
            return f"{called(graph, term.activation)} stands before the addition"
        why = "" if term.convolution is None else not_plain(graph, term.convolution)
        if why or term.norm is None:
            return why
        if has_other_channels(graph, graph.nodes[term.norm], spatial):
            return f"{called(graph, term.norm)} takes other channels than the convolutions give"
        return not_in_evaluation(graph, term.norm)

    inside = (number for term in found.terms for number in term.numbers)
    return (
        _not_whole(graph, graph.nodes[found.adds[0]])
        or first_reason(map(reason, found.terms))
        or first_reason(used_elsewhere(graph, number, match.numbers) for number in inside)
        or _cannot_add(graph, found)
        or tied(graph, match.numbers)
    )


@own_rule(
    "sum-convolutions",
    "convolutions, batch norms and identity of one value that are added become one convolution",
    Finds(lambda graph: (each.match for each in _sums(graph) if each.branches > 1)),
    _refuses,
)
@own_rule(
    "absorb-residual",
    "a value that is added to its own convolution becomes part of the kernel",
    Finds(lambda graph: (each.match for each in _sums(graph) if each.branches == 1)),
    _refuses,
)
def _rewrite(editor: Editor, match: Match) -> None:
    graph = editor.graph
    found = _found(graph, match)
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
    graph: Graph, found: _Sum, term: _Term, size: tuple[int, ...]
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
