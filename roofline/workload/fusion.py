"""Traffic where chains of operators stay on chip, as compilers (Inductor, TensorRT) keep them.

Operators become kernels. Within a kernel nothing is read twice, and a value is written only if
someone outside the kernel reads it or it outlives the pass. What joins what is the table `Kind`;
where compilers differ, the rule is that of the one that fuses more, as long as one kernel of the
usual kind can do it. Left out, so that the result stays an upper limit of what is possible: values
computed twice instead of stored, operators that only share an input, parts of a tensor (the halves
of a gated layer) and pieces of a concatenation, that are written where they end up.

It takes for granted that a value is read in the order in which it was made: records do not tell a
transposed view from others, and compilers can turn the loops of a kernel that has no product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roofline.workload.dataflow import Dataflow, dataflow
from roofline.workload.fusion_kinds import Kind, is_copy, kind_of, row_is_on_chip, rows_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec

_SEARCH_LIMIT = 100
"""Kernels looked through for a way around, before two are left apart: keeps the search short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """One operator in fused kernels.

    ``chain`` is the index, among the records, of the first operator of the kernel it is part of;
    its own where that is itself. ``traffic_byte`` is what of its operands still crosses memory.
    ``is_folded``: its arithmetic went into the weights of the product before it, and is not done.
    """

    chain: int
    traffic_byte: int
    is_folded: bool = False


@dataclass(slots=True, eq=False)
class _Kernel:
    """Operators that run as one.

    ``elements`` is its iteration space, ``rows`` the number of sums or other figures it makes of
    rows of that (0: none), ``revisits`` whether the rows are still on chip when these are known.
    """

    members: list[int]
    kind: Kind
    phase: str
    elements: int
    rows: int = 0
    revisits: bool = False


def fused_traffic(records: Sequence[OperatorRecord]) -> tuple[Fused, ...]:
    """What every operator still moves when the pass runs in fused kernels, in order.

    No operator moves more than alone. Free operators move nothing and are no part of a kernel.
    """
    flow = dataflow(records)
    kinds = tuple(None if each.state is State.FREE else kind_of(each) for each in records)
    kernels = _kernels(records, kinds, flow)
    folded = _folded(records, kinds, flow)
    seen: dict[_Kernel, set[tuple[object, ...]]] = {}
    fused: list[Fused] = []
    for index, kernel in enumerate(kernels):
        if kernel is None:
            fused.append(Fused(chain=index, traffic_byte=0))
            continue
        crossing = 0
        already = seen.setdefault(kernel, set())
        for spec, value, writer in flow.read[index]:
            if value is not None and kernels[value.writer] is kernel:
                continue
            if spec.storage in folded.get(index, ()):
                continue
            # Between two reads of one kernel, another may have written there; and an epilogue finds
            # nothing of what the product read: its tiles were of another order.
            is_product = kinds[index] is Kind.PRODUCT
            key = (spec.storage, spec.offset_byte, spec.byte, writer, is_product)
            if key not in already:
                already.add(key)
                crossing += spec.byte
        for spec, value in flow.written[index]:
            if value.readers or value.must_be_stored:
                outside = any(kernels[reader] is not kernel for reader in value.readers)
                is_stored = value.must_be_stored or outside
            else:
                # Compilers leave out what nobody reads; a library's kernel writes it all the same.
                is_stored = kinds[index] in (Kind.OPAQUE, Kind.PRODUCT)
            crossing += spec.byte if is_stored else 0
        is_folded = index in folded
        fused.append(Fused(chain=kernel.members[0], traffic_byte=crossing, is_folded=is_folded))
    return tuple(fused)


def _folded(
    records: Sequence[OperatorRecord], kinds: Sequence[Kind | None], flow: Dataflow
) -> dict[int, frozenset[int]]:
    """The normalisations that vanish into constant weights, and the storages not read for them.

    Scale and shift go into the weights and bias of the convolution or linear layer whose output is
    read by nothing else. If that has no bias, it gets one: of the parameters one vector remains.
    Training changes the weights in every step, so nothing can be folded into them.
    """
    folded: dict[int, frozenset[int]] = {}
    if any(record.phase != "forward" for record in records):
        return folded
    for index, kind in enumerate(kinds):
        if kind is not Kind.AFFINE or not flow.read[index]:
            continue
        (_, value, _), *others = flow.read[index]
        parameters = [spec for spec, _, _ in others if _is_constant(spec)]
        if value is None or value.must_be_stored or len(parameters) != len(others):
            continue
        if kinds[value.writer] is not Kind.PRODUCT or value.readers != [index]:
            continue
        weights = [spec for spec in records[value.writer].inputs if _is_constant(spec)]
        if any(len(spec.shape) > 1 for spec in weights):
            has_bias = any(len(spec.shape) == 1 for spec in weights)
            gone = parameters if has_bias else parameters[:-1]
            folded[index] = frozenset(spec.storage for spec in gone)
    return folded


def _is_constant(spec: TensorSpec) -> bool:
    return spec.role in (Role.PARAMETER, Role.BUFFER)


