"""fvcore's FlopCountAnalysis: one "flop" a multiply-add, and norms and pooling beside them.

It traces the module, so it sees operators before they take themselves apart: ``linear``,
``matmul`` and ``einsum``, not ``addmm`` and ``bmm``. The rules stand in its ``jit_handles.py``.
"""

from __future__ import annotations

from roofline.counters.conventions.kinds import (
    BATCH_NORMS,
    CONVOLUTIONS,
    FUSED_LAYERS,
    PRODUCTS,
    TAKEN_APART,
    input_elements,
    macs,
    output_elements,
)
from roofline.counters.rules import Convention, Rule
from roofline.workload.operators import OperatorRecord
from roofline.workload.tensors import Role


def _batch_norm(record: OperatorRecord) -> int:
    # Its operands besides the input are weights, and the statistics it keeps.
    is_affine = any(each.role is not Role.BUFFER for each in record.inputs[1:])
    if record.attributes.get("training", False):
        # Instance norms arrive here as well, as batch norms over each image.
        return input_elements(record) * (5 if is_affine else 4)
    return input_elements(record) * (2 if is_affine else 1)


def _norm(record: OperatorRecord) -> int:
    return input_elements(record) * (5 if len(record.inputs) > 1 else 4)


_PRODUCT_LABELS = frozenset(("addmm", "mm", "bmm", "linear", "matmul", "einsum"))

FLOPS = Convention(
    number_name="flop",
    meaning="1 a multiply-add; norms, pooling, resampling too",
    measure="macs",
    per_unit=1,
    rules=(
        Rule(
            kind="convolutions",
            says="1 a multiply-add, bias not counted",
            portion="product",
            types=CONVOLUTIONS,
            labels=frozenset(("conv",)),
            count=macs,
        ),
        Rule(
            kind="matrix products",
            says="1 a multiply-add, bias not counted",
            portion="product",
            operators=PRODUCTS,
            # It has no rule for attention, which may be matrix products to us.
            labels=_PRODUCT_LABELS | {"scaled_dot_product_attention", "baddbmm"},
            count=macs,
        ),
        Rule(
            kind="fused layers",
            says=TAKEN_APART,
            portion="product",
            operators=FUSED_LAYERS,
            labels=_PRODUCT_LABELS,
        ),
        Rule(
            kind="fused layers",
            says=TAKEN_APART,
            portion="rest",
            operators=FUSED_LAYERS,
            labels=frozenset(("layer_norm",)),
        ),
        Rule(
            kind="batch norm",
            says="counts batch norm: 2 an element, 1 without weights (5 and 4 in training)",
            portion="rest",
            operators=BATCH_NORMS,
            labels=frozenset(("batch_norm", "instance_norm")),
            count=_batch_norm,
        ),
        Rule(
            kind="layer norm",
            says="counts layer norm: 5 an element, 4 without weights",
            portion="rest",
            operators=frozenset(("native_layer_norm",)),
            labels=frozenset(("layer_norm",)),
            count=_norm,
        ),
        Rule(
            kind="group norm",
            says="counts group norm: 5 an element, 4 without weights",
            portion="rest",
            operators=frozenset(("native_group_norm",)),
            labels=frozenset(("group_norm",)),
            count=_norm,
        ),
        Rule(
            kind="adaptive average pooling",
            # To one pixel it is a mean, which looks like any other mean.
            says="counts adaptive average pooling: 1 an element of its input",
            portion="rest",
            operators=frozenset(("_adaptive_avg_pool2d", "mean")),
            labels=frozenset(("adaptive_avg_pool2d",)),
        ),
        Rule(
            kind="nearest resampling",
            says="counts nearest resampling: 1 an element of its output",
            portion="rest",
            operators=frozenset(("upsample_nearest2d",)),
            labels=frozenset(("upsample_nearest2d",)),
            count=output_elements,
        ),
        Rule(
            kind="bilinear resampling",
            says="counts bilinear resampling: 4 an element of its output",
            portion="rest",
            operators=frozenset(("upsample_bilinear2d",)),
            labels=frozenset(("upsample_bilinear2d",)),
            count=lambda record: 4 * output_elements(record),
        ),
        Rule(
            kind="grid sampling",
            says="counts grid sampling: 4 an element of its output",
            portion="rest",
            operators=frozenset(("grid_sampler_2d", "grid_sampler_3d")),
            labels=frozenset(("grid_sampler",)),
            count=lambda record: 4 * output_elements(record),
        ),
    ),
)
