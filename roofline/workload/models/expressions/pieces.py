"""The modules that were made of the parts of a design."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

from roofline.workload.models.expressions.syntax import Group, Layer


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
