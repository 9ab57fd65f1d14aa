"""What each operator takes in floating-point operations: one short function an operator.

Importing this package registers all of them. A formula's parameters have the names of the aten
schema; tensors arrive as `TensorSpec`, everything else as it is.
"""

from roofline.workload.formulas import (
    activation,
    attention,
    convolution,
    distance,
    draws,
    indexing,
    layout,
    matmul,
    normalization,
    pointwise,
    pooling,
    recurrent,
    reduction,
    resampling,
    softmax,
)
from roofline.workload.formulas.registry import Flop, Formula, find, formula, known

__all__ = [
    "Flop",
    "Formula",
    "activation",
    "attention",
    "convolution",
    "distance",
    "draws",
    "find",
    "formula",
    "indexing",
    "known",
    "layout",
    "matmul",
    "normalization",
    "pointwise",
    "pooling",
    "recurrent",
    "reduction",
    "resampling",
    "softmax",
]
