"""The hierarchical roofline model: operators under the ceilings of a machine.

S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures", Communications of the ACM 52(4), 2009; extended to every memory level,
with the bytes crossing each of them (`workload.residency`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from roofline.core.dtypes import DType, dtype
from roofline.core.text import NOTE
from roofline.core.units import format_flop_per_s
from roofline.machine.hardware import HardwareProfile
from roofline.machine.roof import MIX as MIX
from roofline.machine.roof import ComputeRoof as ComputeRoof
from roofline.machine.roof import LevelRoof as LevelRoof
from roofline.machine.roof import MachineRoof, ceiling_text
from roofline.machine.roof import ridge_flop_per_byte as ridge_flop_per_byte
from roofline.run import Device
from roofline.workload.formulas.convolution_algorithms import ALGORITHMS, min_flop_of_algorithms
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Residency, Reuse
from roofline.workload.tensors import TensorSpec

Pass = Literal["steady", "cold"]


class Bound(StrEnum):
    """Class of an operator; ``unknown`` if its FLOP or all ceilings are unknown.

    ``link`` is that of a pass on several ranks.
    """

    COMPUTE = "compute"
    MEMORY = "memory"
    LINK = "link"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One operator under the ceilings of a machine.

    ``level_bytes`` are the bytes crossing each memory level; ``level`` is the one that takes
    longest, ``ceiling`` the limiter. ``intensity_flop_per_byte`` is the AI at ``level``,
    ``attainable_flop_per_s`` the rate at that AI; both None if FLOP are unknown.
    ``eager_min_time_s`` is the minimum time in seconds of the operator's arithmetic and compulsory
    traffic; None without ceilings. With unknown FLOP, it is that of the bytes, and ``bound`` is
    ``unknown``.
    """

    record: OperatorRecord
    level_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    level: str = ""
    ceiling: str = ""
    intensity_flop_per_byte: float | None = None
    attainable_flop_per_s: float | None = None
    bound: Bound
    eager_min_time_s: float | None


