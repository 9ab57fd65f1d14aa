"""Small models that resemble layers of networks, for calibration and validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from roofline.errors import ModelError


def standard(
    wide: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Return a convolution with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(wide, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


def separable(wide: int, out: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    """Return a depthwise separable convolution."""
    return nn.Sequential(standard(wide, wide, kernel, stride, wide), standard(wide, out, 1))


class Attention(nn.Module):
    """Self-attention with one projection for query, key and value, and torch's fused kernel.

    Input and output are (batch, tokens, width), here and below.
    """

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(wide, 3 * wide)
        self.output = nn.Linear(wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, wide = x.shape
        parts = self.project(x).view(batch, tokens, 3, self.heads, wide // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.output(mixed.transpose(1, 2).reshape(batch, tokens, wide))


class SelfAttention(nn.Module):
    """torch's attention module, one operator where torch has a fast path."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(wide, heads, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Gated(nn.Module):
    """Gated feed-forward layers without bias, as in language models."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        inner = 8 * wide // 3
        self.gate = nn.Linear(wide, inner, bias=False)
        self.up = nn.Linear(wide, inner, bias=False)
        self.down = nn.Linear(inner, wide, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class CachedAttention(nn.Module):
    """Attention of one new token per sequence over a KV cache, to which it is appended."""

    def forward(self, cache: torch.Tensor) -> torch.Tensor:
        """Map keys and values (2, batch, heads, tokens, size) to (batch, heads, 1, size)."""
        keys, values = cache.unbind(0)
        token = torch.tanh(keys[:, :, -1:])
        keys, values = torch.cat([keys, token], 2), torch.cat([values, token], 2)
        return nn.functional.scaled_dot_product_attention(token, keys, values)


class Residual(nn.Module):
    """Two convolutions with a residual connection and ReLU."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.first = standard(wide, wide)
        self.second = standard(wide, wide)[:2]
        self.end = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.second(self.first(x)) + x)


class Branches(nn.Module):
    """A 1x1 and a 3x3 convolution of the same image, concatenated by channels."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.narrow = standard(wide, out, 1)
        self.broad = standard(wide, out, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.narrow(x), self.broad(x)], 1)


def linear(wide: int, out: int) -> nn.Module:
    """Return a linear layer with ReLU, and a second one to the input width."""
    return nn.Sequential(nn.Linear(wide, out), nn.ReLU(), nn.Linear(out, wide))


def after_relu(layer: nn.Module) -> nn.Module:
    """Return a layer behind a ReLU, so that its input was just written."""
    return nn.Sequential(nn.ReLU(), layer)


_DESIGNS: Mapping[str, Callable[..., nn.Module]] = {
    "standard": standard,
    "separable": separable,
    "feed_forward": lambda wide: nn.Sequential(
        nn.LayerNorm(wide), nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide)
    ),
    "attention": Attention,
    "cached_attention": CachedAttention,
    "gated": Gated,
    "self_attention": SelfAttention,
    "encoder": lambda wide, heads, norm_first=0: nn.TransformerEncoderLayer(
        wide, heads, 4 * wide, activation="gelu", batch_first=True, norm_first=bool(norm_first)
    ),
    "linear": linear,
    "residual": Residual,
    "branches": Branches,
    # ReLU6, as in mobile networks.
    "limited": lambda wide, out: nn.Sequential(
        nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU6()
    ),
    "max_pool_of": lambda wide, kernel, stride: nn.Sequential(
        standard(wide, wide, 1), nn.MaxPool2d(kernel, stride, kernel // 2)
    ),
    "average_pool_of": lambda wide, kernel, stride: nn.Sequential(
        standard(wide, wide, 1), nn.AvgPool2d(kernel, stride, kernel // 2)
    ),
    "global_pool_of": lambda wide: nn.Sequential(standard(wide, wide, 1), nn.AdaptiveAvgPool2d(1)),
    "lstm": lambda wide, hidden: nn.LSTM(wide, hidden, batch_first=True),
    "gru": lambda wide, hidden: nn.GRU(wide, hidden, batch_first=True),
    "max_pool": lambda kernel, stride: after_relu(nn.MaxPool2d(kernel, stride, kernel // 2)),
    "average_pool": lambda kernel, stride: after_relu(nn.AvgPool2d(kernel, stride, kernel // 2)),
    "global_pool": lambda: after_relu(nn.AdaptiveAvgPool2d(1)),
    "upsample": lambda: after_relu(nn.Upsample(scale_factor=2)),
    "upsample_bilinear": lambda: after_relu(nn.Upsample(scale_factor=2, mode="bilinear")),
}


def design(kind: str, *sizes: int) -> nn.Module:
    """Return a design with random weights; ModelError if the kind or sizes are invalid."""
    if kind not in _DESIGNS:
        raise ModelError(f"unknown design '{kind}'; expected one of {', '.join(_DESIGNS)}")
    try:
        return _DESIGNS[kind](*sizes).eval()
    except (TypeError, ValueError, AssertionError) as error:
        raise ModelError(f"design {kind}{sizes}: {error}") from None
