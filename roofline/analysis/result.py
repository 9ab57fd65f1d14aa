"""Results of analyses: operators of a model under the ceilings of a machine, and findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis.rows import (
    Coverage,
    MemoryPeak,
    OperatorRow,
    Totals,
    check_numbers,
    fits,
    names_of_numbers,
)
from roofline.core import files
from roofline.core.blocks import Block, View
from roofline.core.rows import fields_of
from roofline.latency.prediction import RunPrediction
from roofline.latency.samples import EarlierRun, RunMeasurement
from roofline.machine.hardware import HardwareProfile
from roofline.placement import Pass
from roofline.result import Result
from roofline.run import Run
from roofline.workload.operators import Module
from roofline.workload.tensors import InputSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Basis = Literal["prediction", "estimate", "at most", "measured at most", "bound", "library"]
"""Kind of the seconds of a finding. ``prediction``: predicted before and after; ``estimate``: after
is a counted share of before (padding); ``at most``: predicted before, minimum after; ``measured at
most``: measured before, minimum after; ``bound``: minimum times; ``library``: minimum times with
products at the measured rates of the library.
"""

MINIMUMS: tuple[Basis, ...] = ("bound", "library")
"""Kinds of minimum times, which say nothing on the time that a kernel takes."""

LIMITS: tuple[Basis, ...] = ("at most", "measured at most")
"""Kinds of upper limits of a saving."""

_FIRST = 3  # Operators in the text of a finding

Verdict = Literal["confirmed", "not confirmed"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finding:
    """A change that saves time, in seconds of a pass.

    ``rule`` is its name (docs/how-to/advice.md lists them), ``operators`` are the indexes of the
    operators concerned, none for the whole model. ``evidence`` states counts and times, ``change``
    the remedy. ``predicted_before_s`` and ``predicted_after_s`` are times of these operators
    (without any: of the pass) on ``basis``; null if unknown. ``saving_low_s`` and ``saving_high_s``
    are the 80 % interval of the saving; null if unknown.

    After a trial on this machine, ``measured_before_s`` and ``measured_after_s`` are medians,
    ``measured_low_s`` and ``measured_high_s`` the interval of the measured saving (negative: a
    loss), and ``verdict`` is set; null otherwise. ``note`` describes the trial, or why there was
    none.

    Raises:
        ValueError: a negative time, half an interval, no rule, or a verdict without a measurement
            or against it.
    """

    rule: str
    operators: tuple[int, ...] = ()
    evidence: str
    change: str
    basis: Basis = "prediction"
    predicted_before_s: float | None = None
    predicted_after_s: float | None = None
    saving_low_s: float | None = None
    saving_high_s: float | None = None
    measured_before_s: float | None = None
    measured_after_s: float | None = None
    measured_low_s: float | None = None
    measured_high_s: float | None = None
    verdict: Verdict | None = None
    note: str = ""

    def __post_init__(self) -> None:
        check_numbers(self, _TIMES)
        _check_ends(self.saving_low_s, self.saving_high_s)
        _check_ends(self.measured_low_s, self.measured_high_s)
        measured = (
            *(self.measured_before_s, self.measured_after_s),
            *(self.measured_low_s, self.verdict),
        )
        if len({each is None for each in measured}) > 1:
            raise ValueError("measured times, their interval and the verdict belong together")
        if self.verdict and (self.verdict == "confirmed") != ((self.measured_low_s or 0.0) > 0):
            raise ValueError(
                f"the verdict is '{self.verdict}', but the measured saving is from"
                f" {self.measured_low_s} s"
            )
        if not self.rule:
            raise ValueError("rule is empty")
        if list(self.operators) != sorted(set(self.operators)):
            raise ValueError(f"operators must rise, got {self.operators}")

    def __repr__(self) -> str:
        """Return the fields that are set, with the first operators only."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        if len(self.operators) > _FIRST:
            first = ", ".join(map(str, self.operators[:_FIRST]))
            given["operators"] = f"({first}, … {len(self.operators)} in all)"
        words = (
            f"{name}={value if name == 'operators' else repr(value)}"
            for name, value in given.items()
            if value not in (None, "", ())
        )
        return f"Finding({', '.join(words)})"

    @property
    def saving_s(self) -> float | None:
        """Predicted saving in seconds of a pass; None: unknown."""
        if self.predicted_before_s is None or self.predicted_after_s is None:
            return None
        return self.predicted_before_s - self.predicted_after_s

    @property
    def measured_saving_s(self) -> float | None:
        """Measured saving in seconds, negative for a loss; None: not tried."""
        if self.measured_before_s is None or self.measured_after_s is None:
            return None
        return self.measured_before_s - self.measured_after_s


def _check_ends(low: float | None, high: float | None) -> None:
    """Raise an error for half an interval, and for ends out of order."""
    if low is None and high is None:
        return
    if low is None or high is None or not -math.inf < low <= high < math.inf:
        raise ValueError(f"an interval from {low} to {high} is none")


_TIMES = tuple(name for name in names_of_numbers(Finding) if name.endswith(("before_s", "after_s")))


