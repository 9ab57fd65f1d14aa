"""Runs a model once and records every operator, on fake tensors: no weight is allocated.

The model runs under a `TorchDispatchMode`, so the records are the aten calls that its eager run
makes on a CPU, after every composite operator took itself apart.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import InputError, ModelError, RooflineError
from roofline.foundation.dtypes import DType, dtype
from roofline.workload import formulas
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.sources import InputRequest
from roofline.workload.tensors import InputSpec, Role, TensorSpec
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

_SELECTS = frozenset({"aten.gather", "aten.index", "aten.index_select", "aten.take"})
"""Operators that read no more elements of their first operand than they return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``parameters`` counts elements, ``parameter_bytes`` and ``buffer_bytes`` bytes, tied ones once;
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
            each.name: each.default_value for each in schema.arguments if each.has_default_value()
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

    def __init__(self, fakes: _Fakes, storages: _Storages, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.records: list[OperatorRecord] = []
        self._fakes = fakes
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
        faked = tuple(self._fakes.in_place_of(value) for value in args)
        named = {name: self._fakes.in_place_of(value) for name, value in (kwargs or {}).items()}
        self.note_dropped()
        result = func(*faked, **named)
        given = dict(zip(operator.arguments, faked, strict=False)) | named
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
            dtype=_dtype_of(tensor.dtype),
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
            for tensor in _tensors(value)
        )
        written = [given[name] for name in operator.written if name in given]
        outputs = self._operands(_tensors([result, written]))
        if operator.name in _SELECTS and inputs and outputs:
            read = min(inputs[0].distinct_elements, outputs[0].elements)
            inputs = (replace(inputs[0], distinct_elements=read), *inputs[1:])
        state, kind, key = State.UNKNOWN, "unknown", ""
        work = Work(flop=None, multiply_add=None, least_flop=None)
        if _is_free(operator, inputs, outputs):
            state, kind, work = State.FREE, "free", Work()
        elif (formula := formulas.find(operator.name, operator.overload)) is not None:
            arguments = {
                name: self._as_specs(value)
                for name, value in {**operator.defaults, **given}.items()
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
    """Whether it moves nothing: it allocates, changes metadata, or gives views of its inputs."""
    if operator.name in _ALLOCATIONS or operator.name in _METADATA:
        return True
    known = {spec.storage for spec in inputs}
    return not operator.written and all(spec.storage in known for spec in outputs)


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
        if value is not None and next(_tensors(value), None) is None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)


