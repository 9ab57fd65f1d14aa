"""Curves over working-set size, of machines that exist on paper."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from roofline.errors import MeasurementError
from roofline.machine.hierarchy.curves import (
    Timing,
    curve_sizes,
    extend_latencies,
    measure_bandwidths,
    measure_latencies,
)
from roofline.machine.measuring.estimation import Burst
from tests.machine.simulated_caches import KIB, MIB, served, simulated_machine


def test_sizes_lie_between_those_of_caches() -> None:
    sizes = curve_sizes(128 * KIB)
    assert [size / KIB for size in sizes] == [
        *(16, 17.5, 22, 26),
        *(29, 35, 44, 52),
        *(58, 70, 88, 104),
        116,
        128,
    ]
    wanted = {
        octave * factor
        for octave in (16 * KIB << n for n in range(1, 12))
        for factor in (1, 1.25, 1.5)
    }
    for size in curve_sizes(64 * MIB)[1:-1]:
        assert size % 64 == 0
        assert min(abs(np.log2(size / cache)) for cache in wanted) > 0.1


def test_sizes_end_where_memory_does() -> None:
    assert curve_sizes(16 * KIB) == [16 * KIB]
    assert curve_sizes(1000) == [16 * KIB]
    # In whole lines, and not with a size next to it that says the same.
    assert curve_sizes(45 * KIB + 5)[-2:] == [35 * KIB, 45 * KIB]
    for largest in range(16 * KIB, 300 * KIB, 4096 + 64):
        sizes = curve_sizes(largest)
        assert sizes[-1] == largest
        assert all(low * 1.04 < high for low, high in itertools.pairwise(sizes))


def test_the_curve_is_dense_where_latency_rises() -> None:
    machine = simulated_machine("Zen 5")
    found = measure_latencies(
        machine.time_chase, largest_bytes=128 * MIB, deadline=0.0, clock=machine.clock
    )
    sizes = found.curve.size_bytes
    assert sizes[0] == 16 * KIB
    assert sizes[-1] == 128 * MIB
    assert {44 * KIB, 52 * KIB, 28 * MIB + MIB, 35 * MIB} <= set(sizes)
    # L2 is flat from 58 to 928 KiB: two sizes an octave.
    assert len([size for size in sizes if 58 * KIB < size < 928 * KIB]) == 7
    for size, latency_s in zip(sizes, found.curve.latency_s, strict=True):
        assert latency_s == pytest.approx(machine.latency_s(size))
    assert found.curve.provenance.source == "measured"
    assert "16 KiB to 128 MiB" in found.curve.provenance.note
    assert "beyond 8 MiB over a random sample" in found.curve.provenance.reference


def test_an_extension_measures_only_what_is_added() -> None:
    machine = simulated_machine("Zen 5")
    known = measure_latencies(
        machine.time_chase, largest_bytes=4 * MIB, deadline=0.0, clock=machine.clock
    )
    machine.asked.clear()
    found = extend_latencies(known, machine.time_chase, largest_bytes=8 * MIB, clock=machine.clock)
    assert min(machine.asked) > 4 * MIB
    assert set(machine.asked) == set(found.curve.size_bytes) - set(known.curve.size_bytes)
    assert all(machine.asked.count(size) == 3 for size in machine.asked)
    assert found.curve.size_bytes == tuple(sorted(found.curve.size_bytes))
    assert found.curve.size_bytes[-1] == 8 * MIB
    assert found.curve.latency_s[-1] == pytest.approx(machine.latency_s(8 * MIB))
    with pytest.raises(MeasurementError, match="no usable timing of latency"):
        extend_latencies(
            known, lambda size: Timing(work=1, bursts=()), largest_bytes=8 * MIB, clock=lambda: 1.0
        )


def test_sizes_take_turns_until_the_time_is_up() -> None:
    few, many = simulated_machine("Zen 2"), simulated_machine("Zen 2")
    for machine, deadline in ((few, 0.0), (many, 0.05)):
        found = measure_latencies(
            machine.time_chase, largest_bytes=64 * MIB, deadline=deadline, clock=machine.clock
        )
        counts = {machine.asked.count(size) for size in found.curve.size_bytes}
        assert max(counts) - min(counts) <= 1
    assert len(many.asked) > 2 * len(few.asked)
    assert many.now_s < 0.06
    first = few.asked.index(16 * KIB, 1)
    assert few.asked[:first] == sorted(few.asked[:first])


def test_disturbed_bursts_do_not_count() -> None:
    def timer(size: int) -> Timing:
        good = Burst(wall_s=2e-6, cpu_s=2e-6, busy=0.99)
        bad = Burst(wall_s=9e-6, cpu_s=3e-6, busy=0.4)
        # At 22 KiB others are always on the CPU: what there is, is used.
        return Timing(work=1000, bursts=(bad, bad) if size == 22 * KIB else (good, bad, bad))

    found = measure_latencies(timer, largest_bytes=32 * KIB, deadline=0.0, clock=lambda: 1.0)
    latencies = dict(zip(found.curve.size_bytes, found.curve.latency_s, strict=True))
    assert latencies[16 * KIB] == pytest.approx(2e-9)
    assert latencies[22 * KIB] == pytest.approx(9e-9)
    assert len(found.samples[16 * KIB]) == 3


def test_a_size_without_bursts_is_left_out() -> None:
    def timer(size: int) -> Timing:
        burst = Burst(wall_s=1e-6, cpu_s=1e-6, busy=1.0)
        return Timing(work=1000, bursts=() if size > 20 * KIB else (burst,))

    found = measure_latencies(timer, largest_bytes=32 * KIB, deadline=0.0, clock=lambda: 1.0)
    assert found.curve.size_bytes == (16 * KIB,)
    assert set(found.samples) == {16 * KIB}
    with pytest.raises(MeasurementError, match="no usable timing of latency"):
        measure_latencies(
            lambda size: Timing(work=1, bursts=()),
            largest_bytes=32 * KIB,
            deadline=0.0,
            clock=lambda: 1.0,
        )


def test_bandwidth_is_work_over_wall_time() -> None:
    def timer(size: int) -> Timing:
        wall_s = size / 100e9 if size <= 32 * KIB else size / 40e9
        return Timing(work=2 * size, bursts=(Burst(wall_s=wall_s, cpu_s=wall_s, busy=1.0),))

    found = measure_bandwidths(
        timer, kernel="read", threads=2, largest_bytes=MIB, deadline=0.0, clock=lambda: 1.0
    )
    assert (found.curve.kernel, found.curve.threads) == ("read", 2)
    assert found.curve.size_bytes[:4] == (16 * KIB, 22 * KIB, 29 * KIB, 44 * KIB)
    assert found.curve.bytes_per_s[0] == pytest.approx(200e9)
    assert found.curve.bytes_per_s[-1] == pytest.approx(80e9)
    assert len(found.samples[16 * KIB]) == 3


@pytest.mark.parametrize("size", [200, 300, 400, 600])
def test_random_replacement_is_simulated_as_it_works(size: int) -> None:
    dice, capacity = random.Random(size), 256
    order = list(range(size))
    dice.shuffle(order)
    held: list[int] = []
    place: dict[int, int] = {}
    hits = 0
    for turn in range(60):
        for line in order:
            if line in place:
                hits += turn >= 20
            elif len(held) < capacity:
                place[line] = len(held)
                held.append(line)
            else:
                victim = dice.randrange(capacity)
                del place[held[victim]]
                held[victim], place[line] = line, victim
    assert hits / (40 * size) == pytest.approx(served("random", size, capacity), abs=0.03)
