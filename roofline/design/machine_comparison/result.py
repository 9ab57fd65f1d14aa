"""Analyses of one model on several machines: the value that comparing machines gives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, OperatorRow, group_of
from roofline.analysis.grouping import Whole
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
from roofline.foundation.rows import json_text
from roofline.workload.operators import State
from roofline.workload.runs import Device

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
"""Of saved comparisons of machines; the analyses in them have versions of their own."""

KIND = "machine comparison"
"""What such a file says it is."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MachineComparison:
    """Analyses of one model on at least two machines, from one capture for each kind of device.

    ``places`` are the rows, in each analysis, of every operator that all machines call.
    """

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

    def __repr__(self) -> str:
        return f"<MachineComparison of {self.analyses[0].model}: {'; '.join(self.sentences)}>"

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

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator and machine: the columns of `Analysis.to_frame`, and three more.

        ``machine`` is its name; ``changes_sides`` says whether the operator is compute-bound on one
        of the machines and memory-bound on another; ``fits`` whether the whole model fits into the
        machine's memory.
        """
        import pandas

        frames: list[pandas.DataFrame] = []
        for place, (name, each) in enumerate(zip(self.names, self.analyses, strict=True)):
            frame = each.to_frame()
            frame.insert(0, "machine", pandas.Series([name] * len(frame), dtype="string"))
            frame["changes_sides"] = pandas.Series(self.changing_rows(place), dtype="boolean")
            frame["fits"] = pandas.Series([each.fits] * len(frame), dtype="boolean")
            frames.append(frame)
        return pandas.concat(frames, ignore_index=True)

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

    def to_json(self) -> str:
        """The analyses whole, as JSON text; `read_machine_comparison` gives an equal value back."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "analyses": [each.to_data() for each in self.analyses],
        }
        return json_text(data)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the comparison to a file whose suffix says how: .json .csv .md .png .svg.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.output import write

        write(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """All roofs in one matplotlib Figure; options: those of `machines_figure.plot_machines`."""
        from roofline.presentation.machines_figure import plot_machines

        return plot_machines(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.machines_report import machines_report
        from roofline.render.pages import report_html

        return report_html(machines_report(self))


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
