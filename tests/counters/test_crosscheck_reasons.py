"""Reasons, from operators and breakdowns made by hand: no torch, and sums that must come out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.dtypes import dtype
from roofline.counters.conventions import (
    DEEPSPEED_FLOPS,
    DEEPSPEED_MACS,
    FLOP_COUNTER_MODE,
    FVCORE,
    RECURRENT,
    TORCHLENS_FLOPS,
    TORCHLENS_MACS,
    Convention,
    Reported,
    canonical_label,
)
from roofline.counters.reasons import differences, in_our_unit
from roofline.counters.result import Difference
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import Role, TensorSpec
from roofline.workload.work import Work

CONVENTIONS = (
    FLOP_COUNTER_MODE,
    FVCORE,
    *(DEEPSPEED_MACS, DEEPSPEED_FLOPS, TORCHLENS_MACS, TORCHLENS_FLOPS),
)


def spec(*shape: int, role: Role = Role.ACTIVATION) -> TensorSpec:
    elements = 1
    for size in shape:
        elements *= size
    return TensorSpec(
        shape=shape, dtype=dtype("float32"), distinct_elements=elements, storage=0, role=role
    )


def call(
    op: str,
    type: str,
    macs: int = 0,
    other: int = 0,
    inputs: tuple[TensorSpec, ...] = (),
    outputs: tuple[TensorSpec, ...] = (),
    **attributes: object,
) -> OperatorRecord:
    flop = 2 * macs + other
    return OperatorRecord(
        index=0,
        op=f"aten.{op}",
        type=type,
        module_path="",
        phase="forward",
        inputs=inputs or (spec(2, 3),),
        outputs=outputs or (spec(2, 3),),
        attributes=attributes,
        state=State.COUNTED,
        work=Work(flop=flop, macs=macs, min_flop=flop),
    )


CONVOLUTION = call("convolution", "convolution", macs=1000, other=10)
LINEAR = call("addmm", "matrix product", macs=50, other=5)
ATTENTION = call("_scaled_dot_product_flash_attention_for_cpu", "attention", macs=80, other=7)
BATCH_NORM = call(
    "native_batch_norm",
    "normalization",
    other=75,
    inputs=(
        spec(1, 3, 10),
        *(spec(3, role=Role.PARAMETER), spec(3, role=Role.PARAMETER)),
        *(spec(3, role=Role.BUFFER), spec(3, role=Role.BUFFER)),
    ),
    training=False,
)


def ours(records: list[OperatorRecord], convention: Convention) -> int:
    return sum(getattr(record.work, convention.measure) for record in records)


def checked(
    records: list[OperatorRecord], reported: Reported, convention: Convention
) -> dict[str, Difference]:
    """The differences by kind; ours and their amounts must be the counter's number."""
    found = differences(records, reported, convention)
    total = ours(records, convention) + sum(each.amount for each in found)
    assert total == in_our_unit(reported, convention)
    return {each.kind: each for each in found}


def test_flop_for_multiply_adds_is_no_difference() -> None:
    reported = Reported(number=2100, product={"convolution": 2000, "addmm": 100})
    assert checked([CONVOLUTION, LINEAR], reported, FLOP_COUNTER_MODE) == {}


def test_attention_without_a_rule_is_missed() -> None:
    reported = Reported(number=2000, product={"convolution": 2000})
    found = checked([CONVOLUTION, ATTENTION], reported, FLOP_COUNTER_MODE)
    (missed,) = found.values()
    assert missed.amount == -80
    assert missed.source == "rule"
    assert missed.reason == (
        "misses attention: no rule for _scaled_dot_product_flash_attention_for_cpu"
    )


def test_batch_norm_in_a_number_of_multiply_adds() -> None:
    reported = Reported(number=1060, product={"conv": 1000}, rest={"batch_norm": 60})
    found = checked([CONVOLUTION, BATCH_NORM], reported, FVCORE)
    assert {kind: each.amount for kind, each in found.items()} == {"batch norm": 60}
    assert found["batch norm"].source == "rule"


