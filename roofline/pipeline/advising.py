"""Entry point `advise`: longest layers, and changes of a model that save time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis, ranked
from roofline.core.progress import Progress, Say
from roofline.design.advice.result import Advice
from roofline.design.advice.rules import judged_rules, proposals_of
from roofline.design.advice.subject import Subject
from roofline.design.advice.transformers import compilation
from roofline.design.advice.whole_model import (
    Outcome,
    Variant,
    outcome_of,
    variants_of,
    without_faults,
)
from roofline.errors import InputError, RooflineError, argument
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.machines import load_predictor, names_host
from roofline.pipeline.predictions import predict
from roofline.run import PredictedKeywords, RunOptions, takes

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


@takes(PredictedKeywords)
def advise(
    model: Model,
    inputs: Any = None,
    *,
    measure: bool = False,
    quick: bool = False,
    top: int = 10,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[PredictedKeywords],
) -> Advice:
    """Find changes of a model that save time: predicted savings, then those of minimum times.

    Rules check every operator; then the model is predicted in another layout, other types, larger
    batches and with other threads. A finding saves at least 1 % of a pass, with an interval above
    0. Without predictions, savings are those of minimum times, with GEMM and convolution at the
    rates measured for torch.

    Args:
        model, inputs: as for `predict`.
        measure: measure the findings on this machine, interleaved with the unchanged model.
        quick: use fewer rounds.
        top: number of findings to measure.
        force: measure on a busy machine too.
        progress: called with the progress.
        say: called with messages on delays.

    Raises:
        ModelError, InputError, HardwareError: as `predict`.
        MeasurementError: busy machine.
    """
    if quick and not measure:
        raise InputError(
            f"{argument('quick', True)} has no effect without {argument('measure', True)}"
        )
    if type(top) is not int or top < 1:
        raise InputError(f"{argument('top', top)}: must be a whole number from 1")
    if measure:
        _check_can_be_tried(RunOptions.of(inputs, **run))
    analysis = predict(model, inputs, progress=progress, **run)
    hardware, no_cache = run.get("hardware"), run.get("no_cache", False)
    predictor = load_predictor(analysis.hardware, hardware, analysis.run, no_cache=no_cache)
    proposals = list(proposals_of(analysis, predictor))
    judged, unjudged = judged_rules(analysis, predictor)
    proposals += compilation(Subject(analysis, predictor))
    outcomes = _best_of_each(
        [
            _outcome(model, inputs, {**run, "progress": progress}, analysis, each)
            for each in variants_of(analysis)
        ]
    )
    if measure:
        from roofline.pipeline.trials import try_findings

        proposals, outcomes, conditions = try_findings(
            model,
            inputs,
            RunOptions.of(inputs, **run),
            analysis=analysis,
            proposals=proposals,
            outcomes=outcomes,
            top=top,
            quick=quick,
            force=force,
            progress=progress,
            say=say,
        )
        analysis = replace(analysis, warnings=(*analysis.warnings, *conditions))
    findings = [each.finding for each in proposals]
    findings += [each.finding for each in outcomes if each.finding]
    return Advice(
        analysis=replace(analysis, findings=ranked(tuple(findings))),
        tried=_tried(outcomes),
        judged=judged,
        unjudged=unjudged,
    )


def _check_can_be_tried(options: RunOptions) -> None:
    """Raise an error for other machines, devices, or training."""
    hardware, measured = options.hardware, argument("measure", True)
    is_value = isinstance(hardware, HardwareProfile)
    if hardware is not None and (is_value or not names_host(hardware)):
        raise InputError(f"{measured} measures on this machine; leave {argument('hardware')} out")
    if options.device not in (None, "cpu"):
        raise InputError(
            f"{measured} measures on a CPU; leave {argument('device', options.device)} out"
        )
    if options.train:
        raise InputError(f"{measured} measures inference; leave {argument('train')} out")


def _outcome(
    model: Model, inputs: Any, options: dict[str, Any], analysis: Analysis, variant: Variant
) -> Outcome:
    """Return the expected effect of a variant."""
    if variant.environment:
        return without_faults(variant, analysis)
    try:
        other = predict(model, inputs, **{**options, **variant.options})
    except RooflineError as error:
        # Models can reject types and batches.
        return Outcome(variant=variant, words=f"{variant.name}: failed ({error})")
    return outcome_of(variant, analysis, other)


def _best_of_each(outcomes: list[Outcome]) -> list[Outcome]:
    """Return the outcomes with only the best finding of each rule."""
    best: dict[str, Outcome] = {}
    for each in outcomes:
        if each.finding:
            known = best.get(each.variant.rule)
            if known is None or _saved(each) > _saved(known):
                best[each.variant.rule] = each
    return [each for each in outcomes if not each.finding or best[each.variant.rule] is each]


def _tried(outcomes: list[Outcome]) -> tuple[str, ...]:
    """Return the outcomes without a finding as text, equal ones in one line."""
    names: dict[str, list[str]] = {}
    for each in outcomes:
        if each.words:
            name = each.variant.name
            names.setdefault(each.words.removeprefix(f"{name}: "), []).append(name)
    return tuple(f"{', '.join(of)}: {words}" for words, of in names.items())


def _saved(outcome: Outcome) -> float:
    return (outcome.finding.saving_s or 0.0) if outcome.finding else 0.0
