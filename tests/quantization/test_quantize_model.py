"""`quantize_model`: which layers get how many bits, and what the model computes then."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import roofline
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantized_modules import entry_quantizers, quantized_layers
from roofline.quantization.quantizers import SAWB
from roofline.quantization.quantizing import quantize_model
from roofline.quantization.tracing import trace_layers
from roofline.workload.models.libraries.availability import with_torchvision
from tests.quantization.small_networks import Of, SmallResNet, chain, image, small_resnet

_LOW = Policy(shortcut="low")


def _words(model: nn.Module) -> dict[str, str]:
    return {name: layer.bits.words for name, layer in quantized_layers(model).items()}


# -- which layers ----------------------------------------------------------------------------------

_RESNET = {
    "conv": "w8a8",
    "same.conv1": "w2a2",
    "same.conv2": "w2a2",
    "down.conv1": "w2a2",
    "down.conv2": "w2a2",
    "head": "w8a8",
}


@pytest.mark.parametrize("inputs", [None, (2, 1, 8, 8), image()], ids=["code", "shape", "tensor"])
def test_first_and_last_have_eight_bits_and_projections_stay_floats(inputs: Any) -> None:
    assert _words(quantize_model(small_resnet(), Policy(), inputs)) == _RESNET


@pytest.mark.parametrize("inputs", [None, image()], ids=["code", "run"])
def test_with_low_shortcuts_projections_and_entrances_are_quantized(inputs: Any) -> None:
    model = quantize_model(small_resnet(), _LOW, inputs)
    assert _words(model) == {**_RESNET, "down.shortcut.0": "w2a2"}
    entries = entry_quantizers(model)
    assert list(entries) == ["same"]
    assert entries["same"] is quantized_layers(model)["same.conv1"].input_quantizer
    assert entries["same"].bits == 2
    assert not entries["same"].signed


def test_layers_of_their_own_come_before_everything() -> None:
    own = {
        "conv": LayerBits(weights=4, activations=32),
        "same.conv1": LayerBits(weights=32, activations=3),
        "down.conv2": LayerBits(weights=32, activations=32),
        "down.shortcut.0": LayerBits(weights=1, activations=1),
    }
    model = quantize_model(small_resnet(), Policy(weights=3, activations=4, layers=own))
    assert _words(model) == {
        "conv": "w4a32",
        "same.conv1": "w32a3",
        "same.conv2": "w3a4",
        "down.conv1": "w3a4",
        "down.shortcut.0": "w1a1",
        "head": "w8a8",
    }
    assert isinstance(model.get_submodule("same.conv1").weight, nn.Parameter)


def _named(name: str) -> nn.Module:
    def built() -> nn.Module:
        from torchvision import models

        return models.get_model(name, weights=None)

    return with_torchvision(built).eval()


def test_both_ways_to_find_layers_agree_on_torchvision() -> None:
    for name in ("resnet18", "mobilenet_v2"):
        model = _named(name)
        code, run = trace_layers(model), trace_layers(model, (1, 3, 32, 32))
        assert dict(code.layers) == dict(run.layers), name
        assert {each.block for each in code.entries} == {each.block for each in run.entries}
        assert code.unreachable == run.unreachable == ()


def test_the_names_of_a_resnet18_by_hand() -> None:
    found = trace_layers(_named("resnet18"))
    places = {name: each.places for name, each in found.layers.items()}
    projections = {f"layer{each}.0.downsample.0" for each in (2, 3, 4)}
    assert len(places) == 21
    assert {name for name, each in places.items() if each == ("shortcut",)} == projections
    assert (places["conv1"], places["fc"]) == (("first",), ("last",))
    assert {each.block for each in found.entries} == {
        "layer1.0",
        *(f"layer{each}.1" for each in (1, 2, 3, 4)),
    }
    signed = {name for name, each in found.layers.items() if each.is_signed}
    assert signed == {"conv1"}


def test_a_layer_that_runs_twice_has_the_most_bits_of_its_places() -> None:
    twice = Of(
        lambda m, x: m.outer(m.inner(torch.relu(m.inner(x)))),
        inner=nn.Linear(4, 4),
        outer=nn.Linear(4, 4),
    )
    for inputs in (None, torch.randn(2, 4)):
        model = quantize_model(twice, Policy(), inputs)
        assert _words(model) == {"inner": "w8a8", "outer": "w8a8"}
        layers = trace_layers(twice, inputs).layers
        assert set(layers["inner"].places) == {"first", "inner"}
        assert layers["inner"].is_signed


# What is made of x, which a convolution gives, and of its ReLU y.
NOT_SIGNED: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda m, x, y: y,
    "pooled": lambda m, x, y: functional.max_pool2d(y, 3, 1, 1).contiguous(),
    "averaged": lambda m, x, y: functional.avg_pool2d(y, 3, 1, 1),
    "sum": lambda m, x, y: y + torch.sigmoid(x),
    "gated": lambda m, x, y: y * torch.sigmoid(x),
    "joined": lambda m, x, y: torch.cat([y[:, :2], y[:, 2:]], dim=1),
    "cut": lambda m, x, y: m.cut(x),
    "in place": lambda m, x, y: functional.relu(x.clone(), inplace=True),
}
SIGNED: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "normed": lambda m, x, y: m.norm(y),
    "difference": lambda m, x, y: y - torch.sigmoid(x),
    "sum with below": lambda m, x, y: y + x,
    "hardtanh": lambda m, x, y: m.tanh(x),
    "gelu": lambda m, x, y: functional.gelu(x),
}


@pytest.mark.parametrize("inputs", [None, (1, 1, 6, 6)], ids=["code", "run"])
@pytest.mark.parametrize("way", [*NOT_SIGNED, *SIGNED])
def test_what_may_be_below_zero_is_signed(way: str, inputs: Any) -> None:
    made = (NOT_SIGNED | SIGNED)[way]
    model = Of(
        lambda m, x: m.second(made(m, x := m.first(x), torch.relu(x))),
        first=nn.Conv2d(1, 4, 3, padding=1),
        norm=nn.BatchNorm2d(4),
        cut=nn.Hardtanh(0.0, 6.0),
        tanh=nn.Hardtanh(),
        second=nn.Conv2d(4, 4, 1),
    )
    layers = trace_layers(model.eval(), inputs).layers
    assert layers["first"].is_signed
    assert layers["second"].is_signed is (way in SIGNED)


# -- what it computes ------------------------------------------------------------------------------


def _grid(x: torch.Tensor, alpha: float, bits: int, *, is_signed: bool) -> torch.Tensor:
    """PACT in plain words: the nearest of the levels."""
    low = -(2 ** (bits - 1) - 1) if is_signed else 0
    high = 2 ** (bits - 1) - 1 if is_signed else 2**bits - 1
    levels = torch.arange(low, high + 1, dtype=torch.float64) * alpha / high
    nearest = (x.double().unsqueeze(-1) - levels).abs().argmin(dim=-1)
    return levels[nearest].to(x.dtype)


def _weights(weight: torch.Tensor) -> torch.Tensor:
    """Of 2 bits: the nearest of -a, -a/3, a/3, a."""
    alpha = float(SAWB(2).clipping(weight.detach()))
    levels = alpha * torch.tensor([-1.0, -1 / 3, 1 / 3, 1.0], dtype=torch.float64)
    nearest = (weight.detach().double().unsqueeze(-1) - levels).abs().argmin(dim=-1)
    return levels[nearest].to(weight.dtype)


def test_a_chain_computes_with_the_nearest_levels() -> None:
    floats = chain()
    policy = Policy(weights=2, activations=3, first_last=2)
    model = quantize_model(floats, policy)
    x = torch.randn(5, 6)
    with torch.no_grad():
        found = model(x)
    expected = x
    for place, is_signed in ((0, True), (2, False), (4, False)):
        layer: Any = floats[place]
        read = _grid(expected, 8.0, 3, is_signed=is_signed)
        expected = functional.linear(read, _weights(layer.weight), layer.bias)
        expected = torch.relu(expected) if place != 4 else expected
    torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=1e-6)


def test_the_original_stays_as_it_was_unless_it_is_changed_in_place() -> None:
    model = small_resnet()
    state = copy.deepcopy(model.state_dict())
    before = model(image())
    quantized = quantize_model(model)
    assert list(model.state_dict()) == list(state)
    assert torch.equal(model(image()), before)
    assert not quantized_layers(model)
    assert not torch.equal(quantized(image()), before)
    parameters = {id(each) for each in model.parameters()}
    same = quantize_model(model, inplace=True)
    assert same is model
    assert {id(each) for each in model.parameters()} >= parameters
    assert torch.equal(model(image()), quantized(image()))
    # Training mode is kept module by module.
    training = small_resnet().train()
    training.bn.eval()
    for inputs in (None, image()):
        quantized = quantize_model(training, Policy(), inputs)
        modes = {name: module.training for name, module in quantized.named_modules()}
        assert not modes.pop("bn")
        assert all(modes.values())


def test_types_and_bits_of_all_kinds_run() -> None:
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        model = quantize_model(small_resnet().to(kind), Policy(weights=4, activations=4))
        assert model(image().to(kind)).dtype == kind
    floats = small_resnet()
    for bits in (1, 2, 3, 4, 5, 8, 16, 32):
        policy = Policy(weights=bits, activations=bits, first_last=bits, per_channel=bits % 2 == 0)
        model = quantize_model(floats, policy)
        assert torch.isfinite(model(image())).all()
        error = (model(image()) - floats(image())).abs().max() / floats(image()).abs().max()
        # Sixteen bits are nearly the float model, and all in floats is the same.
        assert bits < 16 or float(error.detach()) < (1e-2 if bits == 16 else 1e-30)
        assert bool(quantized_layers(model)) is (bits < 32)
    for inputs in (None, (2, 4)):
        # A layer alone is a model.
        model = quantize_model(nn.Linear(4, 3), Policy(first_last=4), inputs)
        assert _words(model) == {"": "w4a4"}
        assert model(torch.randn(2, 4)).shape == (2, 3)


def test_transposed_convolutions_have_a_scale_for_each_output_channel() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 6, 2, groups=2), nn.Conv2d(6, 1, 1))
    )
    policy = Policy(weights=2, activations=8, first_last=2, per_channel=True)
    layer = quantized_layers(quantize_model(model, policy))["2"]
    assert layer.weight_quantizer is not None
    codes, alpha = layer.weight_quantizer.codes(layer.float_weight)
    assert codes.shape == (4, 3, 2, 2)
    assert alpha.shape == (3,)


def test_one_weight_in_two_layers_stays_one() -> None:
    tied: Any = Of(
        lambda m, x: m.head(torch.relu(m.table(x))),
        table=nn.Embedding(10, 4),
        head=nn.Linear(4, 10, bias=False),
    )
    tied.head.weight = tied.table.weight
    tokens = torch.tensor([[1, 2]])
    with pytest.warns(UserWarning, match=r"not quantized: table \(Embedding\);"):
        model: Any = quantize_model(tied, Policy(), tokens)
    layer = quantized_layers(model)["head"]
    assert layer.float_weight is model.table.weight
    model(tokens).sum().backward()
    assert model.table.weight.grad is not None


class _Standardised(nn.Conv2d):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(input, self.weight - self.weight.mean(), self.bias)


def _mixed(m: Any, x: torch.Tensor) -> torch.Tensor:
    x, _ = m.cells(torch.relu(m.before(x)))
    x, _ = m.attention(x, x, x)
    return m.after(m.norm(x))


@pytest.mark.parametrize("is_run", [False, True], ids=["code", "run"])
@pytest.mark.parametrize(
    ("model", "x", "quantized", "said"),
    [
        (
            Of(
                _mixed,
                before=nn.Linear(8, 8),
                cells=nn.LSTM(8, 8, batch_first=True),
                attention=nn.MultiheadAttention(8, 2, batch_first=True),
                norm=nn.LayerNorm([8]),
                unused=nn.Linear(3, 3),
                after=nn.Linear(8, 2),
            ),
            torch.randn(1, 3, 8),
            {"before", "after"},
            r"not quantized: cells \(LSTM\), attention \(MultiheadAttention\), attention.out_proj"
            r" \(NonDynamicallyQuantizableLinear\), unused \(Linear\); only",
        ),
        (
            nn.Sequential(
                nn.Linear(8, 8),
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
                nn.Linear(8, 2),
            ).eval(),
            torch.randn(1, 3, 8),
            {"0", "2"},
            r"not quantized: .*1\.linear1",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 2, 1), _Standardised(2, 2, 1), nn.Conv2d(2, 1, 1)),
            torch.randn(1, 1, 4, 4),
            {"0", "2"},
            r"not quantized: 1 \(_Standardised\)",
        ),
    ],
    ids=["others", "fused encoder", "computed otherwise"],
)
def test_what_runs_as_no_layer_of_its_own_is_named(
    model: nn.Module, x: torch.Tensor, quantized: set[str], said: str, is_run: bool
) -> None:
    with pytest.warns(UserWarning, match=said):
        found = quantize_model(model, Policy(), x if is_run else None)
    assert _words(found) == dict.fromkeys(quantized, "w8a8")
    assert found(x).shape == model(x).shape


def test_inputs_are_what_analyze_takes() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
            if x.shape[0] > 1:
                x = x * scale
            return self.layer(x)

    given = roofline.Inputs(torch.randn(2, 4), scale=torch.ones(1))
    every: list[Any] = [given, {"x": "2x4", "scale": "1"}]
    for inputs in every:
        assert set(_words(quantize_model(Two(), Policy(), inputs))) == {"layer"}


class _WithOptions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(
        self,
        x: torch.Tensor,
        mask: torch.Tensor | None = None,
        places: tuple[int, ...] = (0, 1),
        *,
        is_whole: bool = True,
        scale: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        for _ in places:
            x = self.a(x)
        if mask is not None:
            raise ValueError("a mask")
        if scale is not None:
            raise ValueError("a scale")
        return {"whole": self.b(input=x)} if is_whole else {"part": x}


def test_arguments_that_nothing_is_given_for_are_what_they_are_by_default() -> None:
    for inputs in (None, torch.randn(2, 4)):
        model = quantize_model(_WithOptions(), Policy(weights=3, first_last=3), inputs)
        assert set(_words(model)) == {"a", "b"}
        assert model(torch.randn(2, 4))["whole"].shape == (2, 4)


# -- shortcuts in few bits -------------------------------------------------------------------------


def test_what_an_identity_shortcut_carries_is_quantized_once() -> None:
    model: Any = quantize_model(small_resnet(), _LOW)
    seen: dict[str, torch.Tensor] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: Any, result: Any) -> None:
            seen[name] = args[0].detach()

        return hook

    model.same.shortcut.register_forward_hook(note("carried"))
    model.same.conv1.register_forward_hook(note("read"))
    model.bn.register_forward_hook(lambda module, args, result: seen.update(made=result.detach()))
    with torch.no_grad():
        model(image())
    assert torch.equal(seen["carried"], seen["read"])
    expected = _grid(torch.relu(seen["made"]), 8.0, 2, is_signed=False)
    torch.testing.assert_close(seen["carried"], expected)


def test_a_shared_quantizer_has_the_gradient_of_one() -> None:
    # By hand: y = PACT(x); the block gives y·w + y. Of x less than half a step below α the gradient
    # stays with x, although the level is α.
    net = Of(
        lambda m, x: m.last(m.block(m.relu(m.first(x)))),
        first=nn.Linear(1, 1),
        relu=nn.ReLU(),
        block=Of(lambda m, x: m.layer(x) + x, layer=nn.Linear(1, 1, bias=False)),
        last=nn.Linear(1, 1),
    )
    model: Any = quantize_model(net, Policy(weights=32, activations=2, shortcut="low"), decay=0.0)
    assert list(entry_quantizers(model)) == ["block"]
    pact = entry_quantizers(model)["block"]
    pact.load_state_dict({"alpha": torch.tensor(3.0)})
    with torch.no_grad():
        model.block.layer.weight.fill_(0.5)
    x = torch.tensor([[0.9], [2.8], [3.5]], requires_grad=True)
    result = model.block(x)
    torch.testing.assert_close(result.detach(), torch.tensor([[1.5], [4.5], [4.5]]))
    result.sum().backward()
    assert x.grad is not None
    assert pact.alpha.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[1.5], [1.5], [0.0]]))
    assert float(pact.alpha.grad) == 1.5


def test_a_shortcut_that_no_block_is_given_is_named() -> None:
    flat = Of(
        lambda m, x: m.c(torch.relu(m.b(y := torch.relu(m.a(x)))) + y),
        a=nn.Linear(4, 4),
        b=nn.Linear(4, 4),
        c=nn.Linear(4, 2),
    )
    for inputs in (None, (1, 4)):
        with pytest.warns(UserWarning, match="shortcuts not quantized: in the model itself; they"):
            model = quantize_model(flat, _LOW, inputs)
        assert not entry_quantizers(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            quantize_model(flat, Policy(), inputs)


# -- afterwards ------------------------------------------------------------------------------------


def _trained(model: nn.Module, steps: int = 60) -> list[float]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(60) % 3
    images = torch.randn(60, 1, 8, 8, generator=generator) * 0.3
    for each, label in enumerate(labels):
        images[each, 0, :, int(label) * 2 : int(label) * 2 + 2] += 1.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses: list[float] = []
    model.train()
    for _ in range(steps):
        loss = functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("policy", [Policy(), _LOW, Policy(per_channel=True)])
def test_it_is_trained_like_any_model(policy: Policy) -> None:
    torch.manual_seed(0)
    model = quantize_model(SmallResNet(), policy)
    before: Mapping[str, torch.Tensor] = copy.deepcopy(model.state_dict())
    losses = _trained(model)
    assert losses[-1] < 0.4 * losses[0]
    after = model.state_dict()
    names = [name for name in after if name.endswith(("original", "alpha"))]
    assert all(not torch.equal(before[name], after[name]) for name in names)
    for layer in quantized_layers(model).values():
        weight: Any = layer.module.weight
        assert layer.weight_quantizer is not None
        of_one_scale = weight if policy.per_channel else [weight]
        assert all(each.unique().numel() <= 2**layer.bits.weights for each in of_one_scale)
