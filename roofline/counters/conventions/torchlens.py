"""torchlens: two numbers, multiply-adds and FLOPs, of every function call that it sees.

It wraps torch's functions, above the dispatcher, and holds the fast paths of transformers off. Its
costs stand in its ``capture/flops.py``: 5 an element for a norm, 14 for GELU, 8 for exp …
"""

from __future__ import annotations

from roofline.counters.conventions.kinds import (
    BATCH_NORMS,
    CONVOLUTIONS,
    FUSED_LAYERS,
    PRODUCTS,
    TAKEN_APART,
    macs,
    two_a_multiply_add,
)
from roofline.counters.rules import Convention, Rule

_CONVOLUTION_LABELS = frozenset(
    f"{name}{dimensions}d" for name in ("conv", "conv_transpose") for dimensions in (1, 2, 3)
)
_PRODUCT_LABELS = frozenset(
    ("linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum")
)
_ATTENTION_LABELS = frozenset(("scaled_dot_product_attention",))


def _products(count: str) -> tuple[Rule, ...]:
    function = macs if count == "1" else two_a_multiply_add
    says = f"{count} a multiply-add"
    return (
        Rule(
            kind="convolutions",
            says=says,
            portion="product",
            types=CONVOLUTIONS,
            labels=_CONVOLUTION_LABELS,
            count=function,
        ),
        Rule(
            kind="fused layers",
            says=TAKEN_APART,
            portion="product",
            operators=FUSED_LAYERS,
            labels=_PRODUCT_LABELS | _ATTENTION_LABELS,
        ),
        Rule(
            # Attention that has no kernel of its own is matrix products to us, and not to it.
            kind="matrix products and attention",
            says=says,
            portion="product",
            operators=PRODUCTS,
            types=frozenset(("attention",)),
            labels=_PRODUCT_LABELS | _ATTENTION_LABELS,
            count=function,
        ),
    )


MACS = Convention(
    number_name="MACs",
    meaning="1 a multiply-add",
    measure="macs",
    per_unit=1,
    rules=_products("1"),
)

FLOPS = Convention(
    number_name="FLOPs",
    meaning="2 a multiply-add, and all that it has a rule for",
    measure="flop",
    per_unit=1,
    by_name=True,
    rules=(
        *_products("2"),
        Rule(
            kind="fused layers",
            says=TAKEN_APART,
            portion="rest",
            operators=FUSED_LAYERS,
        ),
        Rule(
            kind="biases and addends",
            says="counts biases 1 an element of the output",
            portion="rest",
            operators=PRODUCTS,
            types=CONVOLUTIONS,
            labels=_CONVOLUTION_LABELS | _PRODUCT_LABELS,
        ),
        Rule(
            kind="softmax in attention",
            says="counts the softmax in attention by a rule of its own",
            portion="rest",
            types=frozenset(("attention",)),
            labels=_ATTENTION_LABELS,
        ),
        Rule(
            kind="batch norm",
            says="counts batch norm 5 an element, as if it took the statistics anew",
            portion="rest",
            operators=BATCH_NORMS,
            labels=frozenset(("batch_norm", "instance_norm")),
        ),
        Rule(
            kind="layer norm",
            says="counts layer norm 5 an element",
            portion="rest",
            operators=frozenset(("native_layer_norm",)),
            labels=frozenset(("layer_norm",)),
        ),
        Rule(
            kind="group norm",
            says="counts group norm 5 an element",
            portion="rest",
            operators=frozenset(("native_group_norm",)),
            labels=frozenset(("group_norm",)),
        ),
        Rule(
            kind="pooling and means",
            says="counts pooling 1 for each element of the kernel at each element of the output,"
            " a mean 1 an element",
            portion="rest",
            operators=frozenset(("mean",)),
            types=frozenset(("pooling",)),
            labels=frozenset(
                (
                    "mean",
                    *(
                        f"{kind}_pool{dimensions}d"
                        for kind in ("avg", "max", "adaptive_avg", "adaptive_max")
                        for dimensions in (1, 2, 3)
                    ),
                )
            ),
        ),
        Rule(
            kind="clamping",
            says="counts relu6, hardtanh and clamp 1 an element",
            portion="rest",
            operators=frozenset(("hardtanh", "clamp", "clamp_min", "clamp_max")),
            labels=frozenset(("relu6", "hardtanh", "clamp", "clamp_min", "clamp_max")),
        ),
        Rule(
            kind="softmax",
            says="counts softmax 5 an element, log-softmax 6",
            portion="rest",
            types=frozenset(("softmax",)),
            labels=frozenset(("softmax", "log_softmax")),
        ),
        Rule(
            kind="dropout",
            says="counts dropout 1 an element, also in inference, where it does nothing",
            portion="rest",
            labels=frozenset(("dropout",)),
        ),
        Rule(
            kind="GELU",
            says="counts GELU 14 an element",
            portion="rest",
            operators=frozenset(("gelu",)),
            labels=frozenset(("gelu",)),
        ),
    ),
)
