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

NAMESPACE = "onnx_operator"
"""How results call them: ``onnx_operator.FancyAttention``."""

_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
_DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.bool, torch.uint8, torch.int8, torch.int16),
)


def unknown_call(
    node: Node, operands: Sequence[torch.Tensor | None], known: Mapping[str, Value], *, title: str
) -> tuple[torch.Tensor, ...]:
    """What an operator gives that is not known, by the shapes that the file tells.

    Raises:
        ModelError: the file tells no shape.
    """
    name = printable(node.full_name)[:80]
    told: list[Value] = []
    for output in node.outputs:
        value = known.get(output)
        if value is None or not all(isinstance(size, int) for size in value.shape):
            raise ModelError(
                f"{title}: the ONNX operator {name} ('{printable(node.name)[:60]}') is not known"
                " here, and the file does not tell what shape it gives; run"
                " onnx.shape_inference.infer_shapes on it, or export the model as .pt2"
            )
        told.append(value)
    sizes = [int(size or 0) for value in told for size in value.shape]
    ranks = [len(value.shape) for value in told]
    kinds = [_DTYPES.index(value.dtype) for value in told]
    operator = _operator(re.sub(r"\W", "_", name))
    given = [each for each in operands if each is not None]
    return tuple(operator(given, sizes, ranks, kinds))


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
