"""Register-only loops of the compute kernels, and their LLVM IR.

The signature is ``void kernel(ptr state, i64 offset, i64 length)``: `length` iterations, `offset`
unused. The state is a row of equal slots: two factors, then the accumulators, read on entry and
written on exit for checks.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import errno
import functools
import itertools
import os
import sys
from dataclasses import dataclass
from typing import Literal

from roofline.core.dtypes import DType, dtype
from roofline.errors import MeasurementError
from roofline.machine.kernels.assembly import LoopContract, VectorUnit, counted_loop

SLOT_BYTE = 64
SCALABLE_SLOT_BYTE = 256
"""Widest SVE register."""

UNROLL = 4
SECOND_UNROLL = 6

_ALIGNMENT = 64

_RUN = 4  # consecutive steps of one operation, with own sums per operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One step of an accumulator.

    ``code``: IR lines with placeholders ``{m}``, ``{a}`` (factors), ``{x}`` (accumulator), ``{y}``
    (its next value) and ``{t}`` (prefix of temporaries). ``machine``: regular expressions of its
    machine instructions. ``flop`` counts multiply and add as one each, also for integers.
    """

    code: tuple[str, ...]
    declarations: tuple[str, ...] = ()
    machine: tuple[str, ...]
    flop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeKernel:
    """A loop of ``accumulators * unroll`` steps on independent sums.

    Each sum cycles through the operations, or with ``shares`` each operation has that many own
    sums. ``dtype`` is the multiplied type; ``factors`` are the types of m and a, ``sums`` that of
    the accumulators, ``…_type`` those in IR.
    """

    name: str
    dtype: DType
    unit: VectorUnit
    accumulators: int
    second_accumulators: int
    shares: tuple[int, ...] = ()
    unroll: int = UNROLL
    second_unroll: int = SECOND_UNROLL
    form: Literal[1, 2] = 1
    factors: tuple[DType, DType]
    sums: DType
    factor_types: tuple[str, str]
    accumulator_type: str
    operations: tuple[Operation, ...]
    quantity: Literal["flop"] = "flop"

    @property
    def label(self) -> str:
        second = ", second variant" if self.form == 2 else ""
        return f"{self.name} {self.dtype} {self.unit.name}{second}"

    @property
    def slot_byte(self) -> int:
        return SCALABLE_SLOT_BYTE if self.unit.scalable else SLOT_BYTE

    def _steps(self) -> list[tuple[int, int, Operation]]:
        """Return accumulator, its earlier steps, and operation of each step of an iteration."""
        turn = 1 if self.form == 1 else -1
        kinds = len(self.operations)
        if not self.shares:
            order = range(self.accumulators)[::turn]
            return [
                (j, u, self.operations[(j + u) % kinds]) for u in range(self.unroll) for j in order
            ]
        # Own sums per operation: alternate runs.
        times = self.accumulators * self.unroll // kinds
        starts = itertools.accumulate(self.shares, initial=0)
        parts = list(zip(starts, self.shares, self.operations, strict=False))
        return [
            (start + n % share, n // share, operation)
            for begin in range(0, times, _RUN)
            for start, share, operation in parts[::turn]
            for n in range(begin, min(begin + _RUN, times))
        ]

    def work(self, length: int) -> int:
        """Return the operations of `length` iterations; multiply and add count one each."""
        return length * sum(operation.flop for *_, operation in self._steps())

    @property
    def contract(self) -> LoopContract:
        wanted = collections.Counter(each for *_, step in self._steps() for each in step.machine)
        return LoopContract(instructions=tuple(wanted.items()))

    def ir(self) -> str:
        acc, sums = self.accumulator_type, range(self.accumulators)
        kinds = {"%m": self.factor_types[0], "%a": self.factor_types[1]}
        kinds |= {f"%first{j}": acc for j in sums}
        entry: list[str] = []
        for slot, (name, kind) in enumerate(kinds.items()):
            entry += [
                f"  {name}.at = getelementptr i8, ptr %state, i64 {slot * self.slot_byte}",
                f"  {name} = load {kind}, ptr {name}.at, align {_ALIGNMENT}",
            ]
        steps = self._steps()
        repeats = collections.Counter(j for j, *_ in steps)
        after = {j: f"%acc{j}.{repeats[j]}" for j in sums}
        body = [
            f"  %acc{j}.0 = phi {acc} [ %first{j}, %entry ], [ {after[j]}, %loop ]" for j in sums
        ]
        for j, u, operation in steps:
            names = {"x": f"%acc{j}.{u}", "y": f"%acc{j}.{u + 1}", "t": f"%t{j}.{u}."}
            body += ["  " + line.format(m="%m", a="%a", **names) for line in operation.code]
        leave = (f"  store {acc} {after[j]}, ptr %first{j}.at, align {_ALIGNMENT}" for j in sums)
        declared = dict.fromkeys(line for each in self.operations for line in each.declarations)
        return counted_loop(entry, body, leave, declarations=declared)

    def second_variant(self) -> ComputeKernel:
        """Return the same work with other numbers of sums and unrolling, in reverse order."""
        return dataclasses.replace(
            self, form=2, accumulators=self.second_accumulators, unroll=self.second_unroll
        )


_ROWS = 16
_ROW_BYTE = 64
_TILE_BYTE = _ROWS * _ROW_BYTE
_TILES = 8

# Palette 1; from byte 16 on 16 bits of row bytes, from byte 48 on 8 bits of rows for each tile.
_CONFIG = (1, *[0] * 15, *[_ROW_BYTE, 0] * _TILES, *[0] * 16, *[_ROWS] * _TILES, *[0] * 8)

_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18

_MULTIPLY = {"bfloat16": "tdpbf16ps", "float16": "tdpfp16ps", "int8": "tdpbssd"}
_CALLS = {
    "ldtilecfg": "ptr",
    "tileloadd64": "i8, ptr, i64",
    "tilestored64": "i8, ptr, i64",
    "tilerelease": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TileKernel(ComputeKernel):
    """A loop of 16x64-byte tile products, each added to a tile of 16x16 sums.

    Accumulators are tiles from 0; the others hold the factors: one each, or in the second variant
    (four sums instead of six) two each, with a sum for every pair.
    """

    @property
    def slot_byte(self) -> int:
        return _TILE_BYTE

    def ir(self) -> str:
        count, multiply = self.accumulators, f"@llvm.x86.{_MULTIPLY[self.dtype.name]}"
        factors = range(count, _TILES)
        slot = {tile: 2 + tile for tile in range(count)}
        slot |= {tile: 2 * i // len(factors) for i, tile in enumerate(factors)}
        entry = ["  call void @llvm.x86.ldtilecfg(ptr @config)"]
        for tile, position in slot.items():
            entry += [
                f"  %at{tile} = getelementptr i8, ptr %state, i64 {position * _TILE_BYTE}",
                f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr %at{tile}, i64 {_ROW_BYTE})",
            ]
        pairs = [
            (count, count + 1) if self.form == 1 else (count + j // 2, count + 2 + j % 2)
            for j in range(count)
        ]
        products = [
            f"  call void {multiply}(i8 {j}, i8 {left}, i8 {right})"
            for j, (left, right) in enumerate(pairs)
        ]
        stores = (
            f"  call void @llvm.x86.tilestored64(i8 {j}, ptr %at{j}, i64 {_ROW_BYTE})"
            for j in range(count)
        )
        return counted_loop(
            entry,
            products * self.unroll,
            [*stores, "  call void @llvm.x86.tilerelease()"],
            declarations=(
                f"@config = private constant [64 x i8] [{', '.join(f'i8 {b}' for b in _CONFIG)}]",
                *(f"declare void @llvm.x86.{name}({kinds})" for name, kinds in _CALLS.items()),
                f"declare void {multiply}(i8, i8, i8)",
            ),
        )


def tile_kernel(element: DType, unit: VectorUnit) -> TileKernel:
    """Return the tile product of a data type; needs `request_permission` before running."""
    multiply = _MULTIPLY[element.name]
    macs = _ROWS * (_ROW_BYTE // 4) * (8 * _ROW_BYTE // element.bits)
    return TileKernel(
        name="tile-dot",
        dtype=element,
        unit=unit,
        accumulators=6,
        second_accumulators=4,
        factors=(element, element),
        sums=dtype("int32" if element.kind == "int" else "float32"),
        factor_types=("", ""),
        accumulator_type="",
        operations=(Operation(code=(), machine=(rf"{multiply}\s+%tmm",), flop=2 * macs),),
    )


@functools.cache
def request_permission() -> None:
    """Request AMX tiles from Linux, which otherwise ends the process."""
    if not sys.platform.startswith("linux"):
        raise MeasurementError("AMX needs Linux 5.16 or newer")
    system = ctypes.CDLL(None, use_errno=True)
    if system.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA):
        code = ctypes.get_errno()
        is_absent = code in (errno.EINVAL, errno.EOPNOTSUPP)
        absent = "not supported by kernel or hypervisor"
        reason = absent if is_absent else os.strerror(code)
        raise MeasurementError(f"no AMX tiles: {reason}")
