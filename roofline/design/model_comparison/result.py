"""Models side by side on the same machine, with ratios to one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.analysis import Analysis, fit_of, groups, unknown_capacity
from roofline.design.model_comparison.differences import (
    Design,
    measured_ratio,
    predicted_ratio,
    sentence,
)
from roofline.design.model_comparison.measured_rounds import MeasuredRounds
from roofline.design.model_comparison.module_alignment import (
    DEPTH,
    Alignment,
    modules_side_by_side,
    types_side_by_side,
)
from roofline.design.model_comparison.notes import (
    differs_only_in_batch,
    notes_on,
    samples_of,
)
from roofline.design.model_comparison.quantities import Quantity, quantities_of
from roofline.design.model_comparison.ratios import Ratio
from roofline.design.pass_times import interval_s, lines_on_bounds_alone, lines_on_earlier
from roofline.errors import InputError
from roofline.foundation.blocks import Block, View
from roofline.foundation.sampling import quantile
from roofline.foundation.text import counted
from roofline.foundation.units import MISSING
from roofline.machine.hardware import describe_threads
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMES = ("predicted_s", "measured_s")
"""The quantities whose ratios have intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The ceilings that bind one model, by share of its bound time, largest first."""

    shares: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """The largest ones: ``"float32 avx512 fma 61 %, DRAM read 25 %"``."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.shares[:2]) or MISSING


