"""Conventions of FLOP counters, as data: counted operators, counts and names of numbers.

An operator's count has two portions: ``product``, the MACs of convolutions and matrix products, and
``rest``, all other operations. A counter of MACs may have rules for the rest too, such as for batch
norms.

The conventions follow the counters' code in the versions of `docs/explanation/crosscheck.md`. With
other versions, differences can be reported as not explained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from roofline.counters.result import Measure
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role
from roofline.workload.work import FLOP_PER_MAC

Portion = Literal["product", "rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Number of a counter with its breakdown, in its own unit.

    ``product`` and ``rest`` are the breakdown by the counter's operator names. ``left_out`` are
    counts that are not in this number, ``no_rule_for`` calls of operators without a rule.
    """

    number: int
    product: Mapping[str, int] = field(default_factory=dict[str, int])
    rest: Mapping[str, int] = field(default_factory=dict[str, int])
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    no_rule_for: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Counting rule for one kind of operators.

    ``operators`` are names without ``aten.``, ``types`` operator types, ``labels`` names in the
    counter's breakdown. ``count`` returns the counter's count of a call in its own unit; None: the
    breakdown is used, because our operators do not distinguish its kinds.
    """

    kind: str
    description: str
    portion: Portion
    operators: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    count: Callable[[OperatorRecord], int] | None = None

    def matches(self, record: OperatorRecord) -> bool:
        """Return True if the rule covers this operator."""
        return base_name(record.op) in self.operators or record.type in self.types


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """Convention of one number of a counter.

    ``number_name`` is the counter's name of it, ``meaning`` its content. It is compared with our
    total of ``measure``; ``per_unit`` of its units are one of ours. ``by_name``: operators without
    a rule are matched with the breakdown by name. ``forward_only``: without the backward pass.
    """

    number_name: str
    meaning: str
    measure: Measure
    per_unit: int
    rules: tuple[Rule, ...]
    by_name: bool = False
    forward_only: bool = True


def base_name(op: str) -> str:
    """Return an operator's name without namespace and in-place suffix."""
    return op.removeprefix("aten.").removesuffix("_")


def canonical_label(label: str) -> str:
    """Return the canonical form of a label: ``__iadd__`` and ``add_`` become ``add``."""
    name = label.strip("_")
    if label.startswith("__") and label.endswith("__"):
        stems = (name.removeprefix("i"), name.removeprefix("r"))
        name = next((each for each in stems if each in _ARITHMETIC), name)
    return _SAME.get(name, name)


_ARITHMETIC = frozenset(("add", "sub", "mul", "truediv", "pow", "div", "mod", "floordiv"))
_SAME = {"truediv": "div", "true_divide": "div", "subtract": "sub", "multiply": "mul"}


Count = Callable[[OperatorRecord], int]


def _rule(
    portion: Portion,
    kind: str,
    description: str,
    operators: str = "",
    labels: str = "",
    *,
    types: str = "",
    count: Count | None = None,
) -> Rule:
    """Return a rule; names are separated by spaces, types by commas."""
    return Rule(
        kind=kind,
        description=description,
        portion=portion,
        operators=frozenset(operators.split()),
        types=frozenset(filter(None, types.split(", "))),
        labels=frozenset(labels.split()),
        count=count,
    )


_product = partial(_rule, "product")
_rest = partial(_rule, "rest")


# -- operators of rules, and counts ----------------------------------------------------------------


def _macs(record: OperatorRecord) -> int:
    return record.work.macs or 0


def _two_a_mac(record: OperatorRecord) -> int:
    return FLOP_PER_MAC * _macs(record)


def _of_outputs(each: int) -> Count:
    """Return a count of `each` per output element."""
    return lambda record: each * record.outputs[0].elements


_CONVOLUTIONS = "convolution, depthwise convolution, transposed convolution"
_PRODUCTS = "mm addmm bmm baddbmm"
"""Operators of linear layers, matmul and einsum."""

