"""Traffic of operators in fused kernels, as compilers (Inductor, TensorRT) make them.

Operators become kernels. A kernel reads nothing twice, and writes a value only if another kernel
reads it or it outlives the pass. The table `Kind` defines what can be fused. Where compilers
differ, the rule is that of the one that fuses more, as long as one kernel of the usual kind
suffices:

* an operator joins the kernels of its producers; kernels over the same elements that read the same
  operand join each other, unless a kernel between them depends on one and feeds the other;
* readers recompute an elementwise value (a part of it, in part) if its operands move no more bytes
  than the value itself; matrix products read stored values, and random numbers are drawn once;
* pieces of a concatenation are written in place;
* normalizations fold into the weights of the product before them, and values of parameters and
  buffers alone are computed before the pass; not in training, which changes them.

A value is assumed to be read in the order of its computation: records do not distinguish transposed
views, and compilers can permute the loops of a kernel without a product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from roofline.workload.dataflow import Dataflow, Reading, Value, trace_dataflow
from roofline.workload.fusion_kinds import (
    Kind,
    is_concatenation,
    is_copy,
    is_random,
    kind_of,
    row_is_on_chip,
    rows_of,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

_SEARCH_LIMIT = 100
"""Maximum number of kernels searched for a cycle; beyond it, two kernels stay separate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedOperator:
    """One operator in fused kernels.

    ``chain`` is the index of the first operator of its kernel. ``traffic_bytes`` is the traffic of
    its operands that still crosses memory. ``is_folded``: its arithmetic is not part of the pass,
    because it is folded into the weights of the product before it, or depends on parameters and
    buffers alone. ``is_left_out``: its readers recompute it, or it has none. ``reads`` and
    ``writes`` are the operands that cross memory; a recomputed operand is replaced by its sources.
    """

    chain: int
    traffic_bytes: int
    is_folded: bool = False
    is_left_out: bool = False
    reads: tuple[TensorSpec, ...] = ()
    writes: tuple[TensorSpec, ...] = ()

    @property
    def is_executed(self) -> bool:
        return not (self.is_folded or self.is_left_out)


@dataclass(slots=True, eq=False)
class _Kernel:
    """Operators that run as one kernel.

    ``elements`` is its iteration space, ``rows`` the number of row results it computes from that
    (0: none), ``revisits`` True if the rows are still on chip after these.
    """

    members: list[int]
    kind: Kind
    phase: str
    elements: int
    rows: int = 0
    revisits: bool = False


def fused_traffic(
    records: Sequence[OperatorRecord], flow: Dataflow | None = None, *, only_chains: bool = False
) -> tuple[FusedOperator, ...]:
    """Return the remaining traffic of every operator in fused kernels, in order.

    No operator moves more bytes than unfused. Free operators move nothing and belong to no kernel.
    ``only_chains`` restricts fusion to chains of producers and consumers and folded normalizations,
    as in inference compilers (TensorRT): an estimate, while all rules together give the minimum.
    """
    return _Fusion(records, flow or trace_dataflow(records), only_chains=only_chains).fused()


def fused_records(
    records: Sequence[OperatorRecord], fused: Sequence[FusedOperator], flow: Dataflow | None = None
) -> tuple[tuple[tuple[int, ...], OperatorRecord], ...]:
    """Return the kernels of a pass in an executable order, each as one operator.

    For each, the positions of its operators, and a record of its memory traffic: ``work`` is that
    of the executed operators, ``freed`` the storages that no later kernel touches. The last kernel
    frees gradients that live until the end of the pass.
    """
    members: dict[int, list[int]] = {}
    for index, (record, each) in enumerate(zip(records, fused, strict=True)):
        if record.state is not State.FREE:
            members.setdefault(each.chain, []).append(index)
    order = _in_order(members, fused, flow or trace_dataflow(records))
    last_touch: dict[int, int] = {}
    for position, chain in enumerate(order):
        for index in members[chain]:
            for spec in (*fused[index].reads, *fused[index].writes):
                last_touch[spec.storage] = position
    for record in records:
        for spec in record.outputs:
            if spec.role is Role.GRADIENT and spec.storage in records[-1].freed:
                last_touch[spec.storage] = len(order) - 1
    freed: dict[int, list[int]] = {}
    for storage in (each for record in records for each in record.freed):
        if storage in last_touch:
            freed.setdefault(last_touch[storage], []).append(storage)
    return tuple(
        (
            tuple(members[chain]),
            replace(
                records[chain],
                inputs=tuple(spec for index in members[chain] for spec in fused[index].reads),
                outputs=tuple(spec for index in members[chain] for spec in fused[index].writes),
                work=sum((records[n].work for n in members[chain] if fused[n].is_executed), Work()),
                freed=tuple(freed.get(position, ())),
            ),
        )
        for position, chain in enumerate(order)
    )


