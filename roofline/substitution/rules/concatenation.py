"""Rule that takes away concatenations of what was one before, and splits of what was several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight, contiguous
from roofline.substitution.rules.identities import same_tensor_twice
from roofline.substitution.rules.pieces import Piece, bounds_of, piece
from roofline.substitution.rules.refusals import called, used_elsewhere
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule

_CATS = frozenset({"aten.cat", "aten.concat", "aten.concatenate"})
_JOINS = _CATS | {"aten.stack"}


def _parts(node: Node) -> tuple[Value | Weight, ...]:
    return cast("tuple[Value | Weight, ...]", node["tensors"])


def _dim(node: Node) -> int:
    """The dimension of the result along which it joins."""
    return cast(int, node["dim"]) % len(node.type.shape)


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours among the parts of a concatenation that lie side by side in one tensor.

    They are the parts from number `first` on to `last`, without that, and its elements from `start`
    to `end`.
    """

    first: int
    last: int
    of: Value | Weight
    start: int
    end: int

    def is_all(self, graph: Graph, dim: int) -> bool:
        """Whether they are the whole tensor."""
        return self.start == 0 and self.end == graph.type_of(self.of).shape[dim]


def _runs(graph: Graph, node: Node) -> list[_Run]:
    """All of two or more parts, the longest possible."""
    dim, is_stack = _dim(node), node.op == "aten.stack"
    found: list[_Run] = []
    for place, part in enumerate(_parts(node)):
        now = piece(graph, part)
        if now is None or now.dim != dim or now.is_one != is_stack:
            continue
        end = now.start + now.length
        last = found[-1] if found else None
        if last and (last.last, last.of, last.end) == (place, now.of, now.start):
            found[-1] = _Run(last.first, place + 1, now.of, last.start, end)
        else:
            found.append(_Run(place, place + 1, now.of, now.start, end))
    return [run for run in found if run.last - run.first > 1]


def _covers(graph: Graph, node: Node) -> list[_Run]:
    """The runs that save something: all of a tensor, or all that is concatenated."""
    count = len(_parts(node))
    return [
        run
        for run in _runs(graph, node)
        if run.last - run.first == count
        or (node.op != "aten.stack" and run.is_all(graph, _dim(node)))
    ]


def _inner(graph: Graph, number: int) -> tuple[int, ...]:
    """Concatenations along the same dimension among the parts of one."""
    node = graph.nodes[number]
    if node.op == "aten.stack":
        return ()
    nodes = dict.fromkeys(part.node for part in _parts(node) if isinstance(part, Value))
    return tuple(
        each
        for each in nodes
        if graph.nodes[each].op in _CATS and _dim(graph.nodes[each]) == _dim(node)
    )


def _cuts(graph: Graph, number: int) -> list[tuple[Value, Piece, int, int]]:
    """What is cut from a concatenation, and which of its parts that is; empty: not only parts."""
    node = graph.nodes[number]
    dim, is_stack = _dim(node), node.op == "aten.stack"
    lengths = [1 if is_stack else graph.type_of(part).shape[dim] for part in _parts(node)]
    bounds = bounds_of(lengths)
    found: list[tuple[Value, Piece, int, int]] = []
    for user in graph.users(Value(number)):
        for output, type in enumerate(graph.nodes[user].outputs):
            value = Value(user, output)
            cut = piece(graph, value) if type is not None else None
            if cut is None or cut.of != Value(number) or cut.dim != dim:
                return []
            end = cut.start + cut.length
            if cut.is_one != is_stack or cut.start not in bounds or end not in bounds:
                return []
            # An empty part begins where its neighbour does.
            if cut.length == 0 or 0 in lengths:
                return []
            found.append((value, cut, bounds.index(cut.start), bounds.index(end)))
    return found


