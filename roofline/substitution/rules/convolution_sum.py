"""Parallel convolutions that meet in additions, batch norms and the value itself become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.batch_norm import has_other_channels, not_in_evaluation
from roofline.substitution.rules.convolutions import kernel_size, not_plain, sizes_said
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
from roofline.substitution.rules.sums import Sum, Term, sums, whole_addition


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
