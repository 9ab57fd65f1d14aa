"""Whether the layers of a design take what the ones before them give: run without memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from roofline.errors import said_by
from roofline.foundation.units import format_shape
from roofline.workload.inputs import InputRequest
from roofline.workload.models.expressions.layers import expected_sizes, takes_floats
from roofline.workload.models.expressions.syntax import Design, Group, Layer
from roofline.workload.torch_dtypes import dtype_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a design and the module that was made of it; ``inner`` are those of a group."""

    part: Layer | Group
    module: nn.Module
    is_torchs: bool
    inner: tuple[Piece, ...] = ()


def leaves(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The layers among `pieces`, those of groups too, in the order in which they run."""
    for piece in pieces:
        if piece.inner:
            yield from leaves(piece.inner)
        else:
            yield piece


class _UnknownError(Exception):
    """What a layer gives cannot be known without values."""


def check_fit(pieces: Sequence[Piece], inputs: Sequence[InputRequest], design: Design) -> None:
    """Runs the layers one after another on the meta device, as far as that can be.

    Raises:
        PlacedError: a layer does not take what it gets; the caret is under it.
    """
    found = list(leaves(pieces))
    if len(found) == 1 and not found[0].is_torchs:
        # Nothing is before it, and the pass itself says which of its own modules fails.
        return
    values = [
        torch.empty(each.shape, dtype=dtype_for(each, None), device="meta") for each in inputs
    ]
    with torch.no_grad(), torch.device("meta"), _in_eval_mode([each.module for each in pieces]):
        try:
            _Fitting(design).chain(pieces, values)
        except _UnknownError:
            return


class _Fitting:
    """Runs pieces; knows whether there was a layer before."""

    def __init__(self, design: Design) -> None:
        self._wrong = design.wrong
        self._is_first = True

    def chain(self, pieces: Sequence[Piece], values: Sequence[Any]) -> Any:
        """What the last piece gives of `values`."""
        for piece in pieces:
            values = [self._group(piece, values) if piece.inner else self._layer(piece, values)]
        return values[0]

    def _group(self, piece: Piece, values: Sequence[Any]) -> Any:
        given = self.chain(piece.inner, values)
        before, after = _told(values[:1]), _told([given])
        if isinstance(piece.part, Group) and piece.part.is_residual and before != after:
            raise self._wrong(
                f"residual: what it gives, {after}, cannot be added to its input, {before}",
                piece.part,
            )
        return given

    def _layer(self, piece: Piece, values: Sequence[Any]) -> Any:
        source = "the input" if self._is_first else "the layer before"
        self._is_first = False
        if piece.is_torchs and (wrong := _wrong_input(piece.module, values[0])):
            raise self._wrong(f"{piece.part} takes {wrong[0]} from {source}{wrong[1]}", piece.part)
        module = piece.module if piece.is_torchs else _copy(piece.module)
        try:
            given = _given(module, values)
        except Exception as error:
            needs_values = (
                isinstance(error, NotImplementedError) or "meta" in said_by(error).lower()
            )
            if needs_values and not piece.is_torchs:
                raise _UnknownError from error
            raise self._wrong(
                f"{piece.part} does not take {_told(values)} from {source}: {said_by(error)}",
                piece.part,
            ) from error
        if isinstance(given, torch.Tensor) and not given.numel():
            raise self._wrong(
                f"{piece.part} gives nothing of {_told(values)}: {_told([given])}", piece.part
            )
        return given


def _wrong_input(module: nn.Module, value: Any) -> tuple[str, str] | None:
    """What a layer of torch takes and does not get, and what to do; None where it fits."""
    if not isinstance(value, torch.Tensor):
        return f"a tensor, but gets a {type(value).__name__}", ""
    if takes_floats(module) and not (value.is_floating_point() or value.is_complex()):
        # Without memory torch computes these too.
        kind = str(value.dtype).removeprefix("torch.")
        return f"floating-point numbers, but gets {kind}", ""
    shape = tuple(value.shape)
    expected = expected_sizes(module, len(shape))
    if expected is None or shape[expected[0]] == expected[1]:
        return None
    position, size, what = expected
    can_flatten = isinstance(module, nn.Linear) and value[:1].numel() == size
    fix = "; write flatten() before it" if can_flatten else ""
    return f"{size} {what}, but gets {shape[position]}", f": {format_shape(shape)}{fix}"


def _given(module: nn.Module, values: Sequence[Any]) -> Any:
    """What a module gives; of a recurrent one a single step is run, since each takes as long."""
    value = values[0]
    if not isinstance(module, nn.RNNBase) or len(values) > 1 or value.dim() not in (2, 3):
        return module(*values)
    steps = 1 if module.batch_first and value.dim() == 3 else 0
    given = module(value.narrow(steps, 0, 1))
    sizes = list(given.shape)
    sizes[steps] = value.shape[steps]
    return given.new_empty(sizes)


def _copy(module: nn.Module) -> nn.Module:
    """A copy of a user's own module: what it keeps from its first call would be without values."""
    if any(not each.is_meta for each in module.parameters()):
        raise _UnknownError
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise _UnknownError from error


def _told(values: Sequence[Any]) -> str:
    return ", ".join(
        format_shape(tuple(each.shape))
        if isinstance(each, torch.Tensor)
        else f"a {type(each).__name__}"
        for each in values
    )


@contextmanager
def _in_eval_mode(modules: Sequence[nn.Module]) -> Iterator[None]:
    training = {each: each.training for module in modules for each in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for each, mode in training.items():
            each.training = mode
