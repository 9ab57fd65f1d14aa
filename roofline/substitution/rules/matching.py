"""What rules share: reasons to refuse, activations behind operators, siblings, and pieces."""

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


# -- reasons, in words, for which rules refuse; "" is none -----------------------------------------


def first_reason(reasons: Iterable[str]) -> str:
    """The first reason that there is."""
    return next(filter(None, reasons), "")


def own_rule(
    name: str,
    summary: str,
    pattern: Pattern,
    refuses: Callable[[Graph, Match], str],
    safety: Safety = "safe",
) -> Callable[[Rewrite], Rewrite]:
    """Registers what is decorated as the rewrite of a rule of ours."""

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


def called(graph: Graph, number: int) -> str:
    """What to call a node: its module, or its operator."""
    node = graph.nodes[number]
    return node.module_path or node.op.removeprefix("aten.")


def used_elsewhere(graph: Graph, number: int, inside: Iterable[int]) -> str:
    """What a node gives would vanish, but others than the nodes `inside` need it."""
    if graph.is_returned(number):
        return f"the model returns what {called(graph, number)} gives"
    known = frozenset(inside)
    others = [user for user in graph.users(number) if user not in known]
    if others:
        return f"{called(graph, others[0])} takes what {called(graph, number)} gives, too"
    return ""


def tied(graph: Graph, numbers: Sequence[int]) -> str:
    """A weight of these nodes has several names, or is used by others: it would be doubled."""
    for number in numbers:
        for weight in graph.nodes[number].weights():
            for original in weight.originals():
                if original.name in graph.tied:
                    return f"weight {original.name} is tied: it has several names"
            if reason := shared(graph, weight, numbers):
                return reason
    return ""


def shared(graph: Graph, weight: Weight, numbers: Iterable[int]) -> str:
    """A weight is used by others than these nodes."""
    known = frozenset(numbers)
    others = [user for user in graph.weight_users(weight) if user not in known]
    return f"weight {weight} is shared with {called(graph, others[0])}" if others else ""


def not_weights(graph: Graph, number: int, names: Sequence[str]) -> str:
    """One of these arguments is computed when the model runs; None is as good as a weight."""
    for name in names:
        if isinstance(graph.nodes[number].get(name), Value):
            return f"the {name} of {called(graph, number)} is computed when the model runs"
    return ""


FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})


def not_floating(weights: Iterable[Weight]) -> str:
    """A weight has a data type in which nothing can be folded."""
    for weight in weights:
        if weight.type.dtype not in FLOATING:
            return f"weight {weight} has data type {weight.type.dtype}"
    return ""


# -- activations behind operators: which they are, and when they are the same one ------------------


ACTIVATIONS = aten(
    "relu relu6 leaky_relu elu selu celu gelu silu mish sigmoid log_sigmoid tanh softplus softsign"
    " hardtanh hardsigmoid hardswish softshrink hardshrink threshold"
)
"""Operators that take each element on its own, and no weights."""


def is_activation(node: Node) -> bool:
    """Whether it is an activation of one value."""
    return node.op in ACTIVATIONS and len(tuple(node.values())) == 1


