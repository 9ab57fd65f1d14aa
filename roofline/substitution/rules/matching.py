"""Shared parts of rules: refusals, activations after operators, siblings, and slices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from roofline.substitution.graphs.graph import Editor, Graph, Node, Value, Weight, values_in
from roofline.substitution.rules.rule import Match, Pattern, Rule, Safety, register_rule
from roofline.substitution.rules.weights import CONSTRUCTORS
from roofline.workload.fusion_kinds import aten

Rewrite = Callable[[Editor, Match], None]


# -- refusals: reasons as text; "" is none ---------------------------------------------------------


def first_reason(reasons: Iterable[str]) -> str:
    return next(filter(None, reasons), "")


def builtin_rule(
    name: str,
    summary: str,
    pattern: Pattern,
    refuses: Callable[[Graph, Match], str],
    safety: Safety = "safe",
) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as the rewrite of a built-in rule."""

    def registered(rewrite: Rewrite) -> Rewrite:
        register_rule(
            Rule(
                name=name,
                summary=summary,
                safety=safety,
                pattern=pattern,
                refuses=refuses,
                rewrite=rewrite,
                constructors=CONSTRUCTORS,
            )
        )
        return rewrite

    return registered


def node_name(graph: Graph, number: int) -> str:
    """Return the name of a node in reports: its module, or its operator."""
    node = graph.nodes[number]
    return node.module_path or node.op.removeprefix("aten.")


def used_elsewhere(graph: Graph, number: int, inside: Iterable[int]) -> str:
    """Return a refusal if the output of a node, which would vanish, has readers other than
    `inside`.
    """
    if graph.is_returned(number):
        return f"the model returns the output of {node_name(graph, number)}"
    known = frozenset(inside)
    others = [user for user in graph.users(number) if user not in known]
    if others:
        return f"{node_name(graph, others[0])} also reads the output of {node_name(graph, number)}"
    return ""


def tied(graph: Graph, numbers: Sequence[int]) -> str:
    """Return a refusal if a weight of these nodes is tied, or shared with other nodes."""
    for number in numbers:
        for weight in graph.nodes[number].weights():
            for original in weight.originals():
                if original.name in graph.tied:
                    return f"weight {original.name} is tied"
            if reason := shared(graph, weight, numbers):
                return reason
    return ""


def shared(graph: Graph, weight: Weight, numbers: Iterable[int]) -> str:
    known = frozenset(numbers)
    others = [user for user in graph.weight_users(weight) if user not in known]
    return f"weight {weight} is shared with {node_name(graph, others[0])}" if others else ""


def not_weights(graph: Graph, number: int, names: Sequence[str]) -> str:
    """Return a refusal if one of these arguments is computed at run time."""
    for name in names:
        if isinstance(graph.nodes[number].get(name), Value):
            return f"the {name} of {node_name(graph, number)} is computed at run time"
    return ""


FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})


def not_floating(weights: Iterable[Weight]) -> str:
    """Return a refusal if a weight is not floating-point, so that nothing can be folded."""
    for weight in weights:
        if weight.type.dtype not in FLOATING:
            return f"weight {weight} has data type {weight.type.dtype}"
    return ""


# -- activations after operators -------------------------------------------------------------------


ACTIVATIONS = aten(
    "relu relu6 leaky_relu elu selu celu gelu silu mish sigmoid log_sigmoid tanh softplus softsign"
    " hardtanh hardsigmoid hardswish softshrink hardshrink threshold"
)
"""Elementwise operators without weights."""


def is_activation(node: Node) -> bool:
    return node.op in ACTIVATIONS and len(tuple(node.values())) == 1


