"""Working sets for machines whose caches are written down by hand."""

from __future__ import annotations

import pytest

from roofline.machine.hardware import Provenance
from roofline.machine.hierarchy.cache_sizes import find_levels
from roofline.machine.hierarchy.working_sets import (
    CacheLevel,
    WorkingSet,
    first_curve_bytes,
    max_curve_bytes,
    note_instances,
    plan_working_sets,
)
from roofline.machine.system.topology import Topology
from tests.machine.simulated_caches import GIB, KIB, MIB, reported_topology


def topology(cores: int, *caches: tuple[int, int, int]) -> Topology:
    """`cores` cores; each cache as (level, bytes, cores that share an instance)."""
    return reported_topology(caches, cores)


ZEN = topology(8, (1, 48 * KIB, 1), (2, MIB, 1), (3, 32 * MIB, 8))


def planned(
    host: Topology, threads: int, available_bytes: int = 64 * GIB
) -> tuple[dict[str, WorkingSet], list[str]]:
    levels = find_levels(None, host).levels
    sets, conditions = plan_working_sets(levels, host, (threads,), available_bytes)
    return {each.level: each for each in sets}, conditions


def test_working_sets_of_one_thread_and_of_all() -> None:
    one, conditions = planned(ZEN, 1)
    assert {name: s.bytes_per_thread for name, s in one.items()} == {
        "L1": 24 * KIB,
        "L2": 512 * KIB,
        "L3": 4 * MIB,
        "DRAM": 256 * MIB,
    }
    assert conditions == []
    assert [s.scope for s in one.values()] == ["private", "private", "shared", "shared"]
    assert [s.capacity_bytes for s in one.values()] == [48 * KIB, MIB, 32 * MIB, None]
    every, _ = planned(ZEN, 8)
    # Half of a thread's share of 4 MiB, twice its L2.
    assert every["L3"].bytes_per_thread == 2 * MIB
    assert every["DRAM"].bytes_per_thread == 32 * MIB
    # Teams come one after the other.
    sets, _ = plan_working_sets(find_levels(None, ZEN).levels, ZEN, (1, 8), 64 * GIB)
    assert sets == [*one.values(), *every.values()]


SERVER = topology(16, (1, 32 * KIB, 1), (3, 256 * MIB, 8))


@pytest.mark.parametrize(
    ("host", "threads", "sizes"),
    [
        # A last level no larger than the one before is left out.
        (
            topology(4, (1, 48 * KIB, 1), (2, 2 * MIB, 1), (3, 7 * MIB, 4)),
            4,
            {"L1": 24 * KIB, "L2": MIB, "DRAM": 16 * MIB},
        ),
        # A small second level gets more than four times the first.
        (
            topology(1, (1, 32 * KIB, 1), (2, 192 * KIB, 1)),
            1,
            {"L1": 16 * KIB, "L2": 128 * KIB, "DRAM": 64 * MIB},
        ),
        (topology(4), 4, {"DRAM": 16 * MIB}),
        # Large caches take four times their size.
        (SERVER, 1, {"L1": 16 * KIB, "L3": 32 * MIB, "DRAM": GIB}),
        (SERVER, 16, {"L1": 16 * KIB, "L3": 4 * MIB, "DRAM": 128 * MIB}),
    ],
)
def test_working_sets_of_other_hosts(host: Topology, threads: int, sizes: dict[str, int]) -> None:
    found, conditions = planned(host, threads)
    assert {name: each.bytes_per_thread for name, each in found.items()} == sizes
    assert conditions == []


def test_a_shared_second_level_and_no_third() -> None:
    arm = topology(8, (1, 128 * KIB, 1), (2, 12 * MIB, 4))
    one, _ = planned(arm, 1)
    assert [(s.level, s.scope, s.bytes_per_thread) for s in one.values()] == [
        ("L1", "private", 64 * KIB),
        ("L2", "shared", 6 * MIB),
        ("DRAM", "shared", 96 * MIB),
    ]
    every, _ = planned(arm, 8)
    assert every["L2"].bytes_per_thread == 3 * MIB // 2
    # All threads reach both second levels.
    assert every["DRAM"].bytes_per_thread * 8 == 192 * MIB


def level(number: int, capacity_bytes: int, held_bytes: int) -> CacheLevel:
    return CacheLevel(
        level=number,
        capacity_bytes=capacity_bytes,
        held_bytes=held_bytes,
        scope="private" if number < 3 else "shared",
        provenance=Provenance(source="measured", reference="found by hand", date=""),
    )


def test_levels_that_nobody_reported_are_private_or_of_all() -> None:
    bare = topology(4)
    levels = [
        level(1, 52 * KIB, 44 * KIB),
        level(2, 1120 * KIB, 700 * KIB),
        level(3, 44 * MIB, 26 * MIB),
    ]
    sets, conditions = plan_working_sets(levels, bare, (1, 4), 64 * GIB)
    found = {(s.level, s.threads): s for s in sets}
    # Half of what is sure to be held; the capacity is the larger size.
    assert found["L1", 4].bytes_per_thread == 22 * KIB
    assert found["L1", 4].capacity_bytes == 52 * KIB
    assert found["L3", 1].bytes_per_thread == 4 * 1120 * KIB
    assert found["L3", 4].bytes_per_thread == 26 * MIB // 4 // 2
    assert found["DRAM", 4].bytes_per_thread * 4 == 8 * 44 * MIB
    assert conditions == []


