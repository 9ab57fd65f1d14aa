"""`calibrate_clipping` where α is none yet, where types end, and what is wrong with batches."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from roofline.errors import InputError
from roofline.quantization.clipping import Method, calibrate_clipping
from roofline.quantization.policy import Policy
from roofline.quantization.quantized_modules import quantized_layers
from roofline.quantization.quantizing import quantize_model
from tests.quantization.small_networks import chain


class _Long:
    def __repr__(self) -> str:
        return "a\nb" * 500


_METHODS: tuple[Method, ...] = ("mse", "percentile", "max")


@pytest.mark.parametrize("value", [-0.3, 0.0, float("nan"), float("inf")])
def test_alpha_that_is_none_is_found_anew(value: float) -> None:
    """As the message about such an α advises."""
    model, x = quantize_model(chain()), torch.randn(4, 6)
    expected = calibrate_clipping(quantize_model(chain()), [x])
    for layer in quantized_layers(model).values():
        assert layer.input_quantizer is not None
        with torch.no_grad():
            layer.input_quantizer.alpha.fill_(value)
    with pytest.raises(InputError, match="its clipping value is"):
        model(x)
    assert calibrate_clipping(model, [x]) == expected
    assert model(x).isfinite().all()


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        *((torch.float16, 1e-6), (torch.float16, 1e-4), (torch.float16, 6e4)),
        *((torch.bfloat16, 1e-38), (torch.bfloat16, 1e38)),
        *((torch.float32, 1e-44), (torch.float32, 1e-38), (torch.float32, 3e38)),
        *((torch.float64, 1e-300), (torch.float64, 1e-60), (torch.float64, 1e60)),
    ],
)
def test_alpha_is_one_that_its_type_holds(
    dtype: torch.dtype, largest: float, method: Method
) -> None:
    layers = nn.Sequential(nn.Linear(4, 2, bias=False)).to(dtype)
    model = quantize_model(layers, Policy(first_last=4))
    x = (torch.rand(8, 4, dtype=torch.float64).mul_(largest)).to(dtype)
    (alpha,) = calibrate_clipping(model, [x], method=method).values()
    assert torch.finfo(dtype).tiny <= alpha <= torch.finfo(dtype).max
    # Where the type has one that is as large.
    if float(x.max()) > 2 * torch.finfo(dtype).tiny:
        assert 0.3 * float(x.max()) < alpha <= 1.01 * float(x.max())
    with torch.no_grad():
        layer = quantized_layers(model)["0"].input_quantizer
        assert layer is not None
        assert layer(x).isfinite().all()


def test_the_largest_is_kept_to_the_last_place_in_float64() -> None:
    model = quantize_model(chain().double())
    x = torch.randn(4, 6, dtype=torch.float64)
    assert calibrate_clipping(model, [x], method="max")["0"] == float(x.abs().max())


@pytest.mark.parametrize(
    "batches",
    [
        np.zeros((40, 6)),
        [np.zeros((40, 6))],
        [object()],
        _Long(),
    ],
)
def test_what_is_no_batch_is_shown_on_one_line(batches: Any) -> None:
    with pytest.raises(InputError, match="batches: expected tensors") as error:
        calibrate_clipping(quantize_model(chain()), batches)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


def test_sequences_that_have_no_slices_are_batches_too() -> None:
    x = torch.randn(4, 6)
    expected = calibrate_clipping(quantize_model(chain()), [x])
    assert calibrate_clipping(quantize_model(chain()), [deque([x, torch.zeros(4)])]) == expected


def test_a_model_that_cannot_be_put_into_inference_is_left_as_it_was() -> None:
    class Stubborn(nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            if not mode:
                raise RuntimeError("no")
            return super().train(mode)

    torch.manual_seed(0)
    model: Any = quantize_model(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)))
    stubborn = Stubborn(*model).train()
    with pytest.raises(RuntimeError, match="no"):
        calibrate_clipping(stubborn, [torch.randn(2, 6)])
    assert all(each.training for each in stubborn.modules())
    assert not any("forward" in vars(each) for each in stubborn.modules())
