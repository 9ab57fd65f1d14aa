"""What users hang at layers goes on in whole numbers, and parts of a model run alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from roofline.quantization.folding import fold_batch_norms
from roofline.quantization.integer_models import integer_layers, integer_model
from tests.quantization.quantized_examples import (
    both,
    largest_error,
    quantized,
    with_lively_norms,
)


def _chain() -> Any:
    torch.manual_seed(0)
    layers = [quantized(nn.Linear(4, 6), 4, 4, signed=True), nn.ReLU()]
    return nn.Sequential(
        *layers, quantized(nn.Linear(6, 6), 4, 4), quantized(nn.Linear(6, 3), 4, 4)
    )


@pytest.mark.parametrize("place", [0, 2, 3])
def test_hooks_see_floats_and_may_change_them(place: int) -> None:
    model, x = _chain(), torch.randn(5, 4)
    seen: list[torch.Tensor] = []

    def before(module: nn.Module, args: Any) -> Any:
        seen.append(args[0])
        return (args[0] * 0.5,)

    def after(module: nn.Module, args: Any, kwargs: Any, result: Any) -> Any:
        seen.append(result)
        return result + 1.0

    plain, _ = both(model, x)
    model[place].register_forward_pre_hook(before)
    model[place].register_forward_hook(after, with_kwargs=True)
    with torch.no_grad():
        expected = model(x)
    assert largest_error(expected, plain) > 0.1
    ours = list(seen)
    seen.clear()
    whole = integer_model(model)
    with torch.no_grad():
        assert largest_error(expected, whole(x)) < 1e-5
    torch.testing.assert_close(seen, ours)
    taking = {name: each.takes_codes for name, each in integer_layers(whole).items()}
    assert (
        taking
        == {
            "0": {"2": False, "3": True},
            "2": {"0": False, "3": False},
            "3": {"0": False, "2": True},
        }[str(place)]
    )


def test_a_part_that_runs_alone_takes_floats() -> None:
    model, x = _chain(), torch.rand(5, 6)
    whole: Any = integer_model(model)
    assert whole[3].takes_codes
    with torch.no_grad():
        torch.testing.assert_close(whole[3](x), model[3](x))


@pytest.mark.parametrize("bits", [4, 8, 12, 16])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_maxima_of_codes_of_every_type(bits: int, signed: bool, dimensions: int) -> None:
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    pool = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[dimensions - 1]
    torch.manual_seed(0)
    model = nn.Sequential(
        quantized(kind(2, 3, 3), 4, 4, signed=True),
        pool(3, stride=1, padding=1, ceil_mode=True),
        quantized(kind(3, 2, 1), 4, bits, alpha=1.0, signed=signed),
    ).double()
    x = torch.randn(2, 2, *(6,) * dimensions, dtype=torch.float64)
    expected, found = both(model, x)
    assert largest_error(expected, found) < 1e-12


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(4, 6),
        nn.Conv1d(4, 6, 3, groups=2),
        nn.ConvTranspose2d(4, 6, (3, 2), groups=2),
    ],
)
def test_a_layer_tells_its_weight(layer: nn.Module, per_channel: bool) -> None:
    """T5 asks its last linear layer for the type of its weight, and gives it what has that type."""
    made: Any = quantized(copy.deepcopy(layer), 3, 4, per_channel=per_channel)
    whole: Any = integer_model(made)
    torch.testing.assert_close(whole.weight, made.weight.detach())
    norm = nn.BatchNorm1d if isinstance(layer, nn.Conv1d) else nn.BatchNorm2d
    if not isinstance(layer, nn.Linear):
        folded: Any = fold_batch_norms(with_lively_norms(nn.Sequential(made, norm(6))))
        both_ways: Any = integer_model(folded)
        torch.testing.assert_close(both_ways[0].weight, folded[0].weight.detach())
