"""Operators of an analysis taken together: by type, phase, what binds them, and by module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Literal

from roofline.analysis.result import Analysis
from roofline.analysis.rows import (
    HasMinimumTimes,
    MinTimes,
    OperatorRow,
    Totals,
    known_work,
    minimum_times_of,
    sum_eager_min_time_s,
    sum_fused_bytes,
)
from roofline.foundation.rows import sum_known
from roofline.workload.operators import Module, State
from roofline.workload.work import Work

GroupTime = Callable[["Group"], float | None]
"""Which of a group's times in seconds counts; None where it is unknown."""

BOUND: GroupTime = attrgetter("eager_min_time_s")
"""The bound, which is known wherever the machine has ceilings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operators taken together: their calls, work and times.

    ``work`` sums the operators of known FLOP and the bytes of all; ``unknown_operators`` calls have
    no known FLOP. ``fused_bytes`` is what would be left of the traffic in fused kernels, None where
    that is unknown. ``eager_min_time_s`` is None where the hardware has no ceilings, ``share`` is
    its part of the whole. ``fused_min_time_s`` is that of the
    fused kernels, None where one of them has operators in another
    group too, ``model_min_time_s`` None of everything but the whole pass: what rewritings save is
    saved across groups. ``predicted_s`` and ``measured_s`` are None where that of an operator is
    unknown.
    """

    name: str
    calls: int
    work: Work
    unknown_operators: int
    fused_bytes: int | None
    eager_min_time_s: float | None
    share: float | None
    fused_min_time_s: float | None
    model_min_time_s: float | None
    predicted_s: float | None = None
    measured_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """The pass that groups are parts of.

    ``kernels`` says of how many operators each fused kernel is made, by the index of the first
    (None: of how many it is not known which they are part of); free operators are in none.
    """

    totals: Totals
    calls: int
    kernels: Mapping[int | None, int]

    @classmethod
    def of(cls, analysis: Analysis) -> Whole:
        """That of an analysis."""
        rows = working(analysis.operators)
        kernels = Counter(row.chain for row in rows)
        return cls(totals=analysis.totals, calls=len(rows), kernels=kernels)


def group_of(name: str, rows: Sequence[OperatorRow], whole: Whole) -> Group:
    """The operators `rows` taken together; none of them is free.

    Args:
        name: what they are called.
        rows: the operators.
        whole: the pass that they are a part of.
    """
    eager_min_time_s, whole_s = sum_eager_min_time_s(rows), whole.totals.eager_min_time_s
    return Group(
        name=name,
        calls=len(rows),
        work=known_work(rows),
        unknown_operators=sum(row.state is State.UNKNOWN for row in rows),
        fused_bytes=sum_fused_bytes(rows) if rows else 0,
        share=eager_min_time_s / whole_s if eager_min_time_s is not None and whole_s else None,
        **minimum_times_of(_minimum_of(rows, whole)),
        predicted_s=sum_known([row.predicted_s for row in rows]),
        measured_s=sum_known([row.measured_s for row in rows]),
    )


def _minimum_of(rows: Sequence[OperatorRow], whole: Whole) -> HasMinimumTimes:
    """The minimum times of operators of a pass, none of them free, as in `Group`."""
    if len(rows) == whole.calls:
        return whole.totals
    eager_min_time_s, fused_s = sum_eager_min_time_s(rows), None
    kernels = Counter(row.chain for row in rows)
    are_inside = all(whole.kernels[chain] == calls for chain, calls in kernels.items())
    if whole.totals.fused_min_time_s is not None and eager_min_time_s is not None and are_inside:
        # As for whole passes, no more than the operators one by one.
        fused_s = min(eager_min_time_s, sum(row.fused_min_time_s or 0.0 for row in rows))
    return MinTimes(eager_min_time_s=eager_min_time_s, fused_min_time_s=fused_s)


def working(rows: Iterable[OperatorRow]) -> list[OperatorRow]:
    """The operators among `rows` that are not free."""
    return [row for row in rows if row.state is not State.FREE]


def groups(
    analysis: Analysis, key: Callable[[OperatorRow], str], *, time_s: GroupTime = BOUND
) -> tuple[Group, ...]:
    """The operators that are not free, grouped by `key`, the longest by `time_s` first."""
    by_name: dict[str, list[OperatorRow]] = {}
    for row in working(analysis.operators):
        by_name.setdefault(key(row), []).append(row)
    whole = Whole.of(analysis)
    found = [group_of(name, rows, whole) for name, rows in by_name.items()]
    return tuple(sorted(found, key=lambda group: length(group, time_s)))


def length(group: Group, time_s: GroupTime) -> tuple[float, int]:
    """What groups are sorted by: the longest time first, then the most traffic."""
    return (-(time_s(group) or 0.0), -group.work.traffic_bytes)


