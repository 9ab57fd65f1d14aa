"""What a device of a compute capability is measured with: own kernels, and torch's products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.foundation.dtypes import dtype
from roofline.machine.gpu.arithmetic import ArithmeticKernel, cuda_core_kernels
from roofline.machine.gpu.device import Product
from roofline.machine.gpu.matrices import PATTERNS, matrix_kernels, unit_for
from roofline.machine.gpu.matrix_shapes import MMA, MMA_FLOAT16
from roofline.machine.gpu.ptx import (
    Capability,
    Program,
    assemble,
    repeated,
    stored_if_unlikely,
)

# The only instructions with which Hopper's tensor cores run at their full rate; they exist on
# compute capability 9.0 alone. The tiles lie in core matrices of 8 rows of 16 bytes, unswizzled,
# the two of a step along the summed dimension beside each other.

_BLOCK = 128
_BLOCKS = 2
_UNROLL = 16
_ROWS, _COLUMNS = 64, 256
_STEP_BYTE = 32
"""Bytes of one row that an instruction multiplies, whatever the type."""

_A_BYTE, _B_BYTE = _ROWS * _STEP_BYTE, _COLUMNS * _STEP_BYTE
_CORE_BYTE = 128
"""A core matrix; the next along the summed dimension follows it, then the next row of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A ``wgmma``: element types, depth of a step, and what stands behind the descriptors."""

    element: str
    types: str
    sass: str
    depth: int
    tail: str
    sum_type: str = "f32"
    sums: int = _ROWS * _COLUMNS // _BLOCK
    name: str = MMA


_FORMS = (
    _Form(element="float32", types="f32.tf32.tf32", sass="HGMMA", depth=8, tail="%add, 1, 1"),
    _Form(
        element="bfloat16", types="f32.bf16.bf16", sass="HGMMA", depth=16, tail="%add, 1, 1, 0, 0"
    ),
    _Form(element="float16", types="f32.f16.f16", sass="HGMMA", depth=16, tail="%add, 1, 1, 0, 0"),
    _Form(
        element="float16",
        types="f16.f16.f16",
        sass="HGMMA",
        depth=16,
        tail="%add, 1, 1, 0, 0",
        sum_type="b32",
        sums=_ROWS * _COLUMNS // _BLOCK // 2,
        name=MMA_FLOAT16,
    ),
    _Form(
        element="float8_e4m3fn", types="f32.e4m3.e4m3", sass="QGMMA", depth=32, tail="%add, 1, 1"
    ),
    _Form(element="float8_e5m2", types="f32.e5m2.e5m2", sass="QGMMA", depth=32, tail="%add, 1, 1"),
    _Form(element="int8", types="s32.s8.s8", sass="IGMMA", depth=32, tail="%add", sum_type="s32"),
)


def warpgroup_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """The kernels that a device of that compute capability can run: all on Hopper, else none."""
    kernels = (_kernel(form) for form in _FORMS)
    return [kernel for kernel in kernels if kernel.program.runs_on(capability)]


def _kernel(form: _Form) -> ArithmeticKernel:
    instruction = f"wgmma.mma_async.sync.aligned.m{_ROWS}n{_COLUMNS}k{form.depth}.{form.types}"
    return ArithmeticKernel(
        program=_program(form, instruction),
        name=form.name,
        dtype=dtype(form.element),
        unit=unit_for(form.element),
        instruction=instruction,
        sass=form.sass,
        count=_UNROLL,
        flop=2 * _ROWS * _COLUMNS * form.depth * _UNROLL,
        note=f"{instruction}, {_BLOCKS} warpgroups a multiprocessor, operands in shared memory",
    )


def _program(form: _Form, instruction: str) -> Program:
    sums = ", ".join(f"%sum{i}" for i in range(form.sums))
    zero = "0f00000000" if form.sum_type == "f32" else "0"
    body = [
        "wgmma.fence.sync.aligned;",
        *(f"{instruction} {{{sums}}}, %tile_a, %tile_b, {form.tail};" for _ in range(_UNROLL)),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0;",
    ]
    return assemble(
        f"wg{form.name.replace('-', '_')}_{form.element}",
        parameters=(("u64", "out"), ("u32", "iterations")),
        registers=(
            *(("pred", each) for each in ("more", "unlikely", "add")),
            *(("u64", each) for each in ("out", "tile_a", "tile_b")),
            *(("u32", each) for each in ("left", "thread", "base", "at", "end")),
            *(("b32", "bits<2>"), (form.sum_type, f"sum<{form.sums}>")),
        ),
        body=(
            "ld.param.u64 %out, [out];",
            "ld.param.u32 %left, [iterations];",
            "mov.u32 %thread, %tid.x;",
            "mov.u32 %base, tile;",
            *_filled(form),
            *_descriptor("tile_a", 0),
            *_descriptor("tile_b", _A_BYTE),
            "setp.eq.u32 %add, %thread, %thread;",
            *(f"mov.{form.sum_type} %sum{i}, {zero};" for i in range(form.sums)),
            *repeated(body, counter="left"),
            "mov.b32 %bits0, %thread;",
            *(
                line
                for i in range(form.sums)
                for line in (f"mov.b32 %bits1, %sum{i};", "xor.b32 %bits0, %bits0, %bits1;")
            ),
            *stored_if_unlikely("bits0", "out"),
        ),
        block=_BLOCK,
        blocks=_BLOCKS,
        least=(9, 0),
        only_major=9,
        shared_bytes=_A_BYTE + _B_BYTE,
    )


def _filled(form: _Form) -> list[str]:
    """Both tiles, written by all threads; one element a word takes its sign from its place."""
    pattern = PATTERNS[form.element]
    sign = ["and.b32 %bits1, %thread, 1;", "shl.b32 %bits1, %bits1, 31;"]
    return [
        *([] if pattern.alternates else sign),
        f"mov.b32 %bits0, 0x{pattern.a:08x};",
        *([] if pattern.alternates else ["xor.b32 %bits0, %bits0, %bits1;"]),
        *_stores("fill_a", 0, _A_BYTE),
        f"mov.b32 %bits0, 0x{pattern.b:08x};",
        *_stores("fill_b", _A_BYTE, _B_BYTE),
        # What the threads wrote must be seen by the tensor cores, which read by another path.
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
    ]


def _stores(label: str, first: int, byte: int) -> list[str]:
    return [
        "shl.b32 %at, %thread, 2;",
        "add.u32 %at, %at, %base;",
        f"add.u32 %at, %at, {first};",
        f"add.u32 %end, %base, {first + byte};",
        f"{label}:",
        "st.shared.b32 [%at], %bits0;",
        f"add.u32 %at, %at, {4 * _BLOCK};",
        "setp.lt.u32 %more, %at, %end;",
        f"@%more bra {label};",
    ]


def _descriptor(register: str, offset: int) -> list[str]:
    """A matrix descriptor: start, and the steps between core matrices, in units of 16 bytes."""
    steps = (_CORE_BYTE >> 4) << 16 | (2 * _CORE_BYTE >> 4) << 32
    return [
        f"add.u32 %at, %base, {offset};",
        "and.b32 %at, %at, 0x3ffff;",
        "shr.u32 %at, %at, 4;",
        f"cvt.u64.u32 %{register}, %at;",
        f"or.b64 %{register}, %{register}, 0x{steps:x};",
    ]


def arithmetic_kernels(capability: Capability) -> list[ArithmeticKernel]:
    """All compute kernels for a device; a tensor core's fastest instruction in place of others."""
    newer = warpgroup_kernels(capability)
    replaced = {kernel.label for kernel in newer}
    older = [each for each in matrix_kernels(capability) if each.label not in replaced]
    return [*cuda_core_kernels(capability), *older, *newer]


def products(capability: Capability) -> Sequence[Product]:
    """torch's products that a device can have in its own units."""
    found = [Product(dtype=dtype("float64")), Product(dtype=dtype("float32"))]
    if capability >= (8, 0):
        found += [Product(dtype=dtype("float32"), tf32=True), Product(dtype=dtype("bfloat16"))]
    found.append(Product(dtype=dtype("float16")))
    if capability >= (8, 9):
        found += [Product(dtype=dtype(name)) for name in ("float8_e4m3fn", "float8_e5m2")]
    if capability >= (7, 5):
        found.append(Product(dtype=dtype("int8")))
    return found
