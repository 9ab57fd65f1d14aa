"""Attention against the loops it stands for, and fused layers against their parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.operators import Capture, OperatorRecord, State
from roofline.workload.work import Work
from tests.workload.passes import only, passed, total, trained, working
from tests.workload.scalars import (
    Scalar,
    Tally,
    dot,
    exp,
    largest_of,
    log,
    numbers,
    random,
    same,
    sum_of,
)

sizes = st.integers(1, 4)
FUSED = "aten._scaled_dot_product_flash_attention_for_cpu"


def written_out(q: Any, k: Any, v: Any, mask: Any, scale: float | None) -> tuple[Any, Any]:
    """softmax(q * scale, k + mask) v of one head, and the logarithm of each softmax's sum.

    ``mask[i][j]`` is a number to add, or True or False: seen or not, which takes no arithmetic.
    """
    results, logarithms = [], []
    for i, query in enumerate(q):
        scaled = query if scale == 1 else [x * (scale or len(query) ** -0.5) for x in query]
        scores: list[Scalar] = []
        for j, key in enumerate(k):
            score = dot(scaled, key)
            if mask is not None and isinstance(mask[i][j], bool):
                score = score if mask[i][j] else Scalar(-math.inf, score.tally)
            elif mask is not None:
                score = score + mask[i][j]
            scores.append(score)
        most = largest_of(scores)
        powers = [exp(each - most) for each in scores]
        whole = sum_of(powers)
        logarithms.append(log(whole) + most)
        weights = [each / whole for each in powers]
        results.append([dot(weights, [row[n] for row in v]) for n in range(len(v[0]))])
    return results, logarithms


def least_written_out(head: Sequence[Any], is_causal: bool) -> tuple[Any, Any]:
    """The same with as little as we can: only keys that are seen, no maximum, no scaling.

    A scale would go into the exponent, as here. What is divided are the probabilities, or the
    results, whichever are fewer.
    """
    q, k, v = head
    results, logarithms = [], []
    scale = len(q[0]) ** -0.5
    for i, query in enumerate(q):
        keys = k[: i + 1] if is_causal else k
        values = v[: i + 1] if is_causal else v
        scores = [dot(query, key) for key in keys]
        powers = [score.apply(lambda x: math.exp(scale * x)) for score in scores]
        whole = sum_of(powers)
        logarithms.append(log(whole))
        if len(keys) < len(v[0]):
            powers = [each / whole for each in powers]
        sums = [dot(powers, [row[n] for row in values]) for n in range(len(v[0]))]
        results.append(sums if len(keys) < len(v[0]) else [each / whole for each in sums])
    return results, logarithms


@settings(max_examples=60)
@given(
    shape=st.tuples(sizes, sizes, sizes, sizes, sizes),
    masked=st.sampled_from(["no", "causal", "numbers", "booleans"]),
    scale=st.sampled_from([None, 1.0, 0.3]),
)
def test_attention(shape: tuple[int, ...], masked: str, scale: float | None) -> None:
    """Every product, exponential and division is counted as it is done."""
    heads, group, queries, keys, features = shape
    q, tally = random(1, heads * group, queries, features), Tally()
    k, v = random(1, heads, keys, features), random(1, heads, keys, features)
    mask: torch.Tensor | None = None
    if masked == "numbers":
        mask = random(queries, keys)
    elif masked == "booleans":
        mask = random(queries, keys) > 0
        mask[:, 0] = True
    seen = torch.ones(queries, keys, dtype=torch.bool).tril() if masked == "causal" else mask
    if masked == "booleans":
        # torch makes numbers of them before it calls the operator.
        seen = torch.zeros(queries, keys).where(random(queries, keys) > 0, -torch.inf)
        seen[:, 0] = 0
    options: dict[str, Any] = {"is_causal": masked == "causal", "enable_gqa": True, "scale": scale}

    def attention(q: Any, k: Any, v: Any, *mask: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask[0] if mask else None, **options)

    result = [
        written_out(
            numbers(q[0, head], tally),
            numbers(k[0, head // group], tally),
            numbers(v[0, head // group], tally),
            seen.tolist() if seen is not None else None,
            scale,
        )
        for head in range(heads * group)
    ]
    given = (q, k, v) if mask is None else (q, k, v, mask)
    assert same([each for each, _ in result], attention(*given))
    records = passed(attention, *given).records
    (record,) = (each for each in records if each.op == FUSED)
    assert all(each.work.flop == 0 for each in records if each is not record)
    assert record.work.flop == tally.flop
    assert record.work.macs == heads * group * queries * keys * 2 * features
    assert record.type == "attention"
    # Queries and result in all heads, keys and values in their own; a logarithm for each query.
    rows = heads * group * queries
    moved = 2 * rows * features + 2 * heads * keys * features + rows
    moved += 0 if mask is None else queries * keys
    assert record.work.traffic_bytes == 4 * moved


@given(shape=st.tuples(sizes, sizes, sizes, sizes), is_causal=st.booleans())
def test_least_of_attention(shape: tuple[int, ...], is_causal: bool) -> None:
    """A loop over the keys that are seen gives torch's result with as little as we say."""
    heads, queries, keys, features = shape
    tally = Tally()
    q = random(1, heads, queries, features)
    k, v = random(1, heads, keys, features), random(1, heads, keys, features)

    def attention(q: Any, k: Any, v: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    result = [
        least_written_out([numbers(each[0, head], tally) for each in (q, k, v)], is_causal)
        for head in range(heads)
    ]
    assert same([each for each, _ in result], attention(q, k, v))
    work = only(passed(attention, q, k, v)).work
    # The loop's last addition of the maximum is not there; the operator's is.
    assert work.min_flop == tally.min_flop
    assert (work.min_flop or 0) <= (work.flop or 0)


@pytest.mark.parametrize(
    ("queries", "keys", "seen"),
    [
        (4, 4, 1 + 2 + 3 + 4),
        (2, 5, 1 + 2),  # rows and columns begin together, so the last keys are never seen
        (5, 2, 1 + 2 + 2 + 2 + 2),
        (1, 1, 1),
    ],
)
def test_a_causal_mask_leaves_a_triangle(queries: int, keys: int, seen: int) -> None:
    """By hand: 8 features a vector, in two products; values are longer than rows of the mask."""
    work = only(
        passed(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            *[(1, 1, queries, 8), (1, 1, keys, 8), (1, 1, keys, 8)],
        )
    ).work
    assert work.macs == 2 * 8 * queries * keys
    # Of each that is seen an exponential and a division, of each row one addition less, and a log.
    assert work.min_flop == 2 * 2 * 8 * seen + (2 * seen + seen - queries) + queries
    mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    assert int(mask.sum()) == seen
    q, k, v = random(1, 1, queries, 8), random(1, 1, keys, 8), random(1, 1, keys, 8)
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(causal, F.scaled_dot_product_attention(q, k, v, mask), atol=1e-6)


def test_what_a_mask_leaves_is_not_known() -> None:
    """Its products count as needed, no exponential does; a causal mask's zeros do not count."""
    shapes = [(1, 2, 6, 8)] * 3

    def masked(q: Any, k: Any, v: Any, mask: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, mask)

    work = only(passed(masked, *shapes, (6, 6))).work
    assert work.min_flop == 2 * 2 * 8 * 2 * 36 + 12


@settings(max_examples=20)
@given(batch=st.integers(1, 3), is_causal=st.booleans())
def test_a_batch_is_so_many_times_one(batch: int, is_causal: bool) -> None:
    """Nothing is shared between samples."""

    def attention(q: Any, k: Any, v: Any) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    one = only(passed(attention, *[(1, 2, 5, 8)] * 3)).work
    many = only(passed(attention, *[(batch, 2, 5, 8)] * 3)).work
    assert many == sum(batch * [one])


def test_half_the_width_is_half_the_bytes() -> None:
    """But for the logarithms, which stay float32; FLOP are the same."""
    full = only(passed(F.scaled_dot_product_attention, *[(1, 2, 4, 8)] * 3)).work
    half = only(
        passed(
            F.scaled_dot_product_attention,
            *[torch.zeros(1, 2, 4, 8, dtype=torch.bfloat16) for _ in range(3)],
        )
    ).work
    assert half.flop == full.flop
    assert half.input_bytes == full.input_bytes / 2
    assert half.output_bytes == (full.output_bytes - 4 * 8) / 2 + 4 * 8


@pytest.mark.parametrize("shape", [(3, 5, 8), (5, 8)])
def test_without_a_batch_torch_takes_it_apart(shape: tuple[int, ...]) -> None:
    """Its parts take the same multiply-adds."""
    assert (
        total(passed(F.scaled_dot_product_attention, *[shape] * 3)).macs
        == math.prod(shape[:-2]) * 5 * 5 * 16
    )


@pytest.mark.parametrize(
    "shapes",
    [
        [(0, 2, 3, 4)] * 3,
        [(1, 2, 0, 4), (1, 2, 3, 4), (1, 2, 3, 4)],
        [(1, 2, 3, 4), (1, 2, 0, 4), (1, 2, 0, 4)],
        [(1, 2, 3, 4), (1, 1, 3, 4), (1, 1, 3, 4)],
    ],
)
def test_empty_and_broadcast_operands(shapes: list[tuple[int, ...]]) -> None:
    """Legal calls are counted, whatever path torch takes."""
    captured = passed(F.scaled_dot_product_attention, *map(torch.zeros, shapes))
    work = total(captured)
    assert work.macs == math.prod(shapes[0][:3]) * shapes[1][2] * 8


# -- fused layers --------------------------------------------------------------------------------


class SelfAttention(torch.nn.Module):
    """Multi-head attention of an input to itself, however its sizes are ordered."""

    def __init__(self, *, batch_first: bool = True, **options: Any) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=batch_first)
        self.options = options

    def forward(self, x: torch.Tensor, **masks: torch.Tensor) -> Any:
        return self.attention(x, x, x, **self.options, **masks)[0]


