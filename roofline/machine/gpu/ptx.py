"""GPU programs as PTX text, compiled by the driver for its device.

PTX for one compute capability runs on all later ones, unless its target ends in ``a``. Nothing is
compiled at installation; tests check every program with ptxas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from roofline.machine.hardware import MemoryKernel

Capability = tuple[int, int]
"""Compute capability, major and minor: ``(9, 0)`` for Hopper."""

WARP = 32
"""Threads that execute an instruction together."""

_ISA = {(7, 0): "6.4", (7, 5): "6.5", (8, 0): "7.0", (8, 9): "8.4", (9, 0): "8.0"}
"""PTX version by target; older versions support more drivers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An entry point with its PTX text and launch shape.

    ``block``: threads per block; ``blocks``: blocks per multiprocessor; ``least``: minimum compute
    capability; ``only_major``: the only supported major version (None: any from ``least``).
    """

    entry: str
    block: int
    blocks: int
    least: Capability = (7, 0)
    only_major: int | None = None
    text: str = ""


def assemble(
    program: Program,
    *,
    parameters: Sequence[str] = (),
    registers: Sequence[str] = (),
    body: Iterable[str] = (),
    shared_bytes: int = 0,
) -> Program:
    """Return the program with its text.

    Parameters and registers are a type and names: ``"f32 scale sum<8>"`` declares nine registers.
    The body has one instruction or label per line. ``shared_bytes`` is the shared memory ``tile``
    of a block.
    """
    major, minor = program.least
    target = f"sm_{major}{minor}" + ("a" if program.only_major is not None else "")
    names = ", ".join(f".param .{kind} {name}" for kind, name in _declared(parameters))
    lines = (
        f".version {_ISA[program.least]}",
        f".target {target}",
        ".address_size 64",
        f".visible .entry {program.entry}({names})",
        f".maxntid {program.block}, 1, 1",
        "{",
        *(f".reg .{kind} %{name};" for kind, name in _declared(registers)),
        *([f".shared .align 1024 .b8 tile[{shared_bytes}];"] if shared_bytes else []),
        *body,
        "ret;",
        "}",
    )
    return replace(program, text="\n".join(lines) + "\n")


def _declared(lines: Sequence[str]) -> list[tuple[str, str]]:
    split = (line.split() for line in lines)
    return [(kind, name) for kind, *names in split for name in names]


def repeated(body: Iterable[str], *, counter: str, label: str = "again") -> list[str]:
    """Return a loop over `body` that counts the register `counter` down to 0."""
    return [
        f"{label}:",
        '.pragma "nounroll";',
        *body,
        f"sub.u32 %{counter}, %{counter}, 1;",
        f"setp.ne.u32 %more, %{counter}, 0;",
        f"@%more bra {label};",
    ]


def stored_if_unlikely(bits: str, address: str) -> list[str]:
    """Store the register `bits` only for one value of 2^32, so that no result is unused."""
    return [
        f"setp.eq.u32 %unlikely, %{bits}, 0x5bd1e995;",
        f"@%unlikely st.global.u32 [%{address}], %{bits};",
    ]


def empty_program() -> Program:
    """Return a program that does nothing, for launch overhead."""
    return assemble(Program(entry="nothing", block=WARP, blocks=1))


# A block processes chunks of 16 KiB with four accesses per thread, 4 KiB apart; blocks traverse the
# arrays in order. Loads bypass L1 (``.cg``), so that a working set within L2 is read from there.

BLOCK = 256
BLOCKS = 4
_VECTOR_BYTE = 16
_UNROLL = 4
_VALUES = range(4 * _UNROLL)
CHUNK_BYTE = BLOCK * _VECTOR_BYTE * _UNROLL
"""Bytes of an array per block and step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKernel:
    """A program that loads and stores ``arrays`` different arrays."""

    program: Program
    name: MemoryKernel
    loads: int
    stores: int
    arrays: int

    @property
    def accesses(self) -> int:
        return self.loads + self.stores


def stream_kernels() -> list[StreamKernel]:
    """Return read, write, copy, triad ``a = b + s * c`` and update ``a = s * a``, in float32."""
    kept = [f"xor.b32 %bits{i % 4}, %bits{i % 4}, %a{i};" for i in _VALUES]
    triad = [f"fma.rn.f32 %a{i}, %c{i}, %scale, %b{i};" for i in _VALUES]
    update = [f"mul.f32 %a{i}, %a{i}, %scale;" for i in _VALUES]
    return [
        _stream("read", "a", "", kept),
        _stream("write", "", "a", []),
        _stream("copy", "b", "a", [], stored="b"),
        _stream("triad", "bc", "a", triad),
        _stream("update", "a", "a", update),
    ]


def _stream(
    name: MemoryKernel, loads: str, stores: str, compute: list[str], *, stored: str = "a"
) -> StreamKernel:
    """Return a kernel; loads and stores name arrays of a, b, c; ``stored`` has the stored
    values."""
    element = "b32" if name == "read" else "f32"
    used = [each for each in "abc" if each in loads + stores]
    step: list[str] = []
    for array in loads:
        step += [
            f"ld.global.cg.v4.{element} {{{values}}}, {place};"
            for values, place in _accesses(array, array)
        ]
    step += compute
    for array in stores:
        step += [
            f"st.global.v4.{element} {place}, {{{values}}};"
            for values, place in _accesses(array, stored)
        ]
    step += [f"add.u64 %at_{each}, %at_{each}, %stride;" for each in used]
    one_pass = [
        *(f"add.u64 %at_{each}, %base_{each}, %offset;" for each in used),
        "mov.u32 %left, %steps;",
        *repeated(step, counter="left"),
    ]
    program = assemble(
        Program(entry=f"stream_{name}", block=BLOCK, blocks=BLOCKS),
        parameters=("u64 a b c", "u32 steps passes period"),
        registers=(
            "pred more unlikely",
            "u64 base_a base_b base_c at_a at_b at_c offset stride within",
            "u32 steps passes period left thread block",
            f"{element} a<{len(_VALUES)}> b<{len(_VALUES)}> c<{len(_VALUES)}>",
            "f32 scale",
            "b32 bits<4>",
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
            *([f"mov.f32 %a{i}, %scale;" for i in _VALUES] if name == "write" else []),
            *repeated(one_pass, counter="passes", label="pass"),
            *(f"xor.b32 %bits0, %bits0, %bits{i};" for i in (1, 2, 3)),
            *stored_if_unlikely("bits0", "base_a"),
        ),
    )
    return StreamKernel(
        program=program, name=name, loads=len(loads), stores=len(stores), arrays=len(used)
    )


def _accesses(array: str, register: str) -> list[tuple[str, str]]:
    """Return registers and address of each vector of one step in an array."""
    return [
        (
            ", ".join(f"%{register}{4 * i + j}" for j in range(4)),
            f"[%at_{array}+{i * BLOCK * _VECTOR_BYTE}]",
        )
        for i in range(_UNROLL)
    ]
