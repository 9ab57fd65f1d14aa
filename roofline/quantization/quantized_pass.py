"""Records of a forward pass at lower precision: operands in other bit widths, and conversions.

`QuantizedPass` turns the records of an analysis into those of the same forward pass under a policy,
to be placed and timed like any others. Batch norms and elementwise operators after a layer are
fused into its kernel.

Bit widths of values are assigned in two sweeps: backward, as the largest width that a reader
requires, then forward, where operators computed in floats write floats.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from roofline.core.dtypes import DType, dtype
from roofline.quantization.policy import FLOAT_BITS, Layer, LayerBits, Policy, structure_of
from roofline.quantization.widths import Executable, Widths, effective_bits
from roofline.workload.dataflow import Dataflow, Value, trace_dataflow
from roofline.workload.formulas.quantized import DEQUANTIZE_FLOP, QUANTIZE_FLOP
from roofline.workload.fusion_kinds import Kind, aten, kind_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

KEPT = (Role.PARAMETER, Role.BUFFER)
_SCALE = dtype("float32")


def is_norm(record: OperatorRecord) -> bool:
    """Return whether a record is a batch norm in inference: scale and shift per channel."""
    return kind_of(record) is Kind.AFFINE


Handling = Literal["free", "layer", "sum", "carrying", "floats", "full"]
"""``layer``: computes with codes; ``sum``: adds codes; ``carrying``: moves or selects codes;
``floats``: computes in the float type of the pass; ``full``: in that of the model.
"""


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
    """Floating-point operand that is not a parameter or buffer.

    ``place`` is its position among the inputs, ``value`` the one that it is a part of. ``values``
    are those that it contains: none for inputs of the model, several if they share a storage.
    """

    place: int
    spec: TensorSpec
    value: Value | None
    values: tuple[Value, ...]

    @property
    def is_single(self) -> bool:
        """Return whether it is one value, or an input of the model."""
        return self.value is not None or not self.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernel:
    """Operators that run as one kernel; a single one if not quantized.

    ``reads`` are the operands of the first one, ``writes`` the float results of the last one.
    ``bits`` are those of a layer; 32: unchanged.
    """

    operators: tuple[int, ...]
    handling: Handling
    reads: tuple[Operand, ...]
    writes: tuple[Value, ...]
    layer: Layer | None = None
    bits: LayerBits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Record of the quantized pass: of a kernel, or (without one) of a conversion.

    A conversion turns ``from_bits`` into ``to_bits`` for the operator at the index of its record.
    ``compute_as`` is the data type of a layer; None: that of its operands.
    """

    record: OperatorRecord
    kernel: Kernel | None = None
    compute_as: DType | None = None
    from_bits: int = FLOAT_BITS
    to_bits: int = FLOAT_BITS

    @property
    def is_quantize(self) -> bool:
        """Return whether a conversion reduces the bit width."""
        return self.to_bits < self.from_bits


