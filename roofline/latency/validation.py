"""Validation: predictions compared with measurements of the same runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.foundation.blocks import Block, View
from roofline.latency.accuracy import Accuracy, Key, ValidationTotals, grouped
from roofline.latency.judged_runs import BOUND_MARGIN as BOUND_MARGIN
from roofline.latency.judged_runs import ModelValidation as ModelValidation
from roofline.latency.judged_runs import RatioValidation as RatioValidation
from roofline.latency.judged_runs import Setting as Setting
from roofline.latency.judged_runs import Skipped as Skipped
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANDAS_TYPES = {"str": "string", "int": "Int64", "float": "Float64", "bool": "boolean"}
"""pandas' nullable type for each type of a field."""

# Annotations are texts here: "float | None" begins with its type.
_KINDS = {each.name: str(each.type).split(" ")[0] for each in dataclasses.fields(ModelValidation)}
_COLUMNS = {name: _PANDAS_TYPES.get(kind, "object") for name, kind in _KINDS.items()}

_LARGEST = 1e12
"""No time in s and no ratio that was measured is larger, or smaller than one by it; errors of such
would be beyond all floating-point numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Validation(Result):
    """Models that were predicted and then measured on one machine.

    Attributes:
        models: the runs.
        skipped: runs that could not be judged.
        ratios: speed-ups of designs over others.
        hardware: name of the machine's profile.
        date: of the measurements, in ISO 8601.
        allocator: settings of malloc in the processes that ran them; ``""``: not known.
        totals: of all runs and ratios.
    """

    kind: ClassVar = "validation"
    made_by: ClassVar = "roofline validate -o FILE.json"
    height_inch: ClassVar = 7.5
    columns: ClassVar = {**_COLUMNS, "error": "Float64"}
    ALSO_WRITTEN: ClassVar = ("summary", "totals")

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
        """The error of predictions, and of a second measurement."""
        from roofline.latency.validation_blocks import verdict

        return verdict(self)

    @property
    def noise(self) -> Accuracy:
        """How close the second measurement comes to the first."""
        return Accuracy.of(self.models, lambda each: each.remeasured_at_clock_s)

    def by(self, key: Callable[[ModelValidation], Key]) -> dict[Key, ValidationTotals]:
        """Return the totals of the runs that have each key, as ``by(lambda each: each.family)``.

        Ratios are of no run, and in none of these totals.
        """
        return {each: ValidationTotals.of(runs) for each, runs in grouped(self.models, key).items()}

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each run."""
        return ([getattr(each, name) for name in self.columns] for each in self.models)

    def table(self, view: View) -> tuple[Iterable[str], Iterable[Sequence[Any]]]:
        """Return a row for each run; those that were skipped have a ``problem``."""
        del view
        names = (*self.columns, "problem")
        skipped = map(dataclasses.asdict, self.skipped)
        rows = [
            *([*row, None] for row in self.rows()),
            *([each.get(name) for name in names] for each in skipped),
        ]
        return names, rows

    def blocks(self, view: View) -> Iterable[Block]:
        """Return figures, settings, and the worst runs and ratios, `view.top` of each."""
        from roofline.latency.validation_blocks import validation_blocks

        return validation_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 10) -> None:
        """Draw predicted against measured times, and errors by family.

        Where nothing was predicted, minimum times are drawn; where no model was run, speed-ups.

        Args:
            figure: an empty one.
            labels: number of the worst to name, where there is room; of few runs, all are.
        """
        from roofline.latency.validation_drawing import draw_validation

        draw_validation(figure, self, labels=labels)

    def contradictions(self) -> Iterable[str]:
        """Return times that no run takes, and minimum times that differ."""
        for i, run in enumerate(self.models):
            if run.eager_min_time_s != run.bound_s:
                wrong = f"eager_min_time_s is {run.eager_min_time_s}, but bound_s is {run.bound_s}"
                yield f"models[{i}]: {wrong}"
            times = (
                *(run.measured_s, run.remeasured_s, run.predicted_s, run.bound_s),
                *(run.predicted_usual_s, run.operators_measured_s, run.hop_s),
                *(run.fused_min_time_s, run.model_min_time_s),
            )
            yield from _outside(times, f"models[{i}]: a time")
            yield from _outside((run.clock_hz, run.remeasured_clock_hz), f"models[{i}]: a clock")
        for i, ratio in enumerate(self.ratios):
            ratios = (ratio.measured, ratio.predicted, ratio.remeasured)
            yield from _outside(ratios, f"ratios[{i}]: a ratio")


def _outside(values: Iterable[float | None], what: str) -> Iterable[str]:
    for each in values:
        if each and not 1 / _LARGEST <= each <= _LARGEST:
            yield f"{what} of {each:.3g} is none of a measurement"
