"""A model is left as it was found, whatever its forward pass does."""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch

_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, list, set, deque))

_SIMPLE = frozenset((bool, int, float, str, tuple, type(None), torch.Tensor, torch.nn.Parameter))
"""What most attributes are, and holds nothing that changes."""


@contextlib.contextmanager
def left_as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Puts back all attributes of all modules, and what the containers in them held.

    So a forward pass that keeps something (a feature map, a counter, a module made on first use, a
    key in a cache object) leaves nothing behind.
    """
    before = [(container, container.copy()) for container in _containers(model)]
    try:
        yield
    finally:
        for container, content in before:
            container.clear()
            if isinstance(container, (list, deque)):
                container.extend(content)
            else:
                container.update(content)


def _containers(model: torch.nn.Module) -> Iterator[Any]:
    """Everything in which a model can keep something: attributes, and containers in each other."""
    seen: set[int] = set()
    waiting: list[Any] = [module.__dict__ for module in model.modules()]
    while waiting:
        container = waiting.pop()
        if id(container) in seen:
            continue
        seen.add(id(container))
        yield container
        for value in container.values() if isinstance(container, dict) else container:
            kind = type(value)
            if kind in _SIMPLE:
                continue
            if kind in _CONTAINERS:
                if value:
                    waiting.append(value)
                else:
                    seen.add(id(value))
                    yield value
            elif isinstance(value, torch.nn.Module) or _is_plain_object(value):
                waiting.append(value.__dict__)


def _is_plain_object(value: Any) -> bool:
    """Whether it is an object of a class of the user's or a model library's, with attributes."""
    kind = type(value)
    return (
        isinstance(getattr(value, "__dict__", None), dict)
        and not isinstance(value, (type, torch.Tensor, types.ModuleType, types.FunctionType))
        and kind.__module__.partition(".")[0] not in ("builtins", "torch", "functools", "enum")
    )
