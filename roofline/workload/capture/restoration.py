"""A model and its process are left as they were found, whatever a forward pass does."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

_BASES = (OrderedDict, dict, list, set, deque)

_SIMPLE = frozenset((bool, int, float, str, bytes, type(None)))
"""What most attributes are, and holds nothing that changes."""

_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor))

_FOREIGN = frozenset(("builtins", "torch", "functools", "enum", "numpy", "typing"))
"""Libraries whose objects keep nothing of a pass in their attributes."""


@contextlib.contextmanager
def left_as_it_was(model: torch.nn.Module, *others: Any) -> Iterator[None]:
    """Puts back all attributes of all modules, what containers held that they can reach, and the
    states of random generators and NumPy arrays in them.

    So a forward pass that keeps something (a feature map, a counter, a module made on first use, a
    key in a cache object, a table in a global of the model's own file, a variable of the function
    that its class was made in) leaves nothing behind. What is in tensors is not put back:
    `tensors_left_as_they_were`.

    Args:
        model: all of its modules, the classes of these, and the files that these are from.
        others: what else is to be left as it was: the arguments that the model is called with.
    """
    reached = _Reached.of(model, others)
    # Most are empty, and stay so: the hooks of modules.
    before = [(each, _content(each)) for each in reached.own if _is_place(each)]
    # Other threads may use what is shared: only what the pass left in it is taken out again.
    shared = [
        (each, _content(each), frozenset(map(id, _values(each))))
        for each in reached.shared
        if _is_place(each)
    ]
    states = [(each, *_state_of(each)) for each in reached.all() if _has_state(each)]
    arrays = [(each, each.copy()) for each in reached.own if _is_array(each)]
    caches = [(cache, cache.cache_info().misses) for cache in _function_caches(model)]
    names = [(owner, dict(vars(owner))) for owner in _owners_of_names(model)]
    try:
        yield
    finally:
        for place, content in before:
            _put_back(place, content)
        for place, content, known in shared:
            # What it held before is a place of its own.
            if any(
                type(value) is FakeTensor or (id(value) not in known and _holds_fakes(value))
                for value in _values(place)
            ):
                _put_back(place, content)
        for _, put, state in states:
            put(state)
        for array, content in arrays:
            array[...] = content
        for cache, misses in caches:
            if cache.cache_info().misses != misses:
                cache.cache_clear()
        for owner, content in names:
            _take_out_fakes(owner, content)


@contextlib.contextmanager
def tensors_left_as_they_were(
    model: torch.nn.Module, *others: Any, but: Collection[int] = ()
) -> Iterator[None]:
    """Puts back what was in the tensors that the model and its functions can reach.

    For passes that run on the model's own tensors: parameters, buffers, plain attributes, and those
    in lists, dictionaries, tuples and objects, however nested. They are there twice meanwhile.

    Args:
        model: its modules, the classes of these, and the files that these are from.
        others: what else is to be left as it was: the arguments that the model is called with.
        but: addresses of storages that are left out: the pass's own, say.
    """
    reached = [each for each in _Reached.of(model, others).all() if _is_kept(each, but)]
    reached += [each for each in (*model.parameters(), *model.buffers()) if _is_kept(each, but)]
    with _disable_current_modes(), torch.no_grad():
        kept = {id(each): (each, each.detach()) for each in reached}
        stored = {each.untyped_storage()._cdata: _bytes_of(each) for _, each in kept.values()}
        contents = [(each, each.clone()) for each in stored.values()]
    try:
        yield
    finally:
        with _disable_current_modes(), torch.inference_mode(False), torch.no_grad():
            for content, before in contents:
                if not torch.equal(content, before):
                    content.copy_(before)
            for tensor, before in kept.values():
                if not _is_same_view(tensor, before):
                    tensor.data = before


@contextlib.contextmanager
def process_left_as_it_was() -> Iterator[None]:
    """Puts back torch's settings that a model may change, and random states.

    Within, Python and NumPy draw the same numbers every time.
    """
    default_dtype, state = torch.get_default_dtype(), random.getstate()
    threads, torch_random = torch.get_num_threads(), torch.get_rng_state()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    numpy_random = sys.modules["numpy"].random if "numpy" in sys.modules else None
    numpy_state = numpy_random.get_state() if numpy_random else None
    random.seed(0)
    if numpy_random:
        numpy_random.seed(0)
    try:
        yield
    finally:
        torch.set_default_dtype(default_dtype)
        torch.set_rng_state(torch_random)
        torch.backends.mha.set_fastpath_enabled(fast_path)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        random.setstate(state)
        if numpy_random:
            numpy_random.set_state(numpy_state)


@contextlib.contextmanager
def without_stack_traces() -> Iterator[None]:
    """torch.fx notes for each node who called it, and loads its compiler to do so: for seconds."""
    settings, name = importlib.import_module("torch.fx.config"), "do_not_emit_stack_traces"
    before = getattr(settings, name, None)
    if before is not None:
        setattr(settings, name, True)
    try:
        yield
    finally:
        if before is not None:
            setattr(settings, name, before)


@functools.cache
def _base_of(kind: type) -> Any:
    return next((base for base in _BASES if issubclass(kind, base)), None)


def _base(value: Any) -> Any:
    """The built-in class that makes `value` a container; None if it is none."""
    return _base_of(type(value))


def _content(place: Any) -> Any:
    """What a place holds; its own class is not asked, which may do more than hold."""
    base = _base(place)
    if base is None:
        return tuple(_named_slots(place)) if type(place) is not types.CellType else _values(place)
    if not len(place):
        return ()
    if base is dict:
        return dict.copy(place)
    return list(base.items(place) if base is OrderedDict else base.__iter__(place))


def _put_back(place: Any, content: Any) -> None:
    base = _base(place)
    if base is None:
        _put_back_slots(place, content)
        return
    if not len(place) and not content:
        # As most are: the hooks of modules.
        return
    base.clear(place)
    if base is dict:
        dict.update(place, content)
    elif base is OrderedDict:
        for key, value in content:
            OrderedDict.__setitem__(place, key, value)
    elif base is set:
        set.update(place, content)
    elif base is list:
        list.extend(place, content)
    else:
        deque.extend(place, content)


def _put_back_slots(place: Any, content: tuple[Any, ...]) -> None:
    """Puts back what stood in a cell of a closure, or in the slots of an object."""
    if type(place) is types.CellType:
        if content:
            place.cell_contents = content[0]
        elif _values(place):
            del place.cell_contents
        return
    now = dict(_named_slots(place))
    for slot, value in content:
        if now.pop(slot, slot) is not value:
            slot.__set__(place, value)
    for slot in now:
        slot.__delete__(place)


@functools.cache
def _slots_of(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    """The slots of a class of the user's or a model library's."""
    if kind.__module__.partition(".")[0] in _FOREIGN:
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


def _holds_fakes(value: Any) -> bool:
    # The class that an object says to have is not asked: a proxy may run code to answer.
    kind = type(value)
    if issubclass(kind, tuple) or _base_of(kind):
        return any(_holds_fakes(each) for each in _values(value))
    return issubclass(kind, FakeTensor)


def _values(place: Any) -> Iterable[Any]:
    """What a container, a cell of a closure, or the slots of an object hold."""
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


def containers_in(roots: Sequence[Any]) -> Iterator[Any]:
    """Everything in which a pass can keep something: attributes, and containers in each other."""
    return (each for each in _things_in(roots, set()) if _base(each))


def _things_in(roots: Iterable[Any], seen: set[int]) -> Iterator[Any]:
    """Places in which a pass can keep something, however nested, and what else may change in them:
    tensors, arrays, random generators; and functions, whose variables `_Reached` looks at.

    Args:
        roots: where it begins: containers and cells.
        seen: identities of what is left out; those of what was found are added.
    """
    waiting = list(roots)
    while waiting:
        place = waiting.pop()
        if id(place) in seen:
            continue
        seen.add(id(place))
        if not isinstance(place, tuple):
            yield place
        for value in _values(place):
            kind = type(value)
            if kind in _SIMPLE:
                continue
            if issubclass(kind, tuple) or _base_of(kind):
                if len(value):
                    waiting.append(value)
                elif not issubclass(kind, tuple):
                    yield value
            elif kind in _TENSORS or kind in _FUNCTIONS or _changes(value):
                yield value
            else:
                if (attributes := _attributes_of(value)) is not None:
                    waiting.append(attributes)
                if _slots_of(kind):
                    waiting.append(value)


_FUNCTIONS = frozenset(
    (
        *(types.FunctionType, types.MethodType, functools.partial),
        *(staticmethod, classmethod, property),
    )
)


def _behind(function: Any) -> Iterator[Any]:
    """The cells of a function's closure, its defaults, and functions within it."""
    kind = type(function)
    if kind is functools.partial:
        yield (function.func, function.args, function.keywords)
    elif kind is property:
        yield (function.fget,)
    elif kind is not types.FunctionType:
        yield (function.__func__,)
    else:
        yield from function.__closure__ or ()
        yield (function.__defaults__ or (), function.__kwdefaults__ or {})


