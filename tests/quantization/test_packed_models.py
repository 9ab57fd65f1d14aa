"""Packed models: every byte counted by hand, files that come back, and those that are refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError
from roofline.quantization.folding import fold_batch_norms
from roofline.quantization.integer_models import integer_model
from roofline.quantization.packed_files import file_content, read_packed
from roofline.quantization.packed_models import load_packed, packed_state
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantized_modules import quantized_layers
from roofline.quantization.quantizing import quantize_model
from roofline.quantization.what_ifs import evaluate_policy
from tests.quantization.quantized_examples import (
    largest_error,
    plain,
    quantized,
    residual,
    saved,
    small,
)
from tests.quantization.small_networks import Of, SmallResNet, with_lively_norms

# -- bytes -----------------------------------------------------------------------------------------


def test_every_byte_by_hand() -> None:
    packed = packed_state(small())
    rows = {(row.name, row.kind): row.byte for row in packed.rows}
    assert rows == {
        # 3 * 2 * 3 * 3 = 54 codes of 2 bits: 108 bits.
        ("0.weight", "codes"): 14,
        ("0.weight", "scale"): 4,
        # 5 * 12 = 60 codes of 3 bits: 180 bits.
        ("4.weight", "codes"): 23,
        ("4.weight", "scale"): 4,
        ("0.bias", "other"): 12,
        ("0.input_quantizer.alpha", "clipping"): 4,
        ("1.weight", "other"): 12,
        ("1.bias", "other"): 12,
        ("1.running_mean", "other"): 12,
        ("1.running_var", "other"): 12,
        ("1.num_batches_tracked", "other"): 8,
        ("4.input_quantizer.alpha", "clipping"): 4,
    }
    assert packed.byte == 14 + 4 + 23 + 4 + 12 + 4 + 4 * 12 + 8 + 4
    widths = {(row.name, row.kind): row.bits for row in packed.rows}
    assert widths["0.weight", "codes"] == 2
    assert widths["1.num_batches_tracked", "other"] == 64
    by_channel = packed_state(small(per_channel=True)).rows
    rows = {(row.name, row.kind): row.byte for row in by_channel}
    assert (rows["0.weight", "scale"], rows["4.weight", "scale"]) == (3 * 4, 5 * 4)


def test_a_folded_batch_norm_leaves_codes_and_one_scale_a_channel() -> None:
    model = residual()
    folded = fold_batch_norms(model)
    before = {(row.name, row.kind): row for row in packed_state(model).rows}
    after = {(row.name, row.kind): row for row in packed_state(folded).rows}
    for (name, kind), row in before.items():
        if kind == "codes":
            assert after[name, kind] == row
    assert after["conv.parametrizations.weight.1.scale", "scale"].byte == 4 * 4
    assert not any(name.startswith("bn.") for name, _ in after)
    one, other = packed_state(model).weights["conv"], packed_state(folded).weights["conv"]
    assert torch.equal(one.packed, other.packed)
    assert torch.equal(one.alpha, other.alpha)


def test_what_two_names_share_counts_once(tmp_path: Path) -> None:
    def tied() -> Any:
        torch.manual_seed(0)
        table, other = nn.Embedding(6, 4), nn.Linear(4, 6)
        other.weight = table.weight
        one = quantized(nn.Linear(4, 4, bias=False), 2, None)
        return Of(
            lambda m, x: m.other(m.same(m.one(m.table(x)))),
            table=table,
            other=other,
            one=one,
            same=one,
        )

    packed = packed_state(tied())
    assert set(packed.rest) == {"table.weight", "other.weight", "other.bias"}
    # 6 * 4 floats, 6 of a bias, 16 codes of 2 bits and their scale.
    assert packed.byte == 96 + 24 + 4 + 4
    path, x = saved(tied(), tmp_path), torch.arange(6)
    model = tied()
    with torch.no_grad():
        model.table.weight.zero_()
        assert torch.equal(load_packed(path, model)(x), tied()(x))
    assert model.one is model.same
    assert read_packed(path).byte == packed.byte


def test_a_file_is_its_bytes_and_little_around_them(tmp_path: Path) -> None:
    model = nn.Sequential(quantized(nn.Linear(1000, 1000), 2, 2))
    path = saved(model, tmp_path)
    byte = packed_state(model).byte
    assert byte == 250_000 + 4 + 4000 + 4
    assert byte < path.stat().st_size < byte + 4000
    content = torch.load(path, weights_only=True)
    assert content["payload"].numel() == byte
    assert content["payload"].dtype == torch.uint8


def test_later_training_does_not_change_what_was_packed() -> None:
    model: Any = small()
    packed = packed_state(model)
    before = copy.deepcopy(packed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-3)
    assert torch.equal(packed.weights["0"].packed, before.weights["0"].packed)
    assert torch.equal(packed.rest["0.bias"], before.rest["0.bias"])


# -- there and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("into", ["float", "quantized", "packed"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_what_is_loaded_computes_the_same(into: str, per_channel: bool, tmp_path: Path) -> None:
    model = small(per_channel=per_channel)
    path, x = saved(model, tmp_path), torch.randn(2, 2, 4, 4)
    torch.manual_seed(1)
    target = plain() if into == "float" else small(per_channel=per_channel)
    if into == "packed":
        load_packed(saved(target, tmp_path, "other.pt"), target)
    with torch.no_grad():
        assert load_packed(path, target) is target
        assert torch.equal(target.eval()(x), model(x))
        # Found as quantized, computed with whole numbers, copied, and packed once more.
        assert largest_error(model(x), integer_model(target)(x)) < 1e-5
        assert torch.equal(copy.deepcopy(target)(x), model(x))
    bits = {name: each.bits.words for name, each in quantized_layers(target).items()}
    assert bits == {"0": "w2a2", "4": "w3a4"}
    assert file_content(packed_state(target)) == path.read_bytes()


@pytest.mark.parametrize("is_folded", [False, True])
@pytest.mark.parametrize("shortcut", ["full", "low"])
def test_a_network_comes_back(is_folded: bool, shortcut: str, tmp_path: Path) -> None:
    model = residual(shortcut=shortcut)
    target: nn.Module = with_lively_norms(SmallResNet(classes=10), seed=1)
    if is_folded:
        model = fold_batch_norms(model)
        target = fold_batch_norms(residual(shortcut=shortcut))
    path, x = saved(model, tmp_path), torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(load_packed(path, target).eval()(x), model(x))
    if is_folded:
        with pytest.raises(InputError, match="batch norms folded"):
            load_packed(path, SmallResNet(classes=10))


@pytest.mark.parametrize(
    ("bits", "activations", "dtype"),
    [
        *((bits, None, torch.float32) for bits in (5, 9, 16)),
        *((2, 4, dtype) for dtype in (torch.float32, torch.float64, torch.bfloat16)),
    ],
)
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_layer_comes_back_in_its_type(
    bits: int, activations: int | None, dtype: torch.dtype, is_alone: bool, tmp_path: Path
) -> None:
    """A layer may be the model itself."""

    def made(layer: nn.Module) -> nn.Module:
        return (layer if is_alone else nn.Sequential(layer)).to(dtype)

    model = made(quantized(nn.Linear(7, 3, bias=False), bits, activations))
    path, x = saved(model, tmp_path), torch.rand(3, 7, dtype=dtype)
    first, *_ = packed_state(model).rows
    assert (first.name, first.byte) == ("weight" if is_alone else "0.weight", -(-21 * bits // 8))
    loaded = load_packed(path, made(nn.Linear(7, 3, bias=False)))
    with torch.no_grad():
        assert loaded(x).dtype == dtype
        assert torch.equal(loaded(x), model(x))


def test_stored_codes_are_for_good(tmp_path: Path) -> None:
    loaded: Any = load_packed(saved(small(), tmp_path), plain())
    assert not loaded[0].weight.requires_grad
    with pytest.raises(NotImplementedError, match="stored codes"):
        loaded[0].weight = torch.zeros(3, 2, 3, 3)
    assert loaded.to(torch.float64)[0].weight.dtype == torch.float64
    with pytest.raises(InputError, match="already"):
        quantize_model(loaded, Policy(), torch.rand(1, 2, 4, 4))


def test_a_file_is_overwritten_only_if_asked(tmp_path: Path) -> None:
    path = saved(small(), tmp_path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists"):
        packed_state(small(per_channel=True)).save(path)
    assert path.read_bytes() == before
    packed_state(small(per_channel=True)).save(str(path), overwrite=True)
    assert path.read_bytes() != before
    with pytest.raises(InputError, match="does not exist"):
        packed_state(small()).save(tmp_path / "no folder" / "model.pt")


# -- refused ---------------------------------------------------------------------------------------


def test_nothing_quantized_is_nothing_to_pack() -> None:
    with pytest.raises(InputError, match="quantize_model first"):
        packed_state(plain())


def test_weights_without_codes_are_named() -> None:
    model: Any = small()
    with torch.no_grad():
        model[4].parametrizations.weight.original[0, 0] = float("nan")
    with pytest.raises(InputError, match=r"^4\.weight: .*NaN"):
        packed_state(model)


def test_a_state_of_more_than_tensors_is_refused() -> None:
    class Stateful(nn.Linear):
        def get_extra_state(self) -> Any:
            return {"seen": 3}

        def set_extra_state(self, state: Any) -> None:
            del state

    with pytest.raises(InputError, match="tensors only"):
        packed_state(nn.Sequential(small(), Stateful(5, 5)))


# -- models that a file does not fit ---------------------------------------------------------------


def after_the_first() -> list[nn.Module]:
    """What follows the first layer, in floats."""
    return list(plain().children())[1:]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (lambda: nn.Linear(3, 3), "the model has no '0'"),
        (lambda: nn.Sequential(nn.Conv2d(2, 3, 3)), "the model has no '4'"),
        (lambda: nn.Sequential(*plain(), nn.Linear(5, 5)), "the file has no '5.weight'"),
        (
            lambda: nn.Sequential(*list(plain().children())[:-1], nn.Linear(12, 6, bias=False)),
            r"'4\.weight' has shape \(5, 12\) in the file, \(6, 12\)",
        ),
        (
            lambda: nn.Sequential(
                quantized(nn.Conv2d(2, 3, 3), 4, 2, signed=True), *after_the_first()
            ),
            "weights of '0' have 2 bits in the file, 4",
        ),
        (
            lambda: nn.Sequential(
                quantized(nn.Conv2d(2, 3, 3), 2, 2, signed=False), *after_the_first()
            ),
            "'0' has signed 2-bit inputs in the file, 2-bit inputs in the model",
        ),
    ],
)
def test_models_that_it_does_not_fit(target: Any, why: str, tmp_path: Path) -> None:
    path, model = saved(small(), tmp_path), target()
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=why) as raised:
        load_packed(path, model)
    assert "\n" not in str(raised.value)
    after = model.state_dict()
    assert list(after) == list(state)
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items())


ODD = {"head": LayerBits(weights=3, activations=32), "conv": LayerBits(weights=32, activations=5)}


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(shortcut="low"),
        Policy(weights=3, activations=4, per_channel=True),
        Policy(weights=5, activations=16, first_last=8, layers=ODD),
    ],
    ids=lambda policy: policy.words,
)
def test_the_size_is_that_of_the_packed_model(policy: Any) -> None:
    model, x = SmallResNet().eval(), torch.rand(1, 1, 8, 8)
    analysis = roofline.analyze(model, x, hardware="10980xe")
    told = evaluate_policy(analysis, policy, None)
    packed = packed_state(quantize_model(model, policy, x))
    assert told.model_bytes_after == packed.byte
    state = model.state_dict().values()
    assert told.model_bytes_before == sum(each.numel() * each.element_size() for each in state)
