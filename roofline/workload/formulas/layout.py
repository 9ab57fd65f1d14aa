"""Data movement: bytes without FLOP."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from roofline.workload.formulas.costs import F
from roofline.workload.formulas.pointwise import each_element
from roofline.workload.formulas.registry import Flop, Sizes, formula, table
from roofline.workload.tensors import TensorSpec as Tensor

table(
    """
aten.cat aten.stack aten.clone aten.copy aten._to_copy aten.to aten.contiguous aten.fill aten.zero
aten.zeros aten.linspace aten.ones aten.full aten.scalar_tensor aten.rot90 aten.flip aten.roll
aten.repeat aten.where aten.arange aten.eye aten.one_hot aten.pixel_shuffle aten.pixel_unshuffle
aten.channel_shuffle aten.native_channel_shuffle aten.unfold_copy aten.lift_fresh_copy aten.lift
aten.alias_copy aten.max_unpool2d aten.max_unpool3d aten.resize_as aten.complex aten._stack
aten.diag_embed aten.block_diag aten._chunk_cat aten._lazy_clone aten.range aten.tril_indices
aten.triu_indices aten.repeat_interleave aten.t_copy aten.permute_copy aten.transpose_copy
aten.view_copy aten._reshape_copy aten.squeeze_copy aten.unsqueeze_copy aten.detach_copy
aten.view_as_real_copy aten.view_as_complex_copy aten.unbind_copy aten.split_copy
aten.split_with_sizes_copy aten.expand_copy aten._reshape_alias_copy aten._fw_primal_copy
aten._make_dual_copy aten._copy_from aten._copy_from_and_resize aten._pin_memory
aten._jagged_to_padded_dense_forward aten._padded_dense_to_jagged_forward aten.to_padded_tensor
aten._nested_tensor_from_mask = 0
    Elements are copied, filled or selected, not computed.
"""
)
table(
    """
aten.logspace = 2 + F
    base ** (start + i * step): 2 operations and a power per element.
aten.fft_fftfreq aten.fft_rfftfreq aten.bartlett_window = 2
    i / (n * d), or 1 - |i - n / 2| / (n / 2): at most 2 per element.
aten.hann_window aten.hamming_window aten.blackman_window aten.kaiser_window = 3 + F
    alpha - beta * cos(i * step), and related: 3 operations and a function per element.
""",
    each_element,
    type="pointwise",
    names={"F": F},
)


def _touched(elements: dict[str, int], **_: Any) -> Flop:
    return Flop(elements=elements)


table(
    """
aten.zeros_like aten.ones_like aten.full_like aten.new_zeros aten.new_ones
aten.new_full = {"self": 0}
    A new tensor is filled; nothing is read.
""",
    _touched,
    byte="the result; the tensor is not read, only its shape and type are used",
)
table(
    """
aten._nested_tensor_from_mask_left_aligned = {"t": 0}
    A test if the unmasked tokens of each sample come first.
""",
    _touched,
    byte="the mask; the tensor is not read, only its shape is used",
)
table(
    """
aten.select_copy aten.slice_copy aten.narrow_copy aten.diagonal_copy
aten.as_strided_copy = {"self": output.elements}
    A part is copied: reads equal writes.
""",
    _touched,
    byte="the part, read and written, not the whole",
)
table(
    """
aten._pack_padded_sequence = {"input": output[0].elements}
    The sequences of a batch, interleaved by step.
