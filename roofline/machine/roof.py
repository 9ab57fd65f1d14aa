"""Hardware ceilings of a machine for a number of threads: compute units and memory levels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from roofline.core.dtypes import DType, dtype
from roofline.core.text import printable
from roofline.core.units import format_bytes_per_s, format_flop_per_s
from roofline.machine.hardware import HardwareProfile, MemoryLevel
from roofline.plots.roof import Ceiling, CeilingKind, Diagonal


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRoof:
    """Highest bandwidth of one memory level on the threads in use."""

    level: MemoryLevel
    kernel: str
    bytes_per_s: float
    is_doubtful: bool = False

    @property
    def label(self) -> str:
        """Name in tables and plots: ``"DRAM read"``."""
        return f"{self.level.name} {self.kernel}".removesuffix(" unspecified")

    @property
    def subject(self) -> str:
        return self.level.name

    @property
    def per_s(self) -> float:
        return self.bytes_per_s

    def height(self, flop_per_byte: float) -> float:
        """Return the FLOP/s limit at an arithmetic intensity."""
        return self.bytes_per_s * flop_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeRoof:
    """Highest rate of one unit and kernel in one data type on the threads in use."""

    dtype: DType
    unit: str
    kernel: str
    flop_per_s: float
    is_doubtful: bool = False

    @property
    def label(self) -> str:
        """Name in tables and plots: ``"float32 avx512 fma"``."""
        return f"{self.dtype} {self.unit} {self.kernel}".removesuffix(" unspecified")

    @property
    def subject(self) -> str:
        return str(self.dtype)

    @property
    def per_s(self) -> float:
        return self.flop_per_s

    def height(self, flop_per_byte: float) -> float:
        """Return the FLOP/s limit, the same at every arithmetic intensity."""
        del flop_per_byte
        return self.flop_per_s


_CONVERTS_TO = {
    "float16": "float32",
    "bfloat16": "float32",
    "float8_e4m3fn": "float32",
    "float8_e5m2": "float32",
    "float8_e4m3fnuz": "float32",
    "float8_e5m2fnuz": "float32",
    "complex64": "float32",
    "complex128": "float64",
}


MIX = "fma-add"
"""Kernel that adds in addition to its MACs. It exceeds the FMA peak on AMD's Zen and other CPUs
with separate adders."""

READING = ("read", "copy", "copy-nt", "unspecified")
"""Memory kernels that bound the rate of bytes that are only read."""

_NATIVE = {
    "bfloat16": {"amx_bf16": "amx", "avx512_bf16": "avx512-bf16", "bf16": "neon-bf16"},
    "float16": {"amx_fp16": "amx", "avx512_fp16": "avx512-fp16", "asimdhp": "neon"},
}
"""Instruction sets with native arithmetic in a type, and the unit that must have a ceiling."""


def _rate(rates: Mapping[int, float], threads: int) -> float:
    """Return the rate on `threads` threads: measured, else the lowest upper bound."""
    if threads in rates:
        return rates[threads]
    return min(rate * max(1.0, threads / measured) for measured, rate in rates.items())


def _first_of_each_type(units: Iterable[ComputeRoof]) -> dict[DType, ComputeRoof]:
    best: dict[DType, ComputeRoof] = {}
    for roof in units:
        best.setdefault(roof.dtype, roof)
    return best


@dataclass(frozen=True)
class MachineRoof:
    """The hardware ceilings of a machine for a number of threads."""

    profile: HardwareProfile
    threads: int

    def __post_init__(self) -> None:
        self.profile.check_threads(self.threads)

    @cached_property
    def levels(self) -> tuple[LevelRoof, ...]:
        """Highest bandwidth of each memory level, nearest first."""
        return tuple(self._fastest_kernel(level) for level in self.profile.memory)

    @property
    def memory(self) -> LevelRoof | None:
        """Highest bandwidth of the farthest memory level; None: unknown."""
        return self.levels[-1] if self.levels else None

    @property
    def fastest_bytes_per_s(self) -> float | None:
        """Highest bandwidth of all levels; None: unknown."""
        return max((level.bytes_per_s for level in self.levels), default=None)

    @cached_property
    def library(self) -> MachineRoof:
        """The same for the library ceilings."""
        reached = [each for each in self.profile.compute if each.kind == "library"]
        as_hardware = tuple(replace(each, kind="hardware") for each in reached)
        return MachineRoof(replace(self.profile, compute=as_hardware), self.threads)

    @cached_property
    def read_levels(self) -> tuple[LevelRoof, ...]:
        """Highest bandwidth of each level for bytes that are only read: a read or copy kernel.

        Kernels that store what they just loaded (update) exceed the rate of any read. Without a
        read or copy kernel, those of `levels`.
        """
        return tuple(self._fastest_kernel(level, READING) for level in self.profile.memory)

    def _fastest_kernel(self, level: MemoryLevel, kernels: Iterable[str] = ()) -> LevelRoof:
        rates: dict[str, dict[int, float]] = {}
        doubtful: set[str] = set()
        for each in level.bandwidth:
            if each.kind == "hardware":
                rates.setdefault(each.kernel, {})[each.threads] = each.peak_bytes_per_s
                if each.doubt and each.threads == self.threads:
                    doubtful.add(each.kernel)
        among = [kernel for kernel in rates if kernel in kernels] or list(rates)
        fastest = max(among, key=lambda kernel: _rate(rates[kernel], self.threads))
        return LevelRoof(
            level=level,
            kernel=fastest,
            bytes_per_s=_rate(rates[fastest], self.threads),
            is_doubtful=fastest in doubtful,
        )

    @cached_property
    def units(self) -> tuple[ComputeRoof, ...]:
        """Rate of each data type, unit and kernel, fastest first."""
        rates: dict[tuple[DType, str, str], dict[int, float]] = {}
        doubtful: set[tuple[DType, str, str]] = set()
        for each in self.profile.compute:
            if each.kind == "hardware":
                key = (each.dtype, each.unit, each.kernel)
                rates.setdefault(key, {})[each.threads] = each.peak_flop_per_s
                if each.doubt and each.threads == self.threads:
                    doubtful.add(key)
        roofs = (
            ComputeRoof(
                dtype=key[0],
                unit=key[1],
                kernel=key[2],
                flop_per_s=_rate(by, self.threads),
                is_doubtful=key in doubtful,
            )
            for key, by in rates.items()
        )
        return tuple(sorted(roofs, key=lambda roof: -roof.flop_per_s))

    @cached_property
    def _best(self) -> Mapping[DType, ComputeRoof]:
        return _first_of_each_type(self.units)

    @cached_property
    def mac_ceilings(self) -> Mapping[DType, ComputeRoof]:
        """Highest MAC ceiling of every measured data type."""
        products = _first_of_each_type(roof for roof in self.units if roof.kernel != MIX)
        return {**self._best, **products}

    def compute(self, of: DType) -> ComputeRoof | None:
        """Return the highest MAC ceiling in `of`, or in the type it converts to; None: unknown.

        It is unknown if the host has an instruction set for `of` without a measured ceiling: a
        lower ceiling would give minimum times that real programs beat.
        """
        return self._ceiling(of, self.mac_ceilings)

    def compute_any(self, of: DType) -> ComputeRoof | None:
        """Return the highest ceiling for any arithmetic in `of`; otherwise as `compute`."""
        return self._ceiling(of, self._best)

    def _ceiling(self, of: DType, best: Mapping[DType, ComputeRoof]) -> ComputeRoof | None:
        if self.unmeasured(of):
            return None
        found = best.get(of)
        if found is None and of.name in _CONVERTS_TO:
            found = best.get(dtype(_CONVERTS_TO[of.name]))
        return found

    def unmeasured(self, of: DType) -> str:
        """Return the host's instruction set for `of` that has no ceiling, or ``""``."""
        host, native = self.profile.host, _NATIVE.get(of.name)
        if not native:
            return ""
        measured = {roof.unit for roof in self.units if roof.dtype == of}
        for instruction_set, unit in native.items():
            if host and instruction_set in host.instruction_sets and unit not in measured:
                return instruction_set
        return ""

    @cached_property
    def held_bytes(self) -> tuple[int | None, ...]:
        """Cumulative capacity of each level and all nearer ones, in bytes; None: unlimited.

        Caches need not be inclusive: with a victim L3, as on Zen and on Intel servers since
        Skylake, L2 and L3 hold different bytes. For inclusive caches the minimum times are slightly
        low.
        """
        held: list[int | None] = []
        for level in self.profile.memory:
            nearer = held[-1] if held else 0
            own = level.capacity_for(self.threads)
            held.append(None if nearer is None or own is None else nearer + own)
        return tuple(held)


