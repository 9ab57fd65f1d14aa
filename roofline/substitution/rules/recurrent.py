"""Rules of unrolled recurrent cells: merged gates, and products hoisted out of the sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from roofline.substitution.graphs.graph import Editor, Graph, Node, Value, Weight
from roofline.substitution.rules.matching import (
    Slice,
    add_split,
    apply_activation,
    builtin_rule,
    same_activations,
    shared,
    slice_of,
)
from roofline.substitution.rules.products import Product, product, products
from roofline.substitution.rules.rule import FunctionPattern, Match
from roofline.substitution.rules.weights import (
    add_weights,
    concatenate,
    concatenate_biases,
    concatenate_columns,
    transpose,
)

# -- products of all time steps with one weight ----------------------------------------------------


def _weights(graph: Graph, found: Product) -> tuple[str, ...]:
    """Return a key that is equal for products with the same weights."""
    bias = found.bias.key if found.bias else ""
    return (graph.nodes[found.number].op, found.weight.key, bias)


@lru_cache(maxsize=8)
def _families_of_steps(
    graph: Graph,
) -> dict[tuple[tuple[str, ...], Value | Weight, int], tuple[int, ...]]:
    """Return products by weights, sequence, and dimension of its time steps."""
    found: dict[tuple[tuple[str, ...], Value | Weight, int], list[int]] = {}
    for one in products(graph, tuple(graph.nodes)):
        taken = slice_of(graph, one.value)
        if taken is None or isinstance(taken.of, Weight):
            continue
        if taken.dim < len(graph.type_of(taken.of).shape) - 1:
            family = (_weights(graph, one), taken.of, taken.dim)
            found.setdefault(family, []).append(one.number)
    return {family: tuple(each) for family, each in found.items() if len(each) > 1}


def _step_products(graph: Graph) -> Iterator[Match]:
    """Yield products of one weight with slices of a sequence, or of all weights with all slices."""
    by_sequence: dict[tuple[Value | Weight, int], list[tuple[int, ...]]] = {}
    for (_, of, dim), numbers in _families_of_steps(graph).items():
        by_sequence.setdefault((of, dim), []).append(numbers)
    for families in by_sequence.values():
        whole = [each for each in families if not _missing(graph, each)]
        if whole:
            yield Match(nodes=(("products", tuple(n for each in whole for n in each)),))
        for family in families:
            if family not in whole:
                yield Match(nodes=(("products", family),))


def _pieces(graph: Graph, numbers: Sequence[int]) -> list[Slice]:
    found = [slice_of(graph, each.value) for each in products(graph, numbers)]
    return [each for each in found if each is not None]


def _missing(graph: Graph, numbers: Sequence[int]) -> str:
    """Return the reason why slices do not cover a sequence once; ``""``: they do."""
    taken = [each for each in _pieces(graph, numbers) if each.length]
    end = 0
    for each in sorted(taken, key=lambda each: each.start):
        if each.start != end:
            return "some time steps are used twice or not at all: merging would add FLOP"
        end += each.length
    size = graph.type_of(taken[0].of).shape[taken[0].dim]
    if end != size:
        return f"{end} of {size} time steps are used: merging would add FLOP"
    if len({each.is_one for each in taken}) > 1 or len(taken) < len(numbers):
        return "the time steps have different numbers of dimensions"
    return ""


def _of_each_weight(graph: Graph, match: Match) -> list[list[int]]:
    found: dict[tuple[str, ...], list[int]] = {}
    for each in products(graph, match.all("products")):
        found.setdefault(_weights(graph, each), []).append(each.number)
    return list(found.values())


def _is_turned(found: Product) -> bool:
    """Return whether the product of the whole sequence needs the transposed weight."""
    return found.bias is not None and not found.has_rows


def _hoist_refuses(graph: Graph, match: Match) -> str:
    for numbers in _of_each_weight(graph, match):
        one = products(graph, numbers)[0]
        reason = _missing(graph, numbers)
        if not reason and _is_turned(one):
            reason = shared(graph, one.weight, numbers)
        if reason:
            return reason
    return ""


@builtin_rule(
    "hoist-product",
    "merge the products of all time steps with one weight",
    FunctionPattern(_step_products),
    _hoist_refuses,
)
def _hoist(editor: Editor, match: Match) -> None:
    graph = editor.graph
    for numbers in _of_each_weight(graph, match):
        taken = _pieces(graph, numbers)
        order = sorted(range(len(numbers)), key=lambda place: taken[place].start)
        one, of, dim = products(graph, numbers)[0], taken[0].of, taken[0].dim
        path = graph.nodes[numbers[0]].module_path
        if one.has_rows or one.bias is not None:
            weight = transpose(one.weight) if _is_turned(one) else one.weight
            whole = editor.add(
                "aten.linear", module_path=path, input=of, weight=weight, bias=one.bias
            )
        else:
            whole = editor.add("aten.matmul", module_path=path, self=of, other=one.weight)
        if taken[0].is_one:
            number = editor.add(
                "aten.unbind", overload="int", module_path=path, self=Value(whole), dim=dim
            )
            parts = [Value(number, place) for place in range(len(order))]
        else:
            sizes = [taken[place].length for place in order]
            parts = add_split(editor, Value(whole), sizes, dim=dim, path=path)
        for part, place in zip(parts, order, strict=True):
            editor.replace(Value(numbers[place]), part)


# -- gates: sums of products, at all time steps ----------------------------------------------------

_Steps = tuple[Value, ...]
"""Operand of a gate at each time step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """Sum of products and biases only, at node `root`."""

    root: int
    products: tuple[Product, ...]
    biases: tuple[Weight, ...] = ()
    adds: tuple[int, ...] = ()

    @property
    def all_biases(self) -> tuple[Weight, ...]:
        own = tuple(each.bias for each in self.products if each.bias is not None)
        return (*own, *self.biases)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """One gate at all time steps.

    Attributes:
        roots: nodes of the pre-activation, by time step.
        activations: their activations; empty if missing or different.
        matrices: weights [N, K] by operand.
        numbers: products and additions.
    """

    roots: tuple[int, ...]
    activations: tuple[int, ...]
    matrices: dict[_Steps, Product]
    biases: tuple[Weight, ...]
    numbers: tuple[int, ...]

    @property
    def first(self) -> Product:
        return next(iter(self.matrices.values()))

    @property
    def width(self) -> int:
        return self.first.width


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """Gates with the same operands at every time step, grouped by operands, then by activation."""

    gates: tuple[_Gate, ...]

    @property
    def steps(self) -> int:
        return len(self.gates[0].roots)

    @property
    def inputs(self) -> tuple[_Steps, ...]:
        return tuple(dict.fromkeys(steps for gate in self.gates for steps in gate.matrices))

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(number for gate in self.gates for number in gate.numbers))

    def of(self, steps: _Steps) -> tuple[_Gate, ...]:
        return tuple(gate for gate in self.gates if steps in gate.matrices)


