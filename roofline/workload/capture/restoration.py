"""Restoration of a model and its process after a captured pass.

State held by the model's modules and arguments is restored completely. State that the model's code
reaches otherwise (global names, variables and defaults of functions, classes) is shared with other
code: only fake tensors of the pass are removed from it. Code is followed by the names it uses, so
other objects of the process cost nothing.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import itertools
import operator
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from roofline.workload.capture.operands import is_same_view

_BASES = (OrderedDict, dict, list, set, deque)

_SIMPLE = frozenset((bool, int, float, str, bytes, type(None)))
"""Immutable types of most attributes."""

_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor))

_CODE = (types.FunctionType, functools._lru_cache_wrapper, type)
_WRAPPERS = (types.MethodType, functools.partial, staticmethod, classmethod, property)

_FOREIGN = frozenset(("builtins", "torch", "functools", "enum", "numpy", "typing", "logging"))
"""Libraries whose objects and code keep no state of a pass."""

_MAX_SHARED = 10_000
"""Limit of inspected values that code reaches, nearest first."""


@contextlib.contextmanager
def restore_state(model: torch.nn.Module, *others: Any) -> Iterator[None]:
    """Restore attributes of modules, and the containers, generators and arrays that they reach.

    The same holds for `others`, the arguments. A forward pass may keep a feature map, a counter, a
    module created on first use, a key in a cache, a global table or a closure variable: all are
    restored. For values of tensors see `restore_tensors`.
    """
    reached = _ReachableState(model, others)
    own = [put_back for each in reached.own if (put_back := _restorer(each))]
    # Other threads may use shared state: only fake tensors are removed from it.
    shared = [
        (each, _restorer(each), frozenset(map(id, _values(each))))
        for each in reached.shared
        if _is_place(type(each))
    ]
    drawn = [_restorer(each) for each in reached.shared if _has_state(each)]
    caches = [(cache, cache.cache_info().misses) for cache in reached.caches]
    try:
        yield
    finally:
        for put_back in own:
            put_back()
        for place in reached.empty:
            if len(place):
                _base_of(type(place)).clear(place)
        for place, put_back, known in shared:
            # Containers that it held before are visited themselves.
            if put_back and any(
                type(value) is FakeTensor or (id(value) not in known and _holds_fakes(value))
                for value in _values(place)
            ):
                put_back()
        for place, length in reached.large:
            _remove_added(place, length)
        for names in reached.names.values():
            names.remove_fakes()
        for put_back in drawn:
            if put_back:
                put_back()
        for cache, misses in caches:
            if cache.cache_info().misses != misses:
                cache.cache_clear()


@contextlib.contextmanager
def restore_tensors(
    model: torch.nn.Module, *others: Any, but: Collection[int] = ()
) -> Iterator[None]:
    """Restore the values of tensors that the model, its code and `others` reach.

    Storages at the addresses `but` are excluded. Needs a second copy of the tensors meanwhile.
    """
    found = _ReachableState(model, others)
    reached = [*found.own, *found.shared, *model.parameters(), *model.buffers()]
    with _disable_current_modes(), torch.no_grad():
        kept = {id(each): (each, each.detach()) for each in reached if _is_restorable(each, but)}
        # Whole storages, of which other tensors may be views.
        stored = {(storage := each.untyped_storage())._cdata: storage for _, each in kept.values()}
        bytes_of = [
            torch.empty(0, dtype=torch.uint8, device=each.device).set_(each)
            for each in stored.values()
        ]
        contents = [(each, each.clone()) for each in bytes_of]
    try:
        yield
    finally:
        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            for content, before in contents:
                if not torch.equal(content, before):
                    content.copy_(before)
            for tensor, before in kept.values():
                if not is_same_view(tensor, before):
                    tensor.data = before


@contextlib.contextmanager
def restore_process_state() -> Iterator[None]:
    """Restore torch's settings and random states; set fixed seeds meanwhile."""
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as after:
        after.callback(torch.set_default_dtype, torch.get_default_dtype())
        after.callback(torch.set_rng_state, torch.get_rng_state())
        mha = torch.backends.mha
        after.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        after.callback(random.setstate, random.getstate())
        random.seed(0)
        if numpy := sys.modules.get("numpy"):
            after.callback(numpy.random.set_state, numpy.random.get_state())
            numpy.random.seed(0)
        after.callback(lambda: torch.get_num_threads() == threads or torch.set_num_threads(threads))
        yield


