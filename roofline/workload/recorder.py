"""Turns every operator that torch dispatches into a record: what it read, wrote and computed."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.workload import formulas
from roofline.workload.fakes import Fakes, dtype_of
from roofline.workload.formulas.registry import Flop
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_BOOKKEEPING = frozenset(
    {
        *("aten.detach_", "aten._local_scalar_dense", "aten.is_same_size", "aten._version"),
        # Hands a constant such as torch.tensor(3.0) to the modes that are on; eager makes no call.
        "aten.lift_fresh",
    }
)
_BOOKKEEPING_NAMESPACES = frozenset({"prim", "profiler"})
_ALLOCATIONS = frozenset(
    {
        "aten.empty",
        "aten.empty_like",
        "aten.empty_strided",
        "aten.empty_permuted",
        "aten.new_empty",
        "aten.new_empty_strided",
    }
)
_METADATA = frozenset(
    {
        *("aten.as_strided_", "aten.resize_", "aten.set_", "aten.squeeze_", "aten.swapaxes_"),
        *("aten.swapdims_", "aten.t_", "aten.transpose_", "aten.unsqueeze_"),
    }
)
"""In-place operators that change how a tensor looks at its storage, not what is in it."""

_OVERWRITES = frozenset(
    {
        *("aten.copy_", "aten.fill_", "aten.zero_", "aten.uniform_", "aten.normal_"),
        *("aten.bernoulli_", "aten.exponential_", "aten.random_", "aten.cauchy_"),
        *("aten.log_normal_", "aten.geometric_"),
    }
)
"""In-place operators that write their first operand without reading it."""

_ONE_DTYPE = frozenset(
    {
        *("aten.convolution", "aten._convolution", "aten.mm", "aten.bmm", "aten.addmm"),
        *("aten.baddbmm", "aten.addbmm", "aten.mv", "aten.addmv", "aten.dot", "aten.linear"),
    }
)
"""Operators that torch refuses on operands of different types, though their fakes do not."""

_NORMALIZATIONS = frozenset(
    {
        *("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training"),
        *("aten.native_layer_norm", "aten.native_group_norm"),
    }
)
"""The same, but that float32 parameters go with an input of half the width."""


@dataclass(frozen=True, slots=True)
class _Operator:
    """What is known of an aten overload before it is called."""

    name: str
    overload: str
    arguments: tuple[str, ...]
    defaults: Mapping[str, Any]
    written: frozenset[str]
    written_only: frozenset[str]
    is_bookkeeping: bool


@functools.cache
def _operator(func: torch._ops.OpOverload) -> _Operator:
    schema = func._schema
    name = f"{func.namespace}.{func._opname}"
    written = frozenset(
        each.name for each in schema.arguments if each.alias_info and each.alias_info.is_write
    )
    written_only = frozenset(each.name for each in schema.arguments if each.is_out)
    if name in _OVERWRITES:
        written_only |= {schema.arguments[0].name}
    return _Operator(
        name=name,
        overload=func._overloadname,
        arguments=tuple(each.name for each in schema.arguments),
        defaults={
            each.name: each.default_value for each in schema.arguments if each.has_default_value()
        },
        written=written,
        written_only=written_only,
        is_bookkeeping=name in _BOOKKEEPING or func.namespace in _BOOKKEEPING_NAMESPACES,
    )


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument or result, however nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)


class Storages:
    """Numbers storages by first appearance, and tells which ones the model has dropped."""

    def __init__(self, roles: Mapping[int, Role]) -> None:
        self._roles = roles
        self._number: dict[int, int] = {}
        # Weak references keep the addresses from being given to other storages, and thus unique.
        self._references: list[StorageWeakRef] = []
        self._watched: list[tuple[int, StorageWeakRef]] = []

    def number(self, tensor: torch.Tensor) -> tuple[int, Role]:
        storage = tensor.untyped_storage()
        address = storage._cdata
        role = self._roles.get(address, Role.ACTIVATION)
        if address not in self._number:
            number = self._number[address] = len(self._number)
            reference = StorageWeakRef(storage)
            self._references.append(reference)
            if role is Role.ACTIVATION:
                self._watched.append((number, reference))
        return self._number[address], role

    def dropped(self) -> tuple[int, ...]:
        """Numbers of the activations whose storage has gone since the last call."""
        gone = tuple(number for number, reference in self._watched if reference.expired())
        if gone:
            self._watched = [each for each in self._watched if each[0] not in gone]
        return gone


class Recorder(TorchDispatchMode):
    """Turns every dispatched operator into a record."""

    def __init__(self, fakes: Fakes, storages: Storages, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.records: list[OperatorRecord] = []
        self._fakes = fakes
        self._storages = storages
        self._paths = paths
        self._open: list[str] = []
        self._thread = threading.get_ident()
        self.elsewhere: str | None = None

    def enter(self, module: torch.nn.Module, _inputs: object) -> None:
        """Called before every module's forward."""
        path = self._paths.get(id(module))
        if threading.get_ident() != self._thread:
            # Hooks see every thread, the mode only its own: what this one calls is not recorded.
            if path is not None:
                self.elsewhere = path
            return
        if path is None:
            # Made during the forward pass, or kept where torch does not look: named by its class.
            around = self._open[-1] if self._open else ""
            path = f"{around}.<{type(module).__name__}>".lstrip(".")
        self._open.append(path)

    def leave(self, *_: object) -> None:
        """Called after every module's forward, also when it raised."""
        if threading.get_ident() == self._thread:
            self._open.pop()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        operator = _operator(func)
        if operator.is_bookkeeping:
            return func(*args, **(kwargs or {}))
        faked = tuple(self._fakes.in_place_of(value) for value in args)
        named = {name: self._fakes.in_place_of(value) for name, value in (kwargs or {}).items()}
        self.note_dropped()
        given = dict(zip(operator.arguments, faked, strict=False)) | named
        _check_dtypes(operator, given)
        result = func(*faked, **named)
        self._record(operator, given, result)
        return result

    def note_dropped(self) -> None:
        """Adds the storages that went since the last operator to its record."""
        dropped = self._storages.dropped()
        if dropped and self.records:
            last = self.records[-1]
            self.records[-1] = replace(last, freed=last.freed + dropped)

    def _spec(self, tensor: torch.Tensor) -> TensorSpec:
        number, role = self._storages.number(tensor)
        shape = tuple(tensor.shape)
        return TensorSpec(
            shape=shape,
            dtype=dtype_of(tensor.dtype),
            distinct_elements=_distinct_elements(shape, tensor.stride()),
            storage=number,
            offset_byte=int(tensor.storage_offset()) * tensor.element_size(),
            role=role,
        )

    def _operands(self, tensors: Iterator[torch.Tensor]) -> tuple[TensorSpec, ...]:
        """The tensors that lie in different places, empty ones left out."""
        found: dict[tuple[Any, ...], TensorSpec] = {}
        for tensor in tensors:
            if tensor.numel():
                spec = self._spec(tensor)
                key = (spec.storage, spec.offset_byte, _layout(spec.shape, tensor.stride()))
                found.setdefault(key, spec)
        return tuple(found.values())

    def _record(self, operator: _Operator, given: dict[str, Any], result: Any) -> None:
        inputs = self._operands(
            tensor
            for name, value in given.items()
            if name not in operator.written_only
            for tensor in tensors_in(value)
        )
        written = [given[name] for name in operator.written if name in given]
        outputs = self._operands(tensors_in([result, written]))
        state, kind, key = State.UNKNOWN, "unknown", ""
        work = Work(flop=None, multiply_add=None, least_flop=None)
        if _is_free(operator, inputs, outputs, result):
            state, kind, work = State.FREE, "free", Work()
        elif (formula := formulas.find(operator.name, operator.overload)) is not None:
            arguments = {
                name: self._as_specs(value)
                for name, value in {**operator.defaults, **given}.items()
            }
            count = formula.count({**arguments, "output": self._as_specs(result)})
            kind, key = count.type or formula.type, formula.key
            inputs = tuple(_as_touched(spec, count, arguments) for spec in inputs)
            outputs = tuple(_as_touched(spec, count, arguments) for spec in outputs)
            # Formulas count operations on real numbers: what they say of complex ones is unknown.
            if not count.flop or all(spec.dtype.kind != "complex" for spec in (*inputs, *outputs)):
                state = State.COUNTED
                work = Work(
                    flop=count.flop, multiply_add=count.multiply_add, least_flop=count.least_flop
                )
        if state is not State.FREE:
            work = replace(work, **traffic_of(inputs, outputs))
        self.records.append(
            OperatorRecord(
                index=len(self.records),
                op=operator.name,
                type=kind,
                module_path=self._open[-1] if self._open else "",
                phase="forward",
                inputs=inputs,
                outputs=outputs,
                attributes=_attributes(given),
                state=state,
                work=work,
                formula=key,
            )
        )

    def _as_specs(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._spec(value)
        if isinstance(value, (list, tuple)):
            return [self._as_specs(item) for item in value]
        return value


def _is_free(
    operator: _Operator,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    result: Any,
) -> bool:
    """Whether it moves nothing: it allocates, changes metadata, or gives views of its inputs."""
    if operator.name in _ALLOCATIONS or operator.name in _METADATA:
        return True
    if operator.written or next(tensors_in(result), None) is None:
        return False
    known = {spec.storage for spec in inputs}
    return all(spec.storage in known for spec in outputs)


def _as_touched(spec: TensorSpec, count: Flop, arguments: Mapping[str, Any]) -> TensorSpec:
    """The operand with as few elements as the formula says are touched of it."""
    for name in (*count.elements, *count.least_elements):
        operand = arguments.get(name)
        if not isinstance(operand, TensorSpec) or (operand.storage, operand.offset_byte) != (
            spec.storage,
            spec.offset_byte,
        ):
            continue
        distinct = min(spec.distinct_elements, count.elements.get(name, spec.distinct_elements))
        least = min(distinct, count.least_elements.get(name, distinct))
        return replace(
            spec,
            distinct_elements=distinct,
            least_elements=least if least < distinct else None,
        )
    return spec


def _check_dtypes(operator: _Operator, given: Mapping[str, Any]) -> None:
    """Refuses what torch refuses in a real run, but not on fake tensors.

    Raises:
        RuntimeError: the operands are of different types.
    """
    is_normalization = operator.name in _NORMALIZATIONS
    if not is_normalization and operator.name not in _ONE_DTYPE:
        return
    kinds = [each.dtype for each in given.values() if isinstance(each, torch.Tensor)]
    if is_normalization and kinds and kinds[0] in (torch.bfloat16, torch.float16):
        kinds = [kind for kind in kinds if kind != torch.float32]
    if len(set(kinds)) > 1:
        names = ", ".join(str(kind).removeprefix("torch.") for kind in dict.fromkeys(kinds))
        raise RuntimeError(
            f"{operator.name.removeprefix('aten.')} takes operands of one dtype, got {names}"
        )


def _layout(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Which elements of its storage a tensor has, however they are viewed: (stride, size) pairs.

    The same for a tensor, its transpose, and one that repeats it: dimensions in a row are joined.
    """
    pairs: list[tuple[int, int]] = []
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size == 1 or not stride:
            continue
        if pairs and pairs[-1][0] * pairs[-1][1] == stride:
            pairs[-1] = (pairs[-1][0], pairs[-1][1] * size)
        else:
            pairs.append((stride, size))
    return tuple(pairs)


def _distinct_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of its storage that a tensor can touch.

    Repeated elements (stride 0) count once, and overlapping windows (unfold) reach no further than
    from the first element to the last.
    """
    distinct, reach = 1, 1
    for size, stride in zip(shape, strides, strict=True):
        distinct *= size if stride else min(size, 1)
        reach += (size - 1) * stride
    return min(distinct, reach)


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are neither tensors nor None, as plain data."""
    return {
        name: _plain(value)
        for name, value in given.items()
        if value is not None and next(tensors_in(value), None) is None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)
