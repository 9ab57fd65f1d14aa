"""The curves' timers on this host: what they run, not how fast it is."""

from __future__ import annotations

import platform

import pytest

from roofline.machine.hierarchy.curves import curve_sizes
from roofline.machine.hierarchy.exploration import ChaseTimer, ReadTimer
from roofline.machine.kernels import pointer_chase
from roofline.machine.kernels.assembly import Architecture, stream_unit
from roofline.machine.kernels.compiler import compile_kernel
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.measuring.pinned_threads import Array, PinnedThreads, allocate
from roofline.machine.system.host import describe_host

pytestmark = [
    pytest.mark.hardware,
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "aarch64", "arm64"), reason="no kernels"
    ),
]


def written(byte: int) -> Array:
    buffer = allocate(byte)
    buffer[:] = 1
    return buffer


def test_all_sizes_of_a_curve_find_room_and_come_back_with_bursts() -> None:
    host = describe_host()
    architecture: Architecture = "x86_64" if host.architecture == "x86_64" else "aarch64"
    largest = 4 << 20
    with PinnedThreads(1) as workers:
        timer = ChaseTimer(
            compile_kernel(pointer_chase.chase_kernel(architecture)), workers, written(largest)
        )
        for _ in range(2):
            for size in curve_sizes(largest):
                timing = timer(size)
                assert timing.work >= pointer_chase.UNROLL
                assert all(burst.wall_s > 0 for burst in timing.bursts)
        with pytest.raises(ValueError, match="no room for a cycle"):
            timer(2 * largest)


def test_reading_goes_over_the_whole_working_set() -> None:
    host = describe_host()
    unit = stream_unit(host.architecture, host.instruction_sets)
    if unit is None:
        pytest.skip("no stream kernels here")
    (kernel,) = (k for k in stream_kernels(unit) if k.name == "read")
    compiled = compile_kernel(kernel)
    with PinnedThreads(1) as workers:
        timer = ReadTimer(compiled, workers, [written(4 << 20)])
        for size in (16 << 10, 1 << 20, 4 << 20):
            timing = timer(size)
            # Whole passes, each of them over all of it.
            assert timing.work % size == 0
            assert all(burst.wall_s > 0 for burst in timing.bursts)
