"""What errors of outputs are computed on, and models of which there are none."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError, ModelError
from roofline.pipeline.quantization_sensitivity import OutputErrors
from roofline.pipeline.runs import build_workload
from roofline.quantization import calibrate_clipping, quantize_model
from roofline.quantization.policy import LayerBits, Policy
from roofline.run import RunOptions
from roofline.workload.inputs import Inputs
from tests import builders

MACHINE = builders.profile(
    [builders.ceiling(1e9)], [builders.level("DRAM", None, {"read": {1: 1e9}})]
)


def errors_for(
    model: Any, x: Any, *, samples: Any = None, per_channel: bool = False
) -> OutputErrors:
    asked = build_workload(model, x, RunOptions())
    return OutputErrors(asked, samples, per_channel=per_channel)


def small() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def error_of(errors: OutputErrors, name: str, bits: LayerBits) -> float:
    return errors.layer_errors({name: [bits]}, lambda *_: None)[name, bits]


# -- what is run -----------------------------------------------------------------------------------


def test_a_transposed_convolution_has_a_scale_for_each_channel() -> None:
    """As `quantize_model` has it: along the second dimension of its weight."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 6, 3)).eval()
    with torch.no_grad():
        # One scale for all channels would do far more harm.
        last: nn.Module = model[2]
        factors = torch.tensor([1.0, 10.0, 0.1, 3.0, 0.01, 1.0])
        last.get_parameter("weight").mul_(factors.reshape(1, 6, 1, 1))
    x, bits = torch.randn(2, 3, 8, 8), LayerBits(weights=3, activations=4)
    floats = Policy(weights=32, activations=32, first_last=32, per_channel=True)
    alone = quantize_model(
        model,
        replace(floats, layers={"2": bits}),
        x,
    )
    calibrate_clipping(alone, [x])
    with torch.no_grad():
        one, other = model(x), alone.eval()(x)
    found = error_of(errors_for(model, x, per_channel=True), "2", bits)
    assert found == pytest.approx(float((one - other).norm() / one.norm()), rel=1e-4)


def test_a_model_that_is_built_here_has_the_same_weights_every_time() -> None:
    design = "linear(8,16)+relu()+linear(16,4)@2x8"
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = roofline.quantize(design, hardware=MACHINE, sensitivity=True)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    other = roofline.quantize(design, hardware=MACHINE, sensitivity=True)
    assert one.sensitivity == other.sensitivity


class Tokens(nn.Module):
    """Takes indices, numbers, and flags."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 2)

    def forward(
        self, tokens: torch.Tensor, noise: torch.Tensor, flags: torch.Tensor
    ) -> torch.Tensor:
        return self.head((self.table(tokens) + noise) * flags)


def test_it_says_what_numbers_the_inputs_are() -> None:
    asked = ["1x5:int64", "1x5x4", "1x5x1:bool"]
    errors = errors_for(Tokens(), asked)
    assert errors.inputs == "zeros and random numbers and ones of 1x5, 1x5x4, 1x5x1"
    tokens = torch.ones(1, 5, dtype=torch.int64)
    errors = errors_for(Tokens(), asked, samples=Inputs(tokens, (1, 5, 4), "1x5x1:bool"))
    assert errors.inputs == "given samples and random numbers and ones of 1x5, 1x5x4, 1x5x1"


def test_the_layer_is_as_it_was_after_a_model_that_raises() -> None:
    class Picky(nn.Module):
        """Raises once its first layer is quantized."""

        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(self.one.weight.unique()) <= 4:
                raise ValueError("few values\nin a weight")
            return self.two(torch.relu(self.one(x)))

    errors = errors_for(Picky(), torch.randn(2, 4))
    model: nn.Module = errors._model
    layer = model.get_submodule("one")
    weight, bits = layer.weight, LayerBits(weights=2, activations=2)
    with pytest.raises(ModelError, match=r"raised ValueError in its forward pass: few values in"):
        error_of(errors, "one", bits)
    assert layer.weight is weight
    assert not layer._forward_pre_hooks
    assert not hasattr(layer, "input_quantizer")
    assert error_of(errors, "two", bits) > 0


# -- of what there are no errors -------------------------------------------------------------------


@pytest.mark.parametrize("way", ["random", "count", "grows"])
def test_models_that_do_not_repeat_themselves(way: str) -> None:
    class Restless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 3), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            self.calls += 1
            match way:
                case "random":
                    return y * random.random()
                case "count":
                    return y + self.calls
                case _:
                    return torch.cat([y] * self.calls)

    words = (
        "a second pass changes the number" if way == "grows" else "requires deterministic outputs"
    )
    with pytest.raises(ModelError, match=words) as caught:
        errors_for(Restless(), torch.randn(2, 4))
    assert "\n" not in str(caught.value)


def test_draws_of_torch_are_the_same_in_each_pass() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(nn.functional.dropout(x, training=True))

    model, x, bits = Noisy(), torch.randn(8, 4), LayerBits(weights=4, activations=3)
    found: list[float] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(error_of(errors_for(model, x), "layer", bits))
    assert found[0] == found[1] > 0


def test_outputs_whose_sizes_depend_on_values_are_one_line() -> None:
    class Chosen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.two(torch.relu(self.one(x)))
            return y[y > 0]

    torch.manual_seed(0)
    errors = errors_for(Chosen(), torch.randn(32, 4))
    bits = LayerBits(weights=1, activations=1)
    with pytest.raises(
        ModelError, match="layer 'one' in w1a1 changes the number or sizes of outputs"
    ) as caught:
        error_of(errors, "one", bits)
    assert "\n" not in str(caught.value)


def test_outputs_that_are_whole_numbers_have_no_error() -> None:
    class Names(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).argmax(dim=1)

    with pytest.raises(ModelError, match="floating-point outputs"):
        errors_for(Names(), torch.randn(2, 4))


def test_outputs_of_only_zeros_have_no_relative_error() -> None:
    last = nn.Linear(3, 2, bias=False)
    nn.init.zeros_(last.weight)
    errors = errors_for(nn.Sequential(nn.Linear(4, 3), last), torch.randn(2, 4))
    bits = LayerBits(weights=2, activations=2)
    assert [error_of(errors, name, bits) for name in ("0", "1")] == [0.0, 0.0]


def test_weights_that_are_not_numbers_are_named() -> None:
    model = small()
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan  # pyright: ignore[reportIndexIssue]
    with pytest.raises(ModelError, match="NaN"):
        errors_for(model, torch.randn(2, 4))


def test_samples_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="inputs"):
        errors_for(small(), torch.randn(2, 4), samples=7)


def test_samples_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(ModelError, match="forward pass") as raised:
        errors_for(small(), torch.randn(2, 4), samples=Inputs(torch.randn(2, 5)))
    assert "\n" not in str(raised.value)
