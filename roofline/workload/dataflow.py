"""Dataflow between operators, from the storages of their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import TensorSpec


@dataclass(slots=True, kw_only=True, eq=False)
class Value:
    """Bytes of a storage between one write and the next.

    ``readers`` are the operators that read some of it. ``must_be_stored``: it outlives the pass, is
    read together with other values, or is partly overwritten.
    """

    writer: int
    storage: int
    first: int
    last: int
    elements: int
    readers: list[int] = field(default_factory=list[int])
    must_be_stored: bool = False


class Reading(NamedTuple):
    """An operand that is read.

    ``value`` is the value that contains it (None: the pass did not write it, or several values
    contain it), ``latest_writer`` the last operator that wrote some of it (None: no operator).
    """

    spec: TensorSpec
    value: Value | None
    latest_writer: int | None

    @property
    def key(self) -> tuple[object, ...]:
        """Key shared by reads of the same bytes, as one operator left them."""
        return (self.spec.storage, self.spec.offset_bytes, self.spec.byte, self.latest_writer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataflow:
    """Values of a pass, by the position of records.

    ``read[i]`` are the operands that operator i reads, ``written[i]`` those that it writes, with
    the resulting values. ``after[i]`` are the operators that must run later than i: they read its
    results, or overwrite a part of its operands. ``is_partial[i]``: i overwrites a part of a value.
    """

    read: tuple[tuple[Reading, ...], ...]
    written: tuple[tuple[tuple[TensorSpec, Value], ...], ...]
    after: tuple[list[int], ...]
    is_partial: tuple[bool, ...]


def trace_dataflow(records: Sequence[OperatorRecord]) -> Dataflow:
    """Trace every written byte of a pass to its readers; views are transparent."""
    current: dict[int, list[Value]] = {}
    read: list[tuple[Reading, ...]] = []
    written: list[tuple[tuple[TensorSpec, Value], ...]] = []
    after: tuple[list[int], ...] = tuple([] for _ in records)
    is_partial: list[bool] = []
    for index, record in enumerate(records):
        if record.state is State.FREE:
            read.append(())
            written.append(())
            is_partial.append(False)
            continue
        read.append(tuple(_read(each, index, current, after) for each in record.inputs))
        before = {spec.storage: list(current.get(spec.storage, ())) for spec in record.outputs}
        parts = [_overwrite(each, index, before[each.storage], after) for each in record.outputs]
        is_partial.append(any(parts))
        row: list[tuple[TensorSpec, Value]] = []
        for spec in record.outputs:
            first, last = spec.offset_bytes, spec.offset_bytes + spec.byte
            value = Value(
                writer=index, storage=spec.storage, first=first, last=last, elements=spec.elements
            )
            kept = current.setdefault(spec.storage, [])
            kept[:] = [
                each
                for each in kept
                if each.writer == index or each.first < first or last < each.last
            ]
            kept.append(value)
            row.append((spec, value))
        written.append(tuple(row))
    dropped = {storage for record in records for storage in record.freed}
    for storage, values in current.items():
        if storage not in dropped:
            for value in values:
                value.must_be_stored = True
    return Dataflow(
        read=tuple(read), written=tuple(written), after=after, is_partial=tuple(is_partial)
    )


def _read(
    spec: TensorSpec, index: int, current: dict[int, list[Value]], after: Sequence[list[int]]
) -> Reading:
    if spec.storage not in current:
        return Reading(spec, None, None)
    first, last = spec.offset_bytes, spec.offset_bytes + spec.byte
    values = [each for each in current[spec.storage] if each.first < last and first < each.last]
    for value in values:
        after[value.writer].append(index)
        value.readers.append(index)
    if len(values) == 1:
        (value,) = values
        if value.first <= first and last <= value.last:
            return Reading(spec, value, value.writer)
    for value in values:
        value.must_be_stored = True
    return Reading(spec, None, max((value.writer for value in values), default=None))


def _overwrite(
    spec: TensorSpec, index: int, values: Sequence[Value], after: Sequence[list[int]]
) -> bool:
    """Record an overwrite; True if it changes only a part of a value: its readers run first."""
    first, last = spec.offset_bytes, spec.offset_bytes + spec.byte
    parts = [
        each
        for each in values
        if each.first < last and first < each.last and (each.first < first or last < each.last)
    ]
    for value in parts:
        value.must_be_stored = True
        for earlier in (value.writer, *value.readers):
            if earlier != index:
                after[earlier].append(index)
    return bool(parts)
