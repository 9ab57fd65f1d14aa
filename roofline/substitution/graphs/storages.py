"""Which values of a graph lie in one storage, how long it lives, and who may overwrite it."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.substitution.graphs.editing import RewriteError
from roofline.substitution.graphs.graph import INPUT, Graph, Value
from roofline.substitution.graphs.operators import Operators, Plan, function_of, role_of
from roofline.substitution.graphs.outcomes import Nth, end_byte
from roofline.substitution.graphs.weights import Weight
from roofline.workload.tensors import Role

NEVER = 2**62
"""The position of the last use of what outlives the pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storages:
    """Where the values of a graph lie.

    ``plans`` are the plans of its operators in their order, by the number of the node. ``places``
    are the number of the storage and the byte where a value or weight begins in it; ``roles`` are
    by storage, ``last_uses`` the position in the graph of the last node that needs it.
    ``overwriting`` are the nodes that overwrite their first operand, and thus give what lies there.
    """

    plans: dict[int, Plan]
    places: dict[Value | Weight, tuple[int, int]]
    roles: list[Role]
    last_uses: list[int]
    overwriting: frozenset[int]


def storages_of(graph: Graph, operators: Operators) -> Storages:
    """Where the values of `graph` lie when it runs in its order.

    Raises:
        RewriteError: an operator does not take what it is given.
    """
    found = _Found(graph, operators)
    for position, (number, node) in enumerate(graph.nodes.items()):
        if node.op == INPUT:
            found.given(number, position)
        else:
            found.called(number, position)
    return found.settled()


class _Found:
    def __init__(self, graph: Graph, operators: Operators) -> None:
        self._graph = graph
        self._operators = operators
        self._plans: dict[int, Plan] = {}
        self._places: dict[Value | Weight, tuple[int, int]] = {}
        self._roles: list[Role] = []
        self._uses: dict[int, list[tuple[int, Value | Weight]]] = {}

    def given(self, number: int, position: int) -> None:
        is_inner = self._graph.nodes[number].get("role") == "activation"
        self._new(Value(number), Role.ACTIVATION if is_inner else Role.INPUT, position)

    def called(self, number: int, position: int) -> None:
        node = self._graph.nodes[number]
        plan = self._operators.plan(node, self._graph.type_of)
        self._plans[number] = plan
        for each in plan.operands:
            if each not in self._places:
                assert isinstance(each, Weight)
                self._new(each, role_of(each), position)
            self._uses[self._places[each][0]].append((position, each))
        for output, (base, offset_bytes) in enumerate(
            zip(plan.bases, plan.offsets_bytes, strict=True)
        ):
            value = Value(number, output)
            if base is None:
                self._new(value, Role.ACTIVATION, position, offset_bytes)
            else:
                storage, begin_byte = self._places[plan.operands[base]]
                self._places[value] = storage, begin_byte + offset_bytes
                self._uses[storage].append((position, value))

    def _new(self, value: Value | Weight, role: Role, position: int, offset_bytes: int = 0) -> None:
        number = len(self._roles)
        self._roles.append(role)
        self._places[value] = number, offset_bytes
        self._uses[number] = [(position, value)]

    def settled(self) -> Storages:
        for each in self._graph.outputs:
            if each not in self._places:
                assert isinstance(each, Weight)
                self._new(each, role_of(each), 0)
            self._uses[self._places[each][0]].append((NEVER, each))
        last_uses = [
            NEVER if role.persists else self._uses[number][-1][0]
            for number, role in enumerate(self._roles)
        ]
        overwriting: set[int] = set()
        joined: dict[int, tuple[int, int]] = {}
        for position, number in enumerate(self._graph.nodes):
            plan = self._plans.get(number)
            if plan is None or not plan.node.in_place or not self._may_overwrite(plan, position):
                continue
            overwriting.add(number)
            storage, begin_byte = self._places[_overwritten(plan)]
            outer, more_bytes = joined.get(storage, (storage, 0))
            own = self._places[Value(number)][0]
            joined[own] = outer, more_bytes + begin_byte
            last_uses[outer] = max(last_uses[outer], last_uses[own])
        for value, (storage, begin_byte) in self._places.items() if joined else ():
            if storage in joined:
                outer, more_bytes = joined[storage]
                self._places[value] = outer, begin_byte + more_bytes
        return Storages(
            plans=self._plans,
            places=self._places,
            roles=self._roles,
            last_uses=last_uses,
            overwriting=frozenset(overwriting),
        )

    def _may_overwrite(self, plan: Plan, position: int) -> bool:
        """Whether nobody needs what lies there any more once the operator has run."""
        old = _overwritten(plan)
        if not isinstance(old, Value) or plan.bases[0] is not None:
            return False
        if plan.node.outputs[0] != self._graph.type_of(old) or not _has_in_place(plan):
            return False
        storage, _ = self._places[old]
        if self._roles[storage].persists:
            return False
        begin_byte, end_byte = self._reach(old)
        for used_at, value in reversed(self._uses[storage]):
            if used_at < position:
                break
            if used_at == position and value == old:
                continue
            begin, end = self._reach(value)
            if begin < end_byte and begin_byte < end:
                return False
        return True

    def _reach(self, value: Value | Weight) -> tuple[int, int]:
        """The bytes of its storage from its first element to its last."""
        _, begin_byte = self._places[value]
        return begin_byte, end_byte(self._graph.type_of(value), begin_byte)


def _overwritten(plan: Plan) -> Value | Weight:
    first = plan.arguments[0]
    assert isinstance(first, Nth)
    return plan.operands[first.number]


def _has_in_place(plan: Plan) -> bool:
    try:
        function_of(plan.node.op, plan.node.overload, in_place=True)
    except RewriteError:
        return False
    return True
