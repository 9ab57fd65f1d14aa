"""Calls of operators that are made again without their model, with tensors of their own."""

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
"""What a key means; grows when the same key would stand for other work, or for another way of
timing it."""

_ALIGNMENT_BYTE = 64
"""Of what torch's allocator gives; a tensor's place in its storage counts within that."""

_OPAQUE = {
    **dict.fromkeys(
        ("aten._nested_tensor_from_mask", "aten.to_padded_tensor"),
        "what it makes or takes has no padding, and so no shape",
    ),
    "aten.mkldnn_rnn_layer_backward": "it reads what oneDNN left in memory of its own format",
}
"""Operators that fail on tensors that are like those of a pass and were not made by it."""

_LONGEST_KEY = 600
"""Lists of an optimizer make keys of many pages, of which this much and a digest are left."""


@dataclass(frozen=True, slots=True)
class TensorNeed:
    """A tensor among the arguments of a call.

    ``storage`` numbers the storages of the call by first appearance: two with the same number share
    memory, and ``offset_bytes`` is where in it this one begins. ``is_kept`` says that it lives from
    pass to pass (weights, inputs), so that much else was touched since; others were just computed.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    storage: int
    offset_bytes: int
    is_kept: bool

    @property
    def end_byte(self) -> int:
        """Where in its storage its last element ends."""
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


Argument = TensorNeed | tuple["Argument", ...] | object
"""A tensor's description, a list of arguments, or a number, a name, a type or None as it is."""


@dataclass(frozen=True, slots=True)
class StorageNeed:
    """Memory that arguments of a call lie in: its bytes, and the type of the first of them."""

    byte: int
    dtype: torch.dtype
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operator, without its tensors.

    ``op`` is the name (``"aten.add"``), ``overload`` which of its forms (``"Tensor"``). ``problem``
    says why it cannot be made again (it takes packed weights, say); ``""``: it can.
    """

    op: str
    overload: str
    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()
    problem: str = ""

    def key(self, threads: int) -> str:
        """The same text for the same work with as many threads, in any model and process."""
        args = ", ".join(map(_text, self.args))
        named = "".join(f", {name}={_text(value)}" for name, value in sorted(self.kwargs))
        text = f"{KEY_VERSION} {self.op}.{self.overload} threads={threads} ({args}{named})"
        if len(text) <= _LONGEST_KEY:
            return text
        return f"{text[:_LONGEST_KEY]} {hashlib.sha256(text.encode()).hexdigest()}"

    @property
    def function(self) -> Any:
        """The overload itself."""
        space, _, name = self.op.partition(".")
        return getattr(getattr(getattr(torch.ops, space), name), self.overload)

    @property
    def storages(self) -> tuple[StorageNeed, ...]:
        """The memory that its arguments lie in, by number."""
        found: list[StorageNeed] = []
        # By first appearance, so a new number is always the next.
        for need in _needs((*self.args, *(value for _, value in self.kwargs))):
            if need.storage == len(found):
                found.append(StorageNeed(need.end_byte, need.dtype, need.is_kept))
            known = found[need.storage]
            byte = max(known.byte, need.end_byte)
            found[need.storage] = StorageNeed(byte, known.dtype, known.is_kept)
        return tuple(found)


def call_of(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], roles: Mapping[int, Role]
) -> Call:
    """What `func` is called with."""
    op, overload = f"{func.namespace}.{func._opname}", func._overloadname
    numbers: dict[int, int] = {}
    # A part of a storage begins where the part begins: which of many it is does not matter.
    starts_byte: dict[int, int] = {}

    def need(tensor: torch.Tensor) -> TensorNeed:
        address = tensor.untyped_storage()._cdata
        start_byte = starts_byte[address] // _ALIGNMENT_BYTE * _ALIGNMENT_BYTE
        return TensorNeed(
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
            raise _CannotDescribe("it takes a random number generator of its own")
        is_packed = isinstance(value, torch.ScriptObject)
        raise _CannotDescribe(f"it takes {'packed weights' if is_packed else type(value).__name__}")

    try:
        if op in _OPAQUE:
            raise _CannotDescribe(_OPAQUE[op])
        for each in tensors_in((*args, *kwargs.values())):
            if each.layout is not torch.strided:
                raise _CannotDescribe("it takes a sparse tensor")
            if each.is_quantized:
                raise _CannotDescribe("it takes a quantised tensor")
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
    """Says what an argument is that cannot be made again."""


_SIMPLE = (
    *(bool, int, float, complex, str, torch.dtype),
    *(torch.device, torch.layout, torch.memory_format),
)


def _offset_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


class CallLog:
    """The calls of a captured pass, one for each record: ``capture(..., on_call=log.begin)``."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def begin(self) -> OnCall:
        """What is told of the calls of a pass; those of an earlier one are forgotten."""
        calls = self.calls = list[Call]()

        def note(
            func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], roles: Mapping[int, Role]
        ) -> None:
            calls.append(call_of(func, args, kwargs, roles))

        return note