def without_stack_traces() -> contextlib.AbstractContextManager[Any]:
    """Turn off stack traces of torch.fx, for which it loads its compiler in seconds."""
    settings: Any = importlib.import_module("torch.fx.config")
    name = "do_not_emit_stack_traces"
    is_known = getattr(settings, name, None) is not None
    return mock.patch.object(settings, name, True) if is_known else contextlib.nullcontext()


def weight_storages(model: torch.nn.Module) -> frozenset[int]:
    """Return the storage addresses of parameters and buffers."""
    kept = (*model.parameters(), *model.buffers())
    return frozenset(each.untyped_storage()._cdata for each in kept if each.layout is torch.strided)


def containers_in(model: torch.nn.Module) -> Iterator[Any]:
    """Yield the attribute dictionaries of modules, and all containers nested in them."""
    return (each for each in _ReachableState(model, ()).own if _base_of(type(each)))


# -- reachable state -------------------------------------------------------------------------------


class _ReachableState:
    """State that a pass can change: containers, cells, slots, tensors, arrays, random generators.

    ``own``: state held by modules and arguments; ``empty``: empty containers among these, such as
    module hooks. ``shared``: state that code reaches; ``large``: containers among these too long to
    inspect, with their lengths. ``names``: globals and classes that the code uses. ``caches``:
    functions with an lru_cache. The code is that of the files that define the modules' classes and
    bases, and functions that the modules hold.
    """

    def __init__(self, model: torch.nn.Module, others: Sequence[Any]) -> None:
        self.own: list[Any] = []
        self.empty: list[Any] = []
        self.shared: list[Any] = []
        self.large: list[tuple[Any, int]] = []
        self.names: dict[int, _Names] = {}
        self.caches: list[functools._lru_cache_wrapper[Any]] = []
        self._seen: set[int] = set()
        modules = list(model.modules())
        classes = dict.fromkeys(base for each in modules for base in type(each).__mro__)
        code = [each for each in classes if _library(each.__module__) not in _FOREIGN]
        self._files = {each.__module__ for each in code}
        self._walk(deque((*(each.__dict__ for each in modules), others)), code)
        self._walk(deque(code), None)

    def _walk(self, waiting: deque[Any], code: list[Any] | None) -> None:
        """Find the state reachable from `waiting`.

        Functions and classes are collected in `code`; None: they are followed.
        """
        found = self.shared if code is None else self.own
        left = _MAX_SHARED
        while waiting and left > 0:
            thing = waiting.popleft()
            kind = type(thing)
            if code is not None and issubclass(kind, _CODE):
                code.append(thing)
                # For a decorated function it is the file of the inner one.
                if kind is types.FunctionType and _library(thing.__module__) not in _FOREIGN:
                    self._files.add(thing.__module__)
                continue
            if id(thing) in self._seen:
                continue
            self._seen.add(id(thing))
            if issubclass(kind, (*_CODE, *_WRAPPERS)):
                inside = self._behind(thing)
            else:
                base, is_tuple = _base_of(kind), issubclass(kind, tuple)
                if code is None and (base or is_tuple) and len(thing) > left:
                    if base:
                        self.large.append((thing, len(thing)))
                    continue
                is_place = _is_place(kind)
                if is_place:
                    found.append(thing)
                inside = _values(thing) if is_place or is_tuple else ()
                if not base and (attributes := _attributes_of(thing)) is not None:
                    waiting.append(attributes)
                    (waiting if code is None else code).append(kind)
            for value in inside:
                held = type(value)
                left -= code is None
                if held in _SIMPLE:
                    continue
                if code is not None and _base_of(held) and not len(value):
                    self.empty.append(value)
                elif held in _TENSORS or _has_state(value) or _is_array(value):
                    found.append(value)
                else:
                    waiting.append(value)

    def _behind(self, thing: Any) -> Iterable[Any]:
        """Return the objects that a function or class reaches."""
        match thing:
            case functools.partial():
                return (thing.func, thing.args, thing.keywords)
            case property():
                return (thing.fget, thing.fset)
            case types.MethodType():
                return (thing.__func__, thing.__self__)
            case staticmethod() | classmethod():
                return (thing.__func__,)
            case functools._lru_cache_wrapper():
                self.caches.append(thing)
                return (thing.__wrapped__,)
            case types.FunctionType():
                return self._behind_function(thing)
            case _ if thing.__module__ in self._files:
                names = self.names[id(thing)] = _Names(thing, dict(vars(thing)))
                return names.before.values()
            case _:
                return ()

    def _behind_function(self, function: types.FunctionType) -> Iterator[Any]:
        yield from function.__closure__ or ()
        yield function.__defaults__
        yield function.__kwdefaults__
        variables = function.__globals__
        if variables.get("__name__") in self._files:
            known = self.names.setdefault(id(variables), _Names(variables, {}))
            for name in _names_in(function.__code__) - known.used:
                known.used.add(name)
                if name in variables:
                    known.before[name] = variables[name]
                    yield variables[name]


