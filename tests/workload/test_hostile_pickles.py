"""Pickles in every place of a file in which torch would run them, and tensors without values."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import FileFormatError, ModelError
from roofline.workload.models.files.formats import StoredModel
from roofline.workload.models.sources import load
from tests.workload.hostile_files import (
    Change,
    changed,
    edited,
    program_content,
    said_of,
    saved,
    written,
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return written(tmp_path, ".pt2")


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def _weights_are_pickled(content: bytes) -> bytes:
    told = json.loads(content)
    next(iter(told["config"].values()))["use_pickle"] = True
    return json.dumps(told).encode()


def test_pickles_inside_a_program_are_not_run(program: Path, tmp_path: Path) -> None:
    """torch would unpickle each of them."""
    mark = tmp_path / "MARK"
    examples = {"data/sample_inputs/model.pt": saved((Evil(mark), {}))}
    said = said_of(changed(program, tmp_path / "a.pt2", examples))
    assert "'data/sample_inputs/model.pt' is a pickle that imports posix.mkdir" in said
    assert "allow_pickle=True" in said
    earlier = {"data/weights/model.pt": saved({"a": Evil(mark)})}
    assert "is a pickle" in said_of(changed(program, tmp_path / "b.pt2", earlier))
    config = {"data/weights/model_weights_config.json": _weights_are_pickled}
    assert "is pickled" in said_of(changed(program, tmp_path / "c.pt2", {**config}))
    for prefix in ("custom_obj", "opaque_obj"):
        entry = {"path_name": f"{prefix}_0", "is_param": False, "use_pickle": False}
        constants: Mapping[str, bytes | Change | None] = {
            "data/constants/model_constants_config.json": json.dumps(
                {"config": {"a": {**entry, "tensor_meta": None}}}
            ).encode(),
            f"data/constants/{prefix}_0": pickle.dumps(Evil(mark)),
        }
        assert "is pickled" in said_of(changed(program, tmp_path / "d.pt2", constants))
    assert not mark.exists()


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_pickled_model_is_opened_only_where_it_is_trusted(as_zip: bool, tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    path = tmp_path / "evil.pt"
    path.write_bytes(saved(Evil(mark)) if as_zip else pickle.dumps(Evil(mark)))
    said = said_of(path)
    assert f"a pickle{' that imports posix.mkdir' * as_zip}, and unpickling runs what" in said
    assert "add allow_pickle=True if you trust it" in said
    assert not mark.exists()
    # What is trusted is run, and here turns out to be no model.
    with pytest.raises(
        (ModelError, FileFormatError), match=r"not a torch\.nn\.Module|torch\.load cannot read"
    ):
        load(StoredModel(str(path), allow_pickle=True))
    assert mark.exists()


def test_a_pickled_module_that_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save(nn.Sequential(nn.Linear(3, 2)), path)
    assert "a pickle that imports torch.nn.modules" in said_of(path)
    source = load(StoredModel(str(path), allow_pickle=True))
    assert isinstance(source.module, nn.Sequential)
    assert "it was unpickled (--allow-pickle), which runs whatever code" in source.notes[0]


# -- tensors ---------------------------------------------------------------------------------------


def test_tensors_without_values_are_not_allocated(program: Path, tmp_path: Path) -> None:
    """torch would make as many zeros as the file asks for."""

    def edit(told: Any) -> None:
        entry = next(iter(told["config"].values()))
        entry["tensor_meta"]["sizes"] = [{"as_int": 2**40}]

    name = "data/weights/model_weights_config.json"
    with zipfile.ZipFile(program) as opened:
        told = json.loads(_member(opened, name))
    file = next(iter(told["config"].values()))["path_name"]
    path = changed(
        program, tmp_path / "a.pt2", {name: edited(edit), f"data/weights/{file}": lambda _: b""}
    )
    assert "and no values in the file" in said_of(path)
    path = changed(program, tmp_path / "b.pt2", {name: edited(edit)})
    assert "and 432 B of values in the file" in said_of(path)
    path = changed(program, tmp_path / "c.pt2", {f"data/weights/{file}": None})
    assert "is missing in it" in said_of(path)


def _member(opened: zipfile.ZipFile, name: str) -> bytes:
    return opened.read(next(each for each in opened.namelist() if each.endswith(name)))


def test_programs_of_another_device(program: Path, tmp_path: Path) -> None:
    def edit(told: Any) -> None:
        next(iter(told["config"].values()))["tensor_meta"]["device"] = {"type": "cuda", "index": 0}

    changes: Mapping[str, bytes | Change | None] = {
        "data/weights/model_weights_config.json": edited(edit)
    }
    said = said_of(changed(program, tmp_path / "a.pt2", changes))
    assert "exported on 'cuda'" in said
    assert "export the model on the CPU" in said


def test_pickles_of_files_that_torch_wrote_before(tmp_path: Path) -> None:
    """They have no folder, and weights, constants and examples are unpickled."""
    mark = tmp_path / "MARK"
    with zipfile.ZipFile(_stream()) as opened:
        program = _member(opened, "models/model.json")
    for name in ("state_dict", "constants", "example_inputs"):
        path = tmp_path / f"{name}.pt2"
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("version", "8.8")
            made.writestr("serialized_exported_program.json", program)
            for each in ("state_dict", "constants", "example_inputs"):
                content = saved({"a": Evil(mark)}) if each == name else b""
                made.writestr(f"serialized_{each}.pt", content)
        assert "is a pickle that imports posix.mkdir" in said_of(path)
    assert not mark.exists()


def _stream() -> io.BytesIO:
    return io.BytesIO(program_content())


def test_tensors_that_repeat_what_is_stored(program: Path, tmp_path: Path) -> None:
    """torch copies them, and would need a hundred terabytes."""

    def edit(told: Any) -> None:
        meta = next(iter(told["config"].values()))["tensor_meta"]
        meta["sizes"], meta["strides"] = [{"as_int": 2**45}], [{"as_int": 0}]

    name = "data/weights/model_weights_config.json"
    path = changed(program, tmp_path / "a.pt2", {name: edited(edit)})
    assert "of values in the file" in said_of(path)


def test_pickles_in_place_of_weights(tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    (tmp_path / "mine.py").write_text("from torch import nn\n\ndef net():\n    return nn.ReLU()\n")
    maker = f"{tmp_path / 'mine.py'}:net"
    for content in (saved({"a": Evil(mark)}), pickle.dumps({"a": Evil(mark)})):
        (tmp_path / "w.pt").write_bytes(content)
        assert "allow_pickle=True" in said_of(StoredModel(maker, weights=tmp_path / "w.pt"))
    assert not mark.exists()