def _needs(values: Iterable[Any]) -> Iterator[TensorNeed]:
    for value in values:
        if isinstance(value, TensorNeed):
            yield value
        elif isinstance(value, tuple):
            yield from _needs(value)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (TensorNeed, torch.dtype)):
        return _name(value)
    return repr(value)


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _plain(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


_MOST_COPIES = 64
_MOST_COPY_BYTE = 2**30

_ROUND_BYTE = 64
"""Storages are as long as a multiple of it, so that any type fits in a whole number of times."""

_PATTERN_ELEMENTS = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many copies there are of what is kept, and whether other memory is swept in addition,
    each time that they all had their turn; ``byte`` is what all arguments take."""

    copies: int
    is_swept: bool
    byte: int


def plan_for(storages: Sequence[StorageNeed], *, cycle_bytes: int, turns: int) -> Plan:
    """As many copies as are cold when their turn comes again, or that and other memory."""
    kept_bytes = sum(each.byte for each in storages if each.is_kept)
    made_bytes = sum(each.byte for each in storages if not each.is_kept)
    copies = 1
    if kept_bytes:
        # No more than have a turn.
        most = min(_MOST_COPIES, turns, _MOST_COPY_BYTE // kept_bytes)
        copies = max(1, min(math.ceil(cycle_bytes / kept_bytes), most))
    return Plan(
        copies=copies,
        is_swept=0 < copies * kept_bytes < cycle_bytes,
        # What is made is there twice.
        byte=copies * kept_bytes + 2 * made_bytes,
    )


class Turns:
    """A call with real arguments, made again and again; ``seconds`` are those of each."""

    def __init__(
        self, call: Call, plan: Plan, *, sweep: Callable[[], None] | None, clock: Clock
    ) -> None:
        self.seconds: list[float] = []
        self._function = call.function
        self._clock = clock
        self._sweep = sweep
        self._turn = 0
        self._result: Any = None
        needs = call.storages
        made = {number: _memory(need) for number, need in enumerate(needs) if not need.is_kept}
        # The first argument last, so that it is the warmest: it is what was computed last.
        self._written = [(each, each.clone()) for _, each in sorted(made.items(), reverse=True)]
        self._copies: list[tuple[list[Any], dict[str, Any]]] = []
        for _ in range(plan.copies):
            kept = {number: _memory(need) for number, need in enumerate(needs) if need.is_kept}
            memory = made | kept
            args = [_real(value, memory) for value in call.args]
            self._copies.append((args, {name: _real(value, memory) for name, value in call.kwargs}))
        self._args, self._kwargs = self._copies[0]

    def prepare(self) -> None:
        """What comes before a call: memory is released, other copies have their turn, and the
        operator before writes what it computes."""
        self._result = None
        copy = self._turn % len(self._copies)
        self._turn += 1
        self._args, self._kwargs = self._copies[copy]
        if copy == 0 and self._sweep is not None:
            self._sweep()
        for memory, source in self._written:
            memory.copy_(source)

    def call(self) -> None:
        """The call, with nothing else between the readings of the clock: small operators take a few
        microseconds."""
        function, args, kwargs, clock = self._function, self._args, self._kwargs, self._clock
        start_s = clock()
        result = function(*args, **kwargs)
        end_s = clock()
        self.seconds.append(max(end_s - start_s, SHORTEST_S))
        self._result = result


def _real(value: Argument, memory: Mapping[int, torch.Tensor]) -> Any:
    """An argument with tensors in the place of their descriptions."""
    if isinstance(value, TensorNeed):
        offset = value.offset_bytes // value.dtype.itemsize
        tensor = torch.empty(0, dtype=value.dtype)
        storage = memory[value.storage].untyped_storage()
        return tensor.set_(storage, offset, value.shape, value.stride)
    if isinstance(value, tuple):
        return [_real(each, memory) for each in value]
    return value


def _memory(need: StorageNeed) -> torch.Tensor:
    """Bytes for a storage, with what operators can compute with as they can with a model's own:
    numbers in (0, 1), which have a root and are probabilities; zeros, which are indices; truths."""
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
    """Noise, neither small nor large; the same in every process."""
    noise = torch.rand(_PATTERN_ELEMENTS, generator=torch.Generator().manual_seed(0))
    # Away from 0, whose neighbours take some CPUs a hundred times as long.
    return noise.mul_(0.75).add_(0.125).to(dtype)
