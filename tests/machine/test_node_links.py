"""Ways between the nodes of a fake machine, with the read kernel on its fake clock."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from roofline.machine.hierarchy.cache_sizes import Hierarchy
from roofline.machine.kernels.assembly import stream_unit
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.nodes import numa
from roofline.machine.nodes.numa import NumaFindings, measure_node_links
from roofline.machine.system.situation import Situation
from roofline.machine.system.topology import Node
from tests.machine.fake_machine import SITUATION, FakeMachine, install

UNIT = stream_unit("x86_64", ("avx", "fma"))
assert UNIT is not None
(READ,) = (k for k in stream_kernels(UNIT, non_temporal=False) if k.name == "read")
NO_CACHES = Hierarchy(levels=(), memory_latency=None, conditions=())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    monkeypatch.setattr(numa, "pages_migrate", lambda root: False)
    return install(monkeypatch)


def nodes(*cpus: tuple[int, ...], free_bytes: int | None = None) -> Situation:
    return dataclasses.replace(
        SITUATION,
        nodes=tuple(
            Node(number=number, cpus=mine, memory_bytes=1 << 30, free_bytes=free_bytes)
            for number, mine in enumerate(cpus)
        ),
    )


def links(machine: FakeMachine, situation: Situation, readings: int = 10**6) -> NumaFindings:
    left = iter(range(readings))
    read: Any = machine.compile(READ)
    return measure_node_links(
        situation, read, NO_CACHES, in_time=lambda: next(left, None) is not None
    )


def test_every_way_between_two_nodes_is_measured(machine: FakeMachine) -> None:
    found = links(machine, nodes((0,), (1,)))
    assert [(each.source, each.target) for each in found.links] == [
        ("node 0", "memory of node 0"),
        ("node 1", "memory of node 1"),
        ("node 0", "memory of node 1"),
        ("node 1", "memory of node 0"),
    ]
    for each in found.links:
        assert (each.kernel, each.threads) == ("read", 1)
        assert each.sustained_bytes_per_s == pytest.approx(10e9, rel=1e-3)
        assert each.provenance.source == "measured"
    assert found.conditions == ()


def test_all_cores_of_a_node_read(machine: FakeMachine) -> None:
    situation = nodes((0, 1), (2, 3))
    topology = dataclasses.replace(situation.topology, cores=(0, 1, 2, 3), available_cpus=4)
    found = links(machine, dataclasses.replace(situation, topology=topology))
    assert [each.threads for each in found.links] == [2] * 4
    assert found.links[2].sustained_bytes_per_s == pytest.approx(20e9, rel=1e-3)


@pytest.mark.parametrize("situation", [SITUATION, nodes((0, 1))], ids=["not told", "one node"])
def test_a_single_node_is_left_alone(machine: FakeMachine, situation: Situation) -> None:
    assert links(machine, situation) == NumaFindings()
    assert machine.ran_ns == {}


def test_without_a_kernel_that_reads_nothing_is_measured(machine: FakeMachine) -> None:
    found = measure_node_links(nodes((0,), (1,)), None, NO_CACHES, in_time=lambda: True)
    assert found == NumaFindings()


def test_ways_that_there_is_no_time_for_are_said(machine: FakeMachine) -> None:
    found = links(machine, nodes((0,), (1,)), readings=3)
    assert len(found.links) == 3
    (said,) = found.conditions
    assert said.startswith("NUMA: 1 of 4 ways between nodes were not measured: no time was left")


def test_too_little_memory_is_said_before_it_is_allocated(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numa, "place", pytest.fail)
    found = links(machine, dataclasses.replace(nodes((0,), (1,)), available_bytes=200 << 20))
    (said,) = found.conditions
    assert "128 MiB of memory are more than half of the 200 MiB available" in said
    full = links(machine, nodes((0,), (1,), free_bytes=1 << 20))
    assert full.links == ()
    assert len(full.conditions) == 2


def test_pages_that_move_are_told(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "pages_migrate", lambda root: True)
    found = links(machine, nodes((0,), (1,)))
    (said,) = found.conditions
    assert "numa_balancing is on" in said
