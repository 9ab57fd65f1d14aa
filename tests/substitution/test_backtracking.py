"""The search by cost: complete, greedy or relaxed, the same every time, and within its limits."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.errors import InputError
from roofline.substitution.graphs.graph import Editor, Graph, RewriteError, Value
from roofline.substitution.partitioned_search import search_partitions
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search import UNKNOWN_TIME, RestOfModel, SearchResult, search
from tests.substitution.toy_graphs import (
    Builder,
    ToyCosts,
    chain,
    complete,
    dropped,
    fused,
    joined,
    merged,
    random_graph,
    renamed,
)

OPS = ("a", "b", "c")
RULES = (
    renamed("a-to-b", "a", "b"),
    fused("fuse-b-c", "b", "c", "d"),
    dropped("drop-c", "c"),
    joined("join-b", "b"),
)
REST = RestOfModel(total_s=1.0)
"""Alone, a graph without operators costs nothing, and every other infinitely many times that."""

MERGE = merged("merge-b", "b", "bb")
"""What it makes depends on the order of siblings, and that on the order of rewrites before it."""

SECONDS = {"a": 1.0, "b": 1.3, "c": 0.9, "d": 1.2, "bb": 1.9, "split": 0.1}


def every_graph(graph: Graph, rules: tuple[Rule, ...]) -> dict[str, Graph]:
    """All graphs that the rules make of one, by digest: without costs, and without a search."""
    found = {graph.digest: graph}
    waiting = [graph]
    while waiting:
        now = waiting.pop()
        for rule in rules:
            for match in rule.pattern.matches(now):
                if not rule.refuses(now, match):
                    new = rule.applied(now, match, complete)
                    if new.digest not in found:
                        found[new.digest] = new
                        waiting.append(new)
    return found


@pytest.mark.parametrize("rules", [RULES, (*RULES, MERGE)], ids=["plain", "merging"])
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 5))
def test_with_any_alpha_it_meets_every_graph(rules: tuple[Rule, ...], seed: int, size: int) -> None:
    graph = random_graph(seed, size, OPS)
    costs = ToyCosts(SECONDS)

    found = search(
        graph, rules, costs, complete, alpha=math.inf, budget=10**6, rest=REST, is_exhaustive=True
    )

    every = every_graph(graph, rules)
    if MERGE not in rules:
        assert {each.digest for each, _ in costs.calls} == set(every)
        assert found.statistics.evaluated == len(every) - 1
        assert found.statistics.expanded == len(every)
    assert found.statistics.ended == "exhausted"
    cheapest_s = min(ToyCosts(SECONDS).cost(each).total_s for each in every.values())
    assert found.best.cost.total_s == pytest.approx(cheapest_s, rel=1e-12)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 6))
def test_histories_lead_from_the_original_to_each_graph(seed: int, size: int) -> None:
    graph = random_graph(seed, size, OPS)
    rules = (*RULES, MERGE)
    named = {rule.name: rule for rule in rules}

    found = search(graph, rules, ToyCosts(SECONDS), complete, alpha=1.5)

    assert len(found.candidates) <= 8
    totals = [each.cost.total_s for each in found.candidates]
    assert totals == sorted(totals) and all(each < found.original.cost.total_s for each in totals)
    for candidate in found.candidates:
        now, cost = graph, found.original.cost
        for made in candidate.history:
            assert made.cost_before == cost
            new = named[made.rule].applied(now, made.match, complete)
            assert set(made.removed) == set(now.nodes) - set(new.nodes)
            assert set(made.added) == set(new.nodes) - set(now.nodes)
            now, cost = new, made.cost_after
        assert now.digest == candidate.graph.digest
        assert cost == candidate.cost == ToyCosts(SECONDS).cost(now)


def uphill() -> tuple[Graph, tuple[Rule, ...], ToyCosts]:
    """Making "a" a "b" costs 0.4 of 10.9 s more; then both "b" become one and save 2.5 s."""
    builder = Builder()
    x = builder.input()
    left, right = builder.op("a", x, path="fire.left"), builder.op("b", x, path="fire.right")
    graph = builder.graph(builder.op("cat", left, right, path="fire.cat"))
    rules = (renamed("enlarge", "a", "b"), merged("merge", "b", "bb"))
    return graph, rules, ToyCosts({"a": 3.0, "b": 3.4, "cat": 4.5, "bb": 4.2, "split": 0.1})


def test_greedy_misses_what_a_step_uphill_finds() -> None:
    graph, rules, costs = uphill()

    greedy = search(graph, rules, costs, complete, alpha=1.0)
    relaxed = search(graph, rules, costs, complete, alpha=1.05)

    assert greedy.candidates == () and greedy.best is greedy.original
    (rejected,) = greedy.costlier
    assert (rejected.rule, rejected.where) == ("enlarge", "fire.left")
    assert rejected.cost_before.total_s == pytest.approx(10.9)
    assert rejected.cost_after.total_s == pytest.approx(11.3)
    assert [each.rule for each in relaxed.best.history] == ["enlarge", "merge"]
    assert relaxed.best.cost.total_s == pytest.approx(8.8)
    assert relaxed.best.history[1].where == "fire.{right, left}"
    assert relaxed.costlier == ()  # What was made is not told as rejected, too.


@pytest.mark.parametrize(("alpha", "rules_made"), [(1.036, 0), (1.037, 2)])
def test_alpha_is_the_limit_of_a_step_uphill(alpha: float, rules_made: int) -> None:
    graph, rules, costs = uphill()  # 11.3 / 10.9 = 1.0367

    found = search(graph, rules, costs, complete, alpha=alpha)

    assert len(found.best.history) == rules_made


def test_alpha_counts_what_the_rest_of_the_model_costs() -> None:
    graph, rules, costs = uphill()

    found = search(
        graph, rules, costs, complete, alpha=1.01, rest=RestOfModel(total_s=30.0, touched_bytes=7)
    )

    assert len(found.best.history) == 2  # 41.3 / 40.9 = 1.0098
    assert {rest_bytes for _, rest_bytes in costs.calls} == {7}


@pytest.mark.parametrize(
    ("ops", "rules", "seconds", "alpha", "made"),
    [
        # Greedy does not follow what costs as much.
        ("a", (renamed("same", "a", "b"), renamed("pays", "b", "c")), (2, 2, 1), 1.0, []),
        (
            *("a", (renamed("same", "a", "b"), renamed("pays", "b", "c")), (2, 2, 1), 1.01),
            ["same", "pays"],
        ),
        # Of overlapping rewrites the better is made.
        (
            *("abc", (fused("first", "a", "b", "d"), fused("second", "b", "c", "e"))),
            *((1, 1, 1, 1.5, 1.2), 1.0, ["second"]),
        ),
        # Without "c" less is left to do, but what "b" and "c" become together costs less still.
        (
            "bc",
            (dropped("drop", "c"), fused("fuse", "b", "c", "d"), renamed("finish", "d", "e")),
            *((1, 1, 1, 1.1, 0.5), 1.2, ["fuse", "finish"]),
        ),
    ],
    ids=["as much", "as much, relaxed", "overlapping", "hindering"],
)
def test_what_is_made_of_a_chain(
    ops: str, rules: tuple[Rule, ...], seconds: tuple[float, ...], alpha: float, made: list[str]
) -> None:
    costs = ToyCosts(dict(zip("abcde", seconds, strict=False)))
    found = search(chain(*ops), rules, costs, complete, alpha=alpha)
    assert [each.rule for each in found.best.history] == made
    assert bool(found.candidates) is bool(made)


def test_greedy_makes_everything_that_pays() -> None:
    graph = chain(*["keep", "a"] * 20)

    found = search(graph, (dropped("drop", "a"),), ToyCosts({}), complete, alpha=1.0)

    assert found.best.cost.total_s == 20.0
    # Each alone, and each once more when they are made together: not one graph for each subset.
    assert found.statistics.evaluated == 20 + 19
    assert found.statistics.expanded == 2
    assert found.statistics.ended == "exhausted"


def enabling(count: int) -> tuple[Graph, tuple[Rule, ...], ToyCosts]:
    """Blocks in which two rewrites that save nothing let a third one pay."""
    builder = Builder()
    value = builder.input()
    for place in range(count):
        left, right = builder.op("a", value), builder.op("a", value, path=f"right{place}")
        value = builder.op("add", builder.op("norm", left), builder.op("norm", right))
    rules = (fused("fold", "a", "norm", "b"), merged("merge", "b", "bb"))
    return builder.graph(value), rules, ToyCosts({"norm": 0.0, "split": 0.0})


@pytest.mark.parametrize("alpha", [1.01, 1.05, 2.0])
def test_what_saves_nothing_but_lets_others_pay_needs_no_graph_for_each_subset(
    alpha: float,
) -> None:
    graph, rules, costs = enabling(20)

    found = search(graph, rules, costs, complete, alpha=alpha)

    assert found.original.cost.total_s == 60.0
    assert found.best.cost.total_s == 40.0
    assert found.statistics.ended == "exhausted"
    # As it is, all folded, all merged; and nothing of the two to the power of forty between.
    assert found.statistics.expanded == 3
    assert found.statistics.evaluated <= 4 * 40


def test_two_steps_uphill_that_need_each_other_are_made() -> None:
    """Both branches must be enlarged before they can be merged: as 1x3 and 3x1 to 3x3."""
    builder = Builder()
    x = builder.input()
    branches = builder.op("relu", builder.op("a", x)), builder.op("relu", builder.op("a", x))
    graph = builder.graph(builder.op("cat", *branches))
    rules = (renamed("enlarge", "a", "b"), merged("merge", "b", "bb"))
    costs = ToyCosts({"a": 2.0, "b": 2.1, "bb": 2.2, "cat": 4.0, "split": 0.0})

    found = search(graph, rules, costs, complete, alpha=1.05)

    assert [each.rule for each in found.best.history] == ["enlarge", "enlarge", "merge"]


def test_steps_uphill_far_from_each_other_are_not_combined() -> None:
    graph = chain(*["a", *["relu"] * 8] * 12)
    rules = (renamed("enlarge", "a", "b"),)
    costs = ToyCosts({"b": 1.01})

    found = search(graph, rules, costs, complete, alpha=1.05, budget=10**6)

    assert found.statistics.ended == "exhausted"
    assert found.statistics.evaluated == 12
    thorough = search(graph, rules, costs, complete, alpha=1.05, budget=40, is_exhaustive=True)
    assert thorough.statistics.ended == "budget"
    # The same graph by two ways is a duplicate.
    builder = Builder()
    x = builder.input()
    both = builder.graph(builder.op("a", x), builder.op("a", x, mark=1))
    found = search(both, (renamed("a-to-b", "a", "b"),), ToyCosts({"b": 1.1}), complete, alpha=2.0)
    assert (found.statistics.evaluated, found.statistics.duplicates) == (3, 1)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 7))
def test_what_is_passed_over_takes_nothing_from_what_is_found(seed: int, size: int) -> None:
    """Rules that keep out of each other's way, or enable each other."""
    graph = random_graph(seed, size, ("a", "b", "identity"))
    rules = (dropped("drop", "identity"), renamed("enlarge", "a", "b"), merged("merge", "b", "bb"))
    costs = ToyCosts({"a": 1.0, "b": 1.1, "bb": 1.2, "identity": 0.1, "split": 0.0})

    quick = search(graph, rules, costs, complete, alpha=1.3, rest=REST)
    thorough = search(
        graph, rules, costs, complete, alpha=1.3, rest=REST, budget=10**6, is_exhaustive=True
    )

    assert quick.best.cost.total_s == pytest.approx(thorough.best.cost.total_s, rel=1e-12)
    assert quick.statistics.expanded <= thorough.statistics.expanded


