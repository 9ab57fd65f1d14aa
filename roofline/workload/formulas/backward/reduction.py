"""Backward of reductions; most of torch's are made of other operators."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula(
    "aten._segment_reduce_backward",
    type="reduction",
    byte="of sums and means only the gradient and the lengths are read",
)
def segments(grad: TensorSpec, data: TensorSpec, reduce: str, **_: Any) -> Flop:
    """A sum's gradient goes to each element of its segment; a mean's is divided first.

    Of the largest and smallest it goes where an element equals the result (a comparison each), and
    is divided among those; of a product it is multiplied by the result and divided by each element.
    """
    if reduce == "sum":
        return Flop(elements={"data": 0, "output": 0})
    if reduce == "mean":
        return Flop(other=grad.elements, elements={"data": 0, "output": 0})
    return Flop(
        other=data.elements + grad.elements,
        least=data.elements + (grad.elements if reduce == "prod" else 0),
    )
