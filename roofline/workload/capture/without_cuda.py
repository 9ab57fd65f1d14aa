"""Fakes on CUDA where torch has none: the parts of torch that ask for a device go without it.

Fakes need no device, but some of torch's C++ takes hold of the device of a tensor before it looks
whether there is one: indexing raises for it, and autograd ends the process.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from roofline.errors import ModelError
from roofline.workload.runs import Run

_CPU, _CUDA = torch.device("cpu"), torch.device("cuda", 0)


@contextlib.contextmanager
def made_up_for(run: Run) -> Iterator[None]:
    """Lets fakes on CUDA be indexed, and keeps a model from differentiating them.

    Does nothing where torch has CUDA, or the run is not for it.
    """
    if run.device != "cuda" or torch.cuda.is_available():
        yield
        return
    with warnings.catch_warnings(), _methods(), _no_gradients(), _no_kernels():
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


_ASKING = (
    *("__getitem__", "__setitem__", "__invert__", "__index__", "__int__", "__float__"),
    *("__complex__", "contiguous", "copy_"),
)
"""Methods of tensors that take hold of the device, whatever they do."""


def _to(self: FakeTensor, *args: Any, **options: Any) -> Any:
    """What Tensor.to does, which asks CUDA which of its devices "cuda" is."""
    options = {name: _numbered(value) for name, value in options.items()}
    return torch.Tensor.to(self, *map(_numbered, args), **options)


def _numbered(value: Any) -> Any:
    return _CUDA if isinstance(value, (str, torch.device)) and str(value) == "cuda" else value


def _cuda(self: FakeTensor, *_args: Any, **_options: Any) -> Any:
    return torch.Tensor.to(self, _CUDA)


def _new_tensor(self: FakeTensor, data: Any, **options: Any) -> Any:
    """What Tensor.new_tensor does, which asks only torch.tensor to."""
    return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **options})


def _not_asking(method: str) -> Callable[..., Any]:
    """The method of that name, which finds its tensors on the CPU."""
    original = getattr(torch.Tensor, method)

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _OnCpu():
            return original(*args, **kwargs)

    return called


@contextlib.contextmanager
def _methods() -> Iterator[None]:
    # A mode for torch functions would see them too, but would switch torch's fast paths off.
    methods = {each: _not_asking(each) for each in _ASKING}
    methods |= {"to": _to, "cuda": _cuda, "new_tensor": _new_tensor}
    for name, method in methods.items():
        setattr(FakeTensor, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(FakeTensor, name)


@contextlib.contextmanager
def _no_gradients() -> Iterator[None]:
    """Refuses a model that switches gradients on: the first node of a graph ends the process."""
    core: Any = torch._C
    switch, thread = core._set_grad_enabled, threading.get_ident()

    def set_grad_enabled(is_wanted: bool) -> Any:
        if is_wanted and threading.get_ident() == thread:
            raise ModelError(
                "the model switches gradients on, and this torch has no CUDA to differentiate for;"
                " leave --device out, the operators of a CPU do the same arithmetic"
            )
        return switch(is_wanted)

    core._set_grad_enabled = set_grad_enabled
    try:
        yield
    finally:
        core._set_grad_enabled = switch


_GRU_CELL = torch.ops.aten._thnn_fused_gru_cell.default
"""Only CUDA has it, and it has no kernel that finds shapes."""


@contextlib.contextmanager
def _no_kernels() -> Iterator[None]:
    """Operators without a kernel for fakes are run to see what they return: on the CPU, then."""
    run_for_real = fake_tensor.run_fallback_kernel

    def run_on_cpu(mode: Any, func: Any, values: Sequence[Any], spec: Any, error: Any) -> Any:
        device = next((e.device for e in values if isinstance(e, FakeTensor)), _CPU)
        if device.type != "cuda":
            return run_for_real(mode, func, values, spec, error)
        if func is _GRU_CELL:
            batch, width = values[2].shape
            # The new state, and five numbers a cell that its gradient needs.
            return values[2].new_empty((batch, width)), values[2].new_empty((batch, 5 * width))
        moved = [_moved(mode, each, _CPU) for each in values]
        given = {id(each): value for each, value in zip(moved, values, strict=True)}
        result = run_for_real(mode, func, moved, spec, error)
        # What it writes, it returns.
        return tree_map(lambda each: given.get(id(each), _moved(mode, each, device)), result)

    fake_tensor.run_fallback_kernel = run_on_cpu
    try:
        yield
    finally:
        fake_tensor.run_fallback_kernel = run_for_real


def _moved(mode: Any, value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.device):
        return device
    if not isinstance(value, FakeTensor):
        return value
    form = value.shape, value.stride()
    return FakeTensor(mode, torch.empty_strided(*form, dtype=value.dtype, device="meta"), device)
