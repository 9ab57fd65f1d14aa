"""Files as torch writes them, and changes to them: what tests of hostile files are made of."""

from __future__ import annotations

import functools
import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roofline.errors import FileFormatError, ModelError
from roofline.workload.models.files.formats import StoredModel
from roofline.workload.models.sources import load_model

Change = Callable[[bytes], bytes]


class Small(nn.Module):
    """A layer of each kind that has a size in a file."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of an image."""
        return torch.relu(self.norm(self.layer(x)))


@functools.cache
def program_content() -> bytes:
    """A .pt2 file as torch writes it."""
    content = io.BytesIO()
    exported = torch.export.export(Small().eval(), (torch.zeros(1, 3, 8, 8),))
    torch.export.save(exported, content)
    return content.getvalue()


@functools.cache
def script_content() -> bytes:
    """A TorchScript file as torch writes it."""
    jit: Any = torch.jit
    content = io.BytesIO()
    # torch calls TorchScript itself deprecated.
    with warnings.catch_warnings(action="ignore"):
        jit.save(jit.script(Small().eval()), content)
    return content.getvalue()


class Evil:
    """What makes a folder when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("MARK",)


def written(folder: Path, suffix: str) -> Path:
    """A file of that kind, whole."""
    path = folder / f"model{suffix}"
    path.write_bytes(program_content() if suffix == ".pt2" else script_content())
    return path


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


def replaced(old: str, new: str) -> Change:
    """A change of one text into another, once."""

    def change(content: bytes) -> bytes:
        assert old.encode() in content
        return content.replace(old.encode(), new.encode(), 1)

    return change


def edited(edit: Callable[[Any], None]) -> Change:
    """A change of JSON."""

    def change(content: bytes) -> bytes:
        told = json.loads(content)
        edit(told)
        return json.dumps(told).encode()

    return change


def saved(value: Any) -> bytes:
    """What torch.save writes."""
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def said_of(name: str | Path) -> str:
    """The one line that a file gets."""
    with pytest.raises((FileFormatError, ModelError)) as caught:
        load_model(name if isinstance(name, StoredModel) else str(name))
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 700
    return said
