"""SAWB and max-abs: weights on few levels, by hand, by the nearest level, and within torch."""

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

from roofline.errors import InputError
from roofline.quantization.quantizers import (
    SAWB,
    MaxAbs,
    code_type,
    integer_weights,
    weight_quantizer,
)

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 3))
SEEDS = st.integers(0, 2**31)


def drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def nearest_level(weight: Tensor, alpha: float, levels: int) -> Tensor:
    """By trying every level, in float64."""
    grid = torch.linspace(-alpha, alpha, levels, dtype=torch.float64)
    distance = (weight.double().reshape(-1, 1) - grid).abs()
    return grid[distance.argmin(dim=1)].reshape(weight.shape)


def parametrized(layer: nn.Module, quantizer: nn.Module) -> nn.Module:
    return parametrize.register_parametrization(layer, "weight", quantizer)


def test_one_and_two_bits_by_hand():
    """√E[w²] is 5, E|w| is 4: |w| are 1, 7, 1, 7, so α is 5·c1 - 4·c2."""
    weight = torch.tensor([1.0, -7.0, -1.0, 7.0])
    quantizer = SAWB(2)
    assert repr(quantizer) == "SAWB(bits=2, levels=4)"
    quantizer.c1, quantizer.c2 = 3.2, 2.1
    assert quantizer.clipping(weight).item() == pytest.approx(16 - 8.4)
    expected = torch.tensor([7.6 / 3, -7.6, -7.6 / 3, 7.6])
    torch.testing.assert_close(quantizer(weight), expected)
    codes, alpha = quantizer.codes(weight)
    assert codes.tolist() == [2, 0, 1, 3]
    assert alpha.item() == pytest.approx(7.6)
    # Of one bit, the sign at the mean magnitude.
    assert SAWB(1)(weight).tolist() == [4, -4, -4, 4]
    assert SAWB(1).codes(weight)[0].tolist() == [1, 0, 0, 1]
    assert repr(SAWB(2, per_channel=True)) == "SAWB(bits=2, levels=4, per channel (axis 0))"


@pytest.mark.parametrize(
    ("levels", "expected"), [(4, [-1, -1 / 3, 1 / 3, 1]), (3, [-1, 0, 1])], ids=["four", "three"]
)
def test_the_levels_of_two_bits(levels: int, expected: list[float]):
    weight, quantizer = drawn((4000,), 0), SAWB(2, levels=levels)
    assert quantizer.levels == levels
    alpha = quantizer.clipping(weight).item()
    found = quantizer(weight).unique().tolist()
    assert found == pytest.approx([alpha * each for each in expected], rel=1e-6)
    assert 0 in SAWB(4, levels=15)(weight)
    assert 0 not in SAWB(4)(weight)


@given(SIZES, SEEDS, st.integers(1, 4), st.sampled_from([torch.float32, torch.float64]))
def test_every_weight_goes_to_the_nearest_level(
    shape: tuple[int, ...], seed: int, bits: int, dtype: torch.dtype
):
    weight, quantizer = drawn(shape, seed, dtype), SAWB(bits)
    result = quantizer(weight)
    alpha = quantizer.clipping(weight)
    expected = nearest_level(weight, alpha.item(), quantizer.levels)
    ours, least = (result - weight).abs().double(), (expected - weight).abs()
    # Two levels may be equally near.
    assert bool((ours <= least + 1e-5 * alpha.item()).all())
    assert result.dtype == dtype


@given(SIZES, SEEDS, st.integers(1, 16), st.booleans(), st.booleans())
def test_codes_say_the_values(
    shape: tuple[int, ...], seed: int, bits: int, per_channel: bool, sawb: bool
):
    kind = SAWB if sawb and bits <= 4 else MaxAbs
    weight, quantizer = drawn(shape, seed), kind(bits, per_channel=per_channel)
    codes, alpha = quantizer.codes(weight)
    narrow = torch.int16 if bits < 16 else torch.int32
    assert codes.dtype == code_type(bits) == (torch.uint8 if bits <= 8 else narrow)
    assert 0 <= int(codes.min()) <= int(codes.max()) < quantizer.levels <= 2**bits
    assert alpha.shape == ((shape[0],) if per_channel else ())
    step = alpha.reshape(-1, 1, 1) if per_channel else alpha
    step = step / (quantizer.levels - 1)
    assert torch.equal(integer_weights(codes, quantizer.levels) * step, quantizer(weight))


@given(SIZES, SEEDS, st.integers(1, 4), st.sampled_from([-20, -3, 1, 12]))
def test_a_scale_goes_through(shape: tuple[int, ...], seed: int, bits: int, power: int):
    """Exactly, where it is a power of two."""
    weight, quantizer = drawn(shape, seed), SAWB(bits)
    scale = 2.0**power
    assert torch.equal(quantizer(weight * scale), quantizer(weight) * scale)


