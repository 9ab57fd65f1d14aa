"""The result of an analysis: the one immutable value that tables, pictures and files show."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.foundation import reading, schema
from roofline.foundation.units import format_byte, format_flop, format_s
from roofline.machine.hardware import HardwareProfile, describe_threads, migrated_profile
from roofline.placement import Bound, ComputeRoof, LevelRoof, Pass, Placement
from roofline.workload.operators import Phase, State
from roofline.workload.tensors import InputSpec, TensorSpec
from roofline.workload.work import FLOP_PER_FMA, Work, traffic_of

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2
"""Of saved analyses: older ones are migrated, newer ones refused (docs/file-formats.md)."""

_STEPS: Mapping[int, schema.Step] = {
    # Version 2 embeds hardware of version 2, which has a version and steps of its own.
    1: lambda analysis: analysis,
}

_FIX = "make it anew with `roofline analyze MODEL -o FILE.json`"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One operator: what it asks for, where it stands under the roof, and how long it takes.

    The work fields are those of `Work` and null where unknown; the placement fields those of
    `Placement`. ``level_byte`` are the bytes that must come from each memory level;
    ``intensity_flop_per_byte`` is FLOP per byte crossing the binding level, the x of its point.
    Predictions and measurements are null where there are none.

    Raises:
        ValueError: a negative or infinite number, a sum that is none, or a state that contradicts
            what is known.
    """

    index: int
    op: str
    type: str
    module_path: str
    phase: Phase
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: State
    formula: str = ""
    flop: int | None
    multiply_add: int | None
    least_flop: int | None
    parameter_byte: int
    input_byte: int
    output_byte: int
    gradient_byte: int
    optimizer_byte: int
    traffic_byte: int
    level_byte: Mapping[str, int] = field(default_factory=dict[str, int])
    intensity_flop_per_byte: float | None
    level: str
    ceiling: str
    attainable_flop_per_s: float | None
    bound: Bound
    bound_s: float | None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    prediction_source: str | None = None
    measured_s: float | None = None
    measured_iqr_s: float | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, _NUMBERS_OF_ROW)
        _check_interval(self)
        if self.level_byte and min(self.level_byte.values()) < 0:
            raise ValueError(f"level_byte must not be negative, got {dict(self.level_byte)}")
        unknown = (self.flop is None, self.multiply_add is None, self.least_flop is None)
        if any(unknown) != all(unknown):
            raise ValueError("flop, multiply_add and least_flop must be known or null together")
        if (self.state is State.UNKNOWN) != all(unknown):
            raise ValueError(f"state is '{self.state}', but flop is {self.flop}")
        if (self.state is State.FREE) != (self.bound is Bound.FREE):
            raise ValueError(f"state is '{self.state}', but bound is '{self.bound}'")
        if self.bound_s is None and self.bound is not Bound.UNKNOWN:
            raise ValueError(f"bound is '{self.bound}', but bound_s is null")
        traffic_byte = self.work.traffic_byte
        if self.traffic_byte != traffic_byte:
            raise ValueError(
                f"traffic_byte is {self.traffic_byte}, but its parts add up to {traffic_byte}"
            )

    @property
    def work(self) -> Work:
        """The row's work, which adds up."""
        return Work(
            flop=self.flop,
            multiply_add=self.multiply_add,
            least_flop=self.least_flop,
            parameter_byte=self.parameter_byte,
            input_byte=self.input_byte,
            output_byte=self.output_byte,
            gradient_byte=self.gradient_byte,
            optimizer_byte=self.optimizer_byte,
        )


