"""Profiles hold nothing that cannot be true of a machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from roofline.machine.hardware import (
    Clock,
    Duration,
    HardwareProfile,
    Host,
    LatencyCurve,
    Link,
    Overhead,
    TheoreticalRate,
)
from tests.builders import SOURCE, ceiling, level, profile

MACHINE = profile(
    [ceiling(1e11), ceiling(2e11, threads=2)],
    [
        level("L1", 32768, {"read": {1: 1e11, 2: 2e11}}, scope="private"),
        level("DRAM", None, {"copy": {1: 1e10}}),
    ],
    threads=2,
)

TIME = Duration(fast_s=2e-9, median_s=2e-9, provenance=SOURCE)
OVERHEAD = Overhead(name="call", threads=1, time=TIME)
LINK = Link(
    source="node 0",
    target="node 1",
    kernel="read",
    threads=1,
    peak_bytes_per_s=1e10,
    sustained_bytes_per_s=1e10,
    provenance=SOURCE,
)
CURVE = LatencyCurve(size_bytes=(1024, 2048), latency_s=(1e-9, 2e-9), provenance=SOURCE)

FALSE: dict[str, tuple[Callable[[HardwareProfile], object], str]] = {
    "no name": (lambda it: replace(it, name=" "), "name must be a one-line name, got ' '"),
    "lines": (lambda it: replace(it, name="a\nb"), "must be a one-line name"),
    "no unit": (lambda it: replace(it.compute[0], unit=""), "unit must be a one-line name"),
    "no kernel": (lambda it: replace(it.compute[0], kernel=""), "kernel must be a one-line name"),
    "no level name": (lambda it: replace(it.memory[0], name=""), "name must be a one-line name"),
    "spread": (lambda it: replace(it.compute[0], spread=-0.1), "spread must be a finite number"),
    "bandwidth's spread": (
        lambda it: replace(it.memory[0].bandwidth[0], spread=math.inf),
        "spread must be a finite number from 0, got inf",
    ),
    "nan": (lambda it: replace(it.compute[0], peak_flop_per_s=math.nan), "greater than 0, got nan"),
    "overhead": (lambda it: replace(TIME, fast_s=-1e-9), "fast_s must be a finite number from 0"),
    "median below fast": (lambda it: replace(TIME, median_s=1e-9), "must not be below fast_s"),
    "overhead without name": (lambda it: Overhead(name="", threads=1, time=TIME), "name must be"),
    "overhead twice": (
        lambda it: replace(it, overheads=(OVERHEAD, OVERHEAD)),
        "overheads must differ, but 'call, 1 threads' occurs twice",
    ),
    "overhead of more threads": (
        lambda it: replace(it, overheads=(replace(OVERHEAD, threads=3),)),
        "overhead 'call' has 3 threads, but the machine has 2",
    ),
    "link": (lambda it: replace(LINK, sustained_bytes_per_s=2e10), "must not exceed"),
    "link twice": (
        lambda it: replace(it, links=(LINK, LINK)),
        "links must differ, but 'node 0 to node 1 read, 1 threads' occurs twice",
    ),
    "clock": (
        lambda it: Clock(peak_hz=1e9, median_hz=2e9, provenance=SOURCE),
        "must not exceed peak_hz",
    ),
    "theoretical": (
        lambda it: TheoreticalRate(per_s=0.0, provenance=SOURCE),
        "per_s must be greater than 0",
    ),
    "curve that turns back": (
        lambda it: replace(CURVE, size_bytes=(2048, 1024)),
        "size_bytes must be ascending",
    ),
    "curve with a gap": (
        lambda it: replace(CURVE, latency_s=(1e-9,)),
        "equal length, at least 1, got 2 and 1",
    ),
    "no bandwidth of the hardware": (
        lambda it: replace(
            it.memory[1], bandwidth=(replace(it.memory[1].bandwidth[0], kind="library"),)
        ),
        "memory level 'DRAM' has no hardware bandwidth",
    ),
    "twice": (
        lambda it: replace(it, compute=(*it.compute, it.compute[0])),
        "compute ceilings must differ, but 'hardware float32 avx2 fma, 1 threads' occurs twice",
    ),
    "bandwidth twice": (
        lambda it: replace(it.memory[0], bandwidth=(it.memory[0].bandwidth[0],) * 2),
        "bandwidths of 'L1' must differ, but 'hardware read, 1 threads' occurs twice",
    ),
    "farthest first": (
        lambda it: replace(it, memory=it.memory[::-1]),
        r"nearest first, got DRAM before L1 \(32 KiB per core\)",
    ),
    "smaller farther away": (
        lambda it: replace(
            it, memory=(it.memory[0], replace(it.memory[0], name="L2", capacity_bytes=32767))
        ),
        r"L1 \(32 KiB per core\) before L2",
    ),
    "no reference": (
        lambda it: replace(it.compute[0].provenance, reference=""),
        "reference must name a document or method",
    ),
    "clock of a ceiling": (
        lambda it: replace(it.compute[0], clock_hz=0.0),
        "clock_hz must be greater than 0, got 0",
    ),
    "clock of a bandwidth": (
        lambda it: replace(it.memory[0].bandwidth[0], clock_hz=-1e9),
        "clock_hz must be greater than 0",
    ),
    "no alias": (lambda it: replace(it, aliases=(" ",)), "alias must be a one-line name"),
    "alias twice": (
        lambda it: replace(it, aliases=("a", "b", "a")),
        "aliases must differ, but 'a' occurs twice",
    ),
    "multiprocessors of a CPU": (
        lambda it: replace(it, multiprocessors=2),
        "multiprocessors must be omitted for device 'cpu'",
    ),
    "no multiprocessors": (
        lambda it: replace(it, multiprocessors=0),
        "multiprocessors must be greater than 0, got 0",
    ),
    "no CPUs": (
        lambda it: Host(
            cpu_model="",
            architecture="",
            operating_system="",
            instruction_sets=(),
            available_cpus=0,
        ),
        "available_cpus must be greater than 0",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_cannot_be_true_is_refused(name: str) -> None:
    make, message = FALSE[name]
    with pytest.raises(ValueError, match=message):
        make(MACHINE)


def test_the_last_level_is_the_memory_and_its_capacity_that_of_the_machine() -> None:
    assert MACHINE.memory_capacity_bytes is None
    assert replace(MACHINE, memory=()).memory_capacity_bytes is None
    nearest, dram = MACHINE.memory
    full = replace(MACHINE, memory=(nearest, replace(dram, capacity_bytes=2**34)))
    assert full.memory_capacity_bytes == 2**34


def test_ceilings_that_follow_the_clock_are_raised_to_a_higher_one() -> None:
    """Measured at 3.89 GHz, used at 4.26: compute and L1 by 1.0951, DRAM and a library's not."""
    products, other = ceiling(1000.0), replace(ceiling(700.0, kernel="fma-add"), clock_hz=4.3e9)
    library = replace(ceiling(500.0), kind="library", clock_hz=3.89e9)
    near, dram = level("L1", 40, {"read": {1: 100.0}}), level("DRAM", None, {"read": {1: 10.0}})
    near = replace(near, bandwidth=(replace(near.bandwidth[0], clock_hz=3.89e9),))
    measured = profile([replace(products, clock_hz=3.89e9), other, library], [near, dram])
    assert measured.ceilings_clock_hz == 4.3e9
    found = measured.at_clock(4.26e9)
    assert [each.peak_flop_per_s for each in found.compute] == pytest.approx([1095.115, 700, 500])
    assert [each.clock_hz for each in found.compute] == [4.26e9, 4.3e9, 3.89e9]
    assert found.compute[0].provenance.note == "scaled from 3.89 GHz to 4.26 GHz"
    rates = [each.bandwidth[0].peak_bytes_per_s for each in found.memory]
    assert rates == pytest.approx([109.5115, 10.0])
    assert measured.at_clock(3.0e9) == measured
    assert profile([products], [dram]).at_clock(5e9) == profile([products], [dram])
    assert profile([products], [dram]).ceilings_clock_hz is None


@pytest.mark.parametrize("date", ["", "2026", "2026-02", "2026-02-28", "2024-02-29"])
def test_dates_may_lack_day_and_month(date: str) -> None:
    assert replace(MACHINE.compute[0].provenance, date=date).date == date


@pytest.mark.parametrize(
    "date",
    [
        *("2026-02-29", "2026-13", "0000", "20260101", "2026-1-1", "26-01-01", "2026-01-01T00:00"),
        *("yesterday", " 2026", "2026-W01", "\uff12\uff10\uff12\uff16"),
    ],
)
def test_dates_that_are_none(date: str) -> None:
    with pytest.raises(
        ValueError, match="date must be a date such as 2026-01-31, 2026-01 or 2026, got"
    ):
        replace(MACHINE.compute[0].provenance, date=date)
