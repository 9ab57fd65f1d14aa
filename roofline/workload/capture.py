"""Runs a model once and records every operator, on fake tensors: no weight is allocated.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run makes
on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import InputError, ModelError
from roofline.foundation.dtypes import DType, dtype
from roofline.workload import formulas
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.sources import InputRequest
from roofline.workload.tensors import InputSpec, Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_BOOKKEEPING = frozenset(
    {"aten.detach_", "aten._local_scalar_dense", "aten.is_same_size", "aten._version"}
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

_OVERWRITES = frozenset({"aten.copy_", "aten.fill_", "aten.zero_"})
"""In-place operators that write their first operand without reading it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``parameters`` counts elements, ``parameter_bytes`` and ``buffer_bytes`` bytes, each storage once;
    ``input_bytes`` those of the given inputs. Parameters that no operator touched are in them.
    """

    records: tuple[OperatorRecord, ...]
    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int


@functools.cache
def _dtype_of(torch_dtype: torch.dtype) -> DType:
    return dtype(str(torch_dtype).removeprefix("torch."))


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
            each.name: each.default_value
            for each in schema.arguments
            if each.has_default_value()
        },
        written=written,
        written_only=written_only,
        is_bookkeeping=name in _BOOKKEEPING or func.namespace in _BOOKKEEPING_NAMESPACES,
    )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument or result, however nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)


class _Storages:
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


class _Recorder(TorchDispatchMode):
    """Turns every dispatched operator into a record."""

    def __init__(self, storages: _Storages, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.records: list[OperatorRecord] = []
        self._storages = storages
        self._paths = paths
        self._open: list[str] = []

    def enter(self, module: torch.nn.Module, _inputs: object) -> None:
        """Called before every module's forward."""
        path = self._paths.get(id(module))
        if path is None:
            # Made during the forward pass, or kept where torch does not look: named by its class.
            around = self._open[-1] if self._open else ""
            path = f"{around}.<{type(module).__name__}>".lstrip(".")
        self._open.append(path)

    def leave(self, *_: object) -> None:
        """Called after every module's forward, also when it raised."""
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
        self.note_dropped()
        result = func(*args, **(kwargs or {}))
        given = dict(zip(operator.arguments, args, strict=False)) | (kwargs or {})
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
        kind = _dtype_of(tensor.dtype)
        distinct = 1
        for size, stride in zip(shape, tensor.stride(), strict=True):
            distinct *= size if stride else min(size, 1)
        item = tensor.element_size()
        # Overlapping views (unfold, as_strided) cannot touch more than their storage has.
        distinct = min(distinct, tensor.untyped_storage().nbytes() // item)
        return TensorSpec(
            shape=shape,
            dtype=kind,
            distinct_elements=distinct,
            storage=number,
            offset_byte=tensor.storage_offset() * item,
            role=role,
        )

    def _operands(self, tensors: Iterator[torch.Tensor]) -> tuple[TensorSpec, ...]:
        """The distinct tensors, empty ones left out."""
        found: dict[tuple[Any, ...], TensorSpec] = {}
        for tensor in tensors:
            if tensor.numel():
                spec = self._spec(tensor)
                key = (spec.storage, spec.offset_byte, spec.shape, tensor.stride())
                found.setdefault(key, spec)
        return tuple(found.values())

    def _record(self, operator: _Operator, given: dict[str, Any], result: Any) -> None:
        inputs = self._operands(
            tensor
            for name, value in given.items()
            if name not in operator.written_only
            for tensor in _tensors(value)
        )
        written = [given[name] for name in operator.written if name in given]
        outputs = self._operands(_tensors([result, written]))
        state, kind, key = State.UNKNOWN, "unknown", ""
        work = Work(flop=None, multiply_add=None, least_flop=None)
        if _is_free(operator, inputs, outputs):
            state, kind, work = State.FREE, "free", Work()
        elif (formula := formulas.find(operator.name, operator.overload)) is not None:
            arguments = {
                name: self._as_specs(value)
                for name, value in (operator.defaults | given).items()
            }
            count = formula.count({**arguments, "output": self._as_specs(result)})
            state, kind, key = State.COUNTED, count.type or formula.type, formula.key
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
    operator: _Operator, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> bool:
    """Whether it moves nothing: it only allocates, changes metadata, or returns views of its inputs."""
    if operator.name in _ALLOCATIONS or operator.name in _METADATA:
        return True
    known = {spec.storage for spec in inputs}
    return not operator.written and all(spec.storage in known for spec in outputs)


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are neither tensors nor None, as plain data."""
    return {
        name: _plain(value)
        for name, value in given.items()
        if value is not None and next(_tensors(value), None) is None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def fake_like(tensor: torch.Tensor, mode: FakeTensorMode, change: torch.dtype | None) -> Any:
    """A fake CPU tensor of the same shape and strides; floating types become `change` if it is given."""
    to = change if change is not None and tensor.is_floating_point() else tensor.dtype
    if type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and (
        tensor.layout is torch.strided and not tensor.is_quantized
    ):
        # A hundred times cheaper than FakeTensorMode.from_tensor, which keeps what we do not need.
        empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=to, device="meta")
        return FakeTensor(mode, empty, torch.device("cpu"))
    return mode.from_tensor(tensor).to(to)


def torch_dtype(name: str) -> torch.dtype:
    """torch's data type called `name`.

    Raises:
        InputError: torch has no tensors of that type.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"torch has no dtype '{name}'; try float32, bfloat16, float16 or float64")
    return found


