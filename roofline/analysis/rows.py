"""Operators of an analysis, and the totals of a pass: work, minimum times and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from roofline.core.sampling import Sample
from roofline.core.units import format_bytes, format_memory, sum_known
from roofline.latency.prediction import Prediction
from roofline.machine.hardware import HardwareProfile
from roofline.minimum import MinimumTimes
from roofline.placement import Bound, Placement
from roofline.workload.fusion import FusedOperator
from roofline.workload.operators import OperatorRecord, Phase, State
from roofline.workload.tensors import TensorSpec
from roofline.workload.work import Work

if TYPE_CHECKING:
    from roofline.analysis.result import Analysis


def names_of_numbers(cls: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that are numbers, or null."""
    kinds = ("int", "float", "int | None", "float | None")
    return tuple(each.name for each in fields(cls) if each.type in kinds)


def check_numbers(instance: object, names: Iterable[str]) -> None:
    """Raise an error if one of the fields `names` is negative or infinite."""
    for name in names:
        value = getattr(instance, name)
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number from 0, got {value}")


def check_interval(low: float | None, middle: float | None, high: float | None) -> None:
    """Raise an error for a predicted time outside its interval, and for half an interval."""
    if low is None and high is None:
        return
    if low is None or middle is None or high is None or not low <= middle <= high:
        raise ValueError(f"predicted_s is {middle}, not between {low} and {high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One operator: work, placement under the roofline, and times.

    The work fields are those of `Work`, null if unknown; the placement fields those of `Placement`.
    ``level_bytes`` are the bytes crossing each memory level, ``intensity_flop_per_byte`` is the AI
    at the limiting level. ``chain`` is the index of the first operator of its fused kernel (its
    own: alone), ``fused_bytes`` its traffic after operator fusion, ``fused_min_time_s`` the minimum
    time of the kernel, given at its first operator. Predictions and measurements are null if there
    are none; ``measured_s`` is the median of ``measured_times_s``, ``measured_page_faults`` are
    minor page faults per call.

    Raises:
        ValueError: a negative or infinite number, a wrong sum, or a contradictory state.
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
        """Work of the operator; its parts add up."""
        return Work(**dict(zip(_OF_WORK, _work_of(self), strict=True)))

    @property
    def record(self) -> OperatorRecord:
        """Operator as captured, without the storages released after it."""
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
    fused: FusedOperator | None = None,
    fused_min_time_s: float | None = None,
    prediction: Prediction | None = None,
    sample: Sample | None = None,
    page_faults: int | None = None,
) -> OperatorRow:
    """Return the row of a placed operator."""
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


def fits(peak_bytes: int | None, capacity_bytes: int | None) -> bool | None:
    """Return whether a peak of memory fits into a capacity, both in bytes; None: not known."""
    if peak_bytes is None or capacity_bytes is None:
        return None
    return peak_bytes <= capacity_bytes


def fit_text(peak_bytes: int | None, capacity_bytes: int | None) -> str:
    """Return ``"does not fit: 113 GB of 80 GiB"``, ``"fits into 80 GiB"`` or ``""`` (unknown)."""
    found = fits(peak_bytes, capacity_bytes)
    if found is None:
        return ""
    capacity = format_memory(capacity_bytes)
    return f"fits into {capacity}" if found else f"does not fit: {_of(peak_bytes, capacity_bytes)}"


def fit_of(analysis: Analysis) -> str:
    """Return `fit_text` of the peak of a pass and the memory of its machine."""
    return fit_text(analysis.totals.peak_memory_bytes, analysis.hardware.memory_capacity_bytes)


def oversized(names: Iterable[str], analyses: Iterable[Analysis]) -> list[str]:
    """Return the names of passes that do not fit: ``["a100 (113 GB of 80 GiB)"]``."""
    return [
        f"{name} ({_of(each.totals.peak_memory_bytes, each.hardware.memory_capacity_bytes)})"
        for name, each in zip(names, analyses, strict=True)
        if each.fits is False
    ]


def unknown_capacity(machines: Iterable[HardwareProfile]) -> Iterable[str]:
    """Yield one line that names the machines whose memory capacity is not known; or none."""
    unknown = dict.fromkeys(each.name for each in machines if each.memory_capacity_bytes is None)
    if unknown:
        yield f"memory capacity not known: {', '.join(unknown)}"


def fit_warnings(analysis: Analysis) -> tuple[str, ...]:
    """Return the warning that a pass does not fit into the memory of its machine; or none."""
    if analysis.fits is not False:
        return ()
    peak, capacity = analysis.totals.peak_memory_bytes, analysis.hardware.memory_capacity_bytes
    step = "a training step of " * analysis.run.train
    return (
        f"{step}{analysis.model} does not fit into the memory of {analysis.hardware.name}:"
        f" {_of(peak, capacity)}; times assume a larger memory",
    )


def _of(peak_bytes: int | None, capacity_bytes: int | None) -> str:
    return f"{format_bytes(peak_bytes)} of {format_memory(capacity_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MinTimes:
    """Minimum times of a pass in seconds, as in `Totals`; None: unknown."""

    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None

    @classmethod
    def of(cls, eager_min_time_s: float | None, minimum: MinimumTimes | None) -> MinTimes:
        """Return the minimum times of a pass."""
        return cls(
            eager_min_time_s=eager_min_time_s,
            fused_min_time_s=minimum.fused.time_s if minimum else None,
            model_min_time_s=minimum.model.time_s if minimum else None,
        )


