"""Turns every operator that torch dispatches into a record: what it read, wrote and computed."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.workload import formulas
from roofline.workload.capture.fakes import Fakes
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import Operands, tensors_in
from roofline.workload.capture.packed import unpacked
from roofline.workload.capture.reals import Reals
from roofline.workload.formulas.registry import Flop
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work, traffic_of

_BOOKKEEPING = frozenset(
    {
        *("aten.detach_", "aten._local_scalar_dense", "aten.is_same_size", "aten._version"),
        *("aten.promote_types", "aten._linalg_check_errors", "aten._fused_sdp_choice"),
        *("aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata"),
        *("aten._functional_assert_async", "aten._functional_assert_scalar", "aten._print"),
        *("aten.sym_constrain_range", "aten.sym_constrain_range_for_size", "aten.record_stream"),
        *("aten._functional_sym_constrain_range", "aten.is_pinned", "aten.q_scale"),
        *("aten.q_zero_point", "aten.qscheme", "aten.q_per_channel_axis"),
        # Hands a constant such as torch.tensor(3.0) to the modes that are on; eager makes no call.
        "aten.lift_fresh",
    }
)
_BOOKKEEPING_NAMESPACES = frozenset({"prim", "profiler"})
_DEVICE = torch.ops.prim.device.default
"""Asked several times a call; the answer need not go through the modes."""

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
        *("aten.log_normal_", "aten.geometric_", "aten._foreach_copy_", "aten._foreach_zero_"),
        "aten._flash_attention_forward_no_dropout_inplace",
    }
)
"""In-place operators that write their first operand without reading it."""

_UNSAID: Mapping[str, tuple[str, ...]] = dict.fromkeys(
    ("aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm"),
    ("running_mean", "running_var"),
)
"""Operands that an operator updates in training, though its schema does not say so."""

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


_COUNTS = ("flop", "multiply_add", "least_flop", "internal_byte")
"""What of an operator's work its formula says."""


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
    is_composite: bool


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
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), torch._C.DispatchKey.CompositeImplicitAutograd
        ),
    )


