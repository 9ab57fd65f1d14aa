"""The tensors that operators are called with, as records have them."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from roofline.errors import ModelError
from roofline.workload.tensors import Layout, Role, TensorSpec
from roofline.workload.torch_dtypes import dtype_of

Parts = tuple[torch.Tensor | None, ...]

_unpacked: dict[int, tuple[torch.ScriptObject, Parts | None]] = {}


@contextlib.contextmanager
def cache_unpacked() -> Iterator[None]:
    """While this is open, an object that was unpacked gives the same tensors again."""
    try:
        yield
    finally:
        _unpacked.clear()


def unpack(value: Any) -> Parts | None:
    """The weights and biases in an object that packs them; None for any other.

    Of a linear layer its weight and its bias, or None; of a recurrent layer the weights of input
    and hidden state, then their biases.
    """
    if not isinstance(value, torch.ScriptObject):
        return None
    if id(value) not in _unpacked:
        with _disable_current_modes():
            parts = _parts(value)
            found = tuple(_as_kept(each, value) for each in parts) if parts is not None else None
        _unpacked[id(value)] = value, found
    return _unpacked[id(value)][1]


def _parts(packed: Any) -> tuple[Any, ...] | None:
    if hasattr(packed, "unpack"):
        parts = packed.unpack()
        # Of an embedding it is the table itself.
        return (parts,) if isinstance(parts, torch.Tensor) else tuple(parts)
    if "CellParams" not in str(packed._type()):
        return None
    # Its state: a kind, tensors, numbers, and for each weight an object that packs it.
    _kind, biases, *_, weights = packed.__getstate__()[0]
    return (*(_as_kept(each.unpack()[0], each) for each in weights), *biases)


def _as_kept(part: Any, packed: torch.ScriptObject) -> torch.Tensor | None:
    """The part in the type that it is kept in: float16 weights are unpacked as float32."""
    if not isinstance(part, torch.Tensor):
        return None
    is_half = part.dim() == 2 and part.dtype == torch.float32
    return part.half() if is_half and "LinearPackedParams" in str(packed._type()) else part


def packed_tensors(modules: Iterable[torch.nn.Module]) -> Iterator[torch.Tensor]:
    """The tensors that modules themselves keep packed."""
    for module in modules:
        for value in module.__dict__.values():
            if type(value) is torch.ScriptObject:
                yield from (each for each in unpack(value) or () if each is not None)


_PRODUCTS = frozenset(
    {
        torch.ops.quantized.linear_dynamic.default,
        torch.ops.quantized.linear_relu_dynamic.default,
        torch.ops.quantized.linear_dynamic_fp16.default,
    }
)
"""Operators without a kernel for fake tensors; what they return has the type of what they take."""


def packed_product_result(func: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
    """What `func` returns, without memory, if it is a product with packed weights; else None."""
    if func not in _PRODUCTS:
        return None
    weight = (unpack(args[1]) or (None,))[0]
    if weight is None:
        return None
    given = args[0]
    return given.new_empty((*given.shape[:-1], weight.shape[0]))


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
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from tensors_in(getattr(value, each.name, None))


@dataclass(slots=True, kw_only=True)
class StorageUse:
    """How much of a storage tensors take: each place once, and no more than there is."""

    whole_bytes: int
    element_bytes: int
    places: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])

    @property
    def used_bytes(self) -> int:
        """The bytes that are taken."""
        return min(sum(self.places.values()), self.whole_bytes)

    @property
    def elements(self) -> int:
        """The elements that are taken."""
        return self.used_bytes // self.element_bytes


def add_use(held: dict[int, StorageUse], tensor: torch.Tensor) -> None:
    """Adds a tensor to what is held, by the addresses of storages."""
    storage = tensor.untyped_storage()
    found = held.setdefault(
        storage._cdata,
        StorageUse(whole_bytes=storage.nbytes(), element_bytes=tensor.element_size()),
    )
    place = (tensor.storage_offset(), tensor.shape, tensor.stride())
    found.places[place] = tensor.nbytes


def storage_use(tensors: Iterable[torch.Tensor]) -> dict[int, StorageUse]:
    """What tensors hold of their storages, by address."""
    held: dict[int, StorageUse] = {}
    for each in tensors:
        add_use(held, each)
    return held


def is_same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same elements of one storage, in one order."""
    return (
        one.untyped_storage()._cdata == other.untyped_storage()._cdata
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.storage_offset() == other.storage_offset()
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
    )


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as records have it, and what tells whether another one is the same bytes."""

    spec: TensorSpec
    place: tuple[Any, ...]


class Operands:
    """Turns tensors into specs, numbers their storages by first appearance, and tells which ones
    the model has dropped.

    ``new_role``: storages that appear from now on, and have no role yet, get this one. ``roles``
    are those of every storage that is no activation, by address; it may grow.
    """

    def __init__(self, roles: Mapping[int, Role]) -> None:
        self.new_role = Role.ACTIVATION
        self._roles = roles
        self._numbers: dict[int, tuple[int, Role]] = {}
        # Weak references keep the addresses from being given to other storages, and thus unique.
        self._references: list[StorageWeakRef] = []
        # By number; torch keeps a storage's Python object for as long as the storage itself lives,
        # so that its end is told, and nobody need ask after every operator.
        self._watched: dict[int, weakref.ref[Any]] = {}
        self._gone: list[int] = []
        self._known: dict[tuple[Any, ...], Operand] = {}

    def _number(self, tensor: torch.Tensor) -> tuple[int, Role]:
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self._numbers.get(address)
        if known is None:
            role = self._roles.get(address, self.new_role)
            known = self._numbers[address] = len(self._numbers), role
            self._references.append(StorageWeakRef(storage))
            if not role.persists:
                number, gone = known[0], self._gone
                self._watched[number] = weakref.ref(storage, lambda _: gone.append(number))
        return known

    def storages(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Numbers of the storages that tensors lie in, empty ones too."""
        return frozenset(self._number(tensor)[0] for tensor in tensors)

    def alive(self) -> frozenset[int]:
        """Numbers of the activations and gradients that have not gone."""
        return frozenset(self._watched.keys() - self._gone)

    def dropped(self) -> tuple[int, ...]:
        """Numbers of the activations and gradients that have gone since the last call."""
        if not self._gone:
            return ()
        gone = tuple(sorted(self._gone))
        self._gone.clear()
        for number in gone:
            del self._watched[number]
        return gone

    def operand(self, tensor: torch.Tensor) -> Operand:
        """One tensor, be it empty; a sparse one is a ModelError."""
        if tensor.layout is not torch.strided:
            raise ModelError(
                "the model makes a sparse tensor, and those cannot be counted; use dense ones"
                " (sparse=False for the gradients of an embedding)"
            )
        number, role = self._number(tensor)
        shape, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        key = (number, shape, stride, offset, tensor.dtype)
        operand = self._known.get(key)
        if operand is None:
            shape = tuple(shape)
            spec = TensorSpec(
                shape=shape,
                dtype=dtype_of(tensor.dtype),
                distinct_elements=_distinct_elements(shape, stride),
                storage=number,
                offset_bytes=int(offset) * tensor.element_size(),
                layout=_layout(shape, stride),
                role=role,
            )
            place = (number, spec.offset_bytes, _elements_of_storage(shape, stride))
            operand = self._known[key] = Operand(spec, place)
        return operand


