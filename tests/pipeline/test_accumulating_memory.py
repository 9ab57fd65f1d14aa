"""What a later pass keeps in memory, against storages that are alive while torch makes it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from roofline.pipeline.scaling import scale
from tests.pipeline.alive import Alive


class Joined(nn.Module):
    """Two parameters whose gradients are parts of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(30, 40))
        self.right = nn.Parameter(torch.randn(50, 40))
        self.head = nn.Linear(80, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x @ torch.cat((self.left, self.right)).T)


def layers(*widths: int) -> nn.Module:
    found: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        found += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*found[:-1])


MODELS = {
    "wide at the end": lambda: layers(40, 20, 300, 10),
    "wide at the beginning": lambda: layers(40, 400, 20, 10),
    "deep": lambda: layers(40, 60, 60, 60, 60, 60, 10),
    "joined parameters": Joined,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [4, 512])
def test_a_later_pass_keeps_what_torch_keeps(name: str, batch: int) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name](), torch.randn(batch, 40)
    target = torch.randint(10, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    nn.functional.cross_entropy(model(x), target).backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    with Alive(gradients, [x, target, *model.parameters()]) as alive:
        # As loops have it: what the model gives is there until the next pass.
        output = model(x)
        loss = nn.functional.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
    told = scale(
        model,
        f"{batch}x40",
        data_parallel=2,
        accumulate=2,
        optimizer="sgd",
        hardware="10980xe",
        link_bandwidth="1GB/s",
    )
    memory = told.point.memory
    assert memory.activation_bytes + memory.gradient_bytes == alive.peak_bytes
