"""Matrix products as rules see them: a value times a weight, plus a bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight, contiguous
from roofline.substitution.rules import kernels

PRODUCTS = frozenset({"aten.linear", "aten.matmul", "aten.mm", "aten.addmm"})
"""Products of a value and a matrix."""

LEFT = {
    "aten.linear": "input",
    "aten.matmul": "self",
    "aten.mm": "self",
    "aten.bmm": "self",
    "aten.addmm": "mat1",
}
"""The argument on the left of a product."""

RIGHT = {
    "aten.linear": "weight",
    "aten.matmul": "other",
    "aten.mm": "mat2",
    "aten.bmm": "mat2",
    "aten.addmm": "mat2",
}
"""The argument on the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What node `number` computes: a value [..., K] times a weight, plus a bias.

    ``weight`` is [N, K] where ``has_rows``, as ``aten.linear`` takes it, else [K, N]. ``bias`` is
    [N], or None. ``inside`` is the transposition of the weight where it is a node, else empty.
    """

    number: int
    value: Value
    weight: Weight
    bias: Weight | None
    has_rows: bool
    inside: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """N, how many outputs it has."""
        return self.weight.type.shape[0 if self.has_rows else 1]

    @property
    def rows(self) -> Weight:
        """The weight as [N, K]."""
        return self.weight if self.has_rows else transposed(self.weight)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its nodes."""
        return (*self.inside, self.number)


def product(graph: Graph, number: int) -> Product | None:
    """The product that a node computes; None: of no weight, or with factors before it."""
    node = graph.nodes[number]
    if node.op not in PRODUCTS or node.overload != "default":
        return None
    value = node[LEFT[node.op]]
    found = matrix_of(graph, node)
    if not isinstance(value, Value) or found is None or not graph.type_of(value).shape:
        return None
    weight, has_rows, inside = found
    bias = node.get("bias") if node.op == "aten.linear" else None
    if node.op == "aten.addmm":
        bias = node["self"]
        if node["beta"] != 1 or node["alpha"] != 1:
            return None
    width = weight.type.shape[0 if has_rows else 1]
    if bias is not None and not (isinstance(bias, Weight) and bias.type.shape == (width,)):
        return None
    return Product(
        number=number, value=value, weight=weight, bias=bias, has_rows=has_rows, inside=inside
    )


def matrix_of(graph: Graph, node: Node) -> tuple[Weight, bool, tuple[int, ...]] | None:
    """The weight on the right of a product, a matrix: whether it is [N, K], and what transposes it.

    None: there is something else on the right.
    """
    right = node[RIGHT[node.op]]
    is_linear = node.op == "aten.linear"
    if isinstance(right, Weight):
        return (right, is_linear, ()) if len(right.type.shape) == 2 else None
    if is_linear or not isinstance(right, Value):
        return None
    turning = graph.nodes[right.node]
    weight = turning.get("self")
    if not isinstance(weight, Weight) or len(weight.type.shape) != 2:
        return None
    return (weight, True, (right.node,)) if _transposes(turning) else None


def _transposes(node: Node) -> bool:
    """Whether it swaps the two dimensions of a matrix."""
    if node.op in ("aten.t", "aten.numpy_T"):
        return True
    if node.op in ("aten.transpose", "aten.swapaxes"):
        names = ("dim0", "dim1") if node.op == "aten.transpose" else ("axis0", "axis1")
        return {node[name] % 2 for name in names} == {0, 1}
    return node.op == "aten.permute" and tuple(each % 2 for each in node["dims"]) == (1, 0)


def transposed(weight: Weight) -> Weight:
    """A matrix the other way round."""
    shape = tuple(reversed(weight.type.shape))
    return Weight(
        type=contiguous(shape, weight.type.dtype), made_by="transposed_matrix", of=(weight,)
    )


def side_by_side(weights: Sequence[Weight]) -> Weight:
    """Weights one beside the other along the last dimension: [K, N] and [K, M] give [K, N + M].

    One weight is itself.
    """
    if len(weights) == 1:
        return weights[0]
    shape = (*weights[0].type.shape[:-1], sum(each.type.shape[-1] for each in weights))
    type = contiguous(shape, weights[0].type.dtype)
    return Weight(type=type, made_by="side_by_side", of=tuple(weights))


def stacked(weights: Sequence[Weight]) -> Weight:
    """Weights one below the other; one weight is itself."""
    return weights[0] if len(weights) == 1 else kernels.concatenated(weights)


def biases_of(found: Sequence[Product]) -> Weight | None:
    """The biases of products one behind the other, zeros where one has none; None: none has."""
    if not any(each.bias is not None for each in found):
        return None
    return stacked(
        [each.bias or kernels.zeros(each.width, each.weight.type.dtype) for each in found]
    )


def _transposed(matrix: Tensor) -> Tensor:
    return matrix.t()


def _side_by_side(*matrices: Tensor) -> Tensor:
    return torch.cat(matrices, dim=-1)


CONSTRUCTORS: dict[str, Any] = {
    **kernels.CONSTRUCTORS,
    "transposed_matrix": _transposed,
    "side_by_side": _side_by_side,
}
"""For `Rule.constructors`: those that make the weights above."""
