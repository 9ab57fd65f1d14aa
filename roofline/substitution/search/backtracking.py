"""Algorithm 1 of MetaFlow: a search by cost that lets graphs in that are a little worse.

Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions", SysML 2019. Many rewrites
of a model have nothing to do with each other, and each subset of them is a graph. Two things keep
these away and take nothing from what is found: rewrites that do not cost more are also made one
after the other at once, and the same rewrites in another order are known without being made again.
Two more leave graphs out that would lead nowhere new, unless the search is to be thorough:

* A graph is passed over where another has the same rewrites and more, costs no more, and leaves
  everything possible that was.
* After a rewrite that costs more, others are made near it only, until it has paid: far from it
  they are made without it, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real

from roofline.errors import InputError, argument
from roofline.foundation.progress import Progress
from roofline.substitution.costs.cost import Costs
from roofline.substitution.graphs.editing import Complete
from roofline.substitution.graphs.graph import Graph
from roofline.substitution.result import SearchStatistics
from roofline.substitution.rules.rule import Match, Rule
from roofline.substitution.search.exploration import Around, Exploration
from roofline.substitution.search.found import Candidate, Found

DEFAULT_ALPHA = 1.05
DEFAULT_BUDGET = 300
DEFAULT_KEEP = 8


def search(
    graph: Graph,
    rules: tuple[Rule, ...],
    costs: Costs,
    complete: Complete,
    *,
    alpha: float = DEFAULT_ALPHA,
    budget: int = DEFAULT_BUDGET,
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    progress: Progress | None = None,
    keep: int = DEFAULT_KEEP,
    around: Around | None = None,
    only: Callable[[Match], bool] | None = None,
    is_thorough: bool = False,
) -> Found:
    """Searches for cheaper graphs that compute the same.

    The same arguments give the same result, unless the time limit ends the search.

    Args:
        graph: what the model is, or a piece of it.
        rules: which rewrites to try, in this order.
        costs: what graphs cost.
        complete: gives new nodes their arguments and types.
        alpha: graphs are followed that cost less than `alpha` times the best; at 1 none that costs
            as much as the best.
        budget: how many graphs are looked through for rewrites at most.
        time_limit_s: when to stop with the best so far; looked at before every rewrite.
        clock: gives seconds.
        progress: told how far the search is.
        keep: how many of the cheapest graphs are given at most.
        around: the rest of the model, where the graph is a piece; None: it is all of the model.
        only: says which places may be rewritten; None: all.
        is_thorough: also look through graphs that are not expected to lead to anything new.

    Raises:
        InputError: alpha is below 1, or the budget or `keep` is.
    """
    check(alpha, budget, keep)
    begin = clock()
    running = Exploration(
        rules=rules,
        costs=costs,
        complete=complete,
        alpha=alpha,
        around=around or Around(),
        only=only,
        is_thorough=is_thorough,
        first=graph,
        is_late=lambda: time_limit_s is not None and clock() - begin >= time_limit_s,
    )
    ended = running.run(budget, progress)
    cheaper = sorted(running.cheaper, key=lambda each: each.cost.total_s)
    return Found(
        original=Candidate(graph=graph, cost=running.original.cost),
        candidates=tuple(state.candidate() for state in cheaper[:keep]),
        refused=running.refusals.all(),
        costlier=running.best.costlier(),
        statistics=SearchStatistics(
            expanded=running.expanded,
            evaluated=running.evaluated,
            duplicates=running.duplicates,
            pruned=running.pruned,
            pieces=1,
            seconds=clock() - begin,
            ended=ended,
        ),
    )


def check(alpha: float, budget: int, keep: int) -> None:
    """Checks what a search is asked for.

    Raises:
        InputError: one of them is below 1, or no number.
    """
    if not isinstance(alpha, Real) or isinstance(alpha, bool) or not float(alpha) >= 1.0:
        raise InputError(
            f"{argument('alpha', alpha)}: must be a number from 1 (1: improvements only)"
        )
    for name, count in (("budget", budget), ("keep", keep)):
        # True is a whole number to Python.
        if type(count) is not int or count < 1:
            raise InputError(f"{argument(name, count)}: must be a whole number of graphs from 1")
