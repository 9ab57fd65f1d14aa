"""What is run beside a what-if: companions under the clock, and how much each layer suffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from roofline.quantization.policy import LayerBits, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """The model really run in a lower precision here, timed in turn with the original.

    ``way`` says how (``"bfloat16"``, ``"int8 (torch.ao, static)"`` …), ``bits`` which what-if it
    stands beside. ``speedup`` is the median of rounds of original over companion, with the interval
    from 10 to 90 %. ``predicted_s`` is the what-if's prediction, None where it makes none.
    ``error`` is the relative error of its outputs (L2, against the original's), ``allocator`` names
    the settings of malloc meanwhile (``""``: not known), ``why_not`` why there are no times.
    """

    way: str
    bits: LayerBits
    before_s: float | None = None
    after_s: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    rounds: int = 0
    predicted_before_s: float | None = None
    predicted_s: float | None = None
    error: float | None = None
    allocator: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSensitivity:
    """What quantising one layer alone does.

    ``error`` is the relative L2 error of the model's outputs; ``saved_s`` what is saved by the
    what-if's basis (``prediction`` or ``bound``), below 0 where it takes longer; ``saved_byte``
    what it reads and writes less.
    """

    name: str
    bits: LayerBits
    error: float
    saved_s: float | None
    saved_byte: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Bits for each layer under a budget.

    ``error`` is that of the model with all of it, computed and not added up; ``is_within`` whether
    the budget could be held.
    """

    policy: Policy
    budget: str
    is_within: bool
    model_byte: int
    time_s: float | None
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Layers by how much they suffer for what they save: the worst bargain last.

    ``basis`` says what saved times are; ``inputs`` and ``weights`` whose they were; ``left`` which
    layers of the what-if could not be tried.
    """

    layers: tuple[LayerSensitivity, ...]
    basis: Literal["prediction", "bound"]
    inputs: str
    weights: str
    proposal: Proposal | None = None
    left: tuple[str, ...] = ()
