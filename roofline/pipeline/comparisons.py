"""Entry point `compare`: models and variants on one or several machines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import Analysis, read_analysis
from roofline.core.progress import Progress, Say
from roofline.core.text import counted, printable
from roofline.design.comparison.axes import LAYOUTS
from roofline.design.comparison.ratios import MeasuredRounds
from roofline.design.comparison.result import Comparison, distinct
from roofline.errors import InputError, argument, did_you_mean
from roofline.pipeline.analyses import ResolvedMachine, place_on_each, resolve_machines
from roofline.pipeline.machines import Hardware
from roofline.pipeline.measured_comparisons import Candidate, check_measurable, measure_interleaved
from roofline.pipeline.runs import CapturedPass, capture_pass
from roofline.run import CompareKeywords, RunOptions, each_of, takes

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Variant of a model (an index); ``label`` has its varying options, ``""`` without any."""

    model: int
    options: RunOptions
    label: str = ""

    def named(self, model: str) -> str:
        """Return the name: ``"resnet50 bfloat16"``, ``"resnet50 · 2 threads"``."""
        return f"{model}{self.label}"


def variants_of(models: int, ways: Sequence[RunOptions]) -> tuple[Variant, ...]:
    """Return all variants of all models, grouped by model."""
    labels = {
        "dtype": lambda dtype: f" {str(dtype).removeprefix('torch.')}",
        "batch": lambda batch: f" · batch {batch}",
        "threads": lambda threads: f" · {counted(threads, 'thread')}",
        "channels_last": lambda last: f" · {LAYOUTS[last]}",
    }
    varying = [name for name in labels if len({getattr(each, name) for each in ways}) > 1]

    def label(way: RunOptions, name: str) -> str:
        value = getattr(way, name)
        return f" · default {name}" if value is None else labels[name](value)

    return tuple(
        Variant(model=model, options=each, label="".join(label(each, name) for name in varying))
        for model in range(models)
        for each in ways
    )


def names_of(variants: Sequence[Variant], models: Sequence[str]) -> tuple[str, ...]:
    """Return the names of variants; models of equal names are numbered."""
    alike = len(set(models)) < len(models)
    numbered = [
        f"{name} ({number})" if alike else name for number, name in enumerate(models, start=1)
    ]
    return tuple(each.named(numbered[each.model]) for each in variants)


def reference_among(
    reference: int | str, variants: Sequence[Variant], models: Sequence[str]
) -> int:
    """Return the index of the reference: by index, name, or (the first) name of its model."""
    names = [each.named(models[each.model]) for each in variants]
    if not isinstance(reference, (str, int)) or isinstance(reference, bool):
        raise InputError(f"reference={reference!r}: must be the name or the number of a model")
    if not isinstance(reference, str):
        if not 0 <= reference < len(names):
            raise InputError(f"reference {reference}: must be from 0 to {len(names) - 1}")
        return reference
    # A model may have the name of another model's variant.
    for known in (names, [models[each.model] for each in variants]):
        if reference in known:
            return known.index(reference)
    candidates = dict.fromkeys((*models, *names))
    hint = did_you_mean(reference, candidates) or f"; there are {', '.join(candidates)}"
    raise InputError(f"{argument('reference', reference)}: not a compared model{printable(hint)}")


