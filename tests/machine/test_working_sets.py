"""Working sets for machines whose caches are written down by hand."""

from __future__ import annotations

import pytest

from roofline.errors import MeasurementError
from roofline.machine.topology import Cache, Topology
from roofline.machine.working_sets import cache_working_sets, memory_working_set

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def topology(cores: int, *caches: tuple[int, int, int]) -> Topology:
    """`cores` cores; each cache as (level, bytes, cores that share an instance)."""
    return Topology(
        available_cpus=cores,
        cores=tuple(range(cores)),
        hidden_siblings=0,
        quota_cpus=None,
        caches=tuple(
            Cache(level=level, size_byte=byte, cpus=tuple(range(first, first + sharing)))
            for level, byte, sharing in caches
            for first in range(0, cores, sharing)
        ),
    )


ZEN = topology(8, (1, 48 * KIB, 1), (2, MIB, 1), (3, 32 * MIB, 8))


def test_working_sets_of_one_thread_and_of_all() -> None:
    one = {s.level: s for s in cache_working_sets(ZEN, 1)}
    assert {name: s.byte_per_thread for name, s in one.items()} == {
        "L1": 24 * KIB,
        "L2": 512 * KIB,
        "L3": 4 * MIB,
    }
    assert [s.scope for s in one.values()] == ["private", "private", "shared"]
    assert one["L3"].capacity_byte == 32 * MIB
    every = {s.level: s.byte_per_thread for s in cache_working_sets(ZEN, 8)}
    # Half of a thread's share of 4 MiB, twice its L2.
    assert every["L3"] == 2 * MIB


def test_a_last_level_no_larger_than_the_one_before_is_left_out() -> None:
    server = topology(4, (1, 48 * KIB, 1), (2, 2 * MIB, 1), (3, 7 * MIB, 4))
    assert [s.level for s in cache_working_sets(server, 4)] == ["L1", "L2"]


def test_a_small_second_level_gets_more_than_four_times_the_first() -> None:
    client = topology(1, (1, 32 * KIB, 1), (2, 192 * KIB, 1))
    sizes = {s.level: s.byte_per_thread for s in cache_working_sets(client, 1)}
    assert sizes["L2"] == 128 * KIB


def test_a_shared_second_level_and_no_third() -> None:
    arm = topology(8, (1, 128 * KIB, 1), (2, 12 * MIB, 4))
    one, every = cache_working_sets(arm, 1), cache_working_sets(arm, 8)
    assert [(s.level, s.scope, s.byte_per_thread) for s in one] == [
        ("L1", "private", 64 * KIB),
        ("L2", "shared", 6 * MIB),
    ]
    assert every[1].byte_per_thread == 3 * MIB // 2


def test_no_known_cache_no_cache_level() -> None:
    assert cache_working_sets(topology(4), 4) == []


def test_the_working_set_says_where_it_comes_from() -> None:
    assert cache_working_sets(ZEN, 1)[0].note == (
        "24 KiB per thread in L1 of 48 KiB (reported by the operating system)"
    )


@pytest.mark.parametrize("threads", [1, 8])
def test_memory_takes_many_times_the_last_cache(threads: int) -> None:
    found = memory_working_set(ZEN, threads, 16 * GIB)
    assert found.level == "DRAM"
    assert found.byte_per_thread * threads == 256 * MIB


def test_memory_takes_no_more_than_a_quarter_of_what_is_free() -> None:
    assert memory_working_set(ZEN, 1, 600 * MIB).byte_per_thread == 150 * MIB
    with pytest.raises(MeasurementError, match=r"takes 128 MiB .* of the 400 MiB available"):
        memory_working_set(ZEN, 1, 400 * MIB)


def test_large_caches_take_four_times_their_size() -> None:
    server = topology(16, (1, 32 * KIB, 1), (3, 256 * MIB, 8))
    assert memory_working_set(server, 1, 64 * GIB).byte_per_thread == GIB
    assert memory_working_set(server, 16, 64 * GIB).byte_per_thread * 16 == 2 * GIB


def test_without_known_caches_memory_takes_64_mib() -> None:
    assert memory_working_set(topology(2), 2, GIB).byte_per_thread == 32 * MIB
