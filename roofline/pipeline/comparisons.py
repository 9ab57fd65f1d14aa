"""compare: models side by side, run in one or several ways, on one machine or several."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofline.analysis import Analysis, read_analysis
from roofline.design.comparison.ratios import MeasuredRounds
from roofline.design.comparison.result import Comparison, distinct
from roofline.errors import InputError
from roofline.foundation.progress import Progress, Say
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.analyses import KnownMachine, known_machines, placed_on_each
from roofline.pipeline.machines import Hardware
from roofline.pipeline.measured_comparisons import Candidate, check_measurable, measured_in_turn
from roofline.pipeline.runs import CapturedPass, captured_pass
from roofline.pipeline.variants import Variant, names_of, reference_among, variants_of
from roofline.run import RunOptions, check_counts

if TYPE_CHECKING:
    import torch

    from roofline.pipeline.analyses import Model


def compare(
    *models: Model | Analysis,
    inputs: Any = None,
    reference: int | str = 0,
    hardware: Any = None,
    dtype: Any = None,
    batch: Any = None,
    seq: int | None = None,
    threads: Any = None,
    cold: bool = False,
    train: bool = False,
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: Any = False,
    device: str | None = None,
    names: Sequence[str] = (),
    measure: bool = False,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
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
        seq, cold, train, optimizer, loss, autocast, device, progress: as for `analyze`.

    Raises:
        InputError: nothing to compare, or analyses of different hardware; and whatever `analyze`
            and, with ``measure``, `profile` raise.
        MeasurementError: the machine is busy, or a process that measured died.
    """
    ways = variants_of(
        len(models), dtype=dtype, batch=batch, threads=threads, channels_last=channels_last
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
        "--seq": seq,
        "--train": train or None,
        "--autocast": autocast,
        "--channels-last": channels_last or None,
        "--device": device,
        "--measure": measure or None,
        "--cold": cold or None,
        "--threads": threads if isinstance(threads, (list, tuple)) else None,
        "--hardware": machines if len(machines) > 1 else None,
    }
    _check_saved(models, changes, {"--hardware": hardware, "--threads": threads})
    _check_machines(machines)
    if measure:
        check_measurable(hardware, train=train, device=device, cold=cold, rounds=rounds)
    elif rounds is not None:
        raise InputError(f"--rounds {rounds} has no effect without --measure")
    at = _reference(reference, ways, models, names)
    options = RunOptions(
        seq=seq,
        train=train,
        optimizer=optimizer,
        loss=loss,
        autocast=autocast,
        device=device,
        cold=cold,
    )
    given = [
        read_analysis(each) if isinstance(each, str) and _is_saved(each) else each
        for each in models
    ]
    run_as = [
        replace(
            options,
            dtype=way.dtype,
            batch=way.batch,
            threads=way.threads,
            channels_last=way.channels_last,
        )
        for way in ways
    ]
    found = _analyses(given, ways, run_as, machines, inputs, progress)
    called = _called([each[0] for each in found], ways, names)
    measured: MeasuredRounds | None = None
    if measure:
        candidates = [
            Candidate(
                name=name,
                model=given[way.model],
                inputs=inputs,
                batch=way.batch,
                seq=seq,
                run=each.run(),
                # As many as were analysed.
                threads=analyses[0].threads,
            )
            for way, each, name, analyses in zip(ways, run_as, called, found, strict=True)
        ]
        measured = measured_in_turn(
            candidates, rounds=rounds, force=force, progress=progress, say=say
        )
    return Comparison.of(
        *zip(*found, strict=True),
        reference=at,
        names=called,
        rounds=measured,
        per_sample=True if len({way.batch for way in ways}) > 1 else None,
    )


def _analyses(
    models: Sequence[Any],
    ways: Sequence[Variant],
    run_as: Sequence[RunOptions],
    machines: Sequence[Hardware | None],
    inputs: Any,
    progress: Progress | None,
) -> list[list[Analysis]]:
    """The analysis of each way on each machine; saved ones are what they are."""
    # Whatever is wrong with any of them is found before the first is analysed.
    known: dict[int | None, tuple[KnownMachine, ...]] = {}
    for way, options in zip(ways, run_as, strict=True):
        options.run()
        check_counts(batch=way.batch, seq=options.seq, threads=way.threads, inputs=inputs)
        if way.threads not in known and not isinstance(models[way.model], Analysis):
            known[way.threads] = known_machines(machines, way.threads)
    captured: dict[object, CapturedPass] = {}

    def passed(way: Variant, options: RunOptions, device: str) -> CapturedPass:
        # Threads change where a pass is placed, not what it is.
        key = (way.model, way.batch, way.dtype, way.channels_last, device)
        if key not in captured:
            captured[key] = captured_pass(models[way.model], inputs, options, on=device)
        return captured[key]

    found: list[list[Analysis]] = []
    for way, options in zip(ways, run_as, strict=True):
        model = models[way.model]
        if isinstance(model, Analysis):
            found.append([model])
            continue
        found.append(
            placed_on_each(
                functools.partial(passed, way, options),
                known[way.threads],
                threads=way.threads,
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
