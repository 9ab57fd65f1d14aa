"""Files that are cut short, of other programs, no files, or damaged by chance: one line each."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from roofline.errors import RooflineError
from roofline.workload.models.sources import load
from tests.workload.hostile_files import said_of, written

SUFFIXES = pytest.mark.parametrize("suffix", [".pt2", ".pt"])


@SUFFIXES
def test_a_file_that_is_cut_short_anywhere(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path, suffix)
    content = path.read_bytes()
    for part in range(1, 16):
        path.write_bytes(content[: len(content) * part // 16])
        assert "cut short" in said_of(path)
    for length in (5, len(content) - 1, len(content) - 23):
        path.write_bytes(content[:length])
        assert "cut short" in said_of(path)


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


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """Names are taken as they are: spaces, colons, other letters."""
    path = tmp_path / "a: b é ü 模型.pt2"
    path.write_bytes(b"something")
    assert said_of(path).startswith(str(path))
    (tmp_path / "link.pt").symlink_to(tmp_path / "nothing.pt")
    assert "no such file" in said_of(tmp_path / "link.pt")
    (tmp_path / "round.pt").symlink_to(tmp_path / "round.pt")
    assert "cannot be read" in said_of(tmp_path / "round.pt")
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")
    assert "not a regular file" in said_of(tmp_path / "zero.onnx")


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
            load(str(copy))
        except RooflineError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused
