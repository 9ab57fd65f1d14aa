"""Resampling under the names of the libraries that run it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.formulas.resampling import grid_sampler
from roofline.workload.tensors import TensorSpec

_BILINEAR = 0


@formula(
    "aten.cudnn_grid_sampler",
    type="resampling",
    byte="no more of the image than each place's neighbours",
)
def grid_sampler_of_cudnn(self: TensorSpec, grid: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """As `grid_sampler_2d`: linear, with aligned corners."""
    count = grid_sampler(self, grid, _BILINEAR, True, output)
    touched, least = ({"self": each["input"]} for each in (count.elements, count.min_elements))
    return replace(count, elements=touched, min_elements=least)
