"""Batch, layer, RMS, group and instance normalization; normalized weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, Sizes, formula, present, table, untouched
from roofline.workload.tensors import TensorSpec as Tensor

STATISTICS_FLOP = 4
"""FLOP per element for mean and variance: one addition; a subtraction, a square, an addition.

Each sum has one addition less than elements, and one division."""

GROUP_FLOP = 3
"""FLOP per mean and variance: the addition of epsilon, the root, its reciprocal."""


def norm_flop(input: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None) -> int:
    """Statistics over each of `groups`, then (x - mean) * scale, then weight and bias."""
    affine = present(weight, bias)
    # x - mean is known from the variance: only the multiplication by the scale is new.
    return input.elements * (STATISTICS_FLOP + 1 + affine) + groups * GROUP_FLOP


def inference_flop(input: Tensor) -> int:
    """x * scale + shift: 2 per element, and 5 per channel for scale and shift."""
    return 2 * input.elements + 5 * input.shape[1]


def batch_norm_flop(input: Tensor, weight: Any, bias: Any, training: bool) -> int:
    return norm_flop(input, input.shape[1], weight, bias) if training else inference_flop(input)


def rows_of(input: Tensor, normalized_shape: Sizes) -> int:
    """Number of sets of the last dimensions, as many as `normalized_shape` has."""
    return input.elements // max(math.prod(normalized_shape), 1)


RUNNING_FLOP = 7
"""Per channel: (1 - momentum) * old + momentum * new, twice; variance * n / (n - 1)."""


def running_flop(running_mean: Tensor | None) -> int:
    return 0 if running_mean is None else RUNNING_FLOP


def statistics_flop(input: Tensor, each_channel: int) -> int:
    """Means and variances of channels, and `each_channel` operations per channel."""
    return STATISTICS_FLOP * input.elements + each_channel * input.shape[1]


table(
    """
aten._native_batch_norm_legit_no_training = inference_flop(input)
    x * scale + shift: 2 per element, and 5 per channel for scale and shift.

    scale = weight / sqrt(variance + epsilon), shift = bias - mean * scale.
aten.native_batch_norm aten._native_batch_norm_legit
aten.cudnn_batch_norm = batch_norm_flop(input, weight, bias, training)
    Running statistics as in inference; in training over each channel of the batch.
aten._batch_norm_with_update
aten._batch_norm_with_update_functional = batch_norm_flop(input, weight, bias, True)
    As aten.native_batch_norm in training.
aten._batch_norm_no_update = batch_norm_flop(input, weight, bias, running_mean is None)
    Running statistics if given, else those of the batch.
aten._native_batch_norm_legit_functional
aten.miopen_batch_norm = batch_norm_flop(input, weight, bias, training)
    As aten.native_batch_norm.
aten.batch_norm_stats = statistics_flop(input, GROUP_FLOP)
    Mean and 1 / sqrt(variance + epsilon) per channel, of one worker.
aten.batch_norm_update_stats = statistics_flop(input, running_flop(running_mean))
    Mean and variance per channel, and an update of the running ones.
aten.batch_norm_elemt = 2 * input.elements + input.shape[1] * (1 + present(weight, bias))
    x * scale + shift: 2 per element.

    Per channel: scale = weight * r and shift = bias - mean * scale, as far as given.
aten.native_layer_norm = norm_flop(input, rows_of(input, normalized_shape), weight, bias)
    Over the last dimensions, as many as `normalized_shape` has.
aten.native_group_norm = norm_flop(input, N * group, weight, bias)
    Over each group of channels of each sample.
aten.rms_norm aten._fused_rms_norm = (
    input.elements * (3 + present(weight)) + rows_of(input, normalized_shape) * GROUP_FLOP)
    x / sqrt(mean(x * x) + epsilon): a square and its sum, a multiplication by the scale.

    A multiplication by the weight; per row the addition of epsilon, the root and its reciprocal.
aten._weight_norm_interface = 3 * v.elements + g.elements
    v * (g / |v|): the 2-norm of each slice, 1 division per slice, 1 multiplication per element.