def same_activations(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the activations after nodes if all are equal, else nothing."""
    found = _activations(graph, numbers)
    return found if found and _are_same(graph, found) else ()


def other_activations(graph: Graph, numbers: Sequence[int]) -> str:
    """Return a refusal if all nodes have activations, but different ones."""
    found = _activations(graph, numbers)
    if not found or _are_same(graph, found):
        return ""
    names = dict.fromkeys(_activation_text(graph.nodes[number]) for number in found)
    return f"activations differ: {', '.join(names)}"


def apply_activation(editor: Editor, activations: Sequence[int], value: Value) -> Value:
    """Apply one of equal activations to another value; in place only if all are."""
    nodes = [editor.graph.nodes[number] for number in activations]
    node = min(nodes, key=lambda each: each.in_place)
    return Value(editor.add_like(node, **{node.arguments[0][0]: value}))


def _activations(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the activations that alone read each node; empty if one has none."""
    users = [graph.only_user(number) for number in numbers]
    found = [each for each in users if each is not None and is_activation(graph.nodes[each])]
    return tuple(found) if len(found) == len(users) else ()


def _are_same(graph: Graph, activations: Sequence[int]) -> bool:
    """Return whether activations compute the same, in place or not."""

    def kind(node: Node) -> tuple[object, ...]:
        settings = tuple(
            (name, type(each).__name__, str(each))
            for name, each in node.arguments
            if not any(True for _ in values_in(each))
        )
        return (node.op, node.overload, settings)

    return len({kind(graph.nodes[number]) for number in activations}) == 1


def _activation_text(node: Node) -> str:
    settings = [f"{name}={each}" for name, each in node.arguments if not isinstance(each, Value)]
    name = node.op.removeprefix("aten.")
    return f"{name}({', '.join(settings)})" if settings else name


# -- siblings: operators with the same input -------------------------------------------------------

SIBLINGS = "siblings"
_BEHIND = "activations"
"""Roles in a match of siblings; activations only if all are equal."""

_MOST_WITH_SUBSETS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """Pattern of operators with the same input and equal settings, which one can replace.

    Up to four siblings match in all subsets of two or more, largest first; more siblings only as a
    whole. A match has the role `SIBLINGS`, and ``activations`` in the same order if all are equal.
    Siblings read by one concatenation are in its order, so that split and concatenation cancel;
    others are in execution order.

    Attributes:
        ops: names of the operators; only equal ones are siblings.
        shared: argument with the common input.
        agree: key that must be equal, besides operator, overload and input; None: no siblings.
        wanted: filter of sets.
    """

    ops: frozenset[str]
    shared: str
    agree: Callable[[Graph, Node], Hashable]
    wanted: Callable[[Graph, tuple[int, ...]], bool] = lambda _graph, _numbers: True

    def families(self, graph: Graph) -> Iterator[tuple[int, ...]]:
        """Yield maximal sets of two or more siblings."""
        found: dict[Hashable, list[int]] = {}
        for number, node in graph.nodes.items():
            value = node.get(self.shared) if node.op in self.ops else None
            if isinstance(value, Value) and len(graph.users(value)) > 1:
                kind = self.agree(graph, node)
                if kind is not None:
                    found.setdefault((value, node.op, node.overload, kind), []).append(number)
        yield from (tuple(each) for each in found.values() if len(each) > 1)

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """Yield sets of siblings, in order of the first operators of their families."""
        for family in self.families(graph):
            least = 2 if len(family) <= _MOST_WITH_SUBSETS else len(family)
            for size in range(len(family), least - 1, -1):
                for numbers in combinations(family, size):
                    if self.wanted(graph, numbers):
                        yield _matched(graph, numbers)


def _matched(graph: Graph, numbers: tuple[int, ...]) -> Match:
    activations = same_activations(graph, numbers)
    order = _order_of_use(graph, activations or numbers)
    roles = ((SIBLINGS, numbers), *(((_BEHIND, activations),) if activations else ()))
    return Match(nodes=tuple((role, tuple(each[place] for place in order)) for role, each in roles))


def _order_of_use(graph: Graph, numbers: tuple[int, ...]) -> list[int]:
    """Return the order in which one concatenation reads all `numbers`."""
    for user in graph.users(numbers[0]):
        taken = [value.node for value in graph.nodes[user].values()]
        if graph.nodes[user].op == "aten.cat" and set(numbers) <= set(taken):
            return sorted(range(len(numbers)), key=lambda place: taken.index(numbers[place]))
    return list(range(len(numbers)))


def add_split(
    editor: Editor, value: Value, sizes: Sequence[int], *, dim: int | None = None, path: str
) -> list[Value]:
    """Split a value into pieces of these sizes, along its last or another dimension."""
    number = editor.add(
        "aten.split_with_sizes",
        module_path=path,
        self=value,
        split_sizes=tuple(sizes),
        dim=len(editor.type_of(value).shape) - 1 if dim is None else dim,
    )
    return [Value(number, place) for place in range(len(sizes))]


def split_merged(editor: Editor, match: Match, merged: int, sizes: Sequence[int], dim: int) -> None:
    """Split the output of a merged operator along `dim`, and pass each sibling's part to its users.

    Activations in the match are applied once, before the split.
    """
    path = editor.graph.nodes[match[SIBLINGS]].module_path
    value, activations = Value(merged), match.all(_BEHIND)
    if activations:
        value = apply_activation(editor, activations, value)
    pieces = add_split(editor, value, sizes, dim=dim, path=path)
    for end, piece in zip(activations or match.all(SIBLINGS), pieces, strict=True):
        editor.replace(Value(end), piece)


# -- slices ----------------------------------------------------------------------------------------

_SPLITS = aten("split split_with_sizes chunk tensor_split")
_CUTS = aten("slice narrow")


@dataclass(frozen=True, slots=True)
class Slice:
    """Part of a tensor: `length` elements from `start` along dimension `dim` (0 or more).

    ``is_one``: the dimension is removed (``aten.select``, ``aten.unbind``).
    """

    of: Value | Weight
    dim: int
    start: int
    length: int
    is_one: bool = False


def slice_of(graph: Graph, value: Value | Weight) -> Slice | None:
    if isinstance(value, Weight):
        return None
    node = graph.nodes[value.node]
    of = node.get("self")
    if not isinstance(of, (Value, Weight)) or not isinstance(node.get("dim"), int):
        return None
    whole = graph.type_of(of)
    if not whole.shape:
        return None
    dim = node["dim"] % len(whole.shape)
    size = whole.shape[dim]
    if node.op in _SPLITS:
        lengths = [each.shape[dim] for each in node.outputs if each is not None]
        return Slice(of, dim, sum(lengths[: value.output]), lengths[value.output])
    if node.op in _CUTS and node.get("step", 1) == 1:
        start: Any = node["start"] or 0
        if not isinstance(start, int):
            return None
        start = max(0, start + size if start < 0 else start)
        return Slice(of, dim, min(start, size), graph.type_of(value).shape[dim])
    if node.op == "aten.select":
        return Slice(of, dim, node["index"] % size, 1, is_one=True)
    if node.op == "aten.unbind":
        return Slice(of, dim, value.output, 1, is_one=True)
    return None
