"""Features of operators that their times depend on: kind, kernel selection, sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, cast

from roofline.core.rows import grouped
from roofline.latency.samples import (
    INT8,
    OperatorFeatures,
    OperatorSample,
    Origin,
    PassTimes,
    RunSample,
)
from roofline.placement import Placement
from roofline.run import Run
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec

_SMALL_IMAGE = 20_480
"""Elements of an image up to which torch uses its own convolution for batches of one."""

_MANY_IMAGES = 16

_HALF_TYPES = ("bfloat16", "float16")
"""oneDNN computes in them if the CPU does; all samples of a machine agree in that."""


def convolution_path(record: OperatorRecord, threads: int) -> str:
    """Return the library and kind of a convolution: ``"onednn 1x1"``, ``"im2col kxk"`` …

    torch uses im2col and a matrix product in float32 for dense 1x1 kernels on one thread, and for
    single small images.
    """
    image, weight = record.inputs[:2]
    groups = int(record.attributes.get("groups") or 1)
    # A 1-D convolution is a 2-D one with a first dimension of 1.
    kernel = (1, *weight.shape[2:]) if len(weight.shape) == 3 else weight.shape[2:]
    is_transposed = record.attributes.get("transposed") is True
    kind = "transposed" if is_transposed else _kind_of(image, groups, math.prod(kernel))
    stride, padding, dilation = (
        _whole(record.attributes.get(name)) for name in ("stride", "output_padding", "dilation")
    )
    is_dilated = any(size != 1 for size in dilation)
    # One stride may stand for all dimensions.
    steps = stride * len(padding) if len(stride) == 1 else stride
    is_padded = any(size >= step for size, step in zip(padding, steps, strict=False))
    is_plain = not is_dilated and all(size == 1 for size in stride)
    is_pointwise = all(size == 1 for size in kernel[-2:])
    if is_transposed and is_padded:
        is_onednn = False
    elif image.dtype.name != "float32":
        is_onednn = image.dtype.name in _HALF_TYPES
    elif is_plain and is_pointwise and image.shape[0] < _MANY_IMAGES and threads == 1:
        is_onednn = False
    else:
        # torch considers four sizes, of volumes too.
        is_large = image.shape[0] > 1 or math.prod(image.shape[:4]) > _SMALL_IMAGE
        is_onednn = groups > 1 or is_large or all(size > 3 for size in kernel[-2:])
    if is_onednn:
        return f"onednn {kind}"
    return f"{'dilated im2col' if is_dilated and not is_transposed else 'im2col'} {kind}"


def _kind_of(image: TensorSpec, groups: int, kernel: int) -> str:
    if groups > 1:
        return "depthwise" if groups == image.shape[1] else "grouped"
    return "1x1" if kernel == 1 else "kxk"


def product_layouts(left: TensorSpec, right: TensorSpec) -> str:
    """Return the layouts of two matrices: ``n`` row-major, ``t`` otherwise (mostly transposed)."""
    return "".join("n" if each.layout == "contiguous" else "t" for each in (left, right))


_PRODUCTS = ("aten.addmm", "aten.mm", "aten.bmm", "aten.baddbmm", "aten.linear")
_CODE_TYPES = ("quint8", "qint8")
_KEPT = (Role.PARAMETER, Role.BUFFER)

FRESH_BYTE = 32 * 2**20
"""Size from which glibc maps fresh pages (the largest M_MMAP_THRESHOLD)."""


def features_of(placement: Placement, threads: int) -> OperatorFeatures:
    """Return the features of a placed operator on a number of threads."""
    record = placement.record
    group, variant, numbers = _sizes(record, threads)
    first = (*record.inputs, *record.outputs)[0] if record.inputs or record.outputs else None
    shared = _shared(record, placement.level_bytes)
    return OperatorFeatures(
        group=group,
        variant=variant,
        dtype=_dtype(record),
        layout=first.layout if first is not None else "contiguous",
        threads=threads,
        numbers=(*numbers, *shared),
        eager_min_time_s=placement.eager_min_time_s or 0.0,
    )


def log2(value: float) -> float:
    """Return the binary logarithm of at least 1."""
    return math.log2(max(1.0, value))


def fresh_bytes(record: OperatorRecord) -> int:
    """Return the bytes of outputs whose memory is freshly mapped at every call."""
    read = {each.storage for each in record.inputs}
    return sum(
        each.byte for each in record.outputs if each.byte >= FRESH_BYTE and each.storage not in read
    )


def _dtype(record: OperatorRecord) -> str:
    operands = (*record.inputs, *record.outputs)
    # Biases and scales among them are floats.
    if any(each.dtype.name in _CODE_TYPES for each in operands):
        return INT8
    floating = [each for each in operands if each.dtype.kind in ("float", "complex")]
    known = floating or operands
    return max(known, key=lambda each: each.byte).dtype.name if known else ""


def _shared(record: OperatorRecord, level_bytes: Mapping[str, int]) -> tuple[float, ...]:
    """Return the numbers shared by all groups: work, and bytes by role and level."""
    work = record.work
    kept = sum(each.byte for each in record.inputs if each.role in _KEPT)
    read = sum(each.byte for each in record.inputs) - kept
    written = sum(each.byte for each in record.outputs)
    byte = list(level_bytes.values()) or [0]
    middle = byte[min(2, len(byte) - 1)]
    return tuple(
        map(log2, (work.flop or 0, kept, read, written, byte[-1], middle, fresh_bytes(record)))
    )


Described = tuple[str, str, tuple[float, ...]]
"""Group, variant and numbers of an operator."""


def _sizes(record: OperatorRecord, threads: int) -> Described:
    group, variant, sizes = (
        _convolution(record, threads)
        or _int8_convolution(record)
        or _product(record)
        or _int8_product(record)
        or _attention(record)
        or _other(record)
    )
    return group, variant, tuple(map(log2, sizes))


def _convolution(record: OperatorRecord, threads: int) -> Described | None:
    if record.op != "aten.convolution" or len(record.inputs) < 2:
        return None
    image, weight = record.inputs[:2]
    # Fake tensors accept an empty kernel.
    if len(weight.shape) < 3 or not all(weight.shape):
        return None
    groups = int(record.attributes.get("groups") or 1)
    stride = max(_whole(record.attributes.get("stride")), default=1)
    sizes = _of_convolution(record, image, weight, groups, stride)
    return "convolution", convolution_path(record, threads), sizes


def _of_convolution(
    record: OperatorRecord, image: TensorSpec, weight: TensorSpec, groups: int, stride: int
) -> tuple[float, ...]:
    output, (out, inner, *kernel) = record.outputs[0].shape, weight.shape
    per_group = (inner, out / groups, groups, math.prod(kernel), stride)
    return (*per_group, math.prod(output[2:]), image.shape[0], output[-1])


def _codes(record: OperatorRecord) -> TensorSpec | None:
    """Return the activations that a quantized layer reads; None if unknown."""
    return next((each for each in record.inputs if each.role not in _KEPT and each.shape), None)


_INT8_CONVOLUTION = re.compile(r"quantized\.conv[123]d(_relu|_add|_add_relu)?")


def _int8_convolution(record: OperatorRecord) -> Described | None:
    """As `_convolution`; stride and groups, packed with the weight, follow from sizes."""
    if not _INT8_CONVOLUTION.fullmatch(record.op):
        return None
    kept = (each for each in record.inputs if each.role in _KEPT)
    image, weight = _codes(record), next((each for each in kept if len(each.shape) > 2), None)
    # Either may be unknown.
    if image is None or weight is None:
        return None
    output = record.outputs[0].shape
    groups = max(1, image.shape[1] // max(1, weight.shape[1]))
    steps = [size / max(1, left) for size, left in zip(image.shape[2:], output[2:], strict=True)]
    stride = max(map(round, steps), default=1)
    kind = _kind_of(image, groups, math.prod(weight.shape[2:]))
    sizes = _of_convolution(record, image, weight, groups, stride)
    return "convolution", f"{INT8} {kind}", sizes


def product_sizes(record: OperatorRecord) -> tuple[int, int, int, int] | None:
    """Return rows, columns, inner size and batch of a matrix product; None for other operators."""
    matrices = [each for each in record.inputs if len(each.shape) >= 2]
    if record.op not in _PRODUCTS or len(matrices) < 2:
        return None
    is_linear = record.op == "aten.linear"
    left, right = matrices[:2] if is_linear else matrices[-2:]
    rows = math.prod(left.shape[:-1]) if len(right.shape) == 2 else left.shape[-2]
    many = right.shape[0] if len(right.shape) == 3 else 1
    columns = right.shape[0] if is_linear else right.shape[-1]
    return rows, columns, left.shape[-1], many


def _product(record: OperatorRecord) -> Described | None:
    sizes = product_sizes(record)
    if sizes is None:
        return None
    matrices = [each for each in record.inputs if len(each.shape) >= 2]
    left, right = matrices[:2] if record.op == "aten.linear" else matrices[-2:]
    variant = f"{record.op.removeprefix('aten.')} {product_layouts(left, right)}"
    return "matrix product", variant, sizes


_INT8_PRODUCT = re.compile(r"quantized\.linear(_relu)?(_dynamic)?")


def _int8_product(record: OperatorRecord) -> Described | None:
    if not _INT8_PRODUCT.fullmatch(record.op) or (left := _codes(record)) is None:
        return None
    kind = "dynamic linear" if record.op.endswith("_dynamic") else "linear"
    sizes = (math.prod(left.shape[:-1]), record.outputs[0].shape[-1], left.shape[-1], 1)
    return "matrix product", f"{INT8} {kind}", sizes


def _attention(record: OperatorRecord) -> Described | None:
    query = record.inputs[0].shape if record.inputs else ()
    if record.type != "attention" or len(query) < 3:
        return None
    key = record.inputs[1].shape if len(record.inputs) > 1 else query
    width, tokens, heads = query[-1:], query[-2:-1], query[1:2] if len(query) > 3 else (1,)
    # A fused layer has batch, tokens and width; keys are its own tokens.
    others = key[-2:-1] if len(key) > 3 else tokens
    sizes = (*query[:1], *heads, *width, *tokens, *others)
    return "attention", record.op.removeprefix("aten."), sizes


def _other(record: OperatorRecord) -> Described:
    tensor = (*record.inputs, *record.outputs)[0] if record.inputs or record.outputs else None
    shape = tensor.shape if tensor is not None else ()
    sizes = (
        shape[-1] if shape else 1,
        shape[1] if len(shape) > 1 else 1,
        math.prod(shape),
        record.outputs[0].elements if record.outputs else 1,
        math.prod(_whole(record.attributes.get("kernel_size"))),
        max(_whole(record.attributes.get("stride")), default=1),
    )
    # The numbers of the groups above differ: similar operators (a dot product) have another group.
    group = f"other {record.type}" if record.type in _OWN_GROUPS else record.type
    return group, record.op.removeprefix("aten."), sizes


_OWN_GROUPS = ("convolution", "matrix product", "attention")


def _whole(value: Any) -> tuple[int, ...]:
    """Return the integers of an argument: one, or a list."""
    if type(value) is int:
        return (value,)
    if isinstance(value, (list, tuple)):
        sizes = cast("Sequence[object]", value)
        return tuple(each for each in sizes if type(each) is int)
    return ()


def run_sample(
    placements: Sequence[Placement],
    timed: PassTimes,
    *,
    model: str,
    family: str,
    origin: Origin,
    run: Run,
    dtype: str,
    batch: int | None,
    threads: int,
) -> RunSample:
    """Return the sample of a measured pass; calls with equal features are merged."""
    free = [n for n, each in enumerate(placements) if each.record.state is State.FREE]
    at_work = (n for n, each in enumerate(placements) if each.record.state is not State.FREE)
    alike = grouped(at_work, lambda place: features_of(placements[place], threads))
    samples = timed.operators
    return RunSample(
        model=model,
        family=family,
        origin=origin,
        date=timed.run.date,
        batch=batch,
        dtype=dtype,
        threads=threads,
        channels_last=run.channels_last,
        train=run.train,
        end_to_end_s=timed.run.measured_s,
        end_to_end_iqr_s=timed.run.end_to_end.iqr_s,
        operators_s=sum(each.median_s for each in samples),
        free_s=sum(samples[place].median_s for place in free),
        free_calls=len(free),
        calls=len(samples),
        page_faults=timed.run.page_faults,
        clock_hz=timed.run.clock_hz,
        core_to_core_latency_s=timed.run.core_to_core_latency_s,
        operators=tuple(
            OperatorSample(
                facts=features,
                calls=len(places),
                time_s=median(samples[place].median_s for place in places),
                iqr_s=median(samples[place].iqr_s for place in places),
                page_faults=mean(timed.page_faults[place] for place in places),
            )
            for features, places in alike.items()
        ),
    )
