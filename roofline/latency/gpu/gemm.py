"""Times of matrix products on a GPU: tiles over multiprocessors, in waves; L2 and DRAM traffic.

A library computes ``m`` x ``n`` outputs in tiles; each multiprocessor holds some at a time. Work in
partly filled waves and tiles is lost, a k loop has a prologue, and few outputs in flight do not
fill a multiprocessor. Products of few tiles are split over k. Which tile a library takes is not
known: in narrow types the fastest; in float32 a mean over those that an estimate without caches and
power limits ranks first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from roofline.latency.gpu.chips import FLOAT8_BLOCK, Chip
from roofline.latency.gpu.learned import Constants

Array = NDArray[np.float64]

_TILES = {
    "float32": [
        *((32, 32), (32, 64), (64, 32), (32, 128), (128, 32)),
        *((64, 64), (64, 128), (128, 64), (128, 128)),
    ],
    "tensor": [
        *((16, 32), (16, 64), (16, 128), (64, 32), (32, 64), (64, 64)),
        *((64, 128), (128, 64), (128, 128), (128, 256), (256, 128)),
    ],
}
_SPLITS = {"float32": (1, 4, 16), "tensor": (1, 2, 4, 8, 16)}
_OUTPUTS_IN_FLIGHT = {"float32": 32768.0, "tensor": 65536.0}
_BYTES = {"float32": 4.0, "float8_e4m3fn": 1.0, FLOAT8_BLOCK: 1.0}

_VECTOR = 16
"""Bytes that a thread loads at a time, if rows of operands are multiples of them."""

_WIDE = 40_000
"""Columns from which CUDA-core kernels of linear layers lose speed."""

_SMALL = 4096
"""Outputs per multiprocessor up to which Pascal's libraries have kernels of all tiles."""

_LINE, _SECTOR = 128, 32
"""Bytes of a line of L2, and of the sectors that k-contiguous tiles read of it at a time."""


def constants_of(kind: str, dtype: str) -> str:
    """Return the name of the constants of a product: float16 shares those of bfloat16."""
    if dtype == "float32":
        return "float32 linear" if kind == "gemm" else "float32 batched"
    return "bfloat16" if dtype in ("float16", "bfloat16", "tf32") else dtype


def gemm_s(
    kind: str, dtype: str, sizes: Mapping[str, Array], chip: Chip, learned: Mapping[str, Constants]
) -> Array:
    """Return the seconds of products of a type; `sizes` are the columns of `Kernel`."""
    return _Products(kind, dtype, sizes, chip, learned[constants_of(kind, dtype)]).seconds()


def _logistic(value: Array | float) -> Array:
    return 1 / (1 + np.exp(-np.asarray(value)))


