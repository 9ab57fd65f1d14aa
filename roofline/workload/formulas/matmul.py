"""Matrix products: an m x k by k x n product takes m * k * n FMAs; on integers, no FLOP.

Of complex numbers a multiply-add is four real ones, which is what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.convolution import convolution
from roofline.workload.formulas.costs import PRODUCT, REAL_FMA, F, cost, floats, is_complex, scaled
from roofline.workload.formulas.pointwise import GELU, elementwise
from roofline.workload.formulas.pooling import UNTOUCHED, max_pool
from roofline.workload.formulas.registry import Flop, Sizes, formula, given, products, table
from roofline.workload.tensors import TensorSpec as Tensor


def macs_of(macs: int, numbers: Tensor) -> int:
    """Real multiply-adds of so many on the type of `numbers`."""
    if not floats(numbers):
        return 0
    return macs * (REAL_FMA if is_complex(numbers) else 1)


@formula("aten.mm", "aten.bmm", is_for_complex=True)
def product(self: Tensor, output: Tensor, **_: Any) -> Flop:
    """Each output element is a dot product along the last dimension of the first matrix."""
    return Flop(macs=macs_of(output.elements * self.shape[-1], output))


def _added(macs: int, output: Tensor, beta: float, alpha: float) -> Flop:
    """A product plus a term: one addition an output, and a multiplication for each scale but 1.

    The accumulator can start with the unscaled term, so only the FMAs cannot be avoided; not even
    these where alpha is 0, for which libraries leave the product out.
    """
    if not floats(output):
        return Flop()
    scales = [beta] * (beta not in (0, 1)) + [alpha] * (alpha != 1)
    if is_complex(output):
        operations = 2 * (beta != 0) + sum(scaled(1j, each).simple for each in scales)
    else:
        operations = (beta != 0) + len(scales)
    macs = macs_of(macs, output)
    return products(macs, operations * output.elements, macs if alpha else 0)


def linear(input: Tensor, output: Tensor, bias: Tensor | None = None) -> Flop:
    """Each output element is a dot product along the features, plus the bias."""
    return _added(output.elements * input.shape[-1], output, 0 if bias is None else 1, 1)


def cross(output: Tensor) -> int:
    """Operations of each number of a cross product."""
    return 2 * PRODUCT.simple + 2 if is_complex(output) else 3


table(
    """
aten.mv aten.dot aten.vdot = Flop(macs=macs_of(self.elements, self)); complex
    Every element of the matrix, or of the first vector, is multiplied and added once.
aten.affine_grid_generator
aten.cudnn_affine_grid_generator = Flop(macs=output.elements * theta.shape[-1])
    Each place, as a vector with a 1 at its end, times the matrix of its sample.
aten.linear = linear(input, output, bias); complex
    Each output element is a dot product along the features, plus the bias.
aten.mkldnn_linear = linear(self, output, bias)
    As `aten.linear`.
"""
)
table(
    """
aten.linalg_cross = floats(output) * output.elements * cross(output); complex
    Two products and their difference for each number; complex: 6, 6 and 2.
""",
    type="pointwise",
)


_GROUPS = "the matrices of as many groups as can have rows; at the least, of one"


@formula("aten._grouped_mm", byte=_GROUPS)
def grouped_product(self: Tensor, mat2: Tensor, output: Tensor, **_: Any) -> Flop:
    """Rows of the first matrix, each with the matrix of its group (its expert) of the second.

    Where the inner dimension is what is grouped, each element of it belongs to one product. Which
    groups have rows cannot be known from shapes: no more than there are rows, and maybe only one.
    """
    rows = self.shape[0] if len(self.shape) == 2 else 0
    if len(self.shape) == len(mat2.shape) == 2:
        return Flop(macs=floats(output) * rows * self.shape[1] * mat2.shape[1])
    matrix = math.prod(mat2.shape[1:])
    has_groups = rows and len(mat2.shape) == 3
    return Flop(
        macs=floats(output) * output.elements * self.shape[-1],
        elements={"mat2": min(mat2.shape[0], rows) * matrix} if has_groups else {},
        min_elements={"mat2": matrix} if has_groups else {},
    )


_TERMS = "each operand once, but no term of beta 0; minimum: no product of alpha 0"


def of_terms(
    factors: tuple[str, str], output: Tensor, beta: float = 1, alpha: float = 1, **given: Any
) -> Flop:
    """As `_added`: ``self`` is the term, `factors` are multiplied, and summed up to one matrix."""
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
    beta * self + alpha * batch1 @ batch2, for each matrix of the batch.
aten.addbmm = "batch1", "batch2"; complex
    beta * self + alpha * the sum of batch1 @ batch2 over the batch.
aten.addmv = "mat", "vec"; complex
    beta * self + alpha * mat @ vec.
aten.addr = "vec1", "vec2"; complex
    beta * self + alpha * vec1 (outer) vec2: one FMA an element.
""",
    of_terms,
    byte=_TERMS,
)


@formula("aten._addmm_activation", byte=_TERMS)
def added_product_with_activation(output: Tensor, use_gelu: bool = False, **given: Any) -> Flop:
    """As `added_product`, then gelu or relu."""
    after = elementwise({}, output, GELU if use_gelu else 1)
    return of_terms(("mat1", "mat2"), output, **given).plus(after.other, after.min_flop)


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


def _expanded(shape: Sizes, dims: Sizes) -> list[int]:
    """`shape` with a 1 at each of the positions `dims` of the result."""
    sizes = iter(shape)
    return [1 if dim in dims else next(sizes) for dim in range(len(shape) + len(dims))]


