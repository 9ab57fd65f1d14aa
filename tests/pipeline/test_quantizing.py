"""quantize: what it asks of its parts, what it refuses, and what it leaves alone."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.core import schema
from roofline.errors import FileFormatError, HardwareError, InputError, MeasurementError, ModelError
from roofline.pipeline import native_variants, quantizing
from roofline.pipeline.quantizing import check_widths, parse_budget, quantize, resolve_policy
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import BANDWIDTH_ONLY, NativeVariant
from roofline.quantization.sensitivity import Budget
from tests import builders

MACHINE = builders.profile(
    [builders.ceiling(1e9), builders.ceiling(4e9, of="int8", kernel="dot")],
    [builders.level("DRAM", None, {"read": {1: 1e9}})],
)
IMAGE = (2, 3, 8, 8)


class Block(nn.Module):
    """A residual block between a first convolution and scores, with a projection around it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.bn1 = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.inner, self.bn2 = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.around = nn.Conv2d(4, 8, 1, bias=False)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.first(x)).relu()
        x = (self.second(self.bn2(self.inner(x)).relu()) + self.around(x)).relu()
        return self.last(x.mean((2, 3)))


# -- what is returned ------------------------------------------------------------------------------


def test_layers_get_the_bits_of_their_places() -> None:
    found = quantize(Block(), IMAGE, hardware=MACHINE, weights=2, activations=4)
    bits = {each.layer.name: each.bits.words for each in found.what_if.layers}
    assert bits == {
        "first": "w8a8",
        "inner": "w2a4",
        "second": "w2a4",
        "around": "w32a32",
        "last": "w8a8",
    }
    low = quantize(Block(), IMAGE, hardware=MACHINE, weights=2, activations=4, shortcut="low")
    assert {each.layer.name: each.bits.words for each in low.what_if.layers}["around"] == "w2a4"


def test_weights_lie_packed_in_the_model() -> None:
    """Counted by hand: codes, and floats of 4 bytes for scales and biases.

    Where a batch norm is folded in there are two for each channel, else one scale, and the layer's
    own bias.
    """
    found = quantize(Block(), IMAGE, hardware=MACHINE).what_if
    byte = {each.layer.name: each.after.weight_bytes for each in found.layers}
    assert {each.layer.name: each.parameters for each in found.layers} == {
        "first": 3 * 4 * 9,
        "inner": 4 * 8 * 9,
        "second": 8 * 8 * 9,
        "around": 4 * 8,
        "last": 8 * 5,
    }
    assert byte == {
        "first": 108 + 4 * (4 + 4),
        "inner": 288 * 2 // 8 + 4 * (8 + 8),
        "second": 576 * 2 // 8 + 4 * (1 + 8),
        "around": 32 * 4,
        "last": 40 + 4 * (1 + 5),
    }


def test_without_bits_both_are_two_and_one_alone_leaves_the_other_in_floats() -> None:
    def bits(**options: Any) -> tuple[int, int]:
        policy = quantize(Block(), IMAGE, hardware=MACHINE, **options).what_if.policy
        return policy.weights, policy.activations

    assert bits() == (2, 2)
    assert bits(weights=4) == (4, 32)
    assert bits(activations=3) == (32, 3)
    assert bits(weights=1, activations=16) == (1, 16)


def test_a_sweep_follows_the_one_that_was_asked_for_with_the_rest_of_its_policy() -> None:
    asked = Policy(
        weights=2,
        activations=3,
        first_last=6,
        shortcut="low",
        per_channel=True,
        layers={"inner": LayerBits(weights=5, activations=5)},
    )
    found = quantize(Block(), IMAGE, hardware=MACHINE, policy=asked, sweep=[8, 4])
    assert [each.policy.weights for each in found.what_ifs] == [2, 8, 4]
    assert [each.policy.activations for each in found.what_ifs] == [3, 8, 4]
    for each in found.what_ifs:
        assert (each.policy.first_last, each.policy.shortcut) == (6, "low")
        assert each.policy.per_channel
        named = {layer.layer.name: layer.bits.words for layer in each.layers}
        assert named["inner"] == "w5a5"
    assert found.what_if is found.what_ifs[0]


def test_no_speed_is_claimed_where_there_is_no_kernel() -> None:
    found = quantize(Block(), IMAGE, hardware=MACHINE)
    inner = next(each for each in found.what_if.layers if each.layer.name == "inner")
    assert not inner.has_kernel
    assert (inner.after.time, found.what_if.after) == (None, None)
    assert BANDWIDTH_ONLY in found.summary
    assert found.what_if.layer_bytes_after < found.what_if.layer_bytes_before


