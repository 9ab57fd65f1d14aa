"""ResNet-20 for CIFAR: 19 convolutions of 3x3 in three stages, two projections, and 10 classes.

He, Zhang, Ren, Sun: *Deep Residual Learning for Image Recognition*, CVPR 2016, section 4.2, with
the projections of its option B at the shortcuts between stages.

    roofline quantize benchmarks/networks/cifar_resnet.py:ResNet20 --input 1x3x32x32 --weights 2
"""

from __future__ import annotations

import torch
from torch import nn

WIDTHS = (16, 32, 64)
BLOCKS = 3
"""Of each stage; two convolutions a block."""


class Block(nn.Module):
    """Two convolutions of 3x3, each with a batch norm, and the shortcut around them."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != filters:
            projection = nn.Conv2d(channels, filters, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, filters, height / stride, width / stride)."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + self.shortcut(x))


class ResNet20(nn.Module):
    """All of it: 272,474 parameters, of which 270,896 are weights of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTHS[0])
        blocks: list[nn.Module] = []
        channels = WIDTHS[0]
        for stage, filters in enumerate(WIDTHS):
            for place in range(BLOCKS):
                blocks.append(Block(channels, filters, stride=2 if stage and not place else 1))
                channels = filters
        self.blocks = nn.Sequential(*blocks)
        self.pooling = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, 10): images of shape (batch, 3, 32, 32)."""
        x = torch.relu(self.bn(self.conv(image)))
        return self.classifier(self.pooling(self.blocks(x)).flatten(1))