def _classes(gates: Sequence[_Gate]) -> list[tuple[_Gate, ...]]:
    return [tuple(each) for _, each in groupby(gates, key=lambda gate: gate.matrices.keys())]


@lru_cache(maxsize=8)
def _cells(graph: Graph) -> tuple[_Cell, ...]:
    """Return cells of two or more gates, or with gates of two or more products, in order."""
    families: list[list[_Gate]] = []
    for gate in _gates(graph):
        # Merge families that share an operand.
        own = [each for each in families if any(g.matrices.keys() & gate.matrices for g in each)]
        joined = [g for each in own for g in each] + [gate]
        families = [each for each in families if each not in own] + [joined]
    families.sort(key=lambda family: min(gate.roots[0] for gate in family))
    cells = [_Cell(gates=tuple(_ordered(graph, family))) for family in families]
    return tuple(
        cell
        for cell in cells
        if len(cell.gates) > 1 or any(len(g.matrices) > 1 for g in cell.gates)
    )


def _gates(graph: Graph) -> Iterator[_Gate]:
    # A gate has the same weights at all time steps.
    by_weights: dict[frozenset[str], list[_Sum]] = {}
    for each in _sums(graph):
        weights = (*(one.weight for one in each.products), *each.all_biases)
        by_weights.setdefault(frozenset(weight.key for weight in weights), []).append(each)
    for sums in by_weights.values():
        first = sums[0]
        if len({each.weight.key for each in first.products}) < len(first.products):
            continue
        columns = [sorted(each.products, key=lambda p: p.weight.key) for each in sums]
        matrices = {
            tuple(each.value for each in column): column[0] for column in zip(*columns, strict=True)
        }
        if len(matrices) < len(first.products):
            continue
        roots = tuple(each.root for each in sums)
        yield _Gate(
            roots=roots,
            activations=same_activations(graph, roots),
            matrices=matrices,
            biases=first.all_biases,
            numbers=tuple(
                number
                for each in sums
                for number in (
                    *(n for p in each.products for n in (*p.inside, p.number)),
                    *each.adds,
                )
            ),
        )