MakeInputs = Callable[[FakeTensorMode], tuple[list[Any], dict[str, Any]]]


def fake_inputs(
    requests: Sequence[InputRequest],
    values: Mapping[int, torch.Tensor],
    change: torch.dtype | None,
) -> tuple[tuple[InputSpec, ...], MakeInputs]:
    """What the model will be given, and a function that makes it as fake tensors.

    Args:
        requests: shape, and data type or None, of each input.
        values: the tensors that were given for some of them, by position; they set strides too.
        change: the type of floating inputs for which none was asked.
    """
    kinds = [
        torch_dtype(request.dtype.name)
        if request.dtype
        else (
            values[position].dtype
            if position in values and not (change and values[position].is_floating_point())
            else change or torch.get_default_dtype()
        )
        for position, request in enumerate(requests)
    ]

    def make(mode: FakeTensorMode) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for position, (request, kind) in enumerate(zip(requests, kinds, strict=True)):
            value = values.get(position)
            if value is not None and tuple(value.shape) == request.shape:
                tensor = fake_like(value, mode, kind)
            else:
                tensor = torch.empty(request.shape, dtype=kind)
            if request.name:
                kwargs[request.name] = tensor
            else:
                args.append(tensor)
        return args, kwargs

    specs = tuple(
        InputSpec(name=request.name, shape=request.shape, dtype=_dtype_of(kind))
        for request, kind in zip(requests, kinds, strict=True)
    )
    return specs, make


@contextlib.contextmanager
def _faked(
    model: torch.nn.Module, mode: FakeTensorMode, change: torch.dtype | None
) -> Iterator[dict[int, Role]]:
    """Puts fake tensors in the place of parameters and buffers, tied ones staying tied.

    Yields the role of each fake storage. The model's own tensors are back when it ends.
    """
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
    fakes: dict[int, Any] = {}
    roles: dict[int, Role] = {}
    try:
        for module in model.modules():
            for own, role in (
                (module._parameters, Role.PARAMETER),
                (module._buffers, Role.BUFFER),
            ):
                kept.append((own, dict(own)))
                for name, tensor in own.items():
                    if tensor is None:
                        continue
                    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
                        raise ModelError(
                            f"{type(module).__name__} has a lazy parameter '{name}' without a shape;"
                            " run the model once on a real input first"
                        )
                    if id(tensor) not in fakes:
                        fake = fake_like(tensor, mode, change)
                        if role is Role.PARAMETER:
                            fake = torch.nn.Parameter(fake, requires_grad=False)
                        fakes[id(tensor)] = fake
                        roles[fake.untyped_storage()._cdata] = role
                    own[name] = fakes[id(tensor)]
        yield roles
    finally:
        for own, before in kept:
            own.clear()
            own.update(before)


@contextlib.contextmanager
def _in_eval_mode(model: torch.nn.Module) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in before:
            module.training = training


def capture(
    model: torch.nn.Module,
    inputs: MakeInputs,
    *,
    name: str,
    change: torch.dtype | None = None,
) -> Capture:
    """Runs `model` once, without gradients and in eval mode, on fake tensors.

    Args:
        model: any module, built for real or on the meta device; it is left as it was.
        inputs: makes the positional and keyword inputs as fake tensors of the given mode.
        name: what messages call the model.
        change: the type that floating parameters and buffers are taken to have.

    Raises:
        ModelError: the model raised; the message says in which module, and what torch said.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with _in_eval_mode(model), _faked(model, mode, change) as roles, torch.no_grad(), mode:
        sizes = {
            role: {
                tensor.untyped_storage()._cdata: tensor
                for tensor in tensors
                if tensor is not None
            }
            for role, tensors in (
                (Role.PARAMETER, model.parameters()),
                (Role.BUFFER, model.buffers()),
            )
        }
        args, kwargs = inputs(mode)
        given = {tensor.untyped_storage()._cdata: tensor for tensor in _tensors([args, kwargs])}
        for address in given:
            roles.setdefault(address, Role.INPUT)
        storages = _Storages(roles)
        recorder = _Recorder(storages, paths)
        hooks = [
            register_module_forward_pre_hook(recorder.enter),
            register_module_forward_hook(recorder.leave, always_call=True),
        ]
        try:
            with recorder:
                # The result is dropped only when the pass is over: it is alive all the time.
                result = model(*args, **kwargs)
        except Exception as error:
            raise _model_error(error, name, paths) from error
        finally:
            for hook in hooks:
                hook.remove()
        recorder.note_dropped()
        del result
    return Capture(
        records=tuple(recorder.records),
        parameters=sum(each.numel() for each in sizes[Role.PARAMETER].values()),
        parameter_bytes=sum(each.nbytes for each in sizes[Role.PARAMETER].values()),
        buffer_bytes=sum(each.nbytes for each in sizes[Role.BUFFER].values()),
        input_bytes=sum(each.nbytes for each in given.values()),
    )


def _model_error(error: Exception, name: str, paths: Mapping[int, str]) -> ModelError:
    """What the model said, and the innermost of its modules that was running."""
    where = ""
    trace = error.__traceback__
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if id(running) in paths and isinstance(running, torch.nn.Module):
            where = f"{paths[id(running)] or 'the model itself'} ({type(running).__name__})"
        trace = trace.tb_next
    said = " ".join(str(error).split()) or type(error).__name__
    return ModelError(
        f"{name} failed{f' in {where}' if where else ''}: {said};"
        " check --input and --dtype against what the model takes"
    )
