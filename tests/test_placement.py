"""Bounds worked out by hand, and properties that no ceiling may break."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.errors import HardwareError
from roofline.machine.hardware import HardwareProfile, Host
from roofline.placement import Bound, Roof, arithmetic_dtype, place, ridge_flop_per_byte, roof_notes
from roofline.workload.operators import State
from roofline.workload.residency import Reuse, trace_residency
from roofline.workload.tensors import Role, TensorSpec
from tests.builders import ceiling, level, profile, record, tensor

TWO_LEVELS = profile(
    [ceiling(1000.0)],
    [
        level("L1", 40, {"read": {1: 100.0}}, scope="private"),
        level("DRAM", None, {"read": {1: 10.0}, "copy": {1: 8.0}}),
    ],
)


@pytest.mark.parametrize(
    ("flop", "min_flop", "eager_min_time_s", "bound", "ceiling_name"),
    [
        # 120 bytes last touched 150 back: 120 through L1 (1.2 s), 110 from DRAM (11 s).
        (500, 500, 11.0, Bound.MEMORY, "DRAM read"),
        (20_000, 20_000, 20.0, Bound.COMPUTE, "float32 avx2 fma"),
        # Only the least FLOP enters the bound, and no point leaves the roof.
        (30_000, 20_000, 20.0, Bound.COMPUTE, "float32 avx2 fma"),
    ],
)
def test_bound_is_the_slowest_of_compute_and_every_level(
    flop: int, min_flop: int, eager_min_time_s: float, bound: Bound, ceiling_name: str
) -> None:
    operator = record([tensor(0, 20)], [tensor(1, 10)], flop=flop, min_flop=min_flop)
    placed = Roof(TWO_LEVELS, 1).place(operator, [Reuse(120, 150)])
    assert placed.level_bytes == {"L1": 120, "DRAM": 110}
    assert placed.eager_min_time_s == pytest.approx(eager_min_time_s)
    assert (placed.bound, placed.level, placed.ceiling) == (bound, "DRAM", ceiling_name)
    assert placed.intensity_flop_per_byte == pytest.approx(flop / 110)
    assert placed.attainable_flop_per_s == pytest.approx(min(1000.0, flop / eager_min_time_s))


UPDATES_FASTEST = profile(
    [ceiling(1e6)],
    [
        level("L1", 40, {"read": {1: 400.0}, "update": {1: 500.0}}),
        level(
            "DRAM",
            None,
            {"read": {1: 40.0}, "copy": {1: 36.0}, "copy-nt": {1: 50.0}, "update": {1: 65.0}},
        ),
    ],
)


@pytest.mark.parametrize(
    ("inputs", "outputs", "byte", "eager_min_time_s", "ceiling_name"),
    [
        # A reduction of 1000 bytes to 4: 996 bytes at least are reads, 50 a second.
        ([tensor(0, 250)], [tensor(1, 1)], 1004, 1000 / 50, "DRAM copy-nt"),
        # Decode: 4000 bytes of weights, 40 read, 400 written.
        ([tensor(0, 1000), tensor(1, 10)], [tensor(2, 100)], 4440, 4040 / 50, "DRAM copy-nt"),
        # Updated in place: 1000 bytes read and written again may be as fast as any kernel.
        ([tensor(0, 250)], [tensor(0, 250)], 2000, 2000 / 65, "DRAM update"),
        # Half read, half written: reads alone would take 1000 / 50.
        ([tensor(0, 250)], [tensor(1, 250)], 2000, 2000 / 65, "DRAM update"),
    ],
)
def test_bytes_that_are_only_read_take_no_kernel_that_stores(
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    byte: int,
    eager_min_time_s: float,
    ceiling_name: str,
) -> None:
    placed = Roof(UPDATES_FASTEST, 1).place(record(inputs, outputs, flop=1), [Reuse(byte, None)])
    assert placed.eager_min_time_s == pytest.approx(eager_min_time_s)
    assert (placed.level, placed.ceiling) == ("DRAM", ceiling_name)


def test_what_of_the_read_bytes_waits_nearer_is_not_known() -> None:
    """Of 1000 bytes read and 1000 written, 1200 come from DRAM: 200 of them are reads at least."""
    operator = record([tensor(0, 250)], [tensor(1, 250)], flop=1)
    seconds, roof = Roof(UPDATES_FASTEST, 1).memory_bound({"L1": 0, "DRAM": 1200}, 1000)
    assert (seconds, roof and roof.label) == (pytest.approx(1200 / 65), "DRAM update")
    seconds, roof = Roof(UPDATES_FASTEST, 1).memory_bound({"L1": 0, "DRAM": 1200}, 100)
    assert (seconds, roof and roof.label) == (pytest.approx(1100 / 50), "DRAM copy-nt")
    placed = Roof(UPDATES_FASTEST, 1).place(operator, [Reuse(2000, 1240)])
    assert placed.level_bytes == {"L1": 2000, "DRAM": 1200}
    assert placed.ceiling == "DRAM update"


def test_a_level_without_a_reading_kernel_limits_reads_by_its_fastest() -> None:
    machine = profile([ceiling(1e6)], [level("DRAM", None, {"triad": {1: 30.0}})])
    placed = Roof(machine, 1).place(record([tensor(0, 250)], [], flop=1), [Reuse(1000, None)])
    assert (placed.eager_min_time_s, placed.ceiling) == (pytest.approx(1000 / 30), "DRAM triad")


WITH_ADDERS = profile(
    [ceiling(1000.0), ceiling(1500.0, kernel="fma-add")],
    [level("DRAM", None, {"read": {1: 1e9}})],
)


@pytest.mark.parametrize(
    ("flop", "macs", "min_flop", "eager_min_time_s", "kernel"),
    [
        # Additions beside multiply-adds cannot speed up products: 20 000 of them at 1000 a second.
        (20_000, 10_000, 20_000, 20.0, "fma"),
        # What is not a product may use all units.
        (15_000, 0, 15_000, 10.0, "fma-add"),
        # 6000 in products take 6 s at least, all 15 000 take 10.
        (15_000, 3_000, 15_000, 10.0, "fma-add"),
        # 12 000 in products take 12 s at least, all 15 000 would take 10.
        (15_000, 6_000, 15_000, 12.0, "fma"),
        # Half of the FLOP is optional, and may all be products: of 10 000 only 7000 are left.
        (13_000, 5_000, 10_000, 7.0, "fma"),
    ],
)
def test_products_take_the_units_that_multiply(
    flop: int, macs: int, min_flop: int, eager_min_time_s: float, kernel: str
) -> None:
    operator = record([tensor(0, 1)], [tensor(1, 1)], flop=flop, macs=macs, min_flop=min_flop)
    placed = Roof(WITH_ADDERS, 1).place(operator, [])
    assert placed.eager_min_time_s == pytest.approx(eager_min_time_s)
    assert placed.ceiling == f"float32 avx2 {kernel}"


def test_a_mask_of_another_type_does_not_slow_down_the_bound() -> None:
    machine = profile(
        [ceiling(1000.0), ceiling(4000.0, of="bfloat16", unit="avx512-bf16", kernel="dot")],
        [level("DRAM", None, {"read": {1: 1e9}})],
    )
    mask, queries = tensor(0, 100), tensor(1, 10, of="bfloat16")
    operator = record([queries, mask], [tensor(2, 10, of="bfloat16")], flop=20_000)
    placed = Roof(machine, 1).place(operator, [])
    assert placed.eager_min_time_s == pytest.approx(5.0)
    assert placed.ceiling == "bfloat16 avx512-bf16 dot"


def test_what_a_library_reaches_is_no_roof() -> None:
    dram = level("DRAM", None, {"read": {1: 10.0}, "add": {1: 100.0}})
    read, add = dram.bandwidth
    machine = profile(
        [replace(ceiling(10.0), kind="library")],
        [replace(dram, bandwidth=(read, replace(add, kind="library")))],
    )
    roof = Roof(machine, 1)
    assert [each.label for each in roof.levels] == ["DRAM read"]
    assert roof.units == ()
    placed = roof.place(record([tensor(0, 20)], [], flop=500), [Reuse(80, 0)])
    assert placed.bound is Bound.MEMORY


def test_a_doubt_about_a_ceiling_that_binds_is_told() -> None:
    dram = level("DRAM", None, {"read": {1: 10.0}})
    doubted = replace(dram, bandwidth=(replace(dram.bandwidth[0], doubt="unsteady"),))
    other = replace(ceiling(1000.0), doubt="another form of the kernel reaches 90 % of it")
    roof = Roof(profile([other], [doubted]), 1)
    placed = roof.place(record([tensor(0, 20)], [tensor(1, 10)], flop=500), [Reuse(120, None)])
    assert roof_notes([placed], roof)[-1] == "the ceiling DRAM read is doubtful: unsteady"
    # No operator is bound by the other.
    assert not any("another form" in each for each in roof_notes([placed], roof))


def test_unknown_flop_has_a_memory_bound_and_says_unknown() -> None:
    operator = record([tensor(0, 20)], [tensor(1, 10)], flop=None, state=State.UNKNOWN)
    placed = Roof(TWO_LEVELS, 1).place(operator, [Reuse(120, None)])
    assert placed.eager_min_time_s == pytest.approx(12.0)
    assert placed.bound is Bound.UNKNOWN
    assert placed.intensity_flop_per_byte is None
    assert placed.attainable_flop_per_s is None


def test_free_operators_take_no_time() -> None:
    placed = Roof(TWO_LEVELS, 1).place(record([], [], state=State.FREE), [])
    assert (placed.bound, placed.eager_min_time_s, placed.level_bytes) == (Bound.FREE, 0.0, {})


def test_without_ceilings_there_is_no_bound_and_a_note_says_why() -> None:
    bare = profile([], [])
    operator = record([tensor(0, 20)], [tensor(1, 10)], flop=500)
    roof = Roof(bare, 1)
    placed = roof.place(operator, [Reuse(120, 150)])
    assert placed.eager_min_time_s is None
    assert placed.bound is Bound.UNKNOWN
    assert "has no ceilings" in roof_notes([placed], roof)[0]


def test_a_machine_that_knows_only_dram_charges_everything_to_it() -> None:
    dram = profile([ceiling(1000.0)], [level("DRAM", None, {"unspecified": {1: 10.0}})])
    operator = record([tensor(0, 20)], [tensor(1, 10)], flop=500)
    roof = Roof(dram, 1)
    placed = roof.place(operator, [Reuse(80, 0), Reuse(40, 0)])
    assert placed.level_bytes == {"DRAM": 120}
    assert placed.ceiling == "DRAM"
    assert "ceilings for DRAM only" in roof_notes([placed], roof)[0]


def test_private_levels_hold_more_with_more_threads() -> None:
    machine = profile(
        [ceiling(1000.0), ceiling(1800.0, threads=2)],
        [
            level("L1", 40, {"read": {1: 100.0, 2: 200.0}}, scope="private"),
            level("DRAM", None, {"read": {1: 10.0, 2: 15.0}}),
        ],
        threads=2,
    )
    reuses = [Reuse(50, 100)]
    assert Roof(machine, 1).level_bytes(reuses) == {"L1": 50, "DRAM": 50}
    assert Roof(machine, 2).level_bytes(reuses) == {"L1": 50, "DRAM": 20}


def test_a_level_and_the_nearer_ones_hold_different_bytes() -> None:
    """Graviton 4 has 2 MiB of L2 in each of 96 cores, and 36 MiB of L3."""
    machine = profile(
        [ceiling(1000.0)],
        [
            level("L2", 40, {"read": {4: 100.0}}, scope="private"),
            level("L3", 60, {"read": {4: 50.0}}),
            level("DRAM", None, {"read": {4: 10.0}}),
        ],
        threads=4,
    )
    assert Roof(machine, 4).held_bytes == (160, 220, None)
    assert Roof(machine, 1).held_bytes == (40, 100, None)
    # 100 bytes fit into four times 40, but not into 60; of 200 bytes, 160 stay in the L2.
    assert Roof(machine, 4).level_bytes([Reuse(100, 100)]) == {"L2": 100, "L3": 0, "DRAM": 0}
    assert Roof(machine, 4).level_bytes([Reuse(200, 200)]) == {"L2": 200, "L3": 40, "DRAM": 0}
    assert Roof(machine, 4).level_bytes([Reuse(250, 250)]) == {"L2": 250, "L3": 90, "DRAM": 30}
    # One core has 40 in its L2 and 60 others in L3.
    assert Roof(machine, 1).level_bytes([Reuse(100, 100)]) == {"L2": 100, "L3": 60, "DRAM": 0}
    assert Roof(machine, 1).level_bytes([Reuse(101, 101)]) == {"L2": 101, "L3": 61, "DRAM": 1}
    # Streams and first touches come from memory as before.
    assert Roof(machine, 4).level_bytes([Reuse(9, 999)]) == {"L2": 9, "L3": 9, "DRAM": 9}
    assert Roof(machine, 4).level_bytes([Reuse(9, None)]) == {"L2": 9, "L3": 9, "DRAM": 9}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("working_set", [1, 7, 10, 11, 24, 25, 40, 54, 55, 60, 99])
def test_a_victim_cache_serves_a_loop_over_its_own_bytes_and_those_of_the_level_before(
    working_set: int, threads: int
) -> None:
    """A hierarchy without copies that pins the first bytes of a loop, counted byte by byte.

    Nothing fetches less in a steady state: a level fetches what no nearer one has room for.
    """
    private, shared = 5, 10
    machine = profile(
        [ceiling(1.0)],
        [
            level("L2", private, {"read": {1: 1.0}}, scope="private"),
            level("L3", shared, {"read": {1: 1.0}}),
            level("DRAM", None, {"read": {1: 1.0}}),
        ],
        threads=3,
    )
    kept = {"L2": range(private * threads), "L3": range(private * threads + shared)}
    fetched = {
        "L2": working_set,
        "L3": sum(byte not in kept["L2"] for byte in range(working_set)),
        "DRAM": sum(byte not in kept["L3"] for byte in range(working_set)),
    }
    assert Roof(machine, threads).level_bytes([Reuse(working_set, working_set)]) == fetched


ONE, ALL = {1: 100.0}, {8: 350.0}


@pytest.mark.parametrize(
    ("rates", "threads", "expected"),
    [
        # Between one and all: the lower of scaled one and all.
        *((ONE | ALL, threads, min(100.0 * threads, 350.0)) for threads in (1, 2, 3, 4, 8)),
        # Where one thread is unknown, all bound it.
        (ALL, 2, 350.0),
        # Eight threads may be four times as fast as the two that were measured.
        (ONE | {2: 180.0}, 8, 720.0),
        (ONE, 8, 800.0),
    ],
)
def test_threads_that_were_not_measured(
    rates: dict[int, float], threads: int, expected: float
) -> None:
    machine = profile(
        [ceiling(rate, threads=each) for each, rate in rates.items()],
        [level("DRAM", None, {"read": rates})],
        threads=8,
    )
    roof = Roof(machine, threads)
    assert roof.units[0].flop_per_s == roof.levels[0].bytes_per_s == expected


def test_threads_are_checked_against_the_hardware() -> None:
    with pytest.raises(HardwareError, match=r"threads=2 .*choose 1 to 1"):
        Roof(TWO_LEVELS, 2)
    with pytest.raises(HardwareError, match="threads=0"):
        Roof(TWO_LEVELS, 0)


def host(*instruction_sets: str) -> Host:
    return Host(
        cpu_model="test",
        architecture="x86_64",
        operating_system="Linux",
        instruction_sets=instruction_sets,
        available_cpus=1,
    )


def test_a_type_without_a_native_path_takes_the_type_it_converts_to_and_says_so() -> None:
    operator = record([tensor(0, 20, of="float16")], [tensor(1, 10, of="float16")], flop=500)
    roof = Roof(replace(TWO_LEVELS, host=host("avx2")), 1)
    placed = roof.place(operator, [Reuse(60, 0)])
    found = roof.compute(dtype("float16"))
    assert found is not None
    assert found.dtype == dtype("float32")
    assert any("no ceiling for float16" in note for note in roof_notes([placed], roof))


def test_a_native_path_that_was_not_measured_gives_no_compute_bound() -> None:
    """A bound from the float32 units would be beaten by the bfloat16 ones."""
    operator = record([tensor(0, 20, of="bfloat16")], [tensor(1, 10, of="bfloat16")], flop=500)
    roof = Roof(replace(TWO_LEVELS, host=host("avx512_bf16")), 1)
    assert roof.compute(dtype("bfloat16")) is None
    notes = roof_notes([roof.place(operator, [Reuse(60, 0)])], roof)
    assert any("avx512_bf16 units were not measured" in note for note in notes)


def test_double_precision_has_no_ceiling_on_a_single_precision_profile() -> None:
    assert Roof(TWO_LEVELS, 1).compute(dtype("float64")) is None


def test_arithmetic_is_in_the_type_of_the_largest_floating_operand() -> None:
    mixed = [tensor(0, 9, of="int64"), tensor(1, 4, of="bfloat16"), tensor(2, 1)]
    assert arithmetic_dtype(mixed) == dtype("bfloat16")
    assert arithmetic_dtype([tensor(0, 9, of="int64")]) is None


def test_ridge_is_where_memory_and_compute_meet() -> None:
    roof = Roof(TWO_LEVELS, 1)
    assert ridge_flop_per_byte(roof.units[0], roof.levels[1]) == 100.0


def test_cold_charges_first_touches_to_the_farthest_level() -> None:
    """Weights of 16 bytes fit into L1: from DRAM in a first pass, from L1 in a repeated one."""
    weights = tensor(0, 4, role=Role.PARAMETER)
    records = [record([weights], [tensor(1, 1)], flop=4, freed=[1])]
    reuse = trace_residency(records)
    roof = Roof(TWO_LEVELS, 1)
    (cold,) = place(records, reuse, roof, cache="cold")
    (steady,) = place(records, reuse, roof, cache="steady")
    assert cold.level_bytes == {"L1": 20, "DRAM": 20}
    assert steady.level_bytes == {"L1": 20, "DRAM": 0}


RATE = st.floats(1.0, 1e6)


@given(
    st.tuples(RATE, RATE, RATE, RATE),
    st.integers(0, 3),
    st.floats(1.0, 100.0),
    st.integers(1, 10**6),
    st.integers(1, 10**4),
    st.integers(0, 10**5),
)
def test_a_higher_ceiling_never_gives_a_longer_bound(
    rates: tuple[float, float, float, float],
    which: int,
    factor: float,
    flop: int,
    byte: int,
    distance: int,
) -> None:
    def machine(values: tuple[float, ...]) -> HardwareProfile:
        return profile(
            [ceiling(values[0]), ceiling(values[1], unit="avx512")],
            [
                level("L1", 500, {"read": {1: values[2]}}),
                level("DRAM", None, {"read": {1: values[3]}}),
            ],
        )

    raised = tuple(rate * factor if i == which else rate for i, rate in enumerate(rates))
    operator = record([tensor(0, 20)], [tensor(1, 10)], flop=flop)
    before = Roof(machine(rates), 1).place(operator, [Reuse(byte, distance)]).eager_min_time_s
    after = Roof(machine(raised), 1).place(operator, [Reuse(byte, distance)]).eager_min_time_s
    assert before is not None
    assert after is not None
    assert after <= before


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(0, 10**5))
def test_a_point_lies_on_its_roof(flop: int, byte: int, distance: int) -> None:
    operator = record([tensor(0, 20)], [tensor(1, 10)], flop=flop)
    placed = Roof(TWO_LEVELS, 1).place(operator, [Reuse(byte, distance)])
    assert placed.attainable_flop_per_s is not None
    assert placed.intensity_flop_per_byte is not None
    slope = {"L1": 100.0, "DRAM": 10.0}[placed.level]
    roof = min(1000.0, placed.intensity_flop_per_byte * slope)
    assert placed.attainable_flop_per_s == pytest.approx(roof)


def test_products_of_small_integers_take_the_units_for_them() -> None:
    """A float input times int8 weights: no faster than int8 units, and unbounded without them."""
    x, weight, y = tensor(0, 64), tensor(1, 4096, of="int8", role=Role.PARAMETER), tensor(2, 64)
    product = record([x, weight], [y], flop=8_192_000, macs=4_096_000)
    memory = [level("DRAM", None, {"read": {1: 1e9}})]
    with_units = profile([ceiling(1e9), ceiling(4e9, of="int8", unit="avx512-vnni")], memory)
    (placed,) = place([product], trace_residency([product]), Roof(with_units, 1))
    assert placed.eager_min_time_s == 8_192_000 / 4e9
    (placed,) = place(
        [product], trace_residency([product]), Roof(profile([ceiling(1e9)], memory), 1)
    )
    # 256 bytes of input, 4096 of weights, 256 of output, and no ceiling for the products.
    assert (placed.bound, placed.eager_min_time_s) == (Bound.MEMORY, pytest.approx(4608e-9))
    (note,) = roof_notes([placed], Roof(profile([ceiling(1e9)], memory), 1))[-1:]
    assert "no compute ceiling for int8" in note