class Roof(MachineRoof):
    """Ceilings of a machine for a number of threads; places operators under them."""

    def ceilings_of(
        self, record: OperatorRecord, compute_as: DType | None = None
    ) -> tuple[ComputeRoof | None, ComputeRoof | None]:
        """Return the ceiling of an operator's GEMMs, and that of its arithmetic of any kind.

        The type that it computes in is unknown (a mask may be wider than its input): the fastest
        one counts. None: no type has a ceiling, or one of them is unknown.
        """
        types = _floating_types(record.inputs) or _floating_types(record.outputs)
        types |= _product_types(record.inputs, record.work.macs)
        if compute_as is not None:
            types = {compute_as}
        found = self._ceilings.get(key := frozenset(types))
        if found is None:
            found = self._ceilings[key] = (
                _fastest([self.compute(of) for of in types]),
                _fastest([self.compute_any(of) for of in types]),
            )
        return found

    @cached_property
    def _ceilings(self) -> dict[frozenset[DType], tuple[ComputeRoof | None, ComputeRoof | None]]:
        """Ceilings by operand types, cached."""
        return {frozenset(): (None, None)}

    def compute_times(
        self, record: OperatorRecord, compute_as: DType | None = None
    ) -> tuple[tuple[float, ComputeRoof], tuple[float, ComputeRoof]] | None:
        """Return the minimum seconds of an operator's GEMMs, and of all its arithmetic, with
        ceilings.

        For convolutions, with the algorithm of the fewest FLOP among those of the machine's
        library. None: its FLOP, or the ceiling of its type, is unknown.
        """
        of_macs, of_any = self.ceilings_of(record, compute_as)
        min_flop = self.min_flop(record)
        if min_flop is None or of_macs is None or of_any is None:
            return None
        direct_flop = record.work.min_mac_flop or 0
        return (
            (self.least_share(record) * direct_flop / of_macs.flop_per_s, of_macs),
            (min_flop / of_any.flop_per_s, of_any),
        )

    def _compute_bound(
        self, record: OperatorRecord, compute_as: DType | None = None
    ) -> tuple[float | None, ComputeRoof | None]:
        """Return the minimum seconds of an operator's arithmetic, and the limiting ceiling."""
        if self.min_flop(record) == 0:
            return 0.0, self.ceilings_of(record, compute_as)[1]
        times = self.compute_times(record, compute_as)
        return (None, None) if times is None else max(times, key=lambda each: each[0])

    @property
    def convolution_algorithms(self) -> str:
        """Convolution algorithms that minimum times allow."""
        return ALGORITHMS if self.profile.device == "cuda" else "direct algorithm"

    def min_flop(self, record: OperatorRecord) -> int | None:
        """Return the FLOP that no kernel of the library (cuDNN, MIOpen) can avoid."""
        is_cuda = self.profile.device == "cuda"
        return min_flop_of_algorithms(record) if is_cuda else record.work.min_flop

    def least_share(self, record: OperatorRecord) -> float:
        """Return the minimum share of the GEMM FLOP of the direct algorithm: 0 to 1."""
        direct_flop = record.work.min_mac_flop
        if not direct_flop:
            return 1.0
        spared_flop = (record.work.min_flop or 0) - (self.min_flop(record) or 0)
        return max(0, direct_flop - spared_flop) / direct_flop

    def compute_s(self, record: OperatorRecord) -> float | None:
        """Return the minimum seconds of the arithmetic of an operator, without its bytes.

        None: its FLOP, or the ceiling of its type, is unknown.
        """
        return self._compute_bound(record)[0]

    def level_bytes(self, reuses: Iterable[Reuse]) -> dict[str, int]:
        """Return the bytes crossing each level: all at the nearest, uncached ones beyond."""
        reuses = tuple(reuses)
        crossing = sum(reuse.byte for reuse in reuses)
        byte: dict[str, int] = {}
        for level, held_bytes in zip(self.profile.memory, self.held_bytes, strict=True):
            byte[level.name] = crossing
            if held_bytes is not None:
                crossing = sum(reuse.bytes_beyond(held_bytes) for reuse in reuses)
        return byte

    def memory_bound(
        self, level_bytes: Mapping[str, int], written_bytes: int
    ) -> tuple[float | None, LevelRoof | None]:
        """Return the minimum seconds of bytes crossing the memory levels, and the limiter.

        At most ``written_bytes`` of those crossing a level are stores; the others are read only.
        None: no memory level is known.
        """
        times = [(level_bytes[roof.level.name] / roof.bytes_per_s, roof) for roof in self.levels]
        for roof in self.read_levels:
            read_bytes = max(0, level_bytes[roof.level.name] - written_bytes)
            times.append((read_bytes / roof.bytes_per_s, roof))
        return max(times, key=lambda each: each[0], default=(None, None))

    def place(
        self,
        record: OperatorRecord,
        reuses: Iterable[Reuse],
        *,
        compute_as: DType | None = None,
    ) -> Placement:
        """Return `record` placed under this roofline, with `reuses` of its operands.

        ``compute_as`` is the type of its arithmetic if operands are stored in another.
        """
        if record.state is State.FREE:
            return Placement(record=record, bound=Bound.FREE, eager_min_time_s=0.0)
        level_bytes = self.level_bytes(reuses)
        if self.profile.has_single_memory_level:
            # Classic roofline: every operand crosses the only level.
            level_bytes = {self.profile.memory[0].name: record.work.traffic_bytes}
        memory_s, slowest = self.memory_bound(
            level_bytes, sum(each.byte for each in record.outputs)
        )
        flop, min_flop = record.work.flop, record.work.min_flop
        compute_s, unit = self._compute_bound(record, compute_as)

        times = [time for time in (memory_s, compute_s) if time is not None]
        eager_min_time_s = max(times) if times and self.profile.memory else None
        if eager_min_time_s is None or memory_s is None or min_flop is None:
            bound = Bound.UNKNOWN
        elif compute_s is not None and compute_s > memory_s:
            bound = Bound.COMPUTE
        else:
            bound = Bound.MEMORY
        ceiling = ""
        if bound is Bound.COMPUTE and unit is not None:
            ceiling = unit.label
        elif slowest is not None:
            ceiling = slowest.label
        crossing = level_bytes[slowest.level.name] if slowest else 0
        attainable = flop / eager_min_time_s if flop is not None and eager_min_time_s else None
        if attainable is not None and unit is not None:
            # Counted FLOP that kernels skip (padding taps, Winograd) must not lift an operator
            # above its ceiling.
            attainable = min(attainable, unit.flop_per_s)
        return Placement(
            record=record,
            level_bytes=level_bytes,
            level=slowest.level.name if slowest else "",
            ceiling=ceiling,
            intensity_flop_per_byte=flop / crossing if flop is not None and crossing else None,
            attainable_flop_per_s=attainable,
            bound=bound,
            eager_min_time_s=eager_min_time_s,
        )


def _floating_types(operands: Iterable[TensorSpec]) -> set[DType]:
    return {spec.dtype for spec in operands if spec.dtype.kind in ("float", "complex")}


def _product_types(operands: Iterable[TensorSpec], macs: int | None) -> set[DType]:
    """Return int8 for GEMMs of small integers, whose units are the fastest."""
    small = any(each.dtype.kind in ("int", "uint") and each.dtype.bits <= 8 for each in operands)
    return {dtype("int8")} if macs and small else set()


