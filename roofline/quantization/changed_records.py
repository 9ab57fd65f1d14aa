"""The records of a pass whose layers have few bits: operands in other widths, and conversions.

`ChangedPass` takes the records of an analysis and gives those of the same pass in the bits of a
policy, which are placed and timed as all others are. A layer takes the batch norm and the
elementwise operators behind it into its kernel.

In how many bits a value is kept is found against the order of the pass (in the most that a reader
asks for), then along it: what leaves an operator that computes in floats is floats, whoever reads
it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.dtypes import DType, dtype
from roofline.quantization.policy import FLOAT_BITS, Layer, LayerBits, Policy, structure_of
from roofline.quantization.widths import Executable, Widths, own_bits
from roofline.workload.dataflow import Dataflow, Value, trace_dataflow
from roofline.workload.formulas.quantized import DEQUANTIZE_FLOP, QUANTIZE_FLOP
from roofline.workload.fusion_kinds import Kind, aten, kind_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

KEPT = (Role.PARAMETER, Role.BUFFER)
_SCALE = dtype("float32")


def is_norm(record: OperatorRecord) -> bool:
    """Whether it is a batch norm in inference: a scale and a shift for each channel."""
    return kind_of(record) is Kind.AFFINE


Handling = Literal["free", "layer", "sum", "carrying", "floats", "full"]
"""``layer``: computes with codes; ``sum``: adds them; ``carrying``: moves or chooses them; and what
computes in floats: ``floats`` in those that the pass has, ``full`` in those that the model had."""


_CARRYING = aten(
    "relu hardtanh clamp clamp_min clamp_max threshold max_pool1d max_pool2d max_pool3d"
    " max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d"
    " avg_pool1d avg_pool2d avg_pool3d mean adaptive_avg_pool2d _adaptive_avg_pool2d"
    " _adaptive_avg_pool3d adaptive_avg_pool3d cat stack clone contiguous copy repeat flip roll"
    " amax index index_select gather select_copy slice_copy narrow_copy expand_copy view_copy"
    " as_strided_copy im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle"
    " constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d"
    " replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d"
    " _unsafe_index"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """A floating operand that the model does not keep.

    ``place`` is its position among the inputs, ``value`` the one that it is a part of, ``values``
    those that it lies in: none if no operator of the pass made it, several where it is read
    together with what others wrote.
    """

    place: int
    spec: TensorSpec
    value: Value | None
    values: tuple[Value, ...]

    @property
    def is_one(self) -> bool:
        """Whether it is one value, or what the model was given."""
        return self.value is not None or not self.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernel:
    """Operators that run as one kernel in few bits; one alone, where they stay as they are.

    ``reads`` are the operands of the first of them, ``writes`` the floating results of the last.
    ``bits`` are those of a layer, 32 where they are those that its tensors have.
    """

    operators: tuple[int, ...]
    handling: Handling
    reads: tuple[Operand, ...]
    writes: tuple[Value, ...]
    layer: Layer | None = None
    bits: LayerBits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A record of the changed pass: of a kernel, or (without one) of a conversion of values.

    A conversion makes ``to_bits`` of ``from_bits``, for the operator whose position its record has.
    ``compute_as`` is the type that a layer computes in; None: that of its operands.
    """

    record: OperatorRecord
    kernel: Kernel | None = None
    compute_as: DType | None = None
    from_bits: int = FLOAT_BITS
    to_bits: int = FLOAT_BITS

    @property
    def is_down(self) -> bool:
        """Whether a conversion gives fewer bits."""
        return self.to_bits < self.from_bits


