"""Clock, hop and pointer chase: their code, and what they do on this host."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

from roofline.errors import MeasurementError
from roofline.machine.kernels import compiler, pointer_chase
from roofline.machine.kernels.assembly import Architecture, check
from roofline.machine.kernels.compiler import CompiledKernel
from roofline.machine.kernels.pointer_chase import CHAIN, FAILED_BYTE, LINE_BYTE, TURN_BYTE
from roofline.machine.measuring.core_state_reader import CoreToCoreTimer, clock_trial
from roofline.machine.measuring.estimation import estimate
from roofline.machine.measuring.kernel_measurement import measured_clock
from roofline.machine.measuring.pinned_threads import PinnedThreads, aligned
from roofline.machine.system.host import architecture
from roofline.machine.system.topology import describe_topology

pytest.importorskip("llvmlite.binding")


def compiled(make: Any) -> CompiledKernel:
    if architecture() not in ("x86_64", "aarch64"):
        pytest.skip("no kernels for this architecture")
    return compiler.compile_kernel(make(architecture()))


# --- code ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["unknown-linux-gnu", "apple-darwin"])
@pytest.mark.parametrize("name", ["x86_64", "aarch64"])
def test_loops_are_what_they_declare(name: Any, system: str) -> None:
    clock, hop, loads = (
        check(kernel, compiler.assembly(kernel, triple=f"{name}-{system}"))
        for kernel in (
            pointer_chase.clock_kernel(name),
            pointer_chase.core_to_core_kernel(name),
            pointer_chase.chase_kernel(name),
        )
    )
    chain = [line for line in clock.instructions if line.startswith("sub")]
    assert len(chain) == CHAIN == 100
    # Each is the same instruction: it reads the register that it writes, and one other.
    assert len(set(chain)) == 1
    one, other = chain[0].split(None, 1)[1].replace(" ", "").split(",")[-2:]
    assert one != other
    assert len(clock.instructions) == CHAIN + 3
    assert [each.accesses() for each in (clock, hop, loads)] == [(0, 0), (1, 1), (16, 0)]
    assert len(loads.instructions) == 16 + 3
    assert loads.stack_accesses == 0


def test_work_is_cycles_journeys_both_ways_and_loads() -> None:
    kernels = (
        pointer_chase.clock_kernel("x86_64"),
        pointer_chase.core_to_core_kernel("x86_64"),
        pointer_chase.chase_kernel("x86_64"),
    )
    assert [each.work(500) for each in kernels] == [50_000, 1000, 500]


def test_a_chain_that_was_regrouped_is_refused() -> None:
    """LLVM pairs up additions on Arm: half of a chain would then run beside the other."""
    kernel = pointer_chase.clock_kernel("aarch64")
    added = dataclasses.replace(kernel, text=kernel.text.replace("= sub i64 %x", "= add i64 %x"))
    with pytest.raises(MeasurementError, match="'clock' was compiled to 0 of 100"):
        check(added, compiler.assembly(added, triple="aarch64-unknown-linux-gnu"))


@pytest.mark.parametrize(
    "line", ["movq (%rcx), %rax", "movq 8(%rcx), %rcx", "movl (%rcx), %ecx", "ldr x9, [x8]"]
)
def test_loads_that_do_not_wait_for_one_another_are_refused(line: str) -> None:
    name: Architecture = "aarch64" if line.startswith("ldr") else "x86_64"
    jump = "b.lo .LBB0_1" if name == "aarch64" else "jb .LBB0_1"
    body = "\n".join([f"    {line}"] * 16)
    text = f"kernel:\n.LBB0_1:\n{body}\n    {jump}\n.Lfunc_end0:\n"
    with pytest.raises(MeasurementError, match="to 0 of 16 wanted instructions"):
        check(pointer_chase.chase_kernel(name), text)


# --- the clock -----------------------------------------------------------------------------------


def test_the_whole_chain_is_computed() -> None:
    """Start 5, minus 3 a hundred times per iteration: what would be folded would not be counted."""
    state = np.array([3, 5], dtype=np.int64)
    compiled(pointer_chase.clock_kernel).call(state.ctypes.data, 0, 4)
    assert state.tolist() == [3, 5 - 3 * 100 * 4]


def test_a_trial_counts_cycles() -> None:
    trial = clock_trial(compiled(pointer_chase.clock_kernel))
    assert (trial.label, trial.quantity) == ("clock, 1 thread", "cycle")
    with PinnedThreads(1) as workers:
        trial.repeats = 200
        assert trial.work_per_burst == 200 * 100
        assert len(trial.run(workers, 2)) <= 2


@pytest.mark.hardware
def test_this_host_has_a_plausible_clock() -> None:
    trial = clock_trial(compiled(pointer_chase.clock_kernel))
    with PinnedThreads(1) as workers:
        trial.calibrate(workers)
        bursts = [each for _ in range(4) for each in trial.run(workers, 20)]
    clock = measured_clock(estimate(trial.work_per_burst, bursts))
    assert 5e8 < clock.median_hz <= clock.peak_hz < 1e10


# --- the hop -------------------------------------------------------------------------------------


def state(line: Any, turn: int) -> Any:
    found = np.zeros(8, dtype=np.uint64)
    found[0], found[TURN_BYTE // 8] = line.ctypes.data, turn
    return found


def test_two_threads_hand_the_line_to_and_fro() -> None:
    kernel, line = compiled(pointer_chase.core_to_core_kernel), np.zeros(16, dtype=np.uint64)
    states = [state(line, turn) for turn in (0, 1)]
    others = [
        threading.Thread(target=kernel.call, args=(each.ctypes.data, 0, 5)) for each in states
    ]
    for each in others:
        each.start()
    for each in others:
        each.join()
    if not any(each[FAILED_BYTE // 8] for each in states):
        # Five turns of each: the line was written ten times, and each goes on with its next number.
        assert line[0] == 10
        assert [int(each[TURN_BYTE // 8]) for each in states] == [10, 11]


def test_a_thread_whose_partner_never_comes_gives_up() -> None:
    kernel, line = compiled(pointer_chase.core_to_core_kernel), np.zeros(16, dtype=np.uint64)
    alone = state(line, 1)
    kernel.call(alone.ctypes.data, 0, 5)
    assert alone[FAILED_BYTE // 8] == 1
    assert line[0] == 0
    # And does not wait again.
    line[0] = 1
    kernel.call(alone.ctypes.data, 0, 5)
    assert line[0] == 1


@pytest.mark.hardware
def test_the_hop_of_this_machine() -> None:
    cores = describe_topology().cores
    if len(cores) < 2:
        pytest.skip("one core")
    with PinnedThreads(2, cores[:2]) as workers:
        timer = CoreToCoreTimer(compiled(pointer_chase.core_to_core_kernel))
        hops = [timer(workers) for _ in range(5)]
    assert all(each is None or each > 0 for each in hops)


# --- the chase -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("lines", "most"), [(2, 8), (1000, 1000), (1000, 64), (4097, 1024)])
def test_an_order_has_every_line_at_most_once(lines: int, most: int) -> None:
    order = pointer_chase.random_order(lines, most=most)
    assert len(order) == min(lines, most)
    assert len(np.unique(order)) == len(order)
    assert order.max() < lines
    # A sample has one line from each part of the working set.
    parts = np.sort(order).astype(float) / lines * len(order)
    np.testing.assert_allclose(parts, np.arange(len(order)), atol=1.01)


def test_neighbours_in_a_cycle_are_not_neighbours_in_memory() -> None:
    order = pointer_chase.random_order(1 << 14, most=1 << 20).astype(np.int64)
    steps = np.abs(np.diff(order))
    # Of two random places in n the mean distance is n / 3.
    assert steps.mean() == pytest.approx((1 << 14) / 3, rel=0.05)
    assert (steps == 1).mean() < 0.001


def test_cycles_in_the_same_lines_leave_one_another_alone() -> None:
    memory = aligned(64 * LINE_BYTE, LINE_BYTE)
    orders = [np.random.default_rng(slot).permutation(64).astype(np.uint32) for slot in range(8)]
    for slot, order in enumerate(orders):
        pointer_chase.write_cycle(memory, slot, order)
    for slot, order in enumerate(orders):
        place = memory.ctypes.data + int(order[0]) * LINE_BYTE + slot * 8
        seen: list[int] = []
        for _ in range(64):
            seen.append((place - memory.ctypes.data) // LINE_BYTE)
            place = int(memory.view(np.uint64)[(place - memory.ctypes.data) // 8])
        assert seen == order.tolist()


def test_the_chase_goes_on_where_it_ended() -> None:
    kernel = compiled(pointer_chase.chase_kernel)
    memory, state = (
        aligned(100 * LINE_BYTE, LINE_BYTE),
        aligned(pointer_chase.STATE_BYTE, LINE_BYTE),
    )
    order = pointer_chase.random_order(100, most=100)
    pointer_chase.write_cycle(memory, 3, order)
    at = [memory.ctypes.data + int(line) * LINE_BYTE + 24 for line in order]
    state.view(np.uint64)[0] = at[0]
    for loads, place in ((32, 32), (80, 12)):
        kernel.call(state.ctypes.data, 0, loads)
        assert int(state.view(np.uint64)[0]) == at[place]