def test_a_rewrite_of_the_same_node_can_be_made_again() -> None:
    graph = chain(*["skip"] * 3, "end")

    def rewrite(editor: Editor, match: Match) -> None:
        before = editor.graph.nodes[match["node"]]["a0"]
        editor.replace(before, editor.node(before.node)["a0"])

    def refuses(graph: Graph, match: Match) -> str:
        taken = graph.nodes[graph.nodes[match["node"]]["a0"].node].op
        return "" if taken == "skip" else "nothing to skip"

    rule = replace(dropped("skip-before", "end"), refuses=refuses, rewrite=rewrite)
    found = search(graph, (rule,), ToyCosts({}), complete, alpha=1.0)

    assert [node.op for node in found.best.graph.nodes.values()] == ["input", "end"]
    assert [each.reason for each in found.refused] == ["nothing to skip"]


def test_refused_places_are_told_once_with_the_reason() -> None:
    builder = Builder()
    x = builder.input()
    between = builder.op("b", x, path="block.conv")
    ends = builder.op("c", between, path="block.norm"), builder.op("a", between), builder.op("a", x)
    graph = builder.graph(*ends)
    rules = (fused("fuse", "b", "c", "d"), renamed("other", "a", "e"))

    found = search(graph, rules, ToyCosts({"e": 0.9}), complete)

    (refusal,) = found.refused
    assert (refusal.rule, refusal.where) == ("fuse", "block.{conv, norm}")
    assert refusal.reason == "something else uses the value between"


