"""An operator that no formula counts, whatever formulas there are."""

from __future__ import annotations

import torch


@torch.library.custom_op("roofline_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    """Nobody knows what it computes."""
    return x.clone()


@mystery.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