@given(SIZES, SEEDS, st.integers(1, 4))
def test_each_channel_is_quantized_as_if_alone(shape: tuple[int, ...], seed: int, bits: int):
    weight = drawn(shape, seed)
    alone = torch.stack([SAWB(bits)(channel) for channel in weight])
    torch.testing.assert_close(SAWB(bits, per_channel=True)(weight), alone)
    turned = SAWB(bits, per_channel=True, axis=1)(weight.transpose(0, 1))
    torch.testing.assert_close(turned.transpose(0, 1), alone)


@pytest.mark.parametrize(("bits", "levels"), [(2, 3), (2, 4), (3, 8), (4, 15), (4, 16)])
def test_bell_shaped_weights_lose_little_more_than_they_must(bits: int, levels: int):
    """No clipping value has a much smaller square error than that of SAWB."""
    weight, quantizer = drawn((20_000,), bits), SAWB(bits, levels=levels)
    error = (quantizer(weight) - weight).square().mean().item()
    tried = torch.linspace(0.2, 5, 97).tolist()
    others = [
        (nearest_level(weight, alpha, levels) - weight).square().mean().item() for alpha in tried
    ]
    assert error <= 1.03 * min(others)


@pytest.mark.parametrize("quantizer", [*map(SAWB, (1, 2, 3, 4)), *map(MaxAbs, (1, 2, 8))], ids=repr)
def test_weights_of_one_magnitude_stay_as_they_are(quantizer: SAWB | MaxAbs):
    for weight in (torch.full((3, 4), 0.7), torch.tensor([0.3, -0.3, 0.3]), torch.tensor([5.0])):
        assert quantizer.clipping(weight).item() == pytest.approx(weight.abs().max().item())
        torch.testing.assert_close(quantizer(weight), weight)


def test_where_the_line_gives_too_little_the_largest_magnitude_is_taken():
    """Of magnitudes from 1 to 1.2, √E[w²] and E|w| are nearly the same: α* at 16 levels is < 1."""
    weight = torch.linspace(1, 1.2, 50) * torch.tensor([1.0, -1.0]).repeat(25)
    quantizer = SAWB(4)
    mean, square = weight.abs().mean().item(), weight.square().mean().item()
    assert quantizer.c1 * square**0.5 - quantizer.c2 * mean < mean
    assert quantizer.clipping(weight).item() == pytest.approx(1.2)
    both = SAWB(4, per_channel=True).clipping(torch.stack([weight, drawn((50,), 0)]))
    assert both[0].item() == pytest.approx(1.2)
    assert both[1].item() == pytest.approx(quantizer.clipping(drawn((50,), 0)).item())


def test_weights_of_zero_stay_zero():
    for quantizer in (*map(SAWB, (1, 2, 4)), *map(MaxAbs, (1, 2, 8))):
        assert torch.equal(quantizer(torch.zeros(3, 2)), torch.zeros(3, 2))
        codes, alpha = quantizer.codes(torch.zeros(3, 2))
        assert alpha.item() == 0
        assert int(codes.max()) < quantizer.levels
    half_empty = torch.stack([torch.zeros(50), drawn((50,), 0)])
    result = SAWB(2, per_channel=True)(half_empty)
    assert torch.equal(result[0], torch.zeros(50))
    assert bool(torch.isfinite(result).all())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value: float):
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight[0, 1] = value
    with pytest.raises(InputError, match=r"NaN or infinity \(1 of 6\)"):
        SAWB(2).codes(layer.weight)
    with pytest.raises(InputError, match="NaN or infinity"):
        parametrized(layer, SAWB(2))
    assert not parametrize.is_parametrized(layer)
    # In training NaN is seen in what comes out.
    assert bool(SAWB(2)(torch.tensor([math.nan, 1.0])).isnan().all())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SAWB(2)(torch.zeros(2, dtype=torch.int8)), "weights of int8 cannot be quantized"),
        (lambda: SAWB(2).codes(torch.zeros(2, dtype=torch.complex64)), "weights of complex64"),
        (lambda: SAWB(2)(torch.zeros(0, 3)), r"shape \(0, 3\) is empty"),
        (lambda: MaxAbs(8).codes(torch.tensor([1.0, math.nan])), "NaN or infinity"),
        (lambda: SAWB(8), "not available"),
        *(
            (functools.partial(make, bits), "must be an integer from 1 to 16")
            for make in (MaxAbs, functools.partial(weight_quantizer, per_channel=False))
            for bits in (0, 17, 32, True, 2.5)
        ),
        *(
            (functools.partial(MaxAbs, 2, levels=levels), "2 bits allow 2 to 4")
            for levels in list[Any]((1, 5, True, 2.5))
        ),
    ],
)
def test_what_cannot_be_quantized_is_refused(call: Callable[[], Any], said: str):
    with pytest.raises(InputError, match=said):
        call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_told_apart_in_float32(dtype: torch.dtype):
    weight = drawn((500,), 3, dtype)
    quantizer = SAWB(4)
    assert quantizer.clipping(weight).dtype == torch.float32
    assert torch.equal(quantizer(weight), quantizer(weight.float()).to(dtype))
    assert torch.equal(quantizer.codes(weight)[0], quantizer.codes(weight.float())[0])


