"""One operator of an analysis: its work, its place under the roof, and its times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from roofline.foundation.sampling import Sample
from roofline.latency.prediction import Prediction
from roofline.placement import Bound, Placement
from roofline.workload.fusion import Fused
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import Work


def names_of_numbers(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass that hold a number, or null."""
    kinds = ("int", "float", "int | None", "float | None")
    return tuple(each.name for each in fields(cls) if each.type in kinds)


def check_numbers(instance: object, names: Iterable[str]) -> None:
    """Refuses a number of `instance`, among its fields `names`, that is negative or infinite."""
    for name in names:
        value = getattr(instance, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number from 0, got {value}")


def check_interval(low: float | None, middle: float | None, high: float | None) -> None:
    """Refuses a predicted time that does not lie in its interval, and half an interval."""
    if low is None and high is None:
        return
    if low is None or middle is None or high is None or not low <= middle <= high:
        raise ValueError(f"predicted_s is {middle}, not between {low} and {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One operator: what it asks for, where it stands under the roof, and how long it takes.

    The work fields are those of `Work` and null where unknown; the placement fields those of
    `Placement`. ``level_bytes`` are the bytes that must come from each memory level;
    ``intensity_flop_per_byte`` is FLOP per byte crossing the binding level, the x of its point.
    ``chain`` is the index of the first operator of the kernel that it would be part of where chains
    of producers and consumers stay on chip (its own: alone), and ``fused_bytes`` what of its
    traffic would still cross memory there; null where that is not known. ``fused_min_time_s``
    is that of the fused kernel, given with the first of its
    operators and null for the others. Predictions and measurements are null where there are none;
    ``measured_times_s`` are the times that ``measured_s`` is the median of,
    ``measured_page_faults`` the minor page faults of a call.

    Raises:
        ValueError: a negative or infinite number, a sum that is none, or a state that contradicts
            what is known.
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
    formula: str = ""
    flop: int | None
    macs: int | None
    min_flop: int | None
    min_macs: int | None = None
    parameter_bytes: int
    input_bytes: int
    output_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    internal_bytes: int | None = 0
    traffic_bytes: int
    chain: int | None = None
    fused_bytes: int | None = None
    level_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    intensity_flop_per_byte: float | None
    level: str
    ceiling: str
    attainable_flop_per_s: float | None
    bound: Bound
    eager_min_time_s: float | None
    fused_min_time_s: float | None = None
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    prediction_source: str | None = None
    measured_s: float | None = None
    measured_iqr_s: float | None = None
    measured_times_s: tuple[float, ...] = ()
    measured_page_faults: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, _NUMBERS)
        if self.measured_times_s and min(self.measured_times_s) <= 0:
            raise ValueError(f"measured_times_s must be positive, got {self.measured_times_s}")
        check_interval(self.predicted_low_s, self.predicted_s, self.predicted_high_s)
        if self.level_bytes and min(self.level_bytes.values()) < 0:
            raise ValueError(f"level_bytes must not be negative, got {dict(self.level_bytes)}")
        unknown = (self.flop is None, self.macs is None, self.min_flop is None)
        if any(unknown) != all(unknown):
            raise ValueError("flop, macs and min_flop must be known or null together")
        if (self.chain is None) != (self.fused_bytes is None):
            raise ValueError("chain and fused_bytes must be known or null together")
        if self.fused_bytes is not None and self.fused_bytes > self.traffic_bytes:
            raise ValueError(f"fused_bytes is {self.fused_bytes}, above traffic_bytes")
        if (self.state is State.UNKNOWN) != all(unknown):
            raise ValueError(f"state is '{self.state}', but flop is {self.flop}")
        if (self.state is State.FREE) != (self.bound is Bound.FREE):
            raise ValueError(f"state is '{self.state}', but bound is '{self.bound}'")
        if self.eager_min_time_s is None and self.bound is not Bound.UNKNOWN:
            raise ValueError(f"bound is '{self.bound}', but eager_min_time_s is null")
        traffic_bytes = self.work.traffic_bytes
        if self.traffic_bytes != traffic_bytes:
            raise ValueError(
                f"traffic_bytes is {self.traffic_bytes}, but its parts add up to {traffic_bytes}"
            )

    @property
    def work(self) -> Work:
        """The row's work, which adds up."""
        return Work(**dict(zip(_OF_WORK, _work_of(self), strict=True)))

    @property
    def record(self) -> OperatorRecord:
        """The operator as capture recorded it, but for the storages that went after it."""
        return OperatorRecord(**{name: getattr(self, name) for name in _OF_RECORD}, work=self.work)


_OF_WORK = tuple(each.name for each in fields(Work))
_OF_RECORD = (
    *("index", "op", "type", "module_path", "phase", "inputs", "outputs", "attributes", "state"),
    "formula",
)
_OF_PLACEMENT = (
    *("level_bytes", "intensity_flop_per_byte", "level", "ceiling", "attainable_flop_per_s"),
    *("bound", "eager_min_time_s"),
)
_work_of = attrgetter(*_OF_WORK)
_NUMBERS = names_of_numbers(OperatorRow)


def row_of(
    placement: Placement,
    fused: Fused | None = None,
    fused_min_time_s: float | None = None,
    prediction: Prediction | None = None,
    sample: Sample | None = None,
    page_faults: int | None = None,
) -> OperatorRow:
    """The row of a placed operator.

    Args:
        placement: where it stands.
        fused: what would be left of its traffic in fused kernels.
        fused_min_time_s: the minimum time of the kernel that begins with it; None: it begins none.
        prediction: how long it is expected to take; None: nobody says.
        sample: how long it took; None: it was not measured.
        page_faults: the minor page faults of a call, where it was.
    """
    record, work = placement.record, placement.record.work
    return OperatorRow(
        **{name: getattr(record, name) for name in _OF_RECORD},
        **{name: getattr(work, name) for name in _OF_WORK},
        **{name: getattr(placement, name) for name in _OF_PLACEMENT},
        traffic_bytes=work.traffic_bytes,
        chain=fused.chain if fused else None,
        fused_bytes=fused.traffic_bytes if fused else None,
        fused_min_time_s=fused_min_time_s,
        predicted_s=prediction.predicted_s if prediction else None,
        predicted_low_s=prediction.low_s if prediction else None,
        predicted_high_s=prediction.high_s if prediction else None,
        prediction_source=prediction.source if prediction else None,
        measured_s=sample.median_s if sample else None,
        measured_iqr_s=sample.iqr_s if sample else None,
        measured_times_s=sample.times_s if sample else (),
        measured_page_faults=page_faults,
    )
