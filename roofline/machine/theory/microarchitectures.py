"""Microarchitectures: identification of a host's core, and its throughput per cycle.

Figures come from vendors' optimization guides or reproducible measurements only; unknown ones have
no theoretical rate.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roofline.core.dtypes import DType
from roofline.core.text import counted
from roofline.errors import InputError, did_you_mean
from roofline.machine.system.system_files import cpu_list, read, whole_number
from roofline.machine.system.topology import ROOT, sysctl

_FLOP_PER_MAC = 2
_FLOATS = frozenset({"float32", "float64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Throughput of one kernel on one unit per cycle.

    ``pipes`` of ``bits`` (0: one element) multiply and add; ``adders`` of the same width add.
    ``kernel`` and ``unit`` are named as in `ComputeCeiling`; ``mmla`` multiplies each element
    twice. Wider instructions take several pipes or cycles.
    """

    kernel: str
    unit: str
    dtypes: frozenset[str]
    pipes: int
    bits: int
    adders: int = 0

    def products(self, element: DType) -> int:
        """Return the MACs of one pipe per cycle."""
        lanes = max(1, self.bits // element.bits)
        return 2 * lanes if self.kernel == "mmla" else lanes

    def flop_per_cycle(self, element: DType) -> int:
        """Return the operations of one core per cycle; a MAC counts two."""
        macs = self.pipes * _FLOP_PER_MAC + self.adders
        return macs * self.products(element)

    def arithmetic(self, element: DType) -> str:
        """Return the derivation of `flop_per_cycle`: ``"2 pipes x 16 lanes x 2 FLOP"``."""
        what = "lane" if self.kernel in ("fma", "fma-add", "mul-add") else "product"
        operations = "FLOP" if element.kind == "float" else "operations"
        width = f"x {counted(self.products(element), what)} x"
        product = f"{counted(self.pipes, 'pipe')} {width} {_FLOP_PER_MAC} {operations}"
        if not self.adders:
            return product
        return f"({product} + {counted(self.adders, 'adder')} {width} 1 {operations})"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestCache:
    """Bytes per cycle between the registers of a core and its L1 data cache.

    They hold for vectors of at least ``bits``. ``store_bytes`` may be unknown (None);
    ``together_bytes`` is the limit for loads plus stores.
    """

    bits: int
    load_bytes: int
    store_bytes: int | None = None
    together_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """Throughput of one core per cycle, from ``reference``; the rest is unknown."""

    name: str
    reference: str
    throughputs: tuple[Throughput, ...]
    l1: NearestCache | None = None
    l2_read_bytes: int | None = None

    def throughput(self, kernel: str, element: DType, unit: str) -> Throughput | None:
        """Return the throughput of a kernel on a unit; None: unknown."""
        for each in self.throughputs:
            if (each.kernel, each.unit) == (kernel, unit) and element.name in each.dtypes:
                return each
        return None


# Rows of the tables below. Names of units are keywords: ``_`` stands for ``-``.


def _rows(
    kernel: str, dtypes: Iterable[str], pipes: int, adders: int = 0, **bits: int
) -> list[Throughput]:
    return [
        Throughput(
            kernel=kernel,
            unit=name.replace("_", "-"),
            dtypes=frozenset(dtypes),
            pipes=pipes,
            bits=width,
            adders=adders,
        )
        for name, width in bits.items()
    ]


def _fma(pipes: int, *, adders: int = 0, half: bool = False, **bits: int) -> list[Throughput]:
    """Return FMA pipes; with `adders` also the FMA and add mix; `half`: float16 too."""
    kinds = _FLOATS | {"float16"} if half else _FLOATS
    found: list[Throughput] = []
    for name, width in bits.items():
        found += _rows("fma", kinds, pipes, **{name: width})
        if adders:
            found += _rows("fma-add", kinds, pipes, adders, **{name: width})
    return found


def _core(
    name: str,
    reference: str,
    *throughputs: Iterable[Throughput],
    l1: NearestCache | None = None,
    l2_read_bytes: int | None = None,
) -> Core:
    rows = tuple(each for some in throughputs for each in some)
    return Core(
        name=name, reference=reference, throughputs=rows, l1=l1, l2_read_bytes=l2_read_bytes
    )


_128_BIT = NearestCache(bits=128, load_bytes=32, store_bytes=16, together_bytes=32)
_256_BIT = NearestCache(bits=256, load_bytes=64, store_bytes=32, together_bytes=96)
_512_BIT = NearestCache(bits=512, load_bytes=128, store_bytes=64, together_bytes=192)
_THREE_LOADS = NearestCache(bits=256, load_bytes=96)


# AMD. Since Zen 3, two pipes add in addition to the FMA pipes.


def _amd(
    name: str,
    guide: tuple[str, str],
    *throughputs: Iterable[Throughput],
    l1: NearestCache | None = None,
    l2_read_bytes: int | None = 32,
) -> Core:
    family, number = guide
    site = "AMD, https://www.amd.com/en/search/documentation/hub.html"
    reference = f"Software Optimization Guide for {family} ({number}), {site}"
    return _core(f"AMD {name}", reference, *throughputs, l1=l1, l2_read_bytes=l2_read_bytes)


_ZEN_GUIDE = "AMD Family 17h Processors", "55723"
_ZEN_2_GUIDE = "AMD Family 17h Models 30h and Greater Processors", "56305"
_ZEN_3_GUIDE = "AMD Family 19h Processors", "56665"
_ZEN_4_GUIDE = "the AMD Zen4 Microarchitecture", "57647"
_ZEN_5_GUIDE = "the AMD Zen5 Microarchitecture", "58455"

_ZEN = _amd("Zen", _ZEN_GUIDE, _fma(2, scalar=0, sse=128, avx2=128), l1=_128_BIT)
_ZEN_2 = _amd("Zen 2", _ZEN_2_GUIDE, _fma(2, scalar=0, sse=128, avx2=256), l1=_256_BIT)
_ZEN_3 = _amd("Zen 3", _ZEN_3_GUIDE, _fma(2, adders=2, scalar=0, sse=128, avx2=256), l1=_256_BIT)
_ZEN_4 = _amd(
    "Zen 4",
    _ZEN_4_GUIDE,
    # 512-bit instructions go through the 256-bit pipes in two halves.
    _fma(2, adders=2, scalar=0, sse=128, avx2=256, avx512=256),
    _rows("dot", ["bfloat16"], 2, avx512_bf16=256),
    _rows("dot", ["int8"], 2, avx512_vnni=256),
    l1=_256_BIT,
)
_ZEN_5 = _amd(
    "Zen 5",
    _ZEN_5_GUIDE,
    _fma(2, adders=2, scalar=0, sse=128, avx2=256, avx512=512),
    _rows("dot", ["bfloat16"], 2, avx512_bf16=512),
    _rows("dot", ["int8"], 2, avx_vnni=256, avx512_vnni=512),
    _rows("mul-add", ["int32"], 2, sse=128, avx2=256, avx512=512),
    l1=_512_BIT,
    l2_read_bytes=64,
)
_ZEN_5_256 = _amd(
    "Zen 5, 256-bit data path",
    _ZEN_5_GUIDE,
    _fma(2, scalar=0, sse=128, avx2=256, avx512=256),
    l2_read_bytes=None,
)

# Families and models (first, last) as in the Linux kernel, arch/x86/kernel/cpu/amd.c. Zen 5
# servers (with Zen 5c), desktops and Strix Halo have the 512-bit data path; Strix Point and
# Krackan Point the narrower one.
_AMD_MODELS: tuple[tuple[int, int, int, Core], ...] = (
    (0x17, 0x00, 0x2F, _ZEN),
    (0x17, 0x50, 0x5F, _ZEN),
    (0x17, 0x30, 0x4F, _ZEN_2),
    (0x17, 0x60, 0x7F, _ZEN_2),
    (0x17, 0x90, 0x91, _ZEN_2),
    (0x17, 0xA0, 0xAF, _ZEN_2),
    (0x19, 0x00, 0x0F, _ZEN_3),
    (0x19, 0x20, 0x5F, _ZEN_3),
    (0x19, 0x10, 0x1F, _ZEN_4),
    (0x19, 0x60, 0xAF, _ZEN_4),
    (0x1A, 0x00, 0x1F, _ZEN_5),
    (0x1A, 0x40, 0x4F, _ZEN_5),
    (0x1A, 0x70, 0x7F, _ZEN_5),
    (0x1A, 0x20, 0x2F, _ZEN_5_256),
    (0x1A, 0x60, 0x6F, _ZEN_5_256),
)

# Intel. Additions share the FMA pipes, so there is no mix. Only server cores have a second 512-bit
# FMA unit (port 5).

_INTEL_GUIDE = (
    "Intel 64 and IA-32 Architectures Optimization Reference Manual, Intel,"
    " https://www.intel.com/content/www/us/en/developer/articles/technical/"
    "intel64-and-ia32-architectures-optimization.html, and https://uops.info"
)
_VECTORS = _fma(2, scalar=0, sse=128, avx2=256)
_AVX512 = _fma(2, avx512=512)
_VNNI = _rows("dot", ["int8"], 2, avx512_vnni=512)
_AVX_VNNI = _rows("dot", ["int8"], 2, avx_vnni=256)
_HALF = _rows("fma", ["float16"], 2, avx512_fp16=512)
# A tile product takes 16 cycles: of 16 x 16 x 32 elements of 16 bit, or 16 x 16 x 64 of 8 bit.
_TILE_BIT = 16 * 16 * 32 * 16 // 16


def _intel(
    name: str,
    *throughputs: Iterable[Throughput],
    l1: NearestCache | None = None,
    # One line a cycle.
    l2_read_bytes: int | None = 64,
) -> Core:
    name = f"Intel {name}"
    return _core(name, _INTEL_GUIDE, *throughputs, l1=l1, l2_read_bytes=l2_read_bytes)


_HASWELL = _intel("Haswell", _VECTORS, l1=_256_BIT)
_SKYLAKE = _intel("Skylake", _VECTORS, l1=_256_BIT)
_SKYLAKE_SERVER = _intel("Skylake server", _VECTORS, l1=_512_BIT)
_SKYLAKE_SERVER_2 = _intel("Skylake server, two AVX-512 FMA units", _VECTORS, _AVX512, l1=_512_BIT)
_CASCADE_LAKE_2 = _intel(
    "Cascade Lake, two AVX-512 FMA units", _VECTORS, _AVX512, _VNNI, l1=_512_BIT
)
_ICE_LAKE = _intel(
    "Ice Lake client",
    _VECTORS,
    _fma(1, avx512=512),
    _rows("dot", ["int8"], 1, avx512_vnni=512),
    l1=_512_BIT,
)
_ICE_LAKE_SERVER = _intel("Ice Lake server", _VECTORS, _AVX512, _VNNI, l1=_512_BIT)
_GOLDEN_COVE = _intel("Golden Cove", _VECTORS, _AVX_VNNI, l1=_THREE_LOADS)
_SERVER = (_VECTORS, _AVX_VNNI, _AVX512, _VNNI, _HALF)
_SAPPHIRE_RAPIDS = _intel(
    "Sapphire Rapids",
    *_SERVER,
    _rows("tile-dot", ["bfloat16", "int8"], 1, amx=_TILE_BIT),
    l1=_512_BIT,
)
_GRANITE_RAPIDS = _intel(
    "Granite Rapids",
    *_SERVER,
    _rows("tile-dot", ["bfloat16", "int8", "float16"], 1, amx=_TILE_BIT),
    l1=_512_BIT,
)
_REDWOOD_COVE = _intel("Redwood Cove", _VECTORS, _AVX_VNNI, l1=_THREE_LOADS)
_LION_COVE = _intel("Lion Cove", _VECTORS, l2_read_bytes=None)
_GRACEMONT = _intel("Gracemont", _fma(2, scalar=0, sse=128, avx2=128), l2_read_bytes=None)
_CRESTMONT = _intel("Crestmont", _GRACEMONT.throughputs, l2_read_bytes=None)
_SKYMONT = _intel("Skymont", _fma(4, scalar=0, sse=128, avx2=128), l2_read_bytes=None)

# Models of family 6, by the names of the Linux kernel's arch/x86/include/asm/intel-family.h.
_INTEL_MODELS: dict[int, Core] = {
    **dict.fromkeys((0x3C, 0x3F, 0x45, 0x46, 0x3D, 0x47, 0x4F, 0x56), _HASWELL),
    **dict.fromkeys((0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), _SKYLAKE),
    **dict.fromkeys((0x7D, 0x7E, 0x8C, 0x8D, 0xA7), _ICE_LAKE),
    0x6A: _ICE_LAKE_SERVER,
    **dict.fromkeys((0x8F, 0xCF), _SAPPHIRE_RAPIDS),
    **dict.fromkeys((0xAD, 0xAE), _GRANITE_RAPIDS),
    0xBE: _GRACEMONT,
    0xAF: _CRESTMONT,
}
# Performance core, efficient core: both kinds have the same model.
_HYBRID_MODELS: dict[int, tuple[Core, Core]] = {
    **dict.fromkeys((0x97, 0x9A, 0xB7, 0xBA, 0xBF), (_GOLDEN_COVE, _GRACEMONT)),
    **dict.fromkeys((0xAA, 0xAC, 0xB5), (_REDWOOD_COVE, _CRESTMONT)),
    **dict.fromkeys((0xBD, 0xC5, 0xC6), (_LION_COVE, _SKYMONT)),
}
_SKYLAKE_SERVER_MODEL = 0x55
_FIRST_CASCADE_LAKE_STEPPING = 5
_TWO_FMA_UNITS = re.compile(r"Xeon.* (?:Platinum|Gold 6\d|W-[23])|Core.* i[79]-\d+XE?\b")
"""Brand names of Skylake servers and their like that have both AVX-512 FMA units.

Silver, Bronze and most Gold 5000 have one. Hypervisors hide the name; then it is unknown.
"""

# Arm and compatible cores.


def _arm(name: str, *throughputs: Iterable[Throughput]) -> Core:
    site = "https://developer.arm.com/documentation"
    return _core(
        f"Arm {name}", f"Arm {name} Software Optimization Guide, Arm, {site}", *throughputs
    )


_TWO_PIPES = (
    _fma(2, half=True, scalar=0, neon=128),
    _rows("dot", ["int8"], 2, neon_dot=128),
)
_FOUR_PIPES = _fma(4, half=True, scalar=0, neon=128)
_BFLOAT16 = _rows("dot", ["bfloat16"], 4, neon_bf16=128)
_BFLOAT16_TILES = _rows("mmla", ["bfloat16"], 4, neon_bf16=128)
_APPLE = _core(
    "Apple M1 to M4, performance core",
    "Apple Silicon CPU Optimization Guide, Apple,"
    " https://developer.apple.com/documentation/apple-silicon/cpu-optimization-guide, and"
    " https://dougallj.github.io/applecpu/firestorm.html",
    _FOUR_PIPES,
)
_APPLE_BRAND = re.compile(r"Apple M[1-4]\b")

# By implementer and part of the register MIDR_EL1, as arch/arm64/include/asm/cputype.h lists them.
# Graviton 2 and Ampere Altra are N1, Graviton 3 V1, Graviton 4 and Grace V2.
_ARM_PARTS: dict[tuple[int, int], Core] = {
    # A vector of 128 bit takes both pipes of the A72, which are 64 bit wide.
    (0x41, 0xD08): _arm("Cortex-A72", _fma(2, scalar=0, neon=64)),
    (0x41, 0xD0B): _arm("Cortex-A76", *_TWO_PIPES),
    (0x41, 0xD0D): _arm("Cortex-A77", *_TWO_PIPES),
    (0x41, 0xD41): _arm("Cortex-A78", *_TWO_PIPES),
    (0x41, 0xD44): _arm("Cortex-X1", _FOUR_PIPES),
    (0x41, 0xD48): _arm("Cortex-X2", _FOUR_PIPES),
    (0x41, 0xD4E): _arm("Cortex-X3", _FOUR_PIPES),
    (0x41, 0xD82): _arm("Cortex-X4", _FOUR_PIPES),
    (0x41, 0xD0C): _arm("Neoverse N1", *_TWO_PIPES),
    (0x41, 0xD49): _arm("Neoverse N2", *_TWO_PIPES),
    (0x41, 0xD40): _arm(
        "Neoverse V1",
        # Two of the four pipes join for a vector of SVE.
        *(_FOUR_PIPES, _fma(2, half=True, sve=256), _BFLOAT16, _BFLOAT16_TILES),
    ),
    (0x41, 0xD4F): _arm(
        "Neoverse V2",
        _fma(4, half=True, scalar=0, neon=128, sve=128),
        _BFLOAT16,
        _rows("dot", ["int8"], 4, neon_dot=128),
        _BFLOAT16_TILES,
        _rows("mmla", ["int8"], 4, neon_i8mm=128),
    ),
    (0x46, 0x001): _core(
        "Fujitsu A64FX",
        "A64FX Microarchitecture Manual, Fujitsu, https://github.com/fujitsu/A64FX",
        _fma(2, half=True, scalar=0, neon=128, sve=512),
    ),
    # Firestorm and Avalanche, of each chip's size.
    **dict.fromkeys([(0x61, part) for part in (0x23, 0x25, 0x29, 0x33, 0x35, 0x39)], _APPLE),
}

CORES: tuple[Core, ...] = (
    *(_ZEN, _ZEN_2, _ZEN_3, _ZEN_4, _ZEN_5, _ZEN_5_256),
    *(_HASWELL, _SKYLAKE, _SKYLAKE_SERVER, _SKYLAKE_SERVER_2, _CASCADE_LAKE_2, _ICE_LAKE),
    *(_ICE_LAKE_SERVER, _GOLDEN_COVE, _SAPPHIRE_RAPIDS, _GRANITE_RAPIDS, _REDWOOD_COVE, _LION_COVE),
    *(_GRACEMONT, _CRESTMONT, _SKYMONT),
    *{core.name: core for core in _ARM_PARTS.values()}.values(),
)
"""All known cores."""


def core_named(name: str) -> Core:
    """Return the core called `name`; case and vendor are optional."""
    wanted = " ".join(name.lower().split())
    known: dict[str, Core] = {}
    for core in CORES:
        full = core.name.lower()
        known |= {full: core, full.partition(" ")[2]: core}
    if wanted in known:
        return known[wanted]
    hint = did_you_mean(wanted, known) or f"; known are {', '.join(core.name for core in CORES)}"
    raise InputError(f"unknown core '{name}'{hint}")


_DISTINCTIVE = {"amx_tile": "amx", "avx512_fp16": "avx512-fp16"}
"""Flags of instructions that only some cores have, with the unit of such a core."""


def identify_core(root: Path = ROOT, cpus: Sequence[int] = (0,)) -> Core | None:
    """Return the microarchitecture shared by these CPUs; `root` stands for ``/``.

    None: unknown, different, or contradicted by the host's instruction sets (guests may see another
    model number).
    """
    if sys.platform == "darwin" and root == ROOT:
        return macos_core(sysctl("machdep.cpu.brand_string"))
    processors: dict[int, dict[str, str]] = {}
    latest: dict[str, str] = {}
    for line in read(root / "proc/cpuinfo").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        number = whole_number(value) if key == "processor" else None
        if number is not None:
            latest = processors[number] = {}
        else:
            latest.setdefault(key, value)
    found = {_core_of(root, processors.get(cpu, {}), cpu) for cpu in cpus}
    return found.pop() if len(found) == 1 else None


def macos_core(brand: str) -> Core | None:
    """Return the performance core of a Mac by its chip's name; None: unknown."""
    return _APPLE if _APPLE_BRAND.match(brand) else None


def _core_of(root: Path, info: Mapping[str, str], cpu: int) -> Core | None:
    if info.get("CPU implementer"):
        try:
            part = int(info["CPU implementer"], 16), int(info.get("CPU part", ""), 16)
        except ValueError:
            return None
        return _ARM_PARTS.get(part)
    family, model, stepping = (
        whole_number(info.get(key, "")) for key in ("cpu family", "model", "stepping")
    )
    if family is None or model is None:
        return None
    found = None
    match info.get("vendor_id"):
        case "AuthenticAMD":
            models = (each for each in _AMD_MODELS if each[0] == family)
            found = next((core for _, first, last, core in models if first <= model <= last), None)
        case "GenuineIntel" if family == 6:
            found = _intel_core(root, model, stepping or 0, info.get("model name", ""), cpu)
        case _:
            return None
    flags = set(info.get("flags", "").split())
    units = {each.unit for each in found.throughputs} if found else set[str]()
    lacks = any(flag in flags and unit not in units for flag, unit in _DISTINCTIVE.items())
    return None if lacks else found


def _intel_core(root: Path, model: int, stepping: int, name: str, cpu: int) -> Core | None:
    if model == _SKYLAKE_SERVER_MODEL:
        if not _TWO_FMA_UNITS.search(re.sub(r"\((?:R|TM)\)|CPU", "", name)):
            return _SKYLAKE_SERVER
        newer = stepping >= _FIRST_CASCADE_LAKE_STEPPING
        return _CASCADE_LAKE_2 if newer else _SKYLAKE_SERVER_2
    if model in _HYBRID_MODELS:
        # Unknown in guests that do not see the kind of core.
        for core, kind in zip(_HYBRID_MODELS[model], ("cpu_core", "cpu_atom"), strict=True):
            if cpu in cpu_list(read(root / "sys/devices" / kind / "cpus")):
                return core
        return None
    return _INTEL_MODELS.get(model)