class _Fakes:
    """Fake CPU tensors in the place of those that a model keeps, tied ones staying tied.

    ``roles`` are the roles of their storages, by address.
    """

    def __init__(self, mode: FakeTensorMode, roles: dict[int, Role]) -> None:
        self.roles = roles
        self._mode = mode
        # The originals are kept, so that no other tensor gets their identity.
        self._made: dict[int, tuple[torch.Tensor, Any]] = {}
        self._bases: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, role: Role, change: torch.dtype | None = None) -> Any:
        """The fake of `tensor`, of the same strides; a floating type becomes `change` if given."""
        if id(tensor) not in self._made:
            fake = self._fake(tensor, change)
            if role is Role.PARAMETER:
                fake = torch.nn.Parameter(fake, requires_grad=False)
            self._made[id(tensor)] = tensor, fake
            self.roles.setdefault(fake.untyped_storage()._cdata, role)
        return self._made[id(tensor)][1]

    def in_place_of(self, value: Any) -> Any:
        """`value` with a fake for every tensor in it that is none.

        Those are tensors that the model keeps where torch does not look: in plain attributes, in
        lists, in modules that are in lists.
        """
        if isinstance(value, torch.Tensor):
            if isinstance(value, FakeTensor):
                return value
            kept_as = Role.PARAMETER if isinstance(value, torch.nn.Parameter) else Role.BUFFER
            return self.of(value, kept_as)
        if isinstance(value, (list, tuple)):
            return [self.in_place_of(item) for item in value]
        return value

    def _fake(self, tensor: torch.Tensor, change: torch.dtype | None) -> Any:
        to = change if change is not None and tensor.is_floating_point() else tensor.dtype
        if (
            type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
            or tensor.layout is not torch.strided
            or tensor.is_quantized
        ):
            return self._mode.from_tensor(tensor).to(to)
        # A hundred times cheaper than FakeTensorMode.from_tensor, which keeps what we do not need.
        storage = tensor.untyped_storage()
        key = (storage._cdata, to)
        if key not in self._bases:
            length = storage.nbytes() // tensor.element_size()
            self._bases[key] = torch.empty(length, dtype=to, device="meta")
        view = self._bases[key].as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return FakeTensor(self._mode, view, torch.device("cpu"))


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
        fakes = _Fakes(mode, {})
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for position, (request, kind) in enumerate(zip(requests, kinds, strict=True)):
            value = values.get(position)
            if value is not None and tuple(value.shape) == request.shape:
                tensor = fakes.of(value, Role.INPUT, kind)
            else:
                tensor = torch.empty(request.shape, dtype=kind, device="cpu")
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
def _left_as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Puts back all attributes of all modules, and what their lists, sets and dicts held.

    So a forward pass that keeps something (a feature map, a counter, a module made on first use)
    leaves nothing behind.
    """
    before = [
        (container, container.copy())
        for module in model.modules()
        for container in (module.__dict__, *module.__dict__.values())
        if type(container) in (dict, OrderedDict, list, set)
    ]
    try:
        yield
    finally:
        for container, content in before:
            container.clear()
            if isinstance(container, list):
                container.extend(content)
            else:
                container.update(content)


def _put_fakes(model: torch.nn.Module, fakes: _Fakes, change: torch.dtype | None) -> None:
    """Puts fake tensors in the place of the model's parameters and buffers."""
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ModelError(
                f"{type(module).__name__} is TorchScript, whose parameters cannot be replaced;"
                " give the torch.nn.Module that it was made from"
            )
        for own, role in (
            (module._parameters, Role.PARAMETER),
            (module._buffers, Role.BUFFER),
        ):
            for name, tensor in own.items():
                if tensor is None:
                    continue
                if is_lazy(tensor):
                    raise ModelError(
                        f"{type(module).__name__} has a lazy parameter '{name}' without a shape;"
                        " run the model once on a real input first"
                    )
                own[name] = fakes.of(tensor, role, change)


@contextlib.contextmanager
def _silent_torch() -> Iterator[None]:
    """Keeps torch from logging a traceback where an operator rejects its inputs: we say it."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _tied_once(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that lie in different places."""
    places = {
        (each.untyped_storage()._cdata, each.storage_offset(), each.shape, each.stride()): each
        for each in tensors
    }
    return list(places.values())


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
    fakes = _Fakes(mode, {})
    with _left_as_it_was(model), _silent_torch(), torch.no_grad():
        model.eval()
        _put_fakes(model, fakes, change)
        parameters, buffers = _tied_once(model.parameters()), _tied_once(model.buffers())
        with mode:
            args, kwargs = inputs(mode)
            given = {each.untyped_storage()._cdata: each for each in _tensors([args, kwargs])}
            for address in given:
                fakes.roles.setdefault(address, Role.INPUT)
            recorder = _Recorder(fakes, _Storages(fakes.roles), paths)
            hooks = [
                register_module_forward_pre_hook(recorder.enter),
                register_module_forward_hook(recorder.leave, always_call=True),
            ]
            try:
                with recorder:
                    # The result is dropped only when the pass is over: it is alive all the time.
                    result = model(*args, **kwargs)
            except RooflineError:
                raise
            except Exception as error:
                raise _model_error(error, name, paths) from error
            finally:
                for hook in hooks:
                    hook.remove()
            recorder.note_dropped()
            del result
    return Capture(
        records=tuple(recorder.records),
        parameters=sum(each.numel() for each in parameters),
        parameter_bytes=sum(each.nbytes for each in parameters),
        buffer_bytes=sum(each.nbytes for each in buffers),
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
    fix = "check --input and --dtype against what the model takes"
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        said = f"what {error.func} gives depends on the values in a tensor"
        fix = "only shapes are known here, so leave that step out of the model"
    elif isinstance(error, UnsupportedOperatorException):
        said = f"the shape that {error.func} gives is not known"
        fix = "tell torch with torch.library.register_fake"
    elif not isinstance(error, (RuntimeError, ValueError)):
        said = f"{type(error).__name__}: {said}"
    return ModelError(f"{name} failed{f' in {where}' if where else ''}: {said}; {fix}")
