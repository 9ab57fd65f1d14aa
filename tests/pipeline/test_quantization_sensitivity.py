"""One layer at a time against quantizing that layer alone, and proposals against their budgets."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import roofline
from roofline.pipeline.quantization_sensitivity import measure_sensitivity
from roofline.pipeline.runs import build_workload
from roofline.quantization import calibrate_clipping, quantize_model
from roofline.quantization.policy import LayerBits, Policy
from roofline.quantization.result import Sensitivity, WhatIf
from roofline.quantization.sensitivity import Budget
from roofline.quantization.what_ifs import evaluate_policy
from roofline.run import RunOptions

XEON = Path(__file__).parents[2] / "hwprofiles" / "xeon-8592plus.toml"


class Small(nn.Module):
    """Two convolutions and a linear layer, with norms that do something."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.Conv2d(8, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 5)
        with torch.no_grad():
            self.norm.get_buffer("running_mean").fill_(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(torch.relu(self.inner(x))))
        return self.last(x.mean(dim=(2, 3)))


@pytest.fixture(scope="module")
def small() -> nn.Module:
    torch.manual_seed(3)
    return Small().eval()


@pytest.fixture
def model(small: nn.Module) -> nn.Module:
    """A copy, for tests that change it."""
    return copy.deepcopy(small)


@pytest.fixture
def x() -> torch.Tensor:
    return images()


@functools.cache
def images() -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@functools.cache
def analysis_of_small() -> roofline.Analysis:
    return roofline.analyze(Small().eval(), images(), hardware=XEON)


def found_for(
    model: nn.Module, x: Any, policy: Policy, **options: Any
) -> tuple[Sensitivity, WhatIf]:
    """What is found, and the what-if that was asked for."""
    asked = build_workload(model, x, RunOptions())
    if isinstance(model, Small):
        analysis = analysis_of_small()
    else:
        analysis = roofline.analyze(model, x, hardware=XEON)

    def ask(policy: Policy) -> WhatIf:
        return evaluate_policy(analysis, policy, None)

    first = ask(policy)
    return measure_sensitivity(asked, first, evaluate=ask, **options), first


def relative_error(model: nn.Module, other: nn.Module, x: torch.Tensor) -> float:
    with torch.no_grad():
        one, two = model(x), other(x)
    return float((two - one).norm() / one.norm())


FLOATS = Policy(weights=32, activations=32, first_last=32)


@pytest.mark.parametrize("per_channel", [False, True])
def test_each_error_is_that_of_the_layer_quantized_alone(
    model: nn.Module, x: torch.Tensor, per_channel: bool
):
    policy = Policy(weights=2, activations=3, per_channel=per_channel)
    found, _ = found_for(model, x, policy)
    assert {each.name: each.bits.words for each in found.layers} == {
        "first": "w8a8",
        "inner": "w2a3",
        "second": "w2a3",
        "last": "w8a8",
    }
    for each in found.layers:
        alone = quantize_model(
            model,
            Policy(
                weights=32,
                activations=32,
                first_last=32,
                per_channel=per_channel,
                layers={each.name: each.bits},
            ),
            x,
        )
        calibrate_clipping(alone, [x])
        assert each.error == pytest.approx(relative_error(model, alone.eval(), x), rel=1e-4)


def test_two_bits_do_more_harm_than_eight(model: nn.Module, x: torch.Tensor):
    errors = {each.name: each.error for each in found_for(model, x, Policy())[0].layers}
    assert max(errors["first"], errors["last"]) < min(errors["inner"], errors["second"])


def test_what_is_saved_is_what_the_what_if_says(model: nn.Module, x: torch.Tensor):
    found, asked = found_for(model, x, Policy())
    layers = {each.layer.name: each for each in asked.layers}
    assert found.basis == "bound"
    for each in found.layers:
        before, after = layers[each.name].before, layers[each.name].after
        assert before.eager_min_time_s is not None
        assert after.eager_min_time_s is not None
        assert each.saved_s == pytest.approx(before.eager_min_time_s - after.eager_min_time_s)
        assert each.saved_bytes == before.traffic_bytes - after.traffic_bytes


def test_the_model_stays_as_it_was(model: nn.Module, x: torch.Tensor):
    model.train()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    found_for(model, x, Policy(), budget=Budget(size_bytes=4000))
    assert model.training
    assert all(not each._forward_pre_hooks for each in model.modules())
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name])
    assert list(before) == list(model.state_dict())


def test_it_says_what_was_run(model: nn.Module, x: torch.Tensor):
    assert found_for(model, x, Policy())[0].inputs == "the given inputs of 4x3x8x8"
    assert found_for(model, (4, 3, 8, 8), Policy())[0].inputs == "random numbers of 4x3x8x8"
    found, _ = found_for(model, (4, 3, 8, 8), Policy(), samples=x[:2])
    assert (found.inputs, found.weights) == ("given samples of 2x3x8x8", "the model's own")


