"""Which core a host has, by fake /proc/cpuinfo; what a core does each cycle, by published peaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline.core.dtypes import dtype
from roofline.errors import InputError
from roofline.machine.kernels.compute import COMPUTE_KERNELS
from roofline.machine.theory.microarchitectures import (
    CORES,
    Core,
    core_named,
    identify_core,
    macos_core,
)


def x86(vendor: str, family: int, model: int, name: str = "?", stepping: int = 1) -> str:
    return (
        f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nstepping\t: {stepping}\n"
    )


def arm(implementer: str, part: str) -> str:
    return f"CPU implementer\t: {implementer}\nCPU part\t: {part}\n"


def host(root: Path, *processors: str) -> Path:
    """A fake file tree whose CPUs are these."""
    (root / "proc").mkdir(exist_ok=True)
    lines = [f"processor\t: {i}\n{text}" for i, text in enumerate(processors)]
    (root / "proc/cpuinfo").write_text("\n".join(lines))
    return root


def name_of(core: Core | None) -> str | None:
    return core.name if core else None


AMD = {
    "AMD Zen": ((23, 1), (23, 8)),
    "AMD Zen 2": ((23, 49), (23, 113)),
    "AMD Zen 3": ((25, 1), (25, 80)),
    "AMD Zen 4": ((25, 17), (25, 97), (25, 160)),
    "AMD Zen 5": ((26, 2), (26, 17), (26, 68)),
    "AMD Zen 5, 256-bit data path": ((26, 36),),
    None: ((26, 80), (99, 1)),
}
INTEL = {
    "Intel Haswell": (63, 79),
    "Intel Skylake": (158,),
    "Intel Ice Lake server": (106,),
    "Intel Ice Lake client": (140,),
    "Intel Sapphire Rapids": (143, 207),
    "Intel Granite Rapids": (173,),
    "Intel Crestmont": (175,),
    None: (255,),
}
# Of Skylake's servers, by brand and stepping.
SERVERS = (
    ("Platinum 8259CL CPU @ 2.50GHz", 7, "Intel Cascade Lake, two AVX-512 FMA units"),
    ("Gold 6148 CPU @ 2.40GHz", 4, "Intel Skylake server, two AVX-512 FMA units"),
    ("Silver 4110 CPU @ 2.10GHz", 4, "Intel Skylake server"),
    ("CPU @ 2.00GHz", 3, "Intel Skylake server"),
)
ARM = {
    "Arm Cortex-A72": ("0x41", "0xd08"),
    "Arm Neoverse N1": ("0x41", "0xd0c"),
    "Arm Neoverse V2": ("0x41", "0xd4f"),
    "Apple M1 to M4, performance core": ("0x61", "0x023"),
    None: ("0x61", "0x022"),
}


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        *((x86("AuthenticAMD", *each), core) for core, known in AMD.items() for each in known),
        *((x86("GenuineIntel", 6, each), core) for core, known in INTEL.items() for each in known),
        *(
            (x86("GenuineIntel", 6, 85, f"Intel(R) Xeon(R) {brand}", stepping), core)
            for brand, stepping, core in SERVERS
        ),
        (
            x86("GenuineIntel", 6, 85, "Intel(R) Core(TM) i9-10980XE CPU @ 3.00GHz", 7),
            "Intel Cascade Lake, two AVX-512 FMA units",
        ),
        *((arm(*each), core) for core, each in ARM.items()),
        (x86("GenuineIntel", 15, 4), None),
        (x86("Mystery", 6, 85), None),
        (arm("nonsense", "0xd4f"), None),
        ("", None),
    ],
)
def test_the_core_follows_from_what_the_system_says(
    cpu: str, expected: str | None, tmp_path: Path
) -> None:
    assert name_of(identify_core(host(tmp_path, cpu))) == expected


@pytest.mark.parametrize("flag", ["amx_tile", "avx512_fp16"])
def test_a_guest_that_is_shown_the_number_of_another_core_has_none(
    flag: str, tmp_path: Path
) -> None:
    """A host that calls itself Rocket Lake and has tiles is something else."""
    shown = x86("GenuineIntel", 6, 167)
    assert name_of(identify_core(host(tmp_path, shown))) == "Intel Ice Lake client"
    assert identify_core(host(tmp_path, f"{shown}flags\t: avx512f {flag} sse\n")) is None
    true = x86("GenuineIntel", 6, 0x8F) + f"flags\t: avx512f {flag}\n"
    assert name_of(identify_core(host(tmp_path, true))) == "Intel Sapphire Rapids"


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert identify_core(tmp_path) is None
    assert identify_core(host(tmp_path, x86("AuthenticAMD", 26, 2)), cpus=(5,)) is None


def test_hybrid_cores_are_told_apart_by_their_lists(tmp_path: Path) -> None:
    """An i9-12900: both kinds have one model; a guest without the lists knows nothing."""
    root = host(tmp_path, *[x86("GenuineIntel", 6, 151)] * 4)
    assert identify_core(root) is None
    for kind, cpus in (("cpu_core", "0-1\n"), ("cpu_atom", "2-3\n")):
        (root / "sys/devices" / kind).mkdir(parents=True)
        (root / "sys/devices" / kind / "cpus").write_text(cpus)
    assert name_of(identify_core(root, cpus=(0, 1))) == "Intel Golden Cove"
    assert name_of(identify_core(root, cpus=(2,))) == "Intel Gracemont"
    assert identify_core(root, cpus=(1, 2)) is None


def test_big_and_little_cores_together_are_no_core(tmp_path: Path) -> None:
    root = host(tmp_path, *(arm("0x41", part) for part in ("0xd05", "0xd0b", "0xd0b")))
    assert identify_core(root, cpus=(0, 1)) is None
    assert name_of(identify_core(root, cpus=(1, 2))) == "Arm Cortex-A76"


def test_macs_are_known_by_the_name_of_their_chip() -> None:
    assert name_of(macos_core("Apple M2 Max")) == "Apple M1 to M4, performance core"
    assert macos_core("Apple M10") is None
    assert macos_core("Intel(R) Core(TM) i7-8569U CPU @ 2.80GHz") is None


@pytest.mark.parametrize(
    ("core", "kernel", "of", "unit", "flop_per_cycle"),
    [
        # Published peaks: EPYC 7742 (64 cores, 2.25 GHz) 2.304 TFLOP/s float64, as in TOP500.
        ("Zen 2", "fma", "float64", "avx2", 2304 / 64 / 2.25),
        # Xeon Platinum 8280 (28 cores, 2.7 GHz): 2.419 TFLOP/s float64.
        ("Cascade Lake, two AVX-512 FMA units", "fma", "float64", "avx512", 2419.2 / 28 / 2.7),
        # Fugaku's A64FX (48 cores, 2.2 GHz): 3.3792 TFLOP/s float64.
        ("A64FX", "fma", "float64", "sve", 3379.2 / 48 / 2.2),
        # Grace (72 cores, 3.1 GHz): 3.57 TFLOP/s float64 a chip.
        ("Neoverse V2", "fma", "float64", "neon", 3571.2 / 72 / 3.1),
        # Intel's figures for Sapphire Rapids: 2048 int8 and 1024 bfloat16 operations per cycle.
        ("Sapphire Rapids", "tile-dot", "int8", "amx", 2048),
        ("Sapphire Rapids", "tile-dot", "bfloat16", "amx", 1024),
        ("Sapphire Rapids", "dot", "int8", "avx512-vnni", 256),
        # The Raspberry Pi 4: 8 float32 FLOP per cycle and core.
        ("Cortex-A72", "fma", "float32", "neon", 8),
        # Zen 4 takes two cycles for 512 bit; additions go beside the multiply-adds.
        ("Zen 4", "fma", "float32", "avx512", 32),
        ("Zen 4", "fma-add", "float32", "avx512", 48),
        ("Zen 5", "fma", "float32", "avx512", 64),
        ("Zen 5", "fma-add", "float64", "avx512", 48),
    ],
)
def test_operations_per_cycle_are_the_published_ones(
    core: str, kernel: str, of: str, unit: str, flop_per_cycle: float
) -> None:
    found = core_named(core).throughput(kernel, dtype(of), unit)
    assert found is not None
    assert found.flop_per_cycle(dtype(of)) == pytest.approx(flop_per_cycle)


def test_what_is_not_known_is_none() -> None:
    zen_5 = core_named("AMD Zen 5")
    assert zen_5.throughput("fma", dtype("float16"), "avx512-fp16") is None
    assert zen_5.throughput("fma", dtype("float32"), "neon") is None
    assert core_named("Skylake server").throughput("fma", dtype("float32"), "avx512") is None


def test_every_listed_kernel_is_one_that_is_measured() -> None:
    """A name that no kernel has would never be looked up."""
    measured = {(each.name, each.dtype.name, each.unit.name) for each in COMPUTE_KERNELS}
    for core in CORES:
        for each in core.throughputs:
            for of in each.dtypes:
                assert (each.kernel, of, each.unit) in measured, core.name


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.name)
def test_each_core_has_a_name_a_source_and_each_entry_once(core: Core) -> None:
    assert core_named(core.name) is core
    assert "https://" in core.reference
    keys = [(each.kernel, each.unit, of) for each in core.throughputs for of in each.dtypes]
    assert len(keys) == len(set(keys))
    assert all(each.arithmetic(dtype(of)) for each in core.throughputs for of in each.dtypes)


def test_names_are_forgiving_and_helpful() -> None:
    assert core_named(" amd  ZEN 4 ").name == "AMD Zen 4"
    with pytest.raises(InputError, match="unknown core 'zen 44'; did you mean 'zen 4'"):
        core_named("zen 44")
    with pytest.raises(InputError, match="known are AMD Zen, AMD Zen 2"):
        core_named("pentium")
