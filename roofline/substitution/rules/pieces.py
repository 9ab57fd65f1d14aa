"""Views of a part of a tensor along one dimension: which part of what."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from roofline.substitution.graphs.graph import Graph, Value
from roofline.substitution.graphs.weights import Weight

_SPLITS = frozenset({"aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split"})
_CUTS = frozenset({"aten.slice", "aten.narrow"})
VIEWS_OF_PIECES = _SPLITS | _CUTS
"""Operators that give pieces of what they take."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a tensor: `length` elements from `start` on along dimension `dim` (0 or more).

    ``is_one`` says that it has that dimension no more (``aten.select``, ``aten.unbind``).
    """

    of: Value | Weight
    dim: int
    start: int
    length: int
    is_one: bool = False


def piece(graph: Graph, value: Value | Weight) -> Piece | None:
    """What a value is a part of; None: of nothing."""
    if isinstance(value, Weight):
        return None
    node = graph.nodes[value.node]
    of = node.get("self")
    if not isinstance(of, (Value, Weight)) or "dim" not in dict(node.arguments):
        return None
    whole = graph.type_of(of)
    if not isinstance(node["dim"], int) or not whole.shape:
        return None
    dim = node["dim"] % len(whole.shape)
    size = whole.shape[dim]
    if node.op in _SPLITS:
        lengths = [each.shape[dim] for each in node.outputs if each is not None]
        start = sum(lengths[: value.output])
        return Piece(of, dim, start, lengths[value.output])
    if node.op in _CUTS and node.get("step", 1) == 1:
        start: Any = node["start"] or 0
        if not isinstance(start, int):
            return None
        start = max(0, start + size if start < 0 else start)
        return Piece(of, dim, min(start, size), graph.type_of(value).shape[dim])
    if node.op == "aten.select":
        return Piece(of, dim, node["index"] % size, 1, is_one=True)
    if node.op == "aten.unbind":
        return Piece(of, dim, value.output, 1, is_one=True)
    return None


def bounds_of(lengths: list[int]) -> list[int]:
    """Where pieces that lie one behind the other begin, and where the last one ends."""
    return list(accumulate(lengths, initial=0))
