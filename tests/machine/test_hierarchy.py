"""The memory hierarchy of a fake machine, explored on a fake clock."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.errors import MeasurementError
from roofline.machine.hierarchy import exploration as hierarchy
from roofline.machine.hierarchy.exploration import ExploredHierarchy, explore
from roofline.machine.kernels.pointer_chase import chase_kernel
from roofline.machine.measuring.pinned_threads import PinnedThreads
from tests.machine.fake_machine import READ, TOPOLOGY, FakeMachine
from tests.machine.simulated_caches import KIB, MIB, Simulated


def probes(machine: FakeMachine, *, chase: bool = True, read: bool = True) -> tuple[Any, Any]:
    kernel = machine.compile(chase_kernel("x86_64")) if chase else None
    return kernel, machine.compile(READ) if read else None


def explored(machine: FakeMachine, workers: PinnedThreads, **options: Any) -> ExploredHierarchy:
    fields: dict[str, Any] = {
        "probes": probes(machine),
        "teams": (1, 2),
        "largest_bytes": 8 * MIB,
        "budget_s": 0.5,
        "report": lambda done, what: None,
        **options,
    }
    (chase, read), teams = fields.pop("probes"), fields.pop("teams")
    return explore(workers, chase, read, TOPOLOGY, teams, clock=machine.clock, **fields)


def test_levels_latencies_and_curves_are_those_of_the_machine(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    found = explored(machine, workers)
    assert [(each.name, each.capacity_bytes) for each in found.hierarchy.levels] == [
        ("L1", 32 * KIB),
        ("L2", 2 * MIB),
    ]
    assert found.conditions == ()
    assert found.latency_curve is not None
    assert found.latency_curve.size_bytes[0] == 16 * KIB
    assert found.latency_curve.size_bytes[-1] == 8 * MIB
    one, both = found.bandwidth_curves
    assert (one.threads, both.threads) == (1, 2)
    assert one.bytes_per_s[0] == pytest.approx(400e9, rel=1e-3)
    assert both.bytes_per_s[0] == pytest.approx(800e9, rel=1e-3)
    # Curves of one thread and of two end at the same size per thread: half of what one may have.
    assert (one.size_bytes[-1], both.size_bytes[-1]) == (8 * MIB, 4 * MIB)
    assert one.bytes_per_s[-1] == pytest.approx(10e9, rel=1e-3)


def test_every_burst_behind_the_curves_is_kept(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    found = explored(machine, workers)
    assert found.latency_curve is not None
    loads = [each for each in found.series if each.quantity == "load"]
    assert [each.label for each in loads] == [
        f"latency of {size} byte" for size in found.latency_curve.size_bytes
    ]
    # Rounds, at least three, of three bursts each; rate = work / time is loads per second.
    assert all(len(each.bursts) >= 9 for each in loads)
    assert loads[0].work / loads[0].bursts[0].wall_s == pytest.approx(1e9, rel=1e-3)
    reads = [each for each in found.series if each.quantity == "byte"]
    assert len(reads) == sum(len(curve.size_bytes) for curve in found.bandwidth_curves)
    (first,) = (each for each in reads if each.label == "read of 16384 byte per thread, 2 threads")
    assert first.work / first.bursts[0].wall_s == pytest.approx(800e9, rel=1e-3)


def test_it_takes_about_the_time_it_is_given(machine: FakeMachine, workers: PinnedThreads) -> None:
    begin = machine.clock()
    explored(machine, workers, budget_s=0.5)
    assert 0.3 < machine.clock() - begin < 0.6


@pytest.mark.parametrize(("chase", "read"), [(False, True), (True, False), (False, False)])
def test_without_a_probe_what_it_shows_is_missing(
    machine: FakeMachine, workers: PinnedThreads, chase: bool, read: bool
) -> None:
    found = explored(machine, workers, probes=probes(machine, chase=chase, read=read))
    assert (found.latency_curve is not None) is chase
    assert len(found.bandwidth_curves) == (2 if read else 0)
    # What the operating system reports stands, confirmed or not.
    assert [each.capacity_bytes for each in found.hierarchy.levels] == [32 * KIB, 2 * MIB]
    sources = {each.provenance.source for each in found.hierarchy.levels}
    assert sources == {"measured" if chase else "datasheet"}


def test_a_curve_that_ends_in_a_cache_is_extended_beyond_it(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    machine.caches = Simulated(
        caches=((32 * KIB, 1e-9), (2 * MIB, 4e-9), (16 * MIB, 12e-9)), memory_s=80e-9
    )
    found = explored(machine, workers, max_bytes=128 * MIB)
    assert found.latency_curve is not None
    # 16 MiB are still in the cache, 32 are not; an octave beyond, memory is clear of it.
    assert found.latency_curve.size_bytes[-1] == 64 * MIB
    last = found.hierarchy.levels[2]
    assert last.name == "L3"
    assert 16 * MIB <= last.capacity_bytes <= 18 * MIB
    assert found.hierarchy.memory_latency is not None
    (said,) = found.conditions
    assert said.startswith("L3: size not reported; latency curve: step")
    one, both = found.bandwidth_curves
    assert (one.size_bytes[-1], both.size_bytes[-1]) == (32 * MIB * 2, 32 * MIB)


def test_what_memory_does_not_allow_leaves_the_last_cache_at_the_least_it_holds(
    machine: FakeMachine, workers: PinnedThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.caches = Simulated(
        caches=((32 * KIB, 1e-9), (2 * MIB, 4e-9), (256 * MIB, 12e-9)), memory_s=80e-9
    )
    for most, end in ((None, 8 * MIB), (20 * MIB, 20 * MIB)):
        found = explored(machine, workers, max_bytes=most)
        assert found.latency_curve is not None
        assert found.latency_curve.size_bytes[-1] == end
        assert found.hierarchy.levels[2].capacity_bytes == end
        assert "its lower limit" in found.conditions[0]
    monkeypatch.setattr(hierarchy, "extend_latencies", fail)
    found = explored(machine, workers, max_bytes=20 * MIB)
    assert found.conditions[1].startswith("latency curve not extended: no usable")


def fail(*_: object, **__: object) -> None:
    raise MeasurementError("no usable timing at any working-set size; measure again")


def test_curves_without_a_timing_are_said_and_the_rest_goes_on(
    machine: FakeMachine, workers: PinnedThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hierarchy, "measure_latencies", fail)
    monkeypatch.setattr(hierarchy, "measure_bandwidths", fail)
    found = explored(machine, workers)
    assert (found.latency_curve, found.bandwidth_curves, found.series) == (None, (), ())
    looked, one, both = found.conditions
    assert looked.startswith("cache sizes not measured: no usable timing")
    assert one.startswith("no bandwidth curve on 1 thread")
    assert both.startswith("no bandwidth curve on 2 threads")
    assert [each.capacity_bytes for each in found.hierarchy.levels] == [32 * KIB, 2 * MIB]


def test_two_threads_that_never_come_together_cost_their_curve_alone(
    machine: FakeMachine, workers: PinnedThreads
) -> None:
    machine.never_together = {READ.label}
    found = explored(machine, workers)
    assert [curve.threads for curve in found.bandwidth_curves] == [1]
    (said,) = found.conditions
    assert said.startswith("no bandwidth curve on 2 threads: no usable timing")


def test_a_small_memory_ends_the_curves_early(machine: FakeMachine, workers: PinnedThreads) -> None:
    found = explored(machine, workers, largest_bytes=1 * MIB)
    assert found.latency_curve is not None
    assert found.latency_curve.size_bytes[-1] <= 1 * MIB
    assert found.hierarchy.memory_latency is None
    assert any("not confirmed: the latency curve ends at" in said for said in found.conditions)