def same_activations(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    """The activations behind nodes, where all have one and the same one; empty: they do not."""
    found = _activations(graph, numbers)
    return found if found and _are_same(graph, found) else ()


def other_activations(graph: Graph, numbers: Sequence[int]) -> str:
    """Says, as a refusal, that all nodes have activations, but not the same; ``""``: not so."""
    found = _activations(graph, numbers)
    if not found or _are_same(graph, found):
        return ""
    names = dict.fromkeys(_said(graph.nodes[number]) for number in found)
    return f"their activations are different: {', '.join(names)}"


def activated(editor: Editor, activations: Sequence[int], value: Value) -> Value:
    """One of equal activations, of another value; in place only where all are."""
    nodes = [editor.graph.nodes[number] for number in activations]
    node = min(nodes, key=lambda each: each.in_place)
    return Value(editor.add_like(node, **{node.arguments[0][0]: value}))


def _activations(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    """The activations that alone take what nodes give; empty: one has none."""
    users = [graph.only_user(number) for number in numbers]
    found = [each for each in users if each is not None and is_activation(graph.nodes[each])]
    return tuple(found) if len(found) == len(users) else ()


def _are_same(graph: Graph, activations: Sequence[int]) -> bool:
    """Whether everything that decides what they compute is; in place or not is the same."""

    def kind(node: Node) -> tuple[object, ...]:
        settings = tuple(
            (name, type(each).__name__, str(each))
            for name, each in node.arguments
            if not any(True for _ in values_in(each))
        )
        return (node.op, node.overload, settings)

    return len({kind(graph.nodes[number]) for number in activations}) == 1


def _said(node: Node) -> str:
    settings = [f"{name}={each}" for name, each in node.arguments if not isinstance(each, Value)]
    name = node.op.removeprefix("aten.")
    return f"{name}({', '.join(settings)})" if settings else name


# -- siblings: operators that read the same value, so that one can do for all ----------------------

SIBLINGS = "siblings"
_BEHIND = "activations"
"""Roles in a match of siblings: the activations stand there only where all have the same one."""

_MOST_WITH_SUBSETS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """Finds operators that take the same value and agree in all that matters.

    All sets of two or more of up to four siblings, the largest first; of more than four only all
    of them. A match has the role `SIBLINGS`, and ``activations`` in the same order where all
    have the same activation behind them. Siblings that meet in one concatenation come in its order
    (so that the split behind them and the concatenation can go), others as they run.

    Attributes:
        ops: the operators' names; only equal operators are siblings.
        shared: the argument by which they take the value.
        agree: what must be equal, besides operator, overload and value; None: it has no siblings.
        wanted: whether a set is one that is looked for.
    """

    ops: frozenset[str]
    shared: str
    agree: Callable[[Graph, Node], Hashable]
    wanted: Callable[[Graph, tuple[int, ...]], bool] = lambda _graph, _numbers: True

    def families(self, graph: Graph) -> Iterator[tuple[int, ...]]:
        """All siblings of each kind, two or more."""
        found: dict[Hashable, list[int]] = {}
        for number, node in graph.nodes.items():
            value = node.get(self.shared) if node.op in self.ops else None
            if isinstance(value, Value) and len(graph.users(value)) > 1:
                kind = self.agree(graph, node)
                if kind is not None:
                    found.setdefault((value, node.op, node.overload, kind), []).append(number)
        yield from (tuple(each) for each in found.values() if len(each) > 1)

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        """The sets of siblings, in the order of the families' first operators."""
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
    """The places in `numbers`, in the order in which one concatenation takes them all."""
    for user in graph.users(numbers[0]):
        taken = [value.node for value in graph.nodes[user].values()]
        if graph.nodes[user].op == "aten.cat" and set(numbers) <= set(taken):
            return sorted(range(len(numbers)), key=lambda place: taken.index(numbers[place]))
    return list(range(len(numbers)))


def split(
    editor: Editor, value: Value, sizes: Sequence[int], *, dim: int | None = None, path: str
) -> list[Value]:
    """Pieces of these sizes of a value, along its last dimension or another one."""
    number = editor.add(
        "aten.split_with_sizes",
        module_path=path,
        self=value,
        split_sizes=tuple(sizes),
        dim=len(editor.type_of(value).shape) - 1 if dim is None else dim,
    )
    return [Value(number, place) for place in range(len(sizes))]


def split_again(editor: Editor, match: Match, merged: int, sizes: Sequence[int], dim: int) -> None:
    """Gives each sibling's users their part of what one operator, `merged`, gives for all of them
    along `dim`: so much each, in the order of the match.

    Activations that are in the match are applied once, before the split.
    """
    path = editor.graph.nodes[match[SIBLINGS]].module_path
    value, activations = Value(merged), match.all(_BEHIND)
    if activations:
        value = activated(editor, activations, value)
    pieces = split(editor, value, sizes, dim=dim, path=path)
    for end, piece in zip(activations or match.all(SIBLINGS), pieces, strict=True):
        editor.replace(Value(end), piece)


# -- pieces: views of a part of a tensor along one dimension ---------------------------------------

_SPLITS = aten("split split_with_sizes chunk tensor_split")
_CUTS = aten("slice narrow")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor: `length` elements from `start` on along dimension `dim` (0 or more).

    ``is_one`` says that it has that dimension no more (``aten.select``, ``aten.unbind``).
    """

    of: Value | Weight
    dim: int
    start: int
    length: int
    is_one: bool = False


def piece(graph: Graph, value: Value | Weight) -> Piece | None:
    """What a value is a part of; None: of nothing."""
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
        return Piece(of, dim, sum(lengths[: value.output]), lengths[value.output])
    if node.op in _CUTS and node.get("step", 1) == 1:
        start: Any = node["start"] or 0
        if not isinstance(start, int):
            return None
        start = max(0, start + size if start < 0 else start)
        return Piece(of, dim, min(start, size), graph.type_of(value).shape[dim])
    if node.op == "aten.select":
        return Piece(of, dim, node["index"] % size, 1, is_one=True)
    if node.op == "aten.unbind":
        return Piece(of, dim, value.output, 1, is_one=True)
    return None
