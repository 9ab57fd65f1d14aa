"""Elements selected by indices: what is touched is as large as the indices, not as the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from roofline.workload.formulas.costs import floats, is_complex, parts
from roofline.workload.formulas.reduction import norms, rows_along
from roofline.workload.formulas.registry import Flop, Sizes, Tensors, formula, none_of, table
from roofline.workload.tensors import TensorSpec as Tensor

Indices = Sequence[Tensor | None]


def is_in_place(self: Tensor, output: Tensor) -> bool:
    """Whether the result lies where the operand does."""
    return output.storage == self.storage


def slice_at(self: Tensor, indices: Indices) -> int:
    """Elements at one place: over the dimensions that no index selects."""
    # A mask selects along as many dimensions as it has.
    selected: set[int] = set()
    dim = 0
    for each in indices:
        width = len(each.shape) if each is not None and each.dtype.kind == "bool" else 1
        selected |= set(range(dim, dim + width)) if each is not None else set()
        dim += width
    return math.prod(size for dim, size in enumerate(self.shape) if dim not in selected)


def seen_once(self: Tensor, mask: Tensor, output: Tensor) -> int:
    """Elements that a mask selects; broadcast, they are repeated."""
    both = zip_longest(reversed(self.shape), reversed(mask.shape), fillvalue=1)
    repeated = math.prod(theirs for own, theirs in both if own == 1)
    return -(-output.elements // max(repeated, 1))


_SELECTED = (
    "as many elements as are returned, and the indices; minimum: what one index selects (indices"
    " may be equal)"
)


def _selected(least: int, self: Tensor, output: Tensor, **_: Any) -> Flop:
    """No more elements are read than are returned; how many are the same is a matter of values."""
    if self.distinct_elements < self.elements:
        # Broadcast: what is selected at different places may be one element.
        least = min(least, 1)
    return Flop(
        elements={"self": output.elements}, min_elements={"self": min(least, output.elements)}
    )


table(
    """
aten.gather = rows_along(output, dim)
    An element for each index, all of which may be the same along the dimension.
aten.index_select = rows_along(output, dim)
    A slice for each index.
aten.take = 1
    An element for each index.
""",
    _selected,
    byte=_SELECTED,
)


@formula("aten.index", "aten._unsafe_index", byte=_SELECTED)
def index(self: Tensor, output: Tensor, indices: Indices = (), **_: Any) -> Flop:
    """An element, or a slice over the dimensions that no index selects, for each place.

    A mask selects no place twice.
    """
    given = [each for each in indices if each is not None]
    is_mask = len(given) == 1 and given[0].dtype.kind == "bool"
    return _selected(output.elements if is_mask else slice_at(self, indices), self, output)


table(
    """
aten._unsafe_masked_index = 0
    As `index`, with a value instead where a mask says so, which may be everywhere.
""",
    _selected,
    byte="as many elements as are returned, mask and indices; minimum: mask and indices",
)
table(
    """
aten.masked_select = seen_once(self, mask, output)
    The elements for which the mask is true; broadcast, they are repeated.
""",
    _selected,
    byte="as many elements as are returned",
)


_TOUCHED = (
    "in place, what the indices select, read and written (minimum: what one index selects); else"
    " the whole, copied"
)


def updated(self: Tensor, output: Tensor, touched: int, least: int, operations: int = 0) -> Flop:
    """In place, what is selected (`least` of equal indices); else all is copied. And additions."""
    other = floats(self) * operations * parts(self)
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
    """What is scattered may be larger than the indices: it is read as far as they go."""
    places = index.elements
    count = updated(self, output, places, rows_along(index, dim), each * places)
    read = {} if src is None else {"src": places}
    return replace(count, elements={**count.elements, **read})


table(
    """
aten.scatter = 0
    An element for each index.
aten.scatter_add = 1; complex
    An element for each index, added to what is there.
aten.scatter_reduce aten.scatter.reduce aten.scatter.value_reduce = 1
    An element for each index, combined by one operation with what is there.
""",
    _scattered,
    byte=_TOUCHED,
)


def from_source(each: int, self: Tensor, dim: int, source: Tensor, output: Tensor) -> Flop:
    """So many operations for each element of the source."""
    many = source.elements
    return updated(self, output, many, rows_along(source, dim), each * many)


table(
    """
aten.put = updated(self, output, index.elements, 1, accumulate * index.elements); complex
    An element for each index, added to what is there if asked.
aten.index_copy = from_source(0, self, dim, source, output)
    An element for each of the source.
aten.index_reduce = from_source(1, self, dim, source, output)
    An element for each of the source, combined by one operation with what is there.
aten.index_fill = updated(
    self, output, index.elements * rows_along(self, dim), rows_along(self, dim))
    A slice of the tensor for each index.
aten._unsafe_masked_index_put_accumulate = replace(
    updated(self, output, values.elements, 0, values.elements), least=0)
    An addition for each value that the mask lets through, which may be none.