def _names_of_numbers(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass that hold a number, or null."""
    kinds = ("int", "float", "int | None", "float | None")
    return tuple(each.name for each in fields(cls) if each.type in kinds)


_NUMBERS_OF_ROW = _names_of_numbers(OperatorRow)
_BYTE_FIELDS = tuple(each.name for each in fields(Work) if each.name.endswith("_byte"))


def _check_numbers(instance: object, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(instance, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number from 0, got {value}")


def _check_interval(instance: OperatorRow | Totals) -> None:
    low, middle, high = instance.predicted_low_s, instance.predicted_s, instance.predicted_high_s
    if low is None and high is None:
        return
    if low is None or middle is None or high is None or not low <= middle <= high:
        raise ValueError(f"predicted_s is {middle}, not between {low} and {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The fraction of calls, bytes and time whose FLOP is known; free operators are left out.

    ``time`` is null until operators were measured. A fraction of nothing is 1.

    Raises:
        ValueError: what is not from 0 to 1.
    """

    calls: float
    byte: float
    time: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("byte", self.byte), ("time", self.time)):
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be a fraction from 0 to 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the operators, and what the model takes in memory.

    ``flop``, ``multiply_add`` and ``least_flop`` are sums over the operators whose FLOP is known
    (``unknown_operators`` calls are not in them). ``parameters`` counts elements, each storage
    once, ``parameter_bytes`` and ``buffer_bytes`` their bytes; ``peak_memory_byte`` is the most
    that is alive at once (parameters, buffers, inputs and activations from creation to release),
    ``all_tensors_byte`` the sum of them all, as if nothing were freed. ``bound_s`` is the sum of
    the operators' bounds, null where the hardware has no ceilings.

    Raises:
        ValueError: a negative or infinite number.
    """

    flop: int
    multiply_add: int
    least_flop: int
    unknown_operators: int
    parameter_byte: int
    input_byte: int
    output_byte: int
    gradient_byte: int
    optimizer_byte: int
    traffic_byte: int
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    peak_memory_byte: int
    all_tensors_byte: int
    bound_s: float | None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    measured_s: float | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, _NUMBERS_OF_TOTALS)
        _check_interval(self)

    @property
    def intensity_flop_per_byte(self) -> float | None:
        """FLOP per byte of traffic; None where an operator's FLOP is unknown or nothing moves."""
        if self.unknown_operators or not self.traffic_byte:
            return None
        return self.flop / self.traffic_byte


_NUMBERS_OF_TOTALS = _names_of_numbers(Totals)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Analysis:
    """A model's operators under a machine's ceilings.

    ``threads`` is how many threads the bounds are for; ``cache`` says which of two consecutive
    passes they describe: ``steady`` (caches hold what the pass before left) or ``cold``.

    Raises:
        ValueError: another version than `SCHEMA_VERSION`.
    """

    schema_version: int = SCHEMA_VERSION
    model: str
    inputs: tuple[InputSpec, ...]
    threads: int
    cache: Pass = "steady"
    hardware: HardwareProfile
    coverage: Coverage
    totals: Totals
    operators: tuple[OperatorRow, ...]
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # What is in memory is of the newest version, and so is all that is written.
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version must be {SCHEMA_VERSION}, got {self.schema_version}")

    def __repr__(self) -> str:
        at_least = "≥ " if self.totals.unknown_operators else ""
        return (
            f"<Analysis of {self.model} on {self.hardware.name},"
            f" {describe_threads(self.hardware, self.threads)}:"
            f" {at_least}{format_flop(self.totals.flop)}, {format_byte(self.totals.traffic_byte)},"
            f" bound {format_s(self.totals.bound_s)}>"
        )

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator, units in the column names; what is unknown is missing, never 0."""
        import pandas

        columns: dict[str, Any] = {}
        for name, kind in FRAME_COLUMNS.items():
            values = [getattr(row, name) for row in self.operators]
            columns[name] = pandas.Series(values, dtype=kind)  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]  nullable types by name
        return pandas.DataFrame(columns)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the analysis to a file whose suffix says how: .json .csv .md .png .svg.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.output import write

        write(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """The roofline picture as a matplotlib Figure; the options are those of `roofline.plot`."""
        from roofline.presentation.figure import plot

        return plot(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.page import analysis_html

        return analysis_html(self)


FRAME_COLUMNS = {
    "index": "Int64",
    "op": "string",
    "module_path": "string",
    "phase": "string",
    "flop": "Int64",
    "multiply_add": "Int64",
    "parameter_byte": "Int64",
    "input_byte": "Int64",
    "output_byte": "Int64",
    "traffic_byte": "Int64",
    "intensity_flop_per_byte": "Float64",
    "level": "string",
    "ceiling": "string",
    "bound": "string",
    "bound_s": "Float64",
    "type": "string",
    "state": "string",
    "least_flop": "Int64",
    "attainable_flop_per_s": "Float64",
    "predicted_s": "Float64",
    "predicted_low_s": "Float64",
    "predicted_high_s": "Float64",
    "prediction_source": "string",
    "measured_s": "Float64",
    "measured_iqr_s": "Float64",
}
"""The columns of `Analysis.to_frame` and of CSV files, with pandas' nullable types."""


