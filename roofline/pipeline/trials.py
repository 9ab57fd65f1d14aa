"""Findings tried on this machine: what each saves when the change is made, against the model as it
is, in turn with it."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from roofline.analysis import Analysis, Finding
from roofline.design.advice.alternatives import OnMachine
from roofline.design.advice.convolutions import FOLDABLE, fold_pairs
from roofline.design.advice.subject import Proposal, Subject
from roofline.design.advice.whole_model import Outcome
from roofline.design.model_comparison.measured_rounds import RoundTime
from roofline.errors import MeasurementError, RooflineError
from roofline.foundation.progress import Progress, Say, silent
from roofline.foundation.sampling import quantile
from roofline.foundation.units import format_s
from roofline.latency.measuring.rounds import Effort
from roofline.pipeline.fresh_processes import Runs, fresh_processes
from roofline.pipeline.isolation import last_level_bytes
from roofline.pipeline.operator_trials import SwapTimes, times_of_swaps
from roofline.pipeline.runs import RunOptions
from roofline.pipeline.timing import Bench, bench, measure_again, real_model
from roofline.pipeline.workloads import workload_of
from roofline.workload.runs import Run

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A model, and how it is run.

    ``folds`` are the modules of convolutions and of the batch norms that they take in.
    """

    model: Any
    inputs: Any
    batch: int | None
    seq: int | None
    run: Run
    threads: int
    folds: tuple[tuple[str, str], ...] = ()


def round_of(here: Bench, whole: Whole, effort: Effort) -> RoundTime:
    """Whole passes of a model; runs in a process of its own.

    Raises:
        ModelError: it raised.
        MeasurementError: what is to be folded are no modules that can be.
    """
    asked = workload_of(whole.model, whole.inputs, run=whole.run, batch=whole.batch, seq=whole.seq)
    model = real_model(asked)
    if whole.folds:
        model = folded(model, whole.folds)
    found = measure_again(here, asked, model, run=whole.run, threads=whole.threads, effort=effort)
    return RoundTime(times_s=found.sample.times_s, clock_hz=found.pace.clock_hz)


def folded(model: torch.nn.Module, pairs: Sequence[tuple[str, str]]) -> torch.nn.Module:
    """A copy of a model whose convolutions have taken in the batch norms behind them.

    Args:
        model: with its weights.
        pairs: the paths of each convolution and its norm.

    Raises:
        MeasurementError: one of them is another kind of module.
    """
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    changed = copy.deepcopy(model).eval()
    # Before any is replaced: one norm may stand behind several convolutions.
    found = [tuple(map(changed.get_submodule, pair)) for pair in pairs]
    for (first, second), (convolution, norm) in zip(pairs, found, strict=True):
        is_pair = isinstance(convolution, torch.nn.Conv2d)
        if not (is_pair and isinstance(norm, torch.nn.BatchNorm2d)):
            kinds = f"{type(convolution).__name__} and {type(norm).__name__}"
            raise MeasurementError(f"{kinds} cannot be folded by torch.nn.utils.fusion")
        _put(changed, first, fuse_conv_bn_eval(convolution, norm))
        _put(changed, second, torch.nn.Identity())
    return changed


