"""The lines of the two-layer picture: few enough that what lies between them can be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.analysis import Analysis
from roofline.analysis.roof import line_name
from roofline.foundation.dtypes import DType, dtype
from roofline.foundation.text import printable
from roofline.foundation.units import format_byte_per_s, format_flop_per_s
from roofline.machine.hardware import HardwareProfile
from roofline.placement import (
    ComputeRoof,
    LevelRoof,
    Roof,
    arithmetic_dtype,
    ridge_flop_per_byte,
)
from roofline.plots.roof import Ceiling, Diagonal, RoofLines, Spot
from roofline.presentation.charts.layers_losses import Layer, layers_of, rate_words


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofRate:
    """What one line of the roof allows, in FLOP/s or byte/s, for a data type or from a level.

    ``end_flop_per_byte`` is where a memory level meets the highest ceiling; None: nowhere.
    """

    what: Literal["compute", "memory"]
    subject: str
    per_s: float
    end_flop_per_byte: float | None = None

    def flop_per_s(self, flop_per_byte: float) -> float:
        """The height of the line at an intensity."""
        return self.per_s if self.what == "compute" else self.per_s * flop_per_byte


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerLines:
    """A roof in two layers: the lines of the machine, and its figures on paper.

    ``compute`` are the layers of the ceilings for products, the most used data type first,
    ``memory`` those of the levels, nearest first. ``library`` has the highest ceiling of the
    library by data type, ``rates`` every line of the roof by the name that operators have for it.
    """

    lines: RoofLines
    compute: tuple[Layer, ...]
    memory: tuple[Layer, ...]
    library: Mapping[str, Ceiling]
    rates: Mapping[str, RoofRate]

    @property
    def all(self) -> tuple[Layer, ...]:
        """Every layer."""
        return (*self.compute, *self.memory)

    @property
    def fastest_byte_per_s(self) -> float | None:
        """The rate of the fastest level, where ceilings begin; None: no level is known."""
        return max((each.per_s for each in self.memory), default=None)

    @property
    def fastest_on_paper(self) -> float | None:
        """That on paper, where it is known, else as measured."""
        rates = [each.paper_per_s or each.per_s for each in self.memory]
        return max(rates, default=None)

    @property
    def is_measured(self) -> bool:
        """Whether any line was measured."""
        return any(each.measured_per_s is not None for each in self.all)

    @property
    def only_on_paper(self) -> frozenset[str]:
        """The words on the lines that were not measured."""
        return frozenset(
            f"{each.label} {rate_words(each, each.per_s)}"
            for each in self.all
            if each.measured_per_s is None
        )

    @property
    def paper_ceilings(self) -> tuple[Ceiling, ...]:
        """The compute ceilings on paper, where the line of the roof itself is the measured one."""
        fastest = self.fastest_on_paper
        return tuple(
            Ceiling(
                label=f"{each.subject} on paper {format_flop_per_s(each.paper_per_s)}",
                kind="hardware",
                flop_per_s=each.paper_per_s,
                start_flop_per_byte=each.paper_per_s / fastest if fastest else None,
                main=True,
            )
            for each in self.compute
            if each.paper_per_s is not None and each.measured_per_s is not None
        )

    @property
    def paper_ridges(self) -> tuple[Spot, ...]:
        """Where the first compute ceiling on paper meets each memory level on paper."""
        if not self.compute or self.compute[0].loss is None:
            return ()
        top = self.compute[0].paper_per_s or 0.0
        return tuple(
            (top / each.paper_per_s, top)
            for each in self.memory
            if each.paper_per_s and each.loss is not None
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


def lines_of_analysis(analysis: Analysis, paper: HardwareProfile | None) -> LayerLines:
    """The lines of an analysis: of the data types in use, with what the library reaches in them.

    Raises:
        InputError: as `layers_of`.
    """
    roof = Roof(analysis.hardware, analysis.threads)
    units = _in_use(analysis, roof)
    # Operators without products may stand under the higher ceiling of additions beside products.
    others = [
        any_
        for unit in units
        if (any_ := roof.compute_any(unit.dtype)) is not None
        and any_ != unit
        and any(row.ceiling == any_.label for row in analysis.operators)
    ]
    return _layer_lines(roof, units, others, paper)


def lines_of_machine(profile: HardwareProfile, paper: HardwareProfile | None) -> LayerLines:
    """The lines of a machine by itself, all of its threads at work: of every data type.

    Raises:
        InputError: as `layers_of`.
    """
    roof = Roof(profile, profile.threads)
    units = sorted(roof.of_products.values(), key=lambda each: -each.flop_per_s)
    main = next((each for each in units if each.dtype == dtype("float32")), None)
    ordered = [*([main] if main else []), *(each for each in units if each != main)]
    return _layer_lines(roof, ordered, [], paper)


def _layer_lines(
    roof: Roof,
    units: Sequence[ComputeRoof],
    others: Sequence[ComputeRoof],
    paper: HardwareProfile | None,
) -> LayerLines:
    layers = layers_of(roof, units, paper)
    fastest = max((each.byte_per_s for each in roof.levels), default=None)
    types = [each.dtype for each in units]
    ceilings = [
        *(_ceiling(each, "hardware", fastest, main=True) for each in units),
        *(_ceiling(each, "hardware", fastest, main=False) for each in others),
    ]
    library: dict[str, Ceiling] = {}
    for each in _of_library(roof, types):
        line = _ceiling(each, "library", fastest, main=True)
        if len(types) == 1:
            line = replace(line, label=line.label.removeprefix(f"{types[0]} "))
        ceilings.append(line)
        library.setdefault(str(each.dtype), line)
    highest = max(units, key=lambda each: each.flop_per_s, default=None)
    main = units[0] if units else None
    return LayerLines(
        lines=RoofLines(
            ceilings=tuple(sorted(ceilings, key=lambda each: -each.flop_per_s)),
            diagonals=tuple(_diagonal(level, main, highest) for level in roof.levels),
            main_top_flop_per_s=main.flop_per_s if main else None,
        ),
        compute=layers[: len(units)],
        memory=layers[len(units) :],
        library=library,
        rates=_rates(roof, highest),
    )


def _rates(roof: Roof, top: ComputeRoof | None) -> dict[str, RoofRate]:
    rates = {
        each.label: RoofRate(what="compute", subject=str(each.dtype), per_s=each.flop_per_s)
        for each in roof.units
    }
    for level in roof.levels:
        end = ridge_flop_per_byte(top, level) if top else None
        rates[level.label] = RoofRate(
            what="memory",
            subject=level.level.name,
            per_s=level.byte_per_s,
            end_flop_per_byte=end,
        )
    return rates


def _ceiling(
    unit: ComputeRoof,
    kind: Literal["hardware", "library"],
    fastest: float | None,
    *,
    main: bool,
) -> Ceiling:
    return Ceiling(
        label=f"{line_name(unit.label)} {format_flop_per_s(unit.flop_per_s)}",
        kind=kind,
        flop_per_s=unit.flop_per_s,
        start_flop_per_byte=unit.flop_per_s / fastest if fastest else None,
        main=main,
    )


def _diagonal(level: LevelRoof, main: ComputeRoof | None, top: ComputeRoof | None) -> Diagonal:
    return Diagonal(
        label=f"{line_name(level.label)} {format_byte_per_s(level.byte_per_s)}",
        level=printable(level.level.name),
        byte_per_s=level.byte_per_s,
        ridge_flop_per_byte=ridge_flop_per_byte(main, level) if main else None,
        cut_flop_per_byte=ridge_flop_per_byte(top, level) if top else None,
    )


def _of_library(roof: Roof, types: Iterable[DType]) -> list[ComputeRoof]:
    """What the library reaches in `types`: the highest of each kind of product."""
    compute = tuple(
        replace(each, kind="hardware") for each in roof.profile.compute if each.kind == "library"
    )
    wanted = set(types)
    kept: dict[tuple[DType, str], ComputeRoof] = {}
    for unit in Roof(replace(roof.profile, compute=compute), roof.threads).units:
        if unit.dtype in wanted:
            kept.setdefault((unit.dtype, unit.kernel.partition("-")[0]), unit)
    return list(kept.values())


def _in_use(analysis: Analysis, roof: Roof) -> list[ComputeRoof]:
    """The ceilings for products in the data types of the operators, most FLOP first.

    A model without arithmetic has those of all types, as a machine by itself.
    """
    flop: dict[ComputeRoof, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        unit = roof.compute(of) if of and row.flop else None
        if unit is not None:
            flop[unit] = flop.get(unit, 0) + (row.flop or 0)
    if not flop:
        return sorted(roof.of_products.values(), key=lambda each: -each.flop_per_s)
    return sorted(flop, key=lambda unit: -flop[unit])
