"""Rules that remove identity operators, and splits and concatenations that cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

from roofline.substitution.graphs.graph import (
    INPUT,
    Editor,
    Graph,
    Node,
    Value,
    Weight,
    parts_of,
)
from roofline.substitution.rules.matching import (
    builtin_rule,
    first_reason,
    node_name,
    slice_of,
    used_elsewhere,
)
from roofline.substitution.rules.rule import FunctionPattern, Match
from roofline.workload.fusion_kinds import aten

_DROPOUTS = aten("dropout feature_dropout alpha_dropout feature_alpha_dropout native_dropout")
_CONVERSIONS = aten("contiguous clone")


def _source(node: Node) -> Value | Weight | None:
    """Return the first tensor among a node's arguments; None: there is none."""
    first = (next(parts_of(argument), None) for _, argument in node.arguments)
    return next((each for each in first if isinstance(each, (Value, Weight))), None)


def _same(graph: Graph, number: int) -> Value | Weight:
    """Return the operand of an identity; for a pair of conversions, the operand of the first."""
    node = graph.nodes[number]
    given = _source(node)
    assert given is not None
    if node.op in _CONVERSIONS and isinstance(given, Value):
        there = graph.nodes[given.node]
        before = _source(there) if there.op in _CONVERSIONS else None
        if before is not None and graph.type_of(before) == node.type:
            return before
    return given


def _same_tensor_twice(graph: Graph, old: Value, new: Value | Weight) -> str:
    """Return a refusal if the model would return a tensor that shares memory with another one.

    Callers may write to results of the model, which must not change its inputs, weights or other
    results.
    """
    if not graph.is_returned(old):
        return ""
    if isinstance(new, Weight):
        return f"the model would return its weight {new}"
    if graph.nodes[new.node].op == INPUT:
        return "the model would return its input"
    if graph.is_returned(new):
        return "the model would return the same tensor twice"
    if graph.type_of(old).stride != graph.type_of(new).stride:
        return "the strides of a result would change"
    return ""


# -- identity operators ----------------------------------------------------------------------------


def _is_number(argument: object, number: float) -> bool:
    return isinstance(argument, (int, float)) and argument == number


def _holding(*rows: tuple[str, Callable[[Node], bool]]) -> Mapping[str, Callable[[Node], bool]]:
    return {op: holds for names, holds in rows for op in aten(names)}


_CATS = aten("cat concat concatenate")
_FRESH = {
    **_holding(
        ("add sub", lambda node: _is_number(node["other"], 0)),
        (
            "mul div",
            lambda node: _is_number(node["other"], 1) and node.get("rounding_mode") is None,
        ),
        ("pow", lambda node: _is_number(node["exponent"], 1)),
        ("pad constant_pad_nd", lambda node: not any(node["pad"])),
        # Pooling with windows of one element.
        ("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d clone _to_copy", bool),
    ),
    **dict.fromkeys(_CATS, lambda node: len(node["tensors"]) == 1),
    **dict.fromkeys(_DROPOUTS, lambda node: _is_number(node["p"], 0)),
}
"""Operators with an output of their own, and the condition for equality with the operand."""

_ALIASES = _holding(
    ("reshape view view_as _unsafe_view flatten unflatten squeeze expand expand_as", bool),
    ("contiguous permute transpose t alias detach movedim swapaxes ravel to", bool),
    # A slice of full length starts at 0.
    (
        "slice narrow split split_with_sizes chunk tensor_split",
        lambda node: len(node.outputs) == 1 and node.get("step", 1) == 1,
    ),
)
"""Operators that return their operand or a view, and the condition for equality."""


def _is_identity(graph: Graph, number: int) -> bool:
    """Return whether the result has the values, sizes, strides and data type of the operand."""
    node = graph.nodes[number]
    holds = _FRESH.get(node.op) or _ALIASES.get(node.op)
    if holds is None or _source(node) is None or not holds(node):
        return False
    return node.outputs[0] == graph.type_of(_same(graph, number))


def _needs_mask(graph: Graph, number: int) -> str:
    mask = Value(number, 1)
    is_needed = graph.users(mask) or graph.is_returned(mask)
    return "its dropout mask is used" if is_needed else ""


