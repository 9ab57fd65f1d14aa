"""Memory formats: the channels of images and of filters last."""

from __future__ import annotations

import torch

_BY_DIMENSIONS = {4: torch.channels_last, 5: torch.channels_last_3d}


def layout_for(tensor: torch.Tensor) -> torch.memory_format | None:
    """The format with the channels last, for tensors that have one: floating, of 4 or 5 sizes."""
    return _BY_DIMENSIONS.get(tensor.dim()) if tensor.is_floating_point() else None
