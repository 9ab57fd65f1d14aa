"""TorchScript files that open files, by whatever way they name the function; some code runs when
torch reads it."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roofline.workload.models.sources import load
from tests.workload.hostile_files import changed, said_of, written


def code_of(path: Path) -> str:
    """The member that has the code of the module."""
    with zipfile.ZipFile(path) as opened:
        names = [each for each in opened.namelist() if "/code/" in each and each.endswith(".py")]
        name = next(each for each in names if b"def forward" in opened.read(each))
    return name.partition("/")[2]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('  _0 = ops.aten.save(1, "/tmp/evil")', "save"),
        ("  _0 = torch.from_file(x, 1)", "from_file"),
        ("  _0 = torch . save(x, 1)", "save"),
        ("  _0 = torch.\\\n  save(x, 1)", "save"),
        ("  _0 = torch\n  _1 = _0.save(x, 1)", "save"),
        ("  # a quote ' in a comment\n  _0 = torch.save(x, 1)  # '", "save"),
        ("  a = 'it''s'\n  _0 = torch.save(x, 'b')", "save"),
        ("  a = 'a\\\\'\n  _0 = torch.save(x, 'b')", "save"),
        ('  a = """a\n"""\n  _0 = torch.save(x, 1)', "save"),
        ("  _0 = ops.image.write_file(x, y)", "write_file"),
    ],
)
def test_scripts_that_open_files(line: str, word: str, tmp_path: Path) -> None:
    path = written(tmp_path, ".pt")

    def edit(content: bytes) -> bytes:
        return content + f"\n{line}\n".encode()

    said = said_of(changed(path, tmp_path / "a.pt", {code_of(path): edit}))
    assert f"its code calls '{word}', which opens files" in said


def test_operators_and_classes_that_are_no_part_of_models(tmp_path: Path) -> None:
    path = written(tmp_path, ".pt")

    def edit(content: bytes) -> bytes:
        return content + b"\n  _0 = ops.mine.fancy(x)\n"

    said = said_of(changed(path, tmp_path / "a.pt", {code_of(path): edit}))
    assert "calls operators of 'mine', which are not loaded here" in said

    def class_of(content: bytes) -> bytes:
        return content + b"c__torch__.torch\nclasses.dist_rpc.Worker\n"

    said = said_of(changed(path, tmp_path / "b.pt", {"data.pkl": class_of}))
    assert "it makes what is of 'dist_rpc', which is no part of a model" in said


class Telling(nn.Module):
    """Says what files are for, and has a name that is no function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of two rows."""
        if x.shape[0] != 2:
            raise ValueError("cannot load what you save: 'torch.save' takes two rows")
        loaded = x.relu()
        return loaded + loaded


def test_texts_may_say_anything(tmp_path: Path) -> None:
    jit: Any = torch.jit
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jit.save(jit.script(Telling()), content)
    (tmp_path / "a.pt").write_bytes(content.getvalue())
    module = load(str(tmp_path / "a.pt")).module
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
