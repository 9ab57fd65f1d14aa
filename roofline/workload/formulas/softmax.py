"""Softmax along one dimension, whole or with what a mask leaves of it."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.pointwise import TRANSCENDENTAL_FLOP, elementwise
from roofline.workload.formulas.reduction import rows_along
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _softmax(arguments: dict[str, Any], output: TensorSpec, dim: int) -> tuple[Flop, int]:
    """The FLOP that both kinds share, and the number of rows.

    An element: a comparison, a subtraction, an exponential, an addition, a division or subtraction;
    a row of n has n - 1 comparisons and n - 1 additions.
    """
    rows = rows_along(output, dim)
    each = elementwise(arguments, output, 4, 1)
    return Flop(other=each.flop - 2 * rows, least=each.min_flop - 2 * rows), rows


@formula("aten._softmax", "aten.softmax", "aten._safe_softmax")
def softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """exp(x - max) / sum: comparison, subtraction, exponential, addition, division."""
    return _softmax(arguments, output, dim)[0]


@formula("aten._masked_softmax")
def masked_softmax(output: TensorSpec, dim: int | None = None, **arguments: Any) -> Flop:
    """Softmax of what a boolean mask leaves; how much that is cannot be known from shapes."""
    whole = _softmax(arguments, output, -1 if dim is None else dim)[0]
    return Flop(other=whole.flop, least=0)


@formula("aten._log_softmax", "aten.log_softmax")
def log_softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """As softmax, with one logarithm a row, and its subtraction instead of the division."""
    each, rows = _softmax(arguments, output, dim)
    return Flop(other=each.flop + rows * TRANSCENDENTAL_FLOP, least=each.min_flop + rows)
