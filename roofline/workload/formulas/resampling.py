"""Resampling: images of another size, or seen through a grid of places.

Integers are weighted with integers, which is no floating-point arithmetic.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from roofline.workload.formulas.pointwise import floats
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

_BYTE = "sampling down passes over elements, but each output has at least one of its own"


@formula(
    *("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d"),
    *("aten._upsample_nearest_exact1d", "aten._upsample_nearest_exact2d"),
    *("aten._upsample_nearest_exact3d",),
    byte=_BYTE,
)
def upsample_nearest(output: TensorSpec, **_: Any) -> Flop:
    """Elements are copied, not computed; sampling down passes over some."""
    return Flop(min_elements={"self": output.elements})


def _weighted(neighbours: int, self: TensorSpec, output: TensorSpec) -> Flop:
    """Each output is a weighted sum of `neighbours`; making the weights is left out.

    An image that keeps its size is only copied.
    """
    operations = (2 * neighbours - 1) * output.elements if floats(output) else 0
    return Flop(
        other=operations,
        least=0 if self.shape == output.shape else operations,
        min_elements={"self": output.elements},
    )


@formula("aten.upsample_linear1d", byte=_BYTE)
def upsample_linear1d(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Two neighbours, each weighted: two multiplications and an addition an element."""
    return _weighted(2, self, output)


@formula("aten.upsample_bilinear2d", byte=_BYTE)
def upsample_bilinear2d(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Four neighbours, each weighted: four multiplications and three additions an element."""
    return _weighted(4, self, output)


@formula("aten.upsample_trilinear3d", byte=_BYTE)
def upsample_trilinear3d(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Eight neighbours, each weighted: eight multiplications and seven additions an element."""
    return _weighted(8, self, output)


@formula("aten.upsample_bicubic2d", byte=_BYTE)
def upsample_bicubic2d(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Sixteen neighbours, each weighted: 16 multiplications and 15 additions an element."""
    return _weighted(16, self, output)


@functools.cache
def _taps(size: int, outputs: int, scale: float, reach: float, is_centred: bool) -> tuple[int, int]:
    """Inputs in the windows of all `outputs` along one dimension; those of them that have weight.

    A window reaches as far as the filter, which is widened where there are fewer outputs than
    inputs. torch rounds its ends outwards, so that it may have inputs without weight.
    """
    radius = reach * max(scale, 1.0)
    shift = 0.5 if is_centred else 0.0
    windows = weighted = 0
    for i in range(outputs):
        centre = scale * (i + 0.5 - shift)
        first = max(int(centre - radius + 0.5 + shift), 0)
        last = min(int(centre + radius + 0.5 + shift), size)
        windows += max(0, last - first)
        # An input on the very rim has no weight, whichever way its distance was rounded.
        rim = radius * (1 - 1e-9)
        weighted += sum(abs(j - centre + 0.5 - shift) < rim for j in range(first, last))
    return windows, weighted


def _antialiased(
    self: TensorSpec,
    output: TensorSpec,
    align_corners: bool,
    scales: tuple[float | None, float | None],
    reach: float,
) -> Flop:
    """Along rows, then along columns: a product for each input of a window, and their sum.

    Making the weights, which all rows share, is left out. The least leaves out inputs without
    weight, and a dimension that keeps its size.
    """
    if not floats(output):
        return Flop()
    planes = math.prod(output.shape[:-2])
    (height, width), (rows, columns) = self.shape[-2:], output.shape[-2:]
    operations = least = 0
    for size, outputs, asked, lines in (
        (width, columns, scales[1], planes * height),
        (height, rows, scales[0], planes * columns),
    ):
        if align_corners:
            scale = (size - 1) / (outputs - 1) if outputs > 1 else 0.0
        else:
            scale = 1 / asked if asked else size / max(outputs, 1)
        windows, weighted = _taps(size, outputs, scale, reach, align_corners)
        operations += lines * max(0, 2 * windows - outputs)
        least += lines * max(0, 2 * weighted - outputs) if size != outputs else 0
    return Flop(other=operations, least=least)


@formula("aten._upsample_bilinear2d_aa")
def upsample_bilinear2d_aa(
    self: TensorSpec,
    align_corners: bool,
    output: TensorSpec,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **_: Any,
) -> Flop:
    """A triangle over 2 inputs, wider where sampling down."""
    return _antialiased(self, output, align_corners, (scales_h, scales_w), 1)


@formula("aten._upsample_bicubic2d_aa")
def upsample_bicubic2d_aa(
    self: TensorSpec,
    align_corners: bool,
    output: TensorSpec,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **_: Any,
) -> Flop:
    """A cubic spline over 4 inputs, wider where sampling down."""
    return _antialiased(self, output, align_corners, (scales_h, scales_w), 2)


@formula("aten._upsample_lanczos2d_aa")
def upsample_lanczos2d_aa(
    self: TensorSpec,
    align_corners: bool,
    output: TensorSpec,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **_: Any,
) -> Flop:
    """A windowed sinc over 6 inputs, wider where sampling down."""
    return _antialiased(self, output, align_corners, (scales_h, scales_w), 3)


_BILINEAR, _NEAREST = 0, 1
"""torch's numbers for how a grid is sampled; 2 is bicubic."""

_CUBIC_FLOP = 25
"""Of the four weights of a cubic at t: 3 additions, two inner cubics of 5 and two outer of 6."""


@formula(
    *("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten._grid_sampler_2d_cpu_fallback"),
    byte="the neighbours of each place of the grid; where those are is not known: maybe nowhere",
)
def grid_sampler(
    input: TensorSpec,
    grid: TensorSpec,
    interpolation_mode: int,
    align_corners: bool,
    output: TensorSpec,
    **_: Any,
) -> Flop:
    """Each place of the grid is made a pixel position; each channel is a weighted sum around it.

    A coordinate takes 4 operations to become a position (3 with aligned corners). Nearest: its
    rounding. Linear: floor, two differences; a neighbour's weight is the product of those. Cubic:
    floor, difference, four weights; a sum of four weighted in each of four rows, then of these.
    Moving places into the image, where padding asks for it, is left out. Where the places are
    cannot be known from shapes: only the positions, an FMA a coordinate, are sure to be computed.
    """
    dimensions = grid.shape[-1]
    places = math.prod(grid.shape[:-1])
    position = 3 if align_corners else 4
    if interpolation_mode == _NEAREST:
        neighbours, each, weights = 1, 0, dimensions
    elif interpolation_mode == _BILINEAR:
        neighbours = 2**dimensions
        each, weights = 2 * neighbours - 1, 3 * dimensions + neighbours * (dimensions - 1)
    else:
        neighbours, each, weights = 16, 35, dimensions * (2 + _CUBIC_FLOP)
    if not floats(output):
        return Flop()
    return Flop(
        other=places * (dimensions * position + weights) + output.elements * each,
        least=2 * dimensions * places,
        elements={"input": neighbours * output.elements},
        min_elements={"input": 0},
    )
