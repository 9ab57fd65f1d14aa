"""Where the CPUs of two threads are: the hop between them, and what rounds say about it."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest

from roofline.machine.kernels import compiler
from roofline.machine.kernels.assembly import check
from roofline.machine.kernels.chase import FAILED_BYTE, TURN_BYTE, hop_kernel
from roofline.machine.measuring.pace_gauge import HopTimer
from roofline.machine.measuring.proximity import hop_overhead, proximity, proximity_condition

pytest.importorskip("llvmlite.binding")

NEAR, FAR = 45e-9, 205e-9


@pytest.mark.parametrize(
    "triple",
    [
        *("x86_64-unknown-linux-gnu", "x86_64-apple-darwin"),
        *("aarch64-unknown-linux-gnu", "aarch64-apple-darwin"),
    ],
)
def test_the_loop_waits_with_one_load_and_gives_with_one_store(triple: str) -> None:
    kernel = hop_kernel("x86_64" if triple.startswith("x86") else "aarch64")
    check(kernel, compiler.assembly(kernel, triple=triple))


def compiled() -> Any:
    from roofline.machine.system.host import architecture

    name = architecture()
    if name not in ("x86_64", "aarch64"):
        pytest.skip(f"no kernels for {name}")
    return compiler.compile_kernel(hop_kernel("x86_64" if name == "x86_64" else "aarch64"))


def state(line: Any, turn: int) -> Any:
    found = np.zeros(8, dtype=np.uint64)
    found[0], found[TURN_BYTE // 8] = line.ctypes.data, turn
    return found


def test_two_threads_hand_the_line_to_and_fro() -> None:
    kernel, line = compiled(), np.zeros(16, dtype=np.uint64)
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
    kernel, line = compiled(), np.zeros(16, dtype=np.uint64)
    alone = state(line, 1)
    kernel.call(alone.ctypes.data, 0, 5)
    assert alone[FAILED_BYTE // 8] == 1
    assert line[0] == 0
    # And does not wait again.
    line[0] = 1
    kernel.call(alone.ctypes.data, 0, 5)
    assert line[0] == 1


def test_hops_are_counted_both_ways() -> None:
    assert hop_kernel("x86_64").work(500) == 1000


def test_one_placement_is_all_that_there_is() -> None:
    found = proximity([NEAR, 1.1 * NEAR, 0.9 * NEAR, NEAR])
    assert not found.moved
    assert found.prevails(FAR)
    assert proximity_condition(found) == ""
    overhead = hop_overhead(found)
    assert overhead is not None
    assert (overhead.threads, overhead.time.median_s) == (2, NEAR)


def test_two_placements_are_told_apart() -> None:
    found = proximity([NEAR, FAR, 1.1 * FAR, FAR, NEAR])
    assert [found.prevails(each) for each in found.hops_s] == [False, True, True, True, False]
    said = proximity_condition(found)
    assert "60.0 % of the time they were apart (a cache line took 205 ns" in said
    assert "else near each other (45.0 ns)" in said
    overhead = hop_overhead(found)
    assert overhead is not None
    assert overhead.time.median_s == FAR


def test_the_nearer_placement_may_prevail() -> None:
    found = proximity([NEAR, FAR, NEAR, FAR, 1.2 * NEAR])
    assert [found.prevails(each) for each in found.hops_s] == [True, False, True, False, True]
    assert "of the time they were near each other (a cache line" in proximity_condition(found)


def test_a_few_long_hops_are_no_placement() -> None:
    assert not proximity([NEAR, NEAR, FAR, NEAR]).moved
    assert not proximity([*[NEAR] * 200, FAR, FAR]).moved


def test_what_is_not_known_belongs_to_no_placement() -> None:
    found = proximity([NEAR, math.nan, NEAR, FAR, FAR, NEAR])
    assert not found.prevails(math.nan)
    assert found.prevailing_s == [NEAR] * 3
    assert not proximity([math.nan, math.nan]).moved
    assert hop_overhead(proximity([math.nan])) is None
    assert not proximity([]).moved


@pytest.mark.hardware
def test_the_hop_of_this_machine() -> None:
    from roofline.machine.measuring.crew import Crew
    from roofline.machine.system.topology import describe_topology

    cores = describe_topology().cores
    if len(cores) < 2:
        pytest.skip("one core")
    kernel = compiled()
    with Crew(2, cores[:2]) as crew:
        hops = [HopTimer(kernel)(crew) for _ in range(5)]
    assert all(each is None or each > 0 for each in hops)
