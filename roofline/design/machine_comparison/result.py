"""Analyses of one model on several machines: the value that comparing machines gives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from roofline.analysis import FRAME_COLUMNS, Analysis, OperatorRow, group_of
from roofline.analysis.grouping import Whole
from roofline.analysis.words import what_runs
from roofline.design.machine_comparison.grouping import (
    Across,
    GroupAcross,
    changes_sides,
    positions_across,
    side_of,
)
from roofline.design.machine_comparison.sentences import (
    bounds,
    memory_fit,
    predictions,
    verdict,
)
from roofline.design.machine_comparison.summary import MachineSummary, summary_of
from roofline.errors import InputError
from roofline.foundation import reading, schema
from roofline.foundation.blocks import Block, View
from roofline.result import Result
from roofline.run import Device
from roofline.workload.operators import State

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MachineComparison(Result):
    """Analyses of one model on at least two machines, from one capture for each kind of device.

    It has a row for each operator and machine: the columns of `Analysis`, ``changes_sides`` (the
    operator is compute-bound on one of the machines and memory-bound on another) and ``fits`` (the
    whole model fits into the machine's memory). ``places`` are the rows, in each analysis, of every
    operator that all machines call.
    """

    kind: ClassVar = "machine comparison"
    made_by: ClassVar = "roofline analyze MODEL --hardware A --hardware B -o FILE.json"
    columns: ClassVar = {
        "machine": "string",
        **FRAME_COLUMNS,
        "changes_sides": "boolean",
        "fits": "boolean",
    }

    names: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, analyses: Sequence[Analysis]) -> MachineComparison:
        """The comparison of `analyses`; machines of the same name are numbered.

        Raises:
            InputError: fewer than two, a machine twice, or not the same operators on all machines
                that are asked for those of one device.
        """
        if len(analyses) < 2:
            raise InputError("a comparison of machines takes at least two")
        of_devices: dict[Device, Analysis] = {}
        for position, each in enumerate(analyses):
            first = of_devices.setdefault(each.run.device, each)
            is_one_task = _task(each) == _task(analyses[0])
            if not is_one_task or (
                list(map(_identity, each.operators)) != list(map(_identity, first.operators))
            ):
                first = first if is_one_task else analyses[0]
                raise InputError(
                    f"'{each.model}' on {each.hardware.name} is not what '{first.model}' is on"
                    f" {first.hardware.name}: analyse one model with one input for all machines"
                )
            for before in analyses[:position]:
                if (before.hardware, before.threads) == (each.hardware, each.threads):
                    raise InputError(f"'{each.hardware.name}' is given twice; name it once")
        names = [each.hardware.name for each in analyses]
        if len(set(names)) < len(names):
            names = [f"{name} ({number})" for number, name in enumerate(names, start=1)]
        return cls(names=tuple(names), analyses=tuple(analyses), places=positions_across(analyses))

    @property
    def summary(self) -> str:
        """What runs, and how many operators change sides."""
        first = self.analyses[0]
        state = "in steady state" if first.cache == "steady" else "with cold caches"
        return f"{what_runs(first)} {state}: {self.sentences[0]}"

    @property
    def operators(self) -> tuple[Across, ...]:
        """The operators that all machines call and that are not free, each on every machine."""
        rows = map(self._across, self.places)
        return tuple(across for across in rows if _is_work(across[0]))

    def _across(self, places: tuple[int, ...]) -> Across:
        pairs = zip(self.analyses, places, strict=True)
        return tuple(analysis.operators[place] for analysis, place in pairs)

    @property
    def whole(self) -> GroupAcross:
        """All operators that are not free, also those that not every machine calls."""
        rows = [[row for row in each.operators if _is_work(row)] for each in self.analyses]
        return _group(self.operators, rows, self._wholes)

    @property
    def apart(self) -> GroupAcross | None:
        """What not every machine calls: CPUs and GPUs have some of their own; None: nothing."""
        rows: list[list[OperatorRow]] = []
        for machine, each in enumerate(self.analyses):
            shared = {places[machine] for places in self.places}
            rows.append([r for r in each.operators if r.index not in shared and _is_work(r)])
        return _group((), rows, self._wholes) if any(rows) else None

    @property
    def machines(self) -> tuple[MachineSummary, ...]:
        """What each machine offers the model, and what the model's bound is there."""
        return tuple(map(summary_of, self.names, self.analyses))

    def groups(self, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
        """The operators that are not free, grouped by `key`, the largest share of a bound first."""
        by_key: dict[Hashable, list[Across]] = {}
        for across in self.operators:
            by_key.setdefault(key(across), []).append(across)
        wholes = self._wholes
        found = [_group(each, _columns(each, wholes), wholes) for each in by_key.values()]
        return tuple(
            sorted(
                found,
                key=lambda each: (
                    -each.largest_share,
                    -sum(across[0].traffic_bytes for across in each.operators),
                ),
            )
        )

    def group(self, operators: Sequence[Across]) -> GroupAcross:
        """These operators taken together."""
        wholes = self._wholes
        return _group(operators, _columns(operators, wholes), wholes)

    @property
    def _wholes(self) -> list[Whole]:
        return [Whole.of(each) for each in self.analyses]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should take home: who changes sides, and where it is fastest."""
        return (
            *verdict(self.names, self.operators),
            *bounds(self.names, self.analyses),
            *memory_fit(self.names, self.analyses),
            *predictions(self.names, self.analyses),
        )

    def rows(self) -> Iterator[list[Any]]:
        """Return a row for each machine and operator."""
        for place, (name, each) in enumerate(zip(self.names, self.analyses, strict=True)):
            changing = self.changing_rows(place)
            for cells, changes in zip(each.rows(), changing, strict=True):
                yield [name, *cells, changes, each.fits]

    def changing_rows(self, machine: int = 0) -> tuple[bool, ...]:
        """For every row of a machine's analysis, whether its operator changes sides.

        One that not all machines call does not.
        """
        changing = {
            places[machine]
            for places in self.places
            if changes_sides(row.bound for row in self._across(places))
        }
        return tuple(i in changing for i in range(len(self.analyses[machine].operators)))

    def to_data(self) -> dict[str, Any]:
        """Return the analyses whole; all else follows from them."""
        analyses = [schema.to_data(each) for each in self.analyses]
        return {"schema_version": schema.VERSION, "kind": self.kind, "analyses": analyses}

    @classmethod
    def from_data(cls, data: Any, *, file: str) -> MachineComparison:
        """Return the comparison in plain data, as `Result.from_data` does."""
        fix = f"make it again with `{cls.made_by}`"
        table = schema.check_version(data, file=file, fix=fix)
        if table.get("kind") != cls.kind:
            raise reading.refused(file, "is no comparison of machines", fix)
        analyses = table.get("analyses")
        if set(table) != {"schema_version", "kind", "analyses"} or not isinstance(analyses, list):
            keys = "expected the keys schema_version, kind and analyses (a list)"
            raise reading.refused(file, keys, fix)
        found: list[Analysis] = []
        for number, each in enumerate(cast("list[Any]", analyses)):
            found.append(
                schema.from_data(Analysis, each, file=f"{file}: analyses[{number}]", fix=fix)
            )
            for wrong in found[-1].contradictions():
                what = f"{wrong}: the file was changed or cut"
                raise reading.refused(f"{file}: analyses[{number}]", what, fix)
        try:
            return cls.of(found)
        except InputError as error:
            raise reading.refused(file, str(error), fix) from None

    def blocks(self, view: View) -> Iterable[Block]:
        """Return machines, operators that change sides and others, coverage and warnings.

        Modules are cut off at the depth of `view`, and stand in one list; the rows that a table
        leaves out appear as one.
        """
        from roofline.design.machine_comparison.blocks import machines_blocks

        return machines_blocks(self, view)

    def page(self, view: View) -> str:
        """Return the interactive page."""
        from roofline.analysis.page import machines_page

        return machines_page(self.names, self.analyses, self.report(view))

    def _figure(
        self,
        make: Callable[[float, float], Figure],
        width_inch: float,
        height_inch: float | None,
        options: Mapping[str, Any],
    ) -> Figure:
        height_inch = height_inch or 6.0 + 0.25 * len(self.names)
        return Result._figure(self, make, width_inch, height_inch, options)

    def draw(self, figure: Figure, *, labels: int = 8) -> None:
        """Draw all roofs, what binds the model on each machine, and which operators change sides.

        Args:
            figure: an empty one.
            labels: number of operators to number; those that change sides come first.
        """
        from roofline.design.machine_comparison.drawing import draw_machines

        draw_machines(figure, self, labels=labels)


def read_machine_comparison(path: str | Path) -> MachineComparison:
    """Return the comparison of machines saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: not readable, no comparison of machines, damaged, or of another version.
    """
    data = reading.read_json(Path(path), fix=f"make it again with `{MachineComparison.made_by}`")
    return MachineComparison.from_data(data, file=str(path))


def _columns(operators: Sequence[Across], wholes: Sequence[Whole]) -> list[Sequence[OperatorRow]]:
    """The rows of operators on each machine."""
    return list(zip(*operators, strict=True)) or [()] * len(wholes)


def _group(
    operators: Sequence[Across], columns: Sequence[Sequence[OperatorRow]], wholes: Sequence[Whole]
) -> GroupAcross:
    """Operators taken together, and the rows that they are on each machine."""
    return GroupAcross(
        operators=tuple(operators),
        groups=tuple(
            group_of("", rows, whole) for rows, whole in zip(columns, wholes, strict=True)
        ),
        sides=tuple(map(side_of, columns)),
    )


def _task(analysis: Analysis) -> object:
    """What is done on every machine."""
    return (analysis.model, analysis.inputs, analysis.cache)


def _is_work(row: OperatorRow) -> bool:
    return row.state is not State.FREE


def _identity(row: OperatorRow) -> object:
    """What an operator asks for, whatever the machine."""
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    return (row.index, row.op, row.module_path, row.state, row.work, sizes)
