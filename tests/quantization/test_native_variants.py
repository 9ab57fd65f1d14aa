"""Models as torch's own kernels run them in lower precision, held against arithmetic by hand."""

from __future__ import annotations

import copy
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import ModelError
from roofline.quantization import native_variants
from roofline.quantization.native_variants import (
    VariantKind,
    int8_engine,
    int8_kernels,
    int8_problem,
    make_variant,
    quantize_int8,
    relative_error,
)
from roofline.workload.inputs import Inputs
from roofline.workload.models import sources
from tests.quantization.small_networks import Of

needs_int8 = pytest.mark.skipif(bool(int8_problem()), reason=int8_problem() or "it is there")


def net() -> nn.Module:
    """A network with a shortcut, pooling and a linear layer."""
    torch.manual_seed(1)
    return Of(
        lambda m, x: m.last(m.pool(torch.relu(m.second(y := m.first(x)) + y)).flatten(1)),
        first=nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        ),
        second=nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)),
        pool=nn.AdaptiveAvgPool2d(1),
        last=nn.Linear(8, 5),
    ).eval()


IMAGE = torch.randn(2, 3, 10, 10, generator=torch.Generator().manual_seed(2))
KINDS: tuple[VariantKind, ...] = ("bfloat16", "int8 static", "int8 dynamic")


