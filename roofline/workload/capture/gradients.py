"""Which gradients the backward pass finishes, and after which operator: hooks on the parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from roofline.workload.capture.operands import tensors_in
from roofline.workload.gradients import Gradient, Trained
from roofline.workload.torch_dtypes import dtype_of


class Told(Protocol):
    """How far a pass is, and what tensors are in its records."""

    @property
    def operators(self) -> int:
        """How many operators have a record."""
        ...

    def storages(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Numbers of the storages that tensors lie in."""
        ...


@dataclass(slots=True, kw_only=True)
class Gradients:
    """The gradients of one pass, in the order in which they were done.

    ``trained`` are the parameters that may get one, in the model's order.
    """

    found: list[Gradient] = field(default_factory=list[Gradient])
    trained: tuple[Trained, ...] = ()

    def note_states(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        """Writes down what the optimizer keeps for each parameter."""
        named = dict(model.named_parameters())
        kept = optimizer.state if optimizer is not None else {}
        self.found = [
            replace(
                each,
                state_byte=sum(
                    tensor.nbytes
                    for tensor in tensors_in(dict(kept.get(named[each.parameter], {})))
                ),
            )
            for each in self.found
        ]


@contextlib.contextmanager
def noting_gradients(model: torch.nn.Module, is_trained: bool, told: Told) -> Iterator[Gradients]:
    """While this is open, gradients of `model` are written down as they are accumulated.

    The order is that in which DistributedDataParallel sees them: both hooks follow the node that
    accumulates.

    Args:
        model: whose parameters, those that are trained.
        is_trained: whether any is: an inference pass has no gradients.
        told: what is asked at each gradient.
    """
    trained = {
        name: each for name, each in model.named_parameters() if is_trained and each.requires_grad
    }
    noted = Gradients(
        trained=tuple(
            Trained(parameter=name, elements=each.numel(), dtype=dtype_of(each.dtype))
            for name, each in trained.items()
        )
    )
    done: set[str] = set()
    handles = [
        each.register_post_accumulate_grad_hook(_noting(noted.found, done, name, told))
        for name, each in trained.items()
    ]
    try:
        yield noted
    finally:
        for handle in handles:
            handle.remove()


def _noting(
    found: list[Gradient], done: set[str], name: str, told: Told
) -> Callable[[torch.Tensor], None]:
    def note(parameter: torch.Tensor) -> None:
        # Once a pass, unless the backward pass goes through it again: then the last time counts.
        if name in done:
            found[:] = [each for each in found if each.parameter != name]
        done.add(name)
        found.append(
            Gradient(
                parameter=name,
                elements=parameter.numel(),
                dtype=dtype_of(parameter.dtype),
                after=told.operators,
                storage=min(told.storages(tensors_in(parameter.grad))),
            )
        )

    return note