def ridge_flop_per_byte(unit: ComputeRoof, level: LevelRoof) -> float:
    """Return the ridge point of a compute ceiling and a memory level, in FLOP/B."""
    return unit.flop_per_s / level.bytes_per_s


KERNELS = {
    "fma": "independent multiply-accumulates (2 FLOP each)",
    "fma-add": "multiply-accumulates interleaved with additions",
    "fma-packed": "multiply-accumulates on pairs of elements",
    "mul-add": "integer multiplications and additions",
    "dot": "instructions with several products of 8 or 16 bits each",
    "tile-dot": "products of AMX tiles",
    "mmla": "products of small matrices in vector registers",
    "mma": "matrix products of tensor cores",
    "mma-float16-accumulate": "matrix products of tensor cores, sums in float16",
    "read": "loads alone",
    "write": "stores alone",
    "copy": "one load per store, to another array",
    "triad": "a = b + s × c, two loads per store",
    "update": "one load per store, in place",
    "write-nt": "write with non-temporal stores, which bypass the caches",
    "copy-nt": "copy with non-temporal stores, which bypass the caches",
    "triad-nt": "triad with non-temporal stores, which bypass the caches",
}
"""Kernels that ceilings are named after."""

_UNIT = re.compile(r"\b(avx512|avx2|avx|sse|fma-add|fma|amx|vnni|neon|sve|mma|tf32|fp16|bf16)\b")


