"""Storages of the values of a graph, and the records of its capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.core.dtypes import dtype
from roofline.latency.measuring.calls import Call
from roofline.substitution.graphs.graph import INPUT, Graph, RewriteError, Value, Weight
from roofline.substitution.graphs.operators import (
    Operators,
    Outcome,
    Place,
    Plan,
    TensorNumber,
    end_byte,
    function_of,
    is_trained,
    role_of,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

_NEVER = 2**62
"""Position of the last use of values that outlive the forward pass."""


class Storages:
    """Storages of a graph's values in execution order.

    Attributes:
        plans: plans of the operators, by node number.
        places: storage number and first byte of each value or weight.
        roles: by storage, like ``last_uses``, the position of the last node that reads it.
        overwriting: nodes that overwrite their first operand.
    """

    def __init__(self, graph: Graph, operators: Operators) -> None:
        self._graph = graph
        self.plans: dict[int, Plan] = {}
        self.places: dict[Value | Weight, tuple[int, int]] = {}
        self.roles: list[Role] = []
        self.overwriting: set[int] = set()
        self._uses: list[list[tuple[int, Value | Weight]]] = []
        for position, (number, node) in enumerate(graph.nodes.items()):
            if node.op == INPUT:
                is_inner = node.get("role") == "activation"
                self._new(Value(number), Role.ACTIVATION if is_inner else Role.INPUT, position)
            else:
                self.plans[number] = operators.plan(node, graph.type_of)
                self._called(number, self.plans[number], position)
        for each in graph.outputs:
            self._used(each, 0, _NEVER)
        self.last_uses = [
            _NEVER if role.persists else uses[-1][0]
            for role, uses in zip(self.roles, self._uses, strict=True)
        ]
        self._overwrite()

    def _new(self, value: Value | Weight, role: Role, position: int, offset_bytes: int = 0) -> None:
        self.places[value] = len(self.roles), offset_bytes
        self.roles.append(role)
        self._uses.append([(position, value)])

    def _used(self, value: Value | Weight, position: int, used_at: int) -> None:
        if isinstance(value, Weight) and value not in self.places:
            self._new(value, role_of(value), position)
        self._uses[self.places[value][0]].append((used_at, value))

    def _called(self, number: int, plan: Plan, position: int) -> None:
        for each in plan.operands:
            self._used(each, position, position)
        gives = zip(plan.bases, plan.offsets_bytes, strict=True)
        for output, (base, offset_bytes) in enumerate(gives):
            value = Value(number, output)
            if base is None:
                self._new(value, Role.ACTIVATION, position, offset_bytes)
            else:
                storage, begin_byte = self.places[plan.operands[base]]
                self.places[value] = storage, begin_byte + offset_bytes
                self._uses[storage].append((position, value))

    def _overwrite(self) -> None:
        """Place the outputs of overwriting operators in the storage of their first operand."""
        joined: dict[int, tuple[int, int]] = {}
        for position, number in enumerate(self._graph.nodes):
            plan = self.plans.get(number)
            if plan is None or not plan.node.in_place or not self._may_overwrite(plan, position):
                continue
            self.overwriting.add(number)
            storage, begin_byte = self.places[_first_operand(plan)]
            outer, more_bytes = joined.get(storage, (storage, 0))
            own = self.places[Value(number)][0]
            joined[own] = outer, more_bytes + begin_byte
            self.last_uses[outer] = max(self.last_uses[outer], self.last_uses[own])
        for value, (storage, begin_byte) in self.places.items() if joined else ():
            if storage in joined:
                outer, more_bytes = joined[storage]
                self.places[value] = outer, begin_byte + more_bytes

    def _may_overwrite(self, plan: Plan, position: int) -> bool:
        """Return whether the operand is not read again after the operator has run."""
        old = _first_operand(plan)
        if not isinstance(old, Value) or plan.bases[0] is not None:
            return False
        if plan.node.outputs[0] != self._graph.type_of(old):
            return False
        try:
            function_of(plan.node.op, plan.node.overload, in_place=True)
        except RewriteError:
            return False
        storage, _ = self.places[old]
        if self.roles[storage].persists:
            return False
        begin_byte, end = self._reach(old)
        for used_at, value in reversed(self._uses[storage]):
            if used_at < position:
                break
            if used_at == position and value == old:
                continue
            its_begin, its_end = self._reach(value)
            if its_begin < end and begin_byte < its_end:
                return False
        return True

    def _reach(self, value: Value | Weight) -> tuple[int, int]:
        _, begin_byte = self.places[value]
        return begin_byte, end_byte(self._graph.type_of(value), begin_byte)


def _first_operand(plan: Plan) -> Value | Weight:
    first = plan.arguments[0]
    assert isinstance(first, TensorNumber)
    return plan.operands[first.number]


# -- records ---------------------------------------------------------------------------------------

_ALIGNMENT_BYTE = 64
"""Alignment of torch's allocator: aligned offsets do not change a call."""

REST_OF_MODEL = "around"
"""Operator of the record that represents the rest of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Records of one forward pass of a graph, in order, including free operators.

    ``node_of``: node of each record, -1 for the rest of the model; ``calls``: calls to time in
    isolation, None for that rest.
    """

    records: tuple[OperatorRecord, ...]
    node_of: tuple[int, ...]
    calls: tuple[Call | None, ...]


