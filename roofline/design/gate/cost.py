"""Cost of a pass: totals, run, machine and versions; baselines in files.

A cost has no single operators, so that its file is small enough for a repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from roofline.analysis import MINIMUM_TIMES, Analysis, analysis_from_data, minimum_times_of
from roofline.analysis.rows import check_numbers, names_of_numbers
from roofline.core import schema
from roofline.core.conditions import Kind, Quantity
from roofline.core.files import check_writable, read_json, refused, write_atomically
from roofline.core.rows import json_text
from roofline.core.text import counted, printable
from roofline.core.units import sum_known
from roofline.errors import InputError, argument
from roofline.machine.hardware import HardwareProfile
from roofline.run import Run
from roofline.workload.operators import OperatorRecord, State
from roofline.workload.tensors import InputSpec

_TOTALS: tuple[tuple[str, str, Kind], ...] = (
    ("flop", "FLOP", "flop"),
    ("macs", "MACs", "count"),
    ("traffic_bytes", "traffic", "byte"),
    ("parameters", "parameters", "count"),
    ("peak_memory_bytes", "peak memory", "byte"),
    ("launches", "launches", "count"),
    ("unknown_operators", "calls without a formula", "count"),
    ("eager_min_time_s", "minimum time, eager", "s"),
    ("fused_min_time_s", "minimum time, fused", "s"),
    ("model_min_time_s", "minimum time, model", "s"),
    ("predicted_s", "predicted", "s"),
)
QUANTITIES = {name: Quantity(name=name, title=title, kind=kind) for name, title, kind in _TOTALS}
"""Totals for conditions, by name."""

_DEPTH = 2  # Levels of the module tree
MODEL_ITSELF = "(model)"  # Operators outside submodules


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Operator type or module of a cost; ``calls`` are those of operators that are not free."""

    name: str
    calls: int
    flop: int | None
    traffic_bytes: int

    def __post_init__(self) -> None:
        check_numbers(self, _OF_PARTS)


