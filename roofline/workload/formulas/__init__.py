"""FLOP of each operator: a short function or a table row per operator.

Importing this package registers all of them. A formula's parameters have the names of the aten
schema; tensors arrive as `TensorSpec`, other arguments unchanged.
"""

from importlib import import_module

from roofline.workload.formulas.registry import Flop as Flop
from roofline.workload.formulas.registry import Formula as Formula
from roofline.workload.formulas.registry import find as find
from roofline.workload.formulas.registry import formula as formula
from roofline.workload.formulas.registry import known as known

_FAMILIES = (
    "attention attention_kernels convolution detection draws indexing layout linear_algebra loss"
    " matmul normalization optimizer ordering pointwise pooling quantized recurrent reduction"
    " resampling"
)

for _family in _FAMILIES.split():
    import_module(f"{__name__}.{_family}")
