"""Resampling: images at another size, or sampled at the points of a grid.

Integers have integer weights, which are not FLOP.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.costs import has_floats
from roofline.workload.formulas.registry import Flop, formula, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor

_BYTE = "each operand once; minimum: as many elements as outputs (downsampling skips others)"


def _weighted(neighbors: int, self: Tensor, output: Tensor, **_: Any) -> Flop:
    """Count a weighted sum of `neighbors`, without its weights; at equal size, a copy."""
    operations = (2 * neighbors - 1) * output.elements if neighbors and has_floats(output) else 0
    return Flop(
        other=operations,
        least=0 if self.shape == output.shape else operations,
        min_elements={"self": output.elements},
    )


table(
    """
aten.upsample_nearest1d aten.upsample_nearest2d aten.upsample_nearest3d
aten._upsample_nearest_exact1d aten._upsample_nearest_exact2d aten._upsample_nearest_exact3d = 0
    Elements are copied, not computed; downsampling skips some.
aten.upsample_linear1d = 2
    Two weighted neighbors: 2 multiplications and 1 addition per element.
aten.upsample_bilinear2d = 4
    Four weighted neighbors: 4 multiplications and 3 additions per element.
aten.upsample_trilinear3d = 8
    Eight weighted neighbors: 8 multiplications and 7 additions per element.
aten.upsample_bicubic2d = 16
    Sixteen weighted neighbors: 16 multiplications and 15 additions per element.
""",
    _weighted,
    byte=_BYTE,
)


def _step(size: int, outputs: int, asked: float | None, align_corners: bool) -> float:
    """Distance of two outputs, in inputs."""
    if align_corners:
        return (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1 / asked if asked else size / max(outputs, 1)


@functools.cache
def _taps(
    size: int, outputs: int, scale: float, reach: float, is_centered: bool
) -> tuple[int, int]:
    """Inputs in the windows of all `outputs` along one dimension; those with weight.

    A window reaches as far as the filter, which widens when downsampling. torch rounds its ends
    outwards, so it may contain inputs without weight.
    """
    radius = reach * max(scale, 1.0)
    shift = 0.5 if is_centered else 0.0
    windows = weighted = 0
    for i in range(outputs):
        center = scale * (i + 0.5 - shift)
        first = max(int(center - radius + 0.5 + shift), 0)
        last = min(int(center + radius + 0.5 + shift), size)
        windows += max(0, last - first)
        # An input on the rim has no weight, however its distance is rounded.
        rim = radius * (1 - 1e-9)
        weighted += sum(abs(j - center + 0.5 - shift) < rim for j in range(first, last))
    return windows, weighted


def _antialiased(
    reach: int,
    self: Tensor,
    output: Tensor,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **_: Any,
) -> Flop:
    """Count a product per input of a window, and their sum, along rows, then columns.

    The weights are shared by all rows and not counted. The minimum omits inputs without weight, and
    a dimension that keeps its size.
    """
    if not has_floats(output):
        return Flop()
    planes = math.prod(output.shape[:-2])
    (height, width), (rows, columns) = self.shape[-2:], output.shape[-2:]
    operations = least = 0
    for size, outputs, asked, lines in (
        (width, columns, scales_w, planes * height),
        (height, rows, scales_h, planes * columns),
    ):
        scale = _step(size, outputs, asked, align_corners)
        windows, weighted = _taps(size, outputs, scale, reach, align_corners)
        operations += lines * max(0, 2 * windows - outputs)
        least += lines * max(0, 2 * weighted - outputs) if size != outputs else 0
    return Flop(other=operations, least=least)


def _antialiased_backward(reach: int, grad_output: Tensor, output: Tensor, **given: Any) -> Flop:
    """Count the forward products in reverse, with sums for inputs instead of outputs."""
    planes = math.prod(output.shape[:-2])
    (height, width), (rows, columns) = output.shape[-2:], grad_output.shape[-2:]
    fewer = planes * (height * (width - columns) + columns * (height - rows))
    count = _antialiased(reach, output, grad_output, **given)
    return Flop(other=max(0, count.other - fewer), least=max(0, count.min_flop - fewer))


table(
    """
aten._upsample_bilinear2d_aa = 1
    A triangle over 2 inputs, wider when downsampling.
aten._upsample_bicubic2d_aa = 2
    A cubic spline over 4 inputs, wider when downsampling.
