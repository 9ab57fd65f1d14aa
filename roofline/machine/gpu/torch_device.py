"""A real GPU: memory, timing and GEMM by torch, own programs by the CUDA driver."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from roofline.errors import HardwareError, argument, error_text
from roofline.machine.gpu.device import (
    Argument,
    Call,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceProperties,
    Direction,
    Gemm,
    HostMemory,
    Reading,
)
from roofline.machine.gpu.ptx import Program
from roofline.machine.gpu.sensors import Telemetry

_OUT_OF_MEMORY = 2
_STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721})
"""Errors after which the context is unusable: kernel fault, timeout, failed launch."""

_ATTRIBUTES = {"clock_khz": 13, "integrated": 18, "memory_clock_khz": 36, "bus_bit": 37}

_LOG_BYTE = 4096
_ERROR_LOG, _ERROR_LOG_BYTE = 5, 6
"""cuModuleLoadDataEx options for the compiler log."""


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """A program's entry point in the driver, and its module."""

    program: Program
    handle: ctypes.c_void_p
    module: ctypes.c_void_p


class Driver:
    """The CUDA driver, libcuda; `library` replaces it in tests."""

    def __init__(self, library: Any = None) -> None:
        try:
            self._library: Any = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(f"cannot load libcuda ({error}); install the NVIDIA driver") from None

    def version(self) -> str:
        """Return the CUDA version of the driver: ``"13.0"``."""
        number = ctypes.c_int()
        self._check(self._library.cuDriverGetVersion(ctypes.byref(number)), "querying its version")
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def attributes(self) -> dict[str, int]:
        """Return clocks in kHz, bus width in bits, and integrated; 0: unknown."""
        handle = ctypes.c_int()
        result = self._library.cuDeviceGet(ctypes.byref(handle), 0)
        self._check(result, "finding the device")
        found: dict[str, int] = {}
        for name, code in _ATTRIBUTES.items():
            value = ctypes.c_int()
            result = self._library.cuDeviceGetAttribute(ctypes.byref(value), code, handle)
            found[name] = 0 if result else value.value
        return found

    def load(self, program: Program) -> LoadedFunction:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTE)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTE)
        # Option values are passed as pointers, even numbers.
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTE)
        result = self._library.cuModuleLoadDataEx(
            ctypes.byref(module), program.text.encode() + b"\0", 2, options, values
        )
        messages = " ".join(log.value.decode(errors="replace").split())
        self._check(result, f"compiling {program.entry}", messages)
        entry = program.entry.encode()
        result = self._library.cuModuleGetFunction(ctypes.byref(function), module, entry)
        self._check(result, f"finding {program.entry}")
        return LoadedFunction(program=program, handle=function, module=module)

    def unload(self, function: LoadedFunction) -> None:
        """Free a program; errors after a fault are ignored."""
        self._library.cuModuleUnload(function.module)

    def launch(
        self,
        function: LoadedFunction,
        grid: int,
        arguments: Sequence[Argument],
        stream: int,
    ) -> Call:
        """Return a call that runs `grid` blocks of a program on a stream."""
        values = [
            ctypes.c_uint64(value) if byte == 8 else ctypes.c_uint32(value)
            for value, byte in arguments
        ]
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.addressof(value) for value in values)
        )
        enqueue = self._library.cuLaunchKernel
        handle, block = function.handle, function.program.block
        what = f"launching {function.program.entry}"

        # `values` is captured to keep it alive.
        def call(kept: object = values) -> None:
            result = enqueue(
                *(handle, grid, 1, 1, block, 1, 1, 0), *(ctypes.c_void_p(stream), pointers, None)
            )
            if result:
                self._check(result, what)

        return call

    def _check(self, result: int, what: str, messages: str = "") -> None:
        if not result:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(result, ctypes.byref(text))
        reason = (text.value or b"").decode(errors="replace") or "unknown error"
        message = f"{what} failed: {reason} (CUDA driver error {result})"
        if messages:
            message += f": {messages[:200]}"
        if result in _STICKY:
            raise DeviceLostError(message)
        raise DeviceMemoryError(message) if result == _OUT_OF_MEMORY else DeviceError(message)