def test_a_layer_trains_its_float_weight():
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)
    before = layer.weight.detach().clone()
    parametrized(layer, SAWB(2))
    assert torch.equal(layer.weight, SAWB(2)(before))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(drawn((5, 8), 0)).square().sum().backward()
    optimizer.step()
    kept = layer.parametrizations["weight"].original  # type: ignore[index,union-attr]
    assert not torch.equal(kept, before)
    assert layer.weight.unique().numel() <= 4
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    # The gradient goes straight through.
    weight, above = drawn((6, 5), 0).requires_grad_(), drawn((6, 5), 1)
    for quantizer in (SAWB(2), MaxAbs(8)):
        (grad,) = torch.autograd.grad((quantizer(weight) * above).sum(), weight)
        assert torch.equal(grad, above)
    with torch.device("meta"):
        empty = parametrized(nn.Linear(4, 3), SAWB(2))
        assert empty(torch.empty(2, 4)).shape == (2, 3)


def test_a_layer_is_copied_pickled_restored_and_exported():
    torch.manual_seed(0)
    layer = parametrized(nn.Conv2d(2, 3, 3), SAWB(2, per_channel=True)).eval()
    x = drawn((1, 2, 5, 5), 0)
    expected = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    fresh = parametrized(nn.Conv2d(2, 3, 3), SAWB(2, per_channel=True))
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), expected)
    quantizer = pickle.loads(pickle.dumps(SAWB(2, per_channel=True)))
    assert torch.equal(quantizer(x), SAWB(2, per_channel=True)(x))
    exported = torch.export.export(layer, (x,)).module()
    torch.testing.assert_close(exported(x), expected)
    compiled = torch.compile(layer, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize(
    ("quantizer", "weight", "values", "codes"),
    [
        (MaxAbs(2, levels=3), [0.9, -2.0, 1.1, 0.0], [0, -2, 2, 0], [1, 0, 2, 1]),
        # Whole numbers from -127 to 127.
        (
            MaxAbs(8),
            [127.0, -127.0, 1.0, 0.0, -3.4, 3.6],
            *([127, -127, 1, 0, -3, 4], [254, 0, 128, 127, 124, 131]),
        ),
    ],
    ids=["three levels", "eight bits"],
)
def test_by_hand(quantizer: MaxAbs, weight: list[float], values: list[int], codes: list[int]):
    assert quantizer(torch.tensor(weight)).tolist() == values
    assert quantizer.codes(torch.tensor(weight))[0].tolist() == codes


@given(SEEDS, st.integers(1, 16), st.booleans())
def test_nothing_is_clipped_and_nothing_moves_twice(seed: int, bits: int, per_channel: bool):
    weight, quantizer = drawn((4, 30), seed), MaxAbs(bits, per_channel=per_channel)
    result = quantizer(weight)
    rows = weight if per_channel else weight.reshape(1, -1)
    largest = rows.abs().max(dim=1, keepdim=True).values
    half_step = largest / (quantizer.levels - 1)
    if bits > 1:
        # What float32 rounds comes on top.
        assert bool(((result - weight).abs() <= half_step + 1e-6 * largest).all())
    codes, _ = quantizer.codes(weight)
    assert torch.equal(quantizer.codes(result)[0], codes)


def test_from_5_bits_on_there_is_a_zero():
    assert [MaxAbs(bits).levels for bits in (1, 2, 4, 5, 8, 16)] == [2, 4, 16, 31, 255, 65535]
    for bits in (5, 8, 16):
        assert MaxAbs(bits)(torch.tensor([0.0, 1.0]))[0].item() == 0


def test_up_to_4_bits_only_the_clipping_tells_it_from_sawb():
    weight = drawn((5000,), 0)
    for bits in (2, 3, 4):
        assert MaxAbs(bits).levels == SAWB(bits).levels
        errors = [(each(weight) - weight).square().mean() for each in (SAWB(bits), MaxAbs(bits))]
        assert errors[0] < errors[1]


def test_what_a_width_gets():
    for bits in range(1, 17):
        chosen = weight_quantizer(bits, per_channel=True)
        assert isinstance(chosen, SAWB if bits <= 4 else MaxAbs)
        assert (chosen.bits, chosen.per_channel, chosen.axis) == (bits, True, 0)
    # A transposed convolution has its channels on axis 1.
    layer = nn.ConvTranspose2d(3, 5, 2)
    quantizer = weight_quantizer(8, per_channel=True, axis=1)
    assert quantizer.axis == 1
    parametrize.register_parametrization(layer, "weight", quantizer)
    assert quantizer.clipping(layer.weight).shape == (5,)
    assert layer(torch.randn(1, 3, 4, 4)).shape == (1, 5, 5, 5)
