"""Data movement: bytes, but no floating-point operation."""

from __future__ import annotations

from typing import Any

from roofline.workload.formulas.registry import Flop, formula


@formula(
    *("aten.cat", "aten.stack", "aten.clone", "aten.copy", "aten._to_copy", "aten.contiguous"),
    *("aten.constant_pad_nd", "aten.reflection_pad1d", "aten.reflection_pad2d"),
    *("aten.reflection_pad3d", "aten.replication_pad1d", "aten.replication_pad2d"),
    *("aten.replication_pad3d", "aten.fill", "aten.zero", "aten.zeros", "aten.linspace"),
    *("aten.ones", "aten.full", "aten.zeros_like", "aten.ones_like", "aten.full_like"),
    *("aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.scalar_tensor", "aten.rot90"),
    *("aten.flip", "aten.roll", "aten.repeat", "aten.where", "aten.masked_fill", "aten.tril"),
    *("aten.triu", "aten.arange", "aten.eye", "aten.pixel_shuffle"),
    *("aten.pixel_unshuffle", "aten.channel_shuffle", "aten.native_channel_shuffle"),
    *("aten.split_with_sizes_copy", "aten.unfold_copy", "aten.im2col", "aten.lift_fresh_copy"),
    *("aten.max_unpool2d", "aten.max_unpool3d"),
    type="data movement",
)
def movement(**_: Any) -> Flop:
    """Elements are copied, filled or selected, not computed."""
    return Flop()
