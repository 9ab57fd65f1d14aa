"""Figures of a GPU that predicted times depend on; its name is not one of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from roofline.machine.gpu.arithmetic import CUDA_CORE, TENSOR_CORE, TENSOR_CORE_TF32
from roofline.machine.hardware import HardwareProfile

_GENERATIONS = ("float16", "bfloat16", "float8_e4m3fn")
"""Types that tensor cores gained with Volta, Ampere, and Ada and Hopper."""

_LANES = 128
"""CUDA cores of a multiprocessor since Ampere, of which all but HPC GPUs have as many."""

FLOAT8_BLOCK = "float8 block"
"""Type of float8 products with a scale for each block of operands."""

_L2_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """An NVIDIA GPU by its data sheet, in SI units.

    ``tensor_flop_per_s`` has the peaks of tensor cores by data type (``"tf32"``: float32 inputs);
    ``generation`` counts the types that they gained: 0 without any, 3 with float8.
    ``power_limit_w`` is None if unknown. ``architecture`` tells chips apart that have the same
    types: those for HPC multiply float64 on tensor cores as fast as float32. ``assumed`` names
    figures that the machine file lacks.
    """

    multiprocessors: int
    clock_hz: float
    dram_bytes_per_s: float
    l2_bytes: float
    float32_flop_per_s: float
    tensor_flop_per_s: dict[str, float] = field(default_factory=dict[str, float])
    generation: int = 0
    power_limit_w: float | None = None
    assumed: tuple[str, ...] = ()

    @property
    def is_hpc(self) -> bool:
        """True if tensor cores multiply float64 as fast as CUDA cores float32."""
        return self.tensor_flop_per_s.get("float64", 0.0) >= 0.9 * self.float32_flop_per_s

    @property
    def architecture(self) -> str:
        """Generation of tensor cores, with ``"hpc"`` for fast float64 ones: ``"2 hpc"``."""
        return f"{self.generation} hpc" if self.is_hpc else f"{self.generation}"

    def gemm_flop_per_s(self, dtype: str) -> float | None:
        """Return the peak rate of matrix products in a type; None: no unit has it."""
        if dtype == "float32":
            return self.float32_flop_per_s
        return self.tensor_flop_per_s.get("float8_e4m3fn" if dtype == FLOAT8_BLOCK else dtype)

    def within_power(self, peak: float, share: float, *, is_tensor: bool = False) -> float:
        """Return the rate of a peak that the power limit allows, in FLOP/s.

        Cards of less power lower their clock: energy per FLOP belongs to the process. ``share`` is
        that of the rate per watt of the generation's flagship, which data sheets give; a board of
        400 W or more is one itself.
        """
        if self.power_limit_w is None:
            return peak
        of_type = _TENSOR_FLOP_PER_J if is_tensor else _FLOP_PER_J
        base = self.tensor_flop_per_s.get("bfloat16", peak) if is_tensor else peak
        per_j = of_type[min(self.generation, len(of_type) - 1)]
        if self.power_limit_w >= _FLAGSHIP_W:
            per_j = max(per_j, base / self.power_limit_w)
        limit = share * self.power_limit_w * per_j
        if is_tensor and peak > 1.5 * base:
            limit *= 2
        sharpness = 24
        return peak / (1 + (peak / limit) ** sharpness) ** (1 / sharpness)


_FLOP_PER_J = (49e9, 54e9, 102e9, 183e9)
"""Float32 peak ÷ power of GTX 1080, RTX 2080 Ti, RTX 3090, RTX 4090, by generation."""

_FLAGSHIP_W = 400

_TENSOR_FLOP_PER_J = (1e9, 0.42e12, 0.78e12, 1.413e12)
"""16-bit peak ÷ power of RTX 2080 Ti, A100 SXM, H100 SXM, by generation of tensor cores."""


def chip_of(profile: HardwareProfile) -> Chip | None:
    """Return the figures of a GPU; None for other machines, and without peak or bandwidth."""
    peaks = {
        (each.unit, str(each.dtype)): each.peak_flop_per_s
        for each in profile.compute
        if each.kind == "hardware" and each.kernel in ("fma", "mma")
    }
    float32 = peaks.get((CUDA_CORE, "float32"))
    levels = [each for each in profile.memory if each.bandwidth]
    if float32 is None or not levels:
        return None
    tensor = {dtype: peak for (unit, dtype), peak in peaks.items() if unit == TENSOR_CORE}
    if (tf32 := peaks.get((TENSOR_CORE_TF32, "float32"))) is not None:
        tensor["tf32"] = tf32
    assumed: list[str] = []
    clock_hz = profile.ceilings_clock_hz or (profile.clock.peak_hz if profile.clock else None)
    multiprocessors = profile.multiprocessors
    if clock_hz is None and multiprocessors is not None:
        clock_hz = float32 / (2 * _LANES * multiprocessors)
    if clock_hz is None:
        clock_hz = 1.5e9
        assumed.append("clock")
    if multiprocessors is None:
        multiprocessors = max(1, round(float32 / (2 * _LANES * clock_hz)))
        assumed.append("multiprocessors")
    l2_bytes = next((each.capacity_bytes for each in profile.memory if each.name == "L2"), None)
    if l2_bytes is None:
        l2_bytes = _L2_BYTES
        assumed.append("L2 capacity")
    if profile.power_limit_w is None:
        assumed.append("power limit")
    return Chip(
        multiprocessors=multiprocessors,
        clock_hz=clock_hz,
        dram_bytes_per_s=max(each.peak_bytes_per_s for each in levels[-1].bandwidth),
        l2_bytes=l2_bytes,
        float32_flop_per_s=float32,
        tensor_flop_per_s=tensor,
        generation=sum(each in tensor for each in _GENERATIONS),
        power_limit_w=profile.power_limit_w,
        assumed=tuple(assumed),
    )
