"""What a later pass keeps in memory, against storages that are alive while torch makes it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from roofline.pipeline.scaling import scale


class Alive(TorchDispatchMode):
    """The most bytes that are alive at once, of storages that appear while this is open.

    Args:
        kept: tensors that are there already and count.
        known: tensors whose storages do not count.
    """

    def __init__(self, kept: Iterable[torch.Tensor], known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._known = {each.untyped_storage()._cdata for each in known}
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak_bytes = 0
        for each in kept:
            self._see(each)

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._known:
            self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._alive = {key: each for key, each in self._alive.items() if not each[0].expired()}
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):
                self._see(each)
        self.peak_bytes = max(self.peak_bytes, sum(byte for _, byte in self._alive.values()))
        return result


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
