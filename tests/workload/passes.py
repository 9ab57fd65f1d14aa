"""Runs a model or a function once, the way `analyze` does, and looks at what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from roofline.run import Run
from roofline.workload.capture.passes import capture
from roofline.workload.capture.training import TrainingConfig, optimizer_factory
from roofline.workload.inputs import Inputs
from roofline.workload.models.sources import Function
from roofline.workload.operators import Capture, OperatorRecord, State
from roofline.workload.work import Work


def passed(model: Callable[..., Any], *inputs: Any, change: str = "", **named: Any) -> Capture:
    """One pass of a module or function; inputs are tensors or shapes."""
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    return capture(module, Inputs(*inputs, **named), name="model", run=Run(dtype=change))


def trained(
    model: torch.nn.Module,
    *inputs: Any,
    optimizer: str | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **named: Any,
) -> Capture:
    """One step of training, without an update unless an optimizer is named."""
    return capture(
        model,
        Inputs(*inputs, **named),
        name="model",
        run=Run(train=True, optimizer=optimizer or ""),
        training=TrainingConfig(
            optimizer=optimizer_factory(optimizer) if optimizer else None, loss=loss
        ),
    )


def working(captured: Capture) -> list[OperatorRecord]:
    """The operators that are not free."""
    return [each for each in captured.records if each.state is not State.FREE]


def only(captured: Capture) -> OperatorRecord:
    """The one operator that is not free."""
    (record,) = working(captured)
    return record


def total(captured: Capture) -> Work:
    """The sum over all operators."""
    return sum((each.work for each in captured.records), start=Work())
