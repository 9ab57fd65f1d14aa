"""Rules of convolutions: batch-norm folding, and merging of parallel convolutions.

Kernels of different sizes are padded with zeros to a common size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from roofline.substitution.graphs.graph import Editor, Graph, Node, Value, Weight
from roofline.substitution.rules.matching import (
    SIBLINGS,
    Siblings,
    builtin_rule,
    node_name,
    not_floating,
    not_weights,
    other_activations,
    split_merged,
    tied,
    used_elsewhere,
)
from roofline.substitution.rules.rule import Chain, FunctionPattern, Match, Step
from roofline.substitution.rules.weights import concatenate, concatenate_biases, enlarge, fold_norm

CONVOLUTIONS = frozenset({"aten.conv1d", "aten.conv2d", "aten.conv3d"})
TRANSPOSED = frozenset({"aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d"})
NORM = "aten.batch_norm"


def kernel_size(graph: Graph, node: Node) -> tuple[int, ...]:
    return graph.type_of(node["weight"]).shape[2:]


def sizes_text(sizes: Sequence[tuple[int, ...]]) -> str:
    """Return distinct sizes: ``"1x3, 3x1"``."""
    return ", ".join(dict.fromkeys("x".join(map(str, each)) for each in sizes))


def not_foldable(graph: Graph, number: int) -> str:
    """Return the reason why nothing can be folded into the kernel; ``""``: none."""
    node = graph.nodes[number]
    if node.op in TRANSPOSED:
        return f"{node_name(graph, number)} is a transposed convolution"
    return not_weights(graph, number, ("weight", "bias")) or not_floating(node.weights())


def not_plain(graph: Graph, number: int) -> str:
    """Return the reason why the kernel cannot be resized or merged; ``""``: none."""
    found = not_foldable(graph, number)
    padding = graph.nodes[number]["padding"]
    if not found and isinstance(padding, str):
        return f"{node_name(graph, number)} has padding '{padding}' instead of numbers"
    return found


# -- batch norms -----------------------------------------------------------------------------------


def not_in_evaluation(graph: Graph, number: int) -> str:
    """Return the reason why a batch norm is not a constant scale and shift; ``""``: it is."""
    node = graph.nodes[number]
    if node["training"]:
        return f"{node_name(graph, number)} computes statistics from its input"
    if node["running_mean"] is None or node["running_var"] is None:
        return f"{node_name(graph, number)} has no running statistics"
    return not_weights(
        graph, number, ("weight", "bias", "running_mean", "running_var")
    ) or not_floating(node.weights())


def has_other_channels(graph: Graph, node: Node, spatial: int) -> bool:
    """Return whether a norm applies to another dimension than the channels of its producer."""
    return len(graph.type_of(node["input"]).shape) != spatial + 2


def _fold_refuses(graph: Graph, match: Match) -> str:
    number, norm = match["product"], match["norm"]
    if has_other_channels(graph, graph.nodes[norm], len(kernel_size(graph, graph.nodes[number]))):
        return f"{node_name(graph, norm)} and {node_name(graph, number)} have different channels"
    return (
        not_foldable(graph, number)
        or not_in_evaluation(graph, norm)
        or used_elsewhere(graph, number, (norm,))
        or tied(graph, match.numbers)
    )


def _product_and_norm(ops: frozenset[str]) -> Chain:
    return Chain(
        steps=(
            Step(role="product", ops=ops),
            Step(role="norm", ops=frozenset({NORM}), after="product", at="input"),
        )
    )


@builtin_rule(
    "fold-batch-norm",
    "fold batch norm (eval mode) into the preceding convolution",
    _product_and_norm(CONVOLUTIONS | TRANSPOSED),
    _fold_refuses,
)
@builtin_rule(
    "fold-linear-batch-norm",
    "fold batch norm (eval mode) into the preceding linear layer",
    _product_and_norm(frozenset({"aten.linear"})),
    _fold_refuses,
)
def _fold(editor: Editor, match: Match) -> None:
    node, norm = (editor.node(match[role]) for role in ("product", "norm"))
    kernel, bias = fold_norm(node["weight"], node["bias"], norm)
    new = editor.add_like(node, weight=kernel, bias=bias)
    editor.replace(Value(match["norm"]), Value(new))


# -- parallel convolutions -------------------------------------------------------------------------


def _agree(graph: Graph, node: Node) -> Hashable:
    names = ("stride", "padding", "dilation", "groups")
    settings = tuple(node[name] for name in names)
    return (kernel_size(graph, node), graph.type_of(node["weight"]).dtype, *settings)


def _aligned(graph: Graph, node: Node) -> Hashable:
    """Return a key that is equal for convolutions with aligned kernel centers."""
    if isinstance(node["padding"], str) or any(each != 1 for each in node["dilation"]):
        return None
    kernel = kernel_size(graph, node)
    before = tuple(2 * padding - k for padding, k in zip(node["padding"], kernel, strict=True))
    return (before, graph.type_of(node["weight"]).dtype, node["stride"], node["groups"])


def _common_kernel(graph: Graph, numbers: Sequence[int]) -> tuple[int, ...]:
    kernels = [kernel_size(graph, graph.nodes[number]) for number in numbers]
    return tuple(map(max, zip(*kernels, strict=True)))


def _grown(graph: Graph, node: Node, size: tuple[int, ...]) -> tuple[Weight, tuple[int, ...]]:
    """Return kernel and padding at another size, with unchanged results."""
    padding = zip(node["padding"], kernel_size(graph, node), size, strict=True)
    grown = tuple(before + (new - old) // 2 for before, old, new in padding)
    return enlarge(node["weight"], size), grown


_SIMILAR = Siblings(
    ops=CONVOLUTIONS,
    shared="input",
    agree=_aligned,
    wanted=lambda graph, numbers: len({kernel_size(graph, graph.nodes[n]) for n in numbers}) > 1,
)


def _smaller(graph: Graph) -> Iterator[Match]:
    """Yield convolutions with smaller kernels than siblings that they could merge with.

    One match per convolution and target size, with the siblings that require it.
    """
    for family in _SIMILAR.families(graph):
        for number in family:
            kernel = _common_kernel(graph, (number,))
            partners: dict[tuple[int, ...], list[int]] = {}
            for other in family:
                size = _common_kernel(graph, (number, other))
                if size != kernel:
                    partners.setdefault(size, []).append(other)
            for asking in partners.values():
                yield Match(nodes=(("convolution", (number,)), ("partners", tuple(asking))))


def _cannot_join(graph: Graph, numbers: Sequence[int]) -> str:
    """Return the reason why parallel convolutions cannot be merged; ``""``: none."""
    for number in numbers:
        if found := not_plain(graph, number):
            return found
        if graph.nodes[number]["groups"] != 1:
            return f"{node_name(graph, number)} has groups"
    return other_activations(graph, numbers) or tied(graph, numbers)


@builtin_rule(
    "merge-convolutions",
    "merge parallel convolutions with kernels of equal size",
    Siblings(ops=CONVOLUTIONS | TRANSPOSED, shared="input", agree=_agree),
    lambda graph, match: _cannot_join(graph, match.all(SIBLINGS)),
)
@builtin_rule(
    "enlarge-and-merge",
    "pad the kernels of parallel convolutions to equal size and merge them",
    _SIMILAR,
    lambda graph, match: _cannot_join(graph, match.all(SIBLINGS)),
    "adds work",
)
def _merge(editor: Editor, match: Match) -> None:
    graph, numbers = editor.graph, match.all(SIBLINGS)
    nodes = [graph.nodes[number] for number in numbers]
    grown = [_grown(graph, node, _common_kernel(graph, numbers)) for node in nodes]
    kernels = [kernel for kernel, _ in grown]
    sizes = [kernel.type.shape[0] for kernel in kernels]
    merged = editor.add_like(
        nodes[0],
        weight=concatenate(kernels),
        bias=concatenate_biases([node["bias"] for node in nodes], sizes, kernels[0].type.dtype),
        padding=grown[0][1],
    )
    # Unbatched inputs have channels as dimension 0.
    channel_dim = len(nodes[0].type.shape) - len(kernel_size(graph, nodes[0])) - 1
    split_merged(editor, match, merged, sizes, channel_dim)


def _enlarge_refuses(graph: Graph, match: Match) -> str:
    number = match["convolution"]
    reasons = [_cannot_join(graph, (number, partner)) for partner in match.all("partners")]
    return "" if "" in reasons else reasons[0]


@builtin_rule(
    "enlarge-kernel",
    "pad a kernel with zeros to the size of that of a parallel convolution",
    FunctionPattern(_smaller),
    _enlarge_refuses,
    "adds work",
)
def _enlarge(editor: Editor, match: Match) -> None:
    number = match["convolution"]
    node, size = editor.node(number), _common_kernel(editor.graph, (number, match["partners"]))
    kernel, padding = _grown(editor.graph, node, size)
    editor.replace(Value(number), Value(editor.add_like(node, weight=kernel, padding=padding)))
