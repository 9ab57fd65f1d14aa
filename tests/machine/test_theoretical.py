"""Theoretical rates: clock x width x pipes, by hand; None where something is unknown."""

from __future__ import annotations

import pytest

from roofline.core.dtypes import dtype
from roofline.machine.hardware import Clock, Provenance
from roofline.machine.measuring.ceilings import TheoreticalPeaks
from roofline.machine.theory.microarchitectures import Core, core_named

MEASURED = Provenance(
    source="measured", reference="here", date="2026-01-31", tool_version="1", note="quiet"
)
CLOCK = Clock(peak_hz=4.48e9, median_hz=4.4e9, provenance=MEASURED)
ZEN_5 = core_named("AMD Zen 5")


def test_the_rate_shows_its_arithmetic() -> None:
    """2 threads x 4.48 GHz x 2 pipes x 16 lanes x 2 FLOP = 573.44 GFLOP/s."""
    found = TheoreticalPeaks(ZEN_5, CLOCK).compute("fma", dtype("float32"), "avx512", 2)
    assert found is not None
    assert found.per_s == pytest.approx(573.44e9)
    where = found.provenance
    assert where.source == "derived"
    assert where.note == (
        "2 threads x 4.48 GHz (measured peak of dependent additions) x 2 pipes x 16 lanes x 2 FLOP"
    )
    assert where.reference.startswith("AMD Zen 5: Software Optimization Guide")
    assert where.date == "2026-01-31"


@pytest.mark.parametrize(
    ("kernel", "of", "unit", "per_cycle", "arithmetic"),
    [
        ("dot", "int8", "avx512-vnni", 256, "x 2 pipes x 64 products x 2 operations"),
        ("dot", "bfloat16", "avx512-bf16", 128, "x 2 pipes x 32 products x 2 FLOP"),
        ("fma", "float64", "scalar", 4, "x 2 pipes x 1 lane x 2 FLOP"),
        (
            "fma-add",
            "float64",
            "avx512",
            48,
            "x (2 pipes x 8 lanes x 2 FLOP + 2 adders x 8 lanes x 1 FLOP)",
        ),
    ],
)
def test_each_kind_of_kernel(
    kernel: str, of: str, unit: str, per_cycle: int, arithmetic: str
) -> None:
    found = TheoreticalPeaks(ZEN_5, CLOCK).compute(kernel, dtype(of), unit, 1)
    assert found is not None
    assert found.per_s == pytest.approx(4.48e9 * per_cycle)
    assert found.provenance.note.endswith(arithmetic)


def test_without_core_clock_or_entry_there_is_none() -> None:
    def rate(
        core: Core | None = ZEN_5,
        clock: Clock | None = CLOCK,
        unit: str = "avx512",
        element: str = "float32",
    ) -> object:
        return TheoreticalPeaks(core, clock).compute("fma", dtype(element), unit, 1)

    assert rate() is not None
    assert rate(core=None) is None
    assert rate(clock=None) is None
    assert rate(unit="amx") is None
    assert rate(element="float16") is None


def test_a_clock_from_a_document_is_called_so() -> None:
    sheet = Clock(
        peak_hz=3e9,
        median_hz=3e9,
        provenance=Provenance(source="datasheet", reference="sheet", date=""),
    )
    found = TheoreticalPeaks(ZEN_5, sheet).compute("fma", dtype("float32"), "avx2", 1)
    assert found is not None
    assert "1 thread x 3.00 GHz (document maximum)" in found.provenance.note


@pytest.mark.parametrize(
    ("core", "vector_bytes", "kernel", "bytes_per_cycle"),
    [
        # Zen 5: two loads and one store of 64 byte a cycle.
        ("AMD Zen 5", 64, "read", 128),
        ("AMD Zen 5", 64, "write", 64),
        ("AMD Zen 5", 64, "copy", 128),
        ("AMD Zen 5", 64, "triad", 192),
        ("AMD Zen 5", 64, "update", 128),
        ("AMD Zen 5", 32, "read", None),
        ("AMD Zen 5", 64, "copy-nt", None),
        # Zen: two accesses of 16 byte a cycle, one of them a store at most.
        ("AMD Zen", 32, "read", 32),
        ("AMD Zen", 32, "copy", 32),
        ("AMD Zen", 32, "triad", 32),
        ("AMD Zen 2", 32, "triad", 96),
        # Zen 4 splits vectors of 64 byte.
        ("AMD Zen 4", 64, "read", 64),
        ("Intel Golden Cove", 32, "read", 96),
        ("Intel Golden Cove", 32, "copy", None),
        ("Arm Neoverse N1", 16, "read", None),
    ],
)
def test_the_nearest_cache(
    core: str, vector_bytes: int, kernel: str, bytes_per_cycle: float | None
) -> None:
    found = TheoreticalPeaks(core_named(core), CLOCK).bandwidth("L1", kernel, 2, vector_bytes)
    if bytes_per_cycle is None:
        assert found is None
        return
    assert found is not None
    assert found.per_s == pytest.approx(2 * 4.48e9 * bytes_per_cycle)
    assert found.provenance.note.endswith(f" x {bytes_per_cycle:g} byte")


@pytest.mark.parametrize(
    ("level", "kernel", "bytes_per_cycle"),
    [("L2", "read", 64), ("L2", "copy", None), ("L3", "read", None), ("DRAM", "read", None)],
)
def test_farther_levels(level: str, kernel: str, bytes_per_cycle: float | None) -> None:
    def found(core: str | None) -> float | None:
        paper = TheoreticalPeaks(core_named(core) if core else None, CLOCK)
        rate = paper.bandwidth(level, kernel, 1, 64)
        return rate.per_s / CLOCK.peak_hz if rate else None

    assert found("AMD Zen 5") == bytes_per_cycle
    assert found(None) is None
