"""Fake CUDA tensors in a torch without CUDA: torch's own choices for CUDA, without a device.

Fake tensors need no device, but some of torch's C++ code uses the device guard of a tensor before
it checks for fakes. Builds with CUDA have a guard that does nothing, for `FakeTensorMode`; in a
build without CUDA, that of the meta device is registered. Composite operators, autocast and
autograd then treat these fakes as CUDA tensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from roofline.run import Run

_aten = torch.ops.aten
_CPU, _CUDA = torch.device("cpu"), torch.device("cuda", 0)

_CUDA_TYPE, _META_TYPE = 1, 14
"""Numbers of device types, equal in all versions of torch, which writes them into files."""

_AMPERE = (8, 0)
"""Compute capability by which models choose kernels: the first with bfloat16."""


def can_capture_cuda() -> bool:
    """Return whether models can be captured for CUDA: torch has CUDA, or it can be emulated."""
    return torch.cuda.is_available() or torch.version.cuda is not None or bool(_guards())


@functools.cache
def _guards() -> Any:
    """Return torch's registry of device guards, an address per device type; None if not found.

    The symbol is the Itanium mangling of `c10::impl::device_guard_impl_registry`; Windows has
    another.
    """
    name = {"linux": "libc10.so", "darwin": "libc10.dylib"}.get(sys.platform)
    if name is None:
        return None
    file = Path(torch.__file__).parent / "lib" / name
    try:
        library = ctypes.CDLL(str(file))
        guards = (ctypes.c_void_p * (_META_TYPE + 1)).in_dll(
            library, "_ZN3c104impl26device_guard_impl_registryE"
        )
    except (OSError, ValueError):
        return None
    return guards if guards[_META_TYPE] else None


@contextlib.contextmanager
def _without_hooks() -> Iterator[None]:
    """Make a build with CUDA look like one without, for the autograd engine.

    The engine asks for the streams of all devices, of which the guard of fakes reports one, and
    torch then raises without a device. The hooks of a build without CUDA are the base class: their
    table of virtual functions replaces the other one.
    """
    file = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(file))
        find_hooks = library._ZN2at6detail12getCUDAHooksEv
        base = ctypes.c_void_p.in_dll(library, "_ZTVN2at18CUDAHooksInterfaceE")
    except (OSError, ValueError, AttributeError):
        yield
        return
    find_hooks.restype = ctypes.c_void_p
    table = ctypes.c_void_p.from_address(find_hooks())
    original = table.value
    # Two pointers stand before the first function (Itanium ABI).
    table.value = ctypes.addressof(base) + 2 * ctypes.sizeof(ctypes.c_void_p)
    try:
        yield
    finally:
        table.value = original


@contextlib.contextmanager
def emulate_cuda(run: Run) -> Iterator[None]:
    """Make torch treat fake CUDA tensors as real ones, if it has no CUDA."""
    if run.device != "cuda" or torch.cuda.is_available():
        yield
        return
    engine: Any = torch.autograd
    in_this_thread: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (engine, "_engine_run_backward", _run_backward(engine._engine_run_backward)),
        (fake_tensor, "run_fallback_kernel", _run_fallback_on_cpu(fake_tensor.run_fallback_kernel)),
        # Queries of torch.autocast and of models, which need no device then.
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        (torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
        (torch.cuda, "get_device_capability", lambda device=None: _AMPERE),
        (torch.cuda, "synchronize", lambda device=None: None),
        (torch._C, "_conv_determine_backend_memory_format", _format_of_convolution),
    )
    guards = _guards()
    with warnings.catch_warnings(), contextlib.ExitStack() as after:
        # A warning of recurrent layers whenever their weights are replaced.
        warnings.filterwarnings("ignore", message="PyTorch was compiled without cuDNN")
        if guards is not None and not guards[_CUDA_TYPE]:
            guards[_CUDA_TYPE] = guards[_META_TYPE]
            after.callback(guards.__setitem__, _CUDA_TYPE, None)
        # cuDNN's recurrent layers read the properties of a device.
        after.callback(torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled())
        torch._C._set_cudnn_enabled(False)
        # A torch function mode would work too, but turns off torch's fast paths.
        for name, method in (("to", _to), ("cuda", _cuda), ("new_tensor", _new_tensor)):
            setattr(FakeTensor, name, method)
            after.callback(delattr, FakeTensor, name)
        for owner, name, ours in in_this_thread:
            original = getattr(owner, name)
            setattr(owner, name, _in_this_thread(ours, original))
            after.callback(setattr, owner, name, original)
        # Makes optimizers choose foreach updates, as they do on CUDA.
        types: list[type] = _foreach_supported_types
        types.append(FakeTensor)
        after.callback(types.remove, FakeTensor)
        library = torch.library.Library("aten", "IMPL")
        # Not the key of CUDA itself: autograd must see the kernels' operators.
        library.impl("scaled_dot_product_attention", _attention, "AutogradCUDA")
        after.callback(library._destroy)
        yield


def _in_this_thread(ours: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `ours` in this thread and process, else `original`."""
    here = threading.get_ident(), os.getpid()

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        is_here = (threading.get_ident(), os.getpid()) == here
        return (ours if is_here else original)(*args, **kwargs)

    return called


