"""Backward of softmax and its logarithm, from the result."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.pointwise import elementwise
from roofline.workload.formulas.reduction import rows_along
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula("aten._softmax_backward_data", type="softmax")
def softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """y * (g - sum(g * y)): two products, an addition, a subtraction; no addition for a first."""
    each = elementwise(arguments, output, 4)
    rows = rows_along(output, dim)
    return Flop(other=each.flop - rows, least=each.min_flop - rows)


@formula("aten._log_softmax_backward_data", type="softmax")
def log_softmax(output: TensorSpec, dim: int, **arguments: Any) -> Flop:
    """g - exp(y) * sum(g): an addition, an exponential, a product, a subtraction."""
    each = elementwise(arguments, output, 3, 1)
    rows = rows_along(output, dim)
    return Flop(other=each.flop - rows, least=each.min_flop - rows)


@formula("aten._masked_softmax_backward", type="softmax")
def masked_softmax(output: TensorSpec, dim: int | None = None, **arguments: Any) -> Flop:
    """As softmax, of what a mask leaves; how much that is cannot be known from shapes."""
    whole = softmax(output, -1 if dim is None else dim, **arguments)
    return Flop(other=whole.flop, least=0)
