"""Intel's cores. Additions share the pipes of the multiply-adds, or some of them: no mix is listed.

Server and client cores of one name differ: a second 512-bit FMA unit (port 5) is in servers only.
"""

from __future__ import annotations

import re

from roofline.machine.theory.microarchitectures.cores import (
    Core,
    NearestCache,
    Throughput,
    dot,
    fma,
    throughput,
)

_REFERENCE = (
    "Intel 64 and IA-32 Architectures Optimization Reference Manual, Intel,"
    " https://www.intel.com/content/www/us/en/developer/articles/technical/"
    "intel64-and-ia32-architectures-optimization.html, and https://uops.info"
)
_256_BIT = NearestCache(bits=256, load_bytes=64, store_bytes=32, together_bytes=96)
_512_BIT = NearestCache(bits=512, load_bytes=128, store_bytes=64, together_bytes=192)
_VECTORS = fma(2, scalar=0, sse=128, avx2=256)
# A tile product takes 16 cycles: of 16 x 16 x 32 elements of 16 bit, or 16 x 16 x 64 of 8 bit.
_TILE_BIT = 16 * 16 * 32 * 16 // 16


_AVX512 = fma(2, avx512=512)
_VNNI = dot("int8", 2, avx512_vnni=512)
_AVX_VNNI = dot("int8", 2, avx_vnni=256)
_HALF = throughput("fma", "avx512-fp16", 2, 512, ["float16"])


def _core(name: str, *throughputs: Throughput, l1: NearestCache | None = None) -> Core:
    # All of them move one line of 64 byte a cycle from the second cache.
    return Core(name=name, reference=_REFERENCE, throughputs=throughputs, l1=l1, l2_read_bytes=64)


def _tiles(*dtypes: str) -> Throughput:
    return throughput("tile-dot", "amx", 1, _TILE_BIT, dtypes)


HASWELL = _core("Intel Haswell", *_VECTORS, l1=_256_BIT)
SKYLAKE = _core("Intel Skylake", *_VECTORS, l1=_256_BIT)
SKYLAKE_SERVER = _core("Intel Skylake server", *_VECTORS, l1=_512_BIT)
SKYLAKE_SERVER_2 = _core(
    "Intel Skylake server, two AVX-512 FMA units", *_VECTORS, *_AVX512, l1=_512_BIT
)
CASCADE_LAKE_2 = _core(
    "Intel Cascade Lake, two AVX-512 FMA units", *_VECTORS, *_AVX512, *_VNNI, l1=_512_BIT
)
ICE_LAKE = _core(
    "Intel Ice Lake client",
    *_VECTORS,
    *fma(1, avx512=512),
    *dot("int8", 1, avx512_vnni=512),
    l1=_512_BIT,
)
ICE_LAKE_SERVER = _core("Intel Ice Lake server", *_VECTORS, *_AVX512, *_VNNI, l1=_512_BIT)
GOLDEN_COVE = _core(
    "Intel Golden Cove", *_VECTORS, *_AVX_VNNI, l1=NearestCache(bits=256, load_bytes=96)
)
SAPPHIRE_RAPIDS = _core(
    "Intel Sapphire Rapids",
    *_VECTORS,
    *_AVX_VNNI,
    *_AVX512,
    *_VNNI,
    _HALF,
    _tiles("bfloat16", "int8"),
    l1=_512_BIT,
)
GRANITE_RAPIDS = _core(
    "Intel Granite Rapids",
    *_VECTORS,
    *_AVX_VNNI,
    *_AVX512,
    *_VNNI,
    _HALF,
    _tiles("bfloat16", "int8", "float16"),
    l1=_512_BIT,
)
REDWOOD_COVE = _core(
    "Intel Redwood Cove", *_VECTORS, *_AVX_VNNI, l1=NearestCache(bits=256, load_bytes=96)
)
LION_COVE = Core(name="Intel Lion Cove", reference=_REFERENCE, throughputs=tuple(_VECTORS))
GRACEMONT = Core(
    name="Intel Gracemont",
    reference=_REFERENCE,
    throughputs=tuple(fma(2, scalar=0, sse=128, avx2=128)),
)
CRESTMONT = Core(name="Intel Crestmont", reference=_REFERENCE, throughputs=GRACEMONT.throughputs)
SKYMONT = Core(
    name="Intel Skymont",
    reference=_REFERENCE,
    throughputs=tuple(fma(4, scalar=0, sse=128, avx2=128)),
)

CORES = (
    *(HASWELL, SKYLAKE, SKYLAKE_SERVER, SKYLAKE_SERVER_2, CASCADE_LAKE_2, ICE_LAKE),
    *(ICE_LAKE_SERVER, GOLDEN_COVE, SAPPHIRE_RAPIDS, GRANITE_RAPIDS, REDWOOD_COVE, LION_COVE),
    *(GRACEMONT, CRESTMONT, SKYMONT),
)

# Models of family 6, by the names of the Linux kernel's arch/x86/include/asm/intel-family.h.
MODELS: dict[int, Core] = {
    **dict.fromkeys((0x3C, 0x3F, 0x45, 0x46, 0x3D, 0x47, 0x4F, 0x56), HASWELL),
    **dict.fromkeys((0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), SKYLAKE),
    **dict.fromkeys((0x7D, 0x7E, 0x8C, 0x8D, 0xA7), ICE_LAKE),
    0x6A: ICE_LAKE_SERVER,
    **dict.fromkeys((0x8F, 0xCF), SAPPHIRE_RAPIDS),
    **dict.fromkeys((0xAD, 0xAE), GRANITE_RAPIDS),
    0xBE: GRACEMONT,
    0xAF: CRESTMONT,
}

SKYLAKE_SERVER_MODEL = 0x55

FIRST_CASCADE_LAKE_STEPPING = 5

# Performance core, efficient core.
HYBRID_MODELS: dict[int, tuple[Core, Core]] = {
    **dict.fromkeys((0x97, 0x9A, 0xB7, 0xBA, 0xBF), (GOLDEN_COVE, GRACEMONT)),
    **dict.fromkeys((0xAA, 0xAC, 0xB5), (REDWOOD_COVE, CRESTMONT)),
    **dict.fromkeys((0xBD, 0xC5, 0xC6), (LION_COVE, SKYMONT)),
}

TWO_FMA_UNITS = re.compile(r"Xeon.* (?:Platinum|Gold 6\d|W-[23])|Core.* i[79]-\d+XE?\b")
"""Brand names of the Skylake servers and their like that have both AVX-512 FMA units.

Silver, Bronze and most Gold 5000 have one, and hypervisors hide the name: then it is not known.
"""
