"""What becomes a candidate: kernels compiled in their forms, on teams, at levels."""

from __future__ import annotations

import signal

import pytest

from roofline.machine.hierarchy.working_sets import WorkingSet
from roofline.machine.kernels.assembly import stream_unit
from roofline.machine.kernels.compute import compute_kernels
from roofline.machine.kernels.stream import stream_kernels
from roofline.machine.measuring.estimation import BURST_S
from roofline.machine.measuring.pinned_threads import PinnedThreads, allocate
from roofline.machine.measuring.selection import (
    calibrate,
    compile_variants,
    compute_candidates,
    stream_candidates,
)
from tests.machine.fake_machine import FakeMachine

SETS = ("avx", "avx2", "fma")
COMPUTE = [k for k in compute_kernels("x86_64", SETS) if k.unit.name == "avx2" and k.name == "fma"]
UNIT = stream_unit("x86_64", SETS)
assert UNIT is not None
STREAMS = [k for k in stream_kernels(UNIT) if k.name in ("read", "copy")]


def silent(what: str) -> None:
    pass


def working_set(level: str, threads: int) -> WorkingSet:
    return WorkingSet(
        level=level,
        threads=threads,
        bytes_per_thread=24 << 10 if level == "L1" else 8 << 20,
        capacity_bytes=None,
        scope="shared",
    )


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("second_variants", [False, True])
def test_kernels_are_compiled_in_one_form_or_two(second_variants: bool) -> None:
    said: list[str] = []
    forms, conditions = compile_variants([*COMPUTE, *STREAMS], second_variants, said.append)
    assert conditions == []
    assert [len(each) for each in forms] == [2 if second_variants else 1] * 4
    assert [each[0].kernel.label for each in forms] == [k.label for k in (*COMPUTE, *STREAMS)]
    if second_variants:
        assert all(each[1].kernel.label.endswith("second variant") for each in forms)
    assert said[0] == "compiling fma float64 avx2"


@pytest.mark.parametrize("form", ["", ", second variant"])
def test_a_first_form_that_does_not_compile_takes_its_second_with_it(
    machine: FakeMachine, form: str
) -> None:
    machine.broken[f"fma float64 avx2{form}"] = "spills"
    forms, conditions = compile_variants(COMPUTE, True, silent)
    double = [1] if form else []
    assert [len(each) for each in forms] == [*double, 2]
    assert conditions == [f"not measured: kernel 'fma float64 avx2{form}' spills"]
    assert "fma float64 avx2, second variant" not in {k.label for k in machine.compiled}


@pytest.mark.parametrize("deadly", ["fma float32 avx2", "fma float32 avx2, second variant"])
def test_a_form_that_ends_its_process_takes_the_other_with_it(
    machine: FakeMachine, deadly: str
) -> None:
    machine.deadly[deadly] = signal.SIGILL
    forms, conditions = compile_variants([*COMPUTE, *STREAMS], True, silent)
    assert [each[0].kernel.label for each in forms] == [
        "fma float64 avx2",
        *(k.label for k in STREAMS),
    ]
    assert conditions == [
        "not measured: kernel 'fma float32 avx2': instructions not supported by CPU or operating"
        " system"
    ]


@pytest.mark.usefixtures("machine")
def test_every_kernel_on_every_team_and_at_every_level() -> None:
    compute, _ = compile_variants(COMPUTE, True, silent)
    streams, _ = compile_variants(STREAMS, False, silent)
    memory = [allocate(9 << 20) for _ in range(2)]
    sets = [working_set("L1", 1), working_set("L1", 2), working_set("DRAM", 2)]
    found = compute_candidates(compute, (1, 2))
    assert [[trial.label for trial in each.trials] for each in found] == [
        [f"fma {dtype} avx2{form}, {team}" for form in ("", ", second variant")]
        for dtype in ("float64", "float32")
        for team in ("1 thread", "2 threads")
    ]
    found = stream_candidates(streams, sets, memory, {"DRAM": "too small"})
    assert [each.trials[0].label for each in found] == [
        f"{where}"
        for kernel in ("read", "copy")
        for where in (
            f"L1 {kernel} avx, 1 thread",
            f"L1 {kernel} avx, 2 threads",
            f"DRAM {kernel} avx, 2 threads",
        )
    ]
    assert [each.initial_doubt for each in found] == ["", "", "too small"] * 2
    # Alike are those that differ in their team alone.
    assert [each.kind for each in found] == [
        "L1 read avx", "L1 read avx", "DRAM read avx", "L1 copy avx", "L1 copy avx", "DRAM copy avx"
    ]  # fmt: skip


def test_one_of_a_kind_is_calibrated_and_stands_for_the_others(machine: FakeMachine) -> None:
    compute, _ = compile_variants(COMPUTE, True, silent)
    candidates = compute_candidates(compute, (1, 2))
    said: list[str] = []
    with PinnedThreads(2, (0, 1)) as workers:
        calibrate(candidates, workers, said.append)
    assert len(said) == len(set(said)) == len(COMPUTE)
    for each in candidates:
        for trial in each.trials:
            # 96 or 48 GFLOP/s a thread: what one burst does takes 0.4 ms, nearly.
            rate = 96e9 if "float32" in trial.label else 48e9
            assert trial.work_per_burst / trial.threads / rate == pytest.approx(BURST_S, rel=0.05)
            assert trial.burst_s == pytest.approx(BURST_S, rel=0.05)
