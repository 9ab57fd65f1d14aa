"""Selection by indices: touched elements follow the size of the indices, not of the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from roofline.workload.formulas.costs import components, has_floats, is_complex
from roofline.workload.formulas.reduction import norms, rows_along
from roofline.workload.formulas.registry import Flop, Sizes, Tensors, formula, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor

Indices = Sequence[Tensor | None]


def is_in_place(self: Tensor, output: Tensor) -> bool:
    return output.storage == self.storage


def slice_elements(self: Tensor, indices: Indices) -> int:
    """Elements per index, over the dimensions that no index selects."""
    # A mask selects along all of its dimensions.
    selected: set[int] = set()
    dim = 0
    for each in indices:
        width = len(each.shape) if each is not None and each.dtype.kind == "bool" else 1
        selected |= set(range(dim, dim + width)) if each is not None else set()
        dim += width
    return math.prod(size for dim, size in enumerate(self.shape) if dim not in selected)


def distinct_selected(self: Tensor, mask: Tensor, output: Tensor) -> int:
    """Distinct elements that a mask selects; broadcast ones repeat."""
    both = zip_longest(reversed(self.shape), reversed(mask.shape), fillvalue=1)
    repeated = math.prod(theirs for own, theirs in both if own == 1)
    return -(-output.elements // max(repeated, 1))


_SELECTED = (
    "as many elements as are returned, and the indices; minimum: those of one index (indices may"
    " be equal)"
)


def _selected(least: int, self: Tensor, output: Tensor, **_: Any) -> Flop:
    """Count the elements read: at most as many as are returned, fewer for equal indices."""
    if self.distinct_elements < self.elements:
        # Broadcast: different indices may select one element.
        least = min(least, 1)
    return Flop(
        elements={"self": output.elements}, min_elements={"self": min(least, output.elements)}
    )


table(
    """
aten.gather = rows_along(output, dim)
    One element per index; all may be the same along the dimension.
aten.index_select = rows_along(output, dim)
    One slice per index.
aten.take = 1
    One element per index.
""",
    _selected,
    byte=_SELECTED,
)


@formula("aten.index", "aten._unsafe_index", byte=_SELECTED)
def index(self: Tensor, output: Tensor, indices: Indices = (), **_: Any) -> Flop:
    """One element per index, or a slice over the dimensions that no index selects.

    A mask selects no element twice.
    """
    given = [each for each in indices if each is not None]
    is_mask = len(given) == 1 and given[0].dtype.kind == "bool"
    return _selected(output.elements if is_mask else slice_elements(self, indices), self, output)


table(
    """
aten._unsafe_masked_index = 0
    As aten.index, with a constant where a mask says so, possibly everywhere.
""",
    _selected,
    byte="as many elements as are returned, mask and indices; minimum: mask and indices",
)
table(
    """
aten.masked_select = distinct_selected(self, mask, output)
    The elements where the mask is true; broadcast ones repeat.
""",
    _selected,
    byte="as many elements as are returned",
)


_TOUCHED = (
    "in place: the selected elements, read and written (minimum: those of one index); else: the"
    " whole, copied"
)


def update(self: Tensor, output: Tensor, touched: int, least: int, operations: int = 0) -> Flop:
    """Count `operations`; in place, only selected elements are touched (`least` if they repeat)."""
    other = has_floats(self) * operations * components(self)
    if not is_in_place(self, output):
        return Flop(other=other)
    return Flop(other=other, elements={"self": touched}, min_elements={"self": min(least, touched)})


def _scattered(
    each: int,
    self: Tensor,
    dim: int,
    index: Tensor,
    output: Tensor,
    src: Tensor | None = None,
    **_: Any,
) -> Flop:
    """Count a scatter; its source may exceed the indices and is read only as far as they go."""
    places = index.elements
    count = update(self, output, places, rows_along(index, dim), each * places)
    read = {} if src is None else {"src": places}
    return replace(count, elements={**count.elements, **read})


table(
    """
aten.scatter = 0
    One element per index.
aten.scatter_add = 1; complex
    1 addition per index.
aten.scatter_reduce aten.scatter.reduce aten.scatter.value_reduce = 1
    1 operation per index, to combine the element with the present one.
""",
    _scattered,
    byte=_TOUCHED,
)


def count_from_source(each: int, self: Tensor, dim: int, source: Tensor, output: Tensor) -> Flop:
    many = source.elements
    return update(self, output, many, rows_along(source, dim), each * many)


table(
    """
