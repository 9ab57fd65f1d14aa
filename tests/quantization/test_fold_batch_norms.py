"""`fold_batch_norms`: the same outputs and codes without batch norms, and what it leaves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
from tests.quantization.small_networks import Of, image, small_resnet, with_lively_norms


def _norms(model: nn.Module) -> list[str]:
    kind = nn.modules.batchnorm._BatchNorm
    return [name for name, each in model.named_modules() if isinstance(each, kind)]


def _images() -> torch.Tensor:
    return torch.randn(3, 2, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _model(*layers: nn.Module) -> Any:
    torch.manual_seed(0)
    return with_lively_norms(nn.Sequential(*layers)).double()


def _left(model: nn.Module, inputs: Any = None, x: torch.Tensor | None = None) -> list[str]:
    """The names of the batch norms that stay, with a warning; outputs do, too."""
    x = _images() if x is None else x
    with pytest.warns(UserWarning, match="not folded"):
        folded = fold_batch_norms(model, inputs)
    torch.testing.assert_close(folded(x), model(x))
    return _norms(folded)


def _codes(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: each.weight_quantizer.codes(each.float_weight)[0]
        for name, each in quantized_layers(model).items()
        if each.weight_quantizer is not None
    }


@pytest.mark.parametrize("inputs", [None, image()], ids=["code", "run"])
@pytest.mark.parametrize(
    "policy",
    [Policy(), Policy(shortcut="low"), Policy(per_channel=True), Policy(weights=32)],
    ids=["full", "low", "per channel", "activations"],
)
def test_outputs_and_codes_stay(policy: Policy, inputs: Any) -> None:
    # In float64 nothing that lies between two levels falls to the other side.
    model = quantize_model(small_resnet().double(), policy)
    given = None if inputs is None else inputs.double()
    folded = fold_batch_norms(model, given)
    assert not _norms(folded)
    assert len(_norms(model)) == 6
    x = image(8).double()
    torch.testing.assert_close(folded(x), model(x))
    before, after = _codes(model), _codes(folded)
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_scale_is_kept_by_channel() -> None:
    model = quantize_model(small_resnet())
    folded = quantized_layers(fold_batch_norms(model))
    norm: Any = model.get_submodule("same.bn1")
    expected = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    scale = folded["same.conv1"].channel_scale
    assert scale is not None
    torch.testing.assert_close(scale, expected.detach())
    layer: Any = folded["same.conv1"].module
    torch.testing.assert_close(layer.bias, norm.bias - norm.running_mean * expected)
    assert folded["head"].channel_scale is None


def test_a_model_in_training_is_folded_for_inference_and_stays_in_training() -> None:
    model = quantize_model(small_resnet().train())
    folded = fold_batch_norms(model)
    assert not any(each.training for each in folded.modules())
    assert all(each.training for each in model.modules())
    torch.testing.assert_close(folded(image()), model.eval()(image()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions_with_a_bias(groups: int) -> None:
    transposed = nn.ConvTranspose2d(4, 6, 3, stride=2, groups=groups)
    model = _model(nn.Conv2d(2, 4, 1), transposed, nn.BatchNorm2d(6), nn.Conv2d(6, 1, 1))
    for is_per_channel in (False, True):
        quantized = quantize_model(model, Policy(first_last=2, per_channel=is_per_channel))
        folded = fold_batch_norms(quantized)
        torch.testing.assert_close(folded(_images()), quantized(_images()))
        assert not _norms(folded)


def test_behind_linear_layers_it_takes_inputs_to_know() -> None:
    quantized = quantize_model(
        _model(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    )
    with pytest.warns(UserWarning, match=r"not folded: 1; give inputs"):
        assert _norms(fold_batch_norms(quantized)) == ["1"]
    x = torch.randn(3, 4, dtype=torch.float64)
    folded = fold_batch_norms(quantized, x)
    assert not _norms(folded)
    torch.testing.assert_close(folded(x), quantized(x))


def test_of_three_dimensions_the_channels_are_others() -> None:
    # Batch norm scales the places of the sequence, of which there are as many as features.
    model = _model(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    assert _left(quantize_model(model), x, x) == ["1"]


STRANGE: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "read twice": lambda m, y: m.bn(y) + y,
    "given": lambda m, y: (m.bn(y), y),
    "norm twice": lambda m, y: m.bn(m.other(m.bn(y))),
    "layer twice": lambda m, y: m.conv(m.bn(y)),
    "between": lambda m, y: m.bn(torch.relu(y)),
    "batch": lambda m, y: m.bn(y),
}


@pytest.mark.parametrize("is_run", [False, True], ids=["code", "run"])
@pytest.mark.parametrize("way", STRANGE)
def test_what_cannot_be_folded_stays_and_is_named(way: str, is_run: bool) -> None:
    model = Of(
        lambda m, x: STRANGE[way](m, m.conv(x)),
        conv=nn.Conv2d(2, 2, 1),
        other=nn.Conv2d(2, 2, 1),
        bn=nn.BatchNorm2d(2, track_running_stats=way != "batch"),
    )
    given = _images() if is_run else None
    with warnings.catch_warnings():
        # Of layers that do not run.
        warnings.simplefilter("ignore")
        quantized = quantize_model(with_lively_norms(model).double(), Policy(), given)
    assert _left(quantized, given) == ["bn"]


_FLOATS = LayerBits(weights=32, activations=32)


class _Activating(nn.BatchNorm2d):
    """A batch norm and a ReLU in one module, as timm has them."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        kept: Any = self
        return functional.batch_norm(
            input, kept.running_mean, kept.running_var, self.weight, self.bias, eps=self.eps
        ).relu()


