"""AMX: products of tiles, and the permission to use them that Linux wants to be asked for."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import functools
import os
import sys
from dataclasses import dataclass

from roofline.errors import MeasurementError
from roofline.foundation.dtypes import DType, dtype
from roofline.machine.kernels.register_loop import SECOND_UNROLL, ComputeKernel, Operation
from roofline.machine.kernels.units import VectorUnit

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
    """A loop of products of 16x64 byte tiles, each added to a tile of 16x16 sums.

    The accumulators are the tiles from 0 on; the other tiles hold the factors: one each, or
    (second form) two each, of which every pair has a sum, as in a matrix product.
    """

    @property
    def slot_byte(self) -> int:
        """Bytes of the state for one tile."""
        return _TILE_BYTE

    def _sources(self, accumulator: int) -> tuple[int, int]:
        """The numbers of the tiles that are multiplied for an accumulator."""
        if self.form == 1:
            return self.accumulators, self.accumulators + 1
        return self.accumulators + accumulator // 2, self.accumulators + 2 + accumulator % 2

    def ir(self) -> str:
        """The kernel as LLVM IR text."""
        sums = range(self.accumulators)
        factors = range(self.accumulators, _TILES)
        slot = {tile: 2 + tile for tile in sums}
        slot |= {tile: 2 * i // len(factors) for i, tile in enumerate(factors)}
        multiply = _MULTIPLY[self.dtype.name]
        lines = [
            f"@config = private constant [64 x i8] [{', '.join(f'i8 {b}' for b in _CONFIG)}]",
            *(f"declare void @llvm.x86.{name}({kinds})" for name, kinds in _CALLS.items()),
            f"declare void @llvm.x86.{multiply}(i8, i8, i8)",
            "define void @kernel(ptr %state, i64 %offset, i64 %length) {",
            "entry:",
            "  call void @llvm.x86.ldtilecfg(ptr @config)",
        ]
        for tile, position in slot.items():
            lines += [
                f"  %at{tile} = getelementptr i8, ptr %state, i64 {position * _TILE_BYTE}",
                f"  call void @llvm.x86.tileloadd64(i8 {tile}, ptr %at{tile}, i64 {_ROW_BYTE})",
            ]
        lines += ["  br label %loop", "loop:", "  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]"]
        for _ in range(self.unroll):
            for j in sums:
                left, right = self._sources(j)
                lines.append(f"  call void @llvm.x86.{multiply}(i8 {j}, i8 {left}, i8 {right})")
        lines += [
            "  %i.next = add i64 %i, 1",
            "  %more = icmp ult i64 %i.next, %length",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
        ]
        lines += [
            f"  call void @llvm.x86.tilestored64(i8 {j}, ptr %at{j}, i64 {_ROW_BYTE})" for j in sums
        ]
        lines += ["  call void @llvm.x86.tilerelease()", "  ret void", "}", ""]
        return "\n".join(lines)

    def second_form(self) -> TileKernel:
        """Four sums of two by two factors instead of six of one pair."""
        return dataclasses.replace(
            self, form=2, accumulators=self.second_accumulators, unroll=SECOND_UNROLL
        )


def tile_kernel(element: DType, unit: VectorUnit) -> TileKernel:
    """The tile product of a data type; it needs `request_permission` before it may run."""
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
    """Asks Linux to let this process use AMX's tiles; once is enough, for all its threads.

    Raises:
        MeasurementError: it refuses; using a tile would end the process.
    """
    if not sys.platform.startswith("linux"):
        raise MeasurementError("AMX needs Linux 5.16 or newer, which hands out its tiles")
    system = ctypes.CDLL(None, use_errno=True)
    if system.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA):
        code = ctypes.get_errno()
        reason = (
            "the kernel or the hypervisor does not offer them"
            if code
            in (
                errno.EINVAL,
                errno.EOPNOTSUPP,
            )
            else os.strerror(code)
        )
        raise MeasurementError(f"the operating system refuses AMX tiles: {reason}")
