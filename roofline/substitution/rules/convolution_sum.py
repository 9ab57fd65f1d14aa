"""Rules that merge added parallel convolutions, batch norms and identity into one convolution."""

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
    sizes_text,
)
from roofline.substitution.rules.matching import (
    builtin_rule,
    first_reason,
    is_activation,
    node_name,
    tied,
    used_elsewhere,
)
from roofline.substitution.rules.rule import FunctionPattern, Match
from roofline.substitution.rules.weights import add_weights, enlarge, fold_norm, identity_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    """Addend: a convolution, a batch norm, both in sequence, or the input itself.

    With an ``activation`` at its end, the term is not linear.
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
    """Additions, last one first: ``terms`` of one input, and the ``rest`` of the addends.

    All additions but the first are read by the next one only.
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
    """Return the reason why it is not ``a + b`` of equal sizes and data types; ``""``: it is."""
    if node["alpha"] != 1:
        return f"an addition has alpha={node['alpha']}"
    types = [node.type, *map(graph.type_of, node.values())]
    if len({each.dtype for each in types}) > 1:
        return "an addition has mixed data types"
    if len({each.shape for each in types}) > 1:
        return "an addition broadcasts a smaller tensor"
    return ""


def _sums(graph: Graph, of: int | None = None) -> Iterator[_Sum]:
    """Yield sums of a convolution and another term of its input; only those that end in `of`."""
    for number in graph.nodes if of is None else (of,):
        if _adds_values(graph.nodes[number]) and not _is_added_on(graph, number):
            yield from _by_source(graph, *_flattened(graph, number))


def _adds_values(node: Node) -> bool:
    return node.op == "aten.add" and node.overload == "Tensor" and len(tuple(node.values())) == 2


def _is_added_on(graph: Graph, number: int) -> bool:
    """Return whether an addition is only an addend of another one."""
    user = graph.only_user(number)
    if user is None or not _adds_values(graph.nodes[user]):
        return False
    if len({value.node for value in graph.nodes[user].values()}) == 1:
        # x + x doubles its operand.
        return False
    return not any(_not_whole(graph, graph.nodes[each]) for each in (user, number))


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


def _by_source(graph: Graph, adds: tuple[int, ...], added: tuple[Value, ...]) -> Iterator[_Sum]:
    sources: dict[Value, dict[int, _Term]] = {}
    for place, value in enumerate(added):
        for source, term in _terms(graph, value):
            # Prefer convolution with norm over norm alone.
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
    """Yield the possible terms of an addend, with the input of each; most nodes first."""
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
    """Alignment of the terms of a sum in one dimension.

    ``offsets`` are twice the offsets of kernel centers from the first input, at the first output; 0
    for the identity. ``dilations`` are of kernels of more than one element.
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
    """Return the reason why kernels cannot be added; ``""``: none."""
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
        return f"kernels of {sizes_text(kernels)} have no common center"
    if any(len(each.offsets) > 1 for each in spatials):
        return f"kernels of {sizes_text(kernels)} are not aligned"
    called_once = [graph.nodes[number] for number in dict.fromkeys(found.convolutions)]
    if prod(size) > sum(prod(kernel_size(graph, node)) for node in called_once):
        return f"one kernel of {sizes_text([size])} has more FLOP than {sizes_text(kernels)}"
    if all(term.convolution is not None for term in found.terms):
        return ""
    # The identity term requires unchanged positions; sizes are equal, as they are added.
    stride = nodes[0]["stride"]
    if any(each != 1 for each in stride):
        return f"a stride of {sizes_text([stride])} skips elements"
    if any(each % 2 == 0 for each in size):
        return f"an even kernel size {sizes_text([size])} shifts its input"
    return ""


def _found(graph: Graph, match: Match) -> _Sum:
    return next(each for each in _sums(graph, match["adds"]) if each.match == match)


def _refuses(graph: Graph, match: Match) -> str:
    found = _found(graph, match)
    spatial = len(kernel_size(graph, graph.nodes[found.convolutions[0]]))

    def reason(term: _Term) -> str:
        if term.activation is not None:
            return f"{node_name(graph, term.activation)} precedes the addition"
        why = "" if term.convolution is None else not_plain(graph, term.convolution)
        if why or term.norm is None:
            return why
        if has_other_channels(graph, graph.nodes[term.norm], spatial):
            return f"{node_name(graph, term.norm)} and the convolutions have different channels"
        return not_in_evaluation(graph, term.norm)

    inside = (number for term in found.terms for number in term.numbers)
    return (
        _not_whole(graph, graph.nodes[found.adds[0]])
        or first_reason(map(reason, found.terms))
        or first_reason(used_elsewhere(graph, number, match.numbers) for number in inside)
        or _cannot_add(graph, found)
        or tied(graph, match.numbers)
    )


@builtin_rule(
    "sum-convolutions",
    "merge added parallel convolutions, batch norms and identity into one convolution",
    FunctionPattern(lambda graph: (each.match for each in _sums(graph) if each.branches > 1)),
    _refuses,
)
@builtin_rule(
    "absorb-residual",
    "absorb the residual connection of a convolution into its kernel",
    FunctionPattern(lambda graph: (each.match for each in _sums(graph) if each.branches == 1)),
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
        weight=add_weights([kernel for kernel, _ in made]),
        bias=add_weights(biases) if biases else None,
        padding=tuple(each.padding for each in spatials),
        dilation=tuple(each.dilation for each in spatials),
    )
    for value in found.rest:
        new = editor.add_like(graph.nodes[found.adds[0]], self=Value(new), other=value)
    editor.replace(Value(found.adds[0]), Value(new))


def _made(
    graph: Graph, found: _Sum, term: _Term, size: tuple[int, ...]
) -> tuple[Weight, Weight | None]:
    """Return kernel and bias of a term, in the size of the sum."""
    if term.convolution is None:
        first = graph.nodes[found.convolutions[0]]
        channels = first["weight"].type
        kernel = identity_kernel(channels.shape[0], first["groups"], size, channels.dtype)
        bias = None
    else:
        kernel, bias = (graph.nodes[term.convolution][name] for name in ("weight", "bias"))
    if term.norm is not None:
        kernel, bias = fold_norm(kernel, bias, graph.nodes[term.norm])
    return enlarge(kernel, size), bias
