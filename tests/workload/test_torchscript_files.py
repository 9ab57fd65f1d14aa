"""TorchScript files ask for what the module asks for that they were made of, and open no files."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError
from roofline.workload.models.libraries.availability import library_or_reason
from roofline.workload.models.sources import load_model
from tests.workload.hostile_files import changed, said_of, written

MACHINE = "10980xe"
JIT: Any = torch.jit


def model() -> nn.Module:
    """A convolution with its batch norm, and a linear layer."""
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    return nn.Sequential(*layers).eval()


def saved(folder: Path, module: nn.Module, *traced: torch.Tensor) -> str:
    """A file of a module that is scripted, or traced on an input."""
    path = str(folder / "a.pt")
    # torch calls TorchScript itself deprecated.
    with warnings.catch_warnings(action="ignore"):
        JIT.save(JIT.trace(module, traced) if traced else JIT.script(module), path)
    return path


@pytest.mark.parametrize("traced", [(), (torch.zeros(2, 3, 8, 8),)], ids=["script", "trace"])
def test_the_same_work(traced: tuple[torch.Tensor, ...], tmp_path: Path) -> None:
    """By hand: 2 x 4 x 36 results of 27 multiply-adds, and 2 x 5 of 144."""
    found = roofline.analyze(saved(tmp_path, model(), *traced), "2x3x8x8", hardware=MACHINE)
    eager = roofline.analyze(model(), "2x3x8x8", hardware=MACHINE)
    assert found.totals.macs == 2 * 4 * 36 * 27 + 2 * 5 * 144
    for name in ("macs", "flop", "parameters", "parameter_size_bytes", "parameter_bytes"):
        assert getattr(found.totals, name) == getattr(eager.totals, name), name
    # A trace calls the operator below the one that eager code calls.
    counted = [
        [each.op.replace("._convolution", ".convolution") for each in one.operators if each.flop]
        for one in (found, eager)
    ]
    assert counted[0] == counted[1]


def test_its_inputs_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"input shapes are not known; .*: input"):
        roofline.analyze(saved(tmp_path, model()), hardware=MACHINE)


def test_classes_of_packages_that_are_called_as_operators_are(tmp_path: Path) -> None:
    """``torchvision.ops.misc`` names a module in the code of a file, and no operator."""
    library, reason = library_or_reason("torchvision")
    if library is None:
        pytest.skip(reason)
    layer = library.ops.misc.Conv2dNormActivation(3, 4).eval()
    file = saved(tmp_path, layer, torch.zeros(1, 3, 8, 8))
    # 4 x 64 results of 27 multiply-adds.
    assert roofline.analyze(file, "1x3x8x8", hardware=MACHINE).totals.macs == 4 * 64 * 27


# -- what its code calls: some runs when torch reads it --------------------------------------------


def code_of(path: Path) -> str:
    """The member that has the code of the module."""
    with zipfile.ZipFile(path) as opened:
        names = [each for each in opened.namelist() if "/code/" in each and each.endswith(".py")]
        name = next(each for each in names if b"def forward" in opened.read(each))
    return name.partition("/")[2]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('  _0 = ops.aten.save(1, "/tmp/evil")', "its code calls 'save', which opens files"),
        ("  _0 = torch.from_file(x, 1)", "its code calls 'from_file', which opens files"),
        ("  _0 = torch . save(x, 1)", "'save', which opens files"),
        ("  _0 = torch.\\\n  save(x, 1)", "'save', which opens files"),
        ("  _0 = torch\n  _1 = _0.save(x, 1)", "'save', which opens files"),
        ("  # a quote ' in a comment\n  _0 = torch.save(x, 1)  # '", "'save', which opens files"),
        ("  a = 'it''s'\n  _0 = torch.save(x, 'b')", "'save', which opens files"),
        ("  a = 'a\\\\'\n  _0 = torch.save(x, 'b')", "'save', which opens files"),
        ('  a = """a\n"""\n  _0 = torch.save(x, 1)', "'save', which opens files"),
        ("  _0 = ops.image.write_file(x, y)", "'write_file', which opens files"),
        ("  _0 = ops.mine.fancy(x)", "calls operators of 'mine', which are not loaded"),
    ],
)
def test_scripts_that_open_files_or_call_what_is_not_there(
    line: str, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path, ".pt")

    def edit(content: bytes) -> bytes:
        return content + f"\n{line}\n".encode()

    assert words in said_of(changed(path, tmp_path / "a.pt", {code_of(path): edit}))


def test_classes_that_are_no_part_of_models(tmp_path: Path) -> None:
    def edit(content: bytes) -> bytes:
        return content + b"c__torch__.torch\nclasses.dist_rpc.Worker\n"

    path = changed(written(tmp_path, ".pt"), tmp_path / "a.pt", {"data.pkl": edit})
    assert "it uses the class 'dist_rpc', which is not part of a model" in said_of(path)


class Telling(nn.Module):
    """Says what files are for, and has a name that is no function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of two rows."""
        if x.shape[0] != 2:
            raise ValueError("cannot load what you save: 'torch.save' takes two rows")
        loaded = x.relu()
        return loaded + loaded


def test_texts_may_say_anything(tmp_path: Path) -> None:
    module = load_model(saved(tmp_path, Telling())).module
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))
