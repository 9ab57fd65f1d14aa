"""What layers read below zero, and which blocks are given what their shortcuts carry."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import InputError
from roofline.quantization.packed_models import packed_state
from roofline.quantization.policy import Policy
from roofline.quantization.quantized_modules import entry_quantizers, quantized_layers
from roofline.quantization.quantizing import quantize_model
from roofline.quantization.tracing import trace_layers
from tests.quantization.small_networks import Of

_LOW = Policy(shortcut="low")


def test_what_several_operators_wrote_may_be_below_zero() -> None:
    """The second layer reads a tensor that two operators wrote, each a half."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.first(x)
        joined = torch.zeros_like(x)
        joined[:, :2] = x[:, :2]
        joined[:, 2:] = torch.relu(x[:, 2:])
        return m.second(joined)

    filled = Of(function, first=nn.Conv2d(1, 4, 3, padding=1), second=nn.Conv2d(4, 4, 1))
    assert trace_layers(filled.eval(), (2, 1, 6, 6)).layers["second"].is_signed


class _Add(nn.Module):
    """A block with a second argument that need not be given."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        x = self.layer(x)
        return x if skip is None else x + skip


def _linears(*names: str) -> dict[str, nn.Module]:
    return {name: nn.Linear(4, 4) for name in names}


@pytest.mark.parametrize("inputs", [None, (3, 4)], ids=["code", "run"])
@pytest.mark.parametrize("layer", [nn.Linear(4, 4), nn.Identity()])
def test_a_shortcut_that_comes_as_another_argument_is_left(layer: nn.Module, inputs: Any) -> None:
    """As in networks of encoder and decoder: what is carried is not the first argument."""
    skipping = Of(
        lambda m, x: m.last(m.block(m.inner(carried := torch.relu(m.first(x))), carried)),
        block=_Add(layer),
        **_linears("first", "inner", "last"),
    )
    with pytest.warns(UserWarning, match="shortcuts not quantized: in block; they do not start"):
        model = quantize_model(skipping, _LOW, inputs)
    assert not entry_quantizers(model)


@pytest.mark.parametrize("inputs", [None, (3, 4)], ids=["code", "run"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.filterwarnings("ignore:shortcuts not quantized")
def test_a_block_that_runs_twice_reads_what_it_gave(times: int, inputs: Any) -> None:
    """The second time what comes is below zero, too."""
    block = Of(lambda m, x: m.layer(x * m.factor) + x, layer=nn.Linear(4, 4))
    block.register_buffer("factor", torch.ones(4))

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(m.first(x))
        for _ in range(times):
            x = m.block(x)
        return m.last(x)

    repeating = Of(function, block=block, **_linears("first", "last"))
    model = quantize_model(repeating, _LOW, inputs)
    assert entry_quantizers(model)["block"].signed is (times == 2)


def test_a_layer_whose_forward_was_replaced_is_left() -> None:
    """As libraries do that move weights in before a layer runs, or add to what it gives."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    layer: Any = model[2]
    before = layer.forward
    layer.forward = lambda x: before(x) + 1.0
    with pytest.warns(UserWarning, match=r"not quantized: 2 \(Linear\)"):
        quantized = quantize_model(model, Policy(), torch.randn(2, 4))
    assert set(quantized_layers(quantized)) == {"0", "4"}


def test_where_a_warning_is_an_error_nothing_is_changed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4))
    model.forward = lambda x: model[1](model[0](x))[0]  # type: ignore[method-assign]
    with pytest.raises(UserWarning, match="not quantized"):
        quantize_model(model, Policy(), torch.randn(1, 3, 4), inplace=True)
    assert not quantized_layers(model)
    assert not any(each._forward_pre_hooks for each in model.modules())


def test_weights_without_values_are_refused() -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(
        InputError, match="layer '0' was created in inference mode; create the model"
    ):
        quantize_model(model)
    with pytest.raises(InputError, match=r"0: no values \(meta device\)"):
        packed_state(quantize_model(nn.Sequential(nn.Linear(4, 4))).to("meta"))
