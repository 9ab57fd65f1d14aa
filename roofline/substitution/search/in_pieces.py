"""The search of large models: piece by piece, joined again, and then across the cuts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.foundation.progress import Progress
from roofline.substitution.costs.cost import Cost, Costs
from roofline.substitution.graphs.editing import Complete, Editor, RewriteError
from roofline.substitution.graphs.graph import INPUT, Graph
from roofline.substitution.result import SearchStatistics
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.backtracking import (
    DEFAULT_ALPHA,
    DEFAULT_BUDGET,
    DEFAULT_KEEP,
    check,
    search,
)
from roofline.substitution.search.exploration import Around, Ended
from roofline.substitution.search.found import Application, Candidate, Found
from roofline.substitution.search.places import Refusals, places
from roofline.substitution.search.splitting import Piece, piece_of, split
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
    eager_min_time_s = None
    if (
        whole.eager_min_time_s is not None
        and before.eager_min_time_s is not None
        and after.eager_min_time_s is not None
    ):
        eager_min_time_s = whole.eager_min_time_s + after.eager_min_time_s - before.eager_min_time_s
    return Cost(
        total_s=whole.total_s + after.total_s - before.total_s,
        launches=whole.launches + after.launches - before.launches,
        traffic_bytes=whole.traffic_bytes + after.traffic_bytes - before.traffic_bytes,
        flop=flop,
        unknown=whole.unknown,
        eager_min_time_s=eager_min_time_s,
    )


DEFAULT_PIECE = 120
"""Operators that a piece has at most."""

_LAST_PASS = 0.1
"""The part of the budget that is kept for rewrites across the cuts."""

_NO_PIECE = -1
"""Where nodes are that were made across the cuts."""


def search_in_pieces(
    graph: Graph,
    rules: tuple[Rule, ...],
    costs: Costs,
    complete: Complete,
    *,
    threshold: int = DEFAULT_PIECE,
    alpha: float = DEFAULT_ALPHA,
    budget: int = DEFAULT_BUDGET,
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress | None = None,
    keep: int = DEFAULT_KEEP,
) -> Found:
    """Searches a graph in pieces; one that is no larger than a piece as a whole.

    Alpha is relative to the cost of all of the model. What was found for a piece is made in the
    whole graph, where preconditions are looked at again, and its cost counted anew; costs along
    histories are those of the whole as far as the piece alone changes it. At last rewrites across
    the cuts are made while they pay. Budget and time are shared by how many matches pieces have;
    what one leaves is for those after it.

    Args:
        graph: what the model is.
        rules: which rewrites to try, in this order.
        costs: what graphs cost.
        complete: gives new nodes their arguments and types.
        threshold: how many operators a piece has at most.
        alpha: as for `search`.
        budget: how many graphs and pieces are looked through for rewrites at most, together.
        time_limit_s: when to stop with the best so far.
        clock: gives seconds.
        progress: told how far the search is.
        keep: how many of the cheapest graphs are given at most.

    Raises:
        InputError: alpha, the budget, `keep` or the threshold is below 1.
    """
    check(alpha, budget, keep)
    begin = clock()
    refusals, found_places, refused_places = Refusals(), list[Match](), set[tuple[str, Match]]()
    for rule, match in places(graph, rules):
        reason = rule.refuses(graph, match)
        if reason:
            refusals.add(graph, rule, match, reason, 0)
            refused_places.add((rule.name, match))
        else:
            found_places.append(match)
    pieces = split(graph, found_places, threshold)
    if len(pieces) < 2:
        return search(
            graph,
            rules,
            costs,
            complete,
            alpha=alpha,
            budget=budget,
            time_limit_s=time_limit_s,
            clock=clock,
            progress=progress,
            keep=keep,
        )
    running = _InPieces(
        rules=rules,
        costs=costs,
        complete=complete,
        alpha=alpha,
        keep=keep,
        budget=budget,
        clock=clock,
        deadline=None if time_limit_s is None else begin + time_limit_s,
        progress=progress,
        original=Candidate(graph=graph, cost=costs.cost(graph)),
        refusals=refusals,
        refused_places=refused_places,
    )
    running.search_each(pieces, found_places)
    running.search_across()
    return Found(
        original=running.original,
        candidates=running.candidates(),
        refused=refusals.all(),
        costlier=running.costlier(),
        statistics=SearchStatistics(
            expanded=running.expanded,
            evaluated=running.evaluated,
            duplicates=running.duplicates,
            pruned=running.pruned,
            pieces=len(pieces),
            seconds=clock() - begin,
            ended=running.ended,
        ),
    )


@dataclass(eq=False, kw_only=True)
class _InPieces:
    """A search of pieces, one after the other; ``now`` is what the model has become."""

    rules: tuple[Rule, ...]
    costs: Costs
    complete: Complete
    alpha: float
    keep: int
    budget: int
    clock: Callable[[], float]
    deadline: float | None
    progress: Progress | None
    original: Candidate
    refusals: Refusals
    refused_places: set[tuple[str, Match]]
    expanded: int = 0
    evaluated: int = 0
    duplicates: int = 0
    pruned: int = 0
    ended: Ended = "exhausted"

    def __post_init__(self) -> None:
        self.now = self.original
        self._joined: list[Candidate] = []
        self._costlier: list[Application] = []
        self._home: dict[int, int] = {}

    def candidates(self) -> tuple[Candidate, ...]:
        """The model after each piece that became cheaper, the cheapest first."""
        cheaper = [each for each in self._joined if each.cost.total_s < self.original.cost.total_s]
        return tuple(sorted(cheaper, key=lambda each: each.cost.total_s)[: self.keep])

    def costlier(self) -> tuple[Application, ...]:
        """What does not pay, each place once, without what was made."""
        made = {(each.rule, each.where) for each in self.now.history}
        found = {(each.rule, each.where): each for each in self._costlier}
        return tuple(each for place, each in found.items() if place not in made)

    def search_each(self, pieces: Sequence[tuple[int, ...]], matches: Sequence[Match]) -> None:
        """Searches all pieces that have matches, in the order in which they run."""
        self._home = {number: place for place, each in enumerate(pieces) for number in each}
        homes = [self._homes(match) for match in matches]
        counts = [homes.count({place}) for place in range(len(pieces))]
        total, done = sum(counts), 0
        for place, (numbers, count) in enumerate(zip(pieces, counts, strict=True)):
            left = self.budget - int(self.budget * _LAST_PASS) - self.expanded
            if count and left < 1:
                self.ended = "budget"
                return
            if count and self._is_late():
                return
            if count:
                words = f"piece {place + 1} of {len(pieces)}"
                share = count / (total - done)
                told = self._told(words, done / total, (done + count) / total)
                self._search_piece(place, numbers, max(1, int(left * share)), share, told)
            done += count

    def search_across(self) -> None:
        """Makes rewrites of more than one piece, and what they let others do, while they pay."""
        left = min(self.budget - self.expanded, max(1, int(self.budget * _LAST_PASS)))
        if left < 1 or self._is_late():
            return
        before = self.now
        if not any(self._spans(match) for _, match in places(before.graph, self.rules)):
            return
        found = search(
            before.graph,
            self.rules,
            self.costs,
            self.complete,
            alpha=1.0,
            budget=left,
            time_limit_s=self._left_s(),
            clock=self.clock,
            progress=self._told("across the cuts", 1.0, 1.0),
            keep=self.keep,
            only=self._spans,
        )
        self._count(found)
        self._costlier += found.costlier
        self._joined += [
            replace(each, history=before.history + each.history)
            for each in reversed(found.candidates)
        ]
        if found.candidates:
            self.now = self._joined[-1]

    def _spans(self, match: Match) -> bool:
        homes = self._homes(match)
        return len(homes) > 1 or _NO_PIECE in homes

    def _homes(self, match: Match) -> set[int]:
        """The pieces that the operators of a match are of."""
        nodes = self.original.graph.nodes
        numbers = (n for n in match.numbers if n not in nodes or nodes[n].op != INPUT)
        return {self._home.get(number, _NO_PIECE) for number in numbers}

    def _is_late(self) -> bool:
        if self.deadline is None or self.clock() < self.deadline:
            return False
        self.ended = "time"
        return True

    def _left_s(self) -> float | None:
        return None if self.deadline is None else self.deadline - self.clock()

    def _told(self, words: str, begin: float, end: float) -> Progress | None:
        progress = self.progress
        if progress is None:
            return None
        return lambda part, said: progress(
            (begin + part * (end - begin)) * (1.0 - _LAST_PASS), f"{words}: {said}"
        )

    def _search_piece(
        self, place: int, numbers: Sequence[int], budget: int, share: float, told: Progress | None
    ) -> None:
        whole = self.now
        present = tuple(number for number in numbers if number in whole.graph.nodes)
        piece = piece_of(whole.graph, present, whole.graph.next_number)
        around = self._around(piece.graph)
        left_s = self._left_s()
        found = search(
            piece.graph,
            self.rules,
            self.costs,
            self.complete,
            alpha=self.alpha,
            budget=budget,
            time_limit_s=None if left_s is None else left_s * share,
            clock=self.clock,
            progress=told,
            keep=self.keep,
            around=around,
        )
        self._count(found)
        part = found.original.cost
        self._costlier += [
            replace(
                each,
                cost_before=cost_of_whole(whole.cost, part, each.cost_before),
                cost_after=cost_of_whole(whole.cost, part, each.cost_after),
            )
            for each in found.costlier
        ]
        if found.candidates:
            self._join(place, piece, found.best.history)

    def _around(self, piece: Graph) -> Around:
        """What all but a piece costs and touches."""
        whole = self.now.cost
        touched_bytes = max(0, whole.traffic_bytes - self.costs.cost(piece).traffic_bytes)
        cost = self.costs.cost(piece, around_bytes=touched_bytes)
        return Around(total_s=max(0.0, whole.total_s - cost.total_s), touched_bytes=touched_bytes)

    def _count(self, found: Found) -> None:
        statistics = found.statistics
        self.expanded += statistics.expanded
        self.evaluated += statistics.evaluated
        self.duplicates += statistics.duplicates
        self.pruned += statistics.pruned
        if self.ended == "exhausted" or statistics.ended == "time":
            self.ended = statistics.ended
        for refusal in found.refused:
            if (refusal.rule, refusal.match) not in self.refused_places:
                self.refusals.keep(replace(refusal, steps=refusal.steps + len(self.now.history)))

    def _join(self, place: int, piece: Piece, history: Sequence[Application]) -> None:
        """Makes in the whole what was found for a piece, as far as it pays there."""
        joining = Joining(
            rules={rule.name: rule for rule in self.rules},
            costs=self.costs,
            complete=self.complete,
        )
        found = joining.joined(self.now, piece, history)
        if found is None:
            return
        made = found.history[len(self.now.history) :]
        if found.cost.total_s < self.now.cost.total_s:
            self._home.update((number, place) for each in made for number in each.added)
            self._joined.append(found)
            self.now = found
        else:
            self._costlier += [replace(each, cost_after=found.cost) for each in made[-1:]]
