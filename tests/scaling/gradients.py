"""Gradients of a step, made by hand."""

from __future__ import annotations

from roofline.core.dtypes import dtype
from roofline.workload.operators import Gradient


def gradient(place: int, elements: int, after: int, kind: str = "float32") -> Gradient:
    """That of a parameter named by its place, whose optimizer keeps 8 bytes an element."""
    return Gradient(
        parameter=f"p{place}",
        elements=elements,
        dtype=dtype(kind),
        after=after,
        storage=place,
        state_bytes=8 * elements,
    )
