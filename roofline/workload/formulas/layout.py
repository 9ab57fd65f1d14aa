"""Data movement: bytes, but no floating-point operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from roofline.workload.formulas.pointwise import elementwise
from roofline.workload.formulas.registry import Flop, formula
from roofline.workload.tensors import TensorSpec


@formula(
    *("aten.cat", "aten.stack", "aten.clone", "aten.copy", "aten._to_copy", "aten.to"),
    *("aten.contiguous", "aten.fill", "aten.zero", "aten.zeros", "aten.linspace", "aten.ones"),
    *("aten.full", "aten.scalar_tensor", "aten.rot90", "aten.flip", "aten.roll", "aten.repeat"),
    *("aten.where", "aten.arange", "aten.eye", "aten.one_hot", "aten.pixel_shuffle"),
    *("aten.pixel_unshuffle", "aten.channel_shuffle", "aten.native_channel_shuffle"),
    *("aten.unfold_copy", "aten.lift_fresh_copy", "aten.lift", "aten.alias_copy"),
    *("aten.max_unpool2d", "aten.max_unpool3d", "aten.resize_as", "aten.complex", "aten._stack"),
    *("aten.diag_embed", "aten.block_diag", "aten._chunk_cat", "aten._lazy_clone", "aten.range"),
    *("aten.tril_indices", "aten.triu_indices", "aten.repeat_interleave", "aten.t_copy"),
    *("aten.permute_copy", "aten.transpose_copy", "aten.view_copy", "aten._reshape_copy"),
    *("aten.squeeze_copy", "aten.unsqueeze_copy", "aten.detach_copy", "aten.view_as_real_copy"),
    *("aten.view_as_complex_copy", "aten.unbind_copy", "aten.split_copy"),
    *("aten.split_with_sizes_copy", "aten.expand_copy"),
    *("aten._reshape_alias_copy", "aten._fw_primal_copy", "aten._make_dual_copy"),
    *("aten._copy_from", "aten._copy_from_and_resize", "aten._pin_memory"),
    *("aten._jagged_to_padded_dense_forward", "aten._padded_dense_to_jagged_forward"),
    *("aten.to_padded_tensor", "aten._nested_tensor_from_mask"),
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
    "aten._nested_tensor_from_mask_left_aligned",
    type="data movement",
    byte="the mask; of the tensor, only the shape is looked at",
)
def left_aligned(**_: Any) -> Flop:
    """Whether the tokens of each sequence that a mask leaves are its first ones."""
    return Flop(elements={"t": 0})


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
    return Flop(min_elements={"self": max(0, self.elements - src.elements)})


@formula(
    "aten.constant_pad_nd",
    type="data movement",
    byte="of the input, what negative padding leaves; all of the result",
)
def constant_padding(self: TensorSpec, pad: Sequence[int], **_: Any) -> Flop:
    """Constants around the tensor; negative padding takes elements away instead."""
    kept = self.elements
    for size, before, after in _padded_dimensions(self, pad):
        kept = kept // size * max(0, size + min(before, 0) + min(after, 0)) if size else 0
    return Flop(elements={"self": kept})


@formula(
    *("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.reflection_pad3d"),
    type="data movement",
    byte="of the input, what the result shows; all of the result",
)
def reflection(self: TensorSpec, padding: Sequence[int], **_: Any) -> Flop:
    """The result walks over the input, back from its first element and from its last."""
    return _walk(self, padding, lambda place, size: (size - 1) - abs((size - 1) - abs(place)))


@formula(
    *("aten.replication_pad1d", "aten.replication_pad2d", "aten.replication_pad3d"),
    type="data movement",
    byte="of the input, what the result shows; all of the result",
)
def replication(self: TensorSpec, padding: Sequence[int], **_: Any) -> Flop:
    """The result walks over the input, and stays at its first element and at its last."""
    return _walk(self, padding, lambda place, size: min(max(place, 0), size - 1))


def _padded_dimensions(self: TensorSpec, padding: Sequence[int]) -> list[tuple[int, int, int]]:
    """Size, padding before and after of each padded dimension: the last dimension comes first."""
    return list(zip(reversed(self.shape), padding[::2], padding[1::2], strict=False))


def _walk(self: TensorSpec, padding: Sequence[int], place: Callable[[int, int], int]) -> Flop:
    """Padding that repeats elements: of each dimension, the input is read from the lowest to the
    highest `place` that some element of the result shows."""
    read = self.elements
    for size, before, after in _padded_dimensions(self, padding):
        ends = [-before, size + after - 1]
        # Where the walk turns or stays, if it gets there.
        turns = [each for each in (0, size - 1) if ends[0] <= each <= ends[1]]
        shown = [place(each, size) for each in (*ends, *turns)]
        read = read // size * (max(shown) - min(shown) + 1) if ends[0] <= ends[1] else 0
    return Flop(elements={"self": read})


_TRIANGLE = "the triangle that is kept is read; in place, zeros are written where it is not"


@formula("aten.tril", type="data movement", byte=_TRIANGLE)
def lower_triangle(self: TensorSpec, output: TensorSpec, diagonal: int = 0, **_: Any) -> Flop:
    """What lies up to a diagonal of each matrix, and zeros above it."""
    return _triangle(self, output, below_diagonal(self, diagonal + 1))


@formula("aten.triu", type="data movement", byte=_TRIANGLE)
def upper_triangle(self: TensorSpec, output: TensorSpec, diagonal: int = 0, **_: Any) -> Flop:
    """What lies from a diagonal of each matrix on, and zeros below it."""
    return _triangle(self, output, self.elements - below_diagonal(self, diagonal))


def below_diagonal(self: TensorSpec, diagonal: int) -> int:
    """Elements of all matrices whose column is less than their row and `diagonal` together."""
    *batch, rows, columns = self.shape
    # From the first row that has any on, one more each, until they have all columns.
    first = min(max(1 - diagonal, 0), rows)
    full = min(max(columns - diagonal, first), rows)
    some = full - first
    partial = some * (first + diagonal) + some * (some - 1) // 2
    return math.prod(batch) * (partial + (rows - full) * columns)


def _triangle(self: TensorSpec, output: TensorSpec, kept: int) -> Flop:
    if output.storage == self.storage:
        return Flop(elements={"self": 0, "output": self.elements - kept})
    return Flop(elements={"self": kept})


@formula(
    "aten.masked_fill",
    type="data movement",
    byte="each operand once; minimum in place: the mask alone (it may select nothing)",
)
def masked_fill(self: TensorSpec, output: TensorSpec, **_: Any) -> Flop:
    """A value where a mask says so; what else there is stays, or is copied."""
    return Flop(min_elements={"self": 0} if output.storage == self.storage else {})


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


# Gradients of padding that repeats elements: each copy's gradient is added to the element's.


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