@needs_int8
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_nearly_the_same_and_leaves_the_model_as_it_was(kind: VariantKind) -> None:
    model = net().train()
    before = copy.deepcopy(model.state_dict())
    engine = torch.backends.quantized.engine
    expected = copy.deepcopy(model).eval()(IMAGE)
    other, (args, kwargs) = make_variant(kind, model, ((IMAGE,), {}))
    with torch.no_grad(), int8_kernels():
        error = relative_error(expected, other(*args, **kwargs))
    assert error is not None and 0 < error < 0.15
    assert model.training
    assert torch.backends.quantized.engine == engine
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@needs_int8
def test_static_int8_of_a_linear_layer_by_hand() -> None:
    """Codes from 0 to 255 between the least and the largest input, weights by row to 127."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    x = torch.randn(5, 6)
    other, _ = make_variant("int8 static", nn.Sequential(layer), ((x,), {}))
    with torch.no_grad(), int8_kernels():
        found = other(x)
        plain = layer(x)
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = (high - low) / 255
    zero = round(-low / step)
    codes = torch.clamp(torch.round(x / step) + zero, 0, 255)
    # torch's weights go to -128, so that their steps are of 127.5.
    steps = layer.weight.detach().abs().amax(1) / 127.5
    weights = torch.clamp(torch.round(layer.weight.detach() / steps[:, None]), -128, 127)
    sums = ((codes - zero) @ weights.T) * step * steps + layer.bias.detach()
    span = max(float(plain.max()), 0.0) - min(float(plain.min()), 0.0)
    # The result has codes of its own: half a step of theirs, and what rounds at their edge.
    assert float((found - sums).abs().max()) <= 0.6 * span / 255 + 0.02 * span
    assert len(found.unique()) <= 256


@needs_int8
def test_everything_between_layers_stays_in_codes_the_same_every_time() -> None:
    model, state = net(), torch.get_rng_state()
    other, again = (quantize_int8(model, Inputs("2x3x10x10")) for _ in range(2))
    # The numbers that a user draws afterwards are those that would have been drawn.
    assert torch.equal(torch.get_rng_state(), state)
    seen: list[torch.dtype] = []
    for name, module in other.named_modules():
        if name in ("first.0", "second.0", "last"):
            module.register_forward_hook(lambda _m, _a, result: seen.append(result.dtype))
    with torch.no_grad(), int8_kernels():
        result = other(IMAGE)
        assert torch.equal(again(IMAGE), result)
    assert seen == [torch.quint8] * 3
    assert result.dtype == torch.float32


@needs_int8
def test_a_design_that_takes_any_number_of_inputs_is_quantized_too() -> None:
    made = sources.load_model("conv2d(3,8,3)+batchnorm2d(8)+relu()+conv2d(8,4,3)@2x3x10x10").rebuild
    assert made is not None
    design = made().eval()
    other, (args, kwargs) = make_variant("int8 static", design, ((IMAGE,), {}))
    with torch.no_grad(), int8_kernels():
        error = relative_error(design(IMAGE), other(*args, **kwargs))
    assert error is not None and 0 < error < 0.15


@needs_int8
def test_a_layer_alone_is_quantized_dynamically() -> None:
    other, _ = make_variant("int8 dynamic", nn.Linear(6, 4), ((torch.randn(3, 6),), {}))
    assert type(other).__module__.startswith("torch.ao.nn.quantized.dynamic")


@pytest.mark.parametrize(
    ("kind", "model", "said"),
    [
        # Its way depends on values.
        (
            "int8 static",
            Of(lambda m, x: m.layer(x) if x.sum() > 0 else x, layer=nn.Linear(4, 4)),
            "conversion failed",
        ),
        ("int8 static", nn.Linear(4, 4).double(), "float64"),
        ("int8 static", nn.ReLU(), "no layer"),
        ("int8 dynamic", nn.Conv1d(4, 4, 1), "no linear layers"),
        ("int8 dynamic", nn.Linear(4, 4).to(torch.bfloat16), "bfloat16"),
        ("bfloat16", nn.Linear(5, 4), "conversion failed"),
    ],
)
@needs_int8
def test_what_cannot_be_made_is_said_in_a_line(
    kind: VariantKind, model: nn.Module, said: str
) -> None:
    x = torch.ones(4, 4, dtype=next((each.dtype for each in model.parameters()), torch.float32))
    engine = torch.backends.quantized.engine
    with pytest.raises(ModelError, match=said) as raised:
        make_variant(kind, model, ((x,), {}))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 260
    assert torch.backends.quantized.engine == engine


def test_torchao_quantizes_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchao", "torchao.quantization"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelError, match=r"roofline\[int8\]"):
        make_variant("int8 torchao", nn.Linear(4, 4), ((torch.ones(2, 4),), {}))
    library: Any = types.ModuleType("torchao.quantization")
    library.Int8DynamicActivationInt8WeightConfig = lambda: "int8"

    def quantize_(model: nn.Module, config: str) -> None:
        assert config == "int8"
        with torch.no_grad():
            for each in model.parameters():
                each.zero_()

    library.quantize_ = quantize_
    monkeypatch.setitem(sys.modules, "torchao", types.ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.quantization", library)
    layer = nn.Linear(4, 4)
    other, _ = make_variant("int8 torchao", layer, ((torch.ones(2, 4),), {}))
    assert not any(bool(each.any()) for each in other.parameters())
    assert bool(layer.weight.any())


def test_without_engines_there_is_no_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_variants, "_ENGINES", ())
    assert int8_engine() == ""
    assert "without kernels" in int8_problem()
    before = torch.backends.quantized.engine
    with int8_kernels():
        assert torch.backends.quantized.engine == before
    with pytest.raises(ModelError, match="without kernels"):
        make_variant("int8 static", nn.Linear(4, 4), ((torch.ones(2, 4),), {}))


def test_a_relative_error_by_hand() -> None:
    assert relative_error(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0])) == pytest.approx(0.8)
    # sqrt((0 + 1 + 4) / (1 + 4 + 4)), over all outputs; what is no float does not count.
    expected = {"a": torch.tensor([1.0, 2.0]), "b": [torch.tensor([2.0])], "n": torch.tensor([7])}
    found = {"a": torch.tensor([1.0, 1.0]), "b": [torch.tensor([4.0])], "n": torch.tensor([9])}
    assert relative_error(expected, found) == pytest.approx((5 / 9) ** 0.5)


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (torch.zeros(2), torch.ones(2)),
        (torch.ones(2), torch.full((2,), torch.nan)),
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), (torch.ones(2), torch.ones(2))),
        ((), ()),
    ],
)
def test_where_errors_are_not_defined_there_is_none(expected: Any, found: Any) -> None:
    assert relative_error(expected, found) is None
