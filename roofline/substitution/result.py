"""What a search for a faster graph found: the value that `roofline.optimize` gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from roofline.analysis import Analysis
from roofline.foundation.rows import json_text
from roofline.substitution.costs.cost import CostBasis

if TYPE_CHECKING:
    import pandas

Decision = Literal["measured faster", "predicted faster", "not faster", "nothing found"]
"""``measured faster``: confirmed by the clock; ``predicted faster``: for another machine, or not
timed; ``not faster``: what the search chose is not significantly faster when timed, so the original
is returned; ``nothing found``: no graph costs less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One pass of a model before or after, in the terms of table 2 of the MetaFlow article.

    ``cost_s`` is by the search's own cost. ``measured_s`` is the median of whole passes with the
    interval from 10 to 90 % of rounds, None where none was timed. ``flop_per_s`` and
    ``share_of_roof`` follow from the measured time, else from the cost. The minimum times are
    those of the analysis, as in `Totals`: no result takes less than ``model_min_time_s`` of the
    original.
    """

    cost_s: float
    traffic_byte: int
    launches: int
    flop: int | None
    weight_byte: int
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
    """One rewrite that was made, or was not.

    ``where`` names the modules or operators concerned. ``why`` says in words what it changes, or
    why it was not made. Costs are of the whole model, before and after it, in the order in which
    rewrites were made; of one that was refused for its precondition there are none. Measured
    figures are of the operators that it replaces and of those that it puts there, None where they
    were not timed. ``before_operators`` and ``after_operators`` are rows of the two analyses.
    """

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
        """What it saves by the search's cost, in seconds; below 0: what it adds."""
        if self.cost_before_s is None or self.cost_after_s is None:
            return None
        return self.cost_before_s - self.cost_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Outputs of the original and of the result on one kind of inputs, in one data type.

    ``largest_error`` is the largest difference over the largest reference value, as a fraction;
    ``limit`` what it may be. ``same_argmax`` is the share of rows whose largest output is the same,
    None where the outputs are no rows of scores. ``weights`` are whose: the model's, or random.
    """

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
    """Original and result timed in turn, one way to run them.

    ``baseline`` is ``"eager"`` or ``"compile"`` (torch.compile with freezing). ``speedup`` is the
    median of rounds of original over result, with the interval from 10 to 90 %. ``allocator`` names
    the settings of malloc meanwhile (``""``: not known).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStatistics:
    """How much was searched.

    ``expanded`` graphs were looked through for rewrites, ``evaluated`` were given a cost,
    ``duplicates`` met again, ``pruned`` for their cost. ``ended`` says why it ended:
    ``"exhausted"`` (nothing was left to try), ``"budget"`` or ``"time"``. ``pieces`` were searched
    one by one.
    """

    expanded: int
    evaluated: int
    duplicates: int
    pruned: int
    pieces: int
    seconds: float
    ended: Literal["exhausted", "budget", "time"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimization:
    """A model, the faster graph that was found for it, and what speaks for it.

    ``module`` is the result, ready to run: the given model itself where nothing was gained.
    Where the decision is ``not faster``, ``after``, ``figures_after`` and ``substitutions`` are
    of what the search chose and the clock refused, so that both can be seen; none is applied then.
    ``before`` and ``after`` are analyses of the original graph and of the result on the machine,
    ``cost`` what the search went by. ``substitutions`` were made, in their order; ``rejected`` were
    not, each with the reason. ``rounds`` are end-to-end timings of all that was timed, ``proofs``
    comparisons of outputs, ``captured_by`` is ``"torch.export"`` or ``"torch.fx"``.
    ``not_timed`` says in words why nothing was timed (``"another machine"``), ``""`` where it was.
    ``arguments`` are those that the model was captured with: positional ones, and keywords.
    """

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

    def __repr__(self) -> str:
        return f"<Optimization: {self.summary}>"

    @property
    def is_kept(self) -> bool:
        """Whether the original is returned."""
        return self.decision in ("not faster", "nothing found")

    @property
    def summary(self) -> str:
        """The verdict, in a sentence."""
        from roofline.substitution.verdict import verdict

        return verdict(self)

    def to_frame(self) -> pandas.DataFrame:
        """One row a rewrite, made or rejected; what is unknown is missing, never 0."""
        from roofline.substitution.data import rewrites_frame

        return rewrites_frame(self)

    def to_json(self) -> str:
        """All of it but the module as JSON text, the two analyses whole."""
        from roofline.substitution.data import data_of

        return json_text(data_of(self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes it to a file whose suffix says how: .json .csv .md .html .png .svg, or .pt2.

        A .pt2 file holds the module, for ``torch.export.load``.

        Raises:
            InputError: an unknown suffix, a file that exists, a folder that cannot be written, or a
                module that torch cannot export.
        """
        from roofline.presentation.optimization_output import write_optimization

        write_optimization(self, [Path(path)], overwrite=overwrite)

    def plot(self, **options: Any) -> Any:
        """Each rewrite as an arrow under the roof, in a matplotlib Figure.

        The options are those of `optimization_figure.plot_optimization`.
        """
        from roofline.presentation.optimization_figure import plot_optimization

        return plot_optimization(self, **options)

    def _repr_html_(self) -> str:
        from roofline.presentation.reports.optimization_report import optimization_html

        return optimization_html(self)
