"""Gradients of images seen through a grid of places: of the image, and of the places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

BILINEAR, NEAREST = 0, 1
"""torch's numbers for how a grid is sampled; 2 is bicubic."""

CUBIC_FLOP = 25
"""Of the four weights of a cubic at t: 3 additions, two inner cubics of 5 and two outer of 6."""

CUBIC_SLOPE_FLOP = 14
"""Of their derivatives at the same four arguments: two inner quadratics of 3, two outer of 4."""

_BYTE = "no more of the image than each place's neighbours, and none where only its gradient is due"


@formula(
    "aten.grid_sampler_2d_backward", "aten.grid_sampler_3d_backward", type="resampling", byte=_BYTE
)
@formula("aten._grid_sampler_2d_cpu_fallback_backward", type="resampling", byte=_BYTE)
def grid_sampler(
    grad_output: TensorSpec,
    input: TensorSpec,
    grid: TensorSpec,
    interpolation_mode: int,
    align_corners: bool,
    output: Sequence[TensorSpec | None],
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
    if interpolation_mode == NEAREST:
        neighbours, weights, slopes = 1, dimensions, 0
        of_grid = False
    elif interpolation_mode == BILINEAR:
        neighbours = 2**dimensions
        # A weight is a product of a part of each coordinate; its slope, of the other ones.
        weights, products = 3 * dimensions, neighbours * (dimensions - 1)
        slopes = dimensions * (products + neighbours - 1 + 1)
        weights += products * of_image
    else:
        neighbours = 16
        weights = dimensions * (2 + CUBIC_FLOP) + neighbours * of_image
        # Along each coordinate four rows of four, then the rows.
        slopes = dimensions * (CUBIC_SLOPE_FLOP + 35 + 1)
    flop = places * (positions + weights)
    if of_image:
        flop += grad_output.elements * neighbours * (1 if interpolation_mode == NEAREST else 2)
    if of_grid and input.shape[1]:
        flop += 2 * grad_output.elements * neighbours + places * (slopes - neighbours)
    return Flop(
        other=flop,
        least=2 * dimensions * places,
        elements={"input": neighbours * grad_output.elements if of_grid else 0},
        min_elements={"input": 0, "grad_output": 0},
    )


@formula("aten.cudnn_grid_sampler_backward", type="resampling", byte=_BYTE)
def grid_sampler_of_cudnn(
    self: TensorSpec,
    grid: TensorSpec,
    grad_output: TensorSpec,
    output: Sequence[TensorSpec | None],
    **_: Any,
) -> Flop:
    """As `grid_sampler_2d_backward`: linear, with aligned corners."""
    count = grid_sampler(grad_output, self, grid, BILINEAR, True, output)
    return Flop(
        other=count.other,
        least=count.least,
        elements={"self": count.elements["input"]},
        min_elements={"self": 0, "grad_output": 0},
    )


@formula("aten.affine_grid_generator_backward", type="matrix product")
@formula("aten.cudnn_affine_grid_generator_backward", type="matrix product")
def affine_grid(grad: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """Each element of the d x (d + 1) matrix sums a gradient times a coordinate over all places."""
    return Flop(macs=grad.elements * output.shape[-1])