def test_a_rewrite_that_cannot_be_made_is_refused_in_its_words() -> None:
    def rewrite(editor: Editor, match: Match) -> None:
        raise RewriteError("the kernels do not fit")

    rule = replace(renamed("bad", "a", "b"), rewrite=rewrite)
    builder = Builder()
    graph = builder.graph(builder.op("a", builder.input(), path="one\x1b[31m"))

    found = search(graph, (rule,), ToyCosts({}), complete)

    assert [each.reason for each in found.refused] == ["the kernels do not fit"]
    assert found.refused[0].where == r"one\x1b[31m"
    assert found.candidates == () and found.statistics.evaluated == 0


def test_a_rewrite_of_an_operator_of_unknown_time_is_refused() -> None:
    builder = Builder()
    x = builder.input()
    graph = builder.graph(builder.op("a", builder.op("custom", x)))
    rules = (dropped("drop-custom", "custom"), renamed("a-to-custom", "a", "custom"))
    costs = ToyCosts({"a": 5.0}, unknown=frozenset({"custom"}))

    found = search(graph, rules, costs, complete)

    assert found.candidates == ()
    assert [(each.rule, each.reason) for each in found.refused] == [
        ("drop-custom", UNKNOWN_TIME),
        ("a-to-custom", UNKNOWN_TIME),
    ]


