"""Bits under a budget, held against all that there could be."""

from __future__ import annotations

import functools
import itertools
import math
from random import Random

import pytest
import torch
from torch import nn

import roofline
from roofline.errors import InputError
from roofline.pipeline.quantizing import quantize
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import WhatIf
from roofline.quantization.sensitivity import Budget, PolicySearch, candidates_of, layers_by_module
from roofline.quantization.what_ifs import evaluate_policy
from tests import builders

MACHINE = builders.profile(
    [builders.ceiling(1e9), builders.ceiling(4e9, of="int8", kernel="dot")],
    [builders.level("DRAM", None, {"read": {1: 1e9}})],
)


class Normed(nn.Module):
    """Layers with batch norms behind them, which take bytes of their own as codes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(3, 16, 3, bias=False), nn.BatchNorm2d(16)
        self.inner, self.norm2 = nn.Conv2d(16, 24, 3, bias=False), nn.BatchNorm2d(24)
        self.last = nn.Conv2d(24, 5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm1(self.first(x)))
        return self.last(torch.relu(self.norm2(self.inner(x))))


@functools.cache
def analysis() -> roofline.Analysis:
    return roofline.analyze(Normed().eval(), (1, 3, 9, 9), hardware=MACHINE)


def ask(policy: Policy) -> WhatIf:
    return evaluate_policy(analysis(), policy)


def search_for(budget: Budget, seed: int, asked: Policy) -> PolicySearch:
    """With errors that fall with the bits of a layer, of which some suffer more than others."""
    random, first = Random(seed), ask(asked)
    candidates = {
        name: candidates_of(each[0].layer, asked) for name, each in layers_by_module(first).items()
    }
    errors: dict[tuple[str, LayerBits], float] = {}
    for name, widths in candidates.items():
        scale = 10 ** random.uniform(-2, 0)
        for bits in widths:
            errors[name, bits] = scale * 2.0**-bits.weights
    return PolicySearch(
        asked=first,
        evaluate=ask,
        budget=budget,
        basis="bound",
        errors=errors,
        candidates=candidates,
    )


def all_policies(search: PolicySearch) -> list[tuple[float, WhatIf]]:
    """Each choice of widths with its squared errors, and what it comes to."""
    found: list[tuple[float, WhatIf]] = []
    for combination in itertools.product(*search.candidates.values()):
        layers = dict(zip(search.candidates, combination, strict=True))
        harm = math.fsum(
            0.0 if bits.is_float else search.errors[name, bits] ** 2
            for name, bits in layers.items()
        )
        found.append((harm, ask(Policy(shortcut="low", layers=layers))))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.6, 0.8, 0.97])
def test_no_choice_that_keeps_to_a_size_does_less_harm(share: float, seed: int) -> None:
    asked = Policy(first_last=2, shortcut="low")
    every = all_policies(search_for(Budget(size_bytes=1), 0, asked))
    sizes = [each.model_bytes_after for _, each in every]
    size_bytes = round(min(sizes) + share * (max(sizes) - min(sizes)))
    search = search_for(Budget(size_bytes=size_bytes), seed, asked)
    best = min(harm for harm, each in all_policies(search) if each.model_bytes_after <= size_bytes)
    policy, then, is_within = search.made()
    assert is_within
    assert then.model_bytes_after <= size_bytes
    bits = {each.layer.name: each.bits for each in ask(policy).layers}
    harm = math.fsum(
        0.0 if each.is_float else search.errors[name, each] ** 2 for name, each in bits.items()
    )
    assert harm == pytest.approx(best)


def test_a_budget_of_time_without_times_is_refused_before_layers_are_quantized() -> None:
    bare = builders.profile([], [])
    told: list[str] = []
    with pytest.raises(InputError, match="time_budget: unknown time of the whole pass"):
        quantize(
            Normed(),
            (1, 3, 9, 9),
            hardware=bare,
            sensitivity=True,
            time_budget="1ms",
            progress=lambda _, what: told.append(what),
        )
    assert not told


class Ends(nn.Module):
    """One module is the first layer and an inner one."""

    def __init__(self) -> None:
        super().__init__()
        self.often, self.last = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.often(torch.relu(self.often(x)))))


def test_a_module_that_runs_at_several_places_may_have_what_all_of_them_may() -> None:
    torch.manual_seed(0)
    found = quantize(
        Ends(), (4, 8), hardware=MACHINE, sensitivity=True, size_budget=10, activations=4, weights=4
    )
    assert found.sensitivity is not None
    proposal = found.sensitivity.proposal
    assert proposal is not None
    again = quantize(Ends(), (4, 8), hardware=MACHINE, policy=proposal.policy).what_if
    assert {each.layer.name: each.bits.words for each in again.layers} == {
        "often": "w8a8",
        "often#2": "w8a8",
        "last": "w8a8",
    }
    assert again.model_bytes_after == proposal.model_bytes
