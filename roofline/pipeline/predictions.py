"""predict: how long a model will take, from what was learned, or from its operators one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from roofline.analysis import Analysis
from roofline.errors import InputError
from roofline.foundation.progress import Progress, Say, silent
from roofline.latency.calibrated import no_calibration
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.pipeline.assembly import assemble
from roofline.pipeline.machines import Hardware, hardware_for, means_host, predictor_of, threads_on
from roofline.pipeline.runs import RunOptions, check_counts, workload_of
from roofline.placement import Roof
from roofline.workload.residency import residency

if TYPE_CHECKING:
    import torch

    Model = torch.nn.Module | Callable[..., Any] | str

Operators = Literal["learned", "measured"]


def predict(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Hardware | None = None,
    dtype: str | torch.dtype | None = None,
    batch: int | None = None,
    seq: int | None = None,
    threads: int | None = None,
    train: bool = False,
    optimizer: str | Callable[..., torch.optim.Optimizer] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    autocast: str | torch.dtype | None = None,
    channels_last: bool = False,
    device: str | None = None,
    operators: Operators = "learned",
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Analysis:
    """How long a model will take on a machine: a bound, and a prediction with its interval.

    Cheap to call in a loop: the machine and what was learned of it are loaded once. On a machine
    that was not calibrated there are bounds and no predictions, and ``warnings`` say so.

    Args:
        model, inputs, dtype, batch, seq, threads, train, optimizer, loss, autocast, channels_last,
            device: as for `analyze`.
        hardware: as for `analyze`; other machines are predicted where what was learned of them lies
            beside their file (``NAME.latency.sqlite``).
        operators: ``"learned"`` from calibrations and profiles, or ``"measured"``: every operator
            that is not known yet is timed once on this machine, on its own, and remembered.
        force: measures operators although others compute.
        progress: told how far measurements are, where some are needed.
        say: told, in words, what is waited for.

    Raises:
        ModelError, InputError, HardwareError: as `analyze`.
        MeasurementError: operators are to be measured, and cannot be.
    """
    if operators not in ("learned", "measured"):
        raise InputError(f"--operators {operators}: choose learned or measured")
    check_counts(batch=batch, seq=seq, threads=threads, inputs=inputs)
    options = RunOptions(
        dtype=dtype,
        train=train,
        optimizer=optimizer,
        loss=loss,
        autocast=autocast,
        channels_last=channels_last,
        device=device,
    )
    options.run()
    is_host = hardware is None or (
        not isinstance(hardware, HardwareProfile) and means_host(hardware)
    )
    if operators == "measured" and not is_host:
        raise InputError(
            "--operators measured times operators on this machine; leave --hardware out"
        )
    if operators == "measured" and device not in (None, "cpu"):
        raise InputError(f"--operators measured times them on a CPU; leave --device {device} out")
    if operators == "measured":
        from roofline.pipeline.isolation import with_operators_measured

        run = options.run()
        return with_operators_measured(
            workload_of(model, inputs, run=run, batch=batch, seq=seq),
            run=run,
            teaching=options.teaching(),
            threads=threads,
            force=force,
            progress=progress,
            say=say or silent,
        )
    run = options.run("cpu" if is_host else hardware_for(hardware)[0].device)
    asked = workload_of(model, inputs, run=run, batch=batch, seq=seq)
    machine = _machine(hardware, progress)
    roof = Roof(machine.profile, threads_on(machine.profile, threads, alone=True))
    from roofline.workload.capture.passes import capture

    captured = capture(
        asked.source.module,
        asked.given,
        name=asked.source.name,
        run=run,
        teaching=options.teaching(),
        rebuild=asked.source.rebuild,
    )
    predictor = predictor_of(machine.profile, hardware, run)
    notes = [*asked.notes, *captured.notes, *machine.notes]
    if run.train or run.autocast or run.device != "cpu":
        notes.append(
            "bounds only: what is learned is of eager inference on a CPU, without autocast"
        )
    elif predictor is None:
        notes.append(no_calibration(machine.profile.name))
    return assemble(
        asked.source.name,
        asked.specs,
        captured,
        residency(captured.records),
        roof,
        cold=False,
        notes=notes,
        predictor=predictor,
        runs=predictor.runs_here if predictor else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    profile: HardwareProfile
    notes: tuple[str, ...]


def _machine(hardware: Hardware | None, progress: Progress | None) -> _Machine:
    """The machine that is meant; its file is read once, as long as it does not change."""
    if isinstance(hardware, HardwareProfile):
        return _Machine(profile=hardware, notes=())
    named = str(hardware) if hardware is not None else catalog.HOST
    file = catalog.host_file() if named == catalog.HOST else Path(named)
    try:
        stamp = file.stat().st_mtime_ns
    except OSError:
        stamp = None
    if stamp is None:
        profile, notes = hardware_for(hardware, progress)
        return _Machine(profile=profile, notes=notes)
    return _read_once(named, str(file), stamp)


@functools.lru_cache(maxsize=32)
def _read_once(named: str, _file: str, _stamp: int) -> _Machine:
    profile, notes = hardware_for(named)
    return _Machine(profile=profile, notes=notes)