Part = Literal["whole", "own", "rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A row of the tree of modules.

    ``part`` says what it sums: a module with all that is in it (``whole``), what a module of which
    others are shown does itself (``own``), or the modules in it that are left out (``rest``).
    ``is_open`` says that rows for the parts of a whole follow. ``depth`` is 0 for the model itself.
    ``kind`` is the name of the module's class, ``calls`` how often it ran, ``parameters`` counts
    elements; ``""`` and None where that is unknown, or of several modules.
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
) -> tuple[Branch, ...]:
    """The modules down to `depth`, each before those in it, in the order of their first calls.

    A module's row holds its own operators and those of all modules in it, so that the first row,
    the model's, is the total; the rows that are not open add up to it. One that several modules
    share stands where it has its first name, with all its calls. Operators of the backward pass and
    of the optimizer belong to the module of their forward pass. Modules that have neither operators
    nor parameters are left out.

    Args:
        analysis: whose operators.
        depth: how many names a path may have; None: all.
        top: how many of the modules in one are shown: those that take longest; None: all.
        time_s: the time that counts there.
    """
    return tuple(_Tree(analysis, depth, top, time_s).branches())


@dataclass(slots=True)
class _Node:
    path: str
    depth: int
    module: Module | None = None
    own_parameters: int = 0
    rows: list[OperatorRow] = field(default_factory=list[OperatorRow])
    inside: dict[str, _Node] = field(default_factory=dict[str, "_Node"])

    @property
    def all_rows(self) -> list[OperatorRow]:
        return [*self.rows, *(row for each in self.inside.values() for row in each.all_rows)]

    @property
    def parameters(self) -> int:
        return self.own_parameters + sum(each.parameters for each in self.inside.values())

    @property
    def is_empty(self) -> bool:
        return not (self.all_rows or self.parameters)


class _Tree:
    def __init__(
        self, analysis: Analysis, depth: int | None, top: int | None, time_s: GroupTime
    ) -> None:
        self._whole = Whole.of(analysis)
        # What lies deeper belongs to the last module that is shown.
        self._depth = depth
        self._top = top
        self._time_s = time_s
        self._knows_modules = bool(analysis.modules)
        self._root = _Node("", 0)
        for module in analysis.modules:
            node = self._node(module.path)
            node.own_parameters += module.parameters
            if node.path == module.path:
                node.module = module
        at_work = working(analysis.operators)
        self._is_predicted = any(row.predicted_s is not None for row in at_work)
        self._is_measured = any(row.measured_s is not None for row in at_work)
        for row in at_work:
            self._node(row.module_path).rows.append(row)

    def branches(self) -> Iterator[Branch]:
        return self._branches(self._root)

    def _node(self, path: str) -> _Node:
        node = self._root
        for name in path.split(".")[: self._depth] if path else ():
            if name not in node.inside:
                node.inside[name] = _Node(f"{node.path}.{name}".lstrip("."), node.depth + 1)
            node = node.inside[name]
        return node

    def _branches(self, node: _Node) -> Iterator[Branch]:
        inside = [each for each in node.inside.values() if not each.is_empty]
        yield self._branch(node, "whole", node.all_rows, node.parameters, is_open=bool(inside))
        if not inside:
            return
        if node.rows or node.own_parameters:
            yield self._branch(node, "own", node.rows, node.own_parameters)
        left_out: list[_Node] = []
        if self._top is not None and len(inside) > self._top:
            by_length = sorted(
                inside, key=lambda each: length(self._group(each.all_rows), self._time_s)
            )
            left_out = by_length[self._top :]
        for each in inside:
            if not any(each is other for other in left_out):
                yield from self._branches(each)
        if left_out:
            rows = [row for each in left_out for row in each.all_rows]
            parameters = sum(each.parameters for each in left_out)
            yield self._branch(node, "rest", rows, parameters, name=f"{len(left_out)} more")

    def _branch(
        self,
        node: _Node,
        part: Part,
        rows: list[OperatorRow],
        parameters: int,
        *,
        is_open: bool = False,
        name: str = "",
    ) -> Branch:
        module = node.module if part == "whole" else None
        return Branch(
            path=node.path,
            depth=node.depth + (part != "whole"),
            part=part,
            is_open=is_open,
            kind=module.kind if module else "",
            calls=module.calls if module else None,
            parameters=parameters if self._knows_modules else None,
            group=self._group(rows, name or node.path),
        )

    def _group(self, rows: list[OperatorRow], name: str = "") -> Group:
        group = group_of(name, rows, self._whole)
        if rows:
            return group
        # What does nothing takes no time; of a kind that nobody knows, nothing is said.
        return replace(
            group,
            predicted_s=group.predicted_s if self._is_predicted else None,
            measured_s=group.measured_s if self._is_measured else None,
        )


def likeness(row: OperatorRow) -> Hashable:
    """What calls that no table can tell apart have in common; a measured one is like no other."""
    if row.measured_s is not None:
        return row.index
    sizes = tuple((spec.shape, spec.dtype) for spec in (*row.inputs, *row.outputs))
    work = (row.work, tuple(row.level_bytes.items()), row.ceiling, row.eager_min_time_s)
    prediction = (row.predicted_s, row.predicted_low_s, row.predicted_high_s, row.prediction_source)
    return (row.op, row.type, row.phase, sizes, work, prediction)