aten._upsample_lanczos2d_aa = 3
    A windowed sinc over 6 inputs, wider when downsampling.
""",
    _antialiased,
)
table(
    """
aten._upsample_bilinear2d_aa_backward = 1
    A triangle over 2 inputs, wider when downsampling.
aten._upsample_bicubic2d_aa_backward = 2
    A cubic spline over 4 inputs, wider when downsampling.
aten._upsample_lanczos2d_aa_backward = 3
    A windowed sinc over 6 inputs, wider when downsampling.
""",
    _antialiased_backward,
)


# Gradients of resampling: each output passes its gradient, weighted, to its inputs. An element with
# n gradients takes n - 1 additions: the first is written. Weights that all channels and rows share
# are not counted, as in the forward pass.

NEAREST, EXACT, LINEAR, CUBIC = "nearest", "nearest, exact", "linear", "cubic"

_NEIGHBORS = {NEAREST: 1, EXACT: 1, LINEAR: 2, CUBIC: 4}
"""Inputs per output along one dimension, those at the edge counted twice."""


@functools.cache
def receivers(size: int, outputs: int, scale: float, mode: str, align_corners: bool) -> int:
    """Inputs along one dimension of some output."""
    # At any requested scale, these are copied, or doubled.
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
    mode: str,
    grad_output: Tensor,
    output: Tensor,
    align_corners: bool = False,
    scales: float | None = None,
    **given: Any,
) -> Flop:
    """Count a product per neighbor (none for a single one), and additions where gradients meet.

    Minimum: torch copies along a dimension that keeps its size.
    """
    names = ("scales_d", "scales_h", "scales_w")[5 - len(grad_output.shape) :]
    dimensions = len(names)
    elements = math.prod(output.shape[:-dimensions])
    parts = min_parts = grad_output.elements
    for size, outputs, name in zip(
        output.shape[-dimensions:], grad_output.shape[-dimensions:], names, strict=True
    ):
        scale = _step(size, outputs, given.get(name, scales), align_corners)
        elements *= receivers(size, outputs, scale, mode, align_corners)
        parts *= _NEIGHBORS[mode]
        is_kept = size == outputs and (mode == LINEAR or scale == 1)
        min_parts *= 1 if is_kept else _NEIGHBORS[mode]
    # Each weighted part takes a product.
    each = 2 if mode in (LINEAR, CUBIC) else 1
    copied = output.shape == grad_output.shape
    return Flop(
        other=each * parts - elements,
        least=0 if copied else max(0, each * min_parts - elements),
    )


table(
    """
aten.upsample_nearest1d_backward = NEAREST
    n - 1 additions per element with n copies.
aten.upsample_nearest2d_backward aten.upsample_nearest3d_backward = NEAREST
    As aten.upsample_nearest1d_backward, in two or three dimensions.
aten._upsample_nearest_exact1d_backward = EXACT
    As aten.upsample_nearest1d_backward, from the center of each element.
aten._upsample_nearest_exact2d_backward aten._upsample_nearest_exact3d_backward = EXACT
    As aten._upsample_nearest_exact1d_backward, in two or three dimensions.
aten.upsample_linear1d_backward = LINEAR
    Two products per output, added where they meet.
aten.upsample_bilinear2d_backward aten.upsample_trilinear3d_backward = LINEAR
    Four products per output, in three dimensions eight, added where they meet.
aten.upsample_bicubic2d_backward = CUBIC
    Sixteen products per output, added where they meet.
""",
    _scattered,
)


# Images sampled at the points of a grid.

_BILINEAR, _NEAREST = 0, 1
"""torch's codes for grid interpolation; 2 is bicubic."""

_CUBIC_FLOP = 25
"""FLOP of the four weights of a cubic at t: 3 additions, two inner cubics of 5 and two outer of 6.
"""

CUBIC_SLOPE_FLOP = 14
"""FLOP of their derivatives at the same arguments: two inner quadratics of 3, two outer of 4."""


