"""NVIDIA's two libraries, as far as they are called: libcuda and pynvml."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any


class Library:
    """libcuda, as far as it is called; `results` are what calls return, by name."""

    def __init__(self, **results: int) -> None:
        self.results = results
        self.launched: list[tuple[int, int, list[int]]] = []
        self.unloaded = 0
        self.log = b"ptxas error   : Unknown\n  modifier"

    def cuDriverGetVersion(self, number: Any) -> int:
        number._obj.value = 13010
        return 0

    def cuDeviceGet(self, handle: Any, index: int) -> int:
        handle._obj.value = index
        return self.results.get("get", 0)

    def cuDeviceGetAttribute(self, value: Any, code: int, handle: Any) -> int:
        if code == 37:
            return 1
        value._obj.value = {13: 1_980_000, 18: 0, 36: 2_619_000}[code]
        return 0

    def cuModuleLoadDataEx(
        self, module: Any, text: bytes, count: int, options: Any, values: Any
    ) -> int:
        assert text.endswith(b"\0") and b".visible .entry nothing" in text
        assert (count, list(options)) == (2, [5, 6])
        result = self.results.get("load", 0)
        if result:
            ctypes.memmove(values[0], self.log, min(len(self.log), values[1]))
        module._obj.value = 77
        return result

    def cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        assert module.value == 77 and name == b"nothing"
        function._obj.value = 99
        return 0

    def cuModuleUnload(self, module: Any) -> int:
        self.unloaded += 1
        return 4

    def cuLaunchKernel(self, *arguments: Any) -> int:
        function, grid, _, _, block, _, _, shared, stream, pointers, extra = arguments
        assert function.value == 99 and shared == 0 and extra is None and stream.value == 5
        eight = ctypes.cast(pointers[0], ctypes.POINTER(ctypes.c_uint64)).contents.value
        four = ctypes.cast(pointers[1], ctypes.POINTER(ctypes.c_uint32)).contents.value
        self.launched.append((grid, block, [eight, four]))
        return self.results.get("launch", 0)

    def cuGetErrorString(self, result: int, text: Any) -> int:
        text._obj.value = b"words of the driver"
        return 0


class Nvml:
    """pynvml, as far as it is called; only reads exist, so that a setting would fail."""

    def __init__(self, **values: Any) -> None:
        self.values = values
        self.ended = 0

    def nvmlInit(self) -> None:
        if self.values.get("broken"):
            raise RuntimeError("Driver/library version mismatch")

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return f"handle of {uuid}"

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        assert handle == "handle of GPU-1"
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if self.values.get("no_power"):
            raise RuntimeError("Not Supported")
        return 512_000

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetEccMode(self, handle: str) -> tuple[int, int]:
        return 1, 1

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, since: int) -> int:
        return {(1, 0): 2}[kind, since]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.values.get("limits", 0)
