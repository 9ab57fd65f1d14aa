"""Networks that run in a millisecond, with all that quantization must find: shortcuts, and more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Of(nn.Module):
    """A model of a function: of itself, with the parts that it is given, and of one input.

    torch.fx can read it, as it cannot read models of any number of inputs.
    """

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


class Block(nn.Module):
    """A residual block, with a projection where sizes change."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        stride = 1 if channels == out_channels else 2
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride == 2:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        way = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(way)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """A convolution, a block with an identity shortcut, one with a projection, a classifier."""

    def __init__(self, width: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.same = Block(width, width)
        self.down = Block(width, 2 * width)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.down(self.same(self.relu(self.bn(self.conv(image)))))
        return self.head(self.pool(x).flatten(1))


def with_lively_norms(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with batch norms that do something, in inference."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            norm: Any = module
            shape = norm.running_mean.shape
            positive, mean = (norm.running_var, norm.weight), (norm.running_mean, norm.bias)
            with torch.no_grad():
                for each, shift in zip(positive, mean, strict=True):
                    if each is not None:
                        each.copy_(0.5 + torch.rand(shape, generator=generator))
                        shift.copy_(0.3 * torch.randn(shape, generator=generator))
    return model.eval()


def small_resnet(seed: int = 0) -> SmallResNet:
    """A small residual network in eval mode, whose batch norms have statistics of their own."""
    torch.manual_seed(seed)
    model: Any = with_lively_norms(SmallResNet(), seed)
    return model


def image(batch: int = 2, seed: int = 1) -> torch.Tensor:
    """What a small residual network is called with."""
    return torch.randn(batch, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def chain() -> nn.Sequential:
    """Three linear layers with ReLUs between."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)
    ).eval()