aten._weight_norm_interface_backward = 5 * saved_v.elements + 3 * saved_g.elements
    w = v * g / |v|: g_grad = sum(w_grad * v) / |v|, v_grad = a * w_grad - b * v.

    Per element, 2 for the sum and 3 for the other; with a = g / |v| and b = a * g_grad / |v|, 4 per
    slice, of which the sum has one less.
"""
)


@formula(
    *("aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts"),
    byte="the input is not read: only its shape is used",
)
def gathered_statistics(mean: Tensor, running_mean: Tensor | None, **_: Any) -> Flop:
    """The workers' means and variances combined per channel, with n elements each.

    mean = sum(n * mean_i) / sum(n), 2 per worker; variance = sum(n * (variance_i + (mean_i -
    mean)²)) / sum(n), 5 per worker, and 3 for variance_i = 1 / r² - epsilon. Each sum has one
    addition less; two divisions, then epsilon, root and reciprocal. The sum of counts is omitted.
    """
    workers, channels = mean.shape
    each = 10 * workers - 2 + 2 + GROUP_FLOP + running_flop(running_mean)
    return Flop(other=channels * each if workers else 0, elements=untouched("input"))


# Gradients of normalization, with the mean and 1 / sqrt(variance + epsilon) kept by the forward
# pass.
#
# Over a set of m elements with mean u and scale r, of gradients g (each times its weight first):
#
#     input_grad  = r * (g - sum(g) / m - (x - u) * r² * sum(g * (x - u)) / m)
#     weight_grad = r * sum(g * (x - u))      bias_grad = sum(g)
#
# As sum(g * (x - u)) is sum(g * x) - u * sum(g), the first is a * g - b * x + c with three numbers
# per set, as in torch's kernels: 3 operations per element for the sums, 4 for this. Each sum has
# one addition less than elements. Gradients that are not requested cost nothing.

_BYTE = "no unused statistics; weight and input only where a gradient needs them"

SLOPE_FLOP, OFFSET_FLOP = 4, 4
"""Per set: b = s * r * r * a / m with s = sum(g * x) - u * sum(g); c = u * b - sum(g) * a / m.

The two operations of s are counted separately, as the gradient of the weight also needs them."""


def _counted(elements: int, flop: int, **is_read: bool) -> Flop:
    """Return the FLOP (0 without elements), and mark operands that are not read."""
    unread = untouched(*(name for name, read in is_read.items() if not read))
    return Flop(other=flop if elements else 0, elements=unread)


def _sums(elements: int, sets: int, products: bool, for_bias: bool) -> int:
    """Operations for sums of g per set, and of g * x and s if needed."""
    flop = elements - sets if products or for_bias else 0
    return flop + (2 * elements - sets + 2 * sets if products else 0)


def batch_norm_backward(
    input: Tensor,
    weight: Tensor | None,
    mask: Sequence[bool],
    training: bool,
    scale: str = "save_var",
) -> Flop:
    """Count gradients per channel; `scale` names the kept 1 / sqrt(variance + epsilon)."""
    for_input, for_weight, for_bias = mask
    elements, channels = input.elements, input.shape[1]
    products = for_weight or (for_input and training)
    flop = _sums(elements, channels, products, for_bias) + channels * for_weight
    if for_input:
        flop += channels * (weight is not None)
        flop += 4 * elements + channels * (SLOPE_FLOP + OFFSET_FLOP) if training else elements
    if not training and (for_input or for_weight):
        flop += GROUP_FLOP * channels
    return _counted(
        elements,
        flop,
        input=products,
        weight=for_input,
        running_mean=for_weight and not training,
        running_var=(for_input or for_weight) and not training,
        save_mean=products and training,
        **{scale: products and training},
    )


table(
    """
aten.native_batch_norm_backward = batch_norm_backward(
    input, weight, output_mask, train, "save_invstd")
    7 per element, over each channel; outside training input_grad = a * g, 1 or 4.
aten.batch_norm_backward = batch_norm_backward(input, weight, output_mask, update)
    As aten.native_batch_norm_backward; `update` selects training.
aten.cudnn_batch_norm_backward
aten.miopen_batch_norm_backward = batch_norm_backward(input, weight, (True, True, True), True)
    As aten.native_batch_norm_backward, in training, with all three gradients.
