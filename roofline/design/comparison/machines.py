"""One model on several machines: minimum times, and operators whose limiter changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

from roofline.analysis import (
    FRAME_COLUMNS,
    Analysis,
    Group,
    OperatorRow,
    group_of,
    oversized,
    working,
)
from roofline.analysis.words import headline_subject
from roofline.core.dtypes import DType
from roofline.core.text import counted
from roofline.core.units import format_s
from roofline.design.comparison.cells import CELL_FIELDS, DIGITS, Cell
from roofline.design.comparison.models import time_sources
from roofline.errors import InputError
from roofline.placement import (
    Bound,
    ComputeRoof,
    LevelRoof,
    Roof,
    arithmetic_dtype,
    ridge_flop_per_byte,
)
from roofline.run import Device
from roofline.workload.operators import State

if TYPE_CHECKING:
    from roofline.design.comparison.result import Comparison

Across = tuple[OperatorRow, ...]  # Rows of one operator by machine


def check(comparison: Comparison) -> None:
    """Raise an error unless analyses are of one model on several machines."""
    analyses = comparison.analyses
    if len(analyses) < 2:
        raise InputError("a comparison of machines requires at least two; name another")
    of_devices: dict[Device, Analysis] = {}
    tasks = [(each.model, each.inputs, each.cache) for each in analyses]
    for position, each in enumerate(analyses):
        first = of_devices.setdefault(each.run.device, each)
        is_one_task = tasks[position] == tasks[0]
        if not is_one_task or (
            list(map(_identity, each.operators)) != list(map(_identity, first.operators))
        ):
            first = first if is_one_task else analyses[0]
            raise InputError(
                f"'{each.model}' on {each.hardware.name} and '{first.model}' on"
                f" {first.hardware.name} differ; use one model with one input for all machines"
            )
        for before in analyses[:position]:
            if (before.hardware, before.threads) == (each.hardware, each.threads):
                raise InputError(f"duplicate machine '{each.hardware.name}'; name it once")


def _identity(row: OperatorRow) -> object:
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    return (row.index, row.op, row.module_path, row.state, row.work, sizes)


# -- operators across machines ---------------------------------------------------------------------


def shared_operator_rows(analyses: Sequence[Analysis]) -> tuple[tuple[int, ...], ...]:
    """Return the row of each shared operator in each analysis.

    Operators of different devices match by module, type and phase, in order.
    """
    first, *_ = analyses
    found: dict[Device, dict[int, int]] = {}
    for each in analyses:
        if each.run.device == first.run.device:
            found[each.run.device] = {i: i for i in range(len(first.operators))}
        elif each.run.device not in found:
            found[each.run.device] = _matched(first.operators, each.operators)
    columns = [found[each.run.device] for each in analyses]
    return tuple(
        tuple(column[i] for column in columns)
        for i in range(len(first.operators))
        if all(i in column for column in columns)
    )


def _matched(rows: Sequence[OperatorRow], others: Sequence[OperatorRow]) -> dict[int, int]:
    here, there = sides = working(rows), working(others)
    one, other = ([(row.module_path, row.type, row.phase) for row in each] for each in sides)
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    pairs = ((each.a + i, each.b + i) for each in blocks for i in range(each.size))
    return {here[a].index: there[b].index for a, b in pairs}


def _across(comparison: Comparison, places: tuple[int, ...]) -> Across:
    pairs = zip(comparison.analyses, places, strict=True)
    return tuple(analysis.operators[place] for analysis, place in pairs)


def operators(comparison: Comparison) -> tuple[Across, ...]:
    """Return the rows of shared operators that are not free, by machine."""
    rows = (_across(comparison, each) for each in comparison.places)
    return tuple(across for across in rows if across[0].state is not State.FREE)


def changes_sides(bounds: Iterable[Bound]) -> bool:
    """Return True if `bounds` has both compute and memory."""
    return {Bound.COMPUTE, Bound.MEMORY} <= set(bounds)


def changing_rows(comparison: Comparison, machine: int) -> tuple[bool, ...]:
    """Return True for each row of a machine's analysis whose limiter changes between machines."""
    changing = {
        places[machine]
        for places in comparison.places
        if changes_sides(row.bound for row in _across(comparison, places))
    }
    return tuple(i in changing for i in range(len(comparison.analyses[machine].operators)))


