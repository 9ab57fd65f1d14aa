"""optimize: a graph that computes the same in less time, searched, proven, and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from roofline.core.progress import Progress, Say, onwards, silent
from roofline.core.sampling import Sample
from roofline.errors import InputError, argument
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.optimization_figures import (
    Proven,
    Searched,
    analysis_of,
    figures_of,
    is_slower,
    made,
    rejected,
    weight_bytes,
)
from roofline.pipeline.optimization_machine import (
    CompileError,
    Machine,
    Trials,
    check_bench,
    check_costs,
    compiled_trials,
    costs_on,
    decided,
    eager_trials,
    in_type_of,
    machine_for,
)
from roofline.pipeline.runs import Workload, arguments_of, workload_of
from roofline.pipeline.timing import real_model
from roofline.run import (
    InferenceKeywords,
    RunOptions,
    check_choice,
    check_functions,
    check_rounds,
    check_switches,
    takes,
)
from roofline.substitution.costs import CostBasis, MeasuredCosts, RememberedCosts
from roofline.substitution.pieces import DEFAULT_PIECE, search_in_pieces
from roofline.substitution.result import Optimization
from roofline.substitution.rules.rule import Rule, guarded, rules_named
from roofline.substitution.search import DEFAULT_ALPHA, DEFAULT_BUDGET, Found, check
from roofline.substitution.search import Candidate as GraphCandidate
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model
    from roofline.substitution.graphs.graph import Graph

Baseline = Literal["eager", "compile"]

DEFAULT_TIME_LIMIT_S = 60.0
"""A search among torchvision's models takes seconds; what takes longer is cut off here with the
best so far, and the result says so."""

_SEARCHED = 0.4
"""The share of the work that is done when the search is."""

_OWN_IS_FASTER = (
    "what was found costs less than the graph, and no less than the model itself, which calls fewer"
    " operators than its graph has (torch's fast path for transformers, or it writes into parts of"
    " tensors where the graph copies)"
)


@dataclass(frozen=True, kw_only=True)
class _Optimizing:
    """One model, one machine, and how it is searched; ``baseline`` is None where none is timed."""

    asked: Workload
    machine: Machine
    rules: tuple[Rule, ...]
    alpha: float
    budget: int
    search: Callable[..., Found]
    baseline: Baseline | None
    rounds: int | None
    force: bool
    progress: Progress
    say: Say

    def result(self) -> Optimization:
        """The whole of it."""
        from roofline.substitution.graphs.building import built
        from roofline.substitution.graphs.capturing import captured
        from roofline.substitution.graphs.counting import records
        from roofline.substitution.graphs.operators import Operators
        from roofline.substitution.proof import Prover

        asked, machine, name = self.asked, self.machine, self.asked.name
        self.progress(0.0, f"capturing {name}")
        first = asked.captured()
        original = real_model(asked)
        args, kwargs = arguments_of(asked.given, asked.run)
        operators = Operators()
        typed = in_type_of(asked, original)
        model = captured(typed, args, kwargs, name=name, operators=operators)

        def count(graph: Graph, /, *, around_bytes: int = 0) -> Any:
            return records(graph, operators, around_bytes=around_bytes)

        def analyzed(graph_records: Any) -> Any:
            return analysis_of(graph_records, first, machine)

        def figures(each: GraphCandidate, analysis: Any, sample: Sample | None) -> Any:
            return figures_of(each.cost, analysis, weight_bytes(each.graph, model), sample)

        def search(rules: tuple[Rule, ...]) -> Found:
            return self.search(
                model.graph,
                rules,
                costs,
                operators.complete,
                progress=lambda done, what: self.progress(
                    _SEARCHED * done, f"searching {name}: {what}"
                ),
            )

        before = count(model.graph)
        activation_bytes = trace_residency(before.records).peak_activation_bytes
        with costs_on(
            machine,
            count,
            pass_bytes=weight_bytes(model.graph, model)
            + first.capture.input_bytes
            + activation_bytes,
            force=self.force,
            progress=lambda what: self.progress(0.0, what),
            say=self.say,
        ) as basis:
            costs = RememberedCosts(basis)
            searched = Searched(
                tuple(map(guarded, self.rules)),
                search,
                Prover(
                    typed,
                    model,
                    asked.given,
                    told=lambda: self.progress(_SEARCHED, f"comparing outputs of {name}"),
                ),
                operators.complete,
                costs=costs,
                with_alternatives=self.baseline is not None,
            )
        found, chosen, lost = searched.found, searched.found.original, searched.proven
        modules = [original, *(built(model, each.candidate.graph) for each in lost)]
        eager, compiled, notes = self._timed((name, *(each.name for each in lost)), modules)
        place, decision = decided([each.is_tried for each in lost], eager, compiled)
        analysis = analyzed(before.records)
        if decision == "predicted faster" and place is not None:
            # The graph may have more operators than the model calls: what gains on the one may not
            # on the other.
            there = analyzed(count(lost[place].candidate.graph).records)
            if is_slower(there, analysis, analyzed(first.capture.records)):
                place, decision, lost = None, "nothing found", []
                notes = (*notes, _OWN_IS_FASTER)
        is_kept = decision in ("not faster", "nothing found")
        samples = eager.samples if eager else (None,) * len(modules)
        own_figures = figures(found.original, analysis, samples[0])
        after_analysis, after_figures = analysis, own_figures
        substitutions, proofs = (), ()
        if place is not None:
            proven = lost[place]
            found, chosen, proofs = proven.found, proven.candidate, proven.proofs
            after = count(chosen.graph)
            after_analysis = analyzed(after.records)
            after_figures = figures(chosen, after_analysis, samples[place + 1])
            timed = basis if isinstance(basis, MeasuredCosts) else None
            substitutions = made(chosen, self.rules, before, after, timed, is_applied=not is_kept)
            lost = [each for each in lost if each is not proven]
        return Optimization(
            model=name,
            decision=decision,
            cost=machine.basis,
            alpha=self.alpha,
            budget=self.budget,
            rules=tuple(rule.name for rule in self.rules),
            is_fused=machine.is_fused,
            captured_by=model.by,
            before=analysis,
            after=after_analysis,
            figures_before=own_figures,
            figures_after=after_figures,
            substitutions=substitutions,
            rejected=rejected(found, chosen, searched.rolled_back, lost),
            proofs=proofs,
            rounds=tuple(each for trials in (eager, compiled) if trials for each in trials.rounds),
            statistics=found.statistics,
            warnings=tuple(
                dict.fromkeys(
                    (
                        *asked.notes,
                        *model.notes,
                        *machine.notes,
                        *searched.notes,
                        *self._notes(searched.found, searched.proven),
                        *analysis.warnings,
                        *(eager.conditions if eager else ()),
                        *notes,
                    )
                )
            ),
            not_timed="" if eager or not searched.proven else self._not_timed,
            module=original if is_kept or place is None else modules[place + 1],
            arguments=(args, kwargs),
        )

    @property
    def _not_timed(self) -> str:
        return "it was not asked for" if self.machine.is_host else "another machine"

    def _timed(
        self, names: Sequence[str], modules: Sequence[Any]
    ) -> tuple[Trials | None, Trials | None, tuple[str, ...]]:
        """End to end in eager torch, and where asked for under torch.compile; and what to say."""
        if len(modules) < 2 or self.baseline is None:
            return None, None, ()
        dtype, threads = self.asked.options.dtype, self.machine.roof.threads
        # Inputs are those of the batch already.
        options = RunOptions(dtype=dtype, threads=threads)
        candidates = tuple(
            Candidate(
                name=name,
                model=module,
                inputs=self.asked.given,
                options=options,
            )
            for name, module in zip(names, modules, strict=True)
        )
        eager = eager_trials(
            candidates,
            rounds=self.rounds,
            force=self.force,
            progress=lambda done, what: self.progress(
                _SEARCHED + (1.0 - _SEARCHED) * done, f"timing {what}"
            ),
            say=self.say,
        )
        if self.baseline == "eager":
            return eager, None, ()
        try:
            compiled = compiled_trials(
                candidates, rounds=self.rounds, force=self.force, say=self.say
            )
        except CompileError as error:
            return eager, None, (f"{error}; the decision is by eager torch",)
        return eager, compiled, compiled.conditions

    def _notes(self, found: Found, proven: Sequence[Proven]) -> list[str]:
        notes = [self.machine.launches_said] if self.machine.launches_said else []
        unknown = found.original.cost.unknown
        if unknown:
            names = ", ".join(dict.fromkeys(unknown))
            notes.append(
                f"the time of {len(unknown)} operators is not known ({names}): costs leave them out"
            )
        for each in proven:
            types = {proof.dtype for proof in each.proofs}
            missing = [dtype for dtype in ("float64", "float32") if dtype not in types]
            if missing:
                notes.append(
                    f"outputs were not compared in {' and '.join(missing)}: the model does not run"
                    " in that type"
                )
        return notes


@takes(InferenceKeywords)
def optimize(
    model: Model,
    inputs: Any = None,
    *,
    cost: CostBasis | None = None,
    alpha: float = DEFAULT_ALPHA,
    budget: int = DEFAULT_BUDGET,
    rules: str | Path | Sequence[str | Path] = "all",
    split: int | None = None,
    baseline: Baseline = "eager",
    fused: bool = False,
    measure: bool | None = None,
    rounds: int | None = None,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[InferenceKeywords],
) -> Optimization:
    """Searches for a graph that computes what a model computes in less time (MetaFlow).

    The model's operators become a graph, rules rewrite it, and those graphs are followed that cost
    less, or little more, on the machine. The best are compared with the model, output by output,
    and on this machine timed against it. Where none is significantly faster the module that was
    given is the result. A module that is given is left as it was.

    Args:
        model, inputs: as for `analyze`; inference only. On another machine than this, nothing is
            timed.
        cost: what graphs are held against: ``"bound"`` (the roofline, and launches),
            ``"predicted"`` (what was learned by `calibrate`) or ``"measured"`` (every operator is
            timed once on this machine, and remembered). None: predicted where the machine was
            calibrated, else bound.
        alpha: graphs are followed that cost less than `alpha` times the best; 1: only better ones.
        budget: how many graphs are looked through for rewrites at most.
        rules: ``"all"``, ``"safe"`` (no added work, no changed layouts), or names of rules, as text
            with commas between or as a sequence; ``-name`` leaves one out, a path of a Python file
            adds the rules that it registers.
        split: models of more operators than this are searched in pieces of no more; None: 120.
        baseline: what the result must beat: ``"eager"`` torch, or ``"compile"``: both under
            `torch.compile` with freezing.
        fused: bounds of kernels with what follows them in one, as compilers run them.
        measure: times the result end to end; None: where the machine is this one.
        rounds: how often all are timed; None: 7.
        time_limit_s: how long a search may take in seconds; None: as long as it does.
        force: times although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for.

    Returns:
        The result: ``module`` ready to run, every rewrite with its saving, and what speaks for it.

    Raises:
        ModelError: the model is unknown, cannot be built or captured, or rejects its inputs.
        InputError: an option is wrong, or asks for another machine than the one named.
        HardwareError: unknown hardware, or nothing is known of it that costs can go by.
        MeasurementError: something is to be timed, and others compute.
    """
    check_switches(fused=fused, measure=measure is not None and measure, force=force)
    check_functions(progress=progress, say=say)
    options = RunOptions.of(inputs, **run)
    timings = argument("baseline", baseline) if baseline == "compile" else ""
    timings = timings or (argument("rounds", rounds) if rounds is not None else "")
    check_costs(options.hardware, cost=cost, fused=fused, measure=measure, timings=timings)
    check(alpha, budget)
    check_choice("baseline", baseline, ("eager", "compile"))
    check_rounds(rounds)
    if split is not None and (type(split) is not int or split < 2):
        raise InputError(f"{argument('split', split)}: must be a whole number of operators from 2")
    is_number = isinstance(time_limit_s, Real) and not isinstance(time_limit_s, bool)
    if time_limit_s is not None and not (is_number and 0 < time_limit_s < float("inf")):
        raise InputError(
            f"{argument('time_limit_s', time_limit_s)}: must be a number of seconds above 0"
        )
    chosen = rules_named(rules)
    machine = machine_for(options, cost=cost, fused=fused, progress=progress)
    asked = workload_of(model, inputs, options)
    is_timed = machine.is_host if measure is None else measure
    if is_timed:
        # Before minutes go into a search whose result could not be timed.
        check_bench(force=force, say=say)
    return _Optimizing(
        asked=asked,
        machine=machine,
        rules=chosen,
        alpha=alpha,
        budget=budget,
        search=partial(
            search_in_pieces,
            threshold=DEFAULT_PIECE if split is None else split,
            alpha=alpha,
            budget=budget,
            time_limit_s=time_limit_s,
        ),
        baseline=baseline if is_timed else None,
        rounds=rounds,
        force=force,
        progress=onwards(progress),
        say=say or silent,
    ).result()
