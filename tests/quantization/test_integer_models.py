"""Models in whole numbers give what fake-quantized ones give, and hand codes on where they may."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from roofline.errors import InputError, ModelError
from roofline.quantization.folding import fold_batch_norms
from roofline.quantization.integer_models import IntegerLayer, integer_layers, integer_model
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantizing import quantize_model
from tests.quantization.quantized_examples import both, largest_error, quantized
from tests.quantization.small_networks import Of, SmallResNet, with_lively_norms


def _through(m: Any, x: torch.Tensor) -> torch.Tensor:
    x = functional.relu(m.bn1(m.conv1(x)))
    x = m.pool(m.drop(m.relu(m.conv2(x))))
    x = functional.relu(m.bn2(m.fc1(torch.flatten(x, 1))))
    # No ReLU between these two: the next layer's activations have a sign.
    return m.fc3(m.fc2(x))


def chain(weights: int = 2, activations: int = 2, **options: Any) -> nn.Module:
    """Everything that may stand between two layers of which the one hands codes to the other, with
    quantizers in all of them."""
    torch.manual_seed(0)
    model = Of(
        _through,
        conv1=nn.Conv2d(2, 4, 3, padding=1, bias=False),
        bn1=nn.BatchNorm2d(4, eps=0.5),
        conv2=nn.Conv2d(4, 6, 3),
        pool=nn.MaxPool2d(3, stride=1, padding=1),
        relu=nn.ReLU(inplace=True),
        drop=nn.Dropout(0.5),
        fc1=nn.Linear(6 * 4 * 4, 8),
        bn2=nn.BatchNorm1d(8, affine=False),
        fc2=nn.Linear(8, 5),
        fc3=nn.Linear(5, 3),
    )
    for name, layer in list(with_lively_norms(model).named_children()):
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            signed = name in ("conv1", "fc3")
            alpha = 0.5 if name == "fc3" else 1.5
            quantized(layer, weights, activations, alpha=alpha, signed=signed, **options)
    return model


def _two(function: Callable[..., Any], **more: nn.Module) -> nn.Module:
    """A model of two quantized layers, and of others."""
    one, two = (quantized(nn.Linear(4, 4)) for _ in range(2))
    return Of(function, one=one, two=two, **more)


@pytest.mark.parametrize(("weights", "activations"), [(1, 1), (2, 2), (3, 4), (4, 3), (8, 8)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_codes_go_from_layer_to_layer(weights: int, activations: int, per_channel: bool) -> None:
    model = chain(weights, activations, per_channel=per_channel)
    x = torch.randn(4, 2, 6, 6)
    whole = integer_model(model)
    taking = {name: layer.takes_codes for name, layer in integer_layers(whole).items()}
    assert taking == {"conv1": False, "conv2": True, "fc1": True, "fc2": True, "fc3": True}
    expected, found = both(model, x)
    assert largest_error(expected, found) < 1e-5
    expected, found = both(model.double(), x.double())
    assert largest_error(expected, found) < 1e-12


def test_what_goes_between_layers_is_codes() -> None:
    whole = integer_model(chain(4, 3))
    read: dict[str, torch.Tensor] = {}
    for name, layer in integer_layers(whole).items():

        def note(_: nn.Module, args: tuple[torch.Tensor, ...], name: str = name) -> None:
            read[name] = args[0]

        layer.register_forward_pre_hook(note)
    whole(torch.randn(2, 2, 6, 6))
    assert {name: x.dtype for name, x in read.items()} == {
        "conv1": torch.float32,
        "conv2": torch.uint8,
        "fc1": torch.uint8,
        "fc2": torch.uint8,
        "fc3": torch.int8,
    }
    assert int(read["conv2"].max()) == 7
    # 3 bits with a sign: -3 to 3.
    assert -3 <= int(read["fc3"].min()) < 0
    assert int(read["fc3"].max()) <= 3


@pytest.mark.parametrize("shortcut", ["full", "low"])
@pytest.mark.parametrize("weights", [2, 4])
def test_a_network_with_shortcuts(shortcut: Any, weights: int) -> None:
    torch.manual_seed(0)
    policy = Policy(weights=weights, activations=weights, shortcut=shortcut)
    x = torch.rand(8, 1, 8, 8)
    model = with_lively_norms(quantize_model(SmallResNet(classes=10), policy, x))
    expected, found = both(model, x)
    assert largest_error(expected, found) < 1e-5
    assert torch.equal(expected.argmax(1), found.argmax(1))
    layers = integer_layers(integer_model(model))
    assert layers["same.conv2"].takes_codes
    assert layers["down.conv2"].takes_codes
    # What an addition gives, or two read, stays in floats.
    assert not layers["down.conv1"].takes_codes
    assert ("down.shortcut.0" in layers) == (shortcut == "low")
    expected, found = both(model.double(), x.double())
    assert largest_error(expected, found) < 1e-12


def test_after_training_and_with_batch_norms_folded() -> None:
    torch.manual_seed(0)
    x, labels = torch.rand(32, 1, 8, 8), torch.arange(32) % 10
    model = quantize_model(SmallResNet(classes=10), Policy(per_channel=True), x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    model = model.double()
    before, whole = both(model, x.double())
    assert largest_error(before, whole) < 1e-12
    folded = fold_batch_norms(model)
    expected, found = both(folded, x.double())
    assert largest_error(expected, found) < 1e-12
    assert largest_error(before, found) < 1e-9


@pytest.mark.parametrize("bits", [1, 4])
def test_a_relu_cuts_off_what_the_next_layer_could_read_with_a_sign(bits: int) -> None:
    torch.manual_seed(0)
    one, two = quantized(nn.Linear(4, 8)), quantized(nn.Linear(8, 8), 4, bits, signed=True)
    model, x = nn.Sequential(one, nn.ReLU(), two), torch.rand(5, 4)
    assert integer_layers(integer_model(model))["2"].takes_codes
    expected, found = both(model, x)
    assert largest_error(expected, found) < 1e-5
    without, _ = both(nn.Sequential(one, two), x)
    assert largest_error(expected, without) > 0.1


def test_a_layer_that_runs_twice_quantizes_what_it_reads_itself() -> None:
    layer = quantized(nn.Linear(4, 4), 4, 4, signed=True)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    expected, found = both(model, torch.randn(3, 4))
    assert largest_error(expected, found) < 1e-5
    whole = integer_model(model)
    assert whole[0] is whole[2]  # pyright: ignore[reportIndexIssue]
    assert not any(each.takes_codes for each in integer_layers(whole).values())


def test_layers_that_are_not_wholly_quantized_stay_as_they_are() -> None:
    torch.manual_seed(0)
    bits = {"0": LayerBits(weights=4, activations=32), "2": LayerBits(weights=32, activations=4)}
    plain = nn.Sequential(*(nn.Linear(4, 4) if i % 2 == 0 else nn.ReLU() for i in range(7)))
    model = quantize_model(plain, Policy(layers=bits), torch.rand(2, 4))
    expected, found = both(model, torch.rand(2, 4))
    assert largest_error(expected, found) < 1e-5
    assert set(integer_layers(integer_model(model))) == {"4", "6"}


def _branching(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Which layer runs depends on values: torch.fx cannot follow it."""
    y = torch.relu(m.one(x))
    return m.two(y) if y.sum() > 0 else y


