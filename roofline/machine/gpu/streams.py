"""Kernels that move memory in vectors of 16 bytes; each declares what it loads and stores.

A block goes over chunks of 16 KiB, the four accesses of a thread lying 4 KiB apart; all blocks
together go over the arrays in order. Loads pass the first-level cache by (``.cg``), so that a
working set within the second level is read from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.machine.gpu.ptx import Program, assemble, repeated, stored_if_unlikely

BLOCK = 256
BLOCKS = 4
_VECTOR_BYTE = 16
_UNROLL = 4
CHUNK_BYTE = BLOCK * _VECTOR_BYTE * _UNROLL
"""Bytes of one array that a block goes over in one step."""

StreamName = Literal["read", "write", "copy", "triad", "update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKernel:
    """A program that moves memory: loads of ``loads`` arrays and stores to ``stores``.

    ``arrays`` is how many different ones they are; the bytes of a pass are those of ``accesses``.
    """

    program: Program
    name: StreamName
    loads: int
    stores: int
    arrays: int

    @property
    def accesses(self) -> int:
        """Array accesses that count: loads and stores."""
        return self.loads + self.stores


def stream_kernels() -> list[StreamKernel]:
    """Read, write, copy, triad ``a = b + s * c`` and update ``a = s * a``, in float32."""
    kept = [f"xor.b32 %bits{i % 4}, %bits{i % 4}, %a{i};" for i in _all()]
    triad = [f"fma.rn.f32 %a{i}, %c{i}, %scale, %b{i};" for i in _all()]
    update = [f"mul.f32 %a{i}, %a{i}, %scale;" for i in _all()]
    return [
        _kernel("read", ("a",), (), kept),
        _kernel("write", (), ("a",), []),
        _kernel("copy", ("b",), ("a",), [], stored="b"),
        _kernel("triad", ("b", "c"), ("a",), triad),
        _kernel("update", ("a",), ("a",), update),
    ]


def _all() -> range:
    return range(4 * _UNROLL)


def _kernel(
    name: StreamName,
    loads: tuple[str, ...],
    stores: tuple[str, ...],
    compute: list[str],
    *,
    stored: str = "a",
) -> StreamKernel:
    element = "b32" if name == "read" else "f32"
    used = [each for each in "abc" if each in (*loads, *stores)]
    step = [
        *(_access(f"ld.global.cg.v4.{element}", each, load=True) for each in loads),
        *compute,
        *(_access(f"st.global.v4.{element}", each, load=False, register=stored) for each in stores),
        *(f"add.u64 %at_{each}, %at_{each}, %stride;" for each in used),
    ]
    one_pass = [
        *(f"add.u64 %at_{each}, %base_{each}, %offset;" for each in used),
        "mov.u32 %left, %steps;",
        *repeated((line for lines in step for line in lines.splitlines()), counter="left"),
    ]
    program = assemble(
        f"stream_{name}",
        parameters=(
            *(("u64", each) for each in "abc"),
            *(("u32", each) for each in ("steps", "passes", "period")),
        ),
        registers=(
            *(("pred", each) for each in ("more", "unlikely")),
            *(("u64", f"base_{each}") for each in "abc"),
            *(("u64", f"at_{each}") for each in "abc"),
            *(("u64", each) for each in ("offset", "stride", "within")),
            *(("u32", each) for each in ("steps", "passes", "period", "left", "thread", "block")),
            *((element, f"{each}<{4 * _UNROLL}>") for each in "abc"),
            *(("f32", "scale"), ("b32", "bits<4>")),
        ),
        body=(
            *(f"ld.param.u64 %base_{each}, [{each}];" for each in "abc"),
            *(f"ld.param.u32 %{each}, [{each}];" for each in ("steps", "passes", "period")),
            "mov.u32 %thread, %tid.x;",
            "mov.u32 %block, %ctaid.x;",
            "rem.u32 %block, %block, %period;",
            f"mul.wide.u32 %offset, %block, {CHUNK_BYTE};",
            f"mul.wide.u32 %within, %thread, {_VECTOR_BYTE};",
            "add.u64 %offset, %offset, %within;",
            f"mul.wide.u32 %stride, %period, {CHUNK_BYTE};",
            "cvt.rn.f32.u32 %scale, %period;",
            "rcp.approx.f32 %scale, %scale;",
            "add.f32 %scale, %scale, 0f3F7F0000;",
            *(f"mov.b32 %bits{i}, %thread;" for i in range(4)),
            *([f"mov.f32 %a{i}, %scale;" for i in _all()] if name == "write" else []),
            *repeated(one_pass, counter="passes", label="pass"),
            *(f"xor.b32 %bits0, %bits0, %bits{i};" for i in (1, 2, 3)),
            *stored_if_unlikely("bits0", "base_a"),
        ),
        block=BLOCK,
        blocks=BLOCKS,
        least=(7, 0),
    )
    return StreamKernel(
        program=program, name=name, loads=len(loads), stores=len(stores), arrays=len(used)
    )


def _access(operation: str, array: str, *, load: bool, register: str = "") -> str:
    """All accesses of one step to an array, one a line."""
    lines: list[str] = []
    for i in range(_UNROLL):
        values = ", ".join(f"%{register or array}{4 * i + j}" for j in range(4))
        place = f"[%at_{array}+{i * BLOCK * _VECTOR_BYTE}]"
        operands = f"{{{values}}}, {place}" if load else f"{place}, {{{values}}}"
        lines.append(f"{operation} {operands};")
    return "\n".join(lines)
