"""Many small linear layers of one input: most of their time is that of calls.

roofline optimize benchmarks/networks/small_linears.py:Eight --input 1x256
roofline optimize benchmarks/networks/small_linears.py:ThirtyTwo --input 64x128
"""

from __future__ import annotations

import torch
from torch import nn


class _Siblings(nn.Module):
    def __init__(self, count: int, features: int, outputs: int, *, activate: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, outputs) for _ in range(count))
        self.activate = activate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All their outputs side by side: (batch, count * outputs)."""
        found = [layer(x) for layer in self.layers]
        return torch.cat([torch.relu(each) if self.activate else each for each in found], dim=1)


class Eight(_Siblings):
    """Eight of 256 to 64, each with ReLU: inputs of shape (batch, 256)."""

    def __init__(self) -> None:
        super().__init__(8, 256, 64, activate=True)


class ThirtyTwo(_Siblings):
    """Thirty-two of 128 to 16: inputs of shape (batch, 128)."""

    def __init__(self) -> None:
        super().__init__(32, 128, 16, activate=False)
