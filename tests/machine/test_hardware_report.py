"""What the report on a machine says, number by number."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from roofline.core.blocks import Grid, KeyValueBlock, Notes, Report, View
from roofline.machine.catalog import Entry, load_hardware
from roofline.machine.hardware import HardwareProfile
from roofline.machine.quantities import read_bytes_per_s
from roofline.machine.report import (
    catalog_report,
    profile_blocks,
    signed_percent,
    sparkline,
)
from roofline.machine.system.activity import Activity, disturbances
from roofline.render.console import plain_text, print_report
from tests.analysis.examples import bare_profile, dram_profile, full_profile
from tests.builders import ceiling as rate
from tests.builders import level
from tests.builders import profile as machine_of
from tests.machine.hardware_examples import CLOCK_HZ, device_profile, measured, rich_profile

TODAY = View(today=date(2026, 3, 7), verbose=True)

DRAM = level("DRAM", None, {"read": {1: 4e10, 2: 8e10}, "update": {2: 1.5e11}})
DATA_SHEET = level("DRAM", None, {"unspecified": {2: 9.6e10}})
MACHINE = machine_of(
    [
        rate(1e11, threads=2),
        rate(1.5e11, kernel="fma-add", threads=2),
        rate(8e11, of="int8", unit="avx-vnni", kernel="dot", threads=2),
        replace(rate(4e10, kernel="gemm", unit="torch", threads=2), kind="library"),
        replace(rate(9e10, kernel="conv", unit="torch", threads=2), kind="library"),
    ],
    [DRAM],
    threads=2,
)


def summary(profile: HardwareProfile) -> dict[str, str]:
    """The first lines of the report."""
    facts = next(
        each for each in profile_blocks(profile, View()) if isinstance(each, KeyValueBlock)
    )
    names = ("Compute", "Library", "Memory", "Ridge point", "Unreliable", "Disturbed")
    return {name: text for name, text in facts.lines if name in names}


def grid_of(profile: HardwareProfile, title: str) -> Grid:
    blocks = profile.report(TODAY).blocks
    return next(each for each in blocks if isinstance(each, Grid) and each.title.startswith(title))


def notes_of(report: Report, title: str) -> tuple[str, ...]:
    found = (each for each in report.blocks if isinstance(each, Notes) and each.title == title)
    return next(found).lines


def row_of(grid: Grid, *begins: str) -> dict[str, str]:
    """The row that begins so, by the headings of its columns."""
    row = next(row for row in grid.rows if row[: len(begins)] == begins)
    return dict(zip((each.heading for each in grid.columns), row, strict=True))


def on_terminal(profile: HardwareProfile, width: int) -> str:
    stream = io.StringIO()
    print_report(
        profile.report(TODAY),
        Console(file=stream, force_terminal=True, width=width, color_system=None),
    )
    return stream.getvalue()


def test_threads_stand_side_by_side_with_theoretical_peak_and_loss() -> None:
    """float32 FMA: 64 FLOP a cycle at 4 GHz are 256 GFLOP/s a core; 98.5 % of it was reached."""
    row = row_of(grid_of(rich_profile(), "Compute ceilings, hardware"), "float32", "AVX-512", "FMA")
    assert 64 * CLOCK_HZ == 256e9
    assert (row["1 thread"], row["theoretical (1)"], row["loss (1)"]) == (
        "252 GFLOP/s",
        "256 GFLOP/s",
        "1.5 %",
    )
    assert (row["2 threads"], row["theoretical (2)"], row["loss (2)"]) == (
        "504 GFLOP/s",
        "512 GFLOP/s",
        "1.5 %",
    )
    assert (row["sustained (1)"], row["IQR/median (1)"]) == ("239 GFLOP/s", "2.1 %")


def test_every_ceiling_has_its_place_once() -> None:
    profile = rich_profile()
    for kind in ("hardware", "library"):
        grid = grid_of(profile, f"Compute ceilings, {kind}")
        known = [each for each in profile.compute if each.kind == kind]
        assert len(grid.rows) == len({each.label for each in known})
        text = " ".join(cell for row in grid.rows for cell in row)
        assert "gemm" in text if kind == "library" else "gemm" not in text


def test_types_run_from_wide_to_narrow_and_of_each_the_highest_comes_first() -> None:
    rows = grid_of(rich_profile(), "Compute ceilings, hardware").rows
    assert list(dict.fromkeys(row[0] for row in rows)) == [
        *("float64", "float32", "bfloat16", "int32", "int8")
    ]
    assert [row[1:3] for row in rows if row[0] == "float32"][:3] == [
        ("AVX-512", "FMA + ADD"),
        ("AVX-512", "FMA"),
        ("AVX2", "FMA + ADD"),
    ]


def test_the_library_is_held_against_the_products_of_the_hardware_not_against_additions() -> None:
    """103 of 252.16 GFLOP/s; against FMA and ADD together it would be 29.8 %."""
    row = row_of(grid_of(rich_profile(), "Compute ceilings, library"), "float32", "torch", "gemm")
    assert row["share (1)"] == "40.8 %"
    none = row_of(grid_of(rich_profile(), "Compute ceilings, library"), "float16")
    assert none["share (1)"] == "–", "no float16 unit was measured"


def test_write_allocate_is_said_of_every_bandwidth_and_torch_stands_apart() -> None:
    own = grid_of(rich_profile(), "Memory bandwidth, hardware")
    assert row_of(own, "DRAM", "read")["write-allocate"] == "none"
    assert row_of(own, "DRAM", "copy")["write-allocate"] == "not counted"
    assert not [row for row in own.rows if row[1] == "add"]
    torch = grid_of(rich_profile(), "Memory bandwidth, library")
    assert [row[:2] for row in torch.rows] == [("DRAM", "copy"), ("DRAM", "add")]


def test_levels_say_whether_their_size_was_found_and_how_many_cycles_away_they_are() -> None:
    """118 ns at 3.88 GHz (0.97 x 4) are 458 cycles."""
    grid = grid_of(rich_profile(), "Memory levels")
    assert row_of(grid, "L1")["size source"] == "measured"
    assert row_of(grid, "L2", "1 MiB per core")["size source"] == "reported"
    dram = row_of(grid, "DRAM")
    assert (dram["capacity"], dram["latency"], dram["cycles"]) == ("–", "118 ns", "458")


def test_doubtful_figures_are_marked_and_the_reason_is_said() -> None:
    report = rich_profile().report(TODAY)
    row = row_of(grid_of(rich_profile(), "Compute"), "float64", "AVX2", "FMA")
    assert (row["1 thread"], row["2 threads"]) == ("63.0 GFLOP/s", "? 126 GFLOP/s")
    assert notes_of(report, "Unreliable figures, marked ?") == (
        "float64 AVX2 FMA on 2 threads – a second kernel reached 8.2 % more",
    )


def test_a_peak_above_theory_is_a_negative_loss_and_explained() -> None:
    profile = rich_profile()
    first = next(each for each in profile.compute if each.theoretical)
    assert first.theoretical is not None
    low = replace(first, theoretical=replace(first.theoretical, per_s=first.peak_flop_per_s / 1.25))
    report = replace(profile, compute=(low,)).report(TODAY)
    assert "-25.0 %" in plain_text(report)
    assert "negative loss: measured peak above the theoretical peak" in notes_of(
        report, "Theoretical peaks"
    )
    assert [signed_percent(each) for each in (None, 0.0, 0.1, -0.1, -0.0001)] == [
        *("–", "0 %", "10.0 %", "-10.0 %", "< 0.1 %")
    ]


def test_one_measurement_is_one_reference_whatever_its_sizes() -> None:
    lines = notes_of(rich_profile().report(TODAY), "References")
    bursts = [line for line in lines if "0.4 ms bursts" in line]
    assert len(bursts) == 1
    assert (
        "12 sums at once | 28 sums at once | half of L1 | 3 more in the profile's file"
        in (bursts[0])
    )
    assert "2026-03-04; roofline 0.1.0" in bursts[0]


def test_methods_that_differ_in_numbers_alone_are_one_reference() -> None:
    profile = rich_profile()
    counts = (930, 348, 175)
    overheads = tuple(
        replace(
            each,
            time=replace(each.time, provenance=measured(f"median of {count} calls of torch 2.13")),
        )
        for each, count in zip(profile.overheads, counts, strict=True)
    )
    report = replace(profile, overheads=overheads).report(TODAY)
    lines = [each for each in notes_of(report, "References") if "median of" in each]
    assert lines[-1].startswith("[7] median of 930 calls of torch 2.13 (and 2 similar); 2026-03-04")
    assert "348" not in " ".join(lines)


def test_the_rest_is_said_too() -> None:
    text = plain_text(rich_profile().report(TODAY))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for words in (
        "Clock 4.00 GHz · median 3.88 GHz · measured: a chain of dependent additions, one a cycle",
        "Source measured 3 days ago (2026-03-04) · effort default",
        "dispatch of linear 1.22 µs 1.10 µs 4.0 % measured [7]",
        "contention: in 175 of 15112 bursts a thread lost its CPU; they are left out",
        "clock x lanes x pipes; the clock as measured; int8 AVX-512-VNNI dot: 2 x 4 GHz x 256"
        " FLOP per cycle; L1 read: two loads of 64 byte per cycle",
    ):
        assert words in lines
    links, way = grid_of(rich_profile(), "Links"), "node 0 to memory of node 1"
    assert row_of(links, way, "link")["2 threads"] == "31.0 GB/s"
    assert row_of(links, way, "latency")["sustained"] == "190 ns"
    curve = row_of(grid_of(rich_profile(), "Curves over the working set"), "latency, 1 thread")
    assert (curve["from"], curve["to"]) == ("1.00 ns at 16 KiB", "118 ns at 128 MiB")


def test_curves_are_one_line_each() -> None:
    assert sparkline([1.0, 10.0, 100.0]) == "▁▅█"
    assert sparkline([5.0, 5.1, 5.0]) == "▅▅▅"
    assert len(sparkline([1.0 + i for i in range(100)])) == 24
    assert sparkline([3.0]) == "▅"


def test_a_data_sheet_has_no_columns_that_say_nothing() -> None:
    """One figure a ceiling: no median, no spread, no theoretical peak beside it."""
    grid = grid_of(load_hardware("10980xe"), "Compute ceilings")
    assert [each.heading for each in grid.columns] == [
        *("dtype", "unit", "kernel", "16 threads", "source")
    ]
    assert "write-allocate" not in str(load_hardware("10980xe"))


def test_a_device_computes_as_a_whole() -> None:
    text = plain_text(device_profile().report(TODAY))
    assert "thread" not in text
    row = row_of(grid_of(device_profile(), "Compute ceilings"), "bfloat16", "tensor-core", "gemm")
    assert (row["peak"], row["theoretical"], row["loss"]) == (
        "757 TFLOP/s",
        "989 TFLOP/s",
        "23.5 %",
    )


def test_what_was_measured_before_version_three_still_reads_well() -> None:
    report = full_profile().report(TODAY)
    assert report.headline == (
        "example-2core (2 threads): float32 peak 523 GFLOP/s, DRAM read 41.3 GB/s,"
        " ridge point 12.7 FLOP/B"
    )
    lines = [" ".join(line.split()) for line in plain_text(report).splitlines()]
    for words in (
        "Source measured 3 days ago (2026-03-04)",
        "torch dispatch 1.40 µs 1.30 µs 3.0 % [1]",
        "another process took 3 % of the CPU",
        "[1] roofline measure: bursts of 0.5 ms, 95 % quantile; 2026-03-04; roofline 0.1.0",
        "Host Example CPU 9000 @ 2.60GHz · x86_64 · 2 CPUs available · Linux 6.1",
    ):
        assert words in lines


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@pytest.mark.parametrize("profile", [rich_profile(), device_profile(), full_profile()])
def test_a_terminal_of_eighty_columns_shows_every_peak(
    profile: HardwareProfile, width: int
) -> None:
    text = on_terminal(profile, width)
    assert max(map(len, text.splitlines())) <= width
    tables = re.sub(r"(?s)\n(Unreliable figures|Measurement|Theoretical|References).*", "", text)
    for title in ("Compute ceilings", "Memory bandwidth"):
        assert title in tables
    if profile.name == "rich-2core":
        assert "loss (2)" in text
        assert "write-allocate" in text


def test_the_library_needs_no_hardware_beside_it() -> None:
    profile = rich_profile()
    only = replace(profile, compute=tuple(e for e in profile.compute if e.kind == "library"))
    assert "share" not in str(only).split("Memory")[0]


def test_peak_memory_bandwidth_and_the_share_of_torch() -> None:
    assert summary(MACHINE) == {
        # Products, not additions beside them; integers are operations.
        "Compute": "int8 800 GOP/s · float32 100 GFLOP/s",
        "Library": "conv 90.0 % · gemm 40.0 % of the float32 peak (torch)",
        "Memory": "DRAM update 150 GB/s · read 80.0 GB/s",
        # 100 GFLOP/s over 150 GB/s.
        "Ridge point": "0.667 FLOP/B (float32, DRAM); memory-bound below",
    }
    assert MACHINE.summary == (
        "test (2 threads): float32 peak 100 GFLOP/s, DRAM update 150 GB/s, ridge point 0.667 FLOP/B"
    )


def test_doubts_are_counted() -> None:
    doubted = replace(MACHINE.compute[0], doubt="unsteady")
    found = summary(replace(MACHINE, compute=(doubted, *MACHINE.compute[1:])))
    assert found["Unreliable"] == "1 of 8 figures, marked ? below"


def test_other_processes_are_in_the_first_lines_if_figures_may_be_too_low() -> None:
    before = Activity(steal_s=0, throttled=0, load=None, busy_s=0.0, watched=2)
    after = replace(before, busy_s=0.6)
    (busy,) = disturbances(before, after, elapsed_s=10.0, cpus=2)
    conditions = ("contention: other processes disturbed 9 of 90 bursts; discarded", busy)
    assert summary(replace(MACHINE, conditions=conditions))["Disturbed"] == (
        "contention: other processes used 3.0 % of 2 CPUs; stop them and measure again"
    )
    assert "Disturbed" not in summary(replace(MACHINE, conditions=conditions[:1]))
    # A difference of 2 % does not matter.
    assert disturbances(before, replace(before, busy_s=0.4), elapsed_s=10.0, cpus=2) == []


def test_a_read_bandwidth_is_only_one_of_reading_on_all_threads() -> None:
    assert read_bytes_per_s(MACHINE) == 8e10
    assert read_bytes_per_s(replace(MACHINE, memory=(DATA_SHEET,))) is None
    alone = level("DRAM", None, {"read": {1: 4e10}, "update": {2: 1.5e11}})
    assert read_bytes_per_s(replace(MACHINE, memory=(alone,))) is None
    assert read_bytes_per_s(replace(MACHINE, memory=())) is None
    fastest = level("DRAM", None, {"read": {2: 8e10}, "update": {2: 7e10}})
    assert summary(replace(MACHINE, memory=(fastest,)))["Memory"] == "DRAM read 80.0 GB/s"


def test_what_is_not_known_has_no_line() -> None:
    assert summary(machine_of([], [])) == {}
    assert "Ridge point" not in summary(replace(MACHINE, memory=()))
    assert "Library" not in summary(replace(MACHINE, compute=MACHINE.compute[:3]))
    assert bare_profile().summary == "bare (1 thread): no hardware ceilings"


def entry(name: str, origin: Literal["user", "bundled"], profile: HardwareProfile) -> Entry:
    return Entry(name=name, path=Path(name), origin=origin, profile=profile)


def test_the_list_of_hardware_prints_one_line_each() -> None:
    """The sheet has 100 GFLOP/s and 10 GB/s; a device has no threads, and this one no memory."""
    device = replace(bare_profile(), device="cuda", threads=1, description="A device")
    entries = [entry("one", "bundled", dram_profile()), entry("two", "user", device)]
    lines = plain_text(catalog_report(entries)).splitlines()[4:6]
    assert [" ".join(line.split()) for line in lines] == [
        "one sheet cpu 4 100 GFLOP/s DRAM 10.0 GB/s – 2020-01-02 bundled",
        "two A device cuda – – – – 2026-03-04 user",
    ]
    assert "roofline measure" in catalog_report([]).headline
    listed, _ = catalog_report([entry("one", "user", MACHINE)]).blocks
    assert isinstance(listed, Grid)
    shown = dict(zip((each.heading for each in listed.columns), listed.rows[0], strict=True))
    assert (shown["memory bandwidth"], shown["read bandwidth"]) == (
        "DRAM update 150 GB/s",
        "80.0 GB/s",
    )
