"""Models on several machines: one comparison for each, and who wins where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from roofline.analysis import unknown_capacity
from roofline.design.model_comparison.ratios import Ratio
from roofline.design.model_comparison.result import Comparison, distinct, pandas_type
from roofline.errors import InputError
from roofline.foundation.blocks import Block, View
from roofline.result import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The model that takes the least time on a machine, and by which kind of time.

    ``ratio`` is how many times as long the next one takes, with its interval where there is one.
    """

    machine: str
    model: str
    kind: str
    ratio: Ratio
    next: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ComparisonGrid(Result):
    """The same models on several machines; ``machines`` names each of the ``comparisons``."""

    kind: ClassVar = "comparison of models on several machines"
    made_by: ClassVar = "roofline compare A B --hardware X --hardware Y -o FILE.json"
    ALSO_WRITTEN: ClassVar = ("summary", "sentences")

    machines: tuple[str, ...]
    comparisons: tuple[Comparison, ...]

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> ComparisonGrid:
        """The comparisons of the same models on each machine, in their order.

        Raises:
            InputError: none, or not the same models with the same reference everywhere.
        """
        if not comparisons:
            raise InputError("a comparison on several machines takes at least one")
        first = comparisons[0]
        for each in comparisons:
            if (each.names, each.reference) != (first.names, first.reference):
                raise InputError(
                    f"{', '.join(each.names)} are not what is compared on the first machine,"
                    f" {', '.join(first.names)}"
                )
        names = distinct([each.analyses[0].hardware.name for each in comparisons])
        return cls(machines=names, comparisons=tuple(comparisons))

    @property
    def summary(self) -> str:
        """What is compared, and where."""
        return f"{self.comparisons[0].title} on {', '.join(self.machines)}"

    @property
    def names(self) -> tuple[str, ...]:
        """What the models are called."""
        return self.comparisons[0].names

    @property
    def winners(self) -> tuple[Winner | None, ...]:
        """On each machine the fastest model of those that fit into its memory.

        None where neither times nor bounds are known, or fewer than two fit.
        """
        return tuple(map(_winner, self.machines, self.comparisons))

    @property
    def verdict(self) -> tuple[str, ...]:
        """Who wins where, a sentence for each kind of time, of the models that fit there.

        ``"predicted: B wins on x"``; where fewer than two fit, which of them does.
        """
        return (*_verdict(self.winners), *self._alone())

    def _alone(self) -> Iterable[str]:
        for machine, each in zip(self.machines, self.comparisons, strict=True):
            if len(each.fitting) < 2:
                names = [self.names[number] for number in each.fitting]
                yield f"{f'only {names[0]}' if names else 'none'} fits into memory on {machine}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a person should take home: who wins where, then each model on each machine."""
        return (
            *self.verdict,
            *(
                words
                for machine, each in zip(self.machines, self.comparisons, strict=True)
                for words in each.sentences_for(f"on {machine}")
            ),
        )

    @property
    def provenance(self) -> tuple[str, ...]:
        """Of which models there is a bound only, machine by machine."""
        return tuple(
            f"{machine}: {line}"
            for machine, each in zip(self.machines, self.comparisons, strict=True)
            for line in each.times_provenance
        ) + tuple(unknown_capacity(each.analyses[0].hardware for each in self.comparisons))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the ratios must know, each line once."""
        return tuple(dict.fromkeys(line for each in self.comparisons for line in each.notes))

    @property
    def columns(self) -> dict[str, str]:  # pyright: ignore[reportIncompatibleVariableOverride]  of each comparison its own
        """Those of `Comparison` after ``hardware``."""
        return {"hardware": pandas_type("hardware"), **self.comparisons[0].columns}

    def rows(self) -> Iterator[list[Any]]:
        """Return a row for each machine and model."""
        for machine, each in zip(self.machines, self.comparisons, strict=True):
            yield from ([machine, *cells] for cells in each.rows())

    def contradictions(self) -> Iterable[str]:
        """Return what does not follow from the rows of an analysis."""
        for number, each in enumerate(self.comparisons):
            yield from (f"comparisons[{number}].{wrong}" for wrong in each.contradictions())

    def blocks(self, view: View) -> Iterable[Block]:
        """Return times machine by machine, counts, modules side by side, and what follows."""
        from roofline.design.model_comparison.blocks import grid_blocks

        return grid_blocks(self, view)

    def _figure(
        self,
        make: Callable[[float, float], Figure],
        width_inch: float,
        height_inch: float | None,
        options: Mapping[str, Any],
    ) -> Figure:
        from roofline.design.model_comparison.drawing import height_of

        height_inch = height_inch or height_of(self.comparisons)
        return Result._figure(self, make, width_inch, height_inch, options)

    def draw(self, figure: Figure) -> None:
        """Draw times and ratios, machine by machine."""
        from roofline.design.model_comparison.drawing import draw_comparison

        draw_comparison(figure, self)


def _winner(machine: str, comparison: Comparison) -> Winner | None:
    quantities = (
        ("measured", "measured_s"),
        ("predicted", "predicted_s"),
        ("bound", "eager_min_time_s"),
    )
    fitting = comparison.fitting
    if len(fitting) < 2:
        return None
    for kind, name in quantities:
        if name == "measured_s" and comparison.rounds is None:
            # Of another day, and not in turn.
            continue
        found = comparison.quantity(name)
        known = ((found.values[number], number) for number in fitting)
        times = [(value, number) for value, number in known if value]
        if len(times) < len(fitting):
            continue
        (_, best), (_, second) = sorted(times)[:2]
        names = comparison.names
        asked = Comparison.of(
            comparison.analyses,
            names=names,
            reference=best,
            rounds=comparison.rounds,
            per_sample=comparison.per_sample,
        )
        ratio = asked.uncertain_ratios(found)[second]
        assert ratio is not None, "both times are known"
        return Winner(
            machine=machine, model=names[best], kind=kind, ratio=ratio, next=names[second]
        )
    return None


def _verdict(winners: Sequence[Winner | None]) -> Iterable[str]:
    """``"B wins on x and y, A on z (predicted)"``: a sentence for each kind of time."""
    by_kind: dict[str, dict[str, list[str]]] = {}
    for each in winners:
        if each is not None:
            margin = _margin(each)
            places = by_kind.setdefault(each.kind, {}).setdefault(each.model, [])
            places.append(f"{each.machine} ({margin})")
    for kind, models in by_kind.items():
        told = [f"{model} wins on {_and(places)}" for model, places in models.items()]
        how = "by its bound alone" if kind == "bound" else kind
        yield f"{how}: {', '.join(told)}"


def _margin(winner: Winner) -> str:
    if winner.ratio.value < 1.005:
        return f"no faster than {winner.next}"
    either = ", though either may be the faster" if winner.ratio.may_be_either else ""
    return f"{winner.ratio.words[0]} × as fast as {winner.next}{either}"


def _and(places: Sequence[str]) -> str:
    if len(places) < 2:
        return "".join(places)
    return f"{', '.join(places[:-1])} and {places[-1]}"