def _in_order(
    members: Mapping[int, Sequence[int]], fused: Sequence[FusedOperator], flow: Dataflow
) -> list[int]:
    """Return the chains in topological order, ties by first operator."""
    needs: dict[int, set[int]] = {chain: set() for chain in members}
    for chain, inside in members.items():
        needed_by = {fused[each].chain for index in inside for each in flow.after[index]}
        for after in needed_by - {chain}:
            needs[after].add(chain)
    sorter = TopologicalSorter(needs)
    sorter.prepare()
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for chain in sorter.get_ready():
            heappush(ready, chain)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order


_COMPUTED_AGAIN = (Kind.ELEMENTWISE, Kind.AFFINE, Kind.GATHER)
_READS_AGAIN = (*_COMPUTED_AGAIN, Kind.REDUCTION, Kind.ROWWISE)
"""Kinds that recompute operands instead of reading them."""

_JOINS = (Kind.ELEMENTWISE, Kind.AFFINE, Kind.ROWWISE, Kind.REDUCTION)
_NOT_IN_TILES = (Kind.GATHER, Kind.REDUCTION, Kind.ROWWISE)


class _Fusion:
    def __init__(
        self, records: Sequence[OperatorRecord], flow: Dataflow, *, only_chains: bool
    ) -> None:
        self._records = records
        self._flow = flow
        self._only_chains = only_chains
        self._is_inference = all(record.phase == "forward" for record in records)
        self._kinds = [
            None
            if each.state is State.FREE
            else Kind.OPAQUE
            if only_chains and is_concatenation(each)
            else kind_of(each)
            for each in records
        ]
        self._constant = frozenset[int]() if only_chains else self._find_constant()
        self._bases = {} if only_chains else self._computed_from()
        self._kernels: list[_Kernel | None] = [None] * len(records)
        self._is_spanned = bytearray(len(records))
        """1 where a kernel has operators both up to this position and after it."""
        self._join_producers()
        if not only_chains:
            self._join_readers()
        self._folded = self._find_folded()
        self._shared: set[Value] = set()
        """Values that another kernel reads."""
        self._in_place: dict[int, set[Value]] = {}
        """Pieces of stored concatenations that are computed in place."""
        self._live = self._find_live()

    def _find_constant(self) -> frozenset[int]:
        """Operators that depend on parameters and buffers alone; they run before the pass."""
        constant: set[int] = set()
        if not self._is_inference:
            return frozenset()
        for index, (record, kind) in enumerate(zip(self._records, self._kinds, strict=True)):
            if kind is None or is_random(record) or record.state is State.UNKNOWN:
                continue
            is_lasting = any(spec.role.persists for spec in record.outputs)
            if not record.outputs or is_lasting or self._flow.is_partial[index]:
                continue
            if all(
                value.writer in constant
                if value is not None
                else writer is None and _is_constant(spec)
                for spec, value, writer in self._flow.read[index]
            ):
                constant.add(index)
        return frozenset(constant)

    def _computed_from(self) -> dict[Value, tuple[Reading, ...]]:
        """Map recomputed values to their sources."""
        bases: dict[Value, tuple[Reading, ...]] = {}
        for index, kind in enumerate(self._kinds):
            if kind not in _COMPUTED_AGAIN or self._flow.is_partial[index]:
                continue
            if is_random(self._records[index]):
                continue
            found = {
                each.key: each
                for reading in self._flow.read[index]
                for each in self._expanded(reading, bases)
            }
            # A value stored for others anyway costs its bytes once; otherwise also their write.
            from_bytes = sum(self._bytes(each.spec, each.value) for each in found.values())
            all_stored = all(self._is_stored(each.value) for each in found.values())
            for spec, value in self._flow.written[index]:
                byte = self._bytes(spec, value)
                if from_bytes < byte or (from_bytes == byte and all_stored):
                    bases[value] = tuple(found.values())
        return bases

    def _bytes(self, spec: TensorSpec, value: Value | None) -> int:
        return spec.byte * (1 if self._is_stored(value) else 2)

    def _is_stored(self, value: Value | None) -> bool:
        """True if the value is in memory under any fusion."""
        if value is None or value.must_be_stored or value.writer in self._constant:
            return True
        return any(self._kinds[each] in (Kind.PRODUCT, Kind.OPAQUE) for each in value.readers)

    def _expanded(
        self, reading: Reading, bases: Mapping[Value, tuple[Reading, ...]]
    ) -> tuple[Reading, ...]:
        """Return the sources of a recomputed operand; else the operand."""
        spec, value, _ = reading
        if value is None or value not in bases:
            return (reading,)
        if spec.distinct_elements == value.elements:
            return bases[value]
        if self._kinds[value.writer] is Kind.GATHER:
            return (reading,)
        return tuple(_part_of(each, spec, value) for each in bases[value])

    def _is_made_by(self, kernel: _Kernel | None, value: Value | None) -> bool:
        return value is not None and self._kernels[value.writer] is kernel

    def _reads(self, index: int) -> list[Reading]:
        """Operands that an operator's kernel reads for it, without those it computes itself."""
        kernel, again = self._kernels[index], self._kinds[index] in _READS_AGAIN
        return [
            each
            for reading in self._flow.read[index]
            if not self._is_made_by(kernel, reading.value)
            for each in (self._expanded(reading, self._bases) if again else (reading,))
            if not self._is_made_by(kernel, each.value)
        ]

    # -- fusion decisions --------------------------------------------------------------------------

    def _join_producers(self) -> None:
        for index, kind in enumerate(self._kinds):
            if kind is None:
                continue
            alone = kernel = _single_operator(index, self._records[index], kind)
            if self._flow.is_partial[index] or index in self._constant:
                kernel.kind = Kind.OPAQUE
            self._kernels[index] = kernel
            if kernel.kind not in _JOINS:
                continue
            for other in self._producers(index):
                if kernel is not alone and self._are_linked(other, kernel, index):
                    continue
                read = self._read_from(other, index)
                joined = _fuse_with_producer(other, kernel, self._records[index], read)
                if joined is not None and not self._would_cycle(joined.members):
                    kernel = joined
                    self._place(joined)

    def _place(self, kernel: _Kernel) -> None:
        for member in kernel.members:
            self._kernels[member] = kernel
        first, last = kernel.members[0], kernel.members[-1]
        self._is_spanned[first:last] = b"\1" * (last - first)

    def _join_readers(self) -> None:
        """Join kernels over the same elements that read the same operand."""
        readers: dict[tuple[object, ...], list[int]] = {}
        for index, kernel in enumerate(self._kernels):
            if kernel is not None and kernel.kind in _JOINS:
                for each in self._reads(index):
                    readers.setdefault(each.key, []).append(index)
        for first, *others in readers.values():
            for index in others:
                one, other = self._kernels[first], self._kernels[index]
                if one is None or other is None or one is other or not _can_share_loop(one, other):
                    continue
                joined = _merged(one, other)
                if not self._would_cycle(joined.members) and not self._depends(one, other):
                    self._place(joined)

    def _depends(self, a: _Kernel, b: _Kernel) -> bool:
        return any(
            not set(self._flow.after[member]).isdisjoint(other.members)
            for one, other in ((a, b), (b, a))
            for member in one.members
        )

    def _producers(self, index: int) -> list[_Kernel]:
        """Kernels that produce an operator's operands, latest first."""
        found: list[_Kernel] = []
        for _, value, _ in self._flow.read[index]:
            kernel = self._kernels[value.writer] if value is not None else None
            if kernel is not None and kernel not in found:
                found.append(kernel)
        return sorted(found, key=lambda each: -each.members[-1])

    def _read_from(self, producer: _Kernel, index: int) -> list[int]:
        """Elements of the values that an operator reads from a kernel; 0 for a part of one."""
        return [
            value.elements if spec.distinct_elements == value.elements else 0
            for spec, value, _ in self._flow.read[index]
            if value is not None and self._kernels[value.writer] is producer
        ]

    def _are_linked(self, a: _Kernel, b: _Kernel, index: int) -> bool:
        """True if one of two kernels reads from the other, except through `index`."""
        return any(
            member != index and self._read_from(other, member)
            for one, other in ((a, b), (b, a))
            for member in one.members
        )

    def _would_cycle(self, members: Sequence[int]) -> bool:
        """True if outside operators depend on `members` and feed them, or at `_SEARCH_LIMIT`
        kernels.
        """
        inside, after = frozenset(members), self._flow.after
        # A later kernel can feed `members` through its earlier operators. No path returns from
        # behind a position that no kernel spans.
        end = self._is_spanned.find(0, max(inside))
        waiting = [each for member in members for each in after[member] if each not in inside]
        looked: set[int] = set()
        while waiting:
            index = waiting.pop()
            kernel = self._kernels[index]
            if index > end or kernel is None or kernel.members[0] in looked:
                continue
            if len(looked) == _SEARCH_LIMIT:
                return True
            looked.add(kernel.members[0])
            needed = [each for member in kernel.members for each in after[member]]
            if not inside.isdisjoint(needed):
                return True
            waiting += needed
        return False

    # -- remaining arithmetic and traffic ----------------------------------------------------------

    def _find_folded(self) -> dict[int, frozenset[int]]:
        """Normalizations folded into constant weights, and the storages not read for them.

        Scale and shift fold into weights and bias of the convolution or linear layer whose only
        reader they are. A layer without a bias gets one: one parameter vector remains. Training
        changes the weights in every step, so nothing is folded.
        """
        folded: dict[int, frozenset[int]] = {}
        if not self._is_inference:
            return folded
        for index, kind in enumerate(self._kinds):
            if kind is not Kind.AFFINE or not self._flow.read[index]:
                continue
            (_, value, _), *others = self._flow.read[index]
            parameters = [spec for spec, _, _ in others if _is_constant(spec)]
            if value is None or value.must_be_stored or len(parameters) != len(others):
                continue
            if self._kinds[value.writer] is not Kind.PRODUCT or value.readers != [index]:
                continue
            weights = [s for s in self._records[value.writer].inputs if _is_constant(s)]
            if any(len(spec.shape) > 1 for spec in weights):
                has_bias = any(len(spec.shape) == 1 for spec in weights)
                gone = parameters if has_bias else parameters[:-1]
                folded[index] = frozenset(spec.storage for spec in gone)
        return folded

    def _find_live(self) -> list[bool]:
        """Operators executed in their own kernel, because their results are read from there."""
        live = [False] * len(self._records)
        used: set[Value] = set()
        taken: set[Value] = set()
        for index in reversed(range(len(self._records))):
            kind, kernel = self._kinds[index], self._kernels[index]
            if kernel is None or index in self._constant:
                continue
            read, written = self._flow.read[index], self._flow.written[index]
            stored = [v for _, v in written if v.must_be_stored or v in self._shared]
            is_needed = self._only_chains or stored or any(v in used for _, v in written)
            if not is_needed and kind not in (Kind.PRODUCT, Kind.OPAQUE):
                continue
            live[index] = True
            used |= {v for _, v, _ in read if v is not None and self._is_made_by(kernel, v)}
            if stored and kind is Kind.GATHER and is_concatenation(self._records[index]):
                places = {
                    value
                    for spec, value, _ in read
                    if value is not None
                    and self._kinds[value.writer] is not Kind.OPAQUE
                    and value.writer not in self._constant
                    and not value.must_be_stored
                    and value not in taken
                    and spec.distinct_elements == value.elements
                }
                taken |= places
                self._in_place[index] = places
                self._shared |= places
            self._shared |= {v for _, v, _ in self._reads(index) if v is not None}
            if kind in _READS_AGAIN:
                again = (each for r in read for each in self._expanded(r, self._bases))
                used |= {v for _, v, _ in again if v is not None and self._is_made_by(kernel, v)}
        return live

    def fused(self) -> tuple[FusedOperator, ...]:
        seen: dict[_Kernel, set[tuple[object, ...]]] = {}
        return tuple(
            self._fused(index, kernel, seen.setdefault(kernel, set()))
            if kernel is not None and self._live[index]
            else FusedOperator(
                chain=index if kernel is None else kernel.members[0],
                traffic_bytes=0,
                is_folded=index in self._constant,
                is_left_out=kernel is not None and index not in self._constant,
            )
            for index, kernel in enumerate(self._kernels)
        )

    def _fused(
        self, index: int, kernel: _Kernel, already: set[tuple[object, ...]]
    ) -> FusedOperator:
        is_product = self._kinds[index] is Kind.PRODUCT
        gone, placed = self._folded.get(index, frozenset()), self._in_place.get(index, set())
        reads: list[TensorSpec] = []
        for each in self._reads(index):
            # Between two reads of one kernel, another may have written there. An epilogue cannot
            # reuse the operands of the product: its tiles are in another order.
            key = (*each.key, is_product)
            if each.spec.storage not in gone and each.value not in placed and key not in already:
                already.add(key)
                reads.append(each.spec)
        in_place_bytes = sum(value.last - value.first for value in placed)
        # Compilers omit unread results; library kernels write them.
        writes_all = self._kinds[index] in (Kind.OPAQUE, Kind.PRODUCT)
        writes = [
            _smaller(spec, spec.byte - in_place_bytes)
            for spec, value in self._flow.written[index]
            if in_place_bytes < spec.byte
            and (
                value.must_be_stored or value in self._shared or (writes_all and not value.readers)
            )
        ]
        byte = sum(spec.byte for spec in (*reads, *writes))
        return FusedOperator(
            chain=kernel.members[0],
            # The sources of a recomputed operand may be slightly larger than the operand.
            traffic_bytes=min(byte, self._records[index].work.traffic_bytes),
            is_folded=index in self._folded,
            reads=tuple(reads),
            writes=tuple(writes),
        )


