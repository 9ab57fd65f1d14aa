"""docs/how-to/quantizing.md: its Python runs block after block."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import pyplot
from small_networks import SmallResNet, image, small_resnet
from torch import nn

import roofline
from roofline.core import schema
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import Quantization

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "quantizing.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What a reader has before the first block, and all that the blocks make of it."""
    monkeypatch.chdir(tmp_path)
    # Nobody measured the machine that tests run on.
    asked = functools.partial(roofline.quantize, hardware="xeon-8592plus")
    monkeypatch.setattr(roofline, "quantize", asked)
    names: dict[str, Any] = {
        "net": small_resnet(),
        "Net": SmallResNet,
        "x": image(),
        "batches": [image(seed=2), image(seed=3)],
        "train": lambda model: model.train(),  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]
        "conv": nn.Conv2d(3, 4, 3),
    }
    for code in blocks("python"):
        exec(code, names)
    yield names
    pyplot.close("all")


def test_what_its_blocks_make_is_what_they_say(read: dict[str, Any]):
    found = read["found"]
    assert isinstance(found, Quantization)
    assert found.what_if.policy == Policy(weights=2, activations=2)
    small, x = read["small"].eval(), read["x"]
    with torch.no_grad():
        expected = small(x)
        assert torch.equal(read["again"].eval()(x), expected)
        assert torch.allclose(read["folded"](x), expected, rtol=1e-3, atol=1e-5)
    assert read["packed"].byte < Path("small.packed").stat().st_size


def test_a_folded_model_comes_back_as_it_says(read: dict[str, Any]):
    (code,) = re.findall(r"`(load_packed\([^`]*fold_batch_norms[^`]*)`", TEXT)
    names = {**read, "policy": Policy(weights=2, activations=2)}
    names["packed_state"](names["folded"]).save("folded.packed")
    again, x = eval(code, names), read["x"]
    with torch.no_grad():
        assert torch.equal(again.eval()(x), names["folded"](x))


def test_its_policy_is_one():
    (text,) = blocks("json")
    policy = schema.from_data(Policy, json.loads(text), file="policy.json")
    assert policy.layers["fc"] == LayerBits(weights=8, activations=32)
    # What is said of it beside the layers are the defaults.
    assert Policy(layers=policy.layers) == policy
