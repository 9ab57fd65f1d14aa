"""The CUDA driver's own interface, through ctypes: loads and launches programs.

It works in the context that torch made current in this thread, on torch's stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from roofline.machine.gpu.device import (
    Argument,
    Call,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
)
from roofline.machine.gpu.ptx import Program

_OUT_OF_MEMORY = 2
_STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721})
"""Results after which the context is unusable: faults of a kernel, a timeout, a failed launch."""

_ATTRIBUTES = {"clock_khz": 13, "integrated": 18, "memory_clock_khz": 36, "bus_bit": 37}

_LOG_BYTE = 4096
_ERROR_LOG, _ERROR_LOG_BYTE = 5, 6
"""Options of cuModuleLoadDataEx: where the compiler's complaints go."""


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """A program's entry point in the driver, and the module that it lives in."""

    program: Program
    handle: ctypes.c_void_p
    module: ctypes.c_void_p


class Driver:
    """libcuda; `library` stands for it in tests."""

    def __init__(self, library: Any = None) -> None:
        try:
            self._library: Any = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(
                f"the NVIDIA driver's library cannot be loaded ({error}); install the driver"
            ) from None

    def version(self) -> str:
        """The newest CUDA that the driver knows: ``"13.0"``."""
        number = ctypes.c_int()
        self._check(self._library.cuDriverGetVersion(ctypes.byref(number)), "asking its version")
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def attributes(self, index: int) -> dict[str, int]:
        """Clocks in kHz, bus width in bits and whether it is integrated; what it does not say is 0.

        Args:
            index: the device's number, as torch counts them.
        """
        handle = ctypes.c_int()
        self._check(
            self._library.cuDeviceGet(ctypes.byref(handle), index), f"finding device {index}"
        )
        found: dict[str, int] = {}
        for name, code in _ATTRIBUTES.items():
            value = ctypes.c_int()
            result = self._library.cuDeviceGetAttribute(ctypes.byref(value), code, handle)
            found[name] = 0 if result else value.value
        return found

    def load(self, program: Program) -> LoadedFunction:
        """Has the driver compile a program.

        Raises:
            DeviceError: it cannot, with the compiler's words.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        log = ctypes.create_string_buffer(_LOG_BYTE)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTE)
        # The options' values are passed as pointers, also where they are numbers.
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTE)
        result = self._library.cuModuleLoadDataEx(
            ctypes.byref(module), program.text.encode() + b"\0", 2, options, values
        )
        said = " ".join(log.value.decode(errors="replace").split())
        self._check(result, f"compiling {program.entry}", said)
        self._check(
            self._library.cuModuleGetFunction(
                ctypes.byref(function), module, program.entry.encode()
            ),
            f"finding {program.entry}",
        )
        return LoadedFunction(program=program, handle=function, module=module)

    def unload(self, function: LoadedFunction) -> None:
        """Gives a program's memory back; that this fails after a fault is no news."""
        self._library.cuModuleUnload(function.module)

    def launch(
        self,
        function: LoadedFunction,
        grid: int,
        arguments: Sequence[Argument],
        stream: Callable[[], int],
    ) -> Call:
        """A call that runs `grid` blocks of a program on the stream that is current then."""
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

        # `values` is captured too: the pointers keep nothing alive.
        def call(kept: object = values) -> None:
            result = enqueue(
                *(handle, grid, 1, 1, block, 1, 1, 0),
                *(ctypes.c_void_p(stream()), pointers, None),
            )
            if result:
                self._check(result, what)

        return call

    def _check(self, result: int, what: str, said: str = "") -> None:
        if not result:
            return
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(result, ctypes.byref(text))
        reason = (text.value or b"").decode(errors="replace") or "unknown error"
        message = f"{what} failed: {reason} (CUDA driver error {result})"
        if said:
            message += f": {said[:200]}"
        if result in _STICKY:
            raise DeviceLostError(message)
        raise DeviceMemoryError(message) if result == _OUT_OF_MEMORY else DeviceError(message)