def _sums(graph: Graph) -> list[_Sum]:
    """Return the sums that are no part of a larger one."""
    found: dict[int, _Sum] = {}
    for number, node in graph.nodes.items():
        one = product(graph, number)
        if one is not None:
            found[number] = _Sum(root=number, products=(one,))
            continue
        parts = _added(graph, number, node, found)
        if parts is None:
            continue
        sums = [part for part in parts if isinstance(part, _Sum)]
        for part in sums:
            del found[part.root]
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
    """Return the two operands of an addition, if both are sums or biases."""
    if node.op != "aten.add" or node.overload != "Tensor" or node["alpha"] != 1:
        return None
    parts: list[_Sum | Weight] = []
    for each in (node["self"], node["other"]):
        if isinstance(each, Weight) and each.type.shape == node.type.shape[-1:]:
            parts.append(each)
        elif (
            isinstance(each, Value)
            and graph.only_user(each.node) == number
            and each.node in found
            and graph.type_of(each).shape == node.type.shape
        ):
            parts.append(found[each.node])
        else:
            return None
    roots = [part.root for part in parts if isinstance(part, _Sum)]
    return parts if roots and len(set(roots)) == len(roots) else None


def _ordered(graph: Graph, family: list[_Gate]) -> Iterator[_Gate]:
    left = sorted(family, key=lambda gate: graph.position[gate.roots[0]])
    while left:
        alike = [gate for gate in left if gate.matrices.keys() == left[0].matrices.keys()]
        left = [gate for gate in left if gate not in alike]
        while alike:
            same = [gate for gate in alike if gate is alike[0] or _are_same(graph, alike[0], gate)]
            alike = [gate for gate in alike if gate not in same]
            yield from same


def _are_same(graph: Graph, *gates: _Gate) -> bool:
    """Return whether all gates have the same activation at all time steps."""
    if not all(gate.activations for gate in gates):
        return False
    return bool(same_activations(graph, [root for gate in gates for root in gate.roots]))


def _joinable(graph: Graph) -> Iterator[Match]:
    """Yield cells with mergeable gates.

    A match has the products and additions of all time steps in the role ``by input`` (merge the
    products of each operand) or ``by gate`` (merge those of each gate), and ``activations``.
    """
    for cell in _cells(graph):
        activations = tuple(number for gate in cell.gates for number in gate.activations)
        is_summed = any(len(gate.matrices) > 1 for gate in cell.gates)
        has_siblings = any(len(cell.of(steps)) > 1 for steps in cell.inputs)
        # Single steps of siblings belong to merge-linears and merge-matmuls.
        if has_siblings and (is_summed or cell.steps > 1):
            yield Match(nodes=(("by input", cell.numbers), ("activations", activations)))
        if is_summed:
            yield Match(nodes=(("by gate", cell.numbers), ("activations", activations)))


def _cell(graph: Graph, match: Match) -> _Cell:
    numbers = match.all("by input") or match.all("by gate")
    return next(cell for cell in _cells(graph) if cell.numbers == numbers)


def _gates_refuse(graph: Graph, match: Match) -> str:
    cell = _cell(graph, match)
    if len({gate.first.weight.type.dtype for gate in cell.gates}) > 1:
        return "the weights have different data types"
    taken: set[str] = set()
    for gate in cell.gates:
        for weight in (*(each.weight for each in gate.matrices.values()), *gate.biases):
            if weight.key in taken:
                return f"weight {weight} is shared by several gates: it would be duplicated"
            taken.add(weight.key)
            returned = f"the model returns weight {weight}" if weight in graph.outputs else ""
            if reason := shared(graph, weight, cell.numbers) or returned:
                return reason
    return ""


