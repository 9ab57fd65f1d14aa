"""Elements selected by indices: what is touched is as large as the indices, not as the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from roofline.workload.formulas.complex_numbers import is_complex
from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.reduction import rows_along, vector_norm
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec

_SELECTED = (
    "as many elements as are returned, and the indices; minimum: what one index selects (indices"
    " may be equal)"
)


def _along_dimension(
    _numbers: str, self: TensorSpec, dim: int, output: TensorSpec, **_: Any
) -> Flop:
    return _selected(self, output, rows_along(output, dim))


table(
    """
aten.gather =
    An element for each index, all of which may be the same along the dimension.
aten.index_select =
    A slice for each index.
""",
    _along_dimension,
    str,
    type="data movement",
    byte=_SELECTED,
)


@formula("aten.take", type="data movement", byte=_SELECTED)
def take(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An element for each index."""
    return _selected(self, output, 1)


@formula("aten.index", "aten._unsafe_index", type="data movement", byte=_SELECTED)
def index(
    self: TensorSpec, output: TensorSpec, indices: Sequence[TensorSpec | None] = (), **_: Any
) -> Flop:
    """An element, or a slice over the dimensions that no index selects, for each place.

    A mask selects no place twice.
    """
    given = [each for each in indices if each is not None]
    is_mask = len(given) == 1 and given[0].dtype.kind == "bool"
    return _selected(self, output, output.elements if is_mask else _slice(self, indices))