_FUSED = "_native_multi_head_attention _transformer_encoder_layer_fwd"
"""Fused operators of torch's fast path for transformers."""

_TAKEN_APART = (
    "counts linear layers and norms of fused transformer layers (as its hooks disable fusion in"
    " part), misses the rest"
)
"""Effect of counters with hooks or a tracer on torch's fast path."""

_BATCH_NORMS = "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"
_POOLING_LABELS = " ".join(
    f"{kind}_pool{dimensions}d"
    for kind in ("avg", "max", "adaptive_avg", "adaptive_max")
    for dimensions in (1, 2, 3)
)
_CONVOLUTION_LABELS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"
_UNFUSED_LABELS = "linear matmul __matmul__ mm bmm addmm baddbmm einsum"
_PRODUCT_LABELS = f"{_UNFUSED_LABELS} scaled_dot_product_attention"


def _products(each: Literal[1, 2]) -> tuple[Rule, ...]:
    """Return the rules of DeepSpeed and torchlens for products."""
    count, description = (_macs if each == 1 else _two_a_mac), f"{each} per MAC"
    return (
        _product("fused layers", _TAKEN_APART, _FUSED, _PRODUCT_LABELS),
        _product(
            "convolutions", description, "", _CONVOLUTION_LABELS, types=_CONVOLUTIONS, count=count
        ),
        # Attention without a fused kernel is matrix products in our records only.
        _product(
            *("matrix products and attention", description, _PRODUCTS, _PRODUCT_LABELS),
            types="attention",
            count=count,
        ),
    )


# -- torch.utils.flop_counter.FlopCounterMode ------------------------------------------------------
# It counts the same operators as we do, below autograd, with a fixed list of rules
# (``flop_registry``); other operators count as 0 without a warning.


def _convolution_backward(record: OperatorRecord) -> int:
    """Return 2 per MAC, and the weight gradient once per group."""
    for_input, for_weights = map(bool, tuple(record.attributes.get("output_mask", (1, 1)))[:2])
    gradients = for_input + for_weights
    if not gradients:
        return 0
    # Each gradient has as many MACs as the forward pass.
    one = _two_a_mac(record) // gradients
    return one * for_input + one * for_weights * int(record.attributes.get("groups", 1))


_OF_FLOP_COUNTER_MODE = {
    "convolutions": "convolution _convolution cudnn_convolution convolution_overrideable"
    " _slow_conv2d_forward",
    "matrix products": "mm addmm bmm baddbmm _scaled_mm",
    "attention": " ".join(
        f"_scaled_dot_product_{kind}_attention _scaled_dot_product_{kind}_attention_backward"
        for kind in ("efficient", "flash", "cudnn")
    )
    + " _flash_attention_forward _efficient_attention_forward"
    " _flash_attention_backward _efficient_attention_backward",
}

FLOP_COUNTER_MODE = Convention(
    number_name="FLOP",
    meaning="2 per MAC",
    measure="macs",
    per_unit=2,
    forward_only=False,
    rules=(
        _product(
            "backward of convolutions",
            "counts the weight gradient of grouped convolutions as ungrouped: once per group",
            *("convolution_backward", "convolution_backward"),
            count=_convolution_backward,
        ),
        *(
            _product(kind, "2 per MAC", operators, operators, count=_two_a_mac)
            for kind, operators in _OF_FLOP_COUNTER_MODE.items()
        ),
    ),
)

# -- fvcore's FlopCountAnalysis --------------------------------------------------------------------
# It traces the module, so it counts operators before decomposition: ``linear``, ``matmul`` and
# ``einsum``, not ``addmm`` and ``bmm``. The rules are in its ``jit_handles.py``.