@pytest.mark.parametrize("is_run", [False, True], ids=["code", "run"])
def test_a_norm_that_activates_too(is_run: bool) -> None:
    model = _model(nn.Conv2d(2, 4, 3), _Activating(4), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3))
    given = _images() if is_run else None
    assert _left(quantize_model(model, Policy(), given), given) == ["1"]


@pytest.mark.parametrize("place", [0, 1])
def test_what_users_hung_hooks_at(place: int) -> None:
    model = _model(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1), nn.BatchNorm2d(3))
    quantized: Any = quantize_model(model, Policy())
    quantized[place].register_forward_hook(lambda module, args, result: result.clamp(max=0.1))
    assert _left(quantized) == ["1"]


@pytest.mark.parametrize("is_run", [False, True], ids=["code", "run"])
def test_float_weights_that_two_layers_have(is_run: bool) -> None:
    model = _model(
        *(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()),
        *(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.Conv2d(2, 1, 1)),
    )
    model[3].weight = model[0].weight
    policy = Policy(layers={"0": _FLOATS, "3": _FLOATS})
    given = _images() if is_run else None
    assert _left(quantize_model(model, policy, given), given) == ["1", "4"]


def test_float_weights_that_are_computed() -> None:
    model = _model(
        nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 3)),
        *(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 1)),
    )
    assert _left(quantize_model(model, Policy(layers={"0": _FLOATS}))) == ["1"]


@pytest.mark.parametrize("is_transposed", [False, True])
def test_two_norms_folded_one_after_the_other(is_transposed: bool) -> None:
    layer: Any = (nn.ConvTranspose2d if is_transposed else nn.Conv2d)(2, 4, 3, groups=2)
    model = _model(layer, nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 1))
    policy = Policy(weights=4, activations=4, first_last=4, per_channel=True)
    quantized = quantize_model(model, policy)
    with pytest.warns(UserWarning, match="not folded: 2"):
        once = fold_batch_norms(quantized, _images())
    twice = fold_batch_norms(once, _images())
    with torch.no_grad():
        expected = quantized(_images())
        torch.testing.assert_close(twice(_images()), expected)
        torch.testing.assert_close(integer_model(twice)(_images()), expected)
    norms: Any = quantized
    factors = [each.weight / (each.running_var + each.eps).sqrt() for each in (norms[1], norms[2])]
    scale = quantized_layers(twice)["0"].channel_scale
    assert scale is not None
    torch.testing.assert_close(scale, (factors[0] * factors[1]).detach())