""",
    byte=_BYTE,
)


@formula("aten.batch_norm_backward_reduce", byte=_BYTE)
def synchronized_sums(input: Tensor, input_g: bool, weight_g: bool, bias_g: bool, **_: Any) -> Flop:
    """sum(g) and sum(g * (x - u)) per channel, of one worker: 3 per element."""
    elements, channels = input.elements, input.shape[1]
    products = input_g or weight_g
    flop = _sums(elements, channels, products, bias_g) + channels * weight_g
    return _counted(elements, flop, input=products, mean=products, invstd=weight_g, weight=False)


@formula("aten.batch_norm_backward_elemt")
def synchronized_input_gradient(input: Tensor, weight: Tensor | None, **_: Any) -> Flop:
    """a * g - b * x + c, from the sums of all workers: 4 per element."""
    each = SLOPE_FLOP + OFFSET_FLOP + (weight is not None)
    return Flop(other=4 * input.elements + input.shape[1] * each if input.elements else 0)


@formula("aten.native_layer_norm_backward", byte=_BYTE)
def layer_norm_backward(
    input: Tensor,
    normalized_shape: Sizes,
    weight: Tensor | None,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """Input gradient over each row; gradients of weight and bias are sums over rows.

    r * g, needed by all but the bias, and its weight; two sums per row, and r * g - b * x + c, 6
    per element; (x - u) * r * g summed over rows, 3; g summed over rows, 1.
    """
    for_input, for_weight, for_bias = output_mask
    elements, size = input.elements, math.prod(normalized_shape)
    if not elements:
        return Flop()
    is_read = for_input or for_weight
    flop = elements * is_read + (elements - size) * for_bias
    if for_input:
        # r * g contains a: one factor less in b, and in c.
        each_row = 2 + SLOPE_FLOP + OFFSET_FLOP - 2
        flop += elements * (6 + (weight is not None)) + elements // size * (each_row - 2)
    if for_weight:
        flop += 3 * elements - size
    return _counted(
        elements, flop, input=is_read, mean=is_read, rstd=is_read, weight=for_input, bias=False
    )


@formula("aten._fused_rms_norm_backward", byte=_BYTE)
def rms_norm_backward(
    input: Tensor,
    normalized_shape: Sizes,
    weight: Tensor | None,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """r * g - x * r² * sum(r * g * x) / m without a mean, and sum(r * g * x) over rows.

    r * g and its weight; a sum of products per row, 2 per element, and r * g - b * x, 2 more; x * r
    * g summed over rows, 2.
    """
    for_input, for_weight = output_mask
    elements, size = input.elements, math.prod(normalized_shape)
    if not elements:
        return Flop()
    is_read = for_input or for_weight
    flop = elements * is_read
    if for_input:
        # The sum has one addition less than elements; b = sum * r * r / m.
        flop += elements * (4 + (weight is not None)) + elements // size * (3 - 1)
    if for_weight:
        flop += 2 * elements - size
    return _counted(elements, flop, input=is_read, rstd=is_read, weight=for_input)


@formula("aten.native_group_norm_backward", byte=_BYTE)
def group_norm_backward(
    input: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    group: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """Over each group of channels, from sums per channel of a sample.

    sum(g) and sum(g * x) per channel, 3 per element; weighted and added up per group; a * g - b * x
    + c, 4. The sums per channel, over samples, give the gradients of weight and bias.
    """
    for_input, for_weight, for_bias = output_mask
    elements, planes, groups = input.elements, N * C, N * group
    if not elements:
        return Flop()
    is_read = for_input or for_weight
    flop = elements - planes + (2 * elements - planes) * is_read + (planes - C) * for_bias
    if for_input:
        # Both sums over channels, with their weights; a = r * weight, 1 per channel.
        flop += 2 * (planes - groups) + 3 * planes * (weight is not None)
        flop += groups * (2 + SLOPE_FLOP + OFFSET_FLOP) + 4 * elements
    if for_weight:
        flop += 3 * planes + planes - C
    return _counted(elements, flop, input=is_read, mean=is_read, rstd=is_read, weight=for_input)
