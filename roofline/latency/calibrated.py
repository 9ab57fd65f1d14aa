"""The state of a calibration: the result of `roofline calibrate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from roofline.core.blocks import Block, KeyValueBlock, View, notes, table, warning_notes
from roofline.core.rows import fields_of
from roofline.core.text import counted
from roofline.core.units import format_percent
from roofline.machine.hardware import HardwareProfile
from roofline.result import Result

CALIBRATION_TIME = "5 to 8 minutes"
"""Duration: the budget of `roofline calibrate`, its start, last model and evaluation."""


_CONTINUE = "`roofline calibrate` measures more models"

USABLE_MAPE = 0.25
"""Largest MAPE of usable predictions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutError:
    """Error of predictions in one setting, of models whose families were left out.

    ``mape`` and ``median_error`` are of absolute errors, as fractions; ``interval_coverage`` is the
    share of runs inside their 80 % prediction interval. None where too few runs could be judged.
    """

    threads: int
    dtype: str
    runs: int
    mape: float | None
    median_error: float | None
    within_10_percent: float | None
    interval_coverage: float | None

    def __post_init__(self) -> None:
        figures = (self.mape, self.median_error, self.within_10_percent, self.interval_coverage)
        if min(self.threads, self.runs, *(each or 0.0 for each in figures)) < 0:
            raise ValueError(f"error of held-out runs: numbers must be at least 0, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Calibrated(Result):
    """Calibration data of a machine, and the error of predictions from it.

    ``runs`` of ``models`` different ones, of ``families``, with ``operators`` samples are in
    ``file``; ``new_runs`` of them were measured now, in ``seconds``. ``held_out`` are errors by
    setting, ``skipped`` the models that failed, each with the reason. ``interrupted`` says that
    some runs are still to be measured.
    """

    kind: ClassVar = "calibration"
    made_by: ClassVar = "roofline calibrate"
    suffixes: ClassVar = (".json", ".csv", ".md", ".html")
    columns: ClassVar = {
        "threads": "Int64",
        "dtype": "string",
        "runs": "Int64",
        "mape": "Float64",
        "median_error": "Float64",
        "within_10_percent": "Float64",
        "interval_coverage": "Float64",
    }

    runs: int
    operators: int
    models: int
    families: int
    new_runs: int
    seconds: float
    held_out: tuple[HeldOutError, ...] = ()
    skipped: tuple[str, ...] = ()
    interrupted: bool = False
    file: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = (self.runs, self.operators, self.models, self.families, self.new_runs)
        if (least := min(*counts, self.seconds)) < 0:
            raise ValueError(f"calibration: numbers must be at least 0, got {least}")

    @property
    def mape(self) -> float | None:
        """MAPE over all held-out runs, a fraction; None without any."""
        judged = [(each.mape, each.runs) for each in self.held_out if each.mape is not None]
        count = sum(runs for _, runs in judged)
        return sum(mape * runs for mape, runs in judged) / count if count else None

    @property
    def summary(self) -> str:
        """Number of operators and models, and the leave-one-family-out MAPE."""
        if not self.runs:
            why = "all runs failed" if self.skipped else "other processes disturbed all runs"
            return f"No calibration data: {why}; {_AGAIN}"
        if not self.models:
            return (
                f"Calibrated on {counted(self.operators, 'operator')} of single layers, of no"
                f" model: predictions may be far off; {_AGAIN}"
            )
        samples = f"{counted(self.operators, 'operator')} of {counted(self.models, 'model')}"
        if self.mape is None:
            return f"Calibrated on {samples}; too few families to validate predictions; {_CONTINUE}"
        error = f"Calibrated on {samples}: leave-one-family-out MAPE {format_percent(self.mape)}"
        if self.mape > USABLE_MAPE:
            limit = format_percent(USABLE_MAPE)
            return f"{error}, above {limit}: predictions are not usable; {_CONTINUE}"
        return error

    def rows(self) -> Iterable[Sequence[Any]]:
        """Return a row for each setting."""
        return fields_of(self.columns, self.held_out)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return counts, errors by setting, and warnings."""
        minutes, rest = divmod(round(self.seconds), 60)
        took = f"{minutes} min {rest} s" if minutes else f"{rest} s"
        families = counted(self.families, "family", "families")
        data = f"{counted(self.runs, 'run')} of {counted(self.models, 'model')} of {families}"
        lines = [("Data", data), ("New", f"{counted(self.new_runs, 'run')} in {took}")]
        yield KeyValueBlock(lines=(*lines, ("File", self.file)) if self.file else tuple(lines))
        if self.held_out:
            yield table(
                "Leave-one-family-out error by setting",
                self.held_out,
                {
                    "Threads": lambda each: f"{each.threads}",
                    "Type": "dtype",
                    "Runs": "runs",
                    "MAPE": lambda each: format_percent(each.mape),
                    "Median error": lambda each: format_percent(each.median_error),
                    "Within ±10 %": lambda each: format_percent(each.within_10_percent),
                    "In 80 % interval": lambda each: format_percent(each.interval_coverage),
                },
                left=("Type",),
                narrow=("Runs", "In 80 % interval", "Median error"),
            )
        yield from notes("Skipped", self.skipped, urgent=True)
        unusable = [
            f"{each.dtype} on {counted(each.threads, 'thread')}: MAPE {format_percent(each.mape)},"
            f" above {format_percent(USABLE_MAPE)}; {_CONTINUE}"
            for each in self.held_out
            if each.mape is not None and each.mape > USABLE_MAPE
        ]
        kept = "interrupted: measured runs are kept; `roofline calibrate` continues there"
        yield from warning_notes((*unusable, *self.warnings, *[kept] * self.interrupted), view)


_AGAIN = "stop other programs, then `roofline calibrate` continues"


def calibrate_command(dtype: str) -> str:
    """Return the command that calibrates a data type; ``""``: that of the model as it is."""
    return "calibrate" if dtype in ("", "float32") else f"calibrate --dtype {dtype}"


def no_calibration(profile: HardwareProfile, dtype: str = "") -> str:
    """Return the reason for missing predictions on a machine without calibration data."""
    if profile.device != "cpu":
        return "no measurements of such GPUs"
    reason = f"no calibration data{f' in {dtype}' if dtype else ''}"
    if profile.host is None:
        return f"{reason} of this machine"
    command = calibrate_command(dtype)
    return f"{reason}; run `roofline {command}` on that machine ({CALIBRATION_TIME})"
