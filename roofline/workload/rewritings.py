"""Minimum work of a model under a closed list of rewritings.

They are: batch-norm and constant folding, dead-code elimination, and merging of parallel and
consecutive linear maps with constant weights where that lowers FLOP (`linear_maps`). Arithmetic
counts only MACs, those of attention included. Memory counts once every byte that a pass must touch
and did not make for itself. Where records are inconclusive, the smaller value is taken.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roofline.workload.dataflow import Dataflow, trace_dataflow
from roofline.workload.formulas.convolution import leading_padding, spatial_dimensions, with_batch
from roofline.workload.fusion_kinds import Kind, is_copy, kind_of
from roofline.workload.linear_maps import (
    Edge,
    Group,
    LinearMap,
    Link,
    convolution_map,
    matrix_map,
    min_merged_work,
)
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """Minimum work of one pass.

    ``products`` are records, each with the minimum FLOP by the direct algorithm of its product, or
    of the products it represents, for its data types and kernel size. ``read_bytes`` are distinct
    bytes that are only read, ``written_bytes`` those that are written.
    """

    products: tuple[tuple[OperatorRecord, int], ...]
    read_bytes: int
    written_bytes: int


def model_work(records: Sequence[OperatorRecord], flow: Dataflow | None = None) -> ModelWork:
    """Return the minimum work of a pass under the listed rewritings (training merges nothing)."""
    flow = flow or trace_dataflow(records)
    kept = _outliving(records)
    made_by = _makers(flow)
    constants = _constants(records, flow, made_by)
    working = [n for n in _live(flow, kept) if n not in constants.records]
    memory = _Memory(constants, kept, _dense_views(records), _returned(records))
    if any(record.phase != "forward" for record in records):
        for n in working:
            memory.touch(n, records[n], records[n].inputs)
        products = [(records[n], records[n].work.min_mac_flop or 0) for n in working]
    else:
        regions = _Regions(records=records, made_by=made_by, constants=constants)
        for n in working:
            regions.add(n)
        shares = regions.region_shares
        for n in working:
            memory.touch(n, records[n], regions.inputs_of(n, shares))
            if any(value.must_be_stored and value.storage in kept for _, value in flow.written[n]):
                # Its result exists after any merging.
                regions.kept.add(regions.same.get(n, n))
        products = regions.remaining_products(memory)
    read, written = memory.minimum_bytes()
    return ModelWork(
        products=tuple((record, flop) for record, flop in products if flop),
        read_bytes=read,
        written_bytes=written,
    )


def _outliving(records: Sequence[OperatorRecord]) -> frozenset[int]:
    """Storages that outlive the pass; gradients of parameters live until its end."""
    dropped = {storage for record in records for storage in record.freed}
    before = [record for record in records[:-1] if record.phase != "optimizer"]
    dropped_before = {storage for record in before for storage in record.freed}
    return frozenset(
        spec.storage
        for record in records
        for spec in record.outputs
        if spec.role.persists
        or spec.storage not in (dropped_before if spec.role is Role.GRADIENT else dropped)
    )


def _live(flow: Dataflow, kept: frozenset[int]) -> list[int]:
    """Operators whose results outlive the pass, or are read by such operators; in order."""
    live: set[int] = set()
    for n in reversed(range(len(flow.written))):
        for spec, value in flow.written[n]:
            # Gradients live until the end of the last operator.
            is_left = value.must_be_stored or spec.role is Role.GRADIENT
            outlives = is_left and value.storage in kept
            if outlives or not live.isdisjoint(value.readers):
                live.add(n)
    return sorted(live)


Makers = dict[tuple[int, int], list[int]]


def _makers(flow: Dataflow) -> Makers:
    """Writers by reading operator and storage."""
    found: Makers = defaultdict(list)
    for n, written in enumerate(flow.written):
        for _, value in written:
            for reader in value.readers:
                if n not in found[reader, value.storage]:
                    found[reader, value.storage].append(n)
    return found


@dataclass(slots=True)
class _DisjointSets:
    """Disjoint sets of numbers (union-find)."""

    parent: dict[int, int] = field(default_factory=dict[int, int])

    def root(self, member: int) -> int:
        root = member
        while (above := self.parent.get(root, root)) != root:
            root = above
        while member != root:
            member, self.parent[member] = self.parent[member], root
        return root

    def join(self, one: int, other: int) -> None:
        self.parent[self.root(other)] = self.root(one)


@dataclass(slots=True, kw_only=True)
class _Constants:
    """Constants across passes: parameters and buffers, and values computed from them alone.

    ``changed`` are storages that a pass changes. ``components`` joins the storages of constants
    that are computed together with those of their ``sources``. ``same`` maps a constant to the
    first one computed in the same way, which can be read instead.
    """

    made_by: Makers
    changed: frozenset[int]
    records: set[int] = field(default_factory=set[int])
    components: _DisjointSets = field(default_factory=_DisjointSets)
    sources: list[TensorSpec] = field(default_factory=list[TensorSpec])
    same: dict[int, int] = field(default_factory=dict[int, int])
    _made: dict[object, list[int]] = field(default_factory=dict[object, list[int]])

    def covers(self, reader: int, spec: TensorSpec) -> bool:
        makers = self.made_by.get((reader, spec.storage))
        if makers:
            return self.records.issuperset(makers)
        own = (Role.PARAMETER, Role.BUFFER, Role.ACTIVATION)
        return spec.role in own and spec.storage not in self.changed

    def fold(self, n: int, record: OperatorRecord) -> None:
        """Add an operator if all of its operands are constant, and it changes nothing else."""
        written = [spec.storage for spec in record.outputs]
        is_folded = record.state is State.COUNTED and record.type != "random" and written
        if not is_folded or not self.changed.isdisjoint(written):
            return
        if all(self.covers(n, spec) for spec in record.inputs):
            self.records.add(n)
            for spec in (*record.inputs, *record.outputs):
                self.components.join(written[0], spec.storage)
            self.sources += (spec for spec in record.inputs if spec.role.persists)
            read = [replace(s, storage=self.same.get(s.storage, s.storage)) for s in record.inputs]
            made = [replace(s, storage=0) for s in record.outputs]
            way = (record.op, *read, *made, *map(str, sorted(record.attributes.items())))
            self.same.update(zip(written, self._made.setdefault(way, written), strict=True))


def _constants(records: Sequence[OperatorRecord], flow: Dataflow, made_by: Makers) -> _Constants:
    """Return the constants of an inference pass; training changes parameters, so it has none."""
    specs = [spec for record in records for spec in (*record.inputs, *record.outputs)]
    persists = {spec.storage for spec in specs if spec.role.persists}
    written = {value.storage for values in flow.written for _, value in values}
    if any(record.phase != "forward" for record in records):
        return _Constants(made_by=made_by, changed=frozenset(persists | written))
    found = _Constants(made_by=made_by, changed=frozenset(persists & written))
    for n, record in enumerate(records):
        found.fold(n, record)
    return found


Views = set[tuple[int, int, tuple[int, ...]]]

_PERMUTING = frozenset(
    {"aten.t", "aten.transpose", "aten.permute", "aten.detach", "aten.view", "aten.alias"}
)


def _dense_views(records: Sequence[OperatorRecord]) -> Views:
    """Storage, offset and shape of views with all elements of a dense operand."""
    dense: Views = set()
    for record in records:
        if record.state is State.FREE and record.op in _PERMUTING and len(record.inputs) == 1:
            (given,) = record.inputs
            for spec in record.outputs:
                start = (spec.storage, spec.offset_bytes)
                is_same = start == (given.storage, given.offset_bytes)
                if is_same and spec.elements == given.elements and _is_dense(given, dense):
                    dense.add((*start, spec.shape))
    return dense


def _is_dense(spec: TensorSpec, dense: Views) -> bool:
    """True if the operand covers all of its bytes."""
    if spec.distinct_elements != spec.elements or spec.min_elements is not None:
        return False
    return spec.layout != "strided" or (spec.storage, spec.offset_bytes, spec.shape) in dense


def _returned(records: Sequence[OperatorRecord]) -> dict[int, int]:
    """Bytes of the smallest final view of each storage, possibly all that the pass returns."""
    used: set[int] = set()
    found: dict[int, int] = {}
    for record in reversed(records):
        if record.state is not State.FREE:
            used.update(spec.storage for spec in (*record.inputs, *record.outputs))
            continue
        views: dict[int, int] = defaultdict(int)
        for spec in record.outputs:
            views[spec.storage] += spec.byte
        for storage in views.keys() - used:
            found[storage] = min(views[storage], found.get(storage, views[storage]))
    return found


@dataclass(slots=True)
class _Memory:
    """Bytes of storages that a pass must touch."""

    constants: _Constants
    kept: frozenset[int]
    dense: Views
    returned: dict[int, int]
    read: dict[int, list[TensorSpec]] = field(default_factory=lambda: defaultdict(list))
    written: dict[int, list[TensorSpec]] = field(default_factory=lambda: defaultdict(list))
    folded: dict[int, list[TensorSpec]] = field(default_factory=lambda: defaultdict(list))
    preexisting: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    merged_bytes: int = 0

    def touch(self, n: int, record: OperatorRecord, inputs: Iterable[TensorSpec]) -> None:
        """Record the reads of an operator's inputs, and the writes of its outputs."""
        for spec in inputs:
            self.read_operand(n, spec)
        for spec in record.outputs:
            if spec.storage in self.kept:
                self.written[spec.storage].append(spec)
                joins = _name(record) in _JOINS or is_copy(record)
                if joins and not spec.role.persists:
                    # Inputs can already lie in the result, as in an extended cache.
                    given = (each.byte for each in record.inputs if each.role is Role.INPUT)
                    self.preexisting[spec.storage] += sum(given)

    def read_operand(self, n: int, spec: TensorSpec) -> None:
        if spec.role.persists:
            self.read[spec.storage].append(spec)
        elif self.constants.records and self.constants.covers(n, spec):
            self.folded[self.constants.same.get(spec.storage, spec.storage)].append(spec)

    def minimum_bytes(self) -> tuple[int, int]:
        """Return bytes that are only read, and bytes that are written."""
        read = self.merged_bytes + self._folded_bytes()
        written = 0
        for storage in {*self.read, *self.written}:
            own = self._union(self.written.get(storage, ()))
            touched = self._union((*self.read.get(storage, ()), *self.written.get(storage, ())))
            read += touched - own
            own = min(own, self.returned.get(storage, own))
            written += max(0, own - self.preexisting.get(storage, 0))
        return read, written

    def _folded_bytes(self) -> int:
        """Bytes of computed constants, or of their sources; the smaller."""
        own: dict[int, int] = defaultdict(int)
        for storage, specs in self.folded.items():
            own[self.constants.components.root(storage)] += self._union(specs)
        sources: dict[int, list[TensorSpec]] = defaultdict(list)
        for spec in self.constants.sources:
            sources[spec.storage].append(spec)
        of: dict[int, int] = defaultdict(int)
        for storage, specs in sources.items():
            known = self.read.get(storage, [])
            more = self._union([*known, *specs]) - self._union(known)
            of[self.constants.components.root(storage)] += more
        return sum(min(byte, of[component]) for component, byte in own.items())

    def _union(self, specs: Sequence[TensorSpec]) -> int:
        """Distinct bytes of operands in one storage; of operands with gaps, the largest alone."""
        largest = max((spec.min_bytes for spec in specs), default=0)
        whole = {
            (s.offset_bytes, s.offset_bytes + s.byte) for s in specs if _is_dense(s, self.dense)
        }
        union, end = 0, 0
        for first, last in sorted(whole):
            union += max(0, last - max(first, end))
            end = max(end, last)
        return max(largest, union)


