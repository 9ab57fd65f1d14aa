"""Matrix products: an m x k by k x n product takes m * k * n FMAs; on integers, no FLOP.

Of complex numbers a multiply-add is four real ones, which is what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.activation import gelu
from roofline.workload.formulas.complex_numbers import PRODUCT, REAL_FMA, SCALED, is_complex
from roofline.workload.formulas.pointwise import floats, one_operation
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import FLOP_PER_FMA


def _of(macs: int, numbers: TensorSpec) -> int:
    """Real multiply-adds of so many on the type of `numbers`."""
    if not floats(numbers):
        return 0
    return macs * (REAL_FMA if is_complex(numbers) else 1)


@formula("aten.mm", "aten.bmm", type="matrix product", is_for_complex=True)
def product(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Each output element is a dot product along the last dimension of the first matrix."""
    return Flop(macs=_of(output.elements * self.shape[-1], output))


@formula(
    "aten._grouped_mm",
    type="matrix product",
    byte="the matrices of as many groups as can have rows; at the least, of one",
)
def grouped_product(self: TensorSpec, mat2: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Rows of the first matrix, each with the matrix of its group (its expert) of the second.

    Where the inner dimension is what is grouped, each element of it belongs to one product. Which
    groups have rows cannot be known from shapes: no more than there are rows, and maybe only one.
    """
    rows = self.shape[0] if len(self.shape) == 2 else 0
    if len(self.shape) == len(mat2.shape) == 2:
        return Flop(macs=rows * self.shape[1] * mat2.shape[1] if floats(output) else 0)
    elements: dict[str, int] = {}
    min_elements: dict[str, int] = {}
    if rows and len(mat2.shape) == 3:
        matrix = math.prod(mat2.shape[1:])
        elements["mat2"] = min(mat2.shape[0], rows) * matrix
        min_elements["mat2"] = matrix
    return Flop(
        macs=output.elements * self.shape[-1] if floats(output) else 0,
        elements=elements,
        min_elements=min_elements,
    )


@formula("aten.mv", "aten.dot", "aten.vdot", type="matrix product", is_for_complex=True)
def vector_product(self: TensorSpec, **_: Any) -> Flop:
    """Every element of the matrix, or of the first vector, is multiplied and added once."""
    return Flop(macs=_of(self.elements, self))


def _added(macs: int, output: TensorSpec, beta: float, alpha: float) -> Flop:
    """A product plus a term: one addition an output, and a multiplication for each scale but 1.

    The accumulator can start with the unscaled term, so only the FMAs cannot be avoided; not even
    these where alpha is 0, for which libraries leave the product out.
    """
    if not floats(output):
        return Flop()
    scales = [beta] * (beta not in (0, 1)) + [alpha] * (alpha != 1)
    if is_complex(output):
        products = sum((PRODUCT if is_complex(each) else SCALED).simple for each in scales)
        operations = 2 * (beta != 0) + products
    else:
        operations = (beta != 0) + len(scales)
    products = _of(macs, output)
    return Flop(
        macs=products,
        other=operations * output.elements,
        least=FLOP_PER_FMA * products if alpha else 0,
        min_macs=products if alpha else 0,
    )


_TERMS = "each operand once, but no term of beta 0; minimum: no product of alpha 0"


def _of_terms(macs: int, output: TensorSpec, beta: float, alpha: float, *factors: str) -> Flop:
    """As `_added`; of the operands, ``self`` is the term, and `factors` are multiplied."""
    return replace(
        _added(macs, output, beta, alpha),
        elements={"self": 0, "output": output.elements} if beta == 0 else {},
        min_elements=dict.fromkeys(factors, 0) if alpha == 0 else {},
    )


@formula("aten.addmm", type="matrix product", byte=_TERMS, is_for_complex=True)
def added_product(
    mat1: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * mat1 @ mat2."""
    return _of_terms(output.elements * mat1.shape[-1], output, beta, alpha, "mat1", "mat2")


@formula("aten.baddbmm", type="matrix product", byte=_TERMS, is_for_complex=True)
def added_batch_product(
    batch1: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * batch1 @ batch2, for each matrix of the batch."""
    return _of_terms(output.elements * batch1.shape[-1], output, beta, alpha, "batch1", "batch2")


@formula("aten.addbmm", type="matrix product", byte=_TERMS, is_for_complex=True)
def summed_batch_product(
    batch1: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * the sum of batch1 @ batch2 over the batch."""
    batch, _rows, inner = batch1.shape
    return _of_terms(output.elements * batch * inner, output, beta, alpha, "batch1", "batch2")


@formula("aten.addmv", type="matrix product", byte=_TERMS, is_for_complex=True)
def added_vector_product(
    mat: TensorSpec, output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any
) -> Flop:
    """beta * self + alpha * mat @ vec."""
    return _of_terms(mat.elements, output, beta, alpha, "mat", "vec")


@formula("aten.addr", type="matrix product", byte=_TERMS, is_for_complex=True)
def outer_product(output: TensorSpec, beta: float = 1, alpha: float = 1, **_: Any) -> Flop:
    """beta * self + alpha * vec1 (outer) vec2: one FMA an element."""
    return _of_terms(output.elements, output, beta, alpha, "vec1", "vec2")


@formula("aten.linear", type="matrix product", is_for_complex=True)
def linear(input: TensorSpec, output: TensorSpec, bias: TensorSpec | None = None, **_: Any) -> Flop:
    """Each output element is a dot product along the features, plus the bias."""
    macs = output.elements * input.shape[-1]
    return _added(macs, output, 0 if bias is None else 1, 1)


@formula("aten._addmm_activation", type="matrix product", byte=_TERMS)
def added_product_with_activation(
    mat1: TensorSpec,
    output: TensorSpec,
    beta: float = 1,
    alpha: float = 1,
    use_gelu: bool = False,
    **_: Any,
) -> Flop:
    """As `added_product`, then gelu or relu."""
    product = added_product(mat1, output, beta, alpha)
    after = gelu(output) if use_gelu else one_operation(output)
    return replace(
        product,
        other=product.other + after.other,
        least=product.min_flop + after.min_flop,
    )


@formula("aten._trilinear", type="matrix product")
def trilinear(
    i1: TensorSpec,
    i2: TensorSpec,
    i3: TensorSpec,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """The sum of i1 * i2 * i3 over ``sumdim``; dimensions in ``expand`` are put in, of size 1.

    As two products: i1 with i2, summed over what i3 does not have; that with i3, over the rest.
    """
    if not floats(output):
        return Flop()
    first, second, third = (
        _expanded(each.shape, dims) for each, dims in ((i1, expand1), (i2, expand2), (i3, expand3))
    )
    pairs = [max(a, b) if a and b else 0 for a, b in zip(first, second, strict=True)]
    kept = [1 if dim in sumdim and dim in expand3 else size for dim, size in enumerate(pairs)]
    rest = [max(a, b) if a and b else 0 for a, b in zip(kept, third, strict=True)]
    return Flop(macs=math.prod(pairs) + math.prod(rest))


def _expanded(shape: Sequence[int], dims: Sequence[int]) -> list[int]:
    """`shape` with a 1 at each of the positions `dims` of the result."""
    sizes = iter(shape)
    return [1 if dim in dims else next(sizes) for dim in range(len(shape) + len(dims))]


@formula("aten.affine_grid_generator", "aten.cudnn_affine_grid_generator", type="matrix product")
def affine_grid(theta: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Each place, as a vector with a 1 at its end, times the matrix of its sample."""
    return Flop(macs=output.elements * theta.shape[-1])


@formula("aten.linalg_cross", type="pointwise", is_for_complex=True)
def cross(output: TensorSpec, **_: Any) -> Flop:
    """Two products and their difference for each number; complex: 6, 6 and 2."""
    each = 2 * PRODUCT.simple + 2 if is_complex(output) else 3
    return Flop(other=each * output.elements if floats(output) else 0)