def _batch_norm(record: OperatorRecord) -> int:
    # Operands other than the input are weights and running statistics.
    is_affine = any(each.role is not Role.BUFFER for each in record.inputs[1:])
    # Instance norms are batch norms in training over each image.
    in_training = record.attributes.get("training", False)
    return record.inputs[0].elements * ((5 if in_training else 2) - (not is_affine))


def _norm(record: OperatorRecord) -> int:
    return record.inputs[0].elements * (5 if len(record.inputs) > 1 else 4)


_TRACED_PRODUCTS = "addmm mm bmm linear matmul einsum"
_NO_BIAS = "1 per MAC, without bias"

FVCORE = Convention(
    number_name="flop",
    meaning="1 per MAC, with norms, pooling and resampling",
    measure="macs",
    per_unit=1,
    rules=(
        _product("convolutions", _NO_BIAS, "", "conv", types=_CONVOLUTIONS, count=_macs),
        _product(
            *("matrix products", _NO_BIAS, _PRODUCTS),
            # Without a rule for attention, which may be matrix products in our records.
            f"{_TRACED_PRODUCTS} scaled_dot_product_attention baddbmm",
            count=_macs,
        ),
        _product("fused layers", _TAKEN_APART, _FUSED, _TRACED_PRODUCTS),
        _rest("fused layers", _TAKEN_APART, _FUSED, "layer_norm"),
        _rest(
            "batch norm",
            "counts batch norm: 2 per element, 1 without weights (5 and 4 in training)",
            *(_BATCH_NORMS, "batch_norm instance_norm"),
            count=_batch_norm,
        ),
        *(
            _rest(
                f"{kind} norm",
                f"counts {kind} norm: 5 per element, 4 without weights",
                *(f"native_{kind}_norm", f"{kind}_norm"),
                count=_norm,
            )
            for kind in ("layer", "group")
        ),
        _rest(
            "adaptive average pooling",
            "counts adaptive average pooling: 1 per input element",
            # With one output pixel it is a mean.
            *("_adaptive_avg_pool2d mean", "adaptive_avg_pool2d"),
        ),
        *(
            _rest(
                kind,
                f"counts {kind}: {each} per output element",
                *(operators, label),
                count=_of_outputs(each),
            )
            for kind, each, operators, label in (
                ("nearest resampling", 1, "upsample_nearest2d", "upsample_nearest2d"),
                ("bilinear resampling", 4, "upsample_bilinear2d", "upsample_bilinear2d"),
                ("grid sampling", 4, "grid_sampler_2d grid_sampler_3d", "grid_sampler"),
            )
        ),
    ),
)

# -- DeepSpeed's FlopsProfiler ---------------------------------------------------------------------
# It patches ``torch.nn.functional`` and some tensor methods, so it counts calls by these names:
# ``torch.add(a, b)`` but not ``a + b``, ``F.relu`` but not ``torch.relu``. Recurrent layers are
# counted by a hook without MACs.

RECURRENT = "recurrent layer"
"""Label of the counts of DeepSpeed's hooks on recurrent layers."""

ADDEND = "addend"
"""Label of biases and addends in DeepSpeed's counts of products."""

_OWN_FORMULA = "counts recurrent layers by its own formula, without sigmoid and tanh"
_ACTIVATIONS = "relu prelu elu leaky_relu relu6 silu gelu"

DEEPSPEED_MACS = Convention(
    number_name="MACs",
    meaning="1 per MAC",
    measure="macs",
    per_unit=1,
    rules=(
        *_products(1),
        _product(
            "recurrent layers",
            "misses recurrent layers: their hook counts no MACs",
            types="recurrent",
            count=lambda _: 0,
        ),
    ),
)

