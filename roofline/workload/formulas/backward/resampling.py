"""Gradients of resampling: each output's is handed to the elements it was made of, weighted.

An element that receives n gradients takes n - 1 additions: the first is written. Making the weights
is left out where all channels and rows share them, as it is forward.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.formulas.resampling import (
    upsample_bicubic2d_aa,
    upsample_bilinear2d_aa,
    upsample_lanczos2d_aa,
)
from roofline.workload.tensors import TensorSpec

NEAREST, EXACT, LINEAR, CUBIC = "nearest", "nearest, exact", "linear", "cubic"

_NEIGHBOURS = {NEAREST: 1, EXACT: 1, LINEAR: 2, CUBIC: 4}
"""Inputs an output is made of along one dimension, those at the edge counted twice."""


@functools.cache
def receivers(size: int, outputs: int, scale: float, mode: str, align_corners: bool) -> int:
    """Inputs along one dimension that some output is made of."""
    # Whatever scale is asked for, these are copied, and doubled.
    if (mode in (NEAREST, LINEAR) and outputs == size) or (mode == NEAREST and outputs == 2 * size):
        return size
    found: set[int] = set()
    for i in range(outputs):
        if mode in (NEAREST, EXACT):
            found.add(min(int((i + 0.5 * (mode == EXACT)) * scale), size - 1))
            continue
        place = i * scale if align_corners else (i + 0.5) * scale - 0.5
        first = math.floor(place if mode == CUBIC else max(place, 0.0))
        reach = (-1, 0, 1, 2) if mode == CUBIC else (0, 1)
        found.update(min(max(first + step, 0), size - 1) for step in reach)
    return len(found)


def _scattered(
    grad_output: TensorSpec,
    output: TensorSpec,
    scales: Sequence[float | None],
    mode: str,
    *,
    align_corners: bool = False,
) -> Flop:
    """A product for each neighbour, unless there is but one; additions where gradients meet.

    The least leaves out neighbours along a dimension that keeps its size: torch copies there.
    """
    dimensions = len(scales)
    elements = math.prod(output.shape[:-dimensions])
    parts = least_parts = grad_output.elements
    sizes = zip(output.shape[-dimensions:], grad_output.shape[-dimensions:], scales, strict=True)
    for size, outputs, asked in sizes:
        if align_corners:
            scale = (size - 1) / (outputs - 1) if outputs > 1 else 0.0
        else:
            scale = 1 / asked if asked else size / max(outputs, 1)
        elements *= receivers(size, outputs, scale, mode, align_corners)
        parts *= _NEIGHBOURS[mode]
        is_kept = size == outputs and (mode == LINEAR or scale == 1)
        least_parts *= 1 if is_kept else _NEIGHBOURS[mode]
    # With its weight each part takes a product.
    each = 2 if mode in (LINEAR, CUBIC) else 1
    copied = output.shape == grad_output.shape
    return Flop(
        other=each * parts - elements,
        least=0 if copied else max(0, each * least_parts - elements),
    )


@formula("aten.upsample_nearest1d_backward", type="resampling")
def upsample_nearest1d(
    grad_output: TensorSpec, output: TensorSpec, scales: float | None = None, **_: Any
) -> Flop:
    """Elements that were copied n times take n - 1 additions."""
    return _scattered(grad_output, output, (scales,), NEAREST)


@formula("aten.upsample_nearest2d_backward", "aten.upsample_nearest3d_backward", type="resampling")
def upsample_nearest(grad_output: TensorSpec, output: TensorSpec, **scales: Any) -> Flop:
    """As `upsample_nearest1d`, in two or three dimensions."""
    return _scattered(grad_output, output, _scales(grad_output, scales), NEAREST)


@formula("aten._upsample_nearest_exact1d_backward", type="resampling")
def upsample_nearest_exact1d(
    grad_output: TensorSpec, output: TensorSpec, scales: float | None = None, **_: Any
) -> Flop:
    """As `upsample_nearest1d`, from the middle of each element."""
    return _scattered(grad_output, output, (scales,), EXACT)


@formula("aten._upsample_nearest_exact2d_backward", type="resampling")
@formula("aten._upsample_nearest_exact3d_backward", type="resampling")
def upsample_nearest_exact(grad_output: TensorSpec, output: TensorSpec, **scales: Any) -> Flop:
    """As `upsample_nearest_exact1d`, in two or three dimensions."""
    return _scattered(grad_output, output, _scales(grad_output, scales), EXACT)


def _scales(grad_output: TensorSpec, arguments: dict[str, Any]) -> list[float | None]:
    """The scales of depth, height and width, as many as there are dimensions."""
    names = ("scales_d", "scales_h", "scales_w")[5 - len(grad_output.shape) :]
    return [arguments.get(name) for name in names]


@formula("aten.upsample_linear1d_backward", type="resampling")
def upsample_linear1d(
    grad_output: TensorSpec,
    output: TensorSpec,
    align_corners: bool,
    scales: float | None = None,
    **_: Any,
) -> Flop:
    """Two products for each output, which meet in the elements they go to."""
    return _scattered(grad_output, output, (scales,), LINEAR, align_corners=align_corners)


@formula("aten.upsample_bilinear2d_backward", type="resampling")
@formula("aten.upsample_trilinear3d_backward", type="resampling")
def upsample_linear(
    grad_output: TensorSpec, output: TensorSpec, align_corners: bool, **scales: Any
) -> Flop:
    """Four products for each output, in three dimensions eight."""
    asked = _scales(grad_output, scales)
    return _scattered(grad_output, output, asked, LINEAR, align_corners=align_corners)


@formula("aten.upsample_bicubic2d_backward", type="resampling")
def upsample_bicubic(
    grad_output: TensorSpec, output: TensorSpec, align_corners: bool, **scales: Any
) -> Flop:
    """Sixteen products for each output."""
    asked = _scales(grad_output, scales)
    return _scattered(grad_output, output, asked, CUBIC, align_corners=align_corners)


def _antialiased(
    forward: Callable[..., Flop], grad_output: TensorSpec, output: TensorSpec, arguments: Any
) -> Flop:
    """The forward's products the other way, along columns and then along rows.

    A line of it has as many products, but sums for as many inputs as it had outputs.
    """
    planes = math.prod(output.shape[:-2])
    (height, width), (rows, columns) = output.shape[-2:], grad_output.shape[-2:]
    fewer = planes * (height * (width - columns) + columns * (height - rows))
    count = forward(self=output, output=grad_output, **arguments)
    return Flop(other=max(0, count.other - fewer), least=max(0, count.min_flop - fewer))


@formula("aten._upsample_bilinear2d_aa_backward", type="resampling")
def antialiased_bilinear(grad_output: TensorSpec, output: TensorSpec, **arguments: Any) -> Flop:
    """A triangle over 2 inputs, wider where sampling down."""
    return _antialiased(upsample_bilinear2d_aa, grad_output, output, arguments)


@formula("aten._upsample_bicubic2d_aa_backward", type="resampling")
def antialiased_bicubic(grad_output: TensorSpec, output: TensorSpec, **arguments: Any) -> Flop:
    """A cubic spline over 4 inputs, wider where sampling down."""
    return _antialiased(upsample_bicubic2d_aa, grad_output, output, arguments)


@formula("aten._upsample_lanczos2d_aa_backward", type="resampling")
def antialiased_lanczos(grad_output: TensorSpec, output: TensorSpec, **arguments: Any) -> Flop:
    """A windowed sinc over 6 inputs, wider where sampling down."""
    return _antialiased(upsample_lanczos2d_aa, grad_output, output, arguments)