def _library(module: Any) -> str:
    """Return the top-level package of a module name; ``""`` if there is none."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def _names_in(code: types.CodeType) -> set[str]:
    """Return global and attribute names in code and its nested functions."""
    names = set(code.co_names)
    for each in code.co_consts:
        if type(each) is types.CodeType:
            names |= _names_in(each)
    return names


@dataclass(slots=True)
class _Names:
    """Names of a class or of globals with their earlier values; ``used``: those that code uses."""

    owner: Any
    before: dict[str, Any]
    used: set[str] = field(default_factory=set[str])

    def remove_fakes(self) -> None:
        """Restore names that hold fake tensors."""
        is_class = isinstance(self.owner, type)
        now = vars(self.owner) if is_class else self.owner
        give: Callable[..., object] = setattr if is_class else operator.setitem
        take: Callable[..., object] = delattr if is_class else operator.delitem
        for name in list(now) if is_class else self.used & now.keys():
            value = now[name]
            if value is self.before.get(name) or not _holds_fakes(value):
                continue
            if name in self.before:
                give(self.owner, name, self.before[name])
            else:
                take(self.owner, name)


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the attributes of a module, or of an object of user or model library code.

    Does not use `getattr`: a proxy may run code and fail.
    """
    kind = type(value)
    is_opaque = issubclass(kind, (torch.Tensor, types.ModuleType, *_CODE, *_WRAPPERS))
    is_foreign = _library(kind.__module__) in _FOREIGN and not issubclass(kind, torch.nn.Module)
    if is_opaque or is_foreign:
        return None
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


