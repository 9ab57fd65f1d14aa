"""Files of packed models that are damaged, forged, or none at all: one line, nothing changed."""

from __future__ import annotations

import copy
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from roofline.errors import FileFormatError, InputError
from roofline.quantization import packed_files
from roofline.quantization.packed_files import file_content, read_packed
from roofline.quantization.packed_models import load_packed, packed_state
from tests.quantization.quantized_examples import plain, quantized, residual, saved, small
from tests.quantization.small_networks import SmallResNet, with_lively_norms


def refusal(path: Path, error: type[InputError] = FileFormatError) -> str:
    """What is said of a file: one line that can be shown; nothing in the model is changed."""
    target = plain()
    state, kinds = copy.deepcopy(target.state_dict()), [type(each) for each in target.modules()]
    with pytest.raises(error) as raised:
        load_packed(path, target)
    message = str(raised.value)
    assert message.isprintable()
    assert len(message) < 700
    assert str(path) in message or "\0" in str(path)
    assert list(target.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in target.state_dict().items())
    assert [type(each) for each in target.modules()] == kinds
    assert not any(each._forward_pre_hooks for each in target.modules())
    return message


def content_of_small() -> dict[str, Any]:
    return torch.load(io.BytesIO(file_content(packed_state(small()))), weights_only=True)


def forged(path: Path, change: Any) -> None:
    """Writes the file of `small` with another table, and a checksum that is right."""
    content = content_of_small()
    table = json.loads(content["table"])
    text = change(table)
    content["table"] = text if isinstance(text, str) else json.dumps(table)
    content["crc32"] = packed_files._checksum(content["table"], content["payload"])
    torch.save(content, path)


def alpha_in(name: str, table: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in table["rest"] if row["name"] == name)


_ALPHA = "0.input_quantizer.alpha"


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    assert "no such file" in refusal(path)
    assert "cannot be read" in refusal(tmp_path)
    for content in (b"", b"hello", b"PK\x03\x04 and so on"):
        path.write_bytes(content)
        assert "is not a packed model" in refusal(path)
    for value in (plain().state_dict(), [1, 2], plain(), {"format": "another"}):
        torch.save(value, path)
        assert "is not a packed model" in refusal(path)
    torch.save({"format": "roofline packed model", "version": 2}, path)
    assert "version 2" in refusal(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.floats(0, 1), st.integers(1, 255))
def test_a_changed_byte_is_found(tmp_path: Path, where: float, by: int) -> None:
    path = tmp_path / "model.pt"
    content = bytearray(file_content(packed_state(small())))
    place = int(where * (len(content) - 1))
    content[place] ^= by
    path.write_bytes(content)
    try:
        found = read_packed(path)
    except FileFormatError as error:
        assert "\n" not in str(error)
        return
    # A byte of the container that says nothing: what it holds is whole.
    assert file_content(found) == file_content(packed_state(small()))


