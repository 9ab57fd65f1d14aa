"""Rules of matrix products: merging of products with one operand, and fused activations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

from roofline.substitution.graphs.graph import Argument, Editor, Graph, Node, Value, Weight
from roofline.substitution.rules.matching import (
    SIBLINGS,
    Siblings,
    builtin_rule,
    first_reason,
    node_name,
    not_weights,
    other_activations,
    split_merged,
    tied,
    used_elsewhere,
)
from roofline.substitution.rules.rule import Chain, FunctionPattern, Match, Step
from roofline.substitution.rules.weights import (
    concatenate,
    concatenate_biases,
    concatenate_columns,
    transpose,
)

_OPERANDS = {
    "aten.linear": ("input", "weight"),
    "aten.matmul": ("self", "other"),
    "aten.mm": ("self", "mat2"),
    "aten.bmm": ("self", "mat2"),
    "aten.addmm": ("mat1", "mat2"),
}
"""Left and right operand names of matrix products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Product of a value [..., K] and a weight, plus a bias, computed by node `number`.

    ``weight`` is [N, K] with ``has_rows`` (as in ``aten.linear``), else [K, N]. ``bias`` is [N] or
    None. ``inside`` is the node that transposes the weight, if any.
    """

    number: int
    value: Value
    weight: Weight
    bias: Weight | None
    has_rows: bool
    inside: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Number of outputs N."""
        return self.weight.type.shape[0 if self.has_rows else 1]

    @property
    def rows(self) -> Weight:
        return self.weight if self.has_rows else transpose(self.weight)


def product(graph: Graph, number: int) -> Product | None:
    """Return the product that a node computes; None: without a weight, or with scale factors."""
    node = graph.nodes[number]
    if node.op not in _OPERANDS or node.op == "aten.bmm" or node.overload != "default":
        return None
    value = node[_OPERANDS[node.op][0]]
    found = _matrix_of(graph, node)
    if not isinstance(value, Value) or found is None or not graph.type_of(value).shape:
        return None
    weight, has_rows, inside = found
    bias = node["self"] if node.op == "aten.addmm" else node.get("bias")
    if node.op == "aten.addmm" and (node["beta"] != 1 or node["alpha"] != 1):
        return None
    width = weight.type.shape[0 if has_rows else 1]
    if bias is not None and not (isinstance(bias, Weight) and bias.type.shape == (width,)):
        return None
    return Product(
        number=number, value=value, weight=weight, bias=bias, has_rows=has_rows, inside=inside
    )


def products(graph: Graph, numbers: Sequence[int]) -> list[Product]:
    found = [product(graph, number) for number in numbers]
    return [each for each in found if each is not None]


def biases_of(found: Sequence[Product]) -> Weight | None:
    """Return the concatenated biases of products; None: all are missing."""
    sizes = [each.width for each in found]
    return concatenate_biases([each.bias for each in found], sizes, found[0].weight.type.dtype)


def _matrix_of(graph: Graph, node: Node) -> tuple[Weight, bool, tuple[int, ...]] | None:
    """Return the right-hand weight, whether it is [N, K], and its transposing node."""
    right = _right(node)
    is_linear = node.op == "aten.linear"
    if isinstance(right, Weight):
        return (right, is_linear, ()) if len(right.type.shape) == 2 else None
    if is_linear or not isinstance(right, Value):
        return None
    turning = graph.nodes[right.node]
    weight = turning.get("self")
    if not isinstance(weight, Weight) or len(weight.type.shape) != 2:
        return None
    return (weight, True, (right.node,)) if _transposes(turning) else None


def _right(node: Node) -> Value | Weight:
    return node[_OPERANDS[node.op][1]]


def _transposes(node: Node) -> bool:
    if node.op in ("aten.t", "aten.numpy_T"):
        return True
    if node.op in ("aten.transpose", "aten.swapaxes"):
        names = ("dim0", "dim1") if node.op == "aten.transpose" else ("axis0", "axis1")
        return {node[name] % 2 for name in names} == {0, 1}
    return node.op == "aten.permute" and tuple(each % 2 for each in node["dims"]) == (1, 0)


