"""What cannot be quantised or loaded is refused in a line, and nothing is changed by halves."""

from __future__ import annotations

import copy
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
from tests.quantization.small_networks import chain, image, small_resnet


def _refused(model: Any, said: str, policy: Any = None, inputs: Any = None, **options: Any) -> None:
    with pytest.raises(RooflineError, match=said) as error:
        quantize_model(model, Policy() if policy is None else policy, inputs, **options)
    assert "\n" not in str(error.value)


def _with(layer: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(a=nn.Linear(4, 4), b=layer, c=nn.Linear(4, 4)))


def _filled(value: float) -> nn.Linear:
    layer = nn.Linear(4, 4)
    nn.init.constant_(layer.weight, value)
    return layer


def _one_nan() -> nn.Linear:
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight[1, 2] = float("nan")
    return layer


def _own_attribute() -> nn.Linear:
    layer = nn.Linear(4, 4)
    layer.input_quantizer = nn.Identity()
    return layer


def _weight_norm() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


# -- models and policies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (_one_nan(), r"layer 'b' has NaN or infinite weights"),
        (_filled(float("inf")), r"layer 'b' has NaN or infinite weights"),
        (
            nn.Linear(4, 4, dtype=torch.complex64),
            r"layer 'b' has weights of complex64; only floats",
        ),
        (nn.Linear(4, 4, device="meta"), r"layer 'b' has no values \(it lies on the meta device"),
        (nn.LazyLinear(4), r"'b' of Sequential has no weights yet; run the model once"),
        (_weight_norm(), r"layer 'b' is parametrised already \(as weight norm does\)"),
        (_own_attribute(), r"layer 'b' has an attribute 'input_quantizer' of its own"),
    ],
)
def test_layers_that_cannot_be_quantised_are_named(layer: nn.Module, said: str) -> None:
    model = _with(layer)
    before = [(type(each), len(each._forward_pre_hooks)) for each in model.modules()]
    for inplace in (False, True):
        _refused(model, said, inplace=inplace)
    assert [(type(each), len(each._forward_pre_hooks)) for each in model.modules()] == before


def test_what_a_policy_leaves_in_floats_may_be_as_it_is() -> None:
    own = {"b": LayerBits(weights=32, activations=32)}
    model = quantize_model(_with(_one_nan()), Policy(layers=own))
    assert set(quantized_layers(model)) == {"a", "c"}


@pytest.mark.parametrize("value", [0.0, 0.5, -1e-30])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("is_per_channel", [False, True])
def test_constant_weights_keep_their_value(value: float, bits: int, is_per_channel: bool) -> None:
    policy = Policy(weights=bits, first_last=bits, per_channel=is_per_channel)
    model: Any = quantize_model(_with(_filled(value)), policy)
    weight = model.b.weight.detach()
    assert torch.isfinite(weight).all()
    torch.testing.assert_close(weight, torch.full((4, 4), value), rtol=1e-6, atol=0.0)


def test_what_is_quantised_already_is_refused() -> None:
    model = quantize_model(chain())
    _refused(model, r"Sequential is quantised already \('0' is\); quantise the float model")
    _refused(_with(model), r"Sequential is quantised already \('b.0' is\)")
    only = Policy(weights=32, activations=4, first_last=4)
    _refused(quantize_model(chain(), only), "is quantised already")


def test_torchs_own_quantised_layers_are_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchs: Any = torch.ao.nn.quantized.Linear(4, 4)
    _refused(_with(torchs), r"is quantised already: 'b' is torch's Linear;")


def test_compiled_models_are_refused() -> None:
    compiled: Any = torch.compile(chain(), backend="eager")
    _refused(compiled, "is compiled; quantise it first, then call torch.compile")
    model = chain()
    model.compile(backend="eager")
    _refused(model, "Sequential is compiled")


def test_models_without_layers_are_refused() -> None:
    for inputs in (None, (2, 4)):
        said = "Sequential has no convolution or linear layer with weights of its own"
        _refused(nn.Sequential(nn.ReLU(), nn.LayerNorm(4)), said, inputs=inputs)


def test_what_is_no_model_or_no_policy_is_refused() -> None:
    _refused(lambda x: x, "quantize_model takes a torch.nn.Module, got function")
    _refused(chain(), "policy: expected a roofline.quantization.Policy, got 2", policy=2)
    _refused(chain(), "inputs: expected a tensor", inputs=object())


