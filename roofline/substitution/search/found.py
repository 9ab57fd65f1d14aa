"""What a search gives: graphs, how they came about, and what was not done."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.text import printable
from roofline.substitution.costs.cost import Cost
from roofline.substitution.graphs.graph import INPUT, Graph
from roofline.substitution.result import SearchStatistics
from roofline.substitution.rules.rule import Match

_SHOWN_NAMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """One rule at one place, and what it does to the cost of the whole model.

    ``match`` has the numbers of the graph that it was found in. ``removed`` are nodes of that graph
    that are gone after it, ``added`` the new ones: numbers stay the same along a history, so a node
    that no earlier application added is one of the original graph. Both are empty for a rewrite
    that was tried only.
    """

    rule: str
    match: Match
    where: str
    cost_before: Cost
    cost_after: Cost
    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A place that looks right for a rule and must not, or cannot, be rewritten.

    ``steps`` are the rewrites after which it was met first; 0: it is in the original graph.
    """

    rule: str
    match: Match
    where: str
    reason: str
    steps: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A graph, what it costs, and the rewrites that make it of the original, in their order."""

    graph: Graph
    cost: Cost
    history: tuple[Application, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What a search found.

    ``candidates`` cost less than the original, the cheapest first; none: nothing was gained.
    ``refused`` are places that were not rewritten, each once with its reason. ``costlier`` are
    rewrites that were tried and do not pay: each single one of the original graph and of those on
    the way to the best, with the cost that it would have led to, without those that were made.
    """

    original: Candidate
    candidates: tuple[Candidate, ...]
    refused: tuple[Refusal, ...]
    costlier: tuple[Application, ...]
    statistics: SearchStatistics

    @property
    def best(self) -> Candidate:
        """The cheapest graph; the original where nothing was gained."""
        return self.candidates[0] if self.candidates else self.original


def where(graph: Graph, match: Match) -> str:
    """Where a match is, in words: the modules of its nodes, or its operators.

    What several have in common is said once (``layer1.0.{conv1, bn1}``).
    """
    nodes = [graph.nodes[number] for number in match.numbers]
    made = [node for node in nodes if node.op != INPUT]
    paths = list(dict.fromkeys(node.module_path for node in made if node.module_path))
    names = paths or list(dict.fromkeys(node.op.removeprefix("aten.") for node in made or nodes))
    return printable(_joined(names, separator="." if paths else ""))


def _joined(names: list[str], separator: str) -> str:
    shown = names[:_SHOWN_NAMES]
    more = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    if len(names) < 2 or not separator:
        return ", ".join((*shown, *more))
    parts = [name.split(separator) for name in names]
    common = 0
    while (
        all(len(each) > common + 1 for each in parts) and len({each[common] for each in parts}) == 1
    ):
        common += 1
    if not common:
        return ", ".join((*shown, *more))
    rest = [separator.join(each[common:]) for each in parts[:_SHOWN_NAMES]]
    return f"{separator.join(parts[0][:common])}{separator}{{{', '.join((*rest, *more))}}}"
