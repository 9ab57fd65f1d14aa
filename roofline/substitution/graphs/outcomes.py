"""Operators called on other tensors than a model's: what they give, and the records they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

from roofline.latency.measuring.calls import Call, call_of
from roofline.run import Run
from roofline.substitution.graphs.graph import Argument
from roofline.substitution.graphs.weights import TensorType
from roofline.workload.capture.fakes import Fakes, silent_torch
from roofline.workload.capture.module_stack import ModuleStack
from roofline.workload.capture.operands import Operands, tensors_in
from roofline.workload.capture.recorder import Recorder
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role
from roofline.workload.torch_dtypes import torch_dtype


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor that an operator is called with: its type, and where it lies.

    ``storage`` numbers the storages of the call by first appearance; ``role`` is the storage's.
    ``is_trained`` says of a parameter that it takes gradients.
    """

    type: TensorType
    storage: int
    offset_bytes: int
    role: Role
    is_trained: bool = True


@dataclass(frozen=True, slots=True)
class Nth:
    """Stands among arguments for the tensor of that number."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A tensor that an operator gives: its type, and the number of the storage that it lies in.

    Storages of the tensors that it was given come first; the others are its own.
    """

    type: TensorType
    storage: int
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a call of an operator gives, and what it leaves in a capture.

    ``storages`` is how many storages its tensors lie in; in records, they are numbered as in
    `Place`, and those that appear in between follow. ``calls`` are one for each record.
    """

    outputs: tuple[Output | None, ...]
    storages: int
    records: tuple[OperatorRecord, ...]
    calls: tuple[Call, ...]


def outcome_of(call: Callable[[Sequence[Any]], Any], places: tuple[Place, ...]) -> Outcome:
    """What `call` gives for tensors in these places, and the records that it leaves.

    Raises:
        Exception: whatever it raises.
    """
    fakes = Fakes(Run())
    calls: list[Call] = []

    def note(
        func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], roles: Mapping[int, Role]
    ) -> None:
        calls.append(call_of(func, args, kwargs, roles))

    with torch.no_grad(), silent_torch():
        tensors = _tensors(fakes, places)
        operands = Operands(fakes.roles)
        count = len(operands.storages(tensors))
        recorder = Recorder(fakes, ModuleStack({}), operands, note)
        with fakes.mode, recorder:
            result = call(tensors)
            recorder.note_dropped()
        given: Sequence[Any] = result if isinstance(result, (list, tuple)) else (result,)
        outputs = tuple(_output(each, operands) for each in given)
    return Outcome(
        outputs=outputs, storages=count, records=tuple(recorder.records), calls=tuple(calls)
    )


def with_tensors(argument: Argument, tensors: Sequence[Any]) -> Any:
    if isinstance(argument, Nth):
        return tensors[argument.number]
    if isinstance(argument, tuple):
        return [with_tensors(each, tensors) for each in cast("tuple[Argument, ...]", argument)]
    return argument


def end_byte(type: TensorType, offset_bytes: int = 0) -> int:
    """Where in its storage a tensor's last element ends."""
    if 0 in type.shape:
        return offset_bytes
    reach = sum((size - 1) * step for size, step in zip(type.shape, type.stride, strict=True))
    return offset_bytes + (1 + reach) * torch_dtype(type.dtype).itemsize


def _tensors(fakes: Fakes, places: tuple[Place, ...]) -> list[torch.Tensor]:
    """A tensor in each place."""
    ends: dict[int, int] = {}
    for each in places:
        ends[each.storage] = max(ends.get(each.storage, 0), end_byte(each.type, each.offset_bytes))
    bases = {
        number: torch.empty(byte, dtype=torch.uint8, device="meta") for number, byte in ends.items()
    }
    tensors: list[torch.Tensor] = []
    for each in places:
        dtype = torch_dtype(each.type.dtype)
        plain = torch.empty(0, dtype=dtype, device="meta")
        plain.set_(
            bases[each.storage].untyped_storage(),
            each.offset_bytes // dtype.itemsize,
            each.type.shape,
            each.type.stride,
        )
        fake: Any = FakeTensor(fakes.mode, plain, torch.device("cpu"))
        if each.role is Role.PARAMETER:
            fake._is_param = True
            fake.requires_grad = each.is_trained and dtype.is_floating_point
        if each.role is not Role.ACTIVATION:
            fakes.roles[fake.untyped_storage()._cdata] = each.role
        tensors.append(fake)
    return tensors


def _output(value: Any, operands: Operands) -> Output | None:
    if not isinstance(value, torch.Tensor):
        return None
    (number,) = operands.storages(tensors_in(value))
    return Output(
        type=TensorType(
            shape=tuple(map(int, value.shape)),
            stride=tuple(map(int, value.stride())),
            dtype=str(value.dtype).removeprefix("torch."),
        ),
        storage=number,
        offset_bytes=int(value.storage_offset()) * value.element_size(),
    )
