"""compare: models side by side, run in one or several ways, on one machine or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from roofline.analysis import Analysis, read_analysis
from roofline.design.model_comparison.grid import ComparisonGrid
from roofline.design.model_comparison.measured_rounds import MeasuredRounds
from roofline.design.model_comparison.result import Comparison, distinct
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedWays:
    """Models, the ways that they are run in, and what holds for all of them.

    ``models`` are what `analyze` takes, or analyses; ``options`` are how they are run, but for what
    a way changes.

    Raises:
        InputError: a way that there is not; HardwareError: a machine without so many threads.
    """

    models: Sequence[Any]
    ways: Sequence[Variant]
    machines: Sequence[Hardware | None]
    options: RunOptions
    inputs: Any
    seq: int | None
    cold: bool
    progress: Progress | None
    _known: dict[int | None, tuple[KnownMachine, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Whatever is wrong with any of them is found before the first is analysed.
        for way in self.ways:
            self._options(way).run()
            check_counts(batch=way.batch, seq=self.seq, threads=way.threads, inputs=self.inputs)
        teams = {
            way.threads: None
            for way in self.ways
            if not isinstance(self.models[way.model], Analysis)
        }
        known = {threads: known_machines(self.machines, threads) for threads in teams}
        object.__setattr__(self, "_known", known)

    def analyses(self) -> list[list[Analysis]]:
        """The analysis of each way on each machine; saved ones are what they are."""
        captured: dict[object, CapturedPass] = {}
        return [self._analysed(way, captured) for way in self.ways]

    def candidates(
        self, names: Sequence[str], analyses: Sequence[Sequence[Analysis]]
    ) -> list[Candidate]:
        """The ways as what is measured; their threads are those that were analysed."""
        return [
            Candidate(
                name=name,
                model=self.models[way.model],
                inputs=self.inputs,
                batch=way.batch,
                seq=self.seq,
                run=self._options(way).run(),
                threads=found[0].threads,
            )
            for way, name, found in zip(self.ways, names, analyses, strict=True)
        ]

    def _options(self, way: Variant) -> RunOptions:
        return replace(self.options, dtype=way.dtype, channels_last=way.channels_last)

    def _analysed(self, way: Variant, captured: dict[object, CapturedPass]) -> list[Analysis]:
        model = self.models[way.model]
        if isinstance(model, Analysis):
            return [model]
        options = self._options(way)

        def passed(device: str) -> CapturedPass:
            # Threads change where a pass is placed, not what it is.
            key = (way.model, way.batch, way.dtype, way.channels_last, device)
            if key not in captured:
                asked = replace(options, batch=way.batch, seq=self.seq)
                captured[key] = captured_pass(model, self.inputs, asked, on=device)
            return captured[key]

        return placed_on_each(
            passed,
            self._known[way.threads],
            threads=way.threads,
            cold=self.cold,
            progress=self.progress,
        )


@overload
def compare(
    *models: Model | Analysis, hardware: list[Any] | tuple[Any, ...], **options: Any
) -> ComparisonGrid: ...


@overload
def compare(
    *models: Model | Analysis,
    inputs: Any = None,
    reference: int | str = 0,
    hardware: Hardware | None = None,
    dtype: str | torch.dtype | Sequence[str | torch.dtype] | None = None,
    batch: int | Sequence[int] | None = None,
    seq: int | None = None,
    threads: int | Sequence[int] | None = None,
    cold: bool = False,
    train: bool = False,
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: bool | Sequence[bool] = False,
    device: str | None = None,
    names: Sequence[str] = (),
    measure: bool = False,
    rounds: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Comparison: ...


def compare(  # pyright: ignore[reportInconsistentOverload]  the options are those of the second
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
) -> Comparison | ComparisonGrid:
    """Models side by side: work, memory, intensity, bound and times, with ratios to one of them.

    Where ``dtype``, ``batch``, ``threads`` or ``channels_last`` are lists, every model is run in
    every way that they say. Where batches differ, work and times are told for one sample. A list of
    hardware gives a `ComparisonGrid`: one comparison for each machine.

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
    }
    is_grid = isinstance(hardware, (list, tuple))
    machines: list[Hardware | None] = list(hardware) if is_grid else [hardware]  # pyright: ignore[reportUnknownArgumentType]  names, files or profiles
    _check_number(ways, names, len(models))
    _check_saved(models, changes, hardware=hardware, machines=machines, threads=threads)
    _check_machines(machines)
    if measure:
        check_measurable(hardware, train=train, device=device, cold=cold, rounds=rounds)
    elif rounds is not None:
        raise InputError(f"--rounds {rounds} has no effect without --measure")
    at = _reference(reference, ways, models, names)
    asked = AskedWays(
        models=[_read(each) for each in models],
        ways=ways,
        machines=machines,
        options=RunOptions(
            train=train, optimizer=optimizer, loss=loss, autocast=autocast, device=device
        ),
        inputs=inputs,
        seq=seq,
        cold=cold,
        progress=progress,
    )
    found = asked.analyses()
    called = _called([each[0] for each in found], ways, names)
    measured: MeasuredRounds | None = None
    if measure:
        candidates = asked.candidates(called, found)
        measured = measured_in_turn(
            candidates, rounds=rounds, force=force, progress=progress, say=say
        )
    by_batch = len({way.batch for way in ways}) > 1
    comparisons = [
        Comparison.of(
            [each[place] for each in found],
            reference=at,
            names=called,
            rounds=measured,
            per_sample=True if by_batch else None,
        )
        for place in range(len(machines))
    ]
    return ComparisonGrid.of(comparisons) if is_grid else comparisons[0]


def _check_number(ways: Sequence[Variant], names: Sequence[str], models: int) -> None:
    """Refuses what is too little to compare, and names that do not fit."""
    if len(ways) < 2:
        raise InputError(
            "a comparison takes at least two models, or one in several ways; write roofline"
            " compare A B, or roofline compare A --dtype float32 --dtype bfloat16"
        )
    if names and len(names) not in (models, len(ways)):
        raise InputError(f"{len(names)} names for {models} models")


def _check_saved(
    models: Sequence[object],
    changes: dict[str, Any],
    *,
    hardware: object,
    machines: Sequence[object],
    threads: object,
) -> None:
    """Refuses options that would change what is saved, and those that would change nothing."""
    saved = [each for each in models if _is_saved(each)]
    several = {
        "--threads": threads if isinstance(threads, (list, tuple)) else None,
        "--hardware": list(machines) if len(machines) > 1 else None,
    }
    for option, value in {**changes, **several}.items():
        if saved and value is not None:
            raise InputError(
                f"{option} cannot change an analysis that is saved ({_name(saved[0])}): name its"
                " model"
            )
    if len(saved) == len(models):
        for option, value in {"--hardware": hardware, "--threads": threads}.items():
            if value is not None:
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


def _read(model: object) -> object:
    """The model, or the analysis that its name is the file of."""
    return read_analysis(model) if isinstance(model, str) and _is_saved(model) else model


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
