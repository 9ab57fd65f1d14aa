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


# Batch normalisation in the parts that several workers share, and under libraries' names.

RUNNING_FLOP = 7
"""For each channel: (1 - momentum) * old + momentum * new, twice; variance * n / (n - 1)."""


@formula("aten._batch_norm_with_update", "aten._batch_norm_with_update_functional")
def batch_norm_with_update(**given: Any) -> Flop:
    """As `native_batch_norm` in training."""
    return batch_norm(training=True, **given)


@formula("aten._batch_norm_no_update")
def batch_norm_without_update(running_mean: TensorSpec | None, **given: Any) -> Flop:
    """With its running statistics; without them, of the batch."""
    return batch_norm(training=running_mean is None, **given)


@formula("aten._native_batch_norm_legit_functional", "aten.miopen_batch_norm")
def batch_norm_of_libraries(**given: Any) -> Flop:
    """As `native_batch_norm`."""
    return batch_norm(**given)


@formula("aten.batch_norm_stats")
def statistics(input: TensorSpec, **_: Any) -> Flop:
    """One worker's mean and 1 / sqrt(variance + epsilon) of each channel."""
    return Flop(other=STATISTICS_FLOP * input.elements + GROUP_FLOP * input.shape[1])


@formula("aten.batch_norm_update_stats")
def updated_statistics(input: TensorSpec, running_mean: TensorSpec | None, **_: Any) -> Flop:
    """Mean and variance of each channel, and the running ones moved towards them."""
    running = 0 if running_mean is None else RUNNING_FLOP * input.shape[1]
    return Flop(other=STATISTICS_FLOP * input.elements + running)


@formula(
    *("aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts"),
    byte="the input is not read: only its shape is used",
)
def gathered_statistics(mean: TensorSpec, running_mean: TensorSpec | None, **_: Any) -> Flop:
    """The workers' means and variances put together, n elements each, for each channel.

    mean = sum(n * mean_i) / sum(n), 2 a worker; variance = sum(n * (variance_i + (mean_i - mean)²))
    / sum(n), 5 a worker, and 3 to get variance_i = 1 / r² - epsilon. Each sum has an addition less;
    two divisions, then epsilon, root and reciprocal. Adding up the counts is left out.
    """
    workers, channels = mean.shape
    running = 0 if running_mean is None else RUNNING_FLOP
    each = 10 * workers - 2 + 2 + GROUP_FLOP + running
    return Flop(other=channels * each if workers else 0, elements={"input": 0})


@formula("aten.batch_norm_elemt")
def normalized(
    input: TensorSpec, weight: TensorSpec | None, bias: TensorSpec | None, **_: Any
) -> Flop:
    """x * scale + shift: two an element.

    For each channel scale = weight * r and shift = bias - mean * scale, as far as there are any.
    """
    channels = input.shape[1]
    each = 1 + (weight is not None) + (bias is not None)
    return Flop(other=2 * input.elements + channels * each)


# Gradients of normalisation, with the mean and 1 / sqrt(variance + epsilon) the forward kept.
#
# Over a set of m elements with mean u and scale r, of gradients g (each times its weight first):
#
#     input_grad  = r * (g - sum(g) / m - (x - u) * r² * sum(g * (x - u)) / m)
#     weight_grad = r * sum(g * (x - u))      bias_grad = sum(g)
#
# As sum(g * (x - u)) is sum(g * x) - u * sum(g), the first is a * g - b * x + c with three numbers
# a set, the way torch's own kernels have it: three operations an element for the sums, four for
# this. Each sum has an addition less than elements. A gradient that is not asked for costs nothing.

_BYTE = "no statistics that are not used; weight and input only where a gradient needs them"

SLOPE_FLOP, OFFSET_FLOP = 4, 4
"""For each set: b = s * r * r * a / m with s = sum(g * x) - u * sum(g); c = u * b - sum(g) * a / m.

The two operations of s are counted apart, since the gradient of the weight needs them as well.
"""


def _unread(**is_read: bool) -> dict[str, int]:
    """No elements of the operands that are not read."""
    return {name: 0 for name, read in is_read.items() if not read}


def _batch_norm(
    input: TensorSpec,
    weight: TensorSpec | None,
    mask: Sequence[bool],
    *,
    training: bool,
    scale: str = "save_var",
) -> Flop:
    """Over each channel of the batch; outside training the statistics are constants.

    `scale` is what the operator calls 1 / sqrt(variance + epsilon), kept from the forward pass.
    """
    for_input, for_weight, for_bias = mask
    elements, channels = input.elements, input.shape[1]
    products = for_weight or (for_input and training)
    flop = 0
    if products or for_bias:
        flop += elements - channels
    if products:
        flop += 2 * elements - channels + 2 * channels
    if for_weight:
        flop += channels
    if for_input:
        flop += channels * (weight is not None)
        if training:
            flop += 4 * elements + channels * (SLOPE_FLOP + OFFSET_FLOP)
        else:
            flop += elements
    if not training and (for_input or for_weight):
        flop += GROUP_FLOP * channels
    return Flop(
        # Without elements there are no sums, and no additions less.
        other=flop if elements else 0,
        elements=_unread(
            input=products,
            weight=for_input,
            running_mean=for_weight and not training,
            running_var=(for_input or for_weight) and not training,
            save_mean=products and training,
            **{scale: products and training},
        ),
    )


