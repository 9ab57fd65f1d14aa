"""Two machines against each other: ratios, ridges and what only one knows, worked out by hand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from roofline.core.blocks import View
from roofline.machine.difference import Both, HardwareDifference, Pair, ratio
from roofline.machine.hardware import Clock, HardwareProfile, Host
from roofline.render.console import plain_text
from roofline.result import read_result
from tests.builders import SOURCE, ceiling, level, profile
from tests.machine.hardware_examples import rich_profile

HOST = Host(
    cpu_model="Imagined 9000",
    architecture="x86_64",
    operating_system="Linux",
    instruction_sets=("avx2", "fma"),
    available_cpus=4,
)

CLOCK = Clock(peak_hz=2e9, median_hz=2e9, provenance=SOURCE)


def small() -> HardwareProfile:
    """2 threads: float32 10 GFLOP/s on one, 20 on both; 4 GB/s of DRAM, 5 when updating."""
    machine = profile(
        [
            ceiling(10e9),
            ceiling(20e9, threads=2),
            ceiling(3e9, of="float64", unit="scalar", threads=2),
        ],
        [
            level("L1", 32768, {"read": {2: 50e9}}, scope="private"),
            level("DRAM", None, {"read": {2: 4e9}, "update": {2: 5e9}}),
        ],
        threads=2,
    )
    return replace(machine, name="small", host=HOST)


def large() -> HardwareProfile:
    """8 threads: float32 15 GFLOP/s on one, 100 on all; bfloat16 400; 20 GB/s of DRAM."""
    slow = replace(ceiling(100e9, threads=8), sustained_flop_per_s=80e9)
    machine = profile(
        [ceiling(15e9), slow, ceiling(400e9, of="bfloat16", unit="amx", threads=8)],
        [level("DRAM", None, {"read": {8: 20e9}})],
        threads=8,
    )
    return replace(machine, name="large", host=replace(HOST, available_cpus=8))


def difference() -> HardwareDifference:
    return HardwareDifference(first=small(), second=large())


def pairs_of(both: HardwareDifference, what: str) -> list[Pair]:
    return [each for each in both.pairs if each.one.what == what]


def bandwidths(both: HardwareDifference) -> dict[tuple[str, str, str], Both]:
    """The peaks by level, kernel and kind."""
    found = pairs_of(both, "bandwidth")
    return {(each.one.subject, each.one.kernel, each.one.kind): each.peaks for each in found}


def test_ceilings_are_joined_by_what_they_are_and_by_one_thread_or_all() -> None:
    one, all_, *rest = pairs_of(difference(), "compute")
    assert one.one.identity == ("compute", "hardware", "float32", "avx2", "fma")
    assert (one.threads, one.peaks, one.sustained) == ("1", (10e9, 15e9), (10e9, 15e9))
    assert (all_.threads, all_.peaks, all_.sustained) == ("all", (20e9, 100e9), (20e9, 80e9))
    assert (all_.peak_ratio, all_.sustained_ratio) == (5.0, 4.0)
    assert [(each.one.subject, each.peaks) for each in rest] == [
        ("float64", (3e9, None)),
        ("bfloat16", (None, 400e9)),
    ]


def test_memory_levels_are_joined_by_level_kernel_and_kind() -> None:
    found = bandwidths(difference())
    assert found == {
        ("DRAM", "read", "hardware"): (4e9, 20e9),
        ("L1", "read", "hardware"): (50e9, None),
        ("DRAM", "update", "hardware"): (5e9, None),
    }
    assert next(iter(found)) == ("DRAM", "read", "hardware"), "what both know comes first"


def test_what_the_library_copies_is_not_held_against_what_the_hardware_does() -> None:
    """One knows torch's copy alone: the hardware's of the other has nothing to be held against."""
    one, other = small(), large()
    dram = other.memory[0]
    torch = replace(dram.bandwidth[0], kind="library", kernel="copy", peak_bytes_per_s=30e9)
    own = replace(one.memory[1].bandwidth[0], kernel="copy")
    one = replace(one, memory=(replace(one.memory[1], bandwidth=(own,)),))
    other = replace(other, memory=(replace(dram, bandwidth=(*dram.bandwidth, torch)),))
    found = bandwidths(HardwareDifference(first=one, second=other))
    assert found[("DRAM", "copy", "hardware")] == (4e9, None)
    assert found[("DRAM", "copy", "library")] == (None, 30e9)


def test_latencies_and_overheads_are_compared_by_their_medians() -> None:
    """DRAM answers in 118 ns there and in 59 ns here: half the time."""
    there = rich_profile()
    dram = there.memory[-1]
    assert dram.latency is not None
    faster = replace(dram.latency, fast_s=50e-9, median_s=59e-9)
    here = replace(
        there,
        name="here",
        memory=(*there.memory[:-1], replace(dram, latency=faster)),
        overheads=(),
    )
    both = HardwareDifference(first=there, second=here)
    found = {(each.one.subject, each.one.what): each.sustained_ratio for each in both.pairs}
    assert found[("DRAM", "latency")] == 0.5
    assert found[("dispatch of add", "overhead")] is None
    lines = [" ".join(line.split()) for line in str(both).splitlines()]
    assert "DRAM latency 1 118 ns 59.0 ns 0.5" in lines
    rows = csv.DictReader(io.StringIO(both.to_csv()))
    # Of four memory levels and a link.
    assert [row["unit"] for row in rows if row["what"] == "latency"] == ["s"] * 5


def test_the_fastest_of_each_type_and_the_ridges_where_it_meets_dram() -> None:
    """small: 20 / 5 = 4 FLOP/byte; large: 100 / 20 = 5, and 400 / 20 = 20 in bfloat16."""
    best = {(each.one.what, each.one.subject): each.peaks for each in difference().best}
    fastest = {subject: peaks for (what, subject), peaks in best.items() if what == "fastest"}
    assert list(fastest) == ["float64", "float32", "bfloat16", "memory", "memory read"]
    assert fastest["float32"] == (20e9, 100e9)
    assert fastest["float64"] == (3e9, None)
    assert fastest["bfloat16"] == (None, 400e9)
    assert fastest["memory"] == (5e9, 20e9)
    assert fastest["memory read"] == (4e9, 20e9)
    assert best["ridge", "float32"] == (4.0, 5.0)
    assert best["ridge", "bfloat16"] == (None, 20.0)
    (memory,) = [each for each in difference().best if each.one.subject == "memory"]
    assert memory.first is not None and memory.second is not None
    assert (memory.first.kernel, memory.second.kernel) == ("DRAM update", "DRAM read")


def test_the_hosts_are_compared_where_both_are_known() -> None:
    assert difference().host_difference == "available CPUs 4 → 8"
    sheet = replace(large(), host=None)
    assert HardwareDifference(first=small(), second=sheet).host_difference is None


def test_the_report_says_it_in_the_order_it_is_asked() -> None:
    text = plain_text(difference().report(View(today=date(2026, 1, 4))))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "large / small: float32 peak 5×, memory bandwidth 4×"
    assert "small 2 threads · measured 3 days ago (2026-01-01)" in lines
    assert "Hosts available CPUs 4 → 8" in lines
    assert "Ratio large / small" in lines
    assert "float32 20.0 GFLOP/s 100 GFLOP/s 5 avx2 fma avx2 fma" in lines
    assert "bfloat16 – 400 GFLOP/s – – amx fma" in lines
    assert "memory 5.00 GB/s 20.0 GB/s 4 DRAM update DRAM read" in lines
    assert "float32 ridge point (FLOP/B) 4.00 5.00 1.25 – –" in lines
    assert "float32 AVX2 FMA 1 10.0 GFLOP/s 15.0 GFLOP/s 1.5 1.5" in lines
    assert "float32 AVX2 FMA all 20.0 GFLOP/s 100 GFLOP/s 5 4" in lines
    assert "DRAM read all 4.00 GB/s 20.0 GB/s 5" in lines
    only_small, only_large = (
        lines.index("Figures of small only"),
        lines.index("Figures of large only"),
    )
    assert "L1 read all 50.0 GB/s" in lines[only_small:only_large]
    assert "float64 scalar FMA all 3.00 GFLOP/s" in lines[only_small:only_large]
    assert "bfloat16 AMX FMA all 400 GFLOP/s" in lines[only_large:]
    assert "'all' threads are 2 of small and 8 of large" in lines


def test_a_machine_against_itself_does_not_differ() -> None:
    twin = HardwareDifference(first=small(), second=small())
    assert twin.same
    text = str(twin)
    assert text.startswith("small (1) and small (2): no difference\n")
    assert "GFLOP/s" not in text
    renamed = HardwareDifference(first=small(), second=replace(small(), name="other"))
    assert renamed.same
    assert not HardwareDifference(first=small(), second=replace(small(), memory=())).same


def test_machines_that_have_nothing_in_common() -> None:
    """Only library ceilings here, only a memory there: nothing is compared, and nothing is 0."""
    library = replace(profile([replace(ceiling(1e9), kind="library")], []), name="library")
    memory = replace(profile([], [level("HBM", None, {"read": {1: 1e9}})]), name="memory")
    bare = HardwareDifference(first=library, second=memory)
    assert [each.one.subject for each in bare.best] == ["memory", "memory read"]
    assert [each.peaks for each in bare.pairs] == [(1e9, None), (None, 1e9)]
    text = str(bare)
    assert text.startswith("memory / library: no common figure\n")
    assert "no compute ceiling has the same data type, unit and kernel on both" in text
    assert "\nfloat32 avx2 fma library        1" not in text


def test_a_device_has_no_threads_to_speak_of() -> None:
    device = replace(profile([ceiling(1e9)], []), name="device", device="cuda")
    both = HardwareDifference(first=device, second=replace(device, name="other", clock=CLOCK))
    text = str(both)
    assert "thread" not in text
    assert "cuda device" in text


def test_every_file_says_the_same(tmp_path: Path) -> None:
    data = json.loads(difference().to_json())
    assert data["kind"] == "hardware difference"
    assert (data["first"]["name"], data["second"]["name"]) == ("small", "large")
    best = {(each["what"], each["subject"]): each for each in data["figures"]}
    fastest, ridge = best["fastest", "float32"], best["ridge", "float32"]
    assert (fastest["first_peak"], fastest["peak_ratio"]) == (20e9, 5.0)
    assert (fastest["first_by"], fastest["second_by"]) == ("avx2 fma", "avx2 fma")
    assert (ridge["first_peak"], ridge["peak_ratio"]) == (4.0, 1.25)
    first = next(each for each in data["figures"] if each["what"] == "bandwidth")
    assert first == {
        "what": "bandwidth",
        "kind": "hardware",
        "subject": "DRAM",
        "unit": "",
        "kernel": "read",
        "threads": "all",
        "measure": "byte/s",
        "first_peak": 4e9,
        "second_peak": 20e9,
        "peak_ratio": 5.0,
        "first_sustained": 4e9,
        "second_sustained": 20e9,
        "sustained_ratio": 5.0,
        # Of one machine at two dates alone.
        "noise_ratio": None,
        "clock_ratio": None,
        "changed": None,
    }
    table = list(csv.DictReader(io.StringIO(difference().to_csv())))
    assert {each["what"] for each in table} == {"compute", "memory", "capacity", "fastest", "ridge"}
    (ridge,) = [each for each in table if (each["what"], each["name"]) == ("ridge", "float32")]
    assert (ridge["first_peak"], ridge["second_peak"], ridge["peak_ratio"]) == (
        "4.0",
        "5.0",
        "1.25",
    )
    (unknown,) = [
        each for each in table if (each["what"], each["name"]) == ("memory", "L1 read hardware")
    ]
    assert (unknown["second_peak"], unknown["peak_ratio"]) == ("", ""), "unknown is never 0"
    assert "| float32 ridge point (FLOP/B) | 4.00 | 5.00 | 1.25 |" in str(difference().render("md"))
    difference().save(tmp_path / "d.json", tmp_path / "d.html")
    assert read_result(tmp_path / "d.json") == difference()


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (None, None)])
def test_a_ratio_with_an_unknown_is_unknown(pair: tuple[float | None, float | None]) -> None:
    assert ratio(pair) is None