class _Products:
    """Products by row, candidates of tiles and splits by column."""

    def __init__(
        self, kind: str, dtype: str, sizes: Mapping[str, Array], chip: Chip, of: Constants
    ) -> None:
        self.chip, self.of = chip, of
        self.is_float32, self.is_linear = dtype == "float32", kind == "gemm"
        unit = "float32" if self.is_float32 else "tensor"
        self.peak = chip.gemm_flop_per_s(dtype) or chip.float32_flop_per_s
        self.bytes_in = _BYTES.get(dtype, 2.0)
        self.bytes_out = max(2.0, self.bytes_in)
        self.batch, self.m, self.n, self.k = (
            sizes[name][:, None] for name in ("batch", "m", "n", "k")
        )
        grid = [(*tile, split) for tile in _TILES[unit] for split in _SPLITS[unit]]
        self.candidates = grid
        self.rows, self.columns, self.split = np.array(grid, dtype=float).T[:, None, :]
        self.area = self.rows * self.columns
        self.tiles = (
            self.batch * np.ceil(self.m / self.rows) * np.ceil(self.n / self.columns) * self.split
        )
        self.steps = np.ceil(self.k / self.split)
        held = _OUTPUTS_IN_FLIGHT[unit]
        self.at_a_time = np.clip(np.floor(held / self.area), 1.0, 8.0)
        self.held = held
        widest = int(_VECTOR / self.bytes_in)
        self.vector = np.gcd(np.gcd(self.n.astype(int), self.k.astype(int)), widest)
        self.is_vector = self.vector == widest
        multiples = [each % 32 == 0 for each in (self.m, self.n, self.k)]
        self.is_aligned = np.sum(multiples, axis=0) >= 2
        self.cycle = 1.5e9 / chip.clock_hz

    def seconds(self) -> Array:
        """Return the time of each product."""
        work = self._work()
        times = self._times(work)
        if not self.is_float32:
            return times.min(axis=1)
        log_s = np.log(times)
        found = (self._choice(work) * log_s).sum(axis=1)
        if self.is_linear and self.chip.generation == 0:
            is_large = (self.m * self.n > _SMALL * self.chip.multiprocessors)[:, 0]
            found = np.where(is_large, self._of_few_kernels(log_s), found)
        return np.exp(found)

    def _filled(self, tiles: Array) -> Array:
        """Return the share of its rate that a multiprocessor reaches with tiles in flight."""
        outputs, half = tiles * self.area, self.of["half_filled"]
        return outputs / (outputs + half) * (1 + half / self.held)

    def _work(self) -> Array:
        """Return the FLOP of all tiles, with those lost in partly filled waves and prologues."""
        many = float(self.chip.multiprocessors)
        full = np.floor(self.tiles / (many * self.at_a_time))
        rest = np.ceil((self.tiles - full * many * self.at_a_time) / many)
        quantized = full * self.at_a_time / self._filled(self.at_a_time)
        quantized = quantized + rest / self._filled(np.maximum(rest, 1.0))
        smooth = np.maximum(self.tiles / many, 1.0)
        smooth = smooth / self._filled(np.clip(self.tiles / many, 1.0, self.at_a_time))
        share = self.of["quantized"]
        units = quantized**share * smooth ** (1 - share)
        return units * self.area * (self.steps + self.of["prologue"]) * 2 * many

    def _sustained_flop_per_s(self) -> Array:
        chip, of = self.chip, self.of
        rate = chip.within_power(self.peak, of["power"], is_tensor=not self.is_float32)
        found = np.full(self.m.shape, rate * of["best"])
        if not self.is_float32:
            # Loads of fewer elements limit kernels for rows that are not multiples of a vector.
            loaded = of["loaded"] * self.vector * chip.multiprocessors * chip.clock_hz
            return np.where(self.is_vector, found, np.minimum(found, loaded))
        found = found * np.where(self.is_aligned, of["aligned"], 1.0)
        if not self.is_linear:
            return found * of["batched"]
        if chip.generation > 0:
            found = found * of["wide"] ** -_logistic(4 * np.log(self.n / _WIDE))
        return found

    def _times(self, work: Array) -> Array:
        """Return the seconds of each candidate."""
        chip, of = self.chip, self.of
        small = 1 + of["small_tile"] * (1 / self.rows + 1 / self.columns) / 2
        arithmetic_s = work / self._sustained_flop_per_s() * small
        operands = self.batch * (self.m + self.n) * self.k * self.bytes_in
        outputs = self.batch * self.m * self.n
        rate = chip.dram_bytes_per_s * of["dram"]
        dram_s = np.broadcast_to((operands + outputs * self.bytes_out) / rate, work.shape)
        if self.is_float32 and self.is_linear and chip.generation == 0:
            dram_s = np.maximum(dram_s, self._fetched_again_s())
        per_cycle = 64 * of["l2"] * self._tensor_share()
        l2_bytes = self.tiles * (self.rows + self.columns) * self.steps * self.bytes_in
        l2_s = l2_bytes / (chip.multiprocessors * chip.clock_hz * per_cycle)
        partial = outputs * self.split * 4
        back = np.where(
            partial < chip.l2_bytes,
            chip.multiprocessors * chip.clock_hz * 32,
            chip.dram_bytes_per_s,
        )
        sums_s = outputs * (self.split + 1) * 4 * of["split_traffic"] / back
        sums_s = np.where(self.split > 1, sums_s + of["split_s"] * self.cycle, 0.0)
        self.overhead_s = self._waves() * of["wave_s"] * self.cycle + sums_s
        norm = of["norm"]
        busy = (arithmetic_s**norm + dram_s**norm + l2_s**norm) ** (1 / norm)
        return busy + of["start_s"] * self.cycle + self.overhead_s

    def _waves(self) -> Array:
        return np.maximum(self.tiles / (self.chip.multiprocessors * self.at_a_time), 1.0)

    def _tensor_share(self) -> float:
        """Return tensor FLOP per cycle and multiprocessor, by 2048: L2 ports grew with them."""
        if self.is_float32:
            return 1.0
        chip = self.chip
        peak = chip.tensor_flop_per_s.get("bfloat16") or chip.tensor_flop_per_s["float16"]
        return peak / chip.multiprocessors / chip.clock_hz / 2048

    def _fetched_again_s(self) -> Array:
        """Return the time of DRAM reads on Pascal.

        Both operands of a linear layer are contiguous in k: tiles read a sector of each row at a
        time, and the rest of its line is evicted from L2 before the next steps of k.
        """
        chip, of = self.chip, self.of
        # The largest tile transposes its operands, and reads whole lines.
        by_lines = np.where((self.rows == 128) & (self.columns == 128), _LINE / _SECTOR, 1.0)
        deep = _logistic(of["deep_steepness"] * np.log(self.k * 256 / chip.l2_bytes / of["deep"]))
        tall = of["tall"] * np.log(self.m / 2048)
        wide = _logistic(
            of["rows_steepness"] * (np.log(self.n * _LINE / chip.l2_bytes / of["rows"]) + tall)
        )
        again = (1 + of["again_left"] * deep) / by_lines / self.rows
        again = again + of["again_right"] * wide / self.columns
        byte = self.tiles * self.area * self.steps * self.bytes_in * again
        return byte / (0.8 * chip.dram_bytes_per_s)

    def _choice(self, work: Array) -> Array:
        """Return the weights of candidates, by the estimate of the library."""
        of = self.of
        moved = self.tiles * self.area * self.steps * 4 * (1 / self.rows + 1 / self.columns)
        moved_s = moved * of["assumed_dram"] / self.chip.dram_bytes_per_s
        estimate_s = ((work / self.peak) ** 4 + moved_s**4) ** 0.25 + self.overhead_s
        score = np.log(estimate_s) + of["small_preferred"] * np.log(self.area / 4096)
        weights = np.exp(-(score - score.min(axis=1, keepdims=True)) / of["temperature"])
        return weights / weights.sum(axis=1, keepdims=True)

    def _of_few_kernels(self, log_s: Array) -> Array:
        """Return the log time of large linear layers on Pascal, whose libraries have few kernels.

        128x32 or 64x64 by padding; 128x128 where sizes are aligned, and where DRAM cannot deliver
        the operands of a 128x32 tile at the peak.
        """
        narrow, square, large = (
            log_s[:, self.candidates.index((*tile, 1))]
            for tile in ((128, 32), (64, 64), (128, 128))
        )
        m, n = self.m[:, 0], self.n[:, 0]
        padded = np.ceil(m / 128) * np.ceil(n / 32) * 4096
        gain = np.log(padded / (np.ceil(m / 64) * np.ceil(n / 64) * 4096))
        per_flop = 4 / 32 + 4 / 128
        is_fed = per_flop <= 1.05 * 2 * self.chip.dram_bytes_per_s / self.peak
        share = _logistic((gain - (0.03 if is_fed else 0.004)) / (0.012 if is_fed else 0.004))
        padded_s = share * square + (1 - share) * narrow
        return padded_s if is_fed else np.where(self.is_aligned[:, 0], large, padded_s)
