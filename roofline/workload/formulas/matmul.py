"""Matrix products: m * k * n MACs for m x k by k x n; no FLOP for integers.

A complex MAC counts as four real ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.convolution import convolution
from roofline.workload.formulas.costs import (
    PRODUCT,
    REAL_MACS,
    F,
    cost,
    has_floats,
    is_complex,
    scale_cost,
)
from roofline.workload.formulas.pointwise import GELU, elementwise
from roofline.workload.formulas.pooling import UNTOUCHED, max_pool
from roofline.workload.formulas.registry import Flop, Sizes, formula, from_macs, present, table
from roofline.workload.tensors import TensorSpec as Tensor


def real_macs(macs: int, numbers: Tensor) -> int:
    if not has_floats(numbers):
        return 0
    return macs * (REAL_MACS if is_complex(numbers) else 1)


@formula("aten.mm", "aten.bmm", is_for_complex=True)
def product(self: Tensor, output: Tensor, **_: Any) -> Flop:
    """1 MAC per output element and index of the inner dimension."""
    return Flop(macs=real_macs(output.elements * self.shape[-1], output))


def _added(macs: int, output: Tensor, beta: float, alpha: float) -> Flop:
    """Count a product plus a term: 1 addition per output, 1 multiplication per scale other than 1.

    The accumulator can start with the unscaled term, so only MACs are unavoidable; for an alpha of
    0 not even these, as libraries skip the product.
    """
    if not has_floats(output):
        return Flop()
    scales = [beta] * (beta not in (0, 1)) + [alpha] * (alpha != 1)
    if is_complex(output):
        operations = 2 * (beta != 0) + sum(scale_cost(1j, each).simple for each in scales)
    else:
        operations = (beta != 0) + len(scales)
    macs = real_macs(macs, output)
    return from_macs(macs, operations * output.elements, macs if alpha else 0)


def linear(input: Tensor, output: Tensor, bias: Tensor | None = None) -> Flop:
    """1 MAC per output element and input feature, plus the bias."""
    return _added(output.elements * input.shape[-1], output, 0 if bias is None else 1, 1)


def cross_product_flop(output: Tensor) -> int:
    return 2 * PRODUCT.simple + 2 if is_complex(output) else 3


table(
    """
aten.mv aten.dot aten.vdot = Flop(macs=real_macs(self.elements, self)); complex
    1 MAC per element of the matrix, or of the first vector.
aten.affine_grid_generator
aten.cudnn_affine_grid_generator = Flop(macs=output.elements * theta.shape[-1])
    Each grid point, as a homogeneous vector, times the matrix of its sample.
aten.linear = linear(input, output, bias); complex
    1 MAC per output element and input feature, plus the bias.
aten.mkldnn_linear = linear(self, output, bias)
    As aten.linear.
"""
)
table(
    """
aten.linalg_cross = has_floats(output) * output.elements * cross_product_flop(output); complex
    Two products and their difference per element; complex: 6, 6 and 2.
""",
    type="pointwise",
)


_GROUPS = "the matrices of as many groups as can have rows; minimum: one matrix"


@formula("aten._grouped_mm", byte=_GROUPS)
def grouped_product(self: Tensor, mat2: Tensor, output: Tensor, **_: Any) -> Flop:
    """1 MAC per output element and inner element, with the matrix of each row's group (expert).

    If the inner dimension is grouped, each of its elements belongs to one product. Groups with rows
    depend on values: at most as many as rows, at least one.
    """
    rows = self.shape[0] if len(self.shape) == 2 else 0
    if len(self.shape) == len(mat2.shape) == 2:
        return Flop(macs=has_floats(output) * rows * self.shape[1] * mat2.shape[1])
    matrix = math.prod(mat2.shape[1:])
    has_groups = rows and len(mat2.shape) == 3
    return Flop(
        macs=has_floats(output) * output.elements * self.shape[-1],
        elements={"mat2": min(mat2.shape[0], rows) * matrix} if has_groups else {},
        min_elements={"mat2": matrix} if has_groups else {},
    )


_TERMS = "each operand once, but no term with beta 0; minimum: no product with alpha 0"


def added_product(
    factors: tuple[str, str], output: Tensor, beta: float = 1, alpha: float = 1, **given: Any
) -> Flop:
    """As `_added`: ``self`` is the term, `factors` are multiplied, and summed to one matrix."""
    first = given[factors[0]]
    inner = first.shape[-1] if len(first.shape) > 1 else 1
    summed = first.shape[0] if len(first.shape) > len(output.shape) == 2 else 1
    return replace(
        _added(output.elements * summed * inner, output, beta, alpha),
        elements={"self": 0, "output": output.elements} if beta == 0 else {},
        min_elements=dict.fromkeys(factors, 0) if alpha == 0 else {},
    )


table(
    """
aten.addmm = "mat1", "mat2"; complex
    beta * self + alpha * mat1 @ mat2.