def pandas_type(name: str) -> str:
    """Return pandas' type of a column of models."""
    if name in ("hardware", "model", "ceiling"):
        return "string"
    return "boolean" if name == "fits" else "Float64"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Result):
    """Analyses of models on the same machine; ``reference`` is an index.

    They may be run differently, in another data type, with other threads or in training; `notes`
    say when that makes them another thing. ``rounds`` are measurements of all of them in turn.
    With ``per_sample``, work and times are those of one sample of a batch.
    """

    kind: ClassVar = "comparison of models"
    made_by: ClassVar = "roofline compare A B -o FILE.json"
    ALSO_WRITTEN: ClassVar = (
        *("models", "module_alignment", "types", "summary", "sentences", "notes"),
    )

    names: tuple[str, ...]
    analyses: tuple[Analysis, ...]
    reference: int = 0
    rounds: MeasuredRounds | None = None
    per_sample: bool = False

    @classmethod
    def of(
        cls,
        analyses: Sequence[Analysis],
        *,
        reference: int = 0,
        names: Sequence[str] = (),
        rounds: MeasuredRounds | None = None,
        per_sample: bool | None = None,
    ) -> Comparison:
        """The comparison of `analyses`, called `names` or what their models are called.

        Args:
            analyses: at least two, of one machine.
            reference: the number of the one that ratios refer to.
            names: what they are called.
            rounds: what they took, measured in turn.
            per_sample: tells work and times of one sample; None: where inputs differ in their first
                sizes, and in these alone.

        Raises:
            InputError: fewer than two, names that do not fit, another machine, or no such
                reference.
        """
        if len(analyses) < 2:
            raise InputError("a comparison takes at least two models")
        if names and len(names) != len(analyses):
            raise InputError(f"{len(names)} names for {len(analyses)} models")
        if not 0 <= reference < len(analyses):
            raise InputError(f"reference {reference}: there are models 0 to {len(analyses) - 1}")
        if rounds is not None and rounds.models != len(analyses):
            raise InputError(f"{rounds.models} measured models for {len(analyses)} analyses")
        first = analyses[0]
        for other in analyses[1:]:
            if (other.hardware.name, other.cache) != (first.hardware.name, first.cache):
                raise InputError(
                    f"'{first.model}' was analysed for {_setting(first)},"
                    f" '{other.model}' for {_setting(other)}: analyse both for the same"
                )
        if per_sample is None:
            per_sample = differs_only_in_batch(analyses)
        return cls(
            names=tuple(names) or distinct([each.model for each in analyses]),
            analyses=tuple(analyses),
            reference=reference,
            rounds=rounds,
            per_sample=per_sample and samples_of(analyses) is not None,
        )

    @property
    def summary(self) -> str:
        """What is compared, where, and with how many threads."""
        first = self.analyses[0]
        threads = {each.threads for each in self.analyses}
        # A device computes as a whole: there is nothing to say.
        is_said = first.hardware.has_threads and len(threads) == 1
        how = f" with {describe_threads(first.hardware, first.threads)}" if is_said else ""
        return f"{self.title} on {first.hardware.name}{how}, {first.cache} caches"

    @property
    def title(self) -> str:
        """The names, that of the reference first."""
        names = list(self.names)
        return " against ".join((names.pop(self.reference), *names))

    @property
    def samples(self) -> tuple[int, ...] | None:
        """How many samples each pass takes, where work and times are told for one; else None."""
        return samples_of(self.analyses) if self.per_sample else None

    @property
    def designs(self) -> tuple[Design, ...]:
        """The models, each with its name."""
        samples = self.samples or (1,) * len(self.names)
        return tuple(
            Design(name=name, analysis=each, number=number, samples=count)
            for number, (name, each, count) in enumerate(
                zip(self.names, self.analyses, samples, strict=True)
            )
        )

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """FLOP, parameters, bytes, memory, intensity, bound and times of every model."""
        return self._quantities()

    def quantity(self, of: str) -> Quantity:
        """The quantity that is called so, for one sample where batches differ."""
        return next(iter(self._quantities(only=of)))

    def _quantities(self, only: str | None = None) -> tuple[Quantity, ...]:
        return quantities_of(self.analyses, samples=self.samples, rounds=self.rounds, only=only)

    def ratios(self, quantity: Quantity) -> tuple[float | None, ...]:
        """Each value over the reference's; None where one is unknown or the reference's is 0."""
        return tuple(each.value if each else None for each in self.uncertain_ratios(quantity))

    def uncertain_ratios(self, quantity: Quantity) -> tuple[Ratio | None, ...]:
        """The same, those of predictions and of measurements in turn with their intervals."""
        base = self.designs[self.reference]
        if quantity.of == "predicted_s":
            return tuple(predicted_ratio(base, each) for each in self.designs)
        if quantity.of == "measured_s":
            return tuple(measured_ratio(base, each, self.rounds) for each in self.designs)
        of_base = quantity.values[self.reference]
        return tuple(
            Ratio(value=value / of_base) if value is not None and of_base else None
            for value in quantity.values
        )

    @property
    def intervals_s(self) -> tuple[tuple[float, float] | None, ...]:
        """The 10-90 % interval of each prediction in seconds; None where there is none.

        For one sample, where times are.
        """
        found = zip(map(interval_s, self.analyses), self.designs, strict=True)
        return tuple(
            (ends[0] / each.samples, ends[1] / each.samples) if ends else None
            for ends, each in found
        )

    @property
    def measured_intervals_s(self) -> tuple[tuple[float, float] | None, ...]:
        """What holds 8 of 10 rounds of each model, in seconds; None where there is one or none."""
        if self.rounds is None or len(self.rounds.rounds) < 2:
            return (None,) * len(self.names)
        samples = [list(self.rounds.sample(each.number).times_s) for each in self.designs]
        return tuple(
            (quantile(found, 0.1) / each.samples, quantile(found, 0.9) / each.samples)
            for found, each in zip(samples, self.designs, strict=True)
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
        hardware = self.analyses[0].hardware
        # A profile that tells its host was measured by who reads this.
        return self.sentences_for("here" if hardware.host else f"on {hardware.name}")

    def sentences_for(self, where: str) -> tuple[str, ...]:
        """The same, `where` naming the machine: ``"on v100"``; and what does not fit there."""
        base = self.designs[self.reference]
        said = [
            f"{each.name} against {base.name}: {sentence(base, each, self.rounds, where=where)}"
            f"{_but_too_large(each)}"
            for each in self.designs
            if each.number != base.number
        ]
        if base.analysis.fits is False:
            said.insert(0, f"{where}, the reference {base.name} {fit_of(base.analysis)}")
        return tuple(said)

    def modules(self, depth: int = DEPTH) -> Alignment:
        """The modules of all models down to `depth`, each beside its counterparts."""
        return modules_side_by_side(
            self.analyses, reference=self.reference, depth=depth, samples=self.samples
        )

    @property
    def module_alignment(self) -> Alignment:
        """The modules of all models down to the usual depth."""
        return self.modules()

    @property
    def types(self) -> Alignment:
        """The types of operators of all models side by side."""
        return types_side_by_side(self.analyses, reference=self.reference, samples=self.samples)

    @property
    def fitting(self) -> tuple[int, ...]:
        """The numbers of the models that fit into the machine's memory, or may: not known."""
        return tuple(i for i, each in enumerate(self.analyses) if each.fits is not False)

    @property
    def knows_fit(self) -> bool:
        """Whether the capacity of the machine's memory is known, so that models fit or do not."""
        return self.analyses[0].fits is not None

    @property
    def provenance(self) -> tuple[str, ...]:
        """As `times_provenance`, and that the capacity of the machine's memory is not known."""
        return (*self.times_provenance, *unknown_capacity([self.analyses[0].hardware]))

    @property
    def times_provenance(self) -> tuple[str, ...]:
        """Which models have a bound only, and why; when and how what was measured was."""
        return (
            *lines_on_bounds_alone(self.names, self.analyses, place="for"),
            *(
                (_in_turn(self.rounds),)
                if self.rounds
                else lines_on_earlier(self.names, self.analyses)
            ),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the ratios must know: that unlike things are compared."""
        measured = self.rounds.conditions if self.rounds else ()
        return (*notes_on(self.names, self.analyses, per_sample=self.per_sample), *measured)

    @property
    def models(self) -> tuple[Mapping[str, Any], ...]:
        """The rows, with how each model is run and the shares of all ceilings of its bound."""
        return tuple(
            {
                **{name: value for name, value in row.items() if name != "ceiling"},
                "run": asdict(each.run),
                "threads": each.threads,
                "ceilings": dict(ceilings.shares),
            }
            for row, each, ceilings in zip(
                self.records(), self.analyses, self.ceilings, strict=True
            )
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each model: quantities, ratios to the reference, intervals of both.

        What is unknown is None. ``samples`` stands where work and times are those of one sample.
        """
        rows: list[dict[str, Any]] = [{"model": name} for name in self.names]
        for row, count in zip(rows, self.samples or (), strict=False):
            row["samples"] = count
        for quantity in self.quantities:
            ratios = self.uncertain_ratios(quantity)
            for row, value, ratio in zip(rows, quantity.values, ratios, strict=True):
                row[quantity.name] = value
                row[f"{quantity.name}_ratio"] = ratio.value if ratio else None
                if quantity.of in TIMES:
                    row[f"{quantity.name}_ratio_low"] = ratio.low if ratio else None
                    row[f"{quantity.name}_ratio_high"] = ratio.high if ratio else None
        per = "_per_sample" if self.per_sample else ""
        for row, ends, ceilings in zip(rows, self.intervals_s, self.ceilings, strict=True):
            row[f"predicted_low_s{per}"], row[f"predicted_high_s{per}"] = ends or (None, None)
            row["ceiling"] = ceilings.shares[0][0] if ceilings.shares else None
        for row, each in zip(rows, self.analyses, strict=True):
            row["memory_capacity_bytes"] = each.hardware.memory_capacity_bytes
            row["fits"] = each.fits
        return rows

    @property
    def columns(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]  of each comparison its own
        """Names of columns with pandas' types."""
        return {name: pandas_type(name) for name in self.records()[0]}

    def rows(self) -> Iterator[list[Any]]:
        """Return `records` as cells."""
        return ([*each.values()] for each in self.records())

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows of an analysis."""
        for number, each in enumerate(self.analyses):
            yield from (f"analyses[{number}]: {wrong}" for wrong in each.contradictions())

    def blocks(self, view: View) -> Iterable[Block]:
        """Return quantities, modules side by side, what follows, and warnings."""
        from roofline.design.model_comparison.blocks import comparison_blocks

        return comparison_blocks(self, view)

    def _figure(
        self,
        make: Callable[[float, float], Figure],
        width_inch: float,
        height_inch: float | None,
        options: Mapping[str, Any],
    ) -> Figure:
        from roofline.design.model_comparison.drawing import height_of

        return Result._figure(self, make, width_inch, height_inch or height_of([self]), options)

    def draw(self, figure: Figure) -> None:
        """Draw the times of each model as bars, and ratios to the reference."""
        from roofline.design.model_comparison.drawing import draw_comparison

        draw_comparison(figure, self)


def _but_too_large(design: Design) -> str:
    words = f"; but {design.name} {fit_of(design.analysis)}"
    return words if design.analysis.fits is False else ""


def _in_turn(rounds: MeasuredRounds) -> str:
    count = len(rounds.rounds)
    passes = min(len(each.times_s) for one in rounds.rounds for each in one)
    where = ", each in a process of its own" if rounds.own_processes else ""
    where += f" (allocator: {rounds.allocator})" if rounds.allocator else ""
    return (
        f"measured in turn{f' on {rounds.date}' if rounds.date else ''}:"
        f" {counted(count, 'round')} of all models{where}, at least {passes} passes a round"
    )


def _setting(analysis: Analysis) -> str:
    return f"{analysis.hardware.name} ({analysis.cache} caches)"


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, numbered where they would be the same."""
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{name} ({index})" for index, name in enumerate(names, start=1))
