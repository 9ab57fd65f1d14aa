"""What a what-if is not made of, what it leaves in floats, and sweeps over widths."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.analysis import Analysis, analysis_from_data
from roofline.core.units import format_bytes
from roofline.errors import InputError
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.tracing import trace_layers
from roofline.quantization.what_ifs import evaluate_policies, evaluate_policy
from tests.quantization.small_networks import Of
from tests.quantization.what_if_machines import PingPong, analysis_of, machine

SOME = LayerBits(weights=4, activations=4)


def _analysis(model: nn.Module, *shape: int, **options: Any) -> Analysis:
    return roofline.analyze(model, torch.zeros(shape), hardware=machine(), **options)


def _dynamic() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(  # pyright: ignore[reportUnknownMemberType]
        nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, dtype=torch.qint8
    )


def _no_layer(name: str) -> dict[str, LayerBits]:
    return {name: SOME}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("model", "shape", "options", "layers", "said"),
    [
        (
            lambda: nn.Sequential(nn.ReLU(), nn.Softmax(-1)),
            *((2, 4), {}, {}, "has no layer to quantize: no convolution"),
        ),
        (lambda: nn.Linear(4, 4), (2, 4), {"train": True}, {}, "was analyzed in training"),
        (_dynamic, (2, 8), {}, {}, "is already quantized; give the float model"),
        (lambda: nn.Linear(4, 2), (0, 4), {}, {}, "empty input, a size is 0"),
        *(
            (lambda: PingPong(16, 3), (4, 16), {}, _no_layer(name), said)
            for name, said in (
                ("layers.9", r"has no layer 'layers.9'; did you mean 'layers\.\d'"),
                ("conv", r"has no layer 'conv'; layers: layers.0, layer"),
                ("a\nb", r"has no layer 'a\\nb'"),
            )
        ),
    ],
    ids=["no layers", "training", "quantized", "no elements", "near", "other", "unprintable"],
)
def test_what_if_is_refused(
    model: Callable[[], nn.Module],
    shape: tuple[int, ...],
    options: dict[str, Any],
    layers: dict[str, LayerBits],
    said: str,
) -> None:
    analysis = _analysis(model(), *shape, **options)
    with pytest.raises(InputError, match=said):
        evaluate_policy(analysis, Policy(layers=layers))


def test_what_stays_in_floats_is_named_with_its_bytes() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.lstm(m.norm(m.table(x)))[0]
        return m.head(torch.bmm(y, y.transpose(1, 2)) @ y)

    words = Of(
        function,
        table=nn.Embedding(100, 8),
        norm=nn.LayerNorm(8),
        lstm=nn.LSTM(8, 8, batch_first=True),
        head=nn.Linear(8, 3),
    )
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    found = evaluate_policy(roofline.analyze(words, tokens, hardware=machine()), Policy())
    assert [each.layer.name for each in found.layers] == ["head"]
    left = "\n".join(found.unquantized)
    # The table whole, of which four rows are read.
    assert "embedding (table): 3.20 kB of weights" in left
    assert "(norm): 64 B of weights" in left
    assert f"(lstm): {4 * (2 * 32 * 8 + 2 * 32) / 1000:.2f} kB of weights" in left
    assert "2 matrix products of two activations" in left


def test_modules_that_do_not_run_are_named() -> None:
    training = Of(
        lambda m, x: (m.auxiliary if m.training else m.head)(x),
        head=nn.Linear(4, 2),
        auxiliary=nn.Linear(4, 300),
    )
    found = evaluate_policy(analysis_of(training, 1, 4), Policy(weights=8, activations=8))
    assert found.unquantized == ("modules that did not run (auxiliary): 1,500 parameters",)
    assert found.model_bytes_before - found.model_bytes_after == 3 * 8 - 4 - 4
    whole = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    assert evaluate_policy(analysis_of(whole, 1, 3, 8, 8), Policy()).unquantized == ()


def test_modules_whose_weights_a_fused_layer_reads_did_run() -> None:
    encoded = Of(
        lambda m, x: m.head(m.encoder(x)),
        encoder=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        spare=nn.Linear(8, 100),
        head=nn.Linear(8, 3),
    )
    fused, idle = evaluate_policy(analysis_of(encoded, 1, 4, 8), Policy()).unquantized
    weights = 8 * 24 + 24 + 8 * 8 + 8 + 8 * 16 + 16 + 16 * 8 + 8 + 2 * (8 + 8)
    assert fused == f"attention (encoder): {4 * weights / 1000:.2f} kB of weights"
    assert idle == "modules that did not run (spare): 900 parameters"


@pytest.mark.parametrize("cell", [nn.GRU, nn.RNN, nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_products_in_recurrent_layers_are_no_layers(cell: type[nn.Module]) -> None:
    """torch has no kernel for the whole of these, as it has for an LSTM, but calls products."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        found = m.cell(torch.relu(m.stem(x)))
        return m.head(found[0] if isinstance(found, tuple) else found)

    model = Of(function, stem=nn.Linear(8, 8), cell=cell(8, 8), head=nn.Linear(8, 3)).eval()
    found = evaluate_policy(analysis_of(model, 5, 8), Policy())
    places = {each.layer.name: each.layer.place for each in found.layers}
    assert places == {"stem": "first", "head": "last"}
    assert found.part("shortcuts").count == 0
    cells = sum(each.numel() for each in model.get_submodule("cell").parameters())
    said = "".join(each for each in found.unquantized if "(cell)" in each)
    assert f"{format_bytes(4 * cells)} of weights" in said
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for inputs in (None, (5, 8)):
            layers = trace_layers(model, inputs).layers
            assert {name: each.places[0] for name, each in layers.items()} == places