def fused(records: Sequence[OperatorRecord]) -> bool:
    names = ("aten._native_multi_head_attention", "aten._transformer_encoder_layer_fwd")
    return any(each.op in names for each in records)


@pytest.mark.parametrize(
    "options",
    [
        {"need_weights": False},
        {"need_weights": True},
        {"need_weights": True, "average_attn_weights": False},
    ],
    ids=str,
)
def test_multi_head_attention_by_hand(options: dict[str, Any], fast: bool) -> None:
    """3 samples of 5 vectors of 16 numbers, in 2 heads of 8; the same on and off the fast path."""
    records = passed(SelfAttention(**options), (3, 5, 16)).records
    assert fused(records) == fast
    work = sum((each.work for each in records), start=Work())
    projections = 4 * (3 * 5) * 16 * 16
    products = 2 * (3 * 2) * 5 * 5 * 8
    assert work.macs == projections + products
    biases, scale = 4 * 3 * 5 * 16, 3 * 5 * 16
    # A row of 5: 4 comparisons, 5 subtractions, 5 exponentials (8 each), 4 additions, 5 divisions.
    softmax = (3 * 2 * 5) * (4 + 5 + 5 * 8 + 4 + 5)
    average = 3 * 5 * 5 * 2 if options.get("average_attn_weights", options["need_weights"]) else 0
    # Without weights torch takes `scaled_dot_product_attention`, which returns 30 logarithms too.
    logarithms = 0 if fast or options["need_weights"] else (3 * 2 * 5) * (8 + 1)
    others = biases + scale + softmax + average + logarithms
    assert work.flop == 2 * work.macs + others


