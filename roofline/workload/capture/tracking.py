"""Records what code does while it runs: the real operators, on the real tensors."""

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
"""What is there before the code runs, and after."""


class _OriginalTensors:
    """The code's own tensors: nothing stands in their place, and what they are is found out.

    Has what `Fakes` has, as far as a recorder asks for it. What no operator made is a parameter if
    torch says so, else an input.
    """

    def __init__(self) -> None:
        self.roles: dict[int, Role] = {}
        self.held: dict[int, StorageUse] = {}
        self.devices: set[str] = set()
        self._results: set[int] = set()

    def known(self, tensor: torch.Tensor, role: Role) -> None:
        """What a tensor that no operator made is, unless that is known, and how much it takes."""
        if tensor.layout is not torch.strided:
            return
        _check_shape(tensor)
        address = tensor.untyped_storage()._cdata
        if address not in self._results:
            self.roles.setdefault(address, role)
            add_use(self.held, tensor)

    def replace_in(self, value: Any) -> Any:
        """`value` itself."""
        for each in tensors_in(value):
            is_parameter = isinstance(each, torch.nn.Parameter)
            self.known(each, Role.PARAMETER if is_parameter else Role.INPUT)
        return value

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator `func` gives."""
        result = func(*args, **kwargs)
        for each in tensors_in(result):
            self.devices.add(each.device.type)
            if each.layout is torch.strided:
                _check_shape(each)
                self._results.add(each.untyped_storage()._cdata)
        return result


def _check_shape(tensor: torch.Tensor) -> None:
    """Refuses a nested tensor, which has no shape."""
    if tensor.is_nested:
        raise ModelError(
            "the code makes a nested tensor, and those cannot be counted; where it is torch's fast"
            " path for transformers, torch.backends.mha.set_fastpath_enabled(False) turns that off"
        )


class _Tracker(Recorder):
    """A recorder that finds out itself which part of a training step runs."""

    is_updating = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._current_autograd_node() is not None:
            self.enter("backward")
        else:
            self.enter("optimizer" if self.is_updating else "forward")
        return super().__torch_dispatch__(func, types, args, kwargs)


class Tracking:
    """What ran so far, and what it was run on.

    The modules and parameters of ``model`` are told apart; without one, parameters are those that
    are touched, and modules are named by their classes.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        self._model = model if model is not None else torch.nn.Module()
        self._tensors = _OriginalTensors()
        self._modules = ModuleStack(module_paths(self._model))
        # A recorder asks of what stands for tensors only what these have.
        self._recorder = _Tracker(
            self._tensors,  # pyright: ignore[reportArgumentType]
            self._modules,
            Operands(self._tensors.roles),
        )
        self._optimizer = ""

    @property
    def records(self) -> tuple[OperatorRecord, ...]:
        """Every operator that ran, in its order."""
        self._recorder.note_dropped()
        return tuple(self._recorder.records)

    @property
    def run(self) -> Run:
        """How it was run, as far as that can be seen."""
        is_training = any(each.phase == "backward" for each in self._recorder.records)
        return Run(
            device="cuda" if "cuda" in self._tensors.devices else "cpu",
            train=is_training,
            optimizer=self._optimizer if is_training else "",
        )

    @property
    def parameters(self) -> int:
        """The elements of the parameters, each place once."""
        return sum(each.elements for each in self._of(Role.PARAMETER))

    @property
    def kept_bytes(self) -> int:
        """The bytes of what is there from before on: parameters, buffers, inputs, states."""
        return sum(each.used_bytes for each in self._of(*_KEPT))

    def _of(self, *roles: Role) -> Iterator[StorageUse]:
        held = self._tensors.held.items()
        return (each for address, each in held if self._tensors.roles[address] in roles)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """While this is open, what this thread runs is recorded; torch is as it was after it."""
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
                f"module '{self._modules.other_thread_module}' ran in another thread, whose operators cannot"
                " be seen; run it in the thread of the `with` block"
            )

    def _note_tensors(self, model: torch.nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if is_lazy(parameter):
                raise ModelError(
                    f"parameter '{name}' is lazy and has no shape yet; run the model once on a real"
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
        for path, module in self._model.named_modules():
            own = list(module.parameters(recurse=False))
            if own:
                self._recorder.own(own, without_compile_wrapper(path))

    def _after_update(self, *_: Any) -> None:
        self._recorder.is_updating = False


@contextlib.contextmanager
def _force_eager() -> Iterator[None]:
    """While this is open, what torch.compile made before runs as eager torch does.

    What is called for the first time torch runs so by itself, where somebody looks on.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    try:
        stance = torch.compiler.set_stance("force_eager")
    except RuntimeError:
        raise ModelError(
            "roofline.track sees nothing from inside what torch.compile made; put the `with` block"
            " around the call of it"
        ) from None
    with stance:
        yield