class ChangedPass:
    """A forward pass in the bits of a policy, on the types that a machine has.

    Attributes:
        structure: layers and shortcuts of the pass; products of modules in `apart` are none.
        groups: positions of operators by the first of them: a layer, or an addition at a shortcut,
            and what would be folded into it.
        bits: those of layers by the position of their operator, as the policy has them.
        floats: bits of what is computed in floats: 16 where all of the model is asked to have 16,
            which torch has types for; its other parameters have them, too.
        kernels: what runs, without conversions.
        steps: the changed records, in their order, free operators among them.
    """

    def __init__(
        self,
        records: Sequence[OperatorRecord],
        policy: Policy,
        widths: Widths,
        apart: Container[str] = (),
    ) -> None:
        flow = trace_dataflow(records)
        self.records, self.policy, self.widths = tuple(records), policy, widths
        self.structure = structure_of(records, apart)
        self.groups = self._groups_of(flow)
        self.bits = self._bits_of_layers()
        self.floats = self._bits_of_floats()
        self.kernels = self._kernels_of(flow)
        self._values: dict[Value, int] = {}
        self._find_values()
        used = (spec.storage for each in records for spec in (*each.inputs, *each.outputs))
        self._next_storage = 1 + max(used, default=0)
        self._storages: dict[tuple[int, int], int] = {}
        self.steps = self._steps()

    # -- what belongs together ---------------------------------------------------------------------

    def _groups_of(self, flow: Dataflow) -> Mapping[int, tuple[int, ...]]:
        layers = {each.index for each in self.structure.layers}
        # A sum of three branches is two additions, of which both may end shortcuts.
        starts = layers | {each.addition for each in self.structure.shortcuts}
        groups: dict[int, tuple[int, ...]] = {}
        for start in sorted(starts):
            chain = [start]
            while len(flow.written[chain[-1]]) == 1:
                _, value = flow.written[chain[-1]][0]
                reader = value.readers[0] if len(value.readers) == 1 else None
                if reader is None or reader in starts or not self._is_foldable(reader, value, flow):
                    break
                if is_norm(self.records[reader]) and start not in layers:
                    break
                chain.append(reader)
            groups[start] = tuple(chain)
        return groups

    def _is_foldable(self, reader: int, value: Value, flow: Dataflow) -> bool:
        """Whether it is a batch norm or elementwise, on the whole of a value and what is kept."""
        record = self.records[reader]
        if record.state is not State.COUNTED or len(record.outputs) != 1:
            return False
        if not (is_norm(record) or record.type == "pointwise"):
            return False
        moving = [each for each in flow.read[reader] if each.spec.role not in KEPT]
        return (
            len(moving) == 1
            and moving[0].value is value
            and moving[0].spec.distinct_elements == value.elements == record.outputs[0].elements
            and record.outputs[0].dtype == moving[0].spec.dtype
        )

    def _bits_of_layers(self) -> dict[int, LayerBits]:
        """The bits of each layer.

        A module that runs several times has the most bits of its places, as `quantize_model` gives
        them to it, and a weight that several modules share has the most that they give it.
        """
        sharing: dict[tuple[int, int], list[Layer]] = {}
        runs: dict[tuple[str, tuple[int, int]], list[Layer]] = {}
        for each in self.structure.layers:
            key = storage_key(self.weight(each))
            sharing.setdefault(key, []).append(each)
            runs.setdefault((self.records[each.index].module_path, key), []).append(each)
        weights = {
            key: max(bits.weights for bits in self._given_to(layers))
            for key, layers in sharing.items()
        }
        found: dict[int, LayerBits] = {}
        for (_, key), layers in runs.items():
            activations = max(bits.activations for bits in self._given_to(layers))
            bits = LayerBits(weights=weights[key], activations=activations)
            found.update((each.index, bits) for each in layers)
        return found

    def _given_to(self, layers: Sequence[Layer]) -> list[LayerBits]:
        """What the policy gives to layers; where it names some of them, what it gives to these."""
        named: list[LayerBits] = []
        others: list[LayerBits] = []
        for each in layers:
            is_named = each.name in self.policy.layers
            name = each.name if is_named else self.records[each.index].module_path
            found = named if name in self.policy.layers else others
            found.append(self.policy.bits_of(name, each.place))
        return named or others

    def _bits_of_floats(self) -> int:
        half = self.widths.half
        if half is None or not self.widths.has_kernel(half.name):
            return FLOAT_BITS
        is_all = self.policy.weights == self.policy.activations == half.bits
        widest = max((self.base(each).bits for each in self.structure.layers), default=0)
        return half.bits if is_all and widest > half.bits else FLOAT_BITS

    def _kernels_of(self, flow: Dataflow) -> tuple[Kernel, ...]:
        layers = {each.index: each for each in self.structure.layers}
        by_storage: dict[int, list[Value]] = {}
        for row in flow.written:
            for spec, value in row:
                by_storage.setdefault(spec.storage, []).append(value)
        kernels: list[Kernel] = []
        done: set[int] = set()
        stays: set[int] = set()
        for place in range(len(self.records)):
            if place in done:
                continue
            layer, bits, operators = layers.get(place), None, (place,)
            if layer is not None:
                base, asked = self.base(layer), self.bits[place]
                weights, activations = (
                    FLOAT_BITS if own_bits(each, base) == base.bits else each
                    for each in (asked.weights, asked.activations)
                )
                bits = LayerBits(weights=weights, activations=activations)
            handling = "full" if place in stays else self._handling(place, bits)
            if handling in ("layer", "sum"):
                operators = self.groups[place]
            elif layer is not None:
                # What is not quantized runs as it does now, its batch norm too.
                stays.update(self.groups[place])
            done.update(operators)
            written = flow.written[operators[-1]]
            kernels.append(
                Kernel(
                    operators=operators,
                    handling=handling,
                    reads=tuple(_operands(place, flow, by_storage)),
                    writes=tuple(value for spec, value in written if spec.dtype.kind == "float"),
                    layer=layer,
                    bits=bits,
                )
            )
        return tuple(kernels)

    def _handling(self, place: int, bits: LayerBits | None) -> Handling:
        record = self.records[place]
        if record.state is State.FREE:
            return "free"
        if bits is not None:
            return "full" if bits.is_float else "layer"
        if place in self.groups:
            if self.policy.shortcut == "full":
                return "full"
            base = record.outputs[0].dtype
            return "floats" if own_bits(self.policy.activations, base) == base.bits else "sum"
        is_carrying = record.op.removesuffix("_") in _CARRYING and record.state is State.COUNTED
        return "carrying" if is_carrying else "floats"

    def weight(self, layer: Layer) -> TensorSpec:
        """A layer's weight as it is."""
        return self.records[layer.index].inputs[layer.weight]

    def base(self, layer: Layer) -> DType:
        """The type of a layer's activations as they are."""
        return self.records[layer.index].inputs[layer.activation].dtype

    def executable(self, layer: Layer) -> Executable:
        """What a layer is computed in."""
        return self.widths.executable(self.bits[layer.index], self.base(layer))

    # -- bits of values ----------------------------------------------------------------------------

    def _find_values(self) -> None:
        demands: dict[Value, int] = {}
        for kernel in reversed(self.kernels):
            for operand in kernel.reads:
                asked = self._asked(kernel, operand, demands)
                for value in operand.values:
                    demands[value] = max(demands.get(value, 0), asked)
        for kernel in self.kernels:
            read = [self._kept(operand) for operand in kernel.reads]
            for value in kernel.writes:
                demanded = demands.get(value, self.floats)
                self._values[value] = self._given(kernel, read, demanded)

    def _asked(self, kernel: Kernel, operand: Operand, demands: Mapping[Value, int]) -> int:
        """The bits in which a kernel would have an operand kept."""
        match kernel.handling:
            case "layer" | "sum" if operand.is_one:
                return self._takes(kernel, operand)
            case "carrying" if operand.is_one:
                return max(
                    (demands.get(each, self.floats) for each in kernel.writes), default=self.floats
                )
            case "full":
                return FLOAT_BITS
            case _:
                return self.floats

    def _given(self, kernel: Kernel, read: Sequence[int], demanded: int) -> int:
        """The bits in which a kernel leaves a value that is asked for in `demanded`."""
        match kernel.handling:
            case "layer" | "sum":
                return demanded
            case "carrying" if len(read) == 1:
                return read[0]
            case "carrying" if read and min(read) < self.floats:
                return demanded
            case "carrying" | "floats":
                # An embedding reads nothing but its table.
                is_known = bool(read) or any(
                    spec.role in KEPT and spec.dtype.kind == "float"
                    for spec in self.records[kernel.operators[0]].inputs
                )
                return self.floats if is_known and set(read) <= {self.floats} else FLOAT_BITS
            case "full" | "free":
                return FLOAT_BITS

    def _takes(self, kernel: Kernel, operand: Operand) -> int:
        """The most bits in which a layer or an addition of codes reads an operand."""
        if kernel.handling == "sum":
            return self.policy.activations
        is_activation = kernel.layer is not None and operand.place == kernel.layer.activation
        return kernel.bits.activations if kernel.bits is not None and is_activation else FLOAT_BITS

    def _kept(self, operand: Operand) -> int:
        """The bits in which an operand is kept; 32: those of its type."""
        return self._most_bits(operand.values)

    def _read(self, kernel: Kernel, operand: Operand) -> int:
        """The bits in which a kernel reads an operand: what is kept in others is converted."""
        kept = self._kept(operand)
        if not operand.is_one:
            return kept
        match kernel.handling:
            case "layer":
                takes = self._takes(kernel, operand)
                return kept if kept < takes < FLOAT_BITS else takes
            case "sum":
                # An addition of codes rescales them: each may have bits of its own.
                return kept if kept < FLOAT_BITS else self._takes(kernel, operand)
            case "carrying":
                written = self.written(kernel)
                is_other = (kept == FLOAT_BITS) != (written == FLOAT_BITS)
                return written if is_other and len(kernel.reads) > 1 else kept
            case "floats":
                return kept if kept == self.floats else FLOAT_BITS
            case "full" | "free":
                return FLOAT_BITS

    def written(self, kernel: Kernel) -> int:
        """The bits of what a kernel writes; 32: those of its type, or nothing of floats."""
        return self._most_bits(kernel.writes)

    def _most_bits(self, values: Iterable[Value]) -> int:
        return max((self._values.get(each, FLOAT_BITS) for each in values), default=FLOAT_BITS)

    def parameter_bits(self, kernel: Kernel, spec: TensorSpec) -> int:
        """The bits of what the model keeps and a kernel reads, a layer's weight aside."""
        is_float = spec.role in KEPT and spec.dtype.kind == "float"
        is_changed = kernel.handling not in ("full", "free") and spec.dtype.bits > self.floats
        return self.floats if is_float and is_changed else FLOAT_BITS

    # -- records -----------------------------------------------------------------------------------

    def _steps(self) -> tuple[Step, ...]:
        written: dict[Value, TensorSpec] = {}
        for kernel in self.kernels:
            outputs = self.records[kernel.operators[-1]].outputs
            floats = (each for each in outputs if each.dtype.kind == "float")
            written.update(zip(kernel.writes, floats, strict=False))
        # What the pass was given has the shape in which it was: operators may read a view of it.
        given: dict[tuple[int, int, int], TensorSpec] = {}
        for record in self.records:
            for spec in record.inputs:
                given.setdefault((spec.storage, spec.offset_bytes, spec.byte), spec)
        converted: set[tuple[Value | tuple[int, int, int], int]] = set()
        steps: list[Step] = []
        for kernel in self.kernels:
            for operand in kernel.reads:
                kept, read = self._kept(operand), self._read(kernel, operand)
                value, spec = operand.value, operand.spec
                place = (spec.storage, spec.offset_bytes, spec.byte)
                key = (value or place, read)
                if kept != read and key not in converted:
                    converted.add(key)
                    whole = written.get(value, spec) if value is not None else given[place]
                    steps.append(self._conversion(whole, kept, read, kernel))
            steps.append(self._step(kernel))
        return tuple(steps)

    def _conversion(self, spec: TensorSpec, kept: int, read: int, kernel: Kernel) -> Step:
        before = replace(self._in_bits(spec, kept), min_elements=None)
        after = self._in_bits(spec, read)
        after = replace(after, min_elements=None, role=Role.ACTIVATION)
        if "float" == before.dtype.kind == after.dtype.kind:
            op, kind, flop = "aten._to_copy", "data movement", 0
        elif read < kept:
            op, kind, flop = "aten.quantize_per_tensor", "quantization", QUANTIZE_FLOP
        else:
            op, kind, flop = "aten.dequantize", "quantization", DEQUANTIZE_FLOP
        record = replace(
            self.records[kernel.operators[0]],
            op=op,
            type=kind,
            inputs=(before,),
            outputs=(after,),
            attributes={},
            state=State.COUNTED,
            formula=op,
            work=Work(flop=flop * spec.elements, min_flop=0, **traffic_of((before,), (after,))),
        )
        return Step(record=record, from_bits=kept, to_bits=read)

    def _step(self, kernel: Kernel) -> Step:
        """The record of a kernel, with what is folded into it, on operands of other bits."""
        first, *folded = (self.records[each] for each in kernel.operators)
        layer = kernel.layer if kernel.handling == "layer" else None
        if kernel.handling == "free":
            return Step(record=first, kernel=kernel)
        reads = {each.place: each for each in kernel.reads}
        inputs = [
            self._operand(spec, reads.get(place), kernel)
            if layer is None or kernel.bits is None or place != layer.weight
            else self._in_bits(spec, kernel.bits.weights, is_weight=True)
            for place, spec in enumerate(first.inputs)
        ]
        last = (folded or [first])[-1]
        others = [each for each in folded if layer is None or not is_norm(each)]
        work = sum((each.work for each in others), start=first.work)
        if layer is not None:
            has_norm = len(others) < len(folded)
            if inputs[layer.weight].dtype.kind != "float":
                # A batch norm leaves a factor for each channel, which codes of one scale have not.
                is_each = self.policy.per_channel or has_norm
                inputs.append(self._new(self.channels(layer) if is_each else 1, _SCALE))
            has_bias = any(
                spec.role in KEPT
                for place, spec in enumerate(first.inputs)
                if place != layer.weight
            )
            if has_norm and not has_bias:
                inputs.append(self._new(self.channels(layer), last.outputs[0].dtype))
                work += Work(flop=last.outputs[0].elements)
            kept = (spec for each in others for spec in each.inputs if spec.role in KEPT)
            inputs += [self._operand(spec, None, kernel) for spec in kept]
        values = iter(kernel.writes)
        outputs = tuple(
            self._in_bits(spec, self._values.get(next(values), FLOAT_BITS))
            if spec.dtype.kind == "float"
            else spec
            for spec in last.outputs
        )
        return Step(
            record=retyped(first, tuple(inputs), outputs, work),
            kernel=kernel,
            compute_as=self.executable(layer).dtype if layer is not None else None,
        )

    def channels(self, layer: Layer) -> int:
        """The output channels of a layer."""
        record = self.records[layer.index]
        shape = record.outputs[0].shape
        return shape[1] if record.op.endswith("convolution") else shape[-1]

    def _operand(self, spec: TensorSpec, operand: Operand | None, kernel: Kernel) -> TensorSpec:
        if operand is None:
            return self._in_bits(spec, self.parameter_bits(kernel, spec))
        read = self._in_bits(spec, self._read(kernel, operand))
        # What was given was converted once, and that lives as long as other activations.
        return read if read is spec else replace(read, role=Role.ACTIVATION)

    def _in_bits(self, spec: TensorSpec, bits: int, *, is_weight: bool = False) -> TensorSpec:
        """The operand in so many bits, in a storage of its own; 32: as it is."""
        if bits == FLOAT_BITS:
            return spec
        key = (spec.storage, bits)
        if key not in self._storages:
            self._storages[key] = self._next_storage
            self._next_storage += 1
        return replace(
            spec,
            dtype=self.widths.kept_in(bits, is_weight=is_weight),
            storage=self._storages[key],
            offset_bytes=spec.offset_bytes * bits // spec.dtype.bits,
        )

    def _new(self, elements: int, of: DType) -> TensorSpec:
        """What the model keeps beside codes."""
        self._next_storage += 1
        return TensorSpec(
            shape=(elements,),
            dtype=of,
            distinct_elements=elements,
            storage=self._next_storage - 1,
            role=Role.PARAMETER,
        )


def _operands(
    place: int, flow: Dataflow, by_storage: Mapping[int, Sequence[Value]]
) -> Iterable[Operand]:
    """The floating operands of an operator that the model does not keep."""
    for position, (spec, value, writer) in enumerate(flow.read[place]):
        if spec.role in KEPT or spec.dtype.kind != "float":
            continue
        values = (value,) if value is not None else ()
        if value is None and writer is not None:
            values = tuple(
                each for each in by_storage.get(spec.storage, ()) if place in each.readers
            )
        yield Operand(place=position, spec=spec, value=value, values=values)


def storage_key(spec: TensorSpec) -> tuple[int, int]:
    """What operands have in common that are the same."""
    return spec.storage, spec.offset_bytes


def retyped(
    record: OperatorRecord,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    work: Work | None = None,
) -> OperatorRecord:
    """The operator on other operands of the same sizes, with its own arithmetic or another."""
    counted = work or record.work
    counts = {name: getattr(counted, name) for name in (*COUNTS, "internal_bytes")}
    return replace(
        record,
        inputs=inputs,
        outputs=outputs,
        work=Work(**counts, **traffic_of(inputs, outputs)),
    )
