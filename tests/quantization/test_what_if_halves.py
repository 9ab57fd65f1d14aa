"""A model asked to have 16 bits all over, against the same model that torch was given in them."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.what_ifs import evaluate_policy, records_of_torch
from roofline.workload.operators import OperatorRecord, State
from tests.quantization.small_networks import Of

ALL = Policy(weights=16, activations=16, first_last=16, shortcut="low")


def vision() -> nn.Module:
    """Patches, a class token, places, a fused encoder layer and a head."""

    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        tokens = m.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([m.token.expand(x.shape[0], -1, -1), tokens], 1) + m.places
        return m.head(m.norm(m.encoder(tokens))[:, 0])

    return Of(
        function,
        patches=nn.Conv2d(3, 32, 4, 4),
        token=nn.Parameter(torch.zeros(1, 1, 32)),
        places=nn.Parameter(torch.ones(17, 32)),
        encoder=nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        norm=nn.LayerNorm(32),
        head=nn.Linear(32, 10),
    ).eval()


def words() -> nn.Module:
    """A table that is also the last layer's weight."""
    made: Any = Of(
        lambda m, x: m.last(m.norm(torch.relu(m.inner(m.table(x))))),
        table=nn.Embedding(40, 16),
        norm=nn.LayerNorm(16),
        inner=nn.Linear(16, 16),
        last=nn.Linear(16, 40, bias=False),
    )
    made.last.weight = made.table.weight
    return made.eval()


MODELS = {
    "vision": (vision, torch.zeros(2, 3, 16, 16)),
    "words": (words, torch.zeros(2, 7, dtype=torch.int64)),
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
    found = evaluate_policy(roofline.analyze(model, x, hardware="xeon-8592plus"), ALL)
    half = copy.deepcopy(model).to(torch.bfloat16)
    assert found.model_bytes_after == sum(each.nbytes for each in half.parameters())
    assert found.model_bytes_before == 2 * found.model_bytes_after
    assert found.unquantized == ()


def test_what_a_policy_leaves_in_floats_keeps_its_bytes() -> None:
    policy = replace(ALL, layers={"inner": LayerBits(weights=32, activations=32)})
    found = evaluate_policy(
        roofline.analyze(words(), MODELS["words"][1], hardware="xeon-8592plus"), policy
    )
    inner = next(each for each in found.layers if each.layer.name == "inner")
    assert inner.after.weight_bytes == 4 * (16 * 16 + 16)
    assert found.model_bytes_after == 4 * (16 * 16 + 16) + 2 * (40 * 16 + 2 * 16)
