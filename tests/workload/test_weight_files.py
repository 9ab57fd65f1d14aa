"""Weights out of .safetensors files, whole and damaged, and files that hold none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from roofline.workload.models.files.formats import StoredModel
from roofline.workload.models.sources import load
from tests.workload.hostile_files import said_of

MAKER = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
"""


@pytest.fixture
def maker(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MAKER)
    return f"{tmp_path / 'mine.py'}:net"


def state() -> dict[str, torch.Tensor]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    return model.state_dict()


def test_weights_as_the_library_writes_them(maker: str, tmp_path: Path) -> None:
    library: Any = pytest.importorskip("safetensors.torch")
    weights = state()
    library.save_file(weights, tmp_path / "w.safetensors")
    source = load(StoredModel(maker, weights=tmp_path / "w.safetensors"))
    found = source.module.state_dict()
    assert all(torch.equal(found[name], each) for name, each in weights.items())
    assert source.notes[-1] == "its weights are those in w.safetensors"


def file_of(path: Path, told: Any, values: bytes = bytes(48), length: int | None = None) -> Path:
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + values)
    return path


def entry(shape: list[Any], *offsets: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (b"{", "the list of tensors in it is damaged"),
        (b"[" * 100_000, "the list of tensors in it is damaged"),
        ([], "the list of tensors in it is damaged"),
        ({"__metadata__": {}}, "there are no weights in it"),
        ({"a": entry([3, 4], 0, 48, dtype="Q4")}, "what it says of the tensor 'a' is damaged"),
        ({"a": entry(["x"], 0, 48)}, "what it says of the tensor 'a' is damaged"),
        ({"a": entry([3, 4], 0)}, "what it says of the tensor 'a' is damaged"),
        ({"a": []}, "what it says of the tensor 'a' is damaged"),
        ({"a": entry([3, 4], 4, 52)}, "and other values in the file"),
        ({"a": entry([3, 4], -4, 44)}, "and other values in the file"),
        ({"a": entry([2**40], 0, 48)}, "and other values in the file"),
        ({"a": entry([0, 2**62, 2**62], 0, 0)}, "and other values in the file"),
        ({"a": entry([-3, -4], 0, 48)}, "and other values in the file"),
    ],
)
def test_lists_that_say_what_is_not_there(
    told: Any, words: str, maker: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path / "w.safetensors", told)
    assert words in said_of(StoredModel(maker, weights=path))


def test_files_that_are_cut_short(maker: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "w.safetensors", {"0.weight": entry([3, 4], 0, 48)})
    content = path.read_bytes()
    for part in range(1, 16):
        path.write_bytes(content[: len(content) * part // 16])
        assert "cut short or damaged" in said_of(StoredModel(maker, weights=path))
    path.write_bytes(b"")
    assert "the file is empty" in said_of(StoredModel(maker, weights=path))
    path = file_of(path, {}, length=2**63)
    assert "its list is not whole" in said_of(StoredModel(maker, weights=path))


def test_types_become_those_of_the_model(maker: str, tmp_path: Path) -> None:
    weights = {
        name: each.half() if each.is_floating_point() else each for name, each in state().items()
    }
    torch.save(weights, tmp_path / "w.pt")
    module = load(StoredModel(maker, weights=tmp_path / "w.pt")).module
    assert {each.dtype for each in module.parameters()} == {torch.float32}


def test_what_holds_no_weights(maker: str, tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("not weights at all")
    assert "no weights that are read here" in said_of(
        StoredModel(maker, weights=tmp_path / "w.txt")
    )
