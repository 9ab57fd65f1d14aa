"""predict: how long a model will take, from what was learned, or from its operators one by one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from roofline.analysis import Analysis
from roofline.core.progress import Progress, Say, silent
from roofline.core.sampling import Sample, quantile
from roofline.errors import InputError, argument
from roofline.latency.calibrated import no_calibration
from roofline.latency.features import facts_of
from roofline.latency.measuring.rounds import Gauges
from roofline.latency.prediction import Predicted, Prediction, RunPrediction
from roofline.latency.predictor import Predictor
from roofline.latency.samples import IsolatedSample
from roofline.latency.store import Store
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.machine.system.topology import Topology
from roofline.pipeline.analyses import assemble
from roofline.pipeline.machines import (
    Hardware,
    hardware_for,
    host_environment,
    host_latency_file,
    means_host,
    predictor_of,
    threads_on,
)
from roofline.pipeline.runs import CapturedPass, Workload, captured_pass, workload_of
from roofline.pipeline.timing import bench
from roofline.placement import Placement, Roof, place
from roofline.run import PredictedKeywords, RunOptions, check_choice, takes
from roofline.workload.operators import State

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


def _with_operators_measured(
    asked: Workload,
    *,
    force: bool,
    progress: Progress | None,
    say: Say,
) -> Analysis:
    """An analysis on this machine, predicted from its operators one by one."""
    with bench(force=force, say=say, progress=progress) as here:
        threads = asked.options.threads or here.profile.threads
        roof = Roof(here.profile, here.profile.check_threads(threads))
        one = OneByOne(asked, roof=roof, topology=here.topology, progress=progress, say=say)
    learned = predictor_of(here.profile, None, asked.run, no_cache=asked.options.no_cache)
    return assemble(
        one.passed,
        roof,
        notes=(*one.passed.notes, *here.notes),
        predictor=one.predicted(learned),
        learned=learned,
    )


class OneByOne:
    """The operators of a model, each unique one timed once on its own, or known from before."""

    def __init__(
        self,
        asked: Workload,
        *,
        roof: Roof,
        topology: Topology,
        say: Say,
        progress: Progress | None = None,
    ) -> None:
        from roofline.latency.measuring.calls import CallLog
        from roofline.latency.measuring.isolated import measure_unique

        log = CallLog()
        self.passed: CapturedPass = replace(asked.captured(on_call=log.begin), workload=None)
        self._roof = roof
        capture = self.passed.capture
        at_work = [each.state is not State.FREE for each in capture.records]
        with (
            Store(host_latency_file(), host_environment()) as store,
            core_state_reader(topology.cores[: roof.threads]) as core_state,
        ):
            gauges = replace(Gauges(), core_state=core_state)
            self.samples: list[IsolatedSample | None] = measure_unique(
                [call if works else None for call, works in zip(log.calls, at_work, strict=True)],
                store=store,
                threads=roof.threads,
                last_level_bytes=last_level_bytes(roof.profile),
                pass_bytes=capture.parameter_size_bytes
                + capture.buffer_size_bytes
                + capture.input_bytes
                + self.passed.reuse.peak_activation_bytes,
                cores=topology.cores,
                gauges=gauges,
                progress=progress,
                say=say,
            )

    def predicted(self, learned: Predictor | None) -> Predicted:
        """Predictions from the times of operators; of what cannot be timed, what was learned.

        Times are stated for the core state of `learned`, whatever it was when they were taken;
        without it they are as they were taken.
        """
        placements = place(self.passed.capture.records, self.passed.reuse, self._roof)
        threads = self._roof.threads
        before = learned.predict(placements, threads) if learned else Predicted()
        known = before.operators or (None,) * len(placements)
        changes = self._changes(placements, learned)
        operators = [
            _prediction(sample.sample, changes.get(position, 1.0)) if sample is not None else each
            for position, (sample, each) in enumerate(zip(self.samples, known, strict=True))
        ]
        at_work = [
            position
            for position, each in enumerate(placements)
            if each.record.state is not State.FREE
        ]
        found = [each for each in (operators[position] for position in at_work) if each]
        notes: list[str] = []
        if len(found) < len(at_work):
            notes.append(
                f"{len(at_work) - len(found)} operators could not be timed on their own and are"
                " not predicted"
            )
            return Predicted(operators=tuple(operators), notes=tuple(notes))
        if not found:
            return Predicted(operators=tuple(operators))
        overhead_s: float | None = None
        if learned is not None and learned.calibration.has_runs:
            overhead_s = learned.calibration.overhead_s(
                threads, calls=len(placements), core_state=learned.core_state
            )
        else:
            notes.append(
                "what runs between operators is not in the prediction: nothing was learned here"
                " (`roofline calibrate`)"
            )
        timed = len({id(sample) for sample in self.samples if sample is not None})
        run = RunPrediction(
            predicted_s=sum(each.predicted_s for each in found) + (overhead_s or 0.0),
            low_s=sum(each.low_s for each in found) + (overhead_s or 0.0),
            high_s=sum(each.high_s for each in found) + (overhead_s or 0.0),
            operators_s=sum(each.predicted_s for each in found),
            overhead_s=overhead_s,
            calibration=f"{timed} operators timed on their own on this machine",
        )
        if learned is not None:
            run, more = learned.with_faults(run, placements, threads)
            notes += more
        return Predicted(operators=tuple(operators), run=run, notes=tuple(notes))

    def _changes(
        self, placements: Sequence[Placement], learned: Predictor | None
    ) -> dict[int, float]:
        """How many times as long operators take now as they took when they were timed."""
        if learned is None:
            return {}
        timed = [(place, each) for place, each in enumerate(self.samples) if each is not None]
        changes = learned.calibration.changes(
            [facts_of(placements[place], self._roof.threads) for place, _ in timed],
            [each.core_state for _, each in timed],
            learned.core_state,
        )
        return {place: change for (place, _), change in zip(timed, changes, strict=True)}


def _prediction(sample: Sample, change: float) -> Prediction:
    return Prediction(
        predicted_s=sample.median_s * change,
        low_s=quantile(sample.times_s, 0.1) * change,
        high_s=quantile(sample.times_s, 0.9) * change,
        samples=len(sample.times_s),
        distance=0.0,
        is_extrapolated=False,
        is_measured=True,
    )


def last_level_bytes(profile: HardwareProfile) -> int:
    """The size of the largest cache of a machine; where none is known, of one as large as any."""
    sizes = [each.capacity_bytes for each in profile.memory[:-1] if each.capacity_bytes is not None]
    return max(sizes, default=_LARGE_CACHE)


_LARGE_CACHE = 2**26


Operators = Literal["learned", "measured"]


@takes(PredictedKeywords)
def predict(
    model: Model,
    inputs: Any = None,
    *,
    operators: Operators = "learned",
    force: bool = False,
    progress: Progress | None = None,
    say: Say | None = None,
    **run: Unpack[PredictedKeywords],
) -> Analysis:
    """How long a model will take on a machine: a bound, and a prediction with its interval.

    Cheap to call in a loop: the machine and what was learned of it are loaded once. On a machine
    that was not calibrated there are bounds and no predictions, and ``warnings`` say so.

    Args:
        model, inputs: as for `analyze`. Other machines than this one are predicted where what was
            learned of them lies next to their file (``NAME.latency.sqlite``).
        operators: ``"learned"`` from calibrations and profiles, or ``"measured"``: every operator
            that is not known yet is timed once on this machine, on its own, and remembered.
        force: measures operators although others compute.
        progress: told how far measurements are, where some are needed.
        say: told, in words, what is waited for.

    Raises:
        ModelError, InputError, HardwareError: as `analyze`.
        MeasurementError: operators are to be measured, and cannot be.
    """
    check_choice("operators", operators, ("learned", "measured"))
    options = RunOptions.of(inputs, **run)
    hardware = options.hardware
    is_host = means_host(hardware)
    if operators == "measured":
        if not is_host:
            raise InputError(
                f"{argument('operators', 'measured')} times operators on this machine; leave"
                f" {argument('hardware')} out"
            )
        if options.device not in (None, "cpu"):
            raise InputError(
                f"{argument('operators', 'measured')} times them on a CPU; leave"
                f" {argument('device', options.device)} out"
            )
    device = "cpu" if is_host else hardware_for(hardware)[0].device
    if operators == "measured":
        asked = workload_of(model, inputs, options, on=device)
        return _with_operators_measured(asked, force=force, progress=progress, say=say or silent)
    # What is wrong with the model is found before ten seconds go into measuring this machine.
    captured = captured_pass(model, inputs, options, on=device)
    profile, machine_notes = _machine(hardware, progress)
    roof = Roof(profile, threads_on(profile, options.threads, alone=True))
    there = captured.capture.run
    predictor = predictor_of(profile, hardware, there, no_cache=options.no_cache)
    notes = [*captured.notes, *machine_notes]
    if there.train or there.autocast or there.device != "cpu":
        notes.append(
            "bounds only: what is learned is of eager inference on a CPU, without autocast"
        )
    elif predictor is None:
        notes.append(no_calibration(profile.name))
    return assemble(
        captured,
        roof,
        notes=notes,
        predictor=predictor,
        learned=predictor,
    )


_Machine = tuple[HardwareProfile, tuple[str, ...]]


def _machine(hardware: Hardware | None, progress: Progress | None) -> _Machine:
    """The machine that is meant; its file is read once, as long as it does not change."""
    if isinstance(hardware, HardwareProfile):
        return hardware, ()
    named = str(hardware) if hardware is not None else catalog.HOST
    file = catalog.host_file() if named == catalog.HOST else Path(named)
    try:
        stamp = file.stat().st_mtime_ns
    except OSError:
        return hardware_for(hardware, progress)
    return _read_once(named, str(file), stamp)


@functools.lru_cache(maxsize=32)
def _read_once(named: str, _file: str, _stamp: int) -> _Machine:
    return hardware_for(named)
