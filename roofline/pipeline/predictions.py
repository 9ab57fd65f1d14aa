"""predict: time of a model from calibration data, or from its operators timed alone."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from roofline.analysis import Analysis
from roofline.analysis.words import why_not_predicted
from roofline.core.progress import Progress, Say, silent
from roofline.core.sampling import Sample, quantile
from roofline.errors import InputError, argument
from roofline.latency.features import features_of
from roofline.latency.measuring.rounds import Gauges
from roofline.latency.prediction import Predicted, Prediction, RunPrediction
from roofline.latency.predictor import NOT_PREDICTED, Predictor
from roofline.latency.samples import IsolatedSample
from roofline.latency.store import Store
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.machine.measuring.core_state_reader import core_state_reader
from roofline.machine.system.topology import Topology
from roofline.pipeline.analyses import assemble_analysis
from roofline.pipeline.machines import (
    Hardware,
    host_environment,
    host_latency_file,
    load_calibrated,
    load_predictor,
    names_host,
    resolve_hardware,
    threads_on,
)
from roofline.pipeline.runs import CapturedPass, Workload, build_workload, capture_pass
from roofline.pipeline.timing import bench
from roofline.placement import Placement, Roof, place
from roofline.run import PredictedKeywords, RunOptions, check_choice, takes
from roofline.workload.operators import State

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


def _with_operators_measured(
    asked: Workload, *, force: bool, progress: Progress | None, say: Say
) -> Analysis:
    """Return an analysis on this machine, predicted from its operators timed alone."""
    with bench(force=force, say=say, progress=progress) as here:
        threads = asked.options.threads or here.profile.threads
        roof = Roof(here.profile, here.profile.check_threads(threads))
        one = IsolatedOperators(
            asked, roof=roof, topology=here.topology, progress=progress, say=say
        )
    predictor = load_calibrated(here.profile, None, asked.run, no_cache=asked.options.no_cache)
    found = assemble_analysis(
        one.passed,
        roof,
        notes=(*one.passed.notes, *here.notes),
        predictor=one.predicted(predictor),
        history=predictor,
    )
    is_without = found.prediction is None and found.operators
    return replace(found, not_predicted=_NOT_TIMED) if is_without else found


_NOT_TIMED = "operators could not be timed alone"


class IsolatedOperators:
    """Operators of a model, each unique one timed alone once, or read from the store."""

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
        from roofline.latency.measuring.isolated import measure_isolated

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
            self.samples: list[IsolatedSample | None] = measure_isolated(
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

    def predicted(self, predictor: Predictor | None) -> Predicted:
        """Return predictions from times of operators, else those of `predictor`.

        Times are converted to the core clock state of `predictor`, if there is one.
        """
        placements = place(self.passed.capture.records, self.passed.reuse, self._roof)
        threads = self._roof.threads
        before = predictor.predict(placements, threads) if predictor else Predicted()
        known = before.operators or (None,) * len(placements)
        changes = self._changes(placements, predictor)
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
                f"{len(at_work) - len(found)} operators could not be timed alone and are not"
                " predicted"
            )
            return Predicted(operators=tuple(operators), notes=tuple(notes))
        if not found:
            return Predicted(operators=tuple(operators))
        overhead_s: float | None = None
        if predictor is not None and predictor.calibration.has_runs:
            overhead_s = predictor.calibration.overhead_s(
                threads, calls=len(placements), core_state=predictor.core_state
            )
        else:
            notes.append(
                "the prediction excludes dispatch overhead: no calibration data; run `roofline"
                " calibrate`"
            )
        timed = len({id(sample) for sample in self.samples if sample is not None})
        run = RunPrediction(
            predicted_s=sum(each.predicted_s for each in found) + (overhead_s or 0.0),
            low_s=sum(each.low_s for each in found) + (overhead_s or 0.0),
            high_s=sum(each.high_s for each in found) + (overhead_s or 0.0),
            operators_s=sum(each.predicted_s for each in found),
            overhead_s=overhead_s,
            calibration=f"{timed} operators timed alone on this machine",
        )
        if predictor is not None:
            run, more = predictor.with_faults(run, placements, threads)
            notes += more
        return Predicted(operators=tuple(operators), run=run, notes=tuple(notes))

    def _changes(
        self, placements: Sequence[Placement], predictor: Predictor | None
    ) -> dict[int, float]:
        """Return the ratio of time now / time when timed, by position."""
        if predictor is None:
            return {}
        timed = [(place, each) for place, each in enumerate(self.samples) if each is not None]
        changes = predictor.calibration.time_ratios(
            [features_of(placements[place], self._roof.threads) for place, _ in timed],
            [each.pace for _, each in timed],
            predictor.core_state,
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
    """Return the size of the largest cache of a machine; of any machine if unknown."""
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
    """Predict the time of a model on a machine, with an 80 % prediction interval.

    Cheap in a loop: the machine and its calibration data are loaded once. Without calibration data
    the result has minimum times only, for the reason in ``not_predicted``.

    Args:
        model, inputs: as for `analyze`. For machines other than this one, calibration data are read
            next to their profile (``NAME.latency.sqlite``).
        operators: ``"learned"`` from calibrations and profiles, or ``"measured"``: each new
            operator is timed alone once on this machine, and stored.
        force: measure operators although other processes run.
        progress: called with the progress of measurements.
        say: called with notes on waiting.

    Raises:
        ModelError, InputError, HardwareError: as `analyze`.
        MeasurementError: operators cannot be measured.
    """
    check_choice("operators", operators, ("learned", "measured"))
    options = RunOptions.of(inputs, **run)
    hardware = options.hardware
    is_host = names_host(hardware)
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
    device = "cpu" if is_host else resolve_hardware(hardware)[0].device
    if operators == "measured":
        asked = build_workload(model, inputs, options, on=device)
        return _with_operators_measured(asked, force=force, progress=progress, say=say or silent)
    # Errors of the model come before ten seconds of measuring this machine.
    captured = capture_pass(model, inputs, options, on=device)
    profile, machine_notes = _machine(hardware, progress)
    roof = Roof(profile, threads_on(profile, options.threads, alone=True))
    there = captured.capture.run
    predictor = load_predictor(profile, hardware, there, no_cache=options.no_cache)
    notes = [*captured.notes, *machine_notes]
    found = assemble_analysis(captured, roof, notes=notes, predictor=predictor, history=predictor)
    is_without = found.prediction is None and found.operators
    if not is_without:
        return found
    # One reason is enough.
    notes_on_samples = [each for each in found.warnings if NOT_PREDICTED in each]
    return replace(
        found,
        not_predicted=next(iter(notes_on_samples), why_not_predicted(found)),
        warnings=tuple(each for each in found.warnings if each not in notes_on_samples),
    )


_Machine = tuple[HardwareProfile, tuple[str, ...]]


def _machine(hardware: Hardware | None, progress: Progress | None) -> _Machine:
    """Return a machine with notes; its file is read again only if it changes."""
    if isinstance(hardware, HardwareProfile):
        return hardware, ()
    named = str(hardware) if hardware is not None else catalog.HOST
    file = catalog.host_file() if named == catalog.HOST else Path(named)
    try:
        stamp = file.stat().st_mtime_ns
    except OSError:
        return resolve_hardware(hardware, progress)
    return _read_once(named, str(file), stamp)


@functools.lru_cache(maxsize=32)
def _read_once(named: str, _file: str, _stamp: int) -> _Machine:
    return resolve_hardware(named)