""",
    byte=_TOUCHED,
)


@formula("aten.index_add", byte=_TOUCHED, is_for_complex=True)
def index_add(
    self: Tensor, dim: int, source: Tensor, output: Tensor, alpha: float = 1, **_: Any
) -> Flop:
    """self + alpha * source: one operation an element of the source, two where alpha is not 1."""
    # A complex alpha makes a product of 6, three times the two of a real one.
    each = 1 if alpha == 1 else 4 if is_complex(alpha) else 2
    return from_source(each, self, dim, source, output)


@formula(
    "aten.masked_scatter",
    byte="all of both tensors; at the least nothing, as a mask may select none",
)
def masked_scatter(**_: Any) -> Flop:
    """What a mask selects is replaced, which cannot be known from shapes: it may be nothing."""
    return Flop(min_elements=none_of("self", "source"))


@formula(
    *("aten.index_put", "aten._index_put_impl", "aten._unsafe_index_put"),
    byte=_TOUCHED + "; where a mask selects, the whole, and at the least nothing",
    is_for_complex=True,
)
def index_put(
    self: Tensor, indices: Indices, output: Tensor, accumulate: bool = False, **_: Any
) -> Flop:
    """An element, or a slice over the dimensions that no index selects, for each place.

    What a mask selects cannot be known from shapes: it may be all, and it may be nothing.
    """
    given = [each for each in indices if each is not None]
    if any(each.dtype.kind == "bool" for each in given):
        return Flop(min_elements={"self": 0})
    sizes = zip_longest(*(each.shape[::-1] for each in given), fillvalue=0)
    each = slice_at(self, indices)
    touched = math.prod(map(max, sizes)) * each
    return updated(self, output, touched, each, accumulate * touched)


# Backward of selections: a whole of zeros is written, and in it what was selected. How often an
# element was selected lies in the values of the indices: additions are those of one for each
# gradient, and the least is nothing.


def overlaps(grad_in: Tensor, input_sizes: Sizes, dim: int, size: int, step: int) -> int:
    """Gradients of windows but the first of each element."""
    if not input_sizes or not grad_in.elements or not floats(grad_in):
        return 0
    count = (input_sizes[dim] - size) // step + 1
    covered = (count - 1) * min(step, size) + size
    return (count * size - covered) * (grad_in.elements // (count * size))


table(
    """
aten.select_backward aten.slice_backward aten.diagonal_backward = 0
    The gradient is copied to where the part was.
aten.unfold_backward = overlaps(grad_in, input_sizes, dim, size, step)
    Where windows overlap their gradients are added: one for each element but the first.
"""
)


@formula("aten.masked_scatter_backward", byte="what the mask selects is read, which may be nothing")
def masked_scatter_backward(**_: Any) -> Flop:
    """What the mask selects of the gradient, and zeros."""
    return Flop(min_elements=none_of("grad_output"))


# Embeddings: rows of a table, and bags of them.

SUM, MEAN, LARGEST = 0, 1, 2
"""What a bag of rows is made of."""

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
    """The rows of a bag are added (or compared), a mean divided, and each row weighted if asked.

    The least: all indices may be padding, whose rows are passed over. Where the last offset is
    given, it may be that bags end before the first index.
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
    """Each gradient is added to its row of a table of zeros; divided by how often it occurs if so.

    That is a division an index, and a product an element. Those of padding are passed over.
    """
    scaled = grad_output.elements + indices.elements if scale_grad_by_freq else 0
    return Flop(
        other=grad_output.elements + scaled,
        least=0,
        min_elements=none_of("grad_output") if padding_idx >= 0 else {},
    )


@formula(
    *("aten._embedding_bag_dense_backward", "aten._embedding_bag_backward"),
    type="embedding",
    byte=(
        "of what says where rows went, that which the kind of bag needs; minimum: the gradient of"
        " one bag, none with padding"
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
    """The gradient of a bag is added to each of its rows, of the largest to one row a column.

    Means and frequencies take a division an index; these and weights a product an element. Where
    bags begin is not read if it is known for each index which bag it is in. All rows may be of one
    bag, and all may be padding, whose gradients are not read.
    """
    unread = none_of("offsets") if offsets is not None and offset2bag.elements else {}
    if mode == LARGEST:
        unread |= none_of("indices", "offset2bag", "bag_size")
        return Flop(other=grad.elements, least=0, elements=unread, min_elements={"grad": 0})
    unread |= none_of("maximum_indices", *["bag_size"] * (mode != MEAN))
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
    """For each index the inner product of its row and the gradient of its bag.

    Indices that are padding take nothing, which cannot be known from shapes.
    """
    many, size = indices.elements, weight.shape[-1]
    least = 0 if padding_idx >= 0 or not many else size
    return Flop(
        other=many * max(0, 2 * size - 1),
        least=0,
        elements={"weight": many * size, **(none_of("offsets") if offset2bag.elements else {})},
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
    """Rows whose norm is too large are scaled: the norm, a comparison, a factor, and products.

    Which rows are the same, and which are too large, lies in values: the least is nothing.
    """
    rows, size = indices.elements, self.shape[-1]
    touched = {"self": rows * size} if is_in_place(self, output) else {}
    return Flop(
        other=norms(rows, rows * size, norm_type, is_complex(self)).flop + 3 * rows + rows * size,
        least=0,
        elements=touched,
        min_elements={name: min(count, size) for name, count in touched.items()},
    )
