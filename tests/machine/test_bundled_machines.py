"""The bundled machines: every number has its source, and is what its arithmetic says."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from roofline.core.dtypes import dtype
from roofline.errors import FileFormatError, HardwareError
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, Provenance, read_profile
from roofline.machine.theory.microarchitectures import CORES
from roofline.placement import Roof, ridge_flop_per_byte

FILES = sorted(catalog.bundled_folder().glob("*.toml"))
NAMES = [path.stem for path in FILES]


TYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "int8")


@cache
def machine(name: str) -> HardwareProfile:
    return read_profile(catalog.bundled_folder() / f"{name}.toml")


def peak(name: str, of: str, unit: str, kernel: str, threads: int | None = None) -> float:
    profile = machine(name)
    (found,) = [
        each
        for each in profile.compute
        if (each.dtype.name, each.unit, each.kernel) == (of, unit, kernel)
        and each.threads == (threads or profile.threads)
    ]
    assert found.sustained_flop_per_s == found.peak_flop_per_s
    return found.peak_flop_per_s


def bandwidth(name: str) -> float:
    (found,) = machine(name).memory[-1].bandwidth
    return found.peak_bytes_per_s


GPUS = [name for name in NAMES if machine(name).device != "cpu" and name != "v100-article"]
"""All but that of the founding article, which has what the article has."""

# The core, KiB of its L1 and L2, MiB of L3 in all.
CORES_OF = {
    "epyc-9654": ("AMD Zen 4", 32, 1024, 384),
    "xeon-8592plus": ("Intel Sapphire Rapids", 48, 2048, 320),
    "epyc-9755": ("AMD Zen 5", 48, 1024, 512),
    "ryzen-9-9950x": ("AMD Zen 5", 48, 1024, 64),
    "i9-10940x": ("Intel Cascade Lake, two AVX-512 FMA units", 32, 1024, 19.25),
    "xeon-6980p": ("Intel Granite Rapids", 48, 2048, 504),
}
CPUS_WITH_CACHES = [*CORES_OF, "graviton-4"]


def test_the_machines_that_were_promised_are_there() -> None:
    assert {
        *("10980xe", "10980xe-measured", "v100", "v100-article", "a100", "h100", "h200"),
        *("rtx4090", "m1-max", "epyc-9654", "xeon-8592plus", "orin", "snapdragon-8-gen-3"),
        *("rtx-3090", "rtx-4080", "rtx-5090", "rtx-pro-6000", "rtx-pro-6000-max-q"),
        *("mi100", "mi210", "mi250x", "mi250x-gcd", "mi300x", "m2-ultra", "m3-max"),
        *("i9-10940x", "graviton-4", "xeon-6980p", "epyc-9755", "ryzen-9-9950x"),
        *("v100-sxm2-32gb", "v100-pcie-32gb", "a100-40gb", "a100-pcie-40gb", "a100-pcie-80gb"),
        *("t4", "p4", "p100", "l4", "l40", "l40s", "a10", "a40", "a6000"),
        *("h100-pcie", "gh200", "b200"),
    } <= set(NAMES)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_file_is_called_like_its_machine_in_few_lower_case_letters(path: Path) -> None:
    profile = read_profile(path)
    assert profile.name == path.stem
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)
    assert len(path.stem) <= 18
    assert path.read_text(encoding="utf-8").startswith("schema_version = 1\n")
    assert len(profile.description) <= 80
    assert profile.compute
    assert profile.has_single_memory_level == (path.stem not in (*GPUS, *CPUS_WITH_CACHES))


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_has_its_caches_its_memory_its_clock_and_its_processors(name: str) -> None:
    profile = machine(name)
    assert profile.aliases
    assert profile.multiprocessors
    assert profile.clock and profile.clock.peak_hz == profile.clock.median_hz
    assert 1e9 < profile.clock.peak_hz < 3e9
    l2, *_, memory = profile.memory
    # Of the L2 of Apple's third generation nothing is published.
    assert l2.name == ("SLC" if name == "m3-max" else "L2")
    assert l2.capacity_bytes and "read" in {b.kernel for b in l2.bandwidth}
    # Consumers' and data-center cards had 2 to 192 GB since 2016.
    assert 8e9 <= (profile.memory_capacity_bytes or 0) <= 300e9
    (read,) = [each.peak_bytes_per_s for each in l2.bandwidth if each.kernel == "read"]
    assert 1.5 < read / max(each.peak_bytes_per_s for each in memory.bandwidth) < 14
    assert all(each.peak_bytes_per_s >= 0.8 * read for each in l2.bandwidth)
    assert all(each.clock_hz is None for each in memory.bandwidth)
    for each in profile.compute:
        assert (each.clock_hz or 0) <= profile.clock.peak_hz


@pytest.mark.parametrize("name", GPUS)
def test_an_l2_gives_no_multiprocessor_more_than_its_l1_takes(name: str) -> None:
    """128 byte per clock and SM (shared memory and L1 since Volta; Pascal and Turing: fewer)."""
    profile = machine(name)
    assert profile.clock and profile.multiprocessors
    per_clock = profile.clock.peak_hz * profile.multiprocessors
    for each in profile.memory[0].bandwidth:
        assert 10 < each.peak_bytes_per_s / per_clock <= 128
        if each.theoretical:
            assert each.peak_bytes_per_s < each.theoretical.per_s <= 128 * per_clock


@pytest.mark.parametrize(
    ("name", "measured", "bytes_per_cycle"),
    [
        # RRZE gpu-benches on other cards of the same chip, at their highest clock: A40, L40.
        *((name, "a40", 2512.8e9 / 1.74e9) for name in ("a10", "a6000", "rtx-3090")),
        *((name, "l40", 5725.8e9 / 2.49e9) for name in ("l40s", "rtx4090")),
    ],
)
def test_what_is_not_measured_of_an_l2_is_above_what_its_chip_is_measured_at(
    name: str, measured: str, bytes_per_cycle: float
) -> None:
    """An upper limit: fewer bytes would make a minimum time that can be beaten."""
    for kernel, other in (("read", "read"), ("update", "triad")):
        (limit,) = [b for b in machine(name).memory[0].bandwidth if b.kernel == kernel]
        (rate,) = [b for b in machine(measured).memory[0].bandwidth if b.kernel == other]
        assert limit.clock_hz and rate.clock_hz
        assert limit.peak_bytes_per_s / limit.clock_hz > rate.peak_bytes_per_s / rate.clock_hz
        assert limit.provenance.source == "derived" and "upper limit" in limit.provenance.note
        if kernel == "read":
            assert rate.peak_bytes_per_s / rate.clock_hz == pytest.approx(bytes_per_cycle)


@pytest.mark.parametrize("name", CORES_OF)
def test_caches_of_a_cpu_are_wide_paths_of_its_cores(name: str) -> None:
    profile = machine(name)
    l1, l2, l3, dram = profile.memory
    assert [each.name for each in profile.memory] == ["L1", "L2", "L3", "DRAM"]
    assert [each.scope for each in profile.memory] == ["private", "private", "shared", "shared"]
    assert (profile.memory_capacity_bytes, dram.capacity_bytes) == (None, None)
    core, *kib, l3_mib = CORES_OF[name]
    (known,) = [each for each in CORES if each.name == core]
    assert profile.clock and known.l1 and known.l1.together_bytes
    for threads in (1, profile.threads):
        widths: list[float] = []
        for level in (l1, l2, l3):
            rates = [b.peak_bytes_per_s for b in level.bandwidth if b.threads == threads]
            widths.append(max(rates) / threads / profile.clock.peak_hz)
        assert widths[0] == pytest.approx(known.l1.together_bytes)
        assert widths[0] > widths[1] >= widths[2]
    sizes = [(each.capacity_bytes or 0) / 1024 for each in (l1, l2, l3)]
    assert sizes == [*kib, l3_mib * 1024]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_number_names_its_document_and_how_it_was_taken_from_it(path: Path) -> None:
    for each in all_provenances(read_profile(path)):
        assert re.search(r"https://\S+\.\S+|the founding article", each.reference), each
        assert each.note, each
        assert re.fullmatch(r"(20\d\d(-\d\d(-\d\d)?)?)?", each.date), each
        # What is measured was measured by somebody else.
        assert not each.tool_version


def all_provenances(profile: HardwareProfile) -> Iterable[Provenance]:
    yield from profile.provenances()
    if profile.clock:
        yield profile.clock.provenance
    yield from (each.time.provenance for each in profile.overheads)
    for level in profile.memory:
        assert (level.capacity_bytes is None) == (level.capacity_provenance is None)
        if level.capacity_provenance:
            yield level.capacity_provenance
        yield from (b.theoretical.provenance for b in level.bandwidth if b.theoretical)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_source_that_a_file_names_is_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for key in tomllib.loads(text).get("sources", {}):
        assert re.search(rf'(from|provenance) = "{re.escape(key)}"', text), key


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_what_multiplies_integers_or_narrow_floats_is_no_slower_than_wider_ones(
    path: Path,
) -> None:
    """A sparse figure beside dense ones, or a missing 1000, breaks the order."""
    profile = read_profile(path)
    slowest_first = reversed(Roof(profile, profile.threads).units)
    best = {unit.dtype.name: unit.flop_per_s for unit in slowest_first}
    order = ["float64", "float32", "bfloat16", "float8_e5m2", "int8"]
    rates = [best[name] for name in order if name in best]
    assert rates == sorted(rates)
    # The widest step is that of the RTX PRO cards: float64 at 1/64 of float32, TF32 at twice it.
    assert all(narrow <= 129 * wide for wide, narrow in itertools.pairwise(rates))


def test_the_ridge_of_the_article() -> None:
    roof = Roof(machine("v100-article"), 1)
    unit = roof.compute(dtype("float16"))
    assert unit is not None
    assert ridge_flop_per_byte(unit, roof.levels[-1]) == pytest.approx(173.6, abs=0.05)
    assert roof.compute(dtype("float32")) is None, "the article gives no float32 rate"


# Per cycle: units x FLOP of each, or cores x FLOP of each; then the clock in GHz.
BY_HAND = [
    ("v100", "float64", "cuda-core", "fma", 2560 * 2, 1.53),
    ("v100", "float32", "cuda-core", "fma", 5120 * 2, 1.53),
    ("v100", "float16", "tensor-core", "mma", 640 * 64 * 2, 1.53),
    ("a100", "float64", "cuda-core", "fma", 3456 * 2, 1.41),
    ("a100", "float64", "tensor-core", "mma", 432 * 16 * 2, 1.41),
    ("a100", "float32", "cuda-core", "fma", 6912 * 2, 1.41),
    ("a100", "float32", "tensor-core-tf32", "mma", 432 * 128 * 2, 1.41),
    ("a100", "bfloat16", "tensor-core", "mma", 432 * 256 * 2, 1.41),
    ("a100", "float16", "tensor-core", "mma", 432 * 256 * 2, 1.41),
    ("a100", "int8", "tensor-core", "mma", 432 * 512 * 2, 1.41),
    ("h100", "float64", "cuda-core", "fma", 8448 * 2, 1.98),
    ("h100", "float32", "cuda-core", "fma", 16896 * 2, 1.98),
    ("h100", "float32", "tensor-core-tf32", "mma", 528 * 256 * 2, 1.83),
    ("h100", "bfloat16", "tensor-core", "mma", 528 * 512 * 2, 1.83),
    ("h100", "float16", "tensor-core", "mma", 528 * 512 * 2, 1.83),
    ("h100", "float8_e4m3fn", "tensor-core", "mma", 528 * 1024 * 2, 1.83),
    ("h100", "int8", "tensor-core", "mma", 528 * 1024 * 2, 1.83),
    ("h200", "float32", "cuda-core", "fma", 16896 * 2, 1.98),
    ("h200", "bfloat16", "tensor-core", "mma", 528 * 512 * 2, 1.83),
    ("h200", "float8_e5m2", "tensor-core", "mma", 528 * 1024 * 2, 1.83),
    ("rtx4090", "float32", "cuda-core", "fma", 16384 * 2, 2.52),
    ("rtx4090", "float32", "tensor-core-tf32", "mma", 512 * 32 * 2, 2.52),
    ("rtx4090", "bfloat16", "tensor-core", "mma", 512 * 64 * 2, 2.52),
    ("rtx4090", "float16", "tensor-core", "mma", 512 * 64 * 2, 2.52),
    ("rtx4090", "float16", "tensor-core", "mma-float16-accumulate", 512 * 128 * 2, 2.52),
    ("rtx4090", "int8", "tensor-core", "mma", 512 * 256 * 2, 2.52),
    ("orin", "float32", "cuda-core", "fma", 2048 * 2, 1.3),
    ("orin", "float16", "tensor-core", "mma", 64 * 256 * 2, 1.3),
    ("orin", "int8", "tensor-core", "mma", 64 * 512 * 2, 1.3),
    ("m1-max", "float32", "gpu-core", "fma", 32 * 128 * 2, 1.296),
    ("rtx-3090", "float32", "cuda-core", "fma", 82 * 128 * 2, 1.695),
    ("rtx-3090", "float32", "tensor-core-tf32", "mma", 82 * 256, 1.695),
    ("rtx-3090", "bfloat16", "tensor-core", "mma", 82 * 512, 1.695),
    ("rtx-3090", "float16", "tensor-core", "mma-float16-accumulate", 82 * 1024, 1.695),
    ("rtx-3090", "int8", "tensor-core", "mma", 82 * 2048, 1.695),
    ("rtx-4080", "float32", "cuda-core", "fma", 76 * 128 * 2, 2.505),
    ("rtx-4080", "float16", "tensor-core", "mma", 76 * 512, 2.505),
    ("rtx-4080", "float8_e4m3fn", "tensor-core", "mma-float16-accumulate", 76 * 2048, 2.505),
    ("rtx-5090", "float64", "cuda-core", "fma", 170 * 2 * 2, 2.407),
    ("rtx-5090", "float32", "cuda-core", "fma", 170 * 128 * 2, 2.407),
    ("rtx-5090", "bfloat16", "tensor-core", "mma", 170 * 512, 2.407),
    ("rtx-5090", "float8_e5m2", "tensor-core", "mma", 170 * 1024, 2.407),
    ("rtx-5090", "int8", "tensor-core", "mma", 170 * 2048, 2.407),
    # Twice the rate of a GeForce card where sums are float32.
    ("rtx-pro-6000", "float32", "cuda-core", "fma", 188 * 128 * 2, 2.617),
    ("rtx-pro-6000", "float32", "tensor-core-tf32", "mma", 188 * 512, 2.617),
    ("rtx-pro-6000", "float16", "tensor-core", "mma", 188 * 1024, 2.617),
    ("rtx-pro-6000", "float8_e4m3fn", "tensor-core", "mma", 188 * 2048, 2.617),
    ("rtx-pro-6000-max-q", "float32", "cuda-core", "fma", 188 * 128 * 2, 2.28),
    ("rtx-pro-6000-max-q", "bfloat16", "tensor-core", "mma", 188 * 1024, 2.28),
    ("rtx-pro-6000-se", "float32", "cuda-core", "fma", 188 * 128 * 2, 2.494),
    # Matrix units: four of each compute unit; FLOP of one instruction over its passes of 4 cycles.
    ("mi100", "float64", "vector", "fma", 120 * 32 * 2, 1.502),
    ("mi100", "float32", "vector", "fma", 120 * 64 * 2, 1.502),
    ("mi100", "float32", "matrix", "mma", 120 * 4 * (32 * 32 * 2 * 2) // 64, 1.502),
    ("mi100", "float16", "matrix", "mma", 120 * 4 * (32 * 32 * 8 * 2) // 64, 1.502),
    ("mi100", "bfloat16", "matrix", "mma", 120 * 4 * (32 * 32 * 4 * 2) // 64, 1.502),
    ("mi210", "float64", "vector", "fma", 104 * 64 * 2, 1.7),
    ("mi210", "float32", "vector", "fma-packed", 104 * 128 * 2, 1.7),
    ("mi210", "bfloat16", "matrix", "mma", 104 * 4 * (32 * 32 * 8 * 2) // 64, 1.7),
    ("mi250x", "float64", "matrix", "mma", 220 * 4 * (16 * 16 * 4 * 2) // 32, 1.7),
    ("mi250x", "float16", "matrix", "mma", 220 * 4 * (32 * 32 * 8 * 2) // 64, 1.7),
    ("mi250x-gcd", "float16", "matrix", "mma", 110 * 4 * (32 * 32 * 8 * 2) // 64, 1.7),
    ("mi300x", "float32", "vector", "fma", 304 * 128 * 2, 2.1),
    ("mi300x", "float32", "matrix-tf32", "mma", 304 * 4 * (32 * 32 * 4 * 2) // 32, 2.1),
    ("mi300x", "bfloat16", "matrix", "mma", 304 * 4 * (32 * 32 * 8 * 2) // 32, 2.1),
    ("mi300x", "float8_e4m3fnuz", "matrix", "mma", 304 * 4 * (32 * 32 * 16 * 2) // 32, 2.1),
    ("m2-ultra", "float32", "gpu-core", "fma", 76 * 128 * 2, 1.398),
    ("m3-max", "float32", "gpu-core", "fma", 40 * 128 * 2, 1.38),
    ("v100-sxm2-32gb", "float16", "tensor-core", "mma", 640 * 64 * 2, 1.53),
    ("v100-pcie-32gb", "float64", "cuda-core", "fma", 2560 * 2, 1.38),
    ("v100-pcie-32gb", "float32", "cuda-core", "fma", 5120 * 2, 1.38),
    ("v100-pcie-32gb", "float16", "tensor-core", "mma", 640 * 64 * 2, 1.38),
    ("a100-pcie-40gb", "float32", "tensor-core-tf32", "mma", 432 * 128 * 2, 1.41),
    ("a100-pcie-80gb", "bfloat16", "tensor-core", "mma", 432 * 256 * 2, 1.41),
    ("p100", "float64", "cuda-core", "fma", 1792 * 2, 1.329),
    ("p100", "float32", "cuda-core", "fma", 3584 * 2, 1.329),
    ("p100", "float16", "cuda-core", "fma", 3584 * 4, 1.329),
    ("p4", "float32", "cuda-core", "fma", 2560 * 2, 1.114),
    ("p4", "int8", "cuda-core", "dot", 2560 * 8, 1.114),
    ("t4", "float32", "cuda-core", "fma", 2560 * 2, 1.59),
    ("t4", "float16", "tensor-core", "mma", 320 * 64 * 2, 1.59),
    ("t4", "int8", "tensor-core", "mma", 320 * 128 * 2, 1.59),
    ("a10", "bfloat16", "tensor-core", "mma", 288 * 128 * 2, 1.695),
    ("a40", "float32", "cuda-core", "fma", 10752 * 2, 1.74),
    ("a6000", "int8", "tensor-core", "mma", 336 * 256 * 2, 1.8),
    ("l4", "float8_e4m3fn", "tensor-core", "mma", 232 * 256 * 2, 2.04),
    ("l40", "bfloat16", "tensor-core", "mma", 568 * 64 * 2, 2.49),
    ("l40s", "bfloat16", "tensor-core", "mma", 568 * 128 * 2, 2.52),
    ("h100-pcie", "float32", "cuda-core", "fma", 14592 * 2, 1.755),
    ("h100-pcie", "bfloat16", "tensor-core", "mma", 456 * 512 * 2, 1.62),
    ("gh200", "float64", "tensor-core", "mma", 528 * 32 * 2, 1.98),
    ("gh200", "int8", "tensor-core", "mma", 528 * 1024 * 2, 1.83),
]

# As the vendor prints it, in 1e12, halved where it holds with sparsity only.
PRINTED = [
    ("v100-pcie-32gb", {"float64": 7, "float32": 14, "float16": 112}),
    ("t4", {"float32": 8.1, "float16": 65, "int8": 130}),
    ("a10", {"float32": 62.5, "bfloat16": 125, "float16": 125, "int8": 250}),
    ("a40", {"float32": 74.8, "bfloat16": 149.7, "float16": 149.7, "int8": 299.3}),
    ("a6000", {"float32": 77.4, "bfloat16": 154.8, "float16": 154.8, "int8": 309.7}),
    ("l4", {"float32": 120 / 2, "bfloat16": 242 / 2, "float8_e5m2": 485 / 2, "int8": 485 / 2}),
    ("l40", {"float32": 90.5, "bfloat16": 362.1 / 2, "float8_e5m2": 724 / 2, "int8": 724 / 2}),
    ("l40s", {"float32": 366 / 2, "bfloat16": 733 / 2, "float8_e5m2": 1466 / 2, "int8": 733}),
    ("h100-pcie", {"float64": 51.2, "float32": 378, "bfloat16": 756, "float8_e5m2": 1513}),
    ("gh200", {"float64": 67, "float32": 989 / 2, "bfloat16": 1979 / 2, "int8": 3958 / 2}),
    ("b200", {"float64": 37, "float32": 2250 / 2, "bfloat16": 4500 / 2, "int8": 9000 / 2}),
]


@pytest.mark.parametrize(("name", "printed"), PRINTED)
def test_a_device_computes_what_its_vendor_prints(name: str, printed: dict[str, float]) -> None:
    """Within 1.1 %: data sheets cut their figures off, and a bound must not stand below the chip.

    Of the types that tensor cores take, the rate that accumulates in float32.
    """
    for of, rate in printed.items():
        found = [each for each in machine(name).compute if each.dtype.name == of]
        usual = [each for each in found if each.kernel != "mma-float16-accumulate"]
        assert max(each.peak_flop_per_s for each in usual) == pytest.approx(rate * 1e12, rel=0.011)


# Names of drivers, of aiconfigurator, of timm's files, of tables of tokens per second, and others.
SAID_BY_OTHERS = {
    "h100": "h100; h100_sxm; H100-SXM; H100 SXM; NVIDIA H100 80GB HBM3",
    "a100": (
        "A100; a100_sxm; A100-SXM-80GB (330 W); A100-SXM-80GB; a100_80; A100 SXM; NVIDIA "
        "A100-SXM4-80GB"
    ),
    "v100": "v100",
    "p100": "Tesla P100-PCIE-16GB",
    "p4": "Tesla P4",
    "v100-pcie-32gb": "Tesla V100-PCIE-32GB",
    "t4": "Tesla T4",
    "a100-pcie-40gb": "NVIDIA A100-PCIE-40GB",
    "a100-40gb": "NVIDIA A100-SXM4-40GB; a100_40",
    "a100-pcie-80gb": "A100-PCIe-80GB; NVIDIA A100 80GB PCIe",
    "rtx4090": "RTX 4090; 4090",
    "a40": "A40",
    "a6000": "RTX A6000",
    "h200": "H200-SXM; h200; h200_sxm",
    "h100-pcie": "h100_pcie; NVIDIA H100 PCIe",
    "l40": "l40",
    "gh200": "gh200",
    "b200": "B200; b200_sxm",
    "l40s": "NVIDIA L40S; l40s; L40S",
    "epyc-9654": "AMD EPYC 9654 96-Core Processor",
    "rtx-3090": "rtx3090; RTX 3090",
    "rtx-4080": "NVIDIA GeForce RTX 4080",
    "rtx-5090": "GeForce RTX 5090; rtx5090; 5090; RTX 5090",
    "rtx-pro-6000": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition; rtx-pro-6000",
    "rtx-pro-6000-max-q": ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition; pro6000maxq"),
    "rtx-pro-6000-se": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "mi300x": "MI300X; AMD Instinct MI300X OAM",
    "mi250x": "mi250x",
    "mi250x-gcd": "AMD Instinct MI250X",
    "m2-ultra": "M2 Ultra 76-core",
    "m3-max": "Apple M3 Max",
    "i9-10940x": "i9_10940x; Intel(R) Core(TM) i9-10940X CPU @ 3.30GHz; i9-10940x",
    "xeon-6980p": "xeon-6",
    "epyc-9755": "AMD EPYC 9755 128-Core Processor",
    "graviton-4": "Graviton4",
    "ryzen-9-9950x": "9950x",
    "l4": "NVIDIA L4",
    "v100-sxm2-32gb": "Tesla V100-SXM2-32GB",
}


@pytest.mark.parametrize("name", SAID_BY_OTHERS)
def test_a_machine_is_found_by_the_names_that_others_have_for_it(name: str) -> None:
    for said in SAID_BY_OTHERS[name].split("; "):
        assert catalog.find_hardware(said) == catalog.bundled_folder() / f"{name}.toml", said


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("a100-pcie", "a100-pcie-40gb, a100-pcie-80gb"),
        ("NVIDIA A100", "a100, a100-40gb, a100-pcie-40gb, a100-pcie-80gb"),
        ("A100 80GB", "a100, a100-pcie-80gb"),
        ("V100 SXM2", "v100, v100-sxm2-32gb"),
    ],
)
def test_a_name_of_several_machines_lists_them(said: str, names: str) -> None:
    with pytest.raises(HardwareError, match=f"ambiguous hardware '{said}': give one of {names}$"):
        catalog.find_hardware(said)


@pytest.mark.parametrize(
    "said",
    [
        *("b100", "a1000", "l20", "t40", "p400", "gb200", "h100-nvl"),
        # Products whose names are parts of those of bundled machines.
        *("h20", "b20", "p10", "v100s", "a10g", "a100x", "l40g", "rtx-50", "rtx-4090-d", "m1"),
        *("m2 max", "apple m3", "mi25", "mi250", "mi300", "mi300a", "xeon-8592", "9950x3d"),
    ],
)
def test_a_chip_that_is_not_there_is_taken_for_no_other(said: str) -> None:
    with pytest.raises(HardwareError) as stop:
        catalog.find_hardware(said)
    assert str(stop.value).startswith(f"unknown hardware '{said}'")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        *(("10980x", "10980xe"), ("gravitn4", "graviton-4"), ("v100 pcie", "v100-pcie-32gb")),
        *(("geforce 3090", "rtx-3090"), ("snapdragon", "snapdragon-8-gen-3")),
    ],
)
def test_a_part_of_a_name_or_a_misspelled_one_suggests_its_machine(said: str, name: str) -> None:
    with pytest.raises(HardwareError, match=rf"'{said}'; did you mean '{name}'\?"):
        catalog.find_hardware(said)


@pytest.mark.parametrize(
    "said", ["gb200_sxm", "gb300_sxm", "Tesla V100-PCIE-16GB", "AMD Instinct MI250"]
)
def test_a_device_of_these_sources_without_a_file_is_said(said: str) -> None:
    with pytest.raises(HardwareError, match=f"unknown hardware '{said}'"):
        catalog.find_hardware(said)


def test_no_name_is_that_of_two_machines() -> None:
    owners: dict[str, str] = {}
    for name in NAMES:
        for each in (name, *machine(name).aliases):
            key = re.sub(r"[\s_-]", "", each.lower())
            assert owners.setdefault(key, name) == name, each


@pytest.mark.parametrize(("name", "of", "unit", "kernel", "flop_per_cycle", "ghz"), BY_HAND)
def test_a_device_computes_what_its_units_and_its_clock_make(
    name: str, of: str, unit: str, kernel: str, flop_per_cycle: int, ghz: float
) -> None:
    """Within 0.6 %, to which vendors round: a sparse figure would be double."""
    assert peak(name, of, unit, kernel) == pytest.approx(flop_per_cycle * ghz * 1e9, rel=6e-3)


def avx512(bits: int, *more: tuple[str, str, str, int], adders: int = 0) -> list[Any]:
    """FLOP per core and cycle of two pipes so wide, lanes x pipes x 2; and what else there is."""
    found: list[Any] = []
    for of, lanes in (("float64", bits // 64), ("float32", bits // 32)):
        found.append((of, "avx512", "fma", lanes * 2 * 2))
        if adders:
            found.append((of, "avx512", "fma-add", lanes * 2 * 2 + lanes * adders))
    return [*found, *more]


TILE, TILE_INT8 = 16 * 16 * 32 * 2 // 16, 16 * 16 * 64 * 2 // 16
ZEN_5 = avx512(
    512,
    ("bfloat16", "avx512-bf16", "dot", 32 * 2 * 2),
    ("int8", "avx512-vnni", "dot", 64 * 2 * 2),
    adders=2,
)
XEON = avx512(
    512,
    ("float16", "avx512-fp16", "fma", 32 * 2 * 2),
    ("bfloat16", "amx", "dot", TILE),
    ("int8", "amx", "dot", TILE_INT8),
)
NEON = [
    ("float64", "neon", "fma", 2 * 4 * 2),
    ("float32", "neon", "fma", 4 * 4 * 2),
    ("float16", "neon", "fma", 8 * 4 * 2),
    # A product of 2 x 4 by 4 x 2 elements, and of 2 x 8 by 8 x 2.
    ("bfloat16", "neon-bf16", "mmla", 2 * 4 * 2 * 4 * 2),
    ("int8", "neon-i8mm", "mmla", 2 * 8 * 2 * 4 * 2),
]
CPUS = [
    # name, cores, GHz, [(dtype, unit, kernel, FLOP per core and cycle)]
    (
        *("epyc-9654", 96, 3.7),
        avx512(256, ("bfloat16", "avx512-bf16", "dot", 16 * 2 * 2), adders=2),
    ),
    ("xeon-8592plus", 64, 3.9, XEON),
    ("10980xe", 16, 4.5, [("float32", "avx512", "unspecified", 16 * 2 * 2)]),
    ("epyc-9755", 128, 4.1, ZEN_5),
    ("ryzen-9-9950x", 16, 5.7, ZEN_5),
    ("i9-10940x", 14, 4.8, avx512(512, ("int8", "avx512-vnni", "dot", 64 * 2 * 2))),
    ("xeon-6980p", 128, 3.9, [*XEON, ("float16", "amx", "dot", TILE)]),
    ("graviton-4", 96, 2.8, NEON),
]


@pytest.mark.parametrize(("name", "cores", "ghz", "ceilings"), CPUS)
def test_a_cpu_computes_cores_by_clock_by_flop_per_cycle(
    name: str, cores: int, ghz: float, ceilings: list[tuple[str, str, str, int]]
) -> None:
    assert machine(name).threads == cores
    for of, unit, kernel, flop_per_cycle in ceilings:
        whole = cores * ghz * 1e9 * flop_per_cycle
        assert peak(name, of, unit, kernel) == pytest.approx(whole, rel=1e-9)
        if name != "10980xe":
            one = ghz * 1e9 * flop_per_cycle
            assert peak(name, of, unit, kernel, threads=1) == pytest.approx(one, rel=1e-9)
    listed = {(each.dtype.name, each.unit, each.kernel) for each in machine(name).compute}
    assert listed == {(of, unit, kernel) for of, unit, kernel, _ in ceilings}


@pytest.mark.parametrize(
    ("of", "unit", "kernel", "one", "all_"),
    [
        # One Cortex-X4: 3.3 GHz x 4 pipes x 4 lanes x 2; all: 105.6 + 5 x 51.2 + 2 x 36.8.
        ("float32", "neon", "fma", 105.6e9, 435.2e9),
        ("float64", "neon", "fma", 52.8e9, 217.6e9),
        ("float16", "neon", "fma", 211.2e9, 870.4e9),
        ("bfloat16", "neon-bf16", "mmla", 422.4e9, 1740.8e9),
    ],
)
def test_a_phone_has_cores_of_three_kinds(
    of: str, unit: str, kernel: str, one: float, all_: float
) -> None:
    assert peak("snapdragon-8-gen-3", of, unit, kernel, threads=1) == pytest.approx(one)
    assert peak("snapdragon-8-gen-3", of, unit, kernel) == pytest.approx(all_)


@pytest.mark.parametrize(
    ("name", "bits", "transfers_per_s"),
    [
        *(("10980xe", 4 * 64, 3000e6), ("epyc-9654", 12 * 64, 4800e6)),
        *(("xeon-8592plus", 8 * 64, 5600e6), ("snapdragon-8-gen-3", 4 * 16, 9600e6)),
        *(("m1-max", 512, 6400e6), ("orin", 256, 6400e6), ("rtx4090", 384, 21e9)),
        # Two transfers a cycle of the memory clock.
        *(("v100", 4096, 2 * 876e6), ("a100-40gb", 5120, 2 * 1215e6), ("a100", 5120, 2 * 1593e6)),
        *(("h100", 5120, 2 * 2619e6), ("rtx-3090", 384, 19.5e9), ("rtx-4080", 256, 22.4e9)),
        *(("rtx-5090", 512, 28e9), ("rtx-pro-6000", 512, 28e9)),
        *(("rtx-pro-6000-max-q", 512, 28e9), ("mi100", 4096, 2 * 1200e6)),
        *(("mi210", 4096, 2 * 1600e6), ("mi250x", 8192, 2 * 1600e6)),
        *(("mi250x-gcd", 4096, 2 * 1600e6), ("mi300x", 8192, 2 * 2600e6)),
        *(("m2-ultra", 1024, 6400e6), ("m3-max", 512, 6400e6), ("epyc-9755", 12 * 64, 6400e6)),
        *(("ryzen-9-9950x", 2 * 64, 5600e6), ("i9-10940x", 4 * 64, 2933e6)),
        *(("xeon-6980p", 12 * 64, 8800e6), ("graviton-4", 12 * 64, 5600e6)),
        *(("h100-pcie", 5120, 2 * 1593e6), ("v100-pcie-32gb", 4096, 2 * 876e6)),
        *(("p100", 4096, 2 * 715e6), ("p4", 256, 6e9), ("t4", 256, 10e9), ("a10", 384, 12.5e9)),
        *(("a40", 384, 14.5e9), ("a6000", 384, 16e9), ("l4", 192, 12.5e9), ("l40", 384, 18e9)),
        ("l40s", 384, 18e9),
    ],
)
def test_memory_moves_what_its_bus_and_its_clock_make(
    name: str, bits: int, transfers_per_s: float
) -> None:
    assert bandwidth(name) == pytest.approx(bits / 8 * transfers_per_s, rel=4e-3)


@pytest.mark.parametrize(
    ("name", "level", "kernel", "bytes_per_cycle", "ghz"),
    [
        # Slices of 64 byte out and 32 in, 8 for each 64 bit of memory bus.
        ("a10", "L2", "read", 384 // 64 * 8 * 64, 1.695),
        ("a6000", "L2", "read", 384 // 64 * 8 * 64, 1.8),
        ("rtx-3090", "L2", "read", 384 // 64 * 8 * 64, 1.695),
        ("rtx-3090", "L2", "update", 384 // 64 * 8 * 96, 1.695),
        ("l4", "L2", "read", 192 // 64 * 8 * 64, 2.04),
        ("l40s", "L2", "read", 384 // 64 * 8 * 64, 2.52),
        ("rtx4090", "L2", "update", 384 // 64 * 8 * 96, 2.52),
        ("rtx-4080", "L2", "read", 256 // 64 * 8 * 64, 2.505),
        ("rtx-5090", "L2", "read", 512 // 64 * 8 * 64, 2.407),
        *(("mi100", "L2", "read", 32 * 64, 1.502), ("mi210", "L2", "read", 32 * 128, 1.7)),
        ("mi250x", "L2", "read", 2 * 32 * 128, 1.7),
        ("mi250x-gcd", "L2", "read", 32 * 128, 1.7),
        ("mi300x", "L2", "read", 8 * 16 * 128, 2.1),
        ("mi300x", "L2", "unspecified", 8 * 16 * (128 + 64), 2.1),
        ("mi300x", "Infinity Cache", "unspecified", 8 * 16 * 64, 2.1),
        ("m2-ultra", "L2", "read", 76 * 32, 1.398),
        ("m2-ultra", "SLC", "read", 76 * 19.8, 1.398),
        ("m3-max", "SLC", "read", 40 * 64, 1.38),
        ("epyc-9755", "L1", "read", 128 * 2 * 64, 4.1),
        ("epyc-9755", "L3", "copy", 128 * 2 * 64, 4.1),
        ("ryzen-9-9950x", "L2", "read", 16 * 64, 5.7),
        ("i9-10940x", "L1", "unspecified", 14 * 3 * 64, 4.8),
        ("xeon-6980p", "L2", "copy", 128 * 2 * 64, 3.9),
        ("graviton-4", "L1", "unspecified", 96 * 3 * 16, 2.8),
        ("graviton-4", "L3", "read", 96 * 32, 2.8),
    ],
)
def test_a_cache_moves_what_its_ports_and_the_clock_make(
    name: str, level: str, kernel: str, bytes_per_cycle: float, ghz: float
) -> None:
    """Vendors round to three digits."""
    profile = machine(name)
    (found,) = [each for each in profile.memory if each.name == level]
    (rate,) = [
        each for each in found.bandwidth if (each.kernel, each.threads) == (kernel, profile.threads)
    ]
    assert rate.peak_bytes_per_s == pytest.approx(bytes_per_cycle * ghz * 1e9, rel=1.1e-3)
    assert rate.clock_hz == pytest.approx(ghz * 1e9)


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        *(("rtx-3090", 24), ("rtx-4080", 16), ("rtx-5090", 32), ("rtx-pro-6000", 96)),
        *(("rtx-pro-6000-max-q", 96), ("rtx-pro-6000-se", 96), ("mi100", 32), ("mi210", 64)),
        *(("mi250x", 128), ("mi250x-gcd", 64), ("mi300x", 192), ("m2-ultra", 192)),
        *(("m3-max", 128), ("epyc-9755", None), ("graviton-4", None)),
    ],
)
def test_a_device_has_its_memory_and_a_cpu_what_the_system_has(name: str, gib: int | None) -> None:
    assert machine(name).memory_capacity_bytes == (gib and gib * 2**30)


def test_float32_takes_the_fastest_path_that_a_device_has() -> None:
    """cuDNN may take TF32 for float32 convolutions, and would beat a bound from other units."""
    for name, flop_per_s in (("a100", 156e12), ("h100", 494.7e12), ("orin", 21.25e12)):
        unit = Roof(machine(name), 1).compute(dtype("float32"))
        assert unit is not None
        assert (unit.unit, unit.flop_per_s) == ("tensor-core-tf32", pytest.approx(flop_per_s))
    volta = Roof(machine("v100"), 1).compute(dtype("float32"))
    assert volta is not None and volta.unit == "cuda-core", "Volta has no TF32"


def test_a_device_computes_as_a_whole() -> None:
    profile = machine("h100")
    assert not profile.has_threads
    assert profile.check_threads(1) == 1
    with pytest.raises(HardwareError, match="a cuda device; leave threads"):
        profile.check_threads(4)
    assert machine("epyc-9654").check_threads(4) == 4


DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "how-to" / "machines.md"


def test_the_documented_file_is_one(tmp_path: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert read_profile(path).name == "mine"


def test_a_device_of_several_threads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (catalog.bundled_folder() / "v100-article.toml").read_text(encoding="utf-8")
    path.write_text(text.replace("threads = 1\n", "threads = 80\n", 1), encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"threads must be 1 for device 'cuda'"):
        read_profile(path)