def ceiling_text(label: str) -> str:
    """Return the label of a ceiling as reports and plots show it: ``"float32 AVX-512 FMA"``."""
    texts = {"avx512": "AVX-512", "fma-add": "FMA + ADD"}
    return _UNIT.sub(lambda each: texts.get(each[1], each[1].upper()), printable(label))


def kernel_lines(ceilings: Iterable[str]) -> list[str]:
    """Return a line for each kernel in labels of ceilings."""
    used = {each.rpartition(" ")[2] for each in ceilings}
    return [f"{ceiling_text(name)}: {text}" for name, text in KERNELS.items() if name in used]


_NAME_CHARACTERS = 40

_UNRELIABLE = "? "
"""Mark of a figure that its measurement doubts, as in the report of a machine."""


def line_name(label: str) -> str:
    """Return a label, shortened in the middle to fit a plot."""
    name = printable(label)
    if len(name) <= _NAME_CHARACTERS:
        return name
    half = _NAME_CHARACTERS // 2
    return f"{name[:half]}…{name[1 - half :]}"


def ceiling_of(
    unit: ComputeRoof,
    kind: CeilingKind,
    fastest_bytes_per_s: float | None,
    *,
    main: bool = True,
    note: str = "",
) -> Ceiling:
    """Return the plotted line of a unit."""
    rate = f"{_UNRELIABLE * unit.is_doubtful}{format_flop_per_s(unit.flop_per_s)}"
    return Ceiling(
        label=f"{line_name(ceiling_text(unit.label))}{note} {rate}",
        kind=kind,
        flop_per_s=unit.flop_per_s,
        start_flop_per_byte=unit.flop_per_s / fastest_bytes_per_s if fastest_bytes_per_s else None,
        main=main,
    )


def diagonal_of(level: LevelRoof, main: ComputeRoof | None, top: ComputeRoof | None) -> Diagonal:
    """Return the plotted line of a memory level, up to the main and the highest ceiling."""
    rate = f"{_UNRELIABLE * level.is_doubtful}{format_bytes_per_s(level.bytes_per_s)}"
    return Diagonal(
        label=f"{line_name(ceiling_text(level.label))} {rate}",
        level=printable(level.level.name),
        bytes_per_s=level.bytes_per_s,
        ridge_flop_per_byte=ridge_flop_per_byte(main, level) if main else None,
        cut_flop_per_byte=ridge_flop_per_byte(top, level) if top else None,
    )