@dataclass(frozen=True, slots=True)
class _SplitsAndConcatenations:
    """Concatenations of pieces that lie side by side or of concatenations, and pieces of those.

    The roles are ``join`` and ``pieces``, ``join`` and ``inner``, or ``cut`` and ``pieces``.
    """

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for number, node in graph.nodes.items():
            if node.op not in _JOINS:
                continue
            covers = _covers(graph, node)
            if covers:
                parts = _parts(node)
                taken = (part for run in covers for part in parts[run.first : run.last])
                pieces = tuple(dict.fromkeys(cast(Value, part).node for part in taken))
                yield Match(nodes=(("join", (number,)), ("pieces", pieces)))
            inner = _inner(graph, number)
            if inner:
                yield Match(nodes=(("join", (number,)), ("inner", inner)))
            if _cuts(graph, number):
                pieces = tuple(dict.fromkeys(graph.users(number)))
                yield Match(nodes=(("cut", (number,)), ("pieces", pieces)))


def _refuses(graph: Graph, match: Match) -> str:
    if match.all("inner"):
        others = (used_elsewhere(graph, each, match.all("join")) for each in match.all("inner"))
        return next(filter(None, others), "")
    if match.all("join"):
        return _join_refuses(graph, match["join"])
    return _cut_refuses(graph, match["cut"])


def _join_refuses(graph: Graph, number: int) -> str:
    node = graph.nodes[number]
    run = _covers(graph, node)[0]
    if run.last - run.first < len(_parts(node)) or not graph.is_returned(number):
        return ""
    if not run.is_all(graph, _dim(node)):
        return "the model would return a view of a larger tensor"
    return same_tensor_twice(graph, Value(number), run.of)


def _cut_refuses(graph: Graph, number: int) -> str:
    if graph.is_returned(number):
        return f"the model returns what {called(graph, number)} gives"
    parts = _parts(graph.nodes[number])
    for value, _, first, last in _cuts(graph, number):
        if graph.is_returned(value):
            if last - first == 1:
                said = same_tensor_twice(graph, value, parts[first])
                if said:
                    return said
            elif graph.type_of(value).stride != _dense(graph, value):
                return "the model would return it with other strides"
    return ""


def _dense(graph: Graph, value: Value) -> tuple[int, ...]:
    type = graph.type_of(value)
    return contiguous(type.shape, type.dtype).stride


def _rewrite(editor: Editor, match: Match) -> None:
    if match.all("inner"):
        _flatten(editor, match)
    elif match.all("join"):
        _join(editor, match["join"])
    else:
        _cut(editor, match["cut"])


def _join(editor: Editor, number: int) -> None:
    """Takes what the pieces are of in their place; of part of a tensor, one piece."""
    graph = editor.graph
    node = graph.nodes[number]
    dim, parts = _dim(node), _parts(node)
    left: list[Value | Weight] = []
    place = 0
    for run in _covers(graph, node):
        left += parts[place : run.first]
        whole = run.of if run.is_all(graph, dim) else _part(editor, node, run, dim)
        left.append(whole)
        place = run.last
    left += parts[place:]
    new = left[0] if len(left) == 1 else Value(editor.add_like(node, tensors=tuple(left)))
    editor.replace(Value(number), new)


def _flatten(editor: Editor, match: Match) -> None:
    node, inner = editor.graph.nodes[match["join"]], match.all("inner")
    parts: list[Value | Weight] = []
    for part in _parts(node):
        if isinstance(part, Value) and part.node in inner:
            parts += _parts(editor.graph.nodes[part.node])
        else:
            parts.append(part)
    editor.replace(Value(match["join"]), Value(editor.add_like(node, tensors=tuple(parts))))


def _part(editor: Editor, node: Node, run: _Run, dim: int) -> Value:
    cut = editor.add(
        "aten.slice",
        overload="Tensor",
        module_path=node.module_path,
        self=run.of,
        dim=dim,
        start=run.start,
        end=run.end,
    )
    return Value(cut)


def _cut(editor: Editor, number: int) -> None:
    graph = editor.graph
    node = graph.nodes[number]
    parts = _parts(node)
    for value, _, first, last in _cuts(graph, number):
        if last - first == 1:
            editor.replace(value, parts[first])
        else:
            joined = editor.add_like(node, tensors=parts[first:last])
            editor.replace(value, Value(joined))


register_rule(
    Rule(
        name="eliminate-split-concat",
        summary="takes away a concatenation of the pieces of a split, and a split into what was"
        " concatenated",
        pattern=_SplitsAndConcatenations(),
        refuses=_refuses,
        rewrite=_rewrite,
    )
)