def _fastest(roofs: Sequence[ComputeRoof | None]) -> ComputeRoof | None:
    """Return the highest ceiling; None if one of them is unknown."""
    known = [roof for roof in roofs if roof is not None]
    return max(known, key=lambda roof: roof.flop_per_s) if len(known) == len(roofs) else None


def arithmetic_dtype(operands: Iterable[TensorSpec]) -> DType | None:
    """Return the data type of the largest floating operand, or None."""
    floating = [spec for spec in operands if spec.dtype.kind in ("float", "complex")]
    return max(floating, key=lambda spec: spec.byte).dtype if floating else None


def ceiling_types(
    inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec], macs: int | None
) -> set[DType]:
    """Return the data types whose ceilings an operator needs."""
    inputs = tuple(inputs)
    shown = arithmetic_dtype((*inputs, *outputs))
    return _product_types(inputs, macs) | ({shown} if shown else set())


def place(
    records: Sequence[OperatorRecord], reuse: Residency, roof: Roof, *, cache: Pass = "steady"
) -> tuple[Placement, ...]:
    """Return every operator placed under `roof`, with steady or cold caches."""
    by_pass = reuse.steady if cache == "steady" else reuse.cold
    return tuple(
        roof.place(record, reuses) for record, reuses in zip(records, by_pass, strict=True)
    )


def roof_notes(placements: Sequence[Placement], roof: Roof, run_on: Device = "cpu") -> list[str]:
    """Return notes on the ceilings of minimum times, one line each.

    ``run_on`` is the device whose operators were called.
    """
    profile = roof.profile
    notes: list[str] = []
    if not profile.memory:
        return [
            f"hardware '{profile.name}' has no ceilings: minimum times are unknown; run"
            " `roofline measure` on that machine"
        ]
    if profile.has_single_memory_level:
        notes.append(classic_model_note(profile))
    if profile.device != run_on:
        notes.append(other_device_note(profile, run_on))
    notes += _doubts(placements, roof)
    used: set[DType] = set()
    for record in (each.record for each in placements):
        if record.work.min_flop:
            used |= ceiling_types(record.inputs, record.outputs, record.work.macs)
    for each in sorted(used, key=str):
        unit = roof.compute(each)
        if unit is None:
            why = roof.unmeasured(each)
            notes.append(
                f"hardware '{profile.name}' has no compute ceiling for {each}"
                f"{f' ({why} units were not measured)' if why else ''}:"
                " minimum times of these operators follow from memory traffic alone"
            )
        elif unit.dtype != each:
            notes.append(
                f"hardware '{profile.name}' has no ceiling for {each}: minimum times use"
                f" {ceiling_text(unit.label)} ({format_flop_per_s(unit.flop_per_s)}), the type it"
                " converts to"
            )
    return notes


def _doubts(placements: Sequence[Placement], roof: Roof) -> list[str]:
    """Return a line for each limiting ceiling that is doubtful."""
    binding = {each.ceiling for each in placements if each.bound in (Bound.COMPUTE, Bound.MEMORY)}
    doubts = {
        level.label: each.doubt
        for level in (*roof.levels, *roof.read_levels)
        for each in level.level.bandwidth
        if (each.kind, each.kernel, each.threads) == ("hardware", level.kernel, roof.threads)
    }
    for each in roof.profile.compute:
        if each.kind == "hardware" and each.threads == roof.threads:
            doubts[each.label.removesuffix(" unspecified")] = each.doubt
    return [
        f"the ceiling {ceiling_text(label)} is doubtful: {doubts[label]}"
        for label in sorted(binding)
        if doubts.get(label)
    ]


def classic_model_note(profile: HardwareProfile) -> str:
    """Return the note on a machine whose profile has a single memory level."""
    level = profile.memory[0].name
    return (
        f"{NOTE}hardware '{profile.name}' has ceilings for {level} only: all operands are read from"
        f" and written to {level} (classic roofline model)"
    )


def other_device_note(profile: HardwareProfile, run_on: Device = "cpu") -> str:
    """Return the note on a machine whose device is not the one whose operators were called."""
    is_cpu = profile.device == "cpu"
    kind = "CPU" if is_cpu else f"{profile.device} device"
    return (
        f"hardware '{profile.name}' is a {kind}, but operators were captured for"
        f" {where_operators_are(run_on)}: torch can call others, with shorter minimum times, on"
        f" {'a CPU' if is_cpu else profile.device}"
    )


def where_operators_are(run_on: Device) -> str:
    """Return the device whose operators were called."""
    return {"cpu": "a CPU", "meta": "the meta device"}.get(run_on, run_on)
