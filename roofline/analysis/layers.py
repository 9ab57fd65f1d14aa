"""A roofline in layers: theoretical peaks, measured peaks, and what software reaches of them.

The hardware's loss lies between the theoretical roof and the measured one. The software's lies
between the roof and the roof times the efficiency of the operators under each of its lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.analysis.grouping import working
from roofline.analysis.points import dtypes_in_use
from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.analysis.times import kind_of_time, time_of
from roofline.foundation.dtypes import DType
from roofline.foundation.text import printable
from roofline.foundation.units import format_flop_per_s, format_percent, format_s
from roofline.machine.hardware import HardwareProfile
from roofline.machine.losses import Layer, layers_of
from roofline.machine.report import main_unit
from roofline.machine.roof import ComputeRoof, LevelRoof, MachineRoof, ceiling_of, diagonal_of
from roofline.placement import Bound
from roofline.plots.roof import Ceiling, Diagonal, RoofLines, Spot

_NAMED = 4
"""Number of ceilings that a note names, those of the longest times first."""

_LEAST_SHARE = 0.02
"""Operators under one ceiling that take less of the time have no area: they are in the note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The operators that one ceiling binds: minimum times and times in seconds, summed.

    ``low`` and ``high_flop_per_byte`` are the least and the greatest intensity among those that
    have a place on the axes; None where none has.
    """

    ceiling: str
    eager_min_time_s: float
    time_s: float
    low_flop_per_byte: float | None
    high_flop_per_byte: float | None

    @property
    def efficiency(self) -> float:
        """The sum of minimum times over the sum of times: 1 is the roof."""
        return self.eager_min_time_s / self.time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What software makes of the roof: the efficiency of all operators, weighted by time.

    ``kind`` says which times are compared with minimum times. ``whole_s`` are the times of all
    operators that do something; those of unknown bound are in none of the sums of ``reached``.
    """

    kind: Literal["measured", "predicted"]
    whole_s: float
    reached: tuple[Reached, ...]

    @property
    def eager_min_time_s(self) -> float:
        """The sum of the minimum times."""
        return sum(each.eager_min_time_s for each in self.reached)

    @property
    def time_s(self) -> float:
        """The sum of the times of the operators whose minimum time is known."""
        return sum(each.time_s for each in self.reached)

    @property
    def efficiency(self) -> float:
        """The sum of minimum times over the sum of times."""
        return self.eager_min_time_s / self.time_s


