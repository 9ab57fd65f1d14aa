"""What stands between two layers in whole numbers: sums are scaled, moved, clipped and rounded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from roofline.quantization.quantizers.pact import PACT


class Requantization(nn.Module):
    """What stands between the sums of one layer and the codes of the next.

    Args:
        quantizer: of what the next layer reads.
        norm: a batch norm between them, as it is in inference.
        has_relu: whether what is negative becomes 0 before it is quantised.
    """

    multiplier: Tensor | None
    shift: Tensor | None

    def __init__(self, quantizer: PACT, *, norm: nn.Module | None, has_relu: bool) -> None:
        super().__init__()
        self.quantizer = quantizer
        self.has_relu = has_relu
        multiplier, shift = (None, None) if norm is None else _folded(norm)
        self.register_buffer("multiplier", multiplier)
        self.register_buffer("shift", shift)

    def forward(self, values: Tensor) -> Tensor:
        """Codes in the smallest type that holds them: uint8, int8 where signed, or int32.

        Args:
            values: sums, scaled, in float64.
        """
        if self.multiplier is not None and self.shift is not None:
            behind = (1,) * (values.dim() - 2)
            values = values * self.multiplier.reshape(-1, *behind)
            values = values + self.shift.reshape(-1, *behind)
        if self.has_relu:
            values = values.clamp(min=0)
        codes, _ = self.quantizer.codes(values)
        if self.quantizer.bits > 8:
            return codes
        return codes.to(torch.int8 if self.quantizer.signed else torch.uint8)


def _folded(norm: Any) -> tuple[Tensor, Tensor]:
    """A batch norm's multiplier and shift in inference, in float64."""
    deviation = (norm.running_var.to(torch.float64) + norm.eps).sqrt()
    multiplier = 1 / deviation if norm.weight is None else norm.weight.detach() / deviation
    shift = -norm.running_mean * multiplier
    return multiplier, shift if norm.bias is None else shift + norm.bias.detach()
