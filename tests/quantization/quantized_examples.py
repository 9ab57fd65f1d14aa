"""Layers and small models with quantizers, for tests of what becomes of them."""

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
    attach_input_quantizer,
    attach_weight_quantizer,
)
from roofline.quantization.quantizers import PACT, weight_quantizer
from roofline.quantization.quantizing import quantize_model
from tests.quantization.small_networks import SmallResNet, image, with_lively_norms


def quantized(
    layer: nn.Module,
    weights: int | None = 2,
    activations: int | None = 2,
    *,
    alpha: float = 2.0,
    signed: bool = False,
    per_channel: bool = False,
) -> nn.Module:
    """The layer with quantizers of so many bits; None: none."""
    if weights is not None:
        axis = 1 if isinstance(layer, TRANSPOSED) else 0
        attach_weight_quantizer(
            layer, weight_quantizer(weights, per_channel=per_channel, axis=axis)
        )
    if activations is not None:
        attach_input_quantizer(layer, PACT(activations, alpha=alpha, signed=signed))
    return layer


def largest_error(expected: torch.Tensor, found: torch.Tensor) -> float:
    """The largest difference over the largest magnitude that is expected."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    difference = float((expected - found).abs().max())
    return difference / max(float(expected.abs().max()), 1e-30)


def both(model: nn.Module, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the fake-quantized model gives, and what the one in whole numbers does."""
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
    """The same without quantizers."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5, bias=False)
    )


def residual(**options: Any) -> nn.Module:
    """A small residual network with quantizers and norms that do something."""
    torch.manual_seed(0)
    policy = Policy(**options)
    return with_lively_norms(quantize_model(SmallResNet(classes=10), policy, image(1)))


def saved(model: nn.Module, folder: Path, name: str = "model.pt") -> Path:
    """The model packed, in a file."""
    path = folder / name
    packed_state(model).save(path)
    return path
