"""Profiles found by name, kept whole, and trusted only as far as the host is still the same."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from roofline.errors import FileFormatError, HardwareError, InputError
from roofline.machine import catalog
from roofline.machine.hardware import (
    Duration,
    HardwareProfile,
    Host,
    Overhead,
    profile_to_toml,
)
from tests.builders import SOURCE, ceiling, level, profile

HOST = Host(
    cpu_model="Imagined 9000",
    architecture="x86_64",
    operating_system="Linux",
    instruction_sets=("avx2", "fma"),
    available_cpus=4,
    versions={"torch": version("torch")},
)


OVERHEAD = Overhead(
    name="dispatch of add",
    threads=1,
    time=Duration(fast_s=1e-6, median_s=1e-6, provenance=SOURCE),
)


def measured() -> HardwareProfile:
    library = replace(ceiling(5e10), kind="library", kernel="gemm")
    dram = level("DRAM", None, {"read": {1: 1e10}, "add": {1: 5e9}})
    read, add = dram.bandwidth
    return replace(
        profile(
            [ceiling(1e11), library],
            [replace(dram, bandwidth=(read, replace(add, kind="library")))],
        ),
        host=HOST,
        overheads=(OVERHEAD,),
    )


def test_the_same_host_says_nothing() -> None:
    newer_kernel = replace(HOST, operating_system="Linux, newer")
    assert catalog.validate_for_host(measured(), newer_kernel) == (measured(), ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cpu_model": "Imagined 9001"}, "'Imagined 9000' → 'Imagined 9001'"),
        ({"available_cpus": 2}, "available CPUs 4 → 2"),
        ({"instruction_sets": ("avx2",)}, "instruction sets removed: fma"),
        ({"instruction_sets": ("amx", "avx2", "fma")}, "instruction sets added: amx"),
        ({"architecture": "aarch64"}, "architecture x86_64 → aarch64"),
    ],
)
def test_another_fingerprint_is_a_warning_that_names_the_command(
    change: dict[str, object], said: str
) -> None:
    other = replace(HOST, **change)  # pyright: ignore[reportArgumentType]
    kept, (note,) = catalog.validate_for_host(measured(), other)
    assert said in note
    assert "run `roofline measure`" in note
    assert kept == measured()


def test_another_torch_drops_library_ceilings_and_nothing_else() -> None:
    old = replace(measured(), host=replace(HOST, versions={"torch": "1.13.0"}))
    kept, (note,) = catalog.validate_for_host(old, HOST)
    assert [each.kind for each in kept.compute] == ["hardware"]
    assert kept.overheads == ()
    assert [each.kernel for each in kept.memory[0].bandwidth] == ["read"]
    assert "measured with torch 1.13.0" in note
    assert "run `roofline measure`" in note


def test_a_data_sheet_has_no_fingerprint() -> None:
    paper = catalog.load_hardware("10980xe")
    assert catalog.validate_for_host(paper, HOST) == (paper, ())


def test_saved_and_found_again() -> None:
    path = catalog.save_measured_profile(measured(), ())
    assert path == catalog.host_file()
    assert catalog.load_hardware("host") == measured()
    names = [each.name for each in catalog.entries()]
    assert names[0] == "host"
    assert {"10980xe", "10980xe-measured"} <= set(names)


def test_ones_own_profile_comes_before_a_bundled_one_of_the_same_name() -> None:
    folder = catalog.user_folder()
    folder.mkdir(parents=True)
    (folder / "10980xe.toml").write_text(profile_to_toml(measured()))
    assert catalog.load_hardware("10980xe") == measured()
    assert [each.origin for each in catalog.entries() if each.name == "10980xe"] == ["user"]


def test_a_damaged_profile_hides_no_other() -> None:
    folder = catalog.user_folder()
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("threads = ")
    broken, *_ = [each for each in catalog.entries() if each.name == "broken"]
    assert broken.profile is None
    assert "not valid TOML" in broken.error
    assert len(catalog.entries()) >= 3
    with pytest.raises(FileFormatError, match="not valid TOML"):
        catalog.load_hardware("broken")


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="did you mean '10980xe'"):
        catalog.load_hardware("10980x")
    with pytest.raises(HardwareError, match="no profile of this machine; run `roofline measure`"):
        catalog.load_hardware("host")
    with pytest.raises(FileFormatError, match="no such file"):
        catalog.load_hardware(tmp_path / "none.toml")
    path = tmp_path / "mine.toml"
    path.write_text(profile_to_toml(measured()))
    assert catalog.load_hardware(path) == measured()


def keep(name: str, *aliases: str) -> None:
    folder = catalog.user_folder()
    folder.mkdir(parents=True, exist_ok=True)
    found = replace(measured(), name=name, aliases=aliases)
    (folder / f"{name}.toml").write_text(profile_to_toml(found))


def test_names_and_aliases_ignore_case_spaces_dashes_and_underscores() -> None:
    keep("zx7-one", "Imagined ZX7-PCIE-16GB")
    for name in ("zx7-one", "ZX7 One", "zx7_one", "zx7one", "imagined zx7 pcie 16gb"):
        assert catalog.load_hardware(name).name == "zx7-one"


def test_words_are_in_any_order_with_or_without_the_vendor() -> None:
    keep("zx7-pcie", "NVIDIA ZX7 80GB PCIe")
    keep("zx7-max", "NVIDIA ZX7 Max 80GB PCIe")
    for name in ("zx7 80gb pcie", "ZX7 PCIe 80 GB", "nvidia pcie-zx7-80gb", "PCIe zx7"):
        assert catalog.load_hardware(name).name == "zx7-pcie", name
    for name in ("zx7 40gb pcie", "zx7 80gb", "zx70 80gb pcie", "zx7 80gb pcie super"):
        with pytest.raises(HardwareError):
            catalog.find_hardware(name)
    assert catalog.load_hardware("a100 80gb pcie").name == "a100-pcie-80gb"


def test_an_exact_name_comes_before_an_alias() -> None:
    keep("zx7")
    keep("zx7-pcie", "zx7", "ZX 7")
    assert catalog.load_hardware("ZX7").name == "zx7"
    assert catalog.load_hardware("zx-7").name == "zx7"


def test_an_ambiguous_name_lists_its_candidates() -> None:
    keep("zx7-a", "shared_name", "Imagined ZX7 PCIe 16GB")
    keep("zx7-b", "shared_name", "Imagined ZX7 PCIe 32GB")
    for name in ("SHARED NAME", "zx7", "zx7 PCIe", "pcie-zx7"):
        with pytest.raises(HardwareError) as stop:
            catalog.find_hardware(name)
        assert str(stop.value) == f"ambiguous hardware '{name}': give one of zx7-a, zx7-b"
    with pytest.raises(HardwareError, match=r"unknown hardware 'zx7 16gb'; did you mean 'zx7-a'\?"):
        catalog.find_hardware("zx7 16gb")


@pytest.mark.parametrize("name", ["a7100", "zv7200", "zw7100", "zv71000", "zv7100x", "zv7100-b"])
def test_a_near_miss_suggests_no_other_chip(name: str) -> None:
    keep("zv7100")
    keep("zv7100-a")
    with pytest.raises(HardwareError) as stop:
        catalog.find_hardware(name)
    assert "did you mean" not in str(stop.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("imagnied 9000x", "imagined-9000x"),
        ("imagined", "imagined-9000x"),
        ("imagind9000x", "imagined-9000x"),
        ("imagined-900", ""),
        ("imagined-9000", ""),
        ("9009", ""),
    ],
)
def test_a_misspelled_name_suggests_the_right_one(name: str, meant: str) -> None:
    keep("imagined-9000x")
    with pytest.raises(HardwareError) as stop:
        catalog.find_hardware(name)
    assert (f"did you mean '{meant}'?" in str(stop.value)) == bool(meant)


def test_a_damaged_profile_has_no_aliases() -> None:
    keep("zx7", "ZX7-PCIE")
    (catalog.user_folder() / "broken.toml").write_text("threads = ")
    assert catalog.load_hardware("zx7 pcie").name == "zx7"


def test_a_user_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(catalog, "user_folder", lambda: tmp_path / "file" / "roofline")
    with pytest.raises(InputError, match="cannot create folder"):
        catalog.save_measured_profile(measured(), ())


def test_a_quick_profile_does_not_take_the_place_of_a_fuller_one() -> None:
    quick, full = replace(measured(), effort="quick"), replace(measured(), effort="default")
    assert catalog.save_measured_profile(quick, ()) == catalog.host_file()
    assert catalog.save_measured_profile(full, ()) == catalog.host_file()
    beside = catalog.save_measured_profile(quick, ())
    assert beside.name == "host-quick.toml"
    assert catalog.load_hardware("host") == full
    assert catalog.load_hardware("host-quick") == quick
    # That of another machine is no reason to keep it.
    other = replace(quick, host=replace(HOST, cpu_model="Imagined 9001"))
    assert catalog.save_measured_profile(other, ()) == catalog.host_file()


def test_a_profile_without_hardware_ceilings_does_not_take_the_place_of_one_with_them() -> None:
    full = replace(measured(), effort="default")
    assert catalog.save_measured_profile(full, ()) == catalog.host_file()
    only_library = replace(full, memory=())
    assert catalog.save_measured_profile(only_library, ()).name == "host-library.toml"
    assert catalog.load_hardware("host") == full
