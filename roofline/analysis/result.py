"""A model's operators under a machine's ceilings: the value that an analysis gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.analysis.findings import Finding
from roofline.analysis.memory_fit import fits
from roofline.analysis.rows import OperatorRow
from roofline.analysis.totals import Coverage, MemoryPeak, Totals
from roofline.analysis.versions import SCHEMA_VERSION
from roofline.foundation.rows import fields_of, frame_of
from roofline.foundation.units import format_byte, format_flop, format_s
from roofline.latency.earlier import EarlierRun
from roofline.latency.measured import RunMeasurement
from roofline.latency.prediction import RunPrediction
from roofline.machine.hardware import HardwareProfile, describe_threads
from roofline.placement import Pass
from roofline.workload.modules import Module
from roofline.workload.runs import Run
from roofline.workload.tensors import InputSpec

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Analysis:
    """A model's operators under a machine's ceilings.

    ``run`` is how the model was run, ``peak`` what memory holds when it is fullest, ``modules``
    those of the model in the order of their first calls, then those that were not called (null and
    empty in files of version 3 and older). ``threads`` is how many threads the bounds are for;
    ``cache`` says which of two consecutive passes they describe: ``steady`` (caches hold what the
    pass before left) or ``cold``. ``prediction`` is what the whole pass is expected to take,
    ``measurement`` what it took, ``earlier`` what it took when these operators were measured before
    on this machine; null where there is none. ``findings`` are what could be changed, that which
    saves most first.

    Raises:
        ValueError: another version than `SCHEMA_VERSION`.
    """

    schema_version: int = SCHEMA_VERSION
    model: str
    inputs: tuple[InputSpec, ...]
    run: Run = field(default_factory=Run)
    threads: int
    cache: Pass = "steady"
    hardware: HardwareProfile
    coverage: Coverage
    totals: Totals
    peak: MemoryPeak | None = None
    modules: tuple[Module, ...] = ()
    operators: tuple[OperatorRow, ...]
    prediction: RunPrediction | None = None
    measurement: RunMeasurement | None = None
    earlier: EarlierRun | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # What is in memory is of the newest version, and so is all that is written.
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version must be {SCHEMA_VERSION}, got {self.schema_version}")

    def __repr__(self) -> str:
        at_least = "≥ " if self.totals.unknown_operators else ""
        return (
            f"<Analysis of {self.model} on {self.hardware.name},"
            f" {describe_threads(self.hardware, self.threads)}:"
            f" {at_least}{format_flop(self.totals.flop)}, {format_byte(self.totals.traffic_byte)},"
            f" bound {format_s(self.totals.bound_s)}>"
        )

    @property
    def fits(self) -> bool | None:
        """Whether the peak of memory fits into that of the machine; None: capacity not known."""
        return fits(self.totals.peak_memory_byte, self.hardware.memory_capacity_byte)

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator, units in the column names; what is unknown is missing, never 0.

        ``model_min_time_s`` is that of the whole pass, in every row: operators have none.
        """
        return frame_of(FRAME_COLUMNS, self.frame_rows())

    def frame_rows(self) -> list[list[Any]]:
        """The cells of `FRAME_COLUMNS`, an operator a row."""
        *of_operators, _ = FRAME_COLUMNS
        cells = fields_of(of_operators, self.operators)
        return [[*each, self.totals.model_min_time_s] for each in cells]

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the analysis to a file whose suffix says how.

        These are .json .csv .md .html .png .svg, .tfevents (TensorBoard), and .trace.json where
        operators were measured.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.presentation.output import write

        write(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """The roofline picture as a matplotlib Figure; the options are those of `roofline.plot`."""
        from roofline.presentation.figure import plot

        return plot(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.analysis_report import report_of
        from roofline.render.pages import report_html

        return report_html(report_of(self))


FRAME_COLUMNS = {
    "index": "Int64",
    "op": "string",
    "module_path": "string",
    "phase": "string",
    "flop": "Int64",
    "multiply_add": "Int64",
    "parameter_byte": "Int64",
    "input_byte": "Int64",
    "output_byte": "Int64",
    "traffic_byte": "Int64",
    "intensity_flop_per_byte": "Float64",
    "level": "string",
    "ceiling": "string",
    "bound": "string",
    "bound_s": "Float64",
    "type": "string",
    "state": "string",
    "least_flop": "Int64",
    "attainable_flop_per_s": "Float64",
    "predicted_s": "Float64",
    "predicted_low_s": "Float64",
    "predicted_high_s": "Float64",
    "prediction_source": "string",
    "measured_s": "Float64",
    "measured_iqr_s": "Float64",
    "gradient_byte": "Int64",
    "optimizer_byte": "Int64",
    "internal_byte": "Int64",
    "chain": "Int64",
    "fused_byte": "Int64",
    "eager_min_time_s": "Float64",
    "fused_min_time_s": "Float64",
    # The last: that of the whole pass.
    "model_min_time_s": "Float64",
}
"""The columns of `Analysis.to_frame` and of CSV files, with pandas' nullable types."""
