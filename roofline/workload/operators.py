"""Calls of operators, as a capture records them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from roofline.core.dtypes import DType
from roofline.run import Run
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedParameter:
    """A trainable parameter, with or without a gradient.

    ``parameter`` is its qualified name, the first of several.
    """

    parameter: str
    elements: int
    dtype: DType

    def __post_init__(self) -> None:
        if self.elements < 0:
            raise ValueError(f"a parameter has no negative size: {self}")

    @property
    def byte(self) -> int:
        return self.dtype.byte(self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient of one parameter, at its completion in the backward pass.

    ``parameter`` is the qualified name, the first of several; ``after`` the number of operators of
    the pass that ran before its completion; ``storage`` the number of its storage, as in records;
    ``state_bytes`` the optimizer state of the parameter.
    """

    parameter: str
    elements: int
    dtype: DType
    after: int
    storage: int
    state_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.elements, self.after, self.storage, self.state_bytes) < 0:
            raise ValueError(f"a gradient has no negative sizes: {self}")

    @property
    def byte(self) -> int:
        return self.dtype.byte(self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module of a model.

    ``path`` is its qualified name, the first of several, ``""`` for the model itself; ``kind`` the
    name of its class. ``calls`` counts its runs, recomputation in the backward pass included (0 for
    containers that are never called). ``parameters`` counts its own elements, without submodules;
    shared ones belong to the first module.
    """

    path: str
    kind: str
    calls: int
    parameters: int

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("parameters", self.parameters)):
            if value < 0:
                raise ValueError(f"{name} must be a whole number from 0, got {value}")


Phase = Literal["forward", "backward", "optimizer"]

PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer")
"""Phases in execution order."""


class State(StrEnum):
    """Knowledge of an operator's work."""

    COUNTED = "counted"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRecord:
    """One call of an operator: its operands and its work.

    ``op`` is the aten name without overload (``"aten.convolution"``); ``type`` its common name
    (``"convolution"``, ``"depthwise convolution"``, ``"pointwise"`` …); ``module_path`` the
    qualified name of the innermost running module, ``""`` for the model itself. ``inputs`` are the
    distinct operands it reads, ``outputs`` those it writes, ``attributes`` its other arguments;
    ``formula`` is the key of its formula, ``""`` if none. ``freed`` are the storages whose last
    reference the model dropped between this call and the next.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """One pass of a model: its operators, and its persistent tensors.

    ``run`` are the run settings. ``parameters`` counts elements, ``parameter_size_bytes`` and
    ``buffer_size_bytes`` bytes, tied ones once, unused parameters included; ``input_bytes`` those
    of the given inputs and of the targets of a loss. ``optimizer_state_bytes`` is the size of the
    optimizer state. ``modules`` are in the order of their first calls. ``notes`` describe the
    capture where it did not use fake tensors. ``gradients`` are those of parameters, in order of
    completion; ``trained`` are all trainable parameters, in the order of the model.
    """

    run: Run
    records: tuple[OperatorRecord, ...]
    parameters: int
    parameter_size_bytes: int
    buffer_size_bytes: int
    input_bytes: int
    optimizer_state_bytes: int = 0
    modules: tuple[Module, ...] = ()
    gradients: tuple[Gradient, ...] = ()
    trained: tuple[TrainedParameter, ...] = ()
    notes: tuple[str, ...] = ()