@takes(CompareKeywords)
def compare(
    *models: Model | Analysis,
    inputs: Any = None,
    reference: int | str = 0,
    names: Sequence[str] = (),
    measure: bool = False,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[CompareKeywords],
) -> Comparison:
    """Compare models: work, memory, AI and times, with ratios to a reference.

    Lists of ``dtype``, ``batch``, ``threads`` or ``channels_last`` make variants of every model. If
    batches differ, work and times are per sample.

    Args:
        models: modules, names, saved analyses (``.json``) or `Analysis` values: at least two, or
            one with several variants.
        inputs: as for `analyze`, for all analyzed models.
        reference: index or name of the reference.
        names: of models or variants [default: their own].
        measure: measure all of them here, interleaved, each time in a fresh process.
        rounds: number of rounds with ``measure``; None: 5.
        force: measure on a busy machine too.
        say: called with messages on delays.
        progress: called with the progress.

    Raises:
        InputError: fewer than two models, or analyses of different hardware; and errors of
            `analyze` and, with ``measure``, `profile`.
        MeasurementError: busy machine, or a failed process.
    """
    machines = each_of("hardware", run.get("hardware"))
    options = RunOptions.every(inputs, **{**run, "hardware": None})
    ways = variants_of(len(models), options)
    if len(ways) < 2:
        raise InputError(
            "a comparison requires two models or variants; write roofline compare A B, or roofline"
            " compare A --dtype float32 --dtype bfloat16"
        )
    if names and len(names) not in (len(models), len(ways)):
        raise InputError(f"{len(names)} names for {len(models)} models")
    _check_saved(models, {"inputs": inputs, "measure": measure, **run})
    if measure:
        check_measurable(machines, options[0], rounds=rounds)
    elif rounds is not None:
        raise InputError(
            f"{argument('rounds', rounds)} has no effect without {argument('measure', True)}"
        )
    called = names if len(names) == len(models) else [_name(each) for each in models]
    if isinstance(reference, str) and reference in names and len(names) == len(ways):
        reference = names.index(reference)
    at = reference_among(reference, ways, called)
    given = [
        read_analysis(each) if isinstance(each, str) and _is_saved(each) else each
        for each in models
    ]
    found = _analyses(given, ways, machines, inputs, progress)
    called = _called([each[0] for each in found], ways, names)
    measured: MeasuredRounds | None = None
    if measure:
        candidates = [
            Candidate(
                name=name,
                model=given[way.model],
                inputs=inputs,
                # The number of threads of the analysis.
                options=replace(way.options, threads=analyses[0].threads),
            )
            for way, name, analyses in zip(ways, called, found, strict=True)
        ]
        measured = measure_interleaved(
            candidates, rounds=rounds, force=force, progress=progress, say=say
        )
    return Comparison.of(
        *zip(*found, strict=True),
        reference=at,
        names=called,
        rounds=measured,
        per_sample=True if len({each.batch for each in options}) > 1 else None,
    )


def _analyses(
    models: Sequence[Any],
    ways: Sequence[Variant],
    machines: Sequence[Hardware | None],
    inputs: Any,
    progress: Progress | None,
) -> list[list[Analysis]]:
    """Return the analyses by variant and machine; saved ones are unchanged."""
    # Errors are raised before the first analysis.
    known: dict[int | None, tuple[ResolvedMachine, ...]] = {}
    for way in ways:
        way.options.run()
        threads = way.options.threads
        if threads not in known and not isinstance(models[way.model], Analysis):
            known[threads] = resolve_machines(machines, threads)

    @functools.cache
    def passed(model: int, options: RunOptions, device: str) -> CapturedPass:
        return capture_pass(models[model], inputs, options, on=device)

    found: list[list[Analysis]] = []
    for way in ways:
        options, model = way.options, models[way.model]
        if isinstance(model, Analysis):
            found.append([model])
            continue
        # The capture does not depend on threads.
        on_device = functools.partial(passed, way.model, replace(options, threads=None))
        found.append(place_on_each(on_device, known[options.threads], options, progress))
    return found


def _check_saved(models: Sequence[object], given: dict[str, Any]) -> None:
    """Raise an error for options that cannot apply to saved analyses."""
    saved = [each for each in models if _is_saved(each)]
    for name, value in given.items():
        if not saved or value is None or value is False or name == "no_cache":
            continue
        if name not in ("hardware", "threads") or isinstance(value, (list, tuple)):
            raise InputError(
                f"{argument(name)} cannot change a saved analysis ({_name(saved[0])}); give its"
                " model instead"
            )
        if len(saved) == len(models):
            raise InputError(f"{argument(name)} has no effect on saved analyses; leave it out")


def _is_saved(model: object) -> bool:
    return isinstance(model, Analysis) or (isinstance(model, str) and model.endswith(".json"))


def _name(model: object) -> str:
    if isinstance(model, Analysis):
        return model.model
    return model if isinstance(model, str) else type(model).__name__


def _called(
    analyses: Sequence[Analysis], ways: Sequence[Variant], names: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of all variants."""
    models: dict[int, str] = {}
    for way, each in zip(ways, analyses, strict=True):
        models.setdefault(way.model, each.model)
    if names and len(names) == len(ways) != len(models):
        return distinct(names)
    return names_of(ways, list(names) or list(models.values()))