@pytest.mark.parametrize(
    ("operands", "training", "expected"),
    [(5, False, 60), (3, False, 30), (5, True, 150), (1, True, 120)],
)
def test_what_fvcore_counts_for_a_batch_norm(operands: int, training: bool, expected: int) -> None:
    # 30 elements; two weights and two statistics, the statistics alone, or neither.
    kept = {
        5: BATCH_NORM.inputs,
        3: (BATCH_NORM.inputs[0], *BATCH_NORM.inputs[3:]),
        1: BATCH_NORM.inputs[:1],
    }[operands]
    record = call("native_batch_norm", "normalization", inputs=kept, training=training)
    reported = Reported(number=expected, rest={"batch_norm": expected})
    found = checked([record], reported, FVCORE)
    assert found["batch norm"].amount == expected
    assert found["batch norm"].source == "rule"


def test_what_a_rule_does_not_give_is_not_explained() -> None:
    reported = Reported(number=1800, product={"conv": 1800})
    found = checked([CONVOLUTION], reported, FVCORE)
    assert found["convolutions"].amount == 800
    assert not found["convolutions"].is_explained
    assert found["convolutions"].reason.startswith("not explained: its breakdown (conv)")


def test_a_label_without_an_operator_is_not_explained() -> None:
    found = checked([CONVOLUTION], Reported(number=1007, product={"conv": 1000, "new": 7}), FVCORE)
    assert found["new"].amount == 7
    assert not found["new"].is_explained


def test_a_number_beyond_its_own_breakdown_is_not_explained() -> None:
    found = checked([CONVOLUTION], Reported(number=1009, product={"conv": 1000}), FVCORE)
    assert found["its total"].amount == 9
    assert not found["its total"].is_explained


def test_what_a_counter_says_it_could_not_count() -> None:
    reported = Reported(number=20, product={"linear": 20}, no_rule_for={"linear": 2})
    found = checked([LINEAR], reported, TORCHLENS_MACS)
    assert found["matrix products and attention"].amount == -30
    assert found["matrix products and attention"].is_explained
    assert "linear (2)" in found["matrix products and attention"].reason
    # It cannot be why a number is too high.
    reported = Reported(number=70, product={"linear": 70}, no_rule_for={"linear": 2})
    assert not checked([LINEAR], reported, TORCHLENS_MACS)[
        "matrix products and attention"
    ].is_explained


def test_einsum_is_left_out_of_macs() -> None:
    product = call("bmm", "matrix product", macs=30)
    reported = Reported(number=50, product={"linear": 50}, left_out={"einsum": 30})
    found = checked([LINEAR, product], reported, DEEPSPEED_MACS)
    assert {kind: each.amount for kind, each in found.items()} == {"einsum": -30}


def test_recurrent_layers_have_flops_and_no_macs() -> None:
    layer = call("mkldnn_rnn_layer", "recurrent", macs=100, other=40)
    found = checked([layer], Reported(number=0), DEEPSPEED_MACS)
    assert found["recurrent layers"].amount == -100
    reported = Reported(number=230, rest={RECURRENT: 230})
    (only,) = checked([layer], reported, DEEPSPEED_FLOPS).values()
    assert only.amount == 230 - 240


def test_fused_layers_take_what_is_left_of_them() -> None:
    fused = call("_transformer_encoder_layer_fwd", "attention", macs=500, other=60)
    reported = Reported(number=50 + 200, product={"linear": 250})
    found = checked([LINEAR, fused], reported, DEEPSPEED_MACS)
    assert {kind: each.amount for kind, each in found.items()} == {"fused layers": -300}
    # Where there is none, linear layers beyond ours are not explained.
    assert not checked([LINEAR], reported, DEEPSPEED_MACS)[
        "matrix products and attention"
    ].is_explained