""",
    _touched,
    byte="the steps of each sequence, read and written, not the padding",
)


@formula(
    *("aten.select_scatter", "aten.slice_scatter", "aten.diagonal_scatter"),
    *("aten.as_strided_scatter",),
    byte="each operand once; minimum: without the replaced part",
)
def part_replaced(self: Tensor, src: Tensor, **_: Any) -> Flop:
    """A copy with another part; the replaced part need not be read."""
    return Flop(min_elements={"self": max(0, self.elements - src.elements)})


@formula("aten.constant_pad_nd", byte="the input without negative padding; all of the result")
def constant_padding(self: Tensor, pad: Sizes, **_: Any) -> Flop:
    """Constants around the tensor; negative padding removes elements instead."""
    kept = self.elements
    for size, before, after in _padded_dimensions(self, pad):
        kept = kept // size * max(0, size + min(before, 0) + min(after, 0)) if size else 0
    return Flop(elements={"self": kept})


_SHOWN = "the visible part of the input; all of the result"


@formula(*(f"aten.reflection_pad{n}d" for n in (1, 2, 3)), byte=_SHOWN)
def reflection(self: Tensor, padding: Sizes, **_: Any) -> Flop:
    """Padding mirrors the input at its first and last element."""
    return _walk(self, padding, lambda place, size: (size - 1) - abs((size - 1) - abs(place)))


@formula(*(f"aten.replication_pad{n}d" for n in (1, 2, 3)), byte=_SHOWN)
def replication(self: Tensor, padding: Sizes, **_: Any) -> Flop:
    """Padding repeats the first and last element."""
    return _walk(self, padding, lambda place, size: min(max(place, 0), size - 1))


def _padded_dimensions(self: Tensor, padding: Sizes) -> list[tuple[int, int, int]]:
    """Size, padding before and after of each padded dimension, last dimension first."""
    return list(zip(reversed(self.shape), padding[::2], padding[1::2], strict=False))


def _walk(self: Tensor, padding: Sizes, place: Callable[[int, int], int]) -> Flop:
    """Count repeating padding: per dimension, the input is read from the lowest to the highest
    `place` that some element of the result shows.
    """
    read = self.elements
    for size, before, after in _padded_dimensions(self, padding):
        ends = [-before, size + after - 1]
        # Turning points of the walk, if it reaches them.
        turns = [each for each in (0, size - 1) if ends[0] <= each <= ends[1]]
        shown = [place(each, size) for each in (*ends, *turns)]
        read = read // size * (max(shown) - min(shown) + 1) if ends[0] <= ends[1] else 0
    return Flop(elements={"self": read})


_TRIANGLE = "the kept triangle is read; in place: only the zeros are written"


@formula("aten.tril", byte=_TRIANGLE)
def lower_triangle(self: Tensor, output: Tensor, diagonal: int = 0, **_: Any) -> Flop:
    """Each matrix up to a diagonal, and zeros above it."""
    return _triangle(self, output, below_diagonal(self, diagonal + 1))


@formula("aten.triu", byte=_TRIANGLE)
def upper_triangle(self: Tensor, output: Tensor, diagonal: int = 0, **_: Any) -> Flop:
    """Each matrix from a diagonal on, and zeros below it."""
    return _triangle(self, output, self.elements - below_diagonal(self, diagonal))


def below_diagonal(self: Tensor, diagonal: int) -> int:
    """Elements of all matrices whose column is less than row + `diagonal`."""
    *batch, rows, columns = self.shape
    # From the first row with any, one more per row, up to all columns.
    first = min(max(1 - diagonal, 0), rows)
    full = min(max(columns - diagonal, first), rows)
    some = full - first
    partial = some * (first + diagonal) + some * (some - 1) // 2
    return math.prod(batch) * (partial + (rows - full) * columns)


def _triangle(self: Tensor, output: Tensor, kept: int) -> Flop:
    if output.storage == self.storage:
        return Flop(elements={"self": 0, "output": self.elements - kept})
    return Flop(elements={"self": kept})


@formula(
    "aten.masked_fill",
    byte="each operand once; minimum in place: the mask alone (it may select nothing)",
)
def masked_fill(self: Tensor, output: Tensor, **_: Any) -> Flop:
    """A constant where a mask says so; other elements stay, or are copied."""
    return Flop(min_elements={"self": 0} if output.storage == self.storage else {})


@formula(
    *(f"aten.{kind}_pad{n}d_backward" for kind in ("reflection", "replication") for n in (1, 2, 3)),
    byte="the input is not read: only its shape is used",
)
def padding_backward(grad_output: Tensor, self: Tensor, padding: Sizes, **_: Any) -> Flop:
    """n - 1 additions per element with n copies; negative padding omits elements."""
    count = len(padding) // 2
    sides = _padded_dimensions(self, padding)
    kept = math.prod(size + min(before, 0) + min(after, 0) for size, before, after in sides)
    elements = math.prod(self.shape[:-count]) * kept
    return Flop(other=max(0, grad_output.elements - elements), elements={"self": 0})
