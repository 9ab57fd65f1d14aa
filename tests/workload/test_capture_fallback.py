"""What fake tensors cannot do runs for real, and says so; models of every form are captured."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from roofline.errors import ModelError
from roofline.workload.capture.passes import capture
from roofline.workload.inputs import Inputs
from roofline.workload.models.building import MetaConstruction
from roofline.workload.operators import Capture, State
from roofline.workload.tensors import Role
from tests.workload.passes import Function, passed, total, working

FOR_REAL = "model ran on real tensors with"


def ops(captured: Capture) -> list[str]:
    return [each.op for each in captured.records]


def paths(captured: Capture) -> list[str]:
    return [each.module_path for each in captured.records if each.state is not State.FREE]


# -- for real --------------------------------------------------------------------------------------


def by_value(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > -1e9 else x


def selected(x: torch.Tensor) -> torch.Tensor:
    return x[x > -1e9]


def through_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.tanh(x.numpy())) * 2


def as_many_as_said(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.max() > -1e9) + 1):
        x = x + 1
    return x


def listed(x: torch.Tensor) -> torch.Tensor:
    return x + sum(x.flatten().tolist())


@pytest.mark.parametrize("model", [by_value, selected, through_numpy, as_many_as_said, listed])
@pytest.mark.parametrize("given", ["a shape", "a tensor"])
def test_what_needs_values_runs_for_real(model: Callable[..., Any], given: str) -> None:
    """And the note says on what."""
    captured = passed(model, torch.randn(2, 3) if given == "a tensor" else (2, 3))
    (note,) = captured.notes
    assert FOR_REAL in note
    assert ("the given inputs" if given == "a tensor" else "random and zero inputs") in note
    assert all(each.state is not State.UNKNOWN for each in captured.records)


def test_control_flow_follows_the_given_values() -> None:
    """As many rounds as the tensor says."""

    def model(x: torch.Tensor, rounds: torch.Tensor) -> torch.Tensor:
        for _ in range(int(rounds)):
            x = x.relu()
        return x

    captured = passed(model, (4, 4), torch.tensor(3))
    assert ops(captured).count("aten.relu") == 3
    assert total(captured).flop == 3 * 16


def test_what_needs_no_values_has_no_note() -> None:
    assert passed(nn.Linear(4, 2), (3, 4)).notes == ()


class Mixed(nn.Module):
    """Convolutions, a tied weight, a buffer, and what fake tensors can do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.second(self.first(x).transpose(0, 1).contiguous().t()) * self.scale


