"""Recorder of dispatched operators: operands read and written, and work."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.workload import formulas
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import (
    Operand,
    Operands,
    distinct_specs,
    is_same_view,
    tensors_in,
    unpack,
)
from roofline.workload.capture.real_tensors import ReplacementTensors
from roofline.workload.capture.training import StepListener
from roofline.workload.formulas.registry import Flop, Formula
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import COUNTS, Work, traffic_of

_BOOKKEEPING = frozenset(
    {
        *("aten.detach_", "aten._local_scalar_dense", "aten.is_same_size", "aten._version"),
        *("aten.promote_types", "aten._linalg_check_errors", "aten._fused_sdp_choice"),
        *("aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata"),
        *("aten._functional_assert_async", "aten._functional_assert_scalar", "aten._print"),
        *("aten.sym_constrain_range", "aten.sym_constrain_range_for_size", "aten.record_stream"),
        *("aten._functional_sym_constrain_range", "aten.is_pinned", "aten.q_scale"),
        # Called for every tensor and its tangent in forward-mode differentiation.
        "aten._has_same_storage_numel",
        *("aten.q_zero_point", "aten.qscheme", "aten.q_per_channel_axis"),
        # Passes a constant such as torch.tensor(3.0) to active modes; eager mode makes no call.
        "aten.lift_fresh",
    }
)
_BOOKKEEPING_NAMESPACES = frozenset({"prim", "profiler"})
_MOVES_NOTHING = frozenset(
    {
        # Allocations; the zeros of forward-mode differentiation have no memory.
        *("aten.empty", "aten.empty_like", "aten.empty_strided", "aten.empty_permuted"),
        *("aten.new_empty", "aten.new_empty_strided", "aten._efficientzerotensor"),
        # In-place operators that change the view of a storage, not its content.
        *("aten.as_strided_", "aten.resize_", "aten.set_", "aten.squeeze_", "aten.swapaxes_"),
        *("aten.swapdims_", "aten.t_", "aten.transpose_", "aten.unsqueeze_"),
    }
)

_OVERWRITES = frozenset(
    {
        *("aten.copy_", "aten.fill_", "aten.zero_", "aten.uniform_", "aten.normal_"),
        *("aten.bernoulli_", "aten.exponential_", "aten.random_", "aten.cauchy_"),
        *("aten.log_normal_", "aten.geometric_", "aten._foreach_copy_", "aten._foreach_zero_"),
        "aten._flash_attention_forward_no_dropout_inplace",
    }
)
"""In-place operators that write their first operand without reading it."""

_UPDATES_STATISTICS = frozenset(
    {"aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm"}
)
"""Operators that update running statistics in training, which their schemas do not declare."""

_ONE_DTYPE = frozenset(
    {
        *("aten.convolution", "aten._convolution", "aten.mm", "aten.bmm", "aten.addmm"),
        *("aten.baddbmm", "aten.addbmm", "aten.mv", "aten.addmv", "aten.dot", "aten.linear"),
    }
)
"""Operators that reject operands of different types, unlike their fake kernels."""

_NORMALIZATIONS = frozenset(
    {
        *("aten.native_batch_norm", "aten._native_batch_norm_legit_no_training"),
        *("aten.native_layer_norm", "aten.native_group_norm"),
    }
)
"""The same, except that float32 parameters go with a 16-bit input."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator overload: its name, arguments, and effects on them.

    ``holders`` are the arguments that are or contain tensors, packed ones included.
    """

    name: str
    overload: str
    arguments: tuple[str, ...]
    holders: frozenset[str]
    defaults: Mapping[str, Any]
    written: frozenset[str]
    written_only: frozenset[str]
    moves_nothing: bool
    is_bookkeeping: bool
    is_composite: bool

    def writes(self, name: str, given: Mapping[str, Any]) -> bool:
        """Return whether a call with the arguments `given` writes the one called `name`.

        Fused optimizers write gradients back only to unscale them.
        """
        if name in self.written:
            is_fused = self.name.startswith("aten._fused_")
            return name != "grads" or not is_fused or given.get("grad_scale") is not None
        is_training = bool(given.get("training") or given.get("train"))
        is_statistic = name in ("running_mean", "running_var")
        return is_statistic and is_training and self.name in _UPDATES_STATISTICS


@functools.cache
def operator_of(func: torch._ops.OpOverload) -> Operator:
    """Return the cached description of `func`."""
    schema = func._schema
    name = f"{func.namespace}.{func._opname}"
    written_only = frozenset(each.name for each in schema.arguments if each.is_out)
    if name in _OVERWRITES:
        written_only |= {schema.arguments[0].name}
    return Operator(
        name=name,
        overload=func._overloadname,
        arguments=tuple(each.name for each in schema.arguments),
        holders=frozenset(
            each.name
            for each in schema.arguments
            if "Tensor" in str(each.type) or "torch.classes" in str(each.type)
        ),
        defaults={
            each.name: each.default_value for each in schema.arguments if each.has_default_value()
        },
        written=frozenset(
            each.name for each in schema.arguments if each.alias_info and each.alias_info.is_write
        ),
        written_only=written_only,
        moves_nothing=name in _MOVES_NOTHING,
        is_bookkeeping=name in _BOOKKEEPING or func.namespace in _BOOKKEEPING_NAMESPACES,
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), torch._C.DispatchKey.CompositeImplicitAutograd
        ),
    )


def _check_dtypes(operator: Operator, given: Mapping[str, Any]) -> None:
    """Raise RuntimeError for operand types that torch rejects in a real run, but not on fakes."""
    is_normalization = operator.name in _NORMALIZATIONS
    if not is_normalization and operator.name not in _ONE_DTYPE:
        return
    kinds = [each.dtype for each in given.values() if isinstance(each, torch.Tensor)]
    if is_normalization and kinds and kinds[0] in (torch.bfloat16, torch.float16):
        kinds = [kind for kind in kinds if kind != torch.float32]
    if len(set(kinds)) > 1:
        names = ", ".join(str(kind).removeprefix("torch.") for kind in dict.fromkeys(kinds))
        raise RuntimeError(
            f"{operator.name.removeprefix('aten.')} expects operands of one dtype, got {names}"
        )


_DEVICE = torch.ops.prim.device.default
"""Called several times per operator; the result need not go through the modes."""

_COUNTS = (*COUNTS, "internal_bytes")
"""Fields of an operator's work that come from its formula."""

