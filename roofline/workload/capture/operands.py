"""Operands of operators as tensor specs, with numbered storages."""

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
    """Cache the tensors of unpacked objects, so that they keep their identity."""
    try:
        yield
    finally:
        _unpacked.clear()


def unpack(value: Any) -> Parts | None:
    """Return the weights and biases in a packed object; None for any other object.

    Linear layers: weight, and bias or None. Recurrent layers: weights of input and hidden state,
    then their biases.
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
        # An embedding returns the table itself.
        return (parts,) if isinstance(parts, torch.Tensor) else tuple(parts)
    if "CellParams" not in str(packed._type()):
        return None
    # Its state: a kind, tensors, numbers, and one packed object per weight.
    _kind, biases, *_, weights = packed.__getstate__()[0]
    return (*(_as_kept(each.unpack()[0], each) for each in weights), *biases)


def _as_kept(part: Any, packed: torch.ScriptObject) -> torch.Tensor | None:
    """Return the part in its stored type: float16 weights are unpacked as float32."""
    if not isinstance(part, torch.Tensor):
        return None
    is_half = part.dim() == 2 and part.dtype == torch.float32
    return part.half() if is_half and "LinearPackedParams" in str(packed._type()) else part


def packed_tensors(modules: Iterable[torch.nn.Module]) -> Iterator[torch.Tensor]:
    """Yield the packed tensors in the attributes of modules."""
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
"""Operators without a fake kernel, whose result has the type of their input."""


def packed_product_result(func: Any, args: tuple[Any, ...]) -> torch.Tensor | None:
    """Return the fake result of a matrix product with packed weights; None for other calls."""
    if func not in _PRODUCTS:
        return None
    weight = (unpack(args[1]) or (None,))[0]
    if weight is None:
        return None
    given = args[0]
    return given.new_empty((*given.shape[:-1], weight.shape[0]))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a nested argument or result."""
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
    """Bytes of a storage that tensors cover: each place once, at most the whole storage."""

    whole_bytes: int
    element_bytes: int
    places: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])

    @property
    def used_bytes(self) -> int:
        """Bytes that tensors cover."""
        return min(sum(self.places.values()), self.whole_bytes)

    @property
    def elements(self) -> int:
        """Elements that tensors cover."""
        return self.used_bytes // self.element_bytes


def add_use(held: dict[int, StorageUse], tensor: torch.Tensor) -> None:
    """Add a tensor to the use of its storage, by address."""
    storage = tensor.untyped_storage()
    found = held.setdefault(
        storage._cdata,
        StorageUse(whole_bytes=storage.nbytes(), element_bytes=tensor.element_size()),
    )
    place = (tensor.storage_offset(), tensor.shape, tensor.stride())
    found.places[place] = tensor.nbytes


def storage_use(tensors: Iterable[torch.Tensor]) -> dict[int, StorageUse]:
    """Return the use of storages by tensors, by address."""
    held: dict[int, StorageUse] = {}
    for each in tensors:
        add_use(held, each)
    return held


def is_same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are the same view of one storage."""
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
    """A tensor spec, with a key that is equal for the same bytes."""

    spec: TensorSpec
    place: tuple[Any, ...]


class Operands:
    """Converts tensors to specs, numbers storages by first appearance, and tracks released ones.

    ``new_role`` is the role of new storages without one. ``roles`` maps addresses of storages that
    are no activations to roles; it may grow.
    """

    def __init__(self, roles: Mapping[int, Role]) -> None:
        self.new_role = Role.ACTIVATION
        self._roles = roles
        self._numbers: dict[int, tuple[int, Role]] = {}
        # Weak references keep addresses unique: they are not reused.
        self._references: list[StorageWeakRef] = []
        # By number; torch keeps the Python object of a storage as long as the storage lives, so a
        # callback reports its release.
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
        """Return the numbers of the tensors' storages, empty ones included."""
        return frozenset(self._number(tensor)[0] for tensor in tensors)

    def alive(self) -> frozenset[int]:
        """Return the numbers of live activations and gradients."""
        return frozenset(self._watched.keys() - self._gone)

    def dropped(self) -> tuple[int, ...]:
        """Return the numbers of activations and gradients released since the last call."""
        if not self._gone:
            return ()
        gone = tuple(sorted(self._gone))
        self._gone.clear()
        for number in gone:
            del self._watched[number]
        return gone

    def operand(self, tensor: torch.Tensor) -> Operand:
        """Return the operand of a tensor; ModelError for a sparse one."""
        if tensor.layout is not torch.strided:
            raise ModelError(
                "sparse tensors are not supported; use dense ones (sparse=False for embeddings)"
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
    """Return the specs of operands in different places, without empty ones."""
    found: dict[tuple[Any, ...], TensorSpec] = {}
    for each in operands:
        if 0 not in each.spec.shape:
            found.setdefault(each.place, each.spec)
    return tuple(found.values())


@functools.lru_cache(maxsize=10_000)
def _layout(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """Return the memory layout of a tensor; strides of dimensions of size 1 are ignored."""
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
    """Return the elements of a storage that a tensor has, as merged (stride, size) pairs.

    They are equal for a tensor, its transpose, and an expanded one.
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
"""Longest reach of a tensor that is counted element by element, in 32 MB."""


@functools.lru_cache(maxsize=10_000)
def _distinct_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of distinct storage elements that a tensor touches.

    For overlapping dimensions with strides that are no multiples of one another, over a reach too
    long to count, it is a lower bound without the wider dimensions.
    """
    if 0 in shape:
        return 0
    pairs = [each for each in sorted(zip(strides, shape, strict=True)) if each[0] and each[1] > 1]
    total_reach = 1 + sum((size - 1) * stride for stride, size in pairs)
    # The outermost dimension so far has `count` steps, each wider than all inner dimensions.
    distinct, reach, step, count = 1, 1, 1, 1
    for stride, size in pairs:
        if stride % step == 0 and stride <= step * count:
            # Windows that overlap or touch form one longer run of steps.
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
    """Count the places that (stride, size) pairs reach, with one bit for each."""
    places = 1
    for stride, size in pairs:
        steps = 1
        while steps < size:
            more = min(steps, size - steps)
            places |= places << more * stride
            steps += more
    return places.bit_count()
