"""A measured machine that knows everything a profile can hold; all numbers are made up.

Two cores of 4.0 GHz with two 512-bit pipes, like the machines that the tool was made on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from roofline.core.dtypes import dtype
from roofline.machine.hardware import (
    Bandwidth,
    BandwidthCurve,
    Clock,
    ComputeCeiling,
    Duration,
    HardwareProfile,
    Host,
    LatencyCurve,
    Link,
    MemoryKernel,
    MemoryLevel,
    Overhead,
    Provenance,
    TheoreticalRate,
    WriteAllocate,
)

CLOCK_HZ = 4.0e9
DAY = "2026-03-04"
_BURSTS = "95th percentile (peak) and median (sustained) of interleaved 0.4 ms bursts"


def measured(reference: str = _BURSTS, note: str = "280 bursts, 2 disturbed") -> Provenance:
    """What a measurement says of itself."""
    return Provenance(
        source="measured", reference=reference, date=DAY, tool_version="0.1.0", note=note
    )


def theoretical_peaks(per_s: float, how: str) -> TheoreticalRate:
    """A figure that follows from the clock."""
    reference = "clock x lanes x pipes; the clock as measured"
    return TheoreticalRate(
        per_s=per_s,
        provenance=Provenance(source="derived", reference=reference, date=DAY, note=how),
    )


_UNITS = {"scalar": 32, "sse": 128, "avx2": 256, "avx512": 512}
_DOUBTED = ("avx2", "float64", "fma", 2)


def _hardware() -> Iterator[ComputeCeiling]:
    for unit, width in _UNITS.items():
        for of, bits in (("float32", 32), ("float64", 64)):
            lanes = 1 if unit == "scalar" else width // bits
            for kernel, cycle in (("fma", 4), ("fma-add", 6)):
                if kernel == "fma" or unit in ("avx2", "avx512"):
                    yield from _ceilings(of, unit, kernel, lanes * cycle)
    yield from _ceilings("bfloat16", "avx512-bf16", "dot", 128)
    yield from _ceilings("int8", "avx512-vnni", "dot", 256)
    yield from _ceilings("int32", "avx512", "multiply-add", 32)


def _ceilings(of: str, unit: str, kernel: str, flop_per_cycle: int) -> Iterator[ComputeCeiling]:
    for threads in (1, 2):
        paper = threads * CLOCK_HZ * flop_per_cycle
        share = 0.9 if kernel == "fma-add" else 0.985
        doubted = (unit, of, kernel, threads) == _DOUBTED
        yield ComputeCeiling(
            kind="hardware",
            kernel=kernel,
            dtype=dtype(of),
            unit=unit,
            threads=threads,
            peak_flop_per_s=share * paper,
            sustained_flop_per_s=(share - 0.05 * threads) * paper,
            spread=0.021,
            theoretical=theoretical_peaks(
                paper, f"{threads} x {CLOCK_HZ / 1e9:g} GHz x {flop_per_cycle} FLOP per cycle"
            ),
            doubt="a second kernel reached 8.2 % more" if doubted else "",
            provenance=measured(f"{_BURSTS}; {12 if width_of(unit) < 512 else 28} sums at once"),
        )


def width_of(unit: str) -> int:
    """The bits of a unit's registers."""
    return _UNITS.get(unit, 512)


_TORCH = {
    ("float32", "gemm"): 103e9,
    ("float32", "conv"): 227e9,
    ("float32", "conv-channels-last"): 245e9,
    ("float64", "gemm"): 51e9,
    ("bfloat16", "gemm"): 454e9,
    ("float16", "gemm"): 2.4e9,
}


def _library() -> Iterator[ComputeCeiling]:
    for (of, kernel), rate in _TORCH.items():
        for threads in (1, 2):
            yield ComputeCeiling(
                kind="library",
                kernel=kernel,
                dtype=dtype(of),
                unit="torch",
                threads=threads,
                peak_flop_per_s=threads * rate,
                sustained_flop_per_s=0.97 * threads * rate,
                spread=0.014,
                provenance=measured("95th percentile (peak) and median of calls of torch 2.13.0"),
            )


_ALLOCATE: dict[MemoryKernel, WriteAllocate] = {
    "read": "none",
    "write": "not counted",
    "copy": "not counted",
    "update": "none",
    "copy-nt": "none",
}
_RATES: dict[str, dict[MemoryKernel, float]] = {
    "L1": {"read": 512e9, "write": 256e9, "copy": 512e9, "update": 512e9},
    "L2": {"read": 256e9, "write": 252e9, "copy": 256e9, "update": 440e9},
    "L3": {"read": 117e9, "write": 114e9, "copy": 110e9, "update": 224e9},
    "DRAM": {"read": 43e9, "write": 33e9, "copy": 40e9, "update": 75e9, "copy-nt": 57e9},
}
_CAPACITY = {"L1": 48 * 2**10, "L2": 2**20, "L3": 32 * 2**20, "DRAM": None}
_LATENCY_S = {"L1": 1.0e-9, "L2": 3.6e-9, "L3": 13.1e-9, "DRAM": 118e-9}


