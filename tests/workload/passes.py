"""Runs a model or a function once, the way `analyze` does, and looks at what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from roofline.workload.capture.passes import Capture, capture
from roofline.workload.inputs import Inputs
from roofline.workload.models.functions import Function
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.torch_dtypes import torch_dtype
from roofline.workload.work import Work


def passed(model: Callable[..., Any], *inputs: Any, change: str = "", **named: Any) -> Capture:
    """One pass of a module or function; inputs are tensors or shapes."""
    module = model if isinstance(model, torch.nn.Module) else Function(model)
    wanted = torch_dtype(change) if change else None
    return capture(module, Inputs(*inputs, **named), name="model", change=wanted)


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
