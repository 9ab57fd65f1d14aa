"""Where work and machine meet: each operator under the ceilings, with the time that none can beat.

The roofline model: S. Williams, A. Waterman, D. Patterson, "Roofline: An Insightful Visual
Performance Model for Multicore Architectures", Communications of the ACM 52(4), 2009; extended to
every memory level, with the bytes that must cross each of them (see `workload.residency`).
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
from roofline.machine.roof import MachineRoof
from roofline.machine.roof import ridge_flop_per_byte as ridge_flop_per_byte
from roofline.run import Device
from roofline.workload.formulas.convolution_algorithms import ALGORITHMS, min_flop_of_algorithms
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.residency import Residency, Reuse
from roofline.workload.tensors import TensorSpec

Pass = Literal["steady", "cold"]


class Bound(StrEnum):
    """What an operator is bound by; ``unknown`` where its FLOP or all ceilings are unknown."""

    COMPUTE = "compute"
    MEMORY = "memory"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One operator under the ceilings of a machine.

    ``level_bytes`` are the bytes that must come from each memory level; ``level`` is the level that
    takes longest to give them, ``ceiling`` the name of the ceiling that binds.
    ``intensity_flop_per_byte`` is FLOP per byte crossing ``level``, and ``attainable_flop_per_s``
    the rate at that intensity under the roof; both None where FLOP is unknown. ``eager_min_time_s``
    is a time in seconds that nothing doing the operator's defined arithmetic and compulsory traffic
    can beat; None where there are no ceilings. For an operator of unknown FLOP it is that of its
    bytes alone, and ``bound`` says ``unknown``.
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
    """The ceilings of a machine for a number of threads, and operators under them."""

    def ceilings_of(
        self, record: OperatorRecord, compute_as: DType | None = None
    ) -> tuple[ComputeRoof | None, ComputeRoof | None]:
        """The ceiling of an operator's products, and that of its arithmetic of any kind.

        Which of its types an operator computes in is not known (a mask may be wider than what it
        masks): none is faster than the fastest. None: it has no type with a ceiling, or the
        ceiling of one of them is not known.
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
        """Ceilings by the types of operators: most operators of a model have the same."""
        return {frozenset(): (None, None)}

    def compute_times(
        self, record: OperatorRecord, compute_as: DType | None = None
    ) -> tuple[tuple[float, ComputeRoof], tuple[float, ComputeRoof]] | None:
        """The seconds that an operator's products take at least, and all of its arithmetic.

        Of convolutions, those of the algorithm that takes the fewest count, where the library of
        the machine has several. None: its FLOP, or the ceiling of its type, is unknown.
        """
        of_products, of_any = self.ceilings_of(record, compute_as)
        min_flop = self._min_flop(record)
        if min_flop is None or of_products is None or of_any is None:
            return None
        direct_flop = record.work.min_mac_flop or 0
        return (
            (self.least_share(record) * direct_flop / of_products.flop_per_s, of_products),
            (min_flop / of_any.flop_per_s, of_any),
        )

    def _compute_bound(
        self, record: OperatorRecord, compute_as: DType | None = None
    ) -> tuple[float | None, ComputeRoof | None]:
        """The seconds that an operator's arithmetic takes at least, and the ceiling binding."""
        if self._min_flop(record) == 0:
            return 0.0, self.ceilings_of(record, compute_as)[1]
        times = self.compute_times(record, compute_as)
        return (None, None) if times is None else max(times, key=lambda each: each[0])

    @property
    def convolution_algorithms(self) -> str:
        """The algorithms of convolutions that bounds allow, in words."""
        return ALGORITHMS if self.profile.device == "cuda" else "direct algorithm"

    def _min_flop(self, record: OperatorRecord) -> int | None:
        """The FLOP that no kernel of the machine's library (cuDNN, MIOpen) can avoid."""
        is_cuda = self.profile.device == "cuda"
        return min_flop_of_algorithms(record) if is_cuda else record.work.min_flop

    def least_share(self, record: OperatorRecord) -> float:
        """How much of its products by the direct algorithm an operator does at least: 0 to 1."""
        direct_flop = record.work.min_mac_flop
        if not direct_flop:
            return 1.0
        spared_flop = (record.work.min_flop or 0) - (self._min_flop(record) or 0)
        return max(0, direct_flop - spared_flop) / direct_flop

    def compute_s(self, record: OperatorRecord) -> float | None:
        """The seconds that the arithmetic of an operator takes at least, its bytes left aside.

        None: its FLOP, or the ceiling of its type, is not known.
        """
        return self._compute_bound(record)[0]

    def level_bytes(self, reuses: Iterable[Reuse]) -> dict[str, int]:
        """Bytes that must come from each level: all from the nearest, the rest from beyond it."""
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
        """The seconds that bytes take at least to cross the memory levels, and the ceiling binding.

        At most ``written_bytes`` of those that cross a level are stores; the others are only read.
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
        """`record` under this roof, its operands being reused as `reuses` say.

        ``compute_as`` is the type that it computes in where its operands are kept in another.
        """
        if record.state is State.FREE:
            return Placement(record=record, bound=Bound.FREE, eager_min_time_s=0.0)
        level_bytes = self.level_bytes(reuses)
        if self.profile.knows_only_dram:
            # The classic model: every operand whole, whatever may still be cached or passed over.
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
            # The convention counts FLOP that a kernel may leave out (padding taps, what Winograd
            # saves): no rate that they would add lifts the operator above its ceiling.
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
    """int8 for products of small integers: units for those beat those for what is around them."""
    small = any(each.dtype.kind in ("int", "uint") and each.dtype.bits <= 8 for each in operands)
    return {dtype("int8")} if macs and small else set()


def _fastest(roofs: Sequence[ComputeRoof | None]) -> ComputeRoof | None:
    """The highest of ceilings; None where one of them is unknown: it may be the highest."""
    known = [roof for roof in roofs if roof is not None]
    return max(known, key=lambda roof: roof.flop_per_s) if len(known) == len(roofs) else None


def arithmetic_dtype(operands: Iterable[TensorSpec]) -> DType | None:
    """The data type an operator is shown under: that of its largest floating operand, or None."""
    floating = [spec for spec in operands if spec.dtype.kind in ("float", "complex")]
    return max(floating, key=lambda spec: spec.byte).dtype if floating else None


def ceiling_types(
    inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec], macs: int | None
) -> set[DType]:
    """The data types whose ceilings an operator is said to need."""
    inputs = tuple(inputs)
    shown = arithmetic_dtype((*inputs, *outputs))
    return _product_types(inputs, macs) | ({shown} if shown else set())


def place(
    records: Sequence[OperatorRecord], reuse: Residency, roof: Roof, *, cache: Pass = "steady"
) -> tuple[Placement, ...]:
    """Every operator under `roof`, with the caches as the pass before left them, or cold."""
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
    if profile.knows_only_dram:
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
                f" {unit.label} ({format_flop_per_s(unit.flop_per_s)}), the type it converts to"
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
        f"the ceiling {label} is doubtful: {doubts[label]}"
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