def test_a_model_that_is_given_is_left_as_it_was() -> None:
    model = Block()
    model.train()
    model.register_forward_hook(lambda *_: None)
    before = copy.deepcopy(model.state_dict())
    tensors = [*model.parameters(), *model.buffers()]
    quantize(model, IMAGE, hardware=MACHINE, sensitivity=True, size_budget="2kB")
    assert model.training
    assert len(model._forward_hooks) == 1
    now = [*model.parameters(), *model.buffers()]
    assert all(one is other for one, other in zip(tensors, now, strict=True))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_a_name_is_enough() -> None:
    found = roofline.quantize("conv2d(3,4,3)+relu()+conv2d(4,4,3)@8x8", hardware=MACHINE)
    assert isinstance(found, roofline.Quantization)
    assert len(found.what_if.layers) == 2


def test_weights_that_a_function_holds_are_counted() -> None:
    """9 floats; as codes of 8 bits with a scale, and one for the clipping of what is read."""
    weights = torch.ones(3, 3)
    found = quantize(lambda x: x @ weights, (2, 3), hardware=MACHINE).what_if
    assert (found.model_bytes_before, found.model_bytes_after) == (9 * 4, 9 + 4 + 4)


def test_another_type_is_what_bytes_are_held_against() -> None:
    of = quantize(Block(), IMAGE, hardware=MACHINE).what_if
    half = quantize(Block(), IMAGE, hardware=MACHINE, dtype="float16").what_if
    assert half.layer_bytes_before * 2 == of.layer_bytes_before


# -- sensitivity, and what runs here ---------------------------------------------------------------


def test_layers_are_ranked_and_a_policy_is_proposed_within_a_budget() -> None:
    model = Block().eval()
    torch.manual_seed(1)
    sample = torch.randn(IMAGE)
    found = quantize(
        model, sample, hardware=MACHINE, sensitivity=True, size_budget=1000, samples=sample
    )
    ranking = found.sensitivity
    assert ranking is not None
    assert ranking.proposal is not None
    # What is on the shortcut stays in floats, so nothing of it is quantized.
    assert {each.name for each in ranking.layers} == {"first", "inner", "second", "last"}
    assert ranking.proposal.is_within
    assert ranking.proposal.model_bytes <= 1000
    again = quantize(model, sample, hardware=MACHINE, policy=ranking.proposal.policy)
    assert again.what_if.model_bytes_after == ranking.proposal.model_bytes


