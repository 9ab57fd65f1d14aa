"""Backward of products of matrices, where a device has kernels of its own for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula("aten.linear_backward", type="matrix product")
def linear(
    self: TensorSpec, grad_output: TensorSpec, output_mask: Sequence[bool], **_: Any
) -> Flop:
    """One FMA for each number of the gradient and feature, for input and weight alike.

    The bias sums the gradient over all rows. ``output_mask`` says which of the three are wanted.
    """
    outputs = grad_output.shape[-1] if grad_output.shape else 1
    products = grad_output.elements * self.shape[-1]
    sums = max(0, grad_output.elements - outputs)
    return Flop(
        macs=products * (bool(output_mask[0]) + bool(output_mask[1])),
        other=sums if output_mask[2] else 0,
    )


@formula("aten.matmul_backward", type="matrix product")
def matmul(grad: TensorSpec, self: TensorSpec, mask: Sequence[bool], **_: Any) -> Flop:
    """As many FMAs as the product took, for either factor that is wanted.

    A factor that was repeated over a batch sums over it, which its FMAs do.
    """
    inner = self.shape[-1] if self.shape else 1
    return Flop(macs=grad.elements * inner * (bool(mask[0]) + bool(mask[1])))
