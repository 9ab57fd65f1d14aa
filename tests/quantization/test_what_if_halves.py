"""A model asked to have 16 bits all over, against the same model that torch was given in them."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch
from torch import nn

import roofline
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.what_ifs import records_of_torch, what_if
from roofline.workload.operators import OperatorRecord, State

ALL = Policy(weights=16, activations=16, first_last=16, shortcut="low")


class Vision(nn.Module):
    """Patches, a class token, places, a fused encoder layer and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, 4)
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, 32)),
            nn.Parameter(torch.ones(17, 32)),
        )
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], 1) + self.places
        return self.head(self.norm(self.encoder(tokens))[:, 0])


class Words(nn.Module):
    """A table that is also the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(40, 16), nn.LayerNorm(16)
        self.inner, self.last = nn.Linear(16, 16), nn.Linear(16, 40, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(torch.relu(self.inner(self.table(x)))))


MODELS = {
    "vision": (Vision, torch.zeros(2, 3, 16, 16)),
    "words": (Words, torch.zeros(2, 7, dtype=torch.int64)),
}


def calls(
    records: list[OperatorRecord] | tuple[OperatorRecord, ...],
) -> Counter[tuple[str, object, object]]:
    return Counter(
        (
            each.op,
            tuple((spec.shape, spec.dtype.name, spec.role) for spec in each.inputs),
            tuple((spec.shape, spec.dtype.name) for spec in each.outputs),
        )
        for each in records
        if each.state is not State.FREE
    )


@pytest.mark.parametrize("name", MODELS)
def test_all_that_runs_is_what_runs_in_bfloat16(name: str) -> None:
    make, x = MODELS[name]
    model = make().eval()
    told = calls(records_of_torch(roofline.analyze(model, x, hardware="xeon-8592plus"), ALL))
    half = roofline.analyze(model, x, hardware="xeon-8592plus", dtype="bfloat16")
    really = calls([row.record for row in half.operators])
    # The what-if is given floats, and converts them first; that reader's role is another.
    more = [op for op, *_ in (told - really).elements()]
    fewer = [op for op, *_ in (really - told).elements()]
    entrance = ["aten._to_copy", "aten.convolution"] if name == "vision" else []
    assert (more, fewer) == (entrance, entrance[1:])


@pytest.mark.parametrize("name", MODELS)
def test_its_size_is_that_of_the_model_in_bfloat16(name: str) -> None:
    make, x = MODELS[name]
    model = make().eval()
    found = what_if(roofline.analyze(model, x, hardware="xeon-8592plus"), ALL)
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert found.model_bytes_after == sum(each.nbytes for each in half.parameters())
    assert found.model_bytes_before == 2 * found.model_bytes_after
    assert found.unquantized == ()


def test_what_a_policy_leaves_in_floats_keeps_its_bytes() -> None:
    policy = Policy(
        weights=16,
        activations=16,
        first_last=16,
        shortcut="low",
        layers={"inner": LayerBits(weights=32, activations=32)},
    )
    found = what_if(
        roofline.analyze(Words().eval(), MODELS["words"][1], hardware="xeon-8592plus"), policy
    )
    inner = next(each for each in found.layers if each.layer.name == "inner")
    assert inner.after.weight_bytes == 4 * (16 * 16 + 16)
    assert found.model_bytes_after == 4 * (16 * 16 + 16) + 2 * (40 * 16 + 2 * 16)