@functools.cache
def _slots_of(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """Return the slots of a class of user or model library code."""
    if _library(kind.__module__) in _FOREIGN:
        return ()
    return tuple(
        slot
        for base in kind.__mro__
        for slot in vars(base).values()
        if type(slot) is types.MemberDescriptorType
    )


def _named_slots(value: Any) -> Iterator[tuple[types.MemberDescriptorType, Any]]:
    for slot in _slots_of(type(value)):
        with contextlib.suppress(AttributeError):
            yield slot, slot.__get__(value)


@functools.cache
def _base_of(kind: type) -> Any:
    """Return the built-in container class of `kind`, or None."""
    return next((base for base in _BASES if issubclass(kind, base)), None)


def _is_place(kind: type) -> bool:
    return bool(_base_of(kind) or kind is types.CellType or _slots_of(kind))


def _values(place: Any) -> Iterable[Any]:
    """Return the values in a container, a closure cell, or the slots of an object."""
    kind = type(place)
    if kind is types.CellType:
        try:
            return (place.cell_contents,)
        except ValueError:
            return ()
    if issubclass(kind, tuple):
        return tuple.__iter__(place)
    base = _base_of(kind)
    if base is None:
        return tuple(value for _, value in _named_slots(place))
    return dict.values(place) if issubclass(kind, dict) else base.__iter__(place)


def _holds_fakes(value: Any) -> bool:
    # Not isinstance: a proxy may run code.
    kind = type(value)
    if issubclass(kind, tuple) or _base_of(kind):
        return any(_holds_fakes(each) for each in _values(value))
    return issubclass(kind, FakeTensor)


# -- earlier state ---------------------------------------------------------------------------------


def _restorer(thing: Any) -> Callable[[], object] | None:
    """Return a function that restores the present state of an object; None for tensors.

    Methods of the object's own class are not called: they may do more.
    """
    kind = type(thing)
    if base := _base_of(kind):
        items = base.items(thing) if issubclass(base, dict) else base.__iter__(thing)
        return functools.partial(_refill, thing, base, list(items) if len(thing) else ())
    if kind is types.CellType:
        return functools.partial(_refill_cell, thing, _values(thing))
    if _slots_of(kind):
        return functools.partial(_refill_slots, thing, tuple(_named_slots(thing)))
    if _is_array(thing):
        return functools.partial(sys.modules["numpy"].copyto, thing, thing.copy())
    if not _has_state(thing):
        return None
    if kind is torch.Generator:
        return functools.partial(thing.set_state, thing.get_state())
    if kind is random.Random:
        return functools.partial(thing.setstate, thing.getstate())
    bits = getattr(thing, "bit_generator", None) or thing._bit_generator
    return functools.partial(setattr, bits, "state", copy.deepcopy(bits.state))


def _refill(place: Any, base: Any, items: Sequence[Any]) -> None:
    base.clear(place)
    # OrderedDict.update would call methods of the subclass.
    if base is OrderedDict:
        for key, value in items:
            OrderedDict.__setitem__(place, key, value)
    else:
        (base.update if base in (dict, set) else base.extend)(place, items)


def _refill_cell(cell: types.CellType, content: Iterable[Any]) -> None:
    for value in content:
        cell.cell_contents = value
    if not content and _values(cell):
        del cell.cell_contents


def _refill_slots(thing: Any, content: Sequence[tuple[types.MemberDescriptorType, Any]]) -> None:
    now = dict(_named_slots(thing))
    for slot, value in content:
        if now.pop(slot, slot) is not value:
            slot.__set__(thing, value)
    for slot in now:
        slot.__delete__(thing)


def _remove_added(place: Any, length: int) -> None:
    """Remove items with fake tensors from the end of a container that had `length` items."""
    base = _base_of(type(place))
    if issubclass(base, dict):
        added = itertools.islice(base.__reversed__(place), max(0, len(place) - length))
        for key in [each for each in added if _holds_fakes(dict.__getitem__(place, each))]:
            base.__delitem__(place, key)
    elif base is not set:
        while len(place) > length and _holds_fakes(base.__getitem__(place, -1)):
            base.pop(place)


# -- tensors, arrays and generators ----------------------------------------------------------------


def _is_array(value: Any) -> bool:
    """Return whether a value is a writable NumPy array with its own memory."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or not value.flags.writeable:
        return False
    return value.flags.owndata or type(value.base) is numpy.ndarray


def _has_state(value: Any) -> bool:
    kind, numpy = type(value), sys.modules.get("numpy")
    return kind in (torch.Generator, random.Random) or (
        numpy is not None and kind in (numpy.random.Generator, numpy.random.RandomState)
    )


def _is_restorable(value: Any, but: Collection[int]) -> bool:
    """Return whether a value is a tensor with values that a pass may change."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and value.layout is torch.strided
        and not value.is_meta
        and value.untyped_storage()._cdata not in but
    )
