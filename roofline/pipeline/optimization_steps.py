"""One model searched for a faster graph, proven and timed: the steps of optimize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from roofline.foundation.progress import Progress, Say
from roofline.pipeline.optimization_figures import (
    Counts,
    analysis_of,
    figures_of,
    is_slower,
    made,
    rejected,
    weight_bytes,
)
from roofline.pipeline.optimization_machine import Machine, costs_on
from roofline.pipeline.optimization_search import RememberedCosts, Searched, searched
from roofline.pipeline.optimization_subject import arguments_of, in_type_of
from roofline.pipeline.optimization_trials import (
    CompileError,
    Contender,
    Subjects,
    Trials,
    compiled_trials,
    decided,
    eager_trials,
)
from roofline.pipeline.timing import real_model
from roofline.pipeline.workloads import Workload
from roofline.substitution.costs.measurements import MeasuredCosts
from roofline.substitution.result import Optimization
from roofline.substitution.rules.guarded import guarded
from roofline.substitution.rules.rule import Rule
from roofline.substitution.search.found import Found
from roofline.substitution.search.in_pieces import DEFAULT_PIECE, search_in_pieces
from roofline.workload.residency import residency
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch

    from roofline.substitution.graphs.capturing import CapturedModel
    from roofline.substitution.graphs.graph import Graph

Baseline = Literal["eager", "compile"]


@dataclass(frozen=True, kw_only=True)
class Optimizing:
    """One model, one machine, and how it is searched."""

    asked: Workload
    run: Run
    machine: Machine
    rules: tuple[Rule, ...]
    alpha: float
    budget: int
    split: int | None
    time_limit_s: float | None
    baseline: Baseline
    is_timed: bool
    not_timed: str
    rounds: int | None
    force: bool
    progress: Progress
    say: Say

    def result(self) -> Optimization:
        """The whole of it.

        Raises:
            ModelError: the model cannot be captured, or raised.
            MeasurementError: something is to be timed, and others compute.
        """
        from roofline.substitution.graphs.building import built
        from roofline.substitution.graphs.capturing import captured
        from roofline.substitution.graphs.counting import records
        from roofline.substitution.graphs.operators import Operators
        from roofline.workload.capture.passes import capture

        asked, name = self.asked, self.asked.source.name
        self.progress(0.0, f"capturing {name}")
        first = capture(
            asked.source.module, asked.given, name=name, run=self.run, rebuild=asked.source.rebuild
        )
        original = real_model(asked)
        args, kwargs = arguments_of(asked.given, self.run)
        operators = Operators()
        typed = in_type_of(self.run, original, name=name)
        model = captured(typed, args, kwargs, name=name, operators=operators)

        def count(graph: Graph, /, *, around_bytes: int = 0) -> Any:
            return records(graph, operators, around_bytes=around_bytes)

        def counts(graph: Graph) -> Counts:
            return Counts(
                graph=graph, counted=count(graph), weight_bytes=weight_bytes(graph, model)
            )

        before = counts(model.graph)
        reuse = residency(before.counted.records)
        with costs_on(
            self.machine,
            count,
            pass_bytes=before.weight_bytes + first.input_bytes + reuse.peak_activation_bytes,
            force=self.force,
            progress=lambda what: self.progress(0.0, what),
            say=self.say,
        ) as costs:
            search_result = self._searched(typed, model, operators, RememberedCosts(costs))
        measured = costs if isinstance(costs, MeasuredCosts) else None
        contenders = tuple(
            Contender(name=each.name, module=built(model, each.candidate.graph))
            for each in search_result.proven
        )
        eager, compiled, notes = self._timed(original, contenders)
        place, decision = decided([each.is_tried for each in search_result.proven], eager, compiled)
        found = search_result.found
        chosen, lost = found.original, search_result.proven
        analysis = analysis_of(before.counted.records, first, asked, self.machine)
        if decision == "predicted faster" and place is not None:
            # The graph may have more operators than the model calls: what gains on the one may not
            # on the other.
            chosen_there = count(search_result.proven[place].candidate.graph)
            result = analysis_of(chosen_there.records, first, asked, self.machine)
            own = analysis_of(first.records, first, asked, self.machine)
            if is_slower(result, analysis, own):
                place, decision, lost = None, "nothing found", ()
                notes = (*notes, _OWN_IS_FASTER)
        is_kept = decision in ("not faster", "nothing found")
        figures = figures_of(
            found.original.cost, analysis, before, eager.samples[0] if eager else None
        )
        after, after_analysis, after_figures = before, analysis, figures
        substitutions, proofs = (), ()
        if place is not None:
            proven = search_result.proven[place]
            after = counts(proven.candidate.graph)
            after_analysis = analysis_of(after.counted.records, first, asked, self.machine)
            sample = eager.samples[place + 1] if eager else None
            after_figures = figures_of(proven.candidate.cost, after_analysis, after, sample)
            substitutions = made(
                proven.candidate, self.rules, before, after, measured, is_applied=not is_kept
            )
            proofs = proven.proofs
            chosen = proven.candidate
            lost = tuple(each for each in search_result.proven if each is not proven)
            found = proven.found
        return Optimization(
            model=name,
            decision=decision,
            cost=self.machine.basis,
            alpha=self.alpha,
            budget=self.budget,
            rules=tuple(rule.name for rule in self.rules),
            is_fused=self.machine.is_fused,
            captured_by=model.by,
            before=analysis,
            after=after_analysis,
            figures_before=figures,
            figures_after=after_figures,
            substitutions=substitutions,
            rejected=rejected(found, chosen, search_result.rolled_back, lost),
            proofs=proofs,
            rounds=(*(eager.rounds if eager else ()), *(compiled.rounds if compiled else ())),
            statistics=found.statistics,
            warnings=tuple(
                dict.fromkeys(
                    (
                        *self._notes(model, search_result),
                        *analysis.warnings,
                        *(eager.conditions if eager else ()),
                        *notes,
                    )
                )
            ),
            not_timed="" if eager or not contenders else self.not_timed,
            module=original if is_kept or place is None else contenders[place].module,
            arguments=(args, kwargs),
        )

    def _searched(
        self,
        original: torch.nn.Module,
        model: CapturedModel,
        operators: Any,
        costs: RememberedCosts,
    ) -> Searched:
        from roofline.substitution.proof import Prover

        prover = Prover(original, model, self.asked.given)

        rules = tuple(map(guarded, self.rules))

        def search_with(allowed: tuple[Rule, ...]) -> Found:
            return search_in_pieces(
                model.graph,
                allowed,
                costs,
                operators.complete,
                threshold=DEFAULT_PIECE if self.split is None else self.split,
                alpha=self.alpha,
                budget=self.budget,
                time_limit_s=self.time_limit_s,
                progress=lambda done, what: self.progress(
                    _SEARCHED * done, f"searching {model.name}: {what}"
                ),
            )

        def prove(graph: Graph) -> Any:
            self.progress(_SEARCHED, f"comparing outputs of {model.name}")
            return prover.prove(graph)

        return searched(
            rules,
            search_with,
            prove,
            prover.fails,
            operators.complete,
            costs=costs,
            with_alternatives=self.is_timed,
        )

    def _timed(
        self, original: torch.nn.Module, contenders: tuple[Contender, ...]
    ) -> tuple[Trials | None, Trials | None, tuple[str, ...]]:
        """End to end in eager torch, and where asked for under torch.compile; and what to say."""
        if not contenders or not self.is_timed:
            return None, None, ()
        subjects = Subjects(
            original=Contender(name=self.asked.source.name, module=original),
            contenders=contenders,
            inputs=self.asked.given,
            run=self.run,
            threads=self.machine.roof.threads,
        )
        eager = eager_trials(
            subjects,
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
            compiled = compiled_trials(subjects, rounds=self.rounds, force=self.force, say=self.say)
        except CompileError as error:
            return eager, None, (f"{error}; the decision is by eager torch",)
        return eager, compiled, compiled.conditions

    def _notes(self, model: CapturedModel, result: Searched) -> list[str]:
        notes = [*self.asked.notes, *model.notes, *self.machine.notes, *result.notes]
        if self.machine.launches_said:
            notes.append(self.machine.launches_said)
        unknown = result.found.original.cost.unknown
        if unknown:
            names = ", ".join(dict.fromkeys(unknown))
            notes.append(
                f"the time of {len(unknown)} operators is not known ({names}): costs leave them out"
            )
        for each in result.proven:
            types = {proof.dtype for proof in each.proofs}
            missing = [each for each in ("float64", "float32") if each not in types]
            if missing:
                notes.append(
                    f"outputs were not compared in {' and '.join(missing)}: the model does not run"
                    " in that type"
                )
        return notes


_OWN_IS_FASTER = (
    "what was found costs less than the graph, and no less than the model itself, which calls fewer"
    " operators than its graph has (torch's fast path for transformers, or it writes into parts of"
    " tensors where the graph copies)"
)

_SEARCHED = 0.4
"""The share of the work that is done when the search is."""