def rank(finding: Finding) -> tuple[bool, float]:
    """Return the sort key of a finding: savings of minimum times last, then the largest first."""
    saved_s, measured_s = finding.saving_s, finding.measured_saving_s
    is_minimum = finding.basis in MINIMUMS and saved_s is not None and measured_s is None
    if saved_s is None or (finding.basis in MINIMUMS and measured_s is not None):
        saved_s = measured_s
    return is_minimum, -(saved_s or 0.0)


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings in the order of `rank`."""
    return tuple(sorted(findings, key=rank))


_WORDS = (
    *("op", "module_path", "phase", "level", "ceiling", "bound", "type", "state"),
    "prediction_source",
)
FRAME_COLUMNS = {
    name: "string" if name in _WORDS else "Float64" if name.endswith(("_s", "_byte")) else "Int64"
    for name in (
        *("index", "op", "module_path", "phase", "flop", "macs", "parameter_bytes", "input_bytes"),
        *("output_bytes", "traffic_bytes", "intensity_flop_per_byte", "level", "ceiling", "bound"),
        *("eager_min_time_s", "type", "state", "min_flop", "attainable_flop_per_s", "predicted_s"),
        *("predicted_low_s", "predicted_high_s", "prediction_source", "measured_s"),
        *("measured_iqr_s", "gradient_bytes", "optimizer_bytes", "internal_bytes", "chain"),
        # The last is that of the pass.
        *("fused_bytes", "fused_min_time_s", "model_min_time_s"),
    )
}
"""Columns of operator rows, with pandas' nullable types."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Analysis(Result):
    """A model's operators under a machine's ceilings.

    ``run`` is the setting of the pass, ``peak`` the memory at its peak, ``modules`` are in the
    order of first calls, uncalled ones last. Minimum times are for ``threads`` threads and the
    caches ``steady`` (as the previous pass left them) or ``cold``. ``prediction`` and
    ``measurement`` are those of the pass, ``earlier`` is an earlier measurement of the same
    operators on this machine; null if there is none. ``not_predicted`` is the reason why
    `roofline.predict` gave no prediction; ``compiled_prediction`` that of the pass under
    torch.compile, on GPUs. Frames have a row for each operator call, also for free
    ones (``state`` is ``"free"``: views and allocations, without bytes and time), which the tables
    of reports leave out and count. ``findings`` are possible changes in the order of `rank`.
    """

    kind: ClassVar = "analysis"
    made_by: ClassVar = "roofline analyze MODEL -o FILE.json"
    suffixes: ClassVar = (*Result.suffixes, ".trace.json", ".tfevents")
    columns: ClassVar = FRAME_COLUMNS

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
    not_predicted: str = ""
    compiled_prediction: RunPrediction | None = None
    measurement: RunMeasurement | None = None
    earlier: EarlierRun | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Fit of the memory peak into the machine; None: capacity unknown."""
        return fits(self.totals.peak_memory_bytes, self.hardware.memory_capacity_bytes)

    @property
    def summary(self) -> str:
        """Verdict in one sentence."""
        from roofline.analysis.report import headline

        return headline(self)

    def rows(self) -> list[list[Any]]:
        """Return a row for each operator call; ``model_min_time_s`` is that of the whole pass."""
        *of_operators, _ = FRAME_COLUMNS
        cells = fields_of(of_operators, self.operators)
        return [[*each, self.totals.model_min_time_s] for each in cells]

    def table(self, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
        """Return rows of operators, types, phases or modules, as `view.by` says."""
        from roofline.analysis.tables import analysis_table

        return analysis_table(self, view)

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, tables of operators or groups, findings and warnings."""
        from roofline.analysis.report import analysis_blocks

        return analysis_blocks(self, view)

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows."""
        from roofline.analysis.consistency import contradictions

        return contradictions(self)

    def render(self, format: str, view: View | None = None, **picture: Any) -> str | bytes:
        """Return the analysis in a format; also ``trace`` and ``tensorboard``."""
        match format:
            case "trace":
                from roofline.analysis.chrome_trace import trace_json

                return trace_json(self)
            case "tensorboard":
                from roofline.analysis.event_file import event_file

                return event_file(self)
            case _:
                return Result.render(self, format, view, **picture)

    def page(self, view: View) -> str:
        """Return the interactive page."""
        from roofline.analysis.page import analysis_page

        return analysis_page(self, view)

    def _figure(
        self,
        make: Callable[[float, float], Figure],
        width_inch: float,
        height_inch: float | None,
        options: Mapping[str, Any],
    ) -> Figure:
        if options.get("layers") or options.get("paper") is not None:
            from roofline.analysis.layers_drawing import HEIGHT_INCH

            height_inch = height_inch or HEIGHT_INCH
        return Result._figure(self, make, width_inch, height_inch, options)

    def draw(
        self, figure: Figure, *, layers: bool = False, paper: Any = None, **options: Any
    ) -> None:
        """Draw the roofline picture, with `layers` that of `draw_layers`, else `draw_analysis`."""
        if layers or paper is not None:
            from roofline.analysis.layers_drawing import draw_layers

            draw_layers(figure, self, paper=paper, **options)
            return
        from roofline.analysis.drawing import draw_analysis

        draw_analysis(figure, self, **options)


_FIX = "make it again with `roofline analyze MODEL -o FILE.json`"


def read_analysis(path: str | Path) -> Analysis:
    """Return the analysis saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: unreadable, no analysis, damaged, a newer version, or inconsistent.
    """
    return analysis_from_data(files.read_json(Path(path), fix=_FIX), file=str(path))


def analysis_from_data(data: Any, *, file: str) -> Analysis:
    """Return the analysis in plain data, as in its JSON.

    Raises:
        FileFormatError: as `read_analysis`; totals must follow from the rows.
    """
    if isinstance(data, dict) and "analyses" in data:
        raise files.refused(file, "contains several analyses, expected one", _FIX)
    return Analysis.from_data(data, file=file)
