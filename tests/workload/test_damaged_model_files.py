"""Files that are cut short, damaged by chance, of other programs, no files, or zips that would be
one thing to Python, which looks into them, and another to torch: one line each."""

from __future__ import annotations

import io
import os
import random
import stat
import struct
import warnings
import zipfile
from pathlib import Path

import pytest

from roofline.errors import RooflineError
from roofline.workload.models.sources import load_model
from tests.workload.hostile_files import program_content, replaced, said_of, script_content, written

SUFFIXES = pytest.mark.parametrize("suffix", [".pt2", ".pt"])


@SUFFIXES
def test_a_file_that_is_cut_short_anywhere(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path, suffix)
    content = path.read_bytes()
    lengths = [len(content) * part // 16 for part in range(1, 16)]
    for length in (*lengths, 5, len(content) - 1, len(content) - 23):
        path.write_bytes(content[:length])
        assert "truncated" in said_of(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pt2", b"", "the file is empty"),
        ("a.pt", bytes(4096), "begins with zeros only"),
        ("a.pt", b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file, as of Keras"),
        ("a.pt2", b"GGUF" + bytes(99), "a GGUF file"),
        ("a.onnx", b"\x1c\0\0\0TFL3" + bytes(99), "a TensorFlow Lite model"),
        ("a.onnx", b"\x89PNG" + bytes(99), "a PNG image"),
        ("a.pt", b"\x1f\x8b" + bytes(99), "a gzip file"),
        ("a.pt", b"\x7fELF" + bytes(99), "a program"),
        ("a.pt", b"<!DOCTYPE html><html>", "a web page"),
        (
            "a.pt2",
            b"version https://git-lfs.github.com/spec/v1\n",
            "fetch the file with git lfs pull",
        ),
        ("a.pt2", b"something", "not a zip, as all .pt2 files are"),
        ("a.pt", b"something", "neither a zip nor a pickle"),
        ("a.h5", b"\x89HDF", "a Keras model; export it as .onnx"),
        ("a.gguf", b"GGUF", "weights for llama.cpp without a model"),
        ("a.safetensors", b"\0" * 9, "file.py:Model and weights"),
        ("a.engine", b"ftrt", "a TensorRT engine, compiled for one GPU"),
        # Names are taken as they are: spaces, colons, other letters.
        ("a: b é ü 模型.pt2", b"something", "not a zip"),
    ],
)
def test_files_of_other_programs(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    said = said_of(tmp_path / name)
    assert words in said
    assert said.startswith(str(tmp_path / name))


def test_what_is_no_file(tmp_path: Path) -> None:
    """A pipe or device would be waited for; a folder has no first byte."""
    (tmp_path / "folder.pt2").mkdir()
    os.mkfifo(tmp_path / "pipe.pt2")
    links = {"link.pt": "nothing.pt", "round.pt": "round.pt", "zero.onnx": "/dev/zero"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    for name, words in {
        "nothing.pt2": "no such file",
        "folder.pt2": "is a folder",
        "pipe.pt2": "not a regular file",
        "link.pt": "no such file",
        "round.pt": "cannot be read",
        "zero.onnx": "not a regular file",
    }.items():
        assert words in said_of(tmp_path / name)


@SUFFIXES
def test_files_damaged_at_random_places(suffix: str, tmp_path: Path) -> None:
    """Whatever is damaged, there is one line, or a model."""
    path = written(tmp_path, suffix)
    content = path.read_bytes()
    chance = random.Random(7)
    refused = 0
    for turn in range(40):
        damaged = bytearray(content)
        for _ in range(1 + turn % 8):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        copy = tmp_path / f"{turn}{suffix}"
        copy.write_bytes(damaged)
        try:
            load_model(str(copy))
        except RooflineError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused


# -- zips ------------------------------------------------------------------------------------------


def named(path: Path, *names: str) -> Path:
    """A zip with members of these names, which may be the same."""
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w") as made:
        for name in names:
            made.writestr(name, b"content")
    return path


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("archive/../../evil",), "'archive/../../evil' has a path outside of the zip"),
        (("/etc/evil",), "has a path outside of the zip"),
        (("archive\\..\\evil",), "has a path outside of the zip"),
        (("C:/evil",), "has a path outside of the zip"),
        (("archive/a", "archive/a"), "is a duplicate"),
        (("archive/data.pkl", "archive/DATA.PKL"), "is a duplicate"),
        (("archive/a\x1b[31m/../../b",), r"\x1b"),
    ],
)
@SUFFIXES
def test_members_that_lead_out_of_the_zip(
    names: tuple[str, ...], words: str, suffix: str, tmp_path: Path
) -> None:
    assert words in said_of(named(tmp_path / f"a{suffix}", *names))


