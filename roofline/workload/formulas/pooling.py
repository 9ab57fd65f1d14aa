"""Pooling: windows of elements reduced to one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from roofline.workload.formulas.convolution import (
    Dimension,
    inner_taps,
    per_dimension,
    touched_elements,
)
from roofline.workload.formulas.costs import has_floats
from roofline.workload.formulas.pointwise import first_output
from roofline.workload.formulas.registry import Flop, Sizes, Tensors, formula, table
from roofline.workload.tensors import TensorSpec as Tensor

UNTOUCHED = "each operand once; minimum: only elements in a window"


def _windows_along(
    self: Tensor,
    pooled: Tensor,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    **_: Any,
) -> list[Dimension]:
    # torch expands a single kernel size before dispatch: its length gives the dimensions.
    many = len(kernel_size)
    return [
        Dimension(*each)
        for each in zip(
            self.shape[-many:],
            kernel_size,
            per_dimension(stride or kernel_size, many),
            per_dimension(padding, many),
            per_dimension(dilation, many),
            pooled.shape[-many:],
            strict=True,
        )
    ]


def _over(of: Callable[..., int], planes: Sizes, along: list[Dimension]) -> int:
    """Return the product of `of` over all dimensions and planes."""
    return math.prod(planes) * math.prod(of(*each) for each in along)


@formula(
    *("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d"),
    *("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices"),
    byte=UNTOUCHED,
)
def max_pool(self: Tensor, kernel_size: Sizes, output: Tensor | Tensors, **given: Any) -> Flop:
    """k - 1 comparisons per window of k elements; minimum: without padding."""
    pooled = first_output(output)
    along = _windows_along(self, pooled, kernel_size, **given)
    planes = pooled.shape[: -len(along)]
    inner = _over(inner_taps, planes, along)
    return Flop(
        other=has_floats(self) * pooled.elements * (math.prod(kernel_size) - 1),
        least=has_floats(self) * max(0, inner - pooled.elements),
        min_elements={"self": _over(touched_elements, planes, along)},
    )


@formula("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", byte=UNTOUCHED)
def avg_pool(self: Tensor, kernel_size: Sizes, output: Tensor, **given: Any) -> Flop:
    """k - 1 additions and 1 division per window of k elements; minimum: without padding."""
    along = _windows_along(self, output, kernel_size, **given)
    planes = output.shape[: -len(along)]
    return Flop(
        other=has_floats(self) * output.elements * math.prod(kernel_size),
        least=has_floats(self) * _over(inner_taps, planes, along),
        min_elements={"self": _over(touched_elements, planes, along)},
    )


@formula("aten.fractional_max_pool2d", "aten.fractional_max_pool3d", byte=UNTOUCHED)
def fractional_max_pool(kernel_size: Sizes, output: Tensors, **_: Any) -> Flop:
    """k - 1 comparisons per window of k elements, at random positions."""
    windows = output[0].elements
    return Flop(other=windows * (math.prod(kernel_size) - 1), min_elements={"self": windows})


@formula("aten.col2im", byte="each operand once; minimum: without elements on padding")
def col2im(self: Tensor, output_size: Sizes, output: Tensor, **given: Any) -> Flop:
    """1 addition per column element, to its place in the image; minimum: without padding."""
    inner = _over(inner_taps, output.shape[:-2], _windows_over(output_size, **given))
    return Flop(
        other=self.elements, least=max(0, inner - output.elements), min_elements={"self": inner}
    )


@formula("aten.im2col", type="data movement", byte=UNTOUCHED)
def im2col(self: Tensor, **given: Any) -> Flop:
    """Each window of the image is copied to a column."""
    along = _windows_over(self.shape[-2:], **given)
    return Flop(min_elements={"self": _over(touched_elements, self.shape[:-2], along)})


def _windows_over(
    image: Sizes, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, **_: Any
) -> list[Dimension]:
    return [
        Dimension(size, kernel, step, pad, d, (size + 2 * pad - d * (kernel - 1) - 1) // step + 1)
        for size, kernel, step, pad, d in zip(
            image, kernel_size, stride, padding, dilation, strict=True
        )
    ]


def adaptive_window_elements(self: Tensor, pooled: Tensor, dimensions: int) -> int:
    """Elements in all windows: i covers floor(i * in / out) up to ceil((i + 1) * in / out)."""
    planes = math.prod(self.shape[:-dimensions])
    return planes * math.prod(
        sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))
        for size, windows in zip(self.shape[-dimensions:], pooled.shape[-dimensions:], strict=True)
    )


table(
    """
aten._adaptive_avg_pool2d aten.adaptive_avg_pool2d = adaptive_window_elements(self, output, 2)
    k - 1 additions and 1 division per window of k elements.
