"""The pointer chase: its code, its cycles, and that it goes where they lead."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from roofline.errors import MeasurementError
from roofline.machine.kernels import chase, compiler
from roofline.machine.kernels.assembly import Architecture, check

TRIPLES: list[tuple[Architecture, str]] = [
    ("x86_64", "x86_64-unknown-linux-gnu"),
    ("x86_64", "x86_64-apple-darwin"),
    ("aarch64", "aarch64-unknown-linux-gnu"),
    ("aarch64", "aarch64-apple-darwin"),
]


def aligned(byte: int) -> np.ndarray:
    raw = np.zeros(byte + chase.LINE_BYTE, dtype=np.uint8)
    skip = -raw.ctypes.data % chase.LINE_BYTE
    return raw[skip : skip + byte]


@pytest.mark.parametrize(("architecture", "triple"), TRIPLES)
def test_the_loop_is_dependent_loads_and_its_control(
    architecture: Architecture, triple: str
) -> None:
    kernel = chase.chase_kernel(architecture)
    loop = check(kernel, compiler.assembly(kernel, triple=triple))
    assert loop.accesses() == (16, 0)
    assert len(loop.instructions) == 16 + 3
    assert loop.stack_accesses == 0


@pytest.mark.parametrize(
    "line", ["movq (%rcx), %rax", "movq 8(%rcx), %rcx", "movl (%rcx), %ecx", "ldr x9, [x8]"]
)
def test_loads_that_do_not_wait_for_one_another_are_refused(line: str) -> None:
    architecture: Architecture = "aarch64" if line.startswith("ldr") else "x86_64"
    jump = "b.lo .LBB0_1" if architecture == "aarch64" else "jb .LBB0_1"
    body = "\n".join([f"    {line}"] * 16)
    text = f"kernel:\n.LBB0_1:\n{body}\n    {jump}\n.Lfunc_end0:\n"
    with pytest.raises(MeasurementError, match="to 0 of 16 wanted instructions"):
        check(chase.chase_kernel(architecture), text)


@pytest.mark.parametrize(("lines", "most"), [(2, 8), (1000, 1000), (1000, 64), (4097, 1024)])
def test_an_order_has_every_line_at_most_once(lines: int, most: int) -> None:
    order = chase.random_order(lines, most=most)
    assert len(order) == min(lines, most)
    assert len(np.unique(order)) == len(order)
    assert order.max() < lines
    # A sample has one line from each part of the working set.
    parts = np.sort(order).astype(float) / lines * len(order)
    np.testing.assert_allclose(parts, np.arange(len(order)), atol=1.01)


def test_neighbours_in_a_cycle_are_not_neighbours_in_memory() -> None:
    order = chase.random_order(1 << 14, most=1 << 20).astype(np.int64)
    steps = np.abs(np.diff(order))
    # Of two random places in n the mean distance is n / 3.
    assert steps.mean() == pytest.approx((1 << 14) / 3, rel=0.05)
    assert (steps == 1).mean() < 0.001


def test_cycles_in_the_same_lines_leave_one_another_alone() -> None:
    memory = aligned(64 * chase.LINE_BYTE)
    orders = [np.random.default_rng(slot).permutation(64).astype(np.uint32) for slot in range(8)]
    for slot, order in enumerate(orders):
        chase.write_cycle(memory, slot, order)
    for slot, order in enumerate(orders):
        place = memory.ctypes.data + int(order[0]) * chase.LINE_BYTE + slot * 8
        seen: list[int] = []
        for _ in range(64):
            seen.append((place - memory.ctypes.data) // chase.LINE_BYTE)
            place = int(memory.view(np.uint64)[(place - memory.ctypes.data) // 8])
        assert seen == order.tolist()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64", "arm64"), reason="no kernel")
def test_the_kernel_goes_on_where_it_ended() -> None:
    architecture: Architecture = "x86_64" if platform.machine() == "x86_64" else "aarch64"
    compiled = compiler.compile_kernel(chase.chase_kernel(architecture))
    memory = aligned(100 * chase.LINE_BYTE)
    order = chase.random_order(100, most=100)
    chase.write_cycle(memory, 3, order)
    state = aligned(chase.STATE_BYTE)
    at = [memory.ctypes.data + int(line) * chase.LINE_BYTE + 24 for line in order]
    state.view(np.uint64)[0] = at[0]
    compiled.call(state.ctypes.data, 0, 32)
    assert int(state.view(np.uint64)[0]) == at[32]
    compiled.call(state.ctypes.data, 0, 80)
    assert int(state.view(np.uint64)[0]) == at[12]
