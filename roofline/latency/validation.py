"""Predictions held against measurements: the value that a validation gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.foundation import schema
from roofline.foundation.rows import fields_of, frame_of, json_text
from roofline.latency.accuracy import Accuracy, Key, ValidationTotals, grouped
from roofline.latency.judged_runs import BOUND_MARGIN as BOUND_MARGIN
from roofline.latency.judged_runs import ModelValidation as ModelValidation
from roofline.latency.judged_runs import RatioValidation as RatioValidation
from roofline.latency.judged_runs import Setting as Setting
from roofline.latency.judged_runs import Skipped as Skipped

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2
"""Of validations: older ones are migrated, newer ones refused (docs/file-formats.md)."""

_PANDAS_TYPES = {"str": "string", "int": "Int64", "float": "Float64", "bool": "boolean"}
"""pandas' nullable type for each type of a field."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Validation:
    """Models that were predicted and then measured on one machine; made by `Validation.of`.

    ``hardware`` is the name of its profile, ``date`` that of the measurements, in ISO 8601,
    ``allocator`` names the settings of malloc in the processes that ran them (``""``: not known).
    """

    schema_version: int = SCHEMA_VERSION
    models: tuple[ModelValidation, ...]
    skipped: tuple[Skipped, ...]
    ratios: tuple[RatioValidation, ...]
    totals: ValidationTotals
    hardware: str
    torch_version: str
    date: str
    allocator: str = ""
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        models: Iterable[ModelValidation],
        *,
        skipped: Iterable[Skipped] = (),
        ratios: Iterable[RatioValidation] = (),
        hardware: str,
        torch_version: str,
        date: str,
        allocator: str = "",
        warnings: Iterable[str] = (),
    ) -> Validation:
        """The validation of runs and ratios, with its totals."""
        runs, pairs = tuple(models), tuple(ratios)
        return cls(
            models=runs,
            skipped=tuple(skipped),
            ratios=pairs,
            totals=ValidationTotals.of(runs, pairs),
            hardware=hardware,
            torch_version=torch_version,
            date=date,
            allocator=allocator,
            warnings=tuple(warnings),
        )

    def __repr__(self) -> str:
        mape = self.totals.mape
        said = "nothing predicted" if mape is None else f"{mape:.1%} off on the average"
        return f"<Validation of {self.totals.runs} runs on {self.hardware}: {said}>"

    @property
    def noise(self) -> Accuracy:
        """How close the second measurement comes to the first."""
        return Accuracy.of(self.models, lambda each: each.remeasured_at_clock_s)

    def by(self, key: Callable[[ModelValidation], Key]) -> dict[Key, ValidationTotals]:
        """The totals of the runs that have each key, as in ``by(lambda each: each.family)``.

        Ratios are of no run, and in none of these totals.
        """
        return {each: ValidationTotals.of(runs) for each, runs in grouped(self.models, key).items()}

    def to_frame(self) -> pandas.DataFrame:
        """One row a run: the fields of `ModelValidation`, and its error; unknown is missing."""
        # Annotations are texts here: "float | None" begins with its type.
        kinds = {each.name: str(each.type).split(" ")[0] for each in fields(ModelValidation)}
        kinds["error"] = "float"
        columns = {name: _PANDAS_TYPES.get(of, "object") for name, of in kinds.items()}
        return frame_of(columns, fields_of(columns, self.models))

    def to_json(self) -> str:
        """The validation as JSON text."""
        return json_text(schema.to_data(self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the validation to a file whose suffix says how: .json .csv .md .html .png .svg.

        Raises:
            InputError: an unknown suffix, a file that exists, or a folder that cannot be written.
        """
        from roofline.foundation.files import write_atomically
        from roofline.presentation.reports.validation_report import check_suffix, render_validation

        check_suffix(Path(path))
        write_atomically(
            Path(path), render_validation(self, Path(path).suffix), overwrite=overwrite
        )

    def plot(self, **options: Any) -> Any:
        """Predicted against measured times as a matplotlib Figure; options: `plot_validation`'s."""
        from roofline.presentation.validation_figure import plot_validation

        return plot_validation(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.validation_report import validation_html

        return validation_html(self)