def _part_of(read: Reading, spec: TensorSpec, value: Value) -> Reading:
    """Return the part of a source needed to compute a part of a value of its size."""
    base = read.spec
    if base.elements != value.elements or base.distinct_elements != base.elements:
        return read
    before = spec.dtype.byte(1) and (spec.offset_bytes - value.first) // spec.dtype.byte(1)
    part = replace(
        base,
        distinct_elements=spec.distinct_elements,
        min_elements=None,
        offset_bytes=base.offset_bytes + base.dtype.byte(before),
    )
    return Reading(part, read.value, read.latest_writer)


def _smaller(spec: TensorSpec, byte: int) -> TensorSpec:
    """Return an operand with only `byte` bytes touched."""
    if byte >= spec.byte:
        return spec
    return replace(
        spec, distinct_elements=spec.distinct_elements * byte // spec.byte, min_elements=None
    )


def _is_constant(spec: TensorSpec) -> bool:
    return spec.role in (Role.PARAMETER, Role.BUFFER)


def _can_share_loop(a: _Kernel, b: _Kernel) -> bool:
    if a.phase != b.phase or a.elements != b.elements or {a.kind, b.kind} - set(_JOINS):
        return False
    return not (a.rows and b.rows) or a.rows == b.rows


def _single_operator(index: int, record: OperatorRecord, kind: Kind) -> _Kernel:
    main: Sequence[TensorSpec] = record.inputs if kind is Kind.REDUCTION else record.outputs
    kernel = _Kernel([index], kind, record.phase, main[0].elements if main else 0)
    same = all(spec.elements == kernel.elements for spec in record.outputs)
    if not main or not record.outputs or (kind is Kind.ELEMENTWISE and not same):
        kernel.kind = Kind.OPAQUE
    elif kind in (Kind.ROWWISE, Kind.REDUCTION):
        kernel.rows = rows_of(record)
        kernel.revisits = row_is_on_chip(record)
    return kernel


