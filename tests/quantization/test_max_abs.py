"""Max-abs: weights on levels up to the largest of them, and which quantiser a width gets."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from roofline.errors import InputError
from roofline.quantization.quantizers import SAWB, MaxAbs, code_type, integers, weight_quantizer


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


@given(st.integers(0, 2**31), st.integers(1, 16), st.booleans())
def test_nothing_is_clipped_and_nothing_moves_twice(seed: int, bits: int, per_channel: bool):
    weight = torch.randn(4, 30, generator=torch.Generator().manual_seed(seed))
    quantizer = MaxAbs(bits, per_channel=per_channel)
    result = quantizer(weight)
    rows = weight if per_channel else weight.reshape(1, -1)
    largest = rows.abs().max(dim=1, keepdim=True).values
    half_step = largest / (quantizer.levels - 1)
    if bits > 1:
        # What float32 rounds comes on top.
        assert bool(((result - weight).abs() <= half_step + 1e-6 * largest).all())
    codes, _ = quantizer.codes(weight)
    assert torch.equal(quantizer.codes(result)[0], codes)


@given(st.integers(0, 2**31), st.integers(1, 16))
def test_codes_say_the_values_at_every_width(seed: int, bits: int):
    weight = torch.randn(40, generator=torch.Generator().manual_seed(seed))
    quantizer = MaxAbs(bits)
    codes, alpha = quantizer.codes(weight)
    narrow = torch.int16 if bits < 16 else torch.int32
    assert codes.dtype == code_type(bits) == (torch.uint8 if bits <= 8 else narrow)
    assert 0 <= int(codes.min()) <= int(codes.max()) < quantizer.levels <= 2**bits
    step = alpha / (quantizer.levels - 1)
    assert torch.equal(integers(codes, quantizer.levels) * step, quantizer(weight))


def test_from_5_bits_on_there_is_a_zero():
    assert [MaxAbs(bits).levels for bits in (1, 2, 4, 5, 8, 16)] == [2, 4, 16, 31, 255, 65535]
    for bits in (5, 8, 16):
        assert MaxAbs(bits)(torch.tensor([0.0, 1.0]))[0].item() == 0


def test_up_to_4_bits_only_the_clipping_tells_it_from_sawb():
    weight = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    for bits in (2, 3, 4):
        assert MaxAbs(bits).levels == SAWB(bits).levels
        errors = [(each(weight) - weight).square().mean() for each in (SAWB(bits), MaxAbs(bits))]
        assert errors[0] < errors[1]


def test_weights_of_zero_and_of_one_magnitude_stay_as_they_are():
    for bits in (1, 2, 8):
        for weight in (torch.zeros(3), torch.tensor([0.5, -0.5])):
            assert torch.equal(MaxAbs(bits)(weight), weight)


def test_the_gradient_goes_straight_through():
    weight = torch.randn(3, 4, requires_grad=True)
    (MaxAbs(8)(weight) * 2).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((3, 4), 2.0))


def test_bad_input_is_one_line():
    for bits in (0, 17, 32, True, 2.5):
        with pytest.raises(InputError, match="must be a whole number from 1 to 16"):
            MaxAbs(bits)  # type: ignore[arg-type]
    for levels in (1, 5, True, 2.5):
        with pytest.raises(InputError, match="2 bits name 2 to 4"):
            MaxAbs(2, levels=levels)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="NaN or infinite"):
        MaxAbs(8).codes(torch.tensor([1.0, float("nan")]))


def test_what_a_width_gets():
    for bits in range(1, 17):
        chosen = weight_quantizer(bits, per_channel=True)
        assert isinstance(chosen, SAWB if bits <= 4 else MaxAbs)
        assert (chosen.bits, chosen.per_channel, chosen.axis) == (bits, True, 0)
    assert weight_quantizer(8, per_channel=True, axis=1).axis == 1
    for bits in (0, 17, 32):
        with pytest.raises(InputError, match="must be a whole number"):
            weight_quantizer(bits, per_channel=False)


def test_a_transposed_convolution_has_its_channels_on_axis_1():
    torch.manual_seed(0)
    layer = nn.ConvTranspose2d(3, 5, 2)
    quantizer = weight_quantizer(8, per_channel=True, axis=1)
    parametrize.register_parametrization(layer, "weight", quantizer)
    assert quantizer.clipping(layer.weight).shape == (5,)
    assert layer(torch.randn(1, 3, 4, 4)).shape == (1, 5, 5, 5)
