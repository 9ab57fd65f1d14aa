"""What a cost sees of a graph: its operators as a capture records them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from roofline.substitution.graphs.graph import Graph
from roofline.workload.operators import OperatorRecord, State

if TYPE_CHECKING:
    from roofline.latency.measuring.calls import Call


class Counted(Protocol):
    """The operators of a graph: `roofline.substitution.graphs.counting.Counted`.

    ``node_of`` are the nodes that they come from, ``calls`` how each can be called on its own, None
    for those that cannot be. Of a piece of a model the last record stands for the rest of it.
    """

    @property
    def records(self) -> tuple[OperatorRecord, ...]:
        """In the order in which they run."""
        ...

    @property
    def node_of(self) -> tuple[int, ...]:
        """One for each record."""
        ...

    @property
    def calls(self) -> tuple[Call | None, ...]:
        """One for each record."""
        ...


class CountGraph(Protocol):
    """Counts graphs, without running anything."""

    def __call__(self, graph: Graph, /, *, around_bytes: int = 0) -> Counted:
        """The operators of a graph, and with `around_bytes` a last one that touches so much."""
        ...


def own_records(counted: Counted, around_bytes: int) -> tuple[OperatorRecord, ...]:
    """The operators of the graph itself."""
    return counted.records[:-1] if around_bytes else counted.records


def launched(records: Iterable[OperatorRecord]) -> list[OperatorRecord]:
    """Those that do something: views and allocations are free."""
    return [each for each in records if each.state is not State.FREE]


def known_flop(records: Iterable[OperatorRecord]) -> int | None:
    """What they compute; None where one of them has no formula."""
    total = 0
    for each in records:
        if each.work.flop is None:
            return None
        total += each.work.flop
    return total


def repeated(names: Sequence[str]) -> tuple[str, ...]:
    """Sorted, each as often as it is there."""
    return tuple(sorted(Counter(names).elements()))
