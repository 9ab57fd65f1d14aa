"""The backward pass of attention, against loops that give autograd's gradients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tests.workload.passes import only, passed
from tests.workload.scalars import Scalar, Tally, columns, dot, exp, numbers, same, sum_of

sizes = st.integers(1, 4)
aten: Any = torch.ops.aten
CPU = aten._scaled_dot_product_flash_attention_for_cpu
CPU_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def written_out(head: Any, sums: Any, mask: Any, scale: float) -> Any:
    """Gradients of one head from its logarithms ``sums``; ``mask[i][j]``: what is added, or None.

    Five products: scores, gradients of probabilities, and those of queries, keys and values.
    """
    q, k, v, o, do = head
    q = q if scale == 1 else [[x * scale for x in row] for row in q]
    scores = [[dot(x, y) for y in k] for x in q]
    if mask is not None:
        scores = [
            [s + m for s, m in zip(*row, strict=True)] for row in zip(scores, mask, strict=True)
        ]
    p = [[exp(s - total) for s in row] for row, total in zip(scores, sums, strict=True)]
    # The sum of n products has n - 1 additions.
    deltas = [sum_of([x * y for x, y in zip(*row, strict=True)]) for row in zip(do, o, strict=True)]
    dp = [[dot(x, y) for y in v] for x in do]
    ds = [
        [x * (dx - delta) for x, dx in zip(*row, strict=True)]
        for *row, delta in zip(p, dp, deltas, strict=True)
    ]
    dq = [[dot(row, column) for column in columns(k)] for row in ds]
    dq = dq if scale == 1 else [[x * scale for x in row] for row in dq]
    dk = [[dot(row, column) for column in columns(q)] for row in columns(ds)]
    dv = [[dot(row, column) for column in columns(do)] for row in columns(p)]
    return dq, dk, dv


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(sizes, sizes, sizes, sizes),
    scale=st.sampled_from([None, 1.0, 0.3]),
    is_masked=st.booleans(),
)
def test_backward(shape: tuple[int, ...], scale: float | None, is_masked: bool) -> None:
    """Every operation is counted as it is done, and the gradients are autograd's."""
    heads, queries, keys, features = shape
    q, k = random(1, 1, heads, queries, features), random(2, 1, heads, keys, features)
    v, do = random(3, 1, heads, keys, features), random(4, 1, heads, queries, features)
    mask = random(5, queries, keys) if is_masked else None
    leaves: list[Any] = [each.clone().requires_grad_() for each in (q, k, v)]
    F.scaled_dot_product_attention(*leaves, attn_mask=mask, scale=scale).backward(do)
    o, sums = CPU(q, k, v, attn_mask=mask, scale=scale)
    tally = Tally()
    found = [
        written_out(
            [numbers(each[0, head], tally) for each in (q, k, v, o, do)],
            sums[0, head].tolist(),
            mask.tolist() if mask is not None else None,
            scale or features**-0.5,
        )
        for head in range(heads)
    ]
    for number, leaf in enumerate(leaves):
        assert leaf.grad is not None
        assert same([each[number] for each in found], leaf.grad, 1e-3)

    def backward(*tensors: Any) -> Any:
        return CPU_BACKWARD(*tensors[:6], 0.0, False, attn_mask=(*tensors, None)[6], scale=scale)

    given = (do, q, k, v, o, sums, *([mask] if mask is not None else []))
    work = only(passed(backward, *given)).work
    # With no power of the features that is 1 the loop scales too.
    if scale is None and features == 1:
        tally.simple += 2 * heads * queries
    assert work.flop == tally.flop
    assert work.macs == heads * queries * keys * 5 * features
    assert (work.min_flop or 0) <= (work.flop or 0)


