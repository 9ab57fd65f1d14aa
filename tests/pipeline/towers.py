"""Small models that tests train on several ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from roofline.pipeline.scaling import scale
from roofline.scaling.result import Scaling

LINK = {"link_bandwidth": "1GB/s", "link_latency": "20us"}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Tower(nn.Module):
    def __init__(self, blocks: int = 6, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.blocks:
            x = each(x)
        return self.head(x)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x)).mean((2, 3))


def scaled(model: Any, inputs: Any, ranks: int = 4, **options: Any) -> Scaling:
    chosen: dict[str, Any] = {**LINK, **options}
    return scale(model, inputs, data_parallel=ranks, hardware="10980xe", **chosen)
