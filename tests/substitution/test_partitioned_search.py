"""Large graphs searched piece by piece: what a whole search finds, with less work."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.substitution.costs import Cost
from roofline.substitution.graphs.graph import INPUT, Editor, Graph, RewriteError, Value
from roofline.substitution.partitioned_search import search_partitions
from roofline.substitution.rules.rule import Chain, Match, Rule, Step
from roofline.substitution.search import search
from tests.substitution.toy_graphs import (
    Builder,
    ToyCosts,
    accept,
    chain,
    complete,
    dropped,
    fused,
    merged,
    random_graph,
    renamed,
)

RULES = (
    dropped("drop-identity", "identity"),
    fused("fold", "conv", "norm", "conv"),
    merged("merge", "small", "wide"),
)
SECONDS = {"identity": 0.1, "wide": 1.2, "split": 0.0}


def blocks(count: int, *, more: int = 3) -> Graph:
    """Blocks of seven operators and more; in each three rewrites pay, each without the others."""
    builder = Builder()
    value = builder.input()
    for place in range(count):
        path = f"block{place}"
        value = builder.op("conv", value, path=f"{path}.conv", number=place)
        value = builder.op("norm", value, path=f"{path}.norm")
        value = builder.op("relu", value)
        value = builder.op("identity", value, path=f"{path}.drop")
        left = builder.op("small", value, path=f"{path}.left")
        right = builder.op("small", value, path=f"{path}.right")
        value = builder.op("add", left, right)
        for _ in range(more):
            value = builder.op("relu", value)
    return builder.graph(value)


@pytest.mark.parametrize("threshold", [7, 10, 25, 60])
@pytest.mark.parametrize("alpha", [1.0, 1.05])
def test_split_and_unsplit_agree(threshold: int, alpha: float) -> None:
    graph = blocks(6)

    whole = search(graph, RULES, ToyCosts(SECONDS), complete, alpha=alpha, budget=2000)
    parts = search_partitions(
        graph, RULES, ToyCosts(SECONDS), complete, threshold=threshold, alpha=alpha, budget=2000
    )

    assert parts.best.graph.digest == whole.best.graph.digest
    assert parts.best.cost.total_s == pytest.approx(60 - 6 * (1 + 0.8 + 0.1) - 6 * 0.9)
    assert len(parts.best.history) == len(whole.best.history) == 18
    # A graph that is no larger than a piece is searched as a whole.
    assert (parts.statistics.pieces > 1) is (threshold < 60)


def assert_about_equal(one: Cost, other: Cost) -> None:
    """Seconds are added up in another order."""
    assert one.total_s == pytest.approx(other.total_s, rel=1e-12)
    assert replace(one, total_s=0.0) == replace(other, total_s=0.0)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), size=st.integers(8, 30), threshold=st.integers(3, 12))
def test_histories_lead_from_the_original_to_each_graph(
    seed: int, size: int, threshold: int
) -> None:
    graph = random_graph(seed, size, ("identity", "conv", "norm", "small"))
    named = {rule.name: rule for rule in RULES}

    found = search_partitions(graph, RULES, ToyCosts(SECONDS), complete, threshold=threshold)

    for candidate in found.candidates:
        now = graph
        for made in candidate.history:
            now = replace(now, next_number=max((now.next_number, *made.added[:1])))
            new = named[made.rule].applied(now, made.match, complete)
            assert set(made.removed) == set(now.nodes) - set(new.nodes)
            assert len(made.added) == len(set(new.nodes) - set(now.nodes))
            now = new
            # What nobody needs any more in other pieces goes, too: the piece does not see that.
            assert ToyCosts(SECONDS).cost(now).total_s <= made.cost_after.total_s + 1e-9
        assert now.digest == candidate.graph.digest
        cost = ToyCosts(SECONDS).cost(now)
        assert_about_equal(cost, candidate.cost)
        assert cost.total_s < found.original.cost.total_s


def test_a_rewrite_across_a_cut_is_made_at_last() -> None:
    """Every pair of neighbors is a match: one is lost wherever it is cut."""
    graph = chain(*["conv", "norm"] * 4)
    rule = fused("fold", "conv", "norm", "folded")

    found = search_partitions(graph, (rule,), ToyCosts({}), complete, threshold=1)

    assert found.statistics.pieces == 8
    assert found.best.cost.total_s == 4.0
    made = [each.match.numbers for each in found.best.history]
    assert made == [(1, 2), (3, 4), (5, 6), (7, 8)]


def test_alpha_is_relative_to_the_whole_model() -> None:
    """A step up of 0.4 s: 4 % of the piece that it is in, 0.7 % of the model."""
    builder = Builder()
    value = builder.input()
    for place in range(10):
        left = builder.op("narrow", value, path=f"fire{place}.left")
        right = builder.op("small", value, path=f"fire{place}.right")
        value = builder.op("cat", left, right, path=f"fire{place}.cat")
    graph = builder.graph(value)
    rules = (renamed("enlarge", "narrow", "small"), merged("merge", "small", "wide"))
    costs = ToyCosts({"narrow": 1.6, "small": 2.0, "wide": 2.2, "split": 0.0, "cat": 2.0})

    found = search_partitions(graph, rules, costs, complete, threshold=6, alpha=1.02)

    assert found.statistics.pieces > 4
    # 56 s in ten blocks; each step saves 1.4 s, so that the last are relative to less: 43.4 s.
    assert found.best.cost.total_s == pytest.approx(42.0)
    alone = search(graph, rules, costs, complete, alpha=1.005)
    assert alone.candidates == ()


def test_pieces_are_told_what_the_rest_touches() -> None:
    graph = blocks(3)
    costs = ToyCosts(SECONDS)

    search_partitions(graph, RULES, costs, complete, threshold=10)

    around = {
        rest_bytes
        for piece, rest_bytes in costs.calls
        if rest_bytes and sum(node.op != INPUT for node in piece.nodes.values()) == 10
    }
    # Of 30 operators 20 are elsewhere, fewer once some of them are gone; 16 byte each.
    assert max(around) == 20 * 16
    assert all(14 * 16 <= each <= 20 * 16 for each in around)


def test_of_thousands_of_operators_every_piece_is_searched() -> None:
    graph = blocks(100, more=23)
    costs = ToyCosts(SECONDS)
    said: list[float] = []

    found = search_partitions(
        graph,
        RULES,
        costs,
        complete,
        alpha=1.0,
        budget=300,
        progress=lambda part, _words: said.append(part),
    )

    assert sum(node.op != INPUT for node in graph.nodes.values()) == 3000
    assert len(found.best.history) == 300
    assert found.statistics.ended == "exhausted"
    assert found.statistics.expanded <= 300
    assert said == sorted(said) and said[0] == 0.0 and said[-1] <= 1.0
    # Graphs of the size of pieces are looked at, and the whole little more than once for each.
    large = sum(len(each.nodes) > 130 for each, _ in costs.calls)
    assert large <= 2 * found.statistics.pieces


@pytest.mark.parametrize("budget", [1, 2, 3, 9])
def test_the_budget_is_that_of_all_pieces_together(budget: int) -> None:
    found = search_partitions(
        blocks(8), RULES, ToyCosts(SECONDS), complete, threshold=10, budget=budget, alpha=2.0
    )

    assert found.statistics.expanded <= budget
    assert found.statistics.ended == "budget"
    assert found.candidates


def test_the_time_limit_is_that_of_all_pieces_together() -> None:
    now = [0.0]

    def cost_takes_a_second() -> None:
        now[0] += 1.0

    costs = ToyCosts(SECONDS, after=cost_takes_a_second)
    found = search_partitions(
        blocks(20),
        RULES,
        costs,
        complete,
        threshold=10,
        alpha=math.inf,
        budget=10**6,
        time_limit_s=100.0,
        clock=lambda: now[0],
    )

    assert found.statistics.ended == "time"
    # Made in the whole once more: as many graphs as one piece has rewrites.
    assert 90.0 <= found.statistics.seconds <= 110.0
    assert found.candidates


def test_what_refuses_in_the_whole_is_not_made() -> None:
    """The precondition sees who else takes a weight: a piece has not all of them."""

    def refuses(graph: Graph, match: Match) -> str:
        return "too large" if len(graph.nodes) > 20 and match["node"] > 20 else ""

    rule = replace(dropped("drop", "identity"), refuses=refuses)

    found = search_partitions(blocks(4), (rule,), ToyCosts({}), complete, threshold=10)

    assert len(found.best.history) == 2
    assert [each.reason for each in found.refused] == ["too large"] * 2


def test_a_rewrite_that_fails_in_the_whole_is_not_made() -> None:
    base = dropped("drop", "identity")

    def rewrite(editor: Editor, match: Match) -> None:
        if len(editor.graph.nodes) > 20:
            raise RewriteError("does not fit")
        base.rewrite(editor, match)

    rule = replace(base, rewrite=rewrite)

    assert not search_partitions(
        blocks(4), (rule,), ToyCosts({}), complete, threshold=10
    ).candidates


def test_what_pays_in_a_piece_only_is_not_made() -> None:
    class Alone(ToyCosts):
        def cost(self, graph: Graph, /, *, rest_bytes: int = 0) -> Cost:
            cost = super().cost(graph, rest_bytes=rest_bytes)
            whole_s = 100.0 if len(graph.nodes) > 20 else 0.0
            return replace(cost, total_s=abs(whole_s - cost.total_s))

    found = search_partitions(
        blocks(4), (dropped("drop", "identity"),), Alone({}), complete, threshold=10
    )

    assert found.candidates == ()
    assert {each.where for each in found.costlier} == {f"block{place}.drop" for place in range(4)}
    assert all(each.cost_after.total_s > each.cost_before.total_s for each in found.costlier)


def test_what_does_not_pay_is_told_with_costs_of_the_whole() -> None:
    rules = (renamed("slower", "identity", "slow"), dropped("drop", "missing"))

    found = search_partitions(
        blocks(3), rules, ToyCosts({"identity": 1.0, "slow": 3.0}), complete, threshold=10
    )

    assert found.candidates == () and found.best is found.original
    assert [each.where for each in found.costlier] == [f"block{n}.drop" for n in range(3)]
    for each in found.costlier:
        assert_about_equal(each.cost_before, found.original.cost)
        assert each.cost_after.total_s == pytest.approx(32.0)
        assert each.cost_after.launches == each.cost_before.launches == 30


def test_a_match_may_name_what_another_piece_gives() -> None:
    """A rule whose match has the node before, too: in a piece that is a stand-in."""

    def rewrite(editor: Editor, match: Match) -> None:
        editor.replace(Value(match["drop"]), Value(match["before"]))

    drop = Step(role="drop", ops=frozenset({"identity"}), after="before")
    before = Step(role="before", ops=frozenset({"conv", "identity", INPUT}))
    rule = Rule(
        name="drop",
        summary="",
        pattern=Chain(steps=(before, drop)),
        refuses=accept,
        rewrite=rewrite,
    )
    graph = chain("conv", *["identity"] * 6, "end")

    found = search_partitions(graph, (rule,), ToyCosts({}), complete, threshold=2)

    assert found.statistics.pieces >= 4
    assert [node.op for node in found.best.graph.nodes.values()] == ["input", "conv", "end"]


def test_the_same_pieces_find_the_same() -> None:
    graph = random_graph(5, 60, ("identity", "conv", "norm", "small"))
    one, other = (
        search_partitions(graph, RULES, ToyCosts(SECONDS), complete, threshold=9) for _ in range(2)
    )

    assert one.best.history == other.best.history != ()
    assert one.costlier == other.costlier and one.refused == other.refused
    assert one.best.graph.digest == other.best.graph.digest
