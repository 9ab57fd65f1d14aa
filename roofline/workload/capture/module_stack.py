"""Which module is running: the path under which each operator is recorded."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

_CHANGED_BY_TRAINING = (
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.modules.dropout._DropoutNd,
)
"""Modules that do something else in training than in inference."""


@dataclass(slots=True)
class _Running:
    module: int
    path: str
    is_in_forward: bool


class ModuleStack:
    """The modules that are running, the innermost last.

    Modules are seen when they are called (with their hooks, then), and when only their ``forward``
    is. ``elsewhere`` is the path of one that ran in another thread, where operators are not seen;
    ``in_training`` names those that ran in training mode, because the model does not know of them.

    Args:
        paths: the path of every module that the model knows of, by identity.
    """

    def __init__(self, paths: Mapping[int, str]) -> None:
        self.elsewhere: str | None = None
        self.in_training: set[str] = set()
        self._paths = paths
        self._running: list[_Running] = []
        self._thread = threading.get_ident()

    @property
    def path(self) -> str:
        """The path of the innermost module that is running; ``""`` for the model itself."""
        return self._running[-1].path if self._running else ""

    @contextlib.contextmanager
    def watching(self, model: torch.nn.Module) -> Iterator[None]:
        """While this is open, the modules that run are seen."""
        hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        patched: list[tuple[type, Callable[..., Any]]] = []
        try:
            for kind in {kind for module in model.modules() for kind in type(module).__mro__}:
                forward = kind.__dict__.get("forward")
                if forward is not None and _is_patchable(kind, forward):
                    patched.append((kind, forward))
                    kind.forward = self._seen(forward)  # pyright: ignore[reportAttributeAccessIssue]
            yield
        finally:
            for kind, forward in patched:
                kind.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
            for hook in hooks:
                hook.remove()

    def _seen(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """`forward`, which may be called without its module being called, and is then seen too."""

        @functools.wraps(forward)
        def run(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return forward(module, *args, **kwargs)
            innermost = self._running[-1] if self._running else None
            if innermost and innermost.module == id(module) and not innermost.is_in_forward:
                innermost.is_in_forward = True
                return forward(module, *args, **kwargs)
            self._running.append(_Running(id(module), self._path_of(module), is_in_forward=True))
            try:
                return forward(module, *args, **kwargs)
            finally:
                self._running.pop()

        return run

    def _enter(self, module: torch.nn.Module, _inputs: object) -> None:
        """Called before a module's own hooks and forward."""
        if threading.get_ident() == self._thread:
            self._running.append(_Running(id(module), self._path_of(module), is_in_forward=False))
        elif id(module) in self._paths:
            # Hooks see every thread, the mode only its own: what this one calls is not recorded.
            self.elsewhere = self._paths[id(module)]

    def _leave(self, *_: object) -> None:
        """Called after a module's forward, also when it raised."""
        if threading.get_ident() == self._thread:
            self._running.pop()

    def _path_of(self, module: torch.nn.Module) -> str:
        path = self._paths.get(id(module))
        if path is None:
            # Made during the forward pass, or kept where torch does not look: named by its class.
            path = f"{self.path}.<{type(module).__name__}>".lstrip(".")
            if module.training and isinstance(module, _CHANGED_BY_TRAINING):
                self.in_training.add(path)
        return path


def _is_patchable(kind: type, forward: Any) -> bool:
    return (
        isinstance(forward, types.FunctionType)
        and issubclass(kind, torch.nn.Module)
        and kind is not torch.nn.Module
        and not issubclass(kind, torch.jit.ScriptModule)
    )
