"""Matrix products: an m x k by k x n product takes m * k * n FMAs."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


@formula("aten.mm", "aten.bmm", type="matrix product")
def product(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Each output element is a dot product along the last dimension of the first matrix."""
    return Flop(multiply_add=output.elements * self.shape[-1])


@formula("aten.mv", "aten.dot", "aten.vdot", type="matrix product")
def vector_product(self: TensorSpec, **_: Any) -> Flop:
    """Every element of the matrix, or of the first vector, is multiplied and added once."""
    return Flop(multiply_add=self.elements)


def _added(multiply_add: int, output: TensorSpec, beta: float, alpha: float) -> Flop:
    """A product plus a term: one addition an output, and a multiplication for each scale but 1.

    The accumulator can start with the unscaled term, so only the FMAs cannot be avoided.
    """
    operations = (beta != 0) + (beta not in (0, 1)) + (alpha != 1)
    return Flop(
        multiply_add=multiply_add,
        other=operations * output.elements,
        least=FLOP_PER_FMA * multiply_add,
    )


@formula("aten.addmm", type="matrix product")
def added_product(
    mat1: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * mat1 @ mat2."""
    return _added(output.elements * mat1.shape[-1], output, beta, alpha)


@formula("aten.baddbmm", type="matrix product")
def added_batch_product(
    batch1: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * batch1 @ batch2, for each matrix of the batch."""
    return _added(output.elements * batch1.shape[-1], output, beta, alpha)


@formula("aten.addbmm", type="matrix product")
def summed_batch_product(
    batch1: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * the sum of batch1 @ batch2 over the batch."""
    batch, _rows, inner = batch1.shape
    return _added(output.elements * batch * inner, output, beta, alpha)


@formula("aten.addmv", type="matrix product")
def added_vector_product(
    mat: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * mat @ vec."""
    return _added(mat.elements, output, beta, alpha)


@formula("aten.addr", type="matrix product")
def outer_product(output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any) -> Flop:
    """beta * self + alpha * vec1 (outer) vec2: one FMA an element."""
    return _added(output.elements, output, beta, alpha)


@formula("aten.linear", type="matrix product")
def linear(input: TensorSpec, output: TensorSpec, bias: TensorSpec | None = None, **_: Any) -> Flop:
    """Each output element is a dot product along the features, plus the bias."""
    multiply_add = output.elements * input.shape[-1]
    return _added(multiply_add, output, 0 if bias is None else 1, 1)