def test_names_in_a_policy_that_are_no_layers_are_refused() -> None:
    bits = LayerBits(weights=4, activations=4)
    for name, near in (
        ("haed", "head"),
        ("same.bn", "same.conv2"),
        ("down.sortcut.0", "down.shortcut.0"),
    ):
        said = f"policy: '{name}' is no layer that can be quantised; did you mean '{near}'"
        _refused(small_resnet(), said, policy=Policy(layers={name: bits}))


class _Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if x.sum() > 0:
            x = -x
        return self.layer(x)


def test_code_that_depends_on_values_asks_for_inputs() -> None:
    model = _Branching()
    _refused(model, r"the layers of _Branching cannot be read from its code .*; give inputs=")
    assert model.calls == 0
    quantised = quantize_model(model, Policy(), torch.randn(2, 4))
    assert set(quantized_layers(quantised)) == {"layer"}
    assert model.calls == 0


def test_buffers_that_code_changes_stay_as_they_are() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.get_buffer("count").add_(1)
            return self.layer(x)

    model = Counting()
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
    with pytest.raises(ModelError, match=r"Sequential cannot be copied \(.*\); give inplace=True"):
        quantize_model(model)
    assert quantized_layers(quantize_model(model, inplace=True))


# -- training --------------------------------------------------------------------------------------


def test_alpha_below_zero_is_set_back_and_its_layer_named() -> None:
    model: Any = quantize_model(chain(), decay=0.0).train()
    model(torch.randn(4, 6))
    with torch.no_grad():
        model[2].input_quantizer.alpha.fill_(-0.5)
    with pytest.warns(UserWarning, match=r"PACT of '2': training drove its clipping value to -0.5"):
        model(torch.randn(4, 6))
    assert float(model[2].input_quantizer.alpha.detach()) > 0


def test_nan_in_training_is_told_by_layer() -> None:
    model: Any = quantize_model(chain()).train()
    with torch.no_grad():
        model[4].input_quantizer.alpha.fill_(float("nan"))
    with pytest.raises(InputError, match="PACT of '4': its clipping value is nan"):
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
    _refused_checkpoint(state, r"checkpoint: 'same.bn1.bias' is missing; was another policy")
    _refused_checkpoint({**_state(), "more": torch.ones(1)}, r"checkpoint: 'more' is no part of")
    wide = torch.ones(4, 1, 5, 5)
    _refused_checkpoint(
        {**_state(), original: wide},
        r"weight.original' has shape \(4, 1, 5, 5\), in the model \(4, 1, 3, 3\)",
    )
    whole = torch.ones(4, 1, 3, 3, dtype=torch.int64)
    _refused_checkpoint({**_state(), original: whole}, r"is int64; the model's is float32")
    _refused_checkpoint({**_state(), original: [1.0]}, r"is no tensor but list")
    broken = torch.full((4, 1, 3, 3), float("nan"))
    _refused_checkpoint({**_state(), original: broken}, r"original' has NaN or infinity")
    alpha = "same.conv1.input_quantizer.alpha"
    _refused_checkpoint({**_state(), alpha: torch.tensor(-1.0)}, r"alpha' is -1; .* above 0")


def test_checkpoints_of_other_models_say_which() -> None:
    _refused_checkpoint(small_resnet().state_dict(), r"'conv.weight': it is of a model with float")
    moved = {f"module.{name}": each for name, each in _state().items()}
    _refused_checkpoint(moved, r"all names begin with 'module\.'")
    _refused_checkpoint({"state_dict": _state()}, r"the state dict is its entry 'state_dict'")
    _refused_checkpoint("it.pt", r"expected a state dict, got str; torch.load gives one")
    _refused_checkpoint(
        _state(), r"SmallResNet is not quantised; call quantize_model", small_resnet()
    )


def test_checkpoints_of_other_widths_are_refused() -> None:
    four = quantize_model(small_resnet(), Policy(weights=4, activations=3)).state_dict()
    _refused_checkpoint(four, r"'same.conv1' is w4a3 there and w2a2 in the model")
    without = dict(four)
    model = quantize_model(small_resnet(seed=9))
    load_quantized(model, without)
    assert torch.isfinite(model(image())).all()
