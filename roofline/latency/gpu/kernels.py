"""Kernels that operators run on a GPU: their kind and the sizes that their times depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.latency.features import product_sizes
from roofline.latency.gpu.chips import FLOAT8_BLOCK
from roofline.placement import Placement
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import TensorSpec

GEMMS = ("gemm", "batched gemm")
CONVOLUTIONS = ("convolution 1x1", "convolution", "first convolution", "grouped convolution")
DEPTHWISE = ("depthwise", "depthwise general", "depthwise channels-last")
ATTENTION = ("attention",)

_FIRST_CHANNELS = 4
"""Input channels up to which a convolution reads an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel by its kind (``"gemm"``, ``"softmax"``, ``"add"`` …) and data type.

    Products have ``batch`` times ``m`` x ``n`` outputs of ``k`` terms; convolutions are products of
    ``taps`` terms per channel ``k`` (outputs by channels), attention has ``m`` queries and ``n``
    keys of ``k`` channels. Reductions have rows of ``k`` elements. ``flop`` are those of depthwise
    convolutions, ``dram_bytes`` miss the L2 cache, ``layout_bytes`` are those of images that a
    convolution converts.
    """

    kind: str
    dtype: str
    batch: float = 1.0
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    taps: float = 1.0
    elements: float = 0.0
    flop: float = 0.0
    dram_bytes: float = 0.0
    layout_bytes: float = 0.0

    @property
    def is_product(self) -> bool:
        """True for matrix products, convolutions and attention, which matrix units compute."""
        return self.kind in (*GEMMS, *CONVOLUTIONS, *ATTENTION)


def has_formula(record: OperatorRecord, kernel: Kernel) -> bool:
    """Return True if all arithmetic of an operator is known, and its products have a formula."""
    is_product = kernel.is_product or kernel.kind in DEPTHWISE
    return record.state is not State.UNKNOWN and (is_product or not record.work.macs)


def kernel_of(placement: Placement) -> Kernel:
    """Return the kernel of an operator that is not free."""
    byte = list(placement.level_bytes.values())
    return _sized(placement.record, float(byte[-1]) if byte else 0.0)


def _sized(record: OperatorRecord, dram_bytes: float) -> Kernel:
    operands = (*record.inputs, *record.outputs)
    largest = max(operands, key=lambda each: each.byte, default=None)
    shared: _Sizes = {
        "dtype": largest.dtype.name if largest else "float32",
        "elements": float(max((each.elements for each in operands), default=0)),
    }
    sizes = _product(record) or _convolution(record) or _attention(record) or _other(record)
    merged: _Sizes = {**shared, "dram_bytes": dram_bytes, **sizes}
    return Kernel(**merged)


_KEPT_ALONE = ("gather", "pooling", "resampling", "concatenation", "transposing copy")
_REDUCTIONS = ("softmax", "layer norm", "reduction")


def fused_kernel_of(members: Sequence[OperatorRecord], dram_bytes: float) -> Kernel | None:
    """Return the kernel of fused operators, with the bytes of its operands that miss L2.

    A product gives the kernel its kind, else a reduction; None if all operators are free.
    """
    at_work = [each for each in members if each.state is not State.FREE]
    found = [_sized(each, 0.0) for each in at_work]
    if not found:
        return None
    for each in found:
        if each.is_product or each.kind in DEPTHWISE:
            return replace(each, dram_bytes=dram_bytes)
    if len(found) == 1 and found[0].kind in _KEPT_ALONE:
        return replace(found[0], kind=f"fused {found[0].kind}", dram_bytes=dram_bytes)
    largest = max(found, key=lambda each: each.elements)
    rows = next((each for each in found if each.kind in _REDUCTIONS), None)
    return Kernel(
        kind="fused reduction" if rows else "fused pointwise",
        dtype=largest.dtype,
        k=rows.k if rows else 1.0,
        elements=largest.elements,
        dram_bytes=dram_bytes,
    )


_Sizes = dict[str, Any]


def _product(record: OperatorRecord) -> _Sizes | None:
    matrices = [each for each in record.inputs if len(each.shape) >= 2]
    if record.op == "aten._scaled_mm" and len(matrices) >= 2:
        (rows, inner), (_, columns), batch = matrices[0].shape, matrices[1].shape, 1
        has_blocks = any(min(each.shape) > 1 for each in matrices[2:])
        dtype = FLOAT8_BLOCK if has_blocks else "float8_e4m3fn"
    elif sizes := product_sizes(record):
        rows, columns, inner, batch = sizes
        dtype = matrices[-1].dtype.name
    else:
        return None
    return {
        "kind": "gemm" if batch == 1 else "batched gemm",
        "dtype": dtype,
        "batch": float(batch),
        "m": float(rows),
        "n": float(columns),
        "k": float(inner),
    }


def _convolution(record: OperatorRecord) -> _Sizes | None:
    if record.op != "aten.convolution" or len(record.inputs) < 2:
        return None
    image, weight, output = record.inputs[0], record.inputs[1], record.outputs[0]
    if len(weight.shape) < 3 or not all(weight.shape):
        return None
    groups = int(record.attributes.get("groups") or 1)
    taps = math.prod(weight.shape[2:])
    inner, outer = image.shape[1] // groups, output.shape[1] // groups
    is_transposed = record.attributes.get("transposed") is True
    is_last = image.layout == "channels-last"
    if groups > 1 and inner == 1:
        kind = _depthwise(record, image, weight, is_last=is_last)
    elif groups > 1:
        kind = "grouped convolution"
    elif inner <= _FIRST_CHANNELS:
        kind = "first convolution"
    else:
        kind = "convolution 1x1" if taps == 1 and not is_transposed else "convolution"
    converted = 0 if is_last or kind.startswith("depthwise") else image.byte + output.byte
    return {
        "kind": kind,
        "dtype": image.dtype.name,
        "batch": float(groups),
        "m": float(output.shape[0] * math.prod(output.shape[2:])),
        "n": float(outer),
        "k": float(inner),
        "taps": float(taps),
        "flop": float(record.work.min_flop or 2 * output.elements * inner * taps),
        "layout_bytes": float(converted),
    }


def _depthwise(
    record: OperatorRecord, image: TensorSpec, weight: TensorSpec, *, is_last: bool
) -> str:
    """Return the kind of a depthwise convolution: cuDNN has kernels for small square windows."""
    if is_last:
        return "depthwise channels-last"
    stride, dilation = (_sizes(record.attributes.get(name)) for name in ("stride", "dilation"))
    window = weight.shape[2:]
    is_usual = (
        len(window) == 2
        and window[0] == window[1]
        and window[0] in (1, 3, 5)
        and image.shape[1] >= 32
        and image.shape[-1] >= 7
        and max(stride, default=1) <= 2
        and max(dilation, default=1) == 1
    )
    return "depthwise" if is_usual else "depthwise general"


def _attention(record: OperatorRecord) -> _Sizes | None:
    if record.type != "attention" or not record.inputs:
        return None
    first, *others = record.inputs
    query, key = first.shape, (others or [first])[0].shape
    if len(query) < 3:
        return None
    return {
        "kind": "attention",
        "dtype": first.dtype.name,
        "batch": float(math.prod(query[:-2])),
        "m": float(query[-2]),
        "n": float(key[-2]),
        "k": float(query[-1]),
    }


_BY_OP = {
    "native_batch_norm": "batch norm",
    "native_layer_norm": "layer norm",
    "_softmax": "softmax",
    "_safe_softmax": "softmax",
    "_log_softmax": "softmax",
    "cat": "concatenation",
    "stack": "concatenation",
    "native_group_norm": "reduction",
    "constant_pad_nd": "gather",
    "roll": "gather",
    "index": "gather",
    "reflection_pad2d": "gather",
    "repeat": "gather",
    "gelu": "gelu",
}

_COPIES = ("_to_copy", "copy", "clone")

_BY_TYPE = {
    "reduction": "reduction",
    "pooling": "pooling",
    "resampling": "resampling",
    "normalization": "layer norm",
    "softmax": "softmax",
    "embedding": "gather",
}

_WINDOWS = ("aten.upsample_bilinear2d", "aten.upsample_bicubic2d")


def _other(record: OperatorRecord) -> _Sizes:
    op = record.op.removeprefix("aten.").rstrip("_")
    operands = [each for each in (*record.inputs, *record.outputs) if each.elements > 1]
    output = record.outputs[0] if record.outputs else None
    has_layouts = len({each.layout for each in operands}) > 1
    kind = _BY_OP.get(op) or _BY_TYPE.get(record.type, "other")
    if op in _COPIES:
        kind = "transposing copy" if has_layouts else "copy"
    elif record.type == "pointwise":
        kind = _pointwise(op, operands, output, has_layouts=has_layouts)
    width = output.shape[-1] if output and output.shape else 1
    if kind == "reduction" and record.inputs and output:
        width = record.inputs[0].elements / max(1, output.elements)
    window = _sizes(record.attributes.get("kernel_size"))
    sizes: _Sizes = {
        "kind": kind,
        "k": float(width),
        "taps": float(math.prod(window) ** (2 if len(window) == 1 else 1)),
    }
    if kind == "gather" and output:
        # Of an embedding's table, only rows that are read.
        sizes["elements"] = float(output.elements)
    if record.op in _WINDOWS and output:
        # Its threads loop over images and channels.
        sizes |= {"batch": float(math.prod(output.shape[:2])), "m": math.prod(output.shape[2:])}
    return sizes


def _pointwise(
    op: str, operands: Sequence[TensorSpec], output: TensorSpec | None, *, has_layouts: bool
) -> str:
    if has_layouts:
        return "strided pointwise"
    if any(output and each.elements < output.elements for each in operands):
        return "broadcast"
    if len({each.dtype for each in operands}) > 1:
        return "mixed types"
    if op in ("add", "sub"):
        return "add"
    return op if op == "gelu" else "multiply" if op in ("mul", "div") else "pointwise"


def _sizes(value: object) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,)
    return tuple(value) if isinstance(value, (list, tuple)) else ()
