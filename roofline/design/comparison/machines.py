"""One model on several machines: which operators are compute-bound here and memory-bound there."""

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
    too_large,
    working,
)
from roofline.analysis.words import headline_subject
from roofline.core.dtypes import DType
from roofline.core.text import counted
from roofline.core.units import format_s
from roofline.design.comparison.cells import CELL_FIELDS, DIGITS, Cell
from roofline.design.comparison.models import origins_of_times
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

Across = tuple[OperatorRow, ...]  # One operator: its row on every machine, in their order


def check(comparison: Comparison) -> None:
    """Refuse what is not one model on several machines."""
    analyses = comparison.analyses
    if len(analyses) < 2:
        raise InputError("a comparison of machines takes at least two")
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
                f"'{each.model}' on {each.hardware.name} is not what '{first.model}' is on"
                f" {first.hardware.name}: analyse one model with one input for all machines"
            )
        for before in analyses[:position]:
            if (before.hardware, before.threads) == (each.hardware, each.threads):
                raise InputError(f"'{each.hardware.name}' is given twice; name it once")


def _identity(row: OperatorRow) -> object:
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    return (row.index, row.op, row.module_path, row.state, row.work, sizes)


# -- operators across machines ---------------------------------------------------------------------


def positions_across(analyses: Sequence[Analysis]) -> tuple[tuple[int, ...], ...]:
    """Return where each operator that all machines call stands in each analysis.

    Operators of two devices are the same where they are of one kind, in one module and phase, and
    in one order.
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
    """Return the operators that all machines call and that are not free, each on every machine."""
    rows = (_across(comparison, each) for each in comparison.places)
    return tuple(across for across in rows if across[0].state is not State.FREE)


def changes_sides(bounds: Iterable[Bound]) -> bool:
    """Whether some of `bounds` are compute and others memory."""
    return {Bound.COMPUTE, Bound.MEMORY} <= set(bounds)


def changing_rows(comparison: Comparison, machine: int) -> tuple[bool, ...]:
    """Return for every row of a machine's analysis whether its operator changes sides."""
    changing = {
        places[machine]
        for places in comparison.places
        if changes_sides(row.bound for row in _across(comparison, places))
    }
    return tuple(i in changing for i in range(len(comparison.analyses[machine].operators)))


class Side(NamedTuple):
    """What most of a time is bound by, and whether that holds for all of it."""

    bound: Bound
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAcross:
    """Operators taken together: what they come to on every machine, and which side they are on.

    Times and shares are by machine, as in `Group`; None where they are unknown.
    """

    operators: tuple[Across, ...]
    groups: tuple[Group, ...]
    sides: tuple[Side, ...]

    @property
    def eager_min_time_s(self) -> tuple[float | None, ...]:
        """Their bound in seconds."""
        return tuple(each.eager_min_time_s for each in self.groups)

    @property
    def fused_min_time_s(self) -> tuple[float | None, ...]:
        """Their fused minimum in seconds."""
        return tuple(each.fused_min_time_s for each in self.groups)

    @property
    def model_min_time_s(self) -> tuple[float | None, ...]:
        """The model minimum in seconds; None of all but the whole pass."""
        return tuple(each.model_min_time_s for each in self.groups)

    @property
    def shares(self) -> tuple[float | None, ...]:
        """Fractions of every machine's bound."""
        return tuple(each.share for each in self.groups)

    @property
    def predicted_s(self) -> tuple[float | None, ...]:
        """Predicted seconds; None where that of an operator is not known."""
        return tuple(each.predicted_s if each.calls else None for each in self.groups)

    @property
    def largest_share(self) -> float:
        """The most of a machine's bound that this takes; 0 where none is known."""
        return max((share for share in self.shares if share is not None), default=0.0)

    @property
    def changes_sides(self) -> bool:
        """Whether it is compute-bound on one machine and memory-bound on another."""
        return changes_sides(side.bound for side in self.sides)


def groups(comparison: Comparison, key: Callable[[Across], Hashable]) -> tuple[GroupAcross, ...]:
    """Return the operators grouped by `key`, the largest share of a bound first."""
    by_key: dict[Hashable, list[Across]] = {}
    for across in comparison.operators:
        by_key.setdefault(key(across), []).append(across)
    found = [together(comparison, each) for each in by_key.values()]

    def order(each: GroupAcross) -> tuple[float, int]:
        return -each.largest_share, -sum(across[0].traffic_bytes for across in each.operators)

    return tuple(sorted(found, key=order))


def together(
    comparison: Comparison,
    across: Sequence[Across],
    rows: Sequence[Sequence[OperatorRow]] | None = None,
) -> GroupAcross:
    """Return operators taken together; `rows` on each machine, None: those of `across`."""
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
        return Side(bound=Bound.UNKNOWN, whole=True)
    return Side(bound=max(times, key=lambda bound: times[bound]), whole=len(times) == 1)


def whole(comparison: Comparison) -> GroupAcross:
    """Return all operators that are not free, also those that not every machine calls."""
    rows = [working(each.operators) for each in comparison.analyses]
    return together(comparison, comparison.operators, rows)


