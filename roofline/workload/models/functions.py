"""Functions as models: code that is in no module can be analysed too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


class Function(torch.nn.Module):
    """A function as a model, with the modules that it uses as its parts.

    Those are the module that a method belongs to, and the modules among a function's variables (of
    enclosing functions and global ones) and the arguments that `functools.partial` adds, also in
    lists and dictionaries.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        for name, module in _modules_of(function):
            if all(module is not part for part in self.children()):
                self.add_module(name.replace(".", "_"), module)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        return self.function(*args, **kwargs)


def name_of(function: Callable[..., Any]) -> str:
    """What a function is called, ``"encode"``; of what has no name its class's."""
    name = getattr(function, "__name__", "")
    return name if name and name != "<lambda>" else type(function).__name__


def _modules_of(function: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules that a function can call, and what it calls them."""
    if isinstance(function, functools.partial):
        yield from _modules_of(function.func)
        yield from _modules_in({f"argument_{i}": each for i, each in enumerate(function.args)})
        yield from _modules_in(function.keywords)
        return
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        yield type(owner).__name__, owner
    elif isinstance(function, torch.nn.Module):
        yield type(function).__name__, function
    function = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        yield from _modules_in({**variables.globals, **variables.nonlocals})
        yield from _modules_in(function.__kwdefaults__ or {})
        yield from _modules_in(
            {f"default_{i}": each for i, each in enumerate(function.__defaults__ or ())}
        )


def _modules_in(variables: Mapping[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, value in variables.items():
        if isinstance(value, torch.nn.Module):
            yield name, value
        elif isinstance(value, functools.partial) or inspect.ismethod(value):
            yield from _modules_of(value)
        elif isinstance(value, Mapping):
            yield from _modules_in({f"{name}_{key}": each for key, each in value.items()})
        elif isinstance(value, (list, tuple)):
            yield from _modules_in({f"{name}_{i}": each for i, each in enumerate(value)})
