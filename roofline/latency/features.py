"""What the time of an operator depends on: its kind, torch's path to a kernel, and sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import Any, cast

from roofline.latency.measured import Timed
from roofline.latency.samples import INT8, Facts, OperatorSample, Origin, RunSample
from roofline.placement import Placement
from roofline.run import Run
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec

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
    padding, stride = _attribute(record, "output_padding"), _attribute(record, "stride")
    # One stride may stand for all dimensions.
    strides = stride * len(padding) if len(stride) == 1 else stride
    return any(size >= step for size, step in zip(padding, strides, strict=False))


def _has_more_than_1(record: OperatorRecord, name: str) -> bool:
    return any(size != 1 for size in _attribute(record, name))


def _attribute(record: OperatorRecord, name: str) -> tuple[int, ...]:
    value: Any = record.attributes.get(name)
    is_list = isinstance(value, (list, tuple))
    sizes = cast("Sequence[object]", value) if is_list else (value,)
    return tuple(size for size in sizes if type(size) is int)


def product_layouts(left: TensorSpec, right: TensorSpec) -> str:
    """How two matrices lie: ``n`` row by row, ``t`` otherwise (transposed, mostly)."""
    return "".join("n" if each.layout == "contiguous" else "t" for each in (left, right))


_PRODUCTS = ("aten.addmm", "aten.mm", "aten.bmm", "aten.baddbmm", "aten.linear")
_CODE_TYPES = ("quint8", "qint8")
_KEPT = (Role.PARAMETER, Role.BUFFER)

FRESH_BYTE = 32 * 2**20
"""glibc never takes as much from its heap (M_MMAP_THRESHOLD at its most): its pages are fresh."""


def facts_of(placement: Placement, threads: int) -> Facts:
    """The facts of a placed operator on so many threads."""
    record = placement.record
    group, variant, numbers = _sizes(record, threads)
    first = (*record.inputs, *record.outputs)[0] if record.inputs or record.outputs else None
    shared = _shared(record, placement.level_bytes)
    return Facts(
        group=group,
        variant=variant,
        dtype=_dtype(record),
        layout=first.layout if first is not None else "contiguous",
        threads=threads,
        numbers=(*numbers, *shared),
        eager_min_time_s=placement.eager_min_time_s or 0.0,
    )


def log2(value: float) -> float:
    """The binary logarithm, of nothing as of 1."""
    return math.log2(max(1.0, value))


def fresh_bytes(record: OperatorRecord) -> int:
    """Bytes of outputs that are so large that their memory is fresh at every call."""
    read = {each.storage for each in record.inputs}
    return sum(
        each.byte for each in record.outputs if each.byte >= FRESH_BYTE and each.storage not in read
    )


def _dtype(record: OperatorRecord) -> str:
    operands = (*record.inputs, *record.outputs)
    # Among them are biases and scales, which are floats.
    if any(each.dtype.name in _CODE_TYPES for each in operands):
        return INT8
    floating = [each for each in operands if each.dtype.kind in ("float", "complex")]
    known = floating or operands
    return max(known, key=lambda each: each.byte).dtype.name if known else ""


def _shared(record: OperatorRecord, level_bytes: Mapping[str, int]) -> tuple[float, ...]:
    """The numbers that every group has, after its own: work, and where its bytes come from."""
    work = record.work
    kept = sum(each.byte for each in record.inputs if each.role in _KEPT)
    read = sum(each.byte for each in record.inputs) - kept
    written = sum(each.byte for each in record.outputs)
    byte = list(level_bytes.values()) or [0]
    middle = byte[min(2, len(byte) - 1)]
    return tuple(
        map(log2, (work.flop or 0, kept, read, written, byte[-1], middle, fresh_bytes(record)))
    )


def _sizes(record: OperatorRecord, threads: int) -> tuple[str, str, tuple[float, ...]]:
    for is_one, describe in _KINDS:
        if is_one(record):
            return describe(record, threads)
    return _other(record, threads)


Described = tuple[str, str, tuple[float, ...]]


def _is_convolution(record: OperatorRecord) -> bool:
    if record.op != "aten.convolution" or len(record.inputs) < 2:
        return False
    # A kernel of no size, which fake tensors take, is no operand.
    return len(record.inputs[1].shape) > 2 and all(record.inputs[1].shape)


def _convolution(record: OperatorRecord, threads: int) -> Described:
    image, weight = record.inputs[:2]
    groups = int(record.attributes.get("groups") or 1)
    output = record.outputs[0].shape
    numbers = (
        weight.shape[1],
        weight.shape[0] / groups,
        groups,
        math.prod(weight.shape[2:]),
        max(_whole(record.attributes.get("stride")), default=1),
        math.prod(output[2:]),
        image.shape[0],
        output[-1],
    )
    return "convolution", convolution_path(record, threads), tuple(map(log2, numbers))


def _is_int8_convolution(record: OperatorRecord) -> bool:
    is_one = _INT8_CONVOLUTION.fullmatch(record.op) is not None
    return is_one and _codes(record) is not None and _packed_weight(record) is not None


def _codes(record: OperatorRecord) -> TensorSpec | None:
    """The activations that a quantised layer reads; None: it was not told."""
    return next((each for each in record.inputs if each.role not in _KEPT and each.shape), None)


def _packed_weight(record: OperatorRecord) -> TensorSpec | None:
    """The weight of a quantised convolution; None: it was not told."""
    kept = (each for each in record.inputs if each.role in _KEPT)
    return next((each for each in kept if len(each.shape) > 2), None)


def _int8_convolution(record: OperatorRecord, _threads: int) -> Described:
    """As of `_convolution`; stride and groups are packed with the weight, but sizes tell them."""
    image, weight, output = _codes(record), _packed_weight(record), record.outputs[0].shape
    assert image is not None
    assert weight is not None
    groups = max(1, image.shape[1] // max(1, weight.shape[1]))
    kernel = math.prod(weight.shape[2:])
    steps = [size / max(1, left) for size, left in zip(image.shape[2:], output[2:], strict=True)]
    numbers = (
        weight.shape[1],
        weight.shape[0] / groups,
        groups,
        kernel,
        max(map(round, steps), default=1),
        math.prod(output[2:]),
        image.shape[0],
        output[-1],
    )
    if groups > 1:
        kind = "depthwise" if groups == image.shape[1] else "grouped"
    else:
        kind = "1x1" if kernel == 1 else "kxk"
    return "convolution", f"{INT8} {kind}", tuple(map(log2, numbers))


_INT8_CONVOLUTION = re.compile(r"quantized\.conv[123]d(_relu|_add|_add_relu)?")


def _is_int8_product(record: OperatorRecord) -> bool:
    return _INT8_PRODUCT.fullmatch(record.op) is not None and _codes(record) is not None


def _int8_product(record: OperatorRecord, _threads: int) -> Described:
    left, output = _codes(record), record.outputs[0].shape
    assert left is not None
    kind = "dynamic linear" if record.op.endswith("_dynamic") else "linear"
    numbers = (math.prod(left.shape[:-1]), output[-1], left.shape[-1], 1)
    return "matrix product", f"{INT8} {kind}", tuple(map(log2, numbers))


_INT8_PRODUCT = re.compile(r"quantized\.linear(_relu)?(_dynamic)?")


def _is_product(record: OperatorRecord) -> bool:
    return record.op in _PRODUCTS and len(_matrices(record)) >= 2


def _matrices(record: OperatorRecord) -> list[TensorSpec]:
    return [each for each in record.inputs if len(each.shape) >= 2]


def _product(record: OperatorRecord, _threads: int) -> Described:
    left, right = _matrices(record)[-2:] if record.op != "aten.linear" else _matrices(record)[:2]
    rows = math.prod(left.shape[:-1]) if len(right.shape) == 2 else left.shape[-2]
    many = right.shape[0] if len(right.shape) == 3 else 1
    columns = right.shape[0] if record.op == "aten.linear" else right.shape[-1]
    variant = f"{record.op.removeprefix('aten.')} {product_layouts(left, right)}"
    return "matrix product", variant, tuple(map(log2, (rows, columns, left.shape[-1], many)))


def _is_attention(record: OperatorRecord) -> bool:
    return record.type == "attention" and bool(record.inputs) and len(record.inputs[0].shape) >= 3


def _attention(record: OperatorRecord, _threads: int) -> Described:
    query = record.inputs[0].shape
    key = record.inputs[1].shape if len(record.inputs) > 1 else query
    width, tokens, heads = query[-1:], query[-2:-1], query[1:2] if len(query) > 3 else (1,)
    # A fused layer has batch, tokens and width, and looks at its own tokens.
    others = key[-2:-1] if len(key) > 3 else tokens
    numbers = (*query[:1], *heads, *width, *tokens, *others)
    return "attention", record.op.removeprefix("aten."), tuple(map(log2, numbers))


def _other(record: OperatorRecord, _threads: int) -> Described:
    tensor = (*record.inputs, *record.outputs)[0] if record.inputs or record.outputs else None
    shape = tensor.shape if tensor is not None else ()
    kernel = _whole(record.attributes.get("kernel_size"))
    stride = _whole(record.attributes.get("stride"))
    numbers = (
        shape[-1] if shape else 1,
        shape[1] if len(shape) > 1 else 1,
        math.prod(shape),
        record.outputs[0].elements if record.outputs else 1,
        math.prod(kernel),
        max(stride, default=1),
    )
    # The numbers of the groups above mean other things: their kin (a dot product) is one apart.
    group = f"other {record.type}" if record.type in _OWN_GROUPS else record.type
    return group, record.op.removeprefix("aten."), tuple(map(log2, numbers))


_OWN_GROUPS = ("convolution", "matrix product", "attention")

_KINDS: Sequence[
    tuple[Callable[[OperatorRecord], bool], Callable[[OperatorRecord, int], Described]]
] = (
    (_is_convolution, _convolution),
    (_is_int8_convolution, _int8_convolution),
    (_is_product, _product),
    (_is_int8_product, _int8_product),
    (_is_attention, _attention),
)


def _whole(value: Any) -> tuple[int, ...]:
    """The whole numbers of an argument that is one, or a list of them."""
    if type(value) is int:
        return (value,)
    if isinstance(value, (list, tuple)):
        sizes = cast("Sequence[object]", value)
        return tuple(each for each in sizes if type(each) is int)
    return ()


def run_sample(
    placements: Sequence[Placement],
    timed: Timed,
    *,
    model: str,
    family: str,
    origin: Origin,
    run: Run,
    dtype: str,
    batch: int | None,
    threads: int,
) -> RunSample:
    """What is kept of a pass; calls with equal facts are kept together.

    Args:
        placements: the operators, placed under the machine's roof.
        timed: how long each took, and the whole.
        model: its name.
        family: its kin.
        origin: the command that measured it.
        run: how it was run.
        dtype: the type that it mostly computed in.
        batch: the first size of its inputs; None: not known.
        threads: how many computed.
    """
    alike: dict[Facts, list[int]] = {}
    free: list[int] = []
    for place, each in enumerate(placements):
        if each.record.state is State.FREE:
            free.append(place)
        else:
            alike.setdefault(facts_of(each, threads), []).append(place)
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
                facts=facts,
                calls=len(places),
                time_s=median(samples[place].median_s for place in places),
                iqr_s=median(samples[place].iqr_s for place in places),
                page_faults=mean(timed.page_faults[place] for place in places),
            )
            for facts, places in alike.items()
        ),
    )