class Side(NamedTuple):
    """Limiter of most of a time; ``is_sole``: of all of it."""

    bound: Bound
    is_sole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAcross:
    """Group of operators with sums and limiters by machine, as in `Group`; None if unknown."""

    operators: tuple[Across, ...]
    groups: tuple[Group, ...]
    sides: tuple[Side, ...]

    @property
    def eager_min_time_s(self) -> tuple[float | None, ...]:
        """Eager minimum times in seconds."""
        return tuple(each.eager_min_time_s for each in self.groups)

    @property
    def fused_min_time_s(self) -> tuple[float | None, ...]:
        """Fused minimum times in seconds."""
        return tuple(each.fused_min_time_s for each in self.groups)

    @property
    def model_min_time_s(self) -> tuple[float | None, ...]:
        """Model minimum times in seconds; known for the whole pass only."""
        return tuple(each.model_min_time_s for each in self.groups)

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Shares of each machine's eager minimum time."""
        return tuple(each.share for each in self.groups)

    @property
    def predicted_s(self) -> tuple[float | None, ...]:
        """Predicted times in seconds; None if that of an operator is unknown."""
        return tuple(each.predicted_s if each.calls else None for each in self.groups)

    @property
    def largest_share(self) -> float:
        """Largest share of a machine's eager minimum time; 0 if unknown."""
        return max((share for share in self.shares if share is not None), default=0.0)

    @property
    def changes_sides(self) -> bool:
        """True if compute-bound on one machine and memory-bound on another."""
        return changes_sides(side.bound for side in self.sides)