def _fuse_with_producer(
    producer: _Kernel, kernel: _Kernel, record: OperatorRecord, read: Sequence[int]
) -> _Kernel | None:
    """Return the kernel of an operator fused with a producer; None if they stay separate.

    `read` are the elements of the values that it reads from there.
    """
    kinds = {producer.kind, kernel.kind}
    if producer.phase != kernel.phase or Kind.OPAQUE in kinds:
        return None
    space, size = producer.elements, record.outputs[0].elements
    if producer.rows == size != space and kernel.kind is Kind.ELEMENTWISE:
        # Arithmetic on row sums in registers.
        are_sums = len(kernel.members) == 1 and all(each == size for each in read)
        return _merged(producer, kernel) if are_sums else None
    if kernel.elements != space:
        return None
    if any(each != space and not (producer.revisits and each == producer.rows) for each in read):
        return None
    if Kind.PRODUCT in kinds:
        # Tiles of a product finish one by one: elementwise epilogues, but not along rows.
        is_epilogue = kernel.kind in (Kind.ELEMENTWISE, Kind.AFFINE, Kind.PRODUCT)
        is_one = not (kernel.kind is producer.kind or producer.kind in _NOT_IN_TILES)
        return _merged(producer, kernel) if is_epilogue and is_one and not is_copy(record) else None
    if kernel.kind is Kind.ROWWISE and not kernel.revisits:
        # Its rows are read more than once: their producer would run as often.
        return None
    if producer.rows and kernel.rows:
        # Another row result of the same rows comes from the same sweep.
        is_one_sweep = kernel.kind is Kind.REDUCTION and all(each == space for each in read)
        revisits = producer.revisits and kernel.revisits
        are_same = producer.rows == kernel.rows and (revisits or is_one_sweep)
        return _merged(producer, kernel) if are_same else None
    return _merged(producer, kernel)


def _merged(producer: _Kernel, kernel: _Kernel) -> _Kernel:
    return _Kernel(
        members=sorted((*producer.members, *kernel.members)),
        kind=max(producer.kind, kernel.kind),
        phase=producer.phase,
        elements=producer.elements,
        rows=producer.rows or kernel.rows,
        revisits=producer.revisits or kernel.revisits,
    )
