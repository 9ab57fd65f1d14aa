"""optimize: search for a faster equivalent graph, with proofs and timings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from roofline.core.progress import Progress, Say, monotonic, silent
from roofline.core.text import counted
from roofline.errors import InputError, ModelError, argument
from roofline.pipeline.measured_comparisons import Candidate
from roofline.pipeline.optimization_figures import (
    ProvenGraph,
    ProvenSearch,
    WholePass,
    analysis_of,
    applied_rewrites,
    figures_of,
    is_slower,
    rejected_rewrites,
    weight_bytes,
    whole_passes,
)
from roofline.pipeline.optimization_machine import (
    CompileError,
    Machine,
    Trials,
    cast_model,
    check_bench,
    check_costs,
    decide,
    machine_for,
    open_costs,
    time_compiled,
    time_eager,
)
from roofline.pipeline.runs import Workload, build_workload, example_arguments
from roofline.pipeline.timing import materialize_model
from roofline.run import (
    InferenceKeywords,
    RunOptions,
    check_choice,
    check_functions,
    check_rounds,
    check_switches,
    takes,
)
from roofline.substitution.costs import CachedCosts, Cost, CostBasis, MeasuredCosts
from roofline.substitution.partitioned_search import DEFAULT_PIECE, search_partitions
from roofline.substitution.result import Optimization, Proof
from roofline.substitution.rules.rule import Rule, guard_rule, select_rules
from roofline.substitution.search import DEFAULT_ALPHA, DEFAULT_BUDGET, SearchResult, check_search
from roofline.substitution.search import Candidate as GraphCandidate
from roofline.workload.residency import trace_residency

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model
    from roofline.substitution.graphs.graph import Graph

Baseline = Literal["eager", "compile"]

DEFAULT_TIME_LIMIT_S = 60.0
"""Search time limit. Searches of torchvision models take seconds; longer ones end with the best
graph so far.
"""

_SEARCHED = 0.4
"""Fraction of the progress at the end of the search."""

_OWN_IS_FASTER = (
    "the best graph costs less than the captured graph, but not less than the model, which calls"
    " fewer operators (torch's fast path for transformers, or in-place writes that are copies in"
    " the graph)"
)

_NOT_AS_A_WHOLE = "the best graphs of its modules cost less alone, but not within the model"


@dataclass(frozen=True, kw_only=True)
class _Optimizer:
    """One model on one machine, with search options; ``baseline`` None: no timings."""

    asked: Workload
    machine: Machine
    rules: tuple[Rule, ...]
    alpha: float
    budget: int
    search: Callable[..., SearchResult]
    baseline: Baseline | None
    rounds: int | None
    fullgraph: bool
    force: bool
    progress: Progress
    say: Say

    def result(self) -> Optimization:
        from roofline.substitution.graphs.building import build_module
        from roofline.substitution.graphs.capturing import capture_graph
        from roofline.substitution.graphs.counting import count_records
        from roofline.substitution.graphs.operators import Operators
        from roofline.substitution.graphs.parts import capture_parts
        from roofline.substitution.proof import Prover

        asked, machine, name = self.asked, self.machine, self.asked.name
        self.progress(0.0, f"capturing {name}")
        first = asked.captured()
        original = materialize_model(asked)
        args, kwargs = example_arguments(asked.given, asked.run)
        operators = Operators()
        typed = cast_model(asked, original)
        parts, subject, given = None, typed, asked.given
        try:
            model = capture_graph(typed, args, kwargs, name=name, operators=operators)
        except ModelError as error:
            if self.fullgraph:
                option = argument("fullgraph")
                why = f"its modules are searched without {option} and .pt2 files"
                raise ModelError(f"{error}; {why}") from error
            parts = capture_parts(typed, given, asked.run, operators, name=name, whole=error)
            model, subject, given = parts.captured, parts.module, parts.inputs

        def count(graph: Graph, /, *, rest_bytes: int = 0) -> Any:
            return count_records(graph, operators, rest_bytes=rest_bytes)

        @cache
        def passed(each: GraphCandidate) -> WholePass:
            if each in wholes:
                return wholes[each]
            analysis = analysis_of(count(each.graph).records, first, machine)
            return each.cost, analysis, weight_bytes(each.graph, model)

        def search(rules: tuple[Rule, ...]) -> SearchResult:
            return self.search(
                model.graph,
                rules,
                costs,
                operators.complete,
                progress=lambda done, what: self.progress(
                    _SEARCHED * done, f"searching {name}: {what}"
                ),
            )

        def whole(graph: Graph) -> tuple[Proof, ...]:
            return prover.compare(parts.build(graph)) if parts and prover else ()

        prover = Prover(typed, model, asked.given, limits={}) if parts else None
        before = count(model.graph)
        activation_bytes = trace_residency(before.records).peak_activation_bytes
        with open_costs(
            machine,
            count,
            pass_bytes=weight_bytes(model.graph, model)
            + first.capture.input_bytes
            + activation_bytes,
            force=self.force,
            progress=lambda what: self.progress(0.0, what),
            say=self.say,
        ) as basis:
            costs = CachedCosts(basis)
            searched = ProvenSearch(
                tuple(map(guard_rule, self.rules)),
                search,
                Prover(
                    subject,
                    model,
                    given,
                    whole=whole,
                    on_compare=lambda: self.progress(_SEARCHED, f"comparing outputs of {name}"),
                ),
                operators.complete,
                costs=costs,
                with_alternatives=self.baseline is not None,
            )
            found, chosen, lost = searched.found, searched.found.original, searched.proven
            build = parts.build if parts else partial(build_module, model)
            modules = [original, *(build(each.candidate.graph) for each in lost)]
            wholes: dict[GraphCandidate, WholePass] = {}
            if parts:
                graphs = [found.original, *(each.candidate for each in lost)]
                wholes = whole_passes(asked, machine, basis, model, graphs, modules)
        eager, compiled, notes = self._timed((name, *(each.name for each in lost)), modules)
        place, decision = decide([each.is_tried for each in lost], eager, compiled)
        own_cost, analysis, _ = passed(found.original)
        if decision == "predicted faster" and place is not None:
            # The graph may have more operators than the model calls.
            cost, there, _ = passed(lost[place].candidate)
            own = analysis_of(first.capture.records, first, machine)
            why = _OWN_IS_FASTER if is_slower(there, analysis, own) else ""
            if cost.total_s >= own_cost.total_s:
                why = _NOT_AS_A_WHOLE
            if why:
                place, decision, lost = None, "nothing found", []
                notes = (*notes, why)
        is_kept = decision in ("not faster", "nothing found")
        samples = eager.samples if eager else (None,) * len(modules)
        own_figures = figures_of(*passed(found.original), samples[0])
        after_analysis, after_figures = analysis, own_figures
        substitutions, proofs = (), ()
        if place is not None:
            proven = lost[place]
            found, chosen, proofs = proven.found, proven.candidate, proven.proofs
            after = count(chosen.graph)
            after_analysis = passed(chosen)[1]
            after_figures = figures_of(*passed(chosen), samples[place + 1])
            timed = basis if isinstance(basis, MeasuredCosts) else None
            substitutions = applied_rewrites(
                chosen, self.rules, before, after, timed, is_applied=not is_kept
            )
            if parts:
                # Rows of the analyses are those of whole passes.
                substitutions = tuple(
                    replace(each, before_operators=(), after_operators=()) for each in substitutions
                )
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
            rejected=rejected_rewrites(found, chosen, searched.rolled_back, lost),
            proofs=proofs,
            rounds=tuple(each for trials in (eager, compiled) if trials for each in trials.rounds),
            statistics=found.statistics,
            parts=parts.rows if parts else (),
            warnings=tuple(
                dict.fromkeys(
                    (
                        *asked.notes,
                        *model.notes,
                        *(first.capture.notes if parts else ()),
                        *machine.notes,
                        *searched.notes,
                        *self._notes(own_cost, searched.proven),
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
        return "not requested" if self.machine.is_host else "another machine"

    def _timed(
        self, names: Sequence[str], modules: Sequence[Any]
    ) -> tuple[Trials | None, Trials | None, tuple[str, ...]]:
        """Return timings in eager torch and, if requested, under torch.compile, with notes."""
        if len(modules) < 2 or self.baseline is None:
            return None, None, ()
        dtype, threads = self.asked.options.dtype, self.machine.roof.threads
        # Inputs already include the batch.
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
        eager = time_eager(
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
            compiled = time_compiled(candidates, rounds=self.rounds, force=self.force, say=self.say)
        except CompileError as error:
            return eager, None, (f"{error}; decided by eager torch",)
        return eager, compiled, compiled.conditions

    def _notes(self, cost: Cost, proven: Sequence[ProvenGraph]) -> list[str]:
        notes = [self.machine.launch_source] if self.machine.launch_source else []
        if cost.unknown:
            operators = counted(len(cost.unknown), "operator")
            names = ", ".join(dict.fromkeys(cost.unknown))
            notes.append(f"unknown time of {operators} ({names}), not included in costs")
        for each in proven:
            types = {proof.dtype for proof in each.proofs}
            missing = [dtype for dtype in ("float64", "float32") if dtype not in types]
            if missing:
                notes.append(
                    f"outputs not compared in {' and '.join(missing)}: the model does not run in"
                    " that type"
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
    fullgraph: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[InferenceKeywords],
) -> Optimization:
    """Search for a faster graph that computes the same as a model (MetaFlow).

    The model becomes a graph of operators, which rules rewrite. The search expands graphs of lower,
    or slightly higher, cost on the machine. The best ones are compared with the model by their
    outputs and, on this machine, by interleaved timings. Without a significant speedup, the result
    is the given module. The given module stays unchanged.

    Args:
        model, inputs: as for `analyze`; inference only. Timings only on this machine.
        cost: what graphs are compared by: ``"bound"`` (minimum times and launches), ``"predicted"``
            (calibration of `calibrate`) or ``"measured"`` (each operator timed once on this
            machine, then cached). None: predicted if calibrated, else bound.
        alpha: expand graphs that cost less than `alpha` times the best; 1: improvements only.
        budget: maximum number of graphs to expand.
        rules: ``"all"``, ``"safe"`` (no added work, no changed layouts), or names of rules, as text
            with commas or as a sequence; ``-name`` excludes one, a path of a Python file adds the
            rules that it registers.
        split: search larger graphs in pieces of at most this number of operators; None: 120.
        baseline: runtime of the timings: ``"eager"`` torch, or ``"compile"``: `torch.compile` with
            freezing.
        fused: minimum times with operator fusion, as in compilers.
        measure: time original and result end to end; None: if the machine is this one.
        rounds: number of timing rounds; None: 7.
        time_limit_s: maximum search time in seconds; None: unlimited.
        fullgraph: refuse models that cannot be captured as a whole, as files (.pt2) need them.
            False: search those of their modules that can.
        force: time despite load from other processes.
        progress: called with the fraction done and the current step.
        say: called with messages about waits.

    Returns:
        The result: runnable ``module``, every rewrite with its saving, proofs and timings.

    Raises:
        ModelError: the model is unknown, cannot be built or captured, or rejects its inputs.
        InputError: invalid options, or options that require another machine.
        HardwareError: unknown hardware, or no data for the cost.
        MeasurementError: timings are disturbed by other processes.
    """
    is_measured = measure is not None and measure
    check_switches(fused=fused, measure=is_measured, fullgraph=fullgraph, force=force)
    check_functions(progress=progress, say=say)
    options = RunOptions.of(inputs, **run)
    timings = argument("baseline", baseline) if baseline == "compile" else ""
    timings = timings or (argument("rounds", rounds) if rounds is not None else "")
    check_costs(options.hardware, cost=cost, fused=fused, measure=measure, timings=timings)
    check_search(alpha, budget)
    check_choice("baseline", baseline, ("eager", "compile"))
    check_rounds(rounds)
    if split is not None and (type(split) is not int or split < 2):
        raise InputError(f"{argument('split', split)}: must be an integer of at least 2 operators")
    is_number = isinstance(time_limit_s, Real) and not isinstance(time_limit_s, bool)
    if time_limit_s is not None and not (is_number and 0 < time_limit_s < float("inf")):
        raise InputError(
            f"{argument('time_limit_s', time_limit_s)}: must be a number of seconds above 0"
        )
    chosen = select_rules(rules)
    machine = machine_for(options, cost=cost, fused=fused, progress=progress)
    asked = build_workload(model, inputs, options)
    is_timed = machine.is_host if measure is None else measure
    if is_timed:
        # Fail early if the result could not be timed.
        check_bench(force=force, say=say)
    return _Optimizer(
        asked=asked,
        machine=machine,
        rules=chosen,
        alpha=alpha,
        budget=budget,
        search=partial(
            search_partitions,
            threshold=DEFAULT_PIECE if split is None else split,
            alpha=alpha,
            budget=budget,
            time_limit_s=time_limit_s,
        ),
        baseline=baseline if is_timed else None,
        rounds=rounds,
        fullgraph=fullgraph,
        force=force,
        progress=monotonic(progress),
        say=say or silent,
    ).result()
