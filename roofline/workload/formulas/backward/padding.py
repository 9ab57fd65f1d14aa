"""Gradients of padding that repeats elements: each copy's gradient is added to the element's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula(
    *("aten.reflection_pad1d_backward", "aten.reflection_pad2d_backward"),
    *("aten.reflection_pad3d_backward", "aten.replication_pad1d_backward"),
    *("aten.replication_pad2d_backward", "aten.replication_pad3d_backward"),
    type="data movement",
    byte="the input is not read: only its shape is used",
)
def padding(grad_output: TensorSpec, self: TensorSpec, padding: Sequence[int], **_: Any) -> Flop:
    """An element that has n copies takes n - 1 additions; negative padding leaves elements out."""
    count = len(padding) // 2
    # Padding names the last dimension first, its beginning before its end.
    sides = zip(self.shape[: -count - 1 : -1], padding[::2], padding[1::2], strict=True)
    kept = math.prod(size + min(before, 0) + min(after, 0) for size, before, after in sides)
    elements = math.prod(self.shape[:-count]) * kept
    return Flop(other=max(0, grad_output.elements - elements), elements={"self": 0})
