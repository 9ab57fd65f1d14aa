"""How counters count, as data: which operators, how many for each, what they call their numbers.

An operator's count has two portions: its ``product``, the multiply-adds of convolutions and matrix
products, and the ``rest``, every further operation. A counter of multiply-adds may have rules for
the rest too: that is how batch norms get into its number.

The conventions were read from the counters' code. They hold for the versions that
`docs/explanation/crosscheck.md` names; where a version counts otherwise, its number no longer
follows from them, and the crosscheck says so.
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
    """What a counter reported: its number, and its own breakdown of it, in its own unit.

    ``product`` and ``rest`` are the breakdown by its names of operators. ``left_out`` is what it
    knows of and leaves out of this number, ``no_rule_for`` the calls of operators that it says it
    cannot count.
    """

    number: int
    product: Mapping[str, int] = field(default_factory=dict[str, int])
    rest: Mapping[str, int] = field(default_factory=dict[str, int])
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])
    no_rule_for: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a counter counts one kind of operators.

    ``operators`` are ours, by name without ``aten.``, ``types`` ours by type; ``labels`` are what
    the counter's breakdown calls them. ``count`` gives what the counter counts for a call, in its
    own unit; None: what its breakdown says, because our operators do not tell its kinds apart.
    """

    kind: str
    description: str
    portion: Portion
    operators: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    count: Callable[[OperatorRecord], int] | None = None

    def matches(self, record: OperatorRecord) -> bool:
        """Whether the rule is about this operator."""
        return base_name(record.op) in self.operators or record.type in self.types


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """What one number of a counter means.

    ``number_name`` is what the counter calls it, ``meaning`` what it counts in it; it is held
    against our total of ``measure``, of which ``per_unit`` of its units make one. ``by_name``:
    operators without a rule are matched with its breakdown by their names. ``forward_only``: it
    does not see the backward pass of a training step.
    """

    number_name: str
    meaning: str
    measure: Measure
    per_unit: int
    rules: tuple[Rule, ...]
    by_name: bool = False
    forward_only: bool = True


def base_name(op: str) -> str:
    """The name of an operator without its name space and without the mark of in-place ones."""
    return op.removeprefix("aten.").removesuffix("_")


def canonical_label(label: str) -> str:
    """What a counter's label stands for: ``__iadd__``, ``add_`` and ``add`` are all ``add``."""
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
    """A rule; names stand in one text, types with commas between them."""
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


# -- the operators that rules are about, and what they count of them -------------------------------


def _macs(record: OperatorRecord) -> int:
    return record.work.macs or 0


def _two_a_mac(record: OperatorRecord) -> int:
    return FLOP_PER_MAC * _macs(record)


def _of_outputs(each: int) -> Count:
    """So many for an element of the first result."""
    return lambda record: each * record.outputs[0].elements


_CONVOLUTIONS = "convolution, depthwise convolution, transposed convolution"
_PRODUCTS = "mm addmm bmm baddbmm"
"""What linear layers, matmul and einsum become."""

_FUSED = "_native_multi_head_attention _transformer_encoder_layer_fwd"
"""Linear layers, attention and more in one operator: torch's fast path for transformers."""

_TAKEN_APART = (
    "takes fused layers of transformers apart in part, as hooks in them do: counts their linear"
    " layers and norms, misses what stays fused"
)
"""What a counter with hooks or a tracer does to torch's fast path."""

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
    """What DeepSpeed and torchlens count of products."""
    count, description = (_macs if each == 1 else _two_a_mac), f"{each} a multiply-add"
    return (
        _product("fused layers", _TAKEN_APART, _FUSED, _PRODUCT_LABELS),
        _product(
            "convolutions", description, "", _CONVOLUTION_LABELS, types=_CONVOLUTIONS, count=count
        ),
        # Attention that has no kernel of its own is matrix products to us, and not to them.
        _product(
            *("matrix products and attention", description, _PRODUCTS, _PRODUCT_LABELS),
            types="attention",
            count=count,
        ),
    )


# -- torch.utils.flop_counter.FlopCounterMode ------------------------------------------------------
# It sees the same operators as we do, below autograd, and has rules for a fixed list of them
# (``flop_registry``); every other operator is 0 without a word.


