"""Steady-state page faults of a pass, by simulation of the allocator.

glibc returns the end of its heap to the kernel above a threshold, and mappings at once; writes of a
later pass fault these pages in again. Records give the lifetimes of tensors, `scratch_blocks` the
further memory of kernels; `glibc_heap` is the allocator. Memory of worker threads does not count:
they take it from their own arenas, and keep it.

Small blocks that remain from the first pass (oneDNN's primitives, Python objects) determine which
memory can be returned, and differ from process to process. So several processes are simulated, each
with different small blocks in its heap, and the result is a range.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from roofline.workload.glibc_heap import PAGE_BYTE, Heap, MallocSettings
from roofline.workload.operators import OperatorRecord
from roofline.workload.residency import storage_sizes
from roofline.workload.tensors import Role

# From logs of every ``malloc`` and ``free`` of single operators (torch 2.13, oneDNN 3.12, float32,
# 1 and 2 threads), and from the conditions in torch's ``Convolution.cpp`` and
# ``FlashAttentionKernel.cpp``. A layer norm copies an input that is not contiguous. MKL packs the
# factors of a product into buffers that it keeps: their sizes are fitted to those on one machine
# (AMD Zen 4), within 10 %. Other normalizations, pooling and pointwise kernels take less than a
# page.

_ELEMENT_BYTE = 4
_FIRST_LAYER_CHANNELS = 16
"""Below this, an ungrouped convolution reads its input without a change of layout."""

_LARGE_INPUT = 20480
"""Input elements from which torch uses oneDNN for convolutions of batch 1."""

_MANY_IMAGES = 16
_KEYS_SPLIT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Scratch blocks of a call, in bytes, in addition to its results.

    ``before``: allocated and freed before the results. ``around``: allocated before them, freed
    after they are written. ``after``: allocated after them. ``kept_bytes``: the buffer of an MKL
    product, kept for the next one. ``is_onednn``: oneDNN runs the call, whose descriptors and
    primitives also take memory.
    """

    before: tuple[int, ...] = ()
    around: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    kept_bytes: int = 0
    is_onednn: bool = False