@pytest.mark.parametrize("masks", [("key_padding_mask",), ("attn_mask",)], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_masks_change_no_multiply_add(masks: tuple[str, ...], need_weights: bool) -> None:
    """On the fast path a mask only selects."""
    shape = {"key_padding_mask": (3, 5), "attn_mask": (5, 5)}
    given: dict[str, Any] = {name: torch.zeros(shape[name], dtype=torch.bool) for name in masks}
    module = SelfAttention(need_weights=need_weights)
    masked = total(passed(module, x=(3, 5, 16), **given))
    plain = total(passed(module, (3, 5, 16)))
    assert masked.macs == plain.macs
    # Converting the mask to numbers and back may compare it with zero.
    assert plain.flop is not None
    assert masked.flop is not None
    assert 0 <= masked.flop - plain.flop <= 2 * 3 * 5 * 5
    assert (masked.min_flop or 0) <= (plain.min_flop or 0)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_by_hand(norm_first: bool, activation: str, fast: bool) -> None:
    """As above, then 16 to 32 to 16; two norms, two residuals; the same on and off the path."""
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 32, batch_first=True, norm_first=norm_first, activation=activation
    )
    records = passed(layer, (3, 5, 16)).records
    assert fused(records) == fast
    assert all(each.state is not State.UNKNOWN for each in records)
    work = sum((each.work for each in records), start=Work())
    vectors = 3 * 5
    attention = vectors * 4 * 16 * 16 + 2 * (3 * 2) * 5 * 5 * 8
    assert work.macs == attention + vectors * 2 * 16 * 32
    biases, scale = vectors * (4 * 16 + 32 + 16), vectors * 16
    softmax = (3 * 2 * 5) * (4 + 5 + 5 * 8 + 4 + 5)
    # Norms: sum, difference, square, sum, scale, weight, bias; a root and its reciprocal a vector.
    norms = 2 * (vectors * 16 * 7 + vectors * 3)
    between = vectors * 32 * {"relu": 1, "gelu": 4 + 8}[activation]
    logarithms = 0 if fast else (3 * 2 * 5) * (8 + 1)
    others = biases + scale + softmax + norms + between + 2 * vectors * 16 + logarithms
    assert work.flop == 2 * work.macs + others
    parameters = 4 * 16 * 16 + 4 * 16 + 2 * 16 * 32 + 32 + 16 + 4 * 16
    assert work.parameter_bytes == 4 * parameters
    if fast:
        # One operator: nothing but its input and output moves besides the parameters. Inside, q, k,
        # v, context, and what two halves, two sums and a norm give; two wider; two rectangles.
        assert work.traffic_bytes == 4 * (parameters + 2 * vectors * 16)
        inside = 9 * vectors * 16 + 2 * vectors * 32 + 2 * (3 * 2 * 5 * 5)
        assert work.internal_bytes == 4 * 2 * inside