def software_of(analysis: Analysis) -> Software | None:
    """Return the efficiency of operators; None without times, or without a known bound.

    Measured times where every operator has one, else predictions where every one has.
    """
    kind = kind_of_time(analysis)
    if kind == "bound":
        return None
    rows = working(analysis.operators)
    by_ceiling: dict[str, list[OperatorRow]] = {}
    for row in rows:
        if (
            row.bound in (Bound.COMPUTE, Bound.MEMORY)
            and row.eager_min_time_s
            and time_of(row, kind)
        ):
            by_ceiling.setdefault(row.ceiling, []).append(row)
    if not by_ceiling:
        return None

    def reached(ceiling: str, of: Sequence[OperatorRow]) -> Reached:
        intensities = [
            row.intensity_flop_per_byte for row in of if row.flop and row.intensity_flop_per_byte
        ]
        return Reached(
            ceiling=ceiling,
            eager_min_time_s=sum(row.eager_min_time_s or 0.0 for row in of),
            time_s=sum(time_of(row, kind) or 0.0 for row in of),
            low_flop_per_byte=min(intensities, default=None),
            high_flop_per_byte=max(intensities, default=None),
        )

    found = [reached(*each) for each in by_ceiling.items()]
    return Software(
        kind=kind,
        whole_s=sum(time_of(row, kind) or 0.0 for row in rows),
        reached=tuple(sorted(found, key=lambda each: -each.time_s)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLayers:
    """A roof in its layers, and what software makes of it.

    ``lines`` are all lines of the picture, ``compute`` the layers of the ceilings for products, the
    most used data type first, ``memory`` those of the levels, nearest first. ``library`` has the
    highest ceiling of the library by data type, ``roof`` every line by the name that operators have
    for it. ``software`` is None where no times are known, or of a machine alone.
    """

    lines: RoofLines
    compute: tuple[Layer, ...]
    memory: tuple[Layer, ...]
    library: Mapping[str, Ceiling]
    roof: Mapping[str, ComputeRoof | LevelRoof]
    software: Software | None = None

    @property
    def all(self) -> tuple[Layer, ...]:
        """Every layer."""
        return (*self.compute, *self.memory)

    @property
    def fastest_bytes_per_s(self) -> float | None:
        """The theoretical rate of the fastest level, else as measured; None: none is known."""
        return max((each.theoretical_per_s or each.per_s for each in self.memory), default=None)

    @property
    def top_flop_per_s(self) -> float | None:
        """The highest of the ceilings; None: none is known."""
        return max((each.per_s for each in self.compute), default=None)

    @property
    def theoretical_ridges(self) -> tuple[Spot, ...]:
        """Where the first theoretical ceiling meets each theoretical memory level."""
        if not self.compute or self.compute[0].loss is None:
            return ()
        top = self.compute[0].theoretical_per_s or 0.0
        return tuple(
            (top / each.theoretical_per_s, top)
            for each in self.memory
            if each.theoretical_per_s and each.loss is not None
        )

    @property
    def library_gaps(self) -> tuple[tuple[Layer, Ceiling], ...]:
        """The measured ceilings that the library stays below, each with its best."""
        return tuple(
            (each, best)
            for each in self.compute
            if each.measured_per_s is not None
            and (best := self.library.get(each.subject)) is not None
            and best.flop_per_s < each.measured_per_s
        )

    @property
    def shown(self) -> tuple[Reached, ...]:
        """The ceilings whose operators have an area: they have a place, and take some time."""
        if self.software is None:
            return ()
        return tuple(
            each
            for each in self.software.reached
            if each.time_s >= _LEAST_SHARE * self.software.whole_s
            and each.low_flop_per_byte is not None
            and each.efficiency < 1
            and each.ceiling in self.roof
        )

    def ends(self, each: Reached) -> tuple[Spot, Spot]:
        """Return the ends of the line that operators reach, which ends at the ridge point."""
        line = self.roof[each.ceiling]
        low, high = each.low_flop_per_byte or 1.0, each.high_flop_per_byte or 1.0
        if isinstance(line, LevelRoof) and self.top_flop_per_s:
            ridge = self.top_flop_per_s / line.bytes_per_s
            high = min(high, ridge) if low < ridge else high
        part = each.efficiency
        return (low, part * line.height(low)), (high, part * line.height(high))


def layers_of_analysis(analysis: Analysis, paper: HardwareProfile | None) -> RoofLayers:
    """Return the roof of an analysis in layers: of the data types in use.

    Raises:
        InputError: as `layers_of`.
    """
    roof = MachineRoof(analysis.hardware, analysis.threads)
    found = (roof.compute(each) for each in dtypes_in_use(analysis, roof))
    units = list(dict.fromkeys(each for each in found if each is not None))
    # Operators without products may stand under the higher ceiling of additions beside products.
    others = [
        each
        for unit in units
        if (each := roof.compute_any(unit.dtype)) is not None
        and each != unit
        and any(row.ceiling == each.label for row in analysis.operators)
    ]
    return replace(_layers(roof, units, others, paper), software=software_of(analysis))


def layers_of_machine(profile: HardwareProfile, paper: HardwareProfile | None) -> RoofLayers:
    """Return the roof of a machine on all its threads in layers: of every data type.

    Raises:
        InputError: as `layers_of`.
    """
    roof = MachineRoof(profile, profile.threads)
    main, units = main_unit(roof), roof.of_products.values()
    ordered = sorted(units, key=lambda each: (each != main, -each.flop_per_s))
    return _layers(roof, ordered, [], paper)


def _layers(
    roof: MachineRoof,
    units: Sequence[ComputeRoof],
    others: Sequence[ComputeRoof],
    paper: HardwareProfile | None,
) -> RoofLayers:
    layers = layers_of(roof, units, paper)
    compute, memory = layers[: len(units)], layers[len(units) :]
    main, measured_fastest = units[0] if units else None, roof.fastest_bytes_per_s
    highest = max(units, key=lambda each: each.flop_per_s, default=None)
    ceilings = [
        *(
            ceiling_of(unit, _kind(each), measured_fastest)
            for unit, each in zip(units, compute, strict=True)
        ),
        *(ceiling_of(each, "hardware", measured_fastest, main=False) for each in others),
    ]
    # Of the library, the highest of each kind of product.
    kept: dict[tuple[DType, str], ComputeRoof] = {}
    for unit in roof.library.units:
        if unit.dtype in {each.dtype for each in units}:
            kept.setdefault((unit.dtype, unit.kernel.partition("-")[0]), unit)
    library: dict[str, Ceiling] = {}
    for each in kept.values():
        line = ceiling_of(each, "library", measured_fastest)
        if len(units) == 1:
            line = replace(line, label=line.label.removeprefix(f"{units[0].dtype} "))
        ceilings.append(line)
        library.setdefault(str(each.dtype), line)
    diagonals = [
        replace(diagonal_of(level, main, highest), kind=_kind(each))
        for level, each in zip(roof.levels, memory, strict=True)
    ]
    # The theoretical lines of what was measured; those of memory are without words.
    fastest = max((each.theoretical_per_s or each.per_s for each in memory), default=None)
    top = max((each.theoretical_per_s or each.per_s for each in compute), default=None)
    for each in layers:
        rate = each.theoretical_per_s
        if each.loss is None or not rate:
            continue
        if each.what == "compute":
            ceilings.append(
                Ceiling(
                    label=f"{each.subject} theoretical {format_flop_per_s(rate)}",
                    kind="theoretical",
                    flop_per_s=rate,
                    start_flop_per_byte=rate / fastest if fastest else None,
                    main=True,
                )
            )
        else:
            diagonals.append(
                Diagonal(
                    label="",
                    level=each.subject,
                    bytes_per_s=rate,
                    ridge_flop_per_byte=None,
                    cut_flop_per_byte=top / rate if top else None,
                    kind="theoretical",
                )
            )
    return RoofLayers(
        lines=RoofLines(
            ceilings=tuple(sorted(ceilings, key=lambda each: -each.flop_per_s)),
            diagonals=tuple(diagonals),
            main_top_flop_per_s=main and main.flop_per_s,
        ),
        compute=compute,
        memory=memory,
        library=library,
        roof={each.label: each for each in (*roof.units, *roof.levels)},
    )


def _kind(layer: Layer) -> Literal["hardware", "theoretical"]:
    return "hardware" if layer.measured_per_s else "theoretical"


def library_note(layers: RoofLayers) -> str:
    """Return the shares of measured ceilings that the library reaches; ``""``: nothing is known."""
    parts = [
        f"{format_percent(best.flop_per_s / each.per_s)} of {each.label} ({best.label})"
        for each, best in layers.library_gaps
    ]
    return f"Software: the library reaches {', '.join(parts)}" if parts else ""


def software_note(layers: RoofLayers) -> str:
    """Return the efficiency of operators in words, with the sums that it follows from."""
    software = layers.software
    if software is None:
        return (
            "Software: efficiency of the operators not known, nothing was measured or predicted;"
            " `roofline profile MODEL` measures it"
        )
    is_measured = any(each.measured_per_s is not None for each in layers.all)
    roof = "measured roof" if is_measured else "theoretical roof"
    part = software.time_s / software.whole_s
    of_all = "" if part >= 1 - 1e-9 else f", over {format_percent(part)} of the time"
    named = [
        f"{printable(each.ceiling)} {format_percent(each.efficiency)}"
        for each in software.reached[:_NAMED]
    ]
    more = len(software.reached) - len(named)
    tail = f", {more} more" if more else ""
    verb = "reach" if software.kind == "measured" else "are predicted to reach"
    return (
        f"Software: the operators {verb} {format_percent(software.efficiency)} of the {roof},"
        f" weighted by time (minimum {format_s(software.eager_min_time_s)} ÷ {software.kind}"
        f" {format_s(software.time_s)}{of_all}); {', '.join(named)}{tail}"
    )