aten.baddbmm = "batch1", "batch2"; complex
    beta * self + alpha * batch1 @ batch2, per matrix of the batch.
aten.addbmm = "batch1", "batch2"; complex
    beta * self + alpha * the sum of batch1 @ batch2 over the batch.
aten.addmv = "mat", "vec"; complex
    beta * self + alpha * mat @ vec.
aten.addr = "vec1", "vec2"; complex
    beta * self + alpha * vec1 (outer) vec2: 1 MAC per element.
""",
    added_product,
    byte=_TERMS,
)


@formula("aten._addmm_activation", byte=_TERMS)
def added_product_with_activation(output: Tensor, use_gelu: bool = False, **given: Any) -> Flop:
    """As aten.addmm, then gelu or relu."""
    after = elementwise({}, output, GELU if use_gelu else 1)
    return added_product(("mat1", "mat2"), output, **given).plus(after.other, after.min_flop)


@formula("aten._trilinear")
def trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sizes,
    expand2: Sizes,
    expand3: Sizes,
    sumdim: Sizes,
    output: Tensor,
    **_: Any,
) -> Flop:
    """Sum of i1 * i2 * i3 over ``sumdim``; ``expand`` inserts dimensions of size 1.

    Two products: i1 with i2, summed over the dimensions that i3 lacks; then with i3, over the rest.
    """
    if not has_floats(output):
        return Flop()
    first, second, third = (
        _expanded(each.shape, dims) for each, dims in ((i1, expand1), (i2, expand2), (i3, expand3))
    )
    pairs = [max(a, b) if a and b else 0 for a, b in zip(first, second, strict=True)]
    kept = [1 if dim in sumdim and dim in expand3 else size for dim, size in enumerate(pairs)]
    rest = [max(a, b) if a and b else 0 for a, b in zip(kept, third, strict=True)]
    return Flop(macs=math.prod(pairs) + math.prod(rest))


def _expanded(shape: Sizes, dims: Sizes) -> list[int]:
    """Return `shape` with a 1 at each of the positions `dims` of the result."""
    sizes = iter(shape)
    return [1 if dim in dims else next(sizes) for dim in range(len(shape) + len(dims))]


# Products named after libraries and kernels, and in their formats. Scaled, sparse and mixed ones
# are GPU kernels. A repacked weight is read once; its original, also an argument, is not.

_AFTER = {
    **dict.fromkeys(("", "none"), 0),
    **dict.fromkeys(("leaky_relu", "hardtanh"), 2),
    "hardsigmoid": 4,
    "hardswish": 5,
    "tanh": F,
    "gelu": GELU,
    "gelu, tanh": 8 + F,
    **dict.fromkeys(("sigmoid", "swish", "silu"), 3 + F),
}
"""FLOP per element of a library's epilogue; others take 1."""


def activation_flop(operations: Sequence[str | None], algorithm: str | None = "") -> Flop:
    approximated = "gelu, tanh" if algorithm == "tanh" else "gelu"
    names = [approximated if name == "gelu" else name or "" for name in operations]
    return cost(sum(_AFTER.get(name, 1) for name in names)).flop()


def add_activation(
    count: Flop, output: Tensor, operations: Sequence[str | None], algorithm: str | None = ""
) -> Flop:
    each = activation_flop(operations, algorithm)
    return count.plus(each.other * output.elements, each.min_flop * output.elements)


@formula("mkl._mkl_linear", byte="the repacked weight, not its original")
def mkl_linear(X: Tensor, B: Tensor | None, output: Tensor, **_: Any) -> Flop:
    """As aten.linear."""
    return replace(linear(X, output, B), elements={"ORI_W": 0})


@formula(
    *("mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise"),
    *("mkldnn._convolution_pointwise_.binary", "mkldnn._convolution_pointwise.binary"),
    type="convolution",
    byte="each operand once; minimum: no input pixels without a tap",
)
def convolution_and_more(
    X: Tensor,
    W: Tensor,
    B: Tensor | None,
    output: Tensor,
    attr: str = "",
    binary_attr: str = "",
    unary_attr: str | None = None,
    algorithm: str | None = "",
    unary_algorithm: str | None = "",
    output_padding: Sizes | None = None,
    **given: Any,
) -> Flop:
    """A convolution, then an activation, or an operation with another tensor and an activation."""
    is_transposed = output_padding is not None
    count = convolution(input=X, weight=W, bias=B, output=output, transposed=is_transposed, **given)
    operations = [attr, binary_attr, unary_attr]
    followed_by = add_activation(count, output, operations, algorithm or unary_algorithm)
    return followed_by.renamed(input="X", weight="W")