def test_an_encoder_is_so_many_layers(fast: bool) -> None:
    """Three layers take three times one."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    one, three = total(passed(layer, (3, 5, 16))), total(passed(encoder, (3, 5, 16)))
    assert (three.flop, three.min_flop) == (3 * (one.flop or 0), 3 * (one.min_flop or 0))
    assert three.macs == 3 * (one.macs or 0)
    of_one, of_three = (len(working(passed(each, (3, 5, 16)))) for each in (layer, encoder))
    assert of_three == (3 if fast else 3 * of_one)


def test_torch_runs_the_parts_that_are_counted() -> None:
    """The operator's result is what its parts give when they are called one after another."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = random(3, 5, 16)
    with torch.no_grad():
        fast = layer(x)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            apart = layer(x)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
    assert torch.allclose(fast, apart, atol=1e-5)


def test_causal_attention_of_few_queries_needs_few_keys() -> None:
    """The first query sees the first key alone: the other 999, and their values, may be left."""
    captured = passed(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (1, 2, 1, 4),
        (1, 2, 1000, 4),
        (1, 2, 1000, 4),
    )
    (record,) = working(captured)
    assert sorted(each.min_bytes for each in record.inputs) == [2 * 4 * 4] * 3
    assert sum(each.byte for each in record.inputs) == 2 * 4 * 4 * (1 + 2 * 1000)


