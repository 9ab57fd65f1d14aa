"""Fakes on CUDA where torch has none: the parts of torch that ask for a device go without it.

Fakes need no device, but some of torch's C++ takes hold of the device of a tensor before it looks
whether there is one: indexing raises for it, and autograd ends the process.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from roofline.errors import ModelError
from roofline.workload.runs import Run

_CPU = torch.device("cpu")


@contextlib.contextmanager
def made_up_for(run: Run) -> Iterator[None]:
    """Lets fakes on CUDA be indexed, and keeps a model from differentiating them.

    Does nothing where torch has CUDA, or the run is not for it.
    """
    if run.device != "cuda" or torch.cuda.is_available():
        yield
        return
    with warnings.catch_warnings(), _indexing(), _no_gradients():
        # Of recurrent layers, which ask for it whenever their weights are others.
        warnings.filterwarnings("ignore", message="PyTorch was compiled without cuDNN")
        yield


class _OnCpu(TorchDispatchMode):
    """Tensors say that they are on the CPU to the C++ that asks; operators see where they are."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return _CPU
        return func(*args, **(kwargs or {}))


def _item(self: FakeTensor, index: Any) -> Any:
    with _OnCpu():
        return torch.Tensor.__getitem__(self, index)


def _set_item(self: FakeTensor, index: Any, value: Any) -> None:
    with _OnCpu():
        torch.Tensor.__setitem__(self, index, value)


@contextlib.contextmanager
def _indexing() -> Iterator[None]:
    # A mode for torch functions would see it too, but would switch torch's fast paths off.
    kind: Any = FakeTensor
    kind.__getitem__, kind.__setitem__ = _item, _set_item
    try:
        yield
    finally:
        del kind.__getitem__, kind.__setitem__


@contextlib.contextmanager
def _no_gradients() -> Iterator[None]:
    """Refuses a model that switches gradients on: the first node of a graph ends the process."""
    core: Any = torch._C
    switch, inference_mode = core._set_grad_enabled, core._InferenceMode
    thread = threading.get_ident()

    def refuse(is_wanted: bool) -> None:
        if is_wanted and threading.get_ident() == thread:
            raise ModelError(
                "the model switches gradients on, and this torch has no CUDA to differentiate for;"
                " leave --device out, the operators of a CPU do the same arithmetic"
            )

    def set_grad_enabled(is_wanted: bool) -> Any:
        refuse(is_wanted)
        return switch(is_wanted)

    def set_inference_mode(is_wanted: bool) -> Any:
        refuse(not is_wanted)
        return inference_mode(is_wanted)

    core._set_grad_enabled, core._InferenceMode = set_grad_enabled, set_inference_mode
    try:
        yield
    finally:
        core._set_grad_enabled, core._InferenceMode = switch, inference_mode
