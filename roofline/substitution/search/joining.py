"""What was found for a piece of a graph, made in the whole graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.substitution.costs.cost import Cost, Costs
from roofline.substitution.graphs.editing import Complete, Editor, RewriteError
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.found import Application, Candidate
from roofline.substitution.search.splitting import Piece
from roofline.substitution.search.states import new_nodes


@dataclass(frozen=True, kw_only=True)
class Joining:
    """Makes rewrites of pieces in the whole."""

    rules: Mapping[str, Rule]
    costs: Costs
    complete: Complete

    def joined(
        self, whole: Candidate, piece: Piece, history: Sequence[Application]
    ) -> Candidate | None:
        """The whole after these rewrites, as far as they can be made there.

        One that the whole refuses ends it: those after it may build on it. The costs of the history
        are those of the whole as far as the piece alone changes it; the cost of what is given is
        counted anew. None: nothing can be made, or costs not be compared.
        """
        # New nodes then have the numbers that they had in the piece.
        graph, made = replace(whole.graph, next_number=piece.graph.next_number), list[Application]()
        for each in history:
            match = _in_whole(each.match, piece)
            new = None if match is None else self._rewritten(graph, each.rule, match)
            if match is None or new is None or new_nodes(graph, new) != each.added:
                break
            part = history[0].cost_before
            made.append(
                replace(
                    each,
                    match=match,
                    cost_before=cost_of_whole(whole.cost, part, each.cost_before),
                    cost_after=cost_of_whole(whole.cost, part, each.cost_after),
                    removed=tuple(number for number in graph.nodes if number not in new.nodes),
                )
            )
            graph = new
        cost = self.costs.cost(graph) if made else whole.cost
        if not made or not cost.is_comparable(whole.cost):
            return None
        return Candidate(graph=graph, cost=cost, history=(*whole.history, *made))

    def _rewritten(self, graph: Graph, name: str, match: Match) -> Graph | None:
        rule = self.rules[name]
        if rule.refuses(graph, match):
            return None
        editor = Editor(graph, self.complete, name)
        try:
            rule.rewrite(editor, match)
            return editor.finished()
        except RewriteError:
            return None


def _in_whole(match: Match, piece: Piece) -> Match | None:
    """The match by the numbers of the whole.

    None: it has a stand-in for a value that is not its node's first. A rule would take the first.
    """
    taken = [piece.origin[number] for number in match.numbers if number in piece.origin]
    if any(value.output for value in taken):
        return None
    return Match(
        nodes=tuple(
            (role, tuple(piece.origin[n].node if n in piece.origin else n for n in numbers))
            for role, numbers in match.nodes
        )
    )


def cost_of_whole(whole: Cost, before: Cost, after: Cost) -> Cost:
    """What the whole would cost if a part of it cost something else than before."""
    flop = None
    if whole.flop is not None and before.flop is not None and after.flop is not None:
        flop = whole.flop + after.flop - before.flop
    bound_s = None
    if whole.bound_s is not None and before.bound_s is not None and after.bound_s is not None:
        bound_s = whole.bound_s + after.bound_s - before.bound_s
    return Cost(
        total_s=whole.total_s + after.total_s - before.total_s,
        launches=whole.launches + after.launches - before.launches,
        traffic_byte=whole.traffic_byte + after.traffic_byte - before.traffic_byte,
        flop=flop,
        unknown=whole.unknown,
        bound_s=bound_s,
    )