# Products under the names of the libraries and kernels that run them, and in formats of theirs.
#
# Scaled, sparse and mixed ones are kernels for GPUs. A weight in a library's own order is read
# once; the one it was made from, which comes along, is not.

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
"""What a library does with each element at last; others take a single operation."""


def after(operations: Sequence[str | None], algorithm: str | None = "") -> Flop:
    """FLOP an element of such `operations`, one after the other."""
    approximated = "gelu, tanh" if algorithm == "tanh" else "gelu"
    names = [approximated if name == "gelu" else name or "" for name in operations]
    return cost(sum(_AFTER.get(name, 1) for name in names)).flop()


def followed(
    count: Flop, output: Tensor, operations: Sequence[str | None], algorithm: str | None = ""
) -> Flop:
    """A product, and then `operations` on each element of its result."""
    each = after(operations, algorithm)
    return count.plus(each.other * output.elements, each.min_flop * output.elements)


@formula("mkl._mkl_linear", byte="the weight in the library's order, not the one it was made from")
def mkl_linear(X: Tensor, B: Tensor | None, output: Tensor, **_: Any) -> Flop:
    """As `aten.linear`."""
    return replace(linear(X, output, B), elements={"ORI_W": 0})


@formula(
    *("mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise"),
    *("mkldnn._convolution_pointwise_.binary", "mkldnn._convolution_pointwise.binary"),
    type="convolution",
    byte="each operand once; at the least, of the input what lies under a tap",
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
    followed_by = followed(count, output, operations, algorithm or unary_algorithm)
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
    """As `aten.max_pool2d`; comparing integers is no floating-point arithmetic."""
    return max_pool(**arguments)


# -- scaled, sparse and mixed ----------------------------------------------------------------------

_HALVES = "float4_e2m1fn_x2"
"""The type that holds two numbers in each element."""


def _numbers(self: Tensor) -> int:
    """In an element of the first matrix."""
    return 2 if self.dtype.name == _HALVES else 1


def narrow(output: Tensor, inner: int, each: int) -> Flop:
    """A product along `inner` numbers, and so many operations on each result."""
    return products(output.elements * inner, each * output.elements)


def terms(beta: float, alpha: float) -> int:
    """An addition, and a product with each scale but 1."""
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

    A scale for each block of a row takes more, which is left out, as is what the least can put
    into the product.
    """
    return narrow(output, self.shape[-1] * _numbers(self), 2 + given(bias, scale_result))


@formula("aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2", byte=_GROUPS)
def scaled_grouped_product(
    self: Tensor, mat2: Tensor, output: Tensor, bias: Tensor | None = None, **_: Any
) -> Flop:
    """As `aten._grouped_mm`; the result is scaled for both matrices, and a bias added."""
    count = grouped_product(self, mat2, output)
    whole = products(count.macs * _numbers(self), (2 + (bias is not None)) * output.elements)
    return replace(whole, elements=count.elements, min_elements=count.min_elements)


table(
    """
mkldnn._linear_pointwise = followed(linear(X, output, B), output, [attr], algorithm)
    A linear layer, then an activation, or an operation with another tensor.
aten._sparse_semi_structured_mm = Flop(macs=output.elements * mat1.shape[-1])
    Half of a row is kept of the first matrix: as many multiply-adds an element of the result.
aten._sparse_semi_structured_addmm = narrow(output, mat1.shape[-1], terms(beta, alpha))
    beta * input + alpha * mat1 @ mat2, as `aten.addmm`.
aten._sparse_semi_structured_linear = followed(
    narrow(output, weight.shape[-1], given(bias)), output, [activation])
    A linear layer with half of each row of its weight, and an activation.
aten._mixed_dtypes_linear = followed(
    linear(input, output, bias).plus(output.shape[-1] * input.shape[-1], 0), output, [activation])
    A linear layer whose integer weights are scaled first, and an activation.
"""
)


@formula("aten._cslt_sparse_mm")
def half_sparse_product(
    dense_B: Tensor, output: Tensor, bias: object = None, alpha: object = None, **_: Any
) -> Flop:
    """Two of four elements of the first matrix are 0: half of the multiply-adds are there."""
    macs = output.elements * dense_B.shape[0] // 2
    return products(macs, given(bias, alpha) * output.elements)


# Backward of products of matrices, where a device has kernels of its own for it.


@formula("aten.linear_backward")
def linear_backward(
    self: Tensor, grad_output: Tensor, output_mask: Sequence[bool], **_: Any
) -> Flop:
    """One FMA for each number of the gradient and feature, for input and weight alike.

    The bias sums the gradient over all rows. ``output_mask`` says which of the three are wanted.
    """
    outputs = grad_output.shape[-1] if grad_output.shape else 1
    macs = grad_output.elements * self.shape[-1]
    sums = max(0, grad_output.elements - outputs)
    return Flop(macs=macs * (output_mask[0] + output_mask[1]), other=sums * output_mask[2])


@formula("aten.matmul_backward")
def matmul_backward(grad: Tensor, self: Tensor, mask: Sequence[bool], **_: Any) -> Flop:
    """As many FMAs as the product took, for either factor that is wanted.

    A factor that was repeated over a batch sums over it, which its FMAs do.
    """
    inner = self.shape[-1] if self.shape else 1
    return Flop(macs=grad.elements * inner * (mask[0] + mask[1]))