def least_written_out(head: Any, sums: Any, is_causal: bool) -> Any:
    """The same with as little as we can: pairs that are seen; sums begin in the accumulators.

    The scale is 1; another one would go into the exponent, and into values and results before.
    """

    q, k, v, o, do = head

    def begun(start: float, a: Any, b: Any) -> Scalar:
        """Begins with `start`, so that n pairs take n multiplications and n additions."""
        return sum_of([Scalar(start, a[0].tally), *(x * y for x, y in zip(a, b, strict=True))])

    dq = [[Scalar(0.0, q[0][0].tally) for _ in q[0]] for _ in q]
    dk = [[Scalar(0.0, q[0][0].tally) for _ in q[0]] for _ in k]
    dv = [[Scalar(0.0, q[0][0].tally) for _ in v[0]] for _ in v]
    for i, query in enumerate(q):
        delta = sum_of([x * y for x, y in zip(do[i], o[i], strict=True)])
        for j in range(min(i + 1, len(k)) if is_causal else len(k)):
            p = exp(begun(-sums[i], query, k[j]))
            ds = p * begun(-delta.value, do[i], v[j])
            dq[i] = [x + ds * y for x, y in zip(dq[i], k[j], strict=True)]
            dk[j] = [x + ds * y for x, y in zip(dk[j], query, strict=True)]
            dv[j] = [x + p * y for x, y in zip(dv[j], do[i], strict=True)]
    return dq, dk, dv


@settings(max_examples=40, deadline=None)
@given(shape=st.tuples(sizes, sizes, sizes), is_causal=st.booleans())
def test_least_of_backward(shape: tuple[int, ...], is_causal: bool) -> None:
    """A loop over what is seen gives autograd's gradients with as little as we say."""
    queries, keys, features = shape
    q, k = random(1, 1, 1, queries, features), random(2, 1, 1, keys, features)
    v, do = random(3, 1, 1, keys, features), random(4, 1, 1, queries, features)
    leaves: list[Any] = [each.clone().requires_grad_() for each in (q, k, v)]
    F.scaled_dot_product_attention(*leaves, is_causal=is_causal, scale=1.0).backward(do)
    o, sums = CPU(q, k, v, is_causal=is_causal, scale=1.0)
    tally = Tally()
    operands = [numbers(each[0, 0], tally) for each in (q, k, v, o, do)]
    found = least_written_out(operands, sums[0, 0].tolist(), is_causal)
    for each, leaf in zip(found, leaves, strict=True):
        assert leaf.grad is not None
        assert same(each, leaf.grad, 1e-3)
    work = only(
        passed(lambda *given: CPU_BACKWARD(*given, 0.0, is_causal, scale=1.0), do, q, k, v, o, sums)
    ).work
    assert work.min_flop == tally.min_flop


def test_bytes_by_hand() -> None:
    """2 heads of 3 queries and 5 keys of 4 numbers: operands once, four rectangles inside."""
    query, key = (1, 2, 3, 4), (1, 2, 5, 4)
    work = only(
        passed(
            lambda *given: CPU_BACKWARD(*given, 0.0, False),
            *(query, query, key, key, query, (1, 2, 3)),
        )
    ).work
    numbers_of_queries, numbers_of_keys = 2 * 3 * 4, 2 * 5 * 4
    # dO, Q, O and dQ; K, V, dK and dV; a logarithm for each query.
    assert work.traffic_bytes == 4 * (4 * numbers_of_queries + 4 * numbers_of_keys + 6)
    # Scores, probabilities, their gradients; and for each query a sum, each written and read.
    assert work.internal_bytes == 4 * 2 * (4 * 2 * 3 * 5 + 6)


def test_torch_takes_masks_apart_that_need_gradients() -> None:
    """Its kernel for CPUs gives none: then it runs the parts, with four products going back."""
    with FlopCounterMode(display=False) as counter:
        mask = torch.zeros(3, 3, requires_grad=True)
        q = torch.zeros(1, 2, 3, 4, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, mask).sum().backward()
    assert counter.get_total_flops() == 2 * (2 + 4) * 2 * 9 * 4
