"""A model's operators under a machine's ceilings: the value that an analysis gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


Basis = Literal["prediction", "estimate", "at most", "bound"]
"""What the seconds of a finding are. ``prediction``: before and after; ``estimate``: after is a
share of the prediction before that follows from a count (of padding); ``at most``: after is what
cannot be beaten; ``bound``: both are bounds, as nothing is predicted there."""

Verdict = Literal["confirmed", "not confirmed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One change that would save time, in seconds of a pass.

    ``rule`` is its name (docs/how-to/advice.md lists them), ``operators`` are the indexes of those
    concerned, none where the whole model is. ``evidence`` says what was counted and
    predicted, with numbers; ``change`` what to do. ``predicted_before_s`` is what the operators
    concerned take (where there are none: the pass), ``predicted_after_s`` what takes their place,
    both on ``basis``; null where nobody can say. ``saving_low_s`` and ``saving_high_s`` are the
    interval of the saving from 10 to 90 %; null where it is not known.

    Where the change was tried on this machine, ``measured_before_s`` and ``measured_after_s`` are
    medians, and ``measured_low_s`` and ``measured_high_s`` the interval of the measured saving, in
    which what is lost is negative; null otherwise, and so is ``verdict``. ``note`` says how it was
    tried, or why it was not.

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
        # Else a file could call a loss confirmed.
        if self.verdict and (self.verdict == "confirmed") != ((self.measured_low_s or 0.0) > 0):
            raise ValueError(
                f"the verdict is '{self.verdict}', but the measured saving is from"
                f" {self.measured_low_s} s"
            )
        if not self.rule:
            raise ValueError("rule is empty")
        if list(self.operators) != sorted(set(self.operators)):
            raise ValueError(f"operators must rise, got {self.operators}")

    @property
    def saving_s(self) -> float | None:
        """The seconds of a pass that the change saves on its basis; None: nobody can say."""
        if self.predicted_before_s is None or self.predicted_after_s is None:
            return None
        return self.predicted_before_s - self.predicted_after_s

    @property
    def measured_saving_s(self) -> float | None:
        """The seconds that trying it saved, below 0 where it lost some; None: it was not tried."""
        if self.measured_before_s is None or self.measured_after_s is None:
            return None
        return self.measured_before_s - self.measured_after_s


def _check_ends(low: float | None, high: float | None) -> None:
    """Refuses half an interval, and one whose ends are no numbers in their order."""
    if low is None and high is None:
        return
    if low is None or high is None or not -math.inf < low <= high < math.inf:
        raise ValueError(f"an interval from {low} to {high} is none")


_TIMES = tuple(name for name in names_of_numbers(Finding) if name.endswith(("before_s", "after_s")))


def ranked(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings, those that save most first: as predicted, else as measured."""

    def saved_s(finding: Finding) -> float:
        predicted_s = finding.saving_s
        return (finding.measured_saving_s or 0.0) if predicted_s is None else predicted_s

    return tuple(sorted(findings, key=lambda each: -saved_s(each)))


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
        # The last: that of the whole pass.
        *("fused_bytes", "fused_min_time_s", "model_min_time_s"),
    )
}
"""Columns of the rows of operators, with pandas' nullable types."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Analysis(Result):
    """A model's operators under a machine's ceilings.

    ``run`` is how the model was run, ``peak`` what memory holds when it is fullest, ``modules``
    those of the model in the order of their first calls, then those that were not called.
    ``threads`` is how many threads the bounds are for; ``cache`` says which of two consecutive
    passes they describe: ``steady`` (caches hold what the pass before left) or ``cold``.
    ``prediction`` is what the whole pass is expected to take, ``measurement`` what it took,
    ``earlier`` what it took when these operators were measured before on this machine; null where
    there is none. ``findings`` are what could be changed, that which saves most first.
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
    measurement: RunMeasurement | None = None
    earlier: EarlierRun | None = None
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Whether the peak of memory fits into that of the machine; None: capacity not known."""
        return fits(self.totals.peak_memory_bytes, self.hardware.memory_capacity_bytes)

    @property
    def summary(self) -> str:
        """The verdict in one sentence."""
        from roofline.analysis.report import headline

        return headline(self)

    def rows(self) -> list[list[Any]]:
        """Return a row for each operator; ``model_min_time_s`` is that of the whole pass in all."""
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


_FIX = "make it anew with `roofline analyze MODEL -o FILE.json`"


def read_analysis(path: str | Path) -> Analysis:
    """The analysis saved in a JSON file; needs no torch.

    Raises:
        FileFormatError: not readable, not ours, cut short, newer, or in contradiction to itself.
    """
    return analysis_from_data(files.read_json(Path(path), fix=_FIX), file=str(path))


def analysis_from_data(data: Any, *, file: str) -> Analysis:
    """The analysis in plain data, as its JSON holds it.

    Raises:
        FileFormatError: as `read_analysis`; what is shown of a file must follow from its rows.
    """
    if isinstance(data, dict) and "analyses" in data:
        raise files.refused(file, "holds several analyses, where one is expected", _FIX)
    return Analysis.from_data(data, file=file)
