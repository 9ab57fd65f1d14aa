"""ONNX's operators in torch's: a function each, in the file of its kind.

A function takes the node and its operands, None for those that are left out, and gives a tensor or
a tuple of them. Which torch operator it calls is what is counted: where torch has one operator for
it, it is that one.
"""

from __future__ import annotations

from roofline.workload.models.files.onnx_operators import arithmetic as arithmetic
from roofline.workload.models.files.onnx_operators import convolutions as convolutions
from roofline.workload.models.files.onnx_operators import indexing as indexing
from roofline.workload.models.files.onnx_operators import normalizations as normalizations
from roofline.workload.models.files.onnx_operators import pooling as pooling
from roofline.workload.models.files.onnx_operators import products as products
from roofline.workload.models.files.onnx_operators import quantized as quantized
from roofline.workload.models.files.onnx_operators import recurrent as recurrent
from roofline.workload.models.files.onnx_operators import reductions as reductions
from roofline.workload.models.files.onnx_operators import resampling as resampling
from roofline.workload.models.files.onnx_operators import shapes as shapes
