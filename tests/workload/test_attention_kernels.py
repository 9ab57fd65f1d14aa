"""Kernels of attention that a CPU has not, forward and backward: counted from their schemas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import sdpa_backward_flop_count

from roofline.workload.formulas.attention import Band, causal_band, full_band, window_band
from roofline.workload.formulas.registry import Flop
from tests.workload.schema_calls import spec, taken

Shape = tuple[int, ...]
SQUARE: Shape = (2, 4, 6, 8)
"""2 samples, 4 heads, 6 queries or keys, 8 numbers each."""
CPU = "_scaled_dot_product_flash_attention_for_cpu"
COUNTS = ("macs", "flop", "min_flop", "internal_bytes")
sizes = st.integers(0, 9)
ends = st.integers(-12, 12)


# -- what is seen ----------------------------------------------------------------------------------


@settings(max_examples=300)
@given(queries=sizes, keys=sizes, lowest=ends, highest=ends, most=sizes)
def test_a_band_is_what_a_mask_leaves(
    queries: int, keys: int, lowest: int, highest: int, most: int
) -> None:
    """Counted one by one."""
    band = Band(queries=queries, keys=keys, lowest=lowest, highest=highest)
    mask = [[lowest <= j - i <= highest for j in range(keys)] for i in range(queries)]
    assert band.pairs == sum(map(sum, mask))
    assert band.seen_keys == sum(any(column) for column in zip(*mask, strict=True))
    assert band.seeing_queries == sum(map(any, mask))
    assert band.capped(most) == sum(min(sum(row), most) for row in mask)


@given(queries=st.integers(1, 9), keys=st.integers(1, 9))
def test_bands_as_torch_masks(queries: int, keys: int) -> None:
    """tril begins with the first of both; a diagonal moves it to end with the last."""
    ones = torch.ones(queries, keys)
    assert full_band(queries, keys).pairs == queries * keys
    assert causal_band(queries, keys).pairs == int(ones.tril().sum())
    last = causal_band(queries, keys, ends_together=True)
    assert last.pairs == int(ones.tril(keys - queries).sum())
    assert window_band(queries, keys, None, 0) == window_band(queries, keys, -1, 0)
    assert window_band(queries, keys, None, 0).pairs == last.pairs
    assert window_band(queries, keys, None, None).pairs == queries * keys
    both = ones.tril(keys - queries + 2).triu(keys - queries - 1)
    assert window_band(queries, keys, 1, 2).pairs == int(both.sum())


# -- dense -----------------------------------------------------------------------------------------


def attention(
    name: str,
    query: Shape = SQUARE,
    key: Shape | None = None,
    value: Shape | None = None,
    *,
    is_causal: bool = False,
    kind: str = "float32",
    overload: str = "",
    **options: Any,
) -> Flop:
    """A kernel on tensors of (samples, heads, sequence, width), in the order that it takes."""
    key = key or query
    value = value or key
    has_sequence_first = name.startswith(("_flash_", "_efficient_"))

    def operand(shape: Shape) -> Any:
        samples, heads, sequence, width = shape
        order = (sequence, heads) if has_sequence_first else (heads, sequence)
        return spec(samples, *order, width, kind=kind)

    out, logarithms = operand((*query[:3], value[3])), spec(*query[:3])
    pool = {
        "query": operand(query),
        "key": operand(key),
        "value": operand(value),
        **dict.fromkeys(("out", "grad_out", "grad_out_"), out),
        **dict.fromkeys(("max_q", "max_seqlen_q"), query[2]),
        **dict.fromkeys(("max_k", "max_seqlen_k"), key[2]),
        "logsumexp": logarithms,
        "attn_bias": spec(0) if "backward" in name else None,
        "dropout_p": 0.0,
        "is_causal": is_causal,
        "custom_mask_type": int(is_causal),
        "grad_input_mask": (True, True, True, False),
        "bias_requires_grad": False,
    }
    return taken(name, overload, output=[out, logarithms, *7 * [None]], **{**pool, **options})


FORWARD = (
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    *("_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward"),
    *("_scaled_dot_product_fused_attention_overrideable", "_efficient_attention_forward"),
    *("_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace"),
)
BACKWARD = (
    *("_scaled_dot_product_flash_attention_backward", "_flash_attention_backward"),
    *("_scaled_dot_product_efficient_attention_backward", "_efficient_attention_backward"),
    *("_scaled_dot_product_cudnn_attention_backward", "_cudnn_attention_backward"),
    "_scaled_dot_product_fused_attention_overrideable_backward",
)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("name", [*FORWARD, *BACKWARD])
def test_all_kernels_do_the_same_as_the_one_on_a_cpu(name: str, is_causal: bool) -> None:
    """That one is tested against loops; heads of queries share keys, where they may."""
    for key in (SQUARE, (2, 2, 6, 8)):
        cpu = f"{CPU}_backward" if name in BACKWARD else CPU
        expected = attention(cpu, SQUARE, key, is_causal=is_causal)
        found = attention(name, SQUARE, key, is_causal=is_causal)
        scores, products = 2 * 4 * 6 * 6, 5 if name in BACKWARD else 2
        assert expected.macs == scores * products * 8
        for each in COUNTS:
            assert getattr(found, each) == getattr(expected, each)
        # Two rectangles of 4-byte numbers, each written and read; four, and a number a query.
        inside = 4 * scores + 2 * 4 * 6 if name in BACKWARD else 2 * scores
        assert found.internal_bytes == 2 * 4 * inside


@pytest.mark.parametrize("name", BACKWARD)
def test_causal_masks_begin_or_end_together(name: str) -> None:
    """6 queries and 5 keys: 1, 2, 3, 4, 5, 5 where they begin together, else 0, 1, 2, 3, 4, 5."""
    query, key = SQUARE, (2, 2, 5, 8)
    plain, found = (attention(name, query, key, is_causal=each) for each in (False, True))
    assert 2 * plain.macs == sdpa_backward_flop_count(query, query, key, key)
    assert found.macs == plain.macs == 2 * 4 * 6 * 5 * 5 * 8
    seen = 15 if name == "_flash_attention_backward" else 20
    assert found.min_flop == 2 * 4 * seen * (2 * 5 * 8 + 2) + 2 * 4 * 6 * (2 * 8 - 1)


def test_values_may_be_of_another_length() -> None:
    """Latent attention: 12 numbers are compared, 5 added up; going back three times and twice."""
    shapes = (1, 2, 3, 12), (1, 2, 7, 12), (1, 2, 7, 5)
    name = "_scaled_dot_product_cudnn_attention"
    assert attention(name, *shapes).macs == 2 * 3 * 7 * (12 + 5)
    assert attention(f"{name}_backward", *shapes).macs == 2 * 3 * 7 * (3 * 12 + 2 * 5)


def test_a_mask_of_numbers_is_added_and_dropout_multiplied() -> None:
    """An operation a score each; dropout also multiplies the gradients of the probabilities."""
    scores, bias = 2 * 4 * 6 * 6, spec(2, 4, 6, 6)
    name = "_scaled_dot_product_efficient_attention"
    plain = attention(name)
    assert attention(name, attn_bias=bias).flop - plain.flop == scores
    assert attention(name, dropout_p=0.1).flop - plain.flop == scores
    plain, dropped = (attention(f"{CPU}_backward", dropout_p=each) for each in (0.0, 0.5))
    assert (dropped.flop - plain.flop, dropped.macs) == (2 * scores, plain.macs)


def test_quantized_values_take_their_scale() -> None:
    """A multiplication for each number of the result; an eighth of a number is a byte."""
    name = FORWARD[0]
    scales: dict[str, Any] = {f"{each}_descale": spec(2, 4) for each in "qkv"}
    plain = attention(name, kind="float8_e4m3fn")
    quantized = attention(name, kind="float8_e4m3fn", overload="quantized", **scales)
    assert quantized.flop - plain.flop == 2 * 4 * 6 * 8
    assert quantized.macs == plain.macs
    assert quantized.internal_bytes == 4 * 2 * 4 * 6 * 6


@pytest.mark.parametrize(
    ("wanted", "products"),
    [
        ((True, True, True, True), 5),
        ((True, True, True, False), 5),
        # Scores, dP, dS K.
        ((True, False, False, False), 3),
        ((False, True, False, False), 3),
        # Scores and P^T dO.
        ((False, False, True, False), 2),
        # Scores and dP.
        ((False, False, False, True), 2),
        ((False, False, False, False), 0),
    ],
)
def test_products_of_gradients_that_are_not_wanted(wanted: tuple[bool, ...], products: int) -> None:
    """Three products where all are; the gradient of a mask adds up what shares it."""
    name = "_scaled_dot_product_efficient_attention_backward"
    options = {"attn_bias": spec(6, 5), "grad_input_mask": wanted}
    found = attention(name, SQUARE, (2, 2, 5, 8), **options)
    scores, queries = 2 * 4 * 6 * 5, 2 * 4 * 6
    assert found.macs == scores * products * 8
    for_scores = wanted[0] or wanted[1] or wanted[3]
    each = (1 + 1 + 8 + 2 * for_scores) if any(wanted) else 0
    rest = queries * 15 * for_scores + (1 + wanted[0]) * queries * 8 * any(wanted)
    added_up = scores - 30 if wanted[3] else 0
    assert found.flop == 2 * found.macs + scores * each + rest + added_up


def flash(queries: int, keys: int, **options: Any) -> Flop:
    """One sample, one head of 4 numbers."""
    return attention("_flash_attention_forward", (1, 1, queries, 4), (1, 1, keys, 4), **options)


def least(seen: list[int]) -> int:
    """What queries that see so many keys take: products, exponentials and sums, divisions, a log.

    As many divisions as keys or as the 4 numbers of a value.
    """
    return sum(2 * 2 * 4 * n + n + max(n - 1, 0) + min(n, 4) + 1 for n in seen)


@pytest.mark.parametrize(
    ("queries", "keys", "options", "seen"),
    [
        (3, 3, {"is_causal": True}, [1, 2, 3]),
        # The last query sees the last key: those before them are of the past.
        (2, 5, {"is_causal": True}, [4, 5]),
        (5, 2, {"is_causal": True}, [0, 0, 0, 1, 2]),
        (5, 5, {"window_size_left": 1, "window_size_right": 0}, [1, 2, 2, 2, 2]),
        (5, 5, {"window_size_left": 1, "window_size_right": 1}, [2, 3, 3, 3, 2]),
        (5, 5, {"window_size_left": -1, "window_size_right": 1}, [2, 3, 4, 5, 5]),
        (5, 5, {"is_causal": True, "window_size_left": 2, "window_size_right": 4}, [1, 2, 3, 3, 3]),
        (2, 6, {"window_size_left": 1, "window_size_right": 0}, [2, 2]),
    ],
)
def test_windows_and_causal_masks_by_hand(
    queries: int, keys: int, options: dict[str, Any], seen: list[int]
) -> None:
    """The rectangle in multiply-adds, what is seen in the least."""
    found = flash(queries, keys, **options)
    assert found.macs == queries * keys * 8
    assert found.min_flop == least(seen)


def test_keys_outside_a_window_need_not_be_read() -> None:
    """Two queries at the end of six keys, each with the key before its own: keys 3, 4, 5."""
    found = flash(2, 6, window_size_left=1, window_size_right=0)
    assert found.min_elements == {"key": 3 * 4, "value": 3 * 4}
    # The first three of five queries see nothing.
    assert flash(5, 2, is_causal=True).min_elements == {"query": 2 * 4}
    assert flash(5, 5).min_elements == {}


@pytest.mark.parametrize(
    ("queries", "keys", "kind", "size", "seen"),
    [
        (3, 3, 0, None, [3, 3, 3]),
        (2, 5, 1, None, [1, 2]),
        (2, 5, 2, None, [4, 5]),
        (5, 5, 1, 2, [1, 2, 2, 2, 2]),
        (2, 5, 2, 2, [2, 2]),
    ],
)
def test_masks_of_memory_efficient_attention_by_hand(
    queries: int, keys: int, kind: int, size: int | None, seen: list[int]
) -> None:
    """None, causal from the first, causal to the last; of a window's keys the last is its own."""
    found = attention(
        *("_efficient_attention_forward", (1, 1, queries, 4), (1, 1, keys, 4)),
        custom_mask_type=kind,
        window_size=size,
    )
    assert found.macs == queries * keys * 8
    assert found.min_flop == least(seen)


