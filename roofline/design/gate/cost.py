"""What a pass of a model costs: its totals, how it was run, and where and with what it was counted.

A cost holds no operators one by one, so that its file is small enough to stand in a repository and
to be read in a review.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from roofline.analysis import MINIMUM_TIMES, Analysis, minimum_times_of
from roofline.analysis.checks import check_numbers, names_of_numbers
from roofline.design.pass_times import predicted_s
from roofline.foundation.rows import sum_known
from roofline.machine.hardware import HardwareProfile
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.runs import Run
from roofline.workload.tensors import InputSpec

_DEPTH = 2
"""How far down the tree of modules costs are told apart."""

MODEL_ITSELF = "(model)"
"""What runs in no submodule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one type of operators or one module adds to a cost.

    ``calls`` are launches: operators that are free are not among them. ``flop`` is null where that
    of one of them is not known.

    Raises:
        ValueError: a negative number.
    """

    name: str
    calls: int
    flop: int | None
    traffic_bytes: int

    def __post_init__(self) -> None:
        check_numbers(self, _OF_PARTS)


_OF_PARTS = names_of_numbers(Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Whose ceilings the times of a cost are for.

    ``cpu_model`` is ``""`` where a profile names none; ``date`` is when it was measured.
    """

    name: str
    device: str
    threads: int
    cpu_model: str = ""
    date: str = ""

    @classmethod
    def of(cls, profile: HardwareProfile, threads: int) -> Machine:
        """The machine of a profile, of which so many threads compute."""
        return cls(
            name=profile.name,
            device=profile.device,
            threads=threads,
            cpu_model=profile.host.cpu_model if profile.host else "",
            date=profile.date,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a pass of a model costs.

    ``flop`` and ``macs`` are null where an operator has no formula (``unknown_operators`` calls): a
    part of a sum is compared with nothing. ``launches`` are the calls of operators that are not
    free. ``eager_min_time_s``, the minimum times (as in `Totals`) and ``predicted_s`` are those of
    ``machine``, null where there is none or nothing is known; ``calibration`` says what the
    prediction was learned from. ``versions`` are those of what counted, by name; ``types`` and
    ``modules`` what the totals are made of.

    Raises:
        ValueError: a negative or infinite number, or FLOP that are known though some are not.
    """

    model: str
    inputs: tuple[InputSpec, ...] = ()
    run: Run = field(default_factory=Run)
    flop: int | None
    macs: int | None
    traffic_bytes: int
    parameters: int
    peak_memory_bytes: int
    launches: int
    unknown_operators: int
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None
    predicted_s: float | None = None
    machine: Machine | None = None
    calibration: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    date: str = ""
    types: tuple[Part, ...] = ()
    modules: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        check_numbers(self, _NUMBERS)
        for name in ("flop", "macs"):
            if (getattr(self, name) is None) != bool(self.unknown_operators):
                raise ValueError(
                    f"{name} is {getattr(self, name)}, but {self.unknown_operators} operators have"
                    " no formula"
                )
        times = (*MINIMUM_TIMES, "predicted_s")
        if self.machine is None and any(getattr(self, name) is not None for name in times):
            raise ValueError(f"{', '.join(times[:-1])} and {times[-1]} belong to a machine")

    def value(self, name: str) -> float | None:
        """The total of that name, None where it is not known."""
        found: float | None = getattr(self, name)
        return found


_NUMBERS = names_of_numbers(Cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The part of a cost that follows from operators, whatever the machine."""

    flop: int | None
    macs: int | None
    traffic_bytes: int
    launches: int
    unknown_operators: int
    types: tuple[Part, ...]
    modules: tuple[Part, ...]


def counts_of(records: Iterable[OperatorRecord]) -> Counts:
    """What operators add up to; those that are free are left out."""
    at_work = [each for each in records if each.state is not State.FREE]
    return Counts(
        flop=sum_known([each.work.flop for each in at_work]),
        macs=sum_known([each.work.macs for each in at_work]),
        traffic_bytes=sum(each.work.traffic_bytes for each in at_work),
        launches=len(at_work),
        unknown_operators=sum(each.state is State.UNKNOWN for each in at_work),
        types=_parts(at_work, lambda each: each.type),
        modules=_parts(at_work, _module),
    )


def cost_of(
    analysis: Analysis, *, versions: Mapping[str, str] | None = None, date: str = ""
) -> Cost:
    """The cost that an analysis comes to.

    Args:
        analysis: of one pass, on one machine.
        versions: of what counted it, by name; None: not known.
        date: when, ISO 8601; ``""``: not known.
    """
    counts = counts_of(row.record for row in analysis.operators)
    known = analysis.hardware.compute or analysis.hardware.memory
    return Cost(
        model=analysis.model,
        inputs=analysis.inputs,
        run=analysis.run,
        **fields_of(counts),
        parameters=analysis.totals.parameters,
        peak_memory_bytes=analysis.totals.peak_memory_bytes,
        **minimum_times_of(analysis.totals if known else None),
        predicted_s=predicted_s(analysis),
        machine=Machine.of(analysis.hardware, analysis.threads) if known else None,
        calibration=analysis.prediction.calibration if analysis.prediction else "",
        versions=dict(versions or {}),
        date=date,
    )


def fields_of(counts: Counts) -> dict[str, Any]:
    """The fields of a cost that its counts are."""
    return {each.name: getattr(counts, each.name) for each in fields(Counts)}


def _parts(
    records: Sequence[OperatorRecord], name_of: Callable[[OperatorRecord], str]
) -> tuple[Part, ...]:
    """The records by name, in the order of their first calls."""
    by_name: dict[str, list[OperatorRecord]] = {}
    for each in records:
        by_name.setdefault(name_of(each), []).append(each)
    return tuple(
        Part(
            name=name,
            calls=len(found),
            flop=sum_known([each.work.flop for each in found]),
            traffic_bytes=sum(each.work.traffic_bytes for each in found),
        )
        for name, found in by_name.items()
    )


def _module(record: OperatorRecord) -> str:
    return ".".join(record.module_path.split(".")[:_DEPTH]) or MODEL_ITSELF
