"""What runs once layers have few bits: kernels of layers, and all other operators one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from roofline.foundation.dtypes import DType, dtype
from roofline.machine.hardware import HardwareProfile
from roofline.quantization.policy import FLOAT_BITS, Layer, LayerBits, Policy, Structure
from roofline.workload.dataflow import Dataflow, Reading, Value
from roofline.workload.fusion_kinds import Kind, kind_of
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role

KEPT = (Role.PARAMETER, Role.BUFFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A layer, or an addition at a shortcut (``layer`` is None), and what follows it alone.

    ``operators`` are positions of records: its own first, then those that are folded into it.
    """

    operators: tuple[int, ...]
    layer: Layer | None


def groups_of(
    records: Sequence[OperatorRecord], structure: Structure, flow: Dataflow
) -> tuple[Group, ...]:
    """The layers and the additions at shortcuts, in the order in which they run."""
    own = {each.index for each in structure.layers} | {
        each.addition for each in structure.shortcuts
    }
    found = [
        Group(
            operators=_chain(each.index, records, flow, own, with_norms=True),
            layer=each,
        )
        for each in structure.layers
    ]
    # A sum of three branches is two additions, of which both may end shortcuts.
    for addition in dict.fromkeys(each.addition for each in structure.shortcuts):
        chain = _chain(addition, records, flow, own, with_norms=False)
        found.append(Group(operators=chain, layer=None))
    return tuple(sorted(found, key=lambda each: each.operators[0]))


def is_norm(record: OperatorRecord) -> bool:
    """Whether it is a batch norm in inference: a scale and a shift for each channel."""
    return kind_of(record) is Kind.AFFINE


def _chain(
    start: int,
    records: Sequence[OperatorRecord],
    flow: Dataflow,
    own: set[int],
    *,
    with_norms: bool,
) -> tuple[int, ...]:
    """An operator and those behind it that read nothing but its result, which nobody else reads."""
    chain = [start]
    while len(flow.written[chain[-1]]) == 1:
        _, value = flow.written[chain[-1]][0]
        reader = value.readers[0] if len(value.readers) == 1 else None
        if reader is None or reader in own or not _is_foldable(reader, value, records, flow):
            break
        if is_norm(records[reader]) and not with_norms:
            break
        chain.append(reader)
    return tuple(chain)


def _is_foldable(
    reader: int, value: Value, records: Sequence[OperatorRecord], flow: Dataflow
) -> bool:
    """Whether it is a batch norm or elementwise, on the whole of a value and what is kept."""
    record = records[reader]
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


_HALVES = ("bfloat16", "float16")
INT8 = "int8"
_INT4 = "int4"
_NARROWEST_HALF = 9
_CODES = "codes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executable:
    """The data type that a layer would be computed in on a machine.

    ``has_kernel``: that type is as wide as weights and activations, and the machine has it.
    """

    dtype: DType
    has_kernel: bool


@dataclass(frozen=True)
class Widths:
    """The data types that a machine has, by the ceilings of its library, else of its hardware.

    Args:
        profile: the machine.
        threads: how many compute.
    """

    profile: HardwareProfile
    threads: int

    @cached_property
    def _library(self) -> dict[str, float]:
        return self._rates("library")

    @cached_property
    def _hardware(self) -> dict[str, float]:
        return self._rates("hardware")

    def _rates(self, kind: str) -> dict[str, float]:
        """The highest ceiling of every type, that on as many threads where it is known."""
        found: dict[str, tuple[bool, float]] = {}
        for each in self.profile.compute:
            if each.kind == kind:
                rank = (each.threads == self.threads, each.peak_flop_per_s)
                found[each.dtype.name] = max(found.get(each.dtype.name, rank), rank)
        return {name: rate for name, (_, rate) in found.items()}

    def has(self, name: str) -> bool:
        """Whether there is a ceiling for a type, of whatever kind."""
        return name in self._library or name in self._hardware

    def has_kernel(self, name: str) -> bool:
        """Whether a type can be run: torch ran it here, or a data sheet has it."""
        return name in (self._library or self._hardware)

    @cached_property
    def half(self) -> DType | None:
        """The faster of both floating types of 16 bits; None where the machine has neither."""
        for rates in (self._library, self._hardware):
            known = [each for each in _HALVES if each in rates]
            if known:
                return dtype(max(known, key=lambda each: rates[each]))
        return None

    def executable(self, bits: LayerBits, base: DType) -> Executable:
        """What a layer of these bits is computed in, if its tensors are of `base` as it is."""
        if is_kept(bits, base):
            return Executable(dtype=base, has_kernel=True)
        weights, activations = own_bits(bits.weights, base), own_bits(bits.activations, base)
        found = self._narrowest(max(weights, activations), base)
        is_width = weights == activations == found.bits
        return Executable(dtype=found, has_kernel=is_width and self.has_kernel(found.name))

    def _narrowest(self, bits: int, base: DType) -> DType:
        names: list[str] = []
        if bits <= dtype(_INT4).bits:
            names.append(_INT4)
        if bits < _NARROWEST_HALF:
            names.append(INT8)
        for name in names:
            if self.has(name):
                return dtype(name)
        half = self.half
        is_half = half is not None and bits <= half.bits < base.bits
        return half if is_half and half is not None else base

    def kept_in(self, bits: int, *, is_weight: bool = False) -> DType:
        """The type of values of so many bits: torch's where it computes with them, else codes."""
        half = self.half
        if half is not None and bits == half.bits and self.has_kernel(half.name):
            return half
        if bits == dtype(INT8).bits and self.has_kernel(INT8):
            return dtype("qint8" if is_weight else "quint8")
        return DType(f"{_CODES}{bits}", bits, "int" if is_weight else "uint")


