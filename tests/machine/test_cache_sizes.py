"""Cache sizes found in the curves of published machines, against what a system may report."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from roofline.machine.hardware import LatencyCurve, Provenance
from roofline.machine.hierarchy.cache_sizes import Hierarchy, Step, find_levels, find_steps
from roofline.machine.hierarchy.curves import Latencies, measure_latencies
from roofline.machine.hierarchy.working_sets import note_instances
from roofline.machine.system.topology import Cache
from tests.machine.simulated_caches import (
    HIERARCHIES,
    KIB,
    MIB,
    POLICIES,
    Policy,
    Simulated,
    reported_topology,
    simulated_machine,
)

SEEDS = range(4)


def measured(machine: Simulated, largest_bytes: int | None = None) -> Latencies:
    return measure_latencies(
        machine.time_chase,
        largest_bytes=largest_bytes or 4 * machine.caches[-1][0],
        deadline=0.0,
        clock=machine.clock,
    )


def assert_right(machine: Simulated, steps: list[Step], context: object) -> None:
    """Every cache lies between the edges of its step, to half a distance of the grid."""
    sizes = [size for size, _ in machine.caches]
    edges = [(step.lower_bytes, step.upper_byte) for step in steps]
    assert len(edges) == len(sizes), (context, edges)
    for size, (low, high) in zip(sizes, edges, strict=True):
        assert low / 1.1 <= size <= high * 1.1, (context, size, edges)
        # Random replacement serves half of twice the cache; the next size of the grid may follow.
        assert high <= 2.3 * size, (context, size, edges)
    if machine.policy == "lru" and not machine.noise:
        for size, (low, high) in zip(sizes, edges, strict=True):
            assert size / 1.3 <= low <= size <= high <= 1.3 * size


@pytest.mark.parametrize("name", HIERARCHIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_published_hierarchies_are_found(name: str, policy: Policy) -> None:
    machine = simulated_machine(name, policy)
    assert_right(machine, find_steps(measured(machine).curve), policy)
    for seed, outliers in itertools.product(SEEDS, (0.0, 0.1)):
        noisy = simulated_machine(name, policy, noise=0.05, outliers=outliers, seed=seed)
        assert_right(noisy, find_steps(measured(noisy).curve), (policy, seed, outliers))


@pytest.mark.parametrize("place", range(0, 38, 3))
@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_one_size_that_is_far_off_moves_no_edge_by_more_than_a_size(
    place: int, factor: float
) -> None:
    curve = measured(simulated_machine("Zen 5")).curve
    latencies = list(curve.latency_s)
    place = min(place, len(latencies) - 1)
    latencies[place] *= factor
    bent = LatencyCurve(
        size_bytes=curve.size_bytes, latency_s=tuple(latencies), provenance=curve.provenance
    )
    found, straight = find_steps(bent), find_steps(curve)
    assert len(found) == 3
    for one, other in zip(found, straight, strict=True):
        assert other.upper_byte / 1.3 <= one.upper_byte <= 1.3 * other.upper_byte


def curve_of(*points: tuple[float, float]) -> LatencyCurve:
    return LatencyCurve(
        size_bytes=tuple(round(kib * KIB) for kib, _ in points),
        latency_s=tuple(ns * 1e-9 for _, ns in points),
        provenance=Provenance(source="measured", reference="by hand", date=""),
    )


def test_a_flat_curve_has_no_steps() -> None:
    assert find_steps(curve_of(*((16 * 2**n, 1 + 0.02 * (n % 3)) for n in range(12)))) == []
    assert find_steps(curve_of((16, 1.0))) == []


def test_edges_worked_out_by_hand() -> None:
    # At 48 KiB a fifth of the way from 1 to 11 ns, 80 % is served: 38.4 KiB. At 64 KiB 40 %.
    (step,) = find_steps(
        curve_of((16, 1), (24, 1), (32, 1), (48, 3), (64, 7), (128, 11), (256, 11), (512, 11))
    )
    assert step.lower_bytes == round(0.8 * 48 * KIB)
    assert step.upper_byte == 64 * KIB
    assert step.far_s / step.near_s == pytest.approx(11)


def test_a_translation_buffer_that_misses_is_no_level() -> None:
    # Small pages: half again as much from 256 KiB in L2 on, and from 6 MiB in L3 on.
    sizes = [16 * 2 ** (n / 2) for n in range(28)]

    def latency(kib: float) -> float:
        if kib <= 32:
            return 1.2
        near = 4.4 if kib <= 1024 else 20.0
        if kib > 32 * KIB:
            return 95.0
        return near * (1.5 if 256 < kib <= 1024 or kib > 6 * KIB else 1.0)

    assert len(find_steps(curve_of(*((kib, latency(kib)) for kib in sizes)))) == 3


def test_neighbours_that_hold_a_part_of_the_cache_make_no_level() -> None:
    # As measured on a busy host: 32 MiB shared, latency rising from a third of that on.
    busy = curve_of(
        *((16, 1.0), (22, 1.0), (29, 1.0), (44, 1.0), (52, 3.5), (58, 3.5), (88, 3.5), (116, 3.5)),
        *((176, 3.5), (232, 3.5), (352, 3.5), (464, 3.8), (560, 4.0), (704, 4.4), (832, 5.1)),
        *((928, 7.3), (1120, 8.9), (1408, 11.5), (1664, 12.8), (1856, 13.9), (2816, 12.2)),
        *((3712, 12.7), (5632, 13.4), (7424, 13.6), (11264, 14.6), (14848, 16.3), (17920, 17.9)),
        *((22528, 22.9), (26624, 28.5), (29696, 34.4), (35840, 46.3), (45056, 73.6), (59392, 97.8)),
        *((71680, 117.6), (90112, 118.5), (118784, 134.7)),
    )
    steps = find_steps(busy)
    assert [step.upper_byte / KIB for step in steps] == [52, 1120, 45056]
    assert steps[2].lower_bytes <= 32 * MIB


# --- against what the system reports -------------------------------------------------------------

ZEN_5 = ((1, 48 * KIB, 1), (2, MIB, 1), (3, 32 * MIB, 8))


def found(
    *caches: tuple[int, int, int], machine: str = "Zen 5", largest_bytes: int | None = None
) -> Hierarchy:
    latencies = measured(simulated_machine(machine, noise=0.03), largest_bytes)
    return find_levels(latencies, reported_topology(caches))


def sizes_of(hierarchy: Hierarchy) -> list[tuple[str, int, str]]:
    return [(each.name, each.capacity_bytes, each.scope) for each in hierarchy.levels]


def test_what_the_curve_confirms_has_the_reported_size() -> None:
    hierarchy = found(*ZEN_5)
    assert sizes_of(hierarchy) == [
        ("L1", 48 * KIB, "private"),
        ("L2", MIB, "private"),
        ("L3", 32 * MIB, "shared"),
    ]
    assert hierarchy.conditions == ()
    first = hierarchy.levels[0]
    assert first.provenance.source == "measured"
    assert first.provenance.reference == (
        "reported by the operating system, confirmed by the latency curve:"
        " step between 44 and 52 KiB"
    )
    assert first.held_bytes == 48 * KIB
    assert hierarchy.levels[2].groups == (tuple(range(8)),)


def test_each_level_has_the_latency_that_it_has() -> None:
    hierarchy = found(*ZEN_5)
    latencies = [each.latency for each in hierarchy.levels] + [hierarchy.memory_latency]
    for latency, ns in zip(latencies, (1.0, 3.5, 14.0, 120.0), strict=True):
        assert latency is not None
        assert latency.median_s == pytest.approx(ns * 1e-9, rel=0.04)
        assert latency.fast_s <= latency.median_s
        assert latency.spread is not None
        assert "dependent loads" in latency.provenance.reference


@pytest.mark.parametrize("name", HIERARCHIES)
def test_true_reports_are_confirmed(name: str) -> None:
    machine = simulated_machine(name, "random", noise=0.05, outliers=0.1)
    caches = [
        (level, size, 8 if level > 2 else 1) for level, (size, _) in enumerate(machine.caches, 1)
    ]
    hierarchy = find_levels(measured(machine), reported_topology(tuple(caches)))
    assert [each.capacity_bytes for each in hierarchy.levels] == [size for _, size, _ in caches]
    assert hierarchy.conditions == ()


@pytest.mark.parametrize(
    ("level", "reported", "least", "most", "held", "said"),
    [
        (
            *(3, 384 * MIB, 32 * MIB, 36 * MIB, 32 * MIB),
            "L3: reported size 384 MiB, but latency curve: step between 29 and"
            " 35 MiB; upper edge used",
        ),
        (3, 16 * MIB, 32 * MIB, 36 * MIB, 32 * MIB, "L3: reported size 16 MiB"),
        # A core's own cache has no neighbours, but another thread of the core may hold half.
        (2, 3 * MIB, MIB, 1.2 * MIB, 1.2 * MIB, "L2: reported size 3 MiB"),
        (2, 2 * MIB, 2 * MIB, 2 * MIB, 1.2 * MIB, "other guests may use the rest"),
        # The larger size stands for bounds, the smaller for working sets.
        (3, 64 * MIB, 64 * MIB, 64 * MIB, 32 * MIB, "other guests may use the rest"),
    ],
)
def test_a_size_that_the_curve_does_not_confirm(
    level: int, reported: int, least: int, most: int, held: int, said: str
) -> None:
    caches = [
        (number, reported if number == level else size, sharing) for number, size, sharing in ZEN_5
    ]
    hierarchy = found(*caches, largest_bytes=1024 * MIB if reported > 64 * MIB else None)
    doubted = hierarchy.levels[level - 1]
    assert least <= doubted.capacity_bytes <= most
    assert doubted.held_bytes <= held
    (condition,) = hierarchy.conditions
    assert said in condition
    assert condition == f"{doubted.name}: {doubted.provenance.reference}"


def test_the_only_core_of_a_guest_has_neighbours_too() -> None:
    latencies = measured(simulated_machine("Zen 5"))
    guest = reported_topology(((1, 48 * KIB, 1), (2, MIB, 1), (3, 64 * MIB, 1)), cores=1)
    assert find_levels(latencies, guest).levels[2].capacity_bytes == 64 * MIB


def test_without_a_report_all_levels_come_from_the_curve() -> None:
    hierarchy = found(largest_bytes=256 * MIB)
    assert [(name, scope) for name, _, scope in sizes_of(hierarchy)] == [
        ("L1", "private"),
        ("L2", "private"),
        ("L3", "shared"),
    ]
    for each, true in zip(hierarchy.levels, (48 * KIB, MIB, 32 * MIB), strict=True):
        assert each.held_bytes <= true <= each.capacity_bytes <= 1.2 * true
    assert hierarchy.conditions[0] == (
        "L1: size not reported; latency curve: step between 44 and 52 KiB;"
        " assumed private to each core"
    )
    assert hierarchy.conditions[2].endswith("assumed shared by all cores")


def test_a_level_that_is_not_reported_is_added() -> None:
    hierarchy = found((1, 48 * KIB, 1), (3, 384 * MIB, 8), largest_bytes=512 * MIB)
    assert [name for name, _, _ in sizes_of(hierarchy)] == ["L1", "L2", "L3"]
    assert MIB <= hierarchy.levels[1].capacity_bytes < 1.2 * MIB
    assert len(hierarchy.conditions) == 2


def test_a_reported_level_without_a_step_stays_and_is_marked() -> None:
    hierarchy = found(
        *((1, 128 * KIB, 1), (2, 12 * MIB, 8), (3, 24 * MIB, 8)),
        machine="Apple M1",
        largest_bytes=96 * MIB,
    )
    assert sizes_of(hierarchy)[2] == ("L3", 24 * MIB, "shared")
    last = hierarchy.levels[2]
    assert last.provenance.source == "datasheet"
    assert last.latency is None
    assert hierarchy.conditions == (
        "L3: reported size of 24 MiB not confirmed: the latency curve has no step for it",
    )


def test_a_curve_that_had_to_end_early_confirms_less() -> None:
    hierarchy = found(*ZEN_5, largest_bytes=24 * MIB)
    assert [each.capacity_bytes for each in hierarchy.levels] == [48 * KIB, MIB, 32 * MIB]
    assert hierarchy.memory_latency is None
    assert hierarchy.conditions == (
        "L3: reported size of 32 MiB not confirmed: the latency curve ends at 24 MiB",
    )


def test_what_is_faster_than_any_memory_is_a_cache_however_large() -> None:
    # 16 MiB reported where there are 96: the curve to 64 MiB never leaves the cache.
    machine = "Zen 3 V-Cache"
    hierarchy = found(
        *((1, 32 * KIB, 1), (2, 512 * KIB, 1), (3, 16 * MIB, 8)),
        machine=machine,
        largest_bytes=64 * MIB,
    )
    assert sizes_of(hierarchy)[2] == ("L3", 64 * MIB, "shared")
    assert hierarchy.memory_latency is None
    assert hierarchy.conditions == (
        "L3: reported as 16 MiB, but working sets of 64 MiB take 15.0 ns per load, less"
        " than any memory; assumed size: 64 MiB, its lower limit",
    )
    hierarchy = found(machine=machine, largest_bytes=64 * MIB)
    assert sizes_of(hierarchy)[2] == ("L3", 64 * MIB, "shared")
    assert "L3: size not reported, but" in hierarchy.conditions[2]
    assert hierarchy.memory_latency is None


@pytest.mark.parametrize(("memory_ns", "beyond_ns"), [(100, 170), (65, 110), (75, 140)])
def test_translation_buffers_that_miss_in_memory_confirm_no_cache(
    memory_ns: float, beyond_ns: float
) -> None:
    # 256 MiB reported where there are 32; what "holds" 128 MiB are translations.
    machine = Simulated(
        caches=((48 * KIB, 1e-9), (MIB, 3.5e-9), (32 * MIB, 12e-9), (128 * MIB, memory_ns * 1e-9)),
        memory_s=beyond_ns * 1e-9,
    )
    latencies = measured(machine, 1024 * MIB)
    hierarchy = find_levels(latencies, reported_topology((*ZEN_5[:2], (3, 256 * MIB, 8))))
    assert [each.name for each in hierarchy.levels] == ["L1", "L2", "L3"]
    last = hierarchy.levels[2]
    assert 32 * MIB <= last.capacity_bytes <= 36 * MIB
    assert last.held_bytes <= 35 * MIB
    (condition,) = hierarchy.conditions
    assert condition.startswith("L3: reported size 256 MiB, but")
    assert "29 and 35 MiB" in condition


def test_a_slow_last_cache_is_no_memory() -> None:
    # Sapphire Rapids in a guest: 71 ns to the last cache.
    machine = Simulated(
        caches=((48 * KIB, 1.4e-9), (2 * MIB, 4.4e-9), (105 * MIB, 71e-9)), memory_s=150e-9
    )
    reported = ((1, 48 * KIB, 1), (2, 2 * MIB, 1), (3, 105 * MIB, 8))
    for known in (reported, ()):
        hierarchy = find_levels(measured(machine), reported_topology(known))
        assert len(hierarchy.levels) == 3
        assert 105 * MIB <= hierarchy.levels[2].capacity_bytes <= 120 * MIB


def test_a_step_between_neighbouring_reported_levels_renumbers_none() -> None:
    machine = Simulated(
        caches=((48 * KIB, 1e-9), (MIB, 3.5e-9), (6 * MIB, 9e-9), (64 * MIB, 25e-9)),
        memory_s=100e-9,
    )
    hierarchy = find_levels(measured(machine), reported_topology((*ZEN_5[:2], (3, 64 * MIB, 8))))
    assert sizes_of(hierarchy) == [
        ("L1", 48 * KIB, "private"),
        ("L2", MIB, "private"),
        ("L3", 64 * MIB, "shared"),
    ]
    (condition,) = hierarchy.conditions
    assert condition.startswith("step of the latency curve between ")
    assert condition.endswith("ignored: no level before L3 is reported")


def test_instances_of_different_sizes_keep_their_proportion() -> None:
    caches = (
        *reported_topology(ZEN_5[:2]).caches,
        Cache(level=3, size_bytes=32 * MIB, cpus=(0, 1, 2, 3)),
        Cache(level=3, size_bytes=96 * MIB, cpus=(4, 5, 6, 7)),
    )
    last = find_levels(None, replace(reported_topology(()), caches=caches)).levels[2]
    assert last.instances(range(4)) == (32 * MIB,)
    assert last.reachable_bytes(range(8)) == 128 * MIB
    told = note_instances(last, range(8)).provenance.reference
    assert told == "2 instances of 96 MiB or 32 MiB; reported by the operating system"


def test_without_a_curve_the_report_stands() -> None:
    hierarchy = find_levels(None, reported_topology(ZEN_5))
    assert [each.capacity_bytes for each in hierarchy.levels] == [48 * KIB, MIB, 32 * MIB]
    assert {each.provenance.source for each in hierarchy.levels} == {"datasheet"}
    assert hierarchy.levels[0].provenance.note == "not confirmed: no latency curve was measured"
    assert hierarchy.memory_latency is None


def test_levels_run_from_the_smallest_to_the_largest() -> None:
    caches = ((1, 128 * KIB, 1), (2, 12 * MIB, 4), (3, 8 * MIB, 8))
    odd = find_levels(None, reported_topology(caches))
    assert [each.name for each in odd.levels] == ["L1", "L2"]
    assert odd.conditions == ("L3 of 8 MiB ignored: not larger than L2",)


def test_nothing_known_and_nothing_measured() -> None:
    assert find_levels(None, reported_topology(())) == Hierarchy(
        levels=(), memory_latency=None, conditions=()
    )
