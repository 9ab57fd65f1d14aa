"""Quantised, packed, sparse and libraries' own products, by hand and against the plain ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.workload.passes import only, passed, total
from tests.workload.schema_calls import count_of, spec

aten: Any = torch.ops.aten


WEIGHT, BIAS = spec(5, 8, kind="qint8"), spec(5)
PRODUCTS = 3 * 5 * 8


# -- linear layers: 3 vectors of 8 to 5 ------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "taken", "given", "other"),
    [
        # The result is scaled, rounded, shifted and held between two limits; a bias before.
        ("quantized.linear", "quint8", "quint8", 15 * (5 + 1)),
        ("quantized.linear_relu", "quint8", "quint8", 15 * (5 + 1 + 1)),
        ("quantized.linear_leaky_relu", "quint8", "quint8", 15 * (5 + 1 + 2)),
        ("quantized.linear_tanh", "quint8", "quint8", 15 * (5 + 1 + 8)),
        # Of each input two limits are found, and it is quantised; each result scaled, with a bias.
        ("quantized.linear_dynamic", "float32", "float32", 24 * (2 + 5) + 15 * 2),
        ("quantized.linear_relu_dynamic", "float32", "float32", 24 * (2 + 5) + 15 * 3),
        ("quantized.linear_dynamic_fp16", "float32", "float32", 15),
        ("quantized.linear_relu_dynamic_fp16", "float32", "float32", 15 * 2),
    ],
)
def test_packed_linear_layers(operator: str, taken: str, given: str, other: int) -> None:
    """As many multiply-adds as the layer of floats; without a bias an addition less a result."""
    x, y = spec(3, 8, kind=taken), spec(3, 5, kind=given)
    count = count_of(operator, X=x, W_prepack=[WEIGHT, BIAS], output=y)
    assert (count.macs, count.other) == (PRODUCTS, other)
    assert count.min_flop == 2 * PRODUCTS
    without = count_of(operator, X=x, W_prepack=[WEIGHT, None], output=y)
    assert without.other == other - 15
    empty = count_of(
        operator, X=spec(0, 8, kind=taken), W_prepack=[WEIGHT, BIAS], output=spec(0, 5, kind=given)
    )
    assert empty.flop == 0


def test_linear_layers_of_onednn() -> None:
    """Quantised at the end, or scaled if it gives floats; with a gelu, or a sum and a relu."""
    x, w = spec(3, 8, kind="uint8"), spec(8, 5, kind="int8")
    arguments = {"qx": x, "qw": w, "bias": BIAS}
    whole = count_of("onednn.qlinear_pointwise", "", **arguments, output=spec(3, 5, kind="uint8"))
    assert (whole.macs, whole.other) == (PRODUCTS, 15 * 6)
    floats = count_of(
        "onednn.qlinear_pointwise",
        "",
        **arguments,
        output=spec(3, 5),
        post_op_name="gelu",
        post_op_algorithm="tanh",
    )
    assert floats.other == 15 * (1 + 1 + 16)
    binary = count_of(
        "onednn.qlinear_pointwise",
        "binary",
        **arguments,
        output=spec(3, 5),
        binary_post_op="sum",
        unary_post_op="relu",
    )
    assert binary.other == 15 * (1 + 1 + 2)


def test_older_linear_layers() -> None:
    """Those of fbgemm, by the names of their arguments."""
    x, y = spec(3, 8), spec(3, 5)
    bytes_ = count_of(
        "aten.fbgemm_linear_int8_weight_fp32_activation", input=x, output=y, bias=BIAS
    )
    halves = count_of("aten.fbgemm_linear_fp16_weight", input=x, output=y, bias=BIAS)
    assert bytes_.macs == halves.macs == PRODUCTS
    assert (bytes_.other, halves.other) == (24 * 7 + 15 * 2, 15)


# -- dispatched ------------------------------------------------------------------------------------


def test_weights_of_bytes_and_half_bytes() -> None:
    """4 vectors of 32 to 16: a scale a result, or two operations a weight; bytes as they lie."""
    x = torch.zeros(4, 32, dtype=torch.bfloat16)
    w, scales = torch.zeros(16, 32, dtype=torch.int8), torch.ones(16, dtype=torch.bfloat16)
    eight = only(passed(lambda x, w, s: aten._weight_int8pack_mm(x, w, s), x, w, scales))
    assert (eight.work.macs, eight.work.flop) == (4 * 32 * 16, 2 * 2048 + 64)
    assert eight.inputs[1].byte == 16 * 32
    packed = torch.zeros(16, 16, dtype=torch.uint8)
    both = torch.ones(1, 16, 2, dtype=torch.bfloat16)
    four = only(
        passed(lambda x, w, s: aten._weight_int4pack_mm_for_cpu(x, w, 32, s), x, packed, both)
    )
    assert (four.work.macs, four.work.flop) == (2048, 2 * 2048 + 2 * 512)
    assert four.inputs[1].byte == 16 * 32 / 2


def test_integers_and_scaled_floats() -> None:
    """32 x 32 x 32; a scale for either matrix of narrow floats."""
    a = torch.zeros(32, 32, dtype=torch.int8)
    work = only(passed(lambda a: aten._int_mm(a, a), a)).work
    assert (work.macs, work.flop) == (32**3, 2 * 32**3)
    b, one = torch.zeros(32, 32).to(torch.float8_e4m3fn), torch.ones(())
    record = only(
        passed(lambda b, one: aten._scaled_mm(b, b.t(), one, one, out_dtype=torch.bfloat16), b, one)
    )
    assert (record.work.macs, record.work.flop) == (32**3, 2 * 32**3 + 2 * 32**2)
    assert record.inputs[0].byte == 32 * 32


@pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning")
@pytest.mark.parametrize(
    ("function", "each"),
    [
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), 5),
        (lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False), 7),
        (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255), 7),
        (
            lambda x: torch.quantize_per_channel(
                x, torch.ones(3), torch.zeros(3, dtype=torch.int64), 0, torch.qint8
            ),
            5,
        ),
    ],
)
def test_numbers_made_integers(function: Callable[[Any], Any], each: int) -> None:
    """24 of them; a kernel may do it with tables."""
    captured = passed(function, (3, 8))
    work = total(captured)
    assert (work.flop, work.min_flop) == (24 * each, 0)
    quantised = next(each for each in captured.records if each.type == "quantization")
    assert quantised.inputs[0].byte == 4 * 24


def test_numbers_made_floats_again() -> None:
    """Two operations each, of one tensor or a list of them."""
    x = spec(3, 8, kind="qint8")
    assert count_of("aten.dequantize", "self", self=x, output=spec(3, 8)).other == 48
    assert count_of("aten.dequantize", "tensors", tensors=[x], output=[spec(3, 8)]).other == 48


def test_products_of_mkldnn() -> None:
    """As the plain ones, and an operation an element for what comes after."""
    mkldnn: Any = torch.ops.mkldnn
    x, w, b = torch.zeros(3, 8), torch.zeros(5, 8), torch.zeros(5)
    fused = only(
        passed(lambda x, w, b: mkldnn._linear_pointwise(x, w, b, "relu", [], ""), x, w, b)
    ).work
    plain = total(passed(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b))
    assert (fused.macs, fused.flop) == (plain.macs, plain.flop)
    assert fused.min_flop == plain.min_flop
    image, kernel = torch.zeros(2, 4, 7, 7), torch.zeros(6, 2, 3, 3)
    fused = only(
        passed(
            lambda x, w: mkldnn._convolution_pointwise(
                x, w, None, [1, 1], [2, 2], [1, 1], 2, "swish", [], ""
            ),
            image,
            kernel,
        )
    ).work
    plain = total(
        passed(lambda x, w: F.silu(F.conv2d(x, w, stride=2, padding=1, groups=2)), image, kernel)
    )
    assert (fused.macs, fused.flop) == (plain.macs, plain.flop)
    assert fused.min_flop == plain.min_flop


# -- by their schemas ------------------------------------------------------------------------------


def test_products_of_mkl_leave_the_first_weight() -> None:
    """Only the packed one is read."""
    count = count_of(
        "mkl._mkl_linear", X=spec(3, 8), MKL_W=spec(40), ORI_W=spec(5, 8), B=None, output=spec(3, 5)
    )
    assert (count.macs, count.flop) == (PRODUCTS, 2 * PRODUCTS)
    assert count.elements == {"ORI_W": 0}


def test_sparse_products() -> None:
    """Two of four: half of 16 x 32 x 8, whichever library."""
    half = 16 * 32 * 8 // 2
    y = spec(16, 8, kind="float16")
    counts = [
        count_of("aten._cslt_sparse_mm", dense_B=spec(32, 8, kind="float16"), output=y),
        count_of("aten._sparse_semi_structured_mm", mat1=spec(16, 16, kind="float16"), output=y),
        count_of("aten._sparse_semi_structured_addmm", mat1=spec(16, 16, kind="float16"), output=y),
        count_of("aten._sparse_semi_structured_linear", weight=spec(8, 16), output=y),
    ]
    assert {each.macs for each in counts} == {half}
    assert [each.other for each in counts] == [0, 0, 16 * 8, 0]


def test_numbers_of_four_bits() -> None:
    """Two in each element: 16 elements are 32 numbers."""
    a = spec(4, 16, kind="float4_e2m1fn_x2")
    count = count_of("aten._scaled_mm", self=a, output=spec(4, 8, kind="bfloat16"), bias=spec(8))
    assert (count.macs, count.other) == (4 * 32 * 8, 32 * 3)
    experts = spec(2, 16, 8, kind="float4_e2m1fn_x2")
    grouped = count_of("aten._scaled_grouped_mm", self=a, mat2=experts, output=spec(4, 8))
    assert grouped.macs == 4 * 32 * 8


def test_rows_quantised_for_half_bytes() -> None:
    """3 rows of 64 to 5, in blocks of 32."""
    count = count_of(
        "aten._dyn_quant_matmul_4bit",
        inp=spec(3, 64),
        block_size=32,
        in_features=64,
        out_features=5,
        output=spec(3, 5),
    )
    assert (count.macs, count.other) == (3 * 64 * 5, 3 * 64 * 7 + 15 * 4)


# -- convolutions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_convolutions(groups: int) -> None:
    """As many multiply-adds as those of floats; 5 a result, 1 for the bias, 1 for relu."""
    floats = only(
        passed(
            lambda x, w: F.conv2d(x, w, padding=1, groups=groups),
            (2, 4, 7, 7),
            (8, 4 // groups, 3, 3),
        )
    ).work
    x, y = spec(2, 4, 7, 7, kind="quint8"), spec(2, 8, 7, 7, kind="quint8")
    packed = [spec(8, 4 // groups, 3, 3, kind="qint8"), spec(8)]
    for overload, name in (("new", "packed_weight"), ("", "weight")):
        count = count_of("quantized.conv2d", overload, qx=x, **{name: packed}, output=y)
        assert count.macs == floats.macs
        assert count.other == 2 * 8 * 49 * 6
        # Where the padding lies is not known here.
        assert 0 < count.min_flop <= (floats.min_flop or 0)
    relu = count_of("quantized.conv2d_relu", "new", qx=x, packed_weight=packed, output=y)
    assert relu.other == 2 * 8 * 49 * 7
    other = count_of(
        "onednn.qconv2d_pointwise",
        qx=x,
        qw=packed[0],
        bias=None,
        attr="relu",
        output=spec(2, 8, 7, 7),
    )
    assert (other.macs, other.other) == (floats.macs, 2 * 8 * 49 * 2)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions(groups: int) -> None:
    """As many multiply-adds as those of floats."""
    floats = only(
        passed(
            lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=groups),
            (2, 4, 5, 5),
            (4, 6 // groups, 3, 3),
        )
    )
    count = count_of(
        "quantized.conv_transpose2d",
        qx=spec(2, 4, 5, 5, kind="quint8"),
        packed_weight=[spec(4, 6 // groups, 3, 3, kind="qint8"), None],
        output=spec(*floats.outputs[0].shape, kind="quint8"),
    )
    assert count.macs == floats.work.macs


# -- other layers ----------------------------------------------------------------------------------


def test_arithmetic_between_integers() -> None:
    """Two of them made floats, a sum, quantised: 2 + 2 + 1 + 5."""
    x = spec(3, 5, kind="quint8")
    assert count_of("quantized.add", qa=x, qb=x, output=x).other == 15 * 10
    assert count_of("quantized.mul", "Scalar", qa=x, b=2.0, output=x).other == 15 * 8
    assert count_of("quantized.cat", qx=[x, x], output=spec(6, 5, kind="quint8")).other == 30 * 7
    assert count_of("quantized.sigmoid", qx=x, output=x).other == 15 * (2 + 3 + 8 + 5)
    assert count_of("quantized.linear_prepack", W=WEIGHT, output=None).flop == 0


def test_embedding_of_bytes() -> None:
    """4 rows of 16 numbers and 8 bytes of scale and offset, in 2 bags: 2 operations, and a sum."""
    count = count_of(
        "quantized.embedding_bag_byte_rowwise_offsets",
        weight=spec(100, 24, kind="uint8"),
        indices=spec(4, kind="int64"),
        output=spec(2, 16),
    )
    assert (count.other, count.elements) == (4 * 16 * 3, {"weight": 4 * 24})


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_layers(kind: str, bidirectional: bool) -> None:
    """The multiply-adds of the layer of floats; each vector that is multiplied is quantised."""
    make = torch.nn.LSTM if kind == "lstm" else torch.nn.GRU
    layer = make(6, 5, num_layers=2, bidirectional=bidirectional)
    floats = total(passed(layer, (4, 3, 6)))
    state = spec(2 * (1 + bidirectional), 3, 5)
    arguments = {
        "input": spec(4, 3, 6),
        "hx": [state, state] if kind == "lstm" else state,
        "params": [],
        "has_biases": True,
        "num_layers": 2,
        "bidirectional": bidirectional,
        "batch_first": False,
    }
    count = count_of(f"aten.quantized_{kind}", "input", **arguments)
    assert count.macs == floats.macs
    directions = 1 + bidirectional
    vectors = 12 * directions * (6 + 5 * directions) + 12 * 2 * directions * 5
    halves = count_of(f"aten.quantized_{kind}", "input", **arguments, dtype="torch.float16")
    assert count.other - halves.other == 7 * vectors
    assert count.min_flop == halves.min_flop
    # Recurrent weights are read again in 3 of 4 steps: a byte each, or two.
    gates = 4 if kind == "lstm" else 3
    again = 3 * 2 * directions * gates * 5 * (5 + 1)
    assert halves.internal_bytes - count.internal_bytes == again


@pytest.mark.parametrize(
    ("operator", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)]
)
def test_recurrent_cells(operator: str, gates: int) -> None:
    """3 vectors of 6 and states of 5: both products of every gate."""
    state = spec(3, 5)
    count = count_of(
        f"quantized.quantized_{operator}_cell_dynamic",
        input=spec(3, 6),
        hx=[state, state] if operator == "lstm" else state,
    )
    assert count.macs == 3 * gates * 5 * (6 + 5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("kind", "bits"), [(torch.quint8, 8), (torch.quint4x2, 4)])
def test_packed_tables_are_read_by_rows(kind: torch.dtype, bits: int) -> None:
    """20 rows of 64 of a table of 1000; they may be the same row, and a bag may be empty."""
    scale, zero = torch.full((1000,), 0.01), torch.zeros(1000)
    table = torch.quantize_per_channel(torch.rand(1000, 64), scale, zero, 0, kind)
    packed = torch.ops.quantized.embedding_bag_prepack(table)
    name = "byte" if bits == 8 else "4bit"
    rows, begins = torch.zeros(20, dtype=torch.int64), torch.tensor([0, 10])
    for least, function in (
        (64, lambda i, _: getattr(torch.ops.quantized, f"embedding_{name}")(packed, i)),
        (0, lambda i, o: getattr(torch.ops.quantized, f"embedding_bag_{name}")(packed, i, o)),
    ):
        weight = only(passed(function, rows, begins)).inputs[0]
        assert weight.shape == (1000, 64)
        assert weight.byte == 20 * 64 * bits // 8
        assert weight.min_bytes == least * bits // 8
