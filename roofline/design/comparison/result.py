"""Designs × machines × points in one table; how it is shown depends on how many of each it has."""

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
    modules_side_by_side,
    types_side_by_side,
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
"""Modules that say what a table of that shape comes to: summary, sentences, columns and rows."""

LONGEST = 24  # Characters of a name that still reads well in a sentence


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Result):
    """Designs on machines and at points, with ratios to one of them.

    Whole analyses are of designs on machines: of models, which may be run in several ways, or of
    one model on at least two machines. A sweep keeps cells alone.

    Attributes:
        designs: names of the models or designs.
        reference: the number of the design that ratios refer to.
        analyses: by machine, then by design; none in a sweep.
        rounds: measurements of all designs in turn.
        per_sample: whether work and times are those of one sample of a batch.
        axes: the values that are swept, by name; the last name runs fastest.
        cells: by place (a point of the axes, or a machine), then by design; of analyses they
            follow.
        hardware: the machines of a sweep, one, or as many as the axis ``hardware`` has values.
        threads: of a sweep; None where they are an axis.
        run: in words, how the designs of a sweep are run.
        calibration: what predictions of a sweep were learned from, ``""`` if nothing is predicted.
        warnings: what a reader of the numbers of a sweep must know.
        balance: what a sweep over the balance of machines found besides.

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
                raise ValueError(f"axes.{name}: expected numbers and words")
            axes[name] = tuple(cast("Sequence[Value]", values))
        object.__setattr__(self, "axes", axes)
        if not 0 <= self.reference < len(self.designs):
            count = len(self.designs)
            raise InputError(f"reference {self.reference}: there are models 0 to {count - 1}")
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
        """Models on one machine or several, called `names` or what the models are called.

        Args:
            by_machine: the analyses of at least two models on a machine, for each machine.
            reference: the number of the one that ratios refer to.
            names: what the models are called.
            rounds: what they took, measured in turn.
            per_sample: tells work and times of one sample; None: where inputs differ in their first
                sizes, and in these alone.

        Raises:
            InputError: fewer than two, names that do not fit, another machine, or no such
                reference.
        """
        first = by_machine[0] if by_machine else ()
        if len(first) < 2:
            raise InputError("a comparison takes at least two models")
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
        """One model on several machines, from one capture for each kind of device.

        Raises:
            InputError: fewer than two, a machine twice, or not the same operators on all machines
                that are asked for those of one device.
        """
        name = analyses[0].model if analyses else ""
        if len(analyses) < 2:
            raise InputError("a comparison of machines takes at least two")
        return cls(designs=(name,), analyses=tuple(analyses))

    # -- the table -------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """How it is shown: by how many designs, machines and points there are."""
        if not self.analyses:
            return "balance" if self.balance else "sweep"
        return "models" if len(self.designs) > 1 else "machines"

    @property
    def machine_names(self) -> tuple[str, ...]:
        """What the machines are called; those of one name are numbered."""
        analyses = self.analyses[:: len(self.designs)]
        profiles = [each.hardware for each in analyses] or self.hardware
        return distinct([each.name for each in profiles])

    @property
    def names(self) -> tuple[str, ...]:
        """What sentences call the designs; those of a sweep A, B, C where one is long."""
        if self.analyses or all(len(each) <= LONGEST for each in self.designs):
            return self.designs
        return tuple(map(letter, range(len(self.designs))))

    @cached_property
    def wholes(self) -> tuple[Whole, ...]:
        """The pass on each machine, which shares of groups of operators are of."""
        return tuple(map(Whole.of, self.analyses))

    @cached_property
    def grid(self) -> Grid:
        """The axes and their points."""
        return Grid(axes=tuple(Axis(name=name, values=each) for name, each in self.axes.items()))

    @property
    def points(self) -> tuple[Point, ...]:
        """The values of the axes at every point."""
        return tuple(self.grid.points())

    @property
    def varied(self) -> tuple[Axis, ...]:
        """The axes that have more than one value, the longest first; at least one axis."""
        found = [each for each in self.grid.axes if len(each.values) > 1]
        return tuple(sorted(found or self.grid.axes[:1], key=lambda each: -len(each.values)))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Who wins at every place: on every machine, or at every point."""
        measured = self.rounds is not None
        return tuple(verdict_of(each, self.reference, measured=measured) for each in self.cells)

    @cached_property
    def each_machine(self) -> tuple[Comparison, ...]:
        """The comparison on each machine alone."""
        count = len(self.designs)
        if len(self.analyses) == count:
            return (self,)
        starts = range(0, len(self.analyses), count)
        return tuple(replace(self, analyses=self.analyses[i : i + count]) for i in starts)

    # -- models ----------------------------------------------------------------------------------

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """FLOP, parameters, bytes, memory, intensity, bound and times of every model."""
        return models.quantities(self)

    def quantity(self, of: str) -> Quantity:
        """Return the quantity of that name, for one sample where batches differ."""
        return models.quantities(self, only=of)[0]

    def ratios(self, quantity: Quantity) -> tuple[float | None, ...]:
        """Each value over the reference's; None where one is unknown or the reference's is 0."""
        return tuple(each.value if each else None for each in self.uncertain_ratios(quantity))

    def uncertain_ratios(self, quantity: Quantity) -> tuple[Ratio | None, ...]:
        """The same, those of predictions and of measurements in turn with their intervals."""
        return models.ratios(self, quantity, self.reference)

    @property
    def samples(self) -> tuple[int, ...] | None:
        """How many samples each pass takes, where work and times are told for one; else None."""
        if not self.per_sample:
            return None
        return models.samples_of(self.analyses[: len(self.designs)])

    def modules(self, depth: int = DEPTH) -> Alignment:
        """Return the modules of all models down to `depth`, each beside its counterparts."""
        return modules_side_by_side(
            self.each_machine[0].analyses,
            reference=self.reference,
            depth=depth,
            samples=self.samples,
        )

    @property
    def types(self) -> Alignment:
        """The types of operators of all models side by side."""
        analyses = self.each_machine[0].analyses
        return types_side_by_side(analyses, reference=self.reference, samples=self.samples)

    @property
    def verdict(self) -> tuple[str, ...]:
        """Which model wins on which machine, a sentence for each kind of time."""
        return models.verdict(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of ratios must know: that unlike models are compared."""
        return models.notes(self)

    # -- one model on several machines -----------------------------------------------------------

    @property
    def machines(self) -> tuple[MachineSummary, ...]:
        """What each machine offers the model, and what the model's bound is there."""
        return machines.summaries(self)

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The rows, in each analysis, of every operator that all machines call."""
        return machines.positions_across(self.analyses)

    @property
    def operators(self) -> tuple[Across, ...]:
        """The operators that all machines call and that are not free, each on every machine."""
        return machines.operators(self)

    def groups(self, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
        """Return the operators grouped by `key`, the largest share of a bound first."""
        return machines.groups(self, key)

    def changing_rows(self, machine: int = 0) -> tuple[bool, ...]:
        """Return for every row of a machine's analysis whether its operator changes sides.

        One that not all machines call does not.
        """
        return machines.changing_rows(self, machine)

    # -- sweeps ----------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[str, ...]:
        """What cannot be built where, a line for each reason; then what does not fit where."""
        return tuple(sweeps.problems(self))

    # -- what every result has -------------------------------------------------------------------

    @property
    def summary(self) -> str:
        """What is compared, and where; of one model on several machines, who changes sides."""
        return _VIEWS[self.shape].summary(self)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should take home."""
        return tuple(_VIEWS[self.shape].sentences(self))

    @property
    def columns(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]  of each comparison its own
        """Names of columns with pandas' types."""
        return _VIEWS[self.shape].columns(self)

    def records(self) -> Iterable[dict[str, Any]]:
        """Return a row for each place and design by the names of columns; unknown is None."""
        return _VIEWS[self.shape].records(self)

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return `records` as cells; of one model on machines, a row for each operator on each."""
        return ([*each.values()] for each in self.records())

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows of an analysis."""
        for number, each in enumerate(self.analyses):
            yield from (f"analyses[{number}]: {wrong}" for wrong in each.contradictions())

    def blocks(self, view: View) -> Iterable[Block]:
        """Return the tables of its shape, what follows, and warnings."""
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
        """Return an HTML page; of one model on several machines, the interactive one."""
        if self.shape != "machines":
            return Result.page(self, view)
        from roofline.analysis.page import machines_page

        return machines_page(self.machine_names, self.analyses, self.report(view))

    @property
    def height_inch(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]  of each comparison its own
        """Height of its picture."""
        if self.shape == "models":
            from roofline.design.comparison.model_drawing import height_of

            return height_of(self.each_machine)
        if self.shape == "machines":
            return 6.0 + 0.25 * len(self.analyses)
        return 7.0 if self.balance else 6.5

    def draw(self, figure: Figure, *, labels: int = 8) -> None:
        """Draw times and ratios, roofs and sides, a heat map of who wins, or lines.

        Args:
            figure: an empty one.
            labels: of one model on machines, number of operators to number; those that change
                sides come first.
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
        """Return the fields, cells as rows; then what follows from them."""
        data = Result.to_data(self)
        del data["cells"]
        return {**data, **self._following()}

    def _following(self) -> dict[str, Any]:
        """What follows from the fields and readers of files want to find."""
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
        """Return the comparison in plain data; what follows from its fields must follow.

        Raises:
            FileFormatError: unknown, missing or wrong values, or rows that are no full grid.
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
    """Return the names, numbered where they would be the same."""
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{name} ({index})" for index, name in enumerate(names, start=1))