table(
    """
mkldnn._reorder_linear_weight mkldnn._reorder_convolution_weight
mkldnn._reorder_convolution_transpose_weight mkl._mkl_reorder_linear_weight
mkldnn._reorder_mkldnn_rnn_layer_weight aten.mkldnn_reorder_conv2d_weight
aten.mkldnn_reorder_conv3d_weight aten.to_mkldnn aten._mkldnn_reshape aten._mkldnn_transpose
aten._to_dense aten._cslt_compress aten._to_sparse_semi_structured aten._convert_weight_to_int4pack
aten._convert_weight_to_int4pack_for_cpu aten._dyn_quant_pack_4bit_weight = 0
    The same numbers in another order.
""",
    type="data movement",
)


@formula(
    *("aten.mkldnn_max_pool2d", "aten.mkldnn_max_pool3d", "aten.quantized_max_pool1d"),
    *("aten.quantized_max_pool2d", "aten.quantized_max_pool3d"),
    type="pooling",
    byte=UNTOUCHED,
)
def library_max_pool(**arguments: Any) -> Flop:
    """As aten.max_pool2d; comparisons of integers are not FLOP."""
    return max_pool(**arguments)


# -- scaled, sparse and mixed ----------------------------------------------------------------------

_HALVES = "float4_e2m1fn_x2"
"""Type with two numbers per element."""


def _numbers(self: Tensor) -> int:
    """Numbers per element of the first matrix."""
    return 2 if self.dtype.name == _HALVES else 1


def narrow(output: Tensor, inner: int, each: int) -> Flop:
    """Count a product along `inner` numbers, and `each` operations per result."""
    return from_macs(output.elements * inner, each * output.elements)


def count_terms(beta: float, alpha: float) -> int:
    """An addition, and a product with each scale other than 1."""
    return (beta != 0) + (beta not in (0, 1)) + (alpha != 1)


@formula("aten._scaled_mm", "aten._scaled_mm_v2")
def scaled_product(
    self: Tensor,
    output: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    **_: Any,
) -> Flop:
    """A product of narrow floats; its result is scaled for both matrices, and a bias added.

    Further scales per block of a row, and scales that can go into the product, are not counted.
    """
    return narrow(output, self.shape[-1] * _numbers(self), 2 + present(bias, scale_result))


@formula("aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2", byte=_GROUPS)
def scaled_grouped_product(
    self: Tensor, mat2: Tensor, output: Tensor, bias: Tensor | None = None, **_: Any
) -> Flop:
    """As aten._grouped_mm; the result is scaled for both matrices, and a bias added."""
    count = grouped_product(self, mat2, output)
    whole = from_macs(count.macs * _numbers(self), (2 + (bias is not None)) * output.elements)
    return replace(whole, elements=count.elements, min_elements=count.min_elements)


table(
    """
mkldnn._linear_pointwise = add_activation(linear(X, output, B), output, [attr], algorithm)
    A linear layer, then an activation, or an operation with another tensor.
aten._sparse_semi_structured_mm = Flop(macs=output.elements * mat1.shape[-1])
    1 MAC per output element and kept element: half of each row of the first matrix.
aten._sparse_semi_structured_addmm = narrow(output, mat1.shape[-1], count_terms(beta, alpha))
    beta * input + alpha * mat1 @ mat2, as aten.addmm.
aten._sparse_semi_structured_linear = add_activation(
    narrow(output, weight.shape[-1], present(bias)), output, [activation])
    A linear layer with half of each row of its weight, and an activation.
aten._mixed_dtypes_linear = add_activation(
    linear(input, output, bias).plus(output.shape[-1] * input.shape[-1], 0), output, [activation])
    A linear layer with integer weights that are scaled first, and an activation.
"""
)


@formula("aten._cslt_sparse_mm")
def half_sparse_product(
    dense_B: Tensor, output: Tensor, bias: object = None, alpha: object = None, **_: Any
) -> Flop:
    """Half of the MACs: two of four elements of the first matrix are 0."""
    macs = output.elements * dense_B.shape[0] // 2
    return from_macs(macs, present(bias, alpha) * output.elements)


# Backward of matrix products, on devices with their own kernels for it.


@formula("aten.linear_backward")
def linear_backward(
    self: Tensor, grad_output: Tensor, output_mask: Sequence[bool], **_: Any
) -> Flop:
    """1 MAC per element of the gradient and input feature, each for input and weight.

    The bias sums the gradient over all rows. ``output_mask`` selects the gradients.
    """
    outputs = grad_output.shape[-1] if grad_output.shape else 1
    macs = grad_output.elements * self.shape[-1]
    sums = max(0, grad_output.elements - outputs)
    return Flop(macs=macs * (output_mask[0] + output_mask[1]), other=sums * output_mask[2])


@formula("aten.matmul_backward")
def matmul_backward(grad: Tensor, self: Tensor, mask: Sequence[bool], **_: Any) -> Flop:
    """As many MACs as the product, per factor with a requested gradient.

    A factor repeated over a batch sums over it, within its MACs.
    """
    inner = self.shape[-1] if self.shape else 1
    return Flop(macs=grad.elements * inner * (mask[0] + mask[1]))