@formula(
    *("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten._grid_sampler_2d_cpu_fallback"),
    byte="the grid, and the neighbors of each point; minimum: no neighbors",
)
def grid_sampler(
    grid: Tensor, interpolation_mode: int, align_corners: bool, output: Tensor, **_: Any
) -> Flop:
    """Pixel positions of the grid points, then a weighted sum of neighbors per channel.

    A coordinate takes 4 operations to become a position (3 with aligned corners). Nearest: its
    rounding. Linear: floor, two differences; a neighbor's weight is their product. Cubic: floor,
    difference, four weights; a sum of four weighted in each of four rows, then of these. Clipping
    or reflecting points into the image, as padding may require, is not counted. Positions of the
    points depend on values: the minimum is 1 MAC per coordinate.
    """
    dimensions, places = grid.shape[-1], math.prod(grid.shape[:-1])
    position = 3 if align_corners else 4
    if interpolation_mode == _NEAREST:
        neighbors, each, weights = 1, 0, dimensions
    elif interpolation_mode == _BILINEAR:
        neighbors = 2**dimensions
        each, weights = 2 * neighbors - 1, 3 * dimensions + neighbors * (dimensions - 1)
    else:
        neighbors, each, weights = 16, 35, dimensions * (2 + _CUBIC_FLOP)
    if not has_floats(output):
        return Flop()
    return Flop(
        other=places * (dimensions * position + weights) + output.elements * each,
        least=2 * dimensions * places,
        elements={"input": neighbors * output.elements},
        min_elements=untouched("input"),
    )


@formula("aten.cudnn_grid_sampler", byte="the grid, and the neighbors of each point")
def grid_sampler_of_cudnn(grid: Tensor, output: Tensor, **_: Any) -> Flop:
    """As aten.grid_sampler_2d: linear, with aligned corners."""
    return grid_sampler(grid, _BILINEAR, True, output).renamed(input="self")


_BYTE_BACKWARD = "the neighbors of each point; none if only the gradient of the image is requested"


@formula("aten.cudnn_grid_sampler_backward", byte=_BYTE_BACKWARD)
def grid_sampler_of_cudnn_backward(self: Tensor, **given: Any) -> Flop:
    """As aten.grid_sampler_2d_backward: linear, with aligned corners."""
    given |= {"interpolation_mode": _BILINEAR, "align_corners": True}
    return grid_sampler_backward(input=self, **given).renamed(input="self")


@formula(
    *("aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward"),
    "aten._grid_sampler_2d_cpu_fallback_backward",
    byte=_BYTE_BACKWARD,
)
def grid_sampler_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    align_corners: bool,
    output: Sequence[Tensor | None],
    **_: Any,
) -> Flop:
    """Positions and weights as forward; then each channel's part of both gradients.

    Image: the gradient times the weight of each neighbor, added there. Points: per neighbor the sum
    over channels of gradient times element; times the slope of its weight along each coordinate,
    summed, times pixels per unit. Nearest has no slope. torch always computes the gradient of the
    points. Clipping or reflecting points into the image, as padding may require, is not counted.
    Positions of the points depend on values: the minimum is 1 MAC per coordinate.
    """
    of_image, of_grid = (each is not None for each in output)
    dimensions, places = grid.shape[-1], math.prod(grid.shape[:-1])
    positions = dimensions * (3 if align_corners else 4)
    if interpolation_mode == _NEAREST:
        neighbors, weights, slopes = 1, dimensions, 0
        of_grid = False
    elif interpolation_mode == _BILINEAR:
        neighbors = 2**dimensions
        # A weight is a product of a part of each coordinate; its slope, of the other ones.
        weights, products = 3 * dimensions, neighbors * (dimensions - 1)
        slopes = dimensions * (products + neighbors - 1 + 1)
        weights += products * of_image
    else:
        neighbors = 16
        weights = dimensions * (2 + _CUBIC_FLOP) + neighbors * of_image
        # Along each coordinate four rows of four, then the rows.
        slopes = dimensions * (CUBIC_SLOPE_FLOP + 35 + 1)
    flop = places * (positions + weights)
    if of_image:
        flop += grad_output.elements * neighbors * (1 if interpolation_mode == _NEAREST else 2)
    if of_grid and input.shape[1]:
        flop += 2 * grad_output.elements * neighbors + places * (slopes - neighbors)
    return Flop(
        other=flop,
        least=2 * dimensions * places,
        elements={"input": neighbors * grad_output.elements if of_grid else 0},
        min_elements=untouched("input", "grad_output"),
    )


table(
    """
aten.affine_grid_generator_backward
aten.cudnn_affine_grid_generator_backward = Flop(macs=grad.elements * output.shape[-1])
    1 MAC per grid point and element of the d x (d + 1) matrix: gradient times coordinate.
""",
    type="matrix product",
)
