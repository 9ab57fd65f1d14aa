"""`calibrate_clipping`: α by what layers read, where types end, and what is wrong with batches."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError, ModelError
from roofline.quantization import clipping
from roofline.quantization.clipping import Method, calibrate_clipping
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantized_modules import quantized_layers
from roofline.quantization.quantizing import quantize_model
from tests.quantization.small_networks import chain, image, small_resnet


def _read(values: torch.Tensor, bits: int = 2, *, is_signed: bool = False) -> Any:
    """A model whose second layer reads `values`: the first one is the identity."""
    layers: list[nn.Module] = [nn.Linear(1, 1, bias=False)]
    if not is_signed:
        layers.append(nn.ReLU())
    layers.append(nn.Linear(1, 1))
    model = nn.Sequential(*layers)
    first: Any = model[0]
    nn.init.ones_(first.weight)
    own = {
        "0": LayerBits(weights=32, activations=32),
        str(len(layers) - 1): LayerBits(weights=2, activations=bits),
    }
    return quantize_model(model, Policy(layers=own)), values.reshape(-1, 1)


def _alpha(
    values: torch.Tensor, method: Method, bits: int = 2, *, is_signed: bool = False
) -> float:
    model, batch = _read(values, bits, is_signed=is_signed)
    (found,) = calibrate_clipping(model, [batch], method=method).values()
    (layer,) = quantized_layers(model).values()
    assert layer.input_quantizer is not None
    assert float(layer.input_quantizer.alpha.detach()) == found
    return found


def test_max_is_the_largest_value_or_magnitude() -> None:
    values = torch.tensor([-5.0, -1.0, 0.5, 3.0])
    assert _alpha(values, "max") == 3.0
    assert _alpha(values, "max", is_signed=True) == 5.0
    # To the last place in float64.
    model, x = quantize_model(chain().double()), torch.randn(4, 6, dtype=torch.float64)
    assert calibrate_clipping(model, [x], method="max")["0"] == float(x.abs().max())


def test_percentile_clips_one_of_a_thousand() -> None:
    values = torch.arange(1.0, 5001.0)[torch.randperm(5000)]
    assert _alpha(values, "percentile") == 4995.0
    assert _alpha(-values, "percentile", is_signed=True) == 4995.0


def _error(values: torch.Tensor, alpha: float, bits: int, is_signed: bool) -> float:
    """The mean squared distance to the nearest level, by looking at every level."""
    low = -(2 ** (bits - 1) - 1) if is_signed else 0
    high = 2 ** (bits - 1) - 1 if is_signed else 2**bits - 1
    levels = torch.arange(low, high + 1, dtype=torch.float64) * alpha / high
    return float((values.double().unsqueeze(-1) - levels).abs().amin(dim=-1).square().mean())


def _drawn(shape: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(500, generator=generator)
    uniform = torch.rand(500, generator=generator)
    match shape:
        case "exponential":
            return values.sign() * -uniform.clamp(1e-6).log()
        case "uniform":
            return uniform * 2 - 1
        case "outlier":
            values[0] = 1000.0
        case _:
            pass
    return values


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("shape", ["normal", "exponential", "uniform", "outlier"])
def test_mse_is_as_good_as_a_fine_search(shape: str, bits: int, is_signed: bool) -> None:
    read = _drawn(shape) if is_signed else _drawn(shape).clamp(min=0)
    found = _error(read, _alpha(read, "mse", bits, is_signed=is_signed), bits, is_signed)
    largest = float(read.abs().max())
    tried = [largest * 10 ** (-each / 300) for each in range(1200)]
    best = min(_error(read, alpha, bits, is_signed) for alpha in tried)
    assert found <= 1.005 * best


def test_batches_of_all_kinds() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.zeros(4)
    expected = calibrate_clipping(quantize_model(chain()), [x])
    whole: list[Any] = [x, [(x, labels)], [[x]], [{"input": x}], [roofline.Inputs(x)]]
    # Not all sequences have slices.
    whole.append([deque([x, labels])])
    for batches in whole:
        assert calibrate_clipping(quantize_model(chain()), batches) == expected
    parts: list[Any] = [
        (each for each in (x[:1], x[1:])),
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), batch_size=2),
    ]
    for batches in parts:
        # Products of fewer rows are added up in another order.
        found = calibrate_clipping(quantize_model(chain()), batches)
        assert found == pytest.approx(expected, rel=1e-6)


def test_of_more_values_than_are_kept_evenly_many_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clipping, "_MOST_KEPT", 100)
    seen = clipping._ObservedValues("it")
    values = torch.arange(1.0, 1001.0)
    for batch in values.split(37):
        seen.add(batch, is_signed=False)
    assert seen.largest == 1000.0
    assert torch.equal(torch.cat(seen.kept), values[::16].double())


def test_the_rest_of_the_model_stays_as_it_was() -> None:
    model = quantize_model(small_resnet().train(), Policy(shortcut="low"))
    model.get_submodule("bn").eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    modes = {name: each.training for name, each in model.named_modules()}
    alphas = calibrate_clipping(model, [image()])
    for name, value in model.state_dict().items():
        assert name.endswith("alpha") or torch.equal(value, before[name]), name
    assert {name: each.training for name, each in model.named_modules()} == modes
    assert set(alphas) == {*quantized_layers(model), "same"}
    assert alphas["same"] == alphas["same.conv1"]
    assert not any(each._forward_hooks for each in model.modules())


def test_two_bits_are_nearer_to_the_float_model_for_it() -> None:
    model = small_resnet()
    policy = Policy(weights=32, activations=4, first_last=8)
    plain, calibrated = quantize_model(model, policy), quantize_model(model, policy)
    calibrate_clipping(calibrated, [image(16, seed=2)])
    errors = [
        float((each(image()) - model(image())).norm().detach()) for each in (plain, calibrated)
    ]
    assert errors[1] < 0.5 * errors[0]


def test_where_nothing_comes_alpha_stays() -> None:
    model, batch = _read(torch.tensor([-1.0, -2.0]))
    with pytest.warns(UserWarning, match=r"no input above zero in 2: α unchanged"):
        assert calibrate_clipping(model, [batch]) == {"2": 8.0}
    # Training afterwards warns of nothing: α was 8 and is a thousandth of it, which is no sign of
    # training that went wrong.
    model, batch = _read(torch.rand(100) * 1e-3)
    model.train()(batch)
    calibrate_clipping(model, [batch])
    model.train()(batch).sum().backward()


# -- what is wrong ---------------------------------------------------------------------------------


class _Long:
    def __repr__(self) -> str:
        return "a\nb" * 500


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([], "batches: none given"),
        (5, "batches: expected a sequence of tensors, got 5"),
        (["1x6"], "batches: expected tensors, Inputs"),
        ([7], "batches: expected tensors, Inputs"),
        ([roofline.Inputs((4, 6))], "shapes contain no values"),
        ([torch.full((2, 6), float("nan"))], "layer '0' reads NaN or infinity"),
        (np.zeros((40, 6)), "batches: expected tensors"),
        ([np.zeros((40, 6))], "batches: expected tensors"),
        ([object()], "batches: expected tensors"),
        (_Long(), "batches: expected a sequence of tensors"),
    ],
)
def test_wrong_batches_are_refused_in_a_line(batches: Any, said: str) -> None:
    model = quantize_model(chain())
    with pytest.raises(InputError, match=said) as error:
        calibrate_clipping(model, batches)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200
    assert not any(each._forward_hooks for each in model.modules())


def test_a_model_that_raises_is_left_as_it_was() -> None:
    model = quantize_model(chain()).train()
    with pytest.raises(ModelError, match=r"Sequential rejects batch 1: .*shapes") as error:
        calibrate_clipping(model, [torch.randn(2, 6), torch.randn(2, 5)])
    assert "\n" not in str(error.value)
    assert all(each.training for each in model.modules())
    assert not any(each._forward_hooks for each in model.modules())
    assert {float(each) for name, each in model.state_dict().items() if "alpha" in name} == {8.0}

    class Stubborn(nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            if not mode:
                raise RuntimeError("no")
            return super().train(mode)

    stubborn = Stubborn(*quantize_model(chain()).children()).train()
    with pytest.raises(RuntimeError, match="no"):
        calibrate_clipping(stubborn, [torch.randn(2, 6)])
    assert all(each.training for each in stubborn.modules())
    assert not any("forward" in vars(each) for each in stubborn.modules())


def test_other_methods_and_models_are_refused() -> None:
    method: Any = "kl"
    with pytest.raises(InputError, match="method='kl': choose mse, percentile, max"):
        calibrate_clipping(quantize_model(chain()), [], method=method)
    with pytest.raises(InputError, match="Sequential has no quantized activations"):
        calibrate_clipping(chain(), [torch.randn(2, 6)])


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
    with pytest.raises(InputError, match="clipping value"):
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
