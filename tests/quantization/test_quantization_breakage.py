"""What cannot be quantized or loaded is refused in a line, and nothing is changed by halves."""

from __future__ import annotations

import copy
import math
import warnings
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import InputError, ModelError, RooflineError
from roofline.quantization.clipping import load_quantized
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantized_modules import quantized_layers
from roofline.quantization.quantizing import quantize_model
from tests.quantization.small_networks import Of, chain, image, small_resnet


def _refused(model: Any, said: str, policy: Any = None, inputs: Any = None, **options: Any) -> None:
    with pytest.raises(RooflineError, match=said) as error:
        quantize_model(model, Policy() if policy is None else policy, inputs, **options)
    assert "\n" not in str(error.value)


def _with(layer: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(a=nn.Linear(4, 4), b=layer, c=nn.Linear(4, 4)))


def _layer(**attributes: Any) -> nn.Module:
    """A linear layer with its weight set to a value, or one of its elements, or with others."""
    layer = nn.Linear(4, 4)
    for name, value in attributes.items():
        if name in ("weight", "element"):
            with torch.no_grad():
                (layer.weight if name == "weight" else layer.weight[1, 2]).fill_(value)
        else:
            setattr(layer, name, value)
    return layer


# -- models and policies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (_layer(element=math.nan), r"layer 'b': weights contain NaN or infinity \(1 of 16\)"),
        (_layer(weight=math.inf), r"layer 'b': weights contain NaN or infinity \(16 of 16\)"),
        (
            nn.Linear(4, 4, dtype=torch.complex64),
            r"layer 'b': weights of complex64 cannot be quantized",
        ),
        (nn.Linear(4, 4, device="meta"), r"layer 'b' has no values \(meta device"),
        (nn.LazyLinear(4), r"'b' of Sequential has no weights yet; run the model once"),
        (
            nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            r"layer 'b' is already parametrized \(such as by weight norm\)",
        ),
        (
            _layer(input_quantizer=nn.Identity()),
            r"layer 'b' already has an attribute 'input_quantizer'",
        ),
    ],
)
def test_layers_that_cannot_be_quantized_are_named(layer: nn.Module, said: str) -> None:
    model = _with(layer)
    before = [(type(each), len(each._forward_pre_hooks)) for each in model.modules()]
    for inplace in (False, True):
        _refused(model, said, inplace=inplace)
    assert [(type(each), len(each._forward_pre_hooks)) for each in model.modules()] == before


def test_what_a_policy_leaves_in_floats_may_be_as_it_is() -> None:
    own = {"b": LayerBits(weights=32, activations=32)}
    model = quantize_model(_with(_layer(element=math.nan)), Policy(layers=own))
    assert set(quantized_layers(model)) == {"a", "c"}


@pytest.mark.parametrize("value", [0.0, 0.5, -1e-30])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("is_per_channel", [False, True])
def test_constant_weights_keep_their_value(value: float, bits: int, is_per_channel: bool) -> None:
    policy = Policy(weights=bits, first_last=bits, per_channel=is_per_channel)
    model: Any = quantize_model(_with(_layer(weight=value)), policy)
    weight = model.b.weight.detach()
    assert torch.isfinite(weight).all()
    torch.testing.assert_close(weight, torch.full((4, 4), value), rtol=1e-6, atol=0.0)


def _torchs_own() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchs: Any = torch.ao.nn.quantized.Linear(4, 4)
    return _with(torchs)


def _compiled() -> nn.Module:
    model = chain()
    model.compile(backend="eager")
    return model


_OTHER = LayerBits(weights=4, activations=4)
_NO_LAYERS = nn.Sequential(nn.ReLU(), nn.LayerNorm(4))


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        (
            quantize_model(chain()),
            *({}, r"Sequential is already quantized \('0'\); use the float model"),
        ),
        (_with(quantize_model(chain())), {}, r"Sequential is already quantized \('b.0'\)"),
        (
            quantize_model(chain(), Policy(weights=32, activations=4, first_last=4)),
            *({}, "is already quantized"),
        ),
        (_torchs_own(), {}, "is already quantized: 'b' is torch's Linear;"),
        (
            torch.compile(chain(), backend="eager"),
            *({}, "is compiled; call torch.compile after quantization"),
        ),
        (_compiled(), {}, "Sequential is compiled"),
        (_NO_LAYERS, {}, "Sequential has no convolution or linear layer to quantize"),
        (_NO_LAYERS, {"inputs": (2, 4)}, "Sequential has no convolution or linear layer"),
        (lambda x: x, {}, "model: expected a torch.nn.Module, got function"),
        (chain(), {"policy": 2}, "policy: expected a roofline.quantization.Policy, got 2"),
        (chain(), {"inputs": object()}, "inputs: expected a tensor"),
        *(
            (
                small_resnet(),
                {"policy": Policy(layers={name: _OTHER})},
                f"policy: no layer '{name}' to quantize; did you mean '{near}'",
            )
            for name, near in (
                ("haed", "head"),
                ("same.bn", "same.conv2"),
                ("down.sortcut.0", "down.shortcut.0"),
            )
        ),
    ],
)
def test_what_cannot_be_quantized_is_refused(model: Any, given: dict[str, Any], said: str) -> None:
    _refused(model, said, **given)


