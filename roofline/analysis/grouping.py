"""Groups of operators by type, phase, limiter or module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Literal

from roofline.analysis.result import Analysis
from roofline.analysis.rows import (
    MinTimes,
    OperatorRow,
    Totals,
    known_work,
    minimum_times_of,
    sum_eager_min_time_s,
    sum_fused_bytes,
)
from roofline.core.sampling import interval_cell
from roofline.core.units import format_bytes, format_intensity, format_s, sum_known
from roofline.workload.operators import Module, State
from roofline.workload.work import Work

GroupTime = Callable[["Group"], float | None]
"""Time of a group that counts, in seconds; None: unknown."""

BOUND: GroupTime = attrgetter("eager_min_time_s")
"""Eager minimum time; known on every machine with ceilings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of operators: calls, work and times.

    ``work`` sums FLOP of the operators with a formula and the bytes of all; ``unknown_operators``
    calls have no formula. ``fused_bytes`` is the traffic after operator fusion. ``share`` is the
    part of the eager minimum time of the pass. ``fused_min_time_s`` is None if a fused kernel spans
    several groups, ``model_min_time_s`` for everything but the whole pass. ``predicted_s`` and
    ``measured_s`` are None if one of the operators has none.
    """

    name: str
    rows: Sequence[OperatorRow] = field(repr=False)
    work: Work
    unknown_operators: int
    fused_bytes: int | None
    eager_min_time_s: float | None
    share: float | None
    fused_min_time_s: float | None
    model_min_time_s: float | None
    predicted_s: float | None = None
    measured_s: float | None = None

    @property
    def calls(self) -> int:
        """Number of operator calls."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The pass that groups belong to; ``kernels`` counts operators by fused kernel."""

    totals: Totals
    calls: int
    kernels: Mapping[int | None, int]

    @classmethod
    def of(cls, analysis: Analysis) -> Whole:
        """Return the pass of an analysis."""
        rows = working(analysis.operators)
        kernels = Counter(row.chain for row in rows)
        return cls(totals=analysis.totals, calls=len(rows), kernels=kernels)


def group_of(name: str, rows: Sequence[OperatorRow], whole: Whole) -> Group:
    """Return a group of operators of a pass, none of them free."""
    eager_min_time_s, whole_s = sum_eager_min_time_s(rows), whole.totals.eager_min_time_s
    minimum: Totals | MinTimes = whole.totals
    if len(rows) != whole.calls:
        fused_s = None
        kernels = Counter(row.chain for row in rows)
        are_inside = all(whole.kernels[chain] == calls for chain, calls in kernels.items())
        is_known = whole.totals.fused_min_time_s is not None
        if is_known and eager_min_time_s is not None and are_inside:
            # At most the sum of the operators, as for the pass.
            fused_s = min(eager_min_time_s, sum(row.fused_min_time_s or 0.0 for row in rows))
        minimum = MinTimes(eager_min_time_s=eager_min_time_s, fused_min_time_s=fused_s)
    return Group(
        name=name,
        rows=rows,
        work=known_work(rows),
        unknown_operators=sum(row.state is State.UNKNOWN for row in rows),
        fused_bytes=sum_fused_bytes(rows) if rows else 0,
        share=eager_min_time_s / whole_s if eager_min_time_s is not None and whole_s else None,
        **minimum_times_of(minimum),
        predicted_s=sum_known([row.predicted_s for row in rows]),
        measured_s=sum_known([row.measured_s for row in rows]),
    )


def working(rows: Iterable[OperatorRow]) -> list[OperatorRow]:
    """Return the operators that are not free."""
    return [row for row in rows if row.state is not State.FREE]


def groups(
    analysis: Analysis, key: Callable[[OperatorRow], str], *, time_s: GroupTime = BOUND
) -> tuple[Group, ...]:
    """Return groups of the operators that are not free, longest `time_s` first."""
    by_name: dict[str, list[OperatorRow]] = {}
    for row in working(analysis.operators):
        by_name.setdefault(key(row), []).append(row)
    whole = Whole.of(analysis)
    found = [group_of(name, rows, whole) for name, rows in by_name.items()]
    return tuple(sorted(found, key=lambda group: sort_key(group, time_s)))


def sort_key(group: Group, time_s: GroupTime) -> tuple[float, int]:
    """Return the sort key of groups: longest time first, then most traffic."""
    return (-(time_s(group) or 0.0), -group.work.traffic_bytes)