def _kernels(
    records: Sequence[OperatorRecord], kinds: Sequence[Kind | None], flow: Dataflow
) -> list[_Kernel | None]:
    """The kernel of every operator; None: it is free."""
    kernels: list[_Kernel | None] = [None] * len(records)
    for index, kind in enumerate(kinds):
        if kind is None:
            continue
        alone = kernel = _alone(index, records[index], kind)
        if flow.changes_a_part[index]:
            kernel.kind = Kind.OPAQUE
        kernels[index] = kernel
        if kernel.kind not in _JOINS:
            continue
        for other in _producers(flow, index, kernels):
            if kernel is not alone and _are_linked(other, kernel, index, flow, kernels):
                continue
            joined = _together(
                other, kernel, records[index], _read_from(other, index, flow, kernels)
            )
            if joined is not None and not _leads_back(joined.members, flow, kernels):
                kernel = joined
                for member in joined.members:
                    kernels[member] = joined
    return kernels


_JOINS = (Kind.ELEMENTWISE, Kind.AFFINE, Kind.ROWWISE, Kind.REDUCTION)


def _alone(index: int, record: OperatorRecord, kind: Kind) -> _Kernel:
    main: Sequence[TensorSpec] = record.inputs if kind is Kind.REDUCTION else record.outputs
    kernel = _Kernel([index], kind, record.phase, main[0].elements if main else 0)
    same = all(spec.elements == kernel.elements for spec in record.outputs)
    if not main or not record.outputs or (kind is Kind.ELEMENTWISE and not same):
        kernel.kind = Kind.OPAQUE
    elif kind in (Kind.ROWWISE, Kind.REDUCTION):
        kernel.rows = rows_of(record)
        kernel.revisits = row_is_on_chip(record)
    return kernel


def _producers(flow: Dataflow, index: int, kernels: Sequence[_Kernel | None]) -> list[_Kernel]:
    """The kernels that make what an operator reads, the latest first: where a sum ends up."""
    found: list[_Kernel] = []
    for _, value, _ in flow.read[index]:
        kernel = kernels[value.writer] if value is not None else None
        if kernel is not None and kernel not in found:
            found.append(kernel)
    return sorted(found, key=lambda each: -each.members[-1])


def _read_from(
    producer: _Kernel, index: int, flow: Dataflow, kernels: Sequence[_Kernel | None]
) -> list[int]:
    """Elements of the values that an operator reads from a kernel; 0 for a part of one."""
    return [
        value.elements if spec.distinct_elements == value.elements else 0
        for spec, value, _ in flow.read[index]
        if value is not None and kernels[value.writer] is producer
    ]


def _are_linked(
    a: _Kernel, b: _Kernel, index: int, flow: Dataflow, kernels: Sequence[_Kernel | None]
) -> bool:
    """Whether one of two kernels reads from the other, not counting what operator `index` reads.

    They were not joined when it did, for a reason that still holds.
    """
    for one, other in ((a, b), (b, a)):
        for member in one.members:
            if member != index and _read_from(other, member, flow, kernels):
                return True
    return False


def _together(
    producer: _Kernel, kernel: _Kernel, record: OperatorRecord, read: Sequence[int]
) -> _Kernel | None:
    """The kernel of an operator joined with one that makes what it reads; None: they stay two.

    `read` are the elements of the values that it reads from there.
    """
    kinds = {producer.kind, kernel.kind}
    if producer.phase != kernel.phase or Kind.OPAQUE in kinds:
        return None
    space, size = producer.elements, record.outputs[0].elements
    if producer.rows == size != space and kernel.kind is Kind.ELEMENTWISE:
        # Arithmetic on the sums of rows, which are in registers.
        are_sums = len(kernel.members) == 1 and all(each == size for each in read)
        return _joined(producer, kernel) if are_sums else None
    if kernel.elements != space:
        return None
    if any(each != space and not (producer.revisits and each == producer.rows) for each in read):
        return None
    if Kind.PRODUCT in kinds:
        # Tiles of a product are finished one by one: element by element, but not along rows.
        is_epilogue = kernel.kind in (Kind.ELEMENTWISE, Kind.AFFINE, Kind.PRODUCT)
        is_one = not (kernel.kind is producer.kind or producer.kind in _NOT_IN_TILES)
        return _joined(producer, kernel) if is_epilogue and is_one and not is_copy(record) else None
    if kernel.kind is Kind.ROWWISE and not kernel.revisits:
        # Its rows are read more than once: what makes them would be, too.
        return None
    if producer.rows and kernel.rows:
        are_same = producer.rows == kernel.rows and producer.revisits and kernel.revisits
        return _joined(producer, kernel) if are_same else None
    return _joined(producer, kernel)


_NOT_IN_TILES = (Kind.GATHER, Kind.REDUCTION, Kind.ROWWISE)


def _joined(producer: _Kernel, kernel: _Kernel) -> _Kernel:
    return _Kernel(
        members=sorted((*producer.members, *kernel.members)),
        kind=max(producer.kind, kernel.kind),
        phase=producer.phase,
        elements=producer.elements,
        rows=producer.rows or kernel.rows,
        revisits=producer.revisits or kernel.revisits,
    )


def _leads_back(members: Sequence[int], flow: Dataflow, kernels: Sequence[_Kernel | None]) -> bool:
    """Whether operators outside `members` need some of them and are needed by others.

    Looks no further than `_SEARCH_LIMIT` kernels; where that is not enough, it says yes.
    """
    inside = frozenset(members)
    latest = max(inside)
    waiting = [each for member in members for each in flow.after[member] if each not in inside]
    looked: set[int] = set()
    while waiting:
        index = waiting.pop()
        kernel = kernels[index]
        if index > latest or kernel is None or kernel.members[0] in looked:
            continue
        if len(looked) == _SEARCH_LIMIT:
            return True
        looked.add(kernel.members[0])
        for member in kernel.members:
            for each in flow.after[member]:
                if each in inside:
                    return True
                waiting.append(each)
    return False
