"""Costs that the tests of the gate share; all numbers are made up."""

from __future__ import annotations

from typing import Any

from roofline.core.dtypes import dtype
from roofline.design.gate.cost import Cost, Machine, Part
from roofline.workload.tensors import InputSpec

HERE = Machine(name="host", device="cpu", threads=2, cpu_model="Example 7", date="2026-03-04")
IMAGE = InputSpec(shape=(1, 3, 8, 8), dtype=dtype("float32"))


def cost(**changes: Any) -> Cost:
    """A small model's cost with some of it changed."""
    known: dict[str, Any] = {
        "model": "net",
        "inputs": (IMAGE,),
        "flop": 1000,
        "macs": 450,
        "traffic_bytes": 4000,
        "parameters": 200,
        "peak_memory_bytes": 3000,
        "launches": 10,
        "unknown_operators": 0,
        "eager_min_time_s": 2e-6,
        "predicted_s": 1e-5,
        "machine": HERE,
        "calibration": "90 runs",
        "versions": {"roofline": "0.1.0", "torch": "2.13.0"},
        "date": "2026-03-05",
        "types": (
            Part(name="convolution", calls=4, flop=900, traffic_bytes=3000),
            Part(name="pointwise", calls=6, flop=100, traffic_bytes=1000),
        ),
        "modules": (Part(name="body.0", calls=10, flop=1000, traffic_bytes=4000),),
    }
    return Cost(**{**known, **changes})


def counts_only(**changes: Any) -> Cost:
    """The same where no machine was asked for."""
    nothing = {"machine": None, "eager_min_time_s": None, "predicted_s": None, "calibration": ""}
    return cost(**{**nothing, **changes})
