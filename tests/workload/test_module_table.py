"""How often each module ran and which parameters are its own, against what is written by hand."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import roofline
from roofline.analysis import Module, module_tree
from roofline.workload.models.sources import Function

HARDWARE = "10980xe"


class Base(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class Derived(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1


class Shared(torch.nn.Module):
    """Modules that are called several times, under two names, directly, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Linear(4, 4)
        self.block = Derived()
        self.again = self.block
        self.tied = torch.nn.Linear(4, 4)
        self.tied.weight = self.block.linear.weight
        self.scale = torch.nn.Parameter(torch.ones(4))
        self.first, self.second = Base(), Base()
        self.items = torch.nn.ModuleList([self.first, self.second])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = self.again(x)
        x = self.tied(x) * self.scale
        for each in (self.first, self.second):
            x = each.linear.forward(x)
        return torch.nn.Tanh()(x)


def modules_of(model: torch.nn.Module, **options: object) -> dict[str, Module]:
    analysis = roofline.analyze(model, (2, 4), hardware=HARDWARE, **options)  # pyright: ignore[reportArgumentType]
    assert sum(each.parameters for each in analysis.modules) == analysis.totals.parameters
    return {each.path: each for each in analysis.modules}


def test_shared_modules_stand_once_with_all_their_calls() -> None:
    found = modules_of(Shared())
    assert {path: (each.kind, each.calls, each.parameters) for path, each in found.items()} == {
        "": ("Shared", 1, 4),
        "block": ("Derived", 3, 0),
        "block.linear": ("Linear", 3, 20),
        "tied": ("Linear", 1, 4),
        "first.linear": ("Linear", 1, 20),
        "second.linear": ("Linear", 1, 20),
        "<Tanh>": ("Tanh", 1, 0),
        "unused": ("Linear", 0, 20),
        "items": ("ModuleList", 0, 0),
        "first": ("Base", 0, 0),
        "second": ("Base", 0, 0),
    }
    called = [each.path for each in found.values() if each.calls]
    assert called == list(found)[: len(called)]
    assert called[:4] == ["", "block", "block.linear", "tied"]


def test_backward_and_update_belong_to_the_module_of_the_forward_pass() -> None:
    analysis = roofline.analyze(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)),
        (2, 4),
        hardware=HARDWARE,
        train=True,
        optimizer="sgd",
    )
    tree = {each.path: each for each in module_tree(analysis, depth=1) if each.part == "whole"}
    # Forward and gradient of the weight: the first layer's input needs none. The last has all.
    assert tree["0"].group.work.macs == 2 * (2 * 4 * 8)
    assert tree["2"].group.work.macs == 3 * (2 * 8 * 3)
    assert [tree[path].calls for path in ("", "0", "1", "2")] == [1, 1, 1, 1]


def test_modules_that_run_again_for_the_backward_pass_are_called_twice() -> None:
    linear = torch.nn.Linear(4, 4)
    model = Function(lambda x: checkpoint(linear, x, use_reentrant=False))
    found = modules_of(model, train=True, optimizer="none")
    assert (found[""].calls, found["linear"].calls) == (1, 2)


@pytest.mark.filterwarnings("ignore:.*quant")
def test_packed_parameters_are_counted_where_they_are() -> None:
    packed = torch.ao.quantization.quantize_dynamic(
        torch.nn.Sequential(torch.nn.Linear(4, 4)), {torch.nn.Linear}, dtype=torch.qint8
    )
    found = modules_of(packed)
    assert found["0._packed_params"].parameters == 20