def _put(model: torch.nn.Module, path: str, module: torch.nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


_PASSES = Effort(warm_ups=2, least=3, most=15, budget_s=0.5)
_QUICK_PASSES = Effort(warm_ups=1, least=3, most=5, budget_s=0.1)
_CALLS = Effort(warm_ups=2, least=7, most=30, budget_s=0.2)
_QUICK_CALLS = Effort(warm_ups=1, least=5, most=7, budget_s=0.05)
_ROUNDS, _QUICK_ROUNDS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds before and after, and the interval of what was saved."""

    before_s: float
    after_s: float
    low_s: float
    high_s: float

    @property
    def verdict(self) -> Literal["confirmed", "not confirmed"]:
        """Confirmed where the interval of the saving, from 10 to 90 % of rounds, is above zero."""
        return "confirmed" if self.low_s > 0 else "not confirmed"


def tried(
    model: Any,
    inputs: Any,
    options: dict[str, Any],
    *,
    analysis: Analysis,
    proposals: Sequence[Proposal],
    outcomes: Sequence[Outcome],
    top: int,
    quick: bool,
    force: bool,
    progress: Progress | None,
    say: Say | None,
) -> tuple[list[Proposal], list[Outcome], tuple[str, ...]]:
    """The proposals and outcomes with what was measured of the first `top` of all findings, and of
    what predictions could not tell; and what was wrong with the machine meanwhile.

    Args:
        model, inputs, options: as `advise` has them.
        analysis: of the model as it is.
        proposals: findings at operators.
        outcomes: what is expected of other ways to run it.
        top: how many findings are tried.
        quick: fewer rounds.
        force: measures although others compute.
        progress: told how far it is.
        say: told, in words, what is waited for.

    Raises:
        MeasurementError: the machine is busy.
    """
    savings = [each.finding.saving_s or 0.0 for each in (*proposals, *outcomes) if each.finding]
    least_s = sorted(savings, reverse=True)[:top][-1] if savings else 0.0

    def is_asked(finding: Finding | None) -> bool:
        return finding is not None and (finding.saving_s or 0.0) >= least_s

    with (
        bench(force=force, say=say or silent, progress=progress) as here,
        fresh_processes() as process,
    ):
        trial = Trial(process, here, model, inputs, options, analysis, quick=quick)
        steps = max(1, len(proposals) + len(outcomes))
        done = 0

        def report(what: str) -> None:
            nonlocal done
            if progress is not None:
                progress(done / steps, what)
            done += 1

        found: list[Proposal] = []
        for each in proposals:
            report(each.finding.rule)
            found.append(trial.of_operators(each) if is_asked(each.finding) else each)
        others: list[Outcome] = []
        for each in outcomes:
            report(each.variant.name)
            others.append(trial.of_model(each) if is_asked(each.finding) or each.is_open else each)
        return found, others, here.conditions


class Trial:
    """Tries changes of one model.

    Args:
        process: where it runs.
        here: this machine.
        model, inputs, options: as `advise` has them.
        analysis: of the model as it is.
        quick: fewer rounds.
    """

    def __init__(
        self,
        process: Runs,
        here: Bench,
        model: Any,
        inputs: Any,
        options: dict[str, Any],
        analysis: Analysis,
        *,
        quick: bool,
    ) -> None:
        self._process = process
        self._here = here
        self._analysis = analysis
        self._options = options
        self._is_quick = quick
        self._as_it_is = Whole(
            model=model,
            inputs=inputs,
            batch=options["batch"],
            seq=options["seq"],
            run=analysis.run,
            threads=analysis.threads,
        )

    def of_operators(self, proposal: Proposal) -> Proposal:
        """The proposal with its finding tried: in the whole model where it can be, else alone."""
        finding = proposal.finding
        if finding.rule == FOLDABLE:
            subject = Subject(self._analysis, OnMachine(self._analysis, None))
            folds = tuple(fold_pairs(subject))
            try:
                measured = self._whole(replace(self._as_it_is, folds=folds))
                return replace(proposal, finding=with_measured(finding, measured))
            except (RooflineError, MemoryError) as error:
                # The norms alone would be timed against nothing, which always saves their time.
                words = f"not tried: {str(error) or 'out of memory'}"
                return replace(proposal, finding=replace(finding, note=words))
        if not proposal.swaps:
            return replace(
                proposal, finding=replace(finding, note="no single change of it can be tried")
            )
        effort = _QUICK_CALLS if self._is_quick else _CALLS
        try:
            times = self._process(
                times_of_swaps,
                self._here,
                proposal.swaps,
                self._analysis.threads,
                last_level_bytes(self._here.profile),
                effort,
            )
        except (RooflineError, MemoryError) as error:
            words = str(error) or "out of memory"
            return replace(proposal, finding=replace(finding, note=f"not tried: {words}"))
        measured = together(times)
        note = "its operators timed on their own"
        if not any(each.after for each in proposal.swaps):
            note += ", with nothing in their place"
        return replace(proposal, finding=replace(with_measured(finding, measured), note=note))

    def of_model(self, outcome: Outcome) -> Outcome:
        """The outcome with its variant tried, and a finding of it where only that confirms it."""
        variant, finding = outcome.variant, outcome.finding
        changed = {**self._options, **variant.options}
        run = RunOptions(
            dtype=changed["dtype"],
            channels_last=changed["channels_last"],
            autocast=changed["autocast"],
        ).run()
        other = replace(
            self._as_it_is,
            batch=changed["batch"],
            run=run,
            threads=changed["threads"] or self._analysis.threads,
        )
        try:
            measured = self._whole(other, samples=variant.samples, environment=variant.environment)
        except (RooflineError, MemoryError) as error:
            words = str(error) or "out of memory"
            if finding is None:
                return replace(outcome, words=f"{outcome.words}; not tried: {words}")
            return replace(outcome, finding=replace(finding, note=f"not tried: {words}"))
        if finding is not None:
            return replace(outcome, finding=with_measured(finding, measured))
        times = f"{format_s(measured.after_s)} instead of {format_s(measured.before_s)}"
        words = f"{outcome.words}; measured {times}"
        if measured.verdict != "confirmed":
            return replace(outcome, words=words)
        found = Finding(
            rule=variant.rule,
            evidence=f"{outcome.words}, but {times} when it was tried",
            change=variant.change,
        )
        return replace(outcome, finding=with_measured(found, measured), words="")

    def _whole(
        self, other: Whole, *, samples: float = 1.0, environment: Mapping[str, str] | None = None
    ) -> Measured:
        """The model as it is and another one, in turn, each pass in a process of its own."""
        effort = _QUICK_PASSES if self._is_quick else _PASSES
        pairs: list[tuple[RoundTime, RoundTime]] = []
        with contextlib.ExitStack() as stack:
            process = self._process
            if environment:
                process = stack.enter_context(fresh_processes(environment=environment))
            for _ in range(_QUICK_ROUNDS if self._is_quick else _ROUNDS):
                before = self._process(round_of, self._here, self._as_it_is, effort)
                pairs.append((before, process(round_of, self._here, other, effort)))
        return of_rounds(pairs, samples=samples)


def of_rounds(pairs: Sequence[tuple[RoundTime, RoundTime]], *, samples: float = 1.0) -> Measured:
    """What rounds of a model before and after a change say, both at one clock in each.

    Args:
        pairs: the rounds.
        samples: how many times as many samples a pass after the change has.
    """
    before_s = [before.measured_s for before, _ in pairs]
    after_s = [after.at_clock_of(before) / samples for before, after in pairs]
    saved_s = [one - other for one, other in zip(before_s, after_s, strict=True)]
    before, saved = median(before_s), median(saved_s)
    return Measured(
        before_s=before,
        # So that what is saved is their difference.
        after_s=max(0.0, before - saved),
        low_s=quantile(saved_s, 0.1),
        high_s=quantile(saved_s, 0.9),
    )


def together(times: Sequence[SwapTimes]) -> Measured:
    """What several swaps save together; equal ones were timed once, and vary together."""
    counts = Counter(times)
    before_s = sum(median(each.before_s) * count for each, count in counts.items())
    saved_s = sum(median(each.savings_s) * count for each, count in counts.items())
    below = [
        count * (median(each.savings_s) - quantile(each.savings_s, 0.1))
        for each, count in counts.items()
    ]
    above = [
        count * (quantile(each.savings_s, 0.9) - median(each.savings_s))
        for each, count in counts.items()
    ]
    return Measured(
        before_s=before_s,
        after_s=max(0.0, before_s - saved_s),
        low_s=saved_s - math.hypot(*below),
        high_s=saved_s + math.hypot(*above),
    )


def with_measured(finding: Finding, measured: Measured) -> Finding:
    """The finding with what trying it gave."""
    return replace(
        finding,
        measured_before_s=measured.before_s,
        measured_after_s=measured.after_s,
        measured_low_s=measured.low_s,
        measured_high_s=measured.high_s,
        verdict=measured.verdict,
    )
