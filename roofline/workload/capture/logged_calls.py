"""Records of operator calls that a profiler logged: names, shapes, types and values as text."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)

from roofline.errors import error_text
from roofline.run import Run
from roofline.workload import formulas
from roofline.workload.capture.fake_tensors import FakeTensors, silence_fake_tensor_log
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import Operands
from roofline.workload.capture.recorder import Recorder, operator_of
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role

_TYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "long int": torch.int64,
    "long": torch.int64,
    "int": torch.int32,
    "short int": torch.int16,
    "short": torch.int16,
    "signed char": torch.int8,
    "unsigned char": torch.uint8,
    "bool": torch.bool,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "complex<float>": torch.complex64,
    "complex<double>": torch.complex128,
    "Float8_e4m3fn": torch.float8_e4m3fn,
    "Float8_e5m2": torch.float8_e5m2,
    "Float8_e4m3fnuz": torch.float8_e4m3fnuz,
    "Float8_e5m2fnuz": torch.float8_e5m2fnuz,
}
"""Types as profilers write them, without ``c10::``."""

_CODES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16),
    *(torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128),
    *(torch.bool, torch.qint8, torch.quint8, torch.qint32, torch.bfloat16),
)
"""Types by the numbers that torch has for them."""

_LAYOUTS = (torch.strided,)
_FORMATS = (
    *(torch.contiguous_format, torch.preserve_format),
    *(torch.channels_last, torch.channels_last_3d),
)


class _NotLoggedError(Exception):
    """An argument that the call needs was not logged."""


def overloads_of(name: str) -> tuple[Any, ...]:
    """Return the overloads of an operator such as ``"aten::mm"`` that do not come apart.

    There are none of an operator that torch does not have.
    """
    namespace, _, operator = name.partition("::")
    found: list[Any] = []
    try:
        packet = getattr(getattr(torch.ops, namespace), operator)
        for each in packet.overloads():
            func = getattr(packet, each)
            is_out = any(argument.is_out for argument in func._schema.arguments)
            # Forms of TorchScript alone have no kernels.
            if torch._C._dispatch_has_kernel(func.name()) and not operator_of(func).is_composite:
                found.append((is_out, func))
    except (AttributeError, RuntimeError, TypeError):
        pass
    # Forms that write into given tensors are not composite, though the others are.
    if all(is_out for is_out, _ in found):
        return ()
    return tuple(func for _, func in sorted(found, key=lambda each: each[0]))


def is_counted(name: str) -> bool:
    """Return whether calls of an operator have records of their own.

    Operators that come apart into others, and those without a formula, have none.
    """
    return any(
        formulas.find((operator := operator_of(each)).name, operator.overload) is not None
        for each in overloads_of(name)
    )


def is_opaque(name: str) -> bool:
    """Return whether an operator computes without coming apart into others that torch has."""
    namespace, _, operator = name.partition("::")
    if not (namespace.isidentifier() and operator.isidentifier()):
        return False
    overloads = overloads_of(name)
    is_known = hasattr(getattr(torch.ops, namespace), operator)
    return not is_known or any(not operator_of(each).is_bookkeeping for each in overloads)


class LoggedCalls:
    """Counts calls as a profiler logged them, by calling their operators on fake tensors."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._fakes = FakeTensors(run)
        self._mode: Any = self._fakes.mode
        self._device = torch.device(run.device, 0) if run.device == "cuda" else torch.device("cpu")

    def record(
        self,
        name: str,
        *,
        dims: Sequence[Any],
        types: Sequence[str],
        strides: Sequence[Any],
        values: Sequence[str],
        list_dtype: str = "",
    ) -> OperatorRecord | str:
        """Return the record of a call, or why there is none.

        Args:
            name: as ``"aten::addmm"``.
            dims: shape of each argument, a list of shapes for lists of tensors.
            types: type of each argument, ``""`` where it is absent.
            strides: as `dims`; empty for contiguous tensors.
            values: arguments that are no tensors, as text.
            list_dtype: type of tensors in lists, which profilers leave out.
        """
        overloads = overloads_of(name)
        if not overloads:
            return f"this torch has no {name.replace('::', '.')}"
        if not types:
            return "types of its arguments were not logged"
        why = ""
        # Addresses of storages that are gone may be used again.
        self._fakes.roles.clear()
        for func in self._fitting(overloads, types):
            try:
                given = self._arguments(func, dims, types, strides, values, list_dtype)
                return self._called(func, given)
            except _NotLoggedError as error:
                why = why or str(error)
            except (DynamicOutputShapeException, DataDependentOutputException):
                why = why or "its output depends on values, which were not logged"
            # Arguments of a file may be anything, and so may the error of torch.
            except Exception as error:
                why = why or error_text(error)
        return why or "no overload takes such arguments"

    def _called(self, func: Any, given: dict[str, Any]) -> OperatorRecord:
        recorder = Recorder(self._fakes, ModuleStack({}), Operands(self._fakes.roles))
        with torch.no_grad(), silence_fake_tensor_log(), self._fakes.mode, recorder:
            positional = [
                given.pop(each.name) for each in func._schema.arguments if not each.kwarg_only
            ]
            # An output of another shape is resized with a warning.
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                func(*positional, **given)
        recorder.note_dropped()
        if len(recorder.records) != 1:
            raise _NotLoggedError("it comes apart into other operators")
        return recorder.records[0]

    @staticmethod
    def _fitting(overloads: Sequence[Any], types: Sequence[str]) -> Iterator[Any]:
        """Yield overloads whose arguments have the types that were logged, best first."""
        for func in overloads:
            arguments = func._schema.arguments
            if len(arguments) != len(types):
                continue
            if all(map(_fits, arguments, types)):
                yield func

    def _arguments(
        self,
        func: Any,
        dims: Sequence[Any],
        types: Sequence[str],
        strides: Sequence[Any],
        values: Sequence[str],
        list_dtype: str,
    ) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for place, argument in enumerate(func._schema.arguments):
            kind, logged = str(argument.real_type), types[place]
            text = values[place] if place < len(values) else None
            shape = dims[place] if place < len(dims) else []
            stride = strides[place] if place < len(strides) else []
            if "Tensor" not in kind:
                value = self._value(argument, kind, text)
            elif logged in ("TensorList", "GenericList") or "[]" in kind or kind.startswith("List"):
                dtype = _TYPES.get(list_dtype.removeprefix("c10::"))
                if dtype is None:
                    raise _NotLoggedError(f"types of the list '{argument.name}' were not logged")
                pairs = zip(shape, stride or [[]] * len(shape), strict=False)
                value = [self._tensor(one, other, dtype) for one, other in pairs]
            elif not logged:
                value = None
            else:
                dtype = _TYPES.get(logged.removeprefix("c10::"))
                if dtype is None:
                    raise _NotLoggedError(f"tensors of type '{logged}' are not known")
                value = self._tensor(shape, stride, dtype)
            given[argument.name] = value
        return given

    def _tensor(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Any:
        if not all(isinstance(each, int) and each >= 0 for each in (*shape, *stride)):
            raise _NotLoggedError(f"a tensor of shape {shape}")
        if len(stride) == len(shape) and shape:
            plain = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        else:
            plain = torch.empty(shape, dtype=dtype, device="meta")
        fake: Any = FakeTensor(self._mode, plain, self._device)
        self._fakes.roles[fake.untyped_storage()._cdata] = Role.INPUT
        return fake

    def _value(self, argument: Any, kind: str, text: str | None) -> Any:
        """Return an argument that is no tensor; None: older traces have no values at all."""
        if text == "":
            if argument.has_default_value():
                return argument.default_value
            if kind.startswith("Optional"):
                return None
        if not text:
            raise _NotLoggedError(f"the value of '{argument.name}' was not logged")
        if "Device" in kind:
            return self._device
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = text
        if isinstance(value, int) and not isinstance(value, bool):
            for part, known in (
                ("ScalarType", _CODES),
                ("Layout", _LAYOUTS),
                ("MemoryFormat", _FORMATS),
            ):
                if part in kind:
                    if not 0 <= value < len(known):
                        raise _NotLoggedError(f"{value} is no known {part} of '{argument.name}'")
                    return known[value]
        return value


def _fits(argument: Any, logged: str) -> bool:
    kind = str(argument.real_type)
    is_list = logged in ("TensorList", "GenericList", "GenericList[Tensor]")
    if "Tensor" in kind:
        if not logged:
            return kind.startswith("Optional") or argument.has_default_value()
        if "List" in kind:
            return is_list
        return not is_list and logged not in ("Scalar", "ScalarList")
    return logged in ("Scalar", "ScalarList", "") or (logged not in _TYPES and "::" not in logged)