@contextmanager
def float32_gemm_precision(*, tf32: bool) -> Generator[None]:
    """Enable or disable TF32 in float32 GEMM within the context.

    torch refuses to read its old setting after the new one was used, so the new one is used if it
    exists.
    """
    products: Any = torch.backends.cuda.matmul
    name, values = (
        ("fp32_precision", ("ieee", "tf32"))
        if hasattr(products, "fp32_precision")
        else ("allow_tf32", (False, True))
    )
    before = getattr(products, name)
    setattr(products, name, values[tf32])
    try:
        yield
    finally:
        setattr(products, name, before)


_TORCH: Any = torch
"""For private functions of torch: int8 and float8 GEMM."""

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def make_gemm(product: Gemm, size: int, device: torch.device) -> Call:
    """Return a call that multiplies two random matrices of `size` by `size`."""
    element: torch.dtype = getattr(torch, product.dtype.name)
    if element == torch.int8:
        left = torch.randint(-8, 8, (size, size), device=device, dtype=element)
        right = torch.randint(-8, 8, (size, size), device=device, dtype=element).t()
        return lambda: _TORCH._int_mm(left, right)
    left, right = (torch.randn(size, size, device=device) for _ in range(2))
    if element in _FLOAT8:
        # cuBLAS does not multiply e5m2 by e5m2, and needs a column-major factor.
        low, other = left.to(element), right.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=device)
        return lambda: _TORCH._scaled_mm(
            low, other, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )
    left, right = left.to(element), right.to(element)
    out = torch.empty_like(left)
    if element != torch.float32:
        return lambda: torch.mm(left, right, out=out)

    def call() -> None:
        with float32_gemm_precision(tf32=product.tf32):
            torch.mm(left, right, out=out)

    return call


_CUDA: Any = torch.cuda
"""For functions missing in torch's stubs."""

_FAULTS = (
    *("illegal memory access", "illegal instruction", "misaligned address", "launch failure"),
    *("device-side assert", "uncorrectable", "launch timed out"),
)
"""torch's error messages after a lost context."""


def open_device() -> TorchDevice:
    problem = ""
    if torch.version.hip is not None:
        problem = (
            f"torch {torch.__version__} is built for ROCm; only NVIDIA devices can be measured"
        )
    elif torch.version.cuda is None:
        problem = (
            f"torch {torch.__version__} is a CPU build; install one with CUDA"
            " (https://pytorch.org/get-started/locally)"
        )
    elif torch.cuda.device_count() == 0:
        problem = "torch finds no NVIDIA device; check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    else:
        try:
            return TorchDevice()
        except (RuntimeError, OSError) as error:
            problem = f"cannot open the device: {error_text(error)}"
    raise HardwareError(f"{argument('device', 'cuda')}: {problem}")