def row_of(placement: Placement) -> OperatorRow:
    """The row of a placed operator."""
    record, work = placement.record, placement.record.work
    return OperatorRow(
        index=record.index,
        op=record.op,
        type=record.type,
        module_path=record.module_path,
        phase=record.phase,
        inputs=record.inputs,
        outputs=record.outputs,
        attributes=record.attributes,
        state=record.state,
        formula=record.formula,
        flop=work.flop,
        multiply_add=work.multiply_add,
        least_flop=work.least_flop,
        parameter_byte=work.parameter_byte,
        input_byte=work.input_byte,
        output_byte=work.output_byte,
        gradient_byte=work.gradient_byte,
        optimizer_byte=work.optimizer_byte,
        traffic_byte=work.traffic_byte,
        level_byte=placement.level_byte,
        intensity_flop_per_byte=placement.intensity_flop_per_byte,
        level=placement.level,
        ceiling=placement.ceiling,
        attainable_flop_per_s=placement.attainable_flop_per_s,
        bound=placement.bound,
        bound_s=placement.bound_s,
    )


def coverage_of(rows: Sequence[OperatorRow]) -> Coverage:
    """How much of the operators that do something has known FLOP."""
    working = [row for row in rows if row.state is not State.FREE]
    known = [row for row in working if row.state is State.COUNTED]
    timed = [row for row in working if row.measured_s is not None]

    def fraction(part: float, whole: float) -> float:
        return part / whole if whole else 1.0

    return Coverage(
        calls=fraction(len(known), len(working)),
        byte=fraction(sum(r.traffic_byte for r in known), sum(r.traffic_byte for r in working)),
        time=fraction(
            sum(row.measured_s or 0.0 for row in timed if row.state is State.COUNTED),
            sum(row.measured_s or 0.0 for row in timed),
        )
        if timed and len(timed) == len(working)
        else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operators taken together: their calls, work and bound.

    ``work`` sums the operators of known FLOP and the bytes of all; ``unknown_operators`` calls have
    no known FLOP. ``bound_s`` is None where the hardware has no ceilings, ``share`` is its part of
    the whole.
    """

    name: str
    calls: int
    work: Work
    unknown_operators: int
    bound_s: float | None
    share: float | None


def known_work(rows: Iterable[OperatorRow]) -> Work:
    """The work of `rows`, with FLOP summed over those whose FLOP is known and bytes over all."""
    total = Work()
    for row in rows:
        work = row.work
        if work.flop is None:
            work = replace(work, flop=0, multiply_add=0, least_flop=0)
        total += work
    return total


def sum_bound_s(rows: Iterable[OperatorRow]) -> float | None:
    """The sum of the bounds in seconds; None if one of them is unknown."""
    bounds = [row.bound_s for row in rows]
    known = [bound for bound in bounds if bound is not None]
    return sum(known) if len(known) == len(bounds) else None


def groups(analysis: Analysis, key: Callable[[OperatorRow], str]) -> tuple[Group, ...]:
    """The operators that are not free, grouped by `key`, longest bound first."""
    by_name: dict[str, list[OperatorRow]] = {}
    for row in analysis.operators:
        if row.state is not State.FREE:
            by_name.setdefault(key(row), []).append(row)
    whole = analysis.totals.bound_s
    found: list[Group] = []
    for name, rows in by_name.items():
        bound_s = sum_bound_s(rows)
        found.append(
            Group(
                name=name,
                calls=len(rows),
                work=known_work(rows),
                unknown_operators=sum(row.state is State.UNKNOWN for row in rows),
                bound_s=bound_s,
                share=bound_s / whole if bound_s is not None and whole else None,
            )
        )
    return tuple(sorted(found, key=lambda each: (-(each.bound_s or 0.0), -each.work.traffic_byte)))


def to_json(analysis: Analysis) -> str:
    """The analysis as JSON text; `read_analysis` gives an equal one back."""
    return json.dumps(schema.to_data(analysis), indent=1, allow_nan=False) + "\n"


def read_analysis(path: str | Path) -> Analysis:
    """The analysis saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, newer, or in contradiction to itself.
    """
    return analysis_from_data(reading.read_json(Path(path), fix=_FIX), file=str(path))


def analysis_from_data(data: Any, *, file: str) -> Analysis:
    """The analysis in plain data, as its JSON holds it.

    Raises:
        FileFormatError: as `read_analysis`; what is shown of a file must follow from its rows.
    """
    if isinstance(data, dict) and "analyses" in data:
        raise reading.refused(file, "holds several analyses, where one is expected", _FIX)
    newest = schema.migrated(data, _STEPS, newest=SCHEMA_VERSION, file=file, fix=_FIX)
    if isinstance(newest.get("hardware"), dict):
        hardware = migrated_profile(newest["hardware"], file=f"{file}: hardware", fix=_FIX)
        newest = {**newest, "hardware": hardware}
    analysis = schema.from_data(Analysis, newest, file=file, fix=_FIX)
    for contradiction in _contradictions(analysis):
        raise reading.refused(file, f"{contradiction}: the file was changed or cut", _FIX)
    return analysis


def _contradictions(analysis: Analysis) -> Iterable[str]:
    """What in an analysis does not follow from its operators and its hardware, in words."""
    hardware = analysis.hardware
    if not 1 <= analysis.threads <= hardware.threads:
        yield f"threads is {analysis.threads}, but the hardware has {hardware.threads}"
    for name, expected in _sums(analysis.operators).items():
        value = getattr(analysis.totals, name)
        if not _is_same(value, expected):
            yield f"totals.{name} is {value}, but the operators add up to {expected}"
    coverage = coverage_of(analysis.operators)
    for name in (each.name for each in fields(Coverage)):
        value, expected = getattr(analysis.coverage, name), getattr(coverage, name)
        if not _is_same(value, expected):
            yield f"coverage.{name} is {value}, but that of the operators is {expected}"
    totals = analysis.totals
    kept_byte = totals.parameter_bytes + totals.buffer_bytes
    if not kept_byte <= totals.peak_memory_byte <= totals.all_tensors_byte:
        yield (
            f"totals.peak_memory_byte is {totals.peak_memory_byte}, not between the {kept_byte} of"
            f" parameters and buffers and the {totals.all_tensors_byte} of all tensors"
        )
    labels = _CeilingLabels.of(hardware)
    for position, row in enumerate(analysis.operators):
        if row.index != position:
            yield f"operators[{position}]: index is {row.index}, but its place is {position}"
        for contradiction in _contradictions_of_row(row, labels):
            yield f"operators[{position}]: {contradiction}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CeilingLabels:
    """What a row may call its ceiling: by memory level, and of compute."""

    memory: Mapping[str, Collection[str]]
    compute: Collection[str]

    @classmethod
    def of(cls, hardware: HardwareProfile) -> _CeilingLabels:
        return cls(
            memory={
                level.name: {
                    LevelRoof(level=level, kernel=each.kernel, byte_per_s=1.0).label
                    for each in level.bandwidth
                }
                for level in hardware.memory
            },
            compute={
                ComputeRoof(
                    dtype=each.dtype, unit=each.unit, kernel=each.kernel, flop_per_s=1.0
                ).label
                for each in hardware.compute
                if each.kind == "hardware"
            },
        )


def _contradictions_of_row(row: OperatorRow, labels: _CeilingLabels) -> Iterable[str]:
    yield from _contradictions_of_work(row)
    if row.state is not State.FREE:
        yield from _contradictions_of_place(row, labels)
    elif row.work != Work() or row.level_byte or row.level or row.ceiling or row.bound_s:
        yield "state is 'free', but it takes something"
    crossing = row.level_byte.get(row.level, 0)
    intensity = row.flop / crossing if row.flop is not None and crossing else None
    if not _is_same(row.intensity_flop_per_byte, intensity):
        yield (
            f"intensity_flop_per_byte is {row.intensity_flop_per_byte},"
            f" but flop over bytes of '{row.level}' is {intensity}"
        )
    rate = row.flop / row.bound_s if row.flop is not None and row.bound_s else None
    attainable = row.attainable_flop_per_s
    if (attainable is None) != (rate is None) or (attainable or 0) > (rate or 0) * (1 + _ROUNDING):
        yield f"attainable_flop_per_s is {attainable}, but flop over bound_s is {rate}"


def _contradictions_of_place(row: OperatorRow, labels: _CeilingLabels) -> Iterable[str]:
    levels = labels.memory
    for name in (*row.level_byte, *([row.level] if row.level else [])):
        if name not in levels:
            yield f"memory level '{name}' is not in the hardware ({', '.join(levels) or 'none'})"
    byte = [row.traffic_byte, *(row.level_byte.get(name, -1) for name in levels)]
    if min(byte) < 0 or byte != sorted(byte, reverse=True):
        yield (
            f"level_byte is {dict(row.level_byte)}, but of {row.traffic_byte} bytes no more come"
            f" from a farther level than from a nearer ({', '.join(levels)})"
        )
    if bool(levels) != bool(row.level):
        yield f"level is '{row.level}', but the hardware has {', '.join(levels) or 'none'}"
    is_known = row.state is State.COUNTED and row.bound_s is not None
    if is_known != (row.bound in (Bound.MEMORY, Bound.COMPUTE)):
        yield f"state is '{row.state}' and bound_s {row.bound_s}, but bound is '{row.bound}'"
    of_level = levels.get(row.level, ("",))
    if row.ceiling not in (labels.compute if row.bound is Bound.COMPUTE else of_level):
        yield f"ceiling is '{row.ceiling}', but bound is '{row.bound}' and level '{row.level}'"


def _contradictions_of_work(row: OperatorRow) -> Iterable[str]:
    if row.flop is not None and row.flop < FLOP_PER_FMA * (row.multiply_add or 0):
        yield f"flop is {row.flop}, but each of {row.multiply_add} multiply_add counts for two"
    if row.flop is not None and row.flop < (row.least_flop or 0):
        yield f"flop is {row.flop}, but least_flop is {row.least_flop}"
    if row.measured_iqr_s is not None and row.measured_s is None:
        yield f"measured_iqr_s is {row.measured_iqr_s}, but measured_s is null"
    if not row.op.isprintable() or not row.op.strip():
        yield f"op is {row.op!r}, which is no operator's name"
    parts = Work() if row.state is State.FREE else Work(**traffic_of(row.inputs, row.outputs))
    for name in _BYTE_FIELDS:
        value, expected = getattr(row, name), getattr(parts, name)
        if value != expected:
            yield f"{name} is {value}, but its tensors have {expected}"
    for spec in (*row.inputs, *row.outputs):
        least = spec.distinct_elements if spec.least_elements is None else spec.least_elements
        if not least <= spec.distinct_elements <= spec.elements:
            yield (
                f"a tensor of {spec.elements} elements has {spec.distinct_elements} distinct ones,"
                f" of which {least} are touched"
            )


def _sums(rows: Sequence[OperatorRow]) -> dict[str, float | None]:
    """What totals must be, by name."""
    work = known_work(rows)
    working = [row for row in rows if row.state is not State.FREE]

    def together(times: list[float | None]) -> float | None:
        known = [time for time in times if time is not None]
        return sum(known) if known and len(known) == len(times) else None

    return {
        **{each.name: getattr(work, each.name) for each in fields(Work)},
        "traffic_byte": work.traffic_byte,
        "unknown_operators": sum(row.state is State.UNKNOWN for row in rows),
        "bound_s": sum_bound_s(rows),
        "predicted_s": together([row.predicted_s for row in working]),
        "measured_s": together([row.measured_s for row in working]),
    }


_ROUNDING = 1e-9
"""How far sums of the same numbers may lie apart: they may have been added in another order."""


def _is_same(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    if isinstance(value, int) and isinstance(expected, int):
        return value == expected
    return math.isclose(value, expected, rel_tol=_ROUNDING)
