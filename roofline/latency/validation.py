"""Validation: predictions compared with measurements of the same runs."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from roofline.core.blocks import Block, Grid, KeyValueBlock, View, notes, table, warning_notes
from roofline.core.rows import Key, fields_of, grouped
from roofline.core.text import counted
from roofline.core.units import MISSING, format_percent, format_ratio, format_s
from roofline.latency.accuracy import (
    BOUND_MARGIN,
    FIGURES,
    Accuracy,
    ModelValidation,
    RatioValidation,
    Setting,
    Skipped,
    ValidationTotals,
    accuracy_of,
)
from roofline.latency.prediction import FAULTS_MATTER
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T", ModelValidation, RatioValidation)

_PANDAS_TYPES = {"str": "string", "int": "Int64", "float": "Float64", "bool": "boolean"}
"""pandas' nullable type for each type of a field."""

# Annotations are texts here: "float | None" begins with its type.
_KINDS = {each.name: str(each.type).split(" ")[0] for each in dataclasses.fields(ModelValidation)}
_COLUMNS = {name: _PANDAS_TYPES.get(kind, "object") for name, kind in _KINDS.items()}

_ROWS = 20
"""Default number of runs, and of ratios."""

_NAMED = 5
"""Number of models that a warning names."""

_IF_JUDGED = ("ratio_error", "measured_operators_mape", "usual_clock_mape", "noise_floor")
"""Figures without a row if they are unknown; the noise floor is a column."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Validation(Result):
    """Models that were predicted and then measured on one machine.

    ``skipped`` are runs that failed, ``ratios`` speedups of designs over others;
    ``allocator`` has the settings of malloc in the processes that ran them (``""``: not known).
    """

    kind: ClassVar = "validation"
    made_by: ClassVar = "roofline validate -o FILE.json"
    height_inch: ClassVar = 7.5
    columns: ClassVar = {**_COLUMNS, "error": "Float64"}
    ALSO_WRITTEN: ClassVar = ("totals",)

    models: tuple[ModelValidation, ...]
    skipped: tuple[Skipped, ...] = ()
    ratios: tuple[RatioValidation, ...] = ()
    hardware: str
    torch_version: str
    date: str
    allocator: str = ""
    warnings: tuple[str, ...] = ()
    totals: ValidationTotals = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", ValidationTotals.of(self.models, self.ratios))

    @property
    def summary(self) -> str:
        """MAPE of predictions, and the noise floor."""
        totals = self.totals
        noise = totals.noise_floor
        floor = "" if noise is None else f", noise floor {format_percent(noise)}"
        if totals.mape is not None:
            runs = _runs([each for each in self.models if each.predicted_s is not None])
            near = f"{format_percent(totals.within_10_percent)} within ±10 %"
            return f"Prediction MAPE {format_percent(totals.mape)} over {runs}, {near}{floor}"
        if self.models:
            return f"No predictions: minimum times only, for {_runs(self.models)}{floor}"
        if totals.ratio_error is not None:
            pairs = counted(totals.ratios, "pair")
            off = format_percent(totals.ratio_error)
            return f"Prediction MAPE of speedups {off} over {pairs} of designs"
        return "No runs to validate"

    @property
    def noise(self) -> Accuracy:
        """Accuracy of the second measurement."""
        return accuracy_of(self.models, lambda each: each.remeasured_at_clock_s)

    def by(self, key: Callable[[ModelValidation], Key]) -> dict[Key, ValidationTotals]:
        """Return the totals of the runs that have each key, as ``by(lambda each: each.family)``."""
        return {each: ValidationTotals.of(runs) for each, runs in grouped(self.models, key).items()}

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each run."""
        return fields_of(self.columns, self.models)

    def table(self, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
        """Return a row for each run; those that were skipped have a ``problem``."""
        del view
        names = (*self.columns, "problem")
        rows = [[*row, None] for row in self.rows()]
        skipped = [[getattr(each, name, None) for name in names] for each in self.skipped]
        return names, rows + skipped

    def blocks(self, view: View) -> Iterable[Block]:
        """Return figures, settings, the worst runs and ratios (`view.top` each), and warnings."""
        top = view.rows(_ROWS)
        settings = self.by(lambda each: each.setting)
        yield KeyValueBlock(lines=tuple(_facts(self, settings)))
        yield _figures(self)
        if len(settings) > 1:
            yield _settings(settings)
        if self.models:
            yield _worst_runs(self.models, top, several=len(settings) > 1)
        if self.ratios:
            yield _worst(
                "Speedups of designs by error",
                self.ratios,
                top,
                {
                    "Designs": "name",
                    "Predicted": lambda each: _times(each.predicted),
                    "Measured": lambda each: _times(each.measured),
                    "Error": lambda each: _signed(each.error),
                    "Remeasured": lambda each: _signed(each.remeasured_difference),
                },
                narrow=("Remeasured",),
            )
        skipped = (f"{each.model} ({each.setting}): {each.problem}" for each in self.skipped)
        yield from notes("Skipped", skipped, urgent=True)
        yield from warning_notes((*_warnings(self), *self.warnings), view)

    def draw(self, figure: Figure, *, labels: int = 10) -> None:
        """Draw predicted against measured times, and errors by family.

        Where nothing was predicted, minimum times are drawn; where no model was run, speedups.

        Args:
            figure: an empty one.
            labels: number of the worst to name, where there is room; of few runs, all are.
        """
        from roofline.latency.validation_drawing import draw_validation

        draw_validation(figure, self, labels=labels)


def _runs(models: Sequence[ModelValidation]) -> str:
    different = len({each.model for each in models})
    return f"{counted(len(models), 'run')} of {counted(different, 'model')}"


def _signed(fraction: float | None) -> str:
    return MISSING if fraction is None else f"{100 * fraction:+.1f} %"


def _times(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{format_ratio(ratio)}×"


def _facts(validation: Validation, settings: Iterable[Setting]) -> Iterable[tuple[str, str]]:
    software = f"torch {validation.torch_version}"
    measured = f"measured {validation.date[:10]}"
    yield "Machine", f"{validation.hardware} · {software} · {measured}"
    if len(shared := list(settings)) == 1:
        yield "Run", str(shared[0])
    if validation.allocator:
        yield "Allocator", validation.allocator
    samples = {each.samples for each in validation.models if each.predicted_s is not None}
    if samples:
        few, many = min(samples), max(samples)
        number = counted(few, "sample") if few == many else f"{few:,} to {many:,} samples"
        yield "Calibration", f"{number} of other families (leave-one-family-out)"


def _figures(validation: Validation) -> Grid:
    """Return all figures, each with that of a second measurement in place of the prediction."""
    totals, noise = validation.totals, validation.noise
    again = [each.remeasured_difference for each in validation.ratios]
    known = [abs(each) for each in again if each is not None]
    noise_of = {
        "measured_operators_mape": noise.mape,
        "usual_clock_mape": noise.mape,
        "ratio_error": statistics.fmean(known) if known else None,
    }

    def shown(name: str, value: float | None) -> str:
        return (_signed if name == "bias" else format_percent)(value)

    def cases(name: str) -> str:
        of = FIGURES[name][1]
        noun = {"close_pairs": "pair", "ratios": "pair", "operators": "operator"}.get(of, "run")
        return counted(getattr(totals, of), noun)

    return table(
        "Prediction accuracy and noise floor (repeat-measurement error)",
        [
            name
            for name in FIGURES
            if name not in _IF_JUDGED
            or (getattr(totals, name) is not None and name != "noise_floor")
        ],
        {
            "Metric": lambda name: FIGURES[name][0],
            "Quantity": lambda name: name,
            "Value": lambda name: shown(name, getattr(totals, name)),
            "Noise floor": lambda name: shown(name, noise_of.get(name, getattr(noise, name, None))),
            "Cases": cases,
        },
        left=("Metric", "Quantity"),
        narrow=("Quantity", "Cases"),
    )


def _settings(settings: Mapping[Setting, ValidationTotals]) -> Grid:
    def percent(name: str) -> Callable[[Setting], str]:
        return lambda each: format_percent(getattr(settings[each], name))

    return table(
        "Accuracy by setting",
        sorted(settings, key=lambda each: (*each[:2], each.batch or float("inf"), each[3])),
        {
            "Setting": str,
            "Runs": lambda each: str(settings[each].runs),
            "MAPE": percent("mape"),
            "Median": percent("median_error"),
            "Bias": lambda each: _signed(settings[each].bias),
            "±10 %": percent("within_10_percent"),
            "±20 %": percent("within_20_percent"),
            "Interval": percent("interval_coverage"),
            "Operators": percent("operator_error"),
            "Close pairs": percent("close_pairs_right"),
            "Noise floor": percent("noise_floor"),
        },
        left=("Setting",),
        narrow=("Interval", "±20 %", "Median", "Operators", "Close pairs"),
    )


def _worst_runs(runs: Sequence[ModelValidation], top: int, *, several: bool) -> Grid:
    columns: dict[str, str | Callable[[ModelValidation], str]] = {
        "Model": "model",
        "Setting": "setting",
        "Predicted": "predicted_s",
        "80 % interval": _interval,
        "Measured": "measured_s",
        "Error": lambda run: _signed(run.error),
        "Operators alone": lambda run: _signed(run.operators_measured_error),
        "No page faults": lambda run: format_s(run.predicted_settled_s if _faulty(run) else None),
        "Page faults": _faults,
        "Remeasured": lambda run: _signed(run.remeasured_difference),
        "Minimum (eager)": "eager_min_time_s",
    }
    unknown = set[str]() if several else {"Setting"}
    if all(each.operators_measured_s is None for each in runs):
        unknown |= {"Operators alone"}
    if not any(map(_faulty, runs)):
        unknown |= {"No page faults", "Page faults"}
    return _worst(
        "Runs by error (remeasured: second measurement relative to the first)",
        runs,
        top,
        {name: each for name, each in columns.items() if name not in unknown},
        narrow=("Minimum (eager)", "Page faults", "No page faults", "80 % interval", "Remeasured"),
    )


def _worst(
    title: str,
    found: Iterable[T],
    top: int,
    columns: Mapping[str, str | Callable[[T], str]],
    *,
    narrow: Sequence[str],
) -> Grid:
    """Return a table of the `top` largest errors; unknown errors come last."""
    in_order = sorted(found, key=lambda each: 1.0 if each.error is None else -abs(each.error))
    left_out = in_order[top:]
    errors = [abs(each.error) for each in left_out if each.error is not None]
    name = next(iter(columns))
    most = f"≤ {100 * max(errors):.1f} %" if errors else MISSING
    cells = {name: f"… {len(left_out)} more", "Error": most}
    sums = [tuple(cells.get(heading, "") for heading in columns)] if left_out else []
    left = (name, "Setting")
    grid = table(title, in_order[:top], columns, left=left, narrow=narrow, sums=sums)
    # File names differ at the end.
    return replace(
        grid, columns=(replace(grid.columns[0], least=16, cut="start"), *grid.columns[1:])
    )


def _interval(run: ModelValidation) -> str:
    if run.predicted_low_s is None or run.predicted_high_s is None:
        return MISSING
    return f"{format_s(run.predicted_low_s)} – {format_s(run.predicted_high_s)}"


def _faulty(run: ModelValidation) -> bool:
    """Return True if page faults matter in the prediction."""
    settled_s = run.predicted_settled_s
    return (run.predicted_s or 0.0) > (1 + FAULTS_MATTER) * (settled_s or float("inf"))


def _faults(run: ModelValidation) -> str:
    if run.predicted_page_faults is None or run.page_faults is None:
        return MISSING
    return f"{run.predicted_page_faults:,}, counted {run.page_faults:,}"


def _warnings(validation: Validation) -> Iterable[str]:
    totals = validation.totals
    below = [each for each in validation.models if each.below_bound]
    if below:
        number = sum(each.below_bound for each in below)
        yield (
            f"{number:,} of {counted(totals.operators, 'operator')} took less than"
            f" {format_percent(BOUND_MARGIN)} of the minimum time ({_named(below)}): a count, a"
            " data type or a ceiling is wrong; please report it"
        )
    unpredicted = [each for each in validation.models if each.predicted_s is None]
    if unpredicted:
        yield (
            f"{len(unpredicted)} of {counted(totals.runs, 'run')} could not be predicted"
            f" ({_named(unpredicted)}): calibration data is missing; run `roofline calibrate`"
        )
    if validation.models and totals.noise_floor is None:
        yield "no run was remeasured: the noise floor is unknown"
    elif totals.mape is not None and (totals.noise_floor or 0.0) >= totals.mape:
        yield "the noise floor is as high as the MAPE: validate on a quieter machine"


def _named(runs: Iterable[ModelValidation]) -> str:
    names = list(dict.fromkeys(each.model for each in runs))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
