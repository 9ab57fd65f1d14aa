"""Graph rewrites of a model: costs and timings before and after, rewrites, proofs, verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis import MINIMUM_TIMES, Analysis, minimum_times_of
from roofline.core.blocks import Block, View
from roofline.core.text import counted
from roofline.core.units import format_ratio, format_s
from roofline.errors import InputError
from roofline.result import Result
from roofline.substitution.costs import CostBasis, launches_on

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Decision = Literal["measured faster", "predicted faster", "not faster", "nothing found"]
"""``measured faster``: significantly so; ``predicted faster``: for another machine, or not timed;
``not faster``: the candidate is not significantly faster when timed, so the original is returned;
``nothing found``: no graph costs less."""

_COSTS: dict[CostBasis, tuple[str, str]] = {
    "bound": ("minimum times", "minimum time"),
    "predicted": ("the calibration", "predicted time"),
    "measured": ("operators timed one by one", "sum of measured operator times"),
}
"""What a speedup by each cost is predicted from, and what graphs are compared by."""

_RUN = {"eager": "in eager torch", "compile": "under torch.compile"}

_OF_REWRITE = {
    **dict.fromkeys(("rule", "where", "why"), "string"),
    "is_applied": "boolean",
    **dict.fromkeys(("cost_before_s", "cost_after_s", "saving_s"), "Float64"),
    **dict.fromkeys(("measured_before_s", "measured_after_s"), "Float64"),
    **dict.fromkeys(("before_operators", "after_operators"), "object"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Pass of a model before or after, in the terms of table 2 of the MetaFlow article.

    Attributes:
        cost_s: by the cost of the search.
        measured_s: median of whole passes; None: not timed.
        measured_low_s: of the interval from 10 to 90 % of rounds, to `measured_high_s`.
        flop_per_s: by the measured time, else by the cost; `share_of_roof` likewise.
        eager_min_time_s: of the analysis, as the other minimum times. No result takes less than
            ``model_min_time_s`` of the original.
    """

    cost_s: float
    traffic_bytes: int
    launches: int
    flop: int | None
    weight_bytes: int
    measured_s: float | None = None
    measured_low_s: float | None = None
    measured_high_s: float | None = None
    flop_per_s: float | None = None
    share_of_roof: float | None = None
    eager_min_time_s: float | None = None
    fused_min_time_s: float | None = None
    model_min_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitution:
    """Rewrite that was applied or rejected.

    Attributes:
        where: modules or operators concerned.
        why: what it changes, or the reason why it was rejected.
        cost_before_s: of the whole model, in the order of application, as `cost_after_s`; None:
            its precondition was not met.
        measured_before_s: of the operators that it replaces; None: not timed.
        measured_after_s: of the operators that replace them; None: not timed.
        before_operators: rows of the analysis before; `after_operators` of that after.
    """

    ALSO_WRITTEN: ClassVar = ("saving_s",)

    rule: str
    where: str
    why: str
    is_applied: bool
    cost_before_s: float | None = None
    cost_after_s: float | None = None
    measured_before_s: float | None = None
    measured_after_s: float | None = None
    before_operators: tuple[int, ...] = ()
    after_operators: tuple[int, ...] = ()

    @property
    def saving_s(self) -> float | None:
        """Saving by the cost of the search; below 0: what it adds."""
        if self.cost_before_s is None or self.cost_after_s is None:
            return None
        return self.cost_before_s - self.cost_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Comparison of the outputs of original and result, on one kind of inputs in one data type.

    Attributes:
        weights: those of the model, or random ones.
        largest_error: largest difference over the largest reference value, as a fraction.
        limit: largest error that is accepted.
        same_argmax: share of rows with the same largest output; None: outputs are no scores.
    """

    ALSO_WRITTEN: ClassVar = ("holds",)

    dtype: str
    inputs: str
    weights: str
    largest_error: float
    limit: float
    same_argmax: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the error is within its limit."""
        return self.largest_error <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Original and candidate timed alternately.

    Attributes:
        baseline: eager torch, or torch.compile with freezing.
        speedup: median over rounds of the time of the original over that of the candidate.
        speedup_low: of the interval from 10 to 90 % of rounds, to `speedup_high`; 0: unknown.
        allocator: settings of malloc; ``""``: not known.
    """

    baseline: Literal["eager", "compile"]
    candidate: str
    before_s: float
    after_s: float
    speedup: float
    speedup_low: float
    speedup_high: float
    rounds: int
    allocator: str = ""

    @property
    def is_faster(self) -> bool:
        """Whether the interval lies above 1."""
        return self.speedup_low > 1.0

    @property
    def speedup_text(self) -> tuple[str, str]:
        """Speedup and interval: ``"1.31"``, ``"1.28 to 1.34"`` (of a single round ``""``)."""
        return _rounded(self.speedup, self.speedup_low, self.speedup_high)

    @property
    def slowdown_text(self) -> tuple[str, str]:
        """Time after over time before, as `speedup_text`."""
        low = self.speedup_low
        ends = (1 / self.speedup_high, 1 / low) if low > 0 else (0.0, 0.0)
        return _rounded(1 / self.speedup, *ends)

    @property
    def words(self) -> str:
        """Measured speedup: ``"1.80× faster, measured in eager torch (5 rounds: 1.7 to 1.9)"``."""
        value, interval = self.speedup_text
        than = "faster" if self.is_faster else "as fast"
        rounds = ": ".join(filter(None, (counted(self.rounds, "round"), interval)))
        return f"{value}× {than}, measured {_RUN[self.baseline]} ({rounds})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStatistics:
    """Size of the search.

    Attributes:
        expanded: graphs whose rewrites were tried.
        evaluated: graphs that were given a cost.
        duplicates: graphs that had been met before.
        pruned: graphs dropped for their cost.
        pieces: parts of the graph that were searched one by one.
        ended: ``"exhausted"``: no graph was left to try.
    """

    expanded: int
    evaluated: int
    duplicates: int
    pruned: int
    pieces: int
    seconds: float
    ended: Literal["exhausted", "budget", "time"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimization(Result):
    """A model and the faster graph that was found for it, with rewrites, proofs and timings.

    Attributes:
        cost: what graphs were compared by.
        captured_by: ``"torch.export"`` or ``"torch.fx"``.
        before: of the captured graph, on the machine; `after` of the result.
        substitutions: applied rewrites, in their order.
        rejected: the others, each with its reason.
        rounds: of all graphs that were timed, end to end.
        not_timed: why no graph was timed; ``""``: some were, or there was none.
        module: the result, ready to run, or the given model where nothing was gained; None in
            results that were read from files.
        arguments: positional and keyword ones that the model was captured with.

    Where the decision is ``not faster``, `after`, `figures_after` and `substitutions` are those of
    the candidate that was given up; none of its rewrites is applied.
    """

    kind: ClassVar = "optimization"
    made_by: ClassVar = "roofline optimize MODEL -o FILE.json"
    suffixes: ClassVar = (*Result.suffixes, ".pt2")
    columns: ClassVar = {
        **_OF_REWRITE,
        **{f"{side}_{name}": "Float64" for side in ("before", "after") for name in MINIMUM_TIMES},
    }
    ALSO_WRITTEN: ClassVar = ("summary",)
    NOT_WRITTEN: ClassVar = ("module", "arguments")

    model: str
    decision: Decision
    cost: CostBasis
    alpha: float
    budget: int
    rules: tuple[str, ...]
    is_fused: bool
    captured_by: str
    before: Analysis
    after: Analysis
    figures_before: Figures
    figures_after: Figures
    substitutions: tuple[Substitution, ...]
    rejected: tuple[Substitution, ...]
    proofs: tuple[Proof, ...]
    rounds: tuple[Rounds, ...]
    statistics: SearchStatistics
    warnings: tuple[str, ...] = ()
    not_timed: str = ""
    module: Any = field(default=None, compare=False)
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = field(default=None, compare=False)

    @property
    def is_kept(self) -> bool:
        """Whether the original is returned."""
        return self.decision in ("not faster", "nothing found")

    @property
    def decisive(self) -> Rounds | None:
        """The timing that the decision rests on; None where no graph was timed.

        That of the result, or where the original is kept of the candidate that came nearest; under
        torch.compile where there are such timings.
        """
        measured_s = self.figures_after.measured_s
        names = {each.candidate for each in self.rounds if each.after_s == measured_s}
        among = [each for each in self.rounds if each.baseline == "compile"] or self.rounds
        own = [each for each in among if each.candidate in names]
        return max(own or among, key=lambda each: each.speedup, default=None)

    @property
    def predicted_speedup(self) -> float | None:
        """Cost before over cost after; None where one of them is 0."""
        before, after = self.figures_before.cost_s, self.figures_after.cost_s
        return before / after if before > 0 and after > 0 else None

    @property
    def summary(self) -> str:
        """The speedup with its kind, or that the original is kept."""
        timing = self.decisive.words if self.decisive else "not timed"
        rewrites = counted(len(self.substitutions), "rewrite")
        source, figure = _COSTS[self.cost]
        machine = self.before.hardware.name
        match self.decision:
            case "measured faster":
                verdict = f"{timing}, {rewrites}"
            case "predicted faster":
                ratio = self.predicted_speedup
                times = f"{format_ratio(ratio)}× faster" if ratio else "faster"
                why = f": {self.not_timed}" if self.not_timed else ""
                verdict = (
                    f"{times}, predicted from {source}{self._launch} on {machine}, {rewrites};"
                    f" not timed{why}"
                )
            case "not faster":
                is_slower = self.decisive and self.decisive.speedup_high < 1
                found = "the candidate is slower" if is_slower else "no significant speedup"
                verdict = f"original kept: {found}: {timing}"
            case "nothing found":
                ran = self.statistics
                ended = {
                    "exhausted": "",
                    "budget": f"; the budget ended after {ran.evaluated:,} graphs",
                    "time": f"; the time limit ended the search after {format_s(ran.seconds, 2)}",
                }[ran.ended]
                verdict = (
                    f"original kept: no graph of lower {figure}{self._launch} found on"
                    f" {machine}{ended}"
                )
        return f"{self.model}: {verdict}"

    @property
    def _launch(self) -> str:
        """The cost of a launch where minimum times include it: ``" (8.0 µs per launch)"``."""
        launches = launches_on(self.before.hardware)
        if self.cost != "bound" or not launches.usual_s:
            return ""
        # On a CPU kinds of operators differ in it; the report lists them.
        about = "about " if launches.by_kind_s else ""
        return f" ({about}{format_s(launches.usual_s, 2)} per launch)"

    @property
    def bound_name(self) -> str:
        """What the cost ``bound`` consists of: launches too, where their cost is known."""
        is_known = launches_on(self.before.hardware).usual_s > 0
        return "minimum time and launches" if is_known else "minimum time"

    @property
    def cost_name(self) -> str:
        """What graphs were compared by."""
        return self.bound_name if self.cost == "bound" else _COSTS[self.cost][1]

    def contradictions(self) -> Iterable[str]:
        """Return rewrites of operators that the analyses do not have."""
        before, after = len(self.before.operators), len(self.after.operators)
        for each in self.substitutions:
            for rows, count in ((each.before_operators, before), (each.after_operators, after)):
                if any(not 0 <= row < count for row in rows):
                    yield f"{each.rule} has an operator beyond the {count} of a graph"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row for each rewrite, applied ones first; the minimum times are of the model."""
        sides = (self.figures_before, self.figures_after)
        minimum = [time_s for each in sides for time_s in minimum_times_of(each).values()]
        for each in (*self.substitutions, *self.rejected):
            yield [*(getattr(each, name) for name in _OF_REWRITE), *minimum]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, the pass before and after, rewrites, timings, proofs, search, warnings."""
        from roofline.substitution.blocks import optimization_blocks

        return optimization_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 12) -> None:
        """Draw an arrow under the roofline for each rewrite, from its operators to the new ones.

        Args:
            figure: an empty one.
            labels: number of rewrites to name, largest savings first, where there is room.
        """
        from roofline.substitution.drawing import draw_optimization

        draw_optimization(figure, self, labels)

    def render(self, format: str, view: View | None = None, **picture: Any) -> str | bytes:
        """Return the result in a format, as any result, or with ``pt2`` the module.

        Raises:
            InputError: another format, or no module.
            ModelError: a module that torch cannot export.
        """
        if format != "pt2":
            return Result.render(self, format, view, **picture)
        from roofline.substitution.graphs.building import exported_program

        if self.module is None or self.arguments is None:
            raise InputError(
                f"{self.model}: no module is there to save; run roofline.optimize again and save"
                " its result"
            )
        return exported_program(self.module, self.arguments, name=self.model)


def _rounded(value: float, low: float, high: float) -> tuple[str, str]:
    # Near 1 the second decimal decides which of the two is faster.
    is_near_1 = low < 1.3 and high > 0.7
    decimals = 2 if is_near_1 or high - low < 0.3 else 1

    def text(ratio: float) -> str:
        if ratio < 0.1:
            return f"{ratio:.2g}"
        return f"{ratio:.{decimals}f}" if ratio < 100 else f"{ratio:.0f}"

    return text(value), f"{text(low)} to {text(high)}" if low > 0 else ""
