"""Files that are cut short, of other programs, or made to do harm: one line each, and no harm."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import FileFormatError, ModelError, RooflineError
from roofline.workload.models.files.stored import StoredModel
from roofline.workload.models.sources import load


class Small(nn.Module):
    """A layer of each kind that has a size in a file."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of an image."""
        return torch.relu(self.norm(self.layer(x)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .pt2 file as torch writes it."""
    path = tmp_path_factory.mktemp("files") / "model.pt2"
    torch.export.save(torch.export.export(Small().eval(), (torch.zeros(1, 3, 8, 8),)), path)
    return path


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TorchScript file as torch writes it."""
    path = tmp_path_factory.mktemp("files") / "model.pt"
    path.write_bytes(_scripted(Small().eval()))
    return path


def _scripted(model: nn.Module) -> bytes:
    import warnings

    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(model), content)
    return content.getvalue()


Change = Callable[[bytes], bytes]


def changed(path: Path, to: Path, changes: Mapping[str, bytes | Change | None]) -> Path:
    """A copy of a zip with members that are others, more, or (None) not there."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        folder = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            short = name.removeprefix(f"{folder}/")
            change = changes.get(short, b"")
            if change is None:
                continue
            content = old.read(name)
            if callable(change):
                content = change(content)
            elif short in changes:
                content = change
            new.writestr(name, content)
        for short, content in changes.items():
            if f"{folder}/{short}" not in old.namelist() and isinstance(content, bytes):
                new.writestr(f"{folder}/{short}", content)
    return to


def said_of(name: str | Path) -> str:
    """The one line that a file gets."""
    with pytest.raises((FileFormatError, ModelError)) as caught:
        load(name if isinstance(name, StoredModel) else str(name))
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 700
    return said


# -- cut short, and something else -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["program", "script"])
@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_a_file_that_is_cut_short(
    kind: str, share: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(kind)
    content = path.read_bytes()
    short = tmp_path / path.name
    short.write_bytes(content[: max(5, int(len(content) * share))])
    assert "cut short" in said_of(short)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pt2", b"", "the file is empty"),
        ("a.pt", bytes(4096), "nothing but zeros"),
        ("a.pt", b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file, as Keras writes them"),
        ("a.pt2", b"GGUF" + bytes(99), "a GGUF file"),
        ("a.onnx", b"\x1c\0\0\0TFL3" + bytes(99), "a TensorFlow Lite model"),
        ("a.onnx", b"\x89PNG" + bytes(99), "a picture"),
        ("a.pt", b"\x1f\x8b" + bytes(99), "compressed by gzip"),
        ("a.pt", b"\x7fELF" + bytes(99), "a program"),
        ("a.pt", b"<!DOCTYPE html><html>", "a web page and not the file"),
        ("a.pt2", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull fetches it"),
        ("a.pt2", b"something", "not a zip, which every .pt2 file is"),
        ("a.pt", b"something", "neither a zip nor a pickle"),
        ("a.h5", b"\x89HDF", "a Keras model; export it as .onnx"),
        ("a.gguf", b"GGUF", "weights for llama.cpp, and no model"),
        ("a.safetensors", b"\0" * 9, "file.py:Model --weights FILE"),
        ("a.engine", b"ftrt", "an engine of TensorRT, compiled for one GPU"),
    ],
)
def test_files_of_other_programs(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    said = said_of(tmp_path / name)
    assert words in said
    assert said.startswith(str(tmp_path / name))


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe would be waited for; a folder has no first byte."""
    assert "no such file" in said_of(tmp_path / "a.pt2")
    (tmp_path / "b.pt2").mkdir()
    assert "is a folder" in said_of(tmp_path / "b.pt2")
    os.mkfifo(tmp_path / "c.pt2")
    assert "not a regular file" in said_of(tmp_path / "c.pt2")


# -- zips ------------------------------------------------------------------------------------------


def _zip(path: Path, *names: str, kind: int = zipfile.ZIP_STORED) -> Path:
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", kind) as made:
        warnings.simplefilter("ignore")
        for name in names:
            made.writestr(name, b"content")
    return path


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("archive/../../evil",), "'archive/../../evil' leads out of the zip"),
        (("/etc/evil",), "leads out of the zip"),
        (("archive\\..\\evil",), "leads out of the zip"),
        (("C:/evil",), "leads out of the zip"),
        (("archive/a", "archive/a"), "is in it twice"),
        (("archive/a\x1b[31m/../../b",), r"\\x1b"),
    ],
)
@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_members_that_lead_out_of_the_zip(
    names: tuple[str, ...], words: str, suffix: str, tmp_path: Path
) -> None:
    assert words.replace("\\\\", "\\") in said_of(_zip(tmp_path / f"a{suffix}", *names))