def test_lengths_that_are_values_leave_the_least_open() -> None:
    """How many keys are used is not known: only the logarithms are left."""
    found = flash(3, 5, seqused_k=spec(1, kind="int32"))
    assert found.macs == 3 * 5 * 8
    assert found.min_flop == 3
    assert found.min_elements == {"key": 0, "value": 0}


def test_slopes_are_a_product_and_a_sum() -> None:
    assert flash(3, 5, alibi_slopes=spec(1)).flop - flash(3, 5).flop == 2 * 15


# -- packed ----------------------------------------------------------------------------------------


def packed(
    tokens: int,
    keys: int,
    count: int,
    longest: tuple[int, int],
    *,
    is_self: bool = True,
    name: str = "_flash_attention_forward",
    **options: Any,
) -> Flop:
    """`count` sequences, 3 heads of 4 numbers."""
    begins = [spec(count + 1, kind="int32", storage=each) for each in (7, 7 if is_self else 8)]
    one = (1,) if "efficient" in name else ()
    query, key = spec(*one, tokens, 3, 4), spec(*one, keys, 3, 4)
    lengths = {
        **dict.fromkeys(("max_q", "max_seqlen_q"), longest[0]),
        **dict.fromkeys(("max_k", "max_seqlen_k"), longest[1]),
        **dict.fromkeys(("cum_seq_q", "cu_seqlens_q"), begins[0]),
        **dict.fromkeys(("cum_seq_k", "cu_seqlens_k"), begins[1]),
    }
    operands = {"query": query, "key": key, "value": key, "logsumexp": spec(3, tokens)}
    rest = {"dropout_p": 0.0, "is_causal": False, "custom_mask_type": 0}
    output = [query, spec(3, tokens), *7 * [None]]
    return taken(name, output=output, **{**operands, **lengths, **rest, **options})


def test_packed_sequences_of_one_length_are_a_batch() -> None:
    """Then the sum and the longest say everything."""
    found = packed(2 * 5, 2 * 5, 2, (5, 5))
    batch = attention("_flash_attention_forward", (2, 3, 5, 4))
    assert (found.macs, found.flop) == (batch.macs, batch.flop)
    assert found.internal_bytes == batch.internal_bytes
    assert 2 * found.macs <= found.min_flop <= batch.min_flop


@settings(max_examples=200)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5),
    is_self=st.booleans(),
    is_causal=st.booleans(),
)
def test_what_packed_sequences_take_lies_between(
    lengths: list[tuple[int, int]], is_self: bool, is_causal: bool
) -> None:
    """Their true pairs are no more than counted, and no fewer than the least."""
    if is_self:
        lengths = [(queries, queries) for queries, _ in lengths]
    tokens, keys = (sum(each) for each in zip(*lengths, strict=True))
    longest = max(queries for queries, _ in lengths), max(keys for _, keys in lengths)
    found = packed(tokens, keys, len(lengths), longest, is_self=is_self, is_causal=is_causal)
    rectangles = sum(queries * keys for queries, keys in lengths)
    seen = sum(
        causal_band(queries, keys, ends_together=True).pairs if is_causal else queries * keys
        for queries, keys in lengths
    )
    assert 3 * 8 * rectangles <= found.macs <= 3 * 8 * longest[0] * keys
    assert found.min_flop <= 2 * 3 * 8 * seen + 3 * tokens
    assert found.min_flop >= 3 * tokens


