"""Calls of operators that can be repeated without their model, on generated tensors."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from roofline.latency.measuring.rounds import SHORTEST_S, Clock
from roofline.workload.capture.operands import tensors_in
from roofline.workload.capture.recorder import OnCall
from roofline.workload.tensors import Role

KEY_VERSION = 1
"""Version of keys; grows when a key would stand for other work, or for another measurement."""

_ALIGNMENT_BYTE = 64
"""Alignment of torch's allocator; offsets in a storage count modulo it."""

_OPAQUE = {
    **dict.fromkeys(
        ("aten._nested_tensor_from_mask", "aten.to_padded_tensor"), "nested tensors have no shape"
    ),
    "aten.mkldnn_rnn_layer_backward": "it reads memory in a format of oneDNN",
}
"""Operators that fail on generated tensors."""

_MAX_KEY_LENGTH = 600
"""Length of keys (an optimizer's would be pages), of which longer ones end with a digest."""


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor among the arguments of a call.

    ``storage`` numbers the storages of the call by first appearance; ``offset_bytes`` is the offset
    in it. ``is_kept``: it persists between passes (weights, inputs), so it is cold; others were
    just computed.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    storage: int
    offset_bytes: int
    is_kept: bool

    @property
    def end_byte(self) -> int:
        """Offset in its storage behind the last element, in bytes."""
        if 0 in self.shape:
            return self.offset_bytes
        reach = 1 + sum(
            (size - 1) * step for size, step in zip(self.shape, self.stride, strict=True)
        )
        return self.offset_bytes + reach * self.dtype.itemsize

    def __str__(self) -> str:
        role = "kept" if self.is_kept else "made"
        place = f"#{self.storage}" + (f"+{self.offset_bytes}" if self.offset_bytes else "")
        return f"{role}:{_name(self.dtype)}{_plain(self.shape)}/{_plain(self.stride)}{place}"


Argument = TensorArgument | tuple["Argument", ...] | object
"""Description of a tensor, a list of arguments, or a plain value."""


