"""The operators of an analysis by module, each module with all that is in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from roofline.analysis.grouping import BOUND, Group, GroupTime, Whole, group_of, length, working
from roofline.analysis.result import Analysis
from roofline.analysis.rows import OperatorRow
from roofline.workload.modules import Module

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