@formula(
    "aten._unsafe_masked_index",
    type="data movement",
    byte="as many elements as are returned, mask and indices; minimum: mask and indices",
)
def masked_index(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As `index`, with a value instead where a mask says so, which may be everywhere."""
    return _selected(self, output, 0)


@formula("aten.masked_select", type="data movement", byte="as many elements as are returned")
def masked_select(self: TensorSpec, mask: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """The elements for which the mask is true; broadcast, they are repeated."""
    both = zip_longest(reversed(self.shape), reversed(mask.shape), fillvalue=1)
    repeated = math.prod(theirs for own, theirs in both if own == 1)
    return _selected(self, output, -(-output.elements // max(repeated, 1)))


def _selected(self: TensorSpec, output: TensorSpec, least: int) -> Flop:
    """No more elements are read than are returned; how many are the same is a matter of values."""
    if self.distinct_elements < self.elements:
        # Broadcast: what is selected at different places may be one element.
        least = min(least, 1)
    return Flop(
        elements={"self": output.elements},
        min_elements={"self": min(least, output.elements)},
    )


def _slice(self: TensorSpec, indices: Sequence[TensorSpec | None]) -> int:
    """Elements at one place: over the dimensions that no index selects."""
    # A mask selects along as many dimensions as it has.
    selected: set[int] = set()
    dim = 0
    for each in indices:
        width = len(each.shape) if each is not None and each.dtype.kind == "bool" else 1
        selected |= set(range(dim, dim + width)) if each is not None else set()
        dim += width
    return math.prod(size for dim, size in enumerate(self.shape) if dim not in selected)


@formula(
    "aten.embedding",
    type="embedding",
    byte="the rows looked up, not the table; minimum: one row (indices may be equal)",
)
def embedding(weight: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """The rows that are looked up are read, not the table."""
    row = min(weight.shape[-1], output.elements)
    return Flop(elements={"weight": output.elements}, min_elements={"weight": row})


@formula(
    *("aten._embedding_bag", "aten._embedding_bag_forward_only"),
    type="embedding",
    byte="the rows looked up, not the table; minimum: one row, none with padding",
)
def embedding_bag(
    weight: TensorSpec,
    indices: TensorSpec,
    output: Sequence[TensorSpec],
    mode: int = 0,
    per_sample_weights: TensorSpec | None = None,
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
    operations = max(0, looked_up - bags) + (bags if mode == 1 else 0)
    operations += looked_up if per_sample_weights is not None else 0
    may_be_none = padding_idx >= 0 or include_last_offset
    return Flop(
        other=operations,
        # The mean of a bag without rows is not divided.
        least=0 if may_be_none else min(operations, looked_up) if mode == 1 else operations,
        elements={"weight": looked_up},
        min_elements={"weight": 0 if may_be_none else min(weight.shape[-1], looked_up)},
    )


_TOUCHED = (
    "in place, what the indices select, read and written (minimum: what one index selects); else"
    " the whole, copied"
)


def _updated(
    self: TensorSpec, output: TensorSpec, touched: int, least: int, operations: int = 0
) -> Flop:
    """In place, only what is selected is touched; else the whole tensor is copied first.

    It is `least` if all indices are the same. The operations are additions, of which complex
    numbers take two.
    """
    operations *= 2 if is_complex(self) else 1
    is_in_place = output.storage == self.storage
    return Flop(
        other=operations if floats(self) else 0,
        elements={"self": touched} if is_in_place else {},
        min_elements={"self": min(least, touched)} if is_in_place else {},
    )


def _scattered(
    numbers: str,
    self: TensorSpec,
    dim: int,
    index: TensorSpec,
    output: TensorSpec,
    src: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """As `_updated`; what is scattered may be larger than the indices: read as far as they go."""
    operations = index.elements * numbers.startswith("1")
    count = _updated(self, output, index.elements, rows_along(index, dim), operations)
    read = {} if src is None else {"src": index.elements}
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
    str,
    type="data movement",
    byte=_TOUCHED,
)


@formula("aten.put", type="data movement", byte=_TOUCHED, is_for_complex=True)
def put(
    self: TensorSpec, index: TensorSpec, output: TensorSpec, accumulate: bool = False, **_: Any
) -> Flop:
    """An element for each index, added to what is there if asked."""
    return _updated(self, output, index.elements, 1, index.elements if accumulate else 0)


@formula(
    "aten.masked_scatter",
    type="data movement",
    byte="all of both tensors; at the least nothing, as a mask may select none",
)
def masked_scatter(**_: Any) -> Flop:
    """What a mask selects is replaced, which cannot be known from shapes: it may be nothing."""
    return Flop(min_elements={"self": 0, "source": 0})


def _of_source(
    each: int, self: TensorSpec, dim: int, source: TensorSpec, output: TensorSpec, **_: Any
) -> Flop:
    least = rows_along(source, dim)
    return _updated(self, output, source.elements, least, each * source.elements)


table(
    """
aten.index_copy = 0
    An element for each of the source.
aten.index_reduce = 1
    An element for each of the source, combined by one operation with what is there.
""",
    _of_source,
    int,
    type="data movement",
    byte=_TOUCHED,
)


@formula("aten.index_add", type="data movement", byte=_TOUCHED, is_for_complex=True)
def index_add(alpha: float = 1, **given: Any) -> Flop:
    """self + alpha * source: one operation an element of the source, two where alpha is not 1."""
    # A complex alpha makes a product of 6, three times the two of a real one.
    return _of_source(1 if alpha == 1 else 4 if is_complex(alpha) else 2, **given)


@formula("aten.index_fill", type="data movement", byte=_TOUCHED)
def index_fill(self: TensorSpec, dim: int, index: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """A slice of the tensor for each index."""
    slice_elements = rows_along(self, dim)
    return _updated(self, output, index.elements * slice_elements, slice_elements)


@formula(
    "aten._unsafe_masked_index_put_accumulate",
    type="data movement",
    byte=_TOUCHED,
)
def masked_index_put(self: TensorSpec, values: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An addition for each value that the mask lets through, which may be none."""
    whole = _updated(self, output, values.elements, 0, values.elements)
    return replace(whole, least=0)


@formula(
    *("aten.index_put", "aten._index_put_impl", "aten._unsafe_index_put"),
    type="data movement",
    byte=_TOUCHED + "; where a mask selects, the whole, and at the least nothing",
    is_for_complex=True,
)
def index_put(
    self: TensorSpec,
    indices: Sequence[TensorSpec | None],
    output: TensorSpec,
    accumulate: bool = False,
    **_: Any,
) -> Flop:
    """An element, or a slice over the dimensions that no index selects, for each place.

    What a mask selects cannot be known from shapes: it may be all, and it may be nothing.
    """
    given = [each for each in indices if each is not None]
    if any(each.dtype.kind == "bool" for each in given):
        return Flop(min_elements={"self": 0})
    shapes = [each.shape[::-1] for each in given]
    places = math.prod(
        max((shape[i] for shape in shapes if i < len(shape)), default=1)
        for i in range(max(map(len, shapes), default=0))
    )
    each = _slice(self, indices)
    return _updated(self, output, places * each, each, places * each if accumulate else 0)


# Backward of selections: a whole of zeros is written, and in it what was selected.
#
# How often an element was selected lies in the values of the indices: additions are those of one
# for each gradient, and the least is nothing.

SUM, MEAN, LARGEST = 0, 1, 2
"""What a bag of rows is made of."""


@formula(
    *("aten.select_backward", "aten.slice_backward", "aten.diagonal_backward"),
    type="data movement",
)
def part(**_: Any) -> Flop:
    """The gradient is copied to where the part was."""
    return Flop()


@formula(
    "aten.masked_scatter_backward",
    type="data movement",
    byte="what the mask selects is read, which may be nothing",
)
def masked_scatter_backward(**_: Any) -> Flop:
    """What the mask selects of the gradient, and zeros."""
    return Flop(min_elements={"grad_output": 0})


@formula("aten.unfold_backward", type="data movement")
def windows(
    grad_in: TensorSpec, input_sizes: Sequence[int], dim: int, size: int, step: int, **_: Any
) -> Flop:
    """Where windows overlap their gradients are added: one for each element but the first."""
    if not input_sizes or not grad_in.elements or not floats(grad_in):
        return Flop()
    count = (input_sizes[dim] - size) // step + 1
    covered = (count - 1) * min(step, size) + size
    return Flop(other=(count * size - covered) * (grad_in.elements // (count * size)))


@formula(
    "aten.embedding_dense_backward",
    type="embedding",
    byte="each operand once; minimum: no gradient where there is padding",
)
def embedding_backward(
    grad_output: TensorSpec,
    indices: TensorSpec,
    padding_idx: int,
    scale_grad_by_freq: bool,
    **_: Any,
) -> Flop:
    """Each gradient is added to its row of a table of zeros; divided by how often it occurs if so.

    That is a division an index, and a product an element. Those of padding are passed over.
    """
    scaled = grad_output.elements + indices.elements if scale_grad_by_freq else 0
    return Flop(
        other=grad_output.elements + scaled,
        least=0,
        min_elements={"grad_output": 0} if padding_idx >= 0 else {},
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
    grad: TensorSpec,
    indices: TensorSpec,
    offset2bag: TensorSpec,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: TensorSpec | None,
    offsets: TensorSpec | None = None,
    padding_idx: int = -1,
    **_: Any,
) -> Flop:
    """The gradient of a bag is added to each of its rows, of the largest to one row a column.

    Means and frequencies take a division an index; these and weights a product an element. Where
    bags begin is not read if it is known for each index which bag it is in. All rows may be of one
    bag, and all may be padding, whose gradients are not read.
    """
    unread = {"offsets": 0} if offsets is not None and offset2bag.elements else {}
    if mode == LARGEST:
        unread |= {"indices": 0, "offset2bag": 0, "bag_size": 0}
        return Flop(other=grad.elements, least=0, elements=unread, min_elements={"grad": 0})
    unread |= {"maximum_indices": 0}
    if mode != MEAN:
        unread |= {"bag_size": 0}
    divisions = (mode == MEAN) + scale_grad_by_freq
    is_scaled = divisions or per_sample_weights is not None
    rows = indices.elements * grad.shape[-1]
    return Flop(
        other=rows * (2 if is_scaled else 1) + divisions * indices.elements,
        least=0,
        elements=unread,
        min_elements={"grad": 0 if padding_idx >= 0 else min(grad.shape[-1], rows)},
    )


@formula(
    "aten._embedding_bag_per_sample_weights_backward",
    type="embedding",
    byte="the rows looked up, not the table; minimum: one row, none with padding",
)
def embedding_bag_weights(
    weight: TensorSpec,
    indices: TensorSpec,
    offset2bag: TensorSpec,
    padding_idx: int = -1,
    **_: Any,
) -> Flop:
    """For each index the inner product of its row and the gradient of its bag.

    Indices that are padding take nothing, which cannot be known from shapes.
    """
    size = weight.shape[-1]
    return Flop(
        other=indices.elements * max(0, 2 * size - 1),
        least=0,
        elements={
            "weight": indices.elements * size,
            **({"offsets": 0} if offset2bag.elements else {}),
        },
        min_elements=dict.fromkeys(
            ("weight", "grad"), 0 if padding_idx >= 0 or not indices.elements else size
        ),
    )


@formula(
    "aten.embedding_renorm",
    type="embedding",
    byte="the rows looked up, not the table; in place",
)
def embedding_renorm(
    self: TensorSpec, indices: TensorSpec, norm_type: float, output: TensorSpec, **_: Any
) -> Flop:
    """Rows whose norm is too large are scaled: the norm, a comparison, a factor, and products.

    Which rows are the same, and which are too large, lies in values: the least is nothing.
    """
    rows = replace(self, shape=(indices.elements, self.shape[-1]))
    norms = vector_norm(rows, replace(self, shape=(indices.elements,)), norm_type)
    touched = {"self": rows.elements} if output.storage == self.storage else {}
    return Flop(
        other=norms.flop + 3 * indices.elements + rows.elements,
        least=0,
        elements=touched,
        min_elements={name: min(count, self.shape[-1]) for name, count in touched.items()},
    )