def _identity_stays(graph: Graph, number: int) -> str:
    node, given = graph.nodes[number], _same(graph, number)
    if reason := _needs_mask(graph, number):
        return reason
    # Graphs contain no devices.
    if node.get("device") is not None or node.overload == "other":
        return "it may move the tensor to another device"
    if node.get("layout") is not None:
        return "it may change the tensor's layout"
    if node.op in _FRESH or node.get("copy") or given != _source(node):
        return _same_tensor_twice(graph, Value(number), given)
    return ""


def _dropout_stays(graph: Graph, number: int) -> str:
    if graph.nodes[number]["train"] is not False:
        return "dropout is active (training mode)"
    return _needs_mask(graph, number)


def _register(
    name: str,
    summary: str,
    is_wanted: Callable[[Graph, int], bool],
    stays: Callable[[Graph, int], str],
) -> None:
    """Register a rule that removes operators: all safe ones in one match, others separately.

    Separate matches would multiply the number of graphs in a search.
    """
    role = name.removeprefix("drop-")

    def matches(graph: Graph) -> Iterator[Match]:
        found = [number for number in graph.nodes if is_wanted(graph, number)]
        alone = [each for each in found if graph.is_returned(each) or stays(graph, each)]
        if together := tuple(each for each in found if each not in alone):
            yield Match(nodes=((role, together),))
        for number in alone:
            yield Match(nodes=((role, (number,)),))

    def refuses(graph: Graph, match: Match) -> str:
        return first_reason(stays(graph, number) for number in match.all(role))

    @builtin_rule(name, summary, FunctionPattern(matches), refuses)
    def drop(editor: Editor, match: Match) -> None:
        for number in match.numbers:
            editor.replace(Value(number), _same(editor.graph, number))


_register(
    "drop-dropout",
    "remove inactive dropout (eval mode)",
    lambda graph, number: graph.nodes[number].op in _DROPOUTS,
    _dropout_stays,
)
_register(
    "drop-identity",
    "remove identity operators: + 0, * 1, reshape to the same shape, full slice, concatenation of"
    " one",
    _is_identity,
    _identity_stays,
)


# -- splits and concatenations ---------------------------------------------------------------------


def _parts(node: Node) -> tuple[Value | Weight, ...]:
    return cast("tuple[Value | Weight, ...]", node["tensors"])


def _dim(node: Node) -> int:
    return cast(int, node["dim"]) % len(node.type.shape)


@dataclass(frozen=True, slots=True)
class _Run:
    """Adjacent parts of a concatenation that are adjacent in one tensor.

    They are the parts `first` to `last` (exclusive), elements `start` to `end`.
    """

    first: int
    last: int
    of: Value | Weight
    start: int
    end: int

    def is_all(self, graph: Graph, dim: int) -> bool:
        return self.start == 0 and self.end == graph.type_of(self.of).shape[dim]


def _covers(graph: Graph, node: Node) -> list[_Run]:
    """Return the longest runs of two or more parts that span a whole tensor, or all parts.

    Only these save an operator.
    """
    dim, is_stack, parts = _dim(node), node.op == "aten.stack", _parts(node)
    found: list[_Run] = []
    for place, part in enumerate(parts):
        now = slice_of(graph, part)
        if now is None or now.dim != dim or now.is_one != is_stack:
            continue
        run = _Run(place, place + 1, now.of, now.start, now.start + now.length)
        last = found[-1] if found else None
        if last and (last.last, last.of, last.end) == (place, now.of, now.start):
            found[-1] = _Run(last.first, place + 1, now.of, last.start, run.end)
        else:
            found.append(run)
    return [
        run
        for run in found
        if run.last - run.first > 1
        and (run.last - run.first == len(parts) or (not is_stack and run.is_all(graph, dim)))
    ]


def _inner(graph: Graph, number: int) -> tuple[int, ...]:
    """Return concatenations along the same dimension among the parts of one."""
    node = graph.nodes[number]
    if node.op == "aten.stack":
        return ()
    nodes = dict.fromkeys(part.node for part in _parts(node) if isinstance(part, Value))
    return tuple(
        each
        for each in nodes
        if graph.nodes[each].op in _CATS and _dim(graph.nodes[each]) == _dim(node)
    )