# -- parallel linear layers ------------------------------------------------------------------------


def _is_twice(weights: list[Weight]) -> str:
    for place, weight in enumerate(weights):
        if weight in weights[:place]:
            return f"weight {weight} is used twice: it would be duplicated"
    return ""


def _agree_linears(graph: Graph, node: Node) -> Hashable:
    weight = node["weight"]
    if not isinstance(weight, Weight) or len(weight.type.shape) != 2:
        return None
    return weight.type.dtype


def _linears_refuse(graph: Graph, match: Match) -> str:
    numbers = match.all(SIBLINGS)
    return (
        first_reason(not_weights(graph, number, ("bias",)) for number in numbers)
        or other_activations(graph, numbers)
        or _is_twice([graph.nodes[number]["weight"] for number in numbers])
        or tied(graph, numbers)
    )


@builtin_rule(
    "merge-linears",
    "merge parallel linear layers (query, key, value)",
    Siblings(ops=frozenset({"aten.linear"}), shared="input", agree=_agree_linears),
    _linears_refuse,
)
def _merge_linears(editor: Editor, match: Match) -> None:
    found = products(editor.graph, match.all(SIBLINGS))
    node = editor.node(found[0].number)
    merged = editor.add_like(
        node, weight=concatenate([each.weight for each in found]), bias=biases_of(found)
    )
    split_merged(editor, match, merged, [each.width for each in found], len(node.type.shape) - 1)


# -- products with one left operand ----------------------------------------------------------------


def _agree_matmuls(graph: Graph, node: Node) -> Hashable:
    """Return a key that is equal for right operands that can be concatenated."""
    type = graph.type_of(_right(node))
    left = graph.type_of(node[_OPERANDS[node.op][0]])
    if len(type.shape) < 2 or len(left.shape) < 2:
        return None
    if node.op == "aten.addmm":
        bias = node["self"]
        is_whole = isinstance(bias, Weight) and bias.type.shape == type.shape[-1:]
        if not is_whole or node["beta"] != 1 or node["alpha"] != 1:
            return None
    return (_kind(graph, node), type.shape[:-1], type.dtype)


def _kind(graph: Graph, node: Node) -> str:
    """Return the kind of right operand: weight, transposed weight, or value."""
    if isinstance(_right(node), Weight):
        return "weight"
    return "value" if _matrix_of(graph, node) is None else "transposed weight"


_MATMULS = tuple(
    Siblings(ops=frozenset(ops), shared=shared, agree=_agree_matmuls)
    for ops, shared in ((("aten.matmul", "aten.mm", "aten.bmm"), "self"), (("aten.addmm",), "mat1"))
)


def _matmuls_refuse(graph: Graph, match: Match) -> str:
    numbers = match.all(SIBLINGS)
    if found := other_activations(graph, numbers):
        return found
    nodes = [graph.nodes[number] for number in numbers]
    inside = [right.node for right in map(_right, nodes) if isinstance(right, Value)]
    if _kind(graph, nodes[0]) == "value":
        return _needs_another(graph, numbers, inside)
    matrices = [found[0] for node in nodes if (found := _matrix_of(graph, node))]
    return _is_twice(matrices) or tied(graph, (*inside, *numbers))


def _needs_another(graph: Graph, numbers: tuple[int, ...], waiting: list[int]) -> str:
    """Return a refusal if one sibling depends on another one."""
    earliest = min(map(graph.position.__getitem__, numbers))
    seen: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in numbers:
            return f"the output of {node_name(graph, number)} is an operand of another one"
        if number not in seen and graph.position[number] > earliest:
            seen.add(number)
            waiting += [value.node for value in graph.nodes[number].values()]
    return ""


