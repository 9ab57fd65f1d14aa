"""From the operators that were captured to the analysis of them on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofline.analysis import (
    SUMMED,
    Analysis,
    InputSpec,
    MemoryPeak,
    MinTimes,
    OperatorRow,
    Totals,
    coverage_of,
    known_work,
    minimum_times_of,
    row_of,
    sum_eager_min_time_s,
    sum_fused_bytes,
    working,
)
from roofline.foundation.rows import sum_known
from roofline.foundation.units import format_bytes, format_si
from roofline.latency.features import facts_of
from roofline.latency.prediction import Predicted, Predicts, RunPrediction
from roofline.latency.samples import EarlierRun, RunSample, Timed, earlier_run
from roofline.machine.hardware import HardwareProfile
from roofline.minimum import minimum_times
from roofline.placement import Placement, Roof, place, roof_notes
from roofline.run import Run
from roofline.workload.dataflow import dataflow
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import State
from roofline.workload.residency import Residency
from roofline.workload.rewritings import model_work

if TYPE_CHECKING:
    from roofline.workload.operators import Capture


def assemble(
    name: str,
    inputs: tuple[InputSpec, ...],
    capture: Capture,
    reuse: Residency,
    roof: Roof,
    *,
    cold: bool,
    notes: Sequence[str],
    predictor: Predicts | None = None,
    timed: Timed | None = None,
    runs: Sequence[RunSample] = (),
) -> Analysis:
    """The analysis of a capture under one machine's roof; `notes` come first in its warnings.

    Args:
        predictor: what was learned on that machine; None: nothing.
        timed: how long the operators of `capture` took; None: they were not measured.
    """
    placements = place(capture.records, reuse, roof, cache="cold" if cold else "steady")
    flow = dataflow(capture.records)
    fused = fused_traffic(capture.records, flow)
    predicted = predictor.predict(placements, roof.threads) if predictor else Predicted()
    known = predicted.operators or (None,) * len(placements)
    clock_notes: tuple[str, ...] = ()
    if timed and timed.run.clock_hz:
        # Predictions are learned under the ceilings as measured; minimum times hold at this clock.
        clock_notes = _clock_notes(roof.profile, timed.run.clock_hz)
        roof = Roof(roof.profile.at_clock(timed.run.clock_hz), roof.threads)
        placements = place(capture.records, reuse, roof, cache="cold" if cold else "steady")
    samples = timed.operators if timed else (None,) * len(placements)
    page_faults = timed.page_faults if timed else (None,) * len(placements)
    work = model_work(capture.records, flow)
    minimum = minimum_times(placements, fused, work, roof, flow=flow, cold=cold)
    kernels_s = [minimum.kernels_s.get(n) if minimum else None for n in range(len(placements))]
    rows = tuple(map(row_of, placements, fused, kernels_s, known, samples, page_faults))
    known_total = known_work(rows)
    kept = (
        capture.parameter_size_bytes
        + capture.buffer_size_bytes
        + capture.input_bytes
        + capture.optimizer_state_bytes
    )
    peak, eager_min_time_s = memory_peak(capture, reuse), sum_eager_min_time_s(rows)
    unknown = [row for row in rows if row.state is State.UNKNOWN]
    totals = Totals(
        **{name: getattr(known_total, name) for name in SUMMED},
        traffic_bytes=known_total.traffic_bytes,
        fused_bytes=sum_fused_bytes(rows),
        unknown_operators=len(unknown),
        parameters=capture.parameters,
        parameter_size_bytes=capture.parameter_size_bytes,
        buffer_size_bytes=capture.buffer_size_bytes,
        optimizer_state_bytes=capture.optimizer_state_bytes,
        peak_memory_bytes=peak.byte,
        all_tensors_bytes=kept + reuse.all_activation_bytes,
        **minimum_times_of(MinTimes.of(eager_min_time_s, minimum)),
        fused_limiter=minimum.fused.ceiling if minimum else "",
        model_limiter=minimum.model.ceiling if minimum else "",
    )
    totals = replace(totals, **_sums_of_times(rows, predicted.run))
    warnings = [*notes, *clock_notes, *roof_notes(placements, roof, capture.run.device)]
    noticed = len(roof.profile.conditions)
    if noticed:
        things = "something was" if noticed == 1 else f"{noticed} things were"
        name_of_profile = roof.profile.name
        warnings.append(
            f"{things} noticed when '{name_of_profile}' was measured;"
            f" `roofline hardware show {name_of_profile}` lists what"
        )
    if unknown:
        names = ", ".join(sorted({row.op for row in unknown}))
        traffic = format_bytes(sum(row.traffic_bytes for row in unknown))
        warnings.append(
            f"operators without a formula: {len(unknown)} calls of {names}; their FLOP is unknown"
            f" and missing from the totals, their {traffic} count (add one: @roofline.formula)"
        )
    return Analysis(
        model=name,
        inputs=inputs,
        run=capture.run,
        threads=roof.threads,
        cache="cold" if cold else "steady",
        hardware=roof.profile,
        coverage=coverage_of(rows),
        totals=totals,
        peak=peak,
        modules=capture.modules,
        operators=rows,
        prediction=predicted.run,
        measurement=timed.run if timed else None,
        earlier=None if timed or cold else _earlier(placements, capture.run, roof.threads, runs),
        warnings=(*warnings, *predicted.notes),
    )


_CLOCK_MATTERS = 1.02
"""How much faster cores must run than when the ceilings were measured for a warning."""


def _clock_notes(profile: HardwareProfile, clock_hz: float) -> tuple[str, ...]:
    measured_hz = profile.ceilings_clock_hz
    if measured_hz is None or clock_hz <= _CLOCK_MATTERS * measured_hz:
        return ()
    now, then = format_si(clock_hz, "Hz"), format_si(measured_hz, "Hz")
    return (
        f"cores ran at {now}, ceilings were measured at {then}: ceilings that follow the clock are"
        " scaled up to it",
    )


def memory_peak(capture: Capture, reuse: Residency) -> MemoryPeak:
    """What is in memory when a capture fills it most."""
    return MemoryPeak(
        operator=reuse.peak_index,
        parameter_bytes=capture.parameter_size_bytes,
        buffer_bytes=capture.buffer_size_bytes,
        input_bytes=capture.input_bytes,
        optimizer_bytes=capture.optimizer_state_bytes,
        activation_bytes=reuse.peak_activation_bytes,
        gradient_bytes=reuse.peak_gradient_bytes,
    )


def _earlier(
    placements: Sequence[Placement], run: Run, threads: int, runs: Sequence[RunSample]
) -> EarlierRun | None:
    if not runs:
        return None
    return earlier_run(
        runs,
        [facts_of(each, threads) for each in placements if each.record.state is not State.FREE],
        channels_last=run.channels_last,
        train=run.train,
    )


def _sums_of_times(rows: Sequence[OperatorRow], run: RunPrediction | None) -> dict[str, Any]:
    """What the predicted and measured times of the operators add up to."""
    at_work = working(rows)
    predicted_s = sum_known([row.predicted_s for row in at_work]) if at_work else None
    # The interval of the whole, for the part of it that operators are.
    share = predicted_s / run.predicted_s if run and predicted_s and run.predicted_s else None
    return {
        "predicted_s": predicted_s,
        "predicted_low_s": run.low_s * share if run and share else None,
        "predicted_high_s": run.high_s * share if run and share else None,
        "measured_s": sum_known([row.measured_s for row in at_work]) if at_work else None,
    }