def _cuts(graph: Graph, number: int) -> list[tuple[Value, int, int]]:
    """Return slices of a concatenation with their parts; empty if not all are whole parts."""
    node = graph.nodes[number]
    dim, is_stack = _dim(node), node.op == "aten.stack"
    lengths = [1 if is_stack else graph.type_of(part).shape[dim] for part in _parts(node)]
    bounds = list(accumulate(lengths, initial=0))

    found: list[tuple[Value, int, int]] = []
    for user in graph.users(Value(number)):
        for output, type in enumerate(graph.nodes[user].outputs):
            value = Value(user, output)
            cut = slice_of(graph, value) if type is not None else None
            if cut is None or (cut.of, cut.dim, cut.is_one) != (Value(number), dim, is_stack):
                return []
            end = cut.start + cut.length
            # Empty parts are ambiguous.
            if not {cut.start, end} <= set(bounds) or cut.length == 0 or 0 in lengths:
                return []
            found.append((value, bounds.index(cut.start), bounds.index(end)))
    return found


def _splits_and_concatenations(graph: Graph) -> Iterator[Match]:
    """Yield concatenations of adjacent slices or of concatenations, and slices of concatenations.

    Roles: ``join`` and ``pieces``, ``join`` and ``inner``, or ``cut`` and ``pieces``.
    """
    for number, node in graph.nodes.items():
        if node.op not in _CATS | {"aten.stack"}:
            continue
        if covers := _covers(graph, node):
            taken = [part for run in covers for part in _parts(node)[run.first : run.last]]
            pieces = tuple(dict.fromkeys(cast(Value, part).node for part in taken))
            yield Match(nodes=(("join", (number,)), ("pieces", pieces)))
        if inner := _inner(graph, number):
            yield Match(nodes=(("join", (number,)), ("inner", inner)))
        if _cuts(graph, number):
            pieces = tuple(dict.fromkeys(graph.users(number)))
            yield Match(nodes=(("cut", (number,)), ("pieces", pieces)))


def _refuses(graph: Graph, match: Match) -> str:
    if inner := match.all("inner"):
        return first_reason(used_elsewhere(graph, each, match.all("join")) for each in inner)
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
    return _same_tensor_twice(graph, Value(number), run.of)


def _cut_refuses(graph: Graph, number: int) -> str:
    if graph.is_returned(number):
        return f"the model returns the output of {node_name(graph, number)}"
    parts = _parts(graph.nodes[number])
    for value, first, last in _cuts(graph, number):
        if last - first == 1:
            if reason := _same_tensor_twice(graph, value, parts[first]):
                return reason
        elif graph.is_returned(value) and not graph.type_of(value).is_contiguous:
            return "the strides of a result would change"
    return ""


@builtin_rule(
    "eliminate-split-concat",
    "remove concatenations of split parts, and splits of concatenated parts",
    FunctionPattern(_splits_and_concatenations),
    _refuses,
)
def _rewrite(editor: Editor, match: Match) -> None:
    if inner := match.all("inner"):
        _flatten(editor, match["join"], inner)
    elif match.all("join"):
        _join(editor, match["join"])
    else:
        _cut(editor, match["cut"])


def _flatten(editor: Editor, number: int, inner: tuple[int, ...]) -> None:
    node = editor.graph.nodes[number]
    parts: list[Value | Weight] = []
    for part in _parts(node):
        if isinstance(part, Value) and part.node in inner:
            parts += _parts(editor.graph.nodes[part.node])
        else:
            parts.append(part)
    editor.replace(Value(number), Value(editor.add_like(node, tensors=tuple(parts))))


def _join(editor: Editor, number: int) -> None:
    """Replace adjacent slices by their tensor, or by one slice of it."""
    graph = editor.graph
    node = graph.nodes[number]
    dim, parts = _dim(node), _parts(node)
    left: list[Value | Weight] = []
    place = 0
    for run in _covers(graph, node):
        whole = run.of
        if not run.is_all(graph, dim):
            given: dict[str, Any] = {"dim": dim, "start": run.start, "end": run.end}
            path = node.module_path
            cut = editor.add("aten.slice", overload="Tensor", module_path=path, self=whole, **given)
            whole = Value(cut)
        left += (*parts[place : run.first], whole)
        place = run.last
    left += parts[place:]
    new = left[0] if len(left) == 1 else Value(editor.add_like(node, tensors=tuple(left)))
    editor.replace(Value(number), new)


def _cut(editor: Editor, number: int) -> None:
    node = editor.graph.nodes[number]
    parts = _parts(node)
    for value, first, last in _cuts(editor.graph, number):
        if last - first == 1:
            editor.replace(value, parts[first])
        else:
            editor.replace(value, Value(editor.add_like(node, tensors=parts[first:last])))
