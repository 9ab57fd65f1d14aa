"""Which of its libraries torch takes an operator to on a CPU, as far as shapes decide that.

Facts about torch 2.x (aten/src/ATen/native/Convolution.cpp decides so); held against what torch
itself says by `tests/latency/test_paths.py`.
"""

from __future__ import annotations

import math
from typing import Any

from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec

_SMALL_IMAGE = 20_480
"""Elements of an image up to which torch's own convolution is taken for batches of one."""

_MANY_IMAGES = 16


def convolution_path(record: OperatorRecord, threads: int) -> str:
    """The library and kind of a convolution: ``"onednn 1x1"``, ``"im2col kxk"`` …

    torch's own way (im2col and a matrix product) is left for float32 where it is taken to be
    faster: dense 1x1 kernels on one thread, and single small images.
    """
    image, weight = record.inputs[:2]
    groups = int(record.attributes.get("groups") or 1)
    kernel = weight.shape[2:]
    if record.attributes.get("transposed") is True:
        kind = "transposed"
    elif groups > 1:
        kind = "depthwise" if groups == image.shape[1] else "grouped"
    else:
        kind = "1x1" if math.prod(kernel) == 1 else "kxk"
    return f"{_library(record, image, groups, kernel, threads)} {kind}"


def _library(
    record: OperatorRecord,
    image: TensorSpec,
    groups: int,
    kernel: tuple[int, ...],
    threads: int,
) -> str:
    if image.dtype.name != "float32":
        return "onednn"
    is_plain = not (_has_more_than_1(record, "stride") or _has_more_than_1(record, "dilation"))
    is_pointwise = all(size == 1 for size in kernel[-2:])
    if is_plain and is_pointwise and image.shape[0] < _MANY_IMAGES and threads == 1:
        return "im2col"
    is_large = image.shape[0] > 1 or math.prod(image.shape) > _SMALL_IMAGE
    is_wide = all(size > 3 for size in kernel[-2:])
    return "onednn" if groups > 1 or is_wide or is_large else "im2col"


def _has_more_than_1(record: OperatorRecord, name: str) -> bool:
    value: Any = record.attributes.get(name)
    sizes = value if isinstance(value, (list, tuple)) else [value]
    return any(type(size) is int and size != 1 for size in sizes)


def product_layouts(left: TensorSpec, right: TensorSpec) -> str:
    """How two matrices lie: ``n`` row by row, ``t`` otherwise (transposed, mostly)."""
    return "".join("n" if each.layout == "contiguous" else "t" for each in (left, right))
