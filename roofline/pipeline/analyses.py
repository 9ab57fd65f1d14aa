"""analyze, compare_machines and analyze_compiled: models counted and placed on machines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from roofline.analysis import (
    SUMMED,
    Analysis,
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
from roofline.core.progress import Progress
from roofline.core.text import NOTE, counted
from roofline.core.units import format_bytes, format_si, sum_known
from roofline.design.advice.rules import findings_of
from roofline.design.comparison.result import Comparison
from roofline.design.compilation import Compilation
from roofline.errors import HardwareError, InputError, argument
from roofline.latency.prediction import (
    MachinePredictor,
    OperatorPredictor,
    Predicted,
    RunPrediction,
)
from roofline.latency.samples import PassTimes
from roofline.machine import catalog
from roofline.machine.hardware import HardwareProfile
from roofline.machine.system.activity import lowering_conditions
from roofline.minimum import minimum_times
from roofline.pipeline.machines import (
    Hardware,
    host_profile,
    load_predictor,
    names_host,
    resolve_hardware,
    threads_on,
)
from roofline.pipeline.measuring import check_threads_of_host
from roofline.pipeline.runs import CapturedPass, capture_pass
from roofline.placement import Roof, place, roof_notes
from roofline.run import OnMachinesKeywords, PlacedKeywords, RunOptions, each_of, takes
from roofline.workload.dataflow import trace_dataflow
from roofline.workload.fusion import fused_traffic
from roofline.workload.operators import Capture, State
from roofline.workload.residency import Residency
from roofline.workload.rewritings import model_work

if TYPE_CHECKING:
    from roofline.pipeline.runs import Model


@takes(PlacedKeywords)
def analyze(
    model: Model,
    inputs: Any = None,
    *,
    progress: Progress | None = None,
    **run: Unpack[PlacedKeywords],
) -> Analysis:
    """Count every operator of a pass, and place it under a machine's ceilings.

    The model runs once on fake tensors, in eval mode without gradients, or with ``train`` one
    training step: no weights are allocated, and a given module is left unchanged. Code that needs
    values (data-dependent control flow) runs on copies, which ``warnings`` report.

    Args:
        model: a module, a function, or a name: ``"resnet50"`` (torchvision's, else timm's, else
            transformers'), ``"timm:resnet50"``, ``"hf:bert"``, ``"hf:BertForMaskedLM"``,
            ``"package.module:factory"``, ``"file.py:Model"``, or a design with an input shape:
            ``"conv2d(64,64,3)+relu()@56x56"`` (docs/how-to/designs.md).
        inputs: a tensor, a shape such as ``(1, 3, 224, 224)`` or ``"1x3x224x224"``, a sequence of
            these for several positional inputs, a mapping for keyword inputs, or both as
            ``roofline.Inputs(x, mask=m)``; each may be nested as the model takes it. Only shapes
            and data types matter. None: default inputs of the model.
        progress: called with the progress of measuring this machine, if necessary.

    Raises:
        ModelError: the model is unknown, cannot be built, or rejects its inputs.
        InputError: wrong inputs, data type or batch.
        HardwareError: unknown hardware, or too many threads.
    """
    options = RunOptions.of(inputs, **run)
    (known,) = resolve_machines([options.hardware], options.threads)
    captured = capture_pass(model, inputs, options, on=known.device)
    analysis = place_on(captured, known, options, progress)
    return add_findings(analysis, options.hardware, no_cache=options.no_cache)


@takes(PlacedKeywords)
def compare_machines(
    model: Model,
    inputs: Any = None,
    *,
    hardware: Sequence[Hardware],
    progress: Progress | None = None,
    **run: Unpack[OnMachinesKeywords],
) -> Comparison:
    """Compare the limiters and times of one model on several machines.

    The model is captured once for CPUs and once for GPUs, and its operators are placed under the
    ceilings of each machine.

    Args:
        model, inputs, progress: as for `analyze`.
        hardware: at least two machines, as for `analyze`; ``"host"`` is this one. `threads` applies
            to each CPU.

    Raises:
        InputError: fewer than two machines, or a machine twice; also all errors of `analyze`.
    """
    if not isinstance(hardware, Sequence) or isinstance(hardware, str):
        raise InputError(
            f"hardware: expected a list of at least two machines, got {hardware!r};"
            " for one machine: roofline.analyze"
        )
    if len(hardware) < 2:
        raise InputError("hardware: expected at least two machines; for one: roofline.analyze")
    machines = each_of("hardware", tuple(hardware))
    options = RunOptions.of(inputs, **run)
    known = resolve_machines(machines, options.threads)

    @functools.cache
    def passed(device: str) -> CapturedPass:
        return capture_pass(model, inputs, options, on=device)

    analyses = place_on_each(passed, known, options, progress)
    find = functools.partial(add_findings, no_cache=options.no_cache)
    return Comparison.of_machines(list(map(find, analyses, machines)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMachine:
    """A requested machine, and its profile with notes (None: it must be measured)."""

    requested: Hardware | None
    loaded: tuple[HardwareProfile, tuple[str, ...]] | None

    @property
    def device(self) -> str:
        """Device of the machine; machines to be measured are CPUs."""
        return self.loaded[0].device if self.loaded else "cpu"


def resolve_machines(
    machines: Sequence[Hardware | None], threads: int | None
) -> tuple[ResolvedMachine, ...]:
    """Return the requested machines, all checked before this one is measured."""
    known: list[ResolvedMachine] = []
    for hardware in machines:
        found = None
        if not names_host(hardware) or catalog.host_file().exists():
            found = resolve_hardware(hardware)
            threads_on(found[0], threads, alone=len(machines) == 1)
        elif threads is not None:
            check_threads_of_host(threads)
        known.append(ResolvedMachine(requested=hardware, loaded=found))
    none_is_cpu = all(each.device != "cpu" for each in known)
    if threads is not None and len(machines) > 1 and none_is_cpu:
        raise HardwareError(
            f"{argument('threads', threads)}: has no effect without a CPU; leave it out"
        )
    return tuple(known)


def place_on_each(
    passed: Callable[[str], CapturedPass],
    machines: Sequence[ResolvedMachine],
    options: RunOptions,
    progress: Progress | None,
) -> list[Analysis]:
    """Return the analyses of a pass, captured for each device, on each machine."""
    alone = len(machines) == 1
    return [
        place_on(passed(each.device), each, options, progress, alone=alone) for each in machines
    ]


def place_on(
    captured: CapturedPass,
    machine: ResolvedMachine,
    options: RunOptions,
    progress: Progress | None,
    *,
    predict: bool = True,
    alone: bool = True,
) -> Analysis:
    """Return the analysis of a pass on a machine; among several, threads apply to CPUs."""
    profile, hardware_notes = machine.loaded or host_profile(progress)
    # Calibration data are of passes with warm caches.
    is_predicted = predict and not options.cold
    predictor = None
    if is_predicted:
        run, no_cache = captured.capture.run, options.no_cache
        predictor = load_predictor(profile, machine.requested, run, no_cache=no_cache)
    return assemble_analysis(
        captured,
        Roof(profile, threads_on(profile, options.threads, alone=alone)),
        cold=options.cold,
        notes=(*captured.notes, *hardware_notes),
        predictor=predictor,
        history=predictor,
    )


def add_findings(
    analysis: Analysis, hardware: Hardware | None, *, no_cache: bool = False
) -> Analysis:
    """Return the analysis with its findings; `hardware` is the requested machine."""
    predictor = None
    if analysis.prediction is not None:
        run = analysis.run
        predictor = load_predictor(analysis.hardware, hardware, run, no_cache=no_cache)
    return replace(analysis, findings=findings_of(analysis, predictor))


@takes(PlacedKeywords)
def analyze_compiled(
    model: Model,
    inputs: Any = None,
    *,
    progress: Progress | None = None,
    **run: Unpack[PlacedKeywords],
) -> Compilation:
    """Compare the kernels that Inductor generates for a model with its eager operators.

    Dynamo, Inductor's scheduler and its code generator run as in `torch.compile(model)`; the
    generated C++ is not built, and fake tensors replace weights where possible. Bytes, launches and
    buffers are Inductor's own. ``compiled.why_not`` is the reason if there are none.

    Args:
        model, inputs, progress: as for `analyze`.

    Raises: ModelError: the model is unknown, cannot be built, rejects its inputs, or is already
        compiled. InputError: wrong inputs, data type or batch. HardwareError: unknown hardware, or
        too many threads.
    """
    options = RunOptions.of(inputs, **run)
    (known,) = resolve_machines([options.hardware], options.threads)
    captured = capture_pass(model, inputs, options, on=known.device, with_model=True)
    from roofline.workload.capture.inductor import capture_compiled

    asked = captured.model
    compiled = capture_compiled(
        asked.source.module,
        asked.given,
        run=asked.run,
        training=options.training_config(),
        rebuild=asked.source.rebuild,
    )
    analysis = add_findings(
        place_on(captured, known, options, progress), options.hardware, no_cache=options.no_cache
    )
    return Compilation(analysis=analysis, compiled=compiled)


# From operators to an analysis


def assemble_analysis(
    passed: CapturedPass,
    roof: Roof,
    *,
    notes: Sequence[str],
    cold: bool = False,
    predictor: OperatorPredictor | Predicted | None = None,
    timed: PassTimes | None = None,
    history: MachinePredictor | None = None,
) -> Analysis:
    """Return the analysis of a pass on a machine; `notes` come first in its warnings.

    `predictor` predicts times, or is a prediction; `history` has earlier runs.
    """
    capture, reuse = passed.capture, passed.reuse
    placements = place(capture.records, reuse, roof, cache="cold" if cold else "steady")
    flow = trace_dataflow(capture.records)
    fused = fused_traffic(capture.records, flow)
    predicted = predictor or Predicted()
    compiled = None
    if history is not None and not cold and not capture.run.train:
        compiled = history.predict_compiled(capture.records, fused, roof)
    if not isinstance(predicted, Predicted):
        predicted = predicted.predict(placements, roof.threads)
    known = predicted.operators or (None,) * len(placements)
    clock_notes: tuple[str, ...] = ()
    if timed and timed.run.clock_hz:
        # Predictions use the ceilings as measured, minimum times those at this clock.
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
    earlier = None
    if history and not timed and not cold:
        earlier = history.earlier_run(placements, capture.run, roof.threads)
    warnings = [*notes, *clock_notes, *roof_notes(placements, roof, capture.run.device)]
    name, conditions = roof.profile.name, roof.profile.conditions
    lowering = lowering_conditions(conditions)
    warnings += (f"ceilings of {name} may be too low ({each})" for each in lowering)
    if more := len(conditions) - len(lowering):
        warnings.append(
            f"{NOTE}measurement conditions of '{name}' (load, clock, unsteady kernels): {more} in"
            f" roofline hardware show {name}"
        )
    if unknown:
        names = ", ".join(sorted({row.op for row in unknown}))
        traffic = format_bytes(sum(row.traffic_bytes for row in unknown))
        warnings.append(
            f"operators without a formula: {counted(len(unknown), 'call')} of {names}; totals"
            f" include their {traffic}, not their FLOP (add a formula: @roofline.formula)"
        )
    return Analysis(
        model=passed.name,
        inputs=passed.inputs,
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
        compiled_prediction=compiled if predicted.run else None,
        measurement=timed.run if timed else None,
        earlier=earlier,
        warnings=(*warnings, *predicted.notes),
    )


_CLOCK_MATTERS = 1.02
"""Ratio of the core clock to that of the ceilings from which a note is given."""


def _clock_notes(profile: HardwareProfile, clock_hz: float) -> tuple[str, ...]:
    measured_hz = profile.ceilings_clock_hz
    if measured_hz is None or clock_hz <= _CLOCK_MATTERS * measured_hz:
        return ()
    now, then = format_si(clock_hz, "Hz"), format_si(measured_hz, "Hz")
    return (
        f"cores ran at {now}, ceilings were measured at {then}: clock-bound ceilings are scaled up",
    )


def memory_peak(capture: Capture, reuse: Residency) -> MemoryPeak:
    """Return the contents of memory at its peak."""
    return MemoryPeak(
        operator=reuse.peak_index,
        parameter_bytes=capture.parameter_size_bytes,
        buffer_bytes=capture.buffer_size_bytes,
        input_bytes=capture.input_bytes,
        optimizer_bytes=capture.optimizer_state_bytes,
        activation_bytes=reuse.peak_activation_bytes,
        gradient_bytes=reuse.peak_gradient_bytes,
    )


def _sums_of_times(rows: Sequence[OperatorRow], run: RunPrediction | None) -> dict[str, Any]:
    """Return the sums of the predicted and measured times of operators."""
    at_work = working(rows)
    predicted_s = sum_known([row.predicted_s for row in at_work]) if at_work else None
    # The interval of the pass, scaled to its operators.
    share = predicted_s / run.predicted_s if run and predicted_s and run.predicted_s else None
    return {
        "predicted_s": predicted_s,
        "predicted_low_s": run.low_s * share if run and share else None,
        "predicted_high_s": run.high_s * share if run and share else None,
        "measured_s": sum_known([row.measured_s for row in at_work]) if at_work else None,
    }
