"""Operators that read the same value and agree in all that matters, so that one can do for all."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.rules.activations_behind import same_activations
from roofline.substitution.rules.rule import Match

SIBLINGS = "siblings"
ACTIVATIONS_BEHIND = "activations"
"""Roles in a match of siblings: the activations stand there only where all have the same one."""

_MOST_WITH_SUBSETS = 4


def _always(graph: Graph, numbers: tuple[int, ...]) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Siblings:
    """Finds operators that take the same value.

    All sets of two or more of up to four siblings, the largest first; of more than four only all
    of them. A match has the role `SIBLINGS`, and `ACTIVATIONS_BEHIND` in the same order where all
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
    wanted: Callable[[Graph, tuple[int, ...]], bool] = _always

    def families(self, graph: Graph) -> Iterator[tuple[int, ...]]:
        """All siblings of each kind, two or more."""
        found: dict[Hashable, list[int]] = {}
        for number, node in graph.nodes.items():
            if node.op not in self.ops:
                continue
            value = node.get(self.shared)
            if not isinstance(value, Value) or len(graph.users(value)) < 2:
                continue
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
    if not activations:
        order = _order_of_use(graph, numbers)
        return Match(nodes=((SIBLINGS, tuple(numbers[place] for place in order)),))
    order = _order_of_use(graph, activations)
    return Match(
        nodes=(
            (SIBLINGS, tuple(numbers[place] for place in order)),
            (ACTIVATIONS_BEHIND, tuple(activations[place] for place in order)),
        )
    )


def _order_of_use(graph: Graph, numbers: tuple[int, ...]) -> list[int]:
    """The places in `numbers`, in the order in which one concatenation takes them all."""
    for user in graph.users(numbers[0]):
        node = graph.nodes[user]
        if node.op != "aten.cat":
            continue
        taken = [value.node for value in node.values()]
        if all(number in taken for number in numbers):
            return sorted(range(len(numbers)), key=lambda place: taken.index(numbers[place]))
    return list(range(len(numbers)))


def split_again(editor: Editor, match: Match, merged: int, sizes: Sequence[int], dim: int) -> None:
    """Gives each sibling's users their part of what one operator gives for all of them.

    Activations that are in the match are applied once, before the split.

    Args:
        editor: where the merged operator is.
        match: of `Siblings`.
        merged: the operator that computes what all siblings do, one behind the other along `dim`.
        sizes: how much of it each sibling gives, in the order of the match.
        dim: the dimension.
    """
    graph, ends = editor.graph, match.all(SIBLINGS)
    path = graph.nodes[match[SIBLINGS]].module_path
    activations = match.all(ACTIVATIONS_BEHIND)
    if activations:
        ends = activations
        like = min(activations, key=lambda number: graph.nodes[number].in_place)
        first = graph.nodes[like].arguments[0][0]
        merged = editor.add_like(graph.nodes[like], **{first: Value(merged)})
    split = editor.add(
        "aten.split_with_sizes",
        module_path=path,
        self=Value(merged),
        split_sizes=tuple(sizes),
        dim=dim,
    )
    for place, end in enumerate(ends):
        editor.replace(Value(end), Value(split, place))
