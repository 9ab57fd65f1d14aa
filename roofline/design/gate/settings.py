"""Whether two costs are of the same task, and what differs between those that are."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.analysis import Analysis
from roofline.design.gate.cost import Cost
from roofline.errors import InputError
from roofline.foundation.text import printable
from roofline.foundation.units import format_shape
from roofline.workload.runs import Run
from roofline.workload.tensors import InputSpec


def check_repeated(analysis: Analysis, *, what: str) -> None:
    """Refuses an analysis of a first pass: its bounds are longer than those of all that follow.

    Raises:
        InputError: naming `what` it is, and the fix.
    """
    if analysis.cache == "cold":
        raise InputError(
            f"{printable(what)}: is of a first pass (--cold), and checks are of repeated ones;"
            " analyse it without --cold"
        )


def check_same_task(baseline: Cost, now: Cost, *, file: str) -> None:
    """Refuses costs of another task: other inputs, or run in another way.

    Args:
        baseline: what it cost.
        now: what it costs.
        file: where the baseline is, for messages.

    Raises:
        InputError: naming both and the fix.
    """
    for before, after, options in (
        (
            f"inputs {_inputs(baseline.inputs)}",
            f"inputs {_inputs(now.inputs)}",
            "--input, --batch, --seq",
        ),
        (describe_run(baseline.run), describe_run(now.run), "--train, --dtype, --autocast …"),
    ):
        if before != after:
            raise InputError(
                f"{printable(file)}: is of {before}, and this is of {after}; ask for the same"
                f" ({options}), or write a new baseline with --update"
            )


def times_apart(baseline: Cost, now: Cost) -> str:
    """Why their times cannot be compared, in words; ``""`` if they can."""
    before, after = baseline.machine, now.machine
    if after is None:
        return "no machine was asked for; add --hardware, or measure this one: roofline measure"
    if before is None:
        return "the baseline has no times; write it again with --update"
    if (before.name, before.device) != (after.name, after.device):
        return (
            f"the baseline is of machine '{printable(before.name)}', and this is"
            f" '{printable(after.name)}'"
        )
    if before.cpu_model != after.cpu_model:
        return (
            f"the baseline is of a '{printable(before.cpu_model or 'CPU that is not named')}', and"
            f" this is a '{printable(after.cpu_model or 'CPU that is not named')}'"
        )
    if before.threads != after.threads:
        return f"the baseline is of {before.threads} threads, and this is of {after.threads}"
    return ""


def differences(baseline: Cost, now: Cost) -> Iterable[str]:
    """What else is not the same, a line each: names, machine, its date, calibration, versions."""
    if baseline.model != now.model:
        yield f"the baseline is of '{baseline.model}', and this is '{now.model}'"
    if baseline.run.loss != now.run.loss:
        yield (
            f"the baseline's loss is {baseline.run.loss or 'not named'}, and this one's is"
            f" {now.run.loss or 'not named'}"
        )
    before, after = baseline.machine, now.machine
    # Where counts alone are asked for, whoever counts says why.
    if after is not None:
        if apart := times_apart(baseline, now):
            yield f"times are not compared: {apart}"
        elif before is not None and before.date != after.date:
            yield (
                f"machine '{after.name}' was measured on {after.date or 'no known day'},"
                f" for the baseline on {before.date or 'no known day'}: its bounds move"
                " with the ceilings"
            )
    if baseline.predicted_s is not None and now.predicted_s is not None:
        old, new = baseline.calibration, now.calibration
        if old != new:
            yield f"predictions were learned from {old}, and now from {new}"
    yield from _versions(baseline, now)


def _versions(baseline: Cost, now: Cost) -> Iterable[str]:
    names = [name for name in now.versions if name in baseline.versions]
    changed = [
        f"{name} {baseline.versions[name]} → {now.versions[name]}"
        for name in names
        if baseline.versions[name] != now.versions[name]
    ]
    if changed:
        yield (
            f"counted by other versions than the baseline: {', '.join(changed)}; what changed may"
            " be theirs"
        )


def _inputs(specs: tuple[InputSpec, ...]) -> str:
    shown = (
        f"{f'{each.name}=' if each.name else ''}{format_shape(each.shape)}:{each.dtype.name}"
        for each in specs
    )
    return printable(", ".join(shown)) or "none"


def describe_run(run: Run) -> str:
    """How a model was run, in words: ``"a training step with adamw, in bfloat16"``."""
    parts = ["inference"]
    if run.train:
        update = f" with {run.optimizer}" if run.optimizer else " without an update"
        parts = [f"a training step{update}"]
    if run.dtype:
        parts.append(f"in {run.dtype}")
    if run.autocast:
        parts.append(f"with autocast to {run.autocast}")
    if run.channels_last:
        parts.append("channels last")
    if run.device != "cpu":
        parts.append(f"for {run.device}")
    return printable(", ".join(parts))
