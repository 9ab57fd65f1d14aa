"""The bundled machines: every number has its source, and is what its arithmetic says."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from roofline.errors import FileFormatError, HardwareError
from roofline.foundation.dtypes import dtype
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile, read_profile
from roofline.placement import Roof, ridge_flop_per_byte

FILES = sorted(catalog.bundled_folder().glob("*.toml"))
NAMES = [path.stem for path in FILES]


TYPES = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "int8")


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
    (level,) = machine(name).memory
    (found,) = level.bandwidth
    return found.peak_byte_per_s


def test_the_machines_that_were_promised_are_there() -> None:
    assert {
        *("10980xe", "10980xe-measured", "v100", "v100-article", "a100", "h100", "h200"),
        *("rtx4090", "m1-max", "epyc-9654", "xeon-8592plus", "orin", "snapdragon-8-gen-3"),
    } <= set(NAMES)


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_file_is_called_like_its_machine_in_few_lower_case_letters(path: Path) -> None:
    profile = read_profile(path)
    assert profile.name == path.stem
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem)
    assert len(path.stem) <= 18
    assert path.read_text(encoding="utf-8").startswith("schema_version = 4\n")
    assert len(profile.description) <= 80
    assert profile.compute
    assert profile.knows_only_dram


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_number_names_its_document_and_how_it_was_taken_from_it(path: Path) -> None:
    for each in read_profile(path).provenances():
        assert re.search(r"https://\S+\.\S+|the founding article", each.reference), each
        assert each.note, each
        assert re.fullmatch(r"(20\d\d(-\d\d(-\d\d)?)?)?", each.date), each
        # What is measured was measured by somebody else: the article.
        assert each.source == "datasheet" or "article" in each.reference


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
    # The widest step is the RTX 4090's: float64 at 1/64 of float32.
    assert all(narrow <= 65 * wide for wide, narrow in itertools.pairwise(rates))


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
]


@pytest.mark.parametrize(("name", "of", "unit", "kernel", "flop_per_cycle", "ghz"), BY_HAND)
def test_a_device_computes_what_its_units_and_its_clock_make(
    name: str, of: str, unit: str, kernel: str, flop_per_cycle: int, ghz: float
) -> None:
    """Within 0.6 %, to which vendors round: a sparse figure would be double."""
    assert peak(name, of, unit, kernel) == pytest.approx(flop_per_cycle * ghz * 1e9, rel=6e-3)


CPUS = [
    # name, cores, GHz, [(dtype, unit, kernel, FLOP per core and cycle)]: lanes x pipes x 2.
    (
        "epyc-9654",
        96,
        3.7,
        [
            ("float64", "avx512", "fma", 4 * 2 * 2),
            ("float64", "avx512", "fma-add", 4 * 2 * 2 + 4 * 2),
            ("float32", "avx512", "fma", 8 * 2 * 2),
            ("float32", "avx512", "fma-add", 8 * 2 * 2 + 8 * 2),
            ("bfloat16", "avx512-bf16", "dot", 16 * 2 * 2),
        ],
    ),
    (
        "xeon-8592plus",
        64,
        3.9,
        [
            ("float64", "avx512", "fma", 8 * 2 * 2),
            ("float32", "avx512", "fma", 16 * 2 * 2),
            ("float16", "avx512-fp16", "fma", 32 * 2 * 2),
            ("bfloat16", "amx", "dot", 16 * 16 * 32 * 2 // 16),
            ("int8", "amx", "dot", 16 * 16 * 64 * 2 // 16),
        ],
    ),
    ("10980xe", 16, 4.5, [("float32", "avx512", "unspecified", 16 * 2 * 2)]),
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
        ("10980xe", 4 * 64, 3000e6),
        ("epyc-9654", 12 * 64, 4800e6),
        ("xeon-8592plus", 8 * 64, 5600e6),
        ("snapdragon-8-gen-3", 4 * 16, 9600e6),
        ("m1-max", 512, 6400e6),
        ("orin", 256, 6400e6),
        ("rtx4090", 384, 21e9),
        # Two transfers a cycle of the memory clock.
        ("v100", 4096, 2 * 876e6),
        ("a100-40gb", 5120, 2 * 1215e6),
        ("a100", 5120, 2 * 1593e6),
        ("h100", 5120, 2 * 2619e6),
    ],
)
def test_memory_moves_what_its_bus_and_its_clock_make(
    name: str, bits: int, transfers_per_s: float
) -> None:
    assert bandwidth(name) == pytest.approx(bits / 8 * transfers_per_s, rel=4e-3)


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
    with pytest.raises(HardwareError, match="a cuda device computes as a whole; leave --threads"):
        profile.check_threads(4)
    assert machine("epyc-9654").check_threads(4) == 4


DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "machines.md"


@pytest.mark.parametrize("name", NAMES)
def test_the_documented_figures_are_those_of_the_files(name: str) -> None:
    """Per data type the fastest and what else there is, in 1e12; the memory in 1e9."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith(f"| `{name}` |")]
    said = dict(zip(TYPES, (cell.strip() for cell in row.split("|")[3:9]), strict=True))
    assert float(row.split("|")[9]) == pytest.approx(bandwidth(name) / 1e9)
    profile = machine(name)
    for of, cell in said.items():
        # What one thread reaches is in the file, not in the table.
        whole = [each for each in profile.compute if each.threads == profile.threads]
        rates = {each.peak_flop_per_s for each in whole if each.dtype.name == of}
        figures = [float(each) * 1e12 for each in re.findall(r"[\d.]+", cell)]
        assert figures == pytest.approx(sorted(rates, reverse=True), rel=5e-3), of


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