@pytest.mark.parametrize(
    "name",
    ["_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward"],
)
def test_squares_of_lengths_have_a_least_sum(name: str) -> None:
    """10 tokens in 3 sequences, the longest of 9: 100 / 3 pairs at least, 90 at most."""
    found = packed(10, 10, 3, (9, 9), name=name)
    assert found.macs == 3 * 90 * 8
    assert found.flop == packed(10, 10, 3, (9, 9)).flop
    assert found.min_flop == 3 * 34 * 2 * 8 + 3 * 10


def test_windows_and_packed_sequences_going_back() -> None:
    """5 queries with the key before their own: 9 pairs; 10 tokens in 2 sequences of 5: 50 pairs."""
    name, shape = "_flash_attention_backward", (1, 1, 5, 4)
    found = attention(name, shape, window_size_left=1, window_size_right=0)
    assert found.macs == 25 * 5 * 4
    assert found.min_flop == 9 * (2 * 5 * 4 + 2) + 5 * 7
    found = packed(10, 10, 2, (5, 5), name=name)
    assert found.macs == 3 * 50 * 5 * 4
    assert found.min_flop == 2 * found.macs + 3 * 10 * 7


def test_keys_in_blocks_are_read_as_far_as_they_may_be_used() -> None:
    """2 sequences of at most 24 keys, of a pool of 100 blocks of 16 keys in 3 heads of 4."""
    pool = dict.fromkeys(("key", "value"), spec(100, 16, 3, 4))
    values: dict[str, Any] = {
        "block_table": spec(2, 2, kind="int32"),
        "seqused_k": spec(2, kind="int32"),
    }
    found = packed(2, 0, 2, (1, 24), is_causal=True, cum_seq_k=None, **pool, **values)
    assert found.macs == 2 * 24 * 3 * 8
    assert found.elements == {"key": 2 * 24 * 3 * 4, "value": 2 * 24 * 3 * 4}
    assert found.min_elements == {"key": 0, "value": 0}


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0)])
def test_empty_calls_take_nothing(queries: int, keys: int) -> None:
    """No queries, no keys: of each query the scale and the logarithm are left."""
    found = flash(queries, keys, is_causal=True)
    assert (found.macs, found.flop) == (0, queries * (4 + 9))
    assert packed(0, 0, 2, (0, 0)).flop == 0
    found = attention(f"{CPU}_backward", (1, 2, queries, 4), (1, 2, keys, 4))
    assert (found.flop, found.internal_bytes) == (0, 0)
