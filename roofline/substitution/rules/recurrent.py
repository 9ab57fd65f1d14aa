"""Rule that joins the gates of recurrent cells that are written out step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules import kernels
from roofline.substitution.rules.activations_behind import same_activations
from roofline.substitution.rules.products import (
    CONSTRUCTORS,
    Product,
    product,
    side_by_side,
    stacked,
)
from roofline.substitution.rules.refusals import called
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Match, Rule

Steps = tuple[Value, ...]
"""The value that a gate multiplies, at each time step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """Products and biases that are added up, and nothing else; `root` gives the sum."""

    root: int
    products: tuple[Product, ...]
    biases: tuple[Weight, ...]
    adds: tuple[int, ...]

    @property
    def weights(self) -> frozenset[str]:
        """What it is a sum with: equal for one gate at all steps."""
        return frozenset(
            (*(each.weight.key for each in self.products), *(each.key for each in self.all_biases))
        )

    @property
    def all_biases(self) -> tuple[Weight, ...]:
        """Those of products, too."""
        own = tuple(each.bias for each in self.products if each.bias is not None)
        return (*own, *self.biases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate at all time steps.

    ``roots`` give what it is before its activation, at each step; ``activations`` stand behind
    them, empty where there are none or different ones. ``matrices`` are its weights [N, K] by the
    steps of what they multiply. ``numbers`` are its products and additions.
    """

    roots: tuple[int, ...]
    activations: tuple[int, ...]
    matrices: tuple[tuple[Steps, Product], ...]
    biases: tuple[Weight, ...]
    numbers: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Steps, ...]:
        """What it multiplies."""
        return tuple(steps for steps, _ in self.matrices)

    @property
    def width(self) -> int:
        """How many outputs it has."""
        return self.matrices[0][1].width

    def matrix(self, steps: Steps) -> Weight:
        """The weight [N, K] that multiplies these."""
        return next(each.rows for of, each in self.matrices if of == steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Gates that multiply the same values at every step.

    They are in such an order that those that multiply the same values stand side by side, and
    among them those with the same activation. ``steps`` is how many time steps there are.
    """

    gates: tuple[Gate, ...]
    steps: int

    @property
    def inputs(self) -> tuple[Steps, ...]:
        """All that is multiplied."""
        return tuple(dict.fromkeys(steps for gate in self.gates for steps in gate.inputs))

    @property
    def numbers(self) -> tuple[int, ...]:
        """All products and additions."""
        return tuple(dict.fromkeys(number for gate in self.gates for number in gate.numbers))

    def of(self, steps: Steps) -> tuple[Gate, ...]:
        """The gates that multiply these."""
        return tuple(gate for gate in self.gates if steps in gate.inputs)

    def classes(self, gates: Sequence[Gate]) -> list[tuple[Gate, ...]]:
        """Neighbours that multiply the same values."""
        found: list[list[Gate]] = []
        for gate in gates:
            if found and set(found[-1][0].inputs) == set(gate.inputs):
                found[-1].append(gate)
            else:
                found.append([gate])
        return [tuple(each) for each in found]


@lru_cache(maxsize=8)
def cells(graph: Graph) -> tuple[Cell, ...]:
    """All cells of two gates or more, or with gates of two products or more; as they run."""
    gates = list(_gates(graph))
    found: list[Cell] = []
    for family in _families(gates):
        ordered = tuple(_ordered(graph, family))
        found.append(Cell(gates=ordered, steps=len(ordered[0].roots)))
    return tuple(
        cell for cell in found if len(cell.gates) > 1 or any(len(g.inputs) > 1 for g in cell.gates)
    )


def _gates(graph: Graph) -> Iterator[Gate]:
    by_weights: dict[frozenset[str], list[_Sum]] = {}
    for each in _sums(graph):
        by_weights.setdefault(each.weights, []).append(each)
    for sums in by_weights.values():
        first = sums[0]
        keys = [each.weight.key for each in first.products]
        if len(set(keys)) < len(keys):
            continue
        columns = [sorted(each.products, key=lambda p: p.weight.key) for each in sums]
        matrices = [
            (tuple(each.value for each in column), column[0])
            for column in zip(*columns, strict=True)
        ]
        inputs = [steps for steps, _ in matrices]
        if len(set(inputs)) < len(inputs):
            continue
        roots = tuple(each.root for each in sums)
        yield Gate(
            roots=roots,
            activations=same_activations(graph, roots),
            matrices=tuple(matrices),
            biases=first.all_biases,
            numbers=tuple(
                number
                for each in sums
                for number in (*(n for p in each.products for n in p.numbers), *each.adds)
            ),
        )


def _sums(graph: Graph) -> list[_Sum]:
    """All that are no part of a larger one."""
    found: dict[int, _Sum] = {}
    for number, node in graph.nodes.items():
        one = product(graph, number)
        if one is not None:
            found[number] = _Sum(root=number, products=(one,), biases=(), adds=())
            continue
        parts = _added(graph, number, node, found)
        if parts is None:
            continue
        for part in parts:
            if isinstance(part, _Sum):
                del found[part.root]
        sums = [part for part in parts if isinstance(part, _Sum)]
        found[number] = _Sum(
            root=number,
            products=tuple(each for part in sums for each in part.products),
            biases=(
                *(each for part in sums for each in part.biases),
                *(part for part in parts if isinstance(part, Weight)),
            ),
            adds=(*(each for part in sums for each in part.adds), number),
        )
    return list(found.values())


def _added(
    graph: Graph, number: int, node: Node, found: dict[int, _Sum]
) -> list[_Sum | Weight] | None:
    """The two parts of an addition, where both are sums or biases."""
    if node.op != "aten.add" or node.overload != "Tensor" or node["alpha"] != 1:
        return None
    parts: list[_Sum | Weight] = []
    for each in (node["self"], node["other"]):
        if isinstance(each, Weight) and each.type.shape == node.type.shape[-1:]:
            parts.append(each)
        elif isinstance(each, Value) and graph.only_user(each.node) == number:
            if each.node not in found or graph.type_of(each).shape != node.type.shape:
                return None
            parts.append(found[each.node])
        else:
            return None
    are_different = len({part.root for part in parts if isinstance(part, _Sum)})
    sums = sum(isinstance(part, _Sum) for part in parts)
    return parts if sums and are_different == sums else None


def _families(gates: list[Gate]) -> list[list[Gate]]:
    """Gates that share something that they multiply."""
    families: list[list[Gate]] = []
    for gate in gates:
        own = [each for each in families if any(set(g.inputs) & set(gate.inputs) for g in each)]
        joined = [g for each in own for g in each] + [gate]
        families = [each for each in families if each not in own] + [joined]
    return sorted(families, key=lambda family: min(gate.roots[0] for gate in family))


def _ordered(graph: Graph, family: list[Gate]) -> Iterator[Gate]:
    left = sorted(family, key=lambda gate: graph.position[gate.roots[0]])
    while left:
        alike = [gate for gate in left if set(gate.inputs) == set(left[0].inputs)]
        left = [gate for gate in left if gate not in alike]
        while alike:
            same = [gate for gate in alike if gate is alike[0] or are_same(graph, (alike[0], gate))]
            alike = [gate for gate in alike if gate not in same]
            yield from same


def are_same(graph: Graph, gates: Sequence[Gate]) -> bool:
    """Whether all have one and the same activation at all steps."""
    if not all(gate.activations for gate in gates):
        return False
    return bool(same_activations(graph, [root for gate in gates for root in gate.roots]))


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
