"""Batch normalisation in the parts that several workers share, and under libraries' names."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.normalization import (
    GROUP_FLOP,
    STATISTICS_FLOP,
    batch_norm,
)
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec

RUNNING_FLOP = 7
"""For each channel: (1 - momentum) * old + momentum * new, twice; variance * n / (n - 1)."""


@formula("aten._batch_norm_with_update", type="normalization")
@formula("aten._batch_norm_with_update_functional", type="normalization")
def batch_norm_with_update(
    input: TensorSpec, weight: TensorSpec | None, bias: TensorSpec | None, **_: Any
) -> Flop:
    """As `native_batch_norm` in training."""
    return batch_norm(input, weight, bias, True)


@formula("aten._batch_norm_no_update", type="normalization")
def batch_norm_without_update(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    running_mean: TensorSpec | None,
    **_: Any,
) -> Flop:
    """With its running statistics; without them, of the batch."""
    return batch_norm(input, weight, bias, running_mean is None)


@formula("aten._native_batch_norm_legit_functional", "aten.miopen_batch_norm", type="normalization")
def batch_norm_of_libraries(
    input: TensorSpec,
    weight: TensorSpec | None,
    bias: TensorSpec | None,
    training: bool,
    **_: Any,
) -> Flop:
    """As `native_batch_norm`."""
    return batch_norm(input, weight, bias, training)


@formula("aten.batch_norm_stats", type="normalization")
def statistics(input: TensorSpec, **_: Any) -> Flop:
    """One worker's mean and 1 / sqrt(variance + epsilon) of each channel."""
    return Flop(other=STATISTICS_FLOP * input.elements + GROUP_FLOP * input.shape[1])


@formula("aten.batch_norm_update_stats", type="normalization")
def updated_statistics(input: TensorSpec, running_mean: TensorSpec | None, **_: Any) -> Flop:
    """Mean and variance of each channel, and the running ones moved towards them."""
    running = 0 if running_mean is None else RUNNING_FLOP * input.shape[1]
    return Flop(other=STATISTICS_FLOP * input.elements + running)


@formula(
    *("aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts"),
    type="normalization",
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


@formula("aten.batch_norm_elemt", type="normalization")
def normalized(
    input: TensorSpec, weight: TensorSpec | None, bias: TensorSpec | None, **_: Any
) -> Flop:
    """x * scale + shift: two an element.

    For each channel scale = weight * r and shift = bias - mean * scale, as far as there are any.
    """
    channels = input.shape[1]
    each = 1 + (weight is not None) + (bias is not None)
    return Flop(other=2 * input.elements + channels * each)