def _convolution_backward(record: OperatorRecord) -> int:
    """2 a multiply-add; those of the weights' gradient as often as there are groups."""
    for_input, for_weights = map(bool, tuple(record.attributes.get("output_mask", (1, 1)))[:2])
    gradients = for_input + for_weights
    if not gradients:
        return 0
    # Either gradient takes as many as the forward pass.
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
    meaning="2 a multiply-add",
    measure="macs",
    per_unit=2,
    forward_only=False,
    rules=(
        _product(
            "backward of convolutions",
            "takes a grouped convolution for one of a single group, where it counts the"
            " gradient of the weights: as often as there are groups",
            *("convolution_backward", "convolution_backward"),
            count=_convolution_backward,
        ),
        *(
            _product(kind, "2 a multiply-add", operators, operators, count=_two_a_mac)
            for kind, operators in _OF_FLOP_COUNTER_MODE.items()
        ),
    ),
)

# -- fvcore's FlopCountAnalysis --------------------------------------------------------------------
# It traces the module, so it sees operators before they take themselves apart: ``linear``,
# ``matmul`` and ``einsum``, not ``addmm`` and ``bmm``. The rules stand in its ``jit_handles.py``.


def _batch_norm(record: OperatorRecord) -> int:
    # Its operands besides the input are weights, and the statistics it keeps.
    is_affine = any(each.role is not Role.BUFFER for each in record.inputs[1:])
    # Instance norms arrive here as well, as batch norms in training over each image.
    in_training = record.attributes.get("training", False)
    return record.inputs[0].elements * ((5 if in_training else 2) - (not is_affine))


def _norm(record: OperatorRecord) -> int:
    return record.inputs[0].elements * (5 if len(record.inputs) > 1 else 4)


_TRACED_PRODUCTS = "addmm mm bmm linear matmul einsum"
_NO_BIAS = "1 a multiply-add, bias not counted"