class TorchDevice:
    """`Device` for a real GPU, made by `open_device`."""

    def __init__(
        self,
        *,
        device: torch.device | None = None,
        driver: Driver | None = None,
        telemetry: Callable[[str], Telemetry] = Telemetry,
    ) -> None:
        self._before = torch.cuda.current_device()
        torch.cuda.set_device(0)
        self._device = device or torch.device("cuda", 0)
        # The first allocation creates the context.
        self._kept: list[torch.Tensor] = [torch.zeros(1, device=self._device)]
        self._functions: dict[str, LoadedFunction] = {}
        self._driver = driver or Driver()
        properties: Any = _CUDA.get_device_properties(0)
        uuid = str(getattr(properties, "uuid", ""))
        self._telemetry = telemetry(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        known = self._driver.attributes()
        self.facts = DeviceProperties(
            name=properties.name,
            capability=(properties.major, properties.minor),
            multiprocessors=properties.multi_processor_count,
            memory_bytes=properties.total_memory,
            l2_bytes=properties.L2_cache_size,
            clock_hz=known["clock_khz"] * 1e3 or None,
            memory_clock_hz=known["memory_clock_khz"] * 1e3 or None,
            bus_bit=known["bus_bit"] or None,
            integrated=bool(known["integrated"]),
            mig="MIG" in properties.name,
            driver=self._telemetry.driver() or f"for CUDA {self._driver.version()}",
            library=f"torch {torch.__version__}, CUDA {torch.version.cuda}",
        )
        self._open = True

    def free_bytes(self) -> int:
        return torch.cuda.mem_get_info(self._device)[0]

    def allocate(self, byte: int) -> int:
        with _guarded():
            memory = torch.empty(byte // 4, dtype=torch.float32, device=self._device)
            self._kept.append(memory.uniform_(0.5, 1))
        return self._kept[-1].data_ptr()

    def load(self, program: Program) -> None:
        if program.entry not in self._functions:
            self._functions[program.entry] = self._driver.load(program)

    def launch(self, program: Program, grid: int, arguments: Sequence[Argument]) -> Call:
        stream = torch.cuda.current_stream(self._device).cuda_stream
        return self._driver.launch(self._functions[program.entry], grid, arguments, stream)

    def product(self, product: Gemm, size: int) -> Call:
        with _guarded():
            return make_gemm(product, size, self._device)

    def transfer(self, direction: Direction, memory: HostMemory, byte: int) -> Call:
        with _guarded():
            host = torch.zeros(byte, dtype=torch.uint8, pin_memory=memory == "pinned")
            device = torch.zeros(byte, dtype=torch.uint8, device=self._device)
        target, source = (device, host) if direction == "to device" else (host, device)
        return lambda: target.copy_(source, non_blocking=memory == "pinned")

    def small_calls(self) -> dict[str, Call]:
        one, weight = torch.ones(1, 1, device=self._device), torch.ones(1, 1, device=self._device)
        return {
            "dispatch of add": lambda: torch.add(one, one),
            "dispatch of linear": lambda: torch.nn.functional.linear(one, weight),
        }

    def times(self, call: Call, calls: int, bursts: int) -> list[float]:
        with _guarded():
            marks = [
                (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                for _ in range(bursts)
            ]
            for start, end in marks:
                start.record()
                _repeat(call, calls)
                end.record()
            torch.cuda.synchronize(self._device)
            return [start.elapsed_time(end) / 1e3 for start, end in marks]

    def queue_time(self, call: Call, calls: int) -> float:
        with _guarded():
            torch.cuda.synchronize(self._device)
            start = time.perf_counter()
            _repeat(call, calls)
            torch.cuda.synchronize(self._device)
            return time.perf_counter() - start

    def reading(self) -> Reading | None:
        return self._telemetry.reading()

    def reading_obstacle(self) -> str:
        return self._telemetry.obstacle

    def watch(self, call: Call, calls: int) -> Reading | None:
        with _guarded():
            _repeat(call, calls)
            reading = self._telemetry.reading()
            torch.cuda.synchronize(self._device)
            return reading

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._kept.clear()
        try:
            torch.cuda.synchronize(self._device)
            for function in self._functions.values():
                self._driver.unload(function)
            torch.cuda.empty_cache()
        except RuntimeError:
            # Expected after a kernel fault, which was reported.
            pass
        finally:
            self._functions.clear()
            self._telemetry.close()
            torch.cuda.set_device(self._before)


def _repeat(call: Call, calls: int) -> None:
    for _ in range(calls):
        call()


@contextmanager
def _guarded() -> Generator[None]:
    """Convert torch's errors."""
    try:
        yield
    except (DeviceError, DeviceLostError):
        raise
    except torch.OutOfMemoryError as error:
        raise DeviceMemoryError(error_text(error)) from None
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        text = error_text(error)
        lost = any(word in text for word in _FAULTS)
        raise DeviceLostError(text) if lost else DeviceError(text) from None