@pytest.mark.parametrize("part", [0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_file_that_was_cut_short_is_found(part: float, tmp_path: Path) -> None:
    path = saved(small(), tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert "is not a packed model, or is damaged" in refusal(path)


@pytest.mark.parametrize(
    "change",
    [
        {"version": torch.tensor([1, 1])},
        {"version": 1.0},
        {"version": "x"},
        {"version": None},
        {"crc32": torch.tensor([1, 2])},
        {"crc32": None},
        {"format": torch.zeros(3)},
        {"format": ["roofline packed model"]},
        {"table": 5},
        {"payload": torch.zeros(5, dtype=torch.int8)},
        {"payload": torch.zeros((5, 1), dtype=torch.uint8)},
        {"payload": torch.zeros(5, dtype=torch.uint8, device="meta")},
        {"payload": torch.zeros(5, dtype=torch.uint8).to_sparse()},
        {"payload": torch.zeros(10, dtype=torch.uint8)[::2]},
        {"payload": [1, 2, 3]},
        # One byte that says to be many fills no memory.
        {"payload": torch.zeros(1, dtype=torch.uint8).expand(2**50)},
    ],
)
def test_containers_of_other_things(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({**content_of_small(), **change}, path)
    assert path.stat().st_size < 20_000
    message = refusal(path)
    assert "damaged" in message or "is not a packed model" in message


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.pop("rest"),
        lambda table: table["rest"].pop(),
        lambda table: table["rest"].pop(0),
        lambda table: table["weights"][0].update(bits=99),
        lambda table: table["weights"][0].update(bits=4),
        lambda table: table["weights"][0].update(levels=3),
        lambda table: table["weights"][0].update(levels="four"),
        lambda table: table["weights"][0].update(axis=7),
        lambda table: table["weights"][0].update(shape=[-1, -54]),
        lambda table: table["weights"][0]["alpha"].update(shape=[2]),
        lambda table: table["weights"][0].update(same_as="nobody"),
        lambda table: table["inputs"][0].update(bits=0),
        lambda table: table["inputs"][0].update(name="nobody"),
        lambda table: table["rest"][0].update(dtype="Tensor"),
        lambda table: table["rest"][0].update(name=3),
        lambda table: table.update(weights=3),
        lambda table: table["weights"][0].update(shape=[0, 10**30]),
        lambda table: table["weights"][0].update(shape=[10**30, 10**30]),
        lambda table: table["weights"][0].update(shape="3233"),
        lambda table: table["weights"][0].update(shape={"3": 2}),
        lambda table: table["weights"][0].update(axis=[0]),
        lambda table: table["weights"][0].update(name=None),
        lambda table: table["weights"][0]["alpha"].update(dtype="int32"),
        lambda table: table["weights"].insert(0, [1, 2]),
        lambda table: table["weights"].insert(0, 7),
        lambda table: table["weights"].insert(0, {"name": "a", "same_as": ["b"]}),
        lambda table: table["rest"].insert(0, {"name": "a", "dtype": [], "shape": []}),
        lambda table: table["rest"].insert(0, {"name": "a", "dtype": "bool", "shape": [10**30, 0]}),
        lambda table: alpha_in(_ALPHA, table).update(dtype="int32"),
        lambda table: alpha_in(_ALPHA, table).update(shape=[1]),
        lambda table: alpha_in(_ALPHA, table).update(name="0.input_quantizer.beta"),
        lambda table: table.update(inputs=[5]),
        lambda table: table.update(inputs={"0": 2}),
    ],
)
def test_tables_of_nonsense(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    forged(path, change)
    assert "is damaged" in refusal(path)


def test_tables_without_end(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    forged(path, lambda table: table["weights"][0].update(shape=[10**9, 10**9]))
    assert "payload shorter" in refusal(path)
    forged(path, lambda table: "[" * 100_000)
    assert "is damaged" in refusal(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0])
@pytest.mark.parametrize("of_weights", [False, True])
def test_clipping_values_and_scales_that_are_none(
    value: float, of_weights: bool, tmp_path: Path
) -> None:
    packed = packed_state(small())
    tensor = packed.weights["0"].alpha if of_weights else packed.rest[_ALPHA]
    tensor.fill_(value)
    path = tmp_path / "model.pt"
    packed.save(path)
    if of_weights and value == 0:
        # As of weights that are all zero.
        load_packed(path, plain())
        return
    said = "invalid scales" if of_weights else "'0' has no clipping value above 0"
    assert said in refusal(path)


def test_names_that_cannot_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    name = "a\n\x1b[31mb" + 1000 * "c"
    for part in ("rest", "weights"):
        forged(path, lambda table, part=part: table[part][0].update(name=name))
        assert "the model has no 'a" in refusal(path, InputError)
    rest = {"name": f"{name}.input_quantizer.alpha", "same_as": _ALPHA}

    def both(table: dict[str, Any]) -> None:
        table["rest"].append(rest)
        table["inputs"].append({"name": name, "bits": 2, "signed": False})

    forged(path, both)
    assert "the model has no 'a" in refusal(path, InputError)


def test_what_loading_would_cast_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    forged(path, lambda table: alpha_in("0.bias", table).update(dtype="int32"))
    assert "'0.bias' is int32 in the file, float32 in the model" in refusal(path, InputError)


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        assert "cannot be read" in refusal(path)
    assert "cannot be read" in refusal(Path("a\0b"))


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    for value in ({**content_of_small(), "table": Harm()}, Harm()):
        torch.save(value, tmp_path / "model.pt")
        assert "is not a packed model, or is damaged" in refusal(tmp_path / "model.pt")
    assert not (tmp_path / "made").exists()


def test_float_weights_do_not_get_lost_in_a_model_with_codes(tmp_path: Path) -> None:
    path = saved(nn.Sequential(quantized(nn.Linear(4, 4), None, 4)), tmp_path)
    target = nn.Sequential(quantized(nn.Linear(4, 4), 4, 4))
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(InputError, match=r"'0\.weight' has floats in the file, codes in the model"):
        load_packed(path, target)
    assert all(torch.equal(each, before[name]) for name, each in target.state_dict().items())


# -- what is loaded --------------------------------------------------------------------------------


def test_a_quantizer_that_two_modules_share_is_kept_once(tmp_path: Path) -> None:
    model = residual(shortcut="low")
    path = saved(model, tmp_path)
    loaded = load_packed(path, with_lively_norms(SmallResNet(classes=10)))
    assert file_content(packed_state(loaded)) == path.read_bytes()
    assert not any(each.training for each in loaded.modules())
    x = torch.rand(4, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_it_is_exported_and_compiled(tmp_path: Path) -> None:
    loaded = load_packed(saved(small(), tmp_path), plain()).eval()
    x = torch.randn(2, 2, 4, 4)
    for is_strict in (False, True):
        program = torch.export.export(loaded, (x,), strict=is_strict)
        torch.testing.assert_close(program.module()(x), loaded(x))
    compiled = torch.compile(loaded, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), loaded(x))


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_in_half_precision_it_is_as_near_as_that_rounds(bits: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = saved(nn.Sequential(quantized(nn.Linear(40, 6), bits, None)), tmp_path)
    loaded: Any = load_packed(path, nn.Sequential(nn.Linear(40, 6)))
    expected = loaded[0].weight
    for dtype in (torch.bfloat16, torch.float16):
        found = copy.deepcopy(loaded).to(dtype)[0].weight
        assert found.dtype == dtype
        largest = expected.abs().max()
        assert (
            float((found.float() - expected).abs().max() / largest) < 1.1 * torch.finfo(dtype).eps
        )


def test_alpha_that_training_drove_below_zero_is_set_back_first(tmp_path: Path) -> None:
    model: Any = small()
    model[0].input_quantizer.train()(torch.ones(2))
    model.eval()
    with torch.no_grad():
        model[0].input_quantizer.alpha.fill_(-0.5)
    with pytest.warns(UserWarning, match="reset"):
        path = saved(model, tmp_path)
    assert float(read_packed(path).rest[_ALPHA]) == pytest.approx(0.002)
    model[4].input_quantizer.load_state_dict({"alpha": torch.tensor(-0.5)})
    with pytest.raises(InputError, match="must be above 0"):
        packed_state(model)
