"""Resampling: images of another size, or seen through a grid of places.

Integers are weighted with integers, which is no floating-point arithmetic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.costs import floats
from roofline.workload.formulas.registry import Flop, formula, none_of, table
from roofline.workload.tensors import TensorSpec as Tensor

_BYTE = "sampling down passes over elements, but each output has at least one of its own"


def _weighted(neighbours: int, self: Tensor, output: Tensor, **_: Any) -> Flop:
    """A weighted sum of `neighbours`, whose weights are left out; of the same size, a copy."""
    operations = (2 * neighbours - 1) * output.elements if neighbours and floats(output) else 0
    return Flop(
        other=operations,
        least=0 if self.shape == output.shape else operations,
        min_elements={"self": output.elements},
    )


table(
    """
aten.upsample_nearest1d aten.upsample_nearest2d aten.upsample_nearest3d
aten._upsample_nearest_exact1d aten._upsample_nearest_exact2d aten._upsample_nearest_exact3d = 0
    Elements are copied, not computed; sampling down passes over some.
aten.upsample_linear1d = 2
    Two neighbours, each weighted: two multiplications and an addition an element.
aten.upsample_bilinear2d = 4
    Four neighbours, each weighted: four multiplications and three additions an element.
aten.upsample_trilinear3d = 8
    Eight neighbours, each weighted: eight multiplications and seven additions an element.
aten.upsample_bicubic2d = 16
    Sixteen neighbours, each weighted: 16 multiplications and 15 additions an element.
""",
    _weighted,
    byte=_BYTE,
)


def _step(size: int, outputs: int, asked: float | None, align_corners: bool) -> float:
    """Inputs between two outputs."""
    if align_corners:
        return (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1 / asked if asked else size / max(outputs, 1)


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
    reach: int,
    self: Tensor,
    output: Tensor,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
    **_: Any,
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
        (width, columns, scales_w, planes * height),
        (height, rows, scales_h, planes * columns),
    ):
        scale = _step(size, outputs, asked, align_corners)
        windows, weighted = _taps(size, outputs, scale, reach, align_corners)
        operations += lines * max(0, 2 * windows - outputs)
        least += lines * max(0, 2 * weighted - outputs) if size != outputs else 0
    return Flop(other=operations, least=least)


def _antialiased_backward(reach: int, grad_output: Tensor, output: Tensor, **given: Any) -> Flop:
    """The forward's products the other way, along columns and then along rows.

    A line of it has as many products, but sums for as many inputs as it had outputs.
    """
    planes = math.prod(output.shape[:-2])
    (height, width), (rows, columns) = output.shape[-2:], grad_output.shape[-2:]
    fewer = planes * (height * (width - columns) + columns * (height - rows))
    count = _antialiased(reach, output, grad_output, **given)
    return Flop(other=max(0, count.other - fewer), least=max(0, count.min_flop - fewer))


table(
    """
aten._upsample_bilinear2d_aa = 1
    A triangle over 2 inputs, wider where sampling down.
aten._upsample_bicubic2d_aa = 2
    A cubic spline over 4 inputs, wider where sampling down.
aten._upsample_lanczos2d_aa = 3
    A windowed sinc over 6 inputs, wider where sampling down.
""",
    _antialiased,
)
table(
    """
aten._upsample_bilinear2d_aa_backward = 1
    A triangle over 2 inputs, wider where sampling down.
aten._upsample_bicubic2d_aa_backward = 2
    A cubic spline over 4 inputs, wider where sampling down.
aten._upsample_lanczos2d_aa_backward = 3
    A windowed sinc over 6 inputs, wider where sampling down.
""",
    _antialiased_backward,
)


# Gradients of resampling: each output's is handed to the elements it was made of, weighted. An
# element that receives n gradients takes n - 1 additions: the first is written. Making the weights
# is left out where all channels and rows share them, as it is forward.

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
    mode: str,
    grad_output: Tensor,
    output: Tensor,
    align_corners: bool = False,
    scales: float | None = None,
    **given: Any,
) -> Flop:
    """A product for each neighbour, unless there is but one; additions where gradients meet.

    The least leaves out neighbours along a dimension that keeps its size: torch copies there.
    """
    names = ("scales_d", "scales_h", "scales_w")[5 - len(grad_output.shape) :]
    dimensions = len(names)
    elements = math.prod(output.shape[:-dimensions])
    parts = least_parts = grad_output.elements
    for size, outputs, name in zip(
        output.shape[-dimensions:], grad_output.shape[-dimensions:], names, strict=True
    ):
        scale = _step(size, outputs, given.get(name, scales), align_corners)
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


table(
    """
aten.upsample_nearest1d_backward = NEAREST
    Elements that were copied n times take n - 1 additions.
aten.upsample_nearest2d_backward aten.upsample_nearest3d_backward = NEAREST
    As `upsample_nearest1d`, in two or three dimensions.