def test_attention_that_we_saw_as_matrix_products() -> None:
    product = call("bmm", "matrix product", macs=40)
    reported = Reported(number=130, product={"linear": 50, "scaled_dot_product_attention": 80})
    assert checked([LINEAR, product, product], reported, DEEPSPEED_MACS) == {}


def test_the_backward_pass_is_seen_by_one_counter_only() -> None:
    backward = replace(
        call("convolution_backward", "convolution", macs=2000, other=3), phase="backward"
    )
    found = checked([CONVOLUTION, backward], Reported(number=1000, product={"conv": 1000}), FVCORE)
    assert {kind: each.amount for kind, each in found.items()} == {"backward pass": -2000}
    reported = Reported(number=6000, product={"convolution": 2000, "convolution_backward": 4000})
    assert checked([CONVOLUTION, backward], reported, FLOP_COUNTER_MODE) == {}


@pytest.mark.parametrize(
    ("mask", "macs", "expected"),
    [
        ((True, True, True), 2000, 3000),
        ((True, False, True), 1000, 0),
        ((False, True, False), 1000, 3000),
    ],
)
def test_the_weights_gradient_of_a_grouped_convolution(
    mask: tuple[bool, ...], macs: int, expected: int
) -> None:
    # 1000 for either gradient; the one of the weights counts for each of the four groups.
    backward = replace(
        call(
            "convolution_backward", "depthwise convolution", macs=macs, groups=4, output_mask=mask
        ),
        phase="backward",
    )
    number = 2 * (macs + expected)
    reported = Reported(number=number, product={"convolution_backward": number})
    found = checked([backward], reported, FLOP_COUNTER_MODE)
    assert [each.amount for each in found.values()] == ([expected] if expected else [])
    assert all(each.source == "rule" for each in found.values())


def test_operators_are_matched_by_name_where_all_are_counted() -> None:
    exponential = call("exp_", "pointwise", other=48)
    sign = call("sign", "pointwise", other=6)
    found = checked([exponential, sign], Reported(number=60, rest={"exp": 60}), TORCHLENS_FLOPS)
    assert found["exp"].amount == 12
    assert found["sign"].amount == -6
    assert found["sign"].reason.startswith("misses")


def test_free_operators_and_unknown_ones_have_no_reason() -> None:
    unknown = OperatorRecord(
        index=0,
        op="aten.odd",
        type="",
        module_path="",
        phase="forward",
        inputs=(),
        outputs=(),
        state=State.UNKNOWN,
        work=Work(flop=None, macs=None, min_flop=None),
    )
    assert differences([unknown], Reported(number=0), FVCORE) == ()


def test_names_of_one_operation() -> None:
    for label in ("add", "add_", "__add__", "__iadd__", "__radd__"):
        assert canonical_label(label) == "add"
    assert (
        canonical_label("__truediv__")
        == canonical_label("div")
        == canonical_label("true_divide")
        == "div"
    )
    assert canonical_label("relu_") == "relu"
    assert canonical_label("__invert__") == "invert"


LABELS = ("conv", "conv2d", "convolution", "linear", "addmm", "batch_norm", "relu", "exp", "odd")
counts = st.dictionaries(st.sampled_from(LABELS), st.integers(0, 10**12).map(lambda n: 2 * n))


@given(
    st.lists(st.sampled_from([CONVOLUTION, LINEAR, ATTENTION, BATCH_NORM])),
    counts,
    counts,
    st.integers(-100, 100),
    st.sampled_from(CONVENTIONS),
)
def test_ours_and_the_amounts_are_the_number_whatever_it_is(
    records: list[OperatorRecord],
    product: dict[str, int],
    rest: dict[str, int],
    outside: int,
    convention: Convention,
) -> None:
    number = sum(product.values()) + sum(rest.values()) + 2 * outside
    checked(records, Reported(number=number, product=product, rest=rest), convention)