def test_a_zip_that_would_unpack_to_far_more(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("archive/models/model.json", bytes(300_000_000))
    assert path.stat().st_size < 400_000
    assert "unpacks from" in said_of(path)


def test_links_encrypted_and_overlapping_members(tmp_path: Path) -> None:
    path = tmp_path / "link.pt"
    with zipfile.ZipFile(path, "w") as made:
        link = zipfile.ZipInfo("archive/data.pkl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, "/etc/passwd")
    assert "is a link" in said_of(path)
    locked = bytearray(named(tmp_path / "locked.pt", "archive/a").read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.pt").write_bytes(locked)
    assert "is encrypted" in said_of(tmp_path / "locked.pt")
    content = bytearray(named(tmp_path / "over.pt", "archive/a", "archive/b").read_bytes())
    second = content.rindex(b"PK\x01\x02") + 42
    content[second : second + 4] = (1).to_bytes(4, "little")
    (tmp_path / "over.pt").write_bytes(content)
    assert "overlaps another one" in said_of(tmp_path / "over.pt")


@SUFFIXES
def test_what_stands_before_or_behind_a_zip(suffix: str, tmp_path: Path) -> None:
    """One reader would start there, another one would not."""
    path = written(tmp_path, suffix)
    content = path.read_bytes()
    path.write_bytes(b"PK\x03\x04xxxx" + content)
    assert "has data before or after the zip" in said_of(path)
    for behind in (b"x", content):
        path.write_bytes(content + behind)
        assert "truncated" in said_of(path)


def test_a_list_of_contents_that_lies_elsewhere(tmp_path: Path) -> None:
    """Python takes the list that stands before the end, torch the one that the end points to."""
    content = bytearray(named(tmp_path / "a.pt2", "archive/a", "archive/b").read_bytes())
    (place,) = struct.unpack("<L", content[-6:-2])
    for other in (place + 1, place - 1, 0):
        content[-6:-2] = struct.pack("<L", other)
        (tmp_path / "a.pt2").write_bytes(content)
        assert "truncated" in said_of(tmp_path / "a.pt2")
    content[-6:-2] = struct.pack("<L", place)
    # Torch reads as many members as this says, Python all there are.
    content[-12:-10] = struct.pack("<H", 1)
    (tmp_path / "a.pt2").write_bytes(content)
    assert "has data before or after" in said_of(tmp_path / "a.pt2")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("FOLDER/models/model.jsox", "contains the programs"),
        ("FOLDER/models/evil.json", "contains the programs"),
        ("FOLDER/models/MODEL.JSON", "is a duplicate"),
        ("FOLDER/Models/other.json", "has capitals"),
        ("FOLDER/data/Sample_Inputs/model.pt", "is a duplicate"),
        ("FOLDER/serialized_exported_program.json", "torch before 2.7"),
        ("serialized_exported_program.json", "torch before 2.7"),
        ("other/version", "no exported program in the file"),
    ],
)
def test_the_program_that_is_looked_into_is_the_one_that_is_opened(
    name: str, words: str, tmp_path: Path
) -> None:
    """torch opens every file in ``models/``, and looks for earlier formats only where it fails."""
    path = tmp_path / "a.pt2"
    path.write_bytes(program_content())
    with zipfile.ZipFile(path, "a") as made:
        folder = made.namelist()[0].partition("/")[0]
        program = made.read(next(each for each in made.namelist() if each.endswith("model.json")))
        evil = replaced("torch.ops.aten.relu.default", "torch.os.system")(program)
        made.writestr(name.replace("FOLDER", folder), evil)
    assert words in said_of(path)


def test_code_in_a_folder_in_capitals(tmp_path: Path) -> None:
    """torch finds members whatever the case of their names."""
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as made, zipfile.ZipFile(io.BytesIO(script_content())) as old:
        for name in old.namelist():
            content = old.read(name)
            if "/code/" in name and name.endswith(".py"):
                name = name.replace("/code/", "/CODE/")
                content = content.replace(b"torch.relu", b"torch.save")
            made.writestr(name, content)
    assert "which opens files" in said_of(path)