@builtin_rule(
    "merge-matmuls",
    "merge matrix products with the same left operand",
    FunctionPattern(lambda graph: chain(*(each.matches(graph) for each in _MATMULS))),
    _matmuls_refuse,
)
def _merge_matmuls(editor: Editor, match: Match) -> None:
    graph = editor.graph
    nodes = [graph.nodes[number] for number in match.all(SIBLINGS)]
    node, kind = nodes[0], _kind(graph, nodes[0])
    left, right = _OPERANDS[node.op]
    if kind == "transposed weight":
        found = products(graph, match.all(SIBLINGS))
        merged = editor.add(
            "aten.linear",
            module_path=node.module_path,
            input=node[left],
            weight=concatenate([each.weight for each in found]),
            bias=biases_of(found),
        )
    else:
        changed: dict[str, Argument] = {}
        rights = [each[right] for each in nodes]
        if kind == "weight":
            changed[right] = concatenate_columns(rights)
        else:
            dim, path = len(graph.type_of(rights[0]).shape) - 1, node.module_path
            joined = editor.add("aten.cat", module_path=path, tensors=tuple(rights), dim=dim)
            changed[right] = Value(joined)
        if node.op == "aten.addmm":
            changed["self"] = concatenate([each["self"] for each in nodes])
        merged = editor.add_like(node, **changed)
    sizes = [each.type.shape[-1] for each in nodes]
    split_merged(editor, match, merged, sizes, len(node.type.shape) - 1)


# -- fused activations -----------------------------------------------------------------------------
#
# `aten._addmm_activation` computes a product with bias, then ReLU or GELU. On a CPU, it uses the
# error function for GELU; on CUDA it uses tanh, where the rule would be wrong. `aten` has no such
# operator for other activations, for products without bias, or for convolutions (those of oneDNN
# in `torch.ops.mkldnn` belong to the compiler).


def _fuse_refuses(graph: Graph, match: Match) -> str:
    number = match["product"]
    found, activation = product(graph, number), graph.nodes[match["activation"]]
    name = node_name(graph, number)
    if found is None:
        return f"{name} has an operand computed at run time, or scale factors"
    if found.bias is None:
        return f"{name} has no bias, which the fused operator requires"
    approximate = activation.get("approximate", "none")
    if approximate != "none":
        return f"the fused operator does not support gelu with approximate='{approximate}'"
    type = graph.type_of(found.value)
    if len(type.shape) != 2 and not type.is_contiguous:
        return f"the input of {name} is not contiguous"
    return used_elsewhere(graph, number, (match["activation"],))


@builtin_rule(
    "fuse-activation",
    "fuse ReLU or GELU into the preceding matrix product with bias",
    Chain(
        steps=(
            Step(role="product", ops=frozenset(_OPERANDS) - {"aten.bmm"}),
            Step(role="activation", ops=frozenset({"aten.relu", "aten.gelu"}), after="product"),
        )
    ),
    _fuse_refuses,
)
def _fuse(editor: Editor, match: Match) -> None:
    graph = editor.graph
    (found,), activation = products(graph, (match["product"],)), graph.nodes[match["activation"]]
    path, shape = graph.nodes[found.number].module_path, graph.type_of(found.value).shape
    taken, matrix = found.value, found.weight
    if len(shape) != 2:
        size = (-1, shape[-1])
        taken = Value(editor.add("aten.view", module_path=path, self=taken, size=size))
    if found.has_rows:
        matrix = Value(editor.add("aten.t", module_path=path, self=matrix))
    fused = editor.add(
        "aten._addmm_activation",
        module_path=path,
        self=found.bias,
        mat1=taken,
        mat2=matrix,
        use_gelu=activation.op == "aten.gelu",
    )
    if len(shape) != 2:
        size = (*shape[:-1], found.width)
        fused = editor.add("aten.view", module_path=path, self=Value(fused), size=size)
    editor.replace(Value(match["activation"]), Value(fused))