@pytest.mark.parametrize(
    ("heads", "expanded", "needed"),
    [
        # Of 2 heads of their own the first 3 keys of 4 numbers, though there are 8 of queries.
        (2, False, 2 * 3 * 4),
        # One head that is repeated for all 8 is there once.
        (1, True, 3 * 4),
    ],
)
def test_keys_that_heads_share_are_needed_once(heads: int, expanded: bool, needed: int) -> None:
    def attention(q: Any, k: Any, v: Any) -> torch.Tensor:
        if expanded:
            k, v = (each.expand(1, 8, 10, 4) for each in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    records = passed(attention, (1, 8, 3, 4), *[(1, heads, 10, 4)] * 2).records
    (record,) = (each for each in records if each.op == FUSED)
    query, *others = record.inputs
    assert query.min_elements is None
    assert [each.min_elements for each in others] == [needed, needed]
    assert [each.distinct_elements for each in others] == [heads * 10 * 4] * 2


def test_the_keys_that_are_left_change_nothing() -> None:
    """Torch itself gives the same result whatever stands in the keys behind the last query."""
    q, k, v = random(1, 2, 3, 8), random(1, 2, 10, 8), random(1, 2, 10, 8)
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    first = F.scaled_dot_product_attention(q, k[:, :, :3], v[:, :, :3], is_causal=True)
    assert torch.allclose(whole, first, atol=1e-6)
    # As many queries as keys, or more, see every key.
    for queries in (10, 12):
        shapes = [(1, 2, queries, 8), *[(1, 2, 10, 8)] * 2]
        record = only(
            passed(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *shapes)
        )
        assert [each.min_elements for each in record.inputs] == [None] * 3


# -- paths, bytes ----------------------------------------------------------------------------------


def layers_of(captured: Capture) -> int:
    """Multiply-adds, all of which are known."""
    assert all(each.state is not State.UNKNOWN for each in captured.records)
    return total(captured).macs or 0


MASKS = ["", "attn_mask", "key_padding_mask", "is_causal"]


def attention_of(need_weights: bool, masked: str, batch_first: bool = True) -> Any:
    """A layer with a mask, and what it is called with."""
    options: dict[str, Any] = {"need_weights": need_weights, "is_causal": masked == "is_causal"}
    given: dict[str, Any] = {"x": torch.zeros((3, 5, 16) if batch_first else (5, 3, 16))}
    if masked == "key_padding_mask":
        given[masked] = torch.zeros(3, 5, dtype=torch.bool)
    elif masked:
        given["attn_mask"] = torch.ones(5, 5, dtype=torch.bool).triu(1)
    return SelfAttention(batch_first=batch_first, **options), given


@pytest.mark.parametrize(
    ("need_weights", "masked", "batch_first"),
    [
        *((need, masked, True) for need in (True, False) for masked in MASKS),
        *((need, "", False) for need in (True, False)),
    ],
)
def test_all_paths_multiply_alike(
    need_weights: bool, masked: str, batch_first: bool, fast: bool
) -> None:
    """Fast or taken apart, masked or not, whatever comes first."""
    model, given = attention_of(need_weights, masked, batch_first)
    captured = passed(model, **given)
    assert layers_of(captured) == 15 * 4 * 16 * 16 + 2 * (3 * 2) * 25 * 8


@pytest.mark.parametrize(
    ("need_weights", "masked"), [(True, ""), (True, "attn_mask"), (False, ""), (False, "is_causal")]
)
def test_training_goes_forward_alike(need_weights: bool, masked: str) -> None:
    """With gradients torch takes the layer apart."""
    model, given = attention_of(need_weights, masked)
    records = trained(model, **given).records
    forward = sum(each.work.macs or 0 for each in records if each.phase == "forward")
    assert forward == 15 * 4 * 16 * 16 + 2 * (3 * 2) * 25 * 8


ENCODER = 15 * 4 * 16 * 16 + 15 * 2 * 16 * 32
"""Multiply-adds of the linear layers below; those of the scores and values are:"""
SCORES = 2 * 6 * 25 * 8


def encoder_of(norm_first: bool, masked: str) -> Any:
    """A layer with a mask, and what it is called with."""
    layer = torch.nn.TransformerEncoderLayer(
        16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    given: dict[str, Any] = {"src": torch.zeros(3, 5, 16)}
    if masked == "src_key_padding_mask":
        given[masked] = torch.zeros(3, 5, dtype=torch.bool)
    elif masked:
        given["src_mask"] = torch.nn.Transformer.generate_square_subsequent_mask(5)
        given |= {"is_causal": True} if masked == "is_causal" else {}
    return layer, given


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masked", ["", "src_mask", "src_key_padding_mask", "is_causal"])
def test_encoder_layers_multiply_alike(norm_first: bool, masked: str, fast: bool) -> None:
    """Norms first or last, masked or not, on either path."""
    layer, given = encoder_of(norm_first, masked)
    assert layers_of(passed(layer, **given)) == ENCODER + SCORES


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masked", ["", "src_mask"])
def test_training_an_encoder_layer(norm_first: bool, masked: str) -> None:
    """Three times the linear layers, but for what leads to the source with norms last.

    That needs no gradient. Going back, the kernel of attention takes the scores anew: five products
    where there were two.
    """
    layer, given = encoder_of(norm_first, masked)
    to_source = 0 if norm_first else 15 * 3 * 16 * 16
    by_hand = 3 * ENCODER - to_source + SCORES + 5 * SCORES // 2
    assert layers_of(trained(layer, **given)) == by_hand


def test_bytes_inside_attention_by_hand() -> None:
    """2 heads, 3 queries, 5 keys: two rectangles, each written and read, in the queries' type."""
    shapes = [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)]
    work = only(passed(F.scaled_dot_product_attention, *shapes)).work
    assert work.internal_bytes == 4 * 2 * 2 * (2 * 3 * 5)
    half = [torch.zeros(each, dtype=torch.bfloat16) for each in shapes]
    assert only(passed(F.scaled_dot_product_attention, *half)).work.internal_bytes == 2 * 2 * 2 * 30


def by_name(captured: Capture, *names: str) -> int:
    """Traffic of the operators of these names."""
    return sum(each.work.traffic_bytes for each in captured.records if each.op in names)


def test_with_all_that_is_inside_attention_moves_what_its_parts_move() -> None:
    """Two products and a softmax; but for the logarithms, which only the operator returns."""

    def parts(q: Any, k: Any, v: Any) -> Any:
        return torch.bmm(torch.softmax(torch.bmm(q, k), -1), v)

    whole = only(passed(F.scaled_dot_product_attention, *[(1, 6, 5, 8)] * 3)).work
    apart = total(passed(parts, (6, 5, 8), (6, 8, 5), (6, 5, 8)))
    logarithms = 4 * 6 * 5
    assert whole.traffic_bytes < apart.traffic_bytes
    assert whole.traffic_bytes + (whole.internal_bytes or 0) == apart.traffic_bytes + logarithms


def test_with_all_that_is_inside_a_layer_moves_what_its_parts_move(fast: bool) -> None:
    """Against the layer taken apart, which copies and adds where the operator's parts need not.

    Projections, two products, a softmax, a mean and a projection are what is inside. Taken apart,
    the input, the projections and the context are copied, the bias is added and the queries scaled
    on their own, and a head of queries, keys or values is handed over from there.
    """
    captured = passed(SelfAttention(need_weights=True), (3, 5, 16))
    work = total(captured)
    moved = work.traffic_bytes + (work.internal_bytes or 0)
    if fast:
        x, scores, average = 15 * 16, 3 * 2 * 25, 3 * 25
        weights = 4 * 16 * 16 + 4 * 16
        parts = (x + 3 * x) + (2 * x + scores) + 2 * scores + (scores + 2 * x) + 2 * x
        assert moved == 4 * (weights + parts + scores + average)
        return
    names = ("aten.mm", "aten.bmm", "aten._softmax", "aten.addmm", "aten.mean")
    between = by_name(captured, "aten.clone", "aten.add", "aten.mul")
    assert by_name(captured, *names) + between == moved
    # As the operator, but for the bias of the three projections: 10 tensors like the input (4 by
    # the projections, 2 by each product and the last projection), 5 rectangles, and their mean.
    whole = 4 * (4 * 16 * 16 + 4 * 16 + 10 * 15 * 16 + 5 * 150 + 75)
    assert by_name(captured, *names) == whole - 4 * 3 * 16
