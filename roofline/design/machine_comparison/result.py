"""Analyses of one model on several machines: the value that comparing machines gives."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, OperatorRow, group_of
from roofline.analysis.grouping import Whole
from roofline.design.machine_comparison.grouping import Across, GroupAcross, changes_sides, side_of
from roofline.design.machine_comparison.sentences import (
    bounds,
    memory_fit,
    predictions,
    verdict,
)
from roofline.design.machine_comparison.summary import MachineSummary, summary_of
from roofline.errors import InputError
from roofline.foundation import schema
from roofline.foundation.rows import json_text
from roofline.workload.operators import State

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
"""Of saved comparisons of machines; the analyses in them have versions of their own."""

KIND = "machine comparison"
"""What such a file says it is."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MachineComparison:
    """Analyses of one model, from a single capture, on at least two machines."""

    names: tuple[str, ...]
    analyses: tuple[Analysis, ...]

    @classmethod
    def of(cls, analyses: Sequence[Analysis]) -> MachineComparison:
        """The comparison of `analyses`; machines of the same name are numbered.

        Raises:
            InputError: fewer than two, a machine twice, or not the same operators everywhere.
        """
        if len(analyses) < 2:
            raise InputError("a comparison of machines takes at least two")
        first = analyses[0]
        for position, each in enumerate(analyses):
            if (each.model, each.inputs, each.cache) != (
                first.model,
                first.inputs,
                first.cache,
            ) or list(map(_identity, each.operators)) != list(map(_identity, first.operators)):
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
        return cls(names=tuple(names), analyses=tuple(analyses))

    def __repr__(self) -> str:
        return f"<MachineComparison of {self.analyses[0].model}: {'; '.join(self.sentences)}>"

    @property
    def operators(self) -> tuple[Across, ...]:
        """The operators that are not free, each on every machine."""
        rows = zip(*(each.operators for each in self.analyses), strict=True)
        return tuple(across for across in rows if across[0].state is not State.FREE)

    @property
    def machines(self) -> tuple[MachineSummary, ...]:
        """What each machine offers the model, and what the model's bound is there."""
        return tuple(map(summary_of, self.names, self.analyses))

    def groups(self, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
        """The operators that are not free, grouped by `key`, the largest share of a bound first."""
        by_key: dict[Hashable, list[Across]] = {}
        for across in self.operators:
            by_key.setdefault(key(across), []).append(across)
        wholes = [Whole.of(each) for each in self.analyses]
        found = [_group(operators, wholes) for operators in by_key.values()]
        return tuple(
            sorted(
                found,
                key=lambda each: (
                    -each.largest_share,
                    -sum(across[0].traffic_byte for across in each.operators),
                ),
            )
        )

    def group(self, operators: Sequence[Across]) -> GroupAcross:
        """These operators taken together."""
        return _group(operators, [Whole.of(each) for each in self.analyses])

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
        changes = pandas.Series(self.changing_rows, dtype="boolean")
        for name, each in zip(self.names, self.analyses, strict=True):
            frame = each.to_frame()
            frame.insert(0, "machine", pandas.Series([name] * len(frame), dtype="string"))
            frame["changes_sides"] = changes
            frame["fits"] = pandas.Series([each.fits] * len(frame), dtype="boolean")
            frames.append(frame)
        return pandas.concat(frames, ignore_index=True)

    @property
    def changing_rows(self) -> tuple[bool, ...]:
        """For every row of the analyses, the free ones too, whether its operator changes sides."""
        rows = zip(*(each.operators for each in self.analyses), strict=True)
        return tuple(changes_sides(row.bound for row in across) for across in rows)

    def to_json(self) -> str:
        """The analyses whole, as JSON text; `read_machine_comparison` gives an equal value back."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "analyses": [schema.to_data(each) for each in self.analyses],
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
        from roofline.presentation.page import machines_html

        return machines_html(self)


def _group(operators: Sequence[Across], wholes: Sequence[Whole]) -> GroupAcross:
    columns = list(zip(*operators, strict=True)) or [()] * len(wholes)
    groups = [group_of("", rows, whole) for rows, whole in zip(columns, wholes, strict=True)]
    return GroupAcross(
        operators=tuple(operators),
        groups=tuple(groups),
        sides=tuple(map(side_of, columns)),
    )


def _identity(row: OperatorRow) -> object:
    """What an operator asks for, whatever the machine."""
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    return (row.index, row.op, row.module_path, row.state, row.work, sizes)