def test_code_that_depends_on_values_asks_for_inputs() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.calls += 1
        return m.layer(-x if x.sum() > 0 else x)

    model: Any = Of(function, layer=nn.Linear(4, 4), calls=0)
    _refused(model, r"the layers of Of cannot be traced by torch.fx .*; give inputs=")
    assert model.calls == 0
    quantized = quantize_model(model, Policy(), torch.randn(2, 4))
    assert set(quantized_layers(quantized)) == {"layer"}
    assert model.calls == 0


def test_buffers_that_code_changes_stay_as_they_are() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        m.count.add_(1)
        return m.layer(x)

    model = Of(function, layer=nn.Linear(4, 4))
    model.register_buffer("count", torch.zeros(1))
    for inputs in (None, (2, 4)):
        assert set(quantized_layers(quantize_model(model, Policy(), inputs))) == {"layer"}
        assert float(model.get_buffer("count")) == 0


class _Raising(nn.Module):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no\nway"), SystemExit(3), RuntimeError()])
@pytest.mark.parametrize("inputs", [None, (2, 4)], ids=["code", "run"])
def test_a_model_that_raises_leaves_nothing_behind(error: BaseException, inputs: Any) -> None:
    model = _Raising(error).train()
    for inplace in (False, True):
        _refused(model, "_Raising", inputs=inputs, inplace=inplace)
    assert model.training
    assert not any(each._forward_pre_hooks for each in model.modules())
    assert type(model.layer) is nn.Linear


def test_a_model_that_cannot_be_copied_says_what_to_do() -> None:
    model = chain()
    first: Any = model[0]
    model.kept = first.weight * 2
    with pytest.raises(ModelError, match=r"Sequential cannot be copied \(.*\); use inplace=True"):
        quantize_model(model)
    assert quantized_layers(quantize_model(model, inplace=True))


# -- training --------------------------------------------------------------------------------------


def test_alpha_below_zero_is_set_back_and_its_layer_named() -> None:
    model: Any = quantize_model(chain(), decay=0.0).train()
    model(torch.randn(4, 6))
    with torch.no_grad():
        model[2].input_quantizer.alpha.fill_(-0.5)
    with pytest.warns(UserWarning, match=r"PACT of '2': training drove the clipping value to -0.5"):
        model(torch.randn(4, 6))
    assert float(model[2].input_quantizer.alpha.detach()) > 0


def test_nan_in_training_is_told_by_layer() -> None:
    model: Any = quantize_model(chain()).train()
    with torch.no_grad():
        model[4].input_quantizer.alpha.fill_(float("nan"))
    with pytest.raises(InputError, match="PACT of '4': clipping value nan"):
        model(torch.randn(4, 6))


# -- checkpoints -----------------------------------------------------------------------------------


def _refused_checkpoint(state: Any, said: str, model: nn.Module | None = None) -> None:
    model = quantize_model(small_resnet(seed=9)) if model is None else model
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=said) as error:
        load_quantized(model, state)
    assert "\n" not in str(error.value)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def _state() -> dict[str, Any]:
    return dict(quantize_model(small_resnet()).state_dict())


def test_checkpoints_that_do_not_fit_are_refused_with_their_first_entry() -> None:
    original = "conv.parametrizations.weight.original"
    state = _state()
    del state["same.bn1.bias"]
    _refused_checkpoint(state, r"checkpoint: 'same.bn1.bias' is missing; check policy")
    _refused_checkpoint(
        {**_state(), "more": torch.ones(1)}, r"checkpoint: 'more' is not in the model"
    )
    wide = torch.ones(4, 1, 5, 5)
    _refused_checkpoint(
        {**_state(), original: wide},
        r"weight.original': expected shape \(4, 1, 3, 3\), got \(4, 1, 5, 5\)",
    )
    whole = torch.ones(4, 1, 3, 3, dtype=torch.int64)
    _refused_checkpoint({**_state(), original: whole}, r"expected float32, got int64")
    _refused_checkpoint({**_state(), original: [1.0]}, r"expected a tensor, got list")
    broken = torch.full((4, 1, 3, 3), float("nan"))
    _refused_checkpoint({**_state(), original: broken}, r"original' has NaN or infinity")
    alpha = "same.conv1.input_quantizer.alpha"
    _refused_checkpoint({**_state(), alpha: torch.tensor(-1.0)}, r"alpha' is -1; .* above 0")


def test_checkpoints_of_other_models_say_which() -> None:
    _refused_checkpoint(
        small_resnet().state_dict(), r"'conv.weight' exists: the checkpoint has float"
    )
    moved = {f"module.{name}": each for name, each in _state().items()}
    _refused_checkpoint(moved, r"all names begin with 'module\.'")
    _refused_checkpoint({"state_dict": _state()}, r"the state dict is its entry 'state_dict'")
    _refused_checkpoint("it.pt", r"expected a state dict, got str; use torch.load")
    _refused_checkpoint(
        _state(), r"SmallResNet is not quantized; call quantize_model", small_resnet()
    )


def test_checkpoints_of_other_widths_are_refused() -> None:
    four = quantize_model(small_resnet(), Policy(weights=4, activations=3)).state_dict()
    _refused_checkpoint(four, r"'same.conv1' is w4a3, but w2a2 in the model")
    without = dict(four)
    model = quantize_model(small_resnet(seed=9))
    load_quantized(model, without)
    assert torch.isfinite(model(image())).all()