_WITHOUT_PADDING = "aten._nested_tensor_from_mask"
_WITH_PADDING = "aten.to_padded_tensor"
_OF_PADDED = {_WITHOUT_PADDING, "aten._transformer_encoder_layer_fwd", _WITH_PADDING}
"""Operators of torch's fast path for transformers that skip padding."""

_UNKNOWN: Mapping[str, int | None] = dict.fromkeys(_COUNTS)
_NO_WORK = Work()

OnCall = Callable[[Any, Sequence[Any], Mapping[str, Any], Mapping[int, Role]], None]
"""Listener for calls: overload, positional and keyword arguments, and roles of storages by address.
It must keep no tensor: the release of tensors is recorded."""


class Recorder(TorchDispatchMode, StepListener):
    """Records every dispatched operator.

    ``tensors`` replace the model's own. ``on_call`` is called after each recorded call, in order.
    """

    def __init__(
        self,
        tensors: ReplacementTensors,
        modules: ModuleStack,
        operands: Operands,
        on_call: OnCall | None = None,
    ) -> None:
        super().__init__()
        self.records: list[OperatorRecord] = []
        self._tensors = tensors
        self._modules = modules
        self._operands = operands
        self._on_call = on_call
        self._last: dict[str, Any] | None = None
        self._phase: Phase = "forward"
        self._is_paused = False
        self._owners: dict[int, str] = {}
        self._owner = ""
        # Storages of sequences without padding, recorded as if with it.
        self._unpadded: set[int] = set()

    @property
    def operators(self) -> int:
        """Number of recorded operators."""
        return len(self.records) + (self._last is not None)

    def enter(self, phase: Phase) -> None:
        self._phase = phase

    def part(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._modules.part(name)

    def note_parameter_owners(self, model: torch.nn.Module) -> None:
        self._modules.note_parameter_owners(model)

    def owner_of(self, parameter: torch.Tensor) -> str:
        return self._modules.owners.get(id(parameter), "")

    def own(self, tensors: Any, path: str) -> None:
        for number in self._operands.storages(tensors_in(tensors)):
            self._owners[number] = path

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
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
        operator = operator_of(func)
        if operator.is_composite and torch.is_inference_mode_enabled():
            # Outside of inference mode it is decomposed before.
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        if operator.is_bookkeeping:
            return self._tensors.call(func, args, kwargs or {})
        if not self._is_paused:
            self.note_dropped()
            is_gradient = self._phase == "backward" and not self._modules.is_module_running
            self._operands.new_role = Role.GRADIENT if is_gradient else Role.ACTIVATION
        operands = tuple(map(self._tensors.replace_in, args))
        named: dict[str, Any] = {}
        if kwargs:
            named = {name: self._tensors.replace_in(value) for name, value in kwargs.items()}
        if self._is_paused:
            return self._tensors.call(func, operands, named)
        given = dict(zip(operator.arguments, operands, strict=False)) | named
        _check_dtypes(operator, given)
        result = self._tensors.call(func, operands, named)
        self._record(operator, given, result)
        if self._on_call is not None:
            # Only now: calls that raised are not recorded.
            self._on_call(func, operands, named, self._tensors.roles)
        return result

    def note_dropped(self) -> None:
        """Add the record of the last operator, with the storages released since."""
        if self._last is not None:
            self.records.append(OperatorRecord(**self._last, freed=self._operands.dropped()))
            self._last = None

    def _path(self, operands: Sequence[TensorSpec]) -> str:
        """Return the module path of an operator."""
        if self._phase == "forward" or self._modules.is_module_running:
            return self._modules.path
        if self._phase == "backward":
            return self._modules.path_of_node()
        owners = {self._owners[each.storage] for each in operands if each.storage in self._owners}
        if owners:
            # An update of several parameters at a time belongs to none of their modules.
            self._owner = owners.pop() if len(owners) == 1 else ""
        return self._owner

    def _record(self, operator: Operator, given: Mapping[str, Any], result: Any) -> None:
        arguments, attributes = dict(operator.defaults), dict[str, Any]()
        read: list[Operand] = []
        written: list[Operand] = []
        for name, value in given.items():
            if name in operator.holders:
                found: list[Operand] = []
                arguments[name] = self._as_specs(value, found)
                if name not in operator.written_only:
                    read += found
                if found:
                    if operator.writes(name, given):
                        written += found
                    continue
            else:
                arguments[name] = value
            if value is not None:
                attributes[name] = _plain(value)
        results: list[Operand] = []
        output = self._as_specs(result, results)
        inputs, outputs = distinct_specs(read), distinct_specs([*results, *written])
        state, kind, key = State.UNKNOWN, "unknown", ""
        work = _NO_WORK
        formula = formulas.find(operator.name, operator.overload)
        if (
            not (inputs or outputs)
            or _is_free(operator, read, results)
            # Python calls it at the end of every ``x[i] *= 2``, without anything to copy.
            or (operator.name == "aten.copy_" and is_same_view(given["self"], given["src"]))
            or (
                (formula is None or operator.is_composite)
                and _is_about_shapes(operator, given, result)
            )
        ):
            state, kind = State.FREE, "free"
        else:
            counts = _UNKNOWN
            if formula is not None:
                count = formula.count({**arguments, "output": output})
                kind, key = count.type or formula.type, formula.key
                if operator.name in _OF_PADDED:
                    operands = {**arguments, "output": output}
                    count = self._without_padding(operator, formula, count, operands)
                if count.elements or count.min_elements:
                    inputs = tuple(_as_touched(spec, count, arguments) for spec in inputs)
                    has_output = "output" in {*count.elements, *count.min_elements}
                    outputs = tuple(
                        _as_touched(spec, count, {"output": output} if has_output else arguments)
                        for spec in outputs
                    )
                # Most formulas count operations on real numbers; complex ones take more.
                if (
                    not count.flop
                    or formula.is_for_complex
                    or all(spec.dtype.kind != "complex" for spec in (*inputs, *outputs))
                ):
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
            "attributes": attributes,
            "state": state,
            "work": work,
            "formula": key,
        }

    def _without_padding(
        self, operator: Operator, formula: Formula, count: Flop, operands: Mapping[str, Any]
    ) -> Flop:
        """Return `count` with the minimum of a batch in which all but one token is padding.

        The amount of padding depends on values.
        """
        output = operands["output"]
        if operator.name == _WITHOUT_PADDING:
            dropped = ["t"]
        else:
            dropped = [
                name
                for name, each in operands.items()
                if isinstance(each, TensorSpec) and each.storage in self._unpadded
            ]
        if not dropped:
            return count
        if operator.name != _WITH_PADDING:
            self._unpadded.add(output.storage)
            dropped.append("output")
        # The first token of (samples, tokens, features).
        tokens: dict[str, TensorSpec] = {}
        for name in dropped:
            features = operands[name].shape[-1]
            tokens[name] = replace(
                operands[name], shape=(1, 1, features), distinct_elements=features
            )
        least = formula.count({**operands, **tokens})
        return replace(
            count,
            least=least.min_flop,
            min_macs=least.min_macs,
            min_elements={name: each.elements for name, each in tokens.items()},
        )

    def _as_specs(self, value: Any, found: list[Operand]) -> Any:
        """Return `value` with specs for its tensors, and add the operands to `found`."""
        kind = type(value)
        if kind is FakeTensor or isinstance(value, torch.Tensor):
            operand = self._operands.operand(value)
            found.append(operand)
            return operand.spec
        if kind is list or kind is tuple or isinstance(value, (list, tuple)):
            return [self._as_specs(item, found) for item in value]
        parts = unpack(value) if kind is torch.ScriptObject else None
        if parts is None:
            return value
        for each in parts:
            if each is not None:
                self._tensors.roles.setdefault(each.untyped_storage()._cdata, Role.PARAMETER)
        return [self._as_specs(each, found) for each in parts]