aten._upsample_nearest_exact1d_backward = EXACT
    As `upsample_nearest1d`, from the middle of each element.
aten._upsample_nearest_exact2d_backward aten._upsample_nearest_exact3d_backward = EXACT
    As `upsample_nearest_exact1d`, in two or three dimensions.
aten.upsample_linear1d_backward = LINEAR
    Two products for each output, which meet in the elements they go to.
aten.upsample_bilinear2d_backward aten.upsample_trilinear3d_backward = LINEAR
    Four products for each output, in three dimensions eight.
aten.upsample_bicubic2d_backward = CUBIC
    Sixteen products for each output.
""",
    _scattered,
)


# Images seen through a grid of places.

_BILINEAR, _NEAREST = 0, 1
"""torch's numbers for how a grid is sampled; 2 is bicubic."""

_CUBIC_FLOP = 25
"""Of the four weights of a cubic at t: 3 additions, two inner cubics of 5 and two outer of 6."""

CUBIC_SLOPE_FLOP = 14
"""Of their derivatives at the same four arguments: two inner quadratics of 3, two outer of 4."""


@formula(
    *("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten._grid_sampler_2d_cpu_fallback"),
    byte="the neighbours of each place of the grid; where those are is not known: maybe nowhere",
)
def grid_sampler(
    grid: Tensor, interpolation_mode: int, align_corners: bool, output: Tensor, **_: Any
) -> Flop:
    """Each place of the grid is made a pixel position; each channel is a weighted sum around it.

    A coordinate takes 4 operations to become a position (3 with aligned corners). Nearest: its
    rounding. Linear: floor, two differences; a neighbour's weight is the product of those. Cubic:
    floor, difference, four weights; a sum of four weighted in each of four rows, then of these.
    Moving places into the image, where padding asks for it, is left out. Where the places are
    cannot be known from shapes: only the positions, an FMA a coordinate, are sure to be computed.
    """
    dimensions, places = grid.shape[-1], math.prod(grid.shape[:-1])
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
        min_elements=none_of("input"),
    )


@formula("aten.cudnn_grid_sampler", byte="no more of the image than each place's neighbours")
def grid_sampler_of_cudnn(grid: Tensor, output: Tensor, **_: Any) -> Flop:
    """As `grid_sampler_2d`: linear, with aligned corners."""
    return grid_sampler(grid, _BILINEAR, True, output).renamed(input="self")


_BYTE_BACKWARD = (
    "no more of the image than each place's neighbours, and none where only its gradient is due"
)


@formula("aten.cudnn_grid_sampler_backward", byte=_BYTE_BACKWARD)
def grid_sampler_of_cudnn_backward(self: Tensor, **given: Any) -> Flop:
    """As `grid_sampler_2d_backward`: linear, with aligned corners."""
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

    Of the image: the gradient times the weight of each neighbour, added there. Of the places: of
    each neighbour the sum over channels of gradient times element; times the slope of its weight
    along each coordinate, summed, times pixels a unit. Nearest has no slope. torch computes the
    gradient of the places whether asked to or not.
    Moving places into the image, where padding asks for it, is left out. Where the places are
    cannot be known from shapes: only the positions, an FMA a coordinate, are sure to be computed.
    """
    of_image, of_grid = (each is not None for each in output)
    dimensions, places = grid.shape[-1], math.prod(grid.shape[:-1])
    positions = dimensions * (3 if align_corners else 4)
    if interpolation_mode == _NEAREST:
        neighbours, weights, slopes = 1, dimensions, 0
        of_grid = False
    elif interpolation_mode == _BILINEAR:
        neighbours = 2**dimensions
        # A weight is a product of a part of each coordinate; its slope, of the other ones.
        weights, products = 3 * dimensions, neighbours * (dimensions - 1)
        slopes = dimensions * (products + neighbours - 1 + 1)
        weights += products * of_image
    else:
        neighbours = 16
        weights = dimensions * (2 + _CUBIC_FLOP) + neighbours * of_image
        # Along each coordinate four rows of four, then the rows.
        slopes = dimensions * (CUBIC_SLOPE_FLOP + 35 + 1)
    flop = places * (positions + weights)
    if of_image:
        flop += grad_output.elements * neighbours * (1 if interpolation_mode == _NEAREST else 2)
    if of_grid and input.shape[1]:
        flop += 2 * grad_output.elements * neighbours + places * (slopes - neighbours)
    return Flop(
        other=flop,
        least=2 * dimensions * places,
        elements={"input": neighbours * grad_output.elements if of_grid else 0},
        min_elements=none_of("input", "grad_output"),
    )


table(
    """
aten.affine_grid_generator_backward
aten.cudnn_affine_grid_generator_backward = Flop(macs=grad.elements * output.shape[-1])
    Each element of the d x (d + 1) matrix sums a gradient times a coordinate over all places.
""",
    type="matrix product",
)
