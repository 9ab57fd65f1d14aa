"""Layers that multiply and sum whole numbers give what the fake-quantized ones give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from roofline.errors import InputError
from roofline.quantization.integer_models import IntegerLayer, integer_model
from tests.quantization.quantized_examples import both, largest_error, quantized

# -- by hand ---------------------------------------------------------------------------------------


def test_a_linear_layer_by_hand() -> None:
    layer = nn.Linear(3, 1)
    with torch.no_grad():
        # 255 levels, so that the largest is 254 steps of 0.005 away from zero.
        layer.weight.copy_(torch.tensor([[1.27, -0.5, 0.0]]))
        layer.bias.fill_(0.25)
    whole = integer_model(quantized(layer, 8, 2, alpha=3.0))
    assert isinstance(whole, IntegerLayer)
    # Of two bits codes are -3, -1, 1 and 3.
    few = nn.Linear(4, 1, bias=False)
    few.weight.data.copy_(torch.tensor([[-0.9, -0.2, 0.1, 1.1]]))
    of_two: Any = integer_model(quantized(few, 2, 2))
    assert of_two.whole.tolist() == [[-3, -1, 1, 3]]
    assert whole.whole.tolist() == [[254, -100, 0]]
    # Steps of 1 from 0 to 3: 1.6 is 2, 9 is 3, 0.4 is 0; and 2 · 254 - 3 · 100 = 208.
    assert whole.accumulate(torch.tensor([[2, 3, 0]], dtype=torch.int32)).tolist() == [[208]]
    found = whole(torch.tensor([[1.6, 9.0, 0.4]]))
    assert found.item() == pytest.approx(208 * 0.005 + 0.25, rel=1e-6)


def test_sums_are_int32_to_the_last_that_it_holds_and_exact_beyond() -> None:
    # 255 * 254 = 64,770 a product; 33,155 of them are below 2^31, 33,156 are not.
    for inputs, dtype in ((33_155, torch.int32), (33_156, torch.int64)):
        layer = nn.Linear(inputs, 2, bias=False)
        with torch.no_grad():
            layer.weight[0] = 1.0
            layer.weight[1] = -1.0
        whole = integer_model(quantized(layer, 8, 8, alpha=1.0))
        assert isinstance(whole, IntegerLayer)
        assert whole.accumulator == dtype
        sums = whole.accumulate(torch.full((1, inputs), 255, dtype=dtype))
        assert sums.dtype == dtype
        assert sums.tolist() == [[inputs * 64_770, -inputs * 64_770]]
        # Each output is the number of inputs: 1.0 times 1.0, summed.
        found = whole(torch.full((1, inputs), 5.0))
        assert found.tolist() == [[pytest.approx(inputs), pytest.approx(-inputs)]]


# -- every kind of layer ---------------------------------------------------------------------------


@st.composite
def bits(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "weights": draw(st.integers(1, 8)),
        "activations": draw(st.integers(1, 8)),
        "alpha": draw(st.sampled_from([0.3, 1.0, 2.7])),
        "signed": draw(st.booleans()),
        "per_channel": draw(st.booleans()),
    }


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """A convolution, transposed or not, and the shape of what it reads."""
    dimensions, is_transposed = draw(st.integers(1, 3)), draw(st.booleans())

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(dimensions))

    kernel, dilation, stride = each(1 + is_transposed, 3), each(1, 2), each(1, 3)
    options: dict[str, Any] = {"padding": each(0, 1 if is_transposed else 2)}
    if is_transposed:
        options["output_padding"] = tuple(draw(st.integers(0, step - 1)) for step in stride)
    else:
        modes = ["zeros", "reflect", "replicate", "circular"]
        options["padding_mode"] = draw(st.sampled_from(modes))
        if draw(st.booleans()):
            options["padding"] = draw(st.sampled_from(["valid", "same"]))
            stride = (1,) * dimensions if options["padding"] == "same" else stride
    sizes = tuple(
        spread * (extent - 1) + 1 + draw(st.integers(2, 4))
        for spread, extent in zip(dilation, kernel, strict=True)
    )
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels = groups * draw(st.integers(1, 2))
    kind = getattr(nn, f"Conv{'Transpose' * is_transposed}{dimensions}d")
    layer = kind(
        *(channels, groups * draw(st.integers(1, 3)), kernel, stride),
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        **options,
    )
    batch = draw(st.sampled_from([(), (1,), (2,)]))
    return layer, (*batch, channels, *sizes)


@st.composite
def linears(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """A linear layer, and the shape of what it reads."""
    inputs = draw(st.integers(1, 9))
    before = draw(st.sampled_from([(), (1,), (4,), (2, 3)]))
    return nn.Linear(inputs, draw(st.integers(1, 5)), bias=draw(st.booleans())), (*before, inputs)


# torch says once in a process that it copies what it pads.
@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@settings(max_examples=150)
@given(st.one_of(convolutions(), convolutions(), linears()), bits(), st.integers(0))
def test_a_layer_of_any_kind_is_what_it_is_in_floats(
    case: tuple[nn.Module, tuple[int, ...]], bits: dict[str, Any], seed: int
) -> None:
    layer, shape = case
    generator = torch.Generator().manual_seed(seed % 2**31)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        terms = max(1.0, bits["alpha"]) * sum(
            float(each.abs().sum()) for each in layer.parameters()
        )
    x = 2 * torch.randn(shape, generator=generator)
    model = quantized(layer, **bits)
    # Sums of floats are rounded by what is summed up, of which little may be left.
    for kind, relative in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        expected, found = both(model.to(kind), x.to(kind))
        assert found.dtype == kind
        rounded = max(relative * float(expected.abs().max()), 4 * torch.finfo(kind).eps * terms)
        assert float((expected - found).abs().max()) <= rounded


@pytest.mark.parametrize("weights", [9, 12, 16])
@pytest.mark.parametrize("activations", [2, 12, 16])
def test_more_bits_than_a_byte(weights: int, activations: int) -> None:
    torch.manual_seed(0)
    layer = quantized(nn.Conv2d(3, 5, 3, padding=1), weights, activations).double()
    expected, found = both(layer, torch.randn(2, 3, 6, 6, dtype=torch.float64))
    assert largest_error(expected, found) < 1e-12


@pytest.mark.parametrize("levels", [3, 15])
def test_levels_with_a_zero(levels: int) -> None:
    from torch.nn.utils import parametrize

    from roofline.quantization.quantizers import SAWB

    torch.manual_seed(0)
    layer = nn.Linear(40, 6)
    bits = 2 if levels == 3 else 4
    parametrize.register_parametrization(layer, "weight", SAWB(bits, levels=levels))
    quantized(layer, None, 4)
    whole = integer_model(layer)
    assert isinstance(whole, IntegerLayer)
    assert set(whole.whole.unique().tolist()) <= set(range(-levels + 1, levels, 2))
    assert 0 in whole.whole
    expected, found = both(layer, torch.rand(3, 40))
    assert largest_error(expected, found) < 1e-5


def test_a_transposed_convolution_takes_an_output_size() -> None:
    torch.manual_seed(0)
    layer = quantized(nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), 4, 4).eval()
    whole, x = integer_model(layer), torch.rand(1, 2, 4, 5)
    for size in ([8, 9], [7, 10], [1, 3, 8, 10]):
        assert largest_error(layer(x, size).detach(), whole(x, size)) < 1e-5
    with pytest.raises(InputError, match="impossible"):
        whole(x, [11, 9])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_as_near_as_they_round(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = quantized(nn.Linear(16, 4), 2, 2).to(dtype)
    expected, found = both(layer, torch.rand(3, 16).to(dtype))
    assert largest_error(expected, found) < 4 * torch.finfo(dtype).eps


def test_an_empty_batch_gives_an_empty_result() -> None:
    for layer, shape in ((nn.Conv2d(2, 3, 3), (0, 2, 5, 5)), (nn.Linear(4, 2), (0, 4))):
        expected, found = both(quantized(layer), torch.empty(shape))
        assert found.shape == expected.shape


def test_scales_along_inputs_cannot_be_taken_out_of_sums() -> None:
    from roofline.quantization.quantized_modules import attach_weight_quantizer
    from roofline.quantization.quantizers import weight_quantizer

    layer = nn.ConvTranspose1d(2, 3, 2)
    attach_weight_quantizer(layer, weight_quantizer(2, per_channel=True, axis=0))
    layer = quantized(layer, None, 2)
    with pytest.raises(InputError, match="per output channel"):
        integer_model(layer)
