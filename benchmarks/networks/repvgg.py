"""RepVGG-A0 as it is trained: each block has three branches that meet in an addition.

Ding, Zhang, Ma, Han, Ding, Sun: *RepVGG: Making VGG-style ConvNets Great Again*, CVPR 2021.

    roofline optimize benchmarks/networks/repvgg.py:RepVGG --input 1x3x224x224
    roofline optimize benchmarks/networks/repvgg.py:Block48 --input 1x48x56x56
"""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (48, 48, 96, 192, 1280)
BLOCKS = (1, 2, 4, 14, 1)
"""Of A0, stage by stage; the first block of each halves the image."""


class Block(nn.Module):
    """3x3 + BN, 1x1 + BN and, where sizes stay, BN alone, added; then ReLU."""

    def __init__(self, channels: int, filters: int, stride: int = 1) -> None:
        super().__init__()
        self.large = _normed(channels, filters, 3, stride)
        self.small = _normed(channels, filters, 1, stride)
        stays = channels == filters and stride == 1
        self.identity = nn.BatchNorm2d(channels) if stays else None
        self.activation = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, filters, height / stride, width / stride)."""
        both = self.large(x) + self.small(x)
        return self.activation(both if self.identity is None else both + self.identity(x))


def _normed(channels: int, filters: int, kernel: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(
        channels, filters, kernel, stride=stride, padding=kernel // 2, bias=False
    )
    return nn.Sequential(convolution, nn.BatchNorm2d(filters))


class RepVGG(nn.Module):
    """All of A0: 22 blocks, average pooling, and 1000 classes."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for filters, count in zip(WIDTHS, BLOCKS, strict=True):
            for place in range(count):
                layers.append(Block(channels, filters, stride=2 if place == 0 else 1))
                channels = filters
        self.stages = nn.Sequential(*layers)
        self.pooling = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, 1000): images of shape (batch, 3, 224, 224)."""
        return self.classifier(self.pooling(self.stages(image)).flatten(1))


class Block48(Block):
    """A block of the second stage: images of shape (batch, 48, 56, 56)."""

    def __init__(self) -> None:
        super().__init__(48, 48)


class Block192(Block):
    """A block of the fourth stage: images of shape (batch, 192, 14, 14)."""

    def __init__(self) -> None:
        super().__init__(192, 192)
