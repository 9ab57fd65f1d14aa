"""What each operator takes in floating-point operations: one short function or row an operator.

Importing this package registers all of them. A formula's parameters have the names of the aten
schema; tensors arrive as `TensorSpec`, everything else as it is.
"""

from roofline.workload.formulas import (
    attention,
    attention_kernels,
    convolution,
    detection,
    draws,
    indexing,
    layout,
    linear_algebra,
    loss,
    matmul,
    normalization,
    optimizer,
    ordering,
    pointwise,
    pooling,
    quantized,
    recurrent,
    reduction,
    resampling,
)
from roofline.workload.formulas.registry import Flop, Formula, find, formula, known

__all__ = [
    "Flop",
    "Formula",
    "attention",
    "attention_kernels",
    "convolution",
    "detection",
    "draws",
    "find",
    "formula",
    "indexing",
    "known",
    "layout",
    "linear_algebra",
    "loss",
    "matmul",
    "normalization",
    "optimizer",
    "ordering",
    "pointwise",
    "pooling",
    "quantized",
    "recurrent",
    "reduction",
    "resampling",
]