Part = Literal["whole", "own", "rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A row of the tree of modules.

    ``part``: ``whole`` (a module with its submodules), ``own`` (a module without the submodules
    shown below it), or ``rest`` (modules left out). ``is_open``: rows of its parts follow.
    ``depth`` is 0 for the model.
    """

    path: str
    depth: int
    part: Part
    is_open: bool
    kind: str
    calls: int | None
    parameters: int | None
    group: Group


def module_tree(
    analysis: Analysis,
    *,
    depth: int | None = None,
    top: int | None = None,
    time_s: GroupTime = BOUND,
    collapse: bool = False,
) -> tuple[Branch, ...]:
    """Return modules down to `depth`, each before its submodules, in order of first calls.

    A row has the operators of a module and its submodules; rows that are not open add up to it. A
    shared module stands at its first name. Backward and optimizer operators belong to the module of
    their forward pass. Modules without operators and parameters are left out.

    Args:
        analysis: the analysis.
        depth: levels of the tree; None: all.
        top: number of submodules per module, longest first; None: all.
        time_s: time that sorts them.
        collapse: merge runs of equal numbered blocks.
    """
    whole, at_work = Whole.of(analysis), working(analysis.operators)
    is_predicted = any(row.predicted_s is not None for row in at_work)
    is_measured = any(row.measured_s is not None for row in at_work)
    root = _Node("", 0)

    def node_at(path: str) -> _Node:
        # Deeper modules belong to the last one shown.
        node = root
        for name in path.split(".")[:depth] if path else ():
            if name not in node.inside:
                node.inside[name] = _Node(f"{node.path}.{name}".lstrip("."), node.depth + 1)
            node = node.inside[name]
        return node

    for module in analysis.modules:
        node = node_at(module.path)
        node.own_parameters += module.parameters
        if node.path == module.path:
            node.module = module
    for row in at_work:
        node_at(row.module_path).rows.append(row)

    def branch(
        node: _Node, part: Part, rows: list[OperatorRow], parameters: int, name: str = ""
    ) -> Branch:
        module = node.module if part == "whole" else None
        group = group_of(name or node.path, rows, whole)
        if not rows:
            # A module without operators takes no time; kinds without any times stay unknown.
            group = replace(
                group,
                predicted_s=group.predicted_s if is_predicted else None,
                measured_s=group.measured_s if is_measured else None,
            )
        return Branch(
            path=node.path,
            depth=node.depth + (part != "whole"),
            part=part,
            is_open=part == "whole" and bool(node.shown),
            kind=module.kind if module else "",
            calls=module.calls if module else None,
            parameters=parameters if analysis.modules else None,
            group=group,
        )

    def branches(node: _Node) -> Iterator[Branch]:
        yield branch(node, "whole", node.all_rows, node.parameters)
        inside, left_out = node.shown, list[_Node]()
        if collapse:
            inside = _collapsed(inside)
        if inside and (node.rows or node.own_parameters):
            yield branch(node, "own", node.rows, node.own_parameters)
        if top is not None and len(inside) > top:
            groups_inside = [(each, group_of("", each.all_rows, whole)) for each in inside]
            groups_inside.sort(key=lambda each: sort_key(each[1], time_s))
            left_out = [each for each, _ in groups_inside[top:]]
        for each in inside:
            if not any(each is other for other in left_out):
                yield from branches(each)
        if left_out:
            rows = [row for each in left_out for row in each.all_rows]
            parameters = sum(each.parameters for each in left_out)
            yield branch(node, "rest", rows, parameters, f"{len(left_out)} more")

    return tuple(branches(root))


@dataclass(slots=True)
class _Node:
    path: str
    depth: int
    module: Module | None = None
    own_parameters: int = 0
    rows: list[OperatorRow] = field(default_factory=list[OperatorRow])
    inside: dict[str, _Node] = field(default_factory=dict[str, "_Node"])

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def all_rows(self) -> list[OperatorRow]:
        return [*self.rows, *(row for each in self.inside.values() for row in each.all_rows)]

    @property
    def parameters(self) -> int:
        return self.own_parameters + sum(each.parameters for each in self.inside.values())

    @property
    def shown(self) -> list[_Node]:
        """Submodules with operators or parameters."""
        return [each for each in self.inside.values() if each.all_rows or each.parameters]

    @property
    def structure(self) -> Hashable:
        """Class, calls, parameters, submodules and operators; equal for equal blocks."""
        module = (self.module.kind, self.module.calls) if self.module else None
        inside = tuple((name, each.structure) for name, each in self.inside.items())
        rows = tuple(
            (row.op, row.phase, *(spec.shape for spec in (*row.inputs, *row.outputs)))
            for row in self.rows
        )
        return module, self.own_parameters, inside, rows


def _collapsed(nodes: Sequence[_Node]) -> list[_Node]:
    """Return modules with runs of equal numbered blocks merged: ``"blocks 0–11 ×12"``."""
    found: list[_Node] = []
    for _, alike in groupby(nodes, key=lambda node: (node.name.isdecimal(), node.structure)):
        run = list(alike)
        if len(run) > 1 and run[0].name.isdecimal():
            name = f"blocks {run[0].name}–{run[-1].name} ×{len(run)}"
            parent = run[0].path.rpartition(".")[0]
            run = [_merged(run, f"{parent}.{name}".lstrip("."))]
        found += run
    return found


def _merged(nodes: Sequence[_Node], path: str) -> _Node:
    first = nodes[0]
    module = first.module and replace(
        first.module, calls=sum(each.module.calls for each in nodes if each.module)
    )
    return _Node(
        path,
        first.depth,
        module=module,
        own_parameters=sum(each.own_parameters for each in nodes),
        rows=[row for each in nodes for row in each.rows],
        inside={
            name: _merged([each.inside[name] for each in nodes], f"{path}.{name}")
            for name in first.inside
        },
    )


def grouping_key(row: OperatorRow) -> Hashable:
    """Return the key of equal calls: operator, sizes, and what tables print; measured calls differ.

    Reuse distances differ slightly between calls with equal text.
    """
    if row.measured_s is not None:
        return row.index
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    crossing = format_bytes(row.level_bytes.get(row.level)) if row.level else ""
    intensity = format_intensity(row.intensity_flop_per_byte)
    limit = (row.level, crossing, intensity, row.ceiling, format_s(row.eager_min_time_s))
    middle, low, high = row.predicted_s, row.predicted_low_s, row.predicted_high_s
    is_interval = middle is not None and low is not None and high is not None
    predicted = interval_cell(middle, low, high) if is_interval else format_s(middle)
    prediction = (predicted, row.prediction_source)
    return (row.op, row.type, row.phase, sizes, row.work, limit, prediction)
