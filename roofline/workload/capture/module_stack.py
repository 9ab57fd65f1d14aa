"""Which module is running: the path under which each operator is recorded."""

from __future__ import annotations

import bisect
import contextlib
import functools
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roofline.workload.capture.compiled import path_of_own
from roofline.workload.capture.elsewhere import wait_for_capture

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
    ``in_training`` names those that ran in training mode, because the model does not know of them;
    ``owners`` are the paths of the modules that parameters belong to, by their identity; ``calls``
    how often each module ran, by its path, in the order of their first calls.

    The backward pass runs no modules: what it calls belongs to the module whose forward pass made
    the node of the graph that is being differentiated. Nodes are numbered as they are made, so it
    is enough to know from which number on which module was the innermost.

    Args:
        paths: the path of every module that the model knows of, by identity.
    """

    def __init__(self, paths: Mapping[int, str]) -> None:
        self.elsewhere: str | None = None
        self.in_training: set[str] = set()
        self.owners: dict[int, str] = {}
        self.calls: dict[str, int] = {}
        self._paths = paths
        self._running: list[_Running] = []
        self._thread = threading.get_ident()
        self._first_nodes: list[int] = []
        self._paths_of_nodes: list[str] = []

    @property
    def path(self) -> str:
        """The path of the innermost module that is running; ``""`` for the model itself."""
        return self._running[-1].path if self._running else ""

    @property
    def are_running(self) -> bool:
        """Whether some module is: in the backward pass, those that are run again for it."""
        return bool(self._running)

    def path_of_node(self) -> str:
        """The path of the module whose forward pass made the node being differentiated."""
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        if (parameter := getattr(node, "variable", None)) is not None:
            return self.owners.get(id(parameter), "")
        number = bisect.bisect_right(self._first_nodes, node._sequence_nr())
        return self._paths_of_nodes[number - 1] if number else ""

    def note_owners(self, model: torch.nn.Module) -> None:
        """Writes down whose the parameters of `model` are now; tied ones are the first module's."""
        for path, module in model.named_modules():
            for each in module.parameters(recurse=False):
                self.owners.setdefault(id(each), path_of_own(path))

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """While this is open, what runs outside of modules belongs to a part of that `name`."""
        self._push(_Running(0, name, is_in_forward=True))
        try:
            yield
        finally:
            self._pop()

    @contextlib.contextmanager
    def watching(self, model: torch.nn.Module) -> Iterator[None]:
        """While this is open, the modules that run are seen."""
        called: Callable[..., Any] = torch.nn.Module.__call__
        patched: list[tuple[type, Callable[..., Any]]] = []
        try:
            # Hooks for all modules would see less: they run before a module's own.
            setattr(torch.nn.Module, "__call__", self._called(called))  # noqa: B010  it is patched
            for kind in {kind for module in model.modules() for kind in type(module).__mro__}:
                forward = kind.__dict__.get("forward")
                if forward is not None and _is_patchable(kind, forward):
                    patched.append((kind, forward))
                    kind.forward = self._seen(forward)  # pyright: ignore[reportAttributeAccessIssue]
            yield
        finally:
            for kind, forward in patched:
                kind.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
            setattr(torch.nn.Module, "__call__", called)  # noqa: B010

    def _seen(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """`forward`, which may be called without its module being called, and is then seen too."""

        @functools.wraps(forward)
        def run(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                wait_for_capture(module, (args, kwargs))
                return forward(module, *args, **kwargs)
            innermost = self._running[-1] if self._running else None
            if innermost and innermost.module == id(module) and not innermost.is_in_forward:
                innermost.is_in_forward = True
                return forward(module, *args, **kwargs)
            path = self._path_of(module)
            if innermost is None or innermost.module != id(module):
                # Else it is the forward of a base class, which its own calls.
                self._count(path)
            self._push(_Running(id(module), path, is_in_forward=True))
            try:
                return forward(module, *args, **kwargs)
            finally:
                self._pop()

        return run

    def _called(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, which runs a module with all of its hooks, seen."""

        @functools.wraps(call)
        def run(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                if id(module) in self._paths and not wait_for_capture(module, (args, kwargs)):
                    # The mode that records is of one thread: what this one calls is not seen.
                    self.elsewhere = self._paths[id(module)]
                return call(module, *args, **kwargs)
            path = self._path_of(module)
            self._count(path)
            self._push(_Running(id(module), path, is_in_forward=False))
            try:
                return call(module, *args, **kwargs)
            finally:
                self._pop()

        return run

    def _count(self, path: str) -> None:
        self.calls[path] = self.calls.get(path, 0) + 1

    def _push(self, running: _Running) -> None:
        self._running.append(running)
        self._note_nodes()

    def _pop(self) -> None:
        self._running.pop()
        self._note_nodes()

    def _note_nodes(self) -> None:
        if torch.is_grad_enabled():
            self._first_nodes.append(_next_node())
            self._paths_of_nodes.append(self.path)

    def _path_of(self, module: torch.nn.Module) -> str:
        path = self._paths.get(id(module))
        if path is None:
            # Made during the forward pass, or kept where torch does not look: named by its class.
            path = f"{self.path}.<{type(module).__name__}>".lstrip(".")
            if module.training and isinstance(module, _CHANGED_BY_TRAINING):
                self.in_training.add(path)
        return path


_next_node: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr")  # noqa: B009  it is not exported
"""The number that the next node of the graph will have."""


def _is_patchable(kind: type, forward: Any) -> bool:
    return (
        isinstance(forward, types.FunctionType)
        and issubclass(kind, torch.nn.Module)
        and kind is not torch.nn.Module
        and not issubclass(kind, torch.jit.ScriptModule)
    )
