"""Operators of ONNX files that no table has: their bytes are counted, their FLOP are unknown."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from roofline.errors import ModelError
from roofline.foundation.text import printable
from roofline.workload.models.files.onnx_graph import Node, Value
from roofline.workload.models.files.onnx_tensors import DTYPES

NAMESPACE = "onnx_operator"
"""How results call them: ``onnx_operator.FancyAttention``."""

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_DTYPES = tuple(DTYPES.values())


def unknown_call(
    node: Node, operands: Sequence[torch.Tensor | None], known: Mapping[str, Value], *, title: str
) -> tuple[torch.Tensor | None, ...]:
    """What an operator gives that is not known, by the shapes that the file tells.

    None where the node leaves an output out.

    Raises:
        ModelError: the file tells no shape.
    """
    name = printable(node.full_name)[:80]
    told = [known.get(output) for output in node.outputs if output]
    shapes = [_sizes(value) for value in told if value is not None]
    found = [each for each in shapes if each is not None]
    if len(found) != len(told):
        raise ModelError(
            f"{title}: the ONNX operator {name} ('{printable(node.name)[:60]}') is not known here,"
            " and the file does not tell what shape it gives; run"
            " onnx.shape_inference.infer_shapes on it, or export the model as .pt2"
        )
    kinds = [_DTYPES.index(value.dtype) for value in told if value is not None]
    safe = re.sub(r"[^A-Za-z0-9]", "_", name)
    operator = _operator(safe if safe[:1].isalpha() else f"operator_{safe}")
    given = [each for each in operands if each is not None]
    sizes = [size for each in found for size in each]
    results = iter(operator(given, sizes, [len(each) for each in found], kinds))
    return tuple(next(results) if output else None for output in node.outputs)


def _sizes(value: Value) -> tuple[int, ...] | None:
    """The shape of a value; None where it is not told, or only in part."""
    sizes = [each for each in value.shape or () if isinstance(each, int) and each >= 0]
    return tuple(sizes) if value.shape is not None and len(sizes) == len(value.shape) else None


@functools.cache
def _operator(name: str) -> Any:
    """torch's operator of that name, made when it is first met."""
    _LIBRARY.define(f"{name}(Tensor[] inputs, int[] sizes, int[] ranks, int[] kinds) -> Tensor[]")

    def results(
        inputs: list[torch.Tensor], sizes: list[int], ranks: list[int], kinds: list[int]
    ) -> list[torch.Tensor]:
        left = list(sizes)
        found: list[torch.Tensor] = []
        device = inputs[0].device if inputs else torch.device("cpu")
        for rank, kind in zip(ranks, kinds, strict=True):
            shape, left = left[:rank], left[rank:]
            found.append(torch.empty(shape, dtype=_DTYPES[kind], device=device))
        return found

    def refuse(*_: Any) -> Any:
        raise ModelError(f"the ONNX operator {name} is not known here: it can be counted, not run")

    torch.library.register_fake(f"{NAMESPACE}::{name}", results, lib=_LIBRARY)
    _LIBRARY.impl(name, refuse, "CPU")
    return getattr(getattr(torch.ops, NAMESPACE), name)
