"""Which of its libraries torch takes an operator to on a CPU, as far as shapes decide that.

Facts about torch 2.x (aten/src/ATen/native/Convolution.cpp decides so); held against what torch
itself says by `tests/latency/test_paths.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import TensorSpec

_SMALL_IMAGE = 20_480
"""Elements of an image up to which torch's own convolution is taken for batches of one."""

_MANY_IMAGES = 16

_HALF_TYPES = ("bfloat16", "float16")
"""oneDNN has them where the CPU has, and a machine's samples of a type are all of one way."""


def convolution_path(record: OperatorRecord, threads: int) -> str:
    """The library and kind of a convolution: ``"onednn 1x1"``, ``"im2col kxk"`` …

    torch's own way (im2col and a matrix product) is left for float32 where it is taken to be
    faster: dense 1x1 kernels on one thread, and single small images. Types that oneDNN does not
    have always take it.
    """
    image, weight = record.inputs[:2]
    groups = int(record.attributes.get("groups") or 1)
    # A convolution of one dimension is one of two, of which the first is 1.
    kernel = (1, *weight.shape[2:]) if len(weight.shape) == 3 else weight.shape[2:]
    if _is_transposed(record):
        kind = "transposed"
    elif groups > 1:
        kind = "depthwise" if groups == image.shape[1] else "grouped"
    else:
        kind = "1x1" if math.prod(kernel) == 1 else "kxk"
    if _is_onednn(record, image, groups, kernel, threads):
        return f"onednn {kind}"
    is_dilated = _has_more_than_1(record, "dilation") and not _is_transposed(record)
    return f"{'dilated im2col' if is_dilated else 'im2col'} {kind}"


def _is_onednn(
    record: OperatorRecord,
    image: TensorSpec,
    groups: int,
    kernel: tuple[int, ...],
    threads: int,
) -> bool:
    if _is_transposed(record) and _is_padded_by_a_stride(record):
        return False
    if image.dtype.name != "float32":
        return image.dtype.name in _HALF_TYPES
    is_plain = not (_has_more_than_1(record, "stride") or _has_more_than_1(record, "dilation"))
    is_pointwise = all(size == 1 for size in kernel[-2:])
    if is_plain and is_pointwise and image.shape[0] < _MANY_IMAGES and threads == 1:
        return False
    # torch looks at four sizes, of volumes too.
    is_large = image.shape[0] > 1 or math.prod(image.shape[:4]) > _SMALL_IMAGE
    is_wide = all(size > 3 for size in kernel[-2:])
    return groups > 1 or is_wide or is_large


def _is_transposed(record: OperatorRecord) -> bool:
    return record.attributes.get("transposed") is True


def _is_padded_by_a_stride(record: OperatorRecord) -> bool:
    padding, stride = _sizes(record, "output_padding"), _sizes(record, "stride")
    # One stride may stand for all dimensions.
    strides = stride * len(padding) if len(stride) == 1 else stride
    return any(size >= step for size, step in zip(padding, strides, strict=False))


def _has_more_than_1(record: OperatorRecord, name: str) -> bool:
    return any(size != 1 for size in _sizes(record, name))


def _sizes(record: OperatorRecord, name: str) -> tuple[int, ...]:
    value: Any = record.attributes.get(name)
    is_list = isinstance(value, (list, tuple))
    sizes = cast("Sequence[object]", value) if is_list else (value,)
    return tuple(size for size in sizes if type(size) is int)


def product_layouts(left: TensorSpec, right: TensorSpec) -> str:
    """How two matrices lie: ``n`` row by row, ``t`` otherwise (transposed, mostly)."""
    return "".join("n" if each.layout == "contiguous" else "t" for each in (left, right))
