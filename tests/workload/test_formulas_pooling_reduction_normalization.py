"""Pooling, resampling, reductions and normalisation against the same, written out in loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workload.passes import only, passed, total
from tests.workload.scalars import (
    Scalar,
    Tally,
    every,
    exp,
    flat,
    largest_of,
    log,
    numbers,
    random,
    same,
    sum_of,
)


def window(
    output: Sequence[int], kernel: Sequence[int], stride: int, padding: int, dilation: int
) -> Iterator[tuple[int, ...]]:
    """Where the taps of one window lie; beyond the edges is padding."""
    for tap in every(*kernel):
        yield tuple(o * stride - padding + t * dilation for o, t in zip(output, tap, strict=True))


pools = st.fixed_dictionaries(
    {
        "dimensions": st.integers(1, 3),
        "kernel": st.integers(1, 3),
        "stride": st.integers(1, 3),
        "padding": st.integers(0, 1),
        "ceil_mode": st.booleans(),
    }
)


@settings(max_examples=50)
@given(pool=pools, dilation=st.integers(1, 2), kind=st.sampled_from(["max", "avg"]))
def test_pooling(pool: dict[str, Any], dilation: int, kind: str) -> None:
    """Every tap counts towards `flop`, only those inside towards `min_flop`."""
    dimensions, kernel, stride = pool["dimensions"], pool["kernel"], pool["stride"]
    padding = min(pool["padding"], kernel // 2)
    options = {"stride": stride, "padding": padding, "ceil_mode": pool["ceil_mode"]}
    if kind == "max":
        options["dilation"] = dilation
    else:
        dilation = 1
    function = getattr(F, f"{kind}_pool{dimensions}d")
    x = random(1, 2, *[5, 6, 7][:dimensions])
    y = function(x, kernel, **options)
    taps = inner = 0
    for n, c in every(*x.shape[:2]):
        for at in every(*y.shape[2:]):
            values = []
            for place in window(at, [kernel] * dimensions, stride, padding, dilation):
                taps += 1
                if all(0 <= p < size for p, size in zip(place, x.shape[2:], strict=True)):
                    inner += 1
                    values.append(float(x[(n, c, *place)]))
            if kind == "max":
                assert float(y[(n, c, *at)]) == pytest.approx(max(values))
    work = total(passed(lambda x: function(x, kernel, **options), x))
    # A comparison for each tap but the first; or an addition for each but the first and a division.
    saved = y.numel() if kind == "max" else 0
    assert work.flop == taps - saved
    assert work.min_flop == inner - saved


def test_windows_lie_side_by_side_unless_a_stride_is_given() -> None:
    """2x2 over 4x4: four windows of three comparisons, or four elements, none in padding."""
    for function, each in ((F.max_pool2d, 3), (F.avg_pool2d, 4)):
        work = only(passed(lambda x, pool=function: pool(x, 2), (1, 1, 4, 4))).work
        assert work.flop == work.min_flop == 4 * each


def test_resnet_stem_pooling_by_hand() -> None:
    """3x3 over 8x8 with stride 2 and padding 1: 16 windows, 8 comparisons each.

    Along one side the four windows see 2, 3, 3, 3 elements: 11 * 11 = 121 lie inside.
    """
    work = only(passed(torch.nn.MaxPool2d(3, 2, 1), (1, 1, 8, 8))).work
    assert (work.flop, work.min_flop) == (16 * 8, 121 - 16)
    assert (work.input_bytes, work.output_bytes) == (
        64 * 4,
        16 * (4 + 8),
    )  # values and int64 places


@settings(max_examples=40)
@given(
    dimensions=st.integers(1, 3),
    size=st.integers(1, 7),
    windows=st.integers(1, 7),
    kind=st.sampled_from(["max", "avg"]),
)
def test_adaptive_pooling(dimensions: int, size: int, windows: int, kind: str) -> None:
    """The windows are found by asking torch which inputs an output depends on."""
    function = getattr(F, f"adaptive_{kind}_pool{dimensions}d")
    x = torch.ones(1, 1, *[size] * dimensions).requires_grad_()
    averages = getattr(F, f"adaptive_avg_pool{dimensions}d")(x, windows)
    elements = 0
    for each in averages.flatten():
        (gradient,) = torch.autograd.grad(each, x, retain_graph=True)
        elements += int((gradient != 0).sum())
    outputs = windows**dimensions
    work = total(passed(lambda x: function(x, windows), (2, 3, *[size] * dimensions)))
    assert work.flop == 6 * (elements - (outputs if kind == "max" else 0))


def test_global_average_pooling_is_a_mean() -> None:
    """48 additions and a division for each of the 2 * 3 planes of 7x7."""
    work = total(passed(torch.nn.AdaptiveAvgPool2d(1), (2, 3, 7, 7)))
    assert work.flop == work.min_flop == 6 * 49


@pytest.mark.parametrize(
    ("mode", "dimensions", "multiplications", "additions"),
    [
        ("nearest", 1, 0, 0),
        ("nearest", 2, 0, 0),
        ("nearest", 3, 0, 0),
        ("nearest-exact", 1, 0, 0),
        ("nearest-exact", 2, 0, 0),
        ("nearest-exact", 3, 0, 0),
        ("linear", 1, 2, 1),
        ("bilinear", 2, 4, 3),
        ("bicubic", 2, 16, 15),
        ("trilinear", 3, 8, 7),
    ],
)
def test_resampling(mode: str, dimensions: int, multiplications: int, additions: int) -> None:
    """An output in the middle depends on as many inputs as there are weights."""
    x = torch.ones(1, 1, *[8] * dimensions).requires_grad_()
    y = F.interpolate(x, scale_factor=1.5, mode=mode)
    (gradient,) = torch.autograd.grad(y[(0, 0, *[6] * dimensions)], x)
    assert int((gradient != 0).sum()) == max(1, multiplications)
    module = torch.nn.Upsample(scale_factor=1.5, mode=mode)
    work = total(passed(module, (2, 3, *[8] * dimensions)))
    assert work.flop == 6 * 12**dimensions * (multiplications + additions)


@given(kernel=st.integers(1, 3), stride=st.integers(1, 2), padding=st.integers(0, 1))
@settings(max_examples=20)
def test_fold(kernel: int, stride: int, padding: int) -> None:
    """Each element of the columns is added to its place; the first there need only be stored."""
    side = (6 + 2 * padding - kernel) // stride + 1
    columns = random(1, 2 * kernel**2, side**2)
    expected = F.fold(columns, (6, 6), kernel, padding=padding, stride=stride)
    image, added, filled = torch.zeros(2, 6, 6), 0, set[tuple[int, ...]]()
    stored = 0
    for c, (i, j), (oy, ox) in product(range(2), every(kernel, kernel), every(side, side)):
        y, x = oy * stride - padding + i, ox * stride - padding + j
        if 0 <= y < 6 and 0 <= x < 6:
            image[c, y, x] += columns[0, c * kernel**2 + i * kernel + j, oy * side + ox]
            added += 1
            stored += (c, y, x) not in filled
            filled.add((c, y, x))
    assert torch.allclose(image, expected[0], atol=1e-5)
    fold = torch.nn.Fold((6, 6), kernel, padding=padding, stride=stride)
    work = only(passed(fold, columns)).work
    assert work.flop == columns.numel()
    assert max(0, added - 72) == work.min_flop
    assert (work.min_flop or 0) <= added - stored


def test_unfold_only_copies() -> None:
    """No arithmetic, but nine times the bytes."""
    work = total(passed(torch.nn.Unfold(3, padding=1), (1, 2, 5, 5)))
    assert work.flop == 0
    assert (work.input_bytes, work.output_bytes) == (4 * 50, 4 * 9 * 50)


# -- reductions ----------------------------------------------------------------------------------


def mean_of(values: Sequence[Scalar]) -> Scalar:
    return sum_of(values) / len(values)


def variance_of(values: Sequence[Scalar]) -> Scalar:
    mean = mean_of(values)
    differences = [each - mean for each in values]
    return sum_of([each * each for each in differences]) / len(values)


def product_of(values: Sequence[Scalar]) -> Scalar:
    result = values[0]
    for each in values[1:]:
        result = result * each
    return result


def logsumexp_of(values: Sequence[Scalar]) -> Scalar:
    most = largest_of(values)
    return most + log(sum_of([exp(each - most) for each in values]))


REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[[Sequence[Scalar]], Scalar]]] = {
    "sum": (torch.sum, sum_of),
    "mean": (torch.mean, mean_of),
    "largest": (torch.amax, largest_of),
    "largest, with place": (lambda x, dim: x.max(dim)[0], largest_of),
    "product": (torch.prod, product_of),
    "variance": (lambda x, dim: x.var(dim, correction=0), variance_of),
    "deviation": (lambda x, dim: x.std(dim, correction=0), lambda v: variance_of(v).root()),
    "2-norm": (
        lambda x, dim: torch.linalg.vector_norm(x, dim=dim),
        lambda v: sum_of([each * each for each in v]).root(),
    ),
    "1-norm": (lambda x, dim: x.norm(1, dim), lambda v: sum_of([abs(each) for each in v])),
    "maximum norm": (
        lambda x, dim: x.norm(math.inf, dim),
        lambda v: largest_of([abs(each) for each in v]),
    ),
    "3-norm": (
        lambda x, dim: x.norm(3, dim),
        lambda v: sum_of([abs(each).apply(lambda y: y**3) for each in v]).apply(math.cbrt),
    ),
    "logsumexp": (torch.logsumexp, logsumexp_of),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@given(rows=st.integers(1, 3), size=st.integers(2, 5))
def test_reductions(name: str, rows: int, size: int) -> None:
    """Along the last of two dimensions."""
    function, written_out = REDUCTIONS[name]
    x, tally = random(rows, size), Tally()
    assert same([written_out(row) for row in numbers(x, tally)], function(x, dim=-1))
    work = total(passed(lambda x: function(x, dim=-1), x))
    assert (work.flop, work.min_flop) == (tally.flop, tally.min_flop)


def test_reduction_of_everything_and_of_nothing() -> None:
    """n - 1 additions for one result; an empty sum takes none."""
    assert total(passed(torch.sum, (3, 5))).flop == 14
    assert total(passed(lambda x: x[:0].sum(), (3, 5))).flop == 0


@pytest.mark.parametrize("function", [torch.argmax, lambda x: x.max(0)[1]])
def test_places_are_found_by_comparing(function: Callable[..., Any]) -> None:
    """15 elements to one, or 3 to one five times."""
    assert total(passed(function, (3, 5))).flop in (14, 10)


@pytest.mark.parametrize(
    "function", [lambda x: (x > 0).sum(), lambda x: (x > 0).any(), lambda x: (x > 0).all(1)]
)
def test_counting_is_no_floating_point(function: Callable[..., Any]) -> None:
    """Only the 15 comparisons are."""
    assert total(passed(function, (3, 5))).flop == 15


@pytest.mark.parametrize("function", [torch.cumsum, torch.cumprod, torch.cummax])
@pytest.mark.parametrize(("dim", "operations"), [(0, 2 * 5), (1, 3 * 4), (-1, 3 * 4)])
def test_scans(function: Callable[..., Any], dim: int, operations: int) -> None:
    """One operation for each element but the first along the dimension."""
    work = only(passed(lambda x: function(x, dim), (3, 5))).work
    assert work.flop == work.min_flop == operations


def merge_sort(values: list[Scalar]) -> list[Scalar]:
    if len(values) < 2:
        return values
    left, right = merge_sort(values[: len(values) // 2]), merge_sort(values[len(values) // 2 :])
    merged: list[Scalar] = []
    while left and right:
        merged.append((right if left[0] > right[0] else left).pop(0))
    return [*merged, *left, *right]


@given(size=st.integers(1, 17))
def test_sort(size: int) -> None:
    """A merge sort stays within the count; to know an order of n takes n - 1 comparisons."""
    x, tally = random(2, size), Tally()
    result = [merge_sort(row) for row in numbers(x, tally)]
    assert same(result, x.sort(-1)[0])
    work = only(passed(lambda x: x.sort(-1), x)).work
    assert work.flop is not None
    assert tally.flop <= work.flop
    assert work.flop <= 2 * size * math.ceil(math.log2(size) + 1e-12)
    assert work.min_flop == 2 * (size - 1)


def test_topk_by_hand() -> None:
    """8 elements through a heap of 3 (two levels): 2 * 8 comparisons; the least is 7."""
    work = only(passed(lambda x: x.topk(3), (8,))).work
    assert (work.flop, work.min_flop) == (16, 7)


# -- normalisation -------------------------------------------------------------------------------


def normalized(values: Sequence[Scalar], epsilon: float = 1e-5) -> list[Scalar]:
    """(x - mean) / sqrt(variance + epsilon); the differences are taken once."""
    mean = mean_of(values)
    differences = [each - mean for each in values]
    variance = sum_of([each * each for each in differences]) / len(values)
    scale = 1 / (variance + epsilon).root()
    return [each * scale for each in differences]


def affine(values: Sequence[Scalar], weight: Sequence[float], bias: Sequence[float]) -> Any:
    return [x * w + b for x, w, b in zip(values, weight, bias, strict=True)]


@given(rows=st.integers(1, 3), size=st.integers(2, 6), with_affine=st.booleans())
def test_layer_norm(rows: int, size: int, with_affine: bool) -> None:
    """Statistics of each row, then two operations more an element with weight and bias."""
    norm = torch.nn.LayerNorm(size, elementwise_affine=with_affine)
    x, tally = random(rows, size), Tally()
    result = [normalized(row) for row in numbers(x, tally)]
    if with_affine:
        result = [affine(row, size * [1.0], size * [0.0]) for row in result]
    assert same(result, norm(x))
    record = only(passed(norm, x))
    assert (record.work.flop, record.type) == (tally.flop, "normalization")


@given(groups=st.sampled_from([1, 2, 4]), batch=st.integers(1, 2), with_affine=st.booleans())
def test_group_norm(groups: int, batch: int, with_affine: bool) -> None:
    """Statistics of each group of channels of each sample."""
    norm = torch.nn.GroupNorm(groups, 4, affine=with_affine)
    x, tally = random(batch, 4, 3), Tally()
    result = []
    for group in numbers(x.reshape(batch * groups, -1), tally):
        values = normalized(group)
        result.append(
            affine(values, len(values) * [1.0], len(values) * [0.0]) if with_affine else values
        )
    assert same(result, norm(x))
    assert only(passed(norm, x)).work.flop == tally.flop


@pytest.mark.parametrize("with_affine", [False, True])
def test_batch_norm_in_inference(with_affine: bool) -> None:
    """A scale and a shift for each channel, then one multiplication and addition an element."""
    norm = torch.nn.BatchNorm2d(3, affine=with_affine).eval()
    x, tally = random(2, 3, 2, 2), Tally()
    result: list[Any] = [[], []]
    for channel in range(3):
        mean, variance, weight, bias = (Scalar(v, tally) for v in (0.0, 1.0, 1.0, 0.0))
        scale = weight / (variance + norm.eps).root()
        shift = bias - mean * scale
        for sample in range(2):
            result[sample].append(
                [each * scale + shift for each in flat(numbers(x[sample, channel], tally))]
            )
    assert same(result, norm(x))
    record = only(passed(norm, x))
    assert record.work.flop == tally.flop
    assert record.work.parameter_bytes == 4 * 3 * (4 if with_affine else 2)


def test_batch_norm_without_running_statistics() -> None:
    """It takes those of the batch, channel by channel, also in inference."""
    norm = torch.nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    x, tally = random(4, 3), Tally()
    columns = [normalized(column) for column in numbers(x.T, tally)]
    assert same(columns, norm(x).T.contiguous())
    assert total(passed(norm, x)).flop == tally.flop


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_instance_norm(dimensions: int) -> None:
    """Statistics of each plane of each sample."""
    kind: Any = [torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d]
    norm = kind[dimensions - 1](2)
    x, tally = random(2, 2, *[3] * dimensions), Tally()
    planes = [normalized(plane) for plane in numbers(x.flatten(2).flatten(0, 1), tally)]
    assert same(planes, norm(x))
    assert total(passed(norm, x)).flop == tally.flop


def test_weight_norm() -> None:
    """v * (g / |v|) for each filter, before the convolution that uses it."""
    layer: Any = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(5, 3, bias=False))
    magnitudes, directions = (each.detach() for each in layer.parameters())
    tally = Tally()
    result = []
    for row, g in zip(numbers(directions, tally), magnitudes, strict=True):
        scale = Scalar(float(g), tally) / sum_of([each * each for each in row]).root()
        result.append([each * scale for each in row])
    assert same(result, layer.weight)
    assert total(passed(layer, (2, 5))).flop == tally.flop + 2 * 2 * 3 * 5


def test_local_response_norm_is_known() -> None:
    """It is made of squares, an average over channels, a power and a division."""
    # Each of 16: a square; 3 of the average (two additions, a division); alpha * y + k; a power;
    # a division.
    assert total(passed(torch.nn.LocalResponseNorm(3), (1, 4, 2, 2))).flop == 16 * (
        1 + 3 + 2 + 8 + 1
    )


# -- blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "shape"),
    [
        (torch.nn.PixelShuffle(2), (1, 8, 4, 4)),
        (torch.nn.PixelUnshuffle(2), (1, 8, 4, 4)),
        (torch.nn.ChannelShuffle(2), (1, 8, 4, 4)),
        (torch.nn.ReflectionPad1d(1), (1, 2, 4)),
        (torch.nn.ReflectionPad2d(1), (1, 2, 4, 4)),
        (torch.nn.ReflectionPad3d(1), (1, 2, 4, 4, 4)),
        (torch.nn.ReplicationPad1d(1), (1, 2, 4)),
        (torch.nn.ReplicationPad2d(1), (1, 2, 4, 4)),
        (torch.nn.ReplicationPad3d(1), (1, 2, 4, 4, 4)),
        (torch.nn.ZeroPad2d(1), (1, 2, 4, 4)),
        (torch.nn.CircularPad2d(1), (1, 2, 4, 4)),
        (torch.nn.Flatten(), (1, 2, 4, 4)),
    ],
    ids=str,
)
def test_moving_elements_is_no_arithmetic(block: torch.nn.Module, shape: tuple[int, ...]) -> None:
    """All of them are known, and none takes a floating-point operation."""
    assert total(passed(block, shape)).flop == 0


def test_max_unpooling_is_known() -> None:
    """The elements go back to where they came from."""

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        y, places = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, places, [2, 2])

    assert total(passed(there_and_back, (1, 2, 4, 4))).flop == 2 * 4 * 3
