"""`fold_batch_norms` leaves what it would break: norms that do more, weights that others have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from roofline.quantization.folding import fold_batch_norms
from roofline.quantization.integer_models import integer_model
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantized_modules import quantized_layers
from roofline.quantization.quantizing import quantize_model
from tests.quantization.quantized_examples import with_lively_norms

_FLOATS = LayerBits(weights=32, activations=32)


class _Activating(nn.BatchNorm2d):
    """A batch norm and a ReLU in one module, as timm has them."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        kept: Any = self
        return functional.batch_norm(
            input, kept.running_mean, kept.running_var, self.weight, self.bias, eps=self.eps
        ).relu()


def _images() -> torch.Tensor:
    return torch.randn(3, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _model(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    model: Any = with_lively_norms(nn.Sequential(*layers))
    return model.double()


def _left(model: nn.Module, inputs: Any) -> list[str]:
    """The names of the batch norms that stay; that outputs do, too."""
    with pytest.warns(UserWarning, match="not folded"):
        folded = fold_batch_norms(model, inputs)
    torch.testing.assert_close(folded(_images()), model(_images()))
    return [
        name
        for name, each in folded.named_modules()
        if isinstance(each, nn.modules.batchnorm._BatchNorm)
    ]


@pytest.mark.parametrize("is_run", [False, True], ids=["code", "run"])
def test_a_norm_that_activates_too(is_run: bool) -> None:
    model = _model(nn.Conv2d(2, 4, 3), _Activating(4), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3))
    given = _images() if is_run else None
    assert _left(quantize_model(model, Policy(), given), given) == ["1"]


@pytest.mark.parametrize("place", [0, 1])
def test_what_users_hung_hooks_at(place: int) -> None:
    model = _model(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3))
    quantised: Any = quantize_model(model, Policy())
    quantised[place].register_forward_hook(lambda module, args, result: result.clamp(max=0.1))
    assert _left(quantised, None) == ["1"]


@pytest.mark.parametrize("is_run", [False, True], ids=["code", "run"])
def test_float_weights_that_two_layers_have(is_run: bool) -> None:
    model = _model(
        *(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()),
        *(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 1)),
    )
    layers: Any = model
    layers[3].weight = layers[0].weight
    policy = Policy(layers={"0": _FLOATS, "3": _FLOATS})
    given = _images() if is_run else None
    assert _left(quantize_model(model, policy, given), given) == ["1", "4"]


def test_float_weights_that_are_computed() -> None:
    model = _model(
        nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 3)),
        *(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 1)),
    )
    assert _left(quantize_model(model, Policy(layers={"0": _FLOATS})), None) == ["1"]


@pytest.mark.parametrize("is_transposed", [False, True])
def test_two_norms_folded_one_after_the_other(is_transposed: bool) -> None:
    layer: Any = (nn.ConvTranspose2d if is_transposed else nn.Conv2d)(2, 4, 3, groups=2)
    model = _model(layer, nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 1))
    policy = Policy(weights=4, activations=4, first_last=4, per_channel=True)
    quantised = quantize_model(model, policy)
    with pytest.warns(UserWarning, match="not folded: 2"):
        once = fold_batch_norms(quantised, _images())
    twice = fold_batch_norms(once, _images())
    with torch.no_grad():
        expected = quantised(_images())
        torch.testing.assert_close(twice(_images()), expected)
        torch.testing.assert_close(integer_model(twice)(_images()), expected)
    norms: Any = quantised
    factors = [each.weight / (each.running_var + each.eps).sqrt() for each in (norms[1], norms[2])]
    scale = quantized_layers(twice)["0"].channel_scale
    assert scale is not None
    torch.testing.assert_close(scale, (factors[0] * factors[1]).detach())