FVCORE = Convention(
    number_name="flop",
    meaning="1 a multiply-add; norms, pooling, resampling too",
    measure="macs",
    per_unit=1,
    rules=(
        _product("convolutions", _NO_BIAS, "", "conv", types=_CONVOLUTIONS, count=_macs),
        _product(
            *("matrix products", _NO_BIAS, _PRODUCTS),
            # It has no rule for attention, which may be matrix products to us.
            f"{_TRACED_PRODUCTS} scaled_dot_product_attention baddbmm",
            count=_macs,
        ),
        _product("fused layers", _TAKEN_APART, _FUSED, _TRACED_PRODUCTS),
        _rest("fused layers", _TAKEN_APART, _FUSED, "layer_norm"),
        _rest(
            "batch norm",
            "counts batch norm: 2 an element, 1 without weights (5 and 4 in training)",
            *(_BATCH_NORMS, "batch_norm instance_norm"),
            count=_batch_norm,
        ),
        *(
            _rest(
                f"{kind} norm",
                f"counts {kind} norm: 5 an element, 4 without weights",
                *(f"native_{kind}_norm", f"{kind}_norm"),
                count=_norm,
            )
            for kind in ("layer", "group")
        ),
        _rest(
            "adaptive average pooling",
            "counts adaptive average pooling: 1 an element of its input",
            # To one pixel it is a mean, which looks like any other mean.
            *("_adaptive_avg_pool2d mean", "adaptive_avg_pool2d"),
        ),
        *(
            _rest(
                kind,
                f"counts {kind}: {each} an element of its output",
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
# It patches the functions of ``torch.nn.functional`` and some methods of tensors, so it counts what
# was called by these names: ``torch.add(a, b)`` but not ``a + b``, ``F.relu`` but not
# ``torch.relu``. Recurrent layers are counted by a hook that knows FLOPs only.

RECURRENT = "recurrent layer"
"""The label of what DeepSpeed's hooks on recurrent layers count."""

ADDEND = "addend"
"""The label of what DeepSpeed counts beside the multiply-adds of a product: biases and addends."""

_OWN_FORMULA = "counts recurrent layers by a formula of its own, without their sigmoid and tanh"
_ACTIVATIONS = "relu prelu elu leaky_relu relu6 silu gelu"

DEEPSPEED_MACS = Convention(
    number_name="MACs",
    meaning="1 a multiply-add",
    measure="macs",
    per_unit=1,
    rules=(
        *_products(1),
        _product(
            "recurrent layers",
            "misses recurrent layers: their hook counts FLOPs and no MACs",
            types="recurrent",
            count=lambda _: 0,
        ),
    ),
)

DEEPSPEED_FLOPS = Convention(
    number_name="FLOPs",
    meaning="2 a multiply-add, and all that it has a rule for",
    measure="flop",
    per_unit=1,
    by_name=True,
    rules=(
        *_products(2),
        _rest(
            "biases and addends",
            "counts the biases of convolutions, not those of linear layers;"
            " of torch.addmm the addend as it is, before it is broadcast",
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
            "counts batch norm 2 an element, other norms 5 (1 and 4 without weights)",
            labels="batch_norm layer_norm group_norm instance_norm",
            types="normalization",
        ),
        _rest(
            "activations",
            "counts F.relu, F.gelu, F.silu … 1 an element; torch.relu, sigmoid, tanh not at all",
            *(f"{_ACTIVATIONS} hardtanh _prelu_kernel", _ACTIVATIONS),
        ),
        _rest(
            "pooling and means",
            "counts pooling 1 an element of its input, whatever its kernel; other means not at all",
            *("mean", _POOLING_LABELS),
            types="pooling",
        ),
        _rest("softmax", "counts F.softmax 1 an element", labels="softmax", types="softmax"),
        _rest(
            "resampling",
            "counts interpolation 1 an element of its output, or of its size where that is given",
            labels="interpolate upsample",
            types="resampling",
        ),
        _rest(
            "sums and products",
            "counts torch.add and torch.mul 1 an element, but not + and *",
            *("add mul", "add mul"),
        ),
    ),
)

# -- torchlens -------------------------------------------------------------------------------------
# It wraps torch's functions, above the dispatcher, and holds the fast paths of transformers off.
# Its costs stand in its ``capture/flops.py``: 5 an element for a norm, 14 for GELU, 8 for exp …

TORCHLENS_MACS = Convention(
    number_name="MACs",
    meaning="1 a multiply-add",
    measure="macs",
    per_unit=1,
    rules=_products(1),
)

TORCHLENS_FLOPS = Convention(
    number_name="FLOPs",
    meaning="2 a multiply-add, and all that it has a rule for",
    measure="flop",
    per_unit=1,
    by_name=True,
    rules=(
        *_products(2),
        _rest("fused layers", _TAKEN_APART, _FUSED),
        _rest(
            "biases and addends",
            "counts biases 1 an element of the output",
            *(_PRODUCTS, f"{_CONVOLUTION_LABELS} {_UNFUSED_LABELS}"),
            types=_CONVOLUTIONS,
        ),
        _rest(
            "softmax in attention",
            "counts the softmax in attention by a rule of its own",
            labels="scaled_dot_product_attention",
            types="attention",
        ),
        _rest(
            "batch norm",
            "counts batch norm 5 an element, as if it took the statistics anew",
            *(_BATCH_NORMS, "batch_norm instance_norm"),
        ),
        *(
            _rest(
                f"{kind} norm",
                f"counts {kind} norm 5 an element",
                *(f"native_{kind}_norm", f"{kind}_norm"),
            )
            for kind in ("layer", "group")
        ),
        _rest(
            "pooling and means",
            "counts pooling 1 for each element of the kernel at each element of the output,"
            " a mean 1 an element",
            *("mean", f"mean {_POOLING_LABELS}"),
            types="pooling",
        ),
        _rest(
            "clamping",
            "counts relu6, hardtanh and clamp 1 an element",
            "hardtanh clamp clamp_min clamp_max",
            "relu6 hardtanh clamp clamp_min clamp_max",
        ),
        _rest(
            "softmax",
            "counts softmax 5 an element, log-softmax 6",
            labels="softmax log_softmax",
            types="softmax",
        ),
        _rest(
            "dropout",
            "counts dropout 1 an element, also in inference, where it does nothing",
            labels="dropout",
        ),
        _rest("GELU", "counts GELU 14 an element", "gelu", "gelu"),
    ),
)
