"""Arm's cores, and those of others that run its instructions."""

from __future__ import annotations

from roofline.machine.theory.microarchitectures.cores import Core, dot, fma, throughput

_FP16 = ("scalar", "neon", "sve")


def _guide(core: str) -> str:
    return f"Arm {core} Software Optimization Guide, Arm, https://developer.arm.com/documentation"


def _two_pipes(name: str) -> Core:
    return Core(
        name=f"Arm {name}",
        reference=_guide(name),
        throughputs=(
            *fma(2, half=_FP16, scalar=0, neon=128),
            *dot("int8", 2, neon_dot=128),
        ),
    )


def _four_pipes(name: str) -> Core:
    return Core(
        name=f"Arm {name}",
        reference=_guide(name),
        throughputs=tuple(fma(4, half=_FP16, scalar=0, neon=128)),
    )


# A vector of 128 bit takes both pipes of the A72, which are 64 bit wide.
CORTEX_A72 = Core(
    name="Arm Cortex-A72",
    reference=_guide("Cortex-A72"),
    throughputs=tuple(fma(2, scalar=0, neon=64)),
)
CORTEX_A76 = _two_pipes("Cortex-A76")
CORTEX_A77 = _two_pipes("Cortex-A77")
CORTEX_A78 = _two_pipes("Cortex-A78")
NEOVERSE_N1 = _two_pipes("Neoverse N1")
NEOVERSE_N2 = _two_pipes("Neoverse N2")
CORTEX_X1 = _four_pipes("Cortex-X1")
CORTEX_X2 = _four_pipes("Cortex-X2")
CORTEX_X3 = _four_pipes("Cortex-X3")
CORTEX_X4 = _four_pipes("Cortex-X4")
NEOVERSE_V1 = Core(
    name="Arm Neoverse V1",
    reference=_guide("Neoverse V1"),
    # Two of the four pipes join for a vector of SVE.
    throughputs=(
        *fma(4, half=_FP16, scalar=0, neon=128),
        *fma(2, half=_FP16, sve=256),
        *dot("bfloat16", 4, neon_bf16=128),
        throughput("mmla", "neon-bf16", 4, 128, ["bfloat16"]),
    ),
)
NEOVERSE_V2 = Core(
    name="Arm Neoverse V2",
    reference=_guide("Neoverse V2"),
    throughputs=(
        *fma(4, half=_FP16, scalar=0, neon=128, sve=128),
        *dot("bfloat16", 4, neon_bf16=128),
        *dot("int8", 4, neon_dot=128),
        throughput("mmla", "neon-bf16", 4, 128, ["bfloat16"]),
        throughput("mmla", "neon-i8mm", 4, 128, ["int8"]),
    ),
)
A64FX = Core(
    name="Fujitsu A64FX",
    reference="A64FX Microarchitecture Manual, Fujitsu, https://github.com/fujitsu/A64FX",
    throughputs=tuple(fma(2, half=_FP16, scalar=0, neon=128, sve=512)),
)
APPLE_PERFORMANCE = Core(
    name="Apple M1 to M4, performance core",
    reference=(
        "Apple Silicon CPU Optimization Guide, Apple,"
        " https://developer.apple.com/documentation/apple-silicon/cpu-optimization-guide, and"
        " https://dougallj.github.io/applecpu/firestorm.html"
    ),
    throughputs=tuple(fma(4, half=_FP16, scalar=0, neon=128)),
)

CORES = (
    *(CORTEX_A72, CORTEX_A76, CORTEX_A77, CORTEX_A78, CORTEX_X1, CORTEX_X2, CORTEX_X3, CORTEX_X4),
    *(NEOVERSE_N1, NEOVERSE_N2, NEOVERSE_V1, NEOVERSE_V2, A64FX, APPLE_PERFORMANCE),
)

# Implementer and part of the register MIDR_EL1, as arch/arm64/include/asm/cputype.h lists them.
# Graviton 2 and Ampere Altra are N1, Graviton 3 V1, Graviton 4 and Grace V2.
PARTS: dict[tuple[int, int], Core] = {
    (0x41, 0xD08): CORTEX_A72,
    (0x41, 0xD0B): CORTEX_A76,
    (0x41, 0xD0D): CORTEX_A77,
    (0x41, 0xD41): CORTEX_A78,
    (0x41, 0xD44): CORTEX_X1,
    (0x41, 0xD48): CORTEX_X2,
    (0x41, 0xD4E): CORTEX_X3,
    (0x41, 0xD82): CORTEX_X4,
    (0x41, 0xD0C): NEOVERSE_N1,
    (0x41, 0xD49): NEOVERSE_N2,
    (0x41, 0xD40): NEOVERSE_V1,
    (0x41, 0xD4F): NEOVERSE_V2,
    (0x46, 0x001): A64FX,
    # Firestorm and Avalanche, of each chip's size.
    **dict.fromkeys(
        ((0x61, part) for part in (0x023, 0x025, 0x029, 0x033, 0x035, 0x039)), APPLE_PERFORMANCE
    ),
}
