"""One call of one operator, as capture saw it."""

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
class Trained:
    """A parameter that is trained, whether or not a gradient reaches it.

    ``parameter`` is the qualified name, the first where it has several.
    """

    parameter: str
    elements: int
    dtype: DType

    def __post_init__(self) -> None:
        if self.elements < 0:
            raise ValueError(f"a parameter has no negative size: {self}")

    @property
    def byte(self) -> int:
        """Bytes of all of its elements."""
        return self.dtype.byte(self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient of one parameter, as the backward pass finished it.

    ``parameter`` is the qualified name, the first where it has several; ``after`` how many
    operators of the pass had run when it was done; ``storage`` is the number of the storage that it
    lies in, as in records; ``state_bytes`` what the optimizer keeps for the parameter from step to
    step.
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
        """Bytes of all of its elements."""
        return self.dtype.byte(self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One module of a model.

    ``path`` is its qualified name, the first where it has several, ``""`` for the model itself;
    ``kind`` the name of its class. ``calls`` is how often it ran, also when it ran again for the
    backward pass (0: it was not called, as containers are not). ``parameters`` counts the elements
    of its own, without those of modules in it; what several modules share is the first one's.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a model asked for in one pass: its operators, and the tensors it keeps.

    ``run`` is how it was run. ``parameters`` counts elements, ``parameter_size_bytes`` and
    ``buffer_size_bytes`` bytes, tied ones once; ``input_bytes`` those of the given inputs, and of
    what a loss holds outputs against. Parameters that no operator touched are in them.
    ``optimizer_state_bytes`` are those of what an optimizer keeps from step to step. ``modules``
    are in the order of their first calls. ``notes`` say how it was captured where that was not on
    fakes. ``gradients`` are those of parameters, in the order in which they were done; ``trained``
    are all parameters that may get one, in the order of the model.
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
    trained: tuple[Trained, ...] = ()
    notes: tuple[str, ...] = ()
