"""TorchScript files ask for what the module asks for that they were made of."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError
from roofline.workload.models.libraries.availability import library_or_reason

MACHINE = "10980xe"


def model() -> nn.Module:
    """A convolution with its batch norm, and a linear layer."""
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    return nn.Sequential(*layers).eval()


def saved(path: Path, how: str) -> str:
    with warnings.catch_warnings():
        # torch calls TorchScript itself deprecated.
        warnings.simplefilter("ignore")
        jit: Any = torch.jit
        made = (
            jit.script(model()) if how == "script" else jit.trace(model(), torch.zeros(2, 3, 8, 8))
        )
        jit.save(made, str(path))
    return str(path)


@pytest.mark.parametrize("how", ["script", "trace"])
def test_the_same_work(how: str, tmp_path: Path) -> None:
    """By hand: 2 x 4 x 36 results of 27 multiply-adds, and 2 x 5 of 144."""
    found = roofline.analyze(saved(tmp_path / "a.pt", how), "2x3x8x8", hardware=MACHINE)
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
    with pytest.raises(InputError, match=r"inputs are not known; .* \(its forward takes input\)"):
        roofline.analyze(saved(tmp_path / "a.pt", "script"), hardware=MACHINE)


def test_classes_of_packages_that_are_called_as_operators_are(tmp_path: Path) -> None:
    """``torchvision.ops.misc`` names a module in the code of a file, and no operator."""
    library, reason = library_or_reason("torchvision")
    if library is None:
        pytest.skip(reason)
    layer = library.ops.misc.Conv2dNormActivation(3, 4).eval()
    jit: Any = torch.jit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jit.save(jit.trace(layer, torch.zeros(1, 3, 8, 8)), str(tmp_path / "a.pt"))
    found = roofline.analyze(str(tmp_path / "a.pt"), "1x3x8x8", hardware=MACHINE)
    # 4 x 64 results of 27 multiply-adds.
    assert found.totals.macs == 4 * 64 * 27