aten._adaptive_avg_pool3d aten.adaptive_avg_pool3d = adaptive_window_elements(self, output, 3)
    As aten.adaptive_avg_pool2d, in three dimensions.
aten.mkldnn_adaptive_avg_pool2d aten.adaptive_avg_pool1d = adaptive_window_elements(self, output, 2)
    As aten.adaptive_avg_pool2d; in one dimension, each channel is a window.
aten.adaptive_max_pool2d = adaptive_window_elements(self, output[0], 2) - output[0].elements
    k - 1 comparisons per window of k elements.
aten.adaptive_max_pool3d = adaptive_window_elements(self, output[0], 3) - output[0].elements
    As aten.adaptive_max_pool2d, in three dimensions.
"""
)


# Gradients of pooling: each output passes its gradient to the elements of its window. An element
# with n gradients takes n - 1 additions: the first is written. The input is not read.

_BYTE = "the input is not read: only its shape is used"


def _pairs_and_elements(
    grad_output: Tensor, self: Tensor, kernel_size: Sizes, **given: Any
) -> tuple[int, int]:
    """Pairs of an output and an element of its window; elements in some window."""
    along = _windows_along(self, grad_output, kernel_size, **given)
    planes = self.shape[: -len(along)]
    return _over(inner_taps, planes, along), _over(touched_elements, planes, along)


def count_scattered(grad_output: Tensor, receivers: int, can_meet: bool = True) -> Flop:
    """Count gradients sent to one element each, by values: all may meet; `receivers` are free."""
    if not can_meet:
        return Flop(elements={"self": 0})
    many = grad_output.elements
    return Flop(other=many, least=max(0, many - receivers), elements={"self": 0})


@formula(
    *("aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward"),
    byte=_BYTE,
)
def max_pool_backward(grad_output: Tensor, **given: Any) -> Flop:
    """1 addition per gradient, at the index of its maximum; 0 if windows do not overlap."""
    pairs, elements = _pairs_and_elements(grad_output, **given)
    return count_scattered(grad_output, elements, pairs > elements)


@formula(
    "aten.max_pool2d_backward",
    byte="each operand once; minimum: only elements in a window",
)
def max_pool_without_indices(grad_output: Tensor, kernel_size: Sizes, **given: Any) -> Flop:
    """k - 1 comparisons per window of k elements to find its maximum; then as with indices."""
    pairs, elements = _pairs_and_elements(grad_output, kernel_size=kernel_size, **given)
    windows = grad_output.elements
    added = windows if pairs > elements else 0
    return Flop(
        other=windows * (math.prod(kernel_size) - 1) + added,
        least=max(0, pairs - windows) + max(0, windows - elements),
        min_elements={"self": elements},
    )


@formula("aten.avg_pool2d_backward", "aten.avg_pool3d_backward", byte=_BYTE)
def avg_pool_backward(grad_output: Tensor, **given: Any) -> Flop:
    """1 division per gradient, and n - 1 additions per element with n gradients; no padding."""
    pairs, elements = _pairs_and_elements(grad_output, **given)
    return count_averaged(grad_output, pairs, elements)


def count_averaged(grad_output: Tensor, pairs: int, receivers: int) -> Flop:
    """Count a division per gradient, and an addition per further gradient of an element."""
    added = max(0, pairs - receivers)
    return Flop(other=grad_output.elements + added, elements={"self": 0})


table(
    """
aten.fractional_max_pool2d_backward
aten.fractional_max_pool3d_backward = count_scattered(grad_output, self.elements)
    1 addition per gradient, at the index of its maximum; overlaps are random.
aten._adaptive_avg_pool2d_backward aten.mkldnn_adaptive_avg_pool2d_backward = count_averaged(
    grad_output, adaptive_window_elements(self, grad_output, 2), self.elements)
    1 division per gradient, and n - 1 additions per element with n gradients.
aten._adaptive_avg_pool3d_backward aten.adaptive_avg_pool3d_backward = count_averaged(
    grad_output, adaptive_window_elements(self, grad_output, 3), self.elements)
    As aten._adaptive_avg_pool2d_backward, in three dimensions.
aten.adaptive_max_pool2d_backward = count_scattered(
    grad_output, self.elements, adaptive_window_elements(self, grad_output, 2) > self.elements)
    1 addition per gradient, at the index of its maximum; 0 if windows do not overlap.
aten.adaptive_max_pool3d_backward = count_scattered(
    grad_output, self.elements, adaptive_window_elements(self, grad_output, 3) > self.elements)
    As aten.adaptive_max_pool2d_backward, in three dimensions.
""",
    byte=_BYTE,
)
