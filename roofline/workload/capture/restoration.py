"""A model and its process are left as they were found, whatever a forward pass does."""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_BASES = (OrderedDict, dict, list, set, deque)

_SIMPLE = frozenset((bool, int, float, str, bytes, type(None), torch.Tensor, torch.nn.Parameter))
"""What most attributes are, and holds nothing that changes."""

_FOREIGN = frozenset(("builtins", "torch", "functools", "enum", "numpy", "typing"))
"""Libraries whose objects keep nothing of a pass in their attributes."""


@contextlib.contextmanager
def left_as_it_was(model: torch.nn.Module, *others: Any) -> Iterator[None]:
    """Puts back all attributes of all modules, and what containers held that they can reach.

    So a forward pass that keeps something (a feature map, a counter, a module made on first use, a
    key in a cache object, a table in a global of the model's own file) leaves nothing behind.

    Args:
        model: all of its modules, the classes of these, and the files that these are from.
        others: what else is to be left as it was: the arguments that the model is called with.
    """
    own: list[Any] = [module.__dict__ for module in model.modules()]
    # Most are empty, and stay so: the hooks of modules.
    before = [
        (each, _content(each) if len(each) else ()) for each in containers_in([*own, list(others)])
    ]
    # Other threads may use what is shared: only what the pass left in it is taken out again.
    shared = [
        (each, _content(each))
        for each in containers_in([value for value in _shared(model) if _base(value)])
    ]
    caches = [(cache, cache.cache_info().misses) for cache in _function_caches(model)]
    try:
        yield
    finally:
        for container, content in before:
            if content or len(container):
                _put_back(container, content)
        for container, content in shared:
            if any(_holds_fakes(value) for value in _values(container)):
                _put_back(container, content)
        for cache, misses in caches:
            if cache.cache_info().misses != misses:
                cache.cache_clear()


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


def _content(container: Any) -> Any:
    """What a container holds; its own class is not asked, which may do more than hold."""
    if not len(container):
        return ()
    base = _base(container)
    if base is dict:
        return dict.copy(container)
    return list(base.items(container) if base is OrderedDict else base.__iter__(container))


def _put_back(container: Any, content: Any) -> None:
    if not len(container) and not content:
        # As most are: the hooks of modules.
        return
    base = _base(container)
    base.clear(container)
    if base is dict:
        dict.update(container, content)
    elif base is OrderedDict:
        for key, value in content:
            OrderedDict.__setitem__(container, key, value)
    elif base is set:
        set.update(container, content)
    elif base is list:
        list.extend(container, content)
    else:
        deque.extend(container, content)


def _holds_fakes(value: Any) -> bool:
    # The class that an object says to have is not asked: a proxy may run code to answer.
    kind = type(value)
    if kind is tuple or _base_of(kind):
        return any(_holds_fakes(each) for each in _values(value))
    return issubclass(kind, FakeTensor)


def _values(container: Any) -> Iterable[Any]:
    return dict.values(container) if isinstance(container, dict) else container


def containers_in(roots: Sequence[Any]) -> Iterator[Any]:
    """Everything in which a pass can keep something: attributes, and containers in each other."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        container = waiting.pop()
        if id(container) in seen:
            continue
        seen.add(id(container))
        if not isinstance(container, tuple):
            yield container
        for value in _values(container):
            kind = type(value)
            if kind in _SIMPLE:
                continue
            if kind is tuple or _base_of(kind):
                if len(value):
                    waiting.append(value)
                elif kind is not tuple:
                    yield value
            elif (attributes := _attributes_of(value)) is not None:
                waiting.append(attributes)


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


def _shared(model: torch.nn.Module) -> Iterator[Any]:
    """What the classes of the model's modules and the files they are from hold for all."""
    kinds = {
        kind
        for module_class in {type(module) for module in model.modules()}
        for kind in module_class.__mro__
        if kind.__module__.partition(".")[0] not in _FOREIGN
    }
    for kind in kinds:
        yield from kind.__dict__.values()
    for name in {kind.__module__ for kind in kinds}:
        file = sys.modules.get(name)
        if file is not None:
            yield from (
                value for key, value in list(vars(file).items()) if not key.startswith("__")
            )


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
