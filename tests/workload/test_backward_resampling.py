"""Gradients of resampling, padding and sampled grids against the same, written out in loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roofline.workload.formulas.registry import find
from tests.workload.passes import only, passed
from tests.workload.scalars import Scalar, Tally, numbers, same, sum_of
from tests.workload.schema_calls import spec
from tests.workload.test_backward_pooling import Gradient, element, every, random

aten: Any = torch.ops.aten


# -- sampling up and down --------------------------------------------------------------------------


def neighbours(
    i: int, size: int, outputs: int, scale: float, mode: str, align_corners: bool
) -> list[tuple[int, float]]:
    """The inputs that output i is made of, with their weights."""
    if mode == "nearest" and outputs in (size, 2 * size):
        return [(i * size // outputs, 1.0)]
    if mode == "nearest":
        return [(min(math.floor(i * scale), size - 1), 1.0)]
    if mode == "nearest-exact":
        return [(min(math.floor((i + 0.5) * scale), size - 1), 1.0)]
    place = i * scale if align_corners else (i + 0.5) * scale - 0.5
    if mode == "linear" and size == outputs:
        # Whatever the factor, a dimension that keeps its size is copied.
        found = [(i, 1.0), (i, 0.0)]
    elif mode == "linear":
        place = max(place, 0.0)
        first = math.floor(place)
        t = place - first
        found = [(first, 1 - t), (first + 1, t)]
    else:
        first = math.floor(place)
        t, a = place - first, -0.75

        def inner(x: float) -> float:
            return ((a + 2) * x - (a + 3)) * x * x + 1

        def outer(x: float) -> float:
            return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

        weights = [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]
        found = [(first - 1 + k, weight) for k, weight in enumerate(weights)]
    return [(min(max(at, 0), size - 1), weight) for at, weight in found]


NAMES = {
    "nearest": {1: "upsample_nearest1d", 2: "upsample_nearest2d", 3: "upsample_nearest3d"},
    "nearest-exact": {d: f"_upsample_nearest_exact{d}d" for d in (1, 2, 3)},
    "linear": {1: "upsample_linear1d", 2: "upsample_bilinear2d", 3: "upsample_trilinear3d"},
    "cubic": {2: "upsample_bicubic2d"},
}


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(sorted(NAMES)),
    dimensions=st.integers(1, 3),
    sizes=st.tuples(*[st.integers(1, 4)] * 3),
    outputs=st.tuples(*[st.integers(1, 5)] * 3),
    factor=st.sampled_from([None, 0.5, 1.3, 1.5, 2.0]),
    align_corners=st.booleans(),
)
def test_up_and_down(
    mode: str,
    dimensions: int,
    sizes: tuple[int, ...],
    outputs: tuple[int, ...],
    factor: float | None,
    align_corners: bool,
) -> None:
    """A product for each neighbour, an addition where one has received before."""
    dimensions = 2 if mode == "cubic" else dimensions
    align_corners = align_corners and mode in ("linear", "cubic")
    size = sizes[:dimensions]
    asked = outputs[:dimensions]
    if factor is not None:
        asked = tuple(max(1, math.floor(each * factor)) for each in size)
    # Of the same size torch copies, whatever the factor.
    assume(factor is None or asked != size)
    factors = [factor] * dimensions
    corners = [align_corners] if mode in ("linear", "cubic") else []
    backward = getattr(aten, f"{NAMES[mode][dimensions]}_backward")
    g = random(1, 2, *asked)
    tally, gradient = Tally(), Gradient()
    seeds = numbers(g, tally)
    scales = []
    for n, m in zip(size, asked, strict=True):
        if align_corners:
            scales.append((n - 1) / (m - 1) if m > 1 else 0.0)
        else:
            scales.append(1 / factor if factor else n / m)
    for c, at in product(range(2), every(*asked)):
        each = [
            neighbours(i, n, m, scale, mode, align_corners)
            for i, n, m, scale in zip(at, size, asked, scales, strict=True)
        ]
        for corner in product(*each):
            value = element(seeds, (0, c, *at))
            if "nearest" not in mode:
                value = value * prod(weight for _, weight in corner)
            gradient.receive((0, c, *(place for place, _ in corner)), value)

    def run(g: torch.Tensor) -> torch.Tensor:
        return backward(g, list(asked), [1, 2, *size], *corners, *factors)

    assert gradient.is_that_of(run(g))
    record = only(passed(run, g))
    assert record.work.flop == tally.flop
    if asked == size:
        assert record.work.min_flop == 0
    elif all(n != m for n, m in zip(size, asked, strict=True)) or "nearest" in mode:
        assert record.work.min_flop == tally.flop
    else:
        assert (record.work.min_flop or 0) <= tally.flop
    assert record.type == "resampling"


def test_a_dimension_that_keeps_its_size_is_copied() -> None:
    """8 x 4 from 8 x 2: along the rows two products for each of 32, added up in 16 elements."""
    record = only(
        passed(
            lambda g: aten.upsample_bilinear2d_backward(g, [8, 4], [1, 1, 8, 2], False),
            (1, 1, 8, 4),
        )
    )
    assert record.work.flop == 2 * 4 * 32 - 16
    assert record.work.min_flop == 2 * 2 * 32 - 16


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "outputs"), [(12, 4), (9, 6), (7, 5), (4, 10), (8, 8)])
def test_antialiased(mode: str, size: int, outputs: int) -> None:
    """Along columns, then along rows, as the transposed matrix: the least has only its weights.

    How many those are is read off torch's own result for single pixels. A dimension that keeps its
    size is no must; the whole has the few more that torch's windows reach.
    """
    image = torch.eye(size).reshape(size, 1, 1, size)
    matrix = F.interpolate(image, size=(1, outputs), mode=mode, antialias=True)
    matrix = matrix.reshape(size, outputs).double()
    seed = random(1, 1, outputs, outputs)

    def run(g: torch.Tensor) -> torch.Tensor:
        name = f"_upsample_{mode}2d_aa_backward"
        return getattr(aten, name)(g, [outputs] * 2, [2, 3, size, size], False)

    one = getattr(aten, f"_upsample_{mode}2d_aa_backward")(
        seed, [outputs] * 2, [1, 1, size, size], False
    )
    assert torch.allclose(matrix @ seed[0, 0].double() @ matrix.T, one[0, 0].double(), atol=1e-5)
    work = only(passed(run, (2, 3, outputs, outputs))).work
    kept = int((matrix.abs() > 1e-7).sum())
    lines = 2 * 3 * (size + outputs)
    least = 0 if size == outputs else lines * (2 * kept - size)
    assert work.flop is not None
    assert work.min_flop is not None
    # A cubic is zero at whole distances too, where all of these lie if the size is kept.
    reached = kept + outputs * (4 if size == outputs else 2)
    assert least <= work.min_flop <= work.flop <= lines * (2 * reached - size)
    if mode == "bilinear":
        assert work.min_flop == least


# -- padding ---------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    mode=st.sampled_from(["reflection", "replication"]),
    dimensions=st.integers(1, 3),
    sides=st.tuples(*[st.integers(-1, 2)] * 6),
)
def test_padding(mode: str, dimensions: int, sides: tuple[int, ...]) -> None:
    """torch says how often each element was copied; negative padding cuts off."""
    pad = list(sides[: 2 * dimensions])
    if mode == "reflection":
        # A reflection beyond what is cut off at the other side is no legal call.
        pad = [abs(each) for each in pad]
    x = random(2, 3, *[4] * dimensions)
    y = getattr(aten, f"{mode}_pad{dimensions}d")(x, pad)
    backward = getattr(aten, f"{mode}_pad{dimensions}d_backward")
    copies = backward(torch.ones_like(y), x, pad)
    additions = int((copies - 1).clamp(min=0).sum())
    record = only(passed(lambda g, x: backward(g, x, pad), torch.ones_like(y), x))
    assert (record.work.flop, record.work.min_flop) == (additions, additions)
    assert record.type == "data movement"
    assert record.inputs[1].byte == 0


# -- grids -----------------------------------------------------------------------------------------


def grid_gradients(
    image: Any,
    grid: torch.Tensor,
    seeds: Any,
    size: int,
    tally: Tally,
    *,
    align_corners: bool,
    of_image: bool,
) -> tuple[Gradient, list[list[Scalar]]]:
    """Linear: gradients of channels and of places, as they are computed, place by place."""
    dimensions, channels = grid.shape[-1], len(image)
    gradient, of_places = Gradient(), []
    for at in every(*grid.shape[1:-1]):
        positions, parts, firsts = [], [], []
        for x in numbers(grid[(0, *at)], tally)[::-1]:
            position = (x + 1) / 2 * (size - 1) if align_corners else ((x + 1) * size - 1) / 2
            positions.append(position)
            firsts.append(math.floor(position.value))
            tally.simple += 1
            t = position - firsts[-1]
            parts.append((1 - t, t))
        sums, corners = [], list(product((0, 1), repeat=dimensions))
        for corner in corners:
            place = tuple(f + side for f, side in zip(firsts, corner, strict=True))
            is_inside = all(0 <= p < size for p in place)
            weight = parts[0][corner[0]]
            if of_image:
                for part, side in zip(parts[1:], corner[1:], strict=True):
                    weight = weight * part[side]
            terms = []
            for c in range(channels):
                g = element(seeds, (c, *at))
                inside = element(image[c], place) if is_inside else Scalar(0.0, tally)
                terms.append(g * inside)
                if of_image:
                    # The gradient starts as zeros: where gradients meet cannot be known.
                    old = gradient.received.get((0, c, *place), Scalar(0.0, tally))
                    gradient.received[(0, c, *place)] = old + g * weight
            sums.append(sum_of(terms))
        slopes = []
        for along in range(dimensions):
            terms, signs = [], []
            for corner, total in zip(corners, sums, strict=True):
                term = total
                for other in range(dimensions):
                    if other != along:
                        term = term * parts[other][corner[other]]
                terms.append(term)
                signs.append(corner[along])
            # The first is one with a plus, so that every other is added or subtracted.
            order = sorted(range(len(terms)), key=lambda k: -signs[k])
            slope = terms[order[0]]
            for k in order[1:]:
                slope = slope + terms[k] if signs[k] else slope - terms[k]
            slopes.append(slope * ((size - 1) / 2 if align_corners else size / 2))
        of_places.append(slopes[::-1])
    return gradient, of_places


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("of_image", [True, False])
def test_linear_grid(dimensions: int, align_corners: bool, of_image: bool) -> None:
    size, places, channels = 4, 2, 3
    image, seed = random(1, channels, *[size] * dimensions), random(1, 3, *[places] * dimensions)
    grid = (random(1, *[places] * dimensions, dimensions) / 4).clamp(-0.7, 0.7)
    backward = getattr(aten, f"grid_sampler_{dimensions}d_backward")

    def run(g: torch.Tensor, image: torch.Tensor, grid: torch.Tensor) -> Any:
        return backward(g, image, grid, 0, 0, align_corners, [of_image, True])

    tally = Tally()
    gradient, of_places = grid_gradients(
        *(numbers(image[0], tally), grid, numbers(seed[0], tally), size, tally),
        align_corners=align_corners,
        of_image=of_image,
    )
    of_torch = run(seed, image, grid)
    assert same(of_places, of_torch[1])
    assert not of_image or gradient.is_that_of(of_torch[0])
    record = only(passed(run, seed, image, grid))
    assert record.work.flop == tally.flop
    assert record.work.min_flop == 2 * dimensions * places**dimensions
    assert record.type == "resampling"


def of_grid(mode: int, mask: Sequence[bool], shape: tuple[int, ...] = (1, 3, 99, 99)) -> Any:
    def run(g: torch.Tensor, image: torch.Tensor, grid: torch.Tensor) -> Any:
        return aten.grid_sampler_2d_backward(g, image, grid, mode, 0, False, list(mask))

    return only(passed(run, (1, shape[1], 1, 2), shape, (1, 1, 2, 2)))


def test_a_grid_touches_no_more_than_its_neighbours() -> None:
    """Two places of a large image: four pixels a channel, and maybe none; nearest reads none."""
    image = of_grid(0, (True, True)).inputs[1]
    assert (image.distinct_elements, image.min_elements) == (4 * 2 * 3, 0)
    assert of_grid(1, (True, True)).inputs[1].distinct_elements == 0
    assert of_grid(0, (True, True)).outputs[0].byte == 4 * 3 * 99 * 99


def test_nearest_grid_by_hand() -> None:
    """Two places: two coordinates of 4 operations and a rounding; 6 gradients added."""
    assert of_grid(1, (True, True)).work.flop == 2 * 2 * 5 + 6
    assert of_grid(1, (False, True)).work.flop == 2 * 2 * 5


def test_cubic_grid_by_hand() -> None:
    """Of each of two places:

    positions 2 * 4; floor, difference and weights 2 * 27; slopes of the weights 2 * 14; 16 products
    of weights. A channel: 16 products and additions to the image; 16 products with elements, of
    which sums over 3 channels. Then along both coordinates 16 products, 12 additions, 4 products,
    3 additions, and a scale.
    """
    place = 2 * 4 + 2 * 27 + 2 * 14 + 16 + 3 * 32 + 16 * (3 + 2) + 2 * (35 + 1)
    assert of_grid(2, (True, True)).work.flop == 2 * place
    assert of_grid(2, (False, True)).work.flop == 2 * (place - 16 - 3 * 32)


# -- from their schemas ----------------------------------------------------------------------------


def test_grids_of_libraries() -> None:
    """cuDNN's is linear with aligned corners; torch's own fallback has no mask."""
    tensors = {"grad_output": spec(1, 3, 2, 2), "grid": spec(1, 2, 2, 2)}
    output = [spec(1, 3, 4, 4), spec(1, 2, 2, 2)]
    options = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": True}
    native, fallback, cudnn = (
        find(f"aten.{name}_backward")
        for name in ("grid_sampler_2d", "_grid_sampler_2d_cpu_fallback", "cudnn_grid_sampler")
    )
    assert native is not None
    assert fallback is not None
    assert cudnn is not None
    image = spec(1, 3, 4, 4)
    whole = native.count(
        {**tensors, **options, "input": image, "output_mask": [True, True], "output": output}
    )
    assert fallback.count({**tensors, **options, "input": image, "output": output}) == whole
    found = cudnn.count({**tensors, "self": image, "output": output})
    assert (found.flop, found.min_flop) == (whole.flop, whole.min_flop)
    assert found.elements["self"] == whole.elements["input"]


def test_the_grid_of_cudnn_forward() -> None:
    native, cudnn = (find(f"aten.{name}") for name in ("grid_sampler_2d", "cudnn_grid_sampler"))
    assert native is not None
    assert cudnn is not None
    image, rest = spec(1, 3, 4, 4), {"grid": spec(1, 2, 2, 2), "output": spec(1, 3, 2, 2)}
    options = {"interpolation_mode": 0, "padding_mode": 0, "align_corners": True}
    whole = native.count({**rest, **options, "input": image})
    found = cudnn.count({**rest, "self": image})
    assert (found.flop, found.min_flop) == (whole.flop, whole.min_flop)
    assert list(found.elements.values()) == list(whole.elements.values())


@pytest.mark.parametrize("name", ["affine_grid_generator", "cudnn_affine_grid_generator"])
def test_affine_grid(name: str) -> None:
    """What autograd does on a CPU, where it is a product of matrices: 2 places of 3 x 4, 2 x 3."""
    formula = find(f"aten.{name}_backward")
    assert formula is not None
    found = formula.count({"grad": spec(2, 3, 4, 2), "output": spec(2, 2, 3)})
    of_torch = passed(
        lambda grad: aten.affine_grid_generator_backward(grad, [2, 1, 3, 4], False), (2, 3, 4, 2)
    )
    (product_,) = [each for each in of_torch.records if each.work.macs]
    assert found.macs == product_.work.macs == 2 * 12 * 2 * 3
    assert formula.type == product_.type == "matrix product"


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (1, 2, 1, 1)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_legal_calls(shape: tuple[int, ...], kind: torch.dtype) -> None:
    """No batch, single pixels: no count is negative."""
    g = torch.zeros(shape, dtype=kind)

    def run(g: torch.Tensor) -> Any:
        size = list(g.shape[2:]), [g.shape[0], 2, 3, 3]
        return (
            aten.upsample_nearest2d_backward(g, *size),
            aten.upsample_bilinear2d_backward(g, *size, False),
            aten.upsample_bicubic2d_backward(g, *size, True),
        )

    if shape[0]:
        records = [each for each in passed(run, g).records if "backward" in each.op]
        assert [each.op.split("_backward")[0] for each in records] == [
            "aten.upsample_nearest2d",
            "aten.upsample_bilinear2d",
            "aten.upsample_bicubic2d",
        ]
    for name in ("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d"):
        formula = find(f"aten.{name}_backward")
        assert formula is not None
        count = formula.count(
            {"grad_output": spec(*shape), "output": spec(shape[0], 2, 3, 3), "align_corners": True}
        )
        assert (count.flop == 0) == (shape[0] == 0 or "nearest" in name)