def count_records(graph: Graph, operators: Operators, *, rest_bytes: int = 0) -> Counted:
    """Return the records that a capture of the module built from `graph` would have.

    `rest_bytes`: bytes that the rest of the model touches between two passes of a subgraph. A last
    record reads as many persistent bytes, so that cache contents match those in the model.
    """
    counting = _Counting(graph, operators)
    for position, (number, node) in enumerate(graph.nodes.items()):
        if node.op != INPUT:
            counting.add(number, position)
    if rest_bytes:
        counting.add_rest(rest_bytes)
    return Counted(
        records=tuple(
            replace(like, index=index, freed=tuple(sorted(freed)), **changed)
            for index, (like, changed, freed) in enumerate(counting.pending)
        ),
        node_of=tuple(counting.node_of),
        calls=tuple(counting.calls),
    )


class _Counting:
    """Unfinished records: the differences from known ones, and the storages freed after each."""

    def __init__(self, graph: Graph, operators: Operators) -> None:
        self._operators = operators
        self._storages = Storages(graph, operators)
        self._numbers: dict[object, int] = {}
        self.pending: list[tuple[OperatorRecord, dict[str, Any], list[int]]] = []
        self.node_of: list[int] = []
        self.calls: list[Call | None] = []
        self._ends: dict[int, list[int]] = {}
        for storage, last in enumerate(self._storages.last_uses):
            self._ends.setdefault(last, []).append(storage)

    def add(self, number: int, position: int) -> None:
        """Append the records of a node, and free storages after their last use."""
        storages = self._storages
        plan = storages.plans[number]
        owners, shifts, key = self._called_with([storages.places[each] for each in plan.operands])
        outcome = self._outcome(plan, key, in_place=number in storages.overwriting)
        table: dict[int, object] = dict(enumerate(owners))
        for output, found in enumerate(outcome.outputs):
            if found is not None and found.storage >= len(owners):
                table[found.storage] = storages.places[Value(number, output)][0]
        for record, call in zip(outcome.records, outcome.calls, strict=True):
            changed = {
                "module_path": plan.node.module_path,
                "inputs": self._moved(record.inputs, table, shifts),
                "outputs": self._moved(record.outputs, table, shifts),
            }
            freed = [self._number(table, each) for each in record.freed]
            self.pending.append((record, changed, freed))
            self.node_of.append(number)
            self.calls.append(call)
        if self.pending:
            ends = (self._numbers.get(each) for each in self._ends.get(position, ()))
            self.pending[-1][2].extend(each for each in ends if each is not None)

    def _called_with(
        self, places: Sequence[tuple[int, int]]
    ) -> tuple[list[int], list[int], tuple[tuple[int, int, Role], ...]]:
        """Return storages and start offsets of a call, and a key that identifies the call."""
        begins: dict[int, int] = {}
        for storage, begin_byte in places:
            begins[storage] = min(begins.get(storage, begin_byte), begin_byte)
        owners = list(begins)
        shifts = [each // _ALIGNMENT_BYTE * _ALIGNMENT_BYTE for each in begins.values()]
        key = tuple(
            (number, begin_byte - shifts[number], self._storages.roles[storage])
            for storage, begin_byte in places
            for number in (owners.index(storage),)
        )
        return owners, shifts, key

    def _outcome(
        self, plan: Plan, key: tuple[tuple[int, int, Role], ...], *, in_place: bool
    ) -> Outcome:
        found = plan.outcomes.get((in_place, key))
        if found is None:
            node = plan.node
            places = tuple(
                Place(type, *place, is_trained(each))
                for each, type, place in zip(plan.operands, plan.types, key, strict=True)
            )
            found = plan.outcomes[in_place, key] = self._operators.outcome(
                node.op, node.overload, plan.arguments, places, in_place=in_place
            )
        return found

    def _number(self, table: dict[int, object], local: int) -> int:
        # Other storages are internal to the operator.
        owner = table.setdefault(local, object())
        return self._numbers.setdefault(owner, len(self._numbers))

    def _moved(
        self, specs: tuple[TensorSpec, ...], table: dict[int, object], shifts: list[int]
    ) -> tuple[TensorSpec, ...]:
        return tuple(
            self._operators.moved(
                each,
                self._number(table, each.storage),
                shifts[each.storage] if each.storage < len(shifts) else 0,
            )
            for each in specs
        )

    def add_rest(self, rest_bytes: int) -> None:
        spec = TensorSpec(
            shape=(rest_bytes,),
            dtype=dtype("uint8"),
            distinct_elements=rest_bytes,
            storage=len(self._numbers),
            role=Role.BUFFER,
        )
        record = OperatorRecord(
            index=0,
            op=REST_OF_MODEL,
            type=REST_OF_MODEL,
            module_path="",
            phase="forward",
            inputs=(spec,),
            outputs=(),
            state=State.COUNTED,
            work=Work(parameter_bytes=rest_bytes),
        )
        self.pending.append((record, {}, []))
        self.node_of.append(-1)
        self.calls.append(None)