def test_samples_decide_the_errors(model: nn.Module, x: torch.Tensor):
    by_name = [
        {each.name: each.error for each in found_for(model, x, Policy(), samples=samples)[0].layers}
        for samples in (None, x, 2 * x + 1)
    ]
    assert by_name[0] == by_name[1]
    assert by_name[0] != by_name[2]


def test_a_layer_that_runs_twice_is_one(x: torch.Tensor):
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.again = nn.Conv2d(8, 8, 3, padding=1)
            self.head = nn.Conv2d(8, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.again(torch.relu(self.stem(x))))
            return self.head(torch.relu(self.again(x)))

    found, _ = found_for(Twice().eval(), x, Policy(), budget=Budget(size_bytes=1000))
    assert sorted(each.name for each in found.layers) == ["again", "head", "stem"]
    assert found.proposal is not None
    assert found.proposal.model_bytes <= 1000


# -- proposals -------------------------------------------------------------------------------------


def test_nothing_is_proposed_without_a_budget(model: nn.Module, x: torch.Tensor):
    assert found_for(model, x, Policy())[0].proposal is None


def test_a_roomy_budget_leaves_floats(model: nn.Module, x: torch.Tensor):
    found, _ = found_for(model, x, Policy(), budget=Budget(size_bytes=10**6))
    assert found.proposal is not None
    assert found.proposal.is_within
    assert found.proposal.error == 0.0
    assert found.proposal.policy.weights == 32


@pytest.mark.parametrize("size_bytes", [2500, 4000, 6000])
def test_a_size_budget_is_held_by_the_whole_model(
    model: nn.Module, x: torch.Tensor, size_bytes: int
):
    found, _ = found_for(model, x, Policy(), budget=Budget(size_bytes=size_bytes))
    proposal = found.proposal
    assert proposal is not None
    assert proposal.is_within
    analysis = analysis_of_small()
    assert (
        proposal.model_bytes == evaluate_policy(analysis, proposal.policy, None).model_bytes_after
    )
    assert proposal.model_bytes <= size_bytes
    quantized = quantize_model(model, proposal.policy, x)
    calibrate_clipping(quantized, [x])
    assert proposal.error == pytest.approx(relative_error(model, quantized.eval(), x), rel=1e-4)


def test_more_room_does_no_more_harm(model: nn.Module, x: torch.Tensor):
    errors: list[float] = []
    for size_bytes in (2500, 4000, 12000):
        proposal = found_for(model, x, Policy(), budget=Budget(size_bytes=size_bytes))[0].proposal
        assert proposal is not None
        errors.append(proposal.error)
    assert errors == sorted(errors, reverse=True)


def test_a_budget_that_nothing_can_hold_is_said(model: nn.Module, x: torch.Tensor):
    proposal = found_for(model, x, Policy(), budget=Budget(size_bytes=100))[0].proposal
    assert proposal is not None
    assert not proposal.is_within
    assert proposal.model_bytes > 100
    assert (proposal.policy.weights, proposal.policy.activations) == (2, 2)


def test_first_and_last_keep_their_bits(model: nn.Module, x: torch.Tensor):
    proposal = found_for(model, x, Policy(), budget=Budget(size_bytes=2500))[0].proposal
    assert proposal is not None
    assert proposal.policy.bits_of("first", "first").weights >= 8
    assert proposal.policy.bits_of("last", "last").weights >= 8


def test_what_the_user_named_stays(model: nn.Module, x: torch.Tensor):
    own = LayerBits(weights=4, activations=32)
    policy = Policy(layers={"second": own})
    proposal = found_for(model, x, policy, budget=Budget(size_bytes=4000))[0].proposal
    assert proposal is not None
    assert proposal.policy.bits_of("second", "inner") == own


def test_a_time_budget_goes_by_bounds_where_nothing_was_learned(model: nn.Module, x: torch.Tensor):
    analysis = analysis_of_small()
    floats = evaluate_policy(analysis, FLOATS, None).eager_min_time_after_s
    least = evaluate_policy(analysis, Policy(), None).eager_min_time_after_s
    assert floats is not None
    assert least is not None
    budget = Budget(time_s=(floats + least) / 2)
    found, _ = found_for(model, x, Policy(), budget=budget)
    proposal = found.proposal
    assert proposal is not None
    assert (
        proposal.time_s == evaluate_policy(analysis, proposal.policy, None).eager_min_time_after_s
    )
    assert proposal.is_within == (proposal.time_s is not None and proposal.time_s <= budget.time_s)  # pyright: ignore[reportOperatorIssue]
    assert "(minimum time)" in proposal.budget