def groups(comparison: Comparison, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
    """Return the operators grouped by `key`, by largest share of minimum time."""
    by_key: dict[Hashable, list[Across]] = {}
    for across in comparison.operators:
        by_key.setdefault(key(across), []).append(across)
    found = [combine_operators(comparison, each) for each in by_key.values()]

    def order(each: GroupAcross) -> tuple[float, int]:
        return -each.largest_share, -sum(across[0].traffic_bytes for across in each.operators)

    return tuple(sorted(found, key=order))


def combine_operators(
    comparison: Comparison,
    across: Sequence[Across],
    rows: Sequence[Sequence[OperatorRow]] | None = None,
) -> GroupAcross:
    """Return the group of operators; `rows` by machine, None: those of `across`."""
    found = rows or list(zip(*across, strict=True)) or [()] * len(comparison.analyses)
    of_passes = zip(found, comparison.wholes, strict=True)
    return GroupAcross(
        operators=tuple(across),
        groups=tuple(group_of("", each, whole) for each, whole in of_passes),
        sides=tuple(map(_side, found)),
    )


def _side(rows: Sequence[OperatorRow]) -> Side:
    times: dict[Bound, float] = {}
    for row in rows:
        times[row.bound] = times.get(row.bound, 0.0) + (row.eager_min_time_s or 0.0)
    if not times:
        return Side(bound=Bound.UNKNOWN, is_sole=True)
    return Side(bound=max(times, key=lambda bound: times[bound]), is_sole=len(times) == 1)


def all_operators(comparison: Comparison) -> GroupAcross:
    """Return the group of all operators that are not free, shared or not."""
    rows = [working(each.operators) for each in comparison.analyses]
    return combine_operators(comparison, comparison.operators, rows)


def unshared_operators(comparison: Comparison) -> GroupAcross | None:
    """Return the group of operators that not all machines call; None without any."""
    rows: list[list[OperatorRow]] = []
    for machine, each in enumerate(comparison.analyses):
        shared = {places[machine] for places in comparison.places}
        rows.append([row for row in working(each.operators) if row.index not in shared])
    return combine_operators(comparison, (), rows) if any(rows) else None


# -- machines --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSummary(Cell):
    """Ceilings and limiters of a machine for a model.

    ``compute`` is the ceiling of the data type of most FLOP, ``memory`` the farthest level,
    ``ridge_flop_per_byte`` their ridge point; None if unknown. Shares are those of
    ``eager_min_time_s`` by limiter; None without ceilings.
    """

    name: str
    description: str
    device: str
    threads: int
    compute: ComputeRoof | None
    memory: LevelRoof | None
    ridge_flop_per_byte: float | None
    compute_share: float | None
    memory_share: float | None


def summaries(comparison: Comparison) -> tuple[MachineSummary, ...]:
    """Return a summary per machine."""
    names = zip(comparison.machine_names, comparison.analyses, comparison.cells, strict=True)
    return tuple(_summary(name, analysis, cell) for name, analysis, (cell,) in names)


def _summary(name: str, analysis: Analysis, cell: Cell) -> MachineSummary:
    roof = Roof(analysis.hardware, analysis.threads)
    compute = _main_ceiling(analysis, roof)
    memory = roof.levels[-1] if roof.levels else None

    def share(bound: Bound) -> float | None:
        if not cell.eager_min_time_s:
            return cell.eager_min_time_s
        part = sum(row.eager_min_time_s or 0.0 for row in analysis.operators if row.bound is bound)
        # Rounding of sums must not show as "> 99.9 %".
        return min(1.0, round(part / cell.eager_min_time_s, 12))

    return MachineSummary(
        **{each: getattr(cell, each) for each in CELL_FIELDS},
        name=name,
        description=analysis.hardware.description,
        device=analysis.hardware.device,
        threads=analysis.threads,
        compute=compute,
        memory=memory,
        ridge_flop_per_byte=ridge_flop_per_byte(compute, memory) if compute and memory else None,
        compute_share=share(Bound.COMPUTE),
        memory_share=share(Bound.MEMORY),
    )


def _main_ceiling(analysis: Analysis, roof: Roof) -> ComputeRoof | None:
    """Return the ceiling of the data type of most FLOP, or the highest without FLOP."""
    flop: dict[DType, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        if of is not None and row.flop:
            flop[of] = flop.get(of, 0) + row.flop
    if not flop:
        return next(iter(roof.units), None)
    return roof.compute(max(flop, key=lambda of: flop[of]))


# -- sentences and rows ----------------------------------------------------------------------------


def summary(comparison: Comparison) -> str:
    """Return the verdict: number of operators whose limiter changes."""
    first = comparison.analyses[0]
    state = "" if first.cache == "steady" else " (cold caches)"
    return f"{headline_subject(first)}{state}: {next(sentences(comparison))}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """Yield changes of limiters, minimum times, and predictions by machine."""
    names, analyses = comparison.machine_names, comparison.analyses
    yield from _changing(names, comparison.operators)
    yield from _bounds(comparison)
    if large := oversized(names, analyses):
        yield f"does not fit on {', '.join(large)}"
    for name, (cell,) in zip(names, comparison.cells, strict=True):
        if cell.predicted_s is not None:
            seconds = (cell.predicted_s, cell.predicted_low_s, cell.predicted_high_s)
            middle, low, high = (format_s(each, DIGITS) for each in seconds)
            yield f"predicted on {name}: {middle} ({low} to {high})"
    yield from time_sources(names, analyses, place="on")


def _changing(names: Sequence[str], operators: Sequence[Across]) -> Iterator[str]:
    changing = sum(changes_sides(row.bound for row in across) for across in operators)
    many = counted(len(operators), "operator")
    where = "both machines" if len(names) == 2 else f"all {len(names)} machines"
    if not changing:
        compute, memory = (
            sum(all(row.bound is bound for row in across) for across in operators)
            for bound in (Bound.COMPUTE, Bound.MEMORY)
        )
        unknown = len(operators) - compute - memory
        rest = f", {unknown} with an unknown limiter" if unknown else ""
        yield (
            f"{many} with the same limiter on {where}: {compute} compute-bound, {memory}"
            f" memory-bound{rest}"
        )
        return
    # For each pair of machines: compute-bound on the first, memory-bound on the second.
    ways: list[tuple[int, int, int]] = []
    for i in range(len(names)):
        for j in range(len(names)):
            crossing = (
                a[i].bound is Bound.COMPUTE and a[j].bound is Bound.MEMORY for a in operators
            )
            ways += [(-sum(crossing), i, j)] if i != j else []
    (most, here, there), (back, *_) = sorted(ways)[:2]
    are = "is" if most == -1 else "are"
    one_way = f"{are} compute-bound on {names[here]} and memory-bound on {names[there]}"
    if len(names) == 2:
        other_way = f", {-back} vice versa" if back else ""
        yield f"{-most} of {many} {one_way}{other_way}"
        return
    limiters = "changes its limiter" if changing == 1 else "change their limiter"
    yield f"{changing} of {many} {limiters} between {len(names)} machines"
    yield f"largest contrast: {-most} {one_way}"


def _bounds(comparison: Comparison) -> Iterator[str]:
    found = [
        (name, c) for name, (c,) in zip(comparison.machine_names, comparison.cells, strict=True)
    ]
    known = [(c.eager_min_time_s, name) for name, c in found if c.eager_min_time_s and c.can_run]
    if len(known) > 1:
        (least, lowest), (most, highest) = min(known), max(known)
        ratio = f"{most / least:.3g}" if most < 1000 * least else f"{most / least:,.0f}"
        yield (
            f"minimum time (eager) {format_s(least)} on {lowest} (lowest), {ratio}× longer on"
            f" {highest}"
        )
    elif known and any(cell.fits is False for _, cell in found):
        ((only_s, only),) = known
        fits = "fits" if dict(found)[only].fits else "may fit"
        yield f"minimum time (eager) {format_s(only_s)} on {only}, the only machine where it {fits}"
    unknown = [name for name, cell in found if cell.eager_min_time_s is None]
    if unknown:
        yield f"minimum time unknown on {', '.join(unknown)} (no ceilings)"


def columns(comparison: Comparison) -> dict[str, str]:
    """Return column names with pandas' types."""
    del comparison
    more = dict.fromkeys(("changes_sides", "fits"), "boolean")
    return {"machine": "string", **FRAME_COLUMNS, **more}


def records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield a row per machine and operator."""
    names = tuple(columns(comparison))
    for place, name in enumerate(comparison.machine_names):
        each = comparison.analyses[place]
        changing = comparison.changing_rows(place)
        for cells, changes in zip(each.rows(), changing, strict=True):
            yield dict(zip(names, (name, *cells, changes, each.fits), strict=True))