aten.put = update(self, output, index.elements, 1, accumulate * index.elements); complex
    One element per index, added to the present one if requested.
aten.index_copy = count_from_source(0, self, dim, source, output)
    One element per element of the source.
aten.index_reduce = count_from_source(1, self, dim, source, output)
    1 operation per element of the source, to combine it with the present one.
aten.index_fill = update(
    self, output, index.elements * rows_along(self, dim), rows_along(self, dim))
    One slice of the tensor per index.
aten._unsafe_masked_index_put_accumulate = replace(
    update(self, output, values.elements, 0, values.elements), least=0)
    1 addition per value that the mask passes, possibly none.
""",
    byte=_TOUCHED,
)


@formula("aten.index_add", byte=_TOUCHED, is_for_complex=True)
def index_add(
    self: Tensor, dim: int, source: Tensor, output: Tensor, alpha: float = 1, **_: Any
) -> Flop:
    """self + alpha * source: 1 per element of the source, 2 if alpha is not 1."""
    # A complex alpha costs a product of 6, three times the 2 of a real one.
    each = 1 if alpha == 1 else 4 if is_complex(alpha) else 2
    return count_from_source(each, self, dim, source, output)


@formula(
    "aten.masked_scatter",
    byte="both tensors; minimum: the mask alone (it may select nothing)",
)
def masked_scatter(**_: Any) -> Flop:
    """Selected elements are replaced; their number depends on values, and may be 0."""
    return Flop(min_elements=untouched("self", "source"))


@formula(
    *("aten.index_put", "aten._index_put_impl", "aten._unsafe_index_put"),
    byte=_TOUCHED + "; with a mask: the whole (minimum: nothing)",
    is_for_complex=True,
)
def index_put(
    self: Tensor, indices: Indices, output: Tensor, accumulate: bool = False, **_: Any
) -> Flop:
    """One element per index, or a slice over the dimensions that no index selects.

    The number of elements that a mask selects depends on values: from none to all.
    """
    given = [each for each in indices if each is not None]
    if any(each.dtype.kind == "bool" for each in given):
        return Flop(min_elements={"self": 0})
    sizes = zip_longest(*(each.shape[::-1] for each in given), fillvalue=0)
    each = slice_elements(self, indices)
    touched = math.prod(map(max, sizes)) * each
    return update(self, output, touched, each, accumulate * touched)


# Backward of selections: zeros are written, and gradients at the selected elements. The number of
# selections of an element depends on values: 1 addition per gradient is counted, and the minimum is
# 0.


def overlaps(grad_in: Tensor, input_sizes: Sizes, dim: int, size: int, step: int) -> int:
    """Gradients of windows beyond the first of each element."""
    if not input_sizes or not grad_in.elements or not has_floats(grad_in):
        return 0
    count = (input_sizes[dim] - size) // step + 1
    covered = (count - 1) * min(step, size) + size
    return (count * size - covered) * (grad_in.elements // (count * size))


table(
    """
aten.select_backward aten.slice_backward aten.diagonal_backward = 0
    The gradient is copied to the position of the selected part.
aten.unfold_backward = overlaps(grad_in, input_sizes, dim, size, step)
    Gradients of overlapping windows are added: 1 per element but the first.
