"""What a packed model is made of, and how many bytes each part of it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from roofline.foundation.files import write_atomically
from roofline.quantization.codes.packing import unpack

Kind = Literal["codes", "scale", "clipping", "other"]
"""Packed weights; what their codes are multiplied by; the clipping of activations; all the rest:
biases, norms, layers that are not quantised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedTensor:
    """A row of the table of bytes: one tensor, ``bits`` of each of its elements."""

    name: str
    kind: Kind
    bits: int
    elements: int
    byte: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """The weight of one layer: ``packed`` codes, and ``alpha`` for all or for each channel.

    ``axis`` is the dimension of the weight that has the channels. The value of a code is
    ``alpha / (levels - 1) * (2 * code - (levels - 1))``.
    """

    bits: int
    levels: int
    axis: int
    shape: tuple[int, ...]
    packed: torch.Tensor
    alpha: torch.Tensor

    def codes(self) -> torch.Tensor:
        """The codes in the shape of the weight."""
        return unpack(self.packed, self.bits, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBits:
    """How a module quantises what it reads; its clipping value is among the ``rest``."""

    bits: int
    signed: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedModel:
    """A quantised model as what a file needs to hold: codes, scales, and the rest as it is.

    ``weights`` and ``inputs`` are by the qualified names of modules, ``rest`` by the names of a
    state dict. What two names share is the same object under both, and is counted once.
    """

    weights: Mapping[str, PackedWeight]
    inputs: Mapping[str, InputBits]
    rest: Mapping[str, torch.Tensor]

    @property
    def byte(self) -> int:
        """The bytes of all of it: codes packed, each tensor once, no names and no alignment."""
        return sum(row.byte for row in self.rows)

    @property
    def rows(self) -> tuple[PackedTensor, ...]:
        """Its bytes by tensor; codes and scales of a weight are two rows under one name."""
        found: list[PackedTensor] = []
        seen: set[int] = set()
        for path, weight in self.weights.items():
            if id(weight) not in seen:
                seen.add(id(weight))
                name = in_module(path, "weight")
                found.append(
                    PackedTensor(
                        name=name,
                        kind="codes",
                        bits=weight.bits,
                        elements=math.prod(weight.shape),
                        byte=weight.packed.numel(),
                    )
                )
                found.append(_row(name, "scale", weight.alpha))
        for name, tensor in self.rest.items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found.append(_row(name, _kind(name), tensor))
        return tuple(found)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file, whole or not at all; `packed_models.load_packed` reads it.

        Besides these bytes the file has names and shapes: about a hundred bytes for each tensor,
        and two thousand.

        Raises:
            InputError: a file that exists, or one that cannot be written.
        """
        from roofline.quantization.codes.packed_files import file_content

        write_atomically(Path(path), file_content(self), overwrite=overwrite)


def in_module(path: str, name: str) -> str:
    """The name of a module's tensor in the state dict of the model: ``"layer1.0.conv1.weight"``."""
    return f"{path}.{name}" if path else name


def _row(name: str, kind: Kind, tensor: torch.Tensor) -> PackedTensor:
    return PackedTensor(
        name=name,
        kind=kind,
        bits=8 * tensor.element_size(),
        elements=tensor.numel(),
        byte=tensor.numel() * tensor.element_size(),
    )


def _kind(name: str) -> Kind:
    parts = name.split(".")
    if "input_quantizer" in parts:
        return "clipping"
    return "scale" if parts[-4:-2] == ["parametrizations", "weight"] else "other"