def test_a_zip_that_would_unpack_to_far_more(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/models/model.json", bytes(300_000_000))
    assert path.stat().st_size < 400_000
    assert "would unpack from" in said_of(path)


def test_links_encrypted_and_overlapping_members(tmp_path: Path) -> None:
    path = tmp_path / "link.pt"
    with zipfile.ZipFile(path, "w") as made:
        link = zipfile.ZipInfo("archive/data.pkl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, "/etc/passwd")
    assert "is a link" in said_of(path)
    locked = bytearray(_zip(tmp_path / "locked.pt", "archive/a").read_bytes())
    place = locked.index(b"PK\x01\x02") + 8
    locked[place] |= 1
    (tmp_path / "locked.pt").write_bytes(locked)
    assert "is encrypted" in said_of(tmp_path / "locked.pt")
    content = bytearray(_zip(tmp_path / "over.pt", "archive/a", "archive/b").read_bytes())
    second = content.rindex(b"PK\x01\x02") + 42
    content[second : second + 4] = (1).to_bytes(4, "little")
    (tmp_path / "over.pt").write_bytes(content)
    assert "lies over another one" in said_of(tmp_path / "over.pt")


def test_what_stands_before_a_zip(tmp_path: Path, program: Path) -> None:
    """One reader would start there, another one would not."""
    (tmp_path / "a.pt2").write_bytes(b"PK\x03\x04xxxx" + program.read_bytes())
    assert "something stands before or behind the zip" in said_of(tmp_path / "a.pt2")


# -- programs that would run code ------------------------------------------------------------------


def _replaced(old: str, new: str) -> Change:
    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode(), 1)

    return change


def _edited(edit: Callable[[Any], None]) -> Change:
    def change(content: bytes) -> bytes:
        told = json.loads(content)
        edit(told)
        return json.dumps(told).encode()

    return change


def _sizes(told: Any, text: str) -> None:
    values = told["graph_module"]["graph"]["tensor_values"]
    next(iter(values.values()))["sizes"][0] = {"as_expr": {"expr_str": text, "hint": None}}


_RELU = "torch.ops.aten.relu.default"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_replaced(_RELU, "torch.os.system"), "calls 'torch.os.system', which is no operator"),
        (_replaced(_RELU, "torch.hub.load"), "calls 'torch.hub.load'"),
        (_replaced(_RELU, "torch.load"), "calls 'torch.load'"),
        (_replaced(_RELU, "torch.ops.load_library"), "calls 'torch.ops.load_library'"),
        (_replaced(_RELU, "torch.ops.aten.from_file.default"), "aten.from_file"),
        (_replaced(_RELU, "_operator.methodcaller"), "calls '_operator.methodcaller'"),
        (_replaced(_RELU, "_operator.attrgetter"), "calls '_operator.attrgetter'"),
        (_replaced(_RELU, "#extension:evil"), "calls '#extension:evil'"),
        (_replaced(_RELU, "builtins.eval"), "calls 'builtins.eval'"),
        (
            _edited(lambda told: _sizes(told, "__import__('os').system('touch MARK')")),
            "which is no arithmetic",
        ),
        (_edited(lambda told: _sizes(told, "s0.__class__")), "which is no arithmetic"),
        (_edited(lambda told: _sizes(told, "exec(s0)")), "which is no arithmetic"),
        (_edited(lambda told: _sizes(told, "9**9**9**9")), "which is no arithmetic"),
        (_edited(lambda told: _sizes(told, "(" * 900 + ")" * 900)), "which is no arithmetic"),
        (
            _replaced('"name": "relu"', '"name": "relu; import os; os.system(1)"'),
            "which is no name",
        ),
        (_replaced("builtins.tuple", "antigravity.Type"), "is of the type 'antigravity.Type'"),
        (lambda _: b"[]", "has no graph"),
        (lambda _: b"{" * 100_000, "is damaged"),
        (lambda content: content[:-30], "is damaged"),
    ],
)
def test_programs_that_say_what_torch_never_writes(
    change: Change, words: str, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = changed(program, tmp_path / "a.pt2", {"models/model.json": change})
    assert words in said_of(path)
    assert not (tmp_path / "MARK").exists()


def test_enumerations_and_factories_would_be_imported(program: Path, tmp_path: Path) -> None:
    """torch imports the module that such a context names."""

    def edit(told: Any) -> None:
        call = told["graph_module"]["module_call_graph"][0]["signature"]
        spec = json.loads(call["in_spec"])
        spec[1]["context"] = json.dumps({"__enum__": True, "fqn": "antigravity:A", "name": "A"})
        call["in_spec"] = json.dumps(spec)

    path = changed(program, tmp_path / "a.pt2", {"models/model.json": _edited(edit)})
    assert "which torch would import" in said_of(path)


def test_guards_of_a_program_are_not_run(program: Path, tmp_path: Path) -> None:
    """They are Python code; operators check shapes themselves."""
    mark = tmp_path / "MARK"

    def edit(told: Any) -> None:
        told["guards_code"] = [f"__import__('pathlib').Path({str(mark)!r}).touch() is None"]

    path = changed(program, tmp_path / "a.pt2", {"models/model.json": _edited(edit)})
    module = load(str(path)).module
    module(torch.zeros(1, 3, 8, 8))
    assert not mark.exists()


def test_compiled_programs_are_not_loaded(program: Path, tmp_path: Path) -> None:
    path = changed(program, tmp_path / "a.pt2", {"data/aotinductor/model/a.so": b"\x7fELF"})
    assert "machine code that AOTInductor compiled" in said_of(path)


def test_files_without_a_program_or_with_several(program: Path, tmp_path: Path) -> None:
    path = changed(program, tmp_path / "a.pt2", {"models/model.json": None})
    assert "no exported program in it" in said_of(path)
    path = changed(program, tmp_path / "b.pt2", {"models/other.json": b"{}"})
    assert "programs called model, other" in said_of(path)


# -- pickles ---------------------------------------------------------------------------------------


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def _saved(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def _weights_are_pickled(content: bytes) -> bytes:
    told = json.loads(content)
    next(iter(told["config"].values()))["use_pickle"] = True
    return json.dumps(told).encode()


def test_pickles_inside_a_program_are_not_run(program: Path, tmp_path: Path) -> None:
    """torch would unpickle each of them."""
    mark = tmp_path / "MARK"
    examples = {"data/sample_inputs/model.pt": _saved((Evil(mark), {}))}
    said = said_of(changed(program, tmp_path / "a.pt2", examples))
    assert "'data/sample_inputs/model.pt' is a pickle that imports posix.mkdir" in said
    assert "--allow-pickle" in said
    earlier = {"data/weights/model.pt": _saved({"a": Evil(mark)})}
    assert "is a pickle" in said_of(changed(program, tmp_path / "b.pt2", earlier))
    config = {"data/weights/model_weights_config.json": _weights_are_pickled}
    assert "is pickled" in said_of(changed(program, tmp_path / "c.pt2", {**config}))
    assert not mark.exists()


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_pickled_model_is_opened_only_where_it_is_trusted(as_zip: bool, tmp_path: Path) -> None:
    mark = tmp_path / "MARK"
    path = tmp_path / "evil.pt"
    path.write_bytes(_saved(Evil(mark)) if as_zip else pickle.dumps(Evil(mark)))
    said = said_of(path)
    assert "a pickle that imports posix.mkdir" in said
    assert "add --allow-pickle if you trust it" in said
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
        program, tmp_path / "a.pt2", {name: _edited(edit), f"data/weights/{file}": lambda _: b""}
    )
    assert "and no values in the file" in said_of(path)
    path = changed(program, tmp_path / "b.pt2", {name: _edited(edit)})
    assert "cannot read it" in said_of(path)
    path = changed(program, tmp_path / "c.pt2", {f"data/weights/{file}": None})
    assert "is missing in it" in said_of(path)


def _member(opened: zipfile.ZipFile, name: str) -> bytes:
    return opened.read(next(each for each in opened.namelist() if each.endswith(name)))


def test_programs_of_another_device(program: Path, tmp_path: Path) -> None:
    def edit(told: Any) -> None:
        next(iter(told["config"].values()))["tensor_meta"]["device"] = {"type": "cuda", "index": 0}

    changes: Mapping[str, bytes | Change | None] = {
        "data/weights/model_weights_config.json": _edited(edit)
    }
    said = said_of(changed(program, tmp_path / "a.pt2", changes))
    assert "exported on 'cuda'" in said
    assert "export the model on the CPU" in said


# -- TorchScript -----------------------------------------------------------------------------------


def test_scripts_that_open_files(script: Path, tmp_path: Path) -> None:
    """TorchScript has operators that read and write files by name."""

    def edit(content: bytes) -> bytes:
        return content + b'\n  _0 = ops.aten.save(1, "/tmp/evil")\n'

    with zipfile.ZipFile(script) as opened:
        name = next(each for each in opened.namelist() if "/code/" in each and each[-3:] == ".py")
    short = name.partition("/")[2]
    path = changed(script, tmp_path / "a.pt", {short: edit})
    assert "its code calls 'save', which opens files" in said_of(path)


# -- chance ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["program", "script"])
def test_files_damaged_at_random_places(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Whatever is damaged, there is one line, or a model."""
    path: Path = request.getfixturevalue(kind)
    content = path.read_bytes()
    chance = random.Random(7)
    refused = 0
    for turn in range(40):
        damaged = bytearray(content)
        for _ in range(1 + turn % 8):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        copy = tmp_path / f"{turn}{path.suffix}"
        copy.write_bytes(damaged)
        try:
            load(str(copy))
        except RooflineError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused
