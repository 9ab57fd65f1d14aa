"""Programs for a GPU as text: NVIDIA's PTX, which the driver compiles for the device it finds.

PTX is what NVIDIA keeps stable: text for one compute capability runs on all later ones, save where
its target ends in ``a``. Nothing is compiled at install, and ptxas checks every program in tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.machine.checks import check_name, check_positive

Capability = tuple[int, int]
"""A device's compute capability, major and minor: ``(9, 0)`` for Hopper."""

WARP = 32
"""Threads that execute one instruction together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One entry point with its PTX text and the shape of its launch.

    ``block`` is threads per block, ``blocks`` are those that each multiprocessor is given.
    ``least`` is the capability it needs; ``only_major`` the one major version on which it runs
    (None: all from ``least`` on).
    """

    entry: str
    text: str
    block: int
    blocks: int
    least: Capability
    only_major: int | None = None

    def __post_init__(self) -> None:
        check_name("entry", self.entry)
        check_positive("block", self.block)
        check_positive("blocks", self.blocks)

    def runs_on(self, capability: Capability) -> bool:
        """Whether a device of that compute capability can run it."""
        fits_family = self.only_major in (None, capability[0])
        return fits_family and capability >= self.least


_ISA = {(7, 0): "6.4", (7, 5): "6.5", (8, 0): "7.0", (8, 9): "8.4", (9, 0): "8.0"}
"""The PTX version that a program for each target is written in: the older, the more drivers."""


def assemble(
    entry: str,
    *,
    parameters: Sequence[tuple[str, str]],
    registers: Sequence[tuple[str, str]],
    body: Iterable[str],
    block: int,
    blocks: int,
    least: Capability,
    only_major: int | None = None,
    shared_bytes: int = 0,
) -> Program:
    """A program of one entry point.

    Args:
        entry: its name.
        parameters: type and name of each, in order: ``("u64", "out")``.
        registers: type and name of each: ``("f32", "sum<8>")`` are eight.
        body: instructions and labels, one a line.
        block: threads per block.
        blocks: blocks per multiprocessor.
        least: the compute capability whose instructions it uses.
        only_major: given, the instructions exist on that major version alone.
        shared_bytes: shared memory per block, named ``tile``.
    """
    target = f"sm_{least[0]}{least[1]}" + ("a" if only_major is not None else "")
    names = ", ".join(f".param .{kind} {name}" for kind, name in parameters)
    shared = [f".shared .align 1024 .b8 tile[{shared_bytes}];"] if shared_bytes else []
    lines = (
        f".version {_ISA[least]}",
        f".target {target}",
        ".address_size 64",
        f".visible .entry {entry}({names})",
        f".maxntid {block}, 1, 1",
        "{",
        *(f".reg .{kind} %{name};" for kind, name in registers),
        *shared,
        *body,
        "ret;",
        "}",
    )
    return Program(
        entry=entry,
        text="\n".join(lines) + "\n",
        block=block,
        blocks=blocks,
        least=least,
        only_major=only_major,
    )


def repeated(body: Iterable[str], *, counter: str, label: str = "again") -> list[str]:
    """`body` as often as the register `counter` says, at least once; it counts down to 0."""
    return [
        f"{label}:",
        '.pragma "nounroll";',
        *body,
        f"sub.u32 %{counter}, %{counter}, 1;",
        f"setp.ne.u32 %more, %{counter}, 0;",
        f"@%more bra {label};",
    ]


def stored_if_unlikely(bits: str, address: str) -> list[str]:
    """Stores the register `bits` where it has one value of 2^32, so that no result is unused."""
    return [
        f"setp.eq.u32 %unlikely, %{bits}, 0x5bd1e995;",
        f"@%unlikely st.global.u32 [%{address}], %{bits};",
    ]


def empty_program() -> Program:
    """A program that does nothing, for what a launch costs."""
    return assemble(
        "nothing", parameters=(), registers=(), body=(), block=WARP, blocks=1, least=(7, 0)
    )
