"""Recording of code that runs on its own: real operators on the code's own tensors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from roofline.errors import ModelError
from roofline.run import Run
from roofline.workload.capture.module_stack import ModuleStack, without_compile_wrapper
from roofline.workload.capture.operands import (
    Operands,
    StorageUse,
    add_use,
    cache_unpacked,
    packed_tensors,
    tensors_in,
)
from roofline.workload.capture.passes import capture_lock, module_paths
from roofline.workload.capture.recorder import Recorder
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role

_KEPT = (Role.PARAMETER, Role.BUFFER, Role.INPUT, Role.OPTIMIZER_STATE)
"""Roles of tensors that exist before and after the code runs."""


class _OriginalTensors:
    """The code's own tensors, not replaced, with roles found while it runs.

    Has the attributes of `ReplacementTensors` that a recorder uses. A tensor that no operator made
    is a parameter if it is a `torch.nn.Parameter`, else an input.
    """

    def __init__(self) -> None:
        self.roles: dict[int, Role] = {}
        self.held: dict[int, StorageUse] = {}
        self.devices: set[str] = set()
        self._results: set[int] = set()

    def known(self, tensor: torch.Tensor, role: Role) -> None:
        """Register the role, if new, and the size of a tensor that no operator made."""
        if tensor.layout is not torch.strided:
            return
        _check_shape(tensor)
        address = tensor.untyped_storage()._cdata
        if address not in self._results:
            self.roles.setdefault(address, role)
            add_use(self.held, tensor)

    def replace_in(self, value: Any) -> Any:
        """Return `value` itself, its tensors registered."""
        for each in tensors_in(value):
            is_parameter = isinstance(each, torch.nn.Parameter)
            self.known(each, Role.PARAMETER if is_parameter else Role.INPUT)
        return value

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the operator `func`."""
        result = func(*args, **kwargs)
        for each in tensors_in(result):
            self.devices.add(each.device.type)
            if each.layout is torch.strided:
                _check_shape(each)
                self._results.add(each.untyped_storage()._cdata)
        return result


def _check_shape(tensor: torch.Tensor) -> None:
    """Reject nested tensors, which have no shape."""
    if tensor.is_nested:
        raise ModelError(
            "nested tensors are not supported; if torch's fast path for transformers makes them,"
            " turn it off with torch.backends.mha.set_fastpath_enabled(False)"
        )


class _Tracker(Recorder):
    """A recorder that detects the phase of a training step itself."""

    is_updating = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._current_autograd_node() is not None:
            self.enter("backward")
        else:
            self.enter("optimizer" if self.is_updating else "forward")
        return super().__torch_dispatch__(func, types, args, kwargs)


class Tracking:
    """The operators that ran so far, and their tensors.

    With ``model``, records carry its module paths and parameters. Without, parameters are those
    used, and modules are named by their classes.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        self._model = model if model is not None else torch.nn.Module()
        self._tensors = _OriginalTensors()
        self._modules = ModuleStack(module_paths(self._model))
        # These have all attributes that a recorder uses.
        self._recorder = _Tracker(
            self._tensors,  # pyright: ignore[reportArgumentType]
            self._modules,
            Operands(self._tensors.roles),
        )
        self._optimizer = ""

    @property
    def records(self) -> tuple[OperatorRecord, ...]:
        """Every operator that ran, in order."""
        self._recorder.note_dropped()
        return tuple(self._recorder.records)

    @property
    def run(self) -> Run:
        """Device, mode and optimizer of the run, as far as visible."""
        is_training = any(each.phase == "backward" for each in self._recorder.records)
        return Run(
            device="cuda" if "cuda" in self._tensors.devices else "cpu",
            train=is_training,
            optimizer=self._optimizer if is_training else "",
        )

    @property
    def parameters(self) -> int:
        """Number of parameters, each place in memory once."""
        return sum(each.elements for each in self._of(Role.PARAMETER))

    @property
    def kept_bytes(self) -> int:
        """Size of parameters, buffers, inputs and optimizer state, in bytes."""
        return sum(each.used_bytes for each in self._of(*_KEPT))

    def _of(self, *roles: Role) -> Iterator[StorageUse]:
        held = self._tensors.held.items()
        return (each for address, each in held if self._tensors.roles[address] in roles)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Record the operators of this thread; restore torch afterwards."""
        with contextlib.ExitStack() as open_now:
            open_now.enter_context(capture_lock)
            open_now.enter_context(cache_unpacked())
            open_now.enter_context(_force_eager())
            open_now.callback(register_optimizer_step_pre_hook(self._before_update).remove)
            open_now.callback(register_optimizer_step_post_hook(self._after_update).remove)
            self._note_tensors(self._model)
            self._modules.note_parameter_owners(self._model)
            open_now.enter_context(self._modules.watch(self._model))
            open_now.enter_context(self._recorder)
            yield
        if self._modules.other_thread_module is not None:
            raise ModelError(
                f"module '{self._modules.other_thread_module}' ran in another thread, where"
                " operators are not recorded; run it in the thread of the `with` block"
            )

    def _note_tensors(self, model: torch.nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if is_lazy(parameter):
                raise ModelError(
                    f"parameter '{name}' is lazy and uninitialized; run the model once on a real"
                    " input first"
                )
        for role, tensors in (
            (Role.PARAMETER, (*model.parameters(), *packed_tensors(model.modules()))),
            (Role.BUFFER, model.buffers()),
        ):
            for each in tensors:
                self._tensors.known(each, role)

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._optimizer = type(optimizer).__name__.lower()
        self._recorder.is_updating = True
        for each in tensors_in(dict(optimizer.state)):
            self._tensors.known(each, Role.OPTIMIZER_STATE)
        # Tied parameters belong to the first module, as in `note_parameter_owners`.
        for path, module in reversed(list(self._model.named_modules())):
            own = list(module.parameters(recurse=False))
            if own:
                self._recorder.own(own, without_compile_wrapper(path))

    def _after_update(self, *_: Any) -> None:
        self._recorder.is_updating = False


@contextlib.contextmanager
def _force_eager() -> Iterator[None]:
    """Run code that torch.compile compiled earlier as eager torch.

    Under a dispatch mode, torch does not compile new code.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    try:
        stance = torch.compiler.set_stance("force_eager")
    except RuntimeError:
        raise ModelError(
            "roofline.track does not work inside compiled code; put the `with` block around the"
            " call of the compiled function"
        ) from None
    with stance:
        yield