def test_an_error_in_a_rule_is_not_hidden() -> None:
    def rewrite(editor: Editor, match: Match) -> None:
        editor.node(match["node"])["no such argument"]

    rule = replace(renamed("wrong", "a", "b"), rewrite=rewrite)
    with pytest.raises(KeyError, match="no such argument"):
        search(chain("a"), (rule,), ToyCosts({}), complete)


@pytest.mark.parametrize("budget", [1, 2, 5, 17])
def test_the_budget_is_how_many_graphs_are_looked_through(budget: int) -> None:
    graph = random_graph(3, 8, OPS)
    said: list[tuple[float, str]] = []

    found = search(
        graph,
        RULES,
        ToyCosts(SECONDS),
        complete,
        alpha=math.inf,
        budget=budget,
        is_exhaustive=True,
        progress=lambda fraction, words: said.append((fraction, words)),
    )

    assert found.statistics.expanded == budget
    assert found.statistics.ended == "budget"
    assert [fraction for fraction, _ in said] == [place / budget for place in range(budget)]
    assert said[0][1].startswith("0 graphs, best ")

    def interrupted(_fraction: float, _words: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(graph, RULES, ToyCosts({}), complete, progress=interrupted)


def test_the_time_limit_holds_between_two_rewrites() -> None:
    now = [0.0]

    def cost_takes_a_second() -> None:
        now[0] += 1.0

    found = search(
        random_graph(3, 8, OPS),
        RULES,
        ToyCosts(SECONDS, after=cost_takes_a_second),
        complete,
        alpha=math.inf,
        time_limit_s=5.0,
        clock=lambda: now[0],
    )

    assert found.statistics.ended == "time"
    assert found.statistics.seconds == 5.0
    assert found.statistics.evaluated == 4  # The first second is that of the original.
    assert found.statistics.expanded == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"alpha": alpha}, "must be a number from 1") for alpha in (0.99, 0.0, -1.0, math.nan)),
        *(({"budget": each}, "must be a whole number of graphs from 1") for each in (0, -3, True)),
    ],
)
def test_what_is_no_search(options: dict[str, Any], said: str) -> None:
    for searching in (search, search_partitions):
        with pytest.raises(InputError, match=said):
            searching(random_graph(1, 3, OPS), RULES, ToyCosts({}), complete, **options)


def said_of(found: SearchResult) -> str:
    """All that a search found, in words that two processes can compare."""
    lines = [f"{found.statistics.evaluated} {found.statistics.duplicates}"]
    for candidate in found.candidates:
        lines.append(f"{candidate.graph.digest} {candidate.cost}")
        lines += [f"  {each.rule} {each.match} {each.where}" for each in candidate.history]
    lines += [f"{each.rule} {each.where} {each.cost_after}" for each in found.costlier]
    lines += [f"{each.rule} {each.match} {each.reason}" for each in found.refused]
    return "\n".join(lines)


def print_search() -> None:
    """Prints what a search finds, for another process to compare."""
    graph = random_graph(11, 9, OPS)
    print(said_of(search(graph, RULES, ToyCosts(SECONDS), complete, alpha=1.2, budget=60)))


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_same_search_finds_the_same_in_any_process(
    seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_search()
    here = capsys.readouterr().out
    root = Path(__file__).parents[2]
    code = "from tests.substitution.test_backtracking import print_search; print_search()"
    there = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "a-to-b" in here and len(here.splitlines()) > 10
    assert there.stdout == here


def test_what_is_replaced_is_there_for_later_stages() -> None:
    graph = chain("b", "c")

    found = search(graph, (fused("fuse", "b", "c", "d"),), ToyCosts({}), complete)

    (made,) = found.best.history
    assert made.removed == (1, 2)
    assert made.added == (graph.next_number,)
    assert found.best.graph.outputs == (Value(graph.next_number),)