class Recorder(TorchDispatchMode):
    """Turns every dispatched operator into a record."""

    def __init__(self, tensors: Fakes | Reals, modules: ModuleStack, operands: Operands) -> None:
        super().__init__()
        self.records: list[OperatorRecord] = []
        self._tensors = tensors
        self._modules = modules
        self._operands = operands
        self._last: dict[str, Any] | None = None
        self._phase: Phase = "forward"
        self._is_paused = False
        self._owners: dict[int, str] = {}
        self._owner = ""

    def enter(self, phase: Phase) -> None:
        """From now on, operators belong to `phase`."""
        self._phase = phase

    def own(self, tensors: Any, path: str) -> None:
        """In the optimizer's phase, what touches `tensors` belongs to the module at `path`."""
        for number in self._operands.storages(tensors_in(tensors)):
            self._owners[number] = path

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While this is open, operators run as ever, and leave no records."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is _DEVICE:
            return args[0].device
        operator = _operator(func)
        if operator.is_composite and torch.is_inference_mode_enabled():
            # Elsewhere it comes apart before it gets here.
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        if operator.is_bookkeeping or self._is_paused:
            return self._tensors.call(func, args, kwargs or {})
        self.note_dropped()
        is_gradient = self._phase == "backward" and not self._modules.are_running
        self._operands.take_new_as(Role.GRADIENT if is_gradient else Role.ACTIVATION)
        operands = tuple(self._tensors.in_place_of(value) for value in args)
        named = {name: self._tensors.in_place_of(value) for name, value in (kwargs or {}).items()}
        given = dict(zip(operator.arguments, operands, strict=False)) | named
        _check_dtypes(operator, given)
        result = self._tensors.call(func, operands, named)
        self._record(operator, given, result)
        return result

    def note_dropped(self) -> None:
        """Writes the record of the last operator, with the storages that went since."""
        if self._last is not None:
            self.records.append(OperatorRecord(**self._last, freed=self._operands.dropped()))
            self._last = None

    def _path(self, operands: Sequence[TensorSpec]) -> str:
        """The path of the module that an operator belongs to."""
        if self._phase == "forward" or self._modules.are_running:
            return self._modules.path
        if self._phase == "backward":
            return self._modules.path_of_node()
        owners = {self._owners[each.storage] for each in operands if each.storage in self._owners}
        if owners:
            # One that updates several parameters at a time belongs to none of their modules.
            self._owner = owners.pop() if len(owners) == 1 else ""
        return self._owner

    def _record(self, operator: _Operator, given: dict[str, Any], result: Any) -> None:
        given = {name: self._with_packed(value) for name, value in given.items()}
        read = [
            tensor
            for name, value in given.items()
            if name not in operator.written_only
            for tensor in tensors_in(value)
        ]
        inputs = self._operands.of(read)
        written = [
            given[name]
            for name in operator.written
            if name in given and not _is_spared(operator, name, given)
        ]
        if given.get("training") or given.get("train"):
            written += [given[name] for name in _UNSAID.get(operator.name, ()) if name in given]
        outputs = self._operands.of(tensors_in([result, written]))
        state, kind, key = State.UNKNOWN, "unknown", ""
        counts: dict[str, int | None] = dict.fromkeys(_COUNTS)
        known, results = (self._operands.storages(each) for each in (read, tensors_in(result)))
        if _is_free(operator, (*inputs, *outputs), known, results):
            state, kind = State.FREE, "free"
        elif (formula := formulas.find(operator.name, operator.overload)) is not None:
            arguments = {
                name: self._as_specs(value)
                for name, value in {**operator.defaults, **given}.items()
            }
            count = formula.count({**arguments, "output": self._as_specs(result)})
            kind, key = count.type or formula.type, formula.key
            inputs = tuple(_as_touched(spec, count, arguments) for spec in inputs)
            outputs = tuple(_as_touched(spec, count, arguments) for spec in outputs)
            # Most formulas count operations on real numbers, whose complex like is more.
            is_complex = any(spec.dtype.kind == "complex" for spec in (*inputs, *outputs))
            if not count.flop or formula.is_for_complex or not is_complex:
                state = State.COUNTED
                counts = {name: getattr(count, name) for name in _COUNTS}
        work = Work(**counts, **traffic_of(inputs, outputs))
        self._last = {
            "index": len(self.records),
            "op": operator.name,
            "type": kind,
            "module_path": self._path((*inputs, *outputs)),
            "phase": self._phase,
            "inputs": inputs,
            "outputs": outputs,
            "attributes": _attributes(given),
            "state": state,
            "work": Work() if state is State.FREE else work,
            "formula": key,
        }

    def _with_packed(self, value: Any) -> Any:
        """`value`, or the weights in it, if it is an object that packs some or a list of such."""
        if isinstance(value, (list, tuple)):
            return [self._with_packed(each) for each in value]
        parts = unpacked(value)
        if parts is None:
            return value
        for each in parts:
            if each is not None:
                self._tensors.roles.setdefault(each.untyped_storage()._cdata, Role.PARAMETER)
        return list(parts)

    def _as_specs(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._operands.spec(value)
        if isinstance(value, (list, tuple)):
            return [self._as_specs(item) for item in value]
        return value


def _is_spared(operator: _Operator, name: str, given: Mapping[str, Any]) -> bool:
    """Whether an operand is not written, though the schema says that it may be.

    Fused optimizers write gradients back only where they take a scale out of them.
    """
    is_optimizer = operator.name.startswith("aten._fused_ad") or operator.name == "aten._fused_sgd_"
    return is_optimizer and name == "grads" and given.get("grad_scale") is None


def _is_free(
    operator: _Operator,
    operands: Sequence[TensorSpec],
    known: frozenset[int],
    results: frozenset[int],
) -> bool:
    """Whether it moves nothing: it allocates, changes metadata, or gives views of its inputs.

    `known` are the storages of what it is given, `results` those of what it returns; empty tensors
    have one too, but are no `operands`.
    """
    if operator.name in _ALLOCATIONS or operator.name in _METADATA or not operands:
        return True
    return not operator.written and bool(results) and results <= known


def _as_touched(spec: TensorSpec, count: Flop, arguments: Mapping[str, Any]) -> TensorSpec:
    """The operand with as few elements as the formula says are touched of it."""
    for name in (*count.elements, *count.least_elements):
        operand = arguments.get(name)
        # Operands may begin at the same byte and be different parts of what lies there.
        if not isinstance(operand, TensorSpec) or operand != spec:
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


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are neither tensors nor None, as plain data."""
    return {
        name: _plain(value)
        for name, value in given.items()
        if value is not None
        and not isinstance(value, torch.Tensor)
        and next(tensors_in(value), None) is None
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else str(value)