@dataclass(frozen=True, slots=True)
class ArgumentStorage:
    """Memory of arguments of a call: its bytes, and the data type of the first of them."""

    byte: int
    dtype: torch.dtype
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of an operator, without its tensors.

    ``op`` is the name (``"aten.add"``), ``overload`` the overload (``"Tensor"``). ``problem`` is
    the reason why it cannot be repeated (packed weights, say), ``""`` if it can.
    """

    op: str
    overload: str
    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()
    problem: str = ""

    def key(self, threads: int) -> str:
        """Return a text that is the same for the same work and threads in any model."""
        args = ", ".join(map(_text, self.args))
        named = "".join(f", {name}={_text(value)}" for name, value in sorted(self.kwargs))
        text = f"{KEY_VERSION} {self.op}.{self.overload} threads={threads} ({args}{named})"
        if len(text) <= _MAX_KEY_LENGTH:
            return text
        return f"{text[:_MAX_KEY_LENGTH]} {hashlib.sha256(text.encode()).hexdigest()}"

    @property
    def function(self) -> Any:
        """Overload in `torch.ops`."""
        space, _, name = self.op.partition(".")
        return getattr(getattr(getattr(torch.ops, space), name), self.overload)

    @property
    def storages(self) -> tuple[ArgumentStorage, ...]:
        """Memory of the arguments, by number."""
        found: list[ArgumentStorage] = []
        # Numbers are in order of appearance, so a new number is always the next.
        for need in _needs((*self.args, *(value for _, value in self.kwargs))):
            if need.storage == len(found):
                found.append(ArgumentStorage(need.end_byte, need.dtype, need.is_kept))
            known = found[need.storage]
            byte = max(known.byte, need.end_byte)
            found[need.storage] = ArgumentStorage(byte, known.dtype, known.is_kept)
        return tuple(found)


def describe_call(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], roles: Mapping[int, Role]
) -> Call:
    """Return the description of a call."""
    op, overload = f"{func.namespace}.{func._opname}", func._overloadname
    numbers: dict[int, int] = {}
    # Offsets are relative to the first tensor in a storage.
    starts_byte: dict[int, int] = {}

    def need(tensor: torch.Tensor) -> TensorArgument:
        address = tensor.untyped_storage()._cdata
        start_byte = starts_byte[address] // _ALIGNMENT_BYTE * _ALIGNMENT_BYTE
        return TensorArgument(
            shape=tuple(map(int, tensor.shape)),
            stride=tuple(map(int, tensor.stride())),
            dtype=tensor.dtype,
            storage=numbers.setdefault(address, len(numbers)),
            offset_bytes=_offset_bytes(tensor) - start_byte,
            is_kept=roles.get(address, Role.ACTIVATION).persists,
        )

    def described(value: Any) -> Argument:
        if isinstance(value, torch.Tensor):
            return need(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(described, value))
        if isinstance(value, torch.device) and value.type != "cpu":
            raise _CannotDescribe(f"it runs on {value.type}")
        if value is None or isinstance(value, _SIMPLE):
            return value
        if isinstance(value, torch.Generator):
            raise _CannotDescribe("it takes a random number generator")
        is_packed = isinstance(value, torch.ScriptObject)
        raise _CannotDescribe(f"it takes {'packed weights' if is_packed else type(value).__name__}")

    try:
        if op in _OPAQUE:
            raise _CannotDescribe(_OPAQUE[op])
        for each in tensors_in((*args, *kwargs.values())):
            if each.layout is not torch.strided:
                raise _CannotDescribe("it takes a sparse tensor")
            if each.is_quantized:
                raise _CannotDescribe("it takes a quantized tensor")
            if each.device.type != "cpu":
                raise _CannotDescribe(f"it runs on {each.device.type}")
            address, offset_bytes = each.untyped_storage()._cdata, _offset_bytes(each)
            starts_byte[address] = min(starts_byte.get(address, offset_bytes), offset_bytes)
        return Call(
            op=op,
            overload=overload,
            args=tuple(map(described, args)),
            kwargs=tuple((name, described(value)) for name, value in kwargs.items()),
        )
    except _CannotDescribe as problem:
        return Call(op=op, overload=overload, problem=str(problem))


class _CannotDescribe(Exception):
    """Reason why an argument cannot be generated."""


_SIMPLE = (
    *(bool, int, float, complex, str, torch.dtype),
    *(torch.device, torch.layout, torch.memory_format),
)


def _offset_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


class CallLog:
    """Calls of a captured pass, one for each record: ``capture(..., on_call=log.begin)``."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def begin(self) -> OnCall:
        """Return a function that logs the calls of a new pass."""
        calls = self.calls = list[Call]()

        def note(
            func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], roles: Mapping[int, Role]
        ) -> None:
            calls.append(describe_call(func, args, kwargs, roles))

        return note


