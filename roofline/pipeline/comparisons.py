"""compare: models, run in one or several ways, on one machine or several."""

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
    """The model of this number, run in one way; ``label`` says what varies, ``""`` if nothing."""

    model: int
    options: RunOptions
    label: str = ""

    def named(self, model: str) -> str:
        """What it is called: ``"resnet50 bfloat16"``, ``"resnet50 · 2 threads"``."""
        return f"{model}{self.label}"


def variants_of(models: int, ways: Sequence[RunOptions]) -> tuple[Variant, ...]:
    """Every model in every way, the ways of one model next to each other."""
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
    """What variants are called; models of one name are numbered."""
    alike = len(set(models)) < len(models)
    numbered = [
        f"{name} ({number})" if alike else name for number, name in enumerate(models, start=1)
    ]
    return tuple(each.named(numbered[each.model]) for each in variants)


def reference_among(
    reference: int | str, variants: Sequence[Variant], models: Sequence[str]
) -> int:
    """The number of the variant that is meant: by number, its name, or (the first) its model's."""
    names = [each.named(models[each.model]) for each in variants]
    if not isinstance(reference, (str, int)) or isinstance(reference, bool):
        raise InputError(f"reference={reference!r}: must be the name or the number of a model")
    if not isinstance(reference, str):
        if not 0 <= reference < len(names):
            raise InputError(f"reference {reference}: there are models 0 to {len(names) - 1}")
        return reference
    # The name of one model may be that of another's variant.
    for known in (names, [models[each.model] for each in variants]):
        if reference in known:
            return known.index(reference)
    candidates = dict.fromkeys((*models, *names))
    hint = did_you_mean(reference, candidates) or f"; there are {', '.join(candidates)}"
    raise InputError(f"{argument('reference', reference)} is none of the models{printable(hint)}")


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
    """Models side by side: work, memory, intensity, bound and times, with ratios to one of them.

    Where ``dtype``, ``batch``, ``threads`` or ``channels_last`` are lists, every model is run in
    every way that they say. Where batches differ, work and times are told for one sample.

    Args:
        models: modules, names, saved analyses (``.json``) or `Analysis` values: at least two, or
            one that is run in several ways.
        inputs: as for `analyze`, the same for all that are analysed here.
        reference: the number of the model that ratios refer to, or its name.
        names: what the models are called, or all that is compared; by default what they are called.
        measure: measures all of them here too, in turn, each time in a process of its own.
        rounds: how often, with ``measure``; None: 5 times.
        force: measures although others compute.
        say: told, in words, what the measurement waits for.
        progress: told how far it is.

    Raises:
        InputError: nothing to compare, or analyses of different hardware; and whatever `analyze`
            and, with ``measure``, `profile` raise.
        MeasurementError: the machine is busy, or a process that measured died.
    """
    machines = each_of("hardware", run.get("hardware"))
    options = RunOptions.every(inputs, **{**run, "hardware": None})
    ways = variants_of(len(models), options)
    if len(ways) < 2:
        raise InputError(
            "a comparison takes at least two models, or one in several ways; write roofline"
            " compare A B, or roofline compare A --dtype float32 --dtype bfloat16"
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
                # As many as were analysed.
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
    """The analysis of each way on each machine; saved ones are what they are."""
    # Whatever is wrong with any of them is found before the first is analysed.
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
        # Threads change where a pass is placed, not what it is.
        on_device = functools.partial(passed, way.model, replace(options, threads=None))
        found.append(place_on_each(on_device, known[options.threads], options, progress))
    return found


def _check_saved(models: Sequence[object], given: dict[str, Any]) -> None:
    """Refuse options that would change what is saved, and those that would change nothing."""
    saved = [each for each in models if _is_saved(each)]
    for name, value in given.items():
        if not saved or value is None or value is False or name == "no_cache":
            continue
        if name not in ("hardware", "threads") or isinstance(value, (list, tuple)):
            raise InputError(
                f"{argument(name)} cannot change an analysis that is saved ({_name(saved[0])}):"
                " name its model"
            )
        if len(saved) == len(models):
            raise InputError(f"{argument(name)} has no effect: all of these are saved analyses")


def _is_saved(model: object) -> bool:
    return isinstance(model, Analysis) or (isinstance(model, str) and model.endswith(".json"))


def _name(model: object) -> str:
    if isinstance(model, Analysis):
        return model.model
    return model if isinstance(model, str) else type(model).__name__


def _called(
    analyses: Sequence[Analysis], ways: Sequence[Variant], names: Sequence[str]
) -> tuple[str, ...]:
    """What all that is compared is called."""
    models: dict[int, str] = {}
    for way, each in zip(ways, analyses, strict=True):
        models.setdefault(way.model, each.model)
    if names and len(names) == len(ways) != len(models):
        return distinct(names)
    return names_of(ways, list(names) or list(models.values()))
