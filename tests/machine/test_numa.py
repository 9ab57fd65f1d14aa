"""Ways between memory nodes, on machines whose every rate is written here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from roofline.machine.hardware import Duration, HardwareProfile, Provenance
from roofline.machine.measuring.crew import Array, Crew
from roofline.machine.measuring.estimation import Burst
from roofline.machine.nodes.numa import (
    Instruments,
    NumaFindings,
    Place,
    Plan,
    measure_links,
    parts,
    place,
    plan,
)
from roofline.machine.system.topology import Node, pages_migrate, read_nodes
from tests.machine.host_trees import Tree

GIB = 1 << 30
MIB = 1 << 20


def provenance(reference: str) -> Provenance:
    return Provenance(source="measured", reference=reference, date="2026-01-31")


def node(number: int, cpus: tuple[int, ...], free_bytes: int | None = 8 * GIB) -> Node:
    return Node(number=number, cpus=cpus, memory_bytes=16 * GIB, free_bytes=free_bytes)


@dataclass
class FakeNuma:
    """Nodes of `cores` cores each; a core reads the memory `hops` nodes away at 40 / (1 + hops)."""

    cores: int
    log: list[str] = field(default_factory=list)
    open_teams: int = 0

    @contextlib.contextmanager
    def team(self, cpus: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        self.open_teams += 1
        yield cpus
        self.open_teams -= 1

    def place(self, team: tuple[int, ...], byte: int) -> int:
        """Memory is the node that it is on: that of who wrote it first."""
        self.log.append(f"write {byte} on {team[0] // self.cores}")
        return team[0] // self.cores

    def read(self, team: tuple[int, ...], memory: int) -> tuple[float, list[Burst]]:
        assert self.open_teams
        here = team[0] // self.cores
        self.log.append(f"read {here} {memory}")
        bytes_per_s = len(team) * 40e9 / (1 + abs(here - memory))
        return 40e6, [Burst(wall_s=40e6 / bytes_per_s, cpu_s=0.0, busy=1.0)] * 4

    def latency(self, team: tuple[int, ...], memory: int) -> Duration:
        seconds = 80e-9 * (1 + abs(team[0] // self.cores - memory))
        return Duration(fast_s=seconds, median_s=seconds, provenance=provenance("chase"))

    @property
    def instruments(self) -> Instruments[tuple[int, ...], int]:
        return Instruments(team=self.team, place=self.place, read=self.read, latency=self.latency)


def fake_plan(nodes: int, cores: int) -> Plan:
    all_nodes = [node(n, tuple(range(n * cores, (n + 1) * cores))) for n in range(nodes)]
    return plan(
        all_nodes,
        cores=tuple(range(nodes * cores)),
        bytes_per_node=256 * MIB,
        available_bytes=8 * GIB,
    )


def measure(fake: FakeNuma, what: Plan, readings: int = 10**6, **options: bool) -> NumaFindings:
    left = iter(range(readings))
    return measure_links(
        what,
        fake.instruments,
        provenance=provenance,
        in_time=lambda: next(left, None) is not None,
        **options,
    )


@pytest.mark.parametrize("nodes", [2, 4])
def test_every_way_of_a_machine_is_found_as_it_is(nodes: int) -> None:
    fake = FakeNuma(cores=3)
    found = measure(fake, fake_plan(nodes, 3))
    assert len(found.links) == nodes**2
    for link in found.links:
        source, target = int(link.source.split()[-1]), int(link.target.split()[-1])
        hops = abs(source - target)
        assert link.peak_bytes_per_s == pytest.approx(3 * 40e9 / (1 + hops))
        assert link.sustained_bytes_per_s == pytest.approx(3 * 40e9 / (1 + hops))
        assert link.threads == 3
        assert link.latency is not None
        assert link.latency.median_s == pytest.approx(80e-9 * (1 + hops))
    assert [link.source for link in found.links[:nodes]] == [f"node {n}" for n in range(nodes)]
    assert [link.target for link in found.links[:nodes]] == [
        f"memory of node {n}" for n in range(nodes)
    ]
    assert found.conditions == ()
    assert fake.open_teams == 0
    # A profile takes them: no two are the same.
    HardwareProfile(name="fake", device="cpu", threads=3 * nodes, links=found.links)


def test_memory_is_written_once_by_its_own_node_and_ways_take_turns() -> None:
    fake = FakeNuma(cores=1)
    measure(fake, fake_plan(2, 1))
    assert fake.log[:2] == [f"write {256 * MIB} on 0", f"write {256 * MIB} on 1"]
    assert fake.log[2:] == ["read 0 0", "read 1 1", "read 0 1", "read 1 0"] * 3


def test_a_host_of_one_node_costs_nothing() -> None:
    fake = FakeNuma(cores=4)
    assert measure(fake, fake_plan(1, 4)) == NumaFindings()
    assert fake.log == []


def test_what_there_was_no_time_for_is_said() -> None:
    fake = FakeNuma(cores=1)
    found = measure(fake, fake_plan(2, 1), readings=3)
    assert [(link.source, link.target) for link in found.links] == [
        ("node 0", "memory of node 0"),
        ("node 1", "memory of node 1"),
        ("node 0", "memory of node 1"),
    ]
    assert all(link.latency is None for link in found.links)
    (said,) = found.conditions
    assert said.startswith("NUMA: 1 of 4 ways between nodes were not measured")


def test_pages_that_move_are_said() -> None:
    (said,) = measure(FakeNuma(cores=1), fake_plan(2, 1), migrating=True).conditions
    assert "numa_balancing is on" in said


def test_nodes_that_cannot_be_measured_are_left_out_and_named() -> None:
    nodes = [node(0, (0, 1)), node(1, (2, 3)), node(2, ()), node(3, (4,), free_bytes=300 * MIB)]
    what = plan(nodes, cores=(0, 1, 2, 4), bytes_per_node=256 * MIB, available_bytes=8 * GIB)
    assert what.places == (Place(node=0, cores=(0, 1)), Place(node=1, cores=(2,)))
    no_core, no_room = measure(FakeNuma(cores=2), what).conditions
    assert no_core == ("NUMA: not measured: memory of node 2: none of the cores in use is on it")
    assert no_room.startswith("NUMA: not measured: memory of node 3: 300 MiB free")


def test_too_little_memory_for_all_nodes_measures_none() -> None:
    what = plan(
        [node(0, (0,)), node(1, (1,))],
        cores=(0, 1),
        bytes_per_node=256 * MIB,
        available_bytes=GIB - 1,
    )
    assert what.places == ()
    fake = FakeNuma(cores=1)
    (said,) = measure(fake, what).conditions
    assert "512 MiB of memory are more than half" in said
    assert fake.log == []


def test_an_interrupt_closes_the_teams() -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    class Closing(FakeNuma):
        closed = 0

        @contextlib.contextmanager
        def team(self, cpus: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            try:
                yield cpus
            finally:
                self.closed += 1

    fake = Closing(cores=1)
    with pytest.raises(KeyboardInterrupt):
        measure_links(fake_plan(2, 1), fake.instruments, provenance=provenance, in_time=interrupt)
    assert fake.closed == 2


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


# --- memory that a crew writes first -------------------------------------------------------------


def test_every_byte_is_written_whatever_the_number_of_workers() -> None:
    byte = 7 * MIB + 4096
    with Crew(3) as crew:
        memory = place(crew, byte)
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


def test_real_crews_and_memory_fit_the_instruments() -> None:
    # Two nodes are played on whatever there is: workers that cannot be pinned work as well.
    read: list[int] = []

    def timed(crew: Crew, memory: Array) -> tuple[float, list[Burst]]:
        shares = parts(memory, crew.threads)
        read.append(sum(crew.each(lambda i: int(np.count_nonzero(shares[i]) > 0))))
        return float(memory.size), [Burst(wall_s=1e-3, cpu_s=1e-3, busy=1.0)] * 4

    what = Plan(
        places=(Place(node=0, cores=(0, 1)), Place(node=1, cores=(2,))), bytes_per_node=8 * MIB
    )
    found = measure_links(
        what,
        Instruments(team=lambda cpus: Crew(len(cpus), cpus), place=place, read=timed),
        provenance=provenance,
        in_time=lambda: True,
        rounds=1,
    )
    assert [link.threads for link in found.links] == [2, 1, 2, 1]
    assert read == [2, 1, 2, 1]
    assert found.links[0].peak_bytes_per_s == pytest.approx(8 * MIB / 1e-3)
