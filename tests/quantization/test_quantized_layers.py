"""Quantized layers are modules like any other: copied, pickled, exported, saved and loaded."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from roofline.errors import InputError
from roofline.quantization.clipping import load_quantized, parameter_groups
from roofline.quantization.policy import Policy
from roofline.quantization.quantized_modules import (
    ChannelScale,
    entry_quantizers,
    is_plain_layer,
    quantized_layers,
)
from roofline.quantization.quantizers import PACT, SAWB, MaxAbs
from roofline.quantization.quantizing import quantize_model
from roofline.quantization.tracing import records_of
from tests.quantization.quantized_examples import quantized
from tests.quantization.small_networks import chain, image, small_resnet

_LOW = Policy(shortcut="low")


def _quantized(policy: Policy = _LOW) -> nn.Module:
    return quantize_model(small_resnet(), policy)


def test_a_layer_is_the_users_own_with_quantizers_inside() -> None:
    layers = quantized_layers(_quantized(Policy(per_channel=True)))
    first, inner = layers["conv"], layers["same.conv1"]
    assert isinstance(first.module, nn.Conv2d)
    assert isinstance(first.weight_quantizer, MaxAbs)
    assert isinstance(inner.weight_quantizer, SAWB)
    parametrizations: Any = inner.module.parametrizations
    assert parametrizations.weight[0] is inner.weight_quantizer
    assert parametrizations.weight.original is inner.float_weight
    assert isinstance(inner.float_weight, nn.Parameter)
    assert inner.module.input_quantizer is inner.input_quantizer
    assert isinstance(inner.input_quantizer, PACT)
    assert inner.input_quantizer.name == "same.conv1"
    assert inner.channel_scale is None
    codes, alpha = inner.weight_quantizer.codes(inner.float_weight)
    assert alpha.shape == (4,)
    values = (2 * codes.float() - 3) * (alpha / 3).reshape(-1, 1, 1, 1)
    weight: Any = inner.module.weight
    torch.testing.assert_close(values, weight.detach())


def _deep(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model)


def _pickled(model: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(model))


def _saved(model: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("copied", [_deep, _pickled, _saved])
def test_copies_are_whole_and_apart(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = _quantized()
    other = copied(model)
    x = image()
    assert torch.equal(model(x), other(x))
    assert list(model.state_dict()) == list(other.state_dict())
    mine, theirs = quantized_layers(model), quantized_layers(other)
    assert [each.bits for each in mine.values()] == [each.bits for each in theirs.values()]
    entrance = entry_quantizers(other)["same"]
    assert entrance is theirs["same.conv1"].input_quantizer
    assert entrance is not mine["same.conv1"].input_quantizer
    with torch.no_grad():
        theirs["head"].float_weight.zero_()
    assert not torch.equal(model(x), other(x))
    # torch has copies share a class, from which this takes the property away.
    expected = model(x)
    parametrize.remove_parametrizations(theirs["head"].module, "weight")
    assert torch.equal(model(x), expected)
    assert is_plain_layer(theirs["head"].module)
    again = copied(other)
    assert torch.equal(again(x), other(x))


def test_hooks_of_another_process_do_not_take_the_place_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    model = _quantized()
    other = _pickled(model)
    # As in a process in which no hook was given a number yet.
    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    for _ in range(100):
        quantized_layers(other)["conv"].module.register_forward_pre_hook(lambda module, args: None)
    assert torch.equal(model(image()), other(image()))


def test_a_pickle_is_read_in_another_process(tmp_path: Path) -> None:
    model = quantize_model(chain())
    x = torch.randn(2, 6)
    torch.save((model, x, model(x).detach()), tmp_path / "it.pt")
    code = (
        "import sys, torch; m, x, y = torch.load(sys.argv[1], weights_only=False);"
        " assert torch.equal(m(x), y); m.train()(x).sum().backward()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "it.pt")], check=True)


def test_state_dicts_go_there_and_back(tmp_path: Path) -> None:
    model, other = _quantized(), quantize_model(small_resnet(seed=5), _LOW)
    pact = quantized_layers(model)["down.conv2"].input_quantizer
    assert pact is not None
    pact.load_state_dict({"alpha": torch.tensor(1.25)})
    torch.save(model.state_dict(), tmp_path / "it.pt")
    load_quantized(other, torch.load(tmp_path / "it.pt", weights_only=True))
    assert torch.equal(model(image()), other(image()))
    assert "same.conv1.parametrizations.weight.original" in model.state_dict()
    assert "same.conv1.input_quantizer.alpha" in model.state_dict()


def test_it_is_exported_compiled_and_traced_again() -> None:
    model, x = _quantized(), image()
    expected = model(x)
    program = torch.export.export(model, (x,), strict=False)
    torch.testing.assert_close(program.module()(x), expected)
    torch.testing.assert_close(torch.compile(model, backend="eager")(x), expected)
    # As folding does: quantized layers are single steps.
    for inputs in (None, x):
        paths = {each.module_path for each in records_of(model, inputs) if "conv" in each.op}
        assert {"conv", "same.conv1", "down.shortcut.0"} <= paths
    # The first argument may be given by name.
    layer, read = quantized_layers(model)["same.conv1"].module, torch.rand(1, 4, 8, 8)
    assert torch.equal(layer(read), layer(input=read))


def test_alphas_and_norms_are_not_decayed() -> None:
    model = _quantized()
    groups = parameter_groups(model, weight_decay=0.1)
    assert [each["weight_decay"] for each in groups] == [0.1, 0.0]
    names = {id(each): name for name, each in model.named_parameters()}
    decayed, spared = ({names[id(each)] for each in group["params"]} for group in groups)
    assert decayed | spared == set(names.values())
    assert not decayed & spared
    assert spared == {
        name
        for name in names.values()
        if name.endswith("alpha") or ".bn" in f".{name}" or "shortcut.1" in name
    }
    torch.optim.SGD(groups, lr=0.1)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    assert parameter_groups(frozen, weight_decay=0.1) == []


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_channel_scale_multiplies_what_a_layer_gives(groups: int, is_transposed: bool) -> None:
    kind = nn.ConvTranspose2d if is_transposed else nn.Conv2d
    layer = kind(4, 8, 3, groups=groups, bias=False).double()
    scale = torch.linspace(-2.0, 3.0, 8, dtype=torch.float64)
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    expected = layer(x) * scale.reshape(1, -1, 1, 1)
    with torch.no_grad():
        layer.weight.copy_(ChannelScale(scale, layer)(layer.weight))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize(
    ("theirs", "own", "said"),
    [
        (
            lambda: quantize_model(small_resnet(), Policy(per_channel=True)),
            lambda: quantize_model(small_resnet()),
            r"'conv': scales of weights by channel, but one for all in the model",
        ),
        (
            lambda: quantize_model(small_resnet(), Policy(weights=3)),
            lambda: quantize_model(small_resnet()),
            r"'same\.conv1' is w3a2, but w2a2 in the model",
        ),
        (
            lambda: quantized(nn.Linear(2, 2), 2, 2, signed=True),
            lambda: quantized(nn.Linear(2, 2), 2, 2),
            "'': activations with a sign, but without a sign in the model",
        ),
    ],
    ids=["scales", "widths", "signs"],
)
def test_checkpoints_of_other_scales_are_refused(
    theirs: Callable[[], nn.Module], own: Callable[[], nn.Module], said: str, tmp_path: Path
) -> None:
    torch.save(theirs().state_dict(), tmp_path / "it.pt")
    state = torch.load(tmp_path / "it.pt", weights_only=True)
    with pytest.raises(InputError, match=f"checkpoint: {said}"):
        load_quantized(own(), state)
    load_quantized(theirs(), state)
