"""Graph rewrites of a model: costs and timings before and after, rewrites, proofs, verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from roofline.analysis import MINIMUM_TIMES, Analysis, minimum_times_of
from roofline.core.blocks import Block, View
from roofline.core.text import counted
from roofline.core.units import format_ratio, format_s
from roofline.errors import InputError, ModelError
from roofline.result import Result
from roofline.substitution.costs import CostBasis, launch_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Decision = Literal["measured faster", "predicted faster", "not faster", "nothing found"]
"""``measured faster``: significantly, by timing; ``predicted faster``: on another machine, or not
timed; ``not faster``: no significant speedup in the timing, so the original is returned; ``nothing
found``: no graph has a lower cost.
"""

_COSTS: dict[CostBasis, tuple[str, str]] = {
    "bound": ("minimum times", "minimum time"),
    "predicted": ("the calibration", "predicted time"),
    "measured": ("operators timed one by one", "sum of measured operator times"),
}
"""Source of the predicted speedup, and name of the compared quantity, for each cost."""

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
    """Forward pass before or after, in the terms of table 2 of the MetaFlow article.

    Attributes:
        cost_s: cost used by the search.
        measured_s: median over timed forward passes; None: not timed.
        measured_low_s: 10th percentile over rounds; `measured_high_s`: 90th percentile.
        flop_per_s: from the measured time if there is one, else from the cost; also
            `share_of_roof`.
        eager_min_time_s: from the analysis, like the other minimum times. Lower bound of every
            result: ``model_min_time_s`` of the original.
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
        where: affected modules or operators.
        why: effect of the rewrite, or reason for its rejection.
        cost_before_s: of the whole model, in order of application, like `cost_after_s`; None: the
            precondition did not hold.
        measured_before_s: of the replaced operators; None: not timed.
        measured_after_s: of the replacing operators; None: not timed.
        before_operators: rows of the analysis before; `after_operators`: of that after. Empty for
            a model whose modules were searched.
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
        """Cost saved, in seconds; negative: cost added."""
        if self.cost_before_s is None or self.cost_after_s is None:
            return None
        return self.cost_before_s - self.cost_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Module of a model that cannot be captured as a whole.

    Attributes:
        path: ``""``: the model itself; `kind` is its class.
        calls: number of calls in a pass; `searched`: those with the arguments that it was searched
            for. Other calls are kept as they are.
        why: reason why all are kept; ``""``: it was searched.
    """

    path: str
    kind: str
    calls: int
    searched: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Output comparison of original and result, for one kind of input in one data type.

    Attributes:
        weights: ``"own"`` (of the model) or ``"random"``; ``"own, whole model"``: not of its
            searched modules alone.
        largest_error: largest difference over the largest reference value, as a fraction.
        limit: largest accepted error.
        same_argmax: fraction of rows with the same argmax; None: outputs are no scores.
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
        return self.largest_error <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Interleaved timings of original and candidate.

    Attributes:
        baseline: eager torch, or torch.compile with freezing.
        speedup: median over rounds of original time over candidate time.
        speedup_low: 10th percentile over rounds (`speedup_high`: 90th); 0: unknown.
        allocator: malloc settings; ``""``: unknown.
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
        return self.speedup_low > 1.0

    @property
    def speedup_text(self) -> tuple[str, str]:
        """Speedup and interval: ``"1.31"``, ``"1.28 to 1.34"`` (``""`` for a single round)."""
        return _rounded(self.speedup, self.speedup_low, self.speedup_high)

    @property
    def slowdown_text(self) -> tuple[str, str]:
        """Time after over time before, in the format of `speedup_text`."""
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
        evaluated: graphs whose cost was computed.
        duplicates: graphs that were found before.
        pruned: graphs dropped by cost.
        pieces: subgraphs searched separately.
        ended: ``"exhausted"``: no graph was left to expand.
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
    """Model and the faster graph found for it, with rewrites, proofs and timings.

    Attributes:
        cost: quantity that graphs were compared by.
        captured_by: ``"torch.export"`` or ``"torch.fx"``.
        before: analysis of the captured graph; `after`: of the result.
        substitutions: applied rewrites, in order of application.
        rejected: other rewrites, each with its reason.
        parts: modules searched and kept, for a model that cannot be captured as a whole. Figures
            are of the whole model, costs of rewrites of one call of each searched module.
        rounds: end-to-end timings of all timed graphs.
        not_timed: reason why no graph was timed; ``""``: some were, or there was none.
        module: runnable result, or the given model without a gain; None in results read from files.
        arguments: positional and keyword arguments of the capture.

    With the decision ``not faster``, `after`, `figures_after` and `substitutions` describe the
    candidate; its rewrites are not applied.
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
    parts: tuple[Part, ...] = ()
    warnings: tuple[str, ...] = ()
    not_timed: str = ""
    module: Any = field(default=None, compare=False)
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = field(default=None, compare=False)

    @property
    def is_kept(self) -> bool:
        return self.decision in ("not faster", "nothing found")

    @property
    def decisive(self) -> Rounds | None:
        """Timing that decides; None: no graph was timed.

        It belongs to the result, or to the closest candidate if the original is kept. Timings under
        torch.compile take precedence.
        """
        measured_s = self.figures_after.measured_s
        names = {each.candidate for each in self.rounds if each.after_s == measured_s}
        among = [each for each in self.rounds if each.baseline == "compile"] or self.rounds
        own = [each for each in among if each.candidate in names]
        return max(own or among, key=lambda each: each.speedup, default=None)

    @property
    def predicted_speedup(self) -> float | None:
        """Cost before over cost after; None if one of them is 0."""
        before, after = self.figures_before.cost_s, self.figures_after.cost_s
        return before / after if before > 0 and after > 0 else None

    @property
    def summary(self) -> str:
        """Verdict: the speedup with its kind, or that the original is kept."""
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
                    "budget": f"; search budget exhausted after {ran.evaluated:,} graphs",
                    "time": f"; search time limit reached after {format_s(ran.seconds, 2)}",
                }[ran.ended]
                verdict = (
                    f"original kept: no graph of lower {figure}{self._launch} found on"
                    f" {machine}{ended}"
                )
        return f"{self.model}: {verdict}"

    @property
    def _launch(self) -> str:
        """Launch overhead, if minimum times include it: ``" (8.0 µs per launch)"``."""
        launches = launch_times(self.before.hardware)
        if self.cost != "bound" or not launches.default_s:
            return ""
        # On a CPU, the overhead depends on the operator type; the report lists them.
        about = "about " if launches.by_kind_s else ""
        return f" ({about}{format_s(launches.default_s, 2)} per launch)"

    @property
    def bound_name(self) -> str:
        """Name of the cost ``bound``: includes launches if their overhead is known."""
        is_known = launch_times(self.before.hardware).default_s > 0
        return "minimum time and launches" if is_known else "minimum time"

    @property
    def cost_name(self) -> str:
        """Name of the quantity that graphs were compared by."""
        return self.bound_name if self.cost == "bound" else _COSTS[self.cost][1]

    def contradictions(self) -> Iterable[str]:
        """Return rewrites of operators that the analyses do not have."""
        before, after = len(self.before.operators), len(self.after.operators)
        for each in self.substitutions:
            for rows, count in ((each.before_operators, before), (each.after_operators, after)):
                if any(not 0 <= row < count for row in rows):
                    yield f"{each.rule} has an operator beyond the {count} of a graph"

    def rows(self) -> Iterable[list[Any]]:
        """Return a row per rewrite, applied ones first; minimum times are those of the model."""
        sides = (self.figures_before, self.figures_after)
        minimum = [time_s for each in sides for time_s in minimum_times_of(each).values()]
        for each in (*self.substitutions, *self.rejected):
            yield [*(getattr(each, name) for name in _OF_REWRITE), *minimum]

    def blocks(self, view: View) -> Iterable[Block]:
        """Return facts, before/after table, rewrites, timings, proofs, search and warnings."""
        from roofline.substitution.blocks import optimization_blocks

        return optimization_blocks(self, view)

    def draw(self, figure: Figure, *, labels: int = 12) -> None:
        """Draw an arrow under the roofline for each rewrite, from old to new operators.

        Args:
            figure: an empty figure.
            labels: maximum number of labels, largest savings first.
        """
        from roofline.substitution.drawing import draw_optimization

        draw_optimization(figure, self, labels)

    def render(self, format: str, view: View | None = None, **picture: Any) -> str | bytes:
        """Return the result in a format; ``pt2``: the module as an exported program.

        Raises:
            InputError: unknown format, or no module.
            ModelError: torch cannot export the module.
        """
        if format != "pt2":
            return Result.render(self, format, view, **picture)
        if self.parts:
            raise ModelError(
                f"{self.model} cannot be captured as a whole, so neither as .pt2; omit the file,"
                " and pickle the module of roofline.optimize"
            )
        from roofline.substitution.graphs.building import export_program

        if self.module is None or self.arguments is None:
            raise InputError(
                f"{self.model}: no module to save; run roofline.optimize again and save its result"
            )
        return export_program(self.module, self.arguments, name=self.model)


def _rounded(value: float, low: float, high: float) -> tuple[str, str]:
    # Near 1, the second decimal decides which one is faster.
    is_near_1 = low < 1.3 and high > 0.7
    decimals = 2 if is_near_1 or high - low < 0.3 else 1

    def text(ratio: float) -> str:
        if ratio < 0.1:
            return f"{ratio:.2g}"
        return f"{ratio:.{decimals}f}" if ratio < 100 else f"{ratio:.0f}"

    return text(value), f"{text(low)} to {text(high)}" if low > 0 else ""