MINIMUM_TIMES = tuple(each.name for each in fields(MinTimes))
"""Saved names of the minimum times, longest time first."""


def minimum_times_of(found: object | None) -> dict[str, Any]:
    """Return the three minimum times by name, in seconds; None: unknown."""
    return {name: found and getattr(found, name) for name in MINIMUM_TIMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Fractions of calls, bytes and time with known FLOP; free operators are left out.

    ``time`` is null without measured times. A fraction of nothing is 1.

    Raises:
        ValueError: a fraction outside 0 to 1.
    """

    calls: float
    traffic: float
    time: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("calls", self.calls), ("traffic", self.traffic), ("time", self.time)):
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must be a fraction from 0 to 1, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the operators, memory and times of the pass.

    ``flop``, ``macs`` and ``min_flop`` are sums over operators with a formula
    (``unknown_operators`` calls have none); ``internal_bytes`` leaves out unknown ones.
    ``fused_bytes`` is null if unknown. ``parameters`` counts elements, each storage once;
    ``parameter_size_bytes``, ``buffer_size_bytes`` and ``optimizer_state_bytes`` are their sizes.
    ``peak_memory_bytes`` is the maximum of live bytes, ``all_tensors_bytes`` the sum of all
    tensors. ``eager_min_time_s`` is the sum over the operators, null without ceilings;
    ``fused_min_time_s`` the minimum with operator fusion, ``model_min_time_s`` that of the same
    function, ``fused_limiter`` and ``model_limiter`` are their limiters.

    Raises:
        ValueError: a negative or infinite number.
    """

    flop: int
    macs: int
    min_flop: int
    unknown_operators: int
    parameter_bytes: int
    input_bytes: int
    output_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    internal_bytes: int = 0
    traffic_bytes: int
    fused_bytes: int | None = None
    parameters: int
    parameter_size_bytes: int
    buffer_size_bytes: int
    optimizer_state_bytes: int = 0
    peak_memory_bytes: int
    all_tensors_bytes: int
    eager_min_time_s: float | None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    fused_limiter: str = ""
    model_limiter: str = ""
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    measured_s: float | None = None

    def __post_init__(self) -> None:
        check_numbers(self, _NUMBERS_OF_TOTALS)
        check_interval(self.predicted_low_s, self.predicted_s, self.predicted_high_s)

    @property
    def intensity_flop_per_byte(self) -> float | None:
        """AI of operand bytes in FLOP/B; None if FLOP are unknown or nothing moves."""
        if self.unknown_operators or not self.traffic_bytes:
            return None
        return self.flop / self.traffic_bytes


_NUMBERS_OF_TOTALS = names_of_numbers(Totals)
SUMMED = tuple(each.name for each in fields(Work) if each.name in Totals.__dataclass_fields__)
"""Fields of `Work` that add up to those of `Totals`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPeak:
    """Memory at its peak, in bytes, and when.

    ``operator`` is the index of the operator that runs then; null if none uses memory.

    Raises:
        ValueError: a negative number.
    """

    operator: int | None
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    gradient_bytes: int

    def __post_init__(self) -> None:
        check_numbers(self, names_of_numbers(MemoryPeak))

    @property
    def byte(self) -> int:
        """Sum in bytes."""
        names = [each.name for each in fields(self) if each.name != "operator"]
        return sum(getattr(self, name) for name in names)


def sum_fused_bytes(rows: Iterable[OperatorRow]) -> int | None:
    """Return the traffic after operator fusion in bytes; None: unknown."""
    byte = [row.fused_bytes for row in rows]
    return sum_known(byte) if byte else None


def coverage_of(rows: Sequence[OperatorRow]) -> Coverage:
    """Return the coverage: fractions of calls, bytes and time with known FLOP."""
    working = [row for row in rows if row.state is not State.FREE]

    def known_part(of: Callable[[OperatorRow], float]) -> float:
        whole = sum(map(of, working))
        return sum(of(r) for r in working if r.state is State.COUNTED) / whole if whole else 1.0

    has_times = working and all(row.measured_s is not None for row in working)
    return Coverage(
        calls=known_part(lambda _: 1),
        traffic=known_part(lambda row: row.traffic_bytes),
        time=known_part(lambda row: row.measured_s or 0.0) if has_times else None,
    )


def known_work(rows: Iterable[OperatorRow]) -> Work:
    """Return the work of `rows`: FLOP of operators with a formula, bytes of all."""
    total = Work()
    for row in rows:
        work = row.work
        if work.flop is None:
            work = replace(work, flop=0, macs=0, min_flop=0)
        if work.internal_bytes is None:
            work = replace(work, internal_bytes=0)
        total += work
    return total


def sum_eager_min_time_s(rows: Iterable[OperatorRow]) -> float | None:
    """Return the sum of the minimum times in seconds; None if one is unknown."""
    return sum_known(row.eager_min_time_s for row in rows)