def own_bits(bits: int, base: DType) -> int:
    """The bits of what is asked to have `bits`, or is left as it is, in `base`."""
    return base.bits if bits == FLOAT_BITS else min(bits, base.bits)


def is_kept(bits: LayerBits, base: DType) -> bool:
    """Whether layers of that type stay as they are: no fewer bits are asked for."""
    return min(own_bits(bits.weights, base), own_bits(bits.activations, base)) == base.bits


def is_codes(of: DType) -> bool:
    """Whether torch has no type for such values."""
    return of.name.startswith(_CODES)


Handling = Literal["free", "layer", "sum", "carrying", "floats", "full"]
"""``layer``: computes with codes; ``sum``: adds them; ``carrying``: moves or chooses them; and what
computes in floats: ``floats`` in those that the pass has, ``full`` in those that the model had."""

_CARRYING = frozenset(
    f"aten.{name}"
    for name in (
        *("relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "threshold"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices"),
        *("max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"),
        *("avg_pool1d", "avg_pool2d", "avg_pool3d", "mean", "adaptive_avg_pool2d"),
        *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool3d"),
        *("cat", "stack", "clone", "contiguous", "copy", "repeat", "flip", "roll", "amax"),
        *("index", "index_select", "gather", "select_copy", "slice_copy", "narrow_copy"),
        *("expand_copy", "view_copy", "as_strided_copy", "im2col", "pixel_shuffle"),
        *("pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "constant_pad_nd"),
        *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d"),
        *("replication_pad2d", "replication_pad3d", "upsample_nearest1d"),
        *("upsample_nearest2d", "upsample_nearest3d", "_unsafe_index"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """A floating operand that the model does not keep.

    ``place`` is its position among the inputs, ``values`` what it lies in: none if no operator of
    the pass made it, several where it is read together with what others wrote.
    """

    place: int
    reading: Reading
    values: tuple[Value, ...]

    @property
    def is_one(self) -> bool:
        """Whether it is one value, or what the model was given."""
        return self.reading.value is not None or not self.values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """Operators that run as one kernel in few bits; one alone, where they stay as they are.

    ``reads`` are the operands of the first of them, ``writes`` the floating results of the last.
    ``bits`` are those of a layer, 32 where they are those that its tensors have.
    ``has_parameters``: the first reads floats that the model keeps.
    """

    operators: tuple[int, ...]
    handling: Handling
    reads: tuple[Operand, ...]
    writes: tuple[Value, ...]
    layer: Layer | None = None
    bits: LayerBits | None = None
    has_parameters: bool = False

    def takes(self, operand: Operand, policy: Policy) -> int:
        """The most bits in which a layer or an addition of codes reads an operand."""
        if self.handling == "sum":
            return policy.activations
        is_activation = self.layer is not None and operand.place == self.layer.activation
        return self.bits.activations if self.bits is not None and is_activation else FLOAT_BITS


def nodes_of(
    records: Sequence[OperatorRecord],
    groups: Sequence[Group],
    bits: Mapping[int, LayerBits],
    policy: Policy,
    flow: Dataflow,
) -> tuple[Node, ...]:
    """What runs, in its order."""
    group_at = {each.operators[0]: each for each in groups}
    by_storage: dict[int, list[Value]] = {}
    for row in flow.written:
        for spec, value in row:
            by_storage.setdefault(spec.storage, []).append(value)
    nodes: list[Node] = []
    done: set[int] = set()
    stays: set[int] = set()
    for place, record in enumerate(records):
        if place in done:
            continue
        group = group_at.get(place)
        layer = group.layer if group is not None else None
        handling = "full" if place in stays else _handling(record, group, bits, policy)
        operators = (place,)
        if group is not None and handling in ("layer", "sum"):
            operators = group.operators
        elif layer is not None and group is not None:
            # What is not quantised runs as it does now, its batch norm too.
            stays.update(group.operators)
        done.update(operators)
        written = flow.written[operators[-1]]
        nodes.append(
            Node(
                operators=operators,
                handling=handling,
                reads=_operands(place, flow, by_storage),
                writes=tuple(value for spec, value in written if spec.dtype.kind == "float"),
                layer=layer,
                bits=bits.get(place),
                has_parameters=any(
                    spec.role in KEPT and spec.dtype.kind == "float" for spec in record.inputs
                ),
            )
        )
    return tuple(nodes)


def _handling(
    record: OperatorRecord, group: Group | None, bits: Mapping[int, LayerBits], policy: Policy
) -> Handling:
    if record.state is State.FREE:
        return "free"
    if group is not None and group.layer is not None:
        return "full" if bits[group.layer.index].is_float else "layer"
    if group is not None:
        if policy.shortcut == "full":
            return "full"
        asked = LayerBits(weights=FLOAT_BITS, activations=policy.activations)
        return "floats" if is_kept(asked, record.outputs[0].dtype) else "sum"
    is_carrying = record.op.removesuffix("_") in _CARRYING and record.state is State.COUNTED
    return "carrying" if is_carrying else "floats"


def _operands(
    place: int, flow: Dataflow, by_storage: Mapping[int, Sequence[Value]]
) -> tuple[Operand, ...]:
    """The floating operands of an operator that the model does not keep."""
    found: list[Operand] = []
    for position, reading in enumerate(flow.read[place]):
        spec, value, writer = reading
        if spec.role in KEPT or spec.dtype.kind != "float":
            continue
        values = (value,) if value is not None else ()
        if value is None and writer is not None:
            values = tuple(
                each for each in by_storage.get(spec.storage, ()) if place in each.readers
            )
        found.append(Operand(place=position, reading=reading, values=values))
    return tuple(found)
