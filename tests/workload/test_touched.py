"""What operators touch of larger tensors, against windows and indices walked one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import roofline
from roofline.core.dtypes import dtype
from roofline.workload.capture.recorder import _as_touched
from roofline.workload.formulas.convolution import inner_taps, touched_elements
from roofline.workload.formulas.registry import Flop, find
from roofline.workload.tensors import Role, TensorSpec

SIZES = st.integers(1, 12)


@given(SIZES, st.integers(1, 5), st.integers(1, 6), st.integers(0, 4), st.integers(1, 4), SIZES)
def test_taps_and_touched_elements_by_walking(
    size: int, kernel: int, stride: int, padding: int, dilation: int, windows: int
) -> None:
    under = [
        window * stride - padding + tap * dilation
        for window, tap in itertools.product(range(windows), range(kernel))
    ]
    inside = [each for each in under if 0 <= each < size]
    assert inner_taps(size, kernel, stride, padding, dilation, windows) == len(inside)
    assert touched_elements(size, kernel, stride, padding, dilation, windows) == len(set(inside))


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)  # pyright: ignore[reportCallIssue]


def row_of(module: torch.nn.Module, *inputs: object, of: str = "") -> roofline.OperatorRow:
    """The one operator that is not free, of all those with `of` in their type or name."""
    analysis = roofline.analyze(module, list(inputs), hardware="10980xe")
    working = [each for each in analysis.operators if each.state != "free"]
    (row,) = [each for each in working if of in f"{each.op} {each.type}"]
    return row


def touched_by_gradient(module: torch.nn.Module, shape: tuple[int, ...]) -> int:
    """Elements of the input that the output depends on: those with a gradient."""
    x = torch.rand(shape, requires_grad=True)
    result = module(x)
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    assert x.grad is not None
    return int((x.grad != 0).sum())


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Conv2d(3, 4, 1, stride=2, bias=False),
        torch.nn.Conv2d(3, 4, 3, stride=5, padding=1, bias=False),
        torch.nn.Conv2d(3, 3, 2, stride=3, dilation=2, groups=3, bias=False),
        torch.nn.Conv2d(3, 4, 3, padding=1, bias=False),
        torch.nn.AvgPool2d(1, 4),
        torch.nn.AvgPool2d(2, 3),
    ],
    ids=str,
)
def test_a_stride_that_passes_over_elements_need_not_read_them(module: torch.nn.Module) -> None:
    """The bound counts what the result depends on; traffic counts the tensor."""
    shape = (2, 3, 17, 13)
    row = row_of(module, shape)
    image = row.inputs[0]
    assert image.byte == 4 * 2 * 3 * 17 * 13
    assert image.min_bytes == 4 * touched_by_gradient(module, shape)


def test_sampling_down_reads_at_most_what_it_returns() -> None:
    down = Call(lambda x: F.interpolate(x, size=(5, 5), mode="nearest"))
    assert row_of(down, (1, 3, 20, 20)).inputs[0].min_bytes == 4 * 3 * 25
    up = Call(lambda x: F.interpolate(x, size=(40, 40), mode="nearest"))
    assert row_of(up, (1, 3, 20, 20)).inputs[0].min_bytes == 4 * 3 * 400


INDEX = "4:int64"
TABLE = (1000, 8)


@pytest.mark.parametrize(
    ("function", "inputs", "elements", "least"),
    [
        (lambda x, i, v: x.index_copy_(0, i, v), (TABLE, INDEX, (4, 8)), 32, 8),
        (lambda x, i, v: x.index_add_(0, i, v), (TABLE, INDEX, (4, 8)), 32, 8),
        (lambda x, i: x.index_fill_(0, i, 1.0), (TABLE, INDEX), 32, 8),
        (lambda x, i, v: x.index_put_((i,), v), (TABLE, INDEX, (4, 8)), 32, 8),
        (lambda x, i, v: x.index_put_((i, i), v), (TABLE, INDEX, (4,)), 4, 1),
        (lambda x, i, v: x.put_(i, v), (TABLE, INDEX, (4,)), 4, 1),
        (lambda x, i, v: x.scatter_(0, i, v), (TABLE, "2x8:int64", (2, 8)), 16, 8),
        (lambda x, i, v: x.scatter_add_(0, i, v), (TABLE, "2x8:int64", (2, 8)), 16, 8),
        (lambda x, i, v: x.scatter_add_(1, i, v), (TABLE, "2x8:int64", (2, 8)), 16, 2),
        (lambda x, m: x.masked_fill_(m, 1.0), (TABLE, "1000x1:bool"), 8000, 0),
    ],
)
def test_an_update_in_place_touches_what_is_selected(
    function: object, inputs: tuple[object, ...], elements: int, least: int
) -> None:
    """All that is updated may be one place."""
    row = row_of(Call(function), *inputs)
    for each in (row.inputs[0], row.outputs[0]):
        assert (each.byte, each.min_bytes) == (4 * elements, 4 * least)


def test_out_of_place_the_whole_tensor_is_copied() -> None:
    row = row_of(Call(lambda x, i, v: x.scatter(0, i, v)), TABLE, "2x8:int64", (2, 8))
    assert row.inputs[0].byte == row.outputs[0].byte == 4 * 8000


def test_a_mask_may_select_nothing() -> None:
    row = row_of(Call(lambda x, m, v: x.index_put_((m,), v)), TABLE, "1000:bool", "1x8")
    assert row.inputs[0].min_bytes == 0
    assert row.inputs[1].byte == 1000


def test_bags_of_rows() -> None:
    """4 rows of 8 in 2 bags: 32 looked up, 16 additions, 16 divisions of the mean."""
    row = row_of(torch.nn.EmbeddingBag(1000, 8, mode="mean"), "2x2:int64", of="embedding")
    assert row.flop == 16 + 16
    assert row.parameter_bytes == 4 * 32


def test_a_classic_profile_charges_operands_whole() -> None:
    row = row_of(torch.nn.Conv2d(3, 4, 1, stride=2), (1, 3, 8, 8))
    assert row.level_bytes == {"DRAM": row.traffic_bytes}


def test_a_part_that_begins_where_the_whole_does_is_not_the_whole() -> None:
    """What a formula says of one operand holds for no other at the same byte."""
    key = TensorSpec(
        shape=(1000, 8), dtype=dtype("float32"), distinct_elements=8000, storage=0, role=Role.INPUT
    )
    value = replace(key, shape=(1000, 4), distinct_elements=4000)
    count = Flop(min_elements={"key": 8, "value": 4})
    arguments = {"key": key, "value": value}
    assert _as_touched(key, count, arguments).min_elements == 8
    assert _as_touched(value, count, arguments).min_elements == 4


# -- what is passed over ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@pytest.mark.parametrize(
    "pad",
    [(-1, 2), (3, -4), (-2, -3), (0, -6), (2, 2), (-1, 0, 3, -2), (4, -5, -1, 1), (-3, 1, -2, -2)],
)
def test_padding_reads_what_its_result_shows(mode: str, pad: tuple[int, ...]) -> None:
    shape = (2, 3, 7) if len(pad) == 2 else (2, 3, 6, 7)
    padding = Call(lambda x: F.pad(x, pad, mode=mode))
    row = row_of(padding, shape)
    assert row.inputs[0].byte == row.inputs[0].min_bytes == 4 * touched_by_gradient(padding, shape)


def test_a_crop_reads_the_crop() -> None:
    """96 x 96 of 4096 x 4096 floats, read and written."""
    for crop in (
        torch.nn.ZeroPad2d(-2000),
        *(Call(lambda x, m=m: F.pad(x, (-2000,) * 4, mode=m)) for m in ("reflect", "replicate")),
    ):
        row = row_of(crop, (1, 1, 4096, 4096))
        assert row.traffic_bytes == 73_728
        assert sum(row.level_bytes.values()) == 73_728


@pytest.mark.parametrize("diagonal", [-9, -4, -1, 0, 1, 3, 9])
@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (2, 4, 5), (1, 6)])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_a_triangle_reads_what_it_keeps_or_writes_what_it_clears(
    name: str, shape: tuple[int, ...], diagonal: int
) -> None:
    row = row_of(Call(lambda x: getattr(x, name)(diagonal)), shape)
    kept = int(getattr(torch.ones(shape), name)(diagonal).sum())
    assert row.inputs[0].byte == 4 * kept
    assert row.outputs[0].byte == torch.ones(shape).nbytes
    cleared = row_of(Call(lambda x: getattr(x, f"{name}_")(diagonal)), shape)
    assert cleared.inputs[0].byte == 0
    assert cleared.outputs[0].byte == torch.ones(shape).nbytes - 4 * kept
    assert cleared.outputs[0].min_bytes == cleared.outputs[0].byte


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel_size": 1, "stride": 4},
        {"kernel_size": (2, 3), "stride": (3, 5), "padding": (1, 0)},
        {"kernel_size": 3, "dilation": (1, 2), "padding": 2},
    ],
)
def test_columns_read_what_lies_under_a_window(arguments: dict[str, Any]) -> None:
    """And columns put together, what falls on the image."""
    columns = Call(lambda x: F.unfold(x, **arguments))
    image = (2, 3, 17, 13)
    row = row_of(columns, image)
    assert row.inputs[0].byte == 4 * 2 * 3 * 17 * 13
    assert row.inputs[0].min_bytes == 4 * touched_by_gradient(columns, image)
    shape = tuple(columns(torch.zeros(image)).shape)
    together = Call(lambda x: F.fold(x, (17, 13), **arguments))
    back = row_of(together, shape)
    assert back.inputs[0].min_bytes == 4 * touched_by_gradient(together, shape)


def test_the_power_of_0_reads_nothing() -> None:
    """Even what is no number becomes 1."""
    assert torch.full((2,), float("nan")).pow(0).tolist() == [1, 1]
    for function in (lambda x: x.pow(0), lambda x: x.pow_(0)):
        row = row_of(Call(function), (4, 4))
        assert (row.inputs[0].byte, row.outputs[0].byte) == (0, 64)
    assert row_of(Call(lambda x: x.pow(1)), (4, 4)).traffic_bytes == 128


def test_overlapping_windows_of_a_slice() -> None:
    """64 rows of 1024 floats, and the sum."""
    row = row_of(Call(lambda x: x[:, :1024].unfold(1, 512, 1).sum()), (64, 100_000))
    assert row.traffic_bytes == 262_148


# -- copies of a tensor to itself ------------------------------------------------------------------


def _doubled(x: torch.Tensor) -> torch.Tensor:
    x[:] *= 2
    return x


def _raised(x: torch.Tensor) -> torch.Tensor:
    x[:3] += 1
    return x


def _faded(x: torch.Tensor) -> torch.Tensor:
    x[:, :2] *= 0.5
    return x


@pytest.mark.parametrize(
    ("function", "elements"), [(_doubled, 6 * 4), (_raised, 3 * 4), (_faded, 6 * 2)]
)
def test_what_python_assigns_to_itself_is_not_copied(function: object, elements: int) -> None:
    """Only the operator before the assignment moves something: a read and a write."""
    row = row_of(Call(function), (6, 4))
    assert row.op in ("aten.mul_", "aten.add_")
    assert row.traffic_bytes == 2 * 4 * elements


def test_a_copy_to_itself_is_free() -> None:
    analysis = roofline.analyze(Call(lambda x: x.copy_(x)), [(4, 4)], hardware="10980xe")
    assert analysis.totals.traffic_bytes == 0


def test_a_copy_of_the_conjugate_is_none_to_itself() -> None:
    """The same bytes, of which torch changes the sign of every second number."""
    conjugated, x = Call(lambda x: x.copy_(x.conj())), torch.full((4, 4), 1j)
    assert torch.equal(conjugated(x), torch.full((4, 4), -1j))
    assert row_of(conjugated, x).op == "aten.copy_"


# -- what values decide ----------------------------------------------------------------------------


def nothing_shows(bag: torch.nn.EmbeddingBag, *inputs: torch.Tensor) -> None:
    """torch passes over rows that hold what would show."""
    with torch.no_grad():
        assert bag.weight is not None
        bag.weight.fill_(float("nan"))
        assert not bag(*inputs).isnan().any()


def test_padding_of_a_bag_may_be_all_of_it() -> None:
    bag = torch.nn.EmbeddingBag(100, 8, mode="sum", padding_idx=3)
    nothing_shows(bag, torch.full((4, 5), 3))
    row = row_of(bag, "4x5:int64", of="embedding")
    assert (row.parameter_bytes, row.flop) == (4 * 20 * 8, (20 - 4) * 8)
    assert (row.inputs[0].min_bytes, row.min_flop) == (0, 0)


def test_rows_of_a_bag_may_be_one_row_that_is_added_all_the_same() -> None:
    row = row_of(torch.nn.EmbeddingBag(100, 8, mode="sum"), "4x5:int64", of="embedding")
    assert row.inputs[0].byte == 4 * 20 * 8
    assert row.inputs[0].min_bytes == 4 * 8
    assert row.min_flop == row.flop == (20 - 4) * 8


def test_bags_may_end_before_the_first_index() -> None:
    bag = torch.nn.EmbeddingBag(100, 8, include_last_offset=True)
    nothing = torch.zeros(20, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    nothing_shows(bag, *nothing)
    row = row_of(bag, *nothing, of="embedding")
    assert (row.inputs[0].min_bytes, row.min_flop) == (0, 0)


def test_a_mean_of_no_rows_is_not_divided() -> None:
    """3 rows in 5 bags: two have none."""
    bag = torch.nn.EmbeddingBag(100, 8, mode="mean")
    row = row_of(bag, torch.arange(3), torch.arange(5).clamp(max=3), of="embedding")
    assert row.min_flop == 3 * 8


SAME = torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: F.embedding(SAME, x), (50, 8)),
        (lambda x: x[SAME], (50, 8)),
        (lambda x: x[:, SAME], (5, 8, 3)),
        (lambda x: x[SAME, SAME], (5, 8, 3)),
        (lambda x: x.index_select(1, SAME), (5, 8, 3)),
        (lambda x: x.take(SAME), (50, 8)),
        (lambda x: x.gather(0, SAME.view(1, 6).expand(4, 6)), (50, 8)),
        (lambda x: x.gather(1, SAME.view(1, 6).expand(4, 6)), (50, 8)),
    ],
)
def test_all_indices_may_be_the_same(function: object, shape: tuple[int, ...]) -> None:
    """The elements that have a gradient where they are."""
    call = Call(function)
    row = row_of(call, shape)
    (table,) = [each for each in row.inputs if each.shape == shape]
    assert table.min_bytes == 4 * touched_by_gradient(call, shape)
    assert table.byte == min(row.outputs[0].byte, 4 * torch.ones(shape).numel())


def test_what_is_broadcast_may_be_one_element_at_many_places() -> None:
    call = Call(lambda x, i: x.expand(50, 8).gather(1, i))
    assert row_of(call, (8,), "50x2:int64").inputs[0].min_bytes == 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, v: x.scatter_(0, i, v),
        lambda x, i, v: x.scatter(0, i, v),
        lambda x, i, v: x.scatter_add_(0, i, v),
        lambda x, i, v: x.scatter_reduce_(0, i, v, "amax"),
    ],
)
def test_what_is_scattered_is_read_as_far_as_indices_go(function: object) -> None:
    """2 x 8 of 1000 x 8: the rest of it is not a number, and does not show."""
    v = torch.full(TABLE, float("nan"))
    v[:2] = 1
    result = Call(function)(torch.zeros(TABLE), torch.zeros(2, 8, dtype=torch.int64), v)
    assert not result.isnan().any()
    row = row_of(Call(function), TABLE, "2x8:int64", TABLE)
    assert row.inputs[-1].byte == row.inputs[-1].min_bytes == 4 * 16


@pytest.mark.parametrize("padding_idx", [None, 0])
def test_gradients_of_padding_are_not_read(padding_idx: int | None) -> None:
    """Of rows and of bags; the gradient of the table is written everywhere."""
    table = torch.nn.Embedding(50, 8, padding_idx=padding_idx)
    bag = torch.nn.EmbeddingBag(50, 8, padding_idx=padding_idx)
    for model, least in ((table, 4 * 20 * 8), (bag, 4 * 8)):
        analysis = roofline.analyze(
            model, "4x5:int64", train=True, optimizer="none", hardware="10980xe"
        )
        (row,) = [
            each for each in analysis.operators if each.phase == "backward" and "embed" in each.op
        ]
        gradient, whole = row.inputs[0], row.outputs[0]
        assert gradient.min_bytes == (0 if padding_idx == 0 else least)
        assert whole.byte == whole.min_bytes == 4 * 50 * 8


def test_masks_select_no_place_twice() -> None:
    mask = torch.arange(20).view(4, 5) % 3 == 0
    row = row_of(Call(lambda x: x[mask]), torch.rand(4, 5))
    assert row.inputs[0].byte == row.inputs[0].min_bytes == 4 * 7
    # Each of 5 broadcast elements is selected at most 4 times.
    row = row_of(Call(lambda x: x.masked_select(mask)), torch.rand(5))
    assert row.inputs[0].byte == 4 * 5
    assert row.inputs[0].min_bytes == 4 * 2


def test_equal_stops_at_the_first_difference() -> None:
    call = Call(lambda x, y: x if torch.equal(x, y) else y)
    row = row_of(call, torch.zeros(100), torch.ones(100), of="aten.equal")
    assert (row.flop, row.min_flop) == (100, 0)
    assert [(each.byte, each.min_bytes) for each in row.inputs] == [(400, 0), (400, 0)]


@pytest.mark.parametrize(
    ("function", "table", "looked_at", "least"),
    [
        # ceil(log2(1001)) = 10 of the boundaries for each of 6 values.
        (lambda t, x: torch.bucketize(x, t), (1000,), 60, 1),
        (lambda t, x: torch.searchsorted(t, x), (1000,), 60, 1),
        (lambda t, x: torch.searchsorted(t, x), (2, 1000), 60, 2),
        (lambda t, x: torch.searchsorted(t, x), (15,), 15, 1),
        (lambda t, x: torch.searchsorted(t.long(), x.long()), (1000,), 60, 1),
    ],
)
def test_a_bisection_looks_at_few_boundaries(
    function: object, table: tuple[int, ...], looked_at: int, least: int
) -> None:
    analysis = roofline.analyze(Call(function), [table, (2, 3)], hardware="10980xe")
    row = analysis.operators[-1]
    boundaries = next(each for each in row.inputs if each.shape == table)
    size = boundaries.byte // boundaries.distinct_elements
    assert boundaries.byte == size * looked_at
    assert boundaries.min_bytes == size * least


def _steps(table: int, values: int) -> int:
    """Places that a bisection of `table` looks at for each of so many different values."""
    looked_at: set[int] = set()
    for value in range(values):
        low, high = 0, table
        while low < high:
            middle = (low + high) // 2
            looked_at.add(middle)
            low, high = (middle + 1, high) if middle < value else (low, middle)
    return len(looked_at)


@given(st.integers(1, 300), st.integers(1, 40))
def test_no_bisection_looks_at_more_boundaries_than_are_counted(table: int, values: int) -> None:
    numbers = TensorSpec(
        shape=(table,), dtype=dtype("float32"), distinct_elements=table, storage=0, role=Role.INPUT
    )
    found = find("aten.bucketize")
    assert found is not None
    wanted = replace(numbers, shape=(values,), distinct_elements=values, storage=1)
    count = found.count({"self": wanted, "boundaries": numbers, "output": wanted})
    assert count.min_elements["boundaries"] <= _steps(table, values)
    assert _steps(table, values) <= count.elements["boundaries"]


# -- products that are left out --------------------------------------------------------------------

M, V, B = (6, 6), (6,), (3, 6, 6)


@pytest.mark.parametrize(
    ("name", "shapes", "is_left_out"),
    [
        ("addmm", (M, M, M), True),
        ("addmv", (V, M, V), True),
        ("baddbmm", (B, B, B), False),
        ("addbmm", (M, B, B), True),
        ("addr", (M, V, V), False),
    ],
)
def test_a_product_of_alpha_0_need_not_be_made(
    name: str, shapes: tuple[tuple[int, ...], ...], is_left_out: bool
) -> None:
    """Nor a term of beta 0 be read; what cannot be numbers shows it, where torch leaves it out."""
    function = getattr(torch, name)
    term, *factors = (torch.full(each, float("nan")) for each in shapes)
    if is_left_out:
        assert not function(torch.zeros_like(term), *factors, alpha=0).isnan().any()
    assert not function(term, *map(torch.ones_like, factors), beta=0).isnan().any()
    product = row_of(Call(lambda *given: function(*given, alpha=0)), *shapes)
    usual = row_of(Call(lambda *given: function(*given)), *shapes)
    assert product.min_flop == 0
    assert product.macs == usual.macs
    assert [each.min_bytes > 0 for each in product.inputs] == [True, False, False]
    alone = row_of(Call(lambda *given: function(*given, beta=0)), *shapes)
    assert [each.byte > 0 for each in alone.inputs] == [False, True, True]
    assert alone.outputs == usual.outputs
    in_place = row_of(Call(lambda x, *given: getattr(x, f"{name}_")(*given, beta=0)), *shapes)
    assert [each.byte > 0 for each in in_place.inputs] == [False, True, True]
    assert in_place.outputs[0].byte == usual.outputs[0].byte


def test_a_term_that_is_multiplied_too_is_read() -> None:
    row = row_of(Call(lambda x: torch.addmm(x, x, x, beta=0)), M)
    assert row.inputs[0].byte == row.inputs[0].min_bytes == 4 * 36


# -- what is only made like another ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "written"),
    [
        *((each, 600) for each in (torch.zeros_like, torch.ones_like)),
        *((each, 600) for each in (torch.rand_like, torch.randn_like)),
        (lambda x: torch.full_like(x, 2.0), 600),
        (lambda x: torch.randint_like(x, 9), 600),
        (lambda x: x.new_zeros((5, 7)), 35),
        (lambda x: x.new_ones((5, 7)), 35),
        (lambda x: x.new_full((5, 7), 2.0), 35),
    ],
)
def test_what_is_made_like_another_tensor_does_not_read_that_one(make: Any, written: int) -> None:
    row = row_of(Call(make), (20, 30))
    assert row.op.removeprefix("aten.").startswith(("zeros", "ones", "full", "rand", "new_"))
    assert (row.input_bytes, row.output_bytes) == (0, 4 * written)