def _needs(values: Iterable[Any]) -> Iterator[TensorArgument]:
    for value in values:
        if isinstance(value, TensorArgument):
            yield value
        elif isinstance(value, tuple):
            yield from _needs(value)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (TensorArgument, torch.dtype)):
        return _name(value)
    return repr(value)


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _plain(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


_MAX_COPIES = 64
_MAX_COPY_BYTES = 2**30

_ROUND_BYTE = 64
"""Sizes of storages are multiples of it, so that they contain whole elements of any type."""

_PATTERN_ELEMENTS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """Number of copies of kept memory, and sweeping of other memory after each rotation; ``byte``
    is the size of all arguments."""

    copies: int
    is_swept: bool
    byte: int


def plan_copies(storages: Sequence[ArgumentStorage], *, cycle_bytes: int, turns: int) -> CopyPlan:
    """Return the number of copies that are cold after a rotation, with a sweep if necessary."""
    kept_bytes = sum(each.byte for each in storages if each.is_kept)
    made_bytes = sum(each.byte for each in storages if not each.is_kept)
    copies = 1
    if kept_bytes:
        # No more than are used.
        most = min(_MAX_COPIES, turns, _MAX_COPY_BYTES // kept_bytes)
        copies = max(1, min(math.ceil(cycle_bytes / kept_bytes), most))
    return CopyPlan(
        copies=copies,
        is_swept=0 < copies * kept_bytes < cycle_bytes,
        # Computed arguments have a source to copy from.
        byte=copies * kept_bytes + 2 * made_bytes,
    )


class RotatedCall:
    """A repeated call with real arguments, whose copies rotate; ``seconds`` has its times."""

    def __init__(
        self, call: Call, plan: CopyPlan, *, sweep: Callable[[], None] | None, clock: Clock
    ) -> None:
        self.seconds: list[float] = []
        self._function = call.function
        self._clock = clock
        self._sweep = sweep
        self._turn = 0
        self._result: Any = None
        needs = call.storages
        made = {number: _memory(need) for number, need in enumerate(needs) if not need.is_kept}
        # The first argument is written last, so that it is the warmest.
        self._written = [(each, each.clone()) for _, each in sorted(made.items(), reverse=True)]
        self._copies: list[tuple[list[Any], dict[str, Any]]] = []
        for _ in range(plan.copies):
            kept = {number: _memory(need) for number, need in enumerate(needs) if need.is_kept}
            memory = made | kept
            args = [_real(value, memory) for value in call.args]
            self._copies.append((args, {name: _real(value, memory) for name, value in call.kwargs}))
        self._args, self._kwargs = self._copies[0]

    def prepare(self) -> None:
        """Release the result, rotate the copies, and write computed arguments again."""
        self._result = None
        copy = self._turn % len(self._copies)
        self._turn += 1
        self._args, self._kwargs = self._copies[copy]
        if copy == 0 and self._sweep is not None:
            self._sweep()
        for memory, source in self._written:
            memory.copy_(source)

    def call(self) -> None:
        """Call the operator, with nothing else between the readings of the clock."""
        function, args, kwargs, clock = self._function, self._args, self._kwargs, self._clock
        start_s = clock()
        result = function(*args, **kwargs)
        end_s = clock()
        self.seconds.append(max(end_s - start_s, SHORTEST_S))
        self._result = result


def _real(value: Argument, memory: Mapping[int, torch.Tensor]) -> Any:
    """Return an argument with tensors in place of their descriptions."""
    if isinstance(value, TensorArgument):
        offset = value.offset_bytes // value.dtype.itemsize
        tensor = torch.empty(0, dtype=value.dtype)
        storage = memory[value.storage].untyped_storage()
        return tensor.set_(storage, offset, value.shape, value.stride)
    if isinstance(value, tuple):
        return [_real(each, memory) for each in value]
    return value


def _memory(need: ArgumentStorage) -> torch.Tensor:
    """Return a storage with valid values: floats in (0, 1), zeros as indices, or True."""
    byte = math.ceil(need.byte / _ROUND_BYTE) * _ROUND_BYTE
    memory = torch.empty(byte, dtype=torch.uint8)
    if need.dtype == torch.bool:
        return memory.fill_(1)
    if not (need.dtype.is_floating_point or need.dtype.is_complex):
        return memory.zero_()
    pattern = _pattern(need.dtype)
    elements = memory.view(need.dtype)
    whole = len(elements) // len(pattern) * len(pattern)
    elements[:whole].view(-1, len(pattern)).copy_(pattern)
    elements[whole:].copy_(pattern[: len(elements) - whole])
    return memory


@functools.cache
def _pattern(dtype: torch.dtype) -> torch.Tensor:
    """Return noise of medium size, the same in every process."""
    noise = torch.rand(_PATTERN_ELEMENTS, generator=torch.Generator().manual_seed(0))
    # Away from 0: denormal numbers take some CPUs 100× as long.
    return noise.mul_(0.75).add_(0.125).to(dtype)
