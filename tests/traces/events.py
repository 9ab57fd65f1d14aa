"""Traces made by hand: events as torch.profiler writes them."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

H100 = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "totalGlobalMem": 85_018_279_936,
    "computeMajor": 9,
    "computeMinor": 0,
    "numSms": 132,
    "warpSize": 32,
}
PRODUCT = {
    "Input Dims": [[8, 16], [16, 32]],
    "Input type": ["c10::BFloat16", "c10::BFloat16"],
    "Input Strides": [[16, 1], [32, 1]],
    "Concrete Inputs": ["", ""],
}
"""Arguments of `aten::mm`: 2 × 8 × 16 × 32 FLOP, 2 × (8 × 16 + 16 × 32 + 8 × 32) bytes."""


class Events:
    """A trace that grows call by call; times are microseconds."""

    def __init__(self, **top: Any) -> None:
        self.top = {"schemaVersion": 1, "deviceProperties": [H100], **top}
        self.events: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    def add(
        self, category: str, name: str, start: Any, duration: Any, *, tid: Any = 1, **args: Any
    ) -> dict[str, Any]:
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 1,
            "tid": tid,
            "ts": start,
            "dur": duration,
            "args": args,
        }
        self.events.append(event)
        return event

    def operator(
        self, name: str, start: float, duration: float, *, tid: Any = 1, **args: Any
    ) -> int:
        number = next(self._numbers)
        self.add("cpu_op", name, start, duration, tid=tid, **{"External id": number}, **args)
        return number

    def launch(self, start: float, name: str = "cudaLaunchKernel", **args: Any) -> int:
        number = 1000 + next(self._numbers)
        self.add("cuda_runtime", name, start, 1, correlation=number, **args)
        return number

    def kernel(self, name: str, start: float, duration: float, **args: Any) -> None:
        stream = args.pop("stream", 7)
        self.add("kernel", name, start, duration, tid=stream, device=0, stream=stream, **args)

    def text(self) -> str:
        return json.dumps({**self.top, "traceEvents": self.events}, indent=1)

    def save(self, path: Path) -> Path:
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def product_step(events: Events, start: float = 0.0, *, wait: float = 10.0) -> None:
    """Add a matrix product: its operator from `start`, its kernel of 5 µs `wait` later."""
    number = events.operator("aten::mm", start, 6, **PRODUCT)
    correlation = events.launch(start + 2)
    events.kernel("sm90_gemm", start + wait, 5, correlation=correlation, **{"External id": number})
