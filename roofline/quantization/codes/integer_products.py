"""Products of whole numbers: linear layers and convolutions of any kind, summed up in integers.

All take codes and weights in the type that they sum up in (int32, or int64), and give that type.
A convolution is one matrix product for each place of its kernel, so that no windows are copied out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

Pads = Sequence[tuple[int, int]]
"""For each dimension of space, what is added before and behind."""


def linear(codes: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``codes @ weights.T`` over the last dimension.

    Args:
        codes: of any shape that ends with the number of inputs.
        weights: outputs by inputs.
    """
    rows = codes.reshape(-1, codes.shape[-1])
    return (rows @ weights.T).reshape(*codes.shape[:-1], weights.shape[0])


def convolution(
    codes: torch.Tensor,
    weights: torch.Tensor,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """A convolution over what is padded already.

    Args:
        codes: batch, channels, and the dimensions of space.
        weights: output channels, input channels of a group, and the kernel's dimensions.
        stride: for each dimension of space, as are ``dilation``.
        groups: of channels.
    """
    kernel = weights.shape[2:]
    sizes = [
        (size - spread * (extent - 1) - 1) // step + 1
        for size, spread, extent, step in zip(
            codes.shape[2:], dilation, kernel, stride, strict=True
        )
    ]
    result = codes.new_zeros((codes.shape[0], weights.shape[0], *sizes))
    for place in _places(kernel):
        seen = [
            slice(start * spread, start * spread + step * (size - 1) + 1, step)
            for start, spread, step, size in zip(place, dilation, stride, sizes, strict=True)
        ]
        matrices = weights[(slice(None), slice(None), *place)]
        result += _by_groups(codes[(slice(None), slice(None), *seen)], matrices, groups)
    return result


def transposed_convolution(
    codes: torch.Tensor,
    weights: torch.Tensor,
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """What torch calls a transposed convolution: each input is spread by the kernel.

    Args:
        codes: batch, channels, and the dimensions of space.
        weights: output channels, input channels of a group, and the kernel's dimensions.
        stride: for each dimension of space, as are the next ones.
        padding: what is cut off at both ends.
        output_padding: what is added at the far end.
        dilation: between the places of the kernel.
        groups: of channels.
    """
    kernel, sizes = weights.shape[2:], codes.shape[2:]
    spread_sizes = [
        step * (size - 1) + spread * (extent - 1) + 1 + more
        for step, size, spread, extent, more in zip(
            stride, sizes, dilation, kernel, output_padding, strict=True
        )
    ]
    result = codes.new_zeros((codes.shape[0], weights.shape[0], *spread_sizes))
    for place in _places(kernel):
        reached = [
            slice(start * spread, start * spread + step * (size - 1) + 1, step)
            for start, spread, step, size in zip(place, dilation, stride, sizes, strict=True)
        ]
        matrices = weights[(slice(None), slice(None), *place)]
        result[(slice(None), slice(None), *reached)] += _by_groups(codes, matrices, groups)
    kept = [slice(cut, size - cut) for cut, size in zip(padding, spread_sizes, strict=True)]
    return result[(slice(None), slice(None), *kept)]


def padded(codes: torch.Tensor, pads: Pads, mode: str) -> torch.Tensor:
    """Codes with a border, as convolutions add it.

    Args:
        codes: batch, channels, and the dimensions of space.
        pads: before and behind, for each dimension of space.
        mode: ``zeros``, ``reflect``, ``replicate`` or ``circular``.
    """
    if not any(before or behind for before, behind in pads):
        return codes
    if mode == "zeros":
        flat = [size for pair in reversed(pads) for size in pair]
        return functional.pad(codes, flat)
    for dimension, pair in enumerate(pads, start=2):
        if any(pair):
            # torch pads integers with zeros alone: what it would copy is found by positions.
            positions = torch.arange(codes.shape[dimension], dtype=torch.float64)
            found = functional.pad(positions[None, None], pair, mode=mode)[0, 0].to(torch.int64)
            codes = codes.index_select(dimension, found.to(codes.device))
    return codes


def _by_groups(codes: torch.Tensor, matrices: torch.Tensor, groups: int) -> torch.Tensor:
    """The product over channels at every position.

    ``matrices`` are output channels by input channels of a group.
    """
    batch, _, *sizes = codes.shape
    channels, inputs = matrices.shape
    positions = math.prod(sizes)
    columns = codes.reshape(batch, groups, inputs, positions).permute(1, 2, 0, 3)
    columns = columns.reshape(groups, inputs, batch * positions)
    summed = torch.bmm(matrices.reshape(groups, channels // groups, inputs), columns)
    return summed.reshape(channels, batch, *sizes).transpose(0, 1)


def _places(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(extent) for extent in kernel))
