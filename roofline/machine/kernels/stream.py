"""The stream kernels: read, write, copy, triad and update, with plain and non-temporal stores."""

from __future__ import annotations

from collections.abc import Callable

from roofline.machine.hardware import MemoryKernel
from roofline.machine.kernels.memory_loop import (
    FACTOR_BYTE,
    RESULT_BYTE,
    STATE_BYTE,
    Form,
    StreamKernel,
)
from roofline.machine.kernels.units import VectorUnit

__all__ = ["FACTOR_BYTE", "RESULT_BYTE", "STATE_BYTE", "Form", "StreamKernel", "stream_kernels"]

# What is fastest in all levels together, and a different loop that is as fast, found on Zen 5. Four
# lines of `read` lose 5 % in the first level and sixteen half of the speed in the second; batches
# slow triad and update down in the first; eight lines of `update` are at times 10 % slower in the
# second.
_ONE, _OTHER = Form(), Form(number=2, lines=4)
_BATCHED = Form(number=2, lines=4, batch=4)
_READ = Form(crosswise=True), Form(number=2, combine="or")
_WRITE = Form(), Form(number=2, lines=16)
_UPDATE = Form(lines=4), Form(number=2, lines=16)
_TRIAD_NT = Form(lines=4, batch=4), Form(number=2)


def _read(kernel: StreamKernel, u: int) -> list[str]:
    return [*kernel.load(f"%b{u}", 0, u, kernel.bits), kernel.combined(u)]


def _write(_kernel: StreamKernel, _u: int) -> list[str]:
    return []


def _copy(kernel: StreamKernel, u: int) -> list[str]:
    return kernel.load(f"%a{u}", 1, u, kernel.vector)


def _triad(kernel: StreamKernel, u: int) -> list[str]:
    return [
        *kernel.load(f"%b{u}", 1, u, kernel.vector),
        *kernel.load(f"%c{u}", 2, u, kernel.vector),
        f"  %p{u} = fmul contract {kernel.vector} %s, %c{u}",
        f"  %a{u} = fadd contract {kernel.vector} %b{u}, %p{u}",
    ]


def _update(kernel: StreamKernel, u: int) -> list[str]:
    return [
        *kernel.load(f"%b{u}", 0, u, kernel.vector),
        # s - a and not s * a: repeated a million times it neither grows nor fades away.
        f"  %a{u} = fsub {kernel.vector} %s, %b{u}",
    ]


_Row = tuple[
    MemoryKernel, int, int, int, int, int, Callable[[StreamKernel, int], list[str]], Form, Form
]
_ROWS: tuple[_Row, ...] = (
    ("read", 1, 1, 0, 1, 0, _read, *_READ),
    ("write", 1, 0, 1, 0, 0, _write, *_WRITE),
    ("copy", 2, 1, 1, 0, 0, _copy, _ONE, _BATCHED),
    ("triad", 3, 2, 1, 2, 2, _triad, _ONE, _OTHER),
    ("update", 1, 1, 1, 2, 1, _update, *_UPDATE),
    ("write-nt", 1, 0, 1, 0, 0, _write, _ONE, _OTHER),
    ("copy-nt", 2, 1, 1, 0, 0, _copy, _ONE, _BATCHED),
    ("triad-nt", 3, 2, 1, 2, 2, _triad, *_TRIAD_NT),
)


def stream_kernels(unit: VectorUnit, *, non_temporal: bool) -> tuple[StreamKernel, ...]:
    """The stream kernels of a vector unit; those past the caches only if `non_temporal`."""
    kernels = (
        StreamKernel(
            name=name,
            unit=unit,
            streams=streams,
            loads=loads,
            stores=stores,
            arithmetic=arithmetic,
            flop_per_element=flop,
            body=body,
            form=form,
            second=second,
        )
        for name, streams, loads, stores, arithmetic, flop, body, form, second in _ROWS
    )
    return tuple(kernel for kernel in kernels if non_temporal or not kernel.non_temporal)
