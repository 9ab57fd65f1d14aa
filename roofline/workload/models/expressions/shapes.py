"""What is written after ``@``, as inputs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from roofline.errors import InputError
from roofline.foundation.dtypes import dtype
from roofline.foundation.places import PlacedError
from roofline.foundation.units import format_shape, parse_shape
from roofline.workload.inputs import InputRequest
from roofline.workload.models.expressions.arithmetic import plain
from roofline.workload.models.expressions.layers import rank_of, takes_indices
from roofline.workload.models.expressions.pieces import Piece, leaves
from roofline.workload.models.expressions.syntax import Design, Shape
from roofline.workload.torch_dtypes import dtype_for


def inputs_of(design: Design, pieces: Sequence[Piece]) -> tuple[InputRequest, ...]:
    """What is written after ``@``, as inputs; spatial sizes get the channels of the first layer.

    Raises:
        PlacedError: the first layer takes another number of inputs, or does not say its channels.
    """
    first = next(leaves(pieces))
    if design.shapes and first.is_torchs:
        _check_number(first, design)
    is_index = takes_indices(first.module)
    requests: list[InputRequest] = []
    for shape in design.shapes:
        sizes = tuple(_size(each, design.text) for each in shape.sizes)
        if len(design.shapes) == 1:
            sizes = _full(sizes, shape, pieces, design.text)
        kind = shape.dtype or ("int64" if is_index else "")
        try:
            parse_shape(format_shape(sizes))
            request = InputRequest(shape=sizes, dtype=dtype(kind) if kind else None)
            dtype_for(request, None)
        except InputError as error:
            raise PlacedError(str(error), design.text, shape.at) from None
        requests.append(request)
    return tuple(requests)


def _size(value: Any, text: str) -> int:
    size = plain(value, text)
    assert isinstance(size, int)
    return size


def _check_number(first: Piece, design: Design) -> None:
    signature = inspect.signature(first.module.forward)
    names = list(signature.parameters)
    needed = [
        name for name in names if signature.parameters[name].default is inspect.Parameter.empty
    ]
    count = len(design.shapes)
    if count < len(needed):
        raise PlacedError(
            f"{first.part} takes {len(needed)} inputs ({', '.join(needed)}), but {count} is"
            " written: write all of them, as in @1x8x64,1x8x64",
            design.text,
            design.shapes[0].at,
        )
    if count > len(names):
        raise PlacedError(
            f"{first.part} takes {'one input' if len(names) == 1 else f'{len(names)} inputs'},"
            f" but {count} are written",
            design.text,
            design.shapes[len(names)].at,
        )


def _full(
    sizes: tuple[int, ...], shape: Shape, pieces: Sequence[Piece], text: str
) -> tuple[int, ...]:
    """The shape, with a batch of 1 and the channels where only spatial sizes are written."""
    for piece in leaves(pieces):
        if not piece.is_torchs:
            break
        rank = rank_of(piece.module)
        if rank is None and _keeps_shapes(piece.module):
            continue
        if rank is None or rank != len(sizes):
            break
        module: Any = piece.module
        channels = getattr(module, "in_channels", getattr(module, "num_features", None))
        if channels is None:
            example = format_shape((1, 64, *sizes))
            raise PlacedError(
                f"{piece.part} does not say how many channels there are: write all sizes,"
                f" such as @{example}",
                text,
                shape.at,
            )
        return (1, channels, *sizes)
    return sizes


def _keeps_shapes(module: nn.Module) -> bool:
    """Whether it is an activation, a dropout or the identity."""
    home = type(module).__module__
    return home.endswith((".activation", ".dropout")) or isinstance(module, nn.Identity)
