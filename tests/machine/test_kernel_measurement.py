"""What kernels find on a fake machine, and how honest it is about them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from roofline.errors import MeasurementError
from roofline.machine.hardware import Bandwidth, ComputeCeiling, HardwareProfile, MemoryLevel
from roofline.machine.measuring import kernel_measurement
from roofline.machine.system.topology import Node
from roofline.machine.theory.microarchitectures import core_named
from tests.machine.fake_machine import (
    SITUATION,
    FakeMachine,
    few_kernels,
    measure,
    measured,
    with_topology,
)
from tests.machine.simulated_caches import KIB, MIB, Simulated, reported_topology


def ceiling(profile: HardwareProfile, label: str, threads: int = 1) -> ComputeCeiling:
    (found,) = (c for c in profile.compute if (c.label, c.threads) == (label, threads))
    return found


def level(profile: HardwareProfile, name: str) -> MemoryLevel:
    (found,) = (each for each in profile.memory if each.name == name)
    return found


def bandwidth(profile: HardwareProfile, name: str, kernel: str, threads: int = 1) -> Bandwidth:
    (found,) = (
        b for b in level(profile, name).bandwidth if (b.kernel, b.threads) == (kernel, threads)
    )
    return found


def is_second(kernel: Any) -> bool:
    return kernel.label.endswith("second variant")


# --- two forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("second_is_faster", [False, True])
def test_of_forms_that_disagree_the_faster_counts_and_the_doubt_says_so(
    machine: FakeMachine, second_is_faster: bool
) -> None:
    machine.slowness = lambda kernel, now_s: (
        1.25 if is_second(kernel) is not second_is_faster else 1.0
    )
    profile, series = measure(machine)
    for threads in (1, 2):
        found = ceiling(profile, "float32 avx2 fma", threads)
        assert found.sustained_flop_per_s == pytest.approx(threads * 96e9, rel=1e-3)
        assert "second kernel variant reaches 80.0 % of it, 97 % expected" in found.doubt
        copy = bandwidth(profile, "DRAM", "copy", threads)
        assert copy.sustained_bytes_per_s == pytest.approx(threads * 10e9, rel=1e-3)
        assert "second kernel variant reaches 80.0 % of it, 97 % expected" in copy.doubt
    # Both are in the samples.
    assert {"fma float32 avx2, 1 thread", "fma float32 avx2, second variant, 1 thread"} <= {
        each.label for each in series
    }


# --- additions beside multiply-adds --------------------------------------------------------------


def test_a_mix_is_kept_where_it_is_higher(machine: FakeMachine) -> None:
    machine.mix = 1.33
    profile, _ = measure(machine)
    # On every unit and type, since the fake adders are extra everywhere.
    assert len({c.label for c in profile.compute if c.kernel == "fma-add"}) == 6
    rate = ceiling(profile, "float32 avx2 fma-add", 2).peak_flop_per_s
    assert rate == pytest.approx(1.33 * 192e9, rel=1e-3)


# --- on paper ------------------------------------------------------------------------------------


def test_what_a_known_core_would_do_on_paper_stands_beside_what_it_does(
    machine: FakeMachine,
) -> None:
    machine.core = core_named("AMD Zen 3")
    profile, _ = measure(machine)
    # Two multiply-adds of 256 bits a cycle at the 3 GHz that the clock kernel finds.
    paper = ceiling(profile, "float32 avx2 fma", 2).theoretical
    assert paper is not None
    assert paper.per_s == pytest.approx(2 * 3e9 * 2 * 8 * 2, rel=1e-3)
    assert paper.provenance.source == "derived"
    assert "2 threads x 3.00 GHz" in paper.provenance.note
    # Two loads of 32 bytes a cycle.
    read = bandwidth(profile, "L1", "read").theoretical
    assert read is not None
    assert read.per_s == pytest.approx(3e9 * 64, rel=1e-3)
    assert bandwidth(profile, "DRAM", "read").theoretical is None


def test_the_core_is_looked_for_among_the_cpus_that_are_used(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(kernel_measurement, "identify_core", lambda cpus: asked.append(cpus))
    with_topology(machine, cores=(4, 6, 8), available_cpus=3)
    measure(machine, threads=2)
    assert asked == [(4, 6)]


def test_a_clock_and_pages_that_the_system_did_not_promise_are_told(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    frequency = dataclasses.replace(machine.host_state.frequency, most_hz=4e9)
    machine.host_state = dataclasses.replace(machine.host_state, frequency=frequency)
    monkeypatch.setattr(kernel_measurement, "huge_page_bytes", lambda _: 1 << 20)
    profile, _ = measure(machine)
    pages, clock = profile.conditions
    assert pages.startswith("small pages: only 1 MiB of ")
    assert clock.startswith(
        "clock: measured 3.00 GHz is 25 % below the reported maximum of 4.00 GHz"
    )


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "limit", "capacity", "how"),
    [
        (2**34, None, 2**34, "reported by the operating system"),
        (2**34, 2**33, 2**33, "limit of the container (cgroup)"),
        (2**33, 2**34, 2**33, "reported by the operating system"),
        (None, 2**33, 2**33, "limit of the container (cgroup)"),
        (None, None, None, None),
        # Less than the L2 holds: not the memory that was measured.
        (2**34, 2**20, None, None),
    ],
)
def test_memory_is_what_the_system_says_within_the_container(
    total: int | None, limit: int | None, capacity: int | None, how: str | None
) -> None:
    host = dataclasses.replace(SITUATION, memory_bytes=total, memory_limit_bytes=limit)
    found, provenance = kernel_measurement.memory_capacity(host, caches_bytes=2 * MIB)
    assert (found, provenance and provenance.reference) == (capacity, how)


def test_wrong_reported_sizes_are_overruled_and_the_profile_says_so(machine: FakeMachine) -> None:
    """The hypervisor reports an L2 of 256 KiB; it has 768 KiB."""
    caches = tuple(
        dataclasses.replace(cache, size_bytes=256 * KIB) if cache.level == 2 else cache
        for cache in machine.host_state.topology.caches
    )
    with_topology(machine, caches=caches)
    machine.caches = Simulated(caches=((32 * KIB, 1e-9), (768 * KIB, 4e-9)), memory_s=80e-9)
    machine.host_state = dataclasses.replace(machine.host_state, memory_bytes=2**34)
    profile, _ = measure(machine)
    assert (profile.memory[-1].name, profile.memory_capacity_bytes) == ("DRAM", 2**34)
    found = level(profile, "L2")
    assert found.capacity_bytes is not None
    assert 768 * KIB <= found.capacity_bytes <= 1.25 * 768 * KIB
    assert found.capacity_provenance is not None
    assert found.capacity_provenance.source == "measured"
    assert "reported size 256 KiB, but latency curve: step" in found.capacity_provenance.reference
    assert [each for each in profile.conditions if each.startswith("L2: ")] == [
        f"L2: {found.capacity_provenance.reference}"
    ]
    # What is measured in it lies in it, and what is in memory is in no cache.
    assert bandwidth(profile, "L2", "read").sustained_bytes_per_s == pytest.approx(80e9, rel=1e-3)
    assert bandwidth(profile, "DRAM", "read").sustained_bytes_per_s == pytest.approx(10e9, rel=1e-3)


def test_more_teams_than_one_share_what_is_shared(machine: FakeMachine) -> None:
    topology = reported_topology(((1, 32 * KIB, 1), (2, 2 * MIB, 8)), cores=8)
    machine.host_state = dataclasses.replace(
        machine.host_state,
        topology=dataclasses.replace(topology, allowed_cpus=topology.cores, online_cpus=8),
    )
    profile, _ = measure(machine)
    assert profile.threads == 8
    assert {b.threads for b in level(profile, "L1").bandwidth} == {1, 8}
    # An eighth of 2 MiB is not four times L1, with which L2 could be measured on all threads.
    shares = {b.threads for b in level(profile, "L2").bandwidth}
    assert 1 in shares
    for found in level(profile, "L2").bandwidth:
        assert found.sustained_bytes_per_s == pytest.approx(80e9 * found.threads, rel=1e-2)


# --- kernels that do not run ---------------------------------------------------------------------


def test_without_clock_chase_and_read_the_rest_is_measured(machine: FakeMachine) -> None:
    machine.core = core_named("AMD Zen 3")
    machine.broken = dict.fromkeys(("clock", "pointer chase", "read avx"), "is refused by LLVM 1")
    profile, _ = measure(machine)
    assert set(profile.conditions) == {
        f"not measured: kernel '{label}' is refused by LLVM 1" for label in machine.broken
    }
    # No clock and nothing on paper; reported sizes stand, and there is no latency.
    assert profile.clock is None
    assert ceiling(profile, "float32 avx2 fma").theoretical is None
    assert [each.name for each in profile.memory] == ["L1", "L2", "DRAM"]
    assert (profile.latency_curve, profile.bandwidth_curves) == (None, ())
    assert {each.latency for each in profile.memory} == {None}
    provenance = level(profile, "L2").capacity_provenance
    assert provenance is not None
    assert (provenance.source, provenance.note) == (
        "datasheet",
        "not confirmed: no latency curve was measured",
    )
    assert {b.kernel for b in profile.memory[0].bandwidth} == {
        "write", "copy", "triad", "update", "write-nt", "copy-nt", "triad-nt"
    }  # fmt: skip


# --- samples -------------------------------------------------------------------------------------


def test_the_samples_hold_every_burst_behind_every_figure() -> None:
    profile, series = measured()
    by_label = {each.label: each for each in series}
    assert len(by_label) == len(series)
    quantities = {
        quantity: sum(each.quantity == quantity for each in series)
        for quantity in ("cycle", "flop", "byte", "load")
    }
    curves = profile.bandwidth_curves
    assert profile.latency_curve is not None
    assert quantities == {
        "cycle": 1,
        "flop": 2 * 2 * 17,  # forms x teams x kernels, lower mixes too
        "byte": 2 * 2 * 8 * 3 + sum(len(curve.size_bytes) for curve in curves),
        "load": len(profile.latency_curve.size_bytes),
    }
    for size, latency_s in zip(
        profile.latency_curve.size_bytes, profile.latency_curve.latency_s, strict=True
    ):
        each = by_label[f"latency of {size} byte"]
        assert each.bursts[0].wall_s / each.work == pytest.approx(latency_s, rel=0.01)


def test_a_host_of_another_architecture_has_no_kernels_and_says_so(machine: FakeMachine) -> None:
    host = dataclasses.replace(
        machine.host_state.host, architecture="riscv64", instruction_sets=("rv64gc",)
    )
    machine.host_state = dataclasses.replace(machine.host_state, host=host)
    with pytest.raises(
        MeasurementError, match=r"could be measured; .*no stream kernels for riscv64"
    ):
        measure(machine)


def test_a_thorough_measurement_has_time_for_links(machine: FakeMachine) -> None:
    nodes = tuple(Node(number=n, cpus=(n,), memory_bytes=1 << 30, free_bytes=None) for n in (0, 1))
    few_kernels(machine)
    machine.host_state = dataclasses.replace(machine.host_state, nodes=nodes)
    profile, _ = measure(machine, effort="thorough", budget_s=2.0)
    assert len(profile.links) == 4
