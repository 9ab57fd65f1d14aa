"""The records that a graph would leave in a capture, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.foundation.dtypes import dtype
from roofline.latency.measuring.calls import Call
from roofline.substitution.graphs.graph import INPUT, Graph, Value
from roofline.substitution.graphs.operators import Operators, Plan, is_trained
from roofline.substitution.graphs.outcomes import Outcome, Place
from roofline.substitution.graphs.storages import Storages, storages_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

_ALIGNMENT_BYTE = 64
"""Of what torch's allocator gives: which part of a storage is called makes no other call."""

AROUND = "around"
"""The operator of the record that stands for the rest of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The records of one pass of a graph, in their order, those that move nothing among them.

    ``node_of`` is the node that each comes from, -1 for what stands for the rest of the model;
    ``calls`` are the calls as they can be timed on their own, None for that rest.
    """

    records: tuple[OperatorRecord, ...]
    node_of: tuple[int, ...]
    calls: tuple[Call | None, ...]


def records(graph: Graph, operators: Operators, *, around_bytes: int = 0) -> Counted:
    """What a capture of the module that is built of `graph` would record.

    Args:
        graph: a model, or a piece of one.
        operators: calls operators; those that are known are not called again.
        around_bytes: what the rest of the model touches between two passes of a piece: a last
        record
            reads as much of what persists, so that what the piece finds in caches at its next pass
            is what it finds there in the model; 0: there is no rest.

    Raises:
        RewriteError: an operator does not take what it is given.
    """
    counting = _Counting(operators, storages_of(graph, operators))
    for position, (number, node) in enumerate(graph.nodes.items()):
        if node.op != INPUT:
            counting.add(number, position)
    return counting.counted(around_bytes)


@dataclass(slots=True, kw_only=True)
class _Pending:
    """A record whose end is not known yet: which storages go before the next one."""

    like: OperatorRecord
    module_path: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    freed: list[int]

    def record(self, index: int) -> OperatorRecord:
        like = self.like
        return OperatorRecord(
            index=index,
            op=like.op,
            type=like.type,
            module_path=self.module_path,
            phase=like.phase,
            inputs=self.inputs,
            outputs=self.outputs,
            attributes=like.attributes,
            state=like.state,
            work=like.work,
            formula=like.formula,
            freed=tuple(sorted(self.freed)),
        )


class _Counting:
    def __init__(self, operators: Operators, storages: Storages) -> None:
        self._operators = operators
        self._storages = storages
        self._numbers: dict[object, int] = {}
        self._pending: list[_Pending] = []
        self._nodes: list[int] = []
        self._calls: list[Call | None] = []
        self._ends: dict[int, list[int]] = {}
        for storage, last in enumerate(storages.last_uses):
            self._ends.setdefault(last, []).append(storage)

    def add(self, number: int, position: int) -> None:
        """The records of a node, after which goes what no other needs."""
        storages = self._storages
        plan = storages.plans[number]
        places = [storages.places[each] for each in plan.operands]
        owners, shifts, key = self._called_with(places)
        outcome = self._outcome(plan, key, in_place=number in storages.overwriting)
        table: dict[int, object] = dict(enumerate(owners))
        for output, found in enumerate(outcome.outputs):
            if found is not None and found.storage >= len(owners):
                table[found.storage] = storages.places[Value(number, output)][0]
        for record, call in zip(outcome.records, outcome.calls, strict=True):
            self._pending.append(
                _Pending(
                    like=record,
                    module_path=plan.node.module_path,
                    inputs=self._moved(record.inputs, table, shifts),
                    outputs=self._moved(record.outputs, table, shifts),
                    freed=[self._number(table, each) for each in record.freed],
                )
            )
            self._nodes.append(number)
            self._calls.append(call)
        if self._pending:
            last = self._ends.get(position, ())
            self._pending[-1].freed += [
                self._numbers[each] for each in last if each in self._numbers
            ]

    def _called_with(
        self, places: list[tuple[int, int]]
    ) -> tuple[list[int], list[int], tuple[tuple[int, int, Role], ...]]:
        """The storages of a call, where in each it begins, and what tells the call from others."""
        owners: list[int] = []
        begins: list[int] = []
        numbered: list[int] = []
        for storage, begin_byte in places:
            if storage in owners:
                number = owners.index(storage)
                begins[number] = min(begins[number], begin_byte)
            else:
                number = len(owners)
                owners.append(storage)
                begins.append(begin_byte)
            numbered.append(number)
        shifts = [each // _ALIGNMENT_BYTE * _ALIGNMENT_BYTE for each in begins]
        roles = self._storages.roles
        key = tuple(
            (number, begin_byte - shifts[number], roles[storage])
            for number, (storage, begin_byte) in zip(numbered, places, strict=True)
        )
        return owners, shifts, key

    def _outcome(
        self, plan: Plan, key: tuple[tuple[int, int, Role], ...], *, in_place: bool
    ) -> Outcome:
        found = plan.outcomes.get((in_place, key))
        if found is None:
            node = plan.node
            found = plan.outcomes[in_place, key] = self._operators.outcome(
                node.op,
                node.overload,
                plan.arguments,
                tuple(
                    Place(type, *place, is_trained(each))
                    for each, type, place in zip(plan.operands, plan.types, key, strict=True)
                ),
                in_place=in_place,
            )
        return found

    def _number(self, table: dict[int, object], local: int) -> int:
        owner = table.get(local)
        if owner is None:
            # What lives within the operator alone.
            owner = table[local] = object()
        return self._numbers.setdefault(owner, len(self._numbers))

    def _moved(
        self, specs: tuple[TensorSpec, ...], table: dict[int, object], shifts: list[int]
    ) -> tuple[TensorSpec, ...]:
        moved: list[TensorSpec] = []
        for each in specs:
            number = self._number(table, each.storage)
            shift = shifts[each.storage] if each.storage < len(shifts) else 0
            moved.append(self._operators.moved(each, number, shift))
        return tuple(moved)

    def counted(self, around_bytes: int) -> Counted:
        if around_bytes:
            spec = TensorSpec(
                shape=(around_bytes,),
                dtype=dtype("uint8"),
                distinct_elements=around_bytes,
                storage=len(self._numbers),
                role=Role.BUFFER,
            )
            like = OperatorRecord(
                index=0,
                op=AROUND,
                type=AROUND,
                module_path="",
                phase="forward",
                inputs=(spec,),
                outputs=(),
                state=State.COUNTED,
                work=Work(parameter_bytes=around_bytes),
            )
            self._pending.append(
                _Pending(like=like, module_path="", inputs=(spec,), outputs=(), freed=[])
            )
            self._nodes.append(-1)
            self._calls.append(None)
        return Counted(
            records=tuple(each.record(index) for index, each in enumerate(self._pending)),
            node_of=tuple(self._nodes),
            calls=tuple(self._calls),
        )