def test_a_saved_analysis_is_enough() -> None:
    analysis = analysis_of(PingPong(16, 3), 4, 16)
    again = analysis_from_data(json.loads(analysis.to_json()), file="test")
    assert evaluate_policy(again, Policy()) == evaluate_policy(analysis, Policy())


def test_a_sweep_begins_with_what_was_asked() -> None:
    policy = Policy(
        weights=3, activations=5, first_last=8, shortcut="low", layers={"layers.1": SOME}
    )
    analysis = analysis_of(PingPong(16, 3), 4, 16)
    found = evaluate_policies(analysis, policy, (2, 8, 2))
    widths = [(each.policy.weights, each.policy.activations) for each in found]
    assert widths == [(3, 5), (2, 2), (8, 8)]
    for each in found:
        of = each.policy
        assert (of.first_last, of.shortcut, of.layers) == (8, "low", policy.layers)
        assert each == evaluate_policy(analysis, of)
    for width in (0, 17, 24, -3):
        with pytest.raises(InputError, match=f"sweep: {width} bits"):
            evaluate_policies(analysis, Policy(), (2, width))
    # A machine without ceilings has bytes alone.
    bare = roofline.analyze(nn.Linear(8, 8), (2, 8), hardware=machine({}, {}))
    of_bytes = evaluate_policy(bare, Policy())
    assert of_bytes.model_bytes_after < of_bytes.model_bytes_before
    assert of_bytes.layers[0].executable == "float32"


def test_a_transposed_convolution_and_others_of_one_and_three_dimensions() -> None:
    for model, shape in (
        (nn.ConvTranspose2d(3, 4, 3), (1, 3, 5, 5)),
        (nn.Conv1d(3, 4, 3), (1, 3, 9)),
        (nn.Conv3d(3, 4, 3), (1, 3, 4, 4, 4)),
        (nn.Conv2d(4, 4, 3, groups=4), (1, 4, 5, 5)),
    ):
        analysis = analysis_of(nn.Sequential(model), *shape)
        found = evaluate_policy(analysis, Policy(weights=8, activations=8))
        (layer,) = found.layers
        weight = model.weight
        channels = analysis.operators[layer.layer.index].outputs[0].shape[1]
        assert layer.parameters == weight.numel()
        assert layer.after.weight_bytes == weight.numel() + 4 + 4 * channels
        each = evaluate_policy(analysis, Policy(weights=8, activations=8, per_channel=True))
        assert each.layers[0].after.weight_bytes == weight.numel() + 4 * channels + 4 * channels
