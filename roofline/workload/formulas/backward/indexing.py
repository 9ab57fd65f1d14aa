"""Backward of selections: a whole of zeros is written, and in it what was selected.

How often an element was selected lies in the values of the indices: additions are those of one for
each gradient, and the least is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.reduction import vector_norm
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

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
def masked_scatter(**_: Any) -> Flop:
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
def embedding(
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
def embedding_bag(
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