def _to(self: FakeTensor, *args: Any, **options: Any) -> Any:
    """Act as Tensor.to without its query for the current CUDA device."""
    options = {name: _numbered(value) for name, value in options.items()}
    return torch.Tensor.to(self, *map(_numbered, args), **options)


def _format_of_convolution(
    image: torch.Tensor, weight: torch.Tensor, backend: Any
) -> torch.memory_format:
    """Return the memory format of a result as cuDNN chooses it: here the CPU would be asked."""
    del backend
    formats = (suggest_memory_format(image), suggest_memory_format(weight))
    is_last = image.dim() == 4 and torch.channels_last in formats and image.dtype != torch.float64
    return torch.channels_last if is_last else torch.contiguous_format


def _numbered(value: Any) -> Any:
    return _CUDA if isinstance(value, (str, torch.device)) and str(value) == "cuda" else value


def _cuda(self: FakeTensor, *_args: Any, **_options: Any) -> Any:
    return torch.Tensor.to(self, _CUDA)


def _new_tensor(self: FakeTensor, data: Any, **options: Any) -> Any:
    """Act as Tensor.new_tensor, by torch.tensor."""
    return torch.tensor(data, **{"dtype": self.dtype, "device": self.device, **options})


# -- autograd --------------------------------------------------------------------------------------


class _OnCpu(TorchDispatchMode):
    """Reports the CPU as device to the autograd engine, which else needs an accelerator.

    Operators see the CUDA device. ``creates_graph``: the engine runs with gradients on.
    """

    def __init__(self, creates_graph: bool) -> None:
        super().__init__()
        self._creates_graph = creates_graph

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_node_running = torch._C._current_graph_task_id() != -1
        # Else activation checkpointing recomputes part of the model.
        if not is_node_running or torch.is_grad_enabled() == self._creates_graph:
            if func is torch.ops.prim.device.default:
                return _CPU
            if kwargs.get("device") == _CPU:
                # The device of a gradient, as reported above.
                kwargs = {**kwargs, "device": _CUDA}
        return func(*args, **kwargs)


