"""Rule that lets a matrix product do the activation behind it.

Of what torch has for this, `aten._addmm_activation` is used: a product with a bias, then ReLU or
GELU, as one operator. On a CPU it writes the activation over the product, and computes GELU by the
error function; on CUDA it computes GELU by tanh, so that there the rule would be wrong for GELU.
For sigmoid, tanh and others, for products without a bias, and for convolutions `aten` has no such
operator (those of oneDNN in `torch.ops.mkldnn` are the compiler's own).
"""

from __future__ import annotations

from roofline.substitution.graphs.editing import Editor
from roofline.substitution.graphs.graph import Graph, Value
from roofline.substitution.graphs.weights import contiguous
from roofline.substitution.rules.products import PRODUCTS, product
from roofline.substitution.rules.refusals import called, used_elsewhere
from roofline.substitution.rules.registry import register_rule
from roofline.substitution.rules.rule import Chain, Match, Rule, Step


def _refuses(graph: Graph, match: Match) -> str:
    number = match["product"]
    found, activation = product(graph, number), graph.nodes[match["activation"]]
    name = called(graph, number)
    if found is None:
        return f"{name} multiplies by what is computed when the model runs, or adds with factors"
    if found.bias is None:
        return f"{name} has no bias, and the fused operator wants one"
    approximate = activation.get("approximate", "none")
    if approximate != "none":
        return f"gelu is approximated by {approximate}: the fused operator does not do that"
    type = graph.type_of(found.value)
    if len(type.shape) != 2 and type.stride != contiguous(type.shape, type.dtype).stride:
        return f"what {name} takes is not contiguous, and no matrix can be made of it"
    return used_elsewhere(graph, number, (match["activation"],))


def _rewrite(editor: Editor, match: Match) -> None:
    graph = editor.graph
    found, activation = product(graph, match["product"]), graph.nodes[match["activation"]]
    assert found is not None
    path = graph.nodes[found.number].module_path
    shape = graph.type_of(found.value).shape
    taken = found.value
    if len(shape) != 2:
        size = (-1, shape[-1])
        taken = Value(editor.add("aten.view", module_path=path, self=taken, size=size))
    matrix = found.weight
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


register_rule(
    Rule(
        name="fuse-activation",
        summary="a product with a bias and the ReLU or GELU behind it become one operator",
        pattern=Chain(
            steps=(
                Step(role="product", ops=PRODUCTS),
                Step(role="activation", ops=frozenset({"aten.relu", "aten.gelu"}), after="product"),
            )
        ),
        refuses=_refuses,
        rewrite=_rewrite,
    )
)