class Optional(nn.Module):
    """Who reads what depends on whether a second argument is given."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = quantized(nn.Linear(4, 4)), quantized(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor, more: torch.Tensor | None = None) -> torch.Tensor:
        y = torch.relu(self.one(x))
        return self.two(y) + y if more is None else self.two(y)


@pytest.mark.parametrize("model", [_two(_branching), Optional()])
def test_what_cannot_be_followed_keeps_floats_between_layers(model: nn.Module) -> None:
    x = torch.rand(3, 4)
    expected, found = both(model, x)
    assert largest_error(expected, found) < 1e-5
    layers = integer_layers(integer_model(model))
    assert set(layers) == {"one", "two"}
    assert not any(each.takes_codes for each in layers.values())


WAYS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "read twice": lambda m, x: m.two(y := m.one(x)) + y,
    "given": lambda m, x: (m.two(y := m.one(x)), y),
    "written twice": lambda m, x: (m.two(torch.relu(m.one(x))), m.one(2 * x)),
    "norm behind a ReLU": lambda m, x: m.two(m.norm(torch.relu(m.one(x)))),
    "another function": lambda m, x: m.two(torch.sigmoid(m.one(x))),
    "two norms": lambda m, x: m.two(m.norm(m.norm(m.one(x)))),
    "batch's statistics": lambda m, x: m.two(
        functional.batch_norm(m.one(x), None, None, training=True)
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_codes_are_handed_on_nowhere_that_something_else_would_read_them(way: str) -> None:
    torch.manual_seed(0)
    model = with_lively_norms(_two(WAYS[way], norm=nn.BatchNorm1d(4)))
    x = torch.rand(5, 4)
    with torch.no_grad():
        expected, found = model(x), integer_model(model)(x)
    one, other = (each if isinstance(each, tuple) else (each,) for each in (expected, found))
    assert all(largest_error(*pair) < 1e-5 for pair in zip(one, other, strict=True))
    assert not integer_layers(integer_model(model))["two"].takes_codes


# -- what it leaves and refuses --------------------------------------------------------------------


def test_the_model_stays_as_it_is_and_the_copy_can_be_copied() -> None:
    model, x = chain().train(), torch.randn(2, 2, 6, 6)
    state = copy.deepcopy(model.state_dict())
    whole = integer_model(model)
    assert model.training
    assert not any(isinstance(each, IntegerLayer) for each in model.modules())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name])
    assert not whole.training
    expected = whole(x)
    assert torch.equal(copy.deepcopy(whole)(x), expected)
    content = io.BytesIO()
    torch.save(whole, content)
    content.seek(0)
    assert torch.equal(torch.load(content, weights_only=False)(x), expected)
    assert "takes codes" in repr(whole)


def _of_nan() -> nn.Module:
    model: Any = nn.Sequential(quantized(nn.Linear(2, 2)))
    model[0].parametrizations.weight.original.data.fill_(float("nan"))
    return model


def _with_a_generator() -> nn.Module:
    model: Any = nn.Sequential(quantized(nn.Linear(2, 2)))
    model.lock = (each for each in ())
    return model


NOT_QUANTISED = r"quantized weights and activations .* quantize_model first"


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (nn.Linear(2, 2), InputError, NOT_QUANTISED),
        (nn.Sequential(nn.Conv1d(1, 1, 1), nn.ReLU()), InputError, NOT_QUANTISED),
        # Weights alone are not enough.
        (quantized(nn.Linear(2, 2), 2, None), InputError, NOT_QUANTISED),
        (_of_nan(), InputError, "^0: .*NaN"),
        (_with_a_generator(), ModelError, "cannot be copied"),
    ],
)
def test_what_has_no_whole_numbers_is_refused(
    model: nn.Module, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said) as raised:
        integer_model(model)
    assert "\n" not in str(raised.value)


def test_activations_that_are_nan_have_no_code() -> None:
    whole = integer_model(quantized(nn.Linear(2, 2)))
    with pytest.raises(InputError, match="NaN"):
        whole(torch.tensor([[0.0, float("nan")]]))
    # What is infinite is clipped.
    assert whole(torch.tensor([[0.0, float("inf")]])).isfinite().all()


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
    taking = {name for name, each in integer_layers(whole).items() if each.takes_codes}
    assert taking == {0: {"3"}, 2: set(), 3: {"2"}}[place]


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