def _bandwidth(
    level: str,
    kernel: MemoryKernel,
    threads: int,
    kind: Literal["hardware", "library"] = "hardware",
) -> Bandwidth:
    near = level != "DRAM"
    rate = threads * _RATES[level].get(kernel, 38e9)
    paper = 614e9 if level == "DRAM" else threads * CLOCK_HZ * 128
    known = kind == "hardware" and (kernel == "read" and level in ("L1", "DRAM"))
    return Bandwidth(
        kind=kind,
        kernel=kernel,
        threads=threads,
        peak_bytes_per_s=rate,
        sustained_bytes_per_s=0.95 * rate if near else (0.9 if threads == 1 else 0.55) * rate,
        spread=0.025 if near else 0.12,
        write_allocate=_ALLOCATE.get(kernel, "not counted"),
        theoretical=theoretical_peaks(paper, "two loads of 64 byte per cycle") if known else None,
        provenance=measured(f"{_BURSTS}; half of {level}" if near else f"{_BURSTS}; 256 MiB"),
    )


def _level(name: str) -> MemoryLevel:
    found = [_bandwidth(name, kernel, threads) for kernel in _RATES[name] for threads in (1, 2)]
    if name == "DRAM":
        found += [
            _bandwidth(name, kernel, threads, "library")
            for kernel in ("copy", "add")
            for threads in (1, 2)
        ]
    return MemoryLevel(
        name=name,
        capacity_bytes=_CAPACITY[name],
        scope="private" if name in ("L1", "L2") else "shared",
        capacity_provenance=None
        if name == "DRAM"
        else measured("the step of the read and latency curves", note="")
        if name != "L2"
        else Provenance(source="datasheet", reference="reported by the operating system", date=DAY),
        latency=Duration(
            fast_s=0.97 * _LATENCY_S[name],
            median_s=_LATENCY_S[name],
            spread=0.015,
            provenance=measured("a chain of dependent loads at random places"),
        ),
        bandwidth=tuple(found),
    )


def _sizes() -> tuple[int, ...]:
    return tuple(16 * 2**10 * 2**half // 1 for half in range(14))


def _step(size: int) -> str:
    return next(
        (name for name, capacity in _CAPACITY.items() if capacity and size <= capacity), "DRAM"
    )


def rich_profile() -> HardwareProfile:
    """A machine of which everything is known that a profile can hold."""
    sizes = _sizes()
    return HardwareProfile(
        name="rich-2core",
        device="cpu",
        threads=2,
        description="Two cores with everything measured",
        host=Host(
            cpu_model="Example CPU 9000",
            architecture="x86_64",
            operating_system="Linux 6.1",
            instruction_sets=("avx2", "avx512_bf16", "avx512_vnni", "avx512f"),
            available_cpus=2,
            versions={"torch": "2.13.0", "llvmlite": "0.50.0"},
        ),
        effort="default",
        clock=Clock(
            peak_hz=CLOCK_HZ,
            median_hz=0.97 * CLOCK_HZ,
            provenance=measured("a chain of dependent additions, one a cycle"),
        ),
        compute=(*_hardware(), *_library()),
        memory=tuple(map(_level, _RATES)),
        overheads=tuple(
            Overhead(
                name=name,
                threads=1,
                time=Duration(
                    fast_s=0.9 * median_s,
                    median_s=median_s,
                    spread=0.04,
                    provenance=measured("calls of torch 2.13.0"),
                ),
            )
            for name, median_s in {
                "dispatch of add": 935e-9,
                "dispatch of linear": 1.22e-6,
                "dispatch of convolution": 2.16e-6,
            }.items()
        ),
        links=(
            Link(
                source="node 0",
                target="memory of node 1",
                kernel="read",
                threads=2,
                peak_bytes_per_s=31e9,
                sustained_bytes_per_s=29e9,
                spread=0.02,
                latency=Duration(fast_s=180e-9, median_s=190e-9, provenance=measured("chain")),
                provenance=measured(),
            ),
        ),
        bandwidth_curves=tuple(
            BandwidthCurve(
                kernel="read",
                threads=threads,
                size_bytes=sizes,
                bytes_per_s=tuple(0.95 * threads * _RATES[_step(size)]["read"] for size in sizes),
                provenance=measured("median at each size"),
            )
            for threads in (1, 2)
        ),
        latency_curve=LatencyCurve(
            size_bytes=sizes,
            latency_s=tuple(_LATENCY_S[_step(size)] for size in sizes),
            provenance=measured("a chain of dependent loads at random places"),
        ),
        conditions=("contention: in 175 of 15112 bursts a thread lost its CPU; they are left out",),
    )


def device_profile() -> HardwareProfile:
    """A device that was measured, with what its data sheet says, and a link to its host."""
    base = rich_profile()
    sheet = TheoreticalRate(
        per_s=989e12,
        provenance=Provenance(source="datasheet", reference="Example data sheet", date="2023"),
    )
    gemm = replace(
        base.compute[0],
        dtype=dtype("bfloat16"),
        unit="tensor-core",
        kernel="gemm",
        threads=1,
        peak_flop_per_s=757e12,
        sustained_flop_per_s=641e12,
        theoretical=sheet,
    )
    memory = MemoryLevel(
        name="HBM",
        capacity_bytes=None,
        scope="shared",
        bandwidth=(
            Bandwidth(
                kernel="copy",
                threads=1,
                peak_bytes_per_s=2.9e12,
                sustained_bytes_per_s=2.8e12,
                spread=0.004,
                write_allocate="none",
                theoretical=replace(sheet, per_s=3.35e12),
                provenance=measured("copies of 1 GiB"),
            ),
        ),
    )
    link = replace(base.links[0], source="host", target="device", threads=1, latency=None)
    return HardwareProfile(
        name="device",
        device="cuda",
        threads=1,
        effort="quick",
        compute=(gemm,),
        memory=(memory,),
        links=(link,),
        overheads=base.overheads[:1],
    )
