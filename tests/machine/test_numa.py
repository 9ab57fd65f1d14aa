"""Ways between memory nodes, on a fake machine and on nodes whose rates are written here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roofline.machine import numa
from roofline.machine.hardware import HardwareProfile
from roofline.machine.hierarchy.cache_sizes import Hierarchy
from roofline.machine.measuring.estimation import Burst, MeasuredFigures
from roofline.machine.measuring.pinned_threads import Array, PinnedThreads
from roofline.machine.numa import measure_node_links, parts, place, usable_nodes
from roofline.machine.system.host_state import HostState
from roofline.machine.system.topology import Node, pages_migrate, read_nodes
from tests.machine.fake_machine import READ, SITUATION, FakeMachine, install
from tests.machine.host_trees import Tree

GIB = 1 << 30
MIB = 1 << 20
NO_CACHES = Hierarchy(levels=(), memory_latency=None, conditions=())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    monkeypatch.setattr(numa, "pages_migrate", lambda root: False)
    return install(monkeypatch)


def node(number: int, cpus: tuple[int, ...], free_bytes: int | None = 8 * GIB) -> Node:
    return Node(number=number, cpus=cpus, memory_bytes=16 * GIB, free_bytes=free_bytes)


def host_state(*cpus: tuple[int, ...], free_bytes: int | None = None) -> HostState:
    cores = tuple(cpu for mine in cpus for cpu in mine)
    topology = dataclasses.replace(SITUATION.topology, cores=cores, available_cpus=len(cores))
    nodes = tuple(node(number, mine, free_bytes) for number, mine in enumerate(cpus))
    return dataclasses.replace(SITUATION, nodes=nodes, topology=topology)


def links(machine: FakeMachine, host_state: HostState, readings: int = 10**6) -> MeasuredFigures:
    left = iter(range(readings))
    read: Any = machine.compile(READ)
    return measure_node_links(
        host_state, read, NO_CACHES, in_time=lambda: next(left, None) is not None
    )


def test_all_cores_of_a_node_read_each_memory(machine: FakeMachine) -> None:
    found = links(machine, host_state((0, 1), (2, 3)))
    assert [(each.source, each.target) for each in found.links] == [
        ("node 0", "memory of node 0"),
        ("node 1", "memory of node 1"),
        ("node 0", "memory of node 1"),
        ("node 1", "memory of node 0"),
    ]
    for each in found.links:
        assert (each.kernel, each.threads) == ("read", 2)
        assert each.sustained_bytes_per_s == pytest.approx(20e9, rel=1e-3)
        assert each.provenance.source == "measured"
    assert found.conditions == ()


@dataclasses.dataclass
class FakeNuma:
    """Nodes of `cores` cores each; a core reads the memory `hops` nodes away at 40 / (1 + hops)."""

    cores: int
    log: list[str] = dataclasses.field(default_factory=list)
    workers_by_node: list[PinnedThreads] = dataclasses.field(default_factory=list)

    def place(self, workers: PinnedThreads, byte: int) -> Array:
        """Memory that says in each byte on which node it is: that of who wrote it first."""
        self.workers_by_node.append(workers)
        here = len(self.workers_by_node) - 1
        self.log.append(f"write {byte} on {here}")
        return np.full(8 * MIB, here, dtype=np.uint8)

    def trial(self, compiled: object, byte: int, memory: list[Array], again: bool) -> Any:
        fake, target = self, int(memory[0][0])

        class FakeTrial:
            work_per_burst, most_bursts = 40e6, None

            def calibrate(self, workers: PinnedThreads) -> None:
                assert workers.threads == len(memory)

            def run(self, workers: PinnedThreads, bursts: int) -> list[Burst]:
                source = fake.workers_by_node.index(workers)
                fake.log.append(f"read {source} {target}")
                bytes_per_s = workers.threads * 40e9 / (1 + abs(source - target))
                return [Burst(wall_s=40e6 / bytes_per_s, cpu_s=0.0, busy=1.0)] * 4

        return FakeTrial()


@pytest.fixture
def fake(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> FakeNuma:
    fake = FakeNuma(cores=1)
    monkeypatch.setattr(numa, "place", fake.place)
    monkeypatch.setattr(numa, "memory_trial", fake.trial)
    return fake


@pytest.mark.parametrize("nodes", [2, 4])
def test_every_way_of_a_machine_is_found_as_it_is(
    nodes: int, machine: FakeMachine, fake: FakeNuma
) -> None:
    found = links(machine, host_state(*[(3 * n, 3 * n + 1, 3 * n + 2) for n in range(nodes)]))
    assert len(found.links) == nodes**2
    for link in found.links:
        hops = abs(int(link.source.split()[-1]) - int(link.target.split()[-1]))
        assert link.peak_bytes_per_s == pytest.approx(3 * 40e9 / (1 + hops))
        assert link.sustained_bytes_per_s == pytest.approx(3 * 40e9 / (1 + hops))
        assert link.threads == 3
    assert [link.source for link in found.links[:nodes]] == [f"node {n}" for n in range(nodes)]
    assert [link.target for link in found.links[:nodes]] == [
        f"memory of node {n}" for n in range(nodes)
    ]
    # A profile takes them: no two are the same.
    HardwareProfile(name="fake", device="cpu", threads=3 * nodes, links=found.links)


def test_memory_is_written_once_by_its_own_node_and_ways_take_turns(
    machine: FakeMachine, fake: FakeNuma
) -> None:
    links(machine, host_state((0,), (1,)))
    assert fake.log[:2] == [f"write {64 * MIB} on 0", f"write {64 * MIB} on 1"]
    assert fake.log[2:] == ["read 0 0", "read 1 1", "read 0 1", "read 1 0"] * 3


@pytest.mark.parametrize("host", [SITUATION, host_state((0, 1))], ids=["not told", "one node"])
def test_a_single_node_is_left_alone(machine: FakeMachine, host: HostState) -> None:
    assert links(machine, host) == MeasuredFigures()
    assert machine.ran_ns == {}


def test_without_a_kernel_that_reads_nothing_is_measured(machine: FakeMachine) -> None:
    found = measure_node_links(host_state((0,), (1,)), None, NO_CACHES, in_time=lambda: True)
    assert found == MeasuredFigures()


def test_ways_that_there_is_no_time_for_are_said(machine: FakeMachine) -> None:
    found = links(machine, host_state((0,), (1,)), readings=3)
    assert [(link.source, link.target) for link in found.links] == [
        ("node 0", "memory of node 0"),
        ("node 1", "memory of node 1"),
        ("node 0", "memory of node 1"),
    ]
    (said,) = found.conditions
    assert said.startswith("NUMA: 1 of 4 links between nodes not measured, no time left")


def test_nodes_that_cannot_be_measured_are_left_out_and_named() -> None:
    nodes = [node(0, (0, 1)), node(1, (2, 3)), node(2, ()), node(3, (4,), free_bytes=300 * MIB)]
    found, (no_core, no_room) = usable_nodes(
        nodes, cores=(0, 1, 2, 4), bytes_per_node=256 * MIB, available_bytes=8 * GIB
    )
    assert found == {0: (0, 1), 1: (2,)}
    assert no_core == "memory of node 2: no core in use is on this node"
    assert no_room.startswith("memory of node 3: 300 MiB free")


def test_too_little_memory_is_said_before_it_is_allocated(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numa, "place", pytest.fail)
    found = links(machine, dataclasses.replace(host_state((0,), (1,)), available_bytes=200 << 20))
    (said,) = found.conditions
    assert said.startswith("NUMA, not measured: links between nodes")
    assert "128 MiB of memory are more than half of the 200 MiB available" in said
    full = links(machine, host_state((0,), (1,), free_bytes=1 << 20))
    assert full.links == ()
    assert len(full.conditions) == 2


def test_pages_that_move_are_told(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa, "pages_migrate", lambda root: True)
    (said,) = links(machine, host_state((0,), (1,))).conditions
    assert "numa_balancing is on" in said


def test_an_interrupt_closes_the_teams(machine: FakeMachine, fake: FakeNuma) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    read: Any = machine.compile(READ)
    with pytest.raises(KeyboardInterrupt):
        measure_node_links(host_state((0,), (1,)), read, NO_CACHES, in_time=interrupt)
    assert [workers.stopped for workers in fake.workers_by_node] == [True, True]


# --- nodes as the system shows them --------------------------------------------------------------


def test_nodes_are_read_with_their_cpus_and_memory(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/self/status", "Mems_allowed_list:\t0-1")
    tree.write("sys/devices/system/node/has_memory", "0-2")
    for number, cpus in enumerate(["0-3", "4-7", ""]):
        folder = f"sys/devices/system/node/node{number}"
        tree.write(f"{folder}/cpulist", cpus)
        tree.write(
            f"{folder}/meminfo",
            f"Node {number} MemTotal:       1024 kB\nNode {number} MemFree:  512 kB",
        )
    assert read_nodes(tmp_path) == (
        Node(number=0, cpus=(0, 1, 2, 3), memory_bytes=1 << 20, free_bytes=1 << 19),
        Node(number=1, cpus=(4, 5, 6, 7), memory_bytes=1 << 20, free_bytes=1 << 19),
    )
    assert read_nodes(tmp_path / "nothing") == ()


@pytest.mark.parametrize(("text", "moves"), [("", False), ("0", False), ("1", True), ("2", True)])
def test_whether_pages_migrate(tmp_path: Path, text: str, moves: bool) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/sys/kernel/numa_balancing", text)
    assert pages_migrate(tmp_path) == moves


# --- memory that threads write first -------------------------------------------------------------


def test_every_byte_is_written_whatever_the_number_of_workers() -> None:
    byte = 7 * MIB + 4096
    with PinnedThreads(3) as workers:
        memory = place(workers, byte)
    assert memory.size == byte
    # Noise has no page of zeros.
    pages = memory[: byte // 4096 * 4096].reshape(-1, 4096)
    assert np.all(np.any(pages != 0, axis=1))


def test_readers_get_equal_parts_that_do_not_overlap() -> None:
    memory = np.arange(9 * MIB, dtype=np.uint32).view(np.uint8)
    shares = parts(memory, 4)
    assert {share.size for share in shares} == {8 * MIB}
    starts = [int(share.view(np.uint32)[0]) * 4 for share in shares]
    assert starts == [0, 8 * MIB, 16 * MIB, 24 * MIB]
    with pytest.raises(ValueError, match="too few for 30 readers"):
        parts(memory, 30)
