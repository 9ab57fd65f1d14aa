"""Other threads that run a model while its own tensors are away: they wait until these are back."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from roofline.errors import ModelError

_POLL_S = 0.05
"""Between two looks at another thread."""

_STUCK_S = 2.0
"""A capturing thread that stands at one instruction for so long waits for the one that waits."""

PATIENCE_S = 30.0
"""How long a pass that another thread has begun may take."""

_CALLS = frozenset(
    each.__code__ for each in (torch.nn.Module._call_impl, torch.nn.Module._wrapped_call_impl)
)
"""The code in which a module is while it runs."""


class _Guard:
    """One model whose tensors are away, or about to be; ``workers`` are threads of its own pass.

    Args:
        modules: identities of its modules.
    """

    def __init__(self, modules: Collection[int]) -> None:
        self.over = threading.Event()
        self._modules = modules
        self._owner = threading.get_ident()
        self._is_armed = False
        self.workers: set[int] = set()

    def wait(self, module: torch.nn.Module, given: Any) -> bool | None:
        """Waits until `module` has its own tensors, in any thread but the one that captures.

        Args:
            module: about to run.
            given: what it is called with.

        Returns:
            False where it runs at once, as a part of what is captured: it is given tensors of the
            pass, or the pass waits for it. None where there was nothing to wait for.
        """
        thread = threading.get_ident()
        if thread == self._owner or id(module) not in self._modules:
            return None
        if not self._is_armed and self._is_inside(sys._getframe()):
            # The pass that it belongs to began before, and is waited for.
            return True
        if not self._is_worker(thread, given):
            return True
        self.workers.add(thread)
        return False

    def _is_worker(self, thread: int, given: Any) -> bool:
        if thread in self.workers:
            return True
        if any(type(each) is FakeTensor for each in pytree.tree_leaves(given)):
            return True
        if all(each.ident != thread for each in threading.enumerate()):
            # Not of Python: autograd has threads of its own.
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
        """Waits until no other thread is within the model.

        Raises:
            ModelError: one is for too long.
        """
        begin = time.monotonic()
        while any(
            self._is_inside(frame)
            for thread, frame in sys._current_frames().items()
            if thread != self._owner
        ):
            if time.monotonic() - begin > PATIENCE_S:
                raise ModelError(
                    f"{name} is running in another thread, and cannot be captured meanwhile; wait"
                    " until that is done, or give a copy (copy.deepcopy)"
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
    """Waits, in a thread that captures nothing, until `module` has its own tensors.

    Args:
        module: about to run.
        given: what it is called with.

    Returns:
        Whether it did; else the module runs at once, as a part of what is captured.
    """
    waits = [guard.wait(module, given) for guard in tuple(_guards)]
    return any(waits) and False not in waits


def works_for_capture() -> bool:
    """Whether this thread runs a part of what is captured in another one."""
    return any(threading.get_ident() in guard.workers for guard in tuple(_guards))


@contextlib.contextmanager
def others_wait(model: torch.nn.Module) -> Iterator[None]:
    """While this is open, other threads that call a module of `model` wait for its end.

    Raises:
        ModelError: another thread is running it, and does not come to an end.
    """
    guard = _Guard(frozenset(map(id, model.modules())))
    called: Callable[..., Any] = torch.nn.Module.__call__

    @functools.wraps(called)
    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # Dynamo follows this call into its graphs, where nothing waits.
        if not torch.compiler.is_compiling():
            guard.wait(module, (args, kwargs))
        return called(module, *args, **kwargs)

    _guards.append(guard)
    setattr(torch.nn.Module, "__call__", call)  # noqa: B010  it is patched
    try:
        guard.wait_for_others(type(model).__name__)
        yield
    finally:
        setattr(torch.nn.Module, "__call__", called)  # noqa: B010
        _guards.remove(guard)
        guard.over.set()
