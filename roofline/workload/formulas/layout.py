"""Data movement: bytes, but no floating-point operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline.workload.formulas.pointwise import elementwise
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula(
    *("aten.cat", "aten.stack", "aten.clone", "aten.copy", "aten._to_copy", "aten.contiguous"),
    *("aten.constant_pad_nd", "aten.reflection_pad1d", "aten.reflection_pad2d"),
    *("aten.reflection_pad3d", "aten.replication_pad1d", "aten.replication_pad2d"),
    *("aten.replication_pad3d", "aten.fill", "aten.zero", "aten.zeros", "aten.linspace"),
    *("aten.ones", "aten.full", "aten.scalar_tensor", "aten.rot90"),
    *("aten.flip", "aten.roll", "aten.repeat", "aten.where", "aten.masked_fill", "aten.tril"),
    *("aten.triu", "aten.arange", "aten.eye", "aten.pixel_shuffle"),
    *("aten.pixel_unshuffle", "aten.channel_shuffle", "aten.native_channel_shuffle"),
    *("aten.unfold_copy", "aten.im2col", "aten.lift_fresh_copy", "aten.lift", "aten.alias_copy"),
    *("aten.max_unpool2d", "aten.max_unpool3d", "aten.resize_as", "aten.complex", "aten._stack"),
    *("aten.diag_embed", "aten.block_diag", "aten._chunk_cat", "aten._lazy_clone", "aten.range"),
    *("aten.tril_indices", "aten.triu_indices", "aten.repeat_interleave", "aten.t_copy"),
    *("aten.permute_copy", "aten.transpose_copy", "aten.view_copy", "aten._reshape_copy"),
    *("aten.squeeze_copy", "aten.unsqueeze_copy", "aten.detach_copy", "aten.view_as_real_copy"),
    *("aten.view_as_complex_copy", "aten.unbind_copy", "aten.split_copy"),
    *(
        "aten.split_with_sizes_copy",
        "aten.expand_copy",
        "aten.one_hot",
        "aten._efficientzerotensor",
    ),
    *("aten._reshape_alias_copy", "aten._fw_primal_copy", "aten._make_dual_copy"),
    *("aten._copy_from", "aten._copy_from_and_resize", "aten._pin_memory"),
    *("aten._jagged_to_padded_dense_forward", "aten._padded_dense_to_jagged_forward"),
    *("aten.to_padded_tensor",),
    type="data movement",
)
def movement(**_: Any) -> Flop:
    """Elements are copied, filled or selected, not computed."""
    return Flop()


@formula(
    *("aten.zeros_like", "aten.ones_like", "aten.full_like"),
    *("aten.new_zeros", "aten.new_ones", "aten.new_full"),
    type="data movement",
    byte="what is written; of the tensor that it is like, only shape and type are looked at",
)
def filled_like(**_: Any) -> Flop:
    """A new tensor is filled; nothing is read."""
    return Flop(elements={"self": 0})


@formula(
    *("aten.select_copy", "aten.slice_copy", "aten.narrow_copy", "aten.diagonal_copy"),
    *("aten.as_strided_copy",),
    type="data movement",
    byte="the part, read and written, not the whole",
)
def part(output: TensorSpec, **_: Any) -> Flop:
    """A part is copied: no more is read than is written."""
    return Flop(elements={"self": output.elements})


@formula(
    *("aten.select_scatter", "aten.slice_scatter", "aten.diagonal_scatter"),
    *("aten.as_strided_scatter",),
    type="data movement",
    byte="each operand once; at the least not what is replaced",
)
def part_replaced(self: TensorSpec, src: TensorSpec, **_: Any) -> Flop:
    """A copy with another part; what is replaced need not be read."""
    return Flop(least_elements={"self": max(0, self.elements - src.elements)})


@formula(
    "aten._pack_padded_sequence",
    type="data movement",
    byte="the steps of each sequence, read and written, not the padding",
)
def packed(output: Sequence[TensorSpec], **_: Any) -> Flop:
    """The sequences of a batch, one step of all after the other."""
    return Flop(elements={"input": output[0].elements})


@formula("aten.logspace", type="pointwise")
def powers_in_steps(output: TensorSpec, **_: Any) -> Flop:
    """base ** (start + i * step): two operations and a power an element."""
    return elementwise({}, output, 2, 1)


@formula("aten.fft_fftfreq", "aten.fft_rfftfreq", "aten.bartlett_window", type="pointwise")
def steps(output: TensorSpec, **_: Any) -> Flop:
    """i / (n * d), or 1 - |i - n / 2| / (n / 2): no more than two operations an element."""
    return elementwise({}, output, 2)


@formula("aten.hann_window", "aten.hamming_window", "aten.blackman_window", type="pointwise")
@formula("aten.kaiser_window", type="pointwise")
def window(output: TensorSpec, **_: Any) -> Flop:
    """alpha - beta * cos(i * step), and its like: three operations and a function an element."""
    return elementwise({}, output, 3, 1)