class _Reached:
    """What a pass of a model can change.

    ``own`` are the things that its modules and arguments hold; ``shared`` those that are behind
    functions, in classes and in files, for other objects and threads as well.
    """

    def __init__(self, own: Sequence[Any], shared: Sequence[Any]) -> None:
        self.own, self.shared = own, shared

    @classmethod
    def of(cls, model: torch.nn.Module, others: Any) -> _Reached:
        seen: set[int] = set()
        modules = [module.__dict__ for module in model.modules()]
        own = list(_things_in([modules, list(others)], seen))
        in_common = tuple(_shared(model))
        shared = list(_things_in([value for value in in_common if _base(value)], seen))
        shared += (each for each in in_common if type(each) in _TENSORS or _changes(each))
        functions = [each for each in (*own, *shared, *in_common) if type(each) in _FUNCTIONS]
        while functions:
            function = functions.pop()
            if id(function) not in seen:
                seen.add(id(function))
                found = list(_things_in(_behind(function), seen))
                shared += found
                functions += (each for each in found if type(each) in _FUNCTIONS)
        return cls(own, shared)

    def all(self) -> Iterator[Any]:
        """What is its own, then what is shared."""
        yield from self.own
        yield from self.shared


def _is_place(thing: Any) -> bool:
    kind = type(thing)
    return bool(kind is types.CellType or _base_of(kind) or _slots_of(kind))