def distinct_specs(operands: Iterable[Operand]) -> tuple[TensorSpec, ...]:
    """Those that lie in different places, empty ones left out."""
    found: dict[tuple[Any, ...], TensorSpec] = {}
    for each in operands:
        if 0 not in each.spec.shape:
            found.setdefault(each.place, each.spec)
    return tuple(found.values())


@functools.lru_cache(maxsize=10_000)
def _layout(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """How the elements of a tensor lie in memory; where a size is 1, its stride says nothing."""
    dimensions = len(shape)
    orders: tuple[tuple[Layout, Sequence[int]], ...] = (("contiguous", range(dimensions)),)
    if dimensions in (4, 5):
        orders = (*orders, ("channels-last", (0, *range(2, dimensions), 1)))
    for name, order in orders:
        step = 1
        for each in reversed(order):
            if shape[each] == 1:
                continue
            if strides[each] != step:
                break
            step *= shape[each]
        else:
            return name
    return "strided"


@functools.lru_cache(maxsize=10_000)
def _elements_of_storage(
    shape: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, int], ...]:
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


_MAX_COUNTED_REACH = 2**28
"""The longest reach of a tensor that is looked at element by element, in 32 MB."""


@functools.lru_cache(maxsize=10_000)
def _distinct_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of its storage that a tensor can touch, each once however often it is repeated.

    Where dimensions overlap whose strides are no multiples of one another, over a reach too long to
    look at every element, it is the number without the wider ones: no more than there are.
    """
    if 0 in shape:
        return 0
    pairs = [each for each in sorted(zip(strides, shape, strict=True)) if each[0] and each[1] > 1]
    total_reach = 1 + sum((size - 1) * stride for stride, size in pairs)
    # The outermost dimension so far has `count` steps, wider than all that lies within one.
    distinct, reach, step, count = 1, 1, 1, 1
    for stride, size in pairs:
        if stride % step == 0 and stride <= step * count:
            # Windows over the same steps, which overlap or touch: one longer run of them.
            longer = count + (size - 1) * (stride // step)
            distinct, count = distinct // count * longer, longer
        elif stride >= reach:
            distinct, step, count = distinct * size, stride, size
        elif total_reach <= _MAX_COUNTED_REACH:
            return _count_places(pairs)
        else:
            return distinct
        reach += (size - 1) * stride
    return distinct


def _count_places(pairs: Sequence[tuple[int, int]]) -> int:
    """Places that (stride, size) pairs reach, a bit for each."""
    places = 1
    for stride, size in pairs:
        steps = 1
        while steps < size:
            more = min(steps, size - steps)
            places |= places << more * stride
            steps += more
    return places.bit_count()