class NeedsValues(Mixed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bool((self.get_buffer("scale") > 0).all())
        return super().forward(x)


def test_a_real_pass_records_what_a_fake_one_does() -> None:
    """Operators, operands, work, lifetimes and totals: the same."""
    torch.manual_seed(0)
    fake, real = passed(Mixed(), (2, 3, 8, 8)), passed(NeedsValues(), (2, 3, 8, 8))
    rest = real.records[2:]
    assert not fake.notes
    assert real.notes
    assert ops(real)[:2] == ["aten.gt", "aten.all"]
    assert [each.op for each in rest] == ops(fake)
    for one, other in zip(rest, fake.records, strict=True):
        assert one.work == other.work
        assert [each.shape for each in one.inputs] == [each.shape for each in other.inputs]
        assert [each.role for each in one.inputs] == [each.role for each in other.inputs]
        assert len(one.freed) == len(other.freed)
        assert one.module_path == other.module_path
    for name in ("parameters", "parameter_size_bytes", "buffer_size_bytes", "input_bytes"):
        assert getattr(real, name) == getattr(fake, name)


class Careless(nn.Module):
    """Changes everything that it can reach, and needs values."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("calls", torch.zeros(1))
        self.plain = torch.ones(3)
        self.cache: dict[str, Any] = {"deep": [{}]}
        self.fails = fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.plain.mul_(2)
        self.linear.weight.data.fill_(7)
        self.cache["deep"][0]["x"] = x
        self.linear.extra = nn.Linear(1, 1)
        x.zero_()
        if float(x.sum()) == 0 and self.fails:
            raise RuntimeError("on purpose")
        return self.linear(x) + self.plain


@pytest.mark.parametrize("fails", [False, True])
def test_a_real_pass_leaves_the_model_and_its_inputs_as_they_were(fails: bool) -> None:
    """Values too: it ran on copies."""
    torch.manual_seed(1)
    model, x = Careless(fails=fails).train(), torch.ones(2, 3)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    forward = nn.Linear.__dict__["forward"]
    if fails:
        with pytest.raises(ModelError, match="on purpose"):
            passed(model, x)
    else:
        assert passed(model, x).notes
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.cache == {"deep": [{}]}
    assert torch.equal(model.plain, torch.ones(3))
    assert torch.equal(x, torch.ones(2, 3))
    assert model.training
    assert not hasattr(model.linear, "extra")
    assert nn.Linear.__dict__["forward"] is forward
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_without_weights_is_built_again_for_a_real_pass() -> None:
    built: list[bool] = []

    def rebuild() -> nn.Module:
        built.append(True)
        return NeedsValues()

    with MetaConstruction():
        model = NeedsValues()
    captured = capture(model, Inputs((2, 3, 8, 8)), name="net", rebuild=rebuild)
    assert built == [True]
    assert captured.notes


def test_a_model_without_weights_that_nobody_can_build() -> None:
    """What it said on fake tensors is the message."""
    with MetaConstruction():
        model = NeedsValues()
    with pytest.raises(ModelError, match="depends on tensor values"):
        capture(model, Inputs((2, 3, 8, 8)), name="net")


def test_too_many_weights_are_not_made() -> None:
    """Nobody waits for a terabyte."""

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(2**19, 2**19, device="meta"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    def rebuild() -> nn.Module:
        raise AssertionError("it was built")

    with pytest.raises(ModelError, match=r"a run on real tensors needs 1\.\d+ TB of weights"):
        capture(Large(), Inputs((2,)), name="net", rebuild=rebuild)


def test_a_mistake_of_the_user_stays_one() -> None:
    """The message is that of the real run, which is the same."""
    with pytest.raises(ModelError, match="shapes cannot be multiplied"):
        passed(nn.Linear(4, 2), (3, 5))


def test_a_custom_operator_without_fake_implementation_runs_for_real() -> None:
    """Its FLOP stay unknown, its bytes are counted."""
    with torch.library._scoped_library("roofline_fallback", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        captured = passed(lambda x: torch.ops.roofline_fallback.twice(x), (4, 4))
    (record,) = working(captured)
    assert (record.op, record.state) == ("roofline_fallback.twice", State.UNKNOWN)
    assert record.work.traffic_bytes == 2 * 4 * 16
    (note,) = captured.notes
    assert "an operator has no fake kernel: register_fake" in note


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_runs_for_real() -> None:
    """Its parameters cannot be replaced."""
    script = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    captured = passed(script, (2, 4))
    assert captured.notes
    assert total(captured).macs == 2 * 4 * 4
    assert captured.parameters == 20


# -- models of every form --------------------------------------------------------------------------


@dataclass
class Boxes:
    points: torch.Tensor
    labels: list[torch.Tensor]


def test_models_that_return_structures() -> None:
    def model(x: torch.Tensor) -> Any:
        return {"boxes": Boxes(points=x + 1, labels=[x * 2]), "none": None, "n": 3}

    assert ops(passed(model, (2, 2))) == ["aten.add", "aten.mul"]


def test_nested_and_keyword_only_inputs() -> None:
    def model(batch: dict[str, Any], /, *, mask: torch.Tensor, sizes: tuple[Any, ...]) -> Any:
        return batch["image"][0] * mask + sizes[1]

    captured = passed(model, {"image": [(2, 2)]}, mask=(2, 2), sizes=((1,), (2, 2)))
    (multiplied, added) = captured.records
    assert [each.role for each in multiplied.inputs] == [Role.INPUT, Role.INPUT]
    assert [each.role for each in added.inputs] == [Role.ACTIVATION, Role.INPUT]
    assert captured.input_bytes == 4 * (4 + 4 + 1 + 4)


def test_direct_calls_of_forward_are_seen() -> None:
    """Operators are recorded under the module whose forward ran."""
    a, b = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    captured = passed(lambda x: b.forward(a.forward(x)) + 1, (2, 4))
    assert paths(captured) == ["a", "b.0", "b.1", ""]


def test_a_forward_that_calls_that_of_its_parent() -> None:
    class Loud(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) + 1

    assert paths(passed(nn.Sequential(Loud(4, 4), nn.ReLU()), (2, 4))) == ["0", "0", "1"]


class Recursive(nn.Module):
    """A module that calls itself, by call and by forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
        x = self.linear(x)
        if depth == 3:
            return self(x, 2)
        return self.forward(x, depth - 1) if depth else x + 1


def test_recursive_modules() -> None:
    captured = passed(nn.Sequential(Recursive()), (2, 4))
    assert paths(captured) == ["0.linear"] * 4 + ["0"]
    assert captured.parameters == 20


def test_modules_that_are_kept_in_lists_run_and_are_left_as_they_were() -> None:
    """torch does not know of them: their weights are replaced only when they are used."""

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [nn.Linear(4, 4)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.parts[0].seen = x
            return self.parts[0](x)

    model = Hidden()
    captured = passed(model, (2, 4))
    assert paths(captured) == ["<Linear>"]
    assert not hasattr(model.parts[0], "seen")
    assert Role.PARAMETER in {each.role for each in working(captured)[0].inputs}


def test_a_model_that_changes_its_own_type() -> None:
    """``self.half()`` in forward runs for real."""

    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.half()
            return self.linear(x.half())

    model = Halved()
    captured = passed(model, (2, 4))
    assert str(working(captured)[-1].outputs[0].dtype) == "float16"
    assert model.linear.weight.dtype == torch.float32


def test_functional_code_is_recorded_under_the_module_that_runs_it() -> None:
    weight = torch.randn(4, 4)
    captured = passed(nn.Sequential(Function(lambda x: F.linear(x, weight)), nn.ReLU()), (2, 4))
    assert paths(captured) == ["0", "1"]
    assert working(captured)[0].inputs[1].role is Role.BUFFER


def test_a_real_pass_draws_the_same_noise_every_time() -> None:
    """The same analysis twice takes the same way."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].relu() if x.sum() > 0 else x.sin()

    first, second = passed(model, (4, 8)), passed(model, (4, 8))
    assert [each.work for each in first.records] == [each.work for each in second.records]
