"""Other weights for a model, and its graph in another type: what proofs are made with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch

from roofline.substitution.graphs.capturing import CapturedModel
from roofline.substitution.graphs.graph import Argument, Graph
from roofline.substitution.graphs.weights import TensorType, Weight
from roofline.workload.torch_dtypes import torch_dtype

_SEED = 0


def random_weights(captured: CapturedModel) -> dict[str, torch.Tensor]:
    """Other numbers for a model's parameters and for the statistics of its norms.

    Variances and the scales of norms are positive, matrices as large as keeps what they are
    multiplied with about as large. Other buffers mean something (masks, positions), and stay.
    """
    generator = torch.Generator().manual_seed(_SEED)
    variances, scales, means, parameters = _roles(captured.graph)
    found: dict[str, torch.Tensor] = {}
    made: dict[tuple[object, ...], torch.Tensor] = {}
    for name, tensor in captured.weights.items():
        if not tensor.is_floating_point():
            found[name] = tensor
            continue
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape)
        if key in made:
            found[name] = made[key]
            continue
        shape = tensor.shape
        if name in variances or name in scales:
            numbers = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
        elif name in means or (name in parameters and tensor.dim() < 2):
            numbers = 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)
        elif name in parameters:
            fan_in = max(1, math.prod(shape[1:]))
            numbers = torch.randn(shape, generator=generator, dtype=torch.float64)
            numbers = numbers * (1.5 / math.sqrt(fan_in))
        else:
            found[name] = tensor
            continue
        random = torch.empty_like(tensor).copy_(numbers)
        found[name] = made[key] = random
    return found


_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm")


def _roles(graph: Graph) -> tuple[set[str], set[str], set[str], set[str]]:
    """The names of variances, of scales of norms, of means, and of all parameters."""
    variances, scales, means, parameters = set[str](), set[str](), set[str](), set[str]()
    for node in graph.nodes.values():
        is_norm = any(each in node.op for each in _NORMS)
        for argument, value in node.arguments:
            if not isinstance(value, Weight):
                continue
            names = {each.name for each in value.originals()}
            if argument == "running_var":
                variances |= names
            elif argument == "running_mean":
                means |= names
            elif is_norm and argument == "weight":
                scales |= names
        parameters |= {
            each.name
            for weight in node.weights()
            for each in weight.originals()
            if each.is_parameter
        }
    return variances, scales, means, parameters


def weights_in_type(
    captured: CapturedModel, weights: Mapping[str, torch.Tensor] | None, dtype: str
) -> dict[str, torch.Tensor]:
    """A model's weights, or others, in one floating type, those that are tied staying so."""
    to = torch_dtype(dtype)
    made: dict[int, torch.Tensor] = {}
    found: dict[str, torch.Tensor] = {}
    for name, tensor in (weights or captured.weights).items():
        if not tensor.is_floating_point():
            found[name] = tensor
            continue
        if id(tensor) not in made:
            made[id(tensor)] = tensor.detach().to(to)
        found[name] = made[id(tensor)]
    return found


def in_type(graph: Graph, dtype: str) -> Graph:
    """A graph that computes all that is floating in one type, and makes its weights in it."""
    types = {torch_dtype(name): torch_dtype(dtype) for name in _FLOATING}
    weights: dict[str, Weight] = {}

    def changed_type(type: TensorType) -> TensorType:
        return replace(type, dtype=dtype) if type.dtype in _FLOATING else type

    def changed(argument: Argument) -> Argument:
        if isinstance(argument, Weight):
            return changed_weight(argument)
        if isinstance(argument, tuple):
            return tuple(map(changed, cast("tuple[Argument, ...]", argument)))
        return types.get(argument, argument) if isinstance(argument, torch.dtype) else argument

    def changed_weight(weight: Weight) -> Weight:
        if weight.key not in weights:
            weights[weight.key] = Weight(
                type=changed_type(weight.type),
                is_parameter=weight.is_parameter,
                name=weight.name,
                made_by=weight.made_by,
                of=tuple(map(changed_weight, weight.of)),
                options=weight.options,
            )
        return weights[weight.key]

    nodes = {
        number: replace(
            node,
            arguments=tuple((name, changed(each)) for name, each in node.arguments),
            outputs=tuple(each and changed_type(each) for each in node.outputs),
        )
        for number, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes, outputs=tuple(map(changed, graph.outputs)))


_FLOATING = ("float16", "bfloat16", "float32", "float64")
