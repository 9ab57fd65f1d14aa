"""Weights out of files, whole and damaged, and what is only unpickled where it is trusted."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from roofline.errors import FileFormatError, ModelError
from roofline.workload.models.files.formats import StoredModel
from roofline.workload.models.sources import load_model
from tests.workload.hostile_files import Evil, said_of, saved

MAKER = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
"""


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model's name, in a folder to stand in: what a pickle would make in it would be seen."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MAKER)
    return f"{tmp_path / 'mine.py'}:net"


def state() -> dict[str, torch.Tensor]:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).state_dict()


def test_weights_as_the_library_writes_them(maker: str, tmp_path: Path) -> None:
    weights = state()
    save_file(weights, tmp_path / "w.safetensors")
    source = load_model(StoredModel(maker, weights=tmp_path / "w.safetensors"))
    found = source.module.state_dict()
    assert all(torch.equal(found[name], each) for name, each in weights.items())
    assert source.notes[-1] == "note: weights from w.safetensors"


def file_of(path: Path, told: Any, values: bytes = bytes(48), length: int | None = None) -> Path:
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + values)
    return path


def entry(shape: list[Any], *offsets: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    "told",
    [
        b"{",
        b"[" * 100_000,
        [],
        {"a": entry([3, 4], 0, 48, dtype="Q4")},
        {"a": entry(["x"], 0, 48)},
        {"a": entry([3, 4], 0)},
        {"a": []},
        {"a": entry([3, 4], 4, 52)},
        {"a": entry([3, 4], -4, 44)},
        {"a": entry([2**40], 0, 48)},
        {"a": entry([0, 2**62, 2**62], 0, 0)},
        {"a": entry([-3, -4], 0, 48)},
    ],
)
def test_lists_that_say_what_is_not_there(told: Any, maker: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "w.safetensors", told)
    said = said_of(StoredModel(maker, weights=path))
    assert said.startswith(f"{path}: safetensors cannot read it: ")


def test_files_that_are_cut_short(maker: str, tmp_path: Path) -> None:
    path = file_of(tmp_path / "w.safetensors", {"0.weight": entry([3, 4], 0, 48)})
    content = path.read_bytes()
    for part in range(1, 16):
        path.write_bytes(content[: len(content) * part // 16])
        assert "safetensors cannot read it" in said_of(StoredModel(maker, weights=path))
    path.write_bytes(b"")
    assert "the file is empty" in said_of(StoredModel(maker, weights=path))
    path = file_of(path, {}, length=2**63)
    assert "safetensors cannot read it" in said_of(StoredModel(maker, weights=path))
    path = file_of(path, {"__metadata__": {}}, values=b"")
    assert "no weights in the file" in said_of(StoredModel(maker, weights=path))


def test_types_become_those_of_the_model(maker: str, tmp_path: Path) -> None:
    weights = {
        name: each.half() if each.is_floating_point() else each for name, each in state().items()
    }
    torch.save(weights, tmp_path / "w.pt")
    module = load_model(StoredModel(maker, weights=tmp_path / "w.pt")).module
    assert {each.dtype for each in module.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not weights at all", "not a supported weight file"),
        (saved({"a": Evil()}), "allow_pickle=True"),
        (pickle.dumps({"a": Evil()}), "allow_pickle=True"),
    ],
)
def test_what_holds_no_weights(content: bytes, words: str, maker: str, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(content)
    assert words in said_of(StoredModel(maker, weights=tmp_path / "w.pt"))
    assert not (tmp_path / "MARK").exists()


# -- pickles in the place of models ----------------------------------------------------------------


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_pickled_model_is_opened_only_where_it_is_trusted(
    as_zip: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pt"
    path.write_bytes(saved(Evil()) if as_zip else pickle.dumps(Evil()))
    said = said_of(path)
    assert f"a pickle{' that imports posix.mkdir' * as_zip}, and unpickling runs code" in said
    assert "if you trust it, add allow_pickle=True" in said
    assert not (tmp_path / "MARK").exists()
    # What is trusted is run, and here turns out to be no model.
    with pytest.raises(
        (ModelError, FileFormatError), match=r"expected a torch\.nn\.Module|torch\.load cannot read"
    ):
        load_model(StoredModel(str(path), allow_pickle=True))
    assert (tmp_path / "MARK").exists()


def test_a_pickled_module_that_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save(nn.Sequential(nn.Linear(3, 2)), path)
    assert "a pickle that imports torch.nn.modules" in said_of(path)
    source = load_model(StoredModel(str(path), allow_pickle=True))
    assert isinstance(source.module, nn.Sequential)
    assert "unpickled (allow_pickle=True), which runs code" in source.notes[0]
