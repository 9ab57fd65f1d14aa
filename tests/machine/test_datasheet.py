"""Profiles from data-sheet figures: the bundled machines' numbers, and what cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from roofline.core.dtypes import dtype
from roofline.errors import InputError
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, profile_to_toml, read_profile
from roofline.machine.kernels.compute import COMPUTE_KERNELS
from roofline.machine.theory.datasheet import (
    DataSheet,
    arithmetic_lines,
    datasheet_profile,
    left_out,
    parse_cache,
    parse_units,
)
from roofline.machine.theory.microarchitectures import core_named

ARTICLE = DataSheet(
    name="mine",
    cores=16,
    clock_hz=4.5e9,
    units=parse_units("avx512:2"),
    channels=4,
    transfer_per_s=3e9,
    reference="the article",
    date="2026-01",
)
EPYC = DataSheet(
    name="epyc",
    cores=96,
    clock_hz=3.7e9,
    core=core_named("AMD Zen 4"),
    channels=12,
    transfer_per_s=4.8e9,
)
XEON = DataSheet(
    name="xeon",
    cores=64,
    clock_hz=3.9e9,
    core=core_named("Sapphire Rapids"),
    channels=8,
    transfer_per_s=5.6e9,
)


def bundled(name: str) -> HardwareProfile:
    return read_profile(catalog.bundled_folder() / f"{name}.toml")


def rates(profile: HardwareProfile) -> dict[tuple[str, str, str, int], float]:
    return {
        (each.dtype.name, each.unit, each.kernel, each.threads): each.peak_flop_per_s
        for each in profile.compute
    }


def dram(profile: HardwareProfile) -> float:
    (found,) = profile.memory[-1].bandwidth
    return found.peak_bytes_per_s


def test_the_machine_of_the_article() -> None:
    """16 cores x 4.5 GHz x 2 pipes x 16 lanes x 2 = 4.608 TFLOP/s; 4 x 3000 MT/s x 8 = 96 GB/s."""
    found, paper = datasheet_profile(ARTICLE), bundled("10980xe")
    assert rates(found)["float32", "avx512", "fma", 16] == pytest.approx(4.608e12, rel=1e-12)
    assert rates(found)["float32", "avx512", "fma", 16] == pytest.approx(
        paper.compute[0].peak_flop_per_s, rel=1e-12
    )
    assert rates(found)["float32", "avx512", "fma", 1] == pytest.approx(288e9)
    assert dram(found) == pytest.approx(96e9) == dram(paper)


@pytest.mark.parametrize(("sheet", "name"), [(EPYC, "epyc-9654"), (XEON, "xeon-8592plus")])
def test_bundled_machines_follow_from_their_cores(sheet: DataSheet, name: str) -> None:
    found, paper = datasheet_profile(sheet), bundled(name)
    # The bundled files call the kernel of AMX tiles "dot".
    mine = {
        (of, unit, kernel.removeprefix("tile-"), n): r
        for (of, unit, kernel, n), r in rates(found).items()
    }
    for key, rate in rates(paper).items():
        assert mine[key] == pytest.approx(rate, rel=1e-12), key
    assert dram(found) == pytest.approx(dram(paper))


def test_narrow_pipes_need_no_core() -> None:
    """Zen 4 without its name: 512-bit vectors on two pipes of 256 bit."""
    sheet = dataclasses.replace(EPYC, core=None, units=parse_units("avx512:2x256"))
    found = rates(datasheet_profile(sheet))["float32", "avx512", "fma", 96]
    assert found == pytest.approx(11.3664e12)


def test_every_number_says_where_it_is_from_and_how_it_follows() -> None:
    profile = datasheet_profile(ARTICLE)
    for each in profile.provenances():
        assert (each.source, each.reference, each.date) == ("datasheet", "the article", "2026-01")
    assert arithmetic_lines(profile) == [
        "float64 AVX-512 FMA: 16 cores x 4.5 GHz x 2 pipes x 8 lanes x 2 FLOP = 2.30 TFLOP/s"
        " (1 core: 144 GFLOP/s)",
        "float32 AVX-512 FMA: 16 cores x 4.5 GHz x 2 pipes x 16 lanes x 2 FLOP = 4.61 TFLOP/s"
        " (1 core: 288 GFLOP/s)",
        "DRAM: 4 channels x 3000 MT/s x 8 byte = 96.0 GB/s",
    ]
    (_, article) = datasheet_profile(EPYC).compute[:2]
    assert "no document; AMD Zen 4: Software Optimization" in article.provenance.reference


@pytest.mark.parametrize("sheet", [ARTICLE, EPYC, XEON, dataclasses.replace(ARTICLE, cores=1)])
def test_the_file_is_read_back(sheet: DataSheet, tmp_path: Path) -> None:
    profile = datasheet_profile(sheet)
    path = tmp_path / "mine.toml"
    path.write_text(profile_to_toml(profile), encoding="utf-8")
    assert read_profile(path) == profile


def test_caches_with_a_bandwidth_are_levels() -> None:
    """16 cores x 4.5 GHz x 64 byte = 4.608 TB/s; one core 288 GB/s."""
    caches = tuple(map(parse_cache, ["L3=22MiB:16", "L1=32KiB/core:128", "L2=1MiB/core:64"]))
    sheet = dataclasses.replace(ARTICLE, caches=caches)
    assert left_out(sheet) == ""
    l1, l2, l3, _ = datasheet_profile(sheet).memory
    assert [each.name for each in (l1, l2, l3)] == ["L1", "L2", "L3"]
    assert [each.scope for each in (l1, l2, l3)] == ["private", "private", "shared"]
    assert [each.capacity_bytes for each in (l1, l2, l3)] == [32768, 2**20, 22 * 2**20]
    assert {each.threads: each.peak_bytes_per_s for each in l2.bandwidth} == pytest.approx(
        {1: 288e9, 16: 4.608e12}
    )
    assert l3.bandwidth[1].provenance.note == "16 cores x 4.5 GHz x 16 byte"


def test_caches_without_a_bandwidth_are_said_and_left_out() -> None:
    caches = tuple(map(parse_cache, ["L1=32KiB/core:128", "L3=22MiB"]))
    sheet = dataclasses.replace(ARTICLE, caches=caches)
    profile = datasheet_profile(sheet)
    assert profile.has_single_memory_level
    assert "unknown bandwidth of L3" in left_out(sheet)
    assert "L1 32 KiB per core, L3 22 MiB" in profile.description


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cores": 0}, "threads must be greater than 0"),
        ({"name": ""}, "name must be a one-line name"),
        ({"date": "yesterday"}, "date must be a date such as 2026-01-31"),
        ({"caches": (parse_cache("L1=2MiB:64"), parse_cache("L2=1MiB:64"))}, "nearest first"),
        ({"caches": (parse_cache("L1=2MiB:64"), parse_cache("L1=4MiB:64"))}, "occurs twice"),
        ({"clock_hz": float("inf")}, "must be greater than 0"),
    ],
)
def test_figures_that_cannot_be(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError, match=f"inconsistent figures: .*{expected}"):
        datasheet_profile(dataclasses.replace(ARTICLE, **changes))  # pyright: ignore


@pytest.mark.parametrize(
    "name",
    [
        *("scalar", "sse", "avx2", "avx512", "avx512-fp16", "avx512-bf16", "avx-vnni"),
        *("avx512-vnni", "amx", "neon", "neon-dot", "neon-bf16", "neon-i8mm", "sve"),
    ],
)
def test_every_unit_that_is_taken_is_one_that_is_measured(name: str) -> None:
    (found,) = parse_units(f"{name}:2x256" if name == "sve" else f"{name}:2")
    widths = {each.unit.bits for each in COMPUTE_KERNELS if each.unit.name == name}
    assert found.unit == name and widths
    if name not in ("sve", "amx"):
        assert widths == {found.bits}
    for of in found.dtypes:
        kinds = {
            each.name
            for each in COMPUTE_KERNELS
            if each.unit.name == name and each.dtype == dtype(of)
        }
        assert found.kernel in kinds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("avx51:2", "unknown unit 'avx51'; did you mean 'avx512'?"),
        ("cuda:2", "unknown unit 'cuda'; known are scalar, sse, avx2"),
        ("avx512", "lacks the number of pipes; use the form avx512:2"),
        ("avx512:0", "has 0 pipes; use 1 to 16"),
        ("avx512:99", "has 99 pipes"),
        ("avx512:two", "use the form avx512:2"),
        ("", "use the form avx512:2"),
        ("avx512:2,", "use the form avx512:2"),
        ("sve:2", "lacks the width in bits; use the form sve:2x256"),
        ("avx512:2x300", "invalid width of 300 bit"),
        ("scalar:2x128", "invalid width of 128 bit"),
        ("avx2:1,avx2:1", "duplicate unit 'avx2'"),
        ("avx512:2,neon:4", "units 'avx512' (x86) and 'neon' (Arm)"),
        ("scalar:2,sve:2x256,amx:1", "units 'amx' (x86) and 'sve' (Arm)"),
    ],
)
def test_what_is_no_unit(text: str, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_units(text)
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["", "L1", "L1=", "L1=32", "L1=32KB", "L1=32KiB/thread", "L1=32KiB:0", "L1=0KiB", "=1KiB"],
)
def test_what_is_no_cache(text: str) -> None:
    with pytest.raises(InputError, match=r"invalid cache|is not of the form|must be a size"):
        parse_cache(text)
