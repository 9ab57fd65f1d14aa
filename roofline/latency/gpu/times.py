"""Times of kernels on a GPU by mechanism: arithmetic, memory traffic, layout, start of a kernel.

A kernel takes ``(arithmetic^p + memory^p)^(1/p) + layout + start`` seconds. Each term follows from
the sizes of the operator and the data sheet; the constants are those of `Learned`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from roofline.latency.gpu.chips import Chip
from roofline.latency.gpu.gemm import constants_of, gemm_s
from roofline.latency.gpu.kernels import ATTENTION, CONVOLUTIONS, DEPTHWISE, GEMMS, Kernel
from roofline.latency.gpu.learned import Constants, Group, Learned

Array = NDArray[np.float64]

_WARP_WIDTH = 1024
"""Elements of a row up to which torch's softmax keeps it in the registers of a warp."""

_THREADS = 2048
"""Threads in flight on a multiprocessor."""

_CHANNELS = 32.0
"""Channels of a tap that convolutions on tensor cores take at a time."""

_IMAGE_TAPS = 49
"""Taps up to which libraries have kernels for images of few channels."""

_NORM_BLOCKS = 16
"""Rows that a multiprocessor normalizes at a time."""


class Table:
    """Kernels by column, grouped by the formula of their times."""

    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._columns = {
            name: np.array([getattr(each, name) for each in kernels], dtype=np.float64)
            for name in _SIZES
        }
        self.size = len(kernels)
        codes: dict[tuple[str, str], int] = {}
        self._codes = np.array(
            [codes.setdefault((each.kind, each.dtype), len(codes)) for each in kernels], dtype=int
        )
        self._labels = tuple(codes)

    def groups(self) -> Iterator[tuple[str, str, NDArray[np.int64], Mapping[str, Array]]]:
        """Yield kind, data type, positions and sizes of equal kernels."""
        for code, (kind, dtype) in enumerate(self._labels):
            places = np.flatnonzero(self._codes == code)
            yield kind, dtype, places, {name: of[places] for name, of in self._columns.items()}


_SIZES = tuple(each.name for each in fields(Kernel) if each.name not in ("kind", "dtype"))


def seconds(
    kernels: Sequence[Kernel] | Table, chip: Chip, learned: Learned, *, compiled: bool = False
) -> Array:
    """Return the seconds of each kernel; ``compiled``: of those that a compiler fused."""
    table = kernels if isinstance(kernels, Table) else Table(kernels)
    found = np.zeros(table.size)
    for kind, dtype, places, sizes in table.groups():
        group = _Group(kind, dtype, sizes, chip, learned, compiled=compiled)
        found[places] = _formula(kind, group.type)(group)
    return found


class _Group:
    """Kernels of one kind and type, with their chip and constants."""

    def __init__(
        self,
        kind: str,
        dtype: str,
        sizes: Mapping[str, Array],
        chip: Chip,
        learned: Learned,
        *,
        compiled: bool,
    ) -> None:
        self.kind, self.sizes, self.chip, self.learned = kind, sizes, chip, learned
        self.constants = learned.kind(kind, compiled=compiled)
        self.shared = learned.compiled_shared if compiled else learned.shared
        self.type = product_type(kind, dtype, chip)

    def of(self, name: str) -> Array:
        """Return a size of the kernels."""
        return self.sizes[name]

    @property
    def peak_flop_per_s(self) -> float:
        """Peak of the unit that runs products of this type."""
        return self.chip.gemm_flop_per_s(self.type) or self.chip.float32_flop_per_s

    @property
    def product_flop_per_s(self) -> float:
        """Rate of large convolutions and attention on tensor cores, within the power limit.

        Consumer boards clock above their data sheet, as shares above 1 show; those for HPC do not.
        """
        rate = self.chip.within_power(self.peak_flop_per_s, 1.0, is_tensor=True)
        share = self.constants.share
        return rate * (min(share, 1.0) if self.chip.is_hpc else share)

    @property
    def streaming_bytes_per_s(self) -> float:
        """DRAM bandwidth that kernels reach on a chip of this generation."""
        return self.chip.dram_bytes_per_s * self.learned.streaming_share(self.chip.generation)

    def joined(self, arithmetic_s: Array, memory_s: Array) -> Array:
        """Return the time of both, with the layout conversion and the start of a kernel."""
        norm = self.shared["norm"]
        layout_s = self.constants.layout * self.of("layout_bytes") / 2 / self.chip.dram_bytes_per_s
        slower, faster = np.maximum(arithmetic_s, memory_s), np.minimum(arithmetic_s, memory_s)
        slower = np.maximum(slower, 1e-12)
        busy_s = slower * (1 + (faster / slower) ** norm) ** (1 / norm)
        return busy_s + layout_s + self.shared["start_s"]

    def instructions_s(self, elements: Array) -> Array:
        """Return the time of the instructions for elements, on 128 lanes a multiprocessor."""
        rate = 128 * self.chip.multiprocessors * self.chip.clock_hz
        return elements * self.constants.element / rate

    def memory_s(self, passes: Array | float = 1.0) -> Array:
        """Return the time of the bytes that miss L2, read `passes` times."""
        rate = self.streaming_bytes_per_s * self.constants.memory
        return passes * self.of("dram_bytes") / rate


