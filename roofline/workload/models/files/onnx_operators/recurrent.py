"""ONNX's recurrent layers, as torch's: weights are put into its order when the file is read."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from roofline.workload.models.files.onnx_graph import Graph, Node
from roofline.workload.models.files.onnx_operators.registry import operator

DOMAIN = "torch"
"""Of nodes whose weights are in torch's order."""

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""Where torch's gates are among ONNX's: input, output, forget, cell; update, reset, hidden."""

_USUAL = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}


def with_torch_weights(graph: Graph) -> Graph:
    """The graph with recurrent layers that take their weights as torch has them.

    Layers that torch cannot run (peepholes, other activations, weights that are computed) stay as
    they are, and are unknown.
    """
    weights = dict(graph.weights)
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.operator in _GATES and not node.domain and _is_torchs(node, graph):
            node, made = _rewritten(node, graph)
            weights |= made
        nodes.append(node)
    used = {name for node in nodes for name in node.inputs} | set(graph.outputs)
    kept = {name: each for name, each in weights.items() if name in used}
    return replace(graph, nodes=tuple(nodes), weights=kept)


def _is_torchs(node: Node, graph: Graph) -> bool:
    names = (*node.inputs, *[""] * 8)
    directions = 2 if node.get("direction") == "bidirectional" else 1
    activations = node.get("activations") or _USUAL[node.operator] * directions
    return (
        _are_whole(node, graph, names, directions)
        and not names[7]
        and not names[4]
        and activations == _USUAL[node.operator] * directions
        and not node.get("clip")
        and not node.get("layout", 0)
        and not node.get("input_forget", 0)
        and node.get("direction", "forward") != "reverse"
        and (node.operator != "GRU" or bool(node.get("linear_before_reset", 0)))
    )


def _are_whole(node: Node, graph: Graph, names: tuple[str, ...], directions: int) -> bool:
    """Whether its weights are in the file, in the shapes of gates of one size."""
    inner, outer, bias = (graph.weights.get(names[place]) for place in (1, 2, 3))
    if inner is None or outer is None or inner.dim() != 3 or (names[3] and bias is None):
        return False
    hidden = node.get("hidden_size", outer.shape[-1])
    rows = len(_GATES[node.operator]) * hidden
    return (
        rows > 0
        and inner.shape[:2] == (directions, rows)
        and outer.shape == (directions, rows, hidden)
        and (bias is None or bias.shape == (directions, 2 * rows))
    )


def _rewritten(node: Node, graph: Graph) -> tuple[Node, dict[str, Tensor]]:
    """The node with torch's weights as its inputs, and these weights by name."""
    names = (*node.inputs, *[""] * 8)
    inner, outer = (graph.weights[names[place]] for place in (1, 2))
    order, hidden = _GATES[node.operator], outer.shape[-1]
    bias = graph.weights[names[3]] if names[3] else None
    made: dict[str, Tensor] = {}
    for direction in range(inner.shape[0]):
        parts = {"inner": inner[direction], "outer": outer[direction]}
        if bias is not None:
            half = len(order) * hidden
            parts["inner_bias"] = bias[direction][:half]
            parts["outer_bias"] = bias[direction][half:]
        for what, tensor in parts.items():
            gates = tensor.split(hidden)
            made[f"{names[1]}_{names[2]}_{direction}_{what}"] = torch.cat(
                [gates[each] for each in order]
            )
    inputs = (names[0], names[5], names[6] if node.operator == "LSTM" else "", *made)
    sized = {**node.attributes, "hidden_size": hidden}
    return replace(node, domain=DOMAIN, inputs=inputs, attributes=sized), made


@operator("torch.LSTM")
def lstm(
    node: Node, x: Tensor, hidden: Tensor | None, cell: Tensor | None, *weights: Tensor
) -> tuple[Tensor, ...]:
    """One layer, in one direction or both."""
    zeros = _zeros(node, x)
    states = [zeros if hidden is None else hidden, zeros if cell is None else cell]
    both = _is_both(node)
    result, *last = torch.lstm(
        x, states, list(weights), _has_bias(node, weights), 1, 0.0, False, both, False
    )
    return _by_direction(node, result), *last


@operator("torch.GRU")
def gru(
    node: Node, x: Tensor, hidden: Tensor | None, _cell: None, *weights: Tensor
) -> tuple[Tensor, ...]:
    """One layer, in one direction or both."""
    state = _zeros(node, x) if hidden is None else hidden
    result, last = torch.gru(
        x, state, list(weights), _has_bias(node, weights), 1, 0.0, False, _is_both(node), False
    )
    return _by_direction(node, result), last


@operator("torch.RNN")
def rnn(
    node: Node, x: Tensor, hidden: Tensor | None, _cell: None, *weights: Tensor
) -> tuple[Tensor, ...]:
    """One layer, in one direction or both."""
    state = _zeros(node, x) if hidden is None else hidden
    result, last = torch.rnn_tanh(
        x, state, list(weights), _has_bias(node, weights), 1, 0.0, False, _is_both(node), False
    )
    return _by_direction(node, result), last


def _is_both(node: Node) -> bool:
    return node.get("direction") == "bidirectional"


def _has_bias(node: Node, weights: tuple[Tensor, ...]) -> bool:
    return len(weights) == 4 * (2 if _is_both(node) else 1)


def _zeros(node: Node, x: Tensor) -> Tensor:
    return x.new_zeros((2 if _is_both(node) else 1, x.shape[1], node["hidden_size"]))


def _by_direction(node: Node, result: Tensor) -> Tensor:
    """As ONNX lays results out: steps, directions, samples, features."""
    directions = 2 if _is_both(node) else 1
    return result.unflatten(-1, (directions, node["hidden_size"])).transpose(1, 2)
