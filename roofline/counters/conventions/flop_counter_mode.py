"""torch.utils.flop_counter.FlopCounterMode: 2 for a multiply-add, and nothing else.

It sees the same operators as we do, below autograd, and has rules for a fixed list of them
(``flop_registry``); every other operator is 0 without a word.
"""

from __future__ import annotations

from roofline.counters.conventions.kinds import two_a_multiply_add
from roofline.counters.rules import Convention, Rule
from roofline.workload.operators import OperatorRecord

_CONVOLUTIONS = frozenset(
    (
        *("convolution", "_convolution", "cudnn_convolution", "convolution_overrideable"),
        "_slow_conv2d_forward",
    )
)
_BACKWARD = frozenset(("convolution_backward",))
_PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm", "_scaled_mm"))
_ATTENTION = frozenset(
    name + direction
    for name in (
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_cudnn_attention",
    )
    for direction in ("", "_backward")
) | {
    *("_flash_attention_forward", "_efficient_attention_forward"),
    *("_flash_attention_backward", "_efficient_attention_backward"),
}


def _convolution_backward(record: OperatorRecord) -> int:
    """2 a multiply-add; those of the weights' gradient as often as there are groups."""
    for_input, for_weights = map(bool, tuple(record.attributes.get("output_mask", (1, 1)))[:2])
    gradients = for_input + for_weights
    if not gradients:
        return 0
    # Either gradient takes as many as the forward pass.
    one = two_a_multiply_add(record) // gradients
    return one * for_input + one * for_weights * int(record.attributes.get("groups", 1))


FLOP = Convention(
    number_name="FLOP",
    meaning="2 a multiply-add",
    measure="macs",
    per_unit=2,
    forward_only=False,
    rules=(
        Rule(
            kind="backward of convolutions",
            says="takes a grouped convolution for one of a single group, where it counts the"
            " gradient of the weights: as often as there are groups",
            portion="product",
            operators=_BACKWARD,
            labels=_BACKWARD,
            count=_convolution_backward,
        ),
        *(
            Rule(
                kind=kind,
                says="2 a multiply-add",
                portion="product",
                operators=operators,
                labels=operators,
                count=two_a_multiply_add,
            )
            for kind, operators in (
                ("convolutions", _CONVOLUTIONS),
                ("matrix products", _PRODUCTS),
                ("attention", _ATTENTION),
            )
        ),
    ),
)
