"""Pooling, and its like: windows of elements that become one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.convolution import each_dimension, inner_taps, touched
from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.registry import Flop, formula, table
from roofline.workload.tensors import TensorSpec

UNTOUCHED = "what no window covers need not be read"


def _windows_along(
    self: TensorSpec,
    pooled: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> list[tuple[int, int, int, int, int, int]]:
    """Size, kernel, stride, padding, dilation and windows of each dimension."""
    # torch expands a single kernel size before dispatch: its length is the number of dimensions.
    dimensions = len(kernel_size)
    return list(
        zip(
            self.shape[-dimensions:],
            kernel_size,
            each_dimension(stride or kernel_size, dimensions),
            each_dimension(padding, dimensions),
            each_dimension(dilation, dimensions),
            pooled.shape[-dimensions:],
            strict=True,
        )
    )


@formula(
    *("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d"),
    *("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices"),
    byte=UNTOUCHED,
)
def max_pool(
    self: TensorSpec,
    kernel_size: Sequence[int],
    output: TensorSpec | Sequence[TensorSpec],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    **_: Any,
) -> Flop:
    """A window of k elements takes k - 1 comparisons; those with padding can be avoided."""
    pooled = output if isinstance(output, TensorSpec) else output[0]
    along = _windows_along(self, pooled, kernel_size, stride, padding, dilation)
    planes = math.prod(pooled.shape[: -len(along)])
    inner = planes * math.prod(inner_taps(*each) for each in along)
    return Flop(
        other=pooled.elements * (math.prod(kernel_size) - 1) if floats(self) else 0,
        least=max(0, inner - pooled.elements) if floats(self) else 0,
        min_elements={"self": planes * math.prod(touched(*each) for each in along)},
    )


@formula("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", byte=UNTOUCHED)
def avg_pool(
    self: TensorSpec,
    kernel_size: Sequence[int],
    output: TensorSpec,
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    **_: Any,
) -> Flop:
    """A window of k elements takes k - 1 additions and a division; padding need not be added."""
    along = _windows_along(self, output, kernel_size, stride, padding)
    planes = math.prod(output.shape[: -len(along)])
    inner = planes * math.prod(inner_taps(*each) for each in along)
    return Flop(
        other=output.elements * math.prod(kernel_size) if floats(self) else 0,
        least=inner if floats(self) else 0,
        min_elements={"self": planes * math.prod(touched(*each) for each in along)},
    )


@formula("aten.fractional_max_pool2d", "aten.fractional_max_pool3d", byte=UNTOUCHED)
def fractional_max_pool(kernel_size: Sequence[int], output: Sequence[TensorSpec], **_: Any) -> Flop:
    """A window of k elements takes k - 1 comparisons; windows lie where random samples say."""
    return Flop(
        other=output[0].elements * (math.prod(kernel_size) - 1),
        min_elements={"self": output[0].elements},
    )


@formula("aten.col2im", byte="each operand once; minimum: without what falls on padding")
def col2im(
    self: TensorSpec,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """Each element of the columns is added to its place in the image; padding need not be."""
    along = _windows_over(output_size, kernel_size, stride, padding, dilation)
    inner = math.prod(output.shape[:-2]) * math.prod(inner_taps(*each) for each in along)
    return Flop(
        other=self.elements,
        least=max(0, inner - output.elements),
        min_elements={"self": inner},
    )


@formula("aten.im2col", type="data movement", byte=UNTOUCHED)
def im2col(
    self: TensorSpec,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    **_: Any,
) -> Flop:
    """Each window of the image is copied to a column."""
    along = _windows_over(self.shape[-2:], kernel_size, stride, padding, dilation)
    planes = math.prod(self.shape[:-2])
    return Flop(min_elements={"self": planes * math.prod(touched(*each) for each in along)})


def _windows_over(
    image: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[int, int, int, int, int, int]]:
    """Size, kernel, stride, padding, dilation and windows that fit, of each dimension."""
    return [
        (*each, (each[0] + 2 * each[3] - each[4] * (each[1] - 1) - 1) // each[2] + 1)
        for each in zip(image, kernel_size, stride, padding, dilation, strict=True)
    ]


def _adaptive_elements(self: TensorSpec, pooled: TensorSpec, dimensions: int) -> int:
    """Elements in all windows: i covers floor(i * in / out) up to ceil((i + 1) * in / out)."""
    planes = math.prod(self.shape[:-dimensions])
    return planes * math.prod(
        sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))
        for size, windows in zip(self.shape[-dimensions:], pooled.shape[-dimensions:], strict=True)
    )


def _adaptive_avg(dimensions: int, self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    return Flop(other=_adaptive_elements(self, output, dimensions))


table(
    """
aten._adaptive_avg_pool2d aten.adaptive_avg_pool2d = 2
    As many additions as the windows have elements but one, and a division for each.
