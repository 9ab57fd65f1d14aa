"""Gradients of pooling: each output's is handed to the elements of its window.

An element that receives n gradients takes n - 1 additions: the first is written. The input is
passed for its shape alone, and not read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.convolution import each_dimension, inner_taps, touched
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

_BYTE = "the input is not read: only its shape is used"


def _pairs_and_elements(
    grad_output: TensorSpec,
    image: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> tuple[int, int]:
    """Pairs of an output and an element of its window; elements that lie in some window."""
    count = len(kernel_size)
    planes = math.prod(image.shape[:-count])
    along = list(
        zip(
            image.shape[-count:],
            kernel_size,
            each_dimension(stride or kernel_size, count),
            each_dimension(padding, count),
            each_dimension(dilation, count),
            grad_output.shape[-count:],
            strict=True,
        )
    )
    pairs, elements = (math.prod(of(*each) for each in along) for of in (inner_taps, touched))
    return planes * pairs, planes * elements


def _scattered(grad_output: TensorSpec, receivers: int, *, can_meet: bool = True) -> Flop:
    """Each gradient goes to one element, which values decide: where windows overlap, to the same.

    At most all are added, at least those that exceed the `receivers`.
    """
    if not can_meet:
        return Flop(elements={"self": 0})
    return Flop(
        other=grad_output.elements,
        least=max(0, grad_output.elements - receivers),
        elements={"self": 0},
    )


@formula("aten.max_pool2d_with_indices_backward", type="pooling", byte=_BYTE)
@formula("aten.max_pool3d_with_indices_backward", type="pooling", byte=_BYTE)
def max_pool(
    grad_output: TensorSpec,
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    **_: Any,
) -> Flop:
    """Each gradient goes where the index says; side by side, no two windows share an element."""
    pairs, elements = _pairs_and_elements(grad_output, self, kernel_size, stride, padding, dilation)
    return _scattered(grad_output, elements, can_meet=pairs > elements)


@formula("aten.fractional_max_pool2d_backward", type="pooling", byte=_BYTE)
@formula("aten.fractional_max_pool3d_backward", type="pooling", byte=_BYTE)
def fractional_max_pool(grad_output: TensorSpec, self: TensorSpec, **_: Any) -> Flop:
    """Each gradient goes where the index says; random samples say which windows overlap."""
    return _scattered(grad_output, self.elements)


@formula(
    "aten.max_pool2d_backward",
    type="pooling",
    byte="what no window covers need not be read to find the largest again",
)
def max_pool_without_indices(
    grad_output: TensorSpec,
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    **_: Any,
) -> Flop:
    """The largest of each window is looked for again: a comparison an element but the first."""
    pairs, elements = _pairs_and_elements(grad_output, self, kernel_size, stride, padding, dilation)
    compared = grad_output.elements * (math.prod(kernel_size) - 1)
    added = grad_output.elements if pairs > elements else 0
    least = max(0, pairs - grad_output.elements)
    return Flop(
        other=compared + added,
        least=least + max(0, grad_output.elements - elements),
        min_elements={"self": elements},
    )


@formula("aten.avg_pool2d_backward", "aten.avg_pool3d_backward", type="pooling", byte=_BYTE)
def avg_pool(
    grad_output: TensorSpec,
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    **_: Any,
) -> Flop:
    """Each gradient is divided once and added to the elements of its window, not to padding."""
    pairs, elements = _pairs_and_elements(grad_output, self, kernel_size, stride, padding)
    return Flop(other=grad_output.elements + pairs - elements, elements={"self": 0})


def _adaptive_pairs(grad_output: TensorSpec, self: TensorSpec, dimensions: int) -> int:
    """Elements in all windows: i covers floor(i * in / out) up to ceil((i + 1) * in / out)."""
    planes = math.prod(self.shape[:-dimensions])
    sizes = zip(self.shape[-dimensions:], grad_output.shape[-dimensions:], strict=True)
    return planes * math.prod(
        sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))
        for size, windows in sizes
    )


def _adaptive_avg(grad_output: TensorSpec, self: TensorSpec, dimensions: int) -> Flop:
    # Every element lies in some window, if there is one.
    pairs = _adaptive_pairs(grad_output, self, dimensions)
    added = max(0, pairs - self.elements)
    return Flop(other=grad_output.elements + added, elements={"self": 0})


@formula("aten._adaptive_avg_pool2d_backward", type="pooling", byte=_BYTE)
@formula("aten.mkldnn_adaptive_avg_pool2d_backward", type="pooling", byte=_BYTE)
def adaptive_avg_pool2d(grad_output: TensorSpec, self: TensorSpec, **_: Any) -> Flop:
    """Each gradient is divided once and added to the elements of its window."""
    return _adaptive_avg(grad_output, self, 2)


@formula("aten._adaptive_avg_pool3d_backward", type="pooling", byte=_BYTE)
@formula("aten.adaptive_avg_pool3d_backward", type="pooling", byte=_BYTE)
def adaptive_avg_pool3d(grad_output: TensorSpec, self: TensorSpec, **_: Any) -> Flop:
    """As `adaptive_avg_pool2d`, in three dimensions."""
    return _adaptive_avg(grad_output, self, 3)


@formula("aten.adaptive_max_pool2d_backward", type="pooling", byte=_BYTE)
def adaptive_max_pool2d(grad_output: TensorSpec, self: TensorSpec, **_: Any) -> Flop:
    """Each gradient goes where the index says; windows overlap unless their number divides."""
    overlap = _adaptive_pairs(grad_output, self, 2) > self.elements
    return _scattered(grad_output, self.elements, can_meet=overlap)


@formula("aten.adaptive_max_pool3d_backward", type="pooling", byte=_BYTE)
def adaptive_max_pool3d(grad_output: TensorSpec, self: TensorSpec, **_: Any) -> Flop:
    """As `adaptive_max_pool2d`, in three dimensions."""
    overlap = _adaptive_pairs(grad_output, self, 3) > self.elements
    return _scattered(grad_output, self.elements, can_meet=overlap)