_OF_PARTS = names_of_numbers(Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Machine of the times of a cost."""

    name: str
    device: str
    threads: int
    cpu_model: str = ""
    date: str = ""

    @property
    def words(self) -> str:
        """Name, CPU and threads: ``"host · Example 7 · 2 threads"``."""
        threads = f"{self.device} device"
        if self.device == "cpu":
            threads = counted(self.threads, "thread")
        return " · ".join(filter(None, (self.name, self.cpu_model, threads)))

    @classmethod
    def of(cls, profile: HardwareProfile, threads: int) -> Machine:
        """Return the machine of a profile with `threads` compute threads."""
        return cls(
            name=profile.name,
            device=profile.device,
            threads=threads,
            cpu_model=profile.host.cpu_model if profile.host else "",
            date=profile.date,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of a pass of a model.

    ``flop`` and ``macs`` are null with unknown operators (``unknown_operators`` calls).
    ``launches`` are calls of operators that are not free. Minimum times (as in `Totals`) and
    ``predicted_s`` are those of ``machine``, null if unknown; ``calibration`` is the source of the
    prediction. ``versions`` are those of the packages; ``types`` and ``modules`` the parts of the
    totals.

    Raises:
        ValueError: a negative or infinite number, or known FLOP with unknown operators.
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


_NUMBERS = names_of_numbers(Cost)


def counts_of(records: Iterable[OperatorRecord]) -> dict[str, Any]:
    """Return the fields of a cost that do not depend on the machine."""
    at_work = [each for each in records if each.state is not State.FREE]
    return {
        "flop": sum_known([each.work.flop for each in at_work]),
        "macs": sum_known([each.work.macs for each in at_work]),
        "traffic_bytes": sum(each.work.traffic_bytes for each in at_work),
        "launches": len(at_work),
        "unknown_operators": sum(each.state is State.UNKNOWN for each in at_work),
        "types": _parts(at_work, lambda each: each.type),
        "modules": _parts(
            at_work, lambda each: ".".join(each.module_path.split(".")[:_DEPTH]) or MODEL_ITSELF
        ),
    }


def cost_of(
    analysis: Analysis, *, versions: Mapping[str, str] | None = None, date: str = ""
) -> Cost:
    """Return the cost of an analysis."""
    known = analysis.hardware.compute or analysis.hardware.memory
    return Cost(
        model=analysis.model,
        inputs=analysis.inputs,
        run=analysis.run,
        **counts_of(row.record for row in analysis.operators),
        parameters=analysis.totals.parameters,
        peak_memory_bytes=analysis.totals.peak_memory_bytes,
        **minimum_times_of(analysis.totals if known else None),
        predicted_s=analysis.prediction.predicted_s if analysis.prediction else None,
        machine=Machine.of(analysis.hardware, analysis.threads) if known else None,
        calibration=analysis.prediction.calibration if analysis.prediction else "",
        versions=dict(versions or {}),
        date=date,
    )


def _parts(
    records: Sequence[OperatorRecord], name_of: Callable[[OperatorRecord], str]
) -> tuple[Part, ...]:
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


# -- baselines -------------------------------------------------------------------------------------


def check_repeated(analysis: Analysis, *, what: str) -> None:
    """Raise an error for an analysis with cold caches."""
    if analysis.cache == "cold":
        raise InputError(
            f"{printable(what)}: analyzed with cold caches; analyze it without"
            f" {argument('cold', True)}"
        )


KIND = "baseline"  # ``kind`` in files
_FIX = "write it again with `roofline check MODEL --against FILE.json --update`"
_OURS = re.compile(rb'"kind"\s*:\s*"baseline"')
_HEAD_BYTE = 2**20


def baseline_json(cost: Cost) -> str:
    """Return the cost as baseline text, for `read_baseline`."""
    data = {"schema_version": schema.VERSION, "kind": KIND, **schema.to_data(cost)}
    return json_text(data)


def read_baseline(path: str | Path) -> Cost:
    """Return the cost of a baseline or a saved analysis; without torch."""
    file = Path(path)
    if not os.path.lexists(file):
        raise InputError(f"{file}: no such baseline; write it with {argument('update', True)}")
    data = read_json(file, fix=_FIX)
    if not isinstance(data, dict):
        raise refused(str(file), "not a baseline: expected a table with keys", _FIX)
    table = cast("dict[str, Any]", data)
    kind = table.get("kind", "")
    if kind == KIND:
        newest = schema.check_version(table, file=str(file), fix=_FIX)
        kept = {key: each for key, each in newest.items() if key not in ("schema_version", "kind")}
        return schema.from_data(Cost, kept, file=str(file), fix=_FIX)
    if not kind:
        raise refused(str(file), "not a baseline: it has no 'kind'", _FIX)
    if kind != Analysis.kind:
        raise refused(str(file), f"kind '{kind}' is neither a baseline nor an analysis", _FIX)
    analysis = analysis_from_data(table, file=str(file))
    check_repeated(analysis, what=str(file))
    return cost_of(analysis)


def check_baseline_target(path: Path, *, overwrite: bool) -> None:
    """Raise an error if the file cannot be written, or is no baseline."""
    if path.suffix.lower() != ".json":
        raise InputError(f"{argument('against', str(path))}: baselines must end in .json")
    check_writable(path, overwrite=overwrite)
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror}; choose another file, or delete it"
        ) from None
    # Damaged baselines, such as with conflict markers, are replaced too.
    if head.strip() and not _OURS.search(head):
        raise InputError(
            f"{path}: not a baseline, so {argument('update', True)} does not replace it; choose"
            " another file, or delete it"
        )


def write_baseline(cost: Cost, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the cost as a baseline, atomically; create its folder."""
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"{file}: cannot create folder '{file.parent}': {why}; choose another file"
        ) from None
    check_baseline_target(file, overwrite=overwrite)
    write_atomically(file, baseline_json(cost), overwrite=overwrite)