DEEPSPEED_FLOPS = Convention(
    number_name="FLOPs",
    meaning="2 per MAC, with other operations that have a rule",
    measure="flop",
    per_unit=1,
    by_name=True,
    rules=(
        *_products(2),
        _rest(
            "biases and addends",
            "counts biases of convolutions, not of linear layers; the addend of torch.addmm before"
            " broadcasting",
            *(_PRODUCTS, ADDEND),
            types=_CONVOLUTIONS,
        ),
        _product("recurrent layers", _OWN_FORMULA, types="recurrent"),
        replace(
            _rest("recurrent layers", _OWN_FORMULA, types="recurrent"),
            labels=frozenset((RECURRENT,)),
        ),
        _rest("fused layers", _TAKEN_APART, _FUSED),
        _rest("softmax in attention", "misses the softmax in attention", types="attention"),
        _rest(
            "norms",
            "counts batch norm 2 per element, other norms 5 (1 and 4 without weights)",
            labels="batch_norm layer_norm group_norm instance_norm",
            types="normalization",
        ),
        _rest(
            "activations",
            "counts F.relu, F.gelu, F.silu … 1 per element, but not torch.relu, sigmoid, tanh",
            *(f"{_ACTIVATIONS} hardtanh _prelu_kernel", _ACTIVATIONS),
        ),
        _rest(
            "pooling and means",
            "counts pooling 1 per input element for any kernel, but no other means",
            *("mean", _POOLING_LABELS),
            types="pooling",
        ),
        _rest("softmax", "counts F.softmax 1 per element", labels="softmax", types="softmax"),
        _rest(
            "resampling",
            "counts interpolation 1 per output element, or per element of a given size",
            labels="interpolate upsample",
            types="resampling",
        ),
        _rest(
            "sums and products",
            "counts torch.add and torch.mul 1 per element, but not + and *",
            *("add mul", "add mul"),
        ),
    ),
)

# -- torchlens -------------------------------------------------------------------------------------
# It wraps torch's functions above the dispatcher, and disables the fast paths of transformers. Its
# costs are in its ``capture/flops.py``: 5 per element for a norm, 14 for GELU, 8 for exp …

TORCHLENS_MACS = Convention(
    number_name="MACs",
    meaning="1 per MAC",
    measure="macs",
    per_unit=1,
    rules=_products(1),
)

TORCHLENS_FLOPS = Convention(
    number_name="FLOPs",
    meaning="2 per MAC, with other operations that have a rule",
    measure="flop",
    per_unit=1,
    by_name=True,
    rules=(
        *_products(2),
        _rest("fused layers", _TAKEN_APART, _FUSED),
        _rest(
            "biases and addends",
            "counts biases 1 per output element",
            *(_PRODUCTS, f"{_CONVOLUTION_LABELS} {_UNFUSED_LABELS}"),
            types=_CONVOLUTIONS,
        ),
        _rest(
            "softmax in attention",
            "counts the softmax in attention by its own rule",
            labels="scaled_dot_product_attention",
            types="attention",
        ),
        _rest(
            "batch norm",
            "counts batch norm 5 per element, as with new statistics",
            *(_BATCH_NORMS, "batch_norm instance_norm"),
        ),
        *(
            _rest(
                f"{kind} norm",
                f"counts {kind} norm 5 per element",
                *(f"native_{kind}_norm", f"{kind}_norm"),
            )
            for kind in ("layer", "group")
        ),
        _rest(
            "pooling and means",
            "counts pooling 1 per kernel and output element, a mean 1 per element",
            *("mean", f"mean {_POOLING_LABELS}"),
            types="pooling",
        ),
        _rest(
            "clamping",
            "counts relu6, hardtanh and clamp 1 per element",
            "hardtanh clamp clamp_min clamp_max",
            "relu6 hardtanh clamp clamp_min clamp_max",
        ),
        _rest(
            "softmax",
            "counts softmax 5 per element, log-softmax 6",
            labels="softmax log_softmax",
            types="softmax",
        ),
        _rest(
            "dropout",
            "counts dropout 1 per element, also in inference",
            labels="dropout",
        ),
        _rest("GELU", "counts GELU 14 per element", "gelu", "gelu"),
    ),
)
