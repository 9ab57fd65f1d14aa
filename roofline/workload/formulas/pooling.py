"""Pooling and resampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.convolution import each_dimension, inner_taps
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


def _max_pool(
    dimensions: int,
    self: TensorSpec,
    pooled: TensorSpec,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Flop:
    """A window of k elements takes k - 1 comparisons; those with padding can be avoided."""
    kernel = each_dimension(kernel_size, dimensions)
    taps = math.prod(
        inner_taps(*each)
        for each in zip(
            self.shape[-dimensions:],
            kernel,
            each_dimension(stride or kernel, dimensions),
            each_dimension(padding, dimensions),
            each_dimension(dilation, dimensions),
            pooled.shape[-dimensions:],
            strict=True,
        )
    )
    planes = math.prod(pooled.shape[:-dimensions])
    return Flop(
        other=pooled.elements * (math.prod(kernel) - 1),
        least=planes * taps - pooled.elements,
    )


@formula("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d")
@formula("aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
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
    # torch expands a single kernel size before dispatch, so its length is the number of dimensions.
    return _max_pool(len(kernel_size), self, pooled, kernel_size, stride, padding, dilation)


@formula("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(self: TensorSpec, kernel_size: Sequence[int], output: TensorSpec, **_: Any) -> Flop:
    """A window of k elements takes k - 1 additions and a division, padding included."""
    return Flop(other=output.elements * math.prod(kernel_size))


def _adaptive_elements(self: TensorSpec, pooled: TensorSpec, dimensions: int) -> int:
    """Elements in all windows: window i covers floor(i * in / out) up to ceil((i + 1) * in / out)."""
    planes = math.prod(self.shape[:-dimensions])
    return planes * math.prod(
        sum(-(-(i + 1) * size // windows) - i * size // windows for i in range(windows))
        for size, windows in zip(self.shape[-dimensions:], pooled.shape[-dimensions:], strict=True)
    )


@formula("aten._adaptive_avg_pool2d", "aten.adaptive_avg_pool2d")
def adaptive_avg_pool2d(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As many additions as the windows have elements but one, and a division for each."""
    return Flop(other=_adaptive_elements(self, output, 2))


@formula("aten._adaptive_avg_pool3d", "aten.adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As `adaptive_avg_pool2d`, in three dimensions."""
    return Flop(other=_adaptive_elements(self, output, 3))


@formula("aten.adaptive_max_pool2d")
def adaptive_max_pool2d(self: TensorSpec, output: Sequence[TensorSpec], **_: Any) -> Flop:
    """As many comparisons as each window has elements but one."""
    return Flop(other=_adaptive_elements(self, output[0], 2) - output[0].elements)


@formula("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d")
@formula("aten._upsample_nearest_exact1d", "aten._upsample_nearest_exact2d")
def upsample_nearest(**_: Any) -> Flop:
    """Elements are copied, not computed."""
    return Flop()


@formula("aten.upsample_bilinear2d", "aten._upsample_bilinear2d_aa")
def upsample_bilinear2d(output: TensorSpec, **_: Any) -> Flop:
    """Four neighbours, each weighted: four multiplications and three additions an element."""
    return Flop(other=7 * output.elements)