@formula("aten.native_batch_norm_backward", byte=_BYTE)
def batch_norm_backward(
    input: TensorSpec,
    weight: TensorSpec | None,
    train: bool,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """Over each channel: 7 operations an element; outside training input_grad = a * g, 1 or 4."""
    return _batch_norm(input, weight, output_mask, training=train, scale="save_invstd")


@formula("aten.batch_norm_backward", byte=_BYTE)
def batch_norm_of_any_library(
    input: TensorSpec,
    weight: TensorSpec | None,
    update: bool,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """As `native_batch_norm_backward`; `update` says whether it is training."""
    return _batch_norm(input, weight, output_mask, training=update)


@formula("aten.cudnn_batch_norm_backward", byte=_BYTE)
@formula("aten.miopen_batch_norm_backward", byte=_BYTE)
def batch_norm_of_libraries_backward(
    input: TensorSpec, weight: TensorSpec | None, **_: Any
) -> Flop:
    """As `native_batch_norm_backward`, in training, with all three gradients."""
    return _batch_norm(input, weight, (True, True, True), training=True)


@formula("aten.batch_norm_backward_reduce", byte=_BYTE)
def synchronized_sums(
    input: TensorSpec, input_g: bool, weight_g: bool, bias_g: bool, **_: Any
) -> Flop:
    """One worker's sums over each channel, sum(g) and sum(g * (x - u)), 3 an element."""
    elements, channels = input.elements, input.shape[1]
    products = input_g or weight_g
    flop = elements - channels if products or bias_g else 0
    if products:
        flop += 2 * elements - channels + 2 * channels
    flop += channels * weight_g
    used = _unread(input=products, mean=products, invstd=weight_g, weight=False)
    return Flop(other=flop if elements else 0, elements=used)


@formula("aten.batch_norm_backward_elemt")
def synchronized_input_gradient(input: TensorSpec, weight: TensorSpec | None, **_: Any) -> Flop:
    """a * g - b * x + c, from the sums of all workers: 4 an element."""
    channels = input.shape[1]
    each = SLOPE_FLOP + OFFSET_FLOP + (weight is not None)
    return Flop(other=4 * input.elements + channels * each if input.elements else 0)


@formula("aten.native_layer_norm_backward", byte=_BYTE)
def layer_norm_backward(
    input: TensorSpec,
    normalized_shape: Sequence[int],
    weight: TensorSpec | None,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """Over each row; the weight has an element for each of a row, so its gradient is over rows.

    r * g, which all but the bias share, and its weight; two sums a row, and r * g - b * x + c, 6 an
    element; (x - u) * r * g summed over rows, 3; g summed over rows, 1.
    """
    for_input, for_weight, for_bias = output_mask
    elements, size = input.elements, math.prod(normalized_shape)
    if not elements:
        return Flop()
    rows = elements // size
    flop = elements * (for_input or for_weight)
    if for_input:
        # a is in r * g: one factor less in b, and in c.
        each_row = 2 + SLOPE_FLOP + OFFSET_FLOP - 2
        flop += elements * (6 + (weight is not None)) + rows * (each_row - 2)
    if for_weight:
        flop += 3 * elements - size
    if for_bias:
        flop += elements - size
    is_read = for_input or for_weight
    unread = _unread(input=is_read, mean=is_read, rstd=is_read, weight=for_input, bias=False)
    return Flop(other=flop, elements=unread)


@formula("aten._fused_rms_norm_backward", byte=_BYTE)
def rms_norm_backward(
    input: TensorSpec,
    normalized_shape: Sequence[int],
    weight: TensorSpec | None,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """Without a mean: r * g - x * r² * sum(r * g * x) / m, and sum(r * g * x) over rows.

    r * g and its weight; a sum of products a row, 2 an element, and r * g - b * x, 2 more;
    x * r * g summed over rows, 2.
    """
    for_input, for_weight = output_mask
    elements, size = input.elements, math.prod(normalized_shape)
    if not elements:
        return Flop()
    rows = elements // size
    flop = elements * (for_input or for_weight)
    if for_input:
        # The sum has an addition less than elements; b = sum * r * r / m.
        flop += elements * (4 + (weight is not None)) + rows * (3 - 1)
    if for_weight:
        flop += 2 * elements - size
    is_read = for_input or for_weight
    return Flop(other=flop, elements=_unread(input=is_read, rstd=is_read, weight=for_input))


@formula("aten.native_group_norm_backward", byte=_BYTE)
def group_norm_backward(
    input: TensorSpec,
    weight: TensorSpec | None,
    N: int,
    C: int,
    group: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> Flop:
    """Over each group of channels; sums are made for each channel of a sample first.

    sum(g) and sum(g * x) a channel, 3 an element; weighted and added up to those of the group;
    a * g - b * x + c, 4. Those of a channel, over samples, give the gradients of weight and bias.
    """
    for_input, for_weight, for_bias = output_mask
    elements, planes, groups = input.elements, N * C, N * group
    if not elements:
        return Flop()
    is_read = for_input or for_weight
    flop = elements - planes
    if is_read:
        flop += 2 * elements - planes
    if for_input:
        weighted = weight is not None
        # Both sums over channels, with their weights; a = r * weight is one a channel.
        flop += 2 * (planes - groups) + 3 * planes * weighted
        flop += groups * (2 + SLOPE_FLOP + OFFSET_FLOP) + 4 * elements
    if for_weight:
        flop += 3 * planes + planes - C
    if for_bias:
        flop += planes - C
    unread = _unread(input=is_read, mean=is_read, rstd=is_read, weight=for_input)
    return Flop(other=flop, elements=unread)


@formula("aten._weight_norm_interface_backward")
def weight_norm_backward(saved_v: TensorSpec, saved_g: TensorSpec, **_: Any) -> Flop:
    """w = v * g / |v|: g_grad = sum(w_grad * v) / |v|, v_grad = a * w_grad - b * v.

    Two operations an element for the sum, three for the other; with a = g / |v| and
    b = a * g_grad / |v| four a slice, of which the sum has one less.
    """
    return Flop(other=5 * saved_v.elements + 3 * saved_g.elements)
