"""Models side by side on the same machine, with ratios to one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, groups
from roofline.errors import InputError
from roofline.foundation import schema
from roofline.foundation.units import (
    MISSING,
    format_byte,
    format_flop,
    format_intensity,
    format_s,
    format_si,
)
from roofline.machine.hardware import describe_threads

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity of every model: ``values`` in the unit its name carries, None where unknown."""

    name: str
    title: str
    values: tuple[float | None, ...]
    text: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The ceilings that bind one model, by share of its bound time, largest first."""

    shares: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """The largest ones: ``"float32 avx512 fma 61 %, DRAM read 25 %"``."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.shares[:2]) or MISSING


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
        """FLOP, parameters, bytes, memory, intensity and bound of every model."""
        found: list[Quantity] = []
        for name, title, value, form, is_flop in _QUANTITIES:
            values: list[float | None] = []
            text: list[str] = []
            for each in self.analyses:
                partial = is_flop and each.totals.unknown_operators > 0
                # What is only known in part is shown as a least, and compared with nothing.
                values.append(None if partial else value(each))
                text.append(("≥ " if partial else "") + form(value(each)))
            found.append(Quantity(name=name, title=title, values=tuple(values), text=tuple(text)))
        return tuple(found)

    def ratios(self, quantity: Quantity) -> tuple[float | None, ...]:
        """Each value over the reference's; None where one is unknown or the reference's is 0."""
        base = quantity.values[self.reference]
        return tuple(
            value / base if value is not None and base else None for value in quantity.values
        )

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
        said: list[str] = []
        base = self.analyses[self.reference]
        for index, each in enumerate(self.analyses):
            if index == self.reference:
                continue
            flop = _times(base.totals.flop, each.totals.flop, "fewer FLOP", "more FLOP")
            if base.totals.unknown_operators or each.totals.unknown_operators:
                flop = "FLOP not fully known"
            bound = _times(
                base.totals.bound_s, each.totals.bound_s, "lower bound time", "higher bound time"
            )
            binding = self.ceilings[index].shares
            why = f"; bound for {binding[0][1]:.0%} of it by {binding[0][0]}" if binding else ""
            said.append(
                f"{self.names[index]} against {self.names[self.reference]}: {flop}, {bound}{why}"
            )
        return tuple(said)

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
        return tuple(notes)

    def to_frame(self) -> pandas.DataFrame:
        """One row a model: every quantity with its unit, and its ratio to the reference."""
        import pandas

        columns: dict[str, Any] = {"model": list(self.names)}
        for quantity in self.quantities:
            columns[quantity.name] = pandas.array(quantity.values, dtype="Float64")
            columns[f"{quantity.name}_ratio"] = pandas.array(self.ratios(quantity), dtype="Float64")
        columns["ceiling"] = [each.shares[0][0] if each.shares else None for each in self.ceilings]
        return pandas.DataFrame(columns)

    def to_json(self) -> str:
        """The comparison as JSON text: the table, and the analyses whole."""
        rows = [
            {
                "model": name,
                "run": schema.to_data(self.analyses[index].run),
                **{each.name: each.values[index] for each in self.quantities},
                **{f"{each.name}_ratio": self.ratios(each)[index] for each in self.quantities},
                "ceilings": dict(self.ceilings[index].shares),
            }
            for index, name in enumerate(self.names)
        ]
        data = {
            "schema_version": 1,
            "reference": self.names[self.reference],
            "models": rows,
            "sentences": list(self.sentences),
            "analyses": [schema.to_data(each) for each in self.analyses],
        }
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.comparison_report import comparison_html

        return comparison_html(self)


_QUANTITIES: tuple[
    tuple[str, str, Callable[[Analysis], float | None], Callable[[float | None], str], bool], ...
] = (
    ("flop", "FLOP", lambda each: each.totals.flop, format_flop, True),
    (
        "multiply_add",
        "multiply-adds",
        lambda each: each.totals.multiply_add,
        lambda value: format_si(value, ""),
        True,
    ),
    (
        "parameters",
        "parameters",
        lambda each: each.totals.parameters,
        lambda value: format_si(value, ""),
        False,
    ),
    (
        "parameter_bytes",
        "parameter size",
        lambda each: each.totals.parameter_bytes,
        format_byte,
        False,
    ),
    ("traffic_byte", "traffic", lambda each: each.totals.traffic_byte, format_byte, False),
    (
        "peak_memory_byte",
        "peak memory",
        lambda each: each.totals.peak_memory_byte,
        format_byte,
        False,
    ),
    (
        "intensity_flop_per_byte",
        "intensity (FLOP/B)",
        lambda each: each.totals.intensity_flop_per_byte,
        format_intensity,
        False,
    ),
    ("bound_s", "bound", lambda each: each.totals.bound_s, format_s, False),
)


def _setting(analysis: Analysis) -> str:
    threads = describe_threads(analysis.hardware, analysis.threads)
    return f"{analysis.hardware.name} ({threads}, {analysis.cache} caches)"


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, numbered where they would be the same."""
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{name} ({index})" for index, name in enumerate(names, start=1))


def _times(base: float | None, value: float | None, less: str, more: str) -> str:
    if not base or not value:
        return (
            f"{less.split()[-1]} unknown"
            if base is None or value is None
            else f"no {less.split()[-1]}"
        )
    ratio = base / value
    return f"{ratio:.3g} × {less}" if ratio >= 1 else f"{1 / ratio:.3g} × {more}"
