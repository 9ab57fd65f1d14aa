"""Backward of selections, segments and distances against loops, and by what they touch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from roofline.workload.formulas import find
from roofline.workload.operators import OperatorRecord, State
from tests.workload.passes import only, passed, working
from tests.workload.scalars import Scalar, Tally, flat, numbers, same, sum_of
from tests.workload.schema_calls import count_of, spec

ATEN = torch.ops.aten


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (lambda g: ATEN.select_backward(g, [4, 5], 1, 2), (4,)),
        (lambda g: ATEN.slice_backward(g, [4, 5], 1, 1, 5, 2), (4, 2)),
        (lambda g: ATEN.diagonal_backward(g, [4, 5], 0, 0, 1), (4,)),
    ],
)
def test_parts_write_a_whole_of_zeros(
    call: Callable[[torch.Tensor], Any], shape: tuple[int, ...]
) -> None:
    """The gradient is read, the whole is written once; nothing is computed."""
    record = only(passed(call, shape))
    assert record.work.flop == 0
    assert record.work.input_bytes == math.prod(shape) * 4
    assert record.work.output_bytes == 20 * 4
    assert record.type == "data movement"


def test_a_mask_may_select_nothing() -> None:
    mask = torch.ones(3, 4, dtype=torch.bool)
    records = passed(lambda g, m: ATEN.masked_scatter_backward(g, m, [6]), torch.rand(12), mask)
    record = next(each for each in records.records if "masked_scatter" in each.op)
    assert record.work.flop == 0
    assert [each.min_bytes for each in record.inputs] == [0, 12]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 6), st.integers(1, 3))
def test_windows_are_added_where_they_overlap(length: int, size: int, step: int, rows: int) -> None:
    """Each element of each window adds to its place, but for the first there."""
    size = min(size, length)
    count = (length - size) // step + 1
    gradient = torch.rand(rows, count, size)
    tally = Tally()
    found: list[list[Scalar | None]] = [[None] * length for _ in range(rows)]
    for row, windows in zip(found, numbers(gradient, tally), strict=True):
        for w, window in enumerate(windows):
            for i, each in enumerate(window):
                before = row[w * step + i]
                row[w * step + i] = each if before is None else before + each
    whole = ATEN.unfold_backward(gradient, [rows, length], 1, size, step)
    assert same([each or 0 for each in flat(found)], whole)
    specs = {"grad_in": spec(rows, count, size), "output": spec(rows, length)}
    formula = find("aten.unfold_backward")
    assert formula is not None
    arguments = {"input_sizes": [rows, length], "dim": 1, "size": size, "step": step}
    assert formula.count({**specs, **arguments}).flop == tally.flop


def test_windows_through_a_pass() -> None:
    """7 windows of 3 over 9 numbers: 21 gradients, 9 of them first."""
    record = only(passed(lambda g: ATEN.unfold_backward(g, [9], 0, 3, 1), (7, 3)))
    assert record.work.flop == 12
    number = torch.ones(1)
    record = only(passed(lambda g: ATEN.unfold_backward(g, [], 0, 1, 1), number))
    assert record.work.flop == 0


@pytest.mark.parametrize("is_scaled", [False, True])
def test_embedding(is_scaled: bool) -> None:
    """Each gradient is added to its row; the table is written whole, and not read."""
    indices = torch.tensor([[1, 3, 1], [0, 3, 3]])
    g = torch.randn(2, 3, 4)
    tally = Tally()
    table = [[Scalar(0, tally) for _ in range(4)] for _ in range(9)]
    rows = [row for batch in numbers(g, tally) for row in batch]
    for index, row in zip(indices.flatten().tolist(), rows, strict=True):
        factor = 1 / Scalar(int((indices == index).sum()), tally) if is_scaled else None
        for i, each in enumerate(row):
            table[index][i] = table[index][i] + (each if factor is None else each * factor)
    call = ATEN.embedding_dense_backward
    assert same(table, call(g, indices, 9, -1, is_scaled))
    record = only(passed(lambda g, i: call(g, i, 9, -1, is_scaled), g, indices))
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)
    assert record.work.input_bytes == 24 * 4 + 6 * 8
    assert record.work.output_bytes == 36 * 4
    assert record.type == "embedding"


BAGS = torch.tensor([0, 2]), torch.tensor([1, 3, 1, 0, 3])
"""Where two bags begin, and the rows in them."""

BAG_OF_INDEX = torch.tensor([0, 0, 1, 1, 1])


def bags_backward(mode: int, is_scaled: bool, weights: torch.Tensor | None) -> OperatorRecord:
    offsets, indices = BAGS
    g, table = torch.ones(2, 4), torch.ones(9, 4)
    _, _, size, largest = ATEN._embedding_bag(table, indices, offsets, False, mode)
    return only(
        passed(
            lambda g, *each: ATEN._embedding_bag_dense_backward(
                g, *each, 9, is_scaled, mode, weights
            ),
            *(g, indices, BAG_OF_INDEX, size, largest),
        )
    )


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_bags_of_rows(mode: int, is_scaled: bool, is_weighted: bool) -> None:
    """The gradient of a bag goes to each of its rows, times the factors of mean and weights."""
    if mode and is_weighted:
        return
    indices, bag_of = BAGS[1], BAG_OF_INDEX.tolist()
    g, weights = torch.randn(2, 4), torch.rand(5) if is_weighted else None
    tally = Tally()
    table = [[Scalar(0, tally) for _ in range(4)] for _ in range(9)]
    gradients = numbers(g, tally)
    for i, (index, bag) in enumerate(zip(indices.tolist(), bag_of, strict=True)):
        factor = None if weights is None else Scalar(float(weights[i]), tally)
        if mode == 1:
            factor = 1 / Scalar(bag_of.count(bag), tally)
        if is_scaled:
            often = int((indices == index).sum())
            factor = 1 / Scalar(often, tally) if factor is None else factor / often
        for j, each in enumerate(gradients[bag]):
            table[index][j] = table[index][j] + (each if factor is None else each * factor)
    others = BAG_OF_INDEX, torch.tensor([2, 3]), indices
    arguments = (9, is_scaled, mode, weights)
    assert same(table, ATEN._embedding_bag_dense_backward(g, indices, *others, *arguments))
    record = bags_backward(mode, is_scaled, weights)
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)
    assert record.outputs[0].byte == 36 * 4


def test_the_largest_of_a_bag() -> None:
    """An addition for each of its numbers: 8; neither indices nor bags are read."""
    record = bags_backward(2, False, None)
    assert record.work.flop == 8
    # The gradient of two bags, and the rows that were the largest.
    assert sum(each.byte for each in record.inputs) == 8 * 4 + 8 * 8


def test_bags_as_autograd_calls_them() -> None:
    """The operator that also chooses between dense and sparse: the same count."""
    offsets, indices = BAGS
    for offset2bag, unread in ((BAG_OF_INDEX, (2, 4, 5)), (BAG_OF_INDEX[:0], (4, 5))):
        operands = [torch.ones(2, 4), indices, offsets, offset2bag, offsets + 2, indices + 0]
        record = only(
            passed(
                lambda *each: ATEN._embedding_bag_backward(*each, 9, False, 0, False, None),
                *operands,
            )
        )
        assert record.work.flop == bags_backward(0, False, None).work.flop
        read = sum(each.nbytes for i, each in enumerate(operands) if i not in unread)
        assert record.work.input_bytes == read


def test_weights_of_rows_in_a_bag() -> None:
    """An inner product for each index; of the table the rows looked up are read."""
    offsets, indices = BAGS
    g, table = torch.randn(2, 4), torch.randn(9, 4)
    tally = Tally()
    bags, rows = numbers(g, tally), numbers(table, tally)
    found = [
        sum_of([a * b for a, b in zip(bags[bag], rows[index], strict=True)])
        for index, bag in zip(indices.tolist(), BAG_OF_INDEX.tolist(), strict=True)
    ]
    operands = (g, table, indices, offsets, BAG_OF_INDEX)
    call = ATEN._embedding_bag_per_sample_weights_backward
    assert same(found, call(*operands, 0))
    record = only(passed(lambda *each: call(*each, 0), *operands))
    assert record.work.flop == tally.flop
    assert record.inputs[1].byte == 5 * 4 * 4


def test_renormalised_rows() -> None:
    """A 2-norm, a comparison, a factor and its products for each row, as if all were too long."""
    table, indices = torch.randn(9, 4) + 3, torch.tensor([0, 4, 7])
    tally = Tally()
    found = []
    for index, row in enumerate(numbers(table, tally)):
        if index in (0, 4, 7):
            norm = sum_of([each * each for each in row]).root()
            assert norm > 1
            factor = 1 / (norm + 1e-7)
            row = [each * factor for each in row]
        found.append(row)
    assert same(found, ATEN.embedding_renorm_(table.clone(), indices, 1.0, 2.0))
    records = working(
        passed(lambda x, i: ATEN.embedding_renorm_(x.clone(), i, 1.0, 2.0), table, indices)
    )
    (record,) = [each for each in records if "renorm" in each.op]
    assert (record.work.flop, record.work.min_flop) == (tally.flop, 0)
    assert [each.byte for each in record.inputs] == [3 * 4 * 4, 3 * 8]
    assert [each.byte for each in record.outputs] == [3 * 4 * 4]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce: str) -> None:
    """Operations for each element, and for each gradient of a segment."""
    data, lengths = torch.rand(6, 2) + 0.5, torch.tensor([1, 3, 2])
    g, result = torch.randn(3, 2), torch.segment_reduce(data, reduce, lengths=lengths)
    tally = Tally()
    found = []
    columns = zip(*(numbers(each, tally) for each in (g.T, result.T, data.T)), strict=True)
    for gradients, results, values in columns:
        begin, column = 0, []
        for a, r, n in zip(gradients, results, lengths.tolist(), strict=True):
            segment, begin = values[begin : begin + n], begin + n
            if reduce == "sum":
                column += [a] * n
            elif reduce == "mean":
                column += [a / n] * n
            elif reduce == "prod":
                product = a * r
                column += [product / each for each in segment]
            else:
                tally.simple += n
                share = a / sum(each.value == r.value for each in segment)
                column += [share if each.value == r.value else 0 for each in segment]
        found.append(column)
    call = ATEN._segment_reduce_backward
    expected = call(g, result, data, reduce, lengths=lengths)
    assert same(found, expected.T)
    record = only(
        passed(lambda *each: call(*each[:3], reduce, lengths=each[3]), g, result, data, lengths)
    )
    assert record.work.flop == tally.flop
    assert record.type == "reduction"


def magnitude(x: Scalar, p: float) -> Scalar:
    return abs(x).apply(lambda v: v ** (p - 1) if v else 0)


def sign(x: Scalar) -> Scalar:
    return x._new(math.copysign(1, x.value))


def gradients_of(a: list[Scalar], b: list[Scalar], g: Scalar, d: Scalar, p: float) -> list[Scalar]:
    """Of the distance of two vectors, with respect to the first."""
    if p == 1:
        return [sign(x - y) * g for x, y in zip(a, b, strict=True)]
    if p == 2:
        share = g / d if d > 0 else g
        return [(x - y) * share for x, y in zip(a, b, strict=True)]
    if math.isinf(p):
        found = []
        for x, y in zip(a, b, strict=True):
            difference = x - y
            # The distance is rounded to float32, the difference is not.
            is_largest = abs(difference) > d.value - 1e-5
            found.append(sign(difference) * g if is_largest else sign(difference) * 0)
        return found
    share = g / d.apply(lambda v: v ** (p - 1)) if d > 0 else g
    return [sign(z := x - y) * magnitude(z, p) * share for x, y in zip(a, b, strict=True)]


ORDERS = [1, 2, 3, 1.5, math.inf]


@pytest.mark.parametrize("p", ORDERS)
def test_distances_of_two_sets(p: float) -> None:
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    g, distances = torch.randn(3, 5), torch.cdist(x, y, p)
    tally = Tally()
    found = []
    others = numbers(y, tally)
    rows = zip(*(numbers(each, tally) for each in (x, g, distances)), strict=True)
    for a, gs, ds in rows:
        each = [gradients_of(a, b, h, d, p) for b, h, d in zip(others, gs, ds, strict=True)]
        found.append([sum_of(column) for column in zip(*each, strict=True)])
    assert same(found, ATEN._cdist_backward(g, x, y, p, distances))
    record = only(
        passed(lambda *each: ATEN._cdist_backward(*each[:3], p, each[3]), g, x, y, distances)
    )
    assert record.work.flop == tally.flop
    least = tally.min_flop if p != 2 else 15 * 4 * 2 + 15
    assert record.work.min_flop == least
    assert record.type == "distance"


@pytest.mark.parametrize("p", ORDERS)
def test_distances_within_a_set(p: float) -> None:
    x = torch.randn(4, 3)
    distances = torch.pdist(x, p)
    g = torch.randn(6)
    tally = Tally()
    vectors = numbers(x, tally)
    found: list[list[Scalar] | None] = [None] * 4
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]
    for (i, j), h, d in zip(pairs, numbers(g, tally), numbers(distances, tally), strict=True):
        each = gradients_of(vectors[i], vectors[j], h, d, p)
        for k, signed in ((i, each), (j, [Scalar(-one.value, tally) for one in each])):
            before = found[k]
            found[k] = (
                signed if before is None else [a + b for a, b in zip(before, signed, strict=True)]
            )
    assert same(found, ATEN._pdist_backward(g, x, p, distances))
    record = only(
        passed(lambda *each: ATEN._pdist_backward(*each[:2], p, each[2]), g, x, distances)
    )
    assert record.work.flop == tally.flop
    assert (record.work.min_flop or 0) <= tally.min_flop


def test_distances_of_order_zero_have_no_gradient() -> None:
    """Zeros are written; nothing is read."""
    shapes = (3, 5), (3, 4), (5, 4), (3, 5)
    call = ATEN._cdist_backward
    record = only(passed(lambda g, x, y, d: call(g, x, y, 0.0, d), *shapes))
    assert record.work.flop == 0
    assert [each.byte for each in record.inputs] == [0, 0, 0, 0]
    assert record.work.traffic_bytes == 12 * 4
    record = only(passed(lambda g, x, d: ATEN._pdist_backward(g, x, 0.0, d), (6,), (4, 3), (6,)))
    assert record.work.traffic_bytes == 12 * 4


def test_batches_of_distances_double() -> None:
    def flop(batch: int) -> int | None:
        shapes = (batch, 3, 5), (batch, 3, 4), (batch, 5, 4), (batch, 3, 5)
        call = ATEN._cdist_backward
        return only(passed(lambda g, x, y, d: call(g, x, y, 1.0, d), *shapes)).work.flop

    assert flop(4) == 2 * (flop(2) or 0) > 0


@pytest.mark.parametrize("mask", [(True, True, True), (True, False, False), (False, True, True)])
def test_linear_layers_as_other_devices_call_them(mask: tuple[bool, bool, bool]) -> None:
    """Against the products that autograd makes on a CPU: g @ w, x.T @ g, and the sum of g."""
    count = count_of(
        "aten.linear_backward",
        self=spec(2, 6, 4),
        grad_output=spec(2, 6, 3),
        weight=spec(3, 4),
        output_mask=list(mask),
        output=[None, None, None],
    )
    x, g, w = torch.ones(12, 4), torch.ones(12, 3), torch.ones(3, 4)

    def products(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> Any:
        made = (lambda: g @ w, lambda: x.T @ g, lambda: g.sum(0))
        return [make() for make, is_wanted in zip(made, mask, strict=True) if is_wanted]

    records = working(passed(products, x, g, w))
    assert count.macs == sum(each.work.macs or 0 for each in records)
    assert count.flop == sum(each.work.flop or 0 for each in records)


def test_products_as_other_devices_call_them() -> None:
    """Twice the product's FMAs for both factors, once for one."""
    for mask, times in (([True, True], 2), ([True, False], 1), ([False, False], 0)):
        count = count_of(
            "aten.matmul_backward",
            grad=spec(2, 6, 3),
            self=spec(2, 6, 4),
            other=spec(4, 3),
            mask=mask,
            output=[None, None],
        )
        assert count.macs == times * 2 * 6 * 4 * 3


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_empty_tensors(kind: torch.dtype) -> None:
    """No rows, no indices, no bags: counted, as no work."""
    none = torch.empty(0, dtype=torch.int64)
    rows = torch.empty(0, 4, dtype=kind)
    for call in (
        lambda x, i: ATEN.embedding_dense_backward(x, i, 9, -1, True),
        lambda x, i: ATEN.unfold_backward(x.view(0, 2, 2), [0, 4], 1, 2, 2),
        lambda x, i: ATEN.select_backward(x, [0, 4, 3], 2, 1),
        lambda x, i: ATEN.slice_backward(x, [0, 9], 1, 0, 4, 1),
    ):
        for record in passed(call, rows, none).records:
            assert record.state is not State.UNKNOWN
            assert record.work.flop == 0
