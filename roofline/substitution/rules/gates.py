"""Gates of recurrent cells that are written out: sums of products, the same at every time step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from roofline.substitution.graphs.graph import Graph, Node, Value
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.activations_behind import same_activations
from roofline.substitution.rules.products import Product, product

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
