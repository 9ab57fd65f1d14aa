"""DeepSpeed's FlopsProfiler: two numbers, MACs and FLOPs.

It patches the functions of ``torch.nn.functional`` and some methods of tensors, so it counts what
was called by these names: ``torch.add(a, b)`` but not ``a + b``, ``F.relu`` but not ``torch.relu``.
Recurrent layers are counted by a hook that knows FLOPs only.
"""

from __future__ import annotations

from roofline.counters.conventions.kinds import (
    CONVOLUTIONS,
    FUSED_LAYERS,
    PRODUCTS,
    TAKEN_APART,
    macs,
    two_a_multiply_add,
)
from roofline.counters.rules import Convention, Rule

RECURRENT = "recurrent layer"
"""The label of what its hooks on recurrent layers count."""

ADDEND = "addend"
"""The label of what it counts beside the multiply-adds of a product: biases and addends."""

_ATTENTION = frozenset(("attention",))
_LABELS = {
    "convolutions": frozenset(
        (
            *("conv1d", "conv2d", "conv3d"),
            *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        )
    ),
    "matrix products": frozenset(
        ("linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum")
    ),
    "attention": frozenset(("scaled_dot_product_attention",)),
}
_ACTIVATIONS = frozenset(
    ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu"),
)
_RECURRENT = frozenset(("recurrent",))


def _products(count: str) -> tuple[Rule, ...]:
    function = macs if count == "1" else two_a_multiply_add
    says = f"{count} a multiply-add"
    return (
        Rule(
            kind="fused layers",
            says=TAKEN_APART,
            portion="product",
            operators=FUSED_LAYERS,
            labels=_LABELS["matrix products"] | _LABELS["attention"],
        ),
        Rule(
            kind="convolutions",
            says=says,
            portion="product",
            types=CONVOLUTIONS,
            labels=_LABELS["convolutions"],
            count=function,
        ),
        Rule(
            # Attention that has no kernel of its own is matrix products to us, and not to it.
            kind="matrix products and attention",
            says=says,
            portion="product",
            operators=PRODUCTS,
            types=frozenset(("attention",)),
            labels=_LABELS["matrix products"] | _LABELS["attention"],
            count=function,
        ),
    )


MACS = Convention(
    number_name="MACs",
    meaning="1 a multiply-add",
    measure="macs",
    per_unit=1,
    rules=(
        *_products("1"),
        Rule(
            kind="recurrent layers",
            says="misses recurrent layers: their hook counts FLOPs and no MACs",
            portion="product",
            types=_RECURRENT,
            count=lambda _: 0,
        ),
    ),
)


def _rest(
    kind: str, says: str, labels: tuple[str, ...], *operators: str, types: tuple[str, ...] = ()
) -> Rule:
    return Rule(
        kind=kind,
        says=says,
        portion="rest",
        operators=frozenset(operators),
        types=frozenset(types),
        labels=frozenset(labels),
    )


FLOPS = Convention(
    number_name="FLOPs",
    meaning="2 a multiply-add, and all that it has a rule for",
    measure="flop",
    per_unit=1,
    by_name=True,
    rules=(
        *_products("2"),
        _rest(
            "biases and addends",
            "counts the biases of convolutions, not those of linear layers;"
            " of torch.addmm the addend as it is, before it is broadcast",
            (ADDEND,),
            *PRODUCTS,
            types=tuple(CONVOLUTIONS),
        ),
        Rule(
            kind="recurrent layers",
            says="counts recurrent layers by a formula of its own, without their sigmoid and tanh",
            portion="product",
            types=_RECURRENT,
        ),
        _rest(
            "recurrent layers",
            "counts recurrent layers by a formula of its own, without their sigmoid and tanh",
            (RECURRENT,),
            types=("recurrent",),
        ),
        _rest("fused layers", TAKEN_APART, (), *FUSED_LAYERS),
        _rest("softmax in attention", "misses the softmax in attention", (), types=("attention",)),
        _rest(
            "norms",
            "counts batch norm 2 an element, other norms 5 (1 and 4 without weights)",
            ("batch_norm", "layer_norm", "group_norm", "instance_norm"),
            types=("normalization",),
        ),
        _rest(
            "activations",
            "counts F.relu, F.gelu, F.silu … 1 an element; torch.relu, sigmoid, tanh not at all",
            tuple(_ACTIVATIONS),
            *_ACTIVATIONS,
            *("hardtanh", "_prelu_kernel"),
        ),
        _rest(
            "pooling and means",
            "counts pooling 1 an element of its input, whatever its kernel; other means not at all",
            tuple(
                f"{kind}_pool{dimensions}d"
                for kind in ("avg", "max", "adaptive_avg", "adaptive_max")
                for dimensions in (1, 2, 3)
            ),
            "mean",
            types=("pooling",),
        ),
        _rest("softmax", "counts F.softmax 1 an element", ("softmax",), types=("softmax",)),
        _rest(
            "resampling",
            "counts interpolation 1 an element of its output, or of its size where that is given",
            ("interpolate", "upsample"),
            types=("resampling",),
        ),
        _rest(
            "sums and products",
            "counts torch.add and torch.mul 1 an element, but not + and *",
            ("add", "mul"),
            *("add", "mul"),
        ),
    ),
)
