"""Memory that torch's CPU kernels take besides their results, and give back before they return.

Read from logs of every ``malloc`` and ``free`` of single operators (torch 2.13, oneDNN 3.12,
float32, 1 and 2 threads), and from the conditions in torch's ``Convolution.cpp`` and
``FlashAttentionKernel.cpp``. A layer norm copies an input that is not contiguous. MKL packs the
factors of a product into buffers that it keeps: their sizes are fitted to those seen on one machine
(AMD Zen 4), within 10 %. Other normalizations, pooling and pointwise kernels take less than a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline.workload.operators import OperatorRecord

_ELEMENT_BYTE = 4
_FIRST_LAYER_CHANNELS = 16
"""Below this an ungrouped convolution reads its input in the layout that it has."""

_LARGE_INPUT = 20480
"""Elements of an input from which torch takes oneDNN for convolutions of batch 1."""

_MANY_IMAGES = 16
_KEYS_SPLIT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Blocks besides the results, in bytes.

    ``before``: taken ahead of the results and given back before them. ``around``: taken ahead of
    them, given back once they are written. ``after``: taken behind them. ``kept_byte``: the buffer
    that a product of MKL needs, which stays for the next one. ``is_onednn``: whether
    oneDNN runs it (its descriptors and primitives take memory too).
    """

    before: tuple[int, ...] = ()
    around: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    kept_byte: int = 0
    is_onednn: bool = False


_NONE = Scratch()


def scratch(record: OperatorRecord, *, threads: int = 1, lanes: int = 16) -> Scratch | None:
    """The blocks that a call takes besides its results; None: it takes some that are not known.

    Args:
        record: the call.
        threads: how many threads torch computes with.
        lanes: float32 elements in a vector register; oneDNN rounds channels up to that.
    """
    if record.op == "aten.convolution":
        is_float = all(each.dtype.name == "float32" for each in record.inputs)
        if not is_float or record.attributes.get("transposed"):
            return None
        return _convolution(record, threads, lanes)
    if record.op == "aten.convolution_backward":
        return None
    if record.op == "aten._scaled_dot_product_flash_attention_for_cpu":
        return _attention(record, threads)
    if record.op in ("aten.mm", "aten.addmm"):
        rows, columns = record.outputs[0].shape
        return Scratch(kept_byte=_packed_rows_byte(rows, columns, threads))
    if record.op == "aten.native_layer_norm" and record.inputs[0].layout != "contiguous":
        return Scratch(around=(record.inputs[0].byte,))
    return _NONE


def _convolution(record: OperatorRecord, threads: int, lanes: int) -> Scratch:
    image, weight, result = record.inputs[0], record.inputs[1], record.outputs[0]
    batch, channels, *size = image.shape
    kernel, results = weight.shape[2:], math.prod(result.shape[2:])
    taps, groups = math.prod(kernel), record.attributes.get("groups", 1)
    is_strided = _differs(record.attributes.get("stride"), 1)
    if not _takes_onednn(record, threads):
        is_product = taps == 1 and not is_strided
        is_product = is_product and not _differs(record.attributes.get("padding"), 0)
        columns = batch * channels * taps * results * _ELEMENT_BYTE
        kept = _packed_columns_byte(results, weight.shape[0], channels * taps // groups)
        return Scratch(around=() if is_product else (columns,), kept_byte=kept)
    inside, outside = weight.shape[1], weight.shape[0] // groups
    is_first = groups == 1 and channels < _FIRST_LAYER_CHANNELS
    if inside == outside == 1:
        weights = _up(groups, lanes) * taps
    else:
        weights = groups * (inside if is_first else _up(inside, lanes)) * _up(outside, lanes) * taps
    weight_byte = weights * _ELEMENT_BYTE
    if result.layout == "channels-last":
        return Scratch(after=(weight_byte,), is_onednn=True)
    before = (weight_byte,)
    if not is_first:
        image_byte = batch * _up(channels, lanes) * math.prod(size) * _ELEMENT_BYTE
        before = (image_byte, *before)
        if taps == 1 and is_strided:
            # The pixels that a strided convolution with 1 × 1 taps reads are gathered, per thread.
            before = (threads * _up(channels, lanes) * results * _ELEMENT_BYTE, *before)
    blocked = batch * _up(weight.shape[0], lanes) * results * _ELEMENT_BYTE
    return Scratch(before=before, around=(blocked,), is_onednn=True)


def _packed_columns_byte(pixels: int, channels: int, depth: int) -> int:
    """MKL's buffer for weights times pixels, on one thread."""
    block = 64 if pixels > 8192 else 128 if depth <= 128 else min(depth, 192)
    return 4 * min(pixels, 13000) * block + 1024 * min(channels, 480) + 17080


def _packed_rows_byte(rows: int, columns: int, threads: int) -> int:
    """MKL's buffer of one thread for the product of a linear layer."""
    return 400_000 + 512 * columns // threads if rows > 1 else 0


def _takes_onednn(record: OperatorRecord, threads: int) -> bool:
    """Whether torch gives a convolution of float32 to oneDNN; else it is a product of columns."""
    image, weight = record.inputs[0], record.inputs[1]
    batch, kernel = image.shape[0], weight.shape[2:]
    attributes = record.attributes
    return (
        _differs(attributes.get("stride"), 1)
        or _differs(attributes.get("dilation"), 1)
        or batch >= _MANY_IMAGES
        or _differs(kernel, 1)
        or threads > 1
    ) and (
        attributes.get("groups", 1) > 1
        or min(kernel[-2:]) > 3
        or batch > 1
        or image.elements > _LARGE_INPUT
    )


def _attention(record: OperatorRecord, threads: int) -> Scratch:
    """A block of scores, two sums and a block of results, for each thread."""
    query, key = record.inputs[0], record.inputs[min(1, len(record.inputs) - 1)]
    queries, width, keys = query.shape[-2], query.shape[-1], key.shape[-2]
    rows = min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32)
    each = rows * (min(_KEYS_SPLIT, keys) + 2 + width) * _ELEMENT_BYTE
    return Scratch(after=(threads * each,))


def _differs(values: object, value: int) -> bool:
    return isinstance(values, Sequence) and any(each != value for each in values)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
