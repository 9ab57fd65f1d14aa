"""What layers read below zero, and which blocks are given what their shortcuts carry."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import InputError
from roofline.quantization.packed_models import packed_state
from roofline.quantization.policy import Policy
from roofline.quantization.quantized_modules import quantized_entrances, quantized_layers
from roofline.quantization.quantizing import quantize_model
from roofline.quantization.tracing import traced

_LOW = Policy(shortcut="low")


class _Filled(nn.Module):
    """The second layer reads a tensor that two operators wrote, each a half."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        joined = torch.zeros_like(x)
        joined[:, :2] = torch.relu(x[:, :2]) if self.way == "above zero" else x[:, :2]
        joined[:, 2:] = torch.relu(x[:, 2:])
        return self.second(joined)


def test_what_several_operators_wrote_may_be_below_zero() -> None:
    layers = traced(_Filled("below zero").eval(), (2, 1, 6, 6)).layers
    assert layers["second"].is_signed


class _Add(nn.Module):
    """A block with a second argument that need not be given."""

    def __init__(self, has_layer: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4) if has_layer else nn.Identity()

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        x = self.layer(x)
        return x if skip is None else x + skip


class _Skipping(nn.Module):
    """As in networks of encoder and decoder: what is carried is not the first argument."""

    def __init__(self, has_layer: bool) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(4, 4), nn.Linear(4, 4)
        self.block = _Add(has_layer)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        carried = torch.relu(self.first(x))
        return self.last(self.block(self.inner(carried), carried))


@pytest.mark.parametrize("inputs", [None, (3, 4)], ids=["code", "run"])
@pytest.mark.parametrize("has_layer", [True, False])
def test_a_shortcut_that_comes_as_another_argument_is_left(has_layer: bool, inputs: Any) -> None:
    with pytest.warns(UserWarning, match="shortcuts left in floats: in block; what they carry"):
        model = quantize_model(_Skipping(has_layer), _LOW, inputs)
    assert not quantized_entrances(model)


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("factor", torch.ones(4))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.layer(x * self.get_buffer("factor")) * scale + x


class _Repeating(nn.Module):
    """One block that runs twice: the second time what comes is below zero, too."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.first = nn.Linear(4, 4)
        self.block = _Scaled()
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        for _ in range(self.times):
            x = self.block(x)
        return self.last(x)


@pytest.mark.parametrize("inputs", [None, (3, 4)], ids=["code", "run"])
@pytest.mark.filterwarnings("ignore:shortcuts left in floats")
def test_a_block_that_runs_twice_reads_what_it_gave(inputs: Any) -> None:
    once = quantize_model(_Repeating(1), _LOW, inputs)
    assert not quantized_entrances(once)["block"].signed
    twice = quantize_model(_Repeating(2), _LOW, inputs)
    assert quantized_entrances(twice)["block"].signed


def test_a_layer_whose_forward_was_replaced_is_left() -> None:
    """As libraries do that move weights in before a layer runs, or add to what it gives."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    layer: Any = model[2]
    before = layer.forward
    layer.forward = lambda x: before(x) + 1.0
    with pytest.warns(UserWarning, match=r"left in floats: 2 \(Linear\)"):
        quantised = quantize_model(model, Policy(), torch.randn(2, 4))
    assert set(quantized_layers(quantised)) == {"0", "4"}


def test_where_a_warning_is_an_error_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4))
    model.forward = lambda x: model[1](model[0](x))[0]  # type: ignore[method-assign]
    with pytest.raises(UserWarning, match="left in floats"):
        quantize_model(model, Policy(), torch.randn(1, 3, 4), inplace=True)
    assert not quantized_layers(model)
    assert not any(each._forward_pre_hooks for each in model.modules())


def test_weights_without_values_are_refused() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(InputError, match="layer '0' was made in inference mode; make the model"):
        quantize_model(model)
    with pytest.raises(InputError, match=r"0: no values \(it lies on the meta device\)"):
        packed_state(quantize_model(nn.Sequential(nn.Linear(4, 4))).to("meta"))