aten._adaptive_avg_pool3d aten.adaptive_avg_pool3d = 3
    As `adaptive_avg_pool2d`, in three dimensions.
aten.mkldnn_adaptive_avg_pool2d aten.adaptive_avg_pool1d = 2
    As `aten._adaptive_avg_pool2d`; of one dimension, each channel is a window of its own.
""",
    _adaptive_avg,
    int,
)


def _adaptive_max(
    dimensions: int, self: TensorSpec, output: Sequence[TensorSpec], **_: Any
) -> Flop:
    pooled = output[0]
    return Flop(other=_adaptive_elements(self, pooled, dimensions) - pooled.elements)


table(
    """
aten.adaptive_max_pool2d = 2
    As many comparisons as each window has elements but one.
aten.adaptive_max_pool3d = 3
    As `adaptive_max_pool2d`, in three dimensions.
""",
    _adaptive_max,
    int,
)


# Gradients of pooling: each output's is handed to the elements of its window.
#
# An element that receives n gradients takes n - 1 additions: the first is written. The input is
# passed for its shape alone, and not read.

_BYTE = "the input is not read: only its shape is used"


def _pairs_and_elements(
    grad_output: TensorSpec,
    self: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
    **_: Any,
) -> tuple[int, int]:
    """Pairs of an output and an element of its window; elements that lie in some window."""
    along = _windows_along(self, grad_output, kernel_size, stride, padding, dilation)
    planes = math.prod(self.shape[: -len(along)])
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


@formula(
    *("aten.max_pool2d_with_indices_backward", "aten.max_pool3d_with_indices_backward"),
    byte=_BYTE,
)
def max_pool_backward(grad_output: TensorSpec, self: TensorSpec, **given: Any) -> Flop:
    """Each gradient goes where the index says; side by side, no two windows share an element."""
    pairs, elements = _pairs_and_elements(grad_output, self, **given)
    return _scattered(grad_output, elements, can_meet=pairs > elements)


@formula("aten.fractional_max_pool2d_backward", byte=_BYTE)
@formula("aten.fractional_max_pool3d_backward", byte=_BYTE)
def fractional_max_pool_backward(grad_output: TensorSpec, self: TensorSpec, **_: Any) -> Flop:
    """Each gradient goes where the index says; random samples say which windows overlap."""
    return _scattered(grad_output, self.elements)


@formula(
    "aten.max_pool2d_backward",
    byte="what no window covers need not be read to find the largest again",
)
def max_pool_without_indices(
    grad_output: TensorSpec, self: TensorSpec, kernel_size: Sequence[int], **given: Any
) -> Flop:
    """The largest of each window is looked for again: a comparison an element but the first."""
    pairs, elements = _pairs_and_elements(grad_output, self, kernel_size, **given)
    compared = grad_output.elements * (math.prod(kernel_size) - 1)
    added = grad_output.elements if pairs > elements else 0
    least = max(0, pairs - grad_output.elements)
    return Flop(
        other=compared + added,
        least=least + max(0, grad_output.elements - elements),
        min_elements={"self": elements},
    )


@formula("aten.avg_pool2d_backward", "aten.avg_pool3d_backward", byte=_BYTE)
def avg_pool_backward(grad_output: TensorSpec, self: TensorSpec, **given: Any) -> Flop:
    """Each gradient is divided once and added to the elements of its window, not to padding."""
    pairs, elements = _pairs_and_elements(grad_output, self, **given)
    return Flop(other=grad_output.elements + pairs - elements, elements={"self": 0})


def _adaptive_avg_backward(
    dimensions: int, grad_output: TensorSpec, self: TensorSpec, **_: Any
) -> Flop:
    # Every element lies in some window, if there is one.
    pairs = _adaptive_elements(self, grad_output, dimensions)
    added = max(0, pairs - self.elements)
    return Flop(other=grad_output.elements + added, elements={"self": 0})


def _adaptive_max_backward(
    dimensions: int, grad_output: TensorSpec, self: TensorSpec, **_: Any
) -> Flop:
    overlap = _adaptive_elements(self, grad_output, dimensions) > self.elements
    return _scattered(grad_output, self.elements, can_meet=overlap)


table(
    """
aten._adaptive_avg_pool2d_backward aten.mkldnn_adaptive_avg_pool2d_backward = 2
    Each gradient is divided once and added to the elements of its window.
aten._adaptive_avg_pool3d_backward aten.adaptive_avg_pool3d_backward = 3
    As `adaptive_avg_pool2d`, in three dimensions.
""",
    _adaptive_avg_backward,
    int,
    byte=_BYTE,
)
table(
    """
aten.adaptive_max_pool2d_backward = 2
    Each gradient goes where the index says; windows overlap unless their number divides.
aten.adaptive_max_pool3d_backward = 3
    As `adaptive_max_pool2d`, in three dimensions.
""",
    _adaptive_max_backward,
    int,
    byte=_BYTE,
)
