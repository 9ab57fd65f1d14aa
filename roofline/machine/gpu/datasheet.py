"""Theoretical peaks of a device: from bundled data sheets, else from units × clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roofline.machine.catalog import bundled_folder
from roofline.machine.gpu.arithmetic import (
    CUDA_CORE,
    MMA,
    TENSOR_CORE,
    TENSOR_CORE_TF32,
    has_float64_tensor_cores,
)
from roofline.machine.gpu.device import DeviceProperties, Gemm
from roofline.machine.gpu.ptx import Capability
from roofline.machine.hardware import HardwareProfile, Provenance, TheoreticalRate, read_profile

_LEAST_SHARE = 0.75
"""Minimum memory relative to the data sheet: smaller variants may share a name, as with Orin."""

_RESULTS_PER_CYCLE: dict[str, dict[Capability, int]] = {
    "float32": {
        **dict.fromkeys(((7, 0), (7, 5), (8, 0)), 64),
        **dict.fromkeys(((8, 6), (8, 7), (8, 9), (9, 0)), 128),
    },
    "float64": {
        **dict.fromkeys(((7, 0), (8, 0)), 32),
        **dict.fromkeys(((7, 5), (8, 6), (8, 7), (8, 9)), 2),
        (9, 0): 64,
    },
    "float16": {
        **dict.fromkeys(((7, 0), (7, 5), (8, 6), (8, 7), (8, 9)), 128),
        **dict.fromkeys(((8, 0), (9, 0)), 256),
    },
    "bfloat16": {**dict.fromkeys(((8, 0), (8, 6), (8, 7), (8, 9)), 128), (9, 0): 256},
    "int32": dict.fromkeys(((7, 0), (7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0)), 64),
}
"""MACs per cycle and multiprocessor on CUDA cores, by compute capability."""

_GUIDE = (
    "multiprocessors × MACs per cycle × 2 × clock; CUDA C++ Programming Guide,"
    " throughput of native arithmetic instructions, NVIDIA"
)


@dataclass(frozen=True)
class DataSheet:
    """Theoretical peaks of a device."""

    facts: DeviceProperties

    @cached_property
    def profile(self) -> HardwareProfile | None:
        """The bundled profile of the device; None if there is none, or it is a MIG slice."""
        if self.facts.mig:
            return None
        for path in bundled_folder().glob("*.toml"):
            sheet = read_profile(path)
            min_bytes = _LEAST_SHARE * (sheet.memory_capacity_bytes or 0)
            if self.facts.name in sheet.aliases and self.facts.memory_bytes >= min_bytes:
                return sheet
        return None

    @property
    def memory_name(self) -> str:
        """Name of the device's memory."""
        return self.profile.memory[-1].name if self.profile else "DRAM"

    def compute(self, element: str, unit: str, kernel: str) -> TheoreticalRate | None:
        """Return the theoretical peak of a unit, in FLOP/s; None: unknown."""
        for each in self.profile.compute if self.profile else ():
            if (str(each.dtype), each.unit, each.kernel) == (element, unit, kernel):
                return TheoreticalRate(per_s=each.peak_flop_per_s, provenance=each.provenance)
        return self._counted(element) if (unit, kernel) in _COUNTED else None

    def product(self, product: Gemm) -> TheoreticalRate | None:
        """Return the theoretical peak of the unit that runs torch's GEMM."""
        unit = hardware_unit(product, self.facts.capability)
        kernel = "fma" if unit == CUDA_CORE else MMA
        return self.compute(str(product.dtype), unit, kernel)

    def memory(self) -> TheoreticalRate | None:
        """Return the theoretical memory bandwidth, in byte/s; None: unknown."""
        if self.profile:
            sheet = self.profile.memory[-1].bandwidth[0]
            return TheoreticalRate(per_s=sheet.peak_bytes_per_s, provenance=sheet.provenance)
        clock_hz, bus_bit = self.facts.memory_clock_hz, self.facts.bus_bit
        if not clock_hz or not bus_bit or self.facts.integrated or self.facts.mig:
            return None
        return TheoreticalRate(
            per_s=2 * clock_hz * bus_bit / 8,
            provenance=_derived(
                "memory clock × 2 bits a cycle × bus width",
                f"{clock_hz / 1e6:.0f} MHz × 2 × {bus_bit} bit, as the driver reports them",
            ),
        )

    def _counted(self, element: str) -> TheoreticalRate | None:
        facts = self.facts
        per_cycle = _RESULTS_PER_CYCLE.get(element, {}).get(facts.capability)
        if per_cycle is None or not facts.clock_hz:
            return None
        return TheoreticalRate(
            per_s=facts.multiprocessors * per_cycle * 2 * facts.clock_hz,
            provenance=_derived(
                _GUIDE,
                f"{facts.multiprocessors} × {per_cycle} × 2 × {facts.clock_hz / 1e9:.3g} GHz,"
                " the maximum clock by the driver",
            ),
        )


_COUNTED = frozenset({(CUDA_CORE, "fma"), (CUDA_CORE, "mul-add")})


def hardware_unit(product: Gemm, capability: Capability) -> str:
    """Return the unit that runs torch's GEMM."""
    element = str(product.dtype)
    if element == "float32":
        return TENSOR_CORE_TF32 if product.tf32 else CUDA_CORE
    if element == "float64" and not has_float64_tensor_cores(capability):
        return CUDA_CORE
    return TENSOR_CORE


def _derived(reference: str, note: str) -> Provenance:
    return Provenance(source="derived", reference=reference, date="", note=note)