_MOVES = frozenset(
    {
        *("neg", "clone", "contiguous", "_to_copy", "copy", "lift_fresh_copy", "alias_copy"),
        *("detach_copy", "view_copy", "expand_copy", "permute_copy", "t_copy", "transpose_copy"),
        *("select_copy", "slice_copy", "narrow_copy", "split_copy", "split_with_sizes_copy"),
        *("unbind_copy", "flip", "roll", "rot90", "repeat", "constant_pad_nd", "pixel_shuffle"),
        *("pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "index_select"),
        *("index", "gather", "tril", "triu"),
    }
)
_JOINS = frozenset({"cat", "concat", "concatenate", "stack"})
_POOLINGS = frozenset({"adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"})
_MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "linear", "matmul"})
_CONVOLUTIONS = frozenset(
    {
        *("convolution", "_convolution", "conv1d", "conv2d", "conv3d"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    }
)


def _name(record: OperatorRecord) -> str:
    return record.op.removeprefix("aten.").removesuffix("_")


def _is_linear(record: OperatorRecord, data: Sequence[TensorSpec]) -> bool:
    """True if an operator is linear in its data; its other operands are constant."""
    name, attributes = _name(record), record.attributes
    if any(spec.dtype.kind not in ("float", "complex") for spec in record.outputs):
        return False
    if name in ("add", "sub", "rsub") or name in _JOINS:
        return True
    if name == "addcmul":
        # A sum with a product that has one constant factor.
        return sum(spec in data for spec in record.inputs[1:]) < 2 < len(record.inputs)
    if name == "lerp":
        return "weight" in attributes
    if len(data) != 1 or (data[0] != record.inputs[0] and name != "mul"):
        return False
    if name in ("mul", "div"):
        # One operand and no number: a square.
        is_scaled = len(record.inputs) > 1 or "other" in attributes
        return is_scaled and not attributes.get("rounding_mode")
    if name == "pow":
        return attributes.get("exponent") == 1
    if name in _POOLINGS:
        return record.outputs[0].shape == data[0].shape
    return name in _MOVES or kind_of(record) is Kind.AFFINE


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of data and a constant weight."""

    record: OperatorRecord
    given: TensorSpec
    weight: TensorSpec

    @property
    def map(self) -> LinearMap:
        weight, attributes = self.weight, self.record.attributes
        (result,) = self.record.outputs
        numbers = (
            self.record.work.min_mac_flop or 0,
            weight.byte,
            self.given.distinct_elements,
            result.elements,
        )
        if _name(self.record) in _MATRIX_PRODUCTS:
            return matrix_map(*numbers)
        kernel, dilation = weight.shape[2:], attributes["dilation"]
        given, result = with_batch(self.given, weight), with_batch(result, weight)
        if is_transposed := attributes.get("transposed") or "transpose" in self.record.op:
            given, result = result, given
            flop, byte, inputs, outputs = numbers
            numbers = (flop, byte, outputs, inputs)
        padding = leading_padding(attributes["padding"], kernel, dilation)
        found = convolution_map(
            *numbers,
            channels=(weight.shape[0] // attributes["groups"], weight.shape[1]),
            dimensions=spatial_dimensions(
                given, result, kernel, attributes["stride"], padding, dilation
            ),
        )
        return found.reverse if is_transposed else found


@dataclass(slots=True, kw_only=True)
class _Regions:
    """Values connected by linear operators, up to nonlinear ones.

    A computed value has the number of its operator, an input of the pass a negative one. ``same``
    are values that equal others, scaled or moved.
    """

    records: Sequence[OperatorRecord]
    made_by: Makers
    constants: _Constants
    edges: dict[int, list[tuple[int, Edge]]] = field(default_factory=dict[int, Any])
    same: dict[int, int] = field(default_factory=dict[int, int])
    kept: set[int] = field(default_factory=set[int])
    products: dict[int, _Product] = field(default_factory=dict[int, _Product])
    others: list[tuple[OperatorRecord, int]] = field(default_factory=list[Any])
    assembled: dict[int, int] = field(default_factory=dict[int, int])
    data: dict[int, list[TensorSpec]] = field(default_factory=dict[int, list[TensorSpec]])
    components: _DisjointSets = field(default_factory=_DisjointSets)
    shares: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def region_shares(self) -> dict[int, float]:
        """Minimum share of its inputs, by region, that merged products may read."""
        found: dict[int, float] = {}
        for n, share in self.shares.items():
            region = self.components.root(n)
            found[region] = share * found.get(region, 1.0)
        return found

    def inputs_of(self, n: int, region_shares: Mapping[int, float]) -> Sequence[TensorSpec]:
        """Return the operands of an operator, with the elements that its merged map must read."""
        if n not in self.data:
            return self.records[n].inputs
        share = region_shares.get(self.components.root(n), 1.0)
        if share == 1.0:
            return self.data[n]
        return [
            replace(spec, min_elements=int(share * spec.min_bytes / spec.dtype.byte(1)))
            for spec in self.data[n]
        ]

    def _join(self, n: int, data: list[TensorSpec]) -> None:
        """Add a linear operator, and its share of the values computed for it."""
        self.data[n] = data
        for spec in data:
            makers = self.made_by.get((n, spec.storage), ())
            inner = [maker for maker in makers if maker in self.data]
            for maker in inner:
                self.components.join(n, maker)
            made = sum(each.byte for maker in inner for each in self.records[maker].outputs)
            if spec.min_bytes < made:
                self.shares[n] = min(spec.min_bytes / made, self.shares.get(n, 1.0))

    def add(self, n: int) -> None:
        record = self.records[n]
        data: list[TensorSpec] = []
        fixed: list[TensorSpec] = []
        for spec in record.inputs:
            (fixed if self.constants.covers(n, spec) else data).append(spec)
        product = _product(record, data, fixed)
        if product is not None:
            self.products[n] = product
            *summands, _ = data
            self.edges[n] = [each for spec in summands for each in self._links(n, [spec])]
            self.edges[n].append((self._value(n, data[-1]), product.map))
        elif data and _is_linear(record, data):
            links = self._links(n, data)
            elements = sum(spec.elements for spec in record.outputs)
            (far, link), *more = links
            is_moved = isinstance(link, Link) and link.inputs >= elements
            if is_moved and not more and (far not in self.edges or self._elements(far) <= elements):
                self.same[n] = far
            else:
                self.edges[n] = links
        else:
            self.others.append((record, record.work.min_mac_flop or 0))
            for spec in data:
                self.kept.update(far for far, _ in self._links(n, [spec]))
            return
        self._join(n, data)

    def _elements(self, value: int) -> int:
        if not 0 <= value < len(self.records):
            return self.assembled.get(value, 0)
        return sum(spec.elements for spec in self.records[value].outputs)

    def _links(self, n: int, data: Sequence[TensorSpec]) -> list[tuple[int, Edge]]:
        """Values that an operator reads, and the elements of each."""
        elements: dict[int, int] = {}
        for spec in data:
            makers = self.made_by.get((n, spec.storage)) or [-1 - spec.storage]
            for maker in makers:
                far = self.same.get(maker, maker)
                # With several makers, each made a part.
                most = self._elements(maker) or spec.distinct_elements
                elements[far] = elements.get(far, 0) + min(most, spec.distinct_elements)
        return [(far, Link(each)) for far, each in elements.items()]

    def _value(self, n: int, spec: TensorSpec) -> int:
        """Return the value of an operand; a new one if it was assembled from several."""
        links = self._links(n, [spec])
        if len(links) == 1:
            return links[0][0]
        value = n + len(self.records)
        product = self.edges.pop(n)
        self.edges[value] = links
        self.edges[n] = product
        self.assembled[value] = spec.elements
        return value

    def remaining_products(self, memory: _Memory) -> list[tuple[OperatorRecord, int]]:
        """Return the remaining products, and record their reads."""
        found = list(self.others)
        uses = Counter(each.weight.storage for each in self.products.values())
        for group in self._groups():
            products = {n: self.products[n] for n in group.edges if n in self.products}
            flop = {n: each.record.work.min_mac_flop or 0 for n, each in products.items()}
            if len(products) > 1:
                min_flop, weight_bytes = min_merged_work(group)
                if min_flop < sum(flop.values()):
                    # They are represented by one of the narrowest type with the largest kernel.
                    _, representative = max(
                        products.items(),
                        key=lambda each: (
                            -each[1].weight.dtype.bits,
                            math.prod(each[1].weight.shape[2:]),
                        ),
                    )
                    found.append((representative.record, min_flop))
                    if all(uses[each.weight.storage] == 1 for each in products.values()):
                        memory.merged_bytes += weight_bytes
                    continue
            for n, each in products.items():
                found.append((each.record, flop[n]))
                memory.read_operand(n, each.weight)
        return found

    def _groups(self) -> list[Group]:
        """Connected values, without those computed without a product."""
        free: set[int] = set()
        roots, components = _DisjointSets(), _DisjointSets()
        for value, edges in self.edges.items():
            inner = [far for far, _ in edges if far in self.edges and far not in free]
            for far in inner:
                components.join(value, far)
            if not inner and all(isinstance(edge, Link) for _, edge in edges):
                free.add(value)
                for far, _ in edges:
                    roots.join(value, far)
        groups: dict[int, dict[int, Sequence[tuple[int, Edge]]]] = defaultdict(dict)
        for value in (each for each in self.edges if each not in free):
            groups[components.root(value)][value] = self.edges[value]
        return [
            Group(
                edges=edges,
                kept=frozenset(self.kept & edges.keys()),
                sizes={value: self._elements(value) for value in edges},
                roots={far: roots.root(far) for each in edges.values() for far, _ in each},
            )
            for edges in groups.values()
        ]


def _product(
    record: OperatorRecord, data: Sequence[TensorSpec], fixed: Sequence[TensorSpec]
) -> _Product | None:
    """Return a product of data and a constant; None if there is none, or of unknown FLOP."""
    name, work = _name(record), record.work
    is_convolution = name in _CONVOLUTIONS
    if not (is_convolution or name in _MATRIX_PRODUCTS) or not work.macs:
        return None
    is_of_vector = name in ("mv", "addmv") and record.inputs[-1] in fixed
    weights = [spec for spec in fixed if len(spec.shape) > 1 or is_of_vector]
    takes_summand = name in ("addmm", "baddbmm", "addmv") and len(record.inputs) == 3
    if not data or not weights or len(data) > 1 + takes_summand:
        return None
    if len(data) == 2 and data[0] != record.inputs[0]:
        return None
    found = _Product(record, data[-1], weights[0] if is_convolution else weights[-1])
    return None if is_convolution and found.given != record.inputs[0] else found
