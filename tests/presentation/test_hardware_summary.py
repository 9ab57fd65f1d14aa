"""A machine in a few lines."""

from __future__ import annotations

import re
from dataclasses import replace

from roofline.design.hardware_difference import HardwareDifference
from roofline.foundation.blocks import Grid
from roofline.presentation.charts.hardware_roof import roof_panel
from roofline.presentation.charts.labels import Box
from roofline.presentation.reports.hardware_difference_report import hardware_difference_report
from roofline.presentation.reports.hardware_report import HardwareEntry, hardware_list_report
from roofline.presentation.reports.hardware_summary import read_byte_per_s, summary
from roofline.render.console import plain_text
from tests.builders import ceiling, level, profile

DRAM = level("DRAM", None, {"read": {1: 4e10, 2: 8e10}, "update": {2: 1.5e11}})
PAPER = level("DRAM", None, {"unspecified": {2: 9.6e10}})
MACHINE = profile(
    [
        ceiling(1e11, threads=2),
        ceiling(1.5e11, kernel="fma-add", threads=2),
        ceiling(8e11, of="int8", unit="avx-vnni", kernel="dot", threads=2),
        replace(ceiling(4e10, kernel="gemm", unit="torch", threads=2), kind="library"),
        replace(ceiling(9e10, kernel="conv", unit="torch", threads=2), kind="library"),
    ],
    [DRAM],
    threads=2,
)


def test_what_it_computes_reads_and_what_torch_makes_of_it() -> None:
    assert dict(summary(MACHINE)) == {
        "With": "2 threads, at the peak",
        # Products, not additions beside them; integers are operations.
        "Computes": "int8 800 GOP/s, float32 100 GFLOP/s",
        "torch": "90.0 % of float32 in conv; 40.0 % of float32 in gemm",
        "Memory": "DRAM update 150 GB/s, read 80.0 GB/s",
        # 100 GFLOP/s over 150 GB/s.
        "Ridge": "float32 work below 0.667 FLOP/byte of DRAM is bound by memory",
    }


def test_doubts_are_counted() -> None:
    doubted = replace(MACHINE.compute[0], doubt="unsteady")
    found = dict(summary(replace(MACHINE, compute=(doubted, *MACHINE.compute[1:]))))
    assert found["Doubt"] == "about 1 of 8 figures, marked ? below"


def test_list_report_difference_and_picture_name_the_same_figures() -> None:
    entry = HardwareEntry(name="one", where="yours", profile=MACHINE)
    (listed,) = hardware_list_report([entry]).blocks
    assert isinstance(listed, Grid)
    shown = dict(zip((each.heading for each in listed.columns), listed.rows[0], strict=True))
    assert (shown["memory"], shown["read"]) == ("DRAM update 150 GB/s", "80.0 GB/s")
    (diagonal,) = roof_panel(MACHINE, Box(0, 0, 500, 400)).diagonals
    assert diagonal.label == "DRAM update 150 GB/s"
    other = replace(MACHINE, name="other", memory=(PAPER,))
    difference = plain_text(
        hardware_difference_report(HardwareDifference(machines=(MACHINE, other)))
    )
    assert re.search(r"^memory +150 GB/s +96\.0 GB/s +0\.64 +DRAM update +DRAM$", difference, re.M)
    assert re.search(r"^memory read +80\.0 GB/s +–", difference, re.M)


def test_a_read_bandwidth_is_only_one_of_reading_on_all_threads() -> None:
    assert read_byte_per_s(MACHINE) == 8e10
    assert read_byte_per_s(replace(MACHINE, memory=(PAPER,))) is None
    alone = level("DRAM", None, {"read": {1: 4e10}, "update": {2: 1.5e11}})
    assert read_byte_per_s(replace(MACHINE, memory=(alone,))) is None
    assert read_byte_per_s(replace(MACHINE, memory=())) is None
    fastest = level("DRAM", None, {"read": {2: 8e10}, "update": {2: 7e10}})
    assert dict(summary(replace(MACHINE, memory=(fastest,))))["Memory"] == "DRAM read 80.0 GB/s"


def test_what_is_not_known_has_no_line() -> None:
    assert summary(profile([], [])) == ()
    assert "Ridge" not in dict(summary(replace(MACHINE, memory=())))
    assert "torch" not in dict(summary(replace(MACHINE, compute=MACHINE.compute[:3])))
