"""The stack of running modules, which gives each operator its module path."""

from __future__ import annotations

import bisect
import contextlib
import functools
import sys
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from roofline.errors import ModelError

_POLL_S = 0.05
"""Interval between checks of another thread."""

_STUCK_S = 2.0
"""A capturing thread at one instruction for this long is taken to wait for the waiting thread."""

TIMEOUT_S = 30.0
"""Time limit for a pass that another thread has begun."""

_CALLS = frozenset(
    each.__code__ for each in (torch.nn.Module._call_impl, torch.nn.Module._wrapped_call_impl)
)
"""Code objects on the stack while a module runs."""


class _Guard:
    """A model whose tensors are replaced; ``workers`` are threads of the captured pass."""

    def __init__(self, modules: Collection[int]) -> None:
        self.over = threading.Event()
        self._modules = modules
        self._owner = threading.get_ident()
        self._is_armed = False
        self.workers: set[int] = set()

    def wait(self, module: torch.nn.Module, given: Any) -> bool | None:
        """Wait in a thread other than the capturing one until `module` has its own tensors again.

        Return False if it runs at once as part of the captured pass (with tensors of the pass, or
        if the pass waits for it), None if there is nothing to wait for.
        """
        thread = threading.get_ident()
        if thread == self._owner or id(module) not in self._modules:
            return None
        if not self._is_armed and self._is_inside(sys._getframe()):
            # Its pass began before the capture, which waits for it.
            return True
        if not self._is_worker(thread, given):
            return True
        self.workers.add(thread)
        return False

    def _is_worker(self, thread: int, given: Any) -> bool:
        if (
            thread in self.workers
            or any(type(each) is FakeTensor for each in pytree.tree_leaves(given))
            # Not a Python thread: autograd has its own threads.
            or all(each.ident != thread for each in threading.enumerate())
        ):
            return True
        at, since = None, time.monotonic()
        while not self.over.wait(_POLL_S):
            frame = sys._current_frames().get(self._owner)
            now = (id(frame), frame.f_lasti) if frame is not None else None
            if now != at:
                at, since = now, time.monotonic()
            elif time.monotonic() - since > _STUCK_S:
                return True
        return False

    def wait_for_others(self, name: str) -> None:
        """Wait until no other thread runs the model; ModelError after a time limit."""
        begin = time.monotonic()
        while any(
            self._is_inside(frame)
            for thread, frame in sys._current_frames().items()
            if thread != self._owner
        ):
            if time.monotonic() - begin > TIMEOUT_S:
                raise ModelError(
                    f"{name} is running in another thread; wait until it has finished, or pass a"
                    " copy (copy.deepcopy)"
                )
            time.sleep(_POLL_S)
        self._is_armed = True

    def _is_inside(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code in _CALLS and id(frame.f_locals.get("self")) in self._modules:
                return True
            frame = frame.f_back
        return False


_guards: list[_Guard] = []


def wait_for_capture(module: torch.nn.Module, given: Any) -> bool:
    """Wait until `module` has its own tensors; return False if it is part of the captured pass."""
    waits = [guard.wait(module, given) for guard in tuple(_guards)]
    return any(waits) and False not in waits


def is_capture_worker() -> bool:
    """Return whether this thread runs part of a pass captured in another one."""
    return any(threading.get_ident() in guard.workers for guard in tuple(_guards))


@contextlib.contextmanager
def block_other_threads(model: torch.nn.Module) -> Iterator[None]:
    """Make other threads that call a module of `model` wait."""
    guard = _Guard(frozenset(map(id, model.modules())))
    called: Callable[..., Any] = torch.nn.Module.__call__

    @functools.wraps(called)
    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # Dynamo traces this call into its graphs, where nothing may wait.
        if not torch.compiler.is_compiling():
            guard.wait(module, (args, kwargs))
        return called(module, *args, **kwargs)

    _guards.append(guard)
    try:
        with mock.patch.object(torch.nn.Module, "__call__", call):
            guard.wait_for_others(type(model).__name__)
            yield
    finally:
        _guards.remove(guard)
        guard.over.set()


_WRAPPED = "_orig_mod"
"""Attribute under which torch.compile keeps the original module."""


def is_compiled(module: torch.nn.Module) -> bool:
    """Return whether a module is wrapped by torch.compile, or compiled in place."""
    return _WRAPPED in module._modules or module._compiled_call_impl is not None


def without_compile_wrapper(path: str) -> str:
    """Return the path of a module without the wrappers of torch.compile."""
    return ".".join(each for each in path.split(".") if each != _WRAPPED)


_CHANGED_BY_TRAINING = (
    torch.nn.modules.batchnorm._BatchNorm,
    torch.nn.modules.dropout._DropoutNd,
)
"""Modules that behave differently in training mode."""


@dataclass(slots=True)
class _Running:
    module: int
    path: str
    is_in_forward: bool


class ModuleStack:
    """The running modules, innermost last.

    Both calls of modules, with their hooks, and calls of ``forward`` alone are tracked. ``paths``
    maps identities of registered modules to paths. ``other_thread_module`` is the path of one that
    ran in an unrecorded thread. ``in_training`` names unregistered modules in training mode.
    ``owners`` maps parameters, by identity, to module paths. ``calls`` counts calls by path, in the
    order of first calls.

    The backward pass runs no modules: its operators belong to the module whose forward pass made
    the current graph node. Nodes have increasing numbers, so the innermost module is known by the
    number of its first node.
    """

    def __init__(self, paths: Mapping[int, str]) -> None:
        self.other_thread_module: str | None = None
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
        """Path of the innermost running module; ``""`` for the model itself."""
        return self._running[-1].path if self._running else ""

    @property
    def is_module_running(self) -> bool:
        """True if a module is running; in the backward pass, one that is recomputed."""
        return bool(self._running)

    def path_of_node(self) -> str:
        """Return the path of the module whose forward pass made the current autograd node."""
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        if (parameter := getattr(node, "variable", None)) is not None:
            return self.owners.get(id(parameter), "")
        number = bisect.bisect_right(self._first_nodes, node._sequence_nr())
        return self._paths_of_nodes[number - 1] if number else ""

    def note_parameter_owners(self, model: torch.nn.Module) -> None:
        """Record the module of each parameter of `model`; tied ones belong to the first module."""
        for path, module in model.named_modules():
            for each in module.parameters(recurse=False):
                self.owners.setdefault(id(each), without_compile_wrapper(path))

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Assign operators outside of modules to a part of that `name`."""
        self._push(_Running(0, name, is_in_forward=True))
        try:
            yield
        finally:
            self._pop()

    @contextlib.contextmanager
    def watch(self, model: torch.nn.Module) -> Iterator[None]:
        """Track the modules that run."""
        # Global module hooks would see less: they run before a module's own hooks.
        seen: list[tuple[type, str]] = [(torch.nn.Module, "__call__")]
        for kind in {kind for module in model.modules() for kind in type(module).__mro__}:
            is_model = issubclass(kind, torch.nn.Module) and kind is not torch.nn.Module
            is_script = issubclass(kind, torch.jit.ScriptModule)
            is_plain = isinstance(kind.__dict__.get("forward"), types.FunctionType)
            if is_plain and is_model and not is_script:
                seen.append((kind, "forward"))
        with contextlib.ExitStack() as after:
            for kind, name in seen:
                function = getattr(kind, name)
                setattr(kind, name, self._seen(function, is_forward=name == "forward"))
                after.callback(setattr, kind, name, function)
            yield

    def _seen(self, function: Callable[..., Any], *, is_forward: bool) -> Callable[..., Any]:
        """Return a tracked `function`: a module's call with its hooks, or its forward alone."""

        @functools.wraps(function)
        def run(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                is_known = is_forward or id(module) in self._paths
                if is_known and not wait_for_capture(module, (args, kwargs)) and not is_forward:
                    # The recording mode is active in one thread only.
                    self.other_thread_module = self._paths[id(module)]
                return function(module, *args, **kwargs)
            innermost = self._running[-1] if self._running else None
            is_again = False
            if is_forward and innermost is not None and innermost.module == id(module):
                if not innermost.is_in_forward:
                    innermost.is_in_forward = True
                    return function(module, *args, **kwargs)
                is_again = True
            path = self._path_of(module)
            # A repeated forward is that of a base class, called by the module's own.
            self.calls[path] = self.calls.get(path, 0) + (not is_again)
            self._push(_Running(id(module), path, is_in_forward=is_forward))
            try:
                return function(module, *args, **kwargs)
            finally:
                self._pop()

        return run

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
            # Created during the forward pass, or not registered: named by its class.
            path = f"{self.path}.<{type(module).__name__}>".lstrip(".")
            if module.training and isinstance(module, _CHANGED_BY_TRAINING):
                self.in_training.add(path)
        return path


_next_node: Callable[[], int] = getattr(torch.autograd, "_get_sequence_nr")  # noqa: B009  it is not exported
"""The number that the next node of the graph will have."""
