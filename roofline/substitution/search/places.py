"""Where rules match, and where they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from roofline.substitution.graphs.graph import Graph
from roofline.substitution.rules.rule import Chain, Match, Rule
from roofline.substitution.search.found import Refusal, where


def places(
    graph: Graph, rules: Sequence[Rule], only: Callable[[Match], bool] | None = None
) -> Iterator[tuple[Rule, Match]]:
    """All matches, those of the first rule first; `only` says which of them count."""
    ops = {node.op for node in graph.nodes.values()}
    for rule in rules:
        if _may_match(rule, ops):
            for match in rule.pattern.matches(graph):
                if only is None or only(match):
                    yield rule, match


def _may_match(rule: Rule, ops: set[str]) -> bool:
    pattern = rule.pattern
    return not isinstance(pattern, Chain) or all(step.ops & ops for step in pattern.steps)


class Refusals:
    """Places that were not rewritten: each once with a reason, however many graphs have it."""

    def __init__(self) -> None:
        self._met: set[tuple[str, Match, str]] = set()
        self._kept: dict[tuple[str, str, str], Refusal] = {}

    def add(self, graph: Graph, rule: Rule, match: Match, reason: str, steps: int) -> None:
        """Keeps a place and the reason, if it is not known."""
        if (rule.name, match, reason) in self._met:
            return
        self._met.add((rule.name, match, reason))
        place = where(graph, match)
        self.keep(Refusal(rule=rule.name, match=match, where=place, reason=reason, steps=steps))

    def keep(self, refusal: Refusal) -> None:
        """Keeps one that another search has met, if its place and reason are not known."""
        self._kept.setdefault((refusal.rule, refusal.where, refusal.reason), refusal)

    def all(self) -> tuple[Refusal, ...]:
        """Those that are kept, in the order in which they were met."""
        return tuple(self._kept.values())