def test_a_shared_cache_counts_with_all_instances_in_reach() -> None:
    # Two dies of 8 cores, each with an L3 of 32 MiB.
    host = topology(16, (1, 32 * KIB, 1), (2, MIB, 1), (3, 32 * MIB, 8))
    levels = [note_instances(each, range(16)) for each in find_levels(None, host).levels]
    sets, _ = plan_working_sets(levels, host, (1, 16), 64 * GIB)
    found = {(s.level, s.threads): s for s in sets}
    # Whichever team a profile takes the capacity from, it is what the largest reaches.
    assert found["L3", 1].capacity_bytes == found["L3", 16].capacity_bytes == 64 * MIB
    assert found["L2", 16].capacity_bytes == MIB
    # A thread's working set follows the one instance that it uses.
    assert found["L3", 1].bytes_per_thread == 4 * MIB
    assert found["L3", 16].bytes_per_thread == 2 * MIB
    assert found["L3", 1].source.startswith("2 instances of 32 MiB; reported by")
    assert not levels[1].provenance.reference.startswith("16 instances")
    # Of 8 threads all are on the first die.
    (eight,) = (s for s in plan_working_sets(levels, host, (8,), GIB)[0] if s.level == "L3")
    assert eight.capacity_bytes == 32 * MIB
    assert note_instances(levels[2], range(8)) == levels[2]


def test_no_level_holds_less_than_all_instances_of_the_one_before_it() -> None:
    # Sierra Forest: second levels of 4 MiB for four cores each.
    host = topology(144, (1, 32 * KIB, 1), (2, 4 * MIB, 4), (3, 108 * MIB, 144))
    every, _ = planned(host, 144)
    levels = [(each.level, each.capacity_bytes) for each in every.values()]
    assert levels[:2] == [("L1", 32 * KIB), ("L2", 144 * MIB)]
    one, _ = plan_working_sets(find_levels(None, host).levels, host, (1, 144), 64 * GIB)
    assert {s.capacity_bytes for s in one if s.level == "L3"} == {144 * MIB}


@pytest.mark.parametrize(("available_gib", "most_mib"), [(64, 1024), (2, 512)])
def test_the_curve_is_extended_as_far_as_memory_allows(available_gib: int, most_mib: int) -> None:
    assert max_curve_bytes(available_gib * GIB) == most_mib * MIB


def test_the_working_set_says_where_its_capacity_comes_from() -> None:
    sets, _ = plan_working_sets([level(1, 52 * KIB, 44 * KIB)], topology(1), (1,), GIB)
    assert sets[0].note == "22 KiB per thread in L1 of 52 KiB (found by hand)"
    assert sets[1].note == "64 MiB per thread"


# --- scarce memory -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "available_mib", "dram_mib", "said"),
    [
        *((8, all_of, part, "") for all_of, part in ((4096, 256), (1200, 150), (1024, 128))),
        *((8, all_of, 128, "") for all_of in (600, 512)),
        (
            *(1, 256, 64),
            "DRAM on 1 thread: working sets of 64 MiB instead of 128 MiB, only 256 MiB of memory"
            " available; partly served by the last-level cache",
        ),
        # What a cache would hold is not called memory.
        (
            *(8, 200, None),
            "DRAM on 8 threads not measured: only 200 MiB of memory available; a quarter of it is"
            " less than the 64 MiB that exceed the caches",
        ),
    ],
)
def test_memory_takes_an_eighth_and_a_quarter_if_it_must(
    threads: int, available_mib: int, dram_mib: int | None, said: str
) -> None:
    found, conditions = planned(ZEN, threads, available_mib * MIB)
    assert conditions == ([said] if said else [])
    assert list(found)[:3] == ["L1", "L2", "L3"]
    dram = found.get("DRAM")
    assert (dram and dram.bytes_per_thread * threads) == (dram_mib and dram_mib * MIB)


@pytest.mark.parametrize(
    ("host", "available_mib", "curve_mib"),
    [
        (ZEN, 64 * 1024, 128),
        (ZEN, 600, 75),
        (ZEN, 256, 64),
        (ZEN, 100, 25),
        (topology(2), 64 * 1024, 256),
        (topology(2), 256, 64),
        (topology(8, (3, 384 * MIB, 8)), 64 * 1024, 1024),
    ],
)
def test_the_curve_ends_at_four_times_the_last_cache_or_where_memory_does(
    host: Topology, available_mib: int, curve_mib: int
) -> None:
    assert first_curve_bytes(host, available_mib * MIB) == curve_mib * MIB


@pytest.mark.parametrize("available_mib", [100, 256, 300, 600, 2048, 20000])
@pytest.mark.parametrize("cores", [1, 2, 8])
def test_buffers_never_take_more_than_half_of_the_memory(available_mib: int, cores: int) -> None:
    host = topology(cores, (1, 48 * KIB, 1), (2, MIB, 1), (3, 32 * MIB, cores))
    available = available_mib * MIB
    sets, _ = plan_working_sets(find_levels(None, host).levels, host, (1, cores), available)
    buffers = [max(s.bytes_per_thread for s in sets if i < s.threads) for i in range(cores)]
    assert sum(buffers) <= available // 2
    # The curve's: one for the chase, then read by one thread and, in parts, by all.
    assert 2 * first_curve_bytes(host, available) <= available // 2