def apart(comparison: Comparison) -> GroupAcross | None:
    """Return what not every machine calls: CPUs and GPUs have some of their own; None: nothing."""
    rows: list[list[OperatorRow]] = []
    for machine, each in enumerate(comparison.analyses):
        shared = {places[machine] for places in comparison.places}
        rows.append([row for row in working(each.operators) if row.index not in shared])
    return together(comparison, (), rows) if any(rows) else None


# -- machines --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSummary(Cell):
    """A machine as the model meets it, and what the model takes there.

    ``compute`` is the highest ceiling of the data type that most of its FLOP are in, ``memory`` the
    farthest level, ``ridge_flop_per_byte`` the intensity at which they meet; None where unknown.
    The shares are fractions of ``eager_min_time_s`` by what binds; None without a bound.
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
    """Return what each machine offers the model, and what the model takes there."""
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
        # Rounding in a sum must not show as "> 99.9 %".
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
    """The ceiling of the data type that most FLOP are in; of a model without FLOP, the highest."""
    flop: dict[DType, int] = {}
    for row in analysis.operators:
        of = arithmetic_dtype((*row.inputs, *row.outputs))
        if of is not None and row.flop:
            flop[of] = flop.get(of, 0) + row.flop
    if not flop:
        return next(iter(roof.units), None)
    return roof.compute(max(flop, key=lambda of: flop[of]))


# -- what is said, and rows ------------------------------------------------------------------------


def summary(comparison: Comparison) -> str:
    """Return what runs, and how many operators change sides."""
    first = comparison.analyses[0]
    state = "in steady state" if first.cache == "steady" else "with cold caches"
    return f"{headline_subject(first)} {state}: {next(sentences(comparison))}"


def sentences(comparison: Comparison) -> Iterator[str]:
    """Yield who changes sides, where it is fastest, and what is predicted where."""
    names, analyses = comparison.machine_names, comparison.analyses
    yield from _changing(names, comparison.operators)
    yield from _bounds(comparison)
    if large := too_large(names, analyses):
        yield f"does not fit on {', '.join(large)}"
    for name, (cell,) in zip(names, comparison.cells, strict=True):
        if cell.predicted_s is not None:
            seconds = (cell.predicted_s, cell.predicted_low_s, cell.predicted_high_s)
            middle, low, high = (format_s(each, DIGITS) for each in seconds)
            yield f"predicted on {name}: {middle} ({low} to {high})"
    yield from origins_of_times(names, analyses, place="on")


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
        rest = f", {unknown} of which one side or more is unknown" if unknown else ""
        yield (
            f"none of {many} changes sides: {compute} compute-bound and {memory} memory-bound on"
            f" {where}{rest}"
        )
        return
    # One way through each pair of machines: compute-bound on the first, not on the second.
    ways: list[tuple[int, int, int]] = []
    for i in range(len(names)):
        for j in range(len(names)):
            crossing = (
                a[i].bound is Bound.COMPUTE and a[j].bound is Bound.MEMORY for a in operators
            )
            ways += [(-sum(crossing), i, j)] if i != j else []
    (most, here, there), (back, *_) = sorted(ways)[:2]
    are = "is" if most == -1 else "are"
    one_way = f"{are} compute-bound on {names[here]} but memory-bound on {names[there]}"
    if len(names) == 2:
        other_way = f", and {-back} the other way round" if back else ""
        yield f"{-most} of {many} {one_way}{other_way}"
        return
    change, each = ("changes", "it") if changing == 1 else ("change", "each")
    yield (
        f"{changing} of {many} {change} sides: {each} is compute-bound on some of the"
        f" {len(names)} machines and memory-bound on others"
    )
    yield f"the farthest apart: {-most} {one_way}"


def _bounds(comparison: Comparison) -> Iterator[str]:
    found = [
        (name, c) for name, (c,) in zip(comparison.machine_names, comparison.cells, strict=True)
    ]
    known = [(c.eager_min_time_s, name) for name, c in found if c.eager_min_time_s and c.can_run]
    if len(known) > 1:
        (least, lowest), (most, highest) = min(known), max(known)
        ratio = f"{most / least:.3g}" if most < 1000 * least else f"{most / least:,.0f}"
        yield (
            f"the bound is lowest on {lowest}, {format_s(least)}; on {highest} it is {ratio} × that"
        )
    elif known and any(cell.fits is False for _, cell in found):
        ((only_s, only),) = known
        fits = "fits" if dict(found)[only].fits else "may fit"
        yield f"the bound is {format_s(only_s)} on {only}, the only one where it {fits}"
    unknown = [name for name, cell in found if cell.eager_min_time_s is None]
    if unknown:
        yield f"no bound on {', '.join(unknown)}: the ceilings are unknown"


def columns(comparison: Comparison) -> dict[str, str]:
    """Return the names of columns with pandas' types."""
    del comparison
    more = dict.fromkeys(("changes_sides", "fits"), "boolean")
    return {"machine": "string", **FRAME_COLUMNS, **more}


def records(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield a row for each machine and operator."""
    names = tuple(columns(comparison))
    for place, name in enumerate(comparison.machine_names):
        each = comparison.analyses[place]
        changing = comparison.changing_rows(place)
        for cells, changes in zip(each.rows(), changing, strict=True):
            yield dict(zip(names, (name, *cells, changes, each.fits), strict=True))
