"""Result of `compare` and `sweep`: designs × machines × points."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from roofline.analysis import Analysis, Whole
from roofline.core import files, schema
from roofline.core.blocks import Block, View
from roofline.design.comparison import balance, machines, models, sweeps
from roofline.design.comparison.alignment import (
    DEPTH,
    Alignment,
    align_modules,
    align_types,
)
from roofline.design.comparison.axes import Axis, Grid, Point, Value
from roofline.design.comparison.balance import Balance
from roofline.design.comparison.cells import CELL_FIELDS, Cell, Verdict, letter, verdict_of
from roofline.design.comparison.machines import Across, GroupAcross, MachineSummary
from roofline.design.comparison.models import Quantity
from roofline.design.comparison.ratios import MeasuredRounds, Ratio
from roofline.errors import InputError
from roofline.machine.hardware import HardwareProfile
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shape = Literal["models", "machines", "sweep", "balance"]

_VIEWS: dict[Shape, Any] = {
    "models": models,
    "machines": machines,
    "sweep": sweeps,
    "balance": balance,
}
"""Modules with summary, sentences, columns and rows of each shape."""

LONGEST = 24  # Maximum characters of a name in sentences


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Result):
    """Comparison of designs on machines and at points, with ratios to a reference.

    Models and machines have full analyses: several models or variants, or one model on several
    machines. A sweep has cells only.

    Attributes:
        designs: names of the models or designs.
        reference: index of the reference design.
        analyses: by machine, then by design; empty in a sweep.
        rounds: interleaved measurements of all designs.
        per_sample: true if work and times are per sample.
        axes: swept values by name; the last axis varies fastest.
        cells: by point or machine, then by design.
        hardware: machines of a sweep: one, or one per value of the axis ``hardware``.
        threads: of a sweep; None if they are an axis.
        run: run options of a sweep as text.
        calibration: source of predictions in a sweep; ``""`` without predictions.
        warnings: of a sweep.
        balance: crossovers and known machines of a sweep over machine balance.

    Raises:
        InputError: analyses that cannot be compared.
        ValueError: cells that are no full table.
    """

    kind: ClassVar = "comparison"
    made_by: ClassVar = "roofline compare A B -o FILE.json"

    designs: tuple[str, ...]
    reference: int = 0
    analyses: tuple[Analysis, ...] = ()
    rounds: MeasuredRounds | None = None
    per_sample: bool = False
    axes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    cells: tuple[tuple[Cell, ...], ...] = ()
    hardware: tuple[HardwareProfile, ...] = ()
    threads: int | None = None
    run: str = ""
    calibration: str = ""
    warnings: tuple[str, ...] = ()
    balance: Balance | None = None

    def __post_init__(self) -> None:
        axes: dict[str, tuple[Value, ...]] = {}
        for name, values in self.axes.items():
            if not isinstance(values, Sequence) or isinstance(values, str):
                raise ValueError(f"axes.{name}: expected a list")
            if not all(isinstance(each, (int, float, str)) for each in cast("list[Any]", values)):
                raise ValueError(f"axes.{name}: expected numbers or words")
            axes[name] = tuple(cast("Sequence[Value]", values))
        object.__setattr__(self, "axes", axes)
        if not 0 <= self.reference < len(self.designs):
            count = len(self.designs)
            raise InputError(f"reference {self.reference}: must be from 0 to {count - 1}")
        _VIEWS[self.shape].check(self)
        if self.analyses:
            object.__setattr__(self, "cells", models.cells(self))

    @classmethod
    def of(
        cls,
        *by_machine: Sequence[Analysis],
        reference: int = 0,
        names: Sequence[str] = (),
        rounds: MeasuredRounds | None = None,
        per_sample: bool | None = None,
    ) -> Comparison:
        """Return the comparison of models on one or several machines.

        Args:
            by_machine: analyses of at least two models, for each machine.
            reference: index of the reference model.
            names: of the models [default: those of the analyses].
            rounds: interleaved measurements.
            per_sample: report work and times per sample; None: if inputs differ in dimension 0
                only.

        Raises:
            InputError: fewer than two models, too few names, different machines, or an unknown
                reference.
        """
        first = by_machine[0] if by_machine else ()
        if len(first) < 2:
            raise InputError("a comparison requires at least two models; name another")
        if names and len(names) != len(first):
            raise InputError(f"{len(names)} names for {len(first)} models")
        if per_sample is None:
            per_sample = models.differs_only_in_batch(first)
        return cls(
            designs=tuple(names) or distinct([each.model for each in first]),
            reference=reference,
            analyses=tuple(each for analyses in by_machine for each in analyses),
            rounds=rounds,
            per_sample=per_sample and models.samples_of(first) is not None,
        )

    @classmethod
    def of_machines(cls, analyses: Sequence[Analysis]) -> Comparison:
        """Return the comparison of one model on several machines.

        Raises:
            InputError: fewer than two machines, duplicates, or different operators on machines of
                one device type.
        """
        name = analyses[0].model if analyses else ""
        if len(analyses) < 2:
            raise InputError("a comparison of machines requires at least two; name another")
        return cls(designs=(name,), analyses=tuple(analyses))

    # -- the table -------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Kind of comparison."""
        if not self.analyses:
            return "balance" if self.balance else "sweep"
        return "models" if len(self.designs) > 1 else "machines"

    @property
    def machine_names(self) -> tuple[str, ...]:
        """Distinct names of the machines."""
        analyses = self.analyses[:: len(self.designs)]
        profiles = [each.hardware for each in analyses] or self.hardware
        return distinct([each.name for each in profiles])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the designs in sentences; letters in a sweep with long names."""
        if self.analyses or all(len(each) <= LONGEST for each in self.designs):
            return self.designs
        return tuple(map(letter, range(len(self.designs))))

    @cached_property
    def wholes(self) -> tuple[Whole, ...]:
        """Totals of the pass by machine."""
        return tuple(map(Whole.of, self.analyses))

    @cached_property
    def grid(self) -> Grid:
        """Axes and points."""
        return Grid(axes=tuple(Axis(name=name, values=each) for name, each in self.axes.items()))

    @property
    def points(self) -> tuple[Point, ...]:
        """Axis values of each point."""
        return tuple(self.grid.points())

    @property
    def varied(self) -> tuple[Axis, ...]:
        """Axes with several values, longest first; at least one axis."""
        found = [each for each in self.grid.axes if len(each.values) > 1]
        return tuple(sorted(found or self.grid.axes[:1], key=lambda each: -len(each.values)))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Fastest design on each machine or at each point."""
        measured = self.rounds is not None
        return tuple(verdict_of(each, self.reference, measured=measured) for each in self.cells)

    @cached_property
    def each_machine(self) -> tuple[Comparison, ...]:
        """Comparisons by machine."""
        count = len(self.designs)
        if len(self.analyses) == count:
            return (self,)
        starts = range(0, len(self.analyses), count)
        return tuple(replace(self, analyses=self.analyses[i : i + count]) for i in starts)

    # -- models ----------------------------------------------------------------------------------

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """FLOP, parameters, bytes, memory, AI and times by model."""
        return models.quantities(self)

    def quantity(self, of: str) -> Quantity:
        """Return the quantity of that name, per sample if batches differ."""
        return models.quantities(self, only=of)[0]

    def ratios(self, quantity: Quantity) -> tuple[float | None, ...]:
        """Return values over that of the reference; None if one is unknown or the reference 0."""
        return tuple(each.value if each else None for each in self.uncertain_ratios(quantity))

    def uncertain_ratios(self, quantity: Quantity) -> tuple[Ratio | None, ...]:
        """Return ratios with intervals of predictions and interleaved measurements."""
        return models.ratios(self, quantity, self.reference)

    @property
    def samples(self) -> tuple[int, ...] | None:
        """Samples per pass if work and times are per sample; else None."""
        if not self.per_sample:
            return None
        return models.samples_of(self.analyses[: len(self.designs)])

    def modules(self, depth: int = DEPTH) -> Alignment:
        """Return the aligned modules of all models, down to `depth` levels."""
        return align_modules(
            self.each_machine[0].analyses,
            reference=self.reference,
            depth=depth,
            samples=self.samples,
        )

    @property
    def types(self) -> Alignment:
        """Aligned operator types of all models."""
        analyses = self.each_machine[0].analyses
        return align_types(analyses, reference=self.reference, samples=self.samples)

    @property
    def verdict(self) -> tuple[str, ...]:
        """Fastest model by machine, a sentence per kind of time."""
        return models.verdict(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on different inputs and runs."""
        return models.notes(self)

    # -- one model on several machines -----------------------------------------------------------

    @property
    def machines(self) -> tuple[MachineSummary, ...]:
        """Ceilings, minimum times and limiters by machine."""
        return machines.summaries(self)

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """Rows of each shared operator in the analyses."""
        return machines.shared_operator_rows(self.analyses)

    @property
    def operators(self) -> tuple[Across, ...]:
        """Rows of shared operators that are not free, by machine."""
        return machines.operators(self)

    def groups(self, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
        """Return the operators grouped by `key`, by largest share of minimum time."""
        return machines.groups(self, key)

    def changing_rows(self, machine: int = 0) -> tuple[bool, ...]:
        """Return True for each row of a machine's analysis whose limiter changes."""
        return machines.changing_rows(self, machine)

    # -- sweeps ----------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[str, ...]:
        """Designs that cannot be built or do not fit, with points and reasons."""
        return tuple(sweeps.problems(self))

    # -- interface of results --------------------------------------------------------------------

    @property
    def summary(self) -> str:
        """Verdict of the comparison."""
        return _VIEWS[self.shape].summary(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Findings in sentences."""
        return tuple(_VIEWS[self.shape].sentences(self))

    @property
    def columns(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]  of each comparison its own
        """Column names with pandas' types."""
        return _VIEWS[self.shape].columns(self)

    def records(self) -> Iterable[dict[str, Any]]:
        """Return a row per machine or point and design, by column; None if unknown."""
        return _VIEWS[self.shape].records(self)

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return `records` as cells; of one model on machines, a row per machine and operator."""
        return ([*each.values()] for each in self.records())

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows of an analysis."""
        for number, each in enumerate(self.analyses):
            yield from (f"analyses[{number}]: {wrong}" for wrong in each.contradictions())

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the blocks of the report."""
        from roofline.design.comparison import machine_blocks, model_blocks, sweep_blocks

        match self.shape:
            case "models":
                return model_blocks.model_blocks(self, view)
            case "machines":
                return machine_blocks.machine_blocks(self, view)
            case "sweep":
                return sweep_blocks.sweep_blocks(self, view)
            case "balance":
                return sweep_blocks.balance_blocks(self, view)

    def page(self, view: View) -> str:
        """Return an HTML page, interactive for one model on several machines."""
        if self.shape != "machines":
            return Result.page(self, view)
        from roofline.analysis.page import machines_page

        return machines_page(self.machine_names, self.analyses, self.report(view))

    @property
    def height_inch(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]  of each comparison its own
        """Height of the plot in inches."""
        if self.shape == "models":
            from roofline.design.comparison.model_drawing import height_of

            return height_of(self.each_machine)
        if self.shape == "machines":
            return 6.0 + 0.25 * len(self.analyses)
        return 7.0 if self.balance else 6.5

    def draw(self, figure: Figure, *, labels: int = 8) -> None:
        """Draw times and ratios, rooflines and limiters, a heat map of speedups, or lines.

        Args:
            figure: an empty one.
            labels: number of labeled operators of one model on machines, first those with
                different limiters.
        """
        from roofline.design.comparison import machine_drawing, model_drawing, sweep_drawing

        match self.shape:
            case "models":
                model_drawing.draw_models(figure, self)
            case "machines":
                machine_drawing.draw_machines(figure, self, labels=labels)
            case "sweep":
                sweep_drawing.draw_sweep(figure, self)
            case "balance":
                sweep_drawing.draw_balance(figure, self)

    def to_data(self) -> dict[str, Any]:
        """Return the fields, with cells as rows, and derived values."""
        data = Result.to_data(self)
        del data["cells"]
        return {**data, **self._following()}

    def _following(self) -> dict[str, Any]:
        """Return the derived values of files."""
        found: dict[str, Any] = {"summary": self.summary, "sentences": self.sentences}
        if self.shape == "models":
            found["rows"] = models.rows_of_files(self)
            found["module_alignment"] = [each.modules() for each in self.each_machine]
            found["types"] = [each.types for each in self.each_machine]
            found["notes"] = self.notes
        elif self.shape != "machines":
            cells = (cell for at_place in self.cells for cell in at_place)
            found["rows"] = [
                {**row, **{n: v for n, v in asdict(cell).items() if v not in (None, "")}}
                for row, cell in zip(self.records(), cells, strict=True)
            ]
        if self.shape == "sweep":
            found["points"] = sweeps.points_of_files(self)
            found["problems"] = self.problems
        return schema.to_data(found)

    @classmethod
    def from_data(cls, data: Any, *, file: str) -> Self:
        """Return the comparison in plain data, with derived values checked.

        Raises:
            FileFormatError: unknown, missing or wrong values, or an incomplete grid of rows.
        """
        fix = f"make it again with `{cls.made_by}`"
        table = dict(schema.check_version(data, file=file, fix=fix))
        if "cells" in table:
            raise files.refused(file, "unknown key 'cells'", fix)
        names = ("summary", "sentences", "rows", "module_alignment", "types", "notes", "points")
        said = {name: table.pop(name) for name in (*names, "problems") if name in table}
        rows, designs = said.get("rows"), table.get("designs")
        if not table.get("analyses") and isinstance(rows, list) and isinstance(designs, list):
            cells: list[Any] = [
                {name: each[name] for name in CELL_FIELDS if name in each}
                for each in cast("list[Any]", rows)
                if isinstance(each, dict)
            ]
            count = len(cast("list[Any]", designs)) or 1
            table["cells"] = [cells[i : i + count] for i in range(0, len(cells), count)]
        found = super().from_data(table, file=file)
        right = found._following()
        for name, each in said.items():
            if not schema.is_same(each, right.get(name)):
                raise files.refused(file, f"{name}: does not follow from the rest", fix)
        return found


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, numbered if there are duplicates."""
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{name} ({index})" for index, name in enumerate(names, start=1))
