"""Models side by side on the same machine, with ratios to one of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, groups
from roofline.design.model_differences import times, work_and_bound
from roofline.design.model_quantities import Quantity, quantities_of
from roofline.design.pass_times import interval_s, lines_on_bounds_alone, lines_on_earlier
from roofline.errors import InputError
from roofline.foundation import schema
from roofline.foundation.units import MISSING
from roofline.machine.hardware import describe_threads

if TYPE_CHECKING:
    import pandas

SCHEMA_VERSION = 2
"""Of comparisons in JSON files, which are read nowhere (docs/file-formats.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The ceilings that bind one model, by share of its bound time, largest first."""

    shares: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """The largest ones: ``"float32 avx512 fma 61 %, DRAM read 25 %"``."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.shares[:2]) or MISSING

    @property
    def why(self) -> str:
        """What most of the bound is by, as the end of a sentence; ``""`` without a bound."""
        if not self.shares:
            return ""
        name, share = self.shares[0]
        return f"; bound for {share:.0%} of it by {name}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Analyses of models on the same machine and thread count; ``reference`` is an index.

    They may be run differently, in another data type or in training; `notes` say when that makes
    them another thing.
    """

    names: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    reference: int = 0

    @classmethod
    def of(
        cls, analyses: Sequence[Analysis], *, reference: int = 0, names: Sequence[str] = ()
    ) -> Comparison:
        """The comparison of `analyses`, called `names` or what their models are called.

        Raises:
            InputError: fewer than two, names that do not fit, another machine or thread count, or
                no such reference.
        """
        if len(analyses) < 2:
            raise InputError("a comparison takes at least two models")
        if names and len(names) != len(analyses):
            raise InputError(f"{len(names)} names for {len(analyses)} models")
        if not 0 <= reference < len(analyses):
            raise InputError(f"reference {reference}: there are models 0 to {len(analyses) - 1}")
        first = analyses[0]
        for other in analyses[1:]:
            if (other.hardware.name, other.threads, other.cache) != (
                first.hardware.name,
                first.threads,
                first.cache,
            ):
                raise InputError(
                    f"'{first.model}' was analysed for {_setting(first)},"
                    f" '{other.model}' for {_setting(other)}: analyse both for the same"
                )
        found = tuple(names) or _distinct([each.model for each in analyses])
        return cls(names=found, analyses=tuple(analyses), reference=reference)

    def __repr__(self) -> str:
        return f"<Comparison: {'; '.join(self.sentences)}>"

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """FLOP, parameters, bytes, memory, intensity, bound and times of every model."""
        return quantities_of(self.analyses)

    def ratios(self, quantity: Quantity) -> tuple[float | None, ...]:
        """Each value over the reference's; None where one is unknown or the reference's is 0."""
        base = quantity.values[self.reference]
        return tuple(
            value / base if value is not None and base else None for value in quantity.values
        )

    @property
    def intervals_s(self) -> tuple[tuple[float, float] | None, ...]:
        """The 10-90 % interval of each model's prediction in seconds; None where there is none."""
        return tuple(map(interval_s, self.analyses))

    @property
    def ceilings(self) -> tuple[Ceilings, ...]:
        """What binds each model."""
        return tuple(
            Ceilings(
                shares=tuple(
                    (group.name, group.share)
                    for group in groups(each, lambda row: row.ceiling or row.bound)
                    if group.share
                )
            )
            for each in self.analyses
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should take home, one sentence for each model but the reference."""
        base, ceilings = self.analyses[self.reference], self.ceilings
        return tuple(
            f"{name} against {self.names[self.reference]}:"
            f" {', '.join(work_and_bound(base, each))}{ceilings[index].why}"
            f"{''.join(f'; {words}' for words in times(base, each))}"
            for index, (name, each) in enumerate(zip(self.names, self.analyses, strict=True))
            if index != self.reference
        )

    @property
    def provenance(self) -> tuple[str, ...]:
        """Which models have a bound only, and why; whose measurements are of an earlier day."""
        return (
            *lines_on_bounds_alone(self.names, self.analyses, place="for"),
            *lines_on_earlier(self.names, self.analyses),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the ratios must know: that runs of different kinds are compared."""
        named = list(zip(self.names, self.analyses, strict=True))
        notes: list[str] = []
        trained = [name for name, each in named if each.run.train]
        inferred = [name for name, each in named if not each.run.train]
        if trained and inferred:
            notes.append(
                f"ratios are between training ({', '.join(trained)}) and inference"
                f" ({', '.join(inferred)})"
            )
        if len({each.run.device for each in self.analyses}) > 1:
            each_on = ", ".join(f"{name} on {each.run.device}" for name, each in named)
            notes.append(f"operators are those of different devices: {each_on}")
        predictions = [(name, each.prediction) for name, each in named if each.prediction]
        partial = [name for name, each in predictions if each.overhead_s is None]
        if partial and len(partial) < len(predictions):
            notes.append(
                f"predicted for {', '.join(partial)} are the operators alone, for others also what"
                " runs between them"
            )
        return tuple(notes)

    def to_frame(self) -> pandas.DataFrame:
        """One row a model: every quantity with its unit, and its ratio to the reference."""
        import pandas

        columns: dict[str, Any] = {"model": list(self.names)}
        for quantity in self.quantities:
            columns[quantity.name] = pandas.array(quantity.values, dtype="Float64")
            columns[f"{quantity.name}_ratio"] = pandas.array(self.ratios(quantity), dtype="Float64")
        for name, values in self.interval_columns.items():
            columns[name] = pandas.array(values, dtype="Float64")
        columns["ceiling"] = [each.shares[0][0] if each.shares else None for each in self.ceilings]
        return pandas.DataFrame(columns)

    @property
    def interval_columns(self) -> dict[str, tuple[float | None, ...]]:
        """The ends of the intervals, by the name of their column in tables and files."""
        found = self.intervals_s
        return {
            "predicted_low_s": tuple(each[0] if each else None for each in found),
            "predicted_high_s": tuple(each[1] if each else None for each in found),
        }

    def to_json(self) -> str:
        """The comparison as JSON text: the table, and the analyses whole."""
        rows = [
            {
                "model": name,
                "run": schema.to_data(self.analyses[index].run),
                **{each.name: each.values[index] for each in self.quantities},
                **{f"{each.name}_ratio": self.ratios(each)[index] for each in self.quantities},
                **{name: values[index] for name, values in self.interval_columns.items()},
                "ceilings": dict(self.ceilings[index].shares),
            }
            for index, name in enumerate(self.names)
        ]
        data = {
            "schema_version": SCHEMA_VERSION,
            "reference": self.names[self.reference],
            "models": rows,
            "sentences": list(self.sentences),
            "analyses": [schema.to_data(each) for each in self.analyses],
        }
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.comparison_report import comparison_html

        return comparison_html(self)


def _setting(analysis: Analysis) -> str:
    threads = describe_threads(analysis.hardware, analysis.threads)
    return f"{analysis.hardware.name} ({threads}, {analysis.cache} caches)"


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, numbered where they would be the same."""
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{name} ({index})" for index, name in enumerate(names, start=1))
