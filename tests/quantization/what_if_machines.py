"""Machines that what-ifs are asked on, and models whose layers are counted by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from roofline.analysis import Analysis
from roofline.machine.hardware import HardwareProfile
from tests import builders
from tests.design.advice_models import Clock, analysed
from tests.quantization.small_networks import Of

LIBRARY = {"float32": 90e9, "bfloat16": 150e9, "float16": 20e9, "int8": 300e9}
HARDWARE = {"float32": 100e9, "bfloat16": 200e9, "float16": 400e9, "int8": 400e9}


def machine(
    library: Mapping[str, float] = LIBRARY, hardware: Mapping[str, float] = HARDWARE
) -> HardwareProfile:
    """One thread, 10 GB/s from a memory of which nothing is cached."""
    ceilings = [builders.ceiling(rate, of=name) for name, rate in hardware.items()]
    ceilings += [
        replace(builders.ceiling(rate, of=name, unit="torch", kernel="gemm"), kind="library")
        for name, rate in library.items()
    ]
    return builders.profile(ceilings, [builders.level("DRAM", None, {"read": {1: 10e9}})])


def cached_machine() -> HardwareProfile:
    """The same with a cache of 64 KiB at 100 GB/s."""
    near = builders.level("L1", 64 * 1024, {"read": {1: 100e9}})
    plain = machine()
    return replace(plain, memory=(near, *plain.memory))


def analysis_of(
    model: nn.Module, *shape: int, profile: HardwareProfile | None = None, **options: Any
) -> Analysis:
    """The analysis of a model on the plain machine, or another; without predictions."""
    return analysed(model.eval(), *shape, profile=profile or machine(), **options)


def timed_analysis_of(model: nn.Module, *shape: int, clock: Clock) -> Analysis:
    """The same with the predictions of a clock."""
    return analysed(model.eval(), *shape, profile=machine(), clock=clock)


def resnet20() -> nn.Module:
    """ResNet-20 for CIFAR, with projections."""
    path = Path(__file__).parents[2] / "benchmarks" / "networks" / "cifar_resnet.py"
    spec = importlib.util.spec_from_file_location("networks_cifar_resnet", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: nn.Module = module.ResNet20()
    return model


class Fork(Of):
    """Two linear layers read what one gave; what they give is multiplied."""

    def __init__(self) -> None:
        super().__init__(
            lambda m, x: m.left(y := torch.relu(m.stem(x))) * m.right(y),
            stem=nn.Linear(8, 8),
            left=nn.Linear(8, 4),
            right=nn.Linear(8, 4),
        )


class PingPong(nn.Module):
    """Linear layers with a softmax between each two of them."""

    def __init__(self, width: int = 16, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.softmax(layer(x), -1)
        return x


class Joined(nn.Module):
    """Two convolutions side by side, concatenated, pooled, and read by a third."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.left, self.right = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.after = nn.Conv2d(8, 4, 1)
        self.last = nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = self.pool(torch.cat([self.left(x), self.right(x)], 1))
        return self.last(torch.relu(self.after(x)))
