"""Convolutions as rules see them: sizes, and what makes one that cannot be rewritten."""

from __future__ import annotations

from collections.abc import Sequence

from roofline.substitution.graphs.graph import Graph, Node
from roofline.substitution.graphs.weights import Weight
from roofline.substitution.rules.kernels import zeros
from roofline.substitution.rules.refusals import called, not_floating, not_weights

CONVOLUTIONS = frozenset({"aten.conv1d", "aten.conv2d", "aten.conv3d"})
TRANSPOSED = frozenset({"aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d"})


def kernel_size(graph: Graph, node: Node) -> tuple[int, ...]:
    """The spatial sizes of its kernel."""
    return graph.type_of(node["weight"]).shape[2:]


def channel_dim(graph: Graph, node: Node) -> int:
    """The dimension of its output's channels: 1, or 0 where it takes no batch."""
    return len(node.type.shape) - len(kernel_size(graph, node)) - 1


def bias_of(node: Node) -> Weight:
    """Its bias, zeros where it has none."""
    if node["bias"] is not None:
        return node["bias"]
    kernel: Weight = node["weight"]
    return zeros(kernel.type.shape[0], kernel.type.dtype)


def not_foldable(graph: Graph, number: int) -> str:
    """Why nothing can be folded into its kernel; ``""``: something can."""
    node = graph.nodes[number]
    if node.op in TRANSPOSED:
        return f"{called(graph, number)} is a transposed convolution"
    return not_weights(graph, number, ("weight", "bias")) or not_floating(node.weights())


def not_plain(graph: Graph, number: int) -> str:
    """Why its kernel cannot be changed in size or joined with another; ``""``: it can."""
    found = not_foldable(graph, number)
    padding = graph.nodes[number]["padding"]
    if not found and isinstance(padding, str):
        return f"the padding of {called(graph, number)} is '{padding}', not numbers"
    return found


def sizes_said(sizes: Sequence[tuple[int, ...]]) -> str:
    """Sizes for a sentence: ``"1x3, 3x1"``, each once."""
    return ", ".join(dict.fromkeys("x".join(map(str, each)) for each in sizes))
