"""Inputs of every kind for a model: noise, edges, and the user's own; what proofs are made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from roofline.substitution.graphs.graph import INPUT, Graph, Value, values_in
from roofline.substitution.graphs.weights import Weight
from roofline.workload.inputs import InputRequest, Inputs
from roofline.workload.torch_dtypes import dtype_for

_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of inputs: normal noise is multiplied by ``scale``, or all elements are ``value``."""

    name: str
    scale: float = 1.0
    value: float | None = None
    is_negative: bool = False


KINDS = (
    Kind(name="noise"),
    Kind(name="zeros", value=0.0),
    Kind(name="ones", value=1.0),
    Kind(name="large", scale=1e3),
    Kind(name="tiny", scale=1e-6),
    Kind(name="negative", is_negative=True),
)


def trials(inputs: Inputs, most: Mapping[int, int]) -> Iterator[tuple[str, Inputs]]:
    """Inputs of every kind, the plain noise first; last those that the user gave.

    Args:
        inputs: types and sizes, and values where tensors were given.
        most: how many rows the tables have that inputs are indices of, see `most_indices`.
    """
    for kind in KINDS:
        generator = torch.Generator().manual_seed(_SEED)
        places = {id(request): place for place, (_, request) in enumerate(inputs.requests())}

        def made(
            request: InputRequest,
            kind: Kind = kind,
            generator: torch.Generator = generator,
            places: Mapping[int, int] = places,
        ) -> torch.Tensor:
            return _made(request, kind, generator, most.get(places[id(request)], 2))

        yield kind.name, _inputs(inputs, made)
    if any(_is_given(request) for _, request in inputs.requests()):
        yield "given", inputs


def _inputs(inputs: Inputs, make: Any) -> Inputs:
    made = Inputs()
    args, kwargs = inputs.made(
        lambda request: InputRequest(shape=request.shape, like=make(request))
    )
    made.args, made.kwargs = args, kwargs
    return made


def _is_given(request: InputRequest) -> bool:
    return request.like is not None and tuple(request.like.shape) == request.shape


def _made(request: InputRequest, kind: Kind, generator: torch.Generator, most: int) -> torch.Tensor:
    """A tensor of a kind; indices and flags that were given stay, for a model takes not all."""
    dtype = dtype_for(request, None)
    if not (dtype.is_floating_point or dtype.is_complex):
        if request.like is not None and _is_given(request):
            return request.like
        if dtype == torch.bool:
            return torch.ones(request.shape, dtype=dtype)
        if kind.value is not None:
            return torch.full(request.shape, min(int(kind.value), most - 1), dtype=dtype)
        return torch.randint(0, most, request.shape, generator=generator, dtype=dtype)
    if kind.value is not None:
        return torch.full(request.shape, kind.value, dtype=dtype)
    noise = torch.randn(request.shape, generator=generator, dtype=torch.float64)
    noise = -noise.abs() if kind.is_negative else noise
    return (noise * kind.scale).to(dtype)


def most_indices(graph: Graph) -> dict[int, int]:
    """How many rows the tables have that the inputs of a graph are indices of, by input.

    Inputs are numbered in their order; those that are no indices are not there.
    """
    found: dict[int, int] = {}
    inputs = [number for number, node in graph.nodes.items() if node.op == INPUT]
    for place, start in enumerate(inputs):
        reached = {start}
        for number, node in graph.nodes.items():
            taken = [value for value in node.values() if value.node in reached]
            if not taken:
                continue
            if node.op == "aten.embedding":
                indices, table = node.get("indices"), node.get("weight")
                is_index = any(value.node in reached for value in values_in(indices))
                if is_index and isinstance(table, (Weight, Value)):
                    rows = graph.type_of(table).shape[0]
                    found[place] = min(rows, found.get(place, rows))
            elif all(each is None or not _is_floating(each.dtype) for each in node.outputs):
                reached.add(number)
    return found


def _is_floating(dtype: str) -> bool:
    return "float" in dtype or "complex" in dtype
