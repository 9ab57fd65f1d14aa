"""Layers and small models with quantisers, for tests of what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from roofline.quantization.integer_models import integer_model
from roofline.quantization.packed_models import packed_state
from roofline.quantization.policy import Policy
from roofline.quantization.quantized_modules import (
    TRANSPOSED,
    put_input_quantizer,
    put_weight_quantizer,
)
from roofline.quantization.quantizers import PACT, weight_quantizer
from roofline.quantization.quantizing import quantize_model


def quantized(
    layer: nn.Module,
    weights: int | None = 2,
    activations: int | None = 2,
    *,
    alpha: float = 2.0,
    signed: bool = False,
    per_channel: bool = False,
) -> nn.Module:
    """The layer with quantisers of so many bits; None: none."""
    if weights is not None:
        axis = 1 if isinstance(layer, TRANSPOSED) else 0
        put_weight_quantizer(layer, weight_quantizer(weights, per_channel=per_channel, axis=axis))
    if activations is not None:
        put_input_quantizer(layer, PACT(activations, alpha=alpha, signed=signed))
    return layer


class Block(nn.Module):
    """Two convolutions with batch norms, and a shortcut around them: a projection, or itself."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """A stem, two blocks and a linear layer."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.block1 = Block(width, width, 1)
        self.block2 = Block(width, 2 * width, 2)
        self.fc = nn.Linear(2 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        return self.fc(self.block2(self.block1(x)).mean(dim=(2, 3)))


def with_lively_norms(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with batch norms that do something, in inference."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            norm: Any = module
            with torch.no_grad():
                shape = norm.running_mean.shape
                norm.running_var.copy_(0.5 + torch.rand(shape, generator=generator))
                norm.running_mean.copy_(0.3 * torch.randn(shape, generator=generator))
                if norm.affine:
                    norm.weight.copy_(0.5 + torch.rand(shape, generator=generator))
                    norm.bias.copy_(0.3 * torch.randn(shape, generator=generator))
    return model.eval()


def largest_error(expected: torch.Tensor, found: torch.Tensor) -> float:
    """The largest difference over the largest magnitude that is expected."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    difference = float((expected - found).abs().max())
    return difference / max(float(expected.abs().max()), 1e-30)


def both(model: nn.Module, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the fake-quantised model gives, and what the one in whole numbers does."""
    with torch.no_grad():
        return model.eval()(*inputs), integer_model(model)(*inputs)


def small(**options: Any) -> nn.Module:
    """A convolution of 2 bits, a batch norm and a linear layer of 3 bits."""
    torch.manual_seed(0)
    return nn.Sequential(
        quantized(nn.Conv2d(2, 3, 3), 2, 2, signed=True, **options),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        quantized(nn.Linear(12, 5, bias=False), 3, 4, **options),
    ).eval()


def plain() -> nn.Sequential:
    """The same without quantisers."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5, bias=False)
    )


def residual(**options: Any) -> nn.Module:
    """A small residual network with quantisers and norms that do something."""
    torch.manual_seed(0)
    policy = Policy(**options)
    return with_lively_norms(quantize_model(SmallResNet(), policy, torch.rand(1, 1, 8, 8)))


def saved(model: nn.Module, folder: Path, name: str = "model.pt") -> Path:
    """The model packed, in a file."""
    path = folder / name
    packed_state(model).save(path)
    return path
