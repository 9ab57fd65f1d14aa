"""Kernels of attention that a CPU has not: counted from their schemas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.workload.formulas.attention import Band, causal, whole, window
from roofline.workload.tensors import TensorSpec
from tests.workload.schema_calls import counted, spec

BATCH, HEADS, QUERIES, KEYS, WIDTH = 2, 4, 6, 6, 8
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
    assert whole(queries, keys).pairs == queries * keys
    assert causal(queries, keys).pairs == int(ones.tril().sum())
    last = causal(queries, keys, ends_together=True)
    assert last.pairs == int(ones.tril(keys - queries).sum())
    assert window(queries, keys, None, 0) == window(queries, keys, -1, 0)
    assert window(queries, keys, None, 0).pairs == last.pairs
    assert window(queries, keys, None, None).pairs == queries * keys
    both = ones.tril(keys - queries + 2).triu(keys - queries - 1)
    assert window(queries, keys, 1, 2).pairs == int(both.sum())


# -- dense -----------------------------------------------------------------------------------------


def scaled_dot(name: str, **options: Any) -> Any:
    """Of (batch, heads, sequence, width)."""
    query = spec(BATCH, HEADS, QUERIES, WIDTH)
    return counted(name, **{"query": query, "key": query, "value": query, **options})


def outputs(*shape: int, logarithms: int | None = None) -> list[Any]:
    """A result, and logarithms in float32."""
    result = spec(*shape)
    sums = spec(*shape[:-1]) if logarithms is None else spec(*shape[:-2], logarithms)
    return [result, sums, *7 * [None]]


RESULT = outputs(BATCH, HEADS, QUERIES, WIDTH)
SEQUENCE_FIRST = [spec(BATCH, QUERIES, HEADS, WIDTH), spec(BATCH, HEADS, QUERIES), *4 * [None]]


def dense(name: str, is_causal: bool) -> Any:
    """The same attention through each of the kernels."""
    here = spec(BATCH, QUERIES, HEADS, WIDTH)
    there: dict[str, Any] = {"query": here, "key": here, "value": here, "output": SEQUENCE_FIRST}
    if name in ("_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace"):
        inplace = name.endswith("inplace")
        there |= {"max_q": QUERIES, "max_k": KEYS, "dropout_p": 0.0, "is_causal": is_causal}
        there |= {"return_debug_mask": False}
        there |= {"out": here, "output": SEQUENCE_FIRST[1]} if inplace else {}
        return counted(name, **there)
    if name == "_efficient_attention_forward":
        there |= {"dropout_p": 0.0, "custom_mask_type": int(is_causal), "compute_log_sumexp": True}
        return counted(name, **there)
    options: dict[str, Any] = {"output": RESULT, "is_causal": is_causal}
    if name == "_cudnn_attention_forward":
        options |= {"max_q": QUERIES, "max_k": KEYS}
    if "cudnn" in name or "efficient" in name:
        options |= {"compute_log_sumexp": True}
    return scaled_dot(name, **options)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward"),
        *("_scaled_dot_product_fused_attention_overrideable", "_efficient_attention_forward"),
        *("_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace"),
    ],
)
def test_all_kernels_do_the_same_as_the_one_on_a_cpu(name: str, is_causal: bool) -> None:
    """That one is tested against loops."""
    cpu = "_scaled_dot_product_flash_attention_for_cpu"
    expected = scaled_dot(cpu, output=RESULT[:2], is_causal=is_causal)
    found = dense(name, is_causal)
    assert expected.macs == BATCH * HEADS * QUERIES * KEYS * 2 * WIDTH
    for each in ("macs", "flop", "min_flop", "internal_bytes"):
        assert getattr(found, each) == getattr(expected, each)
    # Two rectangles of 4-byte numbers, each written and read.
    assert found.internal_bytes == 2 * 2 * 4 * BATCH * HEADS * QUERIES * KEYS


def test_grouped_keys_multiply_with_every_query() -> None:
    """4 heads of queries, 2 of keys."""
    for name, query, key, result in (
        ("_scaled_dot_product_flash_attention", (2, 4, 6, 8), (2, 2, 6, 8), RESULT),
        ("_flash_attention_forward", (2, 6, 4, 8), (2, 6, 2, 8), SEQUENCE_FIRST),
    ):
        rest: dict[str, Any] = {}
        if name == "_flash_attention_forward":
            rest = {"max_q": 6, "max_k": 6, "dropout_p": 0.0, "is_causal": False}
            rest |= {"return_debug_mask": False}
        of = {"query": spec(*query), "key": spec(*key), "value": spec(*key)}
        assert counted(name, result, **of, **rest).macs == 2 * 4 * 36 * 16


def test_values_may_be_of_another_length() -> None:
    """Latent attention: 12 numbers are compared, 5 added up."""
    found = counted(
        "_scaled_dot_product_cudnn_attention",
        outputs(1, 2, 3, 5),
        query=spec(1, 2, 3, 12),
        key=spec(1, 2, 7, 12),
        value=spec(1, 2, 7, 5),
        compute_log_sumexp=False,
    )
    assert found.macs == 2 * 3 * 7 * (12 + 5)


def test_a_mask_of_numbers_is_added_and_dropout_multiplied() -> None:
    """An operation a score each."""
    scores = BATCH * HEADS * QUERIES * KEYS
    bias, name = spec(BATCH, HEADS, QUERIES, KEYS), "_scaled_dot_product_efficient_attention"
    plain = scaled_dot(name, output=RESULT, compute_log_sumexp=True)
    masked = scaled_dot(name, output=RESULT, compute_log_sumexp=True, attn_bias=bias)
    dropped = scaled_dot(name, output=RESULT, compute_log_sumexp=True, dropout_p=0.1)
    assert masked.flop - plain.flop == dropped.flop - plain.flop == scores


def test_quantized_values_take_their_scale() -> None:
    """A multiplication for each number of the result; an eighth of a number is a byte."""
    query = spec(BATCH, HEADS, QUERIES, WIDTH, kind="float8_e4m3fn")
    name = "_scaled_dot_product_flash_attention"
    scales: dict[str, Any] = {f"{each}_descale": spec(2, 4) for each in "qkv"}
    plain = counted(name, RESULT, query=query, key=query, value=query)
    quantized = counted(*(name, RESULT, "quantized"), query=query, key=query, value=query, **scales)
    assert quantized.flop - plain.flop == BATCH * HEADS * QUERIES * WIDTH
    assert quantized.macs == plain.macs
    assert quantized.internal_bytes == 4 * BATCH * HEADS * QUERIES * KEYS


def flash(queries: int, keys: int, **options: Any) -> Any:
    """One sample, one head of 4 numbers."""
    query, key = spec(1, queries, 1, 4), spec(1, keys, 1, 4)
    given = {"query": query, "key": key, "value": key, "max_q": queries, "max_k": keys}
    given |= {"dropout_p": 0.0, "is_causal": False, "return_debug_mask": False, **options}
    return counted("_flash_attention_forward", [query, spec(1, 1, queries)], **given)


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
    query, key = spec(1, queries, 1, 4), spec(1, keys, 1, 4)
    found = counted(
        "_efficient_attention_forward",
        [query, spec(1, 1, 32), None, None, 0, 0],
        query=query,
        key=key,
        value=key,
        dropout_p=0.0,
        custom_mask_type=kind,
        window_size=size,
        compute_log_sumexp=True,
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


def flash_packed(
    total: int, total_keys: int, count: int, longest: tuple[int, int], is_self: bool, **rest: Any
) -> Any:
    """`count` sequences, 3 heads of 4 numbers."""
    starts = spec(count + 1, kind="int32", storage=7)
    ends: TensorSpec = starts if is_self else spec(count + 1, kind="int32", storage=8)
    query, key = spec(total, 3, 4), spec(total_keys, 3, 4)
    given: dict[str, Any] = {
        "query": query,
        "key": key,
        "value": key,
        "cum_seq_q": starts,
        "cum_seq_k": ends,
    }
    given |= {"max_q": longest[0], "max_k": longest[1], "dropout_p": 0.0, "is_causal": False}
    given |= {"return_debug_mask": False, **rest}
    return counted("_flash_attention_forward", [query, spec(3, total)], **given)


def test_packed_sequences_of_one_length_are_a_batch() -> None:
    """Then the sum and the longest say everything."""
    packed = flash_packed(2 * 5, 2 * 5, 2, (5, 5), True)
    query = spec(2, 5, 3, 4)
    given: dict[str, Any] = {"query": query, "key": query, "value": query, "max_q": 5, "max_k": 5}
    given |= {"dropout_p": 0.0, "is_causal": False, "return_debug_mask": False}
    batch = counted("_flash_attention_forward", [query, spec(2, 3, 5)], **given)
    assert (packed.macs, packed.flop) == (batch.macs, batch.flop)
    assert packed.internal_bytes == batch.internal_bytes
    assert 2 * packed.macs <= packed.min_flop <= batch.min_flop


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
    total, total_keys = (sum(each) for each in zip(*lengths, strict=True))
    longest = max(queries for queries, _ in lengths), max(keys for _, keys in lengths)
    found = flash_packed(total, total_keys, len(lengths), longest, is_self, is_causal=is_causal)
    rectangles = sum(queries * keys for queries, keys in lengths)
    seen = sum(
        causal(queries, keys, ends_together=True).pairs if is_causal else queries * keys
        for queries, keys in lengths
    )
    assert 3 * 8 * rectangles <= found.macs <= 3 * 8 * longest[0] * total_keys
    assert found.min_flop <= 2 * 3 * 8 * seen + 3 * total
    assert found.min_flop >= 3 * total


def test_squares_of_lengths_have_a_least_sum() -> None:
    """10 tokens in 3 sequences, the longest of 9: 100 / 3 pairs at least, 90 at most."""
    found = flash_packed(10, 10, 3, (9, 9), True)
    assert found.macs == 3 * 90 * 8
    assert found.min_flop == 3 * 34 * 2 * 8 + 3 * 10


def test_packed_sequences_in_other_kernels() -> None:
    """The same numbers: as one sample for one, heads in the same place for the other."""
    starts = spec(4, kind="int32", storage=7)
    expected = flash_packed(10, 10, 3, (9, 9), True)
    one = spec(1, 10, 3, 4)
    efficient = counted(
        "_efficient_attention_forward",
        [one, spec(3, 3, 32), None, None, 9, 9],
        query=one,
        key=one,
        value=one,
        dropout_p=0.0,
        custom_mask_type=0,
        cu_seqlens_q=starts,
        cu_seqlens_k=starts,
        max_seqlen_q=9,
        max_seqlen_k=9,
        compute_log_sumexp=True,
    )
    query = spec(10, 3, 4)
    cudnn = counted(
        "_cudnn_attention_forward",
        [query, spec(10, 3), *7 * [None]],
        query=query,
        key=query,
        value=query,
        compute_log_sumexp=True,
        cum_seq_q=starts,
        cum_seq_k=starts,
        max_q=9,
        max_k=9,
    )
    for found in (efficient, cudnn):
        for each in ("macs", "flop", "min_flop"):
            assert getattr(found, each) == getattr(expected, each)


def test_keys_in_blocks_are_read_as_far_as_they_may_be_used() -> None:
    """2 sequences of at most 24 keys, of a pool of 100 blocks of 16 keys in 3 heads of 4."""
    query, pool = spec(2, 3, 4), spec(100, 16, 3, 4)
    found = counted(
        "_flash_attention_forward",
        [query, spec(3, 2)],
        query=query,
        key=pool,
        value=pool,
        dropout_p=0.0,
        is_causal=True,
        cum_seq_q=spec(3, kind="int32"),
        max_q=1,
        max_k=24,
        return_debug_mask=False,
        block_table=spec(2, 2, kind="int32"),
        seqused_k=spec(2, kind="int32"),
    )
    assert found.macs == 2 * 24 * 3 * 8
    assert found.elements == {"key": 2 * 24 * 3 * 4, "value": 2 * 24 * 3 * 4}
    assert found.min_elements == {"key": 0, "value": 0}


def test_empty_calls_take_nothing() -> None:
    assert flash(0, 5, is_causal=True).flop == 0
    assert flash(3, 0).macs == 0
    assert flash_packed(0, 0, 2, (0, 0), True).flop == 0