"""
)


@formula("aten.masked_scatter_backward", byte="the selected elements are read; minimum: none")
def masked_scatter_backward(**_: Any) -> Flop:
    """The selected elements of the gradient, then zeros."""
    return Flop(min_elements=untouched("grad_output"))


# Embeddings: rows of a table, and bags of them.

SUM, MEAN, LARGEST = 0, 1, 2
"""Reduction of the rows of a bag."""

_ROWS = "the rows looked up, not the table; minimum: one row, none with padding"


@formula(
    "aten.embedding",
    type="embedding",
    byte="the rows looked up, not the table; minimum: one row (indices may be equal)",
)
def embedding(weight: Tensor, output: Tensor, **_: Any) -> Flop:
    """The rows that are looked up are read, not the table."""
    row = min(weight.shape[-1], output.elements)
    return Flop(elements={"weight": output.elements}, min_elements={"weight": row})


@formula("aten._embedding_bag", "aten._embedding_bag_forward_only", type="embedding", byte=_ROWS)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    output: Tensors,
    mode: int = SUM,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    **_: Any,
) -> Flop:
    """Rows of a bag are added (or compared); 1 division per mean, 1 product per weighted element.

    All indices may be padding, whose rows are skipped: the minimum is 0 then. With the last offset
    given, bags may end before the first index.
    """
    looked_up = indices.elements * weight.shape[-1]
    bags = output[0].elements
    operations = max(0, looked_up - bags) + (bags if mode == MEAN else 0)
    operations += looked_up if per_sample_weights is not None else 0
    # The mean of a bag without rows is not divided.
    least = min(operations, looked_up) if mode == MEAN else operations
    may_be_none = padding_idx >= 0 or include_last_offset
    return Flop(
        other=operations,
        least=0 if may_be_none else least,
        elements={"weight": looked_up},
        min_elements={"weight": 0 if may_be_none else min(weight.shape[-1], looked_up)},
    )


@formula(
    "aten.embedding_dense_backward",
    type="embedding",
    byte="each operand once; minimum: no gradient where there is padding",
)
def embedding_backward(
    grad_output: Tensor, indices: Tensor, padding_idx: int, scale_grad_by_freq: bool, **_: Any
) -> Flop:
    """1 addition per element of the gradient, to its row of zeros, and scaling by frequency.

    Optional scaling: a division per index and a product per element. Padding is skipped.
    """
    scaled = grad_output.elements + indices.elements if scale_grad_by_freq else 0
    return Flop(
        other=grad_output.elements + scaled,
        least=0,
        min_elements=untouched("grad_output") if padding_idx >= 0 else {},
    )


@formula(
    *("aten._embedding_bag_dense_backward", "aten._embedding_bag_backward"),
    type="embedding",
    byte=(
        "the index tensors that the mode of the bag needs; minimum: the gradient of one bag, none"
        " with padding"
    ),
)
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    offsets: Tensor | None = None,
    padding_idx: int = -1,
    **_: Any,
) -> Flop:
    """The gradient of a bag is added to each of its rows; for a maximum, to one row per column.

    Means and frequencies take a division per index; they and weights a product per element. Offsets
    are not read if the bag of each index is given. All rows may be of one bag, or padding, whose
    gradients are not read.
    """
    unread = untouched("offsets") if offsets is not None and offset2bag.elements else {}
    if mode == LARGEST:
        unread |= untouched("indices", "offset2bag", "bag_size")
        return Flop(other=grad.elements, least=0, elements=unread, min_elements={"grad": 0})
    unread |= untouched("maximum_indices", *["bag_size"] * (mode != MEAN))
    divisions = (mode == MEAN) + scale_grad_by_freq
    is_scaled = divisions or per_sample_weights is not None
    rows = indices.elements * grad.shape[-1]
    return Flop(
        other=rows * (2 if is_scaled else 1) + divisions * indices.elements,
        least=0,
        elements=unread,
        min_elements={"grad": 0 if padding_idx >= 0 else min(grad.shape[-1], rows)},
    )


@formula("aten._embedding_bag_per_sample_weights_backward", type="embedding", byte=_ROWS)
def embedding_bag_weights(
    weight: Tensor, indices: Tensor, offset2bag: Tensor, padding_idx: int = -1, **_: Any
) -> Flop:
    """The inner product of row and gradient of the bag, per index.

    Indices that are padding are skipped; their number depends on values.
    """
    many, size = indices.elements, weight.shape[-1]
    least = 0 if padding_idx >= 0 or not many else size
    return Flop(
        other=many * max(0, 2 * size - 1),
        least=0,
        elements={"weight": many * size, **(untouched("offsets") if offset2bag.elements else {})},
        min_elements=dict.fromkeys(("weight", "grad"), least),
    )


@formula(
    "aten.embedding_renorm",
    type="embedding",
    byte="the rows looked up, not the table; in place",
)
def embedding_renorm(
    self: Tensor, indices: Tensor, norm_type: float, output: Tensor, **_: Any
) -> Flop:
    """Rows with too large a norm are scaled: the norm, a comparison, a factor, and products.

    Distinct and too large rows depend on values: the minimum is 0.
    """
    rows, size = indices.elements, self.shape[-1]
    touched = {"self": rows * size} if is_in_place(self, output) else {}
    return Flop(
        other=norms(rows, rows * size, norm_type, is_complex(self)).flop + 3 * rows + rows * size,
        least=0,
        elements=touched,
        min_elements={name: min(count, size) for name, count in touched.items()},
    )
