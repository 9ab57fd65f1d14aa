"""Batch, layer, root-mean-square, group and instance normalisation; normalised weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

STATISTICS_FLOP = 4
"""An element's share of mean and variance: one addition; a subtraction, a square, an addition.

Either sum has an addition less than elements, and a division more.
"""

GROUP_FLOP = 3
"""For each mean and variance: the addition of epsilon, the root, its reciprocal."""


def _normalized(
    input: TensorSpec, groups: int, weight: TensorSpec | None, bias: TensorSpec | None
) -> Flop:
    """Statistics over each of `groups`, then (x - mean) * scale, then weight and bias."""
    affine = (weight is not None) + (bias is not None)
    # x - mean was already taken for the variance: only the multiplication by the scale is new.
    return Flop(other=input.elements * (STATISTICS_FLOP + 1 + affine) + groups * GROUP_FLOP)


@formula("aten._native_batch_norm_legit_no_training")
def batch_norm_inference(input: TensorSpec, **_: Any) -> Flop:
    """x * scale + shift: two an element, and five a channel to make scale and shift.

    scale = weight / sqrt(variance + epsilon), shift = bias - mean * scale.
    """
    return Flop(other=2 * input.elements + 5 * input.shape[1])


@formula("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm")
def batch_norm(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    training: bool,
    **_: Any,
) -> Flop:
    """With its running statistics as in inference; in training over each channel of the batch."""
    if not training:
        return batch_norm_inference(input)
    return _normalized(input, input.shape[1], weight, bias)


@formula("aten.native_layer_norm")
def layer_norm(
    input: TensorSpec,
    normalized_shape: Sequence[int],
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    **_: Any,
) -> Flop:
    """Over the last dimensions, as many as `normalized_shape` has."""
    rows = input.elements // max(math.prod(normalized_shape), 1)
    return _normalized(input, rows, weight, bias)


@formula("aten.rms_norm", "aten._fused_rms_norm")
def rms_norm(
    input: TensorSpec, normalized_shape: Sequence[int], weight: TensorSpec | None = None, **_: Any
) -> Flop:
    """x / sqrt(mean(x * x) + epsilon): a square and its sum, a multiplication by the scale.

    Another by the weight; for each row the addition of epsilon, the root and its reciprocal.
    """
    rows = input.elements // max(math.prod(normalized_shape), 1)
    return Flop(other=input.elements * (3 + (weight is not None)) + rows * GROUP_FLOP)


@formula("aten.native_group_norm")
def group_norm(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    N: int,
    group: int,
    **_: Any,
) -> Flop:
    """Over each group of channels of each sample."""
    return _normalized(input, N * group, weight, bias)


@formula("aten._weight_norm_interface")
def weight_norm(v: TensorSpec, g: TensorSpec, **_: Any) -> Flop:
    """v * (g / |v|): the 2-norm of each slice, a division for each, a multiplication an element."""
    return Flop(other=3 * v.elements + g.elements)