def scratch_blocks(record: OperatorRecord, *, threads: int = 1, lanes: int = 16) -> Scratch | None:
    """Return the scratch blocks of a call; None if they are unknown.

    ``lanes`` are the float32 elements of a vector register: oneDNN rounds channels up to them.
    """
    if record.op == "aten.convolution":
        is_float = all(each.dtype.name == "float32" for each in record.inputs)
        if not is_float or record.attributes.get("transposed"):
            return None
        return _convolution(record, threads, lanes)
    if record.op == "aten.convolution_backward":
        return None
    if record.op == "aten._scaled_dot_product_flash_attention_for_cpu":
        query, key = record.inputs[0], record.inputs[min(1, len(record.inputs) - 1)]
        queries, width, keys = query.shape[-2], query.shape[-1], key.shape[-2]
        rows = min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32)
        # A block of scores, two sums and a block of results, for each thread.
        each = rows * (min(_KEYS_SPLIT, keys) + 2 + width) * _ELEMENT_BYTE
        return Scratch(after=(threads * each,))
    if record.op in ("aten.mm", "aten.addmm"):
        rows, columns = record.outputs[0].shape
        # MKL's buffer of one thread for the product of a linear layer.
        return Scratch(kept_bytes=400_000 + 512 * columns // threads if rows > 1 else 0)
    if record.op == "aten.native_layer_norm" and record.inputs[0].layout != "contiguous":
        return Scratch(around=(record.inputs[0].byte,))
    return Scratch()


def _convolution(record: OperatorRecord, threads: int, lanes: int) -> Scratch:
    image, weight, result = record.inputs[0], record.inputs[1], record.outputs[0]
    batch, channels, *size = image.shape
    kernel, results = weight.shape[2:], math.prod(result.shape[2:])
    taps, groups = math.prod(kernel), record.attributes.get("groups", 1)
    is_strided = _any_differs(record.attributes.get("stride"), 1)
    if not _uses_onednn(record, threads):
        is_product = taps == 1 and not is_strided
        is_product = is_product and not _any_differs(record.attributes.get("padding"), 0)
        columns = batch * channels * taps * results * _ELEMENT_BYTE
        # MKL's buffer for weights times pixels, on one thread.
        depth = channels * taps // groups
        block = 64 if results > 8192 else 128 if depth <= 128 else min(depth, 192)
        kept = 4 * min(results, 13000) * block + 1024 * min(weight.shape[0], 480) + 17080
        return Scratch(around=() if is_product else (columns,), kept_bytes=kept)
    inside, outside = weight.shape[1], weight.shape[0] // groups
    is_first = groups == 1 and channels < _FIRST_LAYER_CHANNELS
    if inside == outside == 1:
        weights = _pad(groups, lanes) * taps
    else:
        padded = inside if is_first else _pad(inside, lanes)
        weights = groups * padded * _pad(outside, lanes) * taps
    weight_bytes = weights * _ELEMENT_BYTE
    if result.layout == "channels-last":
        return Scratch(after=(weight_bytes,), is_onednn=True)
    before = (weight_bytes,)
    if not is_first:
        image_bytes = batch * _pad(channels, lanes) * math.prod(size) * _ELEMENT_BYTE
        before = (image_bytes, *before)
        if taps == 1 and is_strided:
            # Each thread gathers the pixels of a strided convolution with 1 × 1 taps.
            before = (threads * _pad(channels, lanes) * results * _ELEMENT_BYTE, *before)
    blocked = batch * _pad(weight.shape[0], lanes) * results * _ELEMENT_BYTE
    return Scratch(before=before, around=(blocked,), is_onednn=True)


def _uses_onednn(record: OperatorRecord, threads: int) -> bool:
    """True if torch runs a float32 convolution by oneDNN; else as a product of columns."""
    image, kernel = record.inputs[0], record.inputs[1].shape[2:]
    batch, attributes = image.shape[0], record.attributes
    is_plain = not (
        _any_differs(attributes.get("stride"), 1)
        or _any_differs(attributes.get("dilation"), 1)
        or _any_differs(kernel, 1)
    )
    is_small = batch <= 1 and image.elements <= _LARGE_INPUT and min(kernel[-2:]) <= 3
    if is_small and attributes.get("groups", 1) == 1:
        return False
    return not is_plain or batch >= _MANY_IMAGES or threads > 1


def _any_differs(values: object, value: int) -> bool:
    return isinstance(values, Sequence) and any(each != value for each in values)


def _pad(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


_IMPORTED_THRESHOLD_BYTE = 1_925_120
"""The mmap threshold of a process after importing torch 2.13, which frees a mapping of that size.
"""

_PROCESSES = 9
_FEWEST_PROCESSES = 3
"""Sufficient if all of their passes have the same number of faults."""

_WARM_UP, _PASSES = 8, 6

_DESCRIPTOR_BYTE = 2144
_DESCRIPTORS = 8
"""Memory of oneDNN's descriptors while a convolution runs."""

_BUILDING_BYTE = 2216
_PRIMITIVE_BYTE = (
    *(48, 2216, 6560, 13552, 24, 32, 40, 436, 56, 48, 48, 136, 88, 13552, 24, 8, 4664, 48, 24, 104),
    *(224, 104, 104, 104, 48, 265),
)
_REORDER_BYTE = (48, 48, 136, 88, 5496, 24, 3664, 30, 24, 104, 224, 104, 104, 24, 104, 114)
"""Blocks that oneDNN keeps of every distinct convolution, and of every change of layout: a log of
the calls of malloc and free within single operators (torch 2.13, oneDNN 3.12), in order. Small
blocks among them separate lower blocks from the end of the heap."""

_ALIGNED_BYTE = 2048
"""oneDNN aligns blocks from this size on."""

_LEAST_TRIM_BYTE = 2**20

_SMALL_BLOCKS = 400
_SMALL_BLOCK_BYTE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFaults:
    """Page faults of one pass, of ``page_bytes`` bytes each.

    ``page_faults`` is the median over simulated processes and passes; ``low`` to ``high`` is their
    80 % range. ``unknown`` are operators with scratch memory that is not modeled: the counts omit
    it.
    """

    page_faults: int
    low: int
    high: int
    page_bytes: int
    unknown: tuple[str, ...] = ()


def count_page_faults(
    records: Sequence[OperatorRecord],
    settings: MallocSettings | None = None,
    *,
    threads: int = 1,
    lanes: int = 16,
) -> PageFaults:
    """Count the page faults of one pass of a warm process on a CPU.

    ``settings`` are those of the allocator; ``threads`` compute, with vector registers of ``lanes``
    float32 elements (AVX-512: 16, AVX2: 8).
    """
    settings = settings or MallocSettings()
    known = [scratch_blocks(record, threads=threads, lanes=lanes) for record in records]
    unknown = {record.op for record, each in zip(records, known, strict=True) if each is None}
    counts: list[int] = []
    for seed in range(_PROCESSES):
        process = _Process(records, [each or Scratch() for each in known], settings, seed)
        counts += process.count_steady_faults()
        if seed + 1 == _FEWEST_PROCESSES and len(set(counts)) == 1:
            break
    counts.sort()
    return PageFaults(
        page_faults=round(median(counts)),
        low=counts[len(counts) // 10],
        high=counts[-1 - len(counts) // 10],
        page_bytes=settings.page_bytes,
        unknown=tuple(sorted(unknown)),
    )


def fault_free_settings(
    records: Sequence[OperatorRecord], *, threads: int = 1, lanes: int = 16
) -> MallocSettings:
    """Return thresholds, as powers of two, without page faults in a warm process.

    The mmap threshold exceeds the largest block, so every block comes from the heap. The trim
    threshold is twice the smallest that prevents trimming in every simulated process. Without that
    margin 2 of 10 models still had faults: real heaps are less compact.
    """
    known = [
        scratch_blocks(record, threads=threads, lanes=lanes) or Scratch() for record in records
    ]
    blocks = [*storage_sizes(records)[0].values()]
    blocks += (byte for each in known for byte in (*each.before, *each.around, *each.after))
    largest = max(blocks, default=0) + PAGE_BYTE
    settings = MallocSettings(
        mmap_threshold_bytes=max(_LEAST_TRIM_BYTE, 2 ** largest.bit_length()),
        trim_threshold_bytes=2**62,
        is_dynamic=False,
    )
    processes = [_Process(records, known, settings, seed) for seed in range(_PROCESSES)]
    for each in processes:
        each.count_steady_faults()
    needed = max(each.heap.largest_top_bytes for each in processes)
    trim_bytes = max(_LEAST_TRIM_BYTE, 2 ** needed.bit_length())
    return replace(settings, trim_threshold_bytes=2 * trim_bytes)


class _Process:
    """One process that runs the model repeatedly."""

    def __init__(
        self,
        records: Sequence[OperatorRecord],
        known: Sequence[Scratch],
        settings: MallocSettings,
        seed: int,
    ) -> None:
        self._records = records
        self._known = known
        self._sizes, self._lasting = storage_sizes(records)
        self._in_place = _in_place(records)
        if settings.is_dynamic and settings.mmap_threshold_bytes < _IMPORTED_THRESHOLD_BYTE:
            settings = replace(
                settings,
                mmap_threshold_bytes=_IMPORTED_THRESHOLD_BYTE,
                trim_threshold_bytes=2 * _IMPORTED_THRESHOLD_BYTE,
            )
        self.heap = Heap(settings)
        self._alive: dict[int, int] = {}
        self._primitives: set[object] = set()
        self._kept_bytes = 0
        # Small blocks left from imports and model building, half of them free.
        drawn = random.Random(seed)
        blocks = [
            self.heap.malloc(int(_SMALL_BLOCK_BYTE ** drawn.random())) for _ in range(_SMALL_BLOCKS)
        ]
        self._free(drawn.sample(blocks, _SMALL_BLOCKS // 2)[::-1])

    def count_steady_faults(self) -> list[int]:
        """Return the faults of passes after the warm-up."""
        counts: list[int] = []
        seen: dict[object, int] = {}
        for number in range(_WARM_UP + _PASSES):
            state = self.heap.state()
            if state in seen:
                # Most processes reach a cycle of states within a few passes.
                around = counts[seen[state] :]
                return [around[each % len(around)] for each in range(_PASSES)]
            seen[state] = number
            counts.append(self.run())
        return counts[_WARM_UP:]

    def run(self) -> int:
        before = self.heap.page_faults
        for record, each in zip(self._records, self._known, strict=True):
            self._call(record, each)
            # Tensors of inner calls, the latest, are freed first.
            for storage in reversed(record.freed):
                if storage in self._alive:
                    self.heap.free(self._alive.pop(storage))
        for block in self._alive.values():
            self.heap.free(block)
        self._alive.clear()
        return self.heap.page_faults - before

    def _call(self, record: OperatorRecord, each: Scratch) -> None:
        heap = self.heap
        descriptors: list[int] = []
        if each.is_onednn:
            descriptors = [heap.memalign(_DESCRIPTOR_BYTE) for _ in range(_DESCRIPTORS)]
            shapes = (record.inputs[0].shape, record.inputs[1].shape, record.outputs[0].shape)
            self._keep(shapes, _PRIMITIVE_BYTE)
        before = [self._block(record, each, byte) for byte in each.before]
        around = [self._block(record, each, byte) for byte in each.around]
        self._free(before)
        self._free(descriptors)
        if record.index in self._in_place:
            self._alive[record.outputs[0].storage] = self._alive.pop(record.inputs[0].storage)
        for spec in record.outputs:
            storage = spec.storage
            if storage not in self._alive and storage not in self._lasting:
                self._alive[storage] = heap.memalign(self._sizes[storage])
        if each.kept_bytes > self._kept_bytes:
            self._kept_bytes = each.kept_bytes
            heap.malloc(each.kept_bytes)
        self._free([self._block(record, each, byte) for byte in each.after])
        self._free(around)

    def _block(self, record: OperatorRecord, each: Scratch, byte: int) -> int:
        block = self.heap.memalign(byte)
        if each.is_onednn:
            self._keep((record.inputs[0].shape, byte), _REORDER_BYTE)
        return block

    def _keep(self, primitive: object, sizes: Sequence[int]) -> None:
        """Allocate the blocks that oneDNN keeps of a new primitive."""
        heap = self.heap
        if primitive not in self._primitives:
            self._primitives.add(primitive)
            building = heap.memalign(_BUILDING_BYTE)
            for byte in sizes:
                (heap.memalign if byte >= _ALIGNED_BYTE else heap.malloc)(byte)
            heap.free(building)

    def _free(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            self.heap.free(block)


def _in_place(records: Sequence[OperatorRecord]) -> set[int]:
    """Additions of a bias to a product that torch executes in place, unless recorded."""
    products: set[int] = set()
    found: set[int] = set()
    for record in records:
        if record.op in ("aten.mm", "aten.bmm"):
            products.add(record.outputs[0].storage)
        elif record.op == "aten.add" and len(record.inputs) == 2:
            product, bias = record.inputs
            is_bias = bias.role is Role.PARAMETER and len(bias.shape) == 1
            if is_bias and product.storage in products and product.storage in record.freed:
                found.add(record.index)
    return found
