"""Rule that joins the gates of recurrent cells that are written out step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules import kernels
from roofline.substitution.rules.gates import Cell, Gate, Steps, are_same, cells
from roofline.substitution.rules.products import CONSTRUCTORS, side_by_side, stacked
from roofline.substitution.rules.refusals import called
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule


@dataclass(frozen=True, slots=True)
class _Gates:
    """Cells whose gates can be joined.

    A match has all products and additions of all time steps in the role ``by input``, where the
    products of each value become one, or ``by gate``, where those of a gate do; and in
    ``activations`` those that are taken in.
    """

    def matches(self, graph: Graph, /) -> Iterator[Match]:
        for cell in cells(graph):
            activations = tuple(number for gate in cell.gates for number in gate.activations)
            is_summed = any(len(gate.inputs) > 1 for gate in cell.gates)
            has_siblings = any(len(cell.of(steps)) > 1 for steps in cell.inputs)
            # One step of plain siblings is what merge-linears and merge-matmuls are for.
            if has_siblings and (is_summed or cell.steps > 1):
                roles = (("by input", cell.numbers), ("activations", activations))
                yield Match(nodes=roles)
            if is_summed:
                yield Match(nodes=(("by gate", cell.numbers), ("activations", activations)))


def _cell(graph: Graph, match: Match) -> Cell:
    numbers = match.all("by input") or match.all("by gate")
    return next(cell for cell in cells(graph) if cell.numbers == numbers)


def _gates_refuse(graph: Graph, match: Match) -> str:
    cell = _cell(graph, match)
    if len({gate.matrices[0][1].weight.type.dtype for gate in cell.gates}) > 1:
        return "its weights have different data types"
    taken: set[str] = set()
    for gate in cell.gates:
        for weight in (*(each.weight for _, each in gate.matrices), *gate.biases):
            if weight.key in taken:
                return f"weight {weight} is shared by several gates: it would be doubled"
            taken.add(weight.key)
            others = set(graph.weight_users(weight)) - set(cell.numbers)
            if others:
                return f"weight {weight} is shared with {called(graph, min(others))}"
            if weight in graph.outputs:
                return f"the model returns weight {weight}"
    return ""


def _merge_gates(editor: Editor, match: Match) -> None:
    cell = _cell(editor.graph, match)
    join = _by_input if match.all("by input") else _by_gate
    for step in range(cell.steps):
        for gates, value in join(editor, cell, step):
            _separated(editor, gates, value, step)


Joined = Iterator[tuple[tuple[Gate, ...], Value]]
"""Gates that stand side by side in a value, before their activations."""


def _by_input(editor: Editor, cell: Cell, step: int) -> Joined:
    """One product of each value for all gates that take it, then one sum for those of several."""
    parts: dict[tuple[Gate, ...], list[Value]] = {}
    for steps in cell.inputs:
        gates = cell.of(steps)
        merged = editor.add(
            "aten.linear",
            module_path=_path(editor, gates, step),
            input=steps[step],
            weight=stacked([gate.matrix(steps) for gate in gates]),
            # Once for each gate: with the first value that it takes.
            bias=_bias(gates, [_first(cell, gate) == steps for gate in gates]),
        )
        classes = cell.classes(gates)
        values = _split(editor, Value(merged), [_width(each) for each in classes], gates, step)
        for each, value in zip(classes, values, strict=True):
            parts.setdefault(each, []).append(value)
    for gates, (value, *others) in parts.items():
        for other in others:
            path = _path(editor, gates, step)
            added = editor.add(
                "aten.add", overload="Tensor", module_path=path, self=value, other=other
            )
            value = Value(added)
        yield gates, value


def _by_gate(editor: Editor, cell: Cell, step: int) -> Joined:
    """One product of all values that gates take side by side, for all gates that take the same."""
    for gates in cell.classes(cell.gates):
        inputs, path = gates[0].inputs, _path(editor, gates, step)
        taken = inputs[0][step]
        if len(inputs) > 1:
            dim = len(editor.type_of(taken).shape) - 1
            values = tuple(steps[step] for steps in inputs)
            taken = Value(editor.add("aten.cat", module_path=path, tensors=values, dim=dim))
        matrices = [side_by_side([gate.matrix(steps) for steps in inputs]) for gate in gates]
        merged = editor.add(
            "aten.linear",
            module_path=path,
            input=taken,
            weight=stacked(matrices),
            bias=_bias(gates, [True for _ in gates]),
        )
        yield gates, Value(merged)


def _first(cell: Cell, gate: Gate) -> Steps:
    return next(steps for steps in cell.inputs if steps in gate.inputs)


def _bias(gates: Sequence[Gate], has_it: Sequence[bool]) -> Weight | None:
    """The biases of gates one behind the other, zeros where one has none; None: none has."""
    found = [gate.biases if has else () for gate, has in zip(gates, has_it, strict=True)]
    if not any(found):
        return None
    dtype = gates[0].matrices[0][1].weight.type.dtype
    return stacked(
        [
            kernels.summed(biases) if biases else kernels.zeros(gate.width, dtype)
            for gate, biases in zip(gates, found, strict=True)
        ]
    )


def _width(gates: Sequence[Gate]) -> int:
    return sum(gate.width for gate in gates)


def _path(editor: Editor, gates: Sequence[Gate], step: int) -> str:
    return editor.graph.nodes[gates[0].roots[step]].module_path


def _split(
    editor: Editor, value: Value, sizes: Sequence[int], gates: Sequence[Gate], step: int
) -> list[Value]:
    """Pieces of these sizes; the value itself where it is one piece."""
    if len(sizes) == 1:
        return [value]
    split = editor.add(
        "aten.split_with_sizes",
        module_path=_path(editor, gates, step),
        self=value,
        split_sizes=tuple(sizes),
        dim=len(editor.type_of(value).shape) - 1,
    )
    return [Value(split, place) for place in range(len(sizes))]


def _separated(editor: Editor, gates: tuple[Gate, ...], value: Value, step: int) -> None:
    """Gives each gate's users their part; equal activations of neighbours are applied at once."""
    graph = editor.graph
    groups: list[list[Gate]] = []
    for gate in gates:
        if groups and are_same(graph, (groups[-1][0], gate)):
            groups[-1].append(gate)
        else:
            groups.append([gate])
    values = _split(editor, value, [_width(group) for group in groups], gates, step)
    for group, part in zip(groups, values, strict=True):
        ends = [gate.roots[step] for gate in group]
        if len(group) > 1:
            ends = [gate.activations[step] for gate in group]
            node = graph.nodes[min(ends, key=lambda number: graph.nodes[number].in_place)]
            part = Value(editor.add_like(node, **{node.arguments[0][0]: part}))
        pieces = _split(editor, part, [gate.width for gate in group], group, step)
        for end, each in zip(ends, pieces, strict=True):
            editor.replace(Value(end), each)


register_rule(
    Rule(
        name="merge-gates",
        summary="products of a recurrent cell's gates become one at every time step",
        pattern=_Gates(),
        refuses=_gates_refuse,
        rewrite=_merge_gates,
        constructors=CONSTRUCTORS,
    )
)
