"""What the operators of the backward pass take; importing this package registers them."""

from roofline.workload.formulas.backward import (
    attention,
    convolution,
    distance,
    indexing,
    losses,
    matmul,
    normalization,
    padding,
    pointwise,
    pooling,
    recurrent,
    reduction,
    resampling,
    sampling_grids,
    softmax,
)

__all__ = [
    "attention",
    "convolution",
    "distance",
    "indexing",
    "losses",
    "matmul",
    "normalization",
    "padding",
    "pointwise",
    "pooling",
    "recurrent",
    "reduction",
    "resampling",
    "sampling_grids",
    "softmax",
]
