"""A machine in a few lines."""

from __future__ import annotations

from dataclasses import replace

from roofline.presentation.reports.hardware_summary import memory_byte_per_s, summary
from tests.builders import ceiling, level, profile

DRAM = level("DRAM", None, {"read": {1: 4e10, 2: 8e10}, "update": {2: 1.5e11}})
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
        "Memory": "DRAM read 80.0 GB/s",
        # 100 GFLOP/s over 80 GB/s.
        "Ridge": "float32 work below 1.25 FLOP/byte of DRAM is bound by memory",
    }


def test_doubts_are_counted() -> None:
    doubted = replace(MACHINE.compute[0], doubt="unsteady")
    found = dict(summary(replace(MACHINE, compute=(doubted, *MACHINE.compute[1:]))))
    assert found["Doubt"] == "about 1 of 8 figures, marked ? below"


def test_reading_is_what_memory_gives_where_it_was_measured() -> None:
    assert memory_byte_per_s(MACHINE) == 8e10
    paper = level("DRAM", None, {"unspecified": {2: 9.6e10}})
    assert memory_byte_per_s(replace(MACHINE, memory=(paper,))) == 9.6e10
    assert memory_byte_per_s(replace(MACHINE, memory=())) is None


def test_what_is_not_known_has_no_line() -> None:
    assert summary(profile([], [])) == ()
    assert "Ridge" not in dict(summary(replace(MACHINE, memory=())))
    assert "torch" not in dict(summary(replace(MACHINE, compute=MACHINE.compute[:3])))