def _is_free(operator: Operator, read: Sequence[Operand], results: Sequence[Operand]) -> bool:
    """Return whether a call only allocates, changes metadata, or returns views of its inputs."""
    if operator.moves_nothing or operator.written or not results:
        return operator.moves_nothing
    known = {each.spec.storage for each in read}
    return all(each.spec.storage in known for each in results)


def _is_about_shapes(operator: Operator, given: Mapping[str, Any], result: Any) -> bool:
    """Return whether a call only computes shapes, on tensors without memory.

    Forward-mode differentiation moves zeros to the meta device, where decomposed operators give
    the shape of the result.
    """
    if not isinstance(result, torch.Tensor) or not result.is_meta:
        return False
    tensors = tensors_in(dict(given))
    return operator.name.startswith("prims.") or any(not each.is_meta for each in tensors)


def _as_touched(spec: TensorSpec, count: Flop, arguments: Mapping[str, Any]) -> TensorSpec:
    """Return the operand with the number of elements that its formula touches.

    For an operand that is several arguments, the largest number counts.
    """
    distinct, least = [], []
    for name, operand in arguments.items():
        # Operands may begin at the same byte and cover different parts of a storage.
        if operand == spec or (isinstance(operand, list) and spec in operand):
            touched = min(spec.distinct_elements, count.elements.get(name, spec.distinct_elements))
            distinct.append(touched)
            least.append(min(touched, count.min_elements.get(name, touched)))
    if not distinct:
        return spec
    return replace(
        spec,
        distinct_elements=max(distinct),
        min_elements=max(least) if max(least) < max(distinct) else None,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [item if type(item) is int else _plain(item) for item in value]
    is_finite = isinstance(value, (bool, int, str)) or (
        isinstance(value, float) and math.isfinite(value)
    )
    return value if is_finite else str(value)