def test_a_saved_result_is_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    found = quantize(Block(), IMAGE, hardware=MACHINE, weights=3, activations=5, shortcut="low")
    found.save(file)
    assert resolve_policy(file) == found.what_if.policy
    proposed = quantize(Block(), IMAGE, hardware=MACHINE, sensitivity=True, size_budget="1kB")
    proposed.save(file, overwrite=True)
    assert proposed.sensitivity is not None
    assert proposed.sensitivity.proposal is not None
    assert resolve_policy(file) == proposed.sensitivity.proposal.policy


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of the tests is taken to be this one, and quiet."""
    monkeypatch.setattr(quantizing, "check_bench", lambda **_: None)
    monkeypatch.setattr(quantizing, "check_here", lambda *_: None)


def test_native_variants_are_asked_for_the_same_pass(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}
    variant = NativeVariant(
        way="bfloat16", bits=LayerBits(weights=16, activations=16), why_not="no such kernel"
    )

    def stand_in(model: Any, inputs: Any, **options: Any) -> Any:
        asked.update(model=model, inputs=inputs, **options)
        options["progress"](0.5, "bfloat16")
        other = options["what_if_of"](Policy(weights=16, activations=16))
        assert other.policy.weights == 16
        return (variant,), ("the clock was low",)

    monkeypatch.setattr(native_variants, "measure_variants", stand_in)
    model, told = Block(), list[tuple[float, str]]()
    found = quantize(
        model,
        IMAGE,
        hardware=MACHINE,
        measure=True,
        rounds=3,
        batch=4,
        sensitivity=True,
        progress=lambda *each: told.append(each),
    )
    assert found.native_variants == (variant,)
    assert found.warnings[-1] == "the clock was low"
    assert (asked["model"], asked["inputs"], asked["rounds"]) == (model, IMAGE, 3)
    assert (asked["options"].batch, asked["force"]) == (4, False)
    assert asked["analysis"] is found.analysis
    assert [each for each, _ in told] == sorted(each for each, _ in told)
    assert (0.75, "bfloat16") in told


def test_a_busy_machine_is_refused_before_layers_are_quantized(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(**_: object) -> None:
        raise MeasurementError("others compute")

    told: list[str] = []
    monkeypatch.setattr(quantizing, "check_bench", busy)
    with pytest.raises(MeasurementError, match="others compute"):
        quantize(
            Block(),
            IMAGE,
            hardware=MACHINE,
            measure=True,
            sensitivity=True,
            progress=lambda _, what: told.append(what),
        )
    assert told == []


# -- policies, sweeps and budgets as users give them -----------------------------------------------


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    policy = Policy(
        weights=3,
        activations=4,
        first_last=6,
        shortcut="low",
        per_channel=True,
        layers={"a.b": LayerBits(weights=8, activations=32)},
    )
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(schema.to_data(policy)))
    assert resolve_policy(file) == policy
    file.write_text('{"weights": 4}')
    assert resolve_policy(str(file)) == Policy(weights=4)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON at line 1"),
        ("[2, 2]", "is not a policy: expected a table"),
        ('{"weight": 2}', "unknown key 'weight'; did you mean 'weights'"),
        ('{"weights": 2.5}', "weights: expected a whole number, got 2.5"),
        ('{"weights": 17}', "weights: 17 bits; must be an integer from 1 to 16"),
        ('{"shortcut": "none"}', "shortcut: expected one of 'full', 'low', got 'none'"),
        ('{"per_channel": "yes"}', "per_channel: expected true or false, got 'yes'"),
        ('{"layers": [1]}', "layers: expected a table with keys"),
        ('{"layers": {"a": 2}}', "layers.a: expected a table with keys, got 2"),
        ('{"layers": {"a": {"weights": 2}}}', "layers.a: missing key 'activations'"),
        (
            '{"layers": {"a": {"weights": 17, "activations": 2}}}',
            "layers.a: weights: 17 bits",
        ),
        ('{"kind": "optimization"}', "is not a policy, but of kind 'optimization'"),
        ('{"kind": "quantization"}', "it has no 'schema_version'"),
        (
            '{"kind": "quantization", "schema_version": 9, "what_ifs": []}',
            "schema_version 9: written by an older version of roofline",
        ),
        (
            '{"kind": "quantization", "schema_version": 1}',
            "is a damaged result without a policy",
        ),
        (
            '{"kind": "quantization", "schema_version": 1, "what_ifs": [], "sensitivity": null}',
            "is a damaged",
        ),
    ],
)
def test_what_is_no_policy_is_said_in_a_line(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(content)
    with pytest.raises(FileFormatError) as caught:
        resolve_policy(file)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no such file"):
        resolve_policy(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("first_last", 4),
        ("first_last", 8),
        ("shortcut", "low"),
        ("shortcut", "full"),
        ("per_channel", True),
    ],
)
def test_other_options_beside_a_policy_are_refused(option: str, value: Any) -> None:
    words = f"{option} has no effect with policy"
    with pytest.raises(InputError, match=words):
        quantize(Block(), IMAGE, hardware=MACHINE, policy=Policy(), **{option: value})


def test_sweeps() -> None:
    assert check_widths([8, 2, 4]) == (8, 2, 4)
    assert check_widths(range(1, 17)) == tuple(range(1, 17))
    assert check_widths(()) == ()


def test_budgets() -> None:
    assert parse_budget(None, None, sensitivity=False) is None
    assert parse_budget(1000, None, sensitivity=True) == Budget(size_bytes=1000)
    assert parse_budget("1.5MB", None, sensitivity=True) == Budget(size_bytes=1_500_000)
    assert parse_budget(None, 1, sensitivity=True) == Budget(time_s=1.0)
    assert parse_budget(None, "5ms", sensitivity=True) == Budget(time_s=0.005)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"weights": 0}, InputError, "weights: 0 bits"),
        ({"weights": 17}, InputError, "weights: 17 bits; must be an integer from 1 to 16"),
        ({"activations": -2}, InputError, "activations: -2 bits"),
        ({"activations": True}, InputError, "activations: True bits"),
        ({"weights": 2.0}, InputError, r"weights: 2\.0 bits"),
        ({"first_last": 64}, InputError, "first_last: 64 bits"),
        ({"shortcut": "half"}, InputError, "shortcut='half': must be full or low"),
        ({"per_channel": 1}, InputError, "per_channel=1: must be True or False"),
        ({"policy": Policy(), "weights": 2}, InputError, "weights has no effect with policy"),
        ({"policy": {"weights": 2}}, InputError, "got dict"),
        ({"policy": "nowhere.json"}, FileFormatError, "nowhere.json: no such file"),
        ({"sweep": [2, 0]}, InputError, "sweep: 0 bits"),
        ({"sweep": [2, 2]}, InputError, "sweep: 2 bits given twice"),
        ({"sweep": "2,3"}, InputError, "expected widths in bits, such as"),
        ({"sweep": 3}, InputError, "expected widths in bits, such as"),
        ({"size_budget": 1000}, InputError, "size_budget has no effect without sensitivity=True"),
        ({"time_budget": "1ms"}, InputError, "time_budget has no effect without sensitivity=True"),
        (
            {"sensitivity": True, "size_budget": "1MB", "time_budget": "1ms"},
            InputError,
            "size_budget and time_budget: give only one",
        ),
        (
            {"sensitivity": True, "size_budget": "big"},
            InputError,
            "size_budget='big': must be a size",
        ),
        ({"sensitivity": True, "size_budget": 0}, InputError, "size_budget=0"),
        ({"sensitivity": True, "size_budget": 1e6}, InputError, "size_budget=1000000.0"),
        ({"sensitivity": True, "size_budget": 10**400}, InputError, "size_budget=1000"),
        ({"sensitivity": True, "time_budget": 10**400}, InputError, "time_budget=1000"),
        ({"sensitivity": True, "time_budget": -1}, InputError, "time_budget=-1"),
        ({"sensitivity": True, "time_budget": float("nan")}, InputError, "time_budget=nan"),
        ({"sensitivity": True, "time_budget": True}, InputError, "time_budget=True"),
        ({"samples": IMAGE}, InputError, "samples have no effect without sensitivity=True"),
        ({"rounds": 3}, InputError, "rounds=3 has no effect without measure=True"),
        ({"rounds": 0, "measure": True}, InputError, "rounds=0: must be a whole number"),
        ({"measure": True}, InputError, "measure=True measures on this machine, but"),
        ({"measure": 1}, InputError, "measure=1: must be True or False"),
        ({"sensitivity": "yes"}, InputError, "sensitivity='yes': must be True or False"),
        ({"force": None}, InputError, "force=None: must be True or False"),
        ({"progress": 3}, InputError, "progress=3: must be a function, or None"),
        ({"threads": 5}, HardwareError, "threads"),
        ({"batch": 0}, InputError, "batch=0"),
        ({"dtype": "int8"}, InputError, "dtype='int8'"),
        ({"hardware": "h1000"}, HardwareError, "h1000"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_before_a_model_is_built(
    options: dict[str, Any],
    error: type[Exception],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a model was built")

    monkeypatch.setattr(quantizing, "capture_pass", never)
    with pytest.raises(error, match=words) as caught:
        chosen: dict[str, Any] = {"hardware": MACHINE, **options}
        quantize("no such model", **chosen)
    assert "\n" not in str(caught.value)


# -- models that cannot be quantized ---------------------------------------------------------------


class Rounded(nn.Module):
    """A product of whole numbers."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(4, 4, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.table


