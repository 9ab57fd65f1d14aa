"""Calls of operators, described so that they can be made again without the model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

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
        """The overload itself.

        Raises:
            AttributeError: torch does not know it (any more).
        """
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
    """What `func` is called with.

    Args:
        func: the overload.
        args: its arguments by position, real tensors or fakes among them.
        kwargs: those by name.
        roles: the roles of storages that are no activations, by address.
    """
    op, overload = f"{func.namespace}.{func._opname}", func._overloadname
    if op in _OPAQUE:
        return Call(op=op, overload=overload, problem=_OPAQUE[op])
    try:
        describing = _Describing(roles, _tensors((*args, *kwargs.values())))
        return Call(
            op=op,
            overload=overload,
            args=tuple(map(describing.argument, args)),
            kwargs=tuple((name, describing.argument(value)) for name, value in kwargs.items()),
        )
    except _CannotDescribe as problem:
        return Call(op=op, overload=overload, problem=str(problem))


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


class _CannotDescribe(Exception):
    """Says what an argument is that cannot be made again."""


class _Describing:
    """Describes the arguments of one call."""

    def __init__(self, roles: Mapping[int, Role], tensors: Iterable[torch.Tensor]) -> None:
        self._roles = roles
        self._numbers: dict[int, int] = {}
        # A part of a storage begins where the part begins: which of many it is does not matter.
        self._starts_byte: dict[int, int] = {}
        for each in tensors:
            _check(each)
            address = each.untyped_storage()._cdata
            start_byte = min(
                self._starts_byte.get(address, _offset_bytes(each)), _offset_bytes(each)
            )
            self._starts_byte[address] = start_byte

    def argument(self, value: Any) -> Argument:
        """`value` with a description in the place of every tensor."""
        if isinstance(value, torch.Tensor):
            return self._need(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self.argument, value))
        if isinstance(value, torch.device) and value.type != "cpu":
            raise _CannotDescribe(f"it runs on {value.type}")
        if value is None or isinstance(value, _SIMPLE):
            return value
        raise _CannotDescribe(f"it takes {_in_words(value)}")

    def _need(self, tensor: torch.Tensor) -> TensorNeed:
        address = tensor.untyped_storage()._cdata
        number = self._numbers.setdefault(address, len(self._numbers))
        start_byte = self._starts_byte[address] // _ALIGNMENT_BYTE * _ALIGNMENT_BYTE
        return TensorNeed(
            shape=tuple(map(int, tensor.shape)),
            stride=tuple(map(int, tensor.stride())),
            dtype=tensor.dtype,
            storage=number,
            offset_bytes=_offset_bytes(tensor) - start_byte,
            is_kept=self._roles.get(address, Role.ACTIVATION).persists,
        )


_SIMPLE = (
    *(bool, int, float, complex, str, torch.dtype),
    *(torch.device, torch.layout, torch.memory_format),
)


def _check(tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided:
        raise _CannotDescribe("it takes a sparse tensor")
    if tensor.is_quantized:
        raise _CannotDescribe("it takes a quantised tensor")
    if tensor.device.type != "cpu":
        raise _CannotDescribe(f"it runs on {tensor.device.type}")


def _offset_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.element_size()


def _in_words(value: Any) -> str:
    if isinstance(value, torch.Generator):
        return "a random number generator of its own"
    return "packed weights" if isinstance(value, torch.ScriptObject) else type(value).__name__


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


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