class QuantizedPass:
    """Forward pass under a quantization policy, with the data types of a machine.

    Attributes:
        structure: layers and shortcuts; products of modules in `apart` do not count as layers.
        groups: operators by the first one: a layer, or an addition at a shortcut, with the
            operators fused into it.
        bits: bits of layers by operator index, from the policy.
        floats: bits of float computations: 16 if the whole model is set to 16, which then includes
            its other parameters.
        kernels: kernels without conversions.
        steps: records of the pass in order, including free operators.
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
        self._assign_bits()
        used = (spec.storage for each in records for spec in (*each.inputs, *each.outputs))
        self._next_storage = 1 + max(used, default=0)
        self._storages: dict[tuple[int, int], int] = {}
        self.steps = self._steps()

    # -- groups and kernels ------------------------------------------------------------------------

    def _groups_of(self, flow: Dataflow) -> Mapping[int, tuple[int, ...]]:
        layers = {each.index for each in self.structure.layers}
        # A sum of three branches has two additions, each of which may end a shortcut.
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
        """Return whether an operator is a batch norm or elementwise, on a whole value and
        parameters.
        """
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
        """Return the bits of each layer.

        Modules that run several times, and shared weights, get the most bits of their places, as in
        `quantize_model`.
        """
        sharing: dict[tuple[int, int], list[Layer]] = {}
        runs: dict[tuple[str, tuple[int, int]], list[Layer]] = {}
        for each in self.structure.layers:
            key = storage_key(self.weight(each))
            sharing.setdefault(key, []).append(each)
            runs.setdefault((self.records[each.index].module_path, key), []).append(each)
        weights = {
            key: max(bits.weights for bits in self._policy_bits(layers))
            for key, layers in sharing.items()
        }
        found: dict[int, LayerBits] = {}
        for (_, key), layers in runs.items():
            activations = max(bits.activations for bits in self._policy_bits(layers))
            bits = LayerBits(weights=weights[key], activations=activations)
            found.update((each.index, bits) for each in layers)
        return found

    def _policy_bits(self, layers: Sequence[Layer]) -> list[LayerBits]:
        """Return the policy's bits of layers; only of the named ones if it names some."""
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
                    FLOAT_BITS if effective_bits(each, base) == base.bits else each
                    for each in (asked.weights, asked.activations)
                )
                bits = LayerBits(weights=weights, activations=activations)
            handling = "full" if place in stays else self._handling(place, bits)
            if handling in ("layer", "sum"):
                operators = self.groups[place]
            elif layer is not None:
                # Unquantized layers keep their batch norm.
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
            return "floats" if effective_bits(self.policy.activations, base) == base.bits else "sum"
        is_carrying = record.op.removesuffix("_") in _CARRYING and record.state is State.COUNTED
        return "carrying" if is_carrying else "floats"

    def weight(self, layer: Layer) -> TensorSpec:
        return self.records[layer.index].inputs[layer.weight]

    def base(self, layer: Layer) -> DType:
        """Return the original data type of a layer's activations."""
        return self.records[layer.index].inputs[layer.activation].dtype

    def executable(self, layer: Layer) -> Executable:
        return self.widths.executable(self.bits[layer.index], self.base(layer))

    # -- bits of values ----------------------------------------------------------------------------

    def _assign_bits(self) -> None:
        demands: dict[Value, int] = {}
        for kernel in reversed(self.kernels):
            for operand in kernel.reads:
                asked = self._demanded_bits(kernel, operand, demands)
                for value in operand.values:
                    demands[value] = max(demands.get(value, 0), asked)
        for kernel in self.kernels:
            read = [self._stored_bits(operand) for operand in kernel.reads]
            for value in kernel.writes:
                demanded = demands.get(value, self.floats)
                self._values[value] = self._output_bits(kernel, read, demanded)

    def _demanded_bits(self, kernel: Kernel, operand: Operand, demands: Mapping[Value, int]) -> int:
        match kernel.handling:
            case "layer" | "sum" if operand.is_single:
                return self._operand_limit(kernel, operand)
            case "carrying" if operand.is_single:
                return max(
                    (demands.get(each, self.floats) for each in kernel.writes), default=self.floats
                )
            case "full":
                return FLOAT_BITS
            case _:
                return self.floats

    def _output_bits(self, kernel: Kernel, read: Sequence[int], demanded: int) -> int:
        """Return the bits of a value that a kernel writes, given the bits that its readers
        demand.
        """
        match kernel.handling:
            case "layer" | "sum":
                return demanded
            case "carrying" if len(read) == 1:
                return read[0]
            case "carrying" if read and min(read) < self.floats:
                return demanded
            case "carrying" | "floats":
                # An embedding reads its table only.
                is_known = bool(read) or any(
                    spec.role in KEPT and spec.dtype.kind == "float"
                    for spec in self.records[kernel.operators[0]].inputs
                )
                return self.floats if is_known and set(read) <= {self.floats} else FLOAT_BITS
            case "full" | "free":
                return FLOAT_BITS

    def _operand_limit(self, kernel: Kernel, operand: Operand) -> int:
        """Return the maximum bits at which a layer or an addition of codes reads an operand."""
        if kernel.handling == "sum":
            return self.policy.activations
        is_activation = kernel.layer is not None and operand.place == kernel.layer.activation
        return kernel.bits.activations if kernel.bits is not None and is_activation else FLOAT_BITS

    def _stored_bits(self, operand: Operand) -> int:
        """Return the bits at which an operand is stored; 32: those of its type."""
        return self._most_bits(operand.values)

    def _read_bits(self, kernel: Kernel, operand: Operand) -> int:
        """Return the bits at which a kernel reads an operand; other stored widths are converted."""
        kept = self._stored_bits(operand)
        if not operand.is_single:
            return kept
        match kernel.handling:
            case "layer":
                takes = self._operand_limit(kernel, operand)
                return kept if kept < takes < FLOAT_BITS else takes
            case "sum":
                # An addition rescales its codes, which may differ in width.
                return kept if kept < FLOAT_BITS else self._operand_limit(kernel, operand)
            case "carrying":
                written = self.written_bits(kernel)
                is_other = (kept == FLOAT_BITS) != (written == FLOAT_BITS)
                return written if is_other and len(kernel.reads) > 1 else kept
            case "floats":
                return kept if kept == self.floats else FLOAT_BITS
            case "full" | "free":
                return FLOAT_BITS

    def written_bits(self, kernel: Kernel) -> int:
        """Return the bits of a kernel's results; 32: those of the type, or no float results."""
        return self._most_bits(kernel.writes)

    def _most_bits(self, values: Iterable[Value]) -> int:
        return max((self._values.get(each, FLOAT_BITS) for each in values), default=FLOAT_BITS)

    def parameter_bits(self, kernel: Kernel, spec: TensorSpec) -> int:
        """Return the bits of parameters and buffers that a kernel reads, except a layer's
        weight.
        """
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
        # Operators may read views of inputs: convert inputs in their original shape.
        given: dict[tuple[int, int, int], TensorSpec] = {}
        for record in self.records:
            for spec in record.inputs:
                given.setdefault((spec.storage, spec.offset_bytes, spec.byte), spec)
        converted: set[tuple[Value | tuple[int, int, int], int]] = set()
        steps: list[Step] = []
        for kernel in self.kernels:
            for operand in kernel.reads:
                kept, read = self._stored_bits(operand), self._read_bits(kernel, operand)
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
        """Return the record of a kernel and its fused operators, with quantized operands."""
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
                # A folded batch norm requires a scale per channel.
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
            record=retype(first, tuple(inputs), outputs, work),
            kernel=kernel,
            compute_as=self.executable(layer).dtype if layer is not None else None,
        )

    def channels(self, layer: Layer) -> int:
        record = self.records[layer.index]
        shape = record.outputs[0].shape
        return shape[1] if record.op.endswith("convolution") else shape[-1]

    def _operand(self, spec: TensorSpec, operand: Operand | None, kernel: Kernel) -> TensorSpec:
        if operand is None:
            return self._in_bits(spec, self.parameter_bits(kernel, spec))
        read = self._in_bits(spec, self._read_bits(kernel, operand))
        # A converted input lives as long as other activations.
        return read if read is spec else replace(read, role=Role.ACTIVATION)

    def _in_bits(self, spec: TensorSpec, bits: int, *, is_weight: bool = False) -> TensorSpec:
        """Return the operand at a bit width, in a storage of its own; 32: unchanged."""
        if bits == FLOAT_BITS:
            return spec
        key = (spec.storage, bits)
        if key not in self._storages:
            self._storages[key] = self._next_storage
            self._next_storage += 1
        return replace(
            spec,
            dtype=self.widths.storage_type(bits, is_weight=is_weight),
            storage=self._storages[key],
            offset_bytes=spec.offset_bytes * bits // spec.dtype.bits,
        )

    def _new(self, elements: int, of: DType) -> TensorSpec:
        """Return a new parameter, stored next to codes."""
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
    """Yield the floating-point operands of an operator, without parameters and buffers."""
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
    """Return a key that is equal for operands in the same memory location."""
    return spec.storage, spec.offset_bytes


def retype(
    record: OperatorRecord,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    work: Work | None = None,
) -> OperatorRecord:
    """Return the operator with other operands of the same sizes, and other arithmetic if given."""
    counted = work or record.work
    counts = {name: getattr(counted, name) for name in (*COUNTS, "internal_bytes")}
    return replace(
        record,
        inputs=inputs,
        outputs=outputs,
        work=Work(**counts, **traffic_of(inputs, outputs)),
    )