def packed() -> nn.Module:
    """torch's own linear layers on int8."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})


def quantized() -> nn.Module:
    """Ours."""
    from roofline.quantization import quantize_model

    return quantize_model(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), Policy())


def scripted() -> nn.Module:
    """Code of torch's own, without modules in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


@pytest.mark.parametrize(
    ("model", "inputs", "words"),
    [
        (lambda: nn.ReLU(), (1, 4), "ReLU has no layer to quantize"),
        (
            Rounded,
            torch.ones(2, 4, dtype=torch.int64),
            "Rounded has no layer to quantize",
        ),
        (scripted, (2, 4), "is scripted; quantize the original module"),
        (packed, (2, 4), "is already quantized"),
        (quantized, (2, 4), "is already quantized"),
    ],
)
def test_models_that_cannot_be_quantized_are_refused_in_a_line(
    model: Any, inputs: Any, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        quantize(model(), inputs, hardware=MACHINE)
    assert "\n" not in str(caught.value)


def test_layers_that_there_are_not_are_refused_with_the_nearest() -> None:
    policy = Policy(layers={"iner": LayerBits(weights=2, activations=2)})
    with pytest.raises(InputError, match="Block has no layer 'iner'; did you mean 'inner'"):
        quantize(Block(), IMAGE, hardware=MACHINE, policy=policy)


def test_weights_that_are_no_numbers_are_refused_where_they_are_looked_at() -> None:
    model = Block()
    with torch.no_grad():
        model.inner.weight[0, 0, 0, 0] = float("nan")
    # Bytes and bounds do not depend on values.
    assert quantize(model, IMAGE, hardware=MACHINE).what_if.layers
    with pytest.raises((InputError, ModelError), match="NaN") as caught:
        quantize(model, IMAGE, hardware=MACHINE, sensitivity=True)
    assert "\n" not in str(caught.value)


def test_a_machine_without_ceilings_has_bytes_and_no_bounds() -> None:
    found = quantize(Block(), IMAGE, hardware=builders.profile([], [])).what_if
    assert (
        found.eager_min_time_before_s,
        found.eager_min_time_after_s,
        found.separate_eager_min_time_s,
    ) == (None,) * 3
    assert found.layer_bytes_after < found.layer_bytes_before


def test_the_same_call_gives_the_same_result() -> None:
    one, other = (quantize(Block(), IMAGE, hardware=MACHINE, sensitivity=True) for _ in range(2))
    assert one.what_ifs == other.what_ifs
    assert one.sensitivity == other.sensitivity
