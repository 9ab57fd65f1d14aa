"""One call of one operator, as capture saw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from roofline.workload.tensors import TensorSpec
from roofline.workload.work import Work

Phase = Literal["forward", "backward", "optimizer"]

PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
"""In the order in which they run."""


class State(StrEnum):
    """How far an operator's work is known."""

    COUNTED = "counted"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    """One call of an operator: what it read and wrote, and the work that is.

    ``op`` is the aten name without overload (``"aten.convolution"``); ``type`` its kind in the
    field's words (``"convolution"``, ``"depthwise convolution"``, ``"pointwise"`` …);
    ``module_path`` the qualified name of the innermost module running, ``""`` for the model itself.
    ``inputs`` are the distinct operands it reads, ``outputs`` those it writes, ``attributes`` its
    arguments that are not tensors; ``formula`` is the key of the formula that counted it, ``""`` if
    none did. ``freed`` are the storages whose last reference the model dropped between this call
    and the next.
    """

    index: int
    op: str
    type: str
    module_path: str
    phase: Phase
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: State
    work: Work
    formula: str = ""
    freed: tuple[int, ...] = ()
