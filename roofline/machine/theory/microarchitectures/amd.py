"""AMD's cores. Since Zen 3, additions go to two pipes beside those of the multiply-adds."""

from __future__ import annotations

from roofline.machine.theory.microarchitectures.cores import (
    Core,
    NearestCache,
    dot,
    fma,
    throughput,
)

_SITE = "AMD, https://www.amd.com/en/search/documentation/hub.html"


def _guide(family: str, number: str) -> str:
    return f"Software Optimization Guide for {family} ({number}), {_SITE}"


_256_BIT = NearestCache(bits=256, load_bytes=64, store_bytes=32, together_bytes=96)
_ZEN5_GUIDE = _guide("the AMD Zen5 Microarchitecture", "58455")

ZEN = Core(
    name="AMD Zen",
    reference=_guide("AMD Family 17h Processors", "55723"),
    throughputs=(*fma(2, scalar=0, sse=128, avx2=128),),
    l1=NearestCache(bits=128, load_bytes=32, store_bytes=16, together_bytes=32),
    l2_read_bytes=32,
)
ZEN_2 = Core(
    name="AMD Zen 2",
    reference=_guide("AMD Family 17h Models 30h and Greater Processors", "56305"),
    throughputs=(*fma(2, scalar=0, sse=128, avx2=256),),
    l1=_256_BIT,
    l2_read_bytes=32,
)
ZEN_3 = Core(
    name="AMD Zen 3",
    reference=_guide("AMD Family 19h Processors", "56665"),
    throughputs=(*fma(2, adders=2, scalar=0, sse=128, avx2=256),),
    l1=_256_BIT,
    l2_read_bytes=32,
)
ZEN_4 = Core(
    name="AMD Zen 4",
    reference=_guide("the AMD Zen4 Microarchitecture", "57647"),
    # 512-bit instructions go through the 256-bit pipes in two halves.
    throughputs=(
        *fma(2, adders=2, scalar=0, sse=128, avx2=256, avx512=256),
        *dot("bfloat16", 2, avx512_bf16=256),
        *dot("int8", 2, avx512_vnni=256),
    ),
    l1=_256_BIT,
    l2_read_bytes=32,
)
ZEN_5 = Core(
    name="AMD Zen 5",
    reference=_ZEN5_GUIDE,
    throughputs=(
        *fma(2, adders=2, scalar=0, sse=128, avx2=256, avx512=512),
        *dot("bfloat16", 2, avx512_bf16=512),
        *dot("int8", 2, avx_vnni=256, avx512_vnni=512),
        *(
            throughput("mul-add", unit, 2, bits, ["int32"])
            for unit, bits in (("sse", 128), ("avx2", 256), ("avx512", 512))
        ),
    ),
    l1=NearestCache(bits=512, load_bytes=128, store_bytes=64, together_bytes=192),
    l2_read_bytes=64,
)
ZEN_5_256 = Core(
    name="AMD Zen 5, 256-bit data path",
    reference=_ZEN5_GUIDE,
    throughputs=(*fma(2, scalar=0, sse=128, avx2=256, avx512=256),),
)

CORES = (ZEN, ZEN_2, ZEN_3, ZEN_4, ZEN_5, ZEN_5_256)

# Families and models (first, last) as the Linux kernel tells the cores apart, in
# arch/x86/kernel/cpu/amd.c. Of Zen 5, servers (with Zen 5c), desktops and Strix Halo have the
# 512-bit data path; Strix Point and Krackan Point the narrower one.
MODELS: tuple[tuple[int, int, int, Core], ...] = (
    (0x17, 0x00, 0x2F, ZEN),
    (0x17, 0x50, 0x5F, ZEN),
    (0x17, 0x30, 0x4F, ZEN_2),
    (0x17, 0x60, 0x7F, ZEN_2),
    (0x17, 0x90, 0x91, ZEN_2),
    (0x17, 0xA0, 0xAF, ZEN_2),
    (0x19, 0x00, 0x0F, ZEN_3),
    (0x19, 0x20, 0x5F, ZEN_3),
    (0x19, 0x10, 0x1F, ZEN_4),
    (0x19, 0x60, 0xAF, ZEN_4),
    (0x1A, 0x00, 0x1F, ZEN_5),
    (0x1A, 0x40, 0x4F, ZEN_5),
    (0x1A, 0x70, 0x7F, ZEN_5),
    (0x1A, 0x20, 0x2F, ZEN_5_256),
    (0x1A, 0x60, 0x6F, ZEN_5_256),
)
