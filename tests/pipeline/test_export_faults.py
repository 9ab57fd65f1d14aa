"""What may go wrong while a model is written: nothing is lost, and one line says what it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError, ModelError, RooflineError
from roofline.pipeline import exporting

MACHINE = "10980xe"


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU())


def test_without_the_package_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it is not installed: for reading and for writing."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    (tmp_path / "a.onnx").write_bytes(b"\x08\x08")
    for attempt in (
        lambda: roofline.analyze(str(tmp_path / "a.onnx"), hardware=MACHINE),
        lambda: roofline.export(model(), "2x4", files=tmp_path / "b.onnx"),
    ):
        with pytest.raises(ModelError, match=r"pip install 'roofline\[onnx\]'") as said:
            attempt()
        assert "\n" not in str(said.value)
    assert [each.name for each in tmp_path.iterdir()] == ["a.onnx"]


def test_without_the_exporter_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")

    def fail(*_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(ModelError, match=r"package onnxscript; .*'roofline\[onnx\]'"):
        roofline.export(model(), "2x4", files=tmp_path / "b.onnx")


def test_an_interrupted_export_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(b"mine")

    def interrupt(_handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        roofline.export(model(), "2x4", files=path, overwrite=True)
    assert path.read_bytes() == b"mine"
    assert [each.name for each in tmp_path.iterdir()] == ["a.pt2"]


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(b"mine")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RooflineError, match="No space left on device") as said:
        roofline.export(model(), "2x4", files=path, overwrite=True)
    assert "\n" not in str(said.value)
    assert path.read_bytes() == b"mine"


def test_of_two_files_one_of_which_is_wrong_none_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = exporting._content

    def wrong(subject: Any, suffix: str, opset: int | None) -> Any:
        more = 1e-3 if suffix == ".pt2" else 0.0
        subject.module[0].bias.data += more
        try:
            return right(subject, suffix, opset)
        finally:
            subject.module[0].bias.data -= more

    pytest.importorskip("onnxscript")
    monkeypatch.setattr(exporting, "_content", wrong)
    files = [tmp_path / "a.onnx", tmp_path / "a.pt2"]
    with pytest.raises(RooflineError, match=r"a\.pt2: not written: outputs differ"):
        roofline.export(model(), "2x4", files=files)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["folder.pt2", "/dev/full"])
def test_what_is_no_file_to_write(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(InputError) as said:
        roofline.export(model(), "2x4", files=tmp_path / name, overwrite=True)
    assert "\n" not in str(said.value)


def test_outputs_that_are_not_numbers_are_not_equal(tmp_path: Path) -> None:
    """A model that gives NaN where its file does too has the same outputs."""

    class Nothing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Of a table: not a number, everywhere."""
            return (x * 0 - 1).sqrt()

    found = roofline.export(Nothing(), "2x4", files=tmp_path / "a.pt2")
    assert found.files[0].largest_error == 0