def product_type(kind: str, dtype: str, chip: Chip) -> str:
    """Return the type of the unit that runs a product: torch allows TF32 in convolutions only."""
    is_allowed = kind in CONVOLUTIONS and "tf32" in chip.tensor_flop_per_s
    return "tf32" if is_allowed and dtype == "float32" else dtype


def start_s(kernel: Kernel, chip: Chip, learned: Learned, *, compiled: bool = False) -> float:
    """Return the seconds of a kernel without work."""
    if kernel.kind in GEMMS:
        of_type = constants_of(kernel.kind, product_type(kernel.kind, kernel.dtype, chip))
        return learned.gemm[of_type]["start_s"] * 1.5e9 / chip.clock_hz
    return (learned.compiled_shared if compiled else learned.shared)["start_s"]


def group_of(kernel: Kernel, chip: Chip, learned: Learned) -> Group | None:
    """Return the measurements of a kernel's kind and type; None: no prediction is justified."""
    of_type = product_type(kernel.kind, kernel.dtype, chip)
    if kernel.is_product and chip.gemm_flop_per_s(of_type) is None:
        return None
    if kernel.kind in GEMMS and constants_of(kernel.kind, of_type) not in learned.gemm:
        return None
    return learned.group(kernel.kind, of_type, chip.architecture)


def prior_deviation(kernel: Kernel, chip: Chip, learned: Learned) -> tuple[float, bool]:
    """Return the deviation of the logarithm of a predicted time, and if it is extrapolated."""
    group = group_of(kernel, chip, learned)
    assert group is not None
    is_extrapolated = chip.architecture not in group.architectures
    deviation = group.far_deviation if is_extrapolated else group.deviation
    return deviation * math.sqrt(1 + len(chip.assumed)), is_extrapolated


def _formula(kind: str, of_type: str) -> Callable[[_Group], Array]:
    if kind in GEMMS:
        return _gemms
    if kind in CONVOLUTIONS:
        return _float32_convolutions if of_type == "float32" else _products
    if kind in ATTENTION:
        return _attention
    if kind in DEPTHWISE:
        return _depthwise
    return {"softmax": _softmax, "layer norm": _layer_norm}.get(kind, _others)


def _gemms(group: _Group) -> Array:
    return gemm_s(group.kind, group.type, group.sizes, group.chip, group.learned.gemm)


def _products(group: _Group) -> Array:
    """Return the times of convolutions on tensor cores, as products of tiles with idle columns.

    The k loop takes `_CHANNELS` of one tap at a time where no kernel is for images.
    """
    channels, taps = group.of("k"), group.of("taps")
    padded = np.ceil(channels / _CHANNELS) * _CHANNELS
    is_padded = (group.kind == "first convolution") & (taps > _IMAGE_TAPS)
    inner = np.where(is_padded, padded, channels) * taps + group.constants.prologue
    outer = group.of("n") + group.constants.idle
    flop = 2 * group.of("batch") * group.of("m") * outer * inner
    return group.joined(flop / group.product_flop_per_s, group.memory_s())


def _attention(group: _Group) -> Array:
    """Return the times of fused attention: products of tiles of 64 tokens, or softmax of scores.

    Multiprocessors are idle if there are fewer blocks of 128 queries.
    """
    queries, keys = (np.ceil(group.of(each) / 64) * 64 for each in ("m", "n"))
    width = np.ceil(group.of("k") / 32) * 32
    scores = group.of("batch") * queries * keys
    products_s = 4 * scores * width / group.product_flop_per_s
    blocks = group.of("batch") * np.ceil(queries / 128)
    unused = np.maximum(group.chip.multiprocessors / blocks, 1.0)
    busy_s = np.maximum(products_s, group.instructions_s(scores)) * unused
    return group.joined(busy_s, group.memory_s())


def _depthwise(group: _Group) -> Array:
    taps, channels = group.of("taps"), group.of("k")
    slower = group.constants.element * (np.clip(taps, 1, 49) / 9) ** group.constants.window
    prologue = 1 + group.constants.prologue / (channels * taps)
    arithmetic_s = group.of("flop") / group.chip.float32_flop_per_s * slower * prologue
    return group.joined(arithmetic_s, group.memory_s())


def _float32_convolutions(group: _Group) -> Array:
    """Return the times of the fastest algorithm on CUDA cores: direct, Winograd of 2 or of 4."""
    chip, constants = group.chip, group.learned.convolution
    batch, m, n, k, taps = (group.of(each) for each in ("batch", "m", "n", "k", "taps"))
    sustained = chip.within_power(chip.float32_flop_per_s, constants["power"])

    def product_s(rows: Array, inner: Array, many: float, share: float) -> Array:
        tiles = np.ceil(rows / 128) * np.ceil(n / 64) * many * batch
        waves = np.maximum(tiles / chip.multiprocessors, 1e-9)
        unused = np.where(waves < 1, 1 / waves, np.ceil(waves) / waves) ** constants["waves"]
        flop = 2 * 128 * 64 * tiles * (inner + constants["prologue"])
        return flop / (sustained * share) * np.maximum(unused, 1.0)

    direct_s = product_s(m, k * taps, 1, constants["direct"])
    found = direct_s ** -constants["choice"]
    is_usual = (taps == 9) & (batch == 1)
    for edge, transformed in ((2, 4.0), (4, 2.25)):
        tiles = m / edge**2
        points = (edge + 2) ** 2
        moved = m * k * 4 * transformed * 2 + tiles * points * n * 4 * 1.5
        share = constants[f"winograd {edge}"]
        winograd_s = product_s(tiles, k, points, share)
        winograd_s = winograd_s + constants["transform"] * moved / (0.8 * chip.dram_bytes_per_s)
        found = found + np.where(is_usual, winograd_s ** -constants["choice"], 0.0)
    return found ** (-1 / constants["choice"]) + group.shared["start_s"]


def _softmax(group: _Group) -> Array:
    """Return the times of softmax: wide rows are read three times, from L2 while they fit."""
    chip, constants = group.chip, group.learned.softmax
    width = np.maximum(group.of("k"), 1.0)
    rows = group.of("elements") / width
    block = 2 ** np.floor(np.log2(np.clip(width / 4, 32, 1024)))
    in_flight = np.minimum(rows, chip.multiprocessors * np.minimum(_THREADS / block, 32)) * width
    is_wide = width > _WARP_WIDTH
    again = np.where(is_wide, constants["again"] * _share_missed(in_flight * 4, chip, constants), 0)
    quantized = np.ceil(width / (4 * block)) * 4 * block
    arithmetic_s = _by_multiprocessor(rows * quantized * 8, chip, constants)
    arithmetic_s = arithmetic_s * np.where(is_wide, 1.0, constants["warp"])
    return group.joined(arithmetic_s, group.memory_s(1 + again / 2))


def _layer_norm(group: _Group) -> Array:
    """Return the times of layer norm: rows are read twice, from L2 while they fit."""
    chip, constants = group.chip, group.learned.layer_norm
    width = np.maximum(group.of("k"), 1.0)
    rows = group.of("elements") / width
    in_flight = np.minimum(rows, chip.multiprocessors * _NORM_BLOCKS) * width
    again = constants["again"] * _share_missed(in_flight * 4, chip, constants)
    arithmetic_s = _by_multiprocessor(group.of("elements") * 8, chip, constants)
    return group.joined(arithmetic_s, group.memory_s(1 + again / 2))


def _share_missed(in_flight_bytes: Array, chip: Chip, constants: Constants) -> Array:
    """Return the share of rows in flight that a second read does not find in L2."""
    filled = np.maximum(in_flight_bytes, 1.0) / (chip.l2_bytes * constants["half_missed"])
    return 1 / (1 + filled ** -constants["steepness"])


def _by_multiprocessor(byte: Array, chip: Chip, constants: Constants) -> Array:
    rate = chip.multiprocessors * chip.clock_hz * constants["bytes_per_cycle"]
    return byte / rate


def _others(group: _Group) -> Array:
    """Return the times of kernels that are limited by memory, or by instructions per element."""
    chip = group.chip
    window = np.maximum(group.of("taps"), 1.0) if group.kind == "pooling" else 1.0
    arithmetic_s = group.instructions_s(group.of("elements") * window)
    threads = np.ceil(group.of("m") / (1024 * chip.multiprocessors))
    loops_s = group.of("batch") * threads * group.shared["latency_s"]
    return group.joined(arithmetic_s, group.memory_s()) + loops_s
