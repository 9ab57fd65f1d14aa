"""One model on several machines: which operators are compute-bound here and memory-bound there."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from roofline.analysis import (
    Analysis,
    OperatorRow,
    analysis_from_data,
    sum_bound_s,
)
from roofline.errors import InputError
from roofline.foundation import reading, schema
from roofline.foundation.dtypes import DType
from roofline.foundation.units import format_s
from roofline.placement import (
    Bound,
    ComputeRoof,
    LevelRoof,
    Roof,
    arithmetic_dtype,
    ridge_flop_per_byte,
)
from roofline.workload.operators import State

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 1
"""Of saved comparisons of machines; the analyses in them have versions of their own."""

_KIND = "machine comparison"
_FIX = "make it anew with `roofline analyze MODEL --hardware A --hardware B -o FILE.json`"

Across = tuple[OperatorRow, ...]
"""One operator: its row on every machine, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSummary:
    """A machine as the model meets it.

    ``compute`` is the highest ceiling of the data type that most of its FLOP are in, ``memory`` the
    farthest level, ``ridge_flop_per_byte`` the intensity at which they meet; None where unknown.
    The shares are fractions of ``bound_s``, in seconds, by what binds; None without a bound.
    """

    name: str
    description: str
    threads: int
    compute: ComputeRoof | None
    memory: LevelRoof | None
    ridge_flop_per_byte: float | None
    bound_s: float | None
    compute_share: float | None
    memory_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What most of a time is bound by, and whether that holds for all of it."""

    bound: Bound
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAcross:
    """Operators taken together, on every machine: ``bound_s``, ``shares`` and ``sides`` are theirs.

    ``shares`` are fractions of the machine's bound; None where that is unknown.
    """

    operators: tuple[Across, ...]
    bound_s: tuple[float | None, ...]
    shares: tuple[float | None, ...]
    sides: tuple[Side, ...]

    @property
    def largest_share(self) -> float:
        """The most of a machine's bound that this takes; 0 where none is known."""
        return max((share for share in self.shares if share is not None), default=0.0)

    @property
    def changes_sides(self) -> bool:
        """Whether it is compute-bound on one machine and memory-bound on another."""
        return _changes(side.bound for side in self.sides)


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
        return tuple(map(_summary, self.names, self.analyses))

    def groups(self, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
        """The operators that are not free, grouped by `key`, the largest share of a bound first."""
        by_key: dict[Hashable, list[Across]] = {}
        for across in self.operators:
            by_key.setdefault(key(across), []).append(across)
        found = [self.group(operators) for operators in by_key.values()]
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
        columns = list(zip(*operators, strict=True)) or [()] * len(self.analyses)
        bound_s = tuple(sum_bound_s(rows) for rows in columns)
        wholes = [each.totals.bound_s for each in self.analyses]
        return GroupAcross(
            operators=tuple(operators),
            bound_s=bound_s,
            shares=tuple(
                part / whole if part is not None and whole else None
                for part, whole in zip(bound_s, wholes, strict=True)
            ),
            sides=tuple(map(_side, columns)),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should take home: who changes sides, and where the bound is lowest."""
        return (*self._verdict(), *self._times())

    def _verdict(self) -> Iterable[str]:
        operators = self.operators
        changing = sum(_changes(row.bound for row in across) for across in operators)
        many = f"{len(operators)} operator{'s' * (len(operators) != 1)}"
        where = "both machines" if len(self.names) == 2 else f"all {len(self.names)} machines"
        if not changing:
            always = [
                sum(all(row.bound is bound for row in across) for across in operators)
                for bound in (Bound.COMPUTE, Bound.MEMORY)
            ]
            unknown = len(operators) - sum(always)
            rest = f", {unknown} of which one side or more is unknown" if unknown else ""
            yield (
                f"none of {many} changes sides: {always[0]} compute-bound"
                f" and {always[1]} memory-bound on {where}{rest}"
            )
            return
        # One way through each pair of machines: compute-bound on the first, not on the second.
        ways = sorted(
            (
                (-self._crossing(i, j), i, j)
                for i in range(len(self.names))
                for j in range(len(self.names))
                if i != j
            ),
        )
        (most, here, there), (back, *_) = ways[0], ways[1]
        are = "is" if most == -1 else "are"
        one_way = (
            f"{are} compute-bound on {self.names[here]} but memory-bound on {self.names[there]}"
        )
        if len(self.names) == 2:
            other_way = f", and {-back} the other way round" if back else ""
            yield f"{-most} of {many} {one_way}{other_way}"
            return
        if changing == 1:
            yield (
                f"1 of {many} changes sides: it is compute-bound on some of the"
                f" {len(self.names)} machines and memory-bound on others"
            )
        else:
            yield (
                f"{changing} of {many} change sides: each is compute-bound on some of the"
                f" {len(self.names)} machines and memory-bound on others"
            )
        yield f"the farthest apart: {-most} {one_way}"

    def _crossing(self, here: int, there: int) -> int:
        """How many operators are compute-bound on one machine and memory-bound on another."""
        return sum(
            across[here].bound is Bound.COMPUTE and across[there].bound is Bound.MEMORY
            for across in self.operators
        )

    def _times(self) -> Iterable[str]:
        known = [
            (each.totals.bound_s, name)
            for name, each in zip(self.names, self.analyses, strict=True)
            if each.totals.bound_s
        ]
        if len(known) > 1:
            (least, lowest), (most, highest) = min(known), max(known)
            yield (
                f"the bound is lowest on {lowest}, {format_s(least)};"
                f" on {highest} it is {most / least:.3g} × that"
            )
        unknown = [
            name
            for name, each in zip(self.names, self.analyses, strict=True)
            if each.totals.bound_s is None
        ]
        if unknown:
            yield f"no bound on {', '.join(unknown)}: the ceilings are unknown"

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator and machine: the columns of `Analysis.to_frame`, and two more.

        ``machine`` is its name; ``changes_sides`` says whether the operator is compute-bound on one
        of the machines and memory-bound on another.
        """
        import pandas

        frames: list[pandas.DataFrame] = []
        changes = pandas.Series(self.changing_rows, dtype="boolean")
        for name, each in zip(self.names, self.analyses, strict=True):
            frame = each.to_frame()
            frame.insert(0, "machine", pandas.Series([name] * len(frame), dtype="string"))
            frame["changes_sides"] = changes
            frames.append(frame)
        return pandas.concat(frames, ignore_index=True)

    @property
    def changing_rows(self) -> tuple[bool, ...]:
        """For every row of the analyses, the free ones too, whether its operator changes sides."""
        rows = zip(*(each.operators for each in self.analyses), strict=True)
        return tuple(_changes(row.bound for row in across) for across in rows)

    def to_json(self) -> str:
        """The analyses whole, as JSON text; `read_machine_comparison` gives an equal value back."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "kind": _KIND,
            "analyses": [schema.to_data(each) for each in self.analyses],
        }
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

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


def is_machine_comparison(data: Any) -> bool:
    """Whether plain data says that it is a comparison of machines."""
    return isinstance(data, dict) and cast("dict[str, Any]", data).get("kind") == _KIND


def read_machine_comparison(path: str | Path) -> MachineComparison:
    """The comparison of machines saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, newer, or in contradiction to itself.
    """
    return machine_comparison_from_data(reading.read_json(Path(path), fix=_FIX), file=str(path))


def machine_comparison_from_data(data: Any, *, file: str) -> MachineComparison:
    """The comparison of machines in plain data, as its JSON holds it.

    Raises:
        FileFormatError: as `read_machine_comparison`.
    """
    schema.check_version(data, newest=SCHEMA_VERSION, file=file, fix=_FIX)
    table = cast("dict[str, Any]", data)
    if not is_machine_comparison(data):
        raise reading.refused(file, "is no comparison of machines", _FIX)
    analyses = table.get("analyses")
    if set(table) != {"schema_version", "kind", "analyses"} or not isinstance(analyses, list):
        keys = "expected the keys schema_version, kind and analyses (a list)"
        raise reading.refused(file, keys, _FIX)
    found = [
        analysis_from_data(each, file=f"{file}: analyses[{i}]")
        for i, each in enumerate(cast("list[Any]", analyses))
    ]
    try:
        return MachineComparison.of(found)
    except InputError as error:
        raise reading.refused(file, str(error), _FIX) from None


def _identity(row: OperatorRow) -> object:
    """What an operator asks for, whatever the machine."""
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    return (row.index, row.op, row.module_path, row.state, row.work, sizes)


def _changes(bounds: Iterable[Bound]) -> bool:
    return {Bound.COMPUTE, Bound.MEMORY} <= set(bounds)


def _side(rows: Sequence[OperatorRow]) -> Side:
    times: dict[Bound, float] = {}
    for row in rows:
        times[row.bound] = times.get(row.bound, 0.0) + (row.bound_s or 0.0)
    if not times:
        return Side(bound=Bound.UNKNOWN, whole=True)
    return Side(bound=max(times, key=lambda bound: times[bound]), whole=len(times) == 1)


def _summary(name: str, analysis: Analysis) -> MachineSummary:
    roof = Roof(analysis.hardware, analysis.threads)
    compute = _main_ceiling(analysis, roof)
    memory = roof.levels[-1] if roof.levels else None
    whole = analysis.totals.bound_s

    def share(bound: Bound) -> float | None:
        if whole is None:
            return None
        part = sum(row.bound_s or 0.0 for row in analysis.operators if row.bound is bound)
        # Rounding in a sum must not show as "> 99.9 %".
        return min(1.0, round(part / whole, 12)) if whole else 0.0

    return MachineSummary(
        name=name,
        description=analysis.hardware.description,
        threads=analysis.threads,
        compute=compute,
        memory=memory,
        ridge_flop_per_byte=ridge_flop_per_byte(compute, memory) if compute and memory else None,
        bound_s=whole,
        compute_share=share(Bound.COMPUTE),
        memory_share=share(Bound.MEMORY),
    )


def _main_ceiling(analysis: Analysis, roof: Roof) -> ComputeRoof | None:
    """The ceiling of the data type that most FLOP are in; of a model without FLOP, the highest."""
    flop: dict[DType, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        if of is not None and row.flop:
            flop[of] = flop.get(of, 0) + row.flop
    if not flop:
        return next(iter(roof.units), None)
    return roof.compute(max(flop, key=lambda of: flop[of]))
