"""What a cost is, and what gives one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from roofline.substitution.graphs.graph import Graph

CostBasis = Literal["bound", "predicted", "measured"]
"""What seconds are: bounds and launches, predictions from a calibration, or the sum of operators'
measured times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one pass of a graph costs.

    ``total_s`` is the sum over operators whose time is known; ``unknown`` are the others, sorted,
    each as often as it is called: two costs can be compared only where these are equal.
    ``launches`` are kernels that are called, ``traffic_bytes`` what they move, ``flop`` what they
    compute, None where one of them has no formula. ``eager_min_time_s`` is the part of ``total_s``
    that the roofline bounds from below, without launches; None where seconds are no bounds.
    """

    total_s: float
    launches: int
    traffic_bytes: int
    flop: int | None
    unknown: tuple[str, ...] = ()
    eager_min_time_s: float | None = None

    def is_comparable(self, other: Cost) -> bool:
        """Whether both leave out the same operators."""
        return self.unknown == other.unknown


class Costs(Protocol):
    """Gives graphs their costs, the same graph always the same."""

    @property
    def basis(self) -> CostBasis:
        """What its seconds are."""
        ...

    def cost(self, graph: Graph, /, *, around_bytes: int = 0) -> Cost:
        """The cost of one pass.

        Args:
            graph: a model, or a piece of one.
            around_bytes: what the rest of the model touches between two passes of a piece; 0: the
                graph is all of the model.
        """
        ...