def _changes(value: Any) -> bool:
    return _has_state(value) or _is_array(value)


def _numpy() -> Any:
    """NumPy, where something has loaded it."""
    return sys.modules.get("numpy")


def _is_array(value: Any) -> bool:
    """Whether it is an array of NumPy with memory of its own, which may be written."""
    numpy = _numpy()
    if numpy is None or type(value) is not numpy.ndarray or not value.flags.writeable:
        return False
    return value.flags.owndata or type(value.base) is numpy.ndarray


def _has_state(value: Any) -> bool:
    kind, numpy = type(value), _numpy()
    return kind in (torch.Generator, random.Random) or (
        numpy is not None and kind in (numpy.random.Generator, numpy.random.RandomState)
    )


def _state_of(generator: Any) -> tuple[Callable[[Any], object], Any]:
    """What puts back the state of a random generator, and its state."""
    if type(generator) is torch.Generator:
        return generator.set_state, generator.get_state()
    if type(generator) is random.Random:
        return generator.setstate, generator.getstate()
    bits = getattr(generator, "bit_generator", None) or generator._bit_generator
    return functools.partial(setattr, bits, "state"), copy.deepcopy(bits.state)


def weights_of(model: torch.nn.Module) -> frozenset[int]:
    """Addresses of the storages of parameters and buffers."""
    kept = (*model.parameters(), *model.buffers())
    return frozenset(each.untyped_storage()._cdata for each in kept if each.layout is torch.strided)


def _is_kept(value: Any, but: Collection[int]) -> bool:
    """Whether it is a tensor with values that a pass may change."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and value.layout is torch.strided
        and not value.is_meta
        and value.untyped_storage()._cdata not in but
    )


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor: others may be views of it."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _is_same_view(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        tensor.untyped_storage()._cdata == other.untyped_storage()._cdata
        and tensor.shape == other.shape
        and tensor.stride() == other.stride()
        and tensor.storage_offset() == other.storage_offset()
    )


_OPAQUE = (type, torch.Tensor, types.ModuleType, types.FunctionType)


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of a module, or an object of a class of the user's or a model library's.

    The object itself is not asked, neither for them nor for its class: a proxy may run code to
    answer, and fail.
    """
    kind = type(value)
    is_foreign = kind.__module__.partition(".")[0] in _FOREIGN
    if issubclass(kind, _OPAQUE) or (is_foreign and not issubclass(kind, torch.nn.Module)):
        return None
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return attributes if type(attributes) is dict else None


def _owners_of_names(model: torch.nn.Module) -> list[Any]:
    """The classes of the model's modules, and the files that these are from."""
    kinds = {
        kind: None
        for module_class in dict.fromkeys(type(module) for module in model.modules())
        for kind in module_class.__mro__
        if kind.__module__.partition(".")[0] not in _FOREIGN
    }
    files = (sys.modules.get(name) for name in dict.fromkeys(kind.__module__ for kind in kinds))
    return [*kinds, *(file for file in files if file is not None)]


def _shared(model: torch.nn.Module) -> Iterator[Any]:
    """What the classes of the model's modules and the files they are from hold for all."""
    for owner in _owners_of_names(model):
        is_file = type(owner) is types.ModuleType
        yield from (
            value
            for key, value in list(vars(owner).items())
            if not (is_file and key.startswith("__"))
        )


def _take_out_fakes(owner: Any, before: Mapping[str, Any]) -> None:
    """Gives names of a class or a file that hold tensors of a pass what they held before."""
    for name, value in list(vars(owner).items()):
        if type(value) is FakeTensor or (value is not before.get(name) and _holds_fakes(value)):
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


def _function_caches(model: torch.nn.Module) -> Iterator[functools._lru_cache_wrapper[Any]]:
    """Functions that remember what they returned, which may be tensors of the pass."""
    for value in _shared(model):
        is_method = type(value) in (classmethod, staticmethod)
        function: Any = value.__func__ if is_method else value
        if issubclass(type(function), functools._lru_cache_wrapper):
            yield function
        elif type(function) is types.FunctionType and function.__closure__:
            # Decorators keep the function that remembers behind one that does not.
            for cell in function.__closure__:
                try:
                    inner = cell.cell_contents
                except ValueError:
                    continue
                if issubclass(type(inner), functools._lru_cache_wrapper):
                    yield inner
