"""The what-if's model size, counted without torch, is that of the packed model, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import roofline
from roofline.quantization.packed_models import packed_state
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.quantizing import quantize_model
from roofline.quantization.what_ifs import what_if
from tests.quantization.small_networks import SmallResNet

ODD = {"head": LayerBits(weights=3, activations=32), "conv": LayerBits(weights=32, activations=5)}


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(shortcut="low"),
        Policy(weights=3, activations=4, per_channel=True),
        Policy(weights=5, activations=16, first_last=8, layers=ODD),
    ],
    ids=lambda policy: policy.words,
)
def test_the_size_is_that_of_the_packed_model(policy: Any) -> None:
    model, x = SmallResNet().eval(), torch.rand(1, 1, 8, 8)
    analysis = roofline.analyze(model, x, hardware="10980xe")
    told = what_if(analysis, policy, None)
    packed = packed_state(quantize_model(model, policy, x))
    assert told.model_bytes_after == packed.byte
    state = model.state_dict().values()
    assert told.model_bytes_before == sum(each.numel() * each.element_size() for each in state)
