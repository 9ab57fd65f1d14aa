"""Elements selected by indices: what is touched is as large as the indices, not as the tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.complex_numbers import is_complex
from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula(
    *("aten.gather", "aten.index", "aten.index_select", "aten.take", "aten._unsafe_index"),
    *("aten._unsafe_masked_index", "aten.masked_select"),
    type="data movement",
    byte="as many elements as are returned, and the indices",
)
def selection(output: TensorSpec, **_: Any) -> Flop:
    """No more elements are read than are returned."""
    return Flop(elements={"self": output.elements})


@formula("aten.embedding", type="embedding", byte="the rows looked up, not the table")
def embedding(output: TensorSpec, **_: Any) -> Flop:
    """The rows that are looked up are read, not the table."""
    return Flop(elements={"weight": output.elements})


@formula(
    *("aten._embedding_bag", "aten._embedding_bag_forward_only"),
    type="embedding",
    byte="the rows looked up, not the table",
)
def embedding_bag(
    weight: TensorSpec,
    indices: TensorSpec,
    output: Sequence[TensorSpec],
    mode: int = 0,
    per_sample_weights: TensorSpec | None = None,
    **_: Any,
) -> Flop:
    """The rows of a bag are added (or compared), a mean divided, and each row weighted if asked."""
    looked_up = indices.elements * weight.shape[-1]
    bags = output[0].elements
    operations = max(0, looked_up - bags) + (bags if mode == 1 else 0)
    operations += looked_up if per_sample_weights is not None else 0
    return Flop(other=operations, elements={"weight": looked_up})


_TOUCHED = "in place, what the indices select, read and written; else the whole, copied"


def _updated(self: TensorSpec, output: TensorSpec, touched: int, operations: int = 0) -> Flop:
    """In place, only what is selected is touched; else the whole tensor is copied first.

    The operations are additions, of which complex numbers take two.
    """
    operations *= 2 if is_complex(self) else 1
    elements = {"self": touched} if output.storage == self.storage else {}
    return Flop(other=operations if floats(self) else 0, elements=elements)


@formula("aten.scatter", type="data movement", byte=_TOUCHED)
def scatter(self: TensorSpec, index: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An element for each index."""
    return _updated(self, output, index.elements)


@formula("aten.scatter_add", type="data movement", byte=_TOUCHED, is_for_complex=True)
def scatter_add(self: TensorSpec, index: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An element for each index, added to what is there."""
    return _updated(self, output, index.elements, index.elements)


@formula(
    *("aten.scatter_reduce", "aten.scatter.reduce", "aten.scatter.value_reduce"),
    type="data movement",
    byte=_TOUCHED,
)
def scatter_combined(self: TensorSpec, index: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An element for each index, combined by one operation with what is there."""
    return _updated(self, output, index.elements, index.elements)


@formula("aten.put", type="data movement", byte=_TOUCHED, is_for_complex=True)
def put(
    self: TensorSpec, index: TensorSpec, output: TensorSpec, accumulate: bool = False, **_: Any
) -> Flop:
    """An element for each index, added to what is there if asked."""
    return _updated(self, output, index.elements, index.elements if accumulate else 0)


@formula(
    "aten.masked_scatter",
    type="data movement",
    byte="all of both tensors; at the least nothing, as a mask may select none",
)
def masked_scatter(**_: Any) -> Flop:
    """What a mask selects is replaced, which cannot be known from shapes: it may be nothing."""
    return Flop(least_elements={"self": 0, "source": 0})


@formula("aten.index_copy", type="data movement", byte=_TOUCHED)
def index_copy(self: TensorSpec, source: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An element for each of the source."""
    return _updated(self, output, source.elements)


@formula("aten.index_add", type="data movement", byte=_TOUCHED, is_for_complex=True)
def index_add(
    self: TensorSpec, source: TensorSpec, output: TensorSpec, alpha: float = 1, **_: Any
) -> Flop:
    """self + alpha * source: one operation an element of the source, two where alpha is not 1."""
    # A complex alpha makes a product of 6, three times the two of a real one.
    each = 1 if alpha == 1 else 4 if is_complex(alpha) else 2
    return _updated(self, output, source.elements, each * source.elements)


@formula("aten.index_fill", type="data movement", byte=_TOUCHED)
def index_fill(self: TensorSpec, dim: int, index: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """A slice of the tensor for each index."""
    size = self.shape[dim] if self.shape else 1
    return _updated(self, output, index.elements * (self.elements // size if size else 0))


@formula("aten.index_reduce", type="data movement", byte=_TOUCHED)
def index_reduce(self: TensorSpec, source: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An element for each of the source, combined by one operation with what is there."""
    return _updated(self, output, source.elements, source.elements)


@formula(
    "aten._unsafe_masked_index_put_accumulate",
    type="data movement",
    byte=_TOUCHED,
)
def masked_index_put(self: TensorSpec, values: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """An addition for each value that the mask lets through, which may be none."""
    whole = _updated(self, output, values.elements, values.elements)
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
        return Flop(least_elements={"self": 0})
    shapes = [each.shape[::-1] for each in given]
    places = math.prod(
        max((shape[i] for shape in shapes if i < len(shape)), default=1)
        for i in range(max(map(len, shapes), default=0))
    )
    slices = math.prod(
        size for i, size in enumerate(self.shape) if i >= len(indices) or indices[i] is None
    )
    touched = places * slices
    return _updated(self, output, touched, touched if accumulate else 0)
