"""compare: models, run in one or several ways, on one machine or several."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, read_analysis
from roofline.design.comparison.ratios import MeasuredRounds
from roofline.design.comparison.result import Comparison, distinct
from roofline.errors import InputError, nearest
from roofline.foundation.progress import Progress, Say
from roofline.foundation.text import counted, printable
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.analyses import KnownMachine, known_machines, placed_on_each
from roofline.pipeline.machines import Hardware
from roofline.pipeline.measured_comparisons import Candidate, check_measurable, measured_in_turn
from roofline.pipeline.runs import CapturedPass, captured_pass
from roofline.run import PlacedKeywords, RunOptions, takes

if TYPE_CHECKING:
    from roofline.pipeline.analyses import Model


LAYOUTS = ("contiguous", "channels-last")
"""How images and weights of convolutions may be laid out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The model of this number, run in one way; ``label`` says what varies, ``""`` if nothing."""

    model: int
    options: RunOptions
    label: str = ""

    def named(self, model: str) -> str:
        """What it is called: ``"resnet50 bfloat16"``, ``"resnet50 · 2 threads"``."""
        return f"{model}{self.label}"


def variants_of(
    models: int,
    options: RunOptions,
    *,
    dtype: Any = None,
    batch: Any = None,
    threads: Any = None,
    channels_last: Any = False,
) -> tuple[Variant, ...]:
    """Every model in every way that the options say, the ways of one model beside each other.

    Each of dtype, batch, threads and channels_last is a value or a list of them; `options` are how
    all are run otherwise.

    Raises:
        InputError: an empty list, or a value that stands twice.
    """
    dtypes = _listed("--dtype", dtype)
    batches = _listed("--batch", batch)
    teams = _listed("--threads", threads)
    layouts = _listed("--layout", channels_last)
    found: list[Variant] = []
    for number in range(models):
        for of, size, team, layout in itertools.product(dtypes, batches, teams, layouts):
            label = f" {str(of).removeprefix('torch.')}" if len(dtypes) > 1 else ""
            label += f" · batch {size}" if len(batches) > 1 else ""
            label += f" · {counted(team, 'thread')}" if len(teams) > 1 else ""
            label += f" · {LAYOUTS[bool(layout)]}" if len(layouts) > 1 else ""
            way = replace(options, dtype=of, batch=size, threads=team, channels_last=layout)
            found.append(Variant(model=number, options=way, label=label))
    return tuple(found)


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
    if not isinstance(reference, str):
        return reference
    names = [each.named(models[each.model]) for each in variants]
    # The name of one model may be that of another's variant.
    for known in (names, [models[each.model] for each in variants]):
        if reference in known:
            return known.index(reference)
    candidates = dict.fromkeys((*models, *names))
    hint = nearest(reference, candidates) or f"; there are {', '.join(candidates)}"
    raise InputError(f"--reference '{reference}' is none of the models{printable(hint)}")


def _listed(option: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, (list, tuple)):
        return (given,)
    values: tuple[Any, ...] = tuple(given)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  a list of anything
    if not values:
        raise InputError(f"{option}: an empty list; leave it out, or name at least one")
    for place, each in enumerate(values):
        if each in values[:place]:
            shown = LAYOUTS[each] if option == "--layout" and isinstance(each, bool) else each
            raise InputError(f"{option} {shown} is given twice; name it once")
    return values


@takes(PlacedKeywords)
def compare(
    *models: Model | Analysis,
    inputs: Any = None,
    reference: int | str = 0,
    hardware: Any = None,
    dtype: Any = None,
    batch: Any = None,
    threads: Any = None,
    channels_last: Any = False,
    names: Sequence[str] = (),
    measure: bool = False,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Any,
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
        hardware: as for `analyze`, or a list of machines.
        dtype, batch, threads, channels_last: as for `analyze`, or lists.
        progress: told how far it is.

    Raises:
        InputError: nothing to compare, or analyses of different hardware; and whatever `analyze`
            and, with ``measure``, `profile` raise.
        MeasurementError: the machine is busy, or a process that measured died.
    """
    options = RunOptions.of(inputs, **run)
    ways = variants_of(
        len(models),
        options,
        dtype=dtype,
        batch=batch,
        threads=threads,
        channels_last=channels_last,
    )
    machines: list[Any] = [*hardware] if isinstance(hardware, (list, tuple)) else [hardware]
    if len(ways) < 2:
        raise InputError(
            "a comparison takes at least two models, or one in several ways; write roofline"
            " compare A B, or roofline compare A --dtype float32 --dtype bfloat16"
        )
    if names and len(names) not in (len(models), len(ways)):
        raise InputError(f"{len(names)} names for {len(models)} models")
    changes = {
        "--input": inputs,
        "--dtype": dtype,
        "--batch": batch,
        "--seq": options.seq,
        "--train": options.train or None,
        "--autocast": options.autocast,
        "--channels-last": channels_last or None,
        "--device": options.device,
        "--measure": measure or None,
        "--cold": options.cold or None,
        "--threads": threads if isinstance(threads, (list, tuple)) else None,
        "--hardware": machines if len(machines) > 1 else None,
    }
    _check_saved(models, changes, {"--hardware": hardware, "--threads": threads})
    _check_machines(machines)
    if measure:
        check_measurable(
            hardware,
            train=options.train,
            device=options.device,
            cold=options.cold,
            rounds=rounds,
        )
    elif rounds is not None:
        raise InputError(f"--rounds {rounds} has no effect without --measure")
    at = _reference(reference, ways, models, names)
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
                batch=way.options.batch,
                seq=options.seq,
                run=way.options.run(),
                # As many as were analysed.
                threads=analyses[0].threads,
            )
            for way, name, analyses in zip(ways, called, found, strict=True)
        ]
        measured = measured_in_turn(
            candidates, rounds=rounds, force=force, progress=progress, say=say
        )
    return Comparison.of(
        *zip(*found, strict=True),
        reference=at,
        names=called,
        rounds=measured,
        per_sample=True if len({way.options.batch for way in ways}) > 1 else None,
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
    known: dict[int | None, tuple[KnownMachine, ...]] = {}
    for way in ways:
        way.options.run()
        threads = way.options.threads
        if threads not in known and not isinstance(models[way.model], Analysis):
            known[threads] = known_machines(machines, threads)

    @functools.cache
    def passed(model: int, options: RunOptions, device: str) -> CapturedPass:
        return captured_pass(models[model], inputs, options, on=device)

    found: list[list[Analysis]] = []
    for way in ways:
        options = way.options
        if isinstance(models[way.model], Analysis):
            found.append([models[way.model]])
            continue
        found.append(
            placed_on_each(
                # Threads change where a pass is placed, not what it is.
                functools.partial(passed, way.model, replace(options, threads=None)),
                known[options.threads],
                threads=options.threads,
                cold=options.cold,
                progress=progress,
            )
        )
    return found


def _check_saved(
    models: Sequence[object], changes: dict[str, Any], machine: dict[str, Any]
) -> None:
    """Refuses options that would change what is saved, and those that would change nothing."""
    saved = [each for each in models if _is_saved(each)]
    for option, value in changes.items():
        if saved and value is not None:
            raise InputError(
                f"{option} cannot change an analysis that is saved ({_name(saved[0])}): name its"
                " model"
            )
    for option, value in machine.items():
        if len(saved) == len(models) and value is not None:
            raise InputError(f"{option} has no effect: all of these are saved analyses")


def _check_machines(machines: Sequence[Hardware | None]) -> None:
    if not machines:
        raise InputError("hardware: an empty list; leave it out, or name at least one machine")
    for place, each in enumerate(machines):
        if each in machines[:place]:
            name = each.name if isinstance(each, HardwareProfile) else each
            raise InputError(f"--hardware {name} is given twice; name it once")


def _is_saved(model: object) -> bool:
    return isinstance(model, Analysis) or (isinstance(model, str) and model.endswith(".json"))


def _name(model: object) -> str:
    if isinstance(model, Analysis):
        return model.model
    return model if isinstance(model, str) else type(model).__name__


def _reference(
    reference: int | str, ways: Sequence[Variant], models: Sequence[object], names: Sequence[str]
) -> int:
    """The number of the reference, which may be named as the user named what is compared."""
    if isinstance(reference, str) and reference in names and len(names) == len(ways):
        return names.index(reference)
    called = names if len(names) == len(models) else [_name(each) for each in models]
    found = reference_among(reference, ways, called)
    if not 0 <= found < len(ways):
        raise InputError(f"reference {found}: there are models 0 to {len(ways) - 1}")
    return found


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
