"""Models that latency is judged on and no library has by a name of its own."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

from roofline.workload.models.libraries.availability import with_torchvision

CONTEXT = 128


def _transformers(name: str) -> Any:
    """What transformers calls that; it imports its parts when they are asked for."""
    return with_torchvision(lambda: getattr(importlib.import_module("transformers"), name))


class _Gpt2Decode(nn.Module):
    """GPT-2 (124 M) makes one token more behind a context whose keys and values are kept."""

    def __init__(self) -> None:
        super().__init__()
        config = _transformers("GPT2Config")()
        self.model = _transformers("GPT2LMHeadModel")(config)
        size = (8, config.n_head, CONTEXT, config.n_embd // config.n_head)
        for layer in range(config.n_layer):
            self.register_buffer(f"keys_{layer}", torch.randn(size))
            self.register_buffer(f"values_{layer}", torch.randn(size))
        self.layers = config.n_layer

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits of the next token: ids of shape (batch, 1), at most 8 of them."""
        cache = _transformers("DynamicCache")(config=self.model.config)
        for index, layer in enumerate(cache.layers):
            layer.keys = self.get_buffer(f"keys_{index}")[: len(ids)]
            layer.values = self.get_buffer(f"values_{index}")[: len(ids)]
            layer.is_initialized = True
            layer.dtype, layer.device = layer.keys.dtype, layer.keys.device
        return self.model(ids, past_key_values=cache, use_cache=True).logits


def gpt2_decode() -> nn.Module:
    """GPT-2 in decode, with a context of 128 tokens."""
    return _Gpt2Decode()