def _run_backward(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the autograd engine, run in this thread without device queries."""

    def run_here(
        roots: Any, gradients: Any, keeps: bool, creates_graph: bool, *more: Any, **names: Any
    ) -> Any:
        with (
            torch.autograd.set_multithreading_enabled(False),
            _OnCpu(creates_graph),
            _without_hooks(),
        ):
            return run(roots, gradients, keeps, creates_graph, *more, **names)

    return run_here


# -- kernels ---------------------------------------------------------------------------------------

# Only CUDA has these two, and they have no kernels that find shapes.
_GRU_CELL = _aten._thnn_fused_gru_cell.default
_GRU_CELL_BACKWARD = _aten._thnn_fused_gru_cell_backward.default


def _run_fallback_on_cpu(run_for_real: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's fallback for operators without a fake kernel, run on the CPU."""

    def run_on_cpu(mode: Any, func: Any, values: Sequence[Any], spec: Any, error: Any) -> Any:
        device = next((e.device for e in values if isinstance(e, FakeTensor)), _CPU)
        if device.type != "cuda":
            return run_for_real(mode, func, values, spec, error)
        if func is _GRU_CELL:
            batch, width = values[2].shape
            # The new state, and five numbers per cell for the gradient.
            return values[2].new_empty((batch, width)), values[2].new_empty((batch, 5 * width))
        if func is _GRU_CELL_BACKWARD:
            state, has_bias = values[0], values[2]
            gates = state.shape[0], 3 * state.shape[1]
            biases = [gates[1:]] * 2 if has_bias else []
            made = map(state.new_empty, (gates, gates, state.shape, *biases))
            return *made, *[None] * (2 - len(biases))
        moved = [_moved(mode, each, _CPU) for each in values]
        given = {id(each): value for each, value in zip(moved, values, strict=True)}
        result = run_for_real(mode, func, moved, spec, error)
        # Operands written in place are returned themselves.
        return tree_map(lambda each: given.get(id(each), _moved(mode, each, device)), result)

    return run_on_cpu


def _moved(mode: Any, value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.device):
        return device
    if not isinstance(value, FakeTensor):
        return value
    form = value.shape, value.stride()
    return FakeTensor(mode, torch.empty_strided(*form, dtype=value.dtype, device="meta"), device)


# -- attention -------------------------------------------------------------------------------------

# `scaled_dot_product_attention` is one operator if a fused kernel accepts its operands: the flash
# kernel for 16-bit types without a mask, the memory-efficient one for float32 and masks; else it is
# decomposed. A torch without CUDA has no such kernels, but has their operators. cuDNN's kernel,
# preferred on H100 and B200, reads and writes the same bytes as the flash kernel; so does the
# efficient one, used for 16-bit types on GPUs before Ampere.

_HALF = (torch.float16, torch.bfloat16)
_FLASH_FEATURES = 256
"""Largest head size of the flash kernel."""

_MASK_MULTIPLE = 16
"""Strides of a mask must be multiples of this for the efficient kernel."""


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    is_half = query.dtype in _HALF
    is_fusible = not (is_causal and attn_mask is not None) and _fit_fused_kernels(
        query, key, value, enable_gqa
    )
    if (
        is_fusible
        and attn_mask is None
        and is_half
        and torch.backends.cuda.flash_sdp_enabled()
        and query.shape[3] == value.shape[3] <= _FLASH_FEATURES
        and not (is_causal and query.shape[2] != key.shape[2])
    ):
        # torch pads heads to multiples of 8 here; other kernels need not, so minimum times use the
        # unpadded size.
        return _aten._scaled_dot_product_flash_attention.default(
            query, key, value, dropout_p, is_causal, scale=scale
        )[0]
    multiple = 8 if is_half else 4
    if (
        is_fusible
        and (is_half or query.dtype == torch.float32)
        and torch.backends.cuda.mem_efficient_sdp_enabled()
        and not (query.shape[3] % multiple or value.shape[3] % multiple)
        and not any(each.storage_offset() % multiple for each in (query, key, value))
    ):
        wants_logarithms = torch.is_grad_enabled() and any(
            each.requires_grad for each in (query, key, value)
        )
        mask = _prepare_mask(attn_mask, query, key) if attn_mask is not None else None
        return _aten._scaled_dot_product_efficient_attention.default(
            query, key, value, mask, wants_logarithms, dropout_p, is_causal, scale=scale
        )[0]
    return _aten.scaled_dot_product_attention.default.decompose(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _fit_fused_kernels(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_grouped: bool
) -> bool:
    """Return whether fused kernels accept the operands: dense, of one type, matching sizes."""
    operands = (query, key, value)
    if any(each.dim() != 4 or each.is_nested or not each.numel() for each in operands):
        return False
    heads, of_keys = query.shape[1], key.shape[1]
    return (
        all((each.dtype, each.shape[0]) == (query.dtype, query.shape[0]) for each in operands)
        and key.shape[1:3] == value.shape[1:3]
        and query.shape[3] == key.shape[3]
        and (heads % of_keys == 0 if is_grouped else heads == of_keys)
        and all(each.stride(3) == 1 or each.shape[3] == 1 for each in operands)
    )


def _prepare_mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return the additive mask in the layout of the efficient kernel."""
    if mask.dtype == torch.bool:
        least = torch.scalar_tensor(-torch.inf, dtype=query.dtype, device=mask.device)
        mask = torch.where(mask, 0.0, least)
    if mask.stride(-1) != 1 or any(each % _MASK_MULTIPLE for each in mask.stride()[:-1]):
        length = mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, _MASK_MULTIPLE - length % _MASK_MULTIPLE))
        mask = mask[..., :length]
    return mask.expand(*query.shape[:3], key.shape[2])