@builtin_rule(
    "merge-gates",
    "merge the products of a recurrent cell's gates at every time step",
    FunctionPattern(_joinable),
    _gates_refuse,
)
def _merge_gates(editor: Editor, match: Match) -> None:
    cell = _cell(editor.graph, match)
    join = _by_input if match.all("by input") else _by_gate
    for step in range(cell.steps):
        for gates, value in join(editor, cell, step):
            _separate(editor, gates, value, step)


_Joined = Iterator[tuple[tuple[_Gate, ...], Value]]
"""Adjacent gates in a value, before their activations."""


def _by_input(editor: Editor, cell: _Cell, step: int) -> _Joined:
    """Yield one product per operand for all its gates, added up for gates with several operands."""
    parts: dict[tuple[int, ...], tuple[tuple[_Gate, ...], list[Value]]] = {}
    inputs = cell.inputs
    for steps in inputs:
        gates = cell.of(steps)
        merged = editor.add(
            "aten.linear",
            module_path=_path(editor, gates, step),
            input=steps[step],
            weight=concatenate([gate.matrices[steps].rows for gate in gates]),
            # Add each gate's bias once, with its first operand.
            bias=_bias(
                gates, [next(each for each in inputs if each in g.matrices) == steps for g in gates]
            ),
        )
        classes = _classes(gates)
        values = _split(editor, Value(merged), [_width(each) for each in classes], gates, step)
        for each, value in zip(classes, values, strict=True):
            roots = tuple(gate.roots[0] for gate in each)
            parts.setdefault(roots, (each, []))[1].append(value)
    for gates, (value, *others) in parts.values():
        for other in others:
            path = _path(editor, gates, step)
            added = editor.add(
                "aten.add", overload="Tensor", module_path=path, self=value, other=other
            )
            value = Value(added)
        yield gates, value


def _by_gate(editor: Editor, cell: _Cell, step: int) -> _Joined:
    """Yield one product of concatenated operands for all gates that use the same operands."""
    for gates in _classes(cell.gates):
        inputs, path = tuple(gates[0].matrices), _path(editor, gates, step)
        taken = inputs[0][step]
        if len(inputs) > 1:
            dim = len(editor.type_of(taken).shape) - 1
            values = tuple(steps[step] for steps in inputs)
            taken = Value(editor.add("aten.cat", module_path=path, tensors=values, dim=dim))
        matrices = [
            concatenate_columns([gate.matrices[each].rows for each in inputs]) for gate in gates
        ]
        merged = editor.add(
            "aten.linear",
            module_path=path,
            input=taken,
            weight=concatenate(matrices),
            bias=_bias(gates, [True for _ in gates]),
        )
        yield gates, Value(merged)


def _bias(gates: Sequence[_Gate], has_it: Sequence[bool]) -> Weight | None:
    pairs = zip(gates, has_it, strict=True)
    found = [add_weights(gate.biases) if has and gate.biases else None for gate, has in pairs]
    return concatenate_biases(
        found, [gate.width for gate in gates], gates[0].first.weight.type.dtype
    )


def _width(gates: Sequence[_Gate]) -> int:
    return sum(gate.width for gate in gates)


def _path(editor: Editor, gates: Sequence[_Gate], step: int) -> str:
    return editor.graph.nodes[gates[0].roots[step]].module_path


def _split(
    editor: Editor, value: Value, sizes: Sequence[int], gates: Sequence[_Gate], step: int
) -> list[Value]:
    """Return pieces of these sizes; a single piece is the value itself."""
    if len(sizes) == 1:
        return [value]
    return add_split(editor, value, sizes, path=_path(editor, gates, step))


def _separate(editor: Editor, gates: tuple[_Gate, ...], value: Value, step: int) -> None:
    """Pass each gate's part to its users; equal activations of adjacent gates are applied once."""
    groups: list[list[_Gate]] = []
    for gate in gates:
        if groups and _are_same(editor.graph, groups[-1][0], gate):
            groups[-1].append(gate)
        else:
            groups.append([gate])
    values = _split(editor, value, [_width(group) for group in groups], gates, step)
    for group, part in zip(groups, values, strict=True):
        ends = [gate.roots[step] for gate in group]
        if len(group) > 1:
            ends = [gate.activations[step] for gate in group]
            part = apply_activation(editor, ends, part)
        pieces = _split(editor, part, [gate.width for gate in group], group, step)
        for end, each in zip(ends, pieces, strict=True):
            editor.replace(Value(end), each)
